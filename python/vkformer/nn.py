# SPDX-License-Identifier: Apache-2.0
"""Modules of torch.nn, called with arrays or as parts of a graph.

A module takes torch.nn's arguments and its state_dict as it is; from_torch() makes one of a torch
module. Parameters stay on the device. Called with values of a graph, it describes itself there.
Training is left to graphs: see Trainer.
"""

from __future__ import annotations

import copy
import functools
import inspect
import numbers
import operator
import os
from typing import Any, Callable, Mapping

from . import _vkformer as _c
from ._turns import Lock
from .eager import _dtype, _finish, _floating, _key, _require_no_gradient, as_arrays, default_device, require_mask, tensors_device

__all__ = ["Embedding", "LayerNorm", "Linear", "Module", "MultiheadAttention", "RMSNorm", "Transformer",
           "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer",
           "from_torch"]


def _changes(array: Any) -> bool:
    """Whether somebody can write to a tensor: to what an array of NumPy's is a view of, too."""
    import numpy

    if isinstance(array, _c.HostTensor):
        return False
    while isinstance(array, numpy.ndarray):
        if array.flags.writeable:
            return True
        array = array.base
    if array is None:
        return False
    try:
        return not memoryview(array).readonly
    except TypeError:
        return True


def _kept(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Tensors as they are now: what somebody can write to is copied, once where several names have it."""
    import numpy

    memo: dict[int, Any] = {}
    for name, tensor in tensors.items():
        _require_no_gradient(name, tensor)
        if not _changes(tensor):
            memo[id(tensor)] = tensor
        elif isinstance(tensor, _c.Tensor):
            memo[id(tensor)] = tensor.numpy()
        elif isinstance(tensor, memoryview):
            memo[id(tensor)] = numpy.array(tensor)
    return _frozen(copy.deepcopy(dict(tensors), memo))


def _frozen(tensors: dict[str, Any]) -> dict[str, Any]:
    """Tensors of a module's own, whose arrays of NumPy's nobody writes to from now on."""
    import numpy

    for tensor in tensors.values():
        if isinstance(tensor, numpy.ndarray):
            tensor.flags.writeable = False
    return tensors


def _parameters_of(describe: Any, bound: bool) -> dict[str, bool]:
    found = list(inspect.signature(describe).parameters.values())[int(bound):]
    return {p.name: p.annotation is bool or str(p.annotation).startswith("bool") for p in found}


_parameters_of_method = functools.lru_cache(maxsize=256)(_parameters_of)


def _parameters(module: Module) -> dict[str, bool]:
    """The parameters of a module's describe(), in their order, and whether each is a bool."""
    describe: Any = module.describe
    of_class = getattr(type(module), "describe", None)
    function = getattr(describe, "__func__", describe)  # a method's
    if function is getattr(of_class, "__func__", of_class):
        return _parameters_of_method(function, function is not describe)
    # one of the module's own, which may keep it: kept with the module
    kept: tuple[Any, dict[str, bool]] | None = vars(module).get("_described")
    if kept is None or kept[0] is not describe:
        kept = vars(module)["_described"] = (describe, _parameters_of(describe, False))
    return kept[1]


def _array(what: str, given: Any) -> Any:
    """An argument that stands where an array does."""
    if given is None:
        return given
    if isinstance(given, (list, tuple)) or hasattr(given, "shape") or hasattr(given, "__dlpack__"):
        return as_arrays(what, given)[0]
    raise TypeError(f"{what}: a {type(given).__name__} is neither an array nor a value of a graph; options go by their names")


def _sizes(shape: Any) -> tuple[int, ...]:
    """A shape, which may be given as its one size."""
    return tuple(operator.index(size) for size in ((shape,) if isinstance(shape, numbers.Integral) else shape))


def _at_least_one(what: str, **counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise _c.ArgumentError(f"{what}: {name} is {count}; it is at least 1")


class Module:
    """What modules have in common: a state_dict, and a program for each family of shapes."""

    def __init__(self) -> None:
        self._tensors: dict[str, Any] = {}
        self._begin()

    def _begin(self) -> None:
        """Begins without weights and programs on devices."""
        # whose keys keep the devices, so that none is taken for another
        self._weights: dict[_c.Device, _c.Weights] = {}
        self._programs: dict[Any, tuple[_c.Program, _c.Device]] = {}
        self._lock = Lock()
        # the parameters of a describe() of its own, found at the first call: threads may be going
        # through the attributes then
        self._described: tuple[Any, dict[str, bool]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What copies have: all but the lock and what is found anew when it is needed.

        A file's tensors are read.
        """
        state = {n: v for n, v in vars(self).items() if n not in ("_weights", "_programs", "_lock", "_described")}
        return {**state, "_tensors": {n: t.numpy() if isinstance(t, _c.HostTensor) else t for n, t in self._tensors.items()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._tensors = _frozen(dict(self._tensors))
        self._begin()

    # Describes the module in the graph of its inputs; its weights are called `name`.*.
    describe: Callable[..., Any]

    def load_state_dict(self, tensors: Any) -> Module:
        """Takes a state_dict, a dict of arrays, or a safetensors file, open or by its path, as it is now."""
        if isinstance(tensors, (str, os.PathLike)):
            tensors = _c.Safetensors(tensors)
        if isinstance(tensors, _c.Safetensors):
            kept = _frozen({key: tensors[key].numpy() for key in tensors.keys()})
        elif hasattr(tensors, "items"):
            kept = _kept(dict(tensors.items()))
        else:
            raise TypeError(f"load_state_dict: a {type(tensors).__name__} is neither a dict of arrays nor a safetensors file")
        with self._lock.hold():
            self._tensors, self._weights, self._programs = kept, {}, {}
        return self

    def state_dict(self) -> dict[str, Any]:
        """The arrays that load_state_dict() took: those of NumPy's are read-only, others that can be written to are copies."""
        import numpy

        return {name: tensor if isinstance(tensor, numpy.ndarray) or not _changes(tensor) else copy.deepcopy(tensor)
                for name, tensor in self._tensors.items()}

    def program(self, *arrays: Any, **options: Any) -> _c.Program:
        """The program that these arrays run on."""
        return self._found(arrays, self._with_bools(options))[0]

    def __repr__(self) -> str:
        shown: dict[str, Any] = {}
        for name, value in vars(self).items():
            if not name.startswith("_"):
                shown.update(value if isinstance(value, dict) else {name: value})
        return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in shown.items())})"

    def __call__(self, *args: Any, **options: Any) -> Any:
        options = self._with_bools(options)
        if any(isinstance(a, _c.Value) for a in (*args, *options.values())):
            return self.describe(*args, **options)
        program, given, names = self._found(args, options)
        like = given[0]
        run = program.tensors if isinstance(like, _c.Tensor) else program
        outputs: Any = run(**dict(zip(names, given)))
        finish = _finish(like, _floating(given)) or (lambda x: x)
        made = tuple(finish(outputs[f"y{i}"]) for i in range(len(outputs)))
        return made[0] if len(made) == 1 else made

    def _with_bools(self, options: dict[str, Any]) -> dict[str, Any]:
        """Options with bools for the scalars of NumPy's and others that stand for one."""
        bools = _parameters(self)
        out = dict(options)
        for name, value in options.items():
            if bools.get(name) and hasattr(value, "shape"):
                if isinstance(value, _c.Value) or tuple(value.shape) != ():
                    raise TypeError(f"{type(self).__name__}: {name}: is a {type(value).__name__} of the shape "
                                    f"{tuple(value.shape)}; a bool is wanted")
                out[name] = bool(value.numpy() if isinstance(value, _c.Tensor) else value)
        return out

    def _found(self, args: Any, options: dict[str, Any]) -> tuple[_c.Program, list[Any], list[str]]:
        for name in options:
            if name[:1] == "x" and name[1:].isdigit():  # which are our names of arguments by their place
                raise TypeError(f"{type(self).__name__}: got an unexpected keyword argument {name!r}")
        what = type(self).__name__
        parameters = _parameters(self)
        places = list(parameters)
        for name, a in zip(places, args):
            if parameters[name] and hasattr(a, "shape"):
                raise TypeError(f"{what}: {name}: a {type(a).__name__} stands where an array does; options go by their names")
        arrays = {f"x{i}": _array(what, a) for i, a in enumerate(args) if a is not None}
        # in the order of the parameters, whatever the call's is: the first tells what results are
        named = sorted(options, key=lambda name: places.index(name) if name in parameters else len(places))
        options = {k: _array(what, v) if isinstance(v, list) or hasattr(v, "shape") else v for k, v in ((k, options[k]) for k in named)}
        arrays.update({k: v for k, v in options.items() if hasattr(v, "shape")})
        plain = {k: v for k, v in options.items() if not hasattr(v, "shape")}
        if not arrays:
            raise TypeError(f"{type(self).__name__}: takes arrays, or values of a graph")
        shapes = tuple((n, tuple(int(s) for s in a.shape), str(a.dtype)) for n, a in arrays.items())
        key = (shapes, len(args), _key(dict(sorted(plain.items()))))
        with self._lock.hold():
            device = tensors_device(*arrays.values()) or default_device()
            found = self._programs.get(key)
            if found is None or found[1] != device:
                if len(self._programs) >= 64:
                    self._programs.clear()
                found = self._programs[key] = (self._compile(device, len(args), arrays, plain), device)
            return found[0], list(arrays.values()), list(arrays)

    def _compile(self, device: _c.Device, count: int, arrays: Mapping[str, Any], plain: dict[str, Any]) -> _c.Program:
        graph = _c.Graph()
        values: dict[str, Any] = {}
        first = None
        # a graph has no size of 0, but symbols that may be set to it
        none = graph.symbol("none", 1) if any(0 in a.shape for a in arrays.values()) else 0
        places = list(_parameters(self))
        for name, a in arrays.items():
            called = dict(zip((f"x{i}" for i in range(count)), places)).get(name, name)
            if called.endswith("mask"):
                require_mask(type(self).__name__, called, a, "may not attend")
            dtype = _dtype(a, f"{type(self).__name__}: {name}")
            first = first or (dtype if dtype != "int32" else None)
            x = graph.input(name, [int(s) or none for s in a.shape], dtype)
            values[name] = _c.to(x, "float32") if dtype in ("float16", "bfloat16") else x
        args = [values.get(f"x{i}") for i in range(count)]
        named = {n: v for n, v in values.items() if not (n.startswith("x") and n[1:].isdigit())}
        outputs = self.describe(*args, **named, **plain)
        for i, y in enumerate(outputs if isinstance(outputs, tuple) else (outputs,)):
            if first in ("float16", "bfloat16") and y.dtype == "float32":
                y = _c.to(y, first)
            graph.output(f"y{i}", _c._ready(y))  # type: ignore[attr-defined]
        weights = self._weights.get(device)
        if weights is None:
            if not self._tensors and graph.weights:
                raise _c.ArgumentError(f"{type(self).__name__}: load_state_dict() gives its parameters")
            for known in self._tensors:
                if known not in graph.weights:
                    raise _c.ArgumentError(f"{type(self).__name__}: {known} is in the state_dict, and is no parameter of it; "
                                           f"its parameters: {', '.join(graph.weights)}")
            weights = self._weights[device] = device.load(self._tensors, graph)
        return device.compile(graph, weights, name=type(self).__name__)


