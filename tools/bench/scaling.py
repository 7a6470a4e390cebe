#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws how a decoder would scale over devices, by the model of time of docs/several-devices.md.

    tools/bench/scaling.py docs/scaling.svg

What is simulated: n devices alike, each as fast as the one that was measured, over links of three
kinds. What was measured: the kernels' times of one device, out of `generate --profile`, in parts
that ranks share out and parts that each has whole. What is assumed: a link's latency and rate do
not depend on how many use it, no computation hides an exchange, and a device does its n-th part of
a product in the n-th part of the time.
"""
import argparse
import math

LAYERS, WIDTH = 8, 768
# docs/results/2026-11-25-several-devices.md: seconds of a step's kernels on 2 cores, and of a chunk
# of 64 tokens
STEP_SHARED, STEP_WHOLE = 23.7e-3, 0.95e-3
CHUNK_SHARED, CHUNK_WHOLE, CHUNK_TOKENS, CHUNKS = 139e-3, 6e-3, 64, 4
# the same on a device of 50 times the speed, where links weigh more
SPEEDS = {"the measured device (2 cores)": 1.0, "a device 50 times as fast": 50.0}
LINKS = {  # seconds, bytes a second
    "PCIe 4.0 x16": (5e-6, 25e9),
    "10 Gbit Ethernet": (30e-6, 1.2e9),
    "1 Gbit Ethernet": (100e-6, 0.12e9),
}
DEVICES = (1, 2, 4, 8, 16)
AT_ONCE = 16384  # numbers up to which an all-reduce sends everything to everyone


def all_reduces(devices, tokens, latency, rate):
    numbers = tokens * WIDTH
    if numbers <= AT_ONCE:
        each = 2 * latency + (devices - 1) * 4 * numbers / rate
    else:
        each = 3 * latency + 2 * (devices - 1) / devices * 4 * numbers / rate
    return (2 * LAYERS + 1) * each


def tensor(devices, shared, whole, tokens, latency, rate):
    if devices == 1:
        return shared + whole
    return shared / devices + whole + all_reduces(devices, tokens, latency, rate)


def layers(devices, chunk, tokens, chunks, latency, rate):
    """The time of all chunks of a prompt, which follow each other through the devices."""
    devices = min(devices, LAYERS)
    if devices == 1:
        return chunks * chunk
    part = chunk / devices + latency + 4 * tokens * WIDTH / rate
    return devices * part + (chunks - 1) * part


def curves(speed):
    """Rows of (panel, link, way, speed-ups)."""
    for link, (latency, rate) in LINKS.items():
        step = [tensor(n, STEP_SHARED / speed, STEP_WHOLE / speed, 1, latency, rate) for n in DEVICES]
        prompt = [CHUNKS * tensor(n, CHUNK_SHARED / speed, CHUNK_WHOLE / speed, CHUNK_TOKENS, latency, rate)
                  for n in DEVICES]
        piped = [layers(n, (CHUNK_SHARED + CHUNK_WHOLE) / speed, CHUNK_TOKENS, CHUNKS, latency, rate)
                 for n in DEVICES]
        yield "a step", link, "tensor", [step[0] / t for t in step]
        yield "a prompt of 256 tokens", link, "tensor", [prompt[0] / t for t in prompt]
        yield "a prompt of 256 tokens", link, "layers", [piped[0] / t for t in piped]


def panel(x0, y0, title, rows):
    """One set of axes, 260 x 200, both logarithmic in base 2."""
    width, height = 260, 200
    colours = dict(zip(LINKS, ("#0b6", "#07c", "#c50")))

    def at(i, value):
        level = math.log2(max(value, 0.25)) + 2  # 0: a quarter, 6: sixteen times
        return x0 + i * width / 4, y0 + height - level / 6 * height

    out = [f'<text x="{x0}" y="{y0 - 10}" font-weight="bold">{title}</text>']
    for level, name in enumerate(("1/4", "1/2", "1", "2", "4", "8", "16")):
        y = y0 + height - level / 6 * height
        out.append(f'<line x1="{x0}" y1="{y:.1f}" x2="{x0 + width}" y2="{y:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{x0 - 6}" y="{y + 4:.1f}" text-anchor="end">{name}</text>')
    for i, n in enumerate(DEVICES):
        out.append(f'<text x="{x0 + i * width / 4:.1f}" y="{y0 + height + 16}" text-anchor="middle">{n}</text>')
    ideal = " ".join("%.1f,%.1f" % at(i, n) for i, n in enumerate(DEVICES))
    out.append(f'<polyline points="{ideal}" fill="none" stroke="#999" stroke-dasharray="2 3"/>')
    for link, way, values in rows:
        points = " ".join("%.1f,%.1f" % at(i, v) for i, v in enumerate(values))
        dash = ' stroke-dasharray="6 4"' if way == "layers" else ""
        out.append(f'<polyline points="{points}" fill="none" stroke="{colours[link]}" stroke-width="2"{dash}/>')
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("svg", help="the picture to write")
    parser.add_argument("--table", action="store_true", help="print the numbers too, in Markdown")
    arguments = parser.parse_args()
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="800" height="640" font-family="sans-serif" font-size="12">',
           '<rect width="800" height="640" fill="white"/>',
           '<text x="20" y="22" font-size="15">Simulated: times as fast as one device, by devices</text>']
    for row, (device, speed) in enumerate(SPEEDS.items()):
        found = list(curves(speed))
        for column, title in enumerate(("a step", "a prompt of 256 tokens")):
            rows = [(link, way, values) for panel_, link, way, values in found if panel_ == title]
            out += panel(60 + column * 370, 70 + row * 270, f"{title}, {device}", rows)
        if arguments.table:
            print(f"\n{device}\n\n| | link | way | " + " | ".join(map(str, DEVICES)) + " |\n|" + "---|" * 8)
            for title, link, way, values in found:
                print(f"| {title} | {link} | {way} | " + " | ".join(f"{v:.2f}" for v in values) + " |")
    for i, (text, colour, dash) in enumerate([(link, c, "") for link, c in zip(LINKS, ("#0b6", "#07c", "#c50"))] +
                                             [("tensor parallel", "#333", ""), ("layers (dashed)", "#333", "6 4"),
                                              ("ideal", "#999", "2 3")]):
        x = 20 + i * 115
        out.append(f'<line x1="{x}" y1="605" x2="{x + 22}" y2="605" stroke="{colour}" stroke-width="2" '
                   f'stroke-dasharray="{dash}"/><text x="{x + 27}" y="609" font-size="10">{text}</text>')
    out.append("</svg>")
    with open(arguments.svg, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
