# SPDX-License-Identifier: Apache-2.0
"""Functions that take the values of a graph as well as arrays, under PyTorch's argument names."""

from __future__ import annotations

import math
import numbers
from typing import Any

from . import _vkformer as _c
from ._types import Activation, Causal
from .eager import Function, as_arrays as _arrays, function, is_torch, require_mask

__all__ = [
    "argmax", "cross_entropy", "dropout", "embedding", "function", "gelu", "layer_norm", "linear", "matmul", "relu",
    "rms_norm", "scaled_dot_product_attention", "silu", "softmax", "sum", "top_k",
]


def _mask_for(mask: Any, lead: tuple[int, ...], heads: int, query: Any, key: Any, rank: int) -> Any:
    """The mask as the 4 dimensions of the attention take it: leading ones are one batch."""
    require_mask("scaled_dot_product_attention", "attn_mask", mask, "may attend")
    rows = (query.shape[-2], key.shape[-2])
    full = tuple(int(s) for s in (*lead, heads, *rows)) if rank > 2 else rows
    shape = tuple(int(s) for s in mask.shape)
    padded = (1,) * (len(full) - len(shape)) + shape
    if len(shape) > len(full) or any(m not in (1, w) for m, w in zip(padded, full)):
        raise _c.ArgumentError(f"scaled_dot_product_attention: attn_mask {shape} does not broadcast to {full}, the shape "
                               "of the scores")
    first = padded[:max(len(full) - 3, 0)]
    rest = (1,) * max(3 - len(padded), 0) + padded[-3:]
    if len(shape) == len(full) == 4:
        return mask
    if len(full) == 4 or all(s == 1 for s in first):
        return mask.reshape((*(first if len(full) == 4 else (1,)), *rest))
    mask = mask.reshape(padded)
    if first != full[:-3]:  # it repeats along some of the dimensions that become one
        whole = (*full[:-3], *rest)
        if is_torch(mask):
            mask = mask.expand(whole)
        elif isinstance(mask, _c.Tensor):
            raise _c.ArgumentError(f"scaled_dot_product_attention: attn_mask {shape} is a Tensor, which repeats along all "
                                   "dimensions before the heads, or along none")
        else:
            import numpy

            mask = numpy.broadcast_to(mask, whole)
    return mask.reshape((math.prod(full[:-3]), *rest))


def _require_elements(what: str, x: Any) -> None:
    if len(x.shape) > 0 and x.shape[-1] == 0:
        raise _c.ArgumentError(f"{what}: the rows of input {tuple(x.shape)} have no elements, and so no largest one")


def _in_graph(*tensors: Any) -> bool:
    return any(isinstance(t, _c.Value) for t in tensors)


def _rows(x: Any) -> Any:
    """(..., N) as (rows, N); no rows where N is 0."""
    if len(x.shape) == 0:
        return x.reshape(1, 1)
    if x.shape[-1] == 0:
        return x.reshape(0, 1)
    return x if len(x.shape) == 2 else x.reshape(-1, x.shape[-1])


def _attend(query: _c.Value, key: _c.Value, value: _c.Value, attn_mask: _c.Value | None, sinks: _c.Value | None,
            alibi_slopes: _c.Value | None, *, causal: Causal, window: int, scale: float | None, softcap: float,
            dropout: float, seed: int, repeat_kv: bool, score_mod: _c.ScoreMod | None, weights: bool) -> Any:
    keys = attn_mask if attn_mask is not None and attn_mask.dtype == "int32" else None
    mask = _c.Mask(keys, bias=attn_mask if keys is None else None, causal=causal, window=window,
                   alibi_slopes=alibi_slopes)
    out = _c.attention(query, key, value, mask=mask, scale=scale, softcap=softcap, sinks=sinks, dropout=dropout, dropout_seed=seed,
                       repeat_kv=repeat_kv, score_mod=score_mod)
    return (out.y, out.weights) if weights else out


_attention = Function(_attend, ["bHlD", "bGsD", "bGsV", "bHls~", "H", "H"])
_attention.__name__ = "scaled_dot_product_attention"


