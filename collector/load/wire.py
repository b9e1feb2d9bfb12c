"""Messages between the parent and its workers: length-prefixed msgpack over pipes."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec


class Job(msgspec.Struct, tag=True, frozen=True):
    """Parent to worker, first: everything it needs.

    `epoch_offset_ns` is wall minus monotonic time, taken once by the parent, so that all rows of a
    run share one clock.
    """

    spec: dict[str, Any]
    url: str
    address: str
    model: str
    run_id: str
    salt: str
    node: str
    worker: int
    workers: int
    epoch_offset_ns: int


class Go(msgspec.Struct, tag=True, frozen=True):
    """Parent to worker: start at this monotonic time, which all processes of a machine share."""

    start_ns: int


class Stop(msgspec.Struct, tag=True, frozen=True):
    """Parent to worker: send nothing more, wait for what is in flight, end."""


class Hello(msgspec.Struct, tag=True, frozen=True):
    """Worker to parent: ready to go; `realtime` is why real-time priority failed, or None."""

    realtime_error: str | None


class Rows(msgspec.Struct, tag=True, frozen=True):
    """Worker to parent: rows of a table of the schema."""

    table: str
    rows: list[dict[str, Any]]


class Done(msgspec.Struct, tag=True, frozen=True):
    """Worker to parent: nothing more will come."""


Message = Job | Go | Stop | Hello | Rows | Done

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode


def frame(message: Message) -> bytes:
    """One message as bytes: its length (4 bytes, big-endian), then msgpack."""
    data = _encode(message)
    return len(data).to_bytes(4, "big") + data


async def read_message(reader: asyncio.StreamReader) -> Message | None:
    """The next message; None when the other side has closed the pipe."""
    try:
        size = int.from_bytes(await reader.readexactly(4), "big")
        return _decode(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
