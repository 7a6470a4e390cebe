# SPDX-License-Identifier: Apache-2.0
"""vkformer.nn, pictures, what a notebook shows, and the command line."""

import argparse
import copy
import gc
import os
import shutil
import subprocess
import sys
import weakref
import xml.etree.ElementTree

import numpy as np
import pytest
from conftest import ROOT

import vkformer as vkf
from vkformer import nn

RNG = np.random.default_rng(3)


def array(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def test_modules_take_a_state_dict():
    x = array(2, 5, 8)
    w, b = array(3, 8), array(3)
    m = vkf.nn.Linear(8, 3).load_state_dict({"weight": w, "bias": b})
    np.testing.assert_allclose(m(x), x @ w.T + b, atol=1e-5)
    with pytest.raises(ValueError, match="load_state_dict"):
        vkf.nn.Linear(8, 3)(x)
    with pytest.raises(ValueError, match="bias"):
        vkf.nn.Linear(8, 3).load_state_dict({"weight": w})(x)
    e = vkf.nn.Embedding(7, 4).load_state_dict({"weight": array(7, 4)})
    np.testing.assert_array_equal(e(np.array([[1, 6]])), e.state_dict()["weight"][[[1, 6]]])
    n = vkf.nn.RMSNorm(8).load_state_dict({"weight": np.ones(8, np.float32)})
    np.testing.assert_allclose(n(x), x / np.sqrt((x * x).mean(-1, keepdims=True)), atol=1e-5)


def test_modules_describe_themselves_in_graphs():
    g = vkf.Graph()
    x = g.input("x", [1, 4, 8])
    y = vkf.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(x, name="layers.0")
    g.output("y", y)
    assert "layers.0.self_attn.in_proj_weight" in g.weights


def test_attention_modules():
    m = vkf.nn.MultiheadAttention(8, 2, batch_first=True)
    m.load_state_dict({"in_proj_weight": array(24, 8), "in_proj_bias": array(24), "out_proj.weight": array(8, 8), "out_proj.bias": array(8)})
    x = array(2, 5, 8)
    y, weights = m(x, x, x)
    assert y.shape == (2, 5, 8) and weights.shape == (2, 5, 5)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    mask = np.triu(np.ones((5, 5), bool), 1)  # True: may not
    y, weights = m(x, x, x, attn_mask=mask)
    assert (weights[:, mask] == 0).all()
    y2, none = m(x, x, x, need_weights=False, attn_mask=mask)
    assert none is None
    np.testing.assert_allclose(y2, y, atol=1e-5)
    for wrong, told in (({"kdim": 5}, "kdim is 5, and the key has rows of 8"), ({"vdim": 4}, "vdim is 4, and the value has rows of 8")):
        m = vkf.nn.MultiheadAttention(8, 2, batch_first=True, **wrong)
        with pytest.raises(ValueError, match=told):
            m.describe(*(vkf.Graph().input("x", [2, 5, 8]),) * 3, name="m")
    with pytest.raises(ValueError, match="embed_dim is 8, and the query has rows of 6"):
        vkf.nn.MultiheadAttention(8, 2).describe(vkf.Graph().input("x", [2, 5, 6]), name="m")
    with pytest.raises(ValueError, match="batch_first"):
        vkf.nn.TransformerEncoderLayer(8, 2)


def test_beside_torch():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    f = torch.nn.functional
    q, k, v = torch.randn(2, 8, 7, 16), torch.randn(2, 2, 9, 16), torch.randn(2, 2, 9, 16)
    y = vkf.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    assert isinstance(y, torch.Tensor)
    want = f.scaled_dot_product_attention(q.double(), k.double().repeat_interleave(4, 1), v.double().repeat_interleave(4, 1))
    torch.testing.assert_close(y.double(), want, atol=1e-5, rtol=1e-4)
    half = vkf.gelu(q.bfloat16())
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), f.gelu(q.bfloat16().float()), atol=2e-2, rtol=2e-2)
    with pytest.raises(ValueError, match="detach"):
        vkf.gelu(q.requires_grad_())
    src, tgt = torch.randn(2, 6, 32), torch.randn(2, 4, 32)
    modules = [
        (torch.nn.Linear(32, 5), (src,)), (torch.nn.LayerNorm(32), (src,)),
        (torch.nn.MultiheadAttention(32, 4, batch_first=True), (src, src, src)),
        (torch.nn.TransformerEncoderLayer(32, 4, 48, batch_first=True), (src,)),
        (torch.nn.TransformerDecoderLayer(32, 4, 48, batch_first=True, activation="gelu"), (tgt, src)),
        (torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(32, 4, 48, batch_first=True), 2), (src,)),
        (torch.nn.Transformer(32, 4, 1, 1, 48, batch_first=True), (src, tgt)),
    ]
    for module, inputs in modules:
        module.eval()
        got = vkf.nn.from_torch(module)(*inputs)
        want = module.double()(*[x.double() for x in inputs])
        for a, b in zip(got if isinstance(got, tuple) else (got,), want if isinstance(want, tuple) else (want,)):
            torch.testing.assert_close(a.double(), b, atol=2e-5, rtol=1e-4)


