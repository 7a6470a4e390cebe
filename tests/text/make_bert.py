#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/text/bert: a tiny random BERT with the WordPiece tokenizer of tests/text/cases, and what `transformers` makes of sentences.

    make_bert.py FOLDER [--seed N]

expected.json: {"texts": [...], "embeddings": [[...], ...]}: means of the last hidden states of a text's tokens, of length 1 (what
sentence-transformers calls mean pooling and normalization), in double precision. Needs torch, transformers >= 5.
"""
import argparse
import json
import os

import torch
from tokenizers import Tokenizer
from transformers import AutoModel, AutoTokenizer, BertConfig, PreTrainedTokenizerFast

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
torch.manual_seed(args.seed)

case = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases", "bert_uncased.json")
parts = json.load(open(case, encoding="utf-8"))["tokenizer"]
parts["truncation"] = None
tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(parts)), unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
                                    pad_token="[PAD]", mask_token="[MASK]", model_max_length=64)
tokenizer.save_pretrained(args.folder)

model = AutoModel.from_config(BertConfig(vocab_size=len(tokenizer), hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3,
                                         max_position_embeddings=64), attn_implementation="eager").eval()
for key, value in model.named_parameters():
    value.data = torch.randn_like(value) * (0.3 if value.dim() == 1 else 1.5 * value.shape[-1]**-0.5)
    if "LayerNorm" in key and key.endswith("weight"):
        value.data += 1.0
model.half().save_pretrained(args.folder)

TEXTS = ["The hundred and thousand of the café", "the hundred and thousand of the CAFE", "résumé naïve Straße", "日本語 and 中文字", "!", "x_1 a+b=c 3.14159",
         "Привет слово, ёлка… don't", "नमस्ते हिन्दी 한국어 👩\u200d👩\u200d👧", "the " * 30]
tokenizer = AutoTokenizer.from_pretrained(args.folder)
model = AutoModel.from_pretrained(args.folder, dtype=torch.float32, attn_implementation="eager").double().eval()
batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
with torch.no_grad():
    hidden = model(**batch).last_hidden_state
mask = batch["attention_mask"][..., None]
mean = (hidden * mask).sum(1) / mask.sum(1)
mean = mean / mean.norm(dim=1, keepdim=True)
with open(os.path.join(args.folder, "expected.json"), "w", encoding="utf-8") as file:
    json.dump({"texts": TEXTS, "embeddings": [[round(v, 7) for v in row] for row in mean.tolist()]}, file, ensure_ascii=False)
