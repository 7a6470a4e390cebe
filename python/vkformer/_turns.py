# SPDX-License-Identifier: Apache-2.0
"""What threads take in turn."""

from __future__ import annotations

from typing import Any

from . import _vkformer as _c


def Lock() -> Any:
    """A lock that a thread may take twice: `with lock.hold():`.

    A forked child may not take it at all: a thread of the parent may have it.
    """
    return _c._Turn(None)  # type: ignore[attr-defined]


def Turn(busy: str) -> Any:
    """A lock for the length of a text or a step: `with turn.hold():`.

    Other threads wait. The thread that has it already is told `busy`, for it would wait for itself; so is
    whoever goes on with a text in another thread than began it, and begins another one there. What
    hold() gives ends it when it goes, so that an exception between it and its block, as Ctrl-C's, leaves
    no turn taken.
    """
    return _c._Turn(busy)  # type: ignore[attr-defined]
