"""One frame of the write-ahead log: rows to Arrow to bytes, and back.

A frame is `length | crc32 | sequence | raw size | table | Arrow IPC batch`, little-endian:

    u32 length    bytes after the checksum
    u32 crc32     zlib.crc32 over the length and all that follows the checksum
    u64 sequence  grows by one a frame, over all tables of a node
    u32 raw size  bytes of the Arrow stream before compression
    u8  n, n bytes of table name
    the Arrow IPC stream of one batch, zstd-compressed

Each frame carries its own schema and dictionaries, so that losing one costs no other; columns that
are null throughout are left out. Compressing the stream as a whole (not its buffers) is what makes
that affordable: the schema is most of a small frame.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from .schema import TABLES, arrow_schema

MAX_FRAME_BYTES = 64 << 20
"""A longer frame, or Arrow stream inside it, is never written, and refused when read."""

HEAD = struct.Struct("<II")
_BODY = struct.Struct("<QIB")
_INT64 = pa.int64()
_CODEC = pa.Codec("zstd", compression_level=1)

Row = Mapping[str, Any]


class FrameError(ValueError):
    """The bytes are not a frame, or the rows do not fit into one."""


@dataclass(frozen=True)
class Frame:
    """One frame whose checksum held; `payload` is the compressed stream of `raw_bytes` bytes."""

    sequence: int
    table: str
    raw_bytes: int
    payload: memoryview


def build_batch(table: str, rows: Sequence[Row]) -> pa.RecordBatch:
    """Columns from rows; a missing key is null, a column without any value is left out.

    Raises:
        pa.ArrowException, TypeError, ValueError, OverflowError: a value does not fit its column.
    """
    fields, columns = [], []
    for field in arrow_schema(table):
        name = field.name
        values = [row.get(name) for row in rows]
        if field.type == _INT64:
            _refuse_fractions(name, values)
        column = pa.array(values, type=field.type)
        if column.null_count < len(column):
            fields.append(field)
            columns.append(column)
    if not columns:  # the number of rows must survive
        fields = [arrow_schema(table).field(0)]
        columns = [pa.nulls(len(rows), fields[0].type)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _refuse_fractions(column: str, values: Sequence[Any]) -> None:
    """Arrow would cut 1.5 to 1 without a word."""
    if set(map(type, values)) <= {int, type(None)}:
        return
    for value in values:
        if value is not None and int(value) != value:
            raise ValueError(f"{value!r} in column {column} is not a whole number")


def encode_frame(sequence: int, table: str, batch: pa.RecordBatch) -> bytes:
    """The bytes of one frame.

    Raises:
        FrameError: the batch takes more than `MAX_FRAME_BYTES`.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    raw = sink.getvalue()
    name = table.encode()
    payload = _CODEC.compress(raw, asbytes=True)
    body = _BODY.pack(sequence, min(raw.size, 2**32 - 1), len(name)) + name + payload
    if max(raw.size, len(body)) > MAX_FRAME_BYTES:
        raise FrameError(f"{batch.num_rows} rows of {table} take {raw.size} bytes in one frame")
    length = struct.pack("<I", len(body))
    checksum = struct.pack("<I", zlib.crc32(body, zlib.crc32(length)))
    return b"".join((length, checksum, body))


def is_possible_length(length: int) -> bool:
    """Could a frame have a body of `length` bytes? Zeros (a lost page) and absurd ones: no."""
    return _BODY.size < length <= MAX_FRAME_BYTES


def parse_frame(head: bytes, body: bytes) -> Frame:
    """Check one frame.

    Args:
        head: its first `HEAD.size` bytes.
        body: the `length` bytes after them.

    Raises:
        FrameError: the checksum, or what it protects, is wrong.
    """
    length, checksum = HEAD.unpack(head)
    if length != len(body) or zlib.crc32(body, zlib.crc32(head[:4])) != checksum:
        raise FrameError("the checksum of a frame does not match")
    sequence, raw_bytes, name_bytes = _BODY.unpack_from(body)
    start = _BODY.size + name_bytes
    name = bytes(body[_BODY.size : start])
    if start > length or raw_bytes > MAX_FRAME_BYTES or not name.isascii():
        raise FrameError("a frame contradicts itself")
    return Frame(sequence, name.decode("ascii"), raw_bytes, memoryview(body)[start:])


def decode_batch(frame: Frame) -> pa.RecordBatch:
    """The rows of a frame in today's schema of its table.

    Columns that the frame lacks are null; those that the schema no longer has are left out.

    Raises:
        FrameError: no such table, or the payload is not an Arrow stream of one batch.
    """
    if frame.table not in TABLES:
        raise FrameError(f"unknown table {frame.table!r}")
    schema = arrow_schema(frame.table)
    try:
        raw = _CODEC.decompress(pa.py_buffer(frame.payload), decompressed_size=frame.raw_bytes)
        with pa.ipc.open_stream(raw) as stream:
            batch = stream.read_next_batch()
        batch.validate(full=True)
        names = set(batch.schema.names)
        columns = [
            batch.column(field.name).cast(field.type)
            if field.name in names
            else pa.nulls(batch.num_rows, field.type)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    except (pa.ArrowException, OSError, StopIteration, ValueError, TypeError, KeyError) as error:
        raise FrameError(f"a frame of {frame.table} cannot be decoded: {error}") from error
