#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/encoders: tiny random checkpoints of the BERT family, and what `transformers` computes with them.

    make_encoder_cases.py FOLDER [--seed N]

expected.safetensors: ids (batch, tokens) and lengths (batch); hidden (batch, tokens, E) in double precision, rows beyond a text's length 0;
embedding (batch, E), means of a text's rows, of length 1. Needs torch, transformers >= 5 and safetensors.
"""
import argparse
import os

import torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoModelForMaskedLM, BertConfig, DistilBertConfig, RobertaConfig

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
SIZES = {"vocab_size": 83, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 3}
LENGTHS = [13, 1, 7, 20]


def save(name, config, make=AutoModel.from_config, dtype=torch.float32):
    torch.manual_seed(args.seed)
    config._attn_implementation = "eager"
    model = make(config).eval()
    for key, value in model.named_parameters():
        value.data = torch.randn_like(value) * (0.3 if value.dim() == 1 else 1.5 * value.shape[-1]**-0.5)
        if "norm" in key.lower() and key.endswith("weight"):
            value.data += 1.0
    folder = os.path.join(args.folder, name)
    model.to(dtype).save_pretrained(folder)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").double().eval()
    ids = torch.randint(5, 83, (len(LENGTHS), max(LENGTHS)))
    mask = (torch.arange(max(LENGTHS))[None] < torch.tensor(LENGTHS)[:, None]).long()
    pad = config.pad_token_id or 0
    ids = torch.where(mask > 0, ids, pad)
    with torch.no_grad():
        hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state * mask[..., None]
    mean = hidden.sum(1) / mask.sum(1, keepdim=True)
    save_file({"ids": ids.int(), "lengths": torch.tensor(LENGTHS, dtype=torch.int32), "hidden": hidden.float().contiguous(),
               "embedding": (mean / mean.norm(dim=1, keepdim=True)).float().contiguous()},
              os.path.join(folder, "expected.safetensors"))
    print(name, sum(p.numel() for p in model.parameters()), "parameters")


save("bert", BertConfig(**SIZES, max_position_embeddings=32))
save("bert_masked_lm", BertConfig(**SIZES, max_position_embeddings=32, hidden_act="gelu_new"), AutoModelForMaskedLM.from_config, torch.float16)
save("roberta", RobertaConfig(**SIZES, max_position_embeddings=34, type_vocab_size=1, pad_token_id=1))
save("distilbert", DistilBertConfig(vocab_size=83, dim=24, hidden_dim=40, n_layers=2, n_heads=3, max_position_embeddings=32))
