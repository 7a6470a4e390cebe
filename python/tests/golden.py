# SPDX-License-Identifier: Apache-2.0
"""Golden cases (tests/golden/README.md) computed through Python."""

import json
import math

import numpy as np

import vkformer as vkf

# Results of the older cases are called after what they are gradients of.
OLD_NAMES = {"dquery": "in.query", "dkey": "in.key", "dvalue": "in.value", "dx": "in.x", "dweight": "param.weight",
             "dbias": "param.bias"}


class Case:
    def __init__(self, path, device):
        self.file, self.device = vkf.Safetensors(path), device
        meta = self.file.metadata
        self.name, self.system = meta["case"], meta["system"]
        self.config = json.loads(meta["config"])
        self.used, self.results, self.values, self.inputs, self.ending = set(), {}, {}, {}, ""
        self.g = vkf.Graph()

    def get(self, key, otherwise=None):
        self.used.add(key)
        value = self.config.get(key)
        return otherwise if value is None else -math.inf if value == "-inf" else value

    def has(self, name):
        return name in self.file

    def array(self, name):
        return self.file[name].numpy()

    def shape(self, name):
        return list(self.file[name].shape)

    def input(self, name, otherwise=None):
        t = self.file.find("in." + name)
        if t is None:
            return otherwise
        self.inputs[name] = value = self.g.input(name, list(t.shape), t.dtype)
        return value

    def params(self):
        return {n[6:] + self.ending: self.array(n) for n in self.file.keys() if n.startswith("param.")}

    def column(self, name, x):
        return self.g.weight(name, [x.shape[-1]])

    def output(self, name, value):
        self.values[name] = value
        of_gradients = self.has("in.dy") or self.has("out.loss")
        if not of_gradients or self.has("out." + name):
            self.g.output(name, vkf._vkformer._ready(value))

    def add_gradients(self):
        names, of = [], []
        for key in self.file.keys():
            name = key[4:]
            if not key.startswith("out.") or not (name in OLD_NAMES or name.startswith("grad.")):
                continue
            source = OLD_NAMES.get(name, name[5:])
            source = source if source.startswith(("in.", "param.")) else "param." + source
            kind, _, bare = source.partition(".")
            if kind == "in":
                value = self.inputs[bare]
            else:
                bare += self.ending
                value = self.g.weight(bare, list(self.g.weights[bare][0]))
            names.append(name)
            of.append(value)
        if of:
            if "loss" in self.values:
                found = vkf.gradients(self.values["loss"], of)
            else:
                found = vkf.gradients(self.values["y"], of, self.input("dy"))
            for name, value in zip(names, found):
                self.g.output(name, vkf.contiguous(value))

    def run(self, **renamed):
        self.add_gradients()
        program = self.device.compile(self.g, self.params(), name=self.name)
        outputs = program(**{n: self.array("in." + n) for n in self.g.inputs})
        self.results.update({renamed.get(n, n): a for n, a in outputs.items()})

    def compare(self):
        meta = self.file.metadata
        own = json.loads(meta.get("tolerances", "{}"))
        compared = 0
        for key in self.file.keys():
            if not key.startswith("out."):
                continue
            name = key[4:]
            assert name in self.results, f"no result {name}"
            want, got = self.array(key).astype(np.float64), np.asarray(self.results[name], np.float64)
            assert got.shape == want.shape, f"{name} is {got.shape}, not {want.shape}"
            atol, rtol = own.get(name, [float(meta["atol"]), float(meta["rtol"])])
            np.testing.assert_array_equal(np.isnan(got), np.isnan(want), err_msg=name)
            finite = np.isfinite(want)
            np.testing.assert_array_equal(got[~finite & ~np.isnan(want)], want[~finite & ~np.isnan(want)], err_msg=name)
            bad = ~(np.abs(got[finite] - want[finite]) <= atol + rtol * np.abs(want[finite]))
            assert not bad.any(), f"{bad.sum()} of {bad.size} elements of {name} are outside the tolerance"
            compared += 1
        assert compared
        assert set(self.config) <= self.used, f"config keys {set(self.config) - self.used}"


