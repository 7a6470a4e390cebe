# SPDX-License-Identifier: Apache-2.0
"""Functions of arrays beside NumPy in double precision; test_random.py draws shapes."""

import math

import numpy as np
import pytest

import vkformer as vkf

RNG = np.random.default_rng(5)
SHAPES = [(1, 1), (3, 8), (2, 5, 33), (7, 64), (1, 2, 3, 20)]


def array(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def close(got, want, rtol=1e-4, atol=1e-5):
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=rtol, atol=atol)


def d(x):
    return np.asarray(x, np.float64)


def softmax(s):
    with np.errstate(invalid="ignore"):
        e = np.exp(s - np.max(s, -1, keepdims=True, initial=-1e300))
    total = e.sum(-1, keepdims=True)
    return np.divide(e, total, out=np.zeros_like(e), where=total > 0)


def sdpa(q, k, v, mask=None, causal=False, scale=None):
    q, k, v = d(q), d(k), d(v)
    if k.shape[-3] != q.shape[-3]:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    s = q @ k.swapaxes(-1, -2) * (scale if scale is not None else 1 / math.sqrt(q.shape[-1]))
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == bool else s + d(mask)
    if causal:
        s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf)
    return softmax(s) @ v


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows(shape):
    x, w, b = array(*shape), array(shape[-1]), array(shape[-1])
    close(vkf.softmax(x), softmax(d(x)))
    mean, var = d(x).mean(-1, keepdims=True), d(x).var(-1, keepdims=True)
    close(vkf.layer_norm(x, shape[-1:], w, b), (d(x) - mean) / np.sqrt(var + 1e-5) * w + b, atol=1e-4)
    close(vkf.layer_norm(x, w, b, 1e-5), (d(x) - mean) / np.sqrt(var + 1e-5) * w + b, atol=1e-4)
    close(vkf.layer_norm(x, None, b, 1e-3), (d(x) - mean) / np.sqrt(var + 1e-3) + b, atol=1e-4)
    close(vkf.layer_norm(x, None, None, 1e-3), (d(x) - mean) / np.sqrt(var + 1e-3), atol=1e-4)
    close(vkf.rms_norm(x, None, 1e-3), d(x) / np.sqrt((d(x) ** 2).mean(-1, keepdims=True) + 1e-3), atol=1e-4)
    close(vkf.rms_norm(x, w), d(x) / np.sqrt((d(x) ** 2).mean(-1, keepdims=True) + 1e-6) * w)
    close(vkf.rms_norm(x, (shape[-1],), w, 1e-3), d(x) / np.sqrt((d(x) ** 2).mean(-1, keepdims=True) + 1e-3) * w)
    np.testing.assert_array_equal(vkf.argmax(x), x.argmax(-1))
    close(vkf.sum(x), d(x).sum(), atol=1e-4)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_elements(shape):
    x = array(*shape) * 3
    erf = np.vectorize(math.erf)
    close(vkf.relu(x), np.maximum(d(x), 0))
    close(vkf.gelu(x), d(x) * 0.5 * (1 + erf(d(x) / math.sqrt(2))))
    close(vkf.gelu(x, approximate="tanh"), 0.5 * d(x) * (1 + np.tanh(math.sqrt(2 / math.pi) * (d(x) + 0.044715 * d(x) ** 3))))
    close(vkf.silu(x), d(x) / (1 + np.exp(-d(x))))
    half = vkf.dropout(np.ones(shape, np.float32), 0.5, seed=3)
    assert set(np.unique(half)) <= {0.0, 2.0}
    np.testing.assert_array_equal(half, vkf.dropout(np.ones(shape, np.float32), 0.5, seed=3))


def test_products_and_tables():
    x, w, b = array(2, 5, 24), array(7, 24), array(7)
    close(vkf.linear(x, w, b), d(x) @ d(w).T + b)
    close(vkf.linear(x, w, activation="relu"), np.maximum(d(x) @ d(w).T, 0))
    close(vkf.matmul(x, array(24, 3)).shape, (2, 5, 3))
    y = array(24, 9)
    close(vkf.matmul(x, y), d(x) @ d(y))
    ids = np.array([[1, 0, 6], [6, 6, 2]])
    np.testing.assert_array_equal(vkf.embedding(ids, w), w[ids])
    values, indices = vkf.top_k(x, 3)
    np.testing.assert_array_equal(indices, np.argsort(-x, -1, kind="stable")[..., :3])
    np.testing.assert_array_equal(values, np.take_along_axis(x, indices.astype(np.int64), -1))
    logits, labels = array(6, 10), np.array([1, 2, -100, 9, 0, 3])
    rows = labels >= 0
    want = -np.log(softmax(d(logits)))[rows, labels[rows]].mean()
    close(vkf.cross_entropy(logits, labels), want)