def _activation(activation: Any) -> str:
    name = activation if isinstance(activation, str) else getattr(activation, "__name__", type(activation).__name__)
    name = name.lower()
    if name == "gelu" and getattr(activation, "approximate", "none") == "tanh":  # torch.nn.GELU("tanh")
        return "gelu_tanh"
    if name not in ("relu", "gelu"):
        raise _c.ArgumentError(f"activation is {name}; torch.nn's layers have relu and gelu")
    return name


def _needs_mask(hint: str, given: bool, mask: Any) -> None:
    """In PyTorch is_causal hints at what a mask is, and means nothing without it."""
    if given and mask is None:
        raise _c.ArgumentError(f"{hint}_is_causal: says what {hint}_mask is, and there is none")


def _causal_mask(x: Any, dim: int) -> Any:
    """torch's mask for a square of x's rows: 1 where a row may not see a later one."""
    import numpy

    rows = x.shape[dim]
    if not isinstance(rows, int):
        raise _c.ArgumentError("is_causal: without a mask the number of rows has to be known; give a mask")
    return x.graph.constant(f"causal_{rows}", numpy.triu(numpy.ones((rows, rows), numpy.int32), 1))


class Linear(Module):
    """torch.nn.Linear."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__()
        self.in_features, self.out_features, self.bias = in_features, out_features, bias

    def describe(self, input: Any, *, name: str = "") -> Any:
        """input (..., in) -> (..., out)."""
        g = input.graph
        prefix = f"{name}." if name else ""
        weight = g.weight(prefix + "weight", [self.out_features, self.in_features])
        return _c.linear(input, weight, g.weight(prefix + "bias", [self.out_features]) if self.bias else None)


class Embedding(Module):
    """torch.nn.Embedding. padding_idx is about gradients, and changes nothing here."""

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None) -> None:
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise _c.ArgumentError(f"Embedding: padding_idx is {padding_idx}, of {num_embeddings} rows")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim

    def describe(self, input: Any, *, name: str = "") -> Any:
        """Ids (...) -> (..., embedding_dim)."""
        prefix = f"{name}." if name else ""
        return _c.embedding(input, input.graph.weight(prefix + "weight", [self.num_embeddings, self.embedding_dim]))


class LayerNorm(Module):
    """torch.nn.LayerNorm over the last dimension."""

    def __init__(self, normalized_shape: int | tuple[int, ...], eps: float = 1e-5, elementwise_affine: bool = True,
                 bias: bool = True) -> None:
        super().__init__()
        sizes = _sizes(normalized_shape)
        if len(sizes) != 1:
            raise _c.ArgumentError(f"LayerNorm: normalized_shape is {sizes}; it is taken over the last dimension")
        self.size, self.eps, self.affine, self.bias = sizes[0], eps, elementwise_affine, bias

    def describe(self, input: Any, *, name: str = "") -> Any:
        """input (..., N) -> the same shape."""
        prefix = f"{name}." if name else ""
        g = input.graph
        return _c.layer_norm(input, g.weight(prefix + "weight", [self.size]) if self.affine else None,
                             g.weight(prefix + "bias", [self.size]) if self.affine and self.bias else None, self.eps)


class RMSNorm(Module):
    """torch.nn.RMSNorm over the last dimension."""

    def __init__(self, normalized_shape: int | tuple[int, ...], eps: float | None = None,
                 elementwise_affine: bool = True) -> None:
        super().__init__()
        sizes = _sizes(normalized_shape)
        if len(sizes) != 1:
            raise _c.ArgumentError(f"RMSNorm: normalized_shape is {sizes}; it is taken over the last dimension")
        self.size, self.eps, self.affine = sizes[0], 2.0**-23 if eps is None else eps, elementwise_affine

    def describe(self, input: Any, *, name: str = "") -> Any:
        """input (..., N) -> the same shape."""
        prefix = f"{name}." if name else ""
        return _c.rms_norm(input, input.graph.weight(prefix + "weight", [self.size]) if self.affine else None, self.eps)


class MultiheadAttention(Module):
    """torch.nn.MultiheadAttention. Gives (y, weights), or with need_weights=False (y, None)."""

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
                 add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
                 vdim: int | None = None, batch_first: bool = False) -> None:
        super().__init__()
        self.embed_dim, self.num_heads, self.dropout, self.bias = embed_dim, num_heads, dropout, bias
        self.add_bias_kv, self.add_zero_attn, self.batch_first = add_bias_kv, add_zero_attn, batch_first
        self.kdim, self.vdim = kdim, vdim

    def describe(self, query: Any, key: Any = None, value: Any = None, key_padding_mask: Any = None,
                 need_weights: bool = True, attn_mask: Any = None, average_attn_weights: bool = True,
                 is_causal: bool = False, *, name: str = "") -> Any:
        """query (B, L, E), key (B, S, kdim), value (B, S, vdim) -> y (B, L, E), weights (B, L, S).

        Without batch_first the batch stands second. Masks are PyTorch's: True may not attend.
        """
        key = query if key is None else key
        value = key if value is None else value
        if attn_mask is not None and len(attn_mask.shape) == 3:
            batch = query.shape[0 if self.batch_first else 1]
            if attn_mask.shape[0] != batch * self.num_heads:
                raise _c.ArgumentError(f"MultiheadAttention: attn_mask {attn_mask.shape} has {attn_mask.shape[0]} in front, "
                                       f"and batch times heads is {batch * self.num_heads}")
        for what, wanted, name_of, given in (("embed_dim", self.embed_dim, "query", query), ("kdim", self.kdim, "key", key),
                                             ("vdim", self.vdim, "value", value)):
            if wanted is not None and given.shape[-1] != wanted:
                raise _c.ArgumentError(f"MultiheadAttention: {what} is {wanted}, and the {name_of} has rows of {given.shape[-1]}")
        out = _c.torch.multihead_attention(
            query, key, value, name=name, num_heads=self.num_heads, bias=self.bias,
            add_bias_kv=self.add_bias_kv, add_zero_attn=self.add_zero_attn, batch_first=self.batch_first,
            average_attn_weights=average_attn_weights, attn_mask=attn_mask, key_padding_mask=key_padding_mask,
            is_causal=is_causal and attn_mask is None)
        return (out.y, out.weights) if need_weights else out.y

    def __call__(self, query: Any, key: Any = None, value: Any = None, *args: Any, **options: Any) -> Any:
        names = ("key_padding_mask", "need_weights", "attn_mask", "average_attn_weights", "is_causal")
        if len(args) > len(names):
            raise TypeError(f"MultiheadAttention: takes at most {3 + len(names)} arguments by their places")
        for known, value_of in zip(names, args):
            if known in options:
                raise TypeError(f"MultiheadAttention: got multiple values for argument {known!r}")
            options[known] = value_of
        for given in options:
            if given not in (*names, "name"):
                raise TypeError(f"MultiheadAttention: got an unexpected keyword argument {given!r}")
        out = super().__call__(query, key, value, **{k: v for k, v in options.items() if v is not None})
        return out if isinstance(out, tuple) else (out, None)


class _Layers(Module):
    def __init__(self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
                 activation: Any = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
                 norm_first: bool = False, bias: bool = True) -> None:
        super().__init__()
        if not batch_first:
            raise _c.ArgumentError(f"{type(self).__name__}: batch_first=True is wanted: (B, L, E)")
        self.d_model, self.dropout = d_model, dropout
        self.options: dict[str, Any] = dict(nhead=nhead, dim_feedforward=dim_feedforward,
                                            activation=_activation(activation), norm_first=norm_first,
                                            layer_norm_eps=layer_norm_eps, bias=bias)


class TransformerEncoderLayer(_Layers):
    """torch.nn.TransformerEncoderLayer, in evaluation (dropout draws nothing), batch first."""

    def describe(self, src: Any, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False,
                 *, name: str = "") -> Any:
        """src (B, L, E) -> (B, L, E). Masks are PyTorch's: True may not attend."""
        # as in PyTorch, is_causal only hints at what a mask is
        src_mask = _causal_mask(src, 1) if is_causal and src_mask is None else src_mask
        return _c.torch.transformer_encoder_layer(src, src_mask, src_key_padding_mask, name=name, **self.options)


