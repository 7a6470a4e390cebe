# SPDX-License-Identifier: Apache-2.0
"""Cases of test_random.py: functions that write states, caches and parameters."""

import numpy as np
import reference as r
from random_cases import array, ids

import vkformer as vkf

RNG = np.random.default_rng(29)
STATES = {}


def state_case(name):
    def keep(f):
        STATES[name] = f
        return f

    return keep


def close(got, want, rtol=2e-4, atol=2e-5):
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=rtol, atol=atol)


@state_case("copy_into")
def _(d, device):
    rows, width = d.integer(1, 9), d.integer(1, 9)
    start = d.integer(0, rows - 1)
    length = d.integer(1, rows - start)
    g = vkf.Graph()
    kept = g.state("kept", [rows, width])
    g.output("y", vkf.contiguous(vkf.copy_into(vkf.slice(kept, 0, start, length), g.input("x", [length, width]))))
    state = device.make_state([g])
    before, x = array(rows, width), array(length, width)
    state["kept"] = before
    np.testing.assert_array_equal(device.compile(g, state=state)(x=x)["y"], x)
    before[start:start + length] = x
    np.testing.assert_array_equal(state["kept"], before)


@state_case("pack_into/unpack_rows")
def _(d, device):
    kind, rows, width = d.choice(["f16", "bf16", "int8"]), d.integer(1, 9), d.integer(1, 40)
    words = -(-width // 8) * 4 if kind != "int8" else -(-width // 16) * 4 + 4  # int8: a scale a row
    g = vkf.Graph()
    kept = g.state("kept", [rows, words], "int32")
    packed = vkf.pack_into(kept, g.input("x", [rows, width]), kind)
    g.output("y", vkf.unpack_rows(packed, kind, width))
    x = array(rows, width)
    y = device.compile(g)(x=x)["y"]
    if kind == "f16":
        np.testing.assert_array_equal(y, x.astype(np.float16).astype(np.float32))
    elif kind == "bf16":
        close(y, x, rtol=2**-8, atol=0)
    else:  # within half of a step of each row's own
        assert (np.abs(y - x) <= np.abs(x).max(-1, keepdims=True) / 127 * 0.501 + 1e-7).all()


@state_case("kv_cache/append")
def _(d, device):
    b, capacity, heads, width = d.integer(1, 2), d.integer(2, 12), d.integer(1, 3), d.integer(1, 9)
    g = vkf.Graph()
    start, count = g.symbol("start", capacity), g.symbol("count", capacity)
    cache = vkf.kv_cache(g, "c", b, capacity, heads, width, start)
    held = vkf.append(cache, g.input("k", [b, count, heads, width]), g.input("v", [b, count, heads, width]))
    g.output("key", vkf.contiguous(held.key))
    g.output("value", vkf.contiguous(held.value))
    program = device.compile(g)
    first = d.integer(1, capacity - 1)
    second = d.integer(1, capacity - first)
    k, v = array(b, first + second, heads, width), array(b, first + second, heads, width)
    program(k=k[:, :first], v=v[:, :first], start=0)
    out = program(k=k[:, first:], v=v[:, first:], start=first)
    np.testing.assert_array_equal(out["key"], k.swapaxes(1, 2))
    np.testing.assert_array_equal(out["value"], v.swapaxes(1, 2))


@state_case("scatter_pages")
def _(d, device):
    pages, size, b, w = 9, d.integer(1, 4), d.integer(1, 3), 3
    l = d.integer(1, size * w)
    table = RNG.permutation(pages)[:b * w].reshape(b, w).astype(np.int32)
    lengths = np.array([d.integer(l, size * w) for _ in range(b)], np.int32)
    g = vkf.Graph()
    pool = g.state("pool", [pages, size, 2, 5])
    g.output("y", vkf.contiguous(vkf.scatter_pages(pool, g.input("x", [b, l, 2, 5]), g.input("t", [b, w], "int32"),
                                                   g.input("n", [b], "int32"))))
    state = device.make_state([g])
    want, x = array(pages, size, 2, 5), array(b, l, 2, 5)
    state["pool"] = want
    device.compile(g, state=state)(x=x, t=table, n=lengths)
    for i in range(b):
        for j in range(l):
            at = lengths[i] - l + j
            want[table[i, at // size], at % size] = x[i, j]
    np.testing.assert_array_equal(state["pool"], want)


@state_case("update")
def _(d, device):
    kind = d.choice(["AdamW", "Adam", "AMSGrad", "SGD", "Nesterov"])
    shape, lr, decay = [d.integer(1, 9), d.integer(1, 9)], 0.1, d.choice([0.0, 0.1])
    o = {"AdamW": lambda: vkf.AdamW(lr, weight_decay=decay), "Adam": lambda: vkf.Adam(lr, weight_decay=decay),
         "AMSGrad": lambda: vkf.AdamW(lr, weight_decay=decay, amsgrad=True), "SGD": lambda: vkf.SGD(lr, weight_decay=decay),
         "Nesterov": lambda: vkf.SGD(lr, 0.9, weight_decay=decay, nesterov=True)}[kind]()
    g = vkf.Graph()
    vkf.update([g.state("p", shape)], [g.input("g", shape)], o, step=g.symbol("step", 9))
    state = device.make_state([g])
    p = array(*shape)
    state["p"] = p
    program = device.compile(g, state=state)
    p = p.astype(np.float64)
    m, v, top, velocity = (np.zeros(shape) for _ in range(4))
    for t in range(4):
        gradient = array(*shape)
        program(g=gradient, step=t)
        gradient = gradient.astype(np.float64)
        if kind in ("SGD", "Nesterov"):
            gradient = gradient + decay * p
            velocity = gradient if t == 0 else 0.9 * velocity + gradient
            p = p - lr * (gradient + 0.9 * velocity if kind == "Nesterov" else gradient)
        else:
            if kind == "Adam":
                gradient = gradient + decay * p
            else:
                p = p * (1 - lr * decay)
            m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
            top = np.maximum(top, v) if kind == "AMSGrad" else v
            p = p - lr * m / (1 - 0.9 ** (t + 1)) / (np.sqrt(top / (1 - 0.999 ** (t + 1))) + 1e-8)
        close(state["p"], p, 1e-3, 1e-4)


@state_case("accumulate")
def _(d, device):
    shape = [d.integer(1, 9), d.integer(1, 9)]
    g = vkf.Graph()
    vkf.accumulate([g.state("sum", shape)], [g.input("g", shape)], g.symbol("index", 9))
    state = device.make_state([g])
    state["sum"] = array(*shape)
    program = device.compile(g, state=state)
    parts = [array(*shape) for _ in range(d.integer(1, 4))]
    for i, part in enumerate(parts):
        program(g=part, index=i)
    close(state["sum"], np.sum(parts, 0, dtype=np.float64))


@state_case("clip_grad_norm")
def _(d, device):
    shapes = [[d.integer(1, 9), d.integer(1, 9)] for _ in range(d.integer(1, 3))]
    most = d.choice([0.5, 1e6])
    g = vkf.Graph()
    gradients = [g.input(f"g{i}", s) for i, s in enumerate(shapes)]
    norm, scale = vkf.clip_grad_norm(gradients, most)
    g.output("norm", norm)
    for i, x in enumerate(gradients):
        g.output(f"c{i}", x * scale)
    arrays = [array(*s) for s in shapes]
    out = device.compile(g)(**{f"g{i}": a for i, a in enumerate(arrays)})
    want = np.sqrt(sum((a.astype(np.float64) ** 2).sum() for a in arrays))
    close(out["norm"].item(), want)
    for i, a in enumerate(arrays):
        close(out[f"c{i}"], a * min(1.0, most / (want + 1e-6)))


EAGER = {
    "softmax": lambda x: r.softmax(x), "relu": r.ACTIVATIONS["relu"], "gelu": r.ACTIVATIONS["gelu"],
    "silu": r.ACTIVATIONS["silu"], "layer_norm": r.layer_norm, "rms_norm": r.rms_norm, "argmax": lambda x: x.argmax(-1),
    "sum": np.sum,
}


@state_case("softmax/relu/gelu/silu/layer_norm/rms_norm/argmax/sum of arrays")
def _(d, device):
    shape = [d.integer(1, 6) for _ in range(d.integer(0, 3))] + [d.integer(2, 40)]
    x = array(*shape)
    for name, twin in EAGER.items():
        for kind in (x, device.tensor(x)):
            close(getattr(vkf, name)(kind), twin(x.astype(np.float64)), 2e-3, 2e-4)


@state_case("linear/matmul/embedding/top_k/cross_entropy/scaled_dot_product_attention of arrays")
def _(d, device):
    lead = [d.integer(1, 6) for _ in range(d.integer(0, 2))]
    rows, width, out = d.integer(1, 9), d.integer(2, 30), d.integer(1, 20)
    x, w, b = array(*lead, rows, width), array(out, width), array(out)
    wide = x.astype(np.float64)
    close(vkf.linear(x, w, b), r.linear(wide, w, b))
    close(vkf.matmul(x, np.ascontiguousarray(w.T)), wide @ w.T)
    at = ids(out, *lead, rows)
    np.testing.assert_array_equal(vkf.embedding(at, w), w[at])
    k = d.integer(1, min(width, 5))
    np.testing.assert_array_equal(vkf.top_k(x, k)[1], np.argsort(-x, -1, kind="stable")[..., :k])
    labels = ids(width, *lead, rows)
    log = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
    close(vkf.cross_entropy(x, labels), -np.take_along_axis(log, labels[..., None], -1).mean())
    causal = d.choice([True, False])
    close(vkf.scaled_dot_product_attention(x, x, x, is_causal=causal), r.sdpa(x[None], x[None], x[None], causal="top_left" if causal else "none")[0][0])
