"""Sealed parts: what compaction makes of a log, and how a reader knows which frames they cover.

A part is `tables/<table>/<node>-<first sequence>.parquet`. Its footer names the sequences that it
covers, so a part and the log that it came from may both be there after a crash and no row counts
twice: frames of that table and node inside the range are skipped. A part exists whole or not at
all, because it is renamed into place after its bytes are on the disk; the log goes last.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import WhyboundError
from .frames import FrameError, decode_batch
from .manifest import fsync_folder, make_folder, read_manifest, try_lock, update_manifest
from .schema import TABLES, arrow_schema
from .wal import Losses, SegmentLoss, list_segments, node_folder, nodes_with_logs, read_log

SORTED_TABLES = frozenset({"samples", "histograms"})
"""Sorted by signal and time within each row group; the other tables keep the order of the log."""

_FIRST, _LAST = b"whybound.first_sequence", b"whybound.last_sequence"


@dataclass(frozen=True)
class Part:
    """One sealed file and the inclusive range of sequences of its node that it covers."""

    path: Path
    table: str
    node: str
    first_sequence: int
    last_sequence: int
    rows: int

    def covers(self, sequence: int) -> bool:
        """Are the rows of that frame (of this table and node) in this part?"""
        return self.first_sequence <= sequence <= self.last_sequence


def list_parts(run_dir: Path, table: str) -> tuple[list[Part], list[Path]]:
    """The sealed parts of a table by (node, sequence), and the files that are none.

    A file without a range (not made from a log) covers nothing, and comes by its name.
    """
    parts, unreadable = [], []
    for path in (run_dir / "tables" / table).glob("[!.]*.parquet"):
        try:
            footer = pq.read_metadata(path)
            meta = footer.metadata or {}
            first, last = int(meta.get(_FIRST, b"0")), int(meta.get(_LAST, b"-1"))
        except (pa.ArrowException, OSError, ValueError):
            unreadable.append(path)
            continue
        node = path.stem.rpartition("-")[0]
        parts.append(Part(path, table, node, first, last, footer.num_rows))
    parts.sort(key=lambda p: (p.node, p.first_sequence, p.path.name))
    return parts, sorted(unreadable)


def node_parts(run_dir: Path, node: str) -> list[Part]:
    """All parts of one node, in the order of the tables."""
    return [part for table in TABLES for part in list_parts(run_dir, table)[0] if part.node == node]


def last_sequence(run_dir: Path, node: str) -> int:
    """The highest sequence that a node has used so far, in parts or log; 0 when none."""
    segments = list_segments(node_folder(run_dir, node))
    used = [0, *(part.last_sequence for part in node_parts(run_dir, node))]
    used += [int(path.name) for path in segments]
    used += [frame.sequence for frame in read_log(segments, {})]
    return max(used)


def compact(
    run_dir: Path, node: str, *, part_bytes: int = 256 << 20, buffer_bytes: int = 64 << 20
) -> None:
    """Turn the log of one node into sealed parts, and delete it. Doing it again changes nothing.

    Args:
        run_dir: the run.
        node: whose log.
        part_bytes: a part that has grown beyond this is sealed and another begun.
        buffer_bytes: Arrow bytes of one table held in memory, and so the size of a row group:
            `samples` are sorted within each; a table smaller than this is sorted throughout.

    Raises:
        WhyboundError: a recorder still writes to it, or the log holds a table that is unknown here.
        OSError: the disk refused. The log is still whole, nothing is lost or there twice.
    """
    folder = node_folder(run_dir, node)
    if not folder.is_dir():
        return
    lock = try_lock(folder)
    if lock is None:
        raise WhyboundError(f"a recorder still writes to {folder}; stop it first")
    try:
        seal_log(run_dir, node, part_bytes=part_bytes, buffer_bytes=buffer_bytes)
    finally:
        os.close(lock)


def seal_log(
    run_dir: Path, node: str, *, part_bytes: int = 256 << 20, buffer_bytes: int = 64 << 20
) -> None:
    """`compact` for a caller that holds the lock of the node's log."""
    read_manifest(run_dir)  # refuse a newer schema before anything is touched
    folder = node_folder(run_dir, node)
    segments = list_segments(folder)
    sealed = {table: _Sealer(run_dir, node, table, part_bytes, buffer_bytes) for table in TABLES}
    losses: Losses = {}
    try:
        for frame in read_log(segments, losses):
            if frame.table not in sealed:
                raise WhyboundError(
                    f"{folder} holds an unknown table {frame.table!r}; upgrade whybound"
                )
            sealer = sealed[frame.table]
            if any(part.covers(frame.sequence) for part in sealer.earlier):
                continue
            try:
                sealer.add(frame.sequence, decode_batch(frame))
            except FrameError:
                losses.setdefault("undecodable", SegmentLoss()).corrupt_frames += 1
        for sealer in sealed.values():
            sealer.seal()
    finally:
        for sealer in sealed.values():
            sealer.abandon()
    update_manifest(run_dir, _record(run_dir, node, losses))
    _delete_log(folder, segments)


