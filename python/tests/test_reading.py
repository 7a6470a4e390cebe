# SPDX-License-Identifier: Apache-2.0
"""What people read: docstrings, help(), completion, reprs."""

import inspect
import pydoc
import re
import rlcompleter

import numpy as np
import pytest
from conftest import ROOT

import vkformer as vkf

# What PyTorch has under another name or the same, by ours.
TORCH = ["AdamW", "Adam", "SGD", "argmax", "batch_norm_train", "broadcast_to", "clip_grad_norm", "concat", "copy_into",
         "cross_entropy", "dropout", "embedding", "gelu", "gradients", "layer_norm", "linear", "linear_layer", "matmul", "permute",
         "relu", "reshape", "rms_norm", "scaled_dot_product_attention", "silu", "slice", "softmax", "sum", "top_k", "transpose",
         "torch.multihead_attention", "torch.transformer_encoder_layer", "torch.transformer_decoder_layer", "torch.transformer",
         "nn.Linear", "nn.Embedding", "nn.LayerNorm", "nn.RMSNorm", "nn.MultiheadAttention", "nn.TransformerEncoderLayer",
         "nn.TransformerDecoderLayer", "nn.TransformerEncoder", "nn.TransformerDecoder", "nn.Transformer", "Recompute",
         "Value.reshape", "Value.transpose", "Value.permute", "Value.to", "all_reduce", "all_gather", "broadcast"]
# What takes tensors and gives tensors: letters in brackets say their shapes.
SHAPES = ["attention", "attention_scores", "batch_norm", "batch_norm_train", "cross_entropy", "embed_tokens", "embedding",
          "feed_forward", "gather_pages", "grouped_query_attention", "incremental_attention", "layer_norm", "linear", "linear_layer",
          "matmul", "merge_heads", "multi_head_attention", "paged_attention", "packed_attention", "repeat_kv", "rms_norm", "rope",
          "scaled_dot_product_attention", "self_attention", "softmax", "split_heads", "top_k", "torch.multihead_attention",
          "torch.transformer_encoder_layer", "torch.transformer_decoder_layer", "torch.transformer"]


def found(path):
    thing = vkf
    for name in path.split("."):
        thing = inspect.getattr_static(thing, name) if inspect.isclass(thing) else getattr(thing, name)
    return thing


def prose(thing):
    """A docstring without the signatures that the extension puts before it."""
    thing = thing.__func__ if isinstance(thing, (staticmethod, classmethod)) else thing
    name = getattr(thing, "__name__", "")
    signature = re.compile(rf"(\d+\. ``)?{re.escape(name)}\(.*\) -> .*" if name else r"\(self.*\) -> .*")
    lines = [line.strip() for line in (thing.__doc__ or "").splitlines()]
    return " ".join(line for line in lines if line and not signature.fullmatch(line) and not line.startswith("(self")
                    and line != "Overloaded function.")


def everything():
    """Every public class, method, property and function, by its path."""
    paths = [*vkf.__all__, "eager.Function", *(f"{m}.{n}" for m in ("nn", "plot") for n in dir(getattr(vkf, m))
                                              if not n.startswith("_") and getattr(getattr(getattr(vkf, m), n), "__module__", "") == f"vkformer.{m}"),
             *(f"torch.{n}" for n in dir(vkf.torch) if not n.startswith("_"))]
    for path in paths:
        thing = found(path)
        yield path, thing
        if inspect.isclass(thing):
            yield from ((f"{path}.{n}", m) for n, m in vars(thing).items()
                        if not n.startswith("_") and (callable(m) or isinstance(m, (property, staticmethod, classmethod))))


def test_everything_says_what_it_is():
    seen = dict(everything())
    assert len(seen) > 600 and {"Capabilities.shared_memory", "nn.Linear.describe", "Graph.symbol", "plot.Svg.save"} <= set(seen)
    silent = [path for path, thing in seen.items() if not prose(thing)]
    assert not silent, silent


