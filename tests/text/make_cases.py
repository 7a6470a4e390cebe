#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/text/cases: small tokenizers of every kind that text/ reads, trained on generated text, and what Hugging Face's
`tokenizers` makes of random strings in many languages.

    make_cases.py FOLDER [--seed N] [--count N]

A file holds {"tokenizer": what tokenizer.json would, "cases": [[text, ids, plain, decoded, raw], ...]}: ids with special tokens; the
ids without (null: the same); the text decoded from ids, without special tokens (null: the text itself) and with
(null: the same). spell.json is not made here: its cases came with the model of samples/generate. Needs tokenizers.
"""
import argparse
import json
import os

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from random_texts import corpus, random_text, rng

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--count", type=int, default=60)
args = parser.parse_args()
os.makedirs(args.folder, exist_ok=True)
rng.seed(args.seed)


def train(tok, specials=(), size=420, byte_level=True, **more):
    alphabet = pre_tokenizers.ByteLevel.alphabet() if byte_level else []
    kind = trainers.WordPieceTrainer if isinstance(tok.model, models.WordPiece) else trainers.BpeTrainer
    if isinstance(tok.model, models.WordLevel):
        kind, alphabet = trainers.WordLevelTrainer, None
    known = {"vocab_size": size, "special_tokens": list(specials), "show_progress": False, **more}
    if alphabet is not None:
        known["initial_alphabet"] = alphabet
    tok.train_from_iterator(corpus(), kind(**known))
    return tok


def save(name, tok, specials=()):
    cases = []
    for _ in range(args.count):
        text = random_text(specials)
        ids, plain = tok.encode(text).ids, tok.encode(text, add_special_tokens=False).ids
        decoded, raw = tok.decode(ids), tok.decode(ids, skip_special_tokens=False)
        cases.append([text, ids, None if plain == ids else plain, None if decoded == text else decoded,
                      None if raw == decoded else raw])
    with open(os.path.join(args.folder, name + ".json"), "w", encoding="utf-8") as file:
        json.dump({"tokenizer": json.loads(tok.to_str()), "cases": cases}, file, ensure_ascii=False, separators=(",", ":"))


def byte_level_bpe(name, pre, specials, normalizer=None, post=None, added=(), **model):
    tok = Tokenizer(models.BPE(**model))
    tok.pre_tokenizer = pre
    if normalizer:
        tok.normalizer = normalizer
    tok.decoder = decoders.ByteLevel()
    train(tok, specials)
    tok.add_tokens(list(added))
    if post:
        tok.post_processor = post(tok)
    save(name, tok, [*specials, *added])


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def bytes_of(add_prefix_space=False, use_regex=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)


def template(single, names):
    return lambda tok: processors.TemplateProcessing(single=single, special_tokens=[(n, tok.token_to_id(n)) for n in names])


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

byte_level_bpe("gpt2", bytes_of(use_regex=True), ["<|endoftext|>"])
byte_level_bpe("roberta", bytes_of(True, True), ["<s>", "<pad>", "</s>", "<unk>", AddedToken("<mask>", lstrip=True)],
               post=lambda tok: processors.RobertaProcessing(("</s>", 2), ("<s>", 0)))
byte_level_bpe("llama3", pre_tokenizers.Sequence([split(LLAMA3), bytes_of()]),
               ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"],
               post=lambda tok: processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                                     template("<|begin_of_text|> $A", ["<|begin_of_text|>"])(tok)]),
               ignore_merges=True)
byte_level_bpe("qwen2", pre_tokenizers.Sequence([split(QWEN2), bytes_of()]), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
               normalizer=normalizers.NFC(), added=["<tool_call>", "</tool_call>", "<think>"])
byte_level_bpe("o200k", pre_tokenizers.Sequence([split(O200K), bytes_of()]), ["<|endoftext|>"])
byte_level_bpe("digits", pre_tokenizers.Sequence([pre_tokenizers.Digits(True), bytes_of(use_regex=True)]), ["<|endoftext|>"])
byte_level_bpe("contiguous", pre_tokenizers.Sequence([pre_tokenizers.Digits(False), pre_tokenizers.Punctuation("contiguous"), bytes_of()]), [])
byte_level_bpe("merged_with_previous", pre_tokenizers.Sequence([split(r"[\w\p{P}]\b|\s", "merged_with_previous"), bytes_of()]), [])
byte_level_bpe("merged_with_next", pre_tokenizers.Sequence([split(r"\s+", "merged_with_next"), split(r"\W", "removed"), bytes_of()]), [])
byte_level_bpe("added", bytes_of(use_regex=True), ["<s>", "</s>"], normalizer=normalizers.Lowercase(),
               added=[AddedToken("word", single_word=True), AddedToken("<l>", lstrip=True), AddedToken("<r>", rstrip=True),
                      AddedToken("<LR>", lstrip=True, rstrip=True, normalized=True), AddedToken("The", normalized=True),
                      AddedToken("Thee", normalized=False), AddedToken("日本", single_word=True, normalized=False)],
               post=template("<s> $A </s>", ["<s>", "</s>"]))

UNDERLINE = "\u2581"
tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
tok.normalizer = normalizers.Sequence([normalizers.Prepend(UNDERLINE), normalizers.Replace(" ", UNDERLINE)])
tok.decoder = decoders.Sequence([decoders.Replace(UNDERLINE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
byte_tokens = [f"<0x{b:02X}>" for b in range(256)]
train(tok, ["<unk>", "<s>", "</s>"] + byte_tokens, 480, byte_level=False, limit_alphabet=60)
parts = json.loads(tok.to_str())  # the bytes are plain tokens of the vocabulary in Llama 2's file
parts["added_tokens"] = parts["added_tokens"][:3]
tok = Tokenizer.from_str(json.dumps(parts))
tok.post_processor = template("<s> $A", ["<s>"])(tok)
save("llama2", tok, ["<s>", "</s>", "<0x41>"])

parts["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": UNDERLINE}
parts["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
parts["decoder"]["decoders"].pop()
tok = Tokenizer.from_str(json.dumps(parts))
tok.post_processor = template("<s> $A", ["<s>"])(tok)
save("gemma", tok, ["<s>", "</s>"])

parts["normalizer"] = None
parts["decoder"] = {"type": "Metaspace", "replacement": UNDERLINE, "prepend_scheme": "first", "split": False}
for name, scheme, cut in (("mistral", "first", False), ("metaspace", "always", True), ("metaspace_never", "never", True)):
    parts["pre_tokenizer"] = {"type": "Metaspace", "replacement": UNDERLINE, "prepend_scheme": scheme, "split": cut}
    parts["model"]["byte_fallback"] = name != "metaspace"
    parts["model"]["fuse_unk"] = name != "metaspace_never"
    save(name, Tokenizer.from_str(json.dumps(parts)), ["<s>", "</s>"])

BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
for name, lower in (("bert_uncased", True), ("bert_cased", False)):
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=20))
    tok.normalizer = normalizers.BertNormalizer(lowercase=lower)
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.WordPiece()
    train(tok, BERT, 500, byte_level=False)
    tok.post_processor = (template("[CLS] $A [SEP]", BERT[2:4])(tok) if lower else
                          processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)))
    if lower:
        tok.enable_truncation(16)
    save(name, tok, BERT)

for name, normalizer, pre in (
        ("words", normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()]), pre_tokenizers.Whitespace()),
        ("accents", normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents()]), pre_tokenizers.WhitespaceSplit()),
        ("decomposed", normalizers.Sequence([normalizers.NFD(), normalizers.Replace(Regex("o+"), "0"), normalizers.Strip(True, False)]),
         pre_tokenizers.CharDelimiterSplit("e"))):
    tok = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tok.normalizer, tok.pre_tokenizer = normalizer, pre
    train(tok, ["[UNK]"], 300)
    save(name, tok, ["[UNK]"])

tok = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>"))
tok.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
tok.pre_tokenizer = pre_tokenizers.Sequence([
    split(r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+", "removed", True), bytes_of()])
tok.decoder = decoders.BPEDecoder("</w>")
train(tok, ["<|startoftext|>", "<|endoftext|>"], 560, end_of_word_suffix="</w>")
tok.post_processor = processors.BertProcessing(("<|endoftext|>", 1), ("<|startoftext|>", 0))
save("clip", tok, ["<|startoftext|>", "<|endoftext|>"])

tok = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##"))
tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation("isolated")])
train(tok, ["[UNK]"], 400, byte_level=False, continuing_subword_prefix="##")
save("subword_prefix", tok, ["[UNK]"])