class TransformerDecoderLayer(_Layers):
    """torch.nn.TransformerDecoderLayer, in evaluation, batch first."""

    def describe(self, tgt: Any, memory: Any, tgt_mask: Any = None, memory_mask: Any = None,
                 tgt_key_padding_mask: Any = None, memory_key_padding_mask: Any = None, tgt_is_causal: bool = False,
                 memory_is_causal: bool = False, *, name: str = "") -> Any:
        """tgt (B, L, E), memory (B, S, E) -> (B, L, E). Masks are PyTorch's: True may not attend."""
        _needs_mask("memory", memory_is_causal, memory_mask)
        inputs = _c.torch.DecoderInputs(memory, tgt_mask=tgt_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                                        memory_mask=memory_mask, memory_key_padding_mask=memory_key_padding_mask,
                                        tgt_is_causal=tgt_is_causal)
        return _c.torch.transformer_decoder_layer(tgt, inputs, name=name, **self.options).y


class _Stack(Module):
    layer: _Layers

    def _end(self, norm: bool | LayerNorm | None) -> None:
        """What the final norm is: none, one like the layers', or a LayerNorm of one's own."""
        if not isinstance(norm, (bool, LayerNorm, type(None))):
            raise _c.ArgumentError(f"{type(self).__name__}: norm is a {type(norm).__name__}; it is a LayerNorm or a bool")
        if norm is True:
            options = self.layer.options
            norm = LayerNorm(self.layer.d_model, options["layer_norm_eps"], bias=options["bias"])
        self.norm = norm or None

    def _normed(self, x: Any, prefix: str) -> Any:
        return x if self.norm is None else self.norm.describe(x, name=prefix + "norm")


