"""Tails a server's log while it grows, and hands on what its lines say."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from ..engine_log import LogReader
from .ticks import ticks

Row = dict[str, Any]
Sink = Callable[[str, list[Row]], None]

PIECE_BYTES = 256 << 10
BURST_S = 2.0
"""A pause of the log saves up this much of its allowance."""
MAX_CPU_SHARE = 0.25
"""Of one core, while the log floods."""
SETTLE_NS = 1_500_000_000
"""Stamps are whole seconds, so an event's second is over this much after it at the latest."""


class LogSource:
    """Rows from one log file, for as long as a run lasts.

    A file that is not there yet, is truncated, or is replaced by another of its name (rotation) is
    followed. What a flood writes over the allowance of bytes or of CPU time is skipped and counted;
    the newest is read. Memory is bounded by one piece and the longest line.
    """

    def __init__(
        self,
        *,
        path: Path,
        node: str,
        replica: str,
        engine: str,
        sink: Sink,
        interval_s: float = 0.5,
        max_bytes_per_s: int = 8 << 20,
        start: int = 0,
    ) -> None:
        """Prepare; nothing is opened before `run`.

        Args:
            path: the log; need not exist yet.
            node: host that records.
            replica: engine instance, e.g. host:port; may be set later, see `replica`.
            engine: kind of the engine; "" lets the log tell.
            sink: takes the name of a table and rows for it; called from a worker thread.
            interval_s: seconds between looks at the file, above 0.
            max_bytes_per_s: more is skipped.
            start: byte offset at which this run's part of the file begins.
        """
        self._path, self._sink, self._interval_s = path, sink, interval_s
        self._reader = LogReader(engine or None, node=node, replica=replica)
        self._rate = max_bytes_per_s
        self._allowed = float(max_bytes_per_s * BURST_S)
        self._looked_s: float | None = None
        self._file: IO[bytes] | None = None
        self._offset = start
        self._first = True
        self._counts: Counter[str] = Counter()
        self._rows: Counter[str] = Counter()
        self._cost_s = 0.0
        self._last_error: str | None = None

    @property
    def replica(self) -> str:
        """Engine instance that rows name; set it when it becomes known."""
        return self._reader.replica

    @replica.setter
    def replica(self, replica: str) -> None:
        self._reader.replica = replica

    async def run(self, stop: asyncio.Event) -> None:
        """Look at once, then at the interval, and once more when `stop` is set; never raises."""
        async for _ in ticks(stop, self._interval_s):
            last = stop.is_set()
            try:
                if last or self._grown():
                    await asyncio.to_thread(self._look, last=last)
                else:
                    self._emit(self._reader.expire(time.time_ns() - SETTLE_NS))
            except Exception as error:
                # The end of the line on purpose: a collector must not take the run down with it.
                self._last_error = f"{type(error).__name__}: {error}"
        if self._file is not None:
            self._file.close()

    def report(self) -> dict[str, Any]:
        """What was read and what was not.

        Keys: `path`, `engine` (None when no line told), `bytes_count`, `skipped_bytes`,
        `rotations_count`, `truncations_count`, `rows` (by table), `cost_s` (our own CPU seconds),
        `last_error`, and those of `LogReader.counts` as `<name>_count`.
        """
        names = ("rotations_count", "truncations_count")
        return {
            "path": str(self._path),
            "engine": self._reader.engine,
            "bytes_count": self._counts["bytes"],
            "skipped_bytes": self._counts["skipped"],
            **{name: self._counts[name] for name in names},
            **{f"{name}_count": n for name, n in self._reader.counts().items()},
            "rows": dict(self._rows),
            "cost_s": self._cost_s,
            "last_error": self._last_error,
        }

    def _grown(self) -> bool:
        """Is there anything to do? One system call, so that an idle log costs nothing."""
        try:
            now = os.stat(self._path)
        except FileNotFoundError:
            return False
        if self._file is None:
            return True
        open_now = os.fstat(self._file.fileno())
        return now.st_size != self._offset or not os.path.samestat(now, open_now)

    def _look(self, *, last: bool) -> None:
        began_s = time.thread_time()
        now_s = time.monotonic()
        passed_s = BURST_S if self._looked_s is None else now_s - self._looked_s
        self._looked_s = now_s
        self._allowed = min(self._rate * BURST_S, self._allowed + self._rate * passed_s)
        until_s = began_s + MAX_CPU_SHARE * max(passed_s, self._interval_s)
        try:
            while self._follow() and self._read(until_s):
                pass
            if last:
                self._emit(self._reader.finish(t_ns=time.time_ns()))
            else:
                self._emit(self._reader.expire(time.time_ns() - SETTLE_NS))
        finally:
            self._cost_s += time.thread_time() - began_s

    def _follow(self) -> bool:
        """Have the right file open at the right place. Is there something to read in it?"""
        if self._file is None:
            try:
                self._file = self._path.open("rb", buffering=0)
            except FileNotFoundError:
                return False
            if not self._first:
                self._offset = 0
            self._first = False
        size = os.fstat(self._file.fileno()).st_size
        if size < self._offset:
            self._counts["truncations_count"] += 1
            self._offset = 0
            self._reader.gap()
        if size > self._offset:
            return True
        try:
            replaced = not os.path.samestat(os.stat(self._path), os.fstat(self._file.fileno()))
        except FileNotFoundError:
            return (
                False  # moved away; the server may go on writing to it until the new one is there
            )
        if not replaced:
            return False
        self._counts["rotations_count"] += 1
        self._emit(self._reader.finish(t_ns=time.time_ns()))
        self._file.close()
        self._file = None
        return self._follow()

    def _read(self, until_s: float) -> bool:
        """Read to the end of the open file, or skip to it; False where an allowance is used up."""
        assert self._file is not None
        end = os.fstat(self._file.fileno()).st_size
        over = end - self._offset - int(self._allowed)
        if over > 0:
            self._skip(over)
        self._file.seek(self._offset)
        while self._offset < end:
            if time.thread_time() > until_s:
                self._skip(end - self._offset)
                return False
            data = self._file.read(min(PIECE_BYTES, end - self._offset))
            if not data:  # truncated just now
                return False
            self._offset += len(data)
            self._allowed -= len(data)
            self._counts["bytes"] += len(data)
            self._emit(self._reader.feed_bytes(data, t_ns=time.time_ns()))
        return over <= 0

    def _skip(self, count: int) -> None:
        """Leave out `count` bytes; where they end within a line, the rest of it is dropped too."""
        assert self._file is not None
        self._offset += count
        self._counts["skipped"] += count
        self._file.seek(self._offset - 1)
        self._reader.gap(mid_line=self._file.read(1) != b"\n")

    def _emit(self, rows: list[tuple[str, Row]]) -> None:
        by_table: dict[str, list[Row]] = {}
        for table, row in rows:
            by_table.setdefault(table, []).append(row)
        for table, batch in by_table.items():
            self._rows[table] += len(batch)
            self._sink(table, batch)
