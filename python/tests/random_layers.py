# SPDX-License-Identifier: Apache-2.0
"""More cases of test_random.py: attention, the layers around it, and gradients."""

import math

import numpy as np
import reference as r
from random_cases import CASES, RNG, array, case, ids, scores, sizes

import vkformer as vkf


def heads(d, most=40):
    kv, group, width = d.integer(1, 3), d.integer(1, 3), d.choice([4, 20, 64])
    b, l, s = d.integer(1, 2), d.integer(1, 20), d.integer(1, most)
    return kv, group, width, b, l, s


@case("attention", "attention with-a-mask", "attention with-alibi")
def _(d, name):
    kv, group, width, b, l, s = heads(d)
    s = max(l, s)
    arrays = [array(b, kv * group, l, width), array(b, kv, s, width), array(b, kv, s, 12)]
    causal, cap = d.choice(["none", "top_left", "bottom_right"]), d.choice([0.0, 4.0])
    window = d.choice([0, 3]) if causal != "none" else 0
    kind = d.choice(["keys", "bias", "slopes", "sinks"])
    extra = {"keys": ids(2, b, 1, l, s), "bias": array(l, s), "slopes": np.abs(array(kv * group)), "sinks": array(kv * group)}[kind]

    def f(q, k, v, extra):
        mask = vkf.Mask(extra if kind == "keys" else None, bias=extra if kind == "bias" else None, causal=causal,
                        window=window, alibi_slopes=extra if kind == "slopes" else None)
        out = vkf.attention(q, k, v, mask=mask, softcap=cap, sinks=extra if kind == "sinks" else None, log_sum_exp=True)
        return out.y, out.weights

    def want(w, q, k, v, extra):
        mask = extra.astype(bool) if kind == "keys" else extra if kind == "bias" else None
        return r.sdpa(q, k, v, mask, causal, window, softcap=cap, sinks=extra if kind == "sinks" else None,
                      slopes=extra if kind == "slopes" else None)[:2]

    return f, [*arrays, extra], want


@case("scaled_dot_product_attention")
def _(d):
    kv, group, width, b, l, s = heads(d)
    s, causal = max(l, s), d.choice([True, False])
    return lambda q, k, v: vkf.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True).y, \
        [array(b, kv * group, l, width), array(b, kv, s, width), array(b, kv, s, width)], \
        lambda w, q, k, v: r.sdpa(q, k, v, causal="top_left" if causal else "none")[0]


@case("score_mod")
def _(d):
    shape = scores(d)
    if not vkf.glsl_compiler():
        return vkf.relu, [array(3)], lambda w, x: np.maximum(x, 0)
    mod = vkf.ScoreMod("float score_mod(float score, uint b, uint h, uint q, uint k) { return score + parameter(0) * float(q) - float(k); }", [0.5])
    return lambda x: vkf.score_mod(x, mod), [array(*shape)], \
        lambda w, x: x + 0.5 * np.arange(shape[2])[:, None] - np.arange(shape[3])


@case("attention_scores")
def _(d):
    b, l, s, width, kind = d.integer(1, 2), d.integer(1, 9), d.integer(1, 9), d.integer(1, 20), \
        d.choice(["dot", "scaled_dot", "general", "additive"])

    def want(w, q, k):
        if kind == "additive":
            hidden = np.tanh(r.linear(q, w["a.w"])[:, :, None] + r.linear(k, w["a.u"])[:, None])
            return hidden @ w["a.v"]
        q = q @ w["a.w"] if kind == "general" else q
        return q @ k.swapaxes(1, 2) / (math.sqrt(width) if kind == "scaled_dot" else 1)

    return lambda q, k: vkf.attention_scores(q, k, name="a", kind=kind, hidden=7), [array(b, l, width), array(b, s, width)], \
        want, 5e-4, 1e-4


@case("self_attention", "multi_head_attention", "multi_head_attention_by_heads")
def _(d, name):
    h = 1 if name == "self_attention" else d.integer(1, 4)
    b, l, s, width = d.integer(1, 2), d.integer(1, 12), d.integer(1, 12), h * d.integer(1, 12)

    def f(x, c):
        if name == "self_attention":
            return vkf.self_attention(x, name="a").y
        out = getattr(vkf, name)(x, c, c, name="a", heads=h)
        return out if name.endswith("heads") else out.y

    def want(w, x, c):
        c = x if name == "self_attention" else c
        if name.endswith("heads"):
            parts = [[r.layer(t, w, f"a.heads.{i}.{p}_proj") for i in range(h)] for t, p in ((x, "q"), (c, "k"), (c, "v"))]
            q, k, v = (np.stack(p, 1) for p in parts)
        else:
            q, k, v = (r.split_heads(r.layer(t, w, f"a.{p}_proj"), h) for t, p in ((x, "q"), (c, "k"), (c, "v")))
        return r.layer(r.merge_heads(r.sdpa(q, k, v)[0]), w, "a.out_proj")

    return f, [array(b, l, width), array(b, s, width)], want, 5e-4, 1e-4