class TransformerEncoder(_Stack):
    """torch.nn.TransformerEncoder. norm: a LayerNorm; True: one like the layers'.

    enable_nested_tensor and mask_check say how PyTorch computes it, and change nothing here.
    """

    def __init__(self, encoder_layer: TransformerEncoderLayer, num_layers: int, norm: bool | LayerNorm | None = None,
                 enable_nested_tensor: bool = True, mask_check: bool = True) -> None:
        super().__init__()
        _at_least_one("TransformerEncoder", num_layers=num_layers)
        self.layer, self.num_layers = encoder_layer, num_layers
        self._end(norm)

    def describe(self, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool | None = None,
                 *, name: str = "") -> Any:
        """src (B, L, E) -> (B, L, E)."""
        prefix = f"{name}." if name else ""
        mask = _causal_mask(src, 1) if is_causal and mask is None else mask
        for i in range(self.num_layers):
            src = self.layer.describe(src, mask, src_key_padding_mask, name=f"{prefix}layers.{i}")
        return self._normed(src, prefix)


class TransformerDecoder(_Stack):
    """torch.nn.TransformerDecoder. norm: a LayerNorm; True: one like the layers'."""

    def __init__(self, decoder_layer: TransformerDecoderLayer, num_layers: int,
                 norm: bool | LayerNorm | None = None) -> None:
        super().__init__()
        _at_least_one("TransformerDecoder", num_layers=num_layers)
        self.layer, self.num_layers = decoder_layer, num_layers
        self._end(norm)

    def describe(self, tgt: Any, memory: Any, tgt_mask: Any = None, memory_mask: Any = None,
                 tgt_key_padding_mask: Any = None, memory_key_padding_mask: Any = None, tgt_is_causal: bool = False,
                 memory_is_causal: bool = False, *, name: str = "") -> Any:
        """tgt (B, L, E), memory (B, S, E) -> (B, L, E); masks as of a layer."""
        prefix = f"{name}." if name else ""
        for i in range(self.num_layers):
            tgt = self.layer.describe(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
                                      tgt_is_causal, memory_is_causal, name=f"{prefix}layers.{i}")
        return self._normed(tgt, prefix)


