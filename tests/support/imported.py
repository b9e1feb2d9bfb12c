"""Reading one file with the importers of results, metrics and spans, as their tests do."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from whybound.collector.frames import build_batch
from whybound.collector.importers.importer import HEAD_BYTES, Importer, Sample, Sink
from whybound.errors import WhyboundError

MODULES = (
    "bench_json",
    "bench_text",
    "bench_csv",
    "sample_tables",
    "bench_tables",
    "llama_bench",
    "metrics_text",
    "metrics_matrix",
    "span_files",
    "arrival_traces",
    "run_config",
    "not_results",
)
T0 = 1_800_000_000 * 10**9
"""The date of every file, ns since the epoch."""


def importers() -> list[Importer]:
    """Those of `MODULES`."""
    modules = [import_module(f"whybound.collector.importers.{name}") for name in MODULES]
    return [importer for module in modules for importer in module.IMPORTERS]


class PlainSource:
    """Bytes as a `Source`."""

    def __init__(self, data: bytes, name: str) -> None:
        self.path = Path(name)
        self._data = data
        head = data[:HEAD_BYTES]
        text = "" if b"\0" in head else head.decode("utf-8", "replace")
        self.sample = Sample(self.path.name, head, text, len(data))

    def lines(self) -> Iterator[str]:
        yield from self._data.decode("utf-8", "replace").splitlines()

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        yield io.BytesIO(self._data)

    def json(self) -> Any:
        try:
            return json.loads(self._data)
        except (ValueError, RecursionError) as error:
            raise WhyboundError(f"{self.path.name} is not JSON: {error}") from error


@dataclass
class Imported:
    """What came of a file."""

    kind: str
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def facts(self, scope: str = "") -> dict[str, Any]:
        """Signal → value or text, of one scope."""
        return {
            row["signal"]: row["value"] if row["text"] is None else row["text"]
            for row in self.tables.get("facts", [])
            if row["scope"] == scope
        }

    def rows(self, table: str) -> list[dict[str, Any]]:
        return self.tables.get(table, [])

    def samples(self, signal: str) -> list[float]:
        return [row["value"] for row in self.rows("samples") if row["signal"] == signal]

    def told(self, words: str) -> bool:
        """Does any note say so?"""
        return any(words in note for note in self.notes)


def surest(sample: Sample) -> Importer | None:
    """As the framework chooses."""
    scored = [(importer.recognise(sample), importer) for importer in importers()]
    assert all(0 <= score <= 1 for score, _ in scored)
    best = max(scored, key=lambda pair: pair[0])
    return best[1] if best[0] >= 0.5 else None


def imported(data: bytes | str, name: str = "file", **options: str) -> Imported:
    """Recognise and read; every row must fit its table.

    Raises:
        WhyboundError: as the importer; what it refuses on sight is raised too.
    """
    source = PlainSource(data.encode() if isinstance(data, str) else data, name)
    importer = surest(source.sample)
    if importer is None:
        raise WhyboundError(f"{name}: of no known kind")
    if importer.refuses:
        raise WhyboundError(importer.refuses)
    found = Imported(importer.kind)

    def put(table: str, rows: Sequence[dict[str, Any]]) -> None:
        build_batch(table, rows)
        found.tables.setdefault(table, []).extend(rows)

    sink = Sink(put, T0, options, found.notes)
    importer.read(source, sink)
    return found
