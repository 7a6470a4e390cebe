# SPDX-License-Identifier: Apache-2.0
"""What lives for the length of a `with`."""

from __future__ import annotations

from types import TracebackType

from ._vkformer import Graph


class Scope:
    """Prefixes the names of weights and the labels of nodes: `with vkf.Scope(g, "layers.0"):`."""

    def __init__(self, graph: Graph, name: str) -> None:
        self._graph, self._name = graph, name

    def __enter__(self) -> Scope:
        self._graph.push_scope(self._name)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._graph.pop_scope()

    def __repr__(self) -> str:
        return f"Scope({self._name!r})"


class Recompute:
    """A block whose values are computed again for their gradient, instead of being kept.

    torch.utils.checkpoint: `with vkf.Recompute(g): x = layer(x)`. Where every layer is a block,
    memory grows by one activation a layer, and time by less than the forward pass. The gradients
    stay the same, bit for bit. A block must not write states.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __enter__(self) -> Recompute:
        self._graph.begin_recompute()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._graph.end_recompute()