def rope_scaling(s):
    names = {"original_max_position_embeddings": "original_max_positions"}
    options = {names.get(k, k): v for k, v in (s or {}).items() if k not in ("type", "rope_type")}
    kind = (s or {}).get("rope_type", (s or {}).get("type", "default"))
    return vkf.RopeScaling(vkf.rope_scaling_kind(kind), **options)


def mask_of(c):
    keys = c.input("mask")
    return vkf.Mask(keys, fill=c.get("mask_fill", -math.inf))


def attention(c, result):
    c.output("y", result.y)
    c.output("weights", result.weights)
    c.run()


def self_attention(c):
    c.get("dim")
    fused = c.get("fused_qkv")
    bias = c.has("param.qkv_proj.bias" if fused else "param.q_proj.bias")
    attention(c, vkf.self_attention(c.input("x"), fused_qkv=fused, out_proj=c.get("out_proj"), bias=bias, mask=mask_of(c)))


def multi_head_attention(c):
    c.get("dim")
    q, k, v = (c.input(n) for n in ("query", "key", "value")) if c.get("cross") else [c.input("x")] * 3
    attention(c, vkf.multi_head_attention(q, k, v, heads=c.get("heads"), mask=mask_of(c)))


def sdpa(c):
    q, k, v = c.input("query"), c.input("key"), c.input("value")
    c.get("enable_gqa")
    c.get("sinks")
    mask = c.input("attn_mask")
    keys = mask if mask is not None and mask.dtype == "int32" else None
    causal = "none"
    if c.get("is_causal"):
        causal = "bottom_right" if c.get("causal_alignment") == "bottom_right" else "top_left"
    c.get("causal_alignment")
    m = vkf.Mask(keys, bias=mask if keys is None else None, causal=causal, window=c.get("window", 0),
                 alibi_slopes=c.input("alibi_slopes") if c.get("alibi") else None)
    r = vkf.attention(q, k, v, mask=m, scale=c.get("scale"), softcap=c.get("softcap", 0), sinks=c.input("sinks"),
                      log_sum_exp=True)
    c.output("lse", r.log_sum_exp)
    attention(c, r)


def torch_mha(c):
    for key in ("embed_dim", "kdim", "vdim", "bias"):
        c.get(key)
    mask, padding = c.input("attn_mask"), c.input("key_padding_mask")
    q, k, v = c.input("query"), c.input("key"), c.input("value")
    attention(c, vkf.torch.multihead_attention(
        q, k, v, num_heads=c.get("num_heads"), bias=c.has("param.in_proj_bias"),
        add_bias_kv=bool(c.get("add_bias_kv")), add_zero_attn=bool(c.get("add_zero_attn")),
        batch_first=bool(c.get("batch_first")), average_attn_weights=bool(c.get("average_attn_weights")),
        attn_mask=mask, key_padding_mask=padding))


def incremental(c):
    c.get("dim")
    y, k, v = vkf.incremental_attention(c.input("x"), c.input("context"), c.input("cache_k"), c.input("cache_v"),
                                        heads=c.get("heads"), kv_heads=c.get("kv_heads"), head_dim=c.get("head_dim"),
                                        scale=c.get("scale"))
    for name, value in (("y", y), ("out_cache_k", k), ("out_cache_v", v)):
        c.output(name, value)
    c.run(out_cache_k="cache_k", out_cache_v="cache_v")


