# SPDX-License-Identifier: Apache-2.0
"""Random strings in many languages, and the text small tokenizers are trained on."""
import random
import unicodedata

rng = random.Random(0)

WORDS = """the of and hundred thousand I'm you're they'll we've don't DON'T he'S naïve café Straße ﬁne oﬃce İstanbul ǅungla résumé Ωμέγα
ὈΔΥΣΣΕΎΣ слово Привет ёлка שלום עולם مرحبا العالم नमस्ते हिन्दी ไทย ภาษา 한국어 조선 日本語 中文字 漢字かな カタカナ ｶﾀｶﾅ Ａｂｃ１２３ 𝒳𝓎𝓏 𠀀𠮷 e\u0301cole a\u0323\u0302
# include <vector> http://a.b/c?d=e&f=g user@example.com
\u1e9b\u0323 \u212b \u2126 ² ½ Ⅻ ٣٤٥ १२३ ４２ 3.14159 1234567 10,000 x_1 snake_case foo::bar() a+b=c
😀 🚀 👩\u200d👩\u200d👧 🇩🇪 👍🏽 ❤️ don\u2019t “quoted” — … ‰ € £ ¥ ™ \u00ad \u200b \ufeff \u200f ſ K ß ẞ ŉ ǰ""".split()
SPACES = [" "] * 12 + ["  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n ", "\u00a0", "\u3000", "\u2003", "\u0085", "\u2028", "\u200b", "\u180e", "\v", ""]
SIGNS = list(".,;:!?'\"()[]{}<>/\\|@#$%^&*-_=+~`¿¡«»、。！？「」·•§¶") + ["'s", "'S", "'ll", "...", "--", "\u2019s", "\u0301", "\x00", "\x07", "\x7f", "\ufffd"]
CHARACTERS = [chr(c) for c in list(range(0x20, 0x2e80)) + list(range(0x3000, 0x3200)) + list(range(0xa640, 0xa700)) + list(range(0x1f300, 0x1f600))
              if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]


def random_text(specials=()):
    parts = []
    for _ in range(rng.choice([0, 1, 1, 2, 3, 5, 8, 12])):
        kind = rng.random()
        if kind < 0.55:
            parts.append(rng.choice(WORDS))
        elif kind < 0.67:
            parts.append("".join(rng.choice(CHARACTERS) for _ in range(rng.randint(1, 6))))
        elif kind < 0.80:
            parts.append(rng.choice(SIGNS) * rng.choice([1, 1, 1, 2, 3]))
        elif kind < 0.9:
            parts.append(str(rng.randrange(10 ** rng.randint(1, 9))))
        else:
            parts.append(getattr(token := rng.choice(list(specials) or WORDS), "content", token))
        parts.append(rng.choice(SPACES) * rng.choice([1, 1, 1, 1, 2, 5]))
    return "".join(parts)


def corpus():
    keep = rng.getstate()
    rng.seed(1)
    texts = [" ".join(rng.choice(WORDS[:40]) for _ in range(8)) for _ in range(300)]
    rng.setstate(keep)
    return texts