class Transformer(_Layers):
    """torch.nn.Transformer, in evaluation, batch first."""

    def __init__(self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
                 dim_feedforward: int = 2048, dropout: float = 0.1, activation: Any = "relu",
                 layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False,
                 bias: bool = True) -> None:
        super().__init__(d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first,
                         bias)
        _at_least_one("Transformer", num_encoder_layers=num_encoder_layers, num_decoder_layers=num_decoder_layers)
        self.counts: dict[str, Any] = dict(num_encoder_layers=num_encoder_layers, num_decoder_layers=num_decoder_layers)

    def describe(self, src: Any, tgt: Any, src_mask: Any = None, tgt_mask: Any = None, memory_mask: Any = None,
                 src_key_padding_mask: Any = None, tgt_key_padding_mask: Any = None,
                 memory_key_padding_mask: Any = None, src_is_causal: bool | None = None, tgt_is_causal: bool | None = None,
                 memory_is_causal: bool = False, *, name: str = "") -> Any:
        """src (B, S, E), tgt (B, L, E) -> (B, L, E). Masks are PyTorch's: True may not attend."""
        _needs_mask("memory", memory_is_causal, memory_mask)
        src_mask = _causal_mask(src, 1) if src_is_causal and src_mask is None else src_mask
        return _c.torch.transformer(
            src, tgt, name=name, src_mask=src_mask, tgt_mask=tgt_mask, memory_mask=memory_mask,
            src_key_padding_mask=src_key_padding_mask, tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=bool(tgt_is_causal), **self.counts,
            **self.options)