@pytest.mark.parametrize("heads,kv_heads", [(1, 1), (4, 4), (8, 2), (6, 1)])
@pytest.mark.parametrize("queries,keys,width", [(1, 1, 8), (5, 5, 64), (17, 40, 20)])
def test_scaled_dot_product_attention(heads, kv_heads, queries, keys, width):
    q, k, v = array(2, heads, queries, width), array(2, kv_heads, keys, width), array(2, kv_heads, keys, 12)
    gqa = heads != kv_heads
    close(vkf.scaled_dot_product_attention(q, k, v, enable_gqa=gqa), sdpa(q, k, v))
    close(vkf.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3, enable_gqa=gqa), sdpa(q, k, v, causal=True, scale=0.3))
    for shape in ((queries, keys), (2, 1, 1, keys), (2, heads, queries, keys)):
        keep = RNG.random(shape) > 0.3
        close(vkf.scaled_dot_product_attention(q, k, v, keep, enable_gqa=gqa), sdpa(q, k, v, keep))
        bias = array(*shape)
        close(vkf.scaled_dot_product_attention(q, k, v, attn_mask=bias, enable_gqa=gqa), sdpa(q, k, v, bias))
    y, weights = vkf.scaled_dot_product_attention(q, k, v, enable_gqa=gqa, need_weights=True)
    close(y, sdpa(q, k, v))
    close(weights.sum(-1), np.ones(weights.shape[:-1]))


@pytest.mark.parametrize("lead", [(), (3,), (2, 2, 3)])
def test_attention_of_other_ranks(lead):
    q, k, v = array(*lead, 5, 16), array(*lead, 7, 16), array(*lead, 7, 16)
    if len(lead) == 0:
        close(vkf.scaled_dot_product_attention(q, k, v), sdpa(q[None], k[None], v[None])[0])
    else:
        close(vkf.scaled_dot_product_attention(q, k, v), sdpa(q, k, v))


@pytest.mark.parametrize("lead", [(2, 0, 2), (0, 3, 2), (2, 3, 2)])
@pytest.mark.parametrize("queries, keys", [(0, 5), (4, 0), (0, 0), (4, 5)])
def test_attention_of_nothing(lead, queries, keys):
    q, k, v = array(*lead, queries, 8), array(*lead, keys, 8), array(*lead, keys, 6)
    want = sdpa(q, k, v)
    close(vkf.scaled_dot_product_attention(q, k, v), want)
    for shape in ((queries, keys), (lead[0], 1, 1, queries, keys), (*lead, 1, keys)):
        close(vkf.scaled_dot_product_attention(q, k, v, np.ones(shape, bool)), want)


def test_half_precision_comes_back_as_it_went_in():
    x = array(4, 32, dtype=np.float16)
    y = vkf.softmax(x)
    assert y.dtype == np.float16
    close(y, softmax(d(x)), rtol=2e-3, atol=1e-4)
    types = pytest.importorskip("ml_dtypes")
    b = array(4, 32).astype(types.bfloat16)
    y = vkf.relu(b)
    assert y.dtype == types.bfloat16
    np.testing.assert_array_equal(d(y), np.maximum(d(b), 0))


def test_a_family_is_compiled_once():
    f = vkf.function(lambda x: vkf.activate(x, "tanh"), ["rN"])
    for rows in (1, 5, 16, 9):
        x = array(rows, 12)
        close(f(x), np.tanh(d(x)))
    assert len(f._programs) == 1
    f(array(17, 12))
    assert len(f._programs) == 2


