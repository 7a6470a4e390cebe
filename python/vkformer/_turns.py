# SPDX-License-Identifier: Apache-2.0
"""What threads take in turn."""

from __future__ import annotations

import threading
from types import TracebackType

from ._errors import Error


class Turn:
    """A lock for the length of a text or a step: `with turn:`.

    Other threads wait. The thread that has it already is told so, for it would wait for itself; so is
    whoever goes on with a text in another thread than began it, and begins another one there.
    """

    def __init__(self, busy: str) -> None:
        self._lock, self._busy = threading.Lock(), busy
        self._owner: int | None = None

    def require_free(self) -> None:
        """Tells the thread that has it so."""
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
