# SPDX-License-Identifier: Apache-2.0
"""Cases of test_random.py: functions that give values of values."""

import numpy as np
import reference as r

import vkformer as vkf

RNG = np.random.default_rng(23)
CASES = {}


def case(*names):
    def keep(f):
        for name in names:
            CASES[name] = lambda d, name=name: f(d, name.split("/")[-1].split(" ")[0]) if f.__code__.co_argcount == 2 else f(d)
        return f

    return keep


def array(*shape, scale=1.0):
    return (scale * RNG.standard_normal(shape)).astype(np.float32)


def ids(below, *shape):
    return RNG.integers(0, below, shape).astype(np.int32)


def sizes(d, low=1, high=3, most=20):
    return [d.integer(1, most) for _ in range(d.integer(low, high))]


def partner(d, shape):
    """A shape that broadcasts with it."""
    return [1 if d.integer(0, 2) == 0 else s for s in shape[d.integer(0, len(shape) - 1):]]


@case("add", "mul")
def _(d, name):
    shape = sizes(d)
    f, twin = (vkf.add, np.add) if name == "add" else (vkf.mul, np.multiply)
    return f, [array(*shape), array(*partner(d, shape))], lambda w, a, b: twin(a, b)


@case("scale")
def _(d):
    factor = d.choice([0.0, -1.5, 3.25])
    return lambda x: vkf.scale(x, factor), [array(*sizes(d))], lambda w, x: x * factor


@case("activate")
def _(d):
    kind = d.choice(["relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid"])
    return lambda x: vkf.activate(x, kind), [array(*sizes(d), scale=3)], lambda w, x: r.ACTIVATIONS[kind](x)


@case("relu", "gelu", "silu")
def _(d, name):
    return getattr(vkf, name), [array(*sizes(d), scale=3)], lambda w, x: r.ACTIVATIONS[name](x)


@case("gated")
def _(d):
    shape, kind = sizes(d), d.choice(["silu", "gelu", "sigmoid"])
    return lambda a, b: vkf.gated(a, b, kind), [array(*shape), array(*shape)], lambda w, a, b: r.ACTIVATIONS[kind](a) * b


@case("sum")
def _(d):
    return vkf.sum, [array(*sizes(d))], lambda w, x: x.sum().reshape(1)


@case("sum_to")
def _(d):
    shape = sizes(d)
    small = partner(d, shape)

    def want(w, x):
        x = x.sum(tuple(range(len(shape) - len(small))))
        return x.sum(tuple(i for i, s in enumerate(small) if s == 1), keepdims=True)

    return lambda x: vkf.sum_to(x, small), [array(*shape)], want


def scores(d):
    return [d.integer(1, 2), d.integer(1, 4), d.integer(1, 9), d.integer(1, 40)]


@case("softmax", "log_sum_exp", "biased_scores", "hard_max")
def _(d, name):
    b, h, l, s = shape = scores(d)
    scale, cap = d.choice([1.0, 0.4]), d.choice([0.0, 5.0])
    causal = d.choice(["none", "top_left", "bottom_right"]) if name != "biased_scores" and s >= l else "none"
    sinks = name in ("softmax", "log_sum_exp") and d.choice([True, False])
    arrays = [array(*shape, scale=3), array(1, 1, l, s)] + ([array(h)] if sinks else [])

    def f(x, bias, sinks=None):
        return getattr(vkf, name)(x, mask=vkf.Mask(bias=bias, causal=causal), scale=scale, softcap=cap, sinks=sinks)

    def want(w, x, bias, sinks=None):
        x = r.biased(x, scale, cap, bias)
        if name == "biased_scores":
            return x
        x = np.where(r.seen(l, s, causal), x, -np.inf)
        if name == "softmax":
            return r.softmax(x, sinks)
        if name == "hard_max":
            return np.eye(s)[x.argmax(-1)]
        return np.log(np.exp(x).sum(-1) + (0 if sinks is None else np.exp(sinks)[:, None]))

    return f, arrays, want


@case("layer_norm")
def _(d):
    shape = sizes(d, most=40)
    affine = d.choice([True, False])
    extra = [array(shape[-1]), array(shape[-1])] if affine else []
    return (lambda x, *p: vkf.layer_norm(x, *p)), [array(*shape), *extra], lambda w, x, *p: r.layer_norm(x, *p), 1e-3, 1e-4


@case("rms_norm")
def _(d):
    shape = sizes(d, most=40)
    return (lambda x, p: vkf.rms_norm(x, p, 1e-5)), [array(*shape), array(shape[-1])], lambda w, x, p: r.rms_norm(x, p, 1e-5)