def test_names_of_torch_and_shapes_are_told():
    nameless = [path for path in TORCH if "torch." not in prose(found(path))]
    assert not nameless, nameless
    shapeless = [path for path in SHAPES if not re.search(r"\((\.\.\.|[A-Z])(, [\w. *+-]+)*\)", prose(found(path)))]
    assert not shapeless, shapeless


def test_help_reads_well():
    for path, thing in everything():
        if "." not in path:
            text = pydoc.plain(pydoc.render_doc(thing))
            assert prose(thing).split()[0] in text, path
    text = pydoc.plain(pydoc.render_doc(vkf.scaled_dot_product_attention))
    assert re.search("is_causal: '?bool'? = False", text) and "(..., H, L, S)" in text
    assert "docs/python.md" in pydoc.plain(pydoc.render_doc(vkf))


def completed(text, **names):
    complete = rlcompleter.Completer(names).complete
    return {complete(text, i) for i in range(len(rlcompleter.Completer(names).attr_matches(text)))}


def test_names_complete(device):
    assert {n.rstrip("(") for n in completed("vkf.scal", vkf=vkf)} == {"vkf.scale", "vkf.scaled_dot_product_attention"}
    g = vkf.Graph()
    x = g.input("x", [2, 3])
    assert any("x.transpose" in n for n in completed("x.tra", x=x)) and any("x.shape" in n for n in completed("x.sh", x=x))
    g.output("y", vkf.relu(x))
    program = device.compile(g)
    assert {"explain", "memory", "outputs", "times"} <= set(dir(program)) and "capabilities" in dir(device)
    # IPython's completer and its tooltips ask for signatures
    assert str(inspect.signature(vkf.load_decoder)).startswith("(folder:")


def test_reprs(device):
    g = vkf.Graph()
    x = g.input("x", [1, g.symbol("tokens", 8), 64])
    assert repr(x) == "<Value x (1, tokens, 64) F32>" and repr(x.shape) == "(1, tokens, 64)"
    h = vkf.grouped_query_attention(x, name="attn", heads=8, kv_heads=2, rope=vkf.Rope(layout="half"))
    g.output("y", h.y)
    assert "symbols: tokens <= 8" in repr(g) and "attn.k_proj.weight (16, 64)" in repr(g)
    assert repr(device).startswith(f"<Device {device.name}, {device.capabilities.type}") and device.name in repr(device.capabilities)
    program = device.compile(g, {n: np.zeros(s, np.float32) for n, (s, _) in g.weights.items()})
    assert repr(program) == "<Program x(1, tokens, 64) -> y(1, tokens, 64)>"
    assert repr(vkf.Schedule("cosine", 3, 9)) == "Schedule(kind='cosine', warmup=3, steps=9)"
    assert "causal='top_left'" in repr(vkf.Mask(causal="top_left")) and "bytes" not in repr(program.memory)
    assert repr(vkf.nn.Linear(3, 4)) == "Linear(in_features=3, out_features=4, bias=True)"
    assert "<Function softmax" in repr(vkf.functional._softmax)
    with vkf.Scope(g, "layers.0") as scope:
        assert repr(scope) == "Scope('layers.0')"
    shown = [device, g, x, h, program, program.memory, program.arithmetic, vkf.Rope(layout="half"), vkf.LoraOptions(), vkf.AdamW(),
             device.make_state([g]), vkf.Weights(), vkf.Checkpoint(ROOT / "samples/generate"), *vkf.tunables()[:1],
             vkf.nn.TransformerEncoder(vkf.nn.TransformerEncoderLayer(64, 8, batch_first=True), 2), device.tensor(np.ones(3, np.float32))]
    for thing in shown:
        assert "object at 0x" not in repr(thing), type(thing)


@pytest.mark.skipif(not vkf._vkformer.has_text, reason="built without tokenizers")
def test_reprs_of_text():
    assert repr(vkf.Tokenizer(ROOT / "samples/generate")) == "<Tokenizer: 354 tokens>"
