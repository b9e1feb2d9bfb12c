"""Long lines of a source, bounded: JSON records and CSV rows may hold what a log's line never does."""

from __future__ import annotations

import codecs
import csv
import json
import math
from collections.abc import Iterator
from typing import Any

from ...errors import WhyboundError
from .importer import Sink, Source

MAX_LINE_BYTES = 32 << 20
"""A longer line is left out."""

_ODD = object()


def whole_lines(source: Source, sink: Sink) -> Iterator[str]:
    """Its lines, unlike `Source.lines` never cut: one above `MAX_LINE_BYTES` is left out and told."""
    if source.sample.head[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        yield from source.lines()
        return
    overlong = 0
    with source.open() as file:
        while line := file.readline(MAX_LINE_BYTES):
            if len(line) < MAX_LINE_BYTES or line.endswith(b"\n"):
                yield line.decode("utf-8-sig", "replace").rstrip("\r\n")
                continue
            overlong += 1
            while (rest := file.readline(1 << 20)) and not rest.endswith(b"\n"):
                pass
    if overlong:
        sink.note(f"{source.path.name}: {overlong} lines over 32 MiB left out")


def json_records(source: Source, sink: Sink) -> Iterator[dict[str, Any]]:
    """The objects of a file of JSON lines; what is none is counted, left out and told."""
    bad = 0
    for line in whole_lines(source, sink):
        if not line.strip():
            continue
        record = loads(line)
        if isinstance(record, dict):
            yield record
        else:
            bad += 1
    if bad:
        sink.note(f"{source.path.name}: {bad} lines are no JSON object (cut off?): left out")


def loads(text: str) -> Any:
    """JSON, NaN and Infinity as Python writes them included; a value equal to nothing when it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _ODD


def csv_rows(source: Source, sink: Sink) -> Iterator[dict[str, str]]:
    """The rows of a CSV with a header; a row with too few fields lacks the last ones.

    Raises:
        WhyboundError: it has no header.
    """
    csv.field_size_limit(MAX_LINE_BYTES)  # lists of times in one field exceed the usual 128 KiB
    reader = csv.reader(whole_lines(source, sink))
    bad = 0
    try:
        header = [name.strip() for name in next(reader)]
    except (StopIteration, csv.Error):
        raise WhyboundError(f"{source.path.name}: no CSV header in it") from None
    while True:
        try:
            row = next(reader)
        except StopIteration:
            break
        except csv.Error:
            bad += 1
            continue
        if row:
            yield dict(zip(header, row, strict=False))
    if bad:
        sink.note(f"{source.path.name}: {bad} lines are no CSV: left out")


def number(value: Any) -> float | None:
    """A finite number, from a number or a text that is one (thousands may be separated); else None."""
    if isinstance(value, str):
        text = value.strip().replace(",", "")
        if len(text) > 40 or "_" in text or not text.isascii():
            return None
        try:
            value = float(text)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def count(value: Any) -> int | None:
    """A whole number of 0 to 10^15; else None."""
    found = number(value)
    if found is None or not 0 <= found <= 1e15 or found != int(found):
        return None
    return int(found)
