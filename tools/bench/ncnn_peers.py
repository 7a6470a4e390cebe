#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs ops with ncnn's Vulkan layers in turns with the bench's rows, on the same device.

    ncnn_peers.py BENCH [--device NAME] [--filter REGEX] [--seconds S] [--rounds N] [--json FILE]

BENCH is the program `bench`, which runs this where Python has the package ncnn and --peers is given. The rows are those that ncnn has a Vulkan layer for:
attention (SDPA), softmax, norms and RoPE, in fp32; its products run on the processor unless told otherwise, so they are none. Results are compared with
NumPy in double precision first. An op's time is that of a net of nine such layers in a row less that of a net of one, divided by eight: uploads,
downloads and what a run takes beside fall out. Prints the medians over all rounds, and the median, least and greatest ratio of a round: ncnn's time over
ours. Needs ncnn and numpy.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

EPSILON, THETA, HEADS, KV_HEADS = 1e-5, 10000.0, 8, 2
MORE = 8  # layers of the longer net beyond those of the shorter


class Op:
    """A layer of ncnn: its line in a net's description, what it reads beside the first blob, its weights, and what it computes."""

    def __init__(self, layer, parameters, x, others=(), weights=(), reference=None):
        self.layer, self.parameters, self.x, self.others, self.weights, self.reference = layer, parameters, x, others, weights, reference

    def net(self, ncnn, layers, device):
        names = [f"o{i}" for i in range(len(self.others))]
        lines = ["Input in0 0 1 x0"] + [f"Input in{n} 0 1 {n}" for n in names]
        if layers > 1:  # a blob has one reader
            for n in names:
                lines.append(f"Split split_{n} 1 {layers} {n} " + " ".join(f"{n}_{i}" for i in range(layers)))
        for i in range(layers):
            read = [f"x{i}"] + [f"{n}_{i}" if layers > 1 else n for n in names]
            lines.append(f"{self.layer} op{i} {len(read)} 1 {' '.join(read)} x{i + 1} {self.parameters}")
        blobs = 1 + len(names) * (1 + (layers if layers > 1 else 0)) + layers
        net = ncnn.Net()
        net.opt.use_vulkan_compute = True
        for option in dir(net.opt):
            if re.match("use_(fp16|bf16|int8)_", option):
                setattr(net.opt, option, False)
        net.set_vulkan_device(device)
        with tempfile.TemporaryDirectory() as folder:
            param, model = os.path.join(folder, "net.param"), os.path.join(folder, "net.bin")
            with open(param, "w") as file:
                file.write(f"7767517\n{len(lines)} {blobs}\n" + "\n".join(lines) + "\n")
            with open(model, "wb") as file:
                for _ in range(layers):
                    for weight in self.weights:
                        file.write(weight.astype(np.float32).tobytes())
            if net.load_param(param) != 0 or net.load_model(model) != 0:
                raise RuntimeError(f"ncnn does not read a net of {self.layer}")
        return net, f"x{layers}", names

    def run(self, ncnn, net):
        """Gives the result, and the seconds that it took."""
        made, last, names = net
        start = time.perf_counter()
        extractor = made.create_extractor()
        extractor.input("x0", ncnn.Mat(self.x))
        for name, other in zip(names, self.others):
            extractor.input(name, ncnn.Mat(other))
        status, out = extractor.extract(last)
        out = np.array(out)
        seconds = time.perf_counter() - start
        if status != 0:
            raise RuntimeError(f"ncnn's {self.layer} gave {status}")
        return out, seconds


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def norm(x, weight, bias, centred):
    x = x - x.mean(-1, keepdims=True) if centred else x
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * weight + bias


