"""Imports files into a run and reads it back, for the tests of importers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from whybound.collector.importers.run import Outcome, import_files
from whybound.collector.store import open_run


def imported(
    folder: Path, *paths: Path, **options: Any
) -> tuple[list[Outcome], Callable[[str], list[dict[str, Any]]]]:
    """The outcomes, and the rows of a table by its name."""
    run = folder / "run"
    outcomes = import_files(paths, run, force=True, **options)
    opened = open_run(run)

    def rows(table: str) -> list[dict[str, Any]]:
        return [row for part in opened.parts(table) for row in pq.read_table(part).to_pylist()]

    return outcomes, rows
