"""The run directory, as everyone else sees it: make, record, compact, read.

    create_run(path, force=False)
    with RunWriter(path, node) as writer:
        writer.append("samples", rows)
    run = open_run(path)

How it is kept: `frames` (the bytes of a frame), `wal` (the log), `compaction` (sealed parts),
`manifest` (the folder), `writer` (the recorder).
"""

from __future__ import annotations

from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..errors import WhyboundError
from .compaction import compact, list_parts
from .frames import FrameError, decode_batch
from .manifest import MANIFEST, create_run, read_manifest
from .schema import TABLES, arrow_schema
from .wal import Losses, SegmentLoss, list_segments, node_folder, nodes_with_logs, read_log
from .writer import RunWriter

__all__ = ["Run", "RunWriter", "compact", "create_run", "open_run"]


class Run:
    """What is in a run directory, sealed or not, as it was when `open_run` looked.

    A row is in a part or in the logs, never in both. Rows come in the order of (node, sequence):
    the parts in the order of `parts`, each in file order, then `log_table`; a node's sealed rows
    are all older than those in its log. So the last row of a `request_id` in that order is the
    final one. `samples` and `histograms` are sorted by signal and time instead, in each row group
    of a part.

    Attributes:
        path: the run directory.
        manifest: as read; `{"state": "recording"}` when a killed recorder left none.
        log_nodes: nodes whose log is not compacted (recording, or killed); `compact` mends that.
    """

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path = path
        self.manifest = manifest
        self.log_nodes = nodes_with_logs(path)
        # The logs before the parts: what is compacted in between is then found twice, and left out
        # of the logs, rather than missed.
        self._segments = {node: list_segments(node_folder(path, node)) for node in self.log_nodes}
        self._parts = {table: list_parts(path, table) for table in TABLES}

    def parts(self, table: str) -> list[Path]:
        """The sealed Parquet files of a table by (node, sequence); empty when there is none.

        Raises:
            ValueError: no such table.
        """
        return [part.path for part in self._parts[_known(table)][0]]

    def log_table(self, table: str) -> pa.Table:
        """The rows that only the logs have, by (node, sequence), in `arrow_schema(table)`.

        All tables of the logs are held in memory after the first call; after a long run was killed,
        `compact` each of `log_nodes` first.

        Raises:
            ValueError: no such table.
            WhyboundError: a log cannot be read, or was compacted since `open_run`.
        """
        batches = self._logs[0].get(_known(table), [])
        return pa.Table.from_batches(batches, arrow_schema(table)).unify_dictionaries()

    @property
    def losses(self) -> dict[str, Any]:
        """What the run is known to have lost; zeros and empties when nothing.

        `torn_frames`, `corrupt_frames`, `skipped_bytes` (from the first of these to the end of its
        segment), `dropped` (rows by table), `errors` and `rejected` (a line by node),
        `unreadable_parts` (paths in the run). One torn frame is what a kill leaves: at most the
        last half second.

        Raises:
            WhyboundError: as `log_table`.
        """
        recorded = self.manifest.get("losses", {})
        by_segment = {
            (node, name): loss
            for node, entry in recorded.items()
            for name, loss in entry.get("log", {}).items()
        } | self._logs[1]
        dropped: dict[str, int] = {}
        for entry in recorded.values():
            for table, rows in entry.get("dropped", {}).items():
                dropped[table] = dropped.get(table, 0) + rows
        unreadable = [path for _, paths in self._parts.values() for path in paths]
        return {
            **{
                name: sum(loss[name] for loss in by_segment.values())
                for name in asdict(SegmentLoss())
            },
            "dropped": dropped,
            "errors": {n: e["error"] for n, e in recorded.items() if e.get("error")},
            "rejected": {n: e["rejected"] for n, e in recorded.items() if e.get("rejected")},
            "unreadable_parts": [str(path.relative_to(self.path)) for path in unreadable],
        }

    @cached_property
    def _logs(
        self,
    ) -> tuple[dict[str, list[pa.RecordBatch]], dict[tuple[str, str], dict[str, int]]]:
        batches: dict[str, list[pa.RecordBatch]] = {}
        losses: dict[tuple[str, str], dict[str, int]] = {}
        for node, segments in self._segments.items():
            found: Losses = {}
            try:
                for frame in read_log(segments, found):
                    parts = self._parts[frame.table][0] if frame.table in TABLES else []
                    if any(p.node == node and p.covers(frame.sequence) for p in parts):
                        continue
                    try:
                        batches.setdefault(frame.table, []).append(decode_batch(frame))
                    except FrameError:
                        found.setdefault("undecodable", SegmentLoss()).corrupt_frames += 1
            except FileNotFoundError as error:
                raise WhyboundError(
                    f"{self.path} was compacted while it was read; try again"
                ) from error
            except OSError as error:
                raise WhyboundError(
                    f"cannot read {node_folder(self.path, node)}: {error.strerror}; check the disk"
                ) from error
            losses |= {(node, name): asdict(loss) for name, loss in found.items()}
        return batches, losses


def open_run(path: Path) -> Run:
    """Read a run: finished, being recorded, or left by a killed recorder (state still recording).

    Raises:
        WhyboundError: no such folder; not a run; its manifest is not JSON, or of a newer whybound.
    """
    if not path.exists():
        raise WhyboundError(f"{path} does not exist; name the folder of a run")
    if not path.is_dir():
        raise WhyboundError(f"{path} is a file, not a run; name the folder of a run")
    manifest = read_manifest(path)
    if manifest is None:
        if not (path / "wal").is_dir():
            raise WhyboundError(
                f"{path} is not a run: it has neither {MANIFEST} nor wal/; name the folder of a run"
            )
        manifest = {"state": "recording"}
    return Run(path, manifest)


def _known(table: str) -> str:
    if table not in TABLES:
        raise ValueError(f"unknown table {table!r}; there are {', '.join(TABLES)}")
    return table