def attention(queries, keys, width, random):
    q, k, v = (random.standard_normal(shape).astype(np.float32) for shape in
               [(HEADS, queries, width), (KV_HEADS, keys, width), (KV_HEADS, keys, width)])

    def reference(q, k, v):
        k, v = (np.repeat(t, HEADS // KV_HEADS, 0) for t in (k, v))
        return softmax(q @ k.transpose(0, 2, 1) / np.sqrt(width)) @ v
    return Op("SDPA", "5=0", q, (k, v), reference=reference)


def rows(layer, parameters, random, reference, weights=()):
    return Op(layer, parameters, random.standard_normal((4096, 1024)).astype(np.float32), weights=weights, reference=reference)


def rope(random):
    heads, tokens, width = 32, 512, 128
    angles = np.outer(np.arange(tokens), THETA ** (-np.arange(0, width, 2) / width))
    tables = tuple(np.ascontiguousarray(f(angles), np.float32) for f in (np.cos, np.sin))

    def reference(x, cos, sin):
        out = np.empty_like(x)
        out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
        out[..., 1::2] = x[..., 1::2] * cos + x[..., 0::2] * sin
        return out
    return Op("RotaryEmbed", "0=1", random.standard_normal((heads, tokens, width)).astype(np.float32), tables, reference=reference)


def ops():
    random = np.random.default_rng(0)
    weight, bias = random.standard_normal(1024), random.standard_normal(1024)
    out = {"softmax_4096x1024": lambda: rows("Softmax", "0=1 1=1", random, softmax),
           "layer_norm_4096x1024": lambda: rows("LayerNorm", f"0=1024 1={EPSILON} 2=1", random, lambda x: norm(x, weight, bias, True), (weight, bias)),
           "rms_norm_4096x1024": lambda: rows("RMSNorm", f"0=1024 1={EPSILON} 2=1", random, lambda x: norm(x, weight, 0, False), (weight,)),
           "rope_32x512x128": lambda: rope(random)}
    for width in (64, 128):
        out[f"attention_prefill_d{width}_512"] = lambda w=width: attention(512, 512, w, random)
    out["attention_prefill_d64_1024"] = lambda: attention(1024, 1024, 64, random)
    out["attention_decode_d64_1024"] = lambda: attention(1, 1024, 64, random)
    out["attention_decode_d64_4096"] = lambda: attention(1, 4096, 64, random)
    return out


class Runner:
    """An op's two nets, whose results are right."""

    def __init__(self, ncnn, op, device):
        self.ncnn, self.op = ncnn, op
        self.short, self.long = op.net(ncnn, 1, device), op.net(ncnn, 1 + MORE, device)
        for layer in self.long[0].layers():
            if layer.type not in ("Input", "Split") and not layer.support_vulkan:
                raise RuntimeError(f"ncnn has no {op.layer} on Vulkan")
        got = op.run(ncnn, self.short)[0].reshape(op.x.shape)
        want = op.reference(op.x.astype(np.float64), *(o.astype(np.float64) for o in op.others))
        wrong = np.abs(got - want).max()
        if not wrong < 1e-3:
            raise RuntimeError(f"ncnn's {op.layer} is wrong by {wrong:.3g}")
        op.run(ncnn, self.long)

    def ms(self, seconds):
        times, start = [], time.perf_counter()
        while len(times) < 3 or time.perf_counter() - start < seconds:
            short = self.op.run(self.ncnn, self.short)[1]
            times.append((self.op.run(self.ncnn, self.long)[1] - short) / MORE * 1e3)
        return statistics.median(times)


def device_of(ncnn, name):
    names = [ncnn.get_gpu_info(i).device_name() for i in range(ncnn.get_gpu_count())]
    found = [i for i, n in enumerate(names) if n == name] or [i for i, n in enumerate(names) if name in n]
    if not found:
        raise RuntimeError(f"ncnn has no device {name}")
    return found[0]


def row_of(options, name):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "row.json")
        chosen = ["--device", options.device] if options.device else []
        subprocess.run([options.bench, "--filter", f"^{name}$", "--seconds", str(options.seconds), "--json", file, *chosen],
                       check=True, stdout=subprocess.DEVNULL)
        with open(file) as made:
            return json.load(made)[0]


def compare(options):
    import ncnn
    ncnn.create_gpu_instance()
    chosen = {name: make for name, make in ops().items() if re.search(options.filter, name)}
    if not chosen:
        print(f"ncnn has none of the rows that match {options.filter}")
        return []
    all_rounds, device = [], None
    for name, make in chosen.items():
        row = row_of(options, name)  # the first fills the caches
        if device is None:
            device = device_of(ncnn, row["device"])
            print(f"beside ncnn {ncnn.__version__} on {row['device']}\n{'':32}{'ms':>10}{'ncnn ms':>10}{'ratio':>8}  least..greatest")
        try:
            runner = Runner(ncnn, make(), device)
        except RuntimeError as error:
            print(f"{name:32}{row['ms']:10.4g}  {error}", flush=True)
            continue
        rounds = []
        for _ in range(options.rounds):
            rounds.append({"row": name, "ms": row_of(options, name)["ms"], "ncnn_ms": runner.ms(options.seconds)})
        ratios = [r["ncnn_ms"] / r["ms"] for r in rounds]
        ours, theirs = (statistics.median(r[key] for r in rounds) for key in ("ms", "ncnn_ms"))
        print(f"{name:32}{ours:10.4g}{theirs:10.4g}{statistics.median(ratios):8.2f}  {min(ratios):.2f}..{max(ratios):.2f}", flush=True)
        all_rounds += rounds
    return all_rounds


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bench")
    parser.add_argument("--device", help="as bench takes it", default="")
    parser.add_argument("--filter", help="a regular expression: only rows whose names it finds", default="")
    parser.add_argument("--seconds", type=float, default=1, help="time spent on each row a round, by either")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="write the times of every round to this file")
    options = parser.parse_args()
    options.bench = os.path.abspath(options.bench)
    try:
        rounds = compare(options)
    except (AttributeError, RuntimeError, subprocess.CalledProcessError) as error:
        print(f"not beside ncnn: {error}")
        return 1
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rounds, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