@case("grouped_query_attention")
def _(d):
    kv, group, _, b, l, _ = heads(d)
    width, e = 2 * d.integer(1, 16), d.integer(1, 40)
    layout = d.choice(["interleaved", "half"])

    def want(w, x):
        q, k, v = (r.split_heads(r.layer(x, w, f"a.{p}_proj", False), n) for p, n in (("q", kv * group), ("k", kv), ("v", kv)))
        at = np.arange(l)
        y = r.sdpa(r.rope(q, at, layout), r.rope(k, at, layout), v, causal="bottom_right")[0]
        return r.layer(r.merge_heads(y), w, "a.o_proj", False)

    return lambda x: vkf.grouped_query_attention(x, name="a", heads=kv * group, kv_heads=kv, head_dim=width,
                                                 rope=vkf.Rope(layout=layout)).y, [array(b, l, e)], want, 1e-3, 1e-4


@case("incremental_attention")
def _(d):
    kv, group, width, b, m, _ = heads(d)
    e = d.integer(1, 30)

    def want(w, x, c, keys, values):
        q = np.einsum("be,hed->bhd", x, w["a.q"])[:, :, None]
        k, v = (np.concatenate([old, np.einsum("be,hed->bhd", c, w[n])[:, :, None]], 2) for old, n in ((keys, "a.k"), (values, "a.v")))
        y = r.sdpa(q, k, v)[0][:, :, 0]
        return np.einsum("bhd,hed->be", y, w["a.o"]), k, v

    return lambda *x: vkf.incremental_attention(*x, name="a", heads=kv * group, kv_heads=kv, head_dim=width), \
        [array(b, e), array(b, e), array(b, kv, m, width), array(b, kv, m, width)], want, 1e-3, 2e-4


@case("packed_attention")
def _(d):
    kv, group, width, _, _, _ = heads(d)
    lengths = [d.integer(0, 9) for _ in range(d.integer(1, 4))]
    more = [n + d.integer(0, 5) for n in lengths]
    cq, ck = (np.concatenate([[0], np.cumsum(x)]).astype(np.int32) for x in (lengths, more))
    if cq[-1] == 0:
        lengths, more, cq, ck = [1], [1], np.array([0, 1], np.int32), np.array([0, 1], np.int32)

    def want(w, q, k, v, cq, ck):
        out = np.zeros(q.shape)
        for i in range(len(lengths)):
            part = [x[c[i]:c[i + 1]].swapaxes(0, 1) for x, c in ((q, cq), (k, ck), (v, ck))]
            if part[0].shape[1]:
                out[cq[i]:cq[i + 1]] = r.sdpa(*part, causal="bottom_right")[0].swapaxes(0, 1)
        return out

    return lambda *x: vkf.packed_attention(*x, mask=vkf.Mask(causal="bottom_right")).y, \
        [array(cq[-1], kv * group, width), array(ck[-1], kv, width), array(ck[-1], kv, width), cq, ck], want


@case("sequence_mask")
def _(d):
    l, lengths, s = d.integer(1, 6), [d.integer(6, 12) for _ in range(2)], 12

    def want(w, q, k, keys):
        at = np.arange(l)[:, None] + keys[:, None, None] - l
        return ((np.arange(s) <= at) & (np.arange(s) < keys[:, None, None])).astype(np.int32)

    return lambda q, k, keys: vkf.sequence_mask(q, k, None, keys, "bottom_right"), \
        [array(2, 1, l, 4), array(2, 1, s, 4), np.array(lengths, np.int32)], want


@case("gather_pages")
def _(d):
    pages, size, b, w = d.integer(1, 6), d.integer(1, 4), d.integer(1, 3), d.integer(1, 3)
    return vkf.gather_pages, [array(pages, size, 2, 5), ids(pages, b, w)], \
        lambda _, pool, table: pool[table].reshape(b, w * size, 2, 5)


@case("paged_attention")
def _(d):
    kv, group, width, b, l, _ = heads(d)
    pages, size, w = 8, d.integer(1, 4), 6
    table = np.stack([RNG.permutation(pages)[:w] for _ in range(b)]).astype(np.int32)
    l = min(l, size * w)
    lengths = np.array([d.integer(l, size * w) for _ in range(b)], np.int32)

    def want(_, q, key, value, table, lengths):
        out = []
        for i in range(b):
            k, v = (x[table[i]].reshape(-1, kv, width)[:lengths[i]].swapaxes(0, 1) for x in (key, value))
            out.append(r.sdpa(q[i], k, v, causal="bottom_right")[0])
        return np.stack(out)

    return lambda q, *cache: vkf.paged_attention(q, vkf.PagedKvCache(*cache), mask=vkf.Mask(causal="bottom_right")).y, \
        [array(b, kv * group, l, width), array(pages, size, kv, width), array(pages, size, kv, width), table, lengths], want


def layer_shape(d):
    h = d.integer(1, 3)
    return h, h * d.integer(1, 8), d.integer(1, 20), d.integer(1, 2), d.integer(1, 9), d.integer(1, 9)


