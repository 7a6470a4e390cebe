#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/decoders: tiny random checkpoints of every decoder architecture, and what `transformers` computes with them.

    make_decoder_cases.py FOLDER [--seed N] [--only NAME ...]

Each folder is a checkpoint with expected.safetensors: ids (tokens) and logits (tokens, vocabulary) in double precision, prompt and greedy
(64 tokens that follow it); margin, in the metadata, is the least distance between the two best logits on the way. Weights are drawn wide,
so that answers differ from token to token. Needs torch, transformers >= 5 and safetensors.
"""
import argparse
import json
import os

import torch
from safetensors.torch import load_file, save_file
import transformers
from transformers import (AutoModelForCausalLM, Gemma2Config, Gemma3TextConfig, GPT2Config, LlamaConfig, MistralConfig, Olmo2Config,
                          Phi3Config, Qwen2Config, Qwen3Config)

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--only", nargs="*", help="of the cases; all where none is named")
args = parser.parse_args()
transformers.logging.disable_progress_bar()

LENGTH, PROMPT, STEPS = 40, 11, 64
SIZES = {"vocab_size": 97, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2}


def rope(kind="default", theta=10000.0, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **more}}


def greedy(model, ids, steps):
    ids, margin = list(ids), float("inf")
    for _ in range(steps):
        best = model(torch.tensor([ids])).logits[0, -1].topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        ids.append(best.indices[0].item())
    return ids[-steps:], margin


def save(name, config, dtype=torch.float32, shards=0, old=False, bare=False):
    if args.only and name not in args.only:
        return
    config._attn_implementation = "eager"
    for attempt in range(50):  # until no step is nearly a draw, which fp32 could not settle
        torch.manual_seed(1000 * args.seed + attempt)
        model = AutoModelForCausalLM.from_config(config).eval()
        for key, value in model.named_parameters():
            inputs = value.shape[0 if ".c_" in key else -1]
            value.data = torch.randn_like(value) * (0.5 if value.dim() == 1 else 1.5 * inputs**-0.5)
            if "embed_tokens" in key or "wte" in key:
                value.data *= 0.2 if "gpt2" in name else 0.3
            if "norm" in key or "ln_" in key:
                value.data += 0.0 if "gemma" in name or key.endswith("bias") else 1.0
        model = model.to(dtype)
        folder = os.path.join(args.folder, name)
        model.save_pretrained(folder, max_shard_size=shards or "1GB")
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").double()
        with torch.no_grad():
            ids = torch.randint(3, 97, (LENGTH,))
            logits = model(ids[None]).logits[0]
            tokens, margin = greedy(model, ids[:PROMPT].tolist(), STEPS)
        if margin > 2e-3 and len(set(tokens)) > 8:
            break
    else:
        raise SystemExit(f"{name}: every draw of weights is nearly a draw of tokens")
    save_file({"ids": ids.int(), "logits": logits.float().contiguous(), "prompt": ids[:PROMPT].int().clone(),
               "greedy": torch.tensor(tokens, dtype=torch.int32)}, os.path.join(folder, "expected.safetensors"),
              metadata={"margin": str(margin)})
    rewrite(folder, old, bare)
    print(name, sum(p.numel() for p in model.parameters()), "parameters, margin", round(margin, 4), "different", len(set(tokens)))


def rewrite(folder, old, bare):
    """As older files have it: rope_theta, rope_scaling and torch_dtype beside the sizes; parameters without the model's name before them."""
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    if old:
        parameters = config.pop("rope_parameters")
        config["rope_theta"] = parameters.pop("rope_theta")
        config["torch_dtype"] = config.pop("dtype")
        config["rope_scaling"] = {"type" if k == "rope_type" else k: v for k, v in parameters.items()} if len(parameters) > 1 else None
        json.dump(config, open(path, "w"), indent=1)
    if bare:
        path = os.path.join(folder, "model.safetensors")
        save_file({k.removeprefix("transformer."): v for k, v in load_file(path).items()}, path, metadata={"format": "pt"})
    extra = os.path.join(folder, "generation_config.json")
    if os.path.exists(extra):
        os.remove(extra)


save("llama", LlamaConfig(**SIZES, **rope()))
save("llama3", LlamaConfig(**{**SIZES, "num_key_value_heads": 1}, tie_word_embeddings=True, attention_bias=True, mlp_bias=True,
                           **rope("llama3", 500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                  original_max_position_embeddings=32)), shards="20KB")
save("llama_linear", LlamaConfig(**SIZES, **rope("linear", factor=4.0)), torch.bfloat16, old=True)
save("llama_yarn", LlamaConfig(**SIZES, **rope("yarn", factor=4.0, original_max_position_embeddings=32)), torch.float16)
save("mistral", MistralConfig(**SIZES, sliding_window=7, **rope()))
save("qwen2", Qwen2Config(**{k: v for k, v in SIZES.items() if k != "head_dim"}, **rope(theta=1e6)), old=True)
save("qwen2_window", Qwen2Config(**{k: v for k, v in SIZES.items() if k != "head_dim"}, use_sliding_window=True, sliding_window=9,
                                 max_window_layers=1, tie_word_embeddings=True, **rope(theta=1e6)))
save("qwen3", Qwen3Config(**SIZES, tie_word_embeddings=True, **rope(theta=1e6)))
save("gemma2", Gemma2Config(**SIZES, sliding_window=6, query_pre_attn_scalar=12, attn_logit_softcapping=5.0,
                            final_logit_softcapping=6.0, **rope()))
# layers that see a window turn by rope_theta 1e4, those that see all by another, stretched
save("gemma3", Gemma3TextConfig(**SIZES, sliding_window=6, query_pre_attn_scalar=12, layer_types=["sliding_attention", "full_attention"],
                                rope_parameters={"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                                                 "full_attention": {"rope_type": "linear", "rope_theta": 1e5, "factor": 4.0}}), torch.bfloat16)
# half of each head turns
save("phi3", Phi3Config(**{**{k: v for k, v in SIZES.items() if k != "head_dim"}, "hidden_size": 32}, pad_token_id=0, sliding_window=9,
                        **rope(partial_rotary_factor=0.5)), torch.bfloat16)
save("olmo2", Olmo2Config(**{k: v for k, v in SIZES.items() if k != "head_dim"}, **rope(theta=5e5)), torch.float16)
GPT2 = {"vocab_size": 97, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 128, "bos_token_id": 1, "eos_token_id": 2}
save("gpt2", GPT2Config(**GPT2))
save("gpt2_bare", GPT2Config(**GPT2, n_inner=36, activation_function="gelu", scale_attn_weights=False), bare=True)
