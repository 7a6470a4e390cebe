# SPDX-License-Identifier: Apache-2.0
"""The ops in NumPy, in double precision, as PyTorch and the papers have them."""

import math

import numpy as np


def d(x):
    return np.asarray(x, np.float64)


def softmax(s, sinks=None):
    """Rows of -inf give 0. sinks: one more logit a head, (..., H, L, S)."""
    s = d(s)
    top = np.max(s, -1, keepdims=True, initial=-1e300)
    if sinks is not None:
        top = np.maximum(top, sinks[:, None, None])
    e = np.exp(s - top)
    total = e.sum(-1, keepdims=True) + (np.exp(sinks[:, None, None] - top) if sinks is not None else 0)
    return np.divide(e, total, out=np.zeros_like(e), where=total > 0)


def biased(s, scale=1.0, softcap=0.0, bias=None):
    s = s * scale
    if softcap:
        s = softcap * np.tanh(s / softcap)
    return s + d(bias) if bias is not None else s


def seen(queries, keys, causal="none", window=0):
    row, key = np.arange(queries)[:, None], np.arange(keys)[None]
    at = row + (keys - queries if causal == "bottom_right" else 0)
    out = np.ones((queries, keys), bool)
    if causal != "none":
        out = key <= at
        if window:
            out &= key > at - window
    return out


def sdpa(q, k, v, mask=None, causal="none", window=0, scale=None, softcap=0.0, sinks=None, slopes=None):
    """mask: boolean, True = may attend, or added. y, weights, log_sum_exp."""
    q, k, v = d(q), d(k), d(v)
    if k.shape[-3] != q.shape[-3]:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    s = biased(q @ k.swapaxes(-1, -2), 1 / math.sqrt(q.shape[-1]) if scale is None else scale, softcap)
    queries, keys = s.shape[-2:]
    if slopes is not None:
        at = np.arange(queries)[:, None] + (keys - queries if causal == "bottom_right" else 0)
        s = s - d(slopes)[:, None, None] * np.abs(at - np.arange(keys))
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + d(mask)
    s = np.where(seen(queries, keys, causal, window), s, -np.inf)
    with np.errstate(divide="ignore"):
        lse = np.log(np.exp(s).sum(-1) + (np.exp(d(sinks))[:, None] if sinks is not None else 0))
    w = softmax(s, None if sinks is None else d(sinks))
    return w @ v, w, lse


def layer_norm(x, w=None, b=None, eps=1e-5):
    y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)
    return y * (1 if w is None else w) + (0 if b is None else b)


def rms_norm(x, w=None, eps=1e-6):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * (1 if w is None else w)


erf = np.vectorize(math.erf, otypes=[np.float64])
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


def linear(x, w, b=None):
    return x @ w.swapaxes(-1, -2) + (0 if b is None else b)


def layer(x, weights, name, bias=True):
    return linear(x, weights[name + ".weight"], weights[name + ".bias"] if bias else None)


def split_heads(x, heads):
    return x.reshape(*x.shape[:-1], heads, -1).swapaxes(-2, -3)


def merge_heads(x):
    x = x.swapaxes(-2, -3)
    return x.reshape(*x.shape[:-2], -1)


def rope(x, positions, layout, theta=10000.0, rotary=0):
    """x (..., L, d), positions (L)."""
    r = rotary or x.shape[-1]
    angles = np.asarray(positions, np.float64)[:, None] * theta ** (-np.arange(0, r, 2) / r)
    cos, sin = np.cos(angles), np.sin(angles)
    out = x.copy()
    a, b = (slice(0, r, 2), slice(1, r, 2)) if layout == "interleaved" else (slice(0, r // 2), slice(r // 2, r))
    out[..., a] = x[..., a] * cos - x[..., b] * sin
    out[..., b] = x[..., b] * cos + x[..., a] * sin
    return out


def sinusoids(length, dim):
    angles = np.arange(length)[:, None] / 10000.0 ** (np.arange(0, dim, 2) / dim)
    out = np.zeros((length, dim))
    out[:, 0::2], out[:, 1::2] = np.sin(angles), np.cos(angles)[:, :dim // 2]
    return out


def attend(weights, name, q, k, v, heads, causal="none", mask=None):
    """torch.nn.MultiheadAttention, batch first: y and the mean of the weights."""
    w, b = weights[name + ".in_proj_weight"], weights[name + ".in_proj_bias"]
    parts = [split_heads(linear(x, wx, bx), heads) for x, wx, bx in zip((q, k, v), np.split(w, 3), np.split(b, 3))]
    y, found, _ = sdpa(*parts, causal=causal, mask=mask)
    return layer(merge_heads(y), weights, name + ".out_proj"), found.mean(1)


def norm(x, weights, name):
    return layer_norm(x, weights[name + ".weight"], weights[name + ".bias"])


def transformer_layer(x, weights, name, heads, activation, norm_first, memory=None, causal=False):
    """An encoder's layer of torch.nn's, or where there is memory a decoder's."""
    prefix = name + "." if name else ""
    causal = "top_left" if causal else "none"

    def feed(t):
        return layer(ACTIVATIONS[activation](layer(t, weights, prefix + "linear1")), weights, prefix + "linear2")

    parts = [lambda t: attend(weights, prefix + "self_attn", t, t, t, heads, causal)[0]]
    if memory is not None:
        parts.append(lambda t: attend(weights, prefix + "multihead_attn", t, memory, memory, heads)[0])
    parts.append(feed)
    for i, part in enumerate(parts, 1):
        x = x + part(norm(x, weights, f"{prefix}norm{i}")) if norm_first else norm(x + part(x), weights, f"{prefix}norm{i}")
    return x