def scaled_dot_product_attention(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
                                 is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False, *,
                                 causal: Causal | None = None, window: int = 0, softcap: float = 0.0, sinks: Any = None,
                                 alibi_slopes: Any = None, score_mod: _c.ScoreMod | None = None,
                                 dropout_seed: Any = 0, repeat_kv: bool = False, need_weights: bool = False) -> Any:
    """softmax(query key^T scale + mask) value: torch.nn.functional.scaled_dot_product_attention.

    query (..., H, L, d), key (..., Hk, S, d), value (..., Hk, S, dv) -> (..., H, L, dv). With
    enable_gqa, H is a multiple of Hk, and query head h uses kv head h / (H/Hk).

    attn_mask: what broadcasts to (..., H, L, S); boolean (in a graph int32, 0 or 1): True = may attend;
    float: added to the scores. A row with no key left gives 0. is_causal: row r sees keys 0..r.

    Beyond PyTorch: causal="bottom_right", where row r sees keys 0..r+S-L; window: keys that a
    causal query sees; softcap c: c tanh(s / c); sinks (H): one more logit a row without a key;
    alibi_slopes (H); score_mod: GLSL of yours; dropout_seed: what dropout draws from, a number (in a
    graph also a Dim); need_weights: the weights (..., H, L, S) too.

    Arrays in, arrays of the same kind out; values of a graph give an AttentionResult. Other options
    (packed caches, rings, pages): attention().
    """
    if is_causal and attn_mask is not None:
        raise _c.ArgumentError("scaled_dot_product_attention: is_causal and attn_mask exclude each other")
    if is_causal and causal not in (None, "top_left"):
        raise _c.ArgumentError(f"scaled_dot_product_attention: is_causal is top_left, and causal is {causal!r}")
    for name, given in (("query", query), ("key", key), ("value", value)):
        if given is None:
            raise TypeError(f"scaled_dot_product_attention: {name}: is None; an array, or a value of a graph, is wanted")
    causal = causal or ("top_left" if is_causal else "none")
    options: dict[str, Any] = dict(causal=causal, window=window, scale=scale, softcap=softcap, dropout=dropout_p, seed=dropout_seed,
                   repeat_kv=repeat_kv, score_mod=score_mod, weights=need_weights)
    if _in_graph(query, key, value, attn_mask, sinks, alibi_slopes):
        if not all(x is None or isinstance(x, _c.Value) for x in (query, key, value, attn_mask, sinks, alibi_slopes)):
            raise TypeError("scaled_dot_product_attention: takes arrays, or values of one graph, and not both at once")
        if not enable_gqa and query.rank == key.rank == 4 and query.shape[1] != key.shape[1]:
            raise _c.ArgumentError(f"scaled_dot_product_attention: {query.shape[1]} heads of queries and "
                                   f"{key.shape[1]} of keys need enable_gqa=True")
        return _attend(query, key, value, attn_mask, sinks, alibi_slopes, **options)
    if attn_mask is not None or sinks is not None or alibi_slopes is not None or not all(
            hasattr(x, "dtype") and hasattr(x, "reshape") for x in (query, key, value)):
        query, key, value, attn_mask, sinks, alibi_slopes = _arrays(
            "scaled_dot_product_attention", query, key, value, attn_mask, sinks, alibi_slopes)
    shape = query.shape
    rank = len(shape)
    lead = tuple(shape[:-3])  # dimensions before the heads are one batch
    if attn_mask is not None and rank >= 2 and len(key.shape) == rank:
        attn_mask = _mask_for(attn_mask, lead, shape[-3] if rank > 2 else 1, query, key, rank)
    if rank < 2 or len(key.shape) != rank or len(value.shape) != rank:
        raise _c.ArgumentError(f"scaled_dot_product_attention: query {tuple(shape)}, key {tuple(key.shape)} and "
                               f"value {tuple(value.shape)} have as many dimensions, 2 or more")
    if rank != 4:
        if tuple(key.shape[:-3]) != lead or tuple(value.shape[:-3]) != lead:
            raise _c.ArgumentError(f"scaled_dot_product_attention: query {tuple(shape)}, key {tuple(key.shape)} and "
                                   f"value {tuple(value.shape)} differ before the heads")
        first = (math.prod(lead),) if rank > 3 else (1,) * (4 - rank)
        query, key, value = (x.reshape(first + tuple(x.shape[-3:])) for x in (query, key, value))
    if not enable_gqa and query.shape[1] != key.shape[1]:
        raise _c.ArgumentError(f"scaled_dot_product_attention: {query.shape[1]} heads of queries and {key.shape[1]} of "
                               "keys need enable_gqa=True")
    out = _attention(query, key, value, attn_mask, sinks, alibi_slopes, **options)
    if rank == 4:
        return out
    results = [y.reshape(lead + tuple(y.shape[4 - min(rank, 3):])) for y in (out if need_weights else (out,))]
    return tuple(results) if need_weights else results[0]


