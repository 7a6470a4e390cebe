#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden cases of Hugging Face's attention modules: what `transformers` computes with random parameters.

    make_transformers_cases.py FOLDER [--seed N] [--scale K]

Without arguments the cases of tests/golden; other seeds choose other sizes, scales multiply them. The rows for INDEX.md go to the
standard output. The modules' own code runs with double where it says float, so that answers are rounded once, and once more in
fp32 as it is: the two must agree to fp32's precision. Needs torch, transformers >= 5 and safetensors.
"""
import argparse
import contextlib
import json
import os
import random

import torch
import transformers
from safetensors.torch import save_file
from transformers import DynamicCache
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
from transformers.models.gemma2 import modeling_gemma2
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.llama import modeling_llama
from transformers.models.mistral import modeling_mistral
from transformers.models.phi import modeling_phi
from transformers.models.qwen2 import modeling_qwen2

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--scale", type=int, default=1)
args = parser.parse_args()
os.makedirs(args.folder, exist_ok=True)
torch.manual_seed(args.seed)
random.seed(args.seed)
worst_fp32 = {}


@contextlib.contextmanager
def float_means_double():
    """Modules name float and float32 for their tables and softmax; here that is double."""
    kept = torch.float, torch.float32, torch.Tensor.float
    torch.float = torch.float32 = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(kept[0])
    try:
        yield
    finally:
        torch.float, torch.float32, torch.Tensor.float = kept


def rounded(*shape, scale=1.0):
    """Random, exact in fp32, held in double."""
    return (torch.randn(*shape, dtype=torch.float32) * scale).double()


def save(name, system, config, inputs, params, outputs, atol=1e-5, rtol=1e-4):
    tensors = {}
    for role, group in (("in", inputs), ("param", params), ("out", outputs)):
        for key, value in group.items():
            whole = value.dtype in (torch.int64, torch.int32)
            tensors[f"{role}.{key}"] = value.to(torch.int32 if whole else torch.float32).contiguous().clone()
    text = json.dumps(config)
    save_file(tensors, os.path.join(args.folder, name + ".safetensors"),
              metadata={"case": name, "system": system, "config": text, "atol": str(atol), "rtol": str(rtol),
                        "torch": torch.__version__, "transformers": transformers.__version__})
    print(f"| {name} | {system} | `{text}` |")


def agrees(name, double, single, positions):
    """fp32 turns each angle by up to an ulp of it: positions * 2^-23 radians."""
    error = max((a - b).abs().max().item() / max(a.abs().max().item(), 1) for a, b in zip(double, single))
    worst_fp32[name] = error
    assert error < 1e-5 + positions * 2**-21, (name, error)


def sizes():
    if args.seed == 0:
        kv_heads, group, head_dim, width, batch, prefill, steps = 2, 2, 8, 24, 2, 7, 2
    else:
        kv_heads, group = random.choice([1, 2, 3]), random.choice([1, 2, 3, 4])
        head_dim, width = random.choice([4, 6, 8, 10, 16, 64, 80]), random.choice([3, 5, 8]) * kv_heads * group
        batch, prefill, steps = random.choice([1, 2, 3]), random.randint(1, 40), random.randint(1, 3)
    return {"hidden_size": width * args.scale, "num_attention_heads": kv_heads * group, "num_key_value_heads": kv_heads,
            "head_dim": head_dim * args.scale}, batch, prefill * args.scale, steps


def run(module_class, rotary_class, config, params, x, prefill, steps, window):
    """One call of `prefill` tokens, then `steps` of one, against a cache that keeps everything."""
    module = module_class(config, layer_idx=0)
    module.load_state_dict({key: value.to(x.dtype) for key, value in params.items()})
    module = module.to(x.dtype).eval()
    rotary = rotary_class(config)
    cache = DynamicCache()
    make_mask = create_sliding_window_causal_mask if window else create_causal_mask
    ys, weights, at = [], None, 0
    with torch.no_grad():
        for count in [prefill] + [1] * steps:
            part = x[:, at:at + count]
            positions = torch.arange(at, at + count)[None].expand(x.shape[0], -1)
            mask = make_mask(config, part, None, cache, position_ids=positions)
            y, w = module(part, position_embeddings=rotary(part, positions), attention_mask=mask, past_key_values=cache)
            ys.append(y)
            weights = w if at == 0 else weights
            at += count
    keys, values = cache.layers[0].keys, cache.layers[0].values
    return torch.cat(ys, 1), weights, keys.transpose(1, 2), values.transpose(1, 2)


def attention_case(name, modeling, family, rope, **more):
    shape, batch, prefill, steps = sizes()
    if "partial_rotary_factor" in rope:  # an even number of dimensions turns
        shape["head_dim"] = shape["hidden_size"] // shape["num_attention_heads"] // 4 * 4 or 4
        shape["hidden_size"] = shape["head_dim"] * shape["num_attention_heads"]
    window = more.get("sliding_window")
    known = {"rope_parameters": rope, **more, **shape}
    config_class = getattr(transformers, family + "Config")
    config = config_class(**known, max_position_embeddings=4096, num_hidden_layers=1)
    config._attn_implementation = "eager"
    module_class = getattr(modeling, family + "Attention")
    rotary_class = getattr(modeling, family + "RotaryEmbedding")
    params = {key: rounded(*value.shape, scale=value.shape[-1]**-0.5 if value.dim() > 1 else 0.5)
              for key, value in module_class(config, layer_idx=0).state_dict().items()}
    x = rounded(batch, prefill + steps, shape["hidden_size"])
    with float_means_double():
        y, weights, keys, values = run(module_class, rotary_class, config, params, x, prefill, steps, window)
    torch.set_default_dtype(torch.float32)
    single = run(module_class, rotary_class, config, params, x.float(), prefill, steps, window)
    agrees(name, (y, weights, keys, values), single, prefill + steps)
    save(name, f"transformers.{family}Attention", {**known, "prefill": prefill, "steps": steps}, {"x": x}, params,
         {"y": y, "weights": weights, "cache_k": keys, "cache_v": values})


def table_case(name, head_dim, rope):
    config = transformers.LlamaConfig(hidden_size=head_dim, num_attention_heads=1, num_key_value_heads=1, head_dim=head_dim,
                                      rope_parameters=rope, max_position_embeddings=4096)
    near, far = list(range(8)), sorted(random.sample(range(8, 4096), 14)) + [4095]
    positions = torch.tensor(near + far)
    tables = []
    for dtype in (torch.float64, torch.float32):
        with float_means_double() if dtype == torch.float64 else contextlib.nullcontext():
            rotary = modeling_llama.LlamaRotaryEmbedding(config)
            cos, sin = rotary(torch.zeros(1, dtype=dtype), positions[None])
        torch.set_default_dtype(torch.float32)
        tables.append([t[0, :, :t.shape[-1] // 2].double() for t in (cos, sin)])
    agrees(name, *tables, 4096)
    # the table is rounded once: half an ulp of values up to 2
    save(name, "transformers.LlamaRotaryEmbedding", {"head_dim": head_dim, "rope_parameters": rope}, {"positions": positions},
         {}, {"cos": tables[0][0], "sin": tables[0][1]}, atol=2**-23, rtol=0)


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
DEFAULT = {"rope_type": "default", "rope_theta": 10000.0}

attention_case("transformers_llama", modeling_llama, "Llama", DEFAULT)
attention_case("transformers_llama_linear", modeling_llama, "Llama",
               {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}, attention_bias=True)
attention_case("transformers_llama_llama3", modeling_llama, "Llama",
               {**LLAMA3, "rope_theta": 500000.0, "original_max_position_embeddings": 32})
attention_case("transformers_llama_yarn", modeling_llama, "Llama",
               {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64})
attention_case("transformers_mistral_window", modeling_mistral, "Mistral", DEFAULT, sliding_window=4)
attention_case("transformers_qwen2", modeling_qwen2, "Qwen2", {**DEFAULT, "rope_theta": 1000000.0})
attention_case("transformers_gemma2_softcap", modeling_gemma2, "Gemma2", DEFAULT, attn_logit_softcapping=2.0,
               query_pre_attn_scalar=20)
attention_case("transformers_gemma2_window", modeling_gemma2, "Gemma2", DEFAULT, attn_logit_softcapping=50.0,
               query_pre_attn_scalar=4, sliding_window=3)
attention_case("transformers_phi_partial", modeling_phi, "Phi", {**DEFAULT, "partial_rotary_factor": 0.5})
attention_case("transformers_gpt_oss", modeling_gpt_oss, "GptOss",
               {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                "truncate": False, "original_max_position_embeddings": 64}, attention_bias=True, sliding_window=5)
table_case("transformers_rope", 64 * args.scale, DEFAULT)
table_case("transformers_rope_linear", 32 * args.scale, {**DEFAULT, "rope_type": "linear", "factor": 8.0})
table_case("transformers_rope_llama3", 64 * args.scale,
           {**LLAMA3, "rope_theta": 500000.0, "original_max_position_embeddings": 1024})
table_case("transformers_rope_yarn", 64 * args.scale,
           {**DEFAULT, "rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 256})
table_case("transformers_rope_yarn_factor", 32 * args.scale,
           {**DEFAULT, "rope_type": "yarn", "factor": 8.0, "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 0.75,
            "truncate": False, "original_max_position_embeddings": 512})
worst = max(worst_fp32, key=worst_fp32.get)
print(f"\ntransformers in fp32 is off by at most {worst_fp32[worst]:.2g} ({worst})")
