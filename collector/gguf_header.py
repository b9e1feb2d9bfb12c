"""Reads a GGUF file's header, never its tensors.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Every count and length comes from a file
that anybody may have written, so each is bounded before it is used.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import BinaryIO

from ..errors import WhyboundError

MAX_HEADER_BYTES = 64 * 1024 * 1024
"""Vocabularies of 256 thousand tokens with their merges take about 12 MB."""
MAX_KEYS = 4_096
MAX_KEY_BYTES = 1_024
MAX_ITEMS = 4_194_304
MAX_KEPT_ITEMS = 2_048
MAX_TENSORS = 65_536
MAX_DIMENSIONS = 4
MAX_TEXT_BYTES = 256
"""A longer text (a chat template) is passed over and never kept."""

Value = int | float | bool | str | list[int]

_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9


@dataclass
class Header:
    """What is kept: scalars and short texts by key, lengths of arrays, and tensors by name as (dims, type)."""

    values: dict[str, Value] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    tensors: dict[str, tuple[tuple[int, ...], int]] = field(default_factory=dict)


class _Reader:
    """Bytes in order, refilled as needed, at most `MAX_HEADER_BYTES` in all."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._buffer, self._at, self._read = stream, b"", 0, 0

    def take(self, n: int) -> bytes:
        if n > len(self._buffer) - self._at:
            self._refill(n)
        self._at += n
        return self._buffer[self._at - n : self._at]

    def _refill(self, n: int) -> None:
        wanted = max(n, 1 << 20)
        if self._read + n > MAX_HEADER_BYTES:
            raise _bad(f"its header is longer than {MAX_HEADER_BYTES >> 20} MiB")
        more = self._stream.read(wanted)
        self._read += len(more)
        self._buffer = self._buffer[self._at :] + more
        self._at = 0
        if len(self._buffer) < n:
            raise _bad("it ends inside its header")

    def number(self, code: str) -> int | float | bool:
        [value] = struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))
        assert isinstance(value, (int, float))
        return value

    def count(self, most: int, what: str) -> int:
        n = int(self.number("Q"))
        if n > most:
            raise _bad(f"{n} {what}, more than {most}")
        return n

    def text(self, most: int) -> str | None:
        """A text, or None when it is longer than `most` bytes; it is passed over then."""
        n = self.count(MAX_HEADER_BYTES, "bytes in one text")
        raw = self.take(n)
        return raw.decode("utf-8", "replace") if n <= most else None

    def skip_texts(self, n: int) -> None:
        """Pass over `n` texts; a vocabulary has hundreds of thousands, so the loop is kept bare."""
        unpack, buffer, at = struct.Struct("<Q").unpack_from, self._buffer, self._at
        for _ in range(n):
            if at + 8 > len(buffer) or (end := at + 8 + unpack(buffer, at)[0]) > len(buffer):
                self._at = at
                self.text(0)
                buffer, at = self._buffer, self._at
            else:
                at = end
        self._at = at


def read_header(stream: BinaryIO) -> Header:
    """The header of the GGUF file (version 2 or 3, little-endian) at the stream's start.

    Raises:
        WhyboundError: it is none, is cut off, or claims more than any model has; one line.
    """
    reader = _Reader(stream)
    if reader.take(4) != b"GGUF":
        raise _bad("it does not begin with GGUF")
    version = reader.number("I")
    if version not in (2, 3):
        raise _bad(f"version {version} is not read, only 2 and 3")
    tensors = reader.count(MAX_TENSORS, "tensors")
    keys = reader.count(MAX_KEYS, "keys")
    header = Header()
    for _ in range(keys):
        name = reader.text(MAX_KEY_BYTES)
        if name is None:
            raise _bad(f"a key is longer than {MAX_KEY_BYTES} bytes")
        _value(reader, header, name)
    for _ in range(tensors):
        name = reader.text(MAX_KEY_BYTES)
        dimensions = int(reader.number("I"))
        if name is None or dimensions > MAX_DIMENSIONS:
            raise _bad(
                f"a tensor's name is too long, or it has more than {MAX_DIMENSIONS} dimensions"
            )
        dims = tuple(reader.count(1 << 40, "rows in a tensor") for _ in range(dimensions))
        header.tensors[name] = (dims, int(reader.number("I")))
        reader.take(8)
    return header


def _value(reader: _Reader, header: Header, name: str) -> None:
    kind = int(reader.number("I"))
    if kind in _SCALARS:
        value = reader.number(_SCALARS[kind])
        if not isinstance(value, float) or math.isfinite(value):
            header.values[name] = value
    elif kind == _STRING:
        text = reader.text(MAX_TEXT_BYTES)
        if text is not None:
            header.values[name] = text
    elif kind == _ARRAY:
        _array(reader, header, name)
    else:
        raise _bad(f"the key {name[:60]!r} has the unknown type {kind}")


def _array(reader: _Reader, header: Header, name: str) -> None:
    kind = int(reader.number("I"))
    n = reader.count(MAX_ITEMS, f"items in {name[:60]!r}")
    header.lengths[name] = n
    if kind == _STRING:
        reader.skip_texts(n)
        return
    if kind not in _SCALARS:
        raise _bad(f"the key {name[:60]!r} is an array of arrays or of an unknown type")
    code = _SCALARS[kind]
    raw = reader.take(n * struct.calcsize("<" + code))
    if n <= MAX_KEPT_ITEMS and code not in "fd":
        header.values[name] = [int(v) for v in struct.unpack(f"<{n}{code}", raw)]


def _bad(why: str) -> WhyboundError:
    return WhyboundError(f"GGUF header: {why}; take the model's original file")