_softmax = Function(lambda input: _c.softmax(input), ["rN"])
_layer_norm = Function(lambda input, weight, bias, *, eps: _c.layer_norm(input, weight, bias, eps), ["rN", "N", "N"])
_rms_norm = Function(lambda input, weight, *, eps: _c.rms_norm(input, weight, eps), ["rN", "N"])
_linear = Function(lambda input, weight, bias, *, activation: _c.linear(input, weight, bias, activation), ["rK", "NK", "N"])
_matmul = Function(lambda a, b, bias, *, activation, scale, transpose_b: _c.matmul(
    a, b, bias=bias, activation=activation, scale=scale, transpose_b=transpose_b))
_activate = Function(lambda input, *, activation: _c.activate(input, activation), ["rN"])
_embedding = Function(lambda input, weight, *, scale: _c.embedding(input, weight, scale), ["r", "VE"])
_cross_entropy = Function(lambda input, target, *, ignore, smoothing: _c.cross_entropy(
    input, target, ignore_index=ignore, label_smoothing=smoothing), ["rN", "r"])
_argmax = Function(lambda input: _c.argmax(input), ["rN"])
_top_k = Function(lambda input, *, k: _c.top_k(input, k), ["rN"])
_dropout = Function(lambda input, *, p, seed: _c.dropout(input, p, seed), ["rN"])
_sum = Function(lambda input: _c.sum(input), ["rN"])
for _name in ("softmax", "layer_norm", "rms_norm", "linear", "matmul", "activate", "embedding", "cross_entropy", "argmax",
              "top_k", "dropout", "sum"):
    globals()["_" + _name].__name__ = _name  # in messages


def softmax(input: Any, dim: int = -1, *, mask: _c.Mask | None = None, scale: float = 1.0, softcap: float = 0.0,
            sinks: _c.Value | None = None) -> Any:
    """Softmax over the last dimension: torch.softmax(input, -1).

    In a graph also with attention's mask, scale, softcap and sinks: scores (..., L, S) -> the same
    shape; a masked weight is -0.0, and a row with no key left gives 0.
    """
    if not _in_graph(input):
        (input,) = _arrays("softmax", input)
    if dim not in (-1, len(input.shape) - 1):
        raise _c.ArgumentError(f"softmax: dim is {dim}; it is taken over the last dimension")
    if _in_graph(input):
        return _c.softmax(input, mask=mask, scale=scale, softcap=softcap, sinks=sinks)
    if mask is not None or sinks is not None or scale != 1.0 or softcap != 0.0:
        raise _c.ArgumentError("softmax: masks and the like need values of a graph: vkf.function()")
    return _softmax(_rows(input)).reshape(input.shape)


def _norm_arguments(name: str, input: Any, normalized_shape: Any) -> None:
    sizes = (normalized_shape,) if isinstance(normalized_shape, numbers.Integral) else tuple(normalized_shape)
    last = input.shape[-1] if len(input.shape) > 0 else "no"
    if len(sizes) != 1 or sizes[0] != last:
        raise _c.ArgumentError(f"{name}: normalized_shape is {sizes}; rows of {tuple(input.shape)} have {last} elements")


def _is_tensor(x: Any) -> bool:
    # a size may be one of NumPy's integers, which have a shape
    return isinstance(x, _c.Value) or hasattr(x, "shape") and not isinstance(x, numbers.Integral)


