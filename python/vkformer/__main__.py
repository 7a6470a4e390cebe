# SPDX-License-Identifier: Apache-2.0
"""python -m vkformer: lists devices.

doctor: checks every device. generate FOLDER PROMPT: continues a text. bench: times attention.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from typing import Callable

import vkformer as vkf

from .models import _tokenizer


def devices(_: argparse.Namespace) -> None:
    print(f"vkformer {vkf.__version__}")
    for i, device in enumerate(vkf.Device.list()):
        print(f"{i}  {device.name}: {device.type}, {device.driver}, {device.device_memory >> 20} MiB")
    print(f"score mods are compiled by: {vkf.glsl_compiler() or 'nothing (libshaderc is not here, or cannot be opened)'}")


def _cache(options: argparse.Namespace) -> int:
    """Tokens of the prompt and of the answer: what a cache must hold."""
    facts = vkf.read_decoder(vkf.Checkpoint(options.folder)).facts
    tokenizer = _tokenizer(options.folder)
    if tokenizer is None:
        raise vkf.ArgumentError(f"{options.folder}: has no tokenizer")
    ids: list[int]
    if options.chat:
        ids = tokenizer.encode(vkf.ChatTemplate(options.folder).prompt(options.prompt), special=False)
    else:
        ids = vkf.encode_prompt(tokenizer, options.prompt, vkf.begin_of_text(options.folder, facts.begins_texts), facts.begin)
    tokens: int = len(ids) + options.max_tokens
    return min(max(tokens, 1), facts.max_positions)


def generate(options: argparse.Namespace) -> None:
    model = vkf.load_decoder(options.folder, options.weights, device=vkf.Device(options.device),
                             max_tokens=options.cache or _cache(options), progress=True)
    for field in model.facts.not_obeyed:
        print(f"generation_config.json: {field} is not obeyed", file=sys.stderr)
    prompt = model.chat(options.prompt) if options.chat else options.prompt
    if not options.chat:
        print(prompt, end="", flush=True)
    start, count = time.perf_counter(), 0
    for piece in model.stream(prompt, options.max_tokens, temperature=options.temperature, seed=options.seed):
        print(piece, end="", flush=True)
        count += 1
    print(f"\n{count / (time.perf_counter() - start):.1f} pieces a second", file=sys.stderr)


def bench(options: argparse.Namespace) -> None:
    import numpy

    vkf.set_default_device(vkf.Device(options.device))
    print(vkf.default_device())
    draw = numpy.random.default_rng(0)
    for tokens in (64, 512) if options.quick else (64, 512, 2048):
        q = draw.standard_normal((1, 8, tokens, 64)).astype(numpy.float32)
        k, v = (draw.standard_normal((1, 2, tokens, 64)).astype(numpy.float32) for _ in range(2))
        vkf.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        best, until = float("inf"), time.perf_counter() + (0.05 if options.quick else 1.0)
        while time.perf_counter() < until:
            start = time.perf_counter()
            vkf.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            best = min(best, time.perf_counter() - start)
        print(f"causal attention, 8/2 heads of 64, {tokens} tokens: {best * 1e3:.3f} ms")


def _matching(wanted: str, names: list[str]) -> list[int]:
    """Indices of the devices that are meant: by an index, a whole name, or a part of one. Digits that are no index may be a model's number."""
    if wanted in map(str, range(len(names))):
        return [int(wanted)]
    part = re.escape(wanted)
    if wanted.isdigit():  # 2 is no part of 2080
        part = rf"(?<![\d.]){part}(?![\d.])"
    return ([i for i, name in enumerate(names) if name == wanted] or
            [i for i, name in enumerate(names) if re.search(part, name)])


