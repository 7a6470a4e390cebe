# SPDX-License-Identifier: Apache-2.0
"""Language models and text encoders from Hugging Face folders."""

from __future__ import annotations

import operator
import os
from typing import TYPE_CHECKING, Any, Callable, Generator, Iterator, Sequence, cast

from . import _vkformer as _c
from ._progress import progress_bar
from ._turns import Turn
from ._types import Arithmetic, Kept, Path, Split
from .eager import default_device

if TYPE_CHECKING:
    from numpy.typing import NDArray


def _ids(what: str, tokens: Any) -> list[int]:
    """Token ids as a list of numbers."""
    if isinstance(tokens, (bytes, bytearray, memoryview)) or not hasattr(tokens, "__iter__"):
        raise TypeError(f"{what}: is {type(tokens).__name__}; a str, or a sequence of token ids, is wanted")
    try:
        ids = [operator.index(i) for i in tokens]
    except TypeError:
        raise TypeError(f"{what}: has what is no token id; ids are integers") from None
    for i in ids:
        if not -2**31 <= i < 2**31:
            raise _c.ArgumentError(f"{what}: {i} is no token id, which 32 bits hold")
    return ids


def _text(what: str, text: str) -> str:
    """A text, which must be UTF-8."""
    try:
        if isinstance(text, str):  # other types are told of where they are taken
            text.encode()
    except UnicodeEncodeError:
        raise _c.ArgumentError(f"{what}: {ascii(text)} is no valid text") from None
    return text


def _tokenizer(folder: Path) -> Any:
    if not _c.has_text or not any(os.path.exists(os.path.join(folder, name)) for name in ("tokenizer.json", "tokenizer.model")):
        return None
    return _c.Tokenizer(folder)


class _Chat(str):
    """A prompt that has its special tokens in it, so that none are put around it."""

    def __add__(self, more: str) -> _Chat:
        return _Chat(super().__add__(more))


_BUSY = ("this decoder is at work on a text that this thread has not read to its end: close() that stream, or read "
         "it to its end, before another text begins")


_MOST_CANDIDATES = 128
_TOP_K = 50  # where none is given


def _missing(self: Any, name: str, maker: str) -> str:
    made = "folder" in vars(self)
    return f"{type(self).__name__}: has no {name}" + ("" if made else f"; {maker}() makes one that has all of its parts")