def layer_norm(input: Any, normalized_shape: Any = None, weight: Any = None, bias: Any = None,
               eps: float = 1e-5) -> Any:
    """Layer normalisation of the last dimension: torch.nn.functional.layer_norm.

    input (..., N), weight (N), bias (N) -> the shape of input.
    As in C++, the weight may stand right behind the input: layer_norm(x, weight, bias, eps).
    """
    if _is_tensor(normalized_shape):
        # (x, weight, bias, eps), or either of the last two by its keyword
        if isinstance(bias, numbers.Real):
            eps, bias = float(bias), None
        elif isinstance(weight, numbers.Real):
            raise TypeError("layer_norm: a bias stands behind the weight; give eps by its keyword")
        if weight is not None and bias is not None:
            raise TypeError("layer_norm: has a weight and a bias, and three arrays were given behind the input")
        normalized_shape, weight, bias = None, normalized_shape, bias if weight is None else weight
    elif normalized_shape is None and isinstance(bias, numbers.Real):  # (x, None, bias, eps)
        eps, weight, bias = float(bias), None, weight
    if not _in_graph(input, weight, bias):
        input, weight, bias = _arrays("layer_norm", input, weight, bias)
    if normalized_shape is not None:
        _norm_arguments("layer_norm", input, normalized_shape)
    if _in_graph(input, weight, bias):
        return _c.layer_norm(input, weight, bias, eps)
    return _layer_norm(_rows(input), weight, bias, eps=eps).reshape(input.shape)


def rms_norm(input: Any, normalized_shape: Any = None, weight: Any = None, eps: float | None = None) -> Any:
    """x / sqrt(mean(x^2) + eps) * weight: torch.nn.functional.rms_norm.

    input (..., N), weight (N) -> the shape of input.
    As in C++, the weight may stand right behind the input: rms_norm(x, weight, eps). eps None: 1e-6,
    or PyTorch's 2^-23 where normalized_shape is given, as PyTorch has it.
    """
    if _is_tensor(normalized_shape):
        if isinstance(weight, numbers.Real):
            eps = float(weight)
        elif weight is not None:
            raise TypeError("rms_norm: has one weight, and two were given")
        normalized_shape, weight = None, normalized_shape
    elif normalized_shape is None and isinstance(weight, numbers.Real):  # (x, None, eps)
        if eps is not None:
            raise TypeError("rms_norm: eps is given twice")
        eps, weight = float(weight), None
    if not _in_graph(input, weight):
        input, weight = _arrays("rms_norm", input, weight)
    if normalized_shape is not None:
        _norm_arguments("rms_norm", input, normalized_shape)
    if eps is None:
        eps = 1e-6 if normalized_shape is None else 2.0**-23
    if _in_graph(input, weight):
        return _c.rms_norm(input, weight, eps)
    return _rms_norm(_rows(input), weight, eps=eps).reshape(input.shape)


def linear(input: Any, weight: Any, bias: Any = None, activation: Activation = "none") -> Any:
    """activation(input weight^T + bias): torch.nn.functional.linear, and an activation by its name.

    input (..., in), weight (out, in), bias (out).
    """
    if _in_graph(input, weight, bias):
        return _c.linear(input, weight, bias, activation)
    input, weight, bias = _arrays("linear", input, weight, bias)
    y = _linear(_rows(input), weight, bias, activation=activation)
    return y.reshape(tuple(input.shape[:-1]) + (weight.shape[0],))


def matmul(a: Any, b: Any, *, bias: Any = None, activation: Activation = "none", scale: float = 1.0,
           transpose_b: bool = False, masked_weights: bool = False, masked_gradient: bool = False,
           heads_last: bool = False) -> Any:
    """(..., M, K) x (..., K, N) -> (..., M, N); leading dimensions broadcast: torch.matmul.

    activation(scale * a b + bias), bias (N); transpose_b: b is (..., N, K). In a graph also masked_weights:
    a holds attention weights, and where one is masked b's row is skipped, whatever it holds; heads_last:
    the result (B, H..., L, N) is stored as (B, L, H..., N).
    """
    if _in_graph(a, b, bias):
        return _c.matmul(a, b, bias=bias, activation=activation, scale=scale, transpose_b=transpose_b,
                         masked_weights=masked_weights, masked_gradient=masked_gradient, heads_last=heads_last)
    if masked_weights or masked_gradient or heads_last:
        raise _c.ArgumentError("matmul: masked_weights, masked_gradient and heads_last need values of a graph")
    a, b, bias = _arrays("matmul", a, b, bias)
    return _matmul(a, b, bias, activation=activation, scale=scale, transpose_b=transpose_b)