def _record(run_dir: Path, node: str, losses: Losses) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "parts": {
            str(part.path.relative_to(run_dir)): {
                "table": part.table,
                "node": node,
                "first_sequence": part.first_sequence,
                "last_sequence": part.last_sequence,
                "rows": part.rows,
                "size_bytes": part.path.stat().st_size,
            }
            for part in node_parts(run_dir, node)
        }
    }
    if losses:  # by segment, so that recording them again after a crash adds nothing
        fields["losses"] = {node: {"log": {name: asdict(loss) for name, loss in losses.items()}}}
    return fields


def _delete_log(folder: Path, segments: Iterable[Path]) -> None:
    for path in segments:
        os.unlink(path)
    fsync_folder(folder)
    with suppress(OSError):  # something else lies in it; then it stays
        os.rmdir(folder)
        if not nodes_with_logs(folder.parent.parent):
            os.rmdir(folder.parent)


def sort_by_signal_and_time(table: pa.Table) -> pa.Table:
    """Stable order by signal, then `t_ns`; nulls last. `signal` is one dictionary-encoded chunk."""
    signal = table.column("signal").chunk(0)
    by_name = pc.sort_indices(signal.dictionary)
    rank = pc.sort_indices(by_name)  # the inverse: where each name stands
    keys = pa.table({"rank": rank.take(signal.indices), "t_ns": table.column("t_ns")})
    order = pc.sort_indices(keys, sort_keys=[("rank", "ascending"), ("t_ns", "ascending")])
    return table.take(order)


class _Sealer:
    """Writes the parts of one table: buffers batches, writes row groups, seals files."""

    def __init__(
        self, run_dir: Path, node: str, table: str, part_bytes: int, buffer_bytes: int
    ) -> None:
        self.earlier = [p for p in list_parts(run_dir, table)[0] if p.node == node]
        self._folder = run_dir / "tables" / table
        self._node = node
        self._table = table
        self._part_bytes = part_bytes
        self._buffer_bytes = buffer_bytes
        self._batches: list[pa.RecordBatch] = []
        self._buffered = 0
        self._file: BinaryIO | None = None
        self._parquet: Any = None
        self._first = self._last = 0

    def add(self, sequence: int, batch: pa.RecordBatch) -> None:
        if not self._batches and self._file is None:
            self._first = sequence
        self._last = sequence
        self._batches.append(batch)
        self._buffered += batch.nbytes
        if self._buffered >= self._buffer_bytes:
            self._write_row_group()
            assert self._file is not None
            if self._file.tell() >= self._part_bytes:
                self.seal()

    def seal(self) -> None:
        """Bring what was added into its place on the disk; nothing added, nothing made."""
        if self._batches:
            self._write_row_group()
        if self._file is None:
            return
        covers = {_FIRST: str(self._first).encode(), _LAST: str(self._last).encode()}
        self._parquet.add_key_value_metadata(covers)
        self._parquet.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.rename(self._temporary(), self._folder / f"{self._node}-{self._first:012d}.parquet")
        fsync_folder(self._folder)
        self._file = None

    def abandon(self) -> None:
        """Remove a part that was begun and not sealed."""
        if self._file is not None:
            with suppress(OSError, pa.ArrowException):
                self._parquet.close()
            with suppress(OSError):
                self._file.close()
            with suppress(OSError):
                os.unlink(self._temporary())
            self._file = None

    def _temporary(self) -> Path:
        return (
            self._folder / f".{self._node}.tmp"
        )  # one name a node: a crash's leftover is replaced

    def _write_row_group(self) -> None:
        if self._file is None:
            make_folder(self._folder)
            self._file = self._temporary().open("wb")
            schema = arrow_schema(self._table)
            self._parquet = pq.ParquetWriter(self._file, schema, compression="zstd")
        rows = pa.Table.from_batches(self._batches).unify_dictionaries().combine_chunks()
        if self._table in SORTED_TABLES:
            rows = sort_by_signal_and_time(rows)
        self._parquet.write_table(rows, row_group_size=rows.num_rows)
        self._batches = []
        self._buffered = 0
