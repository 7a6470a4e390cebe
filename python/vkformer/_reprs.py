# SPDX-License-Identifier: Apache-2.0
"""What objects without a text of their own show of themselves: their properties, by name. And where help() and
reprs say that classes are: where people find them."""

from __future__ import annotations

from typing import Any

from . import _vkformer as _c

_most = 8  # elements of a list that are shown


def shown(value: Any) -> str:
    """repr() of a property, with long lists cut."""
    if isinstance(value, (list, tuple)) and len(value) > _most:
        return f"<{len(value)} of them>"
    return repr(value)


def _properties(self: Any) -> str:
    cls = type(self)
    names = [n for c in reversed(cls.__mro__) for n, m in vars(c).items() if isinstance(m, property)]
    text = ", ".join(f"{n}={shown(getattr(self, n))}" for n in names)
    return f"{cls.__name__}({text})" if names else f"<{cls.__name__}>"


_class: Any
for _class in vars(_c).values():
    if isinstance(_class, type) and type(_class) is not type:  # stubs.py takes it back
        _class.__module__ = "vkformer"
    if isinstance(_class, type) and getattr(_class, "__repr__") is object.__repr__:
        setattr(_class, "__repr__", _properties)
for _class in vars(_c.torch).values():
    if isinstance(_class, type):
        _class.__module__ = "vkformer.torch"
if _c.has_text:
    setattr(_c.Tokenizer, "__repr__", lambda self: f"<Tokenizer: {len(self)} tokens>")