def test_gradients_beside_torch():
    torch = pytest.importorskip("torch")
    x, w = torch.randn(3, 6), torch.randn(4, 6)
    g = vkf.Graph()
    a, b = g.input("x", [3, 6]), g.input("w", [4, 6])
    for name, d in zip("xw", vkf.gradients(vkf.sum(vkf.gelu(vkf.linear(a, b))), [a, b])):
        g.output("d" + name, vkf.contiguous(d))
    out = vkf.default_device().compile(g)(x=x, w=w)
    xd, wd = x.double().requires_grad_(), w.double().requires_grad_()
    torch.nn.functional.gelu(xd @ wd.T).sum().backward()
    np.testing.assert_allclose(out["dx"], xd.grad.numpy(), atol=1e-5, rtol=1e-4)
    np.testing.assert_allclose(out["dw"], wd.grad.numpy(), atol=1e-5, rtol=1e-4)


def test_pictures(tmp_path):
    picture = vkf.plot.attention(np.eye(3), ["a", "<b>", "c"])
    xml.etree.ElementTree.fromstring(picture)
    xml.etree.ElementTree.fromstring(vkf.plot.attention(array(2, 3, 4), (["x"] * 3, ["y"] * 4)))
    xml.etree.ElementTree.fromstring(vkf.plot.curve([3, 2, 1.5]))
    picture.save(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text() == picture == picture._repr_svg_()
    with pytest.raises(ValueError):
        vkf.plot.attention(np.eye(3), ["a"])


def test_what_a_notebook_shows(device):
    g = vkf.Graph()
    x = g.input("x", [g.symbol("n", 8), 4])
    g.output("y", vkf.softmax(vkf.linear_layer(x, "a<b", 4)))
    program = device.compile(g, {"a<b.weight": np.eye(4, dtype=np.float32), "a<b.bias": np.zeros(4, np.float32)}, profile=True)
    xml.etree.ElementTree.fromstring(program._repr_svg_())
    program(x=np.ones((2, 4), np.float32))
    assert program.times() and "<table>" in program._repr_html_() and "GB/s" in program.time_table()
    assert repr(program).startswith("<Program x(n, 4) -> y(n, 4)") and "softmax" in program.explain()
    assert "symbols: n <= 8" in repr(g)


def test_a_refused_index_leaves_no_condition():
    g = vkf.Graph()
    n, m = g.symbol("n", 8), g.symbol("m", 8)
    x = g.input("x", [m, 8])
    with pytest.raises(vkf.Error, match="lies outside it"):
        x[0:n, 5:9]
    g.output("y", vkf.scale(x, 2))
    program = vkf.default_device().compile(g)
    assert program(x=np.ones((3, 8), np.float32), n=8)["y"].shape == (3, 8)


def test_devices_are_chosen_as_cpp_chooses_them():
    from vkformer.__main__ import _matching
    names = ["graphics 3060 ti", "graphics 3060", "processor", "graphics 3060"]
    assert _matching("", names) == [0, 1, 2, 3]
    assert _matching("1", names) == [1]
    assert _matching("3060", names) == [0, 1, 3]
    assert _matching("graphics 3060", names) == [1, 3]
    assert _matching("proc", names) == [2]
    assert _matching("306", names) == [] and _matching("60", names) == []
    assert _matching("4", names) == [] and _matching("teapot", names) == []


def test_pictures_take_two_numbers_as_labels():
    w = np.eye(2, dtype=np.float32)
    assert vkf.plot.attention(w, [5, 6]) == vkf.plot.attention(w, ["5", "6"]) == vkf.plot.attention(w, np.array([5, 6]))
    assert vkf.plot.attention(w, ([5, 6], "ab")) == vkf.plot.attention(w, (["5", "6"], ["a", "b"]))


def test_a_cache_is_as_large_as_the_prompt_and_the_answer(tmp_path):
    from vkformer.__main__ import _cache
    if not vkf._vkformer.has_text:
        pytest.skip("built without tokenizers")
    folder = str(ROOT / "samples/generate")

    def cache(**changed):
        return _cache(argparse.Namespace(**{"folder": folder, "prompt": "1234567 is", "max_tokens": 20, "chat": False, **changed}))

    assert cache() == 9 + 20 and cache(max_tokens=0) == 9 and cache(max_tokens=2**63) == 256
    assert cache(prompt="7 " * 500) == 256
    with pytest.raises(vkf.Error, match="has no tokenizer"):
        cache(folder=str(ROOT / "tests/decoders/llama"))


def test_the_command_line(tmp_path):
    done = subprocess.run([sys.executable, "-m", "vkformer"], capture_output=True, text=True)
    assert done.returncode == 0 and vkf.default_device().name in done.stdout, done.stderr
    done = subprocess.run([sys.executable, "-m", "vkformer", "doctor"], capture_output=True, text=True)
    assert done.returncode == 0 and "healthy: " in done.stdout and "all is well" in done.stdout, done.stdout + done.stderr
    nowhere = {**os.environ, "VK_ICD_FILENAMES": "/nowhere.json", "VK_DRIVER_FILES": "/nowhere.json", "VKFORMER_VALIDATION": "0"}
    done = subprocess.run([sys.executable, "-m", "vkformer", "doctor"], capture_output=True, text=True, env=nowhere)
    assert done.returncode == 1 and "Vulkan" in done.stdout + done.stderr and "Traceback" not in done.stderr
    done = subprocess.run([sys.executable, "-m", "vkformer", "bench", "--quick"], capture_output=True, text=True)
    assert done.returncode == 0 and "tokens" in done.stdout, done.stderr
    if vkf._vkformer.has_text:
        done = subprocess.run([sys.executable, "-m", "vkformer", "generate", str(ROOT / "samples/generate"), "7 is", "--cache", "32",
                               "--weights", "int8"], capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.strip() == "7 is seven." and "a second" in done.stderr, done.stdout + done.stderr
        obeys = tmp_path / "model"
        shutil.copytree(ROOT / "samples/generate", obeys)
        (obeys / "generation_config.json").write_text('{"eos_token_id": 2, "repetition_penalty": 1.5}')
        done = subprocess.run([sys.executable, "-m", "vkformer", "generate", str(obeys), "7 is", "--max-tokens", "4"],
                              capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.strip() == "7 is seven.", done.stdout + done.stderr
        assert done.stderr.count("generation_config.json: repetition_penalty is not obeyed") == 1
    called = [sys.executable, "-m", "vkformer"]
    part = vkf.default_device().name[1:5].upper()
    done = subprocess.run([*called, "doctor", "--device", part], capture_output=True, text=True)
    assert done.returncode == 0 and "healthy: " in done.stdout, done.stdout + done.stderr
    done = subprocess.run([*called, "generate", "/nowhere", "x", "--seed", "-1"], capture_output=True, text=True)
    assert done.returncode == 2 and "-1 is not from 0" in done.stderr and "Traceback" not in done.stderr
    for option in ("--cache", "--max-tokens"):
        done = subprocess.run([*called, "generate", "/nowhere", "x", option, "99999999999999999999"], capture_output=True, text=True)
        assert done.returncode == 2 and "99999999999999999999 is not from 0" in done.stderr and "Traceback" not in done.stderr
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as full:
            done = subprocess.run(called, stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1 and "vkformer: " in done.stderr and "Traceback" not in done.stderr, done.stderr
    for what, words in ((["generate", "/nowhere", b"a\xff"], "prompt"), (["doctor", "--device", b"\xff"], "device")):
        done = subprocess.run([*called, *what], capture_output=True, text=True, env={**os.environ, "PYTHONUTF8": "1"})
        assert done.returncode == 1 and f"vkformer: {words}: '" in done.stderr and "no valid text" in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
    done = subprocess.run([*called, "generate", str(ROOT / "samples/generate"), "\u00e4"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "1"})
    assert done.returncode == 1 and "the output is ascii, which has no '\\xe4'" in done.stderr and "Traceback" not in done.stderr, done.stderr
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(called, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert done.returncode == 1 and "Traceback" not in done.stderr and "Exception" not in done.stderr, done.stderr
    done = subprocess.run([sys.executable, "-m", "vkformer", "generate", "/nowhere", "x"], capture_output=True, text=True)
    assert done.returncode == 1 and "/nowhere" in done.stderr and "Traceback" not in done.stderr


def test_modules_with_a_describe_of_their_own_go_and_are_copied():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 4)
            self.describe = lambda x, twice: vkf.scale(self.linear.describe(x), 2.0 if twice else 1.0)
            self.load_state_dict({"weight": np.eye(4, dtype=np.float32), "bias": np.zeros(4, np.float32)})

    module, x = Scaled(), array(2, 4)
    attributes = set(vars(module))
    for twice in (True, False):
        np.testing.assert_allclose(module(x, twice=twice), (1 + twice) * x, rtol=1e-6)
    assert set(vars(module)) == attributes  # which another thread may be copying or showing
    assert "_described" not in module.__getstate__() and "described" not in repr(module)
    copied = copy.deepcopy(module)
    np.testing.assert_allclose(copied(x, twice=True), 2 * x, rtol=1e-6)
    module.describe = lambda x: vkf.scale(x, 3.0)
    module.load_state_dict({})
    np.testing.assert_allclose(module(x), 3 * x, rtol=1e-6)
    last = weakref.ref(module)
    del module, copied
    gc.collect()
    assert last() is None


def test_modules_take_every_argument_of_torch_nn():
    table = array(5, 3)
    e = nn.Embedding(5, 3, padding_idx=0).load_state_dict({"weight": table})
    np.testing.assert_array_equal(e(np.array([0, 4])), table[[0, 4]])
    with pytest.raises(ValueError, match="padding_idx is 5, of 5 rows"):
        nn.Embedding(5, 3, padding_idx=5)
    layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    tgt, memory, mask = array(1, 3, 8), array(1, 3, 8), np.triu(np.ones((3, 3), bool), 1)
    graph = vkf.Graph()
    layer.describe(graph.input("tgt", [1, 3, 8]), graph.input("memory", [1, 3, 8]))
    state = {name: 0.3 * array(*shape) for name, (shape, _) in graph.weights.items()}
    layer.load_state_dict(state)
    want = layer(tgt, memory, memory_mask=mask)
    np.testing.assert_array_equal(layer(tgt, memory, memory_mask=mask, memory_is_causal=True), want)
    with pytest.raises(ValueError, match="memory_is_causal: says what memory_mask is"):
        layer(tgt, memory, memory_is_causal=True)
    stack = nn.TransformerDecoder(layer, 1).load_state_dict({f"layers.0.{name}": v for name, v in state.items()})
    np.testing.assert_array_equal(stack(tgt, memory, memory_mask=mask, memory_is_causal=True), want)
    nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, batch_first=True), 1, None, False, mask_check=False)
    whole = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    graph = vkf.Graph()
    whole.describe(graph.input("src", [1, 3, 8]), graph.input("tgt", [1, 3, 8]))
    whole.load_state_dict({name: 0.3 * array(*shape) for name, (shape, _) in graph.weights.items()})
    want = whole(memory, tgt, src_mask=mask, tgt_mask=mask)
    np.testing.assert_array_equal(
        whole(memory, tgt, src_is_causal=True, tgt_mask=mask, tgt_is_causal=True, memory_is_causal=False), want)


def test_a_mask_of_heads_alone_is_refused_as_torch_refuses_it():
    m = nn.MultiheadAttention(8, 2, batch_first=True).load_state_dict(
        {"in_proj_weight": array(24, 8), "in_proj_bias": array(24), "out_proj.weight": array(8, 8), "out_proj.bias": array(8)})
    x, mask = array(2, 5, 8), np.zeros((4, 5, 5), bool)
    mask[3, :, 1] = True
    weights = m(x, attn_mask=mask, average_attn_weights=False)[1]
    assert not weights[1, 1, :, 1].any() and weights[0, :, :, 1].all() and weights[1, 0, :, 1].all()
    with pytest.raises(ValueError, match="attn_mask .* has 2 in front, and batch times heads is 4"):
        m(x, attn_mask=mask[:2])
