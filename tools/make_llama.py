#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a random Llama of about 100 M parameters to measure with, twice: as a Hugging Face folder in fp16, and as GGUF for llama.cpp.

    make_llama.py FOLDER

FOLDER/model is for `generate FOLDER/model --ids ... --ignore-eos`, FOLDER/f16.gguf and FOLDER/q8_0.gguf are for `llama-bench -m`. The weights are the
same, so that both do the same work. Neither has a tokenizer. Needs numpy and gguf.
"""
import argparse
import json
import os

import gguf
import numpy as np

VOCABULARY, WIDTH, HIDDEN, LAYERS, HEADS, KV_HEADS, POSITIONS, EPSILON, THETA = 32000, 768, 2048, 12, 12, 4, 2048, 1e-5, 10000.0
HEAD = WIDTH // HEADS
NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
MATRICES = {"self_attn.q_proj": ("attn_q", WIDTH, WIDTH), "self_attn.k_proj": ("attn_k", KV_HEADS * HEAD, WIDTH),
            "self_attn.v_proj": ("attn_v", KV_HEADS * HEAD, WIDTH), "self_attn.o_proj": ("attn_output", WIDTH, WIDTH),
            "mlp.gate_proj": ("ffn_gate", HIDDEN, WIDTH), "mlp.up_proj": ("ffn_up", HIDDEN, WIDTH), "mlp.down_proj": ("ffn_down", WIDTH, HIDDEN)}


def tensors():
    """(name in a checkpoint, name in GGUF, numbers)"""
    rng = np.random.default_rng(0)
    matrix = lambda rows, columns: (rng.standard_normal((rows, columns), dtype=np.float32) * columns**-0.5).astype(np.float16)
    yield "model.embed_tokens.weight", "token_embd.weight", matrix(VOCABULARY, WIDTH)
    for i in range(LAYERS):
        for name, (short, rows, columns) in MATRICES.items():
            yield f"model.layers.{i}.{name}.weight", f"blk.{i}.{short}.weight", matrix(rows, columns)
        for name, short in NORMS.items():
            yield f"model.layers.{i}.{name}.weight", f"blk.{i}.{short}.weight", np.ones(WIDTH, np.float16)
    yield "model.norm.weight", "output_norm.weight", np.ones(WIDTH, np.float16)


def turned_in_pairs(name, x):
    """GGUF has the two numbers of a head that RoPE turns beside each other, a checkpoint half a head apart."""
    if "q_proj" not in name and "k_proj" not in name:
        return x
    return x.reshape(-1, 2, HEAD // 2, x.shape[1]).swapaxes(1, 2).reshape(x.shape)


def write_checkpoint(folder, parameters):
    os.makedirs(folder, exist_ok=True)
    header, at = {}, 0
    for name, _, x in parameters:
        header[name] = {"dtype": "F16", "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for _, _, x in parameters:
            f.write(x.tobytes())
    config = {"model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_hidden_layers": LAYERS,
              "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "max_position_embeddings": POSITIONS, "rms_norm_eps": EPSILON,
              "rope_theta": THETA, "hidden_act": "silu", "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2}
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=1)


def write_gguf(path, parameters, kind):
    w = gguf.GGUFWriter(path, "llama")
    w.add_context_length(POSITIONS)
    w.add_embedding_length(WIDTH)
    w.add_feed_forward_length(HIDDEN)
    w.add_block_count(LAYERS)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_layer_norm_rms_eps(EPSILON)
    w.add_rope_freq_base(THETA)
    w.add_rope_dimension_count(HEAD)
    w.add_vocab_size(VOCABULARY)
    w.add_tokenizer_model("none")
    for name, short, x in parameters:
        if x.ndim == 1:
            w.add_tensor(short, x.astype(np.float32))
            continue
        x = turned_in_pairs(name, x)
        if kind == gguf.GGMLQuantizationType.F16:
            w.add_tensor(short, x)
        else:
            w.add_tensor(short, gguf.quantize(x.astype(np.float32), kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("folder")
folder = parser.parse_args().folder
parameters = list(tensors())
write_checkpoint(os.path.join(folder, "model"), parameters)
write_gguf(os.path.join(folder, "f16.gguf"), parameters, gguf.GGMLQuantizationType.F16)
write_gguf(os.path.join(folder, "q8_0.gguf"), parameters, gguf.GGMLQuantizationType.Q8_0)
print(sum(x.size for _, _, x in parameters), "parameters")
