# SPDX-License-Identifier: Apache-2.0
"""What a notebook shows of a program: its graph as SVG, its times as a table."""

from __future__ import annotations

import re

from ._vkformer import Program
from ._xml import xml_text

_NODE = re.compile(r'^\s*"?([\w.]+)"?\s*\[(.*)\]\s*;?\s*$')
_EDGE = re.compile(r'^\s*"?([\w.]+)"?\s*->\s*"?([\w.]+)"?')
_LABEL = re.compile(r'label="((?:[^"\\]|\\.)*)"')
_KEYWORDS = {"node", "edge", "graph"}


def _layers(nodes: list[str], edges: list[tuple[str, str]]) -> dict[str, int]:
    """The row of each node: below all that it depends on."""
    before: dict[str, list[str]] = {n: [] for n in nodes}
    for a, b in edges:
        if a in before and b in before and a != b:
            before[b].append(a)
    rows: dict[str, int] = {}

    def row(n: str, above: frozenset[str] = frozenset()) -> int:
        if n not in rows:
            rows[n] = max((row(a, above | {n}) + 1 for a in before[n] if a not in above), default=0)
        return rows[n]

    for n in nodes:  # in their order, so that recursion stays shallow
        row(n)
    return rows


def svg_of_dot(dot: str) -> str:
    """Draws a graph in Graphviz' language in rows, from the top down."""
    labels: dict[str, list[str]] = {}
    edges: list[tuple[str, str]] = []
    for line in dot.splitlines():
        edge = _EDGE.match(line)
        node = _NODE.match(line)
        if edge:
            edges.append((edge[1], edge[2]))
        elif node and node[1] not in _KEYWORDS:
            found = _LABEL.search(node[2])
            text = found[1] if found else node[1]
            labels[node[1]] = re.split(r"\\[nlr]", text.replace('\\"', '"').strip())
    for a, b in edges:
        labels.setdefault(a, [a])
        labels.setdefault(b, [b])
    rows = _layers(list(labels), edges)
    width = {n: 14 + 6.2 * max(len(t) for t in label) for n, label in labels.items()}
    height = {n: 8 + 13 * len([t for t in label if t]) for n, label in labels.items()}
    place: dict[str, tuple[float, float]] = {}
    y = 8.0
    widest = 0.0
    for r in range(max(rows.values(), default=-1) + 1):
        x = 8.0
        members = [n for n in labels if rows[n] == r]
        for n in members:
            place[n] = (x, y)
            x += width[n] + 16
        widest = max(widest, x)
        y += max((height[n] for n in members), default=0) + 26
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{widest:.0f}" height="{y:.0f}" '
           'font-family="monospace" font-size="10">']
    for a, b in edges:
        (ax, ay), (bx, by) = place[a], place[b]
        x1, y1, x2, y2 = ax + width[a] / 2, ay + height[a], bx + width[b] / 2, by
        out.append(f'<path d="M{x1:.1f} {y1:.1f} C {x1:.1f} {y1 + 18:.1f} {x2:.1f} {y2 - 18:.1f} {x2:.1f} {y2:.1f}" '
                   'fill="none" stroke="#888"/>')
    for n, lines in labels.items():
        nx, ny = place[n]
        out.append(f'<rect x="{nx:.1f}" y="{ny:.1f}" width="{width[n]:.1f}" height="{height[n]:.1f}" rx="4" '
                   'fill="#f4f6fa" stroke="#456"/>')
        for i, text in enumerate(t for t in lines if t):
            out.append(f'<text x="{nx + 7:.1f}" y="{ny + 14 + 13 * i:.1f}">{xml_text(text)}</text>')
    out.append("</svg>")
    return "\n".join(out)


def _svg(self: Program) -> str:
    """The program's graph, for a notebook."""
    return svg_of_dot(self.dot())


def _html(self: Program) -> str:
    """The program's graph, and the table of times where it was compiled with profile=True."""
    out = _svg(self)
    times = self.times()
    if times:
        cells = "".join(
            f"<tr><td>{xml_text(t.label)}</td><td>{xml_text(t.kernel)}</td><td>{t.ms:.3f}</td>"
            f"<td>{t.flops / max(t.ms, 1e-9) * 1e-6:.2f}</td><td>{t.bytes / max(t.ms, 1e-9) * 1e-6:.2f}</td></tr>"
            for t in times)
        out += ("<table><tr><th>dispatch</th><th>kernel</th><th>ms</th><th>GFLOP/s</th><th>GB/s</th></tr>"
                f"{cells}</table>")
    return out


setattr(Program, "_repr_svg_", _svg)
setattr(Program, "_repr_html_", _html)
