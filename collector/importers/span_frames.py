"""How exports of spans lie in a protobuf file: one plain, or several behind their lengths. Pure."""

from __future__ import annotations

from collections.abc import Callable

MAX_MESSAGE_BYTES = 256 << 20

Length = Callable[[bytes, int], tuple[int, int] | None]
"""Reads a length at a place: where its message begins and ends."""


def messages(data: bytes) -> list[bytes]:
    """One export, or several with their lengths before them; a last one that is cut off stays out."""
    read = delimited(data)
    if read is None:
        return [data]
    found_all: list[bytes] = []
    at = 0
    while at < len(data):
        found = read(data, at)
        if found is None or found[1] > len(data):
            found_all.append(data[at:])  # not whole: told by who reads it
            break
        found_all.append(data[found[0] : found[1]])
        at = found[1]
    return found_all


def delimited(data: bytes) -> Length | None:
    """How lengths are written before messages: a varint or four bytes; None when there are none.

    A plain export begins with field 1 too, so its inside is looked at: behind a length a message begins
    with field 1, whose own length must fit inside.
    """
    for read in (_fixed_length, _varint_length):
        found = read(data, 0)
        if found is None or data[found[0] : found[0] + 1] != b"\n":
            continue
        inner = _varint_length(data, found[0] + 1)
        if inner is not None and inner[1] <= found[1] and _resource_inside(data, inner[0]):
            return read
    return None


def _resource_inside(data: bytes, at: int) -> bool:
    """Does ResourceSpans begin here: a resource (field 1) or scope spans (field 2)?"""
    return data[at : at + 1] in (b"\n", b"\x12")


def _fixed_length(data: bytes, at: int) -> tuple[int, int] | None:
    if len(data) < at + 4 or data[at : at + 1] == b"\n":  # field 1: no length, but the message
        return None
    length = int.from_bytes(data[at : at + 4], "big")
    return (at + 4, at + 4 + length) if 0 < length <= MAX_MESSAGE_BYTES else None


def _varint_length(data: bytes, at: int) -> tuple[int, int] | None:
    length = shift = 0
    for i in range(at, min(at + 5, len(data))):
        length |= (data[i] & 0x7F) << shift
        shift += 7
        if data[i] < 0x80:
            return (i + 1, i + 1 + length) if 0 < length <= MAX_MESSAGE_BYTES else None
    return None
