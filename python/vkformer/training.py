# SPDX-License-Identifier: Apache-2.0
"""Training steps, called with batches of arrays."""

from __future__ import annotations

import numbers
import os
from typing import Any, Callable, Iterable, Mapping, Sequence, Sized

from . import _vkformer as _c
from ._progress import progress_bar
from ._turns import Turn
from ._types import Arithmetic, Path
from .eager import default_device


def Adam(lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0,
         *, amsgrad: bool = False) -> _c.AdamW:
    """torch.optim.Adam: AdamW whose decay is added to the gradient."""
    return _c.AdamW(lr, betas, eps, weight_decay, decoupled=False, amsgrad=amsgrad)


class Trainer:
    """From a graph that gives a loss to one step at a time: `step = Trainer(g, loss); step(batch)`.

    Weights of the graph become parameters: those whose names fit `train`, in which `*` stands for
    any characters. `weights` has the first numbers of parameters, and those of the weights that
    stay: a dict of arrays, a safetensors file or its path. Parameters that it lacks begin as
    PyTorch's linear layers do, uniform within 1/sqrt(columns) for matrices; vectors with 0 where
    they are called bias, else with 1. `seed` draws them.

    The graph gets the symbol `step` and outputs `loss` and `grad_norm`. Gradients beyond max_norm are
    clipped. A loss_scale guards gradients that pass through f16: torch.amp.GradScaler. Optimizers:
    AdamW, Adam, SGD. A communicator joins ranks that each have a part of the batch. The device's lock is taken in turns by threads; Ctrl-C ends a loop between steps.
    """

    def __init__(self, graph: _c.Graph, loss: _c.Value, optimizer: _c.AdamW | _c.SGD | None = None, *,
                 weights: Any = None, train: Sequence[str] = ("*",), device: _c.Device | None = None,
                 schedule: _c.Schedule | None = None, max_norm: float = 0.0,
                 decay_to: Callable[[str], float] | None = None, loss_scale: float = 0.0, accumulates: bool = False,
                 arithmetic: Arithmetic = "f32", profile: bool = False, seed: int = 0,
                 communicator: _c.Communicator | None = None) -> None:
        self.device = device or default_device()
        self._turn = Turn("this trainer is at work on a step in this thread: a callback, or the handler of a signal, "
                          "cannot take another one")
        shapes = dict(graph.inputs)
        self._inputs = {name: shape for name, (shape, _) in shapes.items()}
        tensors = _named_tensors(weights)
        if hasattr(weights, "items") and not isinstance(weights, _c.Safetensors):  # a file may have more than the graph wants
            for name in tensors:
                if name not in graph.weights:
                    raise _c.ArgumentError(f"{name}: the graph has no such weight; it has: {', '.join(graph.weights)}")
        for name in ("loss", "grad_norm"):
            if name in graph.outputs:
                raise _c.ArgumentError(f"{name}: the graph has an output of that name, which is the step's; give yours another")
        described = len(graph.nodes)
        parameters = _c.trainable(graph, [train] if isinstance(train, str) else list(train))
        try:
            stay = self._load_rest(graph, parameters, tensors)
            self._core = _c.TrainerCore(
                self.device, graph, loss, parameters, stay, optimizer=optimizer if optimizer is not None else _c.AdamW(),
                schedule=schedule, max_norm=max_norm, decay_to=decay_to, loss_scale=loss_scale, accumulates=accumulates,
                arithmetic=arithmetic, profile=profile, communicator=communicator)
        except BaseException:
            if len(graph.nodes) == described:  # refused before the graph had anything of a step
                _c._not_trainable(graph, parameters)  # type: ignore[attr-defined]
            raise
        own = ("step", "micro_batch") if accumulates else ("step",)
        self._most = {name: most for name, most in graph.symbols.items() if name not in own}
        self._sizes = dict(graph.symbols)  # as they are now
        self.state: _c.State = self._core.state()
        self._begin(parameters, tensors, seed)

    def _load_rest(self, graph: _c.Graph, parameters: Sequence[_c.Value], tensors: Mapping[str, Any]) -> _c.Weights:
        """The weights that stay, on the device. Refuses what does not fit the graph, parameters' first numbers too."""
        for parameter in parameters:
            given = tensors.get(parameter.name)
            if given is not None:
                _c._require_fitting(  # type: ignore[attr-defined]
                    parameter.name, parameter.shape, given.numpy() if isinstance(given, _c.HostTensor) else given)
        rest = {name: t for name, t in tensors.items() if name in graph.weights}
        missing = [name for name in graph.weights if name not in rest]
        if missing:
            raise _c.ArgumentError(f"weights: {missing[0]} is neither trained nor given")
        if not rest:
            return _c.Weights()
        loaded = self.device.load(rest, graph)
        for name, (shape, dtype) in graph.weights.items():
            found = loaded.find(name)
            if found is not None and (found.shape, found.dtype) != (shape, dtype):
                raise _c.ArgumentError(f"{name}: has the shape {shape} of {dtype}, and {found.shape} of {found.dtype} was given")
        return loaded

    def _begin(self, parameters: Sequence[_c.Value], tensors: Mapping[str, Any], seed: int) -> None:
        import numpy

        draw = numpy.random.default_rng(seed)
        for parameter in parameters:
            name = parameter.name
            shape = tuple(size for size in parameter.shape if isinstance(size, int))
            given = tensors.get(name)
            if given is not None:
                self.state.write(name, given.numpy() if isinstance(given, _c.HostTensor) else given)
            elif len(shape) >= 2:
                bound = shape[-1] ** -0.5
                self.state.write(name, draw.uniform(-bound, bound, shape).astype(numpy.float32))
            elif not name.endswith("bias"):
                self.state.write(name, numpy.ones(shape, numpy.float32))

    def _read_sizes(self, arrays: Mapping[str, Any], given: Mapping[str, int]) -> dict[str, int]:
        """The sizes that are given, and those that shapes tell; whole shapes are then compared."""
        sizes: dict[str, int] = {}
        told: dict[str, str] = {}
        for name, value in given.items():
            if name not in self._most:
                raise _c.ArgumentError(f"{name}: there is no such size; there are: {', '.join(sorted(self._most))}")
            if value < 0:
                raise _c.ArgumentError(f"{name}: is {value}; sizes are not negative")
            sizes[name], told[name] = value, "as given"
        for name, array in arrays.items():
            shape, expected = tuple(array.shape), self._inputs[name]
            if len(shape) != len(expected):
                raise _c.ArgumentError(f"{name}: has the shape {expected}, and {shape} was given")
            for size, number in zip(expected, shape):
                symbol = repr(size)
                if isinstance(size, int) or symbol not in self._most:
                    continue
                if sizes.setdefault(symbol, int(number)) != number:
                    raise _c.ArgumentError(f"{name}: {symbol} is {number} in {name} {shape}, and {sizes[symbol]} {told[symbol]}")
                told.setdefault(symbol, f"in {name}")
        for symbol, number in sizes.items():
            if number > self._most[symbol]:
                raise _c.ArgumentError(f"{symbol}: is {number}; its largest is {self._most[symbol]}")
        now = {**self._sizes, **sizes}
        for name, array in arrays.items():
            shape, expected = tuple(array.shape), self._inputs[name]
            wanted = tuple(size if isinstance(size, int) else size.eval(now) for size in expected)
            if shape != wanted:
                more = f", now {wanted}" if wanted != expected else ""
                raise _c.ArgumentError(f"{name}: has the shape {expected}{more}, and {shape} was given")
        return sizes

    def _upload(self, batch: Mapping[str, Any], given: Mapping[str, int]) -> None:
        arrays: dict[str, Any] = {}
        for name, array in batch.items():
            if name not in self._inputs:
                raise _c.ArgumentError(f"{name}: there is no such input; there are: {', '.join(self._inputs)}")
            if not hasattr(array, "shape"):
                import numpy

                if isinstance(array, (list, tuple, numbers.Number)):  # nobody chose the type
                    array = _c._listed(array, name)  # type: ignore[attr-defined]
                else:
                    array = numpy.asarray(array)
            arrays[name] = array
        forgotten = [name for name in self._inputs if name not in batch]
        if forgotten:
            raise _c.ArgumentError(f"{forgotten[0]}: is an input, and was not given; inputs: {', '.join(self._inputs)}")
        sizes = self._read_sizes(arrays, given)
        for name, value in sizes.items():
            self._core.set(name, value)
        self._sizes.update(sizes)
        for name, array in arrays.items():
            self._core.upload(name, array)

    def __call__(self, batch: Mapping[str, Any] | None = None, *, weight: float = 1.0,
                 sizes: Mapping[str, int] | None = None, **inputs: Any) -> _c.TrainingStep:
        """Takes a step on a batch: arrays by the names of inputs, as a dict or as keywords.

        sizes: symbols that no input's shape tells. Behind accumulate() the step is of all
        micro-batches together, each counting by its weight. Where it fails they are dropped, and
        the step begins anew. Where the device fails when it may have updated parameters, no step
        runs and nothing is saved until resume() succeeds. Returns loss and grad_norm.
        """
        with self._turn.hold():  # from the first input to the step
            try:
                self._upload({**(batch or {}), **inputs}, sizes or {})
            except BaseException:
                self._core.drop_micro_batches()
                raise
            return self._core.take_step(weight)

    def accumulate(self, batch: Mapping[str, Any] | None = None, *, weight: float = 1.0,
                   sizes: Mapping[str, int] | None = None, **inputs: Any) -> float:
        """Computes the gradients of a micro-batch and keeps them for the next step; gives its loss.

        Where it fails, earlier ones stay. Where the device fails when it may have added to their
        sums, all are dropped.
        """
        with self._turn.hold():
            self._upload({**(batch or {}), **inputs}, sizes or {})
            return float(self._core.accumulate(weight))

    def drop_micro_batches(self) -> None:
        """Forgets what accumulate() has kept: the step begins anew."""
        with self._turn.hold():
            self._core.drop_micro_batches()

    def fit(self, batches: Iterable[Mapping[str, Any]], *, progress: bool = False) -> list[float]:
        """Takes a step on each batch and gives the losses. progress: True shows a bar on a terminal."""
        show = progress_bar("training") if progress else None
        total = len(batches) if isinstance(batches, Sized) else 0
        losses: list[float] = []
        for batch in batches:
            losses.append(self(batch).loss)
            if show is not None:
                show(len(losses), total)
        return losses

    @property
    def step(self) -> int:
        """The number of the next step, from 0."""
        return int(self._core.step())

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters."""
        return list(self._core.parameters())

    @property
    def program(self) -> _c.Program:
        """The program of a step, for explain() and times()."""
        return self._core.program()

    def state_dict(self) -> dict[str, Any]:
        """The parameters as arrays, by name."""
        return {name: self.state.read(name) for name in self.parameters}

    def save(self, file: Path) -> None:
        """Writes all that resume() needs: parameters, moments, the number of the step.

        An error between accumulate() and the step that these micro-batches are for.
        """
        self._core.save(file)

    def resume(self, file: Path) -> None:
        """Goes on where save() was called, bit for bit."""
        self._core.resume(file)

    def __repr__(self) -> str:
        return f"<Trainer: {len(self.parameters)} parameters, step {self.step}>"


def _named_tensors(weights: Any) -> Mapping[str, Any]:
    if weights is None:
        return {}
    if isinstance(weights, (str, os.PathLike)):
        weights = _c.Safetensors(weights)
    if isinstance(weights, _c.Safetensors):
        return {name: weights[name] for name in weights.keys()}
    if hasattr(weights, "items"):
        return dict(weights.items())
    raise TypeError(f"weights: a {type(weights).__name__} is neither a dict of arrays nor a safetensors file")