def run_cached(c, prefill, steps, capacity, weights=False, **options):
    x = c.array("in.x")
    batch, _, width = x.shape
    g, reader = c.g, vkf.Graph()
    tokens, start = g.symbol("tokens", capacity), g.symbol("start", capacity)
    shape = [batch, capacity, options["kv_heads"], options["head_dim"]]
    cache = vkf.KvCache(g.state("k", shape), g.state("v", shape), start)
    if c.has("param.sinks"):
        options["sinks"] = g.weight("sinks", [options["heads"]])
    a = vkf.grouped_query_attention(g.input("x", [batch, tokens, width]), cache=cache, **options)
    c.output("y", a.y)
    if weights:
        c.output("weights", a.weights)
    for name in ("k", "v"):
        reader.output("cache_" + name, vkf.contiguous(reader.state(name, shape)))
    state = c.device.make_state([g, reader])
    program = c.device.compile(g, c.params(), name=c.name, state=state)
    parts, at = [], 0
    while at < prefill + steps:
        count = prefill if at == 0 else 1
        out = program(x=x[:, at:at + count], start=at)
        parts.append(out["y"])
        if at == 0 and weights:
            c.results["weights"] = out["weights"]
        at += count
    c.results["y"] = np.concatenate(parts, 1)
    c.results.update(c.device.compile(reader, state=state)())