def test_a_program_that_is_forgotten_is_kept_by_no_shape(monkeypatch):
    f = vkf.function(lambda x: vkf.activate(x, "tanh"), ["rN"])
    monkeypatch.setattr(f, "_most", 2)
    for columns in (1, 2, 3, 4):
        for rows in (1, 2):
            f(array(rows, columns))
    assert len(f._programs) == 2 and len(f._exact) == 4
    assert {id(entry[4]) for entry in f._exact.values()} == {id(p) for p in f._programs.values()}


def test_programs_of_more_bytes_than_a_function_keeps_are_forgotten(monkeypatch):
    f = vkf.function(lambda x: vkf.activate(x, "tanh"))
    f(array(1000))
    monkeypatch.setattr(f, "_most_bytes", 3 * sum(p.memory.inputs for p in f._programs.values()))
    for size in (1001, 1002, 1003, 1004):
        x = array(size)
        close(f(x), np.tanh(d(x)))
    assert len(f._programs) == 1 and len(f._exact) == 1
    f(array(10_000))
    assert len(f._programs) == 1


def test_a_call_that_finds_no_memory_forgets_programs_first(monkeypatch):
    f, other = vkf.function(lambda x: vkf.activate(x, "tanh")), vkf.function(lambda x: x * 2.0)
    other(array(3))
    x = array(5)
    run, given, finish, order, program = f._found((x,), {})

    def full(arrays):
        raise vkf.OutOfMemory("the heap is full")

    key = next(iter(f._exact))
    f._exact[key] = (full, given, finish, order, program)
    close(f(x), np.tanh(d(x)))
    assert len(other._programs) == 0 and len(f._programs) == 1


def test_functions_of_several_values():
    f = vkf.function(lambda a, b: (a + b, a * 2.0 - b, a @ vkf.transpose(b, 0, 1)))
    a, b = array(3, 4), array(3, 4)
    for got, want in zip(f(a, b), (d(a) + d(b), 2 * d(a) - d(b), d(a) @ d(b).T)):
        close(got, want)


def test_values_behave_like_arrays():
    x = array(4, 6, 5)
    checks = [
        (lambda v: v[1], lambda a: a[1]), (lambda v: v[1:3, :, 2], lambda a: a[1:3, :, 2]),
        (lambda v: v[..., -2:], lambda a: a[..., -2:]), (lambda v: -v / 2.0, lambda a: -a / 2),
        (lambda v: 1.5 - v * 2, lambda a: 1.5 - a * 2), (lambda v: v + 3, lambda a: a + 3),
        (lambda v: v.reshape([24, 5]), lambda a: a.reshape(24, 5)), (lambda v: v.permute([2, 0, 1]), lambda a: a.transpose(2, 0, 1)),
        (lambda v: vkf.concat([v, v], 1), lambda a: np.concatenate([a, a], 1)),
        (lambda v: vkf.sum_to(v, [1, 5]), lambda a: a.sum((0, 1)).reshape(1, 5)),
    ]
    for f, want in checks:
        close(vkf.function(f)(x), want(d(x)), atol=1e-4)


def test_edges():
    empty = np.zeros((0, 4), np.float32)
    assert vkf.relu(empty).shape == (0, 4)
    assert vkf.relu(np.float32(-3)).shape == () and vkf.softmax([1.0, 1.0]).tolist() == [0.5, 0.5]
    q, none = np.ones((1, 1, 2, 4), np.float32), np.ones((1, 1, 0, 4), np.float32)
    np.testing.assert_array_equal(vkf.scaled_dot_product_attention(q, none, none), np.zeros_like(q))
    with pytest.raises(ValueError, match="query.*key"):
        vkf.scaled_dot_product_attention(q, q[..., :3], q[..., :3])
    with pytest.raises(ValueError, match="weight"):
        vkf.linear(np.ones((2, 3), np.float32), np.ones((4, 5), np.float32))


def test_products_of_nothing():
    for a, b in (((0, 2), (2, 3)), ((2, 2), (2, 0)), ((2, 0), (0, 3)), ((0, 2, 2), (0, 2, 3)), ((0, 0), (0, 0))):
        x, y = array(*a), array(*b)
        np.testing.assert_array_equal(vkf.matmul(x, y), x @ y)
        np.testing.assert_array_equal(vkf.matmul(x, y.swapaxes(-1, -2), transpose_b=True), x @ y)
