# SPDX-License-Identifier: Apache-2.0
"""Functions of graphs, called with arrays: described and compiled once a family of shapes."""

from __future__ import annotations

import atexit
import collections
import os
import numbers
import threading
import weakref
from typing import Any, Callable, Sequence

from . import _vkformer as _c

# What runs it, which arguments are inputs, what makes results of the arrays, their order.
_Entry = tuple[Callable[[Any], Any], tuple[int, ...], Any, "list[int] | None", _c.Program]

# Of the device, and of the set of functions. Who has it takes no other lock: whoever describes or
# compiles has that of a function or module, and asks for the device.
_lock = threading.RLock()
_device: _c.Device | None = None
_functions: weakref.WeakSet["Function"] = weakref.WeakSet()


def default_device() -> _c.Device:
    """The device that functions of arrays run on: the best there is, made at the first use."""
    global _device
    with _lock:
        if _device is None:
            _device = _c.Device()
        return _device


def set_default_device(device: _c.Device | None) -> None:
    """Sets the device that functions of arrays run on; None: the best there is, made anew."""
    if device is not None and not isinstance(device, _c.Device):
        raise TypeError(f"set_default_device: is a {type(device).__name__}; a Device, or None, is wanted")
    global _device
    with _lock:
        _device = device
    clear_programs()


def clear_programs() -> None:
    """Forgets every program that functions of arrays have compiled, and frees their memory."""
    with _lock:
        functions = list(_functions)
    for function in functions:
        function.clear()


def _make_room() -> None:
    """Forgets programs, which for other shapes may be what fills the memory: those of all functions that compile none."""
    with _lock:
        functions = list(_functions)
    for function in functions:
        if function._lock.acquire(blocking=False):  # who compiles may wait for what this thread holds
            try:
                function.clear()
            finally:
                function._lock.release()


def _forked() -> None:
    """In the child of a fork: a thread that is not there any more may hold the locks."""
    global _lock
    _lock = threading.RLock()
    for function in list(_functions):
        function._lock = threading.RLock()
    _c._forked()  # type: ignore[attr-defined]


atexit.register(_c._ending)  # type: ignore[attr-defined]
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _key(options: dict[str, Any]) -> tuple[Any, ...]:
    """What tells options apart: 1 and True are equal, as 0.0 and -0.0 are, and a function may tell them apart."""
    return tuple((name, type(value), str(value) if isinstance(value, numbers.Real) and value == 0 else value)
                 for name, value in options.items())


def tensors_device(*arrays: Any) -> _c.Device | None:
    """The device of the first Tensor among them."""
    for a in arrays:
        if isinstance(a, _c.Tensor):
            return a.device
    return None


def is_torch(x: object) -> bool:
    return type(x).__module__.partition(".")[0] == "torch"


def _require_no_gradient(what: str, x: Any) -> None:
    if getattr(x, "requires_grad", False):
        raise _c.ArgumentError(f"{what}: an argument requires_grad, and gradients of PyTorch do not flow through "
                               "vkformer; pass it with .detach()")


def as_arrays(what: str, *tensors: Any) -> tuple[Any, ...]:
    """Arguments with shapes: lists of numbers become arrays of NumPy's."""
    if tensors and tensors[0] is None:
        raise TypeError(f"{what}: None is neither an array nor a value of a graph")
    out = []
    for t in tensors:
        if isinstance(t, _c.Value):
            raise TypeError(f"{what}: takes arrays, or values of one graph, and not both at once")
        _require_no_gradient(what, t)
        if t is not None and not (hasattr(t, "shape") and hasattr(t, "dtype")):
            import numpy

            if hasattr(t, "__dlpack__"):
                t = numpy.from_dlpack(t)
            elif isinstance(t, (list, tuple, numbers.Number)):
                t = _c._listed(t, what)  # type: ignore[attr-defined]
            else:
                raise TypeError(f"{what}: a {type(t).__name__} is neither an array nor a value of a graph")
        elif t is not None and type(t).__module__.partition(".")[0] not in ("numpy", "torch", "vkformer"):
            import numpy

            if isinstance(t, numpy.generic):
                t = numpy.asarray(t)
            elif not isinstance(t, numpy.ndarray):
                if not hasattr(t, "__dlpack__"):
                    raise _c.ArgumentError(f"{what}: is a {type(t).__name__} of {t.dtype}, not an array")
                t = numpy.from_dlpack(t)
        out.append(t)
    return tuple(out)


