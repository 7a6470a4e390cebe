#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes training.safetensors beside each checkpoint of tests/decoders: what PyTorch's training of it computes.

    make_training_cases.py FOLDER [--seed N] [--only NAME ...]

Lines are texts of token ids of several lengths; step t takes lines 2 t and 2 t + 1, going round. The loss is the mean cross-entropy of all
next tokens of both, without dropout. Tensors: text.N (tokens) i32; losses (20) before each step and grad_norms (20) before clipping, with AdamW (learning
rate 1e-3, weight decay 0.1), a cosine schedule over 20 steps with 3 of warm-up, and clipping to the norm 1; loss (1) and grad.NAME, the
first step's in double precision, NAME as named_parameters() has it. Needs torch, transformers >= 5 and safetensors.
"""
import argparse
import math
import os

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--only", nargs="*", help="of the checkpoints; all where none is named")
args = parser.parse_args()
transformers.logging.disable_progress_bar()

STEPS, BATCH, WARMUP, LENGTHS = 20, 2, 3, (19, 7, 24, 2, 13, 24, 11)


def loss_of(model, texts):
    losses = []
    for text in texts:
        logits = model(text[None, :-1]).logits[0]
        losses.append(torch.nn.functional.cross_entropy(logits, text[1:], reduction="none"))
    return torch.cat(losses).mean()


def load(folder, dtype):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").to(dtype)


for name in sorted(os.listdir(args.folder)):
    folder = os.path.join(args.folder, name)
    if (args.only and name not in args.only) or not os.path.exists(os.path.join(folder, "config.json")):
        continue
    torch.manual_seed(100 + args.seed)
    texts = [torch.randint(3, 97, (length,)) for length in LENGTHS]
    batch = lambda step: [texts[(step * BATCH + i) % len(texts)] for i in range(BATCH)]
    out = {f"text.{i}": text.int() for i, text in enumerate(texts)}

    model = load(folder, torch.float64)
    loss = loss_of(model, batch(0))
    loss.backward()
    out["loss"] = loss.detach().float()[None]
    for key, value in model.named_parameters():
        out["grad." + key] = value.grad.float().contiguous()

    model = load(folder, torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
    losses, norms = [], []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min((step + 1) / WARMUP, 1) * (1 + math.cos(math.pi * step / STEPS)) / 2
        optimizer.zero_grad()
        loss = loss_of(model, batch(step))
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        losses.append(loss.item())
        optimizer.step()
    out["losses"], out["grad_norms"] = torch.tensor(losses), torch.tensor(norms)
    save_file(out, os.path.join(folder, "training.safetensors"))
    print(name, "losses", [round(x, 4) for x in losses[::6]], "norms", [round(x, 3) for x in norms[::6]])
