#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/fuzz/corpus: a few small files of each format, from which the fuzz targets begin. They are made of the tests' own
models and tokenizers, cut to a few hundred bytes. Needs nothing but Python.

    make_seeds.py
"""
import json
import os
import shutil
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)


def save(target, name, data):
    os.makedirs(os.path.join(HERE, "corpus", target), exist_ok=True)
    with open(os.path.join(HERE, "corpus", target, name), "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)


def short(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def safetensors(tensors, metadata=None):
    """tensors: name -> (dtype, shape, bytes)."""
    header, data = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, values) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = short(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def floats(count):
    return struct.pack(f"<{count}f", *(0.25 * (i % 7) - 0.5 for i in range(count)))


def seeds_of_tensors():
    save("safetensors", "one", safetensors({"w": ("F32", [2, 3], floats(6))}))
    save("safetensors", "none", safetensors({}))
    save("safetensors", "types", safetensors({"a": ("I64", [1], bytes(8)), "b": ("F16", [2, 2], bytes(8)), "c": ("BF16", [], bytes(2)),
                                              "d": ("U8", [3], bytes(3)), "e": ("BOOL", [0, 4], b"")}, {"format": "pt"}))
    for kind, words in {"f16": 4, "bf16": 4, "int8": 8, "int4": 8}.items():
        save("packed_weights", kind, safetensors({"w": ("I32", [2, words], bytes(range(8 * words)))},
                                                 {"vkformer.packed": "1", "vkformer.packed:w": f"{kind} 8"}))
    save("packed_weights", "plain", safetensors({"w": ("F32", [3, 5], floats(15)), "h": ("F16", [2, 4], bytes(16))}))


def seeds_of_folders():
    with open(os.path.join(TESTS, "decoders", "llama3", "model.safetensors.index.json"), encoding="utf-8") as file:
        index = json.load(file)
    save("index", "whole", short(index))
    names = list(index["weight_map"])
    index["weight_map"] = {name: index["weight_map"][name] for name in names[:3]}
    save("index", "few", short(index))
    for model in ("llama", "llama3", "llama_yarn", "gpt2", "gemma3", "mistral", "qwen2_window", "phi3"):
        shutil.copy(os.path.join(TESTS, "decoders", model, "config.json"), os.path.join(corpus("config"), model))
    for model in ("bert", "distilbert"):
        shutil.copy(os.path.join(TESTS, "encoders", model, "config.json"), os.path.join(corpus("config"), model))


def corpus(target):
    folder = os.path.join(HERE, "corpus", target)
    os.makedirs(folder, exist_ok=True)
    return folder


def cut_tokenizer(tok):
    """Leaves a few tokens, and the merges between them."""
    model = tok["model"]
    if isinstance(model["vocab"], list):
        model["vocab"] = model["vocab"][:40]
        return tok
    added = {t["content"] for t in tok.get("added_tokens", [])}
    keep = [t for t in model["vocab"] if t in added or len(t) == 1 or t.startswith(("[", "<"))][:40]
    left, merges = set(keep), []
    for merge in model.get("merges", []):
        a, b = merge if isinstance(merge, list) else merge.split(" ")
        if a in left and b in left and a + b in model["vocab"] and len(merges) < 8:
            merges.append(merge)
            left.add(a + b)
            keep.append(a + b)
    model["vocab"] = {token: i for i, token in enumerate(keep)}
    if "merges" in model:
        model["merges"] = merges
    for token in tok.get("added_tokens", []):
        token["id"] = model["vocab"].get(token["content"], 100 + token["id"] % 100)
    for entry in ((tok.get("post_processor") or {}).get("special_tokens") or {}).values():
        entry["ids"] = [model["vocab"].get(t, 0) for t in entry["tokens"]]
    return tok


def seeds_of_text():
    for name in ("gpt2", "llama2", "llama3", "gemma", "bert_uncased", "unigram_t5", "words", "metaspace", "digits", "clip", "roberta"):
        with open(os.path.join(TESTS, "text", "cases", name + ".json"), encoding="utf-8") as file:
            tok = cut_tokenizer(json.load(file)["tokenizer"])
        if isinstance(tok.get("normalizer"), dict) and len(short(tok["normalizer"])) > 2000:
            tok["normalizer"] = None  # a table of replacements
        save("tokenizer_json", name, short(tok))
    small = {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}
    doubled = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    save("tokenizer_json", "doubled", short({"model": small, "normalizer": {"type": "Sequence", "normalizers": [doubled] * 30}}))
    longer = doubled | {"content": "aa" + "_" * 33}  # just under a MiB, each character a match
    save("tokenizer_json", "doubled_longer", short({"model": small, "normalizer": {"type": "Sequence", "normalizers": [doubled] * 13 + [longer] + [doubled] * 16}}))
    for name in ("bare", "gemma", "unigram"):
        with open(os.path.join(TESTS, "text", "sentencepiece", name, "tokenizer.model"), "rb") as file:
            save("tokenizer_model", name, cut_model(file.read()))
    with open(os.path.join(TESTS, "text", "chat.json"), encoding="utf-8") as file:
        for name, template, _ in json.load(file):
            save("chat_template", name, template)


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def cut_model(data):
    """Leaves the first 40 pieces of a ModelProto, and everything that is no piece."""
    out, at, pieces = b"", 0, 0
    while at < len(data):
        begin = at
        tag, at = varint(data, at)
        if tag & 7 == 2:
            size, at = varint(data, at)
            at += size
        elif tag & 7 == 0:
            _, at = varint(data, at)
        else:
            at += 8 if tag & 7 == 1 else 4
        pieces += tag >> 3 == 1
        if tag >> 3 != 1 or pieces <= 40:
            out += data[begin:at]
    return out


def seeds_of_devices():
    save("pipeline_cache", "frame", struct.pack("<6I16s2Q", 0x43464B56, 1, 7, 0, 0, 0, bytes(16), 4, 0) + b"data")
    save("tuning", "list", "vkformer tuning 1\nmatmul_rows=16,attention_split=0\n")
    save("tuning", "bare", "matmul_rows=16")
    save("states", "states", safetensors({"a": ("F32", [3, 4], floats(12)), "b": ("I32", [5], bytes(20)),
                                          "c": ("F16", [2, 6], bytes(24))}))
    save("states", "part", safetensors({"a": ("F32", [2, 4], floats(8)), "b": ("I32", [5], bytes(20)),
                                        "c": ("F16", [2, 3], bytes(12))}))
    config = short({"peft_type": "LORA", "bias": "none", "lora_alpha": 8, "r": 2, "target_modules": ["layer"]}).encode()
    tensors = safetensors({"base_model.model.layer.lora_A.weight": ("F32", [2, 8], floats(16)),
                           "base_model.model.layer.lora_B.weight": ("F32", [6, 2], floats(12))})
    save("adapters", "lora", struct.pack("<H", len(config)) + config + tensors)


seeds_of_tensors()
seeds_of_folders()
seeds_of_text()
seeds_of_devices()
