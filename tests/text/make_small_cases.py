#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes small_cases.json: tokenizers of a few words with what the larger files of make_cases.py lack, and what Hugging Face's
`tokenizers` (0.23) makes of texts."""
import json
import pathlib

from tokenizers import Tokenizer

WORDS = ["[UNK]", "a", "b", "ab", "▁ab", "▁a", "▁b", "a▁b", "▁a▁b", "▁a▁", "a▁", "▁a▁b▁", "a▁b▁", "bb", "²", "1", "²1", "a²"]
made = []


def save(texts, **parts):
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                 "pre_tokenizer": None, "post_processor": None, "decoder": None,
                 "model": {"type": "WordLevel", "unk_token": "[UNK]", "vocab": {word: i for i, word in enumerate(WORDS)}}}
    tokenizer.update(parts)
    tok = Tokenizer.from_str(json.dumps(tokenizer))
    cases = []
    for text in texts:
        ids = tok.encode(text).ids
        plain = tok.encode(text, add_special_tokens=False).ids
        cases.append([text, ids, plain, tok.decode(ids), tok.decode(ids, skip_special_tokens=False)])
    made.append({"tokenizer": tokenizer, "cases": cases})


# matches of nothing
for regex in ("^", "$", "(?=b)", "x*", r"\b", r"\z", "^a?"):
    pattern = {"Regex": regex}
    replace = {"type": "Replace", "pattern": pattern, "content": "▁"}
    save(["ab", "a", "b", "", "a b\nb"], normalizer=replace)
    save(["ab", "ab b"], pre_tokenizer={"type": "WhitespaceSplit"},
         decoder={"type": "Sequence", "decoders": [{"type": "Fuse"}, replace]})
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            save(["ab", "abb", "bab"],
                 pre_tokenizer={"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert})
# Metaspace marks a text's beginning, which a Replace may have taken away.
for regex, content in (("^", "b"), ("^", ""), ("a", ""), ("^a", "b"), ("x*", "a")):
    save(["ab", "a b", "b"], normalizer={"type": "Replace", "pattern": {"Regex": regex}, "content": content},
         pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True})

# Latin-1's numbers are of a word outside a class alone.
for regex in (r"\w", r"[\w]", r"[^\w]", r"\W", r"\b"):
    save(["²", "1", "²1", "a²", "²a", "-²", "¼a¾b"],
         pre_tokenizer={"type": "Split", "pattern": {"Regex": regex}, "behavior": "Contiguous", "invert": False})

# added tokens that share their space
for normalized in (False, True):
    for lstrip in (False, True):
        for rstrip in (False, True):
            flags = {"single_word": False, "normalized": normalized, "special": False}
            # With lstrip alone, `tokenizers` panics at the last texts.
            save(["a\n\nb", "a \n \n b", "\n\n", "<r> \n<r> \n", "  a  b", " ", "<r>\n", "a <r>  <r> b"] +
                 ([] if lstrip and not rstrip else ["<r> \n b", "<r> \n \n b", "<r>\n\nb"]),
                 added_tokens=[{"id": len(WORDS), "content": "\n", "lstrip": lstrip, "rstrip": rstrip, **flags},
                               {"id": len(WORDS) + 1, "content": "<r>", "lstrip": False, "rstrip": True, **flags}])

# cut to few tokens, or to none
for longest in (0, 1, 2):
    save(["a b ab", "a", ""], pre_tokenizer={"type": "WhitespaceSplit"},
         truncation={"direction": "Right", "max_length": longest, "strategy": "LongestFirst", "stride": 0})

with open(pathlib.Path(__file__).parent / "small_cases.json", "w", encoding="utf-8") as out:
    out.write("[\n" + ",\n".join(json.dumps(m, ensure_ascii=False, separators=(",", ":")) for m in made) + "\n]\n")
