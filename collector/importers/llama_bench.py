"""Results of llama-bench and llama-benchy: how fast prompts are read and tokens generated."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import WhyboundError
from .columns import cell
from .fact_sheet import FactSheet, segment
from .importer import Importer, Sample, Sink, Source
from .json_lines import count, csv_rows, json_records, number

Table = tuple[list[str], list[list[str]]]
"""A header and rows of cells."""

_TEST = re.compile(r"(pp|tg)(\d+)(?: @ d\d+)?(?: \(c(\d+)\))?")
_COLUMNS = ("n_prompt", "n_gen", "avg_ts")


def is_llama(header: Sequence[str]) -> bool:
    """Is a markdown table theirs?"""
    names = [name.lower() for name in header]
    return "test" in names and any(name.startswith("t/s") for name in names)


def read_llama(source: Source, sink: Sink, tables: Sequence[Table]) -> None:
    """Read their markdown: `pp512` reads a prompt, `tg128` generates, `(c8)` eight at once.

    Raises:
        WhyboundError: no test in it.
    """
    sheet = FactSheet(source, sink, "llama-bench")
    for header, rows in tables:
        names = [name.lower() for name in header]
        for row in rows:
            own = dict(zip(names, row, strict=False))
            match = _TEST.fullmatch(own.get("test", ""))
            if match is None:
                continue
            speed = next((own[n] for n in names if n.startswith("t/s") and "req" not in n), "")
            scope = _add(sheet, match[1] == "pp", match[2], cell(speed, 1.0), match[3] or "1")
            sheet.add("client_ttft_mean_s", cell(own.get("e2e_ttft (ms)", ""), 1e-3), scope=scope)
    _close(sheet, source)


def _add(sheet: FactSheet, prompt: bool, tokens: Any, speed: Any, users: Any) -> str:
    scope = segment(users)
    sheet.add("prompt_tokens_per_s" if prompt else "output_tokens_per_s", speed, scope=scope)
    sheet.add("input_mean_tokens" if prompt else "output_mean_tokens", tokens, scope=scope)
    if sheet.get("inflight_mean_count", scope) is None:
        sheet.add("inflight_mean_count", users, scope=scope)
        sheet.add_text("load_mode", "closed", scope=scope)
    return scope


def _close(sheet: FactSheet, source: Source) -> None:
    if not sheet.close():
        raise WhyboundError(f"{source.path.name}: no test of llama-bench could be read")


def _is_records(sample: Sample) -> float:
    text = sample.text.lstrip("\ufeff \n")
    head = text.partition("\n")[0]
    if text.startswith(("{", "[")):
        return 0.9 if all(f'"{name}"' in text for name in _COLUMNS) else 0.0
    return 0.9 if set(_COLUMNS) <= {c.strip('" ') for c in head.split(",")} else 0.0


def _read_records(source: Source, sink: Sink) -> None:
    text = source.sample.text.lstrip("\ufeff \n")
    found: Any
    if text.startswith("["):
        found = source.json()
    elif text.startswith("{"):
        found = json_records(source, sink)
    else:
        found = csv_rows(source, sink)
    sheet = FactSheet(source, sink, "llama-bench-records")
    mixed = 0
    for record in found:
        if not isinstance(record, Mapping):
            continue
        asked, answered = count(record.get("n_prompt")), count(record.get("n_gen"))
        if asked and answered:  # a speed of both together is neither's
            mixed += 1
        elif (asked or answered) and number(record.get("avg_ts")) is not None:
            _add(sheet, bool(asked), asked or answered, record.get("avg_ts"), 1)
    if mixed:
        sink.note(f"{mixed} tests of prompt and generation in one left out: their speed is of both")
    _close(sheet, source)


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        "llama-bench-records",
        "results of llama-bench (JSON, JSON lines, CSV)",
        _is_records,
        _read_records,
    ),
)