def require_mask(what: str, name: str, mask: Any, true: str) -> None:
    """Refuses a mask of integers; of the device's tensors, which have no bool, it takes int32."""
    kind = str(mask.dtype).rpartition(".")[2]
    if not kind.startswith(("bool", "float", "bfloat")) and not (isinstance(mask, _c.Tensor) and kind == "int32"):
        raise _c.ArgumentError(f"{what}: {name} is of {kind}; a mask is of bool (True {true}), or of floating point, which "
                               "is added to the scores")


_NARROWED = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def _dtype(array: Any, what: str) -> str:
    """The type of the graph's input for an array."""
    name = str(array.dtype).rpartition(".")[2]
    if name == "float64":
        raise _c.ArgumentError(f"{what}: is of float64; graphs compute in float32: convert it with "
                               "astype(numpy.float32) or .float()")
    if name in ("float32", "float16", "bfloat16"):
        return name
    if name in _NARROWED:
        return "int32"
    raise _c.ArgumentError(f"{what}: is of {array.dtype}; arrays are of float32, float16, bfloat16, integers or bool")


def _bucket(size: int) -> int:
    return max(16, 1 << (size - 1).bit_length())


def _unlike(prefix: str, names: Sequence[str]) -> str:
    """A prefix whose names with numbers are none of these."""
    while any(name.startswith(prefix) and name[len(prefix):].isdigit() for name in names):
        prefix += "_"
    return prefix


