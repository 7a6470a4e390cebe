# SPDX-License-Identifier: Apache-2.0
"""Text in pictures and tables."""

from __future__ import annotations

import html


def xml_text(text: str) -> str:
    """Text as XML takes it: control characters, which it cannot say, as the pictures of them."""
    shown = []
    for c in text:
        code = ord(c)
        if code < 32:
            c = chr(0x2400 + code)
        elif 127 <= code < 160 or 0xD800 <= code < 0xE000 or code in (0xFFFE, 0xFFFF):
            c = "\ufffd"
        shown.append(c)
    return html.escape("".join(shown))
