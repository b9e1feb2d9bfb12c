"""The recorder's end of a run: rows in from any thread, one log out."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from ..errors import WhyboundError
from . import manifest
from .compaction import last_sequence, seal_log
from .frames import FrameError, Row, build_batch
from .schema import TABLES
from .wal import LogWriter, node_folder, nodes_with_logs

MAX_FRAME_ROWS = 8192
"""Rows a frame: converting a column holds the interpreter for about a millisecond, not more."""

_DROPS_RECORDED_EVERY_S = 5.0
_NAMES = {name: frozenset(table.column_names()) for name, table in TABLES.items()}


class RunWriter:
    """Records the rows of one node; every method may be called from any thread.

    A background thread turns rows into frames every half `fsync_interval_s` (so a kill loses no row
    older than the interval, unless the disk stalls for as long) and syncs them every interval.
    Disk trouble never raises: the writer stops, says why in `error`, and counts what comes after as
    dropped.

    Attributes:
        dropped: rows lost, by table: over the bound, after an error or the close, or with a value
            that does not fit its column.
        error: what stopped the writer, in one line; None while all is well.
        rejected: why the first unfit row was dropped; None when none was.
    """

    def __init__(
        self,
        run_dir: Path,
        node: str,
        *,
        fsync_interval_s: float = 0.5,
        rotate_bytes: int = 64 << 20,
        rotate_s: float = 60.0,
        max_pending_rows: int = 200_000,
    ) -> None:
        """Start recording; a log that is already there is continued, never changed.

        Args:
            run_dir: a run made by `create_run`.
            node: the host, as it stands in file names.
            fsync_interval_s: seconds between syncs, at most one each.
            rotate_bytes: bytes after which a segment ends.
            rotate_s: seconds after which a segment ends.
            max_pending_rows: rows held in memory; what comes over it is dropped and counted.

        Raises:
            ValueError: `node` cannot be part of a file name.
            WhyboundError: no such folder, it cannot be written, or another recorder writes for this
                node.
        """
        if not node or node.startswith(".") or "/" in node or not node.isprintable():
            raise ValueError(f"node {node!r} cannot be part of a file name")
        self.run_dir = run_dir
        self.node = node
        self.dropped: dict[str, int] = {}
        self.error: str | None = None
        self.rejected: str | None = None
        self._max_pending = max_pending_rows
        self._interval_s = fsync_interval_s
        self._wake = threading.Condition()
        self._pending: list[tuple[str, list[Row]]] = []
        self._pending_rows = 0
        self._flush_asked = self._flush_done = 0
        self._closing = False
        self._finishing = threading.Lock()
        self._finished = False
        self._lock_fd = _lock_node(run_dir, node)
        try:
            earlier = (manifest.read_manifest(run_dir) or {}).get("losses", {}).get(node, {})
            self._dropped_before = Counter(earlier.get("dropped", {}))
            self._drops_recorded: dict[str, int] = {}
            self._drops_recorded_s = time.monotonic()
            self._log = LogWriter(
                node_folder(run_dir, node),
                last_sequence(run_dir, node) + 1,
                rotate_bytes=rotate_bytes,
                rotate_s=rotate_s,
            )
        except BaseException as error:
            os.close(self._lock_fd)
            if isinstance(error, OSError):
                raise WhyboundError(
                    f"cannot read {run_dir}: {error.strerror}; check the disk"
                ) from error
            raise
        self._thread = threading.Thread(target=self._record, name="whybound-writer", daemon=True)
        self._thread.start()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def append(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Take rows over; returns at once, the caller must not change them afterwards.

        Args:
            table: one of `TABLES`.
            rows: values by column; a column that a row does not name is null.

        Raises:
            ValueError: no such table or column; then no row was taken.
        """
        if table not in _NAMES:
            raise ValueError(f"unknown table {table!r}; there are {', '.join(_NAMES)}")
        unknown = set().union(*rows) - _NAMES[table]
        if unknown:
            raise ValueError(f"unknown column {min(unknown, key=str)!r} in table {table!r}")
        with self._wake:
            stopped = self.error is not None or self._closing
            room = 0 if stopped else max(0, self._max_pending - self._pending_rows)
            taken = list(rows[:room])
            self._count_dropped(table, len(rows) - len(taken))
            if taken:
                self._pending.append((table, taken))
                self._pending_rows += len(taken)
            if self._pending_rows > self._max_pending // 2:
                self._wake.notify_all()

    def update_manifest(self, **fields: Any) -> None:
        """Merge fields into the manifest: objects key by key, all else replaced. Waits on the disk.

        Disk trouble does not raise: it is remembered in `error`.

        Raises:
            TypeError, ValueError: a field is not JSON (NaN is not).
            WhyboundError: the manifest that is there cannot be read.
        """
        try:
            manifest.update_manifest(self.run_dir, fields)
        except OSError as error:
            self._fail(error)

    def flush(self) -> None:
        """Wait until all rows so far are on the disk, or the writer has stopped (see `error`)."""
        with self._wake:
            self._flush_asked += 1
            asked = self._flush_asked
            self._wake.notify_all()
            self._wake.wait_for(lambda: self._flush_done >= asked or not self._thread.is_alive())

    def close(self) -> None:
        """Flush, compact and finish; calling it again does nothing.

        The manifest then says `state: finished`, once no node of the run has a log left. After an
        error the logs stay as they are and the state is `incomplete`, if the disk takes that.
        """
        with self._finishing:
            if self._finished:
                return
            with self._wake:
                self._closing = True
                self._wake.notify_all()
            self._thread.join()
            try:
                self._log.close()
                if self.error is None:
                    seal_log(self.run_dir, self.node)
            except (OSError, WhyboundError, pa.ArrowException) as error:
                self._fail(error)
            finally:
                self._record_end()
                os.close(self._lock_fd)
                self._finished = True

    # ------------------------------------------------------------ the background thread

    def _record(self) -> None:
        tick_s = self._interval_s / 2
        drained_s = synced_s = time.monotonic()
        while True:
            with self._wake:
                due_s = max(0.0, drained_s + tick_s - time.monotonic())
                self._wake.wait_for(self._is_urgent, timeout=due_s)
                taken, self._pending = self._pending, []
                asked, closing = self._flush_asked, self._closing
                flushing = closing or asked > self._flush_done
            drained_s = time.monotonic()
            self._write(taken)
            # a hair early rather than a whole tick late
            if flushing or drained_s - synced_s >= 0.9 * self._interval_s:
                synced_s = drained_s
                self._sync()
            self._record_drops()
            with self._wake:
                self._pending_rows -= sum(len(rows) for _, rows in taken)
                if flushing:
                    self._flush_done = asked
                self._wake.notify_all()
                if closing:
                    return

    def _is_urgent(self) -> bool:
        held = sum(len(rows) for _, rows in self._pending)
        return (
            self._closing or self._flush_asked > self._flush_done or held > self._max_pending // 2
        )

    def _write(self, taken: Sequence[tuple[str, list[Row]]]) -> None:
        by_table: dict[str, list[Row]] = {}
        for table, rows in taken:
            by_table.setdefault(table, []).extend(rows)
        for table, rows in by_table.items():
            for start in range(0, len(rows), MAX_FRAME_ROWS):
                self._write_frame(table, rows[start : start + MAX_FRAME_ROWS])

    def _write_frame(self, table: str, rows: Sequence[Row]) -> None:
        if self.error is not None:
            self._drop(table, len(rows))
            return
        try:
            self._log.write(table, build_batch(table, rows))
        except OSError as error:
            self._drop(table, len(rows))
            self._fail(error)
        except (FrameError, pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            if len(rows) > 1:  # find the unfit row, keep the others
                self._write_frame(table, rows[: len(rows) // 2])
                self._write_frame(table, rows[len(rows) // 2 :])
                return
            self._drop(table, 1)
            self.rejected = self.rejected or f"a row of {table}: {error}".splitlines()[0]
        except (
            Exception
        ) as error:  # an unforeseen fault must stop the writer loudly, not its thread
            self._drop(table, len(rows))
            self._fail(error)

    def _sync(self) -> None:
        if self.error is None:
            try:
                self._log.sync()
            except OSError as error:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        reason = (error.strerror if isinstance(error, OSError) else None) or repr(error)
        if isinstance(error, WhyboundError):
            reason = str(error)
        with self._wake:
            self.error = self.error or f"recording to {self.run_dir} stopped: {reason}"

    def _drop(self, table: str, rows: int) -> None:
        with self._wake:
            self._count_dropped(table, rows)

    def _count_dropped(self, table: str, rows: int) -> None:
        if rows:
            self.dropped[table] = self.dropped.get(table, 0) + rows

    # ------------------------------------------------------------ what the manifest says of losses

    def _losses(self) -> dict[str, Any]:
        with self._wake:
            dropped = dict(Counter(self.dropped) + self._dropped_before)
        return {self.node: {"dropped": dropped, "error": self.error, "rejected": self.rejected}}

    def _record_drops(self) -> None:
        """Now and then, so that even a killed run shows what it dropped."""
        now_s = time.monotonic()
        if (
            self.dropped == self._drops_recorded
            or now_s - self._drops_recorded_s < _DROPS_RECORDED_EVERY_S
        ):
            return
        self._drops_recorded_s = now_s
        losses = self._losses()
        with suppress(OSError, WhyboundError):
            manifest.update_manifest(self.run_dir, {"losses": losses})
            self._drops_recorded = losses[self.node]["dropped"]

    def _record_end(self) -> None:
        fields: dict[str, Any] = {"losses": self._losses()}
        if self.error is not None:
            fields["state"] = "incomplete"
        elif not nodes_with_logs(self.run_dir):
            fields["state"] = "finished"
        try:
            manifest.update_manifest(self.run_dir, fields)
        except (OSError, WhyboundError) as error:
            self._fail(error)


def _lock_node(run_dir: Path, node: str) -> int:
    if not run_dir.is_dir():
        raise WhyboundError(f"{run_dir} is not a folder; create the run first")
    folder = node_folder(run_dir, node)
    try:
        manifest.make_folder(folder)
        fd = manifest.try_lock(folder)
    except OSError as error:
        raise WhyboundError(
            f"cannot record to {folder}: {error.strerror}; name a folder that can be written"
        ) from error
    if fd is None:
        raise WhyboundError(f"another recorder writes to {folder}; stop it, or name another folder")
    return fd
