"""Plain tables of a load test, CSV, markdown or JSON records: a row is a load point."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...errors import WhyboundError
from .bench_points import add_point
from .columns import cell, meaning
from .fact_sheet import FactSheet, segment
from .importer import Importer, Sample, Sink, Source
from .json_lines import csv_rows, number
from .llama_bench import Table, is_llama, read_llama

MAX_POINTS = 10_000
MAX_COLUMNS = 500
_RULE = re.compile(r"\s*\|?\s*:?-{2,}:?\s*(\|\s*:?-{2,}:?\s*)*\|?\s*")


def _meant(header: Sequence[str]) -> list[str]:
    return [found[0] for name in header if (found := meaning(name))]


def _is_points(header: Sequence[str]) -> bool:
    """At least one thing that varies and one that was measured, or two measured."""
    meant = _meant(header)
    measured = [m for m in meant if not m.startswith(".")]
    return bool(measured) and len(meant) >= 2 and any(_telling(m) for m in measured)


def _telling(signal: str) -> bool:
    return signal.startswith("client_") or signal.endswith("_per_s")


def _is_csv(sample: Sample) -> float:
    first = sample.text.partition("\n")[0]
    if not 1 <= first.count(",") < MAX_COLUMNS or first.lstrip().startswith(("{", "[", "<", "|")):
        return 0.0
    try:
        header = next(csv.reader([first]))
    except (csv.Error, StopIteration):
        return 0.0
    return 0.6 if _is_points(header) else 0.0


def _read_csv(source: Source, sink: Sink) -> None:
    rows: list[dict[str, str]] = []
    for row in csv_rows(source, sink):
        if len(rows) == MAX_POINTS:
            sink.note(f"{source.path.name}: only its first {MAX_POINTS} rows are taken")
            break
        rows.append(row)
    header = list(rows[0]) if rows else []
    _read(source, sink, "bench-csv", [(header, [list(row.values()) for row in rows])])


def _is_markdown(sample: Sample) -> float:
    tables = list(_tables(iter(sample.text.splitlines())))
    return 0.6 if any(_is_points(h) or is_llama(h) for h, _ in tables) else 0.0


def _read_markdown(source: Source, sink: Sink) -> None:
    tables = list(_tables(source.lines()))
    llama = [table for table in tables if is_llama(table[0])]
    if llama:
        read_llama(source, sink, llama)
    else:
        _read(source, sink, "bench-markdown", [t for t in tables if _is_points(t[0])])


def _read(source: Source, sink: Sink, kind: str, tables: Sequence[Table]) -> None:
    sheet = FactSheet(source, sink, kind)
    points = [told for table in tables for told in _points(table, sink)]
    scopes: dict[str, int] = {}
    for told in points:
        scope = segment(told.get(".concurrency")) or segment(rate=told.get(".rate"))
        if len(points) > 1:
            scope = scope or f"segment=point:{len(scopes) + 1}"
            scopes[scope] = scopes.get(scope, 0) + 1
            if scopes[scope] > 1:
                continue  # another table of the same points says less or the same
        else:
            scope = ""
        add_point(sheet, told, sink, scope=scope, t_ns=None)
    repeated = sum(n - 1 for n in scopes.values())
    if repeated:
        sink.note(f"{repeated} rows repeat the load of another: left out")
    if not sheet.close():
        raise WhyboundError(f"{source.path.name}: no row of its tables holds a figure with a unit")


def _points(table: Table, sink: Sink) -> Iterator[dict[str, Any]]:
    header, rows = table
    meant = [meaning(name) for name in header]
    unknown = [name for name, found in zip(header, meant, strict=True) if found is None]
    for row in rows:
        told: dict[str, Any] = {}
        for found, text in zip(meant, row, strict=False):
            if found is None:
                continue
            value = cell(text, found[1])
            if isinstance(value, str) and found[0].startswith("."):
                break  # "none" in the column of the load: no point
            if value is not None:
                told.setdefault(found[0], value)
        else:
            if any(not name.startswith(".") for name in told):
                yield told
    if unknown and rows:
        sink.note(f"columns of no known meaning: {', '.join(unknown[:8])}"[:300])


def _tables(lines: Iterator[str]) -> Iterator[Table]:
    """Markdown tables: a header, a rule, rows."""
    before = ""
    table: Table | None = None
    for line in lines:
        if table is not None:
            if line.lstrip().startswith("|") and len(table[1]) < MAX_POINTS:
                table[1].append(_cells(line))
                continue
            yield table
            table = None
        if "|" in line and "|" in before and len(line) < 4096 and _RULE.fullmatch(line):
            table = (_cells(before), [])
        before = line
    if table is not None:
        yield table


def _cells(line: str) -> list[str]:
    return [c.strip().strip("*`") for c in line.strip().strip("|").split("|")]


def _is_records(sample: Sample) -> float:
    text = sample.text.lstrip()
    if not text.startswith(("{", "[")):
        return 0.0
    names = re.findall(r'"([^"\\]{1,60})"\s*:\s*[-\d.]', text[:8192])
    meant = set(_meant(names))
    return 0.55 if meant & {".concurrency", ".rate"} and _is_points(names) else 0.0


def _read_records(source: Source, sink: Sink) -> None:
    found = source.json()
    lists = [found] if isinstance(found, list) else []
    if isinstance(found, Mapping):
        lists = [v for v in found.values() if isinstance(v, list)] + [[found]]
    tables = []
    for records in lists:
        flat = [r for r in records[:MAX_POINTS] if isinstance(r, Mapping)]
        header = list({name: None for r in flat for name in r})
        if flat and _is_points(header):
            tables.append((header, [[_text(r.get(name)) for name in header] for r in flat]))
    _read(source, sink, "bench-records", tables)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return repr(value) if number(value) is not None else ""


IMPORTERS: tuple[Importer, ...] = (
    Importer("bench-csv", "table of load points (CSV)", _is_csv, _read_csv),
    Importer(
        "bench-markdown",
        "tables of load points (markdown), llama-bench's too",
        _is_markdown,
        _read_markdown,
    ),
    Importer("bench-records", "load points as JSON records", _is_records, _read_records),
)
