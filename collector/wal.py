"""The write-ahead log of one node: segments of frames, for all tables, in one order.

A segment is a file named by the sequence of its first frame. Reading is prefix-closed: it stops at
the first torn or corrupt frame of a segment, counts what it skipped, and goes on with the next.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from .frames import HEAD, Frame, FrameError, encode_frame, is_possible_length, parse_frame
from .manifest import fsync_folder


@dataclass
class SegmentLoss:
    """What one segment could not give. `skipped_bytes` reach from the first bad frame to its end.

    A torn frame ends where the file ends: what a kill leaves. A corrupt one was changed.
    """

    torn_frames: int = 0
    corrupt_frames: int = 0
    skipped_bytes: int = 0


Losses = dict[str, SegmentLoss]
"""Losses by the name of the segment; one that lost nothing is not there."""


def node_folder(run_dir: Path, node: str) -> Path:
    """Where the log of a node lies."""
    return run_dir / "wal" / f"node={node}"


def nodes_with_logs(run_dir: Path) -> list[str]:
    """The nodes that still have a log, sorted; empty after a clean stop."""
    return sorted(p.name.removeprefix("node=") for p in run_dir.glob("wal/node=*") if p.is_dir())


def list_segments(folder: Path) -> list[Path]:
    """The segments of a node in the order of their sequences; empty without such a folder."""
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if p.name.isdecimal()), key=lambda p: int(p.name))


def read_segment(path: Path, losses: Losses) -> Iterator[Frame]:
    """The frames of one segment up to the first bad one, which is counted in `losses`.

    Raises:
        OSError: the file cannot be read; bad bytes never raise.
    """
    with path.open("rb") as file:
        good = 0
        loss = SegmentLoss()
        while head := file.read(HEAD.size):
            length = HEAD.unpack(head)[0] if len(head) == HEAD.size else 0
            if len(head) == HEAD.size and not is_possible_length(length):
                loss.corrupt_frames = 1
                break
            body = file.read(length)
            if len(head) < HEAD.size or len(body) < length:
                loss.torn_frames = 1
                break
            try:
                frame = parse_frame(head, body)
            except FrameError:
                loss.corrupt_frames = 1
                break
            good += HEAD.size + length
            yield frame
        if loss.torn_frames or loss.corrupt_frames:
            loss.skipped_bytes = max(0, os.fstat(file.fileno()).st_size - good)
            losses[path.name] = loss


def read_log(segments: Iterable[Path], losses: Losses) -> Iterator[Frame]:
    """The frames of a node in order; a sequence that does not grow (a copied segment) is corrupt.

    Raises:
        OSError: a segment cannot be read.
    """
    last = -1
    for path in segments:
        for frame in read_segment(path, losses):
            if frame.sequence <= last:
                losses.setdefault(path.name, SegmentLoss()).corrupt_frames += 1
                continue
            last = frame.sequence
            yield frame


class LogWriter:
    """Appends frames to the newest segment of a node; not thread-safe.

    A segment is opened by its first frame, never reopened: an older one may end in a torn frame.
    """

    def __init__(
        self, folder: Path, next_sequence: int, *, rotate_bytes: int, rotate_s: float
    ) -> None:
        self.next_sequence = next_sequence
        self._folder = folder
        self._rotate_bytes = rotate_bytes
        self._rotate_s = rotate_s
        self._fd: int | None = None
        self._bytes = 0
        self._opened_s = 0.0
        self._dirty = False

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        """Append one batch; it is safe from a kill now, from a power loss after `sync`.

        Raises:
            FrameError: the batch is too large for a frame; nothing was written.
            OSError: the disk refused; the torn frame was cut off where that was possible.
        """
        frame = encode_frame(self.next_sequence, table, batch)
        if self._is_full():
            self.close()
        fd = self._fd if self._fd is not None else self._open()
        try:
            rest = memoryview(frame)
            while rest:
                rest = rest[os.write(fd, rest) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(fd, self._bytes)
            raise
        self._bytes += len(frame)
        self._dirty = True
        self.next_sequence += 1

    def sync(self) -> None:
        """Make all that was written safe from a power loss.

        Raises:
            OSError: the disk refused.
        """
        if self._dirty and self._fd is not None:
            os.fsync(self._fd)
            self._dirty = False

    def close(self) -> None:
        """Sync and end the segment; the next write opens another.

        Raises:
            OSError: the disk refused; the file is closed nevertheless.
        """
        if self._fd is None:
            return
        try:
            self.sync()
        finally:
            os.close(self._fd)
            self._fd = None

    def _is_full(self) -> bool:
        if self._fd is None:
            return False
        age_s = time.monotonic() - self._opened_s
        return self._bytes >= self._rotate_bytes or age_s >= self._rotate_s

    def _open(self) -> int:
        path = self._folder / f"{self.next_sequence:012d}"
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(path, flags, 0o644)
        self._bytes = 0
        self._opened_s = time.monotonic()
        fsync_folder(self._folder)
        return self._fd