def doctor(options: argparse.Namespace) -> int:
    print(f"vkformer {vkf.__version__}, Python {sys.version.split()[0]}, {sys.platform}")
    print(f"tokenizers: {'yes' if vkf._vkformer.has_text else 'no, the package was built without'}")
    print(f"GLSL at run time: {vkf.glsl_compiler() or 'no (libshaderc is not here, or cannot be opened); score mods need it'}")
    found = vkf.Device.list()  # an error says what to install
    chosen = _matching(options.device.lower(), [listed.name.lower() for listed in found])
    if not chosen:
        raise vkf.Error(f'there is no device "{options.device}"' if found else
                        "there is no Vulkan device; install a driver (Debian and Ubuntu: mesa-vulkan-drivers)")
    wrong = 0
    for i in chosen:
        listed = found[i]
        print(f"{i}  {listed.name}: {listed.type}, {listed.driver}, {listed.device_memory >> 20} MiB")
        try:
            start = time.perf_counter()
            device = vkf.Device(str(i))
            test = device.self_test()
            seconds = time.perf_counter() - start
        except vkf.Error as told:
            print(f"   does not work: {told}")
            wrong += 1
            continue
        print(f"   {test.verdict}: {len(test.checks)} checks in {seconds:.2f} s from nothing")
        for check in test.checks:
            if check.problem:
                print(f"   {check.kernel}, {check.what}: {check.problem}")
                wrong += 1
        print(f"   pipelines are kept for the next time: {'yes' if device.save_pipeline_cache() else 'no'}")
        for message in device.messages():
            print(f"   validation: {message}")
            wrong += 1
    print("all is well" if not wrong else f"{wrong} things are wrong")
    return 1 if wrong else 0


def _close_stdout() -> None:
    """So that the interpreter writes nothing there at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _require_text(options: argparse.Namespace) -> None:
    """Refuses arguments whose bytes are no text, but for paths."""
    for name, value in vars(options).items():
        if isinstance(value, str) and name != "folder":
            try:
                value.encode()
            except UnicodeEncodeError:
                raise vkf.Error(f"{name}: {ascii(value)} is no valid text") from None


def _whole(bits: int) -> Callable[[str], int]:
    """Reads a whole number from 0 that so many bits hold."""

    def number(text: str) -> int:
        found = int(text)
        if not 0 <= found < 1 << bits:
            raise argparse.ArgumentTypeError(f"{found} is not from 0 to {(1 << bits) - 1}")
        return found

    return number


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m vkformer", description=__doc__)
    parser.set_defaults(run=devices)
    commands = parser.add_subparsers()
    d = commands.add_parser("doctor", help="checks every device: whether it is there, and whether its numbers are right")
    d.add_argument("--device", default="", help="by its index, or those with this in their names")
    d.set_defaults(run=doctor)
    g = commands.add_parser("generate", help="continues a text with a Hugging Face folder")
    g.add_argument("folder")
    g.add_argument("prompt")
    g.add_argument("--weights", choices=["f32", "f16", "bf16", "int8", "int4"])
    g.add_argument("--max-tokens", type=_whole(63), default=128)
    g.add_argument("--cache", type=_whole(63), default=0, help="most tokens, prompt included; 0: those of the prompt and of the answer")
    g.add_argument("--temperature", type=float, default=0.0)
    g.add_argument("--seed", type=_whole(64), default=0)
    g.add_argument("--chat", action="store_true", help="puts the prompt as a question to a chat model")
    g.add_argument("--device", default="")
    g.set_defaults(run=generate)
    b = commands.add_parser("bench", help="times attention")
    b.add_argument("--quick", action="store_true")
    b.add_argument("--device", default="")
    b.set_defaults(run=bench)
    options = parser.parse_args()
    try:
        _require_text(options)
        code = options.run(options) or 0
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # whoever read has enough
        _close_stdout()
        return 1
    except UnicodeEncodeError as error:  # of the output
        print(f"vkformer: the output is {error.encoding}, which has no {ascii(error.object[error.start:error.end])}; set "
              "PYTHONIOENCODING=utf-8", file=sys.stderr)
        _close_stdout()
        return 1
    except (vkf.Error, OSError) as error:
        print(f"vkformer: {error}", file=sys.stderr)
        _close_stdout()
        return 1
    except KeyboardInterrupt:
        print("vkformer: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
