#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden cases of packed and paged sequences and of score mods: what PyTorch computes in double, sequence by sequence with
scaled_dot_product_attention, and with flex_attention.

    make_sequence_cases.py FOLDER [--seed N] [--scale K]

Without arguments the cases of tests/golden; other seeds choose other sizes, scales multiply them. The rows for INDEX.md go to the
standard output. Needs torch and safetensors.
"""
import argparse
import json
import os
import random

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch.nn.attention.flex_attention import flex_attention

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--scale", type=int, default=1)
args = parser.parse_args()
os.makedirs(args.folder, exist_ok=True)
torch.manual_seed(args.seed)
random.seed(args.seed)


def rounded(*shape):
    """Random, exact in fp32, held in double."""
    return torch.randn(*shape, dtype=torch.float32).double()


def save(name, system, config, inputs, y, gradients=None):
    tensors = {"out.y": y.detach().float().contiguous()}
    for key, value in (gradients or {}).items():
        tensors[f"out.grad.in.{key}"] = value.float().contiguous()
    for key, value in inputs.items():
        whole = value.dtype in (torch.int64, torch.int32)
        tensors[f"in.{key}"] = value.to(torch.int32 if whole else torch.float32).detach().contiguous().clone()
    text = json.dumps(config)
    save_file(tensors, os.path.join(args.folder, name + ".safetensors"),
              metadata={"case": name, "system": system, "config": text, "atol": "1e-05", "rtol": "0.0001",
                        "torch": torch.__version__})
    print(f"| {name} | {system} | `{text}` |")


def allowed(queries, keys, causal, window):
    """Which of the keys each query sees: the last query stands at the last key."""
    at = torch.arange(queries)[:, None] + keys - queries
    key = torch.arange(keys)[None, :]
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if causal:
        seen &= key <= at
    if window:
        seen &= key > at - window
    return seen


def attend(q, k, v, causal, window):
    """q (H, L, d), k and v (Hk, S, d). A query without a key gives 0."""
    group = q.shape[0] // k.shape[0]
    k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    seen = allowed(q.shape[1], k.shape[1], causal, window)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    return torch.where(seen.any(1)[None, :, None], y, torch.zeros_like(y))


def sizes():
    if args.seed == 0:
        return 2, 2, 16
    return random.choice([1, 2, 3]), random.choice([1, 2, 4]), random.choice([4, 7, 16, 40, 64]) * args.scale


def packed(name, lengths, causal=False, window=0, differentiated=False):
    kv_heads, group, head_dim = sizes()
    q_at = torch.tensor([0] + [n for n, _ in lengths]).cumsum(0)
    k_at = torch.tensor([0] + [n for _, n in lengths]).cumsum(0)
    q = rounded(q_at[-1], kv_heads * group, head_dim)
    k, v = rounded(k_at[-1], kv_heads, head_dim), rounded(k_at[-1], kv_heads, head_dim)
    inputs = {"query": q, "key": k, "value": v}
    for x in inputs.values():
        x.requires_grad_(differentiated)
    parts = []
    for i in range(len(lengths)):
        rows, keys = slice(q_at[i], q_at[i + 1]), slice(k_at[i], k_at[i + 1])
        parts.append(attend(q[rows].transpose(0, 1), k[keys].transpose(0, 1), v[keys].transpose(0, 1), causal,
                            window).transpose(0, 1))
    y = torch.cat(parts)
    gradients = {}
    if differentiated:
        dy = rounded(*y.shape)
        gradients = dict(zip(inputs, torch.autograd.grad(y, list(inputs.values()), dy)))
        inputs["dy"] = dy
    save(name, "packed_attention", {"causal": causal, "window": window},
         {**inputs, "cumulative_queries": q_at, "cumulative_keys": k_at}, y, gradients)


def paged(name, lengths, queries, page, shared):
    """Sequences begin with the same `shared` pages, which lie in the pool once; the others' places are shuffled."""
    kv_heads, group, head_dim = sizes()
    width = max((n + page - 1) // page for n in lengths)
    own = [max((n + page - 1) // page - shared, 0) for n in lengths]
    places = list(range(shared, shared + sum(own)))
    random.shuffle(places)
    table = torch.full((len(lengths), width), -1)
    for row, n in zip(table, own):
        row[:shared] = torch.arange(shared)
        row[shared:shared + n] = torch.tensor([places.pop() for _ in range(n)])
    pool = shared + sum(own)
    k, v = rounded(pool, page, kv_heads, head_dim), rounded(pool, page, kv_heads, head_dim)
    q = rounded(len(lengths), kv_heads * group, queries, head_dim)
    parts = []
    for i, n in enumerate(lengths):
        pages = [p for p in table[i].tolist() if p >= 0]
        keys, values = (x[pages].flatten(0, 1)[:n].transpose(0, 1) for x in (k, v))
        parts.append(attend(q[i], keys, values, True, 0))
    save(name, "paged_attention", {"causal": True},
         {"query": q, "key": k, "value": v, "table": table, "lengths": torch.tensor(lengths)}, torch.stack(parts))


def mod(name, glsl, parameters, score_mod):
    kv_heads, group, head_dim = sizes()
    queries, keys = (5, 9) if args.seed == 0 else (random.randint(1, 40), random.randint(1, 60))
    q = rounded(2, kv_heads * group, queries, head_dim)
    k, v = rounded(2, kv_heads, keys, head_dim), rounded(2, kv_heads, keys, head_dim)
    numbers = torch.tensor(parameters, dtype=torch.float32).double()
    y = flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: score_mod(s, b, h, i, j, numbers), enable_gqa=True)
    save(name, "flex_attention", {"score_mod": glsl, "parameters": parameters}, {"query": q, "key": k, "value": v}, y)


SIGNATURE = "float score_mod(float score, uint batch, uint head, uint query, uint key) "
if args.seed == 0:
    packed("packed", [(3, 3), (1, 1), (5, 5)])
    packed("packed_causal_cross", [(2, 6), (4, 4), (1, 9)], causal=True)
    packed("packed_window", [(7, 7), (3, 8)], causal=True, window=3)
    paged("paged_decode", [5, 11, 1], queries=1, page=4, shared=0)
    paged("paged_shared_prefix", [9, 12, 8], queries=3, page=4, shared=2)
else:
    lengths = [(n, n + random.randint(0, 30)) for n in (random.randint(1, 50) for _ in range(random.randint(1, 5)))]
    packed("packed", [(n, n) for n, _ in lengths])
    packed("packed_causal_cross", lengths, causal=True)
    packed("packed_window", lengths, causal=True, window=random.randint(1, 20))
    page = random.choice([1, 4, 16])
    paged("paged_decode", [random.randint(1, 90) for _ in range(4)], queries=1, page=page, shared=0)
    paged("paged_shared_prefix", [2 * page + random.randint(3, 60) for _ in range(3)], queries=3, page=page, shared=2)
mod("score_mod_distance", SIGNATURE + "{ return score - parameter(0) * abs(float(query) - float(key)); }", [0.25],
    lambda s, b, h, i, j, n: s - n[0] * (i - j).abs())
mod("score_mod_head_and_mask",
    SIGNATURE + "{ return key % 3u == 1u ? negative_infinity() : score * parameter(head % 2u) + float(batch); }", [0.5, 2.0],
    lambda s, b, h, i, j, n: torch.where(j % 3 == 1, -float("inf"), s * n[h % 2] + b))
if args.seed == 0:  # more tokens than it takes for a processor to compute the gradient as one
    packed("grad_packed_causal", [(70, 70), (1, 3), (64, 80)], causal=True, differentiated=True)
    packed("grad_packed_window", [(60, 61), (30, 30), (50, 50)], causal=True, window=9, differentiated=True)
else:
    packed("grad_packed_causal", lengths, causal=True, differentiated=True)
    packed("grad_packed_window", lengths, causal=True, window=random.randint(1, 20), differentiated=True)
