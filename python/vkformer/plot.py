# SPDX-License-Identifier: Apache-2.0
"""Pictures: what looked at what, and how a loss went. SVG as text, which notebooks show."""

from __future__ import annotations

import math
from typing import Any, Sequence

from ._xml import xml_text


class Svg(str):
    """A picture as the text of an SVG file."""

    def _repr_svg_(self) -> str:
        return str(self)

    def save(self, path: Any) -> None:
        """Writes the file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self)


def _colour(weight: float) -> str:
    """From white to a dark blue; red for what is no number."""
    if math.isnan(weight):
        return "#cc3333"
    w = min(max(weight, 0.0), 1.0)
    return f"#{int(255 - 225 * w):02x}{int(255 - 175 * w):02x}{int(255 - 95 * w):02x}"


def attention(weights: Any, labels: Sequence[str] | tuple[Sequence[str], Sequence[str]] = (), *, cell: int = 18) -> Svg:
    """Draws attention weights (L, S), or (H, L, S) with the heads beside each other.

    A row is a query, a column a key; the darker, the more it looked there. labels: the tokens, or
    those of the queries and those of the keys.
    """
    import numpy

    w = numpy.asarray(weights, dtype=numpy.float32)
    w = w.reshape((-1, *w.shape[-2:]))
    heads, rows, columns = (int(n) for n in w.shape)
    pair = len(labels) == 2 and hasattr(labels[0], "__iter__") and not isinstance(labels[0], str)
    down, across = (labels[0], labels[1]) if pair else (labels, labels)
    down, across = [str(t) for t in down], [str(t) for t in across]
    if down and (len(down) != rows or len(across) != columns):
        raise ValueError(f"labels: {len(down)} and {len(across)} were given for weights of {rows} rows and "
                         f"{columns} columns")
    left = 8 + 7 * max((len(t) for t in down), default=0)
    top = 8 + 7 * max((len(t) for t in across), default=0) + (14 if heads > 1 else 0)
    step = left + columns * cell + 12
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{heads * step}" height="{top + rows * cell + 8}" '
           'font-family="monospace" font-size="11">']
    for h in range(heads):
        x0 = h * step + left
        if heads > 1:
            out.append(f'<text x="{x0}" y="12">head {h}</text>')
        for i, text in enumerate(down):
            out.append(f'<text x="{x0 - 4}" y="{top + i * cell + cell - 5}" text-anchor="end">{xml_text(text)}</text>')
        for j, text in enumerate(across):
            x, y = x0 + j * cell + cell - 5, top - 4
            out.append(f'<text x="{x}" y="{y}" transform="rotate(-90 {x} {y})">{xml_text(text)}</text>')
        for i in range(rows):
            for j in range(columns):
                value = float(w[h, i, j])
                out.append(f'<rect x="{x0 + j * cell}" y="{top + i * cell}" width="{cell}" height="{cell}" '
                           f'fill="{_colour(value)}" stroke="#ddd"><title>{value:.4f}</title></rect>')
    out.append("</svg>")
    return Svg("\n".join(out))


def curve(values: Sequence[float], label: str = "loss", *, width: int = 480, height: int = 200) -> Svg:
    """Draws numbers, such as the losses of steps, as a line, with gaps where they are not finite."""
    numbers = [float(v) for v in values]
    if not numbers:
        raise ValueError("values: there are none")
    finite = [v for v in numbers if math.isfinite(v)] or [0.0]
    low, high = min(finite), max(finite)
    span = high - low
    if not 0.0 < span < math.inf:
        span = 1.0 if span == 0.0 else math.inf
    step = (width - 80) / max(len(numbers) - 1, 1)
    lines: list[list[str]] = [[]]
    for i, v in enumerate(numbers):
        if math.isfinite(v):
            # halves, where the whole span would overflow
            down = (high - v) / span if span < math.inf else (high / 2 - v / 2) / (high / 2 - low / 2)
            lines[-1].append(f"{60 + i * step:.1f},{20 + down * (height - 50):.1f}")
        elif lines[-1]:
            lines.append([])
    drawn = "".join(f'<polyline points="{" ".join(points)}" fill="none" stroke="#1e509f" stroke-width="1.5"/>'
                    for points in lines if points)
    return Svg(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="monospace" '
               f'font-size="11"><rect x="60" y="20" width="{width - 80}" height="{height - 50}" fill="none" stroke="#ccc"/>'
               f'<text x="4" y="24">{high:.4g}</text><text x="4" y="{height - 28}">{low:.4g}</text>'
               f'<text x="60" y="{height - 10}">{xml_text(label)}, {len(numbers)} steps</text>'
               f'{drawn}</svg>')
