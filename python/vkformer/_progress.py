# SPDX-License-Identifier: Apache-2.0
"""Bars of progress, for those who ask for one, on a terminal."""

from __future__ import annotations

import sys
from typing import Callable


def progress_bar(label: str) -> Callable[[int, int], None] | None:
    """A bar on the standard error, where that is a terminal; None elsewhere. A total of 0: unknown."""
    if not sys.stderr.isatty():
        return None

    def show(done: int, total: int) -> None:
        if total > 0:
            told = f"[{'#' * (40 * done // total):<40}] {100 * done // total:3} %"
        else:
            told = str(done)
        end = "\r\x1b[K" if done == total else ""
        sys.stderr.write(f"\r{label} {told}{end}")
        sys.stderr.flush()

    return show