class Decoder(_c.DecoderCore):
    """A language model, compiled for a device, with its tokenizer: load_decoder() makes one.

    generate() and stream() take text or token ids; what they give is of the same kind. The methods
    of C++'s Decoder (prompt, step, next, candidates, score, ...) are here too; those that go on
    from the last text do so whether it was drawn or not. Threads take turns, for a whole text each.
    A decoder has room for one text: beginning another one in the thread that reads a stream() is an
    Error, until that stream has ended or was closed.
    """

    folder: str
    facts: _c.DecoderFacts
    tokenizer: Any

    def _open(self, folder: Path, facts: _c.DecoderFacts, device: _c.Device, candidates: int,
              options: dict[str, Any]) -> None:
        self.folder, self.facts, self._device = os.fspath(folder), facts, device
        self._candidates, self._options, self._found = candidates, options, 0
        self._sampling: _c.DecoderCore | None = None
        self._at: _c.DecoderCore | None = None  # the programs that read the last text; None: its own
        self._adapter: _c.Adapter | None = None
        self._turn = Turn(_BUSY)
        self.tokenizer = _tokenizer(folder)
        self._begin: Any = _c.begin_of_text(folder, facts.begins_texts) if self.tokenizer is not None else None

    def __getattr__(self, name: str) -> Any:  # what is not there
        raise AttributeError(_missing(self, name, "load_decoder"))

    def encode(self, prompt: str | Sequence[int]) -> list[int]:
        """The ids of a prompt, with the token that begins texts where the model wants it."""
        if not isinstance(prompt, str):
            return _ids("prompt", prompt)
        if self.tokenizer is None:
            raise _c.ArgumentError(f"{self.folder}: has no tokenizer; prompts are lists of token ids")
        if isinstance(prompt, _Chat):
            return list(self.tokenizer.encode(_text("prompt", prompt), special=False))
        return list(_c.encode_prompt(self.tokenizer, _text("prompt", prompt), self._begin, self.facts.begin))

    def chat(self, question: str, system: str = "") -> str:
        """The question as the model was trained to see one: a prompt for generate().

        Its special tokens are in it. It is encoded without further ones, also where text is added behind
        it with +; what else is made of it, as by an f-string, is a text like any other.
        """
        question, system = _text("question", question), _text("system", system)
        return _Chat(_c.ChatTemplate(self.folder).prompt(question, system))

    def _last(self) -> _c.DecoderCore:
        """The programs whose cache holds the last text."""
        at: _c.DecoderCore | None = vars(self).get("_at")
        return self if at is None else at

    def prompt(self, prompts: Sequence[Sequence[int]]) -> None:
        """Forgets what the cache holds and reads prompts, token ids each, of lengths of their own."""
        with self._turn.hold():
            super().prompt(prompts)
            self._at = None

    def append(self, tokens: Sequence[int]) -> None:
        """Reads more tokens of each sequence, (batch, count) behind each other."""
        with self._turn.hold():
            _c.DecoderCore.append(self._last(), tokens)

    def step(self, tokens: Sequence[int]) -> None:
        """One more token of each sequence."""
        with self._turn.hold():
            _c.DecoderCore.step(self._last(), tokens)

    def next(self) -> list[int]:
        """The likeliest next token of each sequence of the last text."""
        return list(_c.DecoderCore.next(self._last()))

    def candidates(self, sequence: int) -> tuple[list[int], list[float]]:
        """The likeliest next tokens of a sequence of the last text and their logits, best first."""
        return _c.DecoderCore.candidates(self._last(), sequence)

    def room(self) -> int:
        """Tokens that may follow the last text before the cache is full."""
        return _c.DecoderCore.room(self._last())

    def save_cache(self, file: Path) -> None:
        """Writes what the cache holds of the last text to a safetensors file."""
        _c.DecoderCore.save_cache(self._last(), file)

    def memory(self) -> _c.ModelMemory:
        """Bytes that it takes, with the programs and the cache that the first drawn text made."""
        sampling: _c.DecoderCore | None = vars(self).get("_sampling")
        both = super().memory()
        if sampling is not None:
            both = both._with(sampling.memory())  # type: ignore[attr-defined]
        return both

    def restore_cache(self, file: Path) -> None:
        """Goes on where save_cache() was called, with the same bits if max_tokens and chunk are the same."""
        with self._turn.hold():
            super().restore_cache(file)
            self._at = None

    def score(self, tokens: Sequence[int]) -> NDArray[Any]:
        """Logits (tokens, vocabulary) after each token of a text. Needs score=True."""
        with self._turn.hold():
            logits = super().score(tokens)
            self._at = None
            return logits

    def set_adapter(self, adapter: _c.Adapter) -> None:
        """Puts a LoRA adapter in; load_decoder(adapter=...) makes room for its kind."""
        self._adapt(adapter)

    def clear_adapter(self) -> None:
        """Takes it out again."""
        self._adapt(None)

    def _adapt(self, adapter: _c.Adapter | None) -> None:
        """Changes the adapter of both sets of programs, or of none where this thread reads a text."""
        with self._turn.hold():
            for core in (self, self._sampling):
                if core is not None and adapter is None:
                    _c.DecoderCore.clear_adapter(core)
                elif core is not None and adapter is not None:
                    _c.DecoderCore.set_adapter(core, adapter)
            self._adapter, self._at = adapter, None

    def _for_sampling(self, top_k: int) -> _c.DecoderCore:
        """The programs that also find the likeliest tokens, which greedy decoding does without."""
        if self._candidates > 0:
            return self
        wanted = min(max(top_k, _TOP_K), self.facts.vocab_size)
        if wanted > _MOST_CANDIDATES:
            raise _c.ArgumentError(f"top_k = {top_k}: the likeliest {_MOST_CANDIDATES} tokens are found, and no more")
        if self._sampling is None or self._found < wanted:
            sampling = _c.DecoderCore(self._device, self.weights(), self.model(), candidates=wanted, **self._options)
            if self._adapter is not None:
                sampling.set_adapter(self._adapter)
            # programs that find fewer go, and with them a text that they read last
            self._sampling, self._found, self._at = sampling, wanted, None
        return self._sampling

    def _top_k(self, top_k: int | None) -> int:
        """How many tokens are drawn among: those that were asked for, which must be found."""
        found = self._candidates
        if top_k is None:
            return min(_TOP_K, found) if found > 0 else _TOP_K
        if 0 < found < min(top_k, self.facts.vocab_size):
            raise _c.ArgumentError(f"top_k = {top_k} is more than the {found} tokens that each step finds, as load_decoder(candidates={found}) says")
        return top_k

    def stream_ids(self, prompt: str | Sequence[int], max_tokens: int = 128, *, temperature: float = 0.0,
                   top_k: int | None = None, top_p: float = 1.0, seed: int = 0, ignore_end: bool = False) -> Generator[int, None, None]:
        """Ids of tokens as they come, that which ends the text included."""
        if max_tokens < 0:
            raise _c.ArgumentError(f"max_tokens is {max_tokens}; it is not negative")
        if not 0 <= operator.index(seed) < 2**64:
            raise _c.ArgumentError(f"seed is {seed}; it is a whole number from 0 to 2^64 - 1")
        ids = self.encode(prompt)
        likeliest = self._top_k(top_k) if temperature != 0 or top_k is None else top_k
        # what is out of range is refused here, where nothing is drawn too
        sampler = _c.Sampler(temperature=temperature, top_k=likeliest, top_p=top_p, seed=seed)
        prompt_of, step_of = _c.DecoderCore.prompt, _c.DecoderCore.step  # which do not take the turn
        with self._turn.hold():
            core = self._for_sampling(likeliest) if temperature != 0 else cast(_c.DecoderCore, self)
            prompt_of(core, [ids])
            self._at = core if core is not self else None
            for count in range(1, max_tokens + 1):
                token = sampler.choose(core) if temperature != 0 else _c.DecoderCore.next(core)[0]
                yield token
                if (token in self.facts.end and not ignore_end) or count == max_tokens or _c.DecoderCore.room(core) == 0:
                    return
                step_of(core, [token])

    def stream(self, prompt: str | Sequence[int], max_tokens: int = 128, *, temperature: float = 0.0,
               top_k: int | None = None, top_p: float = 1.0, seed: int = 0, stop: str | Sequence[str] = ()) -> Generator[Any, None, None]:
        """Pieces of text as they come, or ids where the prompt is ids.

        Greedy unless temperature is above 0. top_k: the likeliest tokens that are drawn among;
        None: 50. Each step finds as many as load_decoder(candidates=...) says: a top_k above that
        is an error, and None is at most that. Without it the first sampled text compiles programs,
        and makes a cache, of its own, for a top_k of up to 128. Ends at a token that ends texts, at
        one of the stops, after max_tokens, or where the cache is full. Stops are texts, and refused
        where the prompt is ids.
        """
        if stop and not isinstance(prompt, str):
            raise _c.ArgumentError(f"stop is {stop!r}, a text, and the prompt is token ids, whose answer has none")
        ids = self.stream_ids(self.encode(prompt), max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        if not isinstance(prompt, str):
            yield from ids
            return
        try:
            yield from self._pieces(ids, stop)
        finally:
            ids.close()

    def _pieces(self, ids: Iterator[int], stop: str | Sequence[str]) -> Iterator[str]:
        words = _c.TokenStream(self.tokenizer)
        stops = _c.StopTexts([stop] if isinstance(stop, str) else list(stop))
        for token in ids:
            if token in self.facts.end:
                break
            piece = stops.push(words.push(token))
            if piece:
                yield piece
            if stops.stopped:
                return
        piece = stops.push(words.finish())
        piece += "" if stops.stopped else stops.finish()
        if piece:
            yield piece

    def generate(self, prompt: str | Sequence[int], max_tokens: int = 128, *, temperature: float = 0.0,
                 top_k: int | None = None, top_p: float = 1.0, seed: int = 0, stop: str | Sequence[str] = ()) -> Any:
        """The whole answer of stream(): text, or a list of ids where the prompt is ids."""
        parts = list(self.stream(prompt, max_tokens, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed,
                                 stop=stop))
        return "".join(parts) if isinstance(prompt, str) else parts

    def __repr__(self) -> str:
        return (f"<Decoder {self.facts.model_type} from {self.folder}: {len(self.facts.layers)} layers, "
                f"{self.memory().total / 2**20:.1f} MiB>")


def load_decoder(folder: Path, weights: Kept | None = None, *, device: _c.Device | None = None, max_tokens: int = 0,
                 max_batch: int = 1, chunk: int = 256, candidates: int = 0, kv: Kept = "f32",
                 arithmetic: Arithmetic = "f32", adapter: Path | None = None, score: bool = False, profile: bool = False,
                 communicator: _c.Communicator | None = None, split: Split = "tensor", speeds: Sequence[float] = (),
                 progress: bool | Callable[[int, int], None] = False) -> Decoder:
    """Loads a decoder (Llama, Mistral, Qwen, Gemma, Phi-3, OLMo 2, GPT-2) from a Hugging Face folder.

    weights: what matrices are kept as, f32, f16, bf16, int8 or int4; None: as the files have them.
    max_tokens: most tokens of a text, prompt included; 0: as many as the model was trained for.
    candidates: likeliest tokens that each step finds, for candidates() and sampling; generate() with
    a temperature makes programs for as many as its top_k when they are first needed, where this is
    0. kv: what keys and values are kept as. adapter: a folder of PEFT's (LoRA). progress: True shows a bar on a terminal;
    or a function (bytes done, bytes in all). communicator: the ranks that compute the model together,
    each with a device of its own: every rank loads it and calls it alike. split: "tensor" gives each
    a part of every layer, "layers" some of the layers, both in proportion to the ranks' speeds.
    """
    device = device or default_device()
    checkpoint = _c.Checkpoint(folder)
    model = _c.read_decoder(checkpoint)
    lora = _c.Adapter(adapter) if adapter is not None else None
    show = progress_bar("weights") if progress is True else progress or None
    plan = _c.DecoderPlan(device, checkpoint, model, max_batch=max_batch, max_tokens=max_tokens, chunk=chunk,
                          candidates=candidates, kv=kv, arithmetic=arithmetic,
                          lora=lora.options if lora is not None else None, score=score, profile=profile,
                          communicator=communicator, split=split, speeds=list(speeds), matrices=weights, load_progress=show)
    out = Decoder(device, checkpoint, plan)
    out._open(folder, model.facts, device, candidates,
              dict(max_tokens=plan.max_tokens, chunk=chunk, kv=kv, arithmetic=arithmetic, communicator=communicator,
                   split=split, speeds=list(speeds), lora=lora.options if lora is not None else None))
    if lora is not None:
        out.set_adapter(lora)
    return out


class TextEncoder(_c.TextEncoderCore):
    """A text encoder of the BERT family, compiled for a device: load_text_encoder() makes one."""

    folder: str
    facts: _c.EncoderFacts
    tokenizer: Any

    def __getattr__(self, name: str) -> Any:  # what is not there
        raise AttributeError(_missing(self, name, "load_text_encoder"))

    def encode(self, texts: str | Sequence[str] | Sequence[Sequence[int]]) -> NDArray[Any]:
        """Vectors of length 1, (texts, hidden), of texts or of their token ids; of one text (hidden)."""
        if isinstance(texts, str):
            one: NDArray[Any] = self.encode([texts])[0]
            return one
        if isinstance(texts, (bytes, bytearray, memoryview)) or not hasattr(texts, "__iter__"):
            raise TypeError(f"texts: is {type(texts).__name__}; a str, or a sequence of texts, is wanted")
        ids = []
        for text in texts:
            if isinstance(text, str):
                if self.tokenizer is None:
                    raise _c.ArgumentError(f"{self.folder}: has no tokenizer; texts are lists of token ids")
                # cut where the model's authors cut
                text, cut = _text("texts", text), self.facts.cut_tokens
                ids.append(self.tokenizer.encode_within(text, cut, self.facts.lower_case) if cut > 0 else
                           self.tokenizer.encode(text, True, True))
            else:
                ids.append(_ids("texts", text))
        return self.embed(ids)

    def __repr__(self) -> str:
        return f"<TextEncoder {self.facts.model_type} from {self.folder}: vectors of {self.facts.hidden_size}>"


def load_text_encoder(folder: Path, weights: Kept | None = None, *, device: _c.Device | None = None,
                      max_batch: int = 8, max_tokens: int = 0, arithmetic: Arithmetic = "f32",
                      progress: bool | Callable[[int, int], None] = False) -> TextEncoder:
    """Loads a text encoder from a Hugging Face folder; options as of load_decoder()."""
    device = device or default_device()
    checkpoint = _c.Checkpoint(folder)
    model = _c.read_text_encoder(checkpoint)
    show = progress_bar("weights") if progress is True else progress or None
    out: TextEncoder = TextEncoder(device, checkpoint, model, max_batch=max_batch, max_tokens=max_tokens,
                                   arithmetic=arithmetic, matrices=weights, load_progress=show)
    out.folder, out.facts, out.tokenizer = os.fspath(folder), model.facts, _tokenizer(folder)
    return out
