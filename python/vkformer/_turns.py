# SPDX-License-Identifier: Apache-2.0
"""What threads take in turn."""

from __future__ import annotations

import threading
from types import TracebackType

from . import _vkformer as _c
from ._errors import Error


class Lock:
    """A lock that a thread may take twice, and a forked child not at all: a thread of the parent may have it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> Lock:
        _c._require_no_fork()  # type: ignore[attr-defined]
        self._lock.acquire()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._lock.release()


class Turn:
    """A lock for the length of a text or a step: `with turn:`.

    Other threads wait. The thread that has it already is told so, for it would wait for itself; so is
    whoever goes on with a text in another thread than began it, and begins another one there.
    """

    def __init__(self, busy: str) -> None:
        self._lock, self._busy = threading.Lock(), busy
        self._owner: int | None = None

    def require_free(self) -> None:
        """Tells the thread that has it so, and a forked child."""
        _c._require_no_fork()  # type: ignore[attr-defined]
        if self._owner == threading.get_ident():
            raise Error(self._busy)

    def __enter__(self) -> Turn:
        self.require_free()
        self._lock.acquire()
        self._owner = threading.get_ident()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._owner = None
        self._lock.release()