def cached(c):
    heads = c.get("heads")
    rope = vkf.Rope(layout=c.get("rope_layout"), theta=c.get("theta"))
    run_cached(c, c.get("prefill"), c.get("steps"), c.get("max_len"), heads=heads, kv_heads=c.get("kv_heads"),
               head_dim=c.get("dim") // heads, rope=rope, names=["wq", "wk", "wv", "wo"])


def attention_score(c):
    q, k, v = c.input("query"), c.input("key"), c.input("value")
    hidden = c.shape("param.v")[0] if c.has("param.v") else 0
    scores = vkf.attention_scores(q, k, kind=c.get("kind"), hidden=hidden)
    weights = vkf.softmax(scores)
    c.output("scores", vkf.contiguous(scores))
    c.output("weights", weights)
    c.output("y", vkf.matmul(weights, v, masked_weights=True))
    c.output("y_hard", vkf.matmul(vkf.hard_max(scores), v, masked_weights=True))
    c.run()


def rope(c):
    layout = c.get("rope_layout" if "rope_layout" in c.config else "layout")
    positions = c.array("in.positions")
    o = vkf.Rope(layout=layout, theta=c.get("theta"), rotary_dim=c.get("rotary_dim", 0),
                 max_positions=int(positions.max()) + 1, scaling=rope_scaling(c.get("scaling")))
    x = c.input("x")
    c.output("y", vkf.transpose(vkf.rope_at(vkf.transpose(x, 1, 2), c.input("positions"), o), 1, 2))
    c.run()


def batch_norm(c):
    x = c.input("x")
    w, b, mean, var = (c.column(n, x) for n in ("weight", "bias", "running_mean", "running_var"))
    eps = c.get("eps")
    y, new_mean, new_var = vkf.batch_norm_train(x, w, b, mean, var, c.get("momentum"), eps)
    c.output("y_train", y)
    c.output("y_eval", vkf.batch_norm(x, w, b, new_mean, new_var, eps))
    c.output("new_mean", new_mean)
    c.output("new_var", new_var)
    c.run(new_mean="running_mean", new_var="running_var")


def batch_norm_train(c):
    x = c.input("x")
    w, b, mean, var = (c.column(n, x) for n in ("weight", "bias", "running_mean", "running_var"))
    c.output("y", vkf.batch_norm_train(x, w, b, mean, var, c.get("momentum"), c.get("eps"))[0])
    c.run()


def norm(c):
    x = c.input("x")
    w = c.column("weight", x)
    if c.system.startswith("layer_norm"):
        c.output("y", vkf.layer_norm(x, w, c.column("bias", x), c.get("eps")))
    else:
        c.output("y", vkf.rms_norm(x, w, c.get("eps")))
    c.run()


def simple(f, *names):
    def run(c):
        c.output("y", f(c, *[c.input(n) for n in names]))
        c.run()

    return run


def feed_forward(c, x):
    for key in ("dim", "hidden"):
        c.get(key)
    if c.get("activation") == "swiglu":
        return vkf.gated_feed_forward(x, c.shape("param.gate_proj.weight")[0])
    return vkf.feed_forward(x, c.shape("param.linear1.weight")[0], c.get("activation"))


def linear(c, x):
    shape = c.shape("param.weight")
    bias = c.g.weight("bias", shape[:1]) if c.has("param.bias") else None
    return vkf.linear(x, c.g.weight("weight", shape), bias, c.get("activation"))


def gqa(c, x):
    heads = c.get("heads")
    c.ending = ".weight"
    return vkf.grouped_query_attention(x, heads=heads, kv_heads=c.get("kv_heads"), head_dim=c.get("dim") // heads,
                                       rope=vkf.Rope(layout=c.get("rope_layout"), theta=c.get("theta")),
                                       names=["wq", "wk", "wv", "wo"]).y


def cross_entropy(c):
    c.output("loss", vkf.cross_entropy(c.input("logits"), c.input("labels"), ignore_index=c.get("ignore_index"),
                                       label_smoothing=c.get("label_smoothing")))
    c.run()


def layer_options(c):
    c.get("d_model")
    return {k: c.get(k) for k in ("nhead", "dim_feedforward", "activation", "norm_first", "layer_norm_eps")}


def encoder_layer(c, src):
    return vkf.torch.transformer_encoder_layer(src, c.input("src_mask"), c.input("src_key_padding_mask"), **layer_options(c))


def decoder_layer(c):
    tgt, memory = c.input("tgt"), c.input("memory")
    masks = {n: c.input(n) for n in ("tgt_mask", "tgt_key_padding_mask", "memory_mask", "memory_key_padding_mask")}
    c.output("y", vkf.torch.transformer_decoder_layer(tgt, vkf.torch.DecoderInputs(memory, **masks), **layer_options(c)).y)
    c.run()


def transformer_loss(c, config, src, tgt, source_padding, target_padding):
    source, target = src.shape[1], tgt.shape[1]
    embedded_src = vkf.embed_tokens(src, "src_embed.weight", c.get("vocab"), config, source)
    embedded_tgt = vkf.embed_tokens(vkf.slice(tgt, 1, 0, target - 1), "tgt_embed.weight", c.get("vocab"), config, target)
    layers = c.get("num_layers")
    y = vkf.torch.transformer(
        embedded_src, embedded_tgt, name="transformer", num_encoder_layers=layers, num_decoder_layers=layers,
        nhead=c.get("nhead"), dim_feedforward=c.get("dim_feedforward"), norm_first=bool(c.get("norm_first")),
        src_key_padding_mask=source_padding, memory_key_padding_mask=source_padding,
        tgt_key_padding_mask=vkf.slice(target_padding, 1, 0, target - 1), tgt_is_causal=True)
    logits = vkf.linear_layer(y, "generator", c.get("vocab"))
    return logits, vkf.cross_entropy(logits, vkf.slice(tgt, 1, 1, target - 1), ignore_index=c.get("pad"))


def transformer_config(c):
    for key in ("sos", "eos"):
        c.get(key)
    width = c.get("d_model")
    return vkf.EncoderDecoderConfig(source_vocabulary=c.get("vocab"), target_vocabulary=c.get("vocab"), d_model=width,
                                    max_source=0, max_target=0, embedding_scale=math.sqrt(width))


def train_steps(c, config, optimizer, schedule, max_norm, batches):
    pad = c.get("pad")
    src, tgt = (np.broadcast_to(a, (batches, *a.shape[-2:])) for a in (c.array("in.src"), c.array("in.tgt")))
    g = vkf.Graph()
    inputs = {n: g.input(n, list(a.shape[1:]), "int32") for n, a in
              (("src", src), ("tgt", tgt), ("source_padding", src), ("target_padding", tgt))}
    loss = transformer_loss(c, config, *inputs.values())[1]
    params = c.params()
    step = vkf.Trainer(g, loss, optimizer, weights=params, device=c.device, schedule=schedule, max_norm=max_norm)
    assert set(step.parameters) == set(params)
    return [step(src=src[i], tgt=tgt[i], source_padding=src[i] == pad, target_padding=tgt[i] == pad) for i in range(batches)]


def transformer(c):
    config, pad = transformer_config(c), c.get("pad")
    src, tgt = c.input("src"), c.input("tgt")
    paddings = (c.g.constant(n, (c.array("in." + of) == pad).astype(np.int32)) for n, of in
                (("source_padding", "src"), ("target_padding", "tgt")))
    logits, loss = transformer_loss(c, config, src, tgt, *paddings)
    c.output("logits", logits)
    c.output("loss", loss)
    c.run()
    adam = c.get("adam")
    if adam:
        optimizer = vkf.Adam(adam["lr"], tuple(adam.get("betas", (0.9, 0.999))), adam.get("eps", 1e-8))
        c.results["loss_after_step"] = np.array([train_steps(c, config, optimizer, None, 0.0, 2)[1].loss])


def train(c):
    config, o = transformer_config(c), c.get("optimizer")
    assert o["name"] == "AdamW" and c.get("schedule") == "lr * min((t+1)/5, 1) * (1 + cos(pi t / 20)) / 2, t from 0"
    optimizer = vkf.AdamW(o["lr"], tuple(o["betas"]), o["eps"], o["weight_decay"])
    done = train_steps(c, config, optimizer, vkf.Schedule("cosine", warmup=5, steps=20), c.get("clip_grad_norm"),
                       len(c.array("in.src")))
    c.results["losses"] = np.array([s.loss for s in done])
    c.results["grad_norms"] = np.array([s.grad_norm for s in done])


def optimizer(c):
    shape = c.shape("in.parameter")
    parameter, gradient = c.g.state("parameter", shape), c.g.input("gradient", shape)
    name = c.get("name")
    options = {k: c.get(k) for k in c.config if k not in ("name", "betas")}
    options = {k: v for k, v in options.items() if v is not None}
    betas = c.get("betas")
    if betas is not None:
        options["betas"] = tuple(betas)
    made = {"SGD": vkf.SGD, "AdamW": vkf.AdamW, "Adam": vkf.Adam}[name](**options)
    vkf.update([parameter], [gradient], made, step=c.g.symbol("step", 100))
    state = c.device.make_state([c.g])
    state["parameter"] = c.array("in.parameter")
    program = c.device.compile(c.g, name=c.name, state=state)
    after = []
    for step, g in enumerate(c.array("in.gradients").reshape(-1, *shape)):
        program(gradient=g, step=step)
        after.append(state["parameter"])
    c.results["parameter"] = np.array(after)


def clip(c):
    found = []
    while c.has(f"in.g{len(found)}"):
        found.append(c.input(f"g{len(found)}"))
    norm_of, scale = vkf.clip_grad_norm(found, c.get("max_norm"))
    for i, g in enumerate(found):
        c.output(f"clipped g{i}", g * scale)
    c.output("norm", norm_of)
    c.run(**{f"clipped g{i}": f"g{i}" for i in range(len(found))})


def packed(c):
    m = vkf.Mask(causal="bottom_right" if c.get("causal") else "none", window=c.get("window"))
    c.output("y", vkf.packed_attention(*(c.input(n) for n in ("query", "key", "value", "cumulative_queries", "cumulative_keys")),
                                       mask=m).y)
    c.run()


def paged(c):
    m = vkf.Mask(causal="bottom_right" if c.get("causal") else "none")
    cache = vkf.PagedKvCache(*(c.input(n) for n in ("key", "value", "table", "lengths")))
    c.output("y", vkf.paged_attention(c.input("query"), cache, mask=m).y)
    c.run()


def flex(c):
    import pytest

    mod = vkf.ScoreMod(c.get("score_mod"), c.get("parameters"))
    if not vkf.glsl_compiler():
        pytest.skip("no GLSL compiler here")
    c.output("y", vkf.attention(c.input("query"), c.input("key"), c.input("value"), score_mod=mod).y)
    c.run()


def rope_of(parameters, head_dim, most=0):
    p = dict(parameters)
    theta, factor = p.pop("rope_theta"), p.pop("partial_rotary_factor", None)
    return vkf.Rope(layout="half", theta=theta, rotary_dim=int(head_dim * factor) if factor else 0, max_positions=most,
                    scaling=rope_scaling(p))


def transformers_attention(c):
    heads, head_dim = c.get("num_attention_heads"), c.get("head_dim")
    for key in ("hidden_size", "attention_bias"):
        c.get(key)
    scalar = c.get("query_pre_attn_scalar")
    last = "dense" if c.has("param.dense.weight") else "o_proj"
    prefill, steps = c.get("prefill"), c.get("steps")
    m = vkf.Mask(causal="bottom_right", window=c.get("sliding_window", 0))
    softcap = c.get("attn_logit_softcapping", 0.0)
    kv_heads, parameters = c.get("num_key_value_heads"), c.get("rope_parameters")
    run_cached(c, prefill, steps, prefill + steps, weights=True, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
               rope=rope_of(parameters, head_dim), mask=m, softcap=softcap, scale=scalar**-0.5 if scalar else None,
               bias=c.has(f"param.{last}.bias"), qkv_bias=c.has("param.q_proj.bias"),
               names=["q_proj", "k_proj", "v_proj", last])


def table(c):
    head_dim, positions = c.get("head_dim"), c.array("in.positions")
    t = vkf.rope_table(rope_of(c.get("rope_parameters"), head_dim, int(positions.max()) + 1), head_dim)
    c.results["cos"], c.results["sin"] = t[positions, :, 0], t[positions, :, 1]


SYSTEMS = {
    "self_attention": self_attention, "multi_head_attention": multi_head_attention,
    "scaled_dot_product_attention": sdpa, "scaled_dot_product_attention_backward": sdpa,
    "torch.nn.MultiheadAttention": torch_mha, "incremental_attention": incremental, "cached_attention": cached,
    "attention_score": attention_score, "rope": rope, "batch_norm": batch_norm, "batch_norm_train": batch_norm_train,
    "layer_norm": norm, "layer_norm_backward": norm, "rms_norm": norm, "cross_entropy": cross_entropy,
    "repeat_kv": simple(lambda c, x: vkf.repeat_kv(x, c.get("n_rep")), "x"),
    "sinusoidal_position": simple(lambda c: vkf.sinusoidal_positions(c.g, c.get("length"), c.get("dim"))),
    "feed_forward": simple(feed_forward, "x"), "linear": simple(linear, "x"),
    "matmul": simple(lambda c, a, b: vkf.matmul(a, b, transpose_b=bool(c.get("transpose_b"))), "a", "b"),
    "add": simple(lambda c, a, b: a + b, "a", "b"), "mul": simple(lambda c, a, b: a * b, "a", "b"),
    "gated": simple(lambda c, a, b: vkf.gated(a, b, c.get("activation")), "gate", "up"),
    "softmax": simple(lambda c, x: vkf.softmax(x, scale=c.get("scale")), "x"),
    "embedding": simple(lambda c, i: vkf.embedding(i, c.g.weight("weight", c.shape("param.weight")), c.get("scale")), "ids"),
    "grouped_query_attention": simple(gqa, "x"), "torch.nn.TransformerEncoderLayer": simple(encoder_layer, "src"),
    "torch.nn.TransformerDecoderLayer": decoder_layer, "transformer": transformer, "train": train,
    "optimizer": optimizer, "clip_grad_norm": clip, "packed_attention": packed, "paged_attention": paged,
    "flex_attention": flex, "transformers.LlamaRotaryEmbedding": table,
    **{f"transformers.{n}Attention": transformers_attention for n in ("Llama", "Mistral", "Qwen2", "Gemma2", "GptOss", "Phi")},
}