class Function:
    """A function of values as one of arrays: `vkf.function(f)`."""

    _most = 256  # programs, and of exact shapes eight times as many
    _most_bytes = 1 << 30  # of all programs, but for one

    def __init__(self, f: Callable[..., Any], dims: Sequence[str] = (), device: _c.Device | None = None) -> None:
        self._f, self._dims, self._device = f, tuple(dims), device
        self.__name__ = getattr(f, "__name__", "function")
        self.__doc__ = f.__doc__
        # names of arguments, for messages
        code = getattr(f, "__code__", None)
        names = code.co_varnames[:code.co_argcount] if code is not None else ()
        self._names: tuple[str, ...] = names[1:] if getattr(f, "__self__", None) is not None else names
        # of further arguments and of results, with their numbers
        self._further, self._result = _unlike("x", self._names), _unlike("y", self._names)
        self._begin()

    def _begin(self) -> None:
        """Begins without programs."""
        self._exact: dict[Any, _Entry] = {}
        self._programs: collections.OrderedDict[Any, _c.Program] = collections.OrderedDict()
        self._lock = threading.RLock()  # of these two
        with _lock:
            _functions.add(self)

    def __getstate__(self) -> dict[str, Any]:
        """What copies have: all but the lock and the programs."""
        return {n: v for n, v in vars(self).items() if n not in ("_exact", "_programs", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def __repr__(self) -> str:
        return f"<Function {self.__name__}: {len(self._programs)} programs>"

    def clear(self) -> None:
        """Forgets the programs, and frees their memory."""
        with self._lock:
            self._exact.clear()
            self._programs.clear()

    def program(self, *arrays: Any, **options: Any) -> _c.Program:
        """The program that these arrays run on, for explain(), times and the like."""
        return self._found(as_arrays(self.__name__, *arrays), options)[4]

    def __call__(self, *arrays: Any, **options: Any) -> Any:
        try:
            done = self._run(arrays, options)
        except _c.OutOfMemory:
            done = None
        if done is None:
            _make_room()
            done = self._run(arrays, options)
        outputs, finish, order = done
        if order is not None:
            outputs = [outputs[i] for i in order]
        if finish is None:
            return outputs[0] if len(outputs) == 1 else tuple(outputs)
        made = [finish(x) for x in outputs]
        return made[0] if len(made) == 1 else tuple(made)

    def _run(self, arrays: Sequence[Any], options: dict[str, Any]) -> tuple[Any, ...]:
        try:
            run, given, finish, order, _ = self._found(arrays, options)
        except AttributeError:  # no arrays, but lists of numbers or what has __dlpack__ alone
            arrays = as_arrays(self.__name__, *arrays)
            run, given, finish, order, _ = self._found(arrays, options)
        return run([arrays[i] for i in given]), finish, order

    def _found(self, arrays: Sequence[Any], options: dict[str, Any]) -> _Entry:
        if not arrays:
            raise TypeError(f"{self.__name__}: takes at least one array")
        key: Any = [None if a is None else (a.shape, a.dtype) for a in arrays]
        device = tensors_device(*arrays)
        if device is not None:
            key.append(device)
        if options:
            key.append(_key(options))
        # types, because NumPy's float32 and PyTorch's have results of their own kind
        key = (type(arrays[0]), *key)
        try:
            found = self._exact.get(key)
        except TypeError:
            for name, value in options.items():
                if value.__hash__ is None:
                    raise TypeError(f"{self.__name__}: {name}: is a {type(value).__name__}; what is given by its name is "
                                    "hashable, and arrays go by their places") from None
            raise
        return found if found is not None else self._prepare(key, arrays, options, device)

    def _prepare(self, key: Any, arrays: Sequence[Any], options: dict[str, Any], tensors: _c.Device | None) -> _Entry:
        for a in arrays:
            _require_no_gradient(self.__name__, a)
        if arrays[0] is None:
            name = self._names[0] if self._names else f"{self._further}0"
            raise TypeError(f"{self.__name__}: {name}: is None; an array is wanted")
        with self._lock:
            device = self._device or tensors or default_device()
            sizes: list[tuple[str, ...]] = []
            family: list[Any] = []
            letters: dict[str, int] = {}
            for i, a in enumerate(arrays):
                if a is None:
                    sizes.append(())
                    family.append(None)
                    continue
                pattern = self._dims[i] if i < len(self._dims) else ""
                broadcasts = pattern.endswith("~")
                pattern = pattern.rstrip("~")
                names = []
                for d, size in enumerate(a.shape):
                    at = d - len(a.shape) + len(pattern)
                    letter = pattern[at] if at >= 0 else ""
                    if letter.islower() and not (broadcasts and size == 1):
                        letters[letter] = max(letters.get(letter, 1), int(size))
                        names.append(letter)
                    else:
                        names.append("")
                sizes.append(tuple(names))
                family.append((tuple(n or int(s) for n, s in zip(names, a.shape)), str(a.dtype)))
            maxima = {letter: _bucket(size) for letter, size in letters.items()}
            program_key = (device, tuple(family), tuple(maxima.items()), _key(options))
            program = self._programs.get(program_key)
            if program is None:
                program = self._compile(device, arrays, sizes, maxima, options)
                room = self._most_bytes - _bytes(program)
                kept = sum(map(_bytes, self._programs.values()))
                while self._programs and (len(self._programs) >= self._most or kept > room):
                    _, old = self._programs.popitem(last=False)
                    kept -= _bytes(old)
                    self._exact = {key: entry for key, entry in self._exact.items() if entry[4] is not old}
                self._programs[program_key] = program
            else:
                self._programs.move_to_end(program_key)
            if len(self._exact) >= 8 * self._most:
                self._exact.clear()
            given = tuple(i for i, a in enumerate(arrays) if a is not None)
            names = list(program.outputs)
            order = [names.index(f"{self._result}{i}") for i in range(len(names))]
            on_device = isinstance(arrays[0], _c.Tensor)
            run = program._run_tensors if on_device else program._run  # type: ignore[attr-defined]
            entry = self._exact[key] = (run, given, _finish(arrays[0], _floating(arrays)), order if len(order) > 1 else None, program)
            return entry

    def _compile(self, device: _c.Device, arrays: Sequence[Any], sizes: Sequence[tuple[str, ...]],
                 maxima: dict[str, int], options: dict[str, Any]) -> _c.Program:
        graph = _c.Graph()
        symbols = {letter: graph.symbol(letter, most) for letter, most in maxima.items()}
        # a graph has no size of 0, but symbols that may be set to it
        empty = any(not n and s == 0 for a, names in zip(arrays, sizes) if a is not None for n, s in zip(names, a.shape))
        none = graph.symbol("none", 1) if empty else 0
        values: list[Any] = []
        first = None
        for i, (a, names) in enumerate(zip(arrays, sizes)):
            if a is None:
                values.append(None)
                continue
            name = self._names[i] if i < len(self._names) else f"{self._further}{i}"
            dtype = _dtype(a, f"{self.__name__}: {name}")
            if dtype != "int32" and first is None:
                first = dtype
            shape = [symbols[n] if n else int(s) or none for n, s in zip(names, a.shape)]
            x = graph.input(name, shape, dtype)
            values.append(_c.to(x, "float32") if dtype in ("float16", "bfloat16") else x)
        outputs = self._f(*values, **options)
        if not isinstance(outputs, (tuple, list)):
            outputs = (outputs,)
        for i, y in enumerate(outputs):
            if not isinstance(y, _c.Value):
                raise TypeError(f"{self.__name__}: gave a {type(y).__name__} as a result, not a value of its graph")
            if first in ("float16", "bfloat16") and y.dtype == "float32":
                y = _c.to(y, first)
            graph.output(f"{self._result}{i}", _c._ready(y))  # type: ignore[attr-defined]
        return device.compile(graph, name=self.__name__)


def _bytes(program: _c.Program) -> int:
    """What a program takes of the device's memory and the host's."""
    m = program.memory
    return m.constants + m.scratch + m.inputs + m.outputs + m.mirrors


def _floating(arrays: Sequence[Any]) -> Any:
    """The first array of floating point, whose type results have; None: there is none."""
    return next((a for a in arrays if a is not None and _dtype(a, "") != "int32"), None)


def _finish(like: Any, floating: Any) -> Callable[[Any], Any] | None:
    """From NumPy's array to the kind of `like`, the first one, and `floating`'s 16-bit type."""
    if isinstance(like, _c.Tensor):
        return None
    import numpy

    dtype: Any = None if floating is None else floating.dtype
    bfloat16 = str(dtype).endswith("bfloat16")
    if is_torch(like):
        import torch  # type: ignore[import-not-found,unused-ignore]

        if bfloat16:
            return lambda x: torch.from_numpy(x).to(torch.bfloat16) if x.dtype.kind == "f" else torch.from_numpy(x)
        return torch.from_numpy  # type: ignore[no-any-return,unused-ignore]
    if bfloat16 and isinstance(dtype, numpy.dtype):  # which NumPy's results can have
        return lambda x: x.astype(dtype) if x.dtype.kind == "f" else x
    return None


def function(f: Callable[..., Any], dims: Sequence[str] = (), device: _c.Device | None = None) -> Function:
    """Makes a function of arrays of one that describes a graph.

    `f` is called with a Value for each array, and with the keywords as they are (they must be
    hashable); it returns one value or several. A program is compiled once a family of shapes and
    kept. `dims` says for each argument which dimensions may vary within a family, a letter each
    from the innermost back: lower case for a size that may vary, upper case for one that is fixed.
    Arguments that have a letter in common have that size in common; "bls~" lets sizes of 1
    broadcast. Without dims, each shape is a family. Results are arrays of the first argument's
    kind: NumPy, PyTorch, or a Tensor that stays on the device. It runs on `device`; without one, on
    that of the first Tensor among its arguments, or else on default_device().

        swish = vkf.function(lambda x, beta: x * vkf.activate(x * beta, "sigmoid"), ["rN", "N"])
        swish(array, beta)
    """
    return Function(f, dims, device)
