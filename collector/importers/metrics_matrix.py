"""Series over time out of a Prometheus: answers of its API as JSON, and `promtool tsdb dump`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import msgspec

from ...errors import WhyboundError
from ..engine_map import EXPORTERS, EngineMap, engines, load_map
from ..sources.exposition import detect_engine, engine_prefixes, parse
from ..sources.prometheus_matrix import Series, SignalRows, fleet_of
from .bounds import MAX_JSON_BYTES, MAX_JSON_DEPTH, json_depth
from .importer import Importer, Row, Sample, Sink, Source
from .json_lines import whole_lines
from .request_rows import node_of

MAX_SERIES_A_SIGNAL = 100_000
MAX_DUMPED = 5_000_000
"""Samples of a dump that are kept."""
_BATCH = 20_000
_FOREVER_MS = 1 << 62

_DUMPED = re.compile(r"(\{.*\})\s+(\S+)\s+(\d{12,14})\s*")


class _Head(msgspec.Struct):
    """Of a series only who it is; its values stay as text."""

    metric: dict[str, str] = {}


class _Point(msgspec.Struct):
    """A series of an instant query."""

    metric: dict[str, str]
    value: tuple[float, str] | None = None


class _Data(msgspec.Struct):
    resultType: str  # noqa: N815 — Prometheus' own name
    result: list[msgspec.Raw]


class _Answer(msgspec.Struct):
    data: _Data


def _is_answer(sample: Sample) -> float:
    text = sample.text.lstrip("\ufeff \t\r\n[")
    return 0.95 if text.startswith("{") and re.search(r'"resultType"\s*:', text[:4096]) else 0.0


def _read_answers(source: Source, sink: Sink) -> None:
    kept: dict[str, list[msgspec.Raw]] = {}  # exact metric name → its series, undecoded
    heads: dict[str, list[dict[str, str]]] = {}
    nameless = unwanted = left_out = 0
    vector = False
    maps = _Maps()
    decode = msgspec.json.Decoder(_Head).decode
    for answer in _answers(source, sink):
        if answer.data.resultType not in ("matrix", "vector"):
            sink.note(f"an answer of type {answer.data.resultType} left out")
            continue
        vector = vector or answer.data.resultType == "vector"
        for raw in answer.data.result:
            try:
                metric = decode(raw).metric
            except msgspec.DecodeError:
                unwanted += 1
                continue
            name = metric.get("__name__", "")
            nameless += not name
            if not maps.wants(name):
                unwanted += bool(name)
                continue
            series = kept.setdefault(name, [])
            if len(series) == MAX_SERIES_A_SIGNAL:
                left_out += 1
                continue
            series.append(raw)
            heads.setdefault(name, []).append(metric)
    if nameless:
        sink.note(f"{nameless} series are results of an expression: query the metrics themselves")
    if unwanted:
        sink.note(f"{unwanted} series of no known meaning left out")
    if left_out:
        sink.note(f"{left_out} series above {MAX_SERIES_A_SIGNAL} of one name left out")
    if vector:
        sink.note("an instant query: one value a series; a range query tells of the time between")
    series_of = msgspec.json.Decoder(Series).decode
    point_of = msgspec.json.Decoder(_Point).decode

    def decoded(name: str) -> Iterator[Series]:
        for raw in kept[name]:
            try:
                found = series_of(raw)
                if not found.values:
                    point = point_of(raw)
                    found.values = [point.value] if point.value else []
                yield found
            except msgspec.DecodeError as error:
                sink.note(f"series that are none left out: {error}"[:200])

    _put(heads, decoded, source, sink)


def _answers(source: Source, sink: Sink) -> Iterator[_Answer]:
    with source.open() as file:
        data = file.read(MAX_JSON_BYTES + 1)
    name = source.path.name
    if len(data) > MAX_JSON_BYTES:
        raise WhyboundError(
            f"{name} is JSON of over {MAX_JSON_BYTES >> 20} MB; ask for a shorter range"
        )
    data = data.removeprefix(b"\xef\xbb\xbf").strip()
    try:
        yield msgspec.json.decode(data, type=_Answer)
        return
    except (msgspec.DecodeError, RecursionError) as error:
        first: Exception = error
    if json_depth(data[: 1 << 20]) > MAX_JSON_DEPTH:
        raise WhyboundError(f"{name} is JSON nested deeper than {MAX_JSON_DEPTH}; it is not read")
    if data.startswith(b"["):
        try:
            yield from msgspec.json.decode(data, type=list[_Answer])
            return
        except (msgspec.DecodeError, RecursionError) as error:
            first = error
    del data
    good = 0
    for line in whole_lines(source, sink):
        try:
            yield msgspec.json.decode(line.encode(), type=_Answer)
            good += 1
        except (msgspec.DecodeError, RecursionError):
            continue
    if not good:
        said = "is cut off" if "truncated" in str(first) else "is no answer of Prometheus"
        raise WhyboundError(f"{name} {said}: {first}"[:300])


class _Maps:
    """Which names any map wants."""

    def __init__(self) -> None:
        self._maps = [load_map(e) for e in (*engines(), *EXPORTERS)]
        self._known: dict[str, bool] = {}

    def wants(self, name: str) -> bool:
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = any(m.wants(name) for m in self._maps)
        return found


def _put(
    heads: dict[str, list[dict[str, str]]],
    decoded: Callable[[str], Iterable[Series]],
    source: Source,
    sink: Sink,
) -> None:
    """Rows of every signal, one at a time: of the engine that the names tell, and of the exporters."""
    engine = sink.options.get("engine") or detect_engine(heads)
    speakers = [engine, *(e for e in EXPORTERS if e != engine)]
    report: Counter[str] = Counter()
    for speaker in speakers:
        mapping = load_map(speaker)
        own = engine_prefixes().get(speaker, ())
        if not any(name.startswith(own) for name in heads):
            continue
        _put_engine(mapping, heads, decoded, sink, report)
    for what, count in report.items():
        if count:
            sink.note(f"{count} {what}")
    if not any(sink.counts[t] for t in ("samples", "histograms", "settings")):
        raise WhyboundError(
            f"{source.path.name}: none of its series has a known meaning; query the engine's metrics "
            'by name, e.g. {__name__=~"vllm:.*"}'
        )


def _put_engine(
    mapping: EngineMap,
    heads: dict[str, list[dict[str, str]]],
    decoded: Callable[[str], Iterable[Series]],
    sink: Sink,
    report: Counter[str],
) -> None:
    by_signal: dict[str, list[str]] = {}
    for name in heads:
        target = mapping.targets.get(name)
        if target is not None:
            by_signal.setdefault(target.entry.signal, []).append(name)
        elif name in mapping.infos:
            by_signal.setdefault(name, []).append(name)
    who = by_signal.get("engine_running_count") or [
        n for names in by_signal.values() for n in names
    ]
    fleet = fleet_of((m for n in who for m in heads[n]), mapping.instance_labels)
    for replica, jobs in fleet.doubled.items():
        sink.note(f"{replica or 'the engine'} is scraped by {', '.join(jobs)}: {jobs[0]} counts")
    for names in by_signal.values():
        rows = SignalRows(mapping, fleet, node_of(sink), known_only=False)
        matrix = [series for name in names for series in decoded(name)]
        for table, found in rows.rows(matrix, after_ms=-1, until_ms=_FOREVER_MS).items():
            _put_rows(table, found, mapping, sink)
        report["values that are no finite number left out"] += rows.not_finite_count
        report["histograms without a count left out"] += rows.incomplete_count
        report["native histograms left out"] += rows.native_count


def _put_rows(table: str, rows: list[Row], mapping: EngineMap, sink: Sink) -> None:
    if not mapping.serves:
        for row in rows:
            row["engine"] = row["replica"] = ""
    for at in range(0, len(rows), _BATCH):
        sink.rows(table, rows[at : at + _BATCH])


def _is_dump(sample: Sample) -> float:
    lines = sample.text.splitlines()[:50]
    hits = sum(line.startswith("{") and bool(_DUMPED.fullmatch(line)) for line in lines)
    return 0.95 if hits and hits >= 0.8 * max(1, len(lines) - 1) else 0.0


def _read_dump(source: Source, sink: Sink) -> None:
    maps = _Maps()
    values: dict[str, list[tuple[float, str]]] = {}  # label block → samples
    bad = unwanted = left_out = kept = 0
    wanted: dict[str, bool] = {}
    for line in source.lines():
        match = _DUMPED.fullmatch(line)
        if match is None:
            bad += bool(line.strip())
            continue
        block, value, ms = match.groups()
        series = values.get(block)
        if series is None:
            named = re.search(r'__name__="([^"]*)"', block)
            key = named[1] if named else ""
            if key not in wanted:
                wanted[key] = maps.wants(key)
            if not wanted[key]:
                unwanted += 1
                continue
        if kept == MAX_DUMPED or (series is None and len(values) == MAX_SERIES_A_SIGNAL):
            left_out += 1
            continue
        kept += 1
        values.setdefault(block, []).append((int(ms) / 1000, value))
    for count, what in (
        (bad, "lines could not be read"),
        (unwanted, "samples of no known meaning left out"),
        (left_out, "samples above the bound left out"),
    ):
        if count:
            sink.note(f"{source.path.name}: {count} {what}")
    heads: dict[str, list[dict[str, str]]] = {}
    whole: dict[str, list[Series]] = {}
    for block, samples in values.items():
        page = parse(f"x{block} 0\n")
        labels = dict(page.families[0].samples[0].labels) if page.families else {}
        name = labels.get("__name__", "")
        heads.setdefault(name, []).append(labels)
        whole.setdefault(name, []).append(Series(labels, samples))
    _put(heads, whole.__getitem__, source, sink)


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        "prometheus-json", "answer of Prometheus' query API (JSON)", _is_answer, _read_answers
    ),
    Importer("tsdb-dump", "output of promtool tsdb dump", _is_dump, _read_dump),
)