@case("argmax")
def _(d):
    return vkf.argmax, [array(*sizes(d, 2, 3, 50))], lambda w, x: x.argmax(-1)


@case("top_k")
def _(d):
    shape = sizes(d, 2, 3, 50)
    k = d.integer(1, min(shape[-1], 8))

    def want(w, x):
        order = np.argsort(-x, -1, kind="stable")[..., :k]
        return np.take_along_axis(x, order, -1), order

    return lambda x: vkf.top_k(x, k), [array(*shape)], want


@case("cross_entropy")
def _(d):
    rows, classes, smoothing = d.integer(1, 20), d.integer(2, 50), d.choice([0.0, 0.1])
    labels = ids(classes, rows)
    labels[1::3] = -100

    def want(w, x, labels):
        log = x - np.log(np.exp(x).sum(-1, keepdims=True))
        keep = labels >= 0
        hit = -log[keep, labels[keep]] * (1 - smoothing) - log[keep].mean(-1) * smoothing
        return hit.mean().reshape(1)

    return lambda x, t: vkf.cross_entropy(x, t, label_smoothing=smoothing), [array(rows, classes), labels], want


@case("batch_norm", "batch_norm_train")
def _(d, name):
    n, c = d.integer(2, 30), d.integer(1, 20)
    arrays = [array(n, c), array(c), array(c), array(c), np.abs(array(c)) + 0.5]

    def want(w, x, g, b, mean, var):
        if name == "batch_norm":
            return (x - mean) / np.sqrt(var + 1e-5) * g + b
        y = (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5) * g + b
        return y, 0.9 * mean + 0.1 * x.mean(0), 0.9 * var + 0.1 * x.var(0, ddof=1)

    return getattr(vkf, name), arrays, want, 1e-3, 1e-4


@case("matmul")
def _(d):
    lead, m, k, n = sizes(d, 0, 2, 3), d.integer(1, 40), d.integer(1, 50), d.integer(1, 40)
    turned = d.choice([True, False])
    b = array(*partner(d, lead), *((n, k) if turned else (k, n))) if lead else array(*((n, k) if turned else (k, n)))
    return (lambda a, b: vkf.matmul(a, b, transpose_b=turned, scale=0.5)), [array(*lead, m, k), b], \
        lambda w, a, b: 0.5 * (a @ (b.swapaxes(-1, -2) if turned else b))


@case("linear")
def _(d):
    lead, i, o = sizes(d, 1, 2, 9), d.integer(1, 70), d.integer(1, 40)
    return vkf.linear, [array(*lead, i), array(o, i), array(o)], lambda w, x, a, b: r.linear(x, a, b)


@case("linear_layer")
def _(d):
    lead, i, o, bias = sizes(d, 1, 2, 9), d.integer(1, 70), d.integer(1, 40), d.choice([True, False])
    return (lambda x: vkf.linear_layer(x, "l", o, bias=bias, activation="tanh")), [array(*lead, i)], \
        lambda w, x: np.tanh(r.layer(x, w, "l", bias))


@case("feed_forward", "gated_feed_forward")
def _(d, name):
    lead, width, hidden = sizes(d, 1, 2, 9), d.integer(1, 40), d.integer(1, 60)

    def want(w, x):
        if name == "feed_forward":
            return r.layer(r.ACTIVATIONS["gelu"](r.layer(x, w, "f.linear1")), w, "f.linear2")
        up = r.ACTIVATIONS["silu"](r.layer(x, w, "f.gate_proj", False)) * r.layer(x, w, "f.up_proj", False)
        return r.layer(up, w, "f.down_proj", False)

    f = (lambda x: vkf.feed_forward(x, hidden, "gelu", "f")) if name == "feed_forward" else \
        (lambda x: vkf.gated_feed_forward(x, hidden, name="f"))
    return f, [array(*lead, width)], want, 5e-4, 1e-4