def _activated(name: str, x: Any, activation: Activation) -> Any:
    if _in_graph(x):
        return _c.activate(x, activation)
    (x,) = _arrays(name, x)
    return _activate(_rows(x), activation=activation).reshape(x.shape)


def relu(input: Any) -> Any:
    """max(x, 0): torch.relu."""
    return _activated("relu", input, "relu")


def gelu(input: Any, approximate: str = "none") -> Any:
    """x Phi(x), or with approximate="tanh" its approximation: torch.nn.functional.gelu."""
    if approximate not in ("none", "tanh"):
        raise _c.ArgumentError(f"gelu: approximate is {approximate!r}; there are: none, tanh")
    return _activated("gelu", input, "gelu" if approximate == "none" else "gelu_tanh")


def silu(input: Any) -> Any:
    """x sigmoid(x): torch.nn.functional.silu."""
    return _activated("silu", input, "silu")


def embedding(input: Any, weight: Any, scale: float = 1.0) -> Any:
    """Rows of weight (V, E) by ids (...) -> (..., E), times scale: torch.nn.functional.embedding.

    An id outside the table gives a row of NaN.
    """
    if _in_graph(input, weight):
        return _c.embedding(input, weight, scale)
    input, weight = _arrays("embedding", input, weight)
    y = _embedding(input.reshape(-1), weight, scale=scale)
    return y.reshape(tuple(input.shape) + (weight.shape[1],))


def cross_entropy(input: Any, target: Any, *, ignore_index: int = -100, reduction: str = "mean",
                  label_smoothing: float = 0.0) -> Any:
    """The mean of -log softmax(input)[target] over the rows that are not ignored.

    torch.nn.functional.cross_entropy with the classes last: input (..., V), target (...) of ids.
    """
    if reduction != "mean":
        raise _c.ArgumentError(f"cross_entropy: reduction is {reduction!r}; there is: mean")
    if _in_graph(input, target):
        return _c.cross_entropy(input, target, ignore_index=ignore_index, label_smoothing=label_smoothing)
    input, target = _arrays("cross_entropy", input, target)
    if tuple(target.shape) != tuple(input.shape[:-1]):
        raise _c.ArgumentError(f"cross_entropy: target {tuple(target.shape)} is not input {tuple(input.shape)} without "
                               "its last dimension, the classes")
    loss = _cross_entropy(_rows(input), target.reshape(-1), ignore=ignore_index, smoothing=label_smoothing)
    return loss.reshape(())


def argmax(input: Any, dim: int = -1) -> Any:
    """The index of the largest of each row (..., N) -> (...), the first of equals, int32: torch.argmax(input, -1)."""
    if not _in_graph(input):
        (input,) = _arrays("argmax", input)
    if dim not in (-1, len(input.shape) - 1):
        raise _c.ArgumentError(f"argmax: dim is {dim}; it is taken over the last dimension")
    if _in_graph(input):
        return _c.argmax(input)
    _require_elements("argmax", input)
    return _argmax(_rows(input)).reshape(tuple(input.shape[:-1]))


def top_k(input: Any, k: int) -> tuple[Any, Any]:
    """The k largest of each row (..., N) and their indices (int32), both (..., k), the largest first: torch.topk."""
    if _in_graph(input):
        return _c.top_k(input, k)
    (input,) = _arrays("top_k", input)
    _require_elements("top_k", input)
    values, indices = _top_k(_rows(input), k=k)
    shape = tuple(input.shape[:-1]) + (k,)
    return values.reshape(shape), indices.reshape(shape)


def dropout(input: Any, p: float = 0.5, seed: Any = 0) -> Any:
    """Each element 0 with probability p and x / (1 - p) otherwise.

    torch.nn.functional.dropout with a counter-based generator: the same seed draws the same on every
    device. In a graph the seed may be a Dim, such as step * 12 + layer.
    """
    if _in_graph(input):
        return _c.dropout(input, p, seed)
    (input,) = _arrays("dropout", input)
    return _dropout(_rows(input), p=p, seed=seed).reshape(input.shape)


def sum(input: Any) -> Any:
    """The sum of all elements, of shape (1) in a graph: torch.sum."""
    if _in_graph(input):
        return _c.sum(input)
    (input,) = _arrays("sum", input)
    return _sum(_rows(input)).reshape(())
