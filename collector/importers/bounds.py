"""How much of a file is read at most: bytes after decompression, JSON's size and depth."""

from __future__ import annotations

import io
import json
import lzma
import zipfile
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO

import msgspec
import numpy as np

from ...errors import WhyboundError

MAX_INFLATED_BYTES = 8 << 30
"""Of one compressed file, or of all members of an archive together."""
MAX_INFLATION = 200
"""Inflated over compressed bytes; logs reach some 50."""
FREE_INFLATED_BYTES = 64 << 20
"""Up to here any ratio is fine: it fits memory, and short repetitive files inflate a lot."""
MAX_JSON_BYTES = 512 << 20
MAX_JSON_DEPTH = 200

_QUOTE = ord('"')
_STEPS = np.zeros(256, dtype=np.int8)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1
_MARKS = _STEPS != 0
_MARKS[_QUOTE] = True
_PIECE = 1 << 20


class BoundedReader(io.RawIOBase):
    """A stream that ends in one clear line rather than in all of memory, disk or time.

    What a decompressor cannot go on with becomes a WhyboundError too: what came before it was handed over.
    """

    def __init__(
        self, stream: BinaryIO, where: str, packed_bytes: int | None, seen: Callable[[int], None]
    ) -> None:
        """Prepare.

        Args:
            stream: what is read; closed together with this.
            where: names the file in messages.
            packed_bytes: its compressed size; None for a file that is not compressed.
            seen: is told how many more bytes were read.
        """
        self._stream, self._where, self._packed, self._seen = stream, where, packed_bytes, seen
        self._read = 0
        self._pending: WhyboundError | None = None
        # what a decompressor has is taken as it comes: asked for more it would lose it at a broken place
        self._take: Callable[[int], bytes] = getattr(stream, "read1", stream.read)

    def settle(self) -> None:
        """Raise what ended the stream, once.

        Raises:
            WhyboundError: the stream ended early, and nobody was told.
        """
        if self._pending is not None:
            error, self._pending = self._pending, None
            raise error

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """As `io.RawIOBase.readinto`; a fault ends the stream, and is raised when more is asked for.

        Raises:
            WhyboundError: over a bound, or the compressed data is broken or cut off.
        """
        self.settle()
        try:
            data = self._take(len(buffer))
            self._read += len(data)
            if self._packed is not None:
                check_inflation(self._read, self._packed, self._where)
        except WhyboundError as error:
            self._pending = error
            return 0
        except EOFError:
            self._pending = WhyboundError(
                f"{self._where} is cut off: its compressed data ends in the middle"
            )
            return 0
        except (OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, ValueError) as error:
            said = getattr(error, "strerror", None) or str(error).partition("\n")[0]
            self._pending = WhyboundError(f"{self._where} is broken: {said}")
            return 0
        buffer[: len(data)] = data
        self._seen(len(data))
        return len(data)

    def close(self) -> None:
        """Close the stream too."""
        if not self.closed:
            self._stream.close()
        super().close()


def check_inflation(inflated: int, packed: int, where: str) -> None:
    """Refuse what inflates too much.

    Raises:
        WhyboundError: over `MAX_INFLATED_BYTES`, or over `MAX_INFLATION` times beyond `FREE_INFLATED_BYTES`.
    """
    if inflated > MAX_INFLATED_BYTES:
        raise WhyboundError(
            f"{where} inflates to over {MAX_INFLATED_BYTES >> 30} GB; unpack it and give what is needed"
        )
    if inflated > max(FREE_INFLATED_BYTES, MAX_INFLATION * packed):
        raise WhyboundError(
            f"{where} inflates over {MAX_INFLATION} times, as a bomb does; unpack it if it is sound"
        )


def read_json(stream: BinaryIO, where: str, encoding: str) -> Any:
    """All of a stream as JSON; NaN and Infinity, which Python writes, are numbers here.

    Args:
        stream: the bytes.
        where: names the file in messages.
        encoding: as Python names it.

    Raises:
        WhyboundError: more than `MAX_JSON_BYTES`, deeper than `MAX_JSON_DEPTH`, or not JSON.
    """
    data = stream.read(MAX_JSON_BYTES + 1)
    if len(data) > MAX_JSON_BYTES:
        raise WhyboundError(
            f"{where} is JSON of over {MAX_JSON_BYTES >> 20} MB; give a smaller part"
        )
    if encoding not in ("utf-8", "ascii"):
        data = data.decode(encoding, "replace").encode("utf-8", "replace")
    return parse_json(data.removeprefix(b"\xef\xbb\xbf"), where)


def parse_json(data: bytes, where: str) -> Any:
    """As `read_json`, of bytes in UTF-8."""
    if json_depth(data) > MAX_JSON_DEPTH:
        raise WhyboundError(f"{where} is JSON nested deeper than {MAX_JSON_DEPTH}; it is not read")
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass  # NaN, Infinity and broken characters: the slower parser takes them
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except json.JSONDecodeError as error:
        cut = error.pos >= len(data.rstrip()) - 1 or error.msg.startswith("Unterminated")
        said = "ends in the middle; was it cut off?" if cut and data.strip() else error.msg
        raise WhyboundError(f"{where} is not JSON: line {error.lineno}: {said}") from error
    except (RecursionError, ValueError) as error:
        raise WhyboundError(f"{where} is not JSON: {str(error).splitlines()[0]}") from error


def json_depth(data: bytes) -> int:
    """How deep brackets nest in JSON, those inside strings left out; of broken JSON about so deep."""
    deepest = depth = quotes = at = 0
    while at < len(data):
        piece = data[at : at + _PIECE]
        if (
            len(piece) - len(piece.rstrip(b"\\"))
        ) % 2:  # its last backslash belongs to what follows
            piece = data[at : at + _PIECE + 1]
        at += len(piece)
        if b"\\" in piece:
            piece = piece.replace(b"\\\\", b"").replace(b'\\"', b"")
        read = np.frombuffer(piece, dtype=np.uint8)
        read = read[_MARKS[read]]
        inside = (np.cumsum(read == _QUOTE) + quotes) & 1
        sums = np.cumsum(np.where(inside, 0, _STEPS[read]), dtype=np.int64)
        if sums.size:
            deepest = max(deepest, depth + int(sums.max()))
            depth += int(sums[-1])
            quotes = int(inside[-1])
    return deepest