@case("reshape", "transpose", "permute", "contiguous", "slice", "broadcast_to", "concat")
def _(d, name):
    shape = sizes(d, 2, 3, 9)
    order = [int(i) for i in RNG.permutation(len(shape))]
    start = d.integer(0, shape[0] - 1)
    length = d.integer(1, shape[0] - start)
    f, want = {
        "reshape": (lambda x: vkf.reshape(x, [-1, 1, shape[-1]]), lambda x: x.reshape(-1, 1, shape[-1])),
        "transpose": (lambda x: vkf.transpose(x, 0, -1), lambda x: x.swapaxes(0, -1)),
        "permute": (lambda x: vkf.permute(x, order), lambda x: x.transpose(order)),
        "contiguous": (lambda x: vkf.contiguous(vkf.transpose(x, 0, 1)), lambda x: x.swapaxes(0, 1)),
        "slice": (lambda x: vkf.slice(x, 0, start, length), lambda x: x[start:start + length]),
        "broadcast_to": (lambda x: vkf.broadcast_to(x, [2, *shape]), lambda x: np.broadcast_to(x, [2, *shape])),
        "concat": (lambda x: vkf.concat([x, vkf.slice(x, 0, start, length)], 0), lambda x: np.concatenate([x, x[start:start + length]])),
    }[name]
    return f, [array(*shape)], lambda w, x: want(x)


@case("to")
def _(d):
    dtype = d.choice(["float16", "bfloat16"])

    def want(w, x):
        if dtype == "float16":
            return x.astype(np.float16).astype(np.float64)
        bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32).astype(np.float64)

    return lambda x: vkf.to(vkf.to(x, dtype), "float32"), [array(*sizes(d))], want, 0, 0


@case("split_heads", "merge_heads", "repeat_kv")
def _(d, name):
    b, l, h, w, n = d.integer(1, 2), d.integer(1, 7), d.integer(1, 4), d.integer(1, 9), d.integer(1, 3)
    f, shape, want = {
        "split_heads": (lambda x: vkf.split_heads(x, h), (b, l, h * w), lambda x: r.split_heads(x, h)),
        "merge_heads": (lambda x: vkf.merge_heads(vkf.transpose(x, 1, 2)), (b, l, h, w), lambda x: x.reshape(b, l, h * w)),
        "repeat_kv": (lambda x: vkf.repeat_kv(x, n), (b, l, h, w), lambda x: np.repeat(x, n, 2)),
    }[name]
    return f, [array(*shape)], lambda w, x: want(x)


@case("embedding")
def _(d):
    rows, width, factor = d.integer(1, 30), d.integer(1, 40), d.choice([1.0, 2.5])
    return lambda i, t: vkf.embedding(i, t, factor), [ids(rows, *sizes(d, 1, 2, 9)), array(rows, width)], \
        lambda w, i, t: t[i] * factor


@case("combine_masks")
def _(d):
    shape = sizes(d, 2, 2)
    return lambda a, b: vkf.combine_masks(a, "attend", b, "ignore"), [ids(2, *shape), ids(2, *shape)], \
        lambda w, a, b: (a & (1 - b)).astype(np.int32)


@case("rope", "rope_at", "rope_by_table", "rope_table")
def _(d, name):
    shape = [d.integer(1, 2), d.integer(1, 3), d.integer(1, 9), 2 * d.integer(1, 16)]
    start = d.integer(0, 5)
    options = vkf.Rope(layout=d.choice(["interleaved", "half"]), theta=d.choice([100.0, 10000.0]), max_positions=32)
    at = np.arange(start, start + shape[2])
    if name == "rope_at":
        at = ids(32, shape[2])
        return lambda x, p: vkf.rope_at(x, p, options), [array(*shape), at], \
            lambda w, x, p: r.rope(x, p, options.layout, options.theta)
    if name == "rope":
        return lambda x: vkf.rope(x, options, start), [array(*shape)], lambda w, x: r.rope(x, at, options.layout, options.theta)
    table = vkf.rope_table(options, shape[-1])
    assert table.shape == (32, shape[-1] // 2, 2)
    return lambda x, t: vkf.rope_by_table(x, t, options.layout, start), [array(*shape), table], \
        lambda w, x, t: r.rope(x, at, options.layout, options.theta)


@case("sinusoidal_positions")
def _(d):
    length, dim = d.integer(1, 40), 2 * d.integer(1, 20)
    return lambda g: vkf.sinusoidal_positions(g, length, dim), [], lambda w: r.sinusoids(length, dim)


@case("embed_tokens")
def _(d):
    vocabulary, width, length = d.integer(2, 20), 2 * d.integer(1, 10), d.integer(1, 9)
    config = vkf.EncoderDecoderConfig(source_vocabulary=1, target_vocabulary=1, d_model=width, nhead=1, embedding_scale=3.0,
                                      max_source=1, max_target=1)
    return lambda t: vkf.embed_tokens(t, "e", vocabulary, config, length), [ids(vocabulary, 2, length)], \
        lambda w, t: w["e"][t] * 3 + r.sinusoids(length, width)
