"""CSV files of samples over time, column by column as `sample_tables.yaml` says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Literal

import msgspec

from ...errors import WhyboundError
from ..map_file import read_map
from ..schema import UNIT_SUFFIXES
from .fact_sheet import FactSheet
from .importer import Importer, Row, Sample, Sink, Source
from .json_lines import csv_rows, number
from .request_rows import node_of

_FILE = Path(__file__).parent / "sample_tables.yaml"
_BATCH = 5_000
_MOST_S = 366 * 86_400.0
"""Of a time that counts from a tool's start."""


class Column(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a column holds."""

    signal: str
    kind: Literal["gauge", "counter"]
    unit: str
    scale: float = 1.0
    reason: str = ""


class SampleTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of file; the fields are explained in `sample_tables.yaml`."""

    kind: str
    title: str
    engine: str
    marks: list[str]
    time: str
    relative: bool = False
    columns: dict[str, Column]
    means: dict[str, str] = {}


@cache
def sample_tables() -> tuple[SampleTable, ...]:
    """The entries of `sample_tables.yaml`.

    Raises:
        WhyboundError: the file is broken.
    """
    return read_map(
        _FILE.read_text(encoding="utf-8"),
        tuple[SampleTable, ...],
        lambda entries: (f for entry in entries for f in _faults(entry)),
        _FILE.name,
    )


def _faults(entry: SampleTable) -> Iterator[str]:
    for name, column in entry.columns.items():
        if column.unit not in UNIT_SUFFIXES:
            yield f"{entry.kind}: {name}: {column.unit} is not a unit of the tables"


def _looks_like(entry: SampleTable, sample: Sample) -> float:
    header = [c.strip().strip('"') for c in sample.text.partition("\n")[0].split(",")]
    return 0.9 if set(entry.marks) <= set(header) else 0.0


def _read(entry: SampleTable, source: Source, sink: Sink) -> None:
    zero_ns = _zero_ns(entry, source, sink) if entry.relative else 0
    values: dict[str, list[float]] = {name: [] for name in entry.means}
    batch: list[Row] = []
    timeless = odd = 0
    for row in csv_rows(source, sink):
        t_s = number(row.get(entry.time))
        if t_s is None or not (0 <= t_s <= _MOST_S if entry.relative else 1e9 <= t_s < 1e10):
            timeless += 1
            continue
        t_ns = zero_ns + int(t_s * 1e9)
        odd += _add_row(entry, row, t_ns, sink, batch=batch, values=values)
        if len(batch) >= _BATCH:
            sink.rows("samples", batch)
            batch = []
    if batch:
        sink.rows("samples", batch)
    if timeless:
        sink.note(f"{source.path.name}: {timeless} rows without a time left out")
    if odd:
        sink.note(f"{source.path.name}: {odd} values that are no number of 0 or more left out")
    sheet = FactSheet(source, sink, entry.kind)
    for name, signal in entry.means.items():
        if values[name]:
            sheet.add(signal, fmean(values[name]), n=len(values[name]))
    sheet.close()
    if not sink.counts["samples"]:
        raise WhyboundError(f"{source.path.name}: no row with a time in it")


def _add_row(
    entry: SampleTable,
    row: dict[str, str],
    t_ns: int,
    sink: Sink,
    *,
    batch: list[Row],
    values: dict[str, list[float]],
) -> int:
    """Add what a row tells; how many of its values are no number of 0 or more."""
    odd = 0
    for name in (*entry.columns, *entry.means):
        text = row.get(name, "").strip()
        value = number(text)
        if value is None or value < 0:
            odd += bool(text)
        elif name in entry.means:
            values[name].append(value)
        else:
            batch.append(_sample(entry, name, entry.columns[name], value, t_ns, sink))
    return odd


def _zero_ns(entry: SampleTable, source: Source, sink: Sink) -> int:
    """The epoch of time 0: the file was written when its last row was."""
    last = 0.0
    for row in csv_rows(source, Sink(sink.put, sink.epoch_ns)):
        t_s = number(row.get(entry.time))
        if t_s is not None and 0 <= t_s <= _MOST_S:
            last = max(last, t_s)
    sink.note(
        f"{source.path.name}: its times count from its start, laid so that it ends with the file's date"
    )
    return sink.epoch_ns - int(last * 1e9)


def _sample(
    entry: SampleTable, name: str, column: Column, value: float, t_ns: int, sink: Sink
) -> Row:
    return {
        "t_ns": t_ns,
        "signal": column.signal,
        "kind": column.kind,
        "unit": column.unit,
        "value": value * column.scale,
        "node": node_of(sink),
        "engine": entry.engine,
        "replica": "",
        "gpu": "" if entry.engine else "0",
        "phase": "",
        "reason": column.reason,
        "labels": "{}",
        "raw_name": name,
    }


def _importer(entry: SampleTable) -> Importer:
    recognise: Callable[[Sample], float] = partial(_looks_like, entry)
    read: Callable[[Source, Sink], None] = partial(_read, entry)
    return Importer(entry.kind, entry.title, recognise, read)


IMPORTERS: tuple[Importer, ...] = tuple(_importer(entry) for entry in sample_tables())
