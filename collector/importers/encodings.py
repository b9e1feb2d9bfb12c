"""Which encoding a text has, and whether it is one: told from its beginning."""

from __future__ import annotations

import codecs

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROLS = frozenset(range(32)) - frozenset(b"\t\n\r\f\x08\x1b")
MAX_CONTROL_SHARE = 0.05
"""Control characters in a text: more, and it is none."""


def encoding_of(head: bytes) -> str | None:
    """The encoding of a text by its first bytes; None when they are no text.

    UTF-8 unless a byte order mark or every second byte being 0 says UTF-16, or more of what is not ASCII is
    wrong as UTF-8 than right, which is taken for Latin-1.
    """
    for mark, name in _BOMS:
        if head.startswith(mark):
            return name
    if b"\0" in head:
        return _utf16(head)
    if sum(byte in _CONTROLS for byte in head) > MAX_CONTROL_SHARE * len(head):
        return None
    told = head.decode("utf-8", "replace")
    if not told.isascii():
        wrong = told.count("\ufffd")
        right = sum(ord(c) > 127 for c in told) - wrong
        if wrong > right + 1:  # a character may be cut off at the end
            return "latin-1"
    return "utf-8"


def _utf16(head: bytes) -> str | None:
    even, odd = head[::2].count(0), head[1::2].count(0)
    half = max(1, len(head) // 2)
    if odd > 0.7 * half and even < 0.05 * half:
        return "utf-16-le"
    if even > 0.7 * half and odd < 0.05 * half:
        return "utf-16-be"
    return None


def text_of(head: bytes) -> str:
    """The beginning of a file as text; "" when it is binary."""
    encoding = encoding_of(head)
    if encoding is None:
        return ""
    return head.decode(encoding, "replace").removeprefix("\ufeff")