def _layer_arguments(m: Any) -> dict[str, Any]:
    return dict(d_model=m.linear1.in_features, nhead=m.self_attn.num_heads, dim_feedforward=m.linear1.out_features,
                activation=m.activation, layer_norm_eps=m.norm1.eps, norm_first=m.norm_first,
                batch_first=m.self_attn.batch_first, bias=m.linear1.bias is not None)


def _made_of(m: Any) -> Module:
    kind = type(m).__name__
    if kind in ("Linear", "NonDynamicallyQuantizableLinear"):
        return Linear(m.in_features, m.out_features, m.bias is not None)
    if kind == "Embedding":
        if getattr(m, "max_norm", None) is not None:
            raise _c.ArgumentError(f"from_torch: Embedding: max_norm is {m.max_norm}; rows are taken as they are here")
        return Embedding(m.num_embeddings, m.embedding_dim)
    if kind == "LayerNorm":
        return LayerNorm(tuple(m.normalized_shape), m.eps, m.elementwise_affine, m.bias is not None)
    if kind == "RMSNorm":
        return RMSNorm(tuple(m.normalized_shape), m.eps, m.elementwise_affine)
    if kind == "MultiheadAttention":
        return MultiheadAttention(m.embed_dim, m.num_heads, m.dropout, m.in_proj_bias is not None, m.bias_k is not None,
                                  m.add_zero_attn, m.kdim, m.vdim, m.batch_first)
    if kind == "TransformerEncoderLayer":
        return TransformerEncoderLayer(**_layer_arguments(m))
    if kind == "TransformerDecoderLayer":
        return TransformerDecoderLayer(**_layer_arguments(m))
    if kind in ("TransformerEncoder", "TransformerDecoder"):
        layer = _made_of(m.layers[0])
        made: Any = TransformerEncoder if kind == "TransformerEncoder" else TransformerDecoder
        stack: Module = made(layer, len(m.layers), None if m.norm is None else _made_of(m.norm))
        return stack
    if kind == "Transformer":
        if m.encoder.norm is None or m.decoder.norm is None:
            raise _c.ArgumentError("Transformer: an encoder or decoder of one's own is not supported")
        arguments = _layer_arguments(m.encoder.layers[0])
        return Transformer(num_encoder_layers=len(m.encoder.layers), num_decoder_layers=len(m.decoder.layers), **arguments)
    raise _c.ArgumentError(f"from_torch: there is no {kind} here; there are: {', '.join(n for n in __all__ if n[0].isupper())}")


def _drops(module: Any) -> bool:
    """Whether a module of torch.nn drops elements in training."""
    rates: list[Any] = [getattr(module, "p", 0.0), getattr(module, "dropout", 0.0)]  # the second may be a module
    return bool(rates[0]) or (isinstance(rates[1], float) and rates[1] != 0)


def from_torch(module: Any) -> Module:
    """A module of ours that computes what a module of torch.nn computes in evaluation."""
    if getattr(module, "training", False) and any(_drops(m) for m in module.modules()):
        raise _c.ArgumentError("from_torch: the module is in training and drops; call eval() on it first")
    return _made_of(module).load_state_dict(module.state_dict())
