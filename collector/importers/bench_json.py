"""Results of load generators as JSON: figures as facts, requests where the file has them all."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from ...errors import WhyboundError
from .bench_map import Bench, benches, told
from .bench_points import add_point, point_scope, started_ns
from .bench_requests import add_aiperf, from_arrays, from_genai_bench, from_guidellm
from .fact_sheet import FactSheet
from .importer import Importer, Sample, Sink, Source
from .json_lines import count, json_records, number
from .request_rows import RequestSheet, load_mode_event

_ENGINES = {"sglang-bench": "sglang"}


def _looks_like(entry: Bench, sample: Sample) -> float:
    text = sample.text.lstrip("\ufeff \t\r\n")
    if not text.startswith(("{", "[")) or not all(re.search(m, text) for m in entry.marks):
        return 0.0
    if entry.unless and re.search(entry.unless, text):
        return 0.0
    return 0.9


def _read(entry: Bench, source: Source, sink: Sink) -> None:
    wholes = list(_wholes(entry, source, sink))
    points = [(point, whole) for whole in wholes for point in _points(entry, whole)]
    if not points:
        raise WhyboundError(f"{source.path.name}: no load point in it: was the run cut short?")
    sheet = FactSheet(source, sink, entry.kind)
    sweep = len(points) > 1
    seen: dict[str, int] = {}
    for point, whole in points:
        values = told(entry, point, whole)
        scope = point_scope(values) if sweep else ""
        if sweep and not scope:
            scope = f"segment=point:{len(seen) + 1}"
        seen[scope] = seen.get(scope, 0) + 1
        if seen[scope] > 1:  # the same load twice: both count
            scope = f"{scope}#{seen[scope]}"
        t_ns = started_ns(values, sink)
        mode = add_point(sheet, values, sink, scope=scope, t_ns=t_ns)
        if not sweep:
            requests = RequestSheet(sink, source.path.name, _ENGINES.get(entry.kind, ""))
            began_ns = _began_ns(values, sink, t_ns)
            _add_requests(entry, point, whole, requests, sink, values=values, began_ns=began_ns)
            if requests.close() and mode:
                load_mode_event(sink, mode, requests.first_ns or began_ns)
    if sweep:
        sink.note(
            f"{len(points)} load points: each is a segment; no requests are taken from a sweep"
        )
    if entry.kind == "inference-perf" and not sweep and ".send" not in values:
        sink.note(
            "all stages in one: its figures are of several loads; give the files of the stages"
        )
    if entry.left_out and len(sheet):
        sink.note(entry.left_out)
    if not sheet.close():
        raise WhyboundError(f"{source.path.name}: no figure in it could be read")


def _add_requests(
    entry: Bench,
    point: Mapping[str, Any],
    whole: Mapping[str, Any],
    sheet: RequestSheet,
    sink: Sink,
    *,
    values: Mapping[str, Any],
    began_ns: int,
) -> None:
    if entry.kind in ("vllm-bench", "sglang-bench"):
        from_arrays(whole, sheet, sink, began_ns=began_ns)
    elif entry.kind == "guidellm":
        from_guidellm(point, sheet, sink, completed=count(values.get(".completed")))
    elif entry.kind == "genai-bench":
        from_genai_bench(whole, sheet, sink)


def _began_ns(values: Mapping[str, Any], sink: Sink, told_ns: int | None) -> int:
    """When the load began; where the file does not tell, it was written when the load ended."""
    lasted = number(values.get("duration_s")) or 0.0
    return told_ns if told_ns is not None else sink.epoch_ns - int(min(lasted, 1e6) * 1e9)


def _wholes(entry: Bench, source: Source, sink: Sink) -> Iterator[Mapping[str, Any]]:
    if entry.lines:
        yield from json_records(source, sink)
        return
    try:
        found = source.json()
    except WhyboundError as error:  # results may be appended, one object a line
        found = list(json_records(source, Sink(sink.put, sink.epoch_ns)))
        if not found:
            raise error
    for whole in found if isinstance(found, list) else [found]:
        if isinstance(whole, Mapping):
            yield _flat(whole) if entry.kind == "aiperf" else whole


def _flat(whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """The form of later versions: aiperf 0.1 had its metrics under `records`, and TTFT by that name."""
    records = whole.get("records")
    if not isinstance(records, Mapping):
        return whole
    flat = {**records, **{k: v for k, v in whole.items() if k != "records"}}
    if "ttft" in flat:
        flat.setdefault("time_to_first_token", flat["ttft"])
    return flat


def _points(entry: Bench, whole: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if not entry.points:
        return [whole]
    found = whole.get(entry.points)
    return [p for p in found if isinstance(p, Mapping)] if isinstance(found, list) else []


def _is_aiperf_records(sample: Sample) -> float:
    line = sample.text.lstrip("\ufeff \t\r\n").partition("\n")[0]
    marks = ('"metadata"', '"metrics"', "record_processor_id")
    return 0.9 if line.startswith("{") and all(m in line for m in marks) else 0.0


def _read_aiperf_records(source: Source, sink: Sink) -> None:
    sheet = RequestSheet(sink, source.path.name)
    for index, record in enumerate(json_records(source, sink)):
        add_aiperf(record, sheet, index)
    if not sheet.close():
        raise WhyboundError(f"{source.path.name}: no request in it")


def _importer(entry: Bench) -> Importer:
    recognise: Callable[[Sample], float] = partial(_looks_like, entry)
    read: Callable[[Source, Sink], None] = partial(_read, entry)
    return Importer(entry.kind, entry.title, recognise, read)


IMPORTERS: tuple[Importer, ...] = (
    *(_importer(entry) for entry in benches()),
    Importer(
        "aiperf-requests",
        "requests of aiperf (profile_export.jsonl)",
        _is_aiperf_records,
        _read_aiperf_records,
    ),
)
