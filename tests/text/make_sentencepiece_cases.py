#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/text/sentencepiece: folders with a small SentencePiece model each, and what `sentencepiece` makes of random strings in many
languages; and Unigram tokenizers with a table of replacements, made from such models, into tests/text/cases.

    make_sentencepiece_cases.py FOLDER CASES [--seed N] [--count N] [--rules NAME]

FOLDER/NAME holds tokenizer.model, tokenizer_config.json and cases.json, whose cases are those of make_cases.py. A text is cut at added tokens;
its parts are `sentencepiece`'s, with a space before parts inside a text where "legacy" is true; tokens are put together as `tokenizers` does.
--rules: SentencePiece's own rules (nmt_nfkc) instead of a few of them, which keep the files small. Needs sentencepiece, protobuf, tokenizers.
"""
import argparse
import base64
import io
import json
import os
import re
import unicodedata

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from random_texts import WORDS, corpus, random_text, rng

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("cases")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--count", type=int, default=60)
parser.add_argument("--rules")
args = parser.parse_args()
rng.seed(args.seed)
UNDERLINE = "\u2581"


def rules_file():
    """Some of NFKC's rules and of nmt's spaces, as SentencePiece reads them: code points, tab, code points."""
    some = [chr(c) for c in [*range(0xa0, 0x180), *range(0x2000, 0x2040), *range(0x2100, 0x2180), *range(0x3000, 0x3003), *range(0xff01, 0xffa0),
                             *range(0xfb00, 0xfb07), 0x1d4b3, 0x1d4ce]] + ["e\u0301", "A\u030a", "a\u0323\u0302", "\u03c9\u0301"] + WORDS
    rules = {s: unicodedata.normalize("NFKC", s) for s in {c for text in some for c in [text, *text]} if len(s) <= 3}
    rules = {s: t for s, t in rules.items() if s != t}
    rules.update({s: " " for s in "\t\n\r\u00a0\u200b\u2028\ufeff\u3000"})
    rules.update({s: "" for s in "\x07\x7f\u00ad"})
    name = os.path.join(args.folder, "rules.tsv")
    with open(name, "w", encoding="utf-8") as file:
        for source, target in sorted(rules.items()):
            file.write(" ".join(f"{ord(c):X}" for c in source) + "\t" + " ".join(f"{ord(c):X}" for c in target) + "\n")
    return name


def train(rules=True, **options):
    model = io.BytesIO()
    if rules:
        rules_tsv = None if args.rules else rules_file()
        options.update({"normalization_rule_tsv": rules_tsv} if rules_tsv else {"normalization_rule_name": args.rules})
    else:
        options["normalization_rule_name"] = "identity"
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus()), model_writer=model, minloglevel=2, hard_vocab_limit=False,
                                             num_threads=1, **options)
    if rules and not args.rules:
        os.remove(rules_tsv)
    return model.getvalue()


def processor(model, prefix=True):
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    proto.normalizer_spec.add_dummy_prefix &= prefix
    return sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())


class Reference:
    def __init__(self, model, config):
        self.whole, inside = processor(model), processor(model, prefix=False)
        self.inside = self.whole if config.get("legacy", False) else inside
        self.added = {t["content"]: (int(i), t) for i, t in config.get("added_tokens_decoder", {}).items()}
        for i in (self.whole.bos_id(), self.whole.eos_id(), self.whole.unk_id(), self.whole.pad_id()):
            if i >= 0:
                token = self.whole.id_to_piece(i)
                self.added.setdefault(token, (i, {"content": token, "special": True}))
        ways = [("\\s*" if t.get("lstrip") else "") + re.escape(c) + ("\\s*" if t.get("rstrip") else "")
                for c, (_, t) in sorted(self.added.items(), key=lambda x: -len(x[0]))]
        self.pattern = re.compile("(" + "|".join(ways) + ")")
        self.config = config
        steps = [decoders.Replace(UNDERLINE, " "), decoders.ByteFallback(), decoders.Fuse()]
        if "".join(self.whole.encode("x", out_type=str)).startswith(UNDERLINE):
            steps.append(decoders.Strip(" ", 1, 0))
        self.decoder = decoders.Sequence(steps)

    def encode(self, text):
        ids, first = [], True
        for part in self.pattern.split(text):
            if part and self.pattern.fullmatch(part):
                ids.append(self.added[part.strip() if part not in self.added else part][0])
            elif part:
                ids += (self.whole if first else self.inside).encode(part)
            first = first and not part
        return ids

    def special(self, ids):
        begin = [self.whole.bos_id()] if self.config.get("add_bos_token", True) and self.whole.bos_id() >= 0 else []
        return begin + ids + ([self.whole.eos_id()] if self.config.get("add_eos_token", False) else [])

    def decode(self, ids, skip):
        by_id = {i: t for i, t in self.added.values()}
        return self.decoder.decode([by_id[i]["content"] if i in by_id else self.whole.id_to_piece(i) for i in ids
                                    if not (skip and i in by_id and by_id[i].get("special"))])


def pack(text, ids, plain, decoded, raw):
    return [text, ids, None if plain == ids else plain, None if decoded == text else decoded, None if raw == decoded else raw]


def write(name, content):
    with open(name, "w", encoding="utf-8") as file:
        json.dump(content, file, ensure_ascii=False, separators=(",", ":"))


def save_model(name, model, config):
    reference = Reference(model, config or {})
    folder = os.path.join(args.folder, name)
    os.makedirs(folder, exist_ok=True)
    cases = []
    for _ in range(args.count):
        text = random_text(list(reference.added))
        plain = reference.encode(text)
        ids = reference.special(plain)
        cases.append(pack(text, ids, plain, reference.decode(ids, True), reference.decode(ids, False)))
    with open(os.path.join(folder, "tokenizer.model"), "wb") as file:
        file.write(model)
    if config:
        write(os.path.join(folder, "tokenizer_config.json"), config)
    write(os.path.join(folder, "cases.json"), cases)


def save_unigram(name, model, normalizer, pre, post=None, vocab=None, unknown=None, specials=(), **options):
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    vocab = vocab or [(p.piece, p.score) for p in proto.pieces]
    unknown = proto.trainer_spec.unk_id if unknown is None else unknown
    tok = Tokenizer(models.Unigram(vocab, unknown, **options))
    tok.normalizer = normalizer(normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)) if normalizer else None
    tok.pre_tokenizer = pre
    tok.decoder = decoders.Metaspace() if not options else decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(), decoders.Fuse()])
    tok.add_special_tokens(list(specials))
    if post:
        tok.post_processor = processors.TemplateProcessing(single=post, special_tokens=[(t, tok.token_to_id(t)) for t in ("<s>", "</s>")])
    cases = []
    for _ in range(args.count):
        text = random_text(specials)
        ids, plain = tok.encode(text).ids, tok.encode(text, add_special_tokens=False).ids
        cases.append(pack(text, ids, plain, tok.decode(ids), tok.decode(ids, skip_special_tokens=False)))
    write(os.path.join(args.cases, name + ".json"), {"tokenizer": json.loads(tok.to_str()), "cases": cases})


def special(content, **more):
    return {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True, **more}


LLAMA = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False, "bos_token": "<s>",
         "eos_token": {"__type": "AddedToken", **special("</s>")}, "unk_token": "<unk>", "pad_token": None, "legacy": False,
         "added_tokens_decoder": {"0": special("<unk>"), "1": special("<s>"), "2": special("</s>")}}
bpe = train(rules=False, model_type="bpe", vocab_size=420, byte_fallback=True, remove_extra_whitespaces=False, split_digits=True,
            character_coverage=0.98, allow_whitespace_only_pieces=True)
size = processor(bpe).get_piece_size()
save_model("llama", bpe, {**LLAMA, "added_tokens_decoder": {**LLAMA["added_tokens_decoder"], str(size): special("<|im_start|>"),
                                                            str(size + 1): special("<pause>", special=False, lstrip=True, rstrip=True)}})
save_model("llama_legacy", bpe, {**LLAMA, "legacy": True, "add_eos_token": True})
gemma = train(rules=False, model_type="bpe", vocab_size=420, byte_fallback=True, remove_extra_whitespaces=False, add_dummy_prefix=False, pad_id=0,
              eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>", eos_piece="<eos>", bos_piece="<bos>", allow_whitespace_only_pieces=True,
              character_coverage=0.98, user_defined_symbols=["<start_of_turn>", "<end_of_turn>", "\n\n", "  "])
save_model("gemma", gemma, {"tokenizer_class": "GemmaTokenizer", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>",
                            "pad_token": "<pad>", "add_bos_token": True, "added_tokens_decoder": {"4": special("<start_of_turn>")}})
unigram = train(model_type="unigram", vocab_size=300, character_coverage=0.98)
save_model("unigram", unigram, {"add_bos_token": False, "add_eos_token": True, "legacy": True})
save_model("bare", train(model_type="unigram", vocab_size=560, rules=False, byte_fallback=True), None)

metaspace = pre_tokenizers.Metaspace(prepend_scheme="always")
spaces = normalizers.Replace(Regex(" {2,}"), " ")
save_unigram("unigram_t5", unigram, lambda n: n, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace]), "$A </s>",
             specials=["</s>", "<unk>", "<extra_id_0>"])
pieces = [(p.piece, p.score) for p in sentencepiece_model_pb2.ModelProto.FromString(unigram).pieces]
save_unigram("unigram_xlmr", unigram, lambda n: normalizers.Sequence([n, spaces]), metaspace, "<s> $A </s>",
             [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *pieces[3:]], 3, ["<s>", "</s>", "<mask>"])
save_unigram("unigram_albert", unigram, lambda n: normalizers.Sequence([
    normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), n,
    normalizers.Strip(False, True)]), metaspace, specials=["<unk>"])
save_unigram("unigram_bytes", train(model_type="unigram", vocab_size=520, byte_fallback=True, character_coverage=0.98),
             lambda n: normalizers.Sequence([normalizers.Nmt(), spaces]), pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
             specials=["<s>"], byte_fallback=True)