@case("torch.multihead_attention", "torch.project_memory")
def _(d, name):
    h, e, _, b, l, s = layer_shape(d)

    def f(x, c):
        if name == "torch.project_memory":
            memory = vkf.torch.project_memory(c, "a", h)
            return vkf.torch.multihead_attention(x, name="a", num_heads=h, batch_first=True, memory=memory).y
        out = vkf.torch.multihead_attention(x, c, c, name="a", num_heads=h, batch_first=True, average_attn_weights=True)
        return out.y, out.weights

    def want(w, x, c):
        y, weights = r.attend(w, "a", x, c, c, h)
        return y if name == "torch.project_memory" else (y, weights)

    return f, [array(b, l, e), array(b, s, e)], want, 1e-3, 1e-4


@case("torch.transformer_encoder_layer", "torch.transformer_encoder", "torch.transformer_decoder_layer",
      "torch.transformer_decoder", "torch.transformer")
def _(d, name):
    h, e, hidden, b, l, s = layer_shape(d)
    e = max(2, e) if h == 1 else e if e > h else 2 * h  # a norm of one element is nothing
    options = dict(nhead=h, dim_feedforward=hidden, activation=d.choice(["relu", "gelu"]), norm_first=d.choice([True, False]))
    kept = (h, options["activation"], options["norm_first"])
    t = vkf.torch

    def f(x, m):
        if name.endswith("encoder_layer"):
            return t.transformer_encoder_layer(x, name="n", **options)
        if name.endswith("_encoder"):
            return t.transformer_encoder(x, name="n", num_layers=2, **options)
        if name.endswith("decoder_layer"):
            return t.transformer_decoder_layer(x, t.DecoderInputs(m, tgt_is_causal=True), name="n", **options).y
        if name.endswith("_decoder"):
            return t.transformer_decoder(x, [t.DecoderInputs(m, tgt_is_causal=True)] * 2, name="n", **options).y
        return t.transformer(m, x, name="n", num_encoder_layers=1, num_decoder_layers=1, tgt_is_causal=True, **options)

    def want(w, x, m):
        if name.endswith("encoder_layer"):
            return r.transformer_layer(x, w, "n", *kept)
        if name.endswith("decoder_layer"):
            return r.transformer_layer(x, w, "n", *kept, m, True)
        if name.endswith("_encoder") or name.endswith("_decoder"):
            memory = m if name.endswith("_decoder") else None
            for i in range(2):
                x = r.transformer_layer(x, w, f"n.layers.{i}", *kept, memory, memory is not None)
            return r.norm(x, w, "n.norm")
        m = r.norm(r.transformer_layer(m, w, "n.encoder.layers.0", *kept), w, "n.encoder.norm")
        return r.norm(r.transformer_layer(x, w, "n.decoder.layers.0", *kept, m, True), w, "n.decoder.norm")

    return f, [array(b, l, e), array(b, s, e)], want, 3e-3, 5e-4


@case("torch.layer_norm_layer")
def _(d):
    shape = sizes(d, most=40)
    return lambda x: vkf.torch.layer_norm_layer(x, "n"), [array(*shape)], lambda w, x: r.norm(x, w, "n"), 1e-3, 1e-4


@case("gradients")
def _(d):
    """The slope along a direction, beside the difference of two values in double precision."""
    b, l, width = d.integer(1, 2), d.integer(1, 7), d.integer(2, 12)
    f, twin, shapes = d.choice([
        (lambda x, y: vkf.matmul(x, y), lambda x, y: x @ y, [(b, l, width), (width, 5)]),
        (lambda x, y: vkf.softmax(x * y), lambda x, y: r.softmax(x * y), [(b, l, width)] * 2),
        (lambda x, y: vkf.layer_norm(x, y), lambda x, y: r.layer_norm(x, y), [(b, l, width), (width,)]),
        (lambda x, y: vkf.rms_norm(vkf.gelu(x), y, 1e-5), lambda x, y: r.rms_norm(r.ACTIVATIONS["gelu"](x), y, 1e-5), [(b, l, width), (width,)]),
        (lambda x, y: vkf.attention(vkf.reshape(x, [b, 1, l, width]), vkf.reshape(y, [b, 1, l, width]), vkf.reshape(x, [b, 1, l, width])).y,
         lambda x, y: r.sdpa(x[:, None], y[:, None], x[:, None])[0], [(b, l, width)] * 2),
    ])
    x, y = (array(*s) for s in shapes)
    seed = array(*twin(x, y).shape)
    dx, dy = array(*x.shape), array(*y.shape)

    def slope(x, y, seed, dx, dy):
        gx, gy = vkf.gradients(f(x, y), [x, y], seed)
        return vkf.sum(gx * dx) + vkf.sum(gy * dy)

    def want(w, x, y, seed, dx, dy):
        h = 1e-5
        return (((twin(x + h * dx, y + h * dy) - twin(x - h * dx, y - h * dy)) / (2 * h)) * seed).sum().reshape(1)

    return slope, [x, y, seed, dx, dy], want, 2e-3, 2e-3
