"""OTLP spans to rows of `requests`: the server's own phases of each request. Pure.

A span that is a whole request, as `spans.yaml` says for each engine, becomes one row with source
`span`. Durations are the server's own; a time that is missing or makes no sense leaves its column
null and is counted.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .otlp_format import Span, integer, read_spans
from .schema import TABLES
from .span_map import RequestSpan, find, slice_columns

Row = dict[str, Any]
Slices = Mapping[str, Mapping[str, float]]
"""Trace id → column of `requests` → seconds: what child spans told about their request."""

DAY_S = 86_400.0
MAX_TOKENS = 1_000_000_000
SLACK_S = 0.001
MAX_ID_CHARS = 200

_COLUMNS = TABLES["requests"].column_names()
_NEEDS_A_TOKEN = ("server_ttft_s", "prefill_s", "decode_s")
_RUST = re.compile(r"(\d+(?:\.\d+)?)(ns|µs|μs|us|ms|s)")  # both micro signs
_RUST_S = {"ns": 1e-9, "µs": 1e-6, "μs": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_COMPLETION_ID = re.compile(r"cmpl-(wb-.+-\d+)-\d{1,4}(?:-[0-9a-f]{8})?")
_CHAT_ID = re.compile(r"chatcmpl-(wb-.+?-\d+)(?:-[0-9a-f]{8})?")


@dataclass(frozen=True)
class SpanRows:
    """What one export held.

    Attributes:
        requests: rows for the table `requests`.
        dropped: spans without a row, by reason: `other` (no whole request), `end before start`,
            `no latency` (not one latency attribute), `malformed`, `rate` (above `max_rows`).
        nulled: values left out of a row that stays, by `<column> <reason>`.
        slices: what child spans told, for requests whose own span comes in a later export.
        spans_count: all spans of the export.
    """

    requests: list[Row]
    dropped: dict[str, int]
    nulled: dict[str, int] = field(default_factory=dict)
    slices: dict[str, dict[str, float]] = field(default_factory=dict)
    spans_count: int = 0


def span_rows(
    export: Any,
    *,
    node: str,
    received_ns: int,
    slices: Slices | None = None,
    max_rows: int | None = None,
) -> SpanRows:
    """The rows of one export; an empty one gives none.

    Args:
        export: an ExportTraceServiceRequest, or its JSON form as a dict. Anything else inside than
            the protocol's types is counted as malformed.
        node: host that records.
        received_ns: when it came, ns since the epoch; a span that starts over a day later has no
            usable clock, and its times are left out.
        slices: of earlier exports, see `SpanRows`.
        max_rows: further rows are counted as `rate` and not built.
    """
    spans = list(read_spans(export))
    told = _slices(s for s in spans if s)
    rows: list[Row] = []
    dropped: Counter[str] = Counter()
    nulled: Counter[str] = Counter()
    for span in spans:
        if span is None:
            dropped["malformed"] += 1
            continue
        if not _entries(span):
            dropped["other"] += span.name not in slice_columns()
            continue
        if max_rows is not None and len(rows) >= max_rows:
            dropped["rate"] += 1
            continue
        known = {**(slices or {}).get(span.trace_id, {}), **told.get(span.trace_id, {})}
        row = _row(span, known, received_ns, nulled)
        if isinstance(row, str):
            dropped[row] += 1
            continue
        row["node"] = node
        row["request_id"] = row["request_id"] or f"span-{received_ns}-{len(rows)}"
        rows.append(row)
    return SpanRows(rows, dict(+dropped), dict(nulled), told, len(spans))


def client_request_id(span_request_id: str) -> str:
    """The load generator's X-Request-Id inside an engine's request id; any other id as it is.

    vLLM puts `cmpl-` before it and the number of the prompt after it (`chatcmpl-` and no number for
    a chat), and some versions a random suffix of eight hexadecimal digits.
    """
    match = _COMPLETION_ID.fullmatch(span_request_id) or _CHAT_ID.fullmatch(span_request_id)
    return match.group(1) if match else span_request_id


def _row(
    span: Span, told: Mapping[str, float], received_ns: int, nulled: Counter[str]
) -> Row | str:
    """The row of one span, without its node; or why there is none."""
    attributes = span.attributes()
    fits = (e for e in _entries(span) if not e.marker or e.marker in attributes)
    entry = next(fits, None)
    if entry is None:
        return "other"
    if span.start_ns and span.end_ns and span.end_ns < span.start_ns:
        return "end before start"
    if not any(name in attributes for name in entry.seconds.values()):
        return "no latency"
    row: Row = dict.fromkeys(_COLUMNS)
    row.update(_instants(span, received_ns, nulled))
    for column, name in entry.tokens.items():
        row[column] = _tokens(attributes.get(name), column, nulled)
    times = _durations(entry, attributes, told, span, nulled)
    if row["output_tokens"] == 0:
        for column in _NEEDS_A_TOKEN:  # engines write 0 s for a token that never came
            if times.get(column) is not None:
                times[column] = None
                nulled[f"{column} without a token"] += 1
    row.update(times)
    if row["arrival_ns"] is not None and row["server_ttft_s"] is not None:
        row["first_token_ns"] = row["arrival_ns"] + round(row["server_ttft_s"] * 1e9)
    row["request_id"] = _request_id(entry, attributes, span)
    row["source"], row["engine"] = "span", entry.engine
    row["status"] = "error" if span.failed else "ok"
    return row


def _instants(span: Span, received_ns: int, nulled: Counter[str]) -> Row:
    instants: Row = {}
    latest = received_ns + int(DAY_S * 1e9)
    for column, t_ns in (("arrival_ns", span.start_ns), ("end_ns", span.end_ns)):
        usable = 0 < t_ns <= latest
        instants[column] = t_ns if usable else None
        if not usable:
            nulled[f"{column} {'in the future' if t_ns > 0 else 'missing'}"] += 1
    return instants


def _durations(
    entry: RequestSpan,
    attributes: Mapping[str, Any],
    told: Mapping[str, float],
    span: Span,
    nulled: Counter[str],
) -> dict[str, float | None]:
    """Every duration that the engine tells, by column."""
    found: dict[str, float | None] = {}
    given: dict[str, float | str] = {
        **{c: _seconds(attributes.get(name), entry.unit) for c, name in entry.seconds.items()},
        **{c: _checked(told[c]) if c in told else "missing" for c in entry.slices},
        **{
            c: _checked((span.end_ns - span.start_ns) / 1e9) if span.start_ns else "missing"
            for c in entry.whole
        },
    }
    for column, value in given.items():
        found[column] = None if isinstance(value, str) else value
        if isinstance(value, str):
            nulled[f"{column.lstrip('.')} {value}"] += 1
    for column, (a, b) in entry.minus.items():
        first, second = found[a], found[b]
        found[column] = None
        if first is not None and second is not None:
            difference = _checked(first - second)
            if isinstance(difference, str):
                nulled[f"{column} {difference}"] += 1
            else:
                found[column] = difference
    whole, first_token = found.get("server_e2e_s"), found.get("server_ttft_s")
    if whole is not None and first_token is not None and whole < first_token - SLACK_S:
        found["server_e2e_s"] = None  # e.g. a span that ended with the answer's headers
        nulled["server_e2e_s below the TTFT"] += 1
    return {c: v for c, v in found.items() if not c.startswith(".")}


def _seconds(value: Any, unit: str) -> float | str:
    """An attribute as seconds, or why it is none."""
    if value is None:
        return "missing"
    if unit == "rust":
        match = _RUST.fullmatch(value) if isinstance(value, str) else None
        return _checked(float(match[1]) * _RUST_S[match[2]]) if match else "not a duration"
    if type(value) is not float:
        if isinstance(value, bool) or not isinstance(value, int | str):
            return "not a number"
        try:
            value = float(value)
        except (ValueError, OverflowError):
            return "not a number"
    return _checked(value * 1e-3 if unit == "ms" else value)


def _checked(seconds: float) -> float | str:
    if 0 <= seconds <= DAY_S:
        return seconds
    if not math.isfinite(seconds):
        return "not finite"
    return "negative" if seconds < 0 else "above a day"


def _tokens(value: Any, column: str, nulled: Counter[str]) -> int | None:
    number = integer(value)
    if number is not None and 0 <= number <= MAX_TOKENS:
        return number
    nulled[f"{column} {'missing' if value is None else 'not a count'}"] += 1
    return None


def _request_id(entry: RequestSpan, attributes: Mapping[str, Any], span: Span) -> str | None:
    for name in entry.request_id:
        value = attributes.get(name)
        if isinstance(value, str) and value:
            return client_request_id(_storable(value))
    # Without one it joins with nothing, but must not be taken for another request.
    return _storable(f"span-{span.trace_id}-{span.span_id}") if span.span_id else None


def _storable(text: str) -> str:
    """Short, and valid UTF-8: JSON can spell half a character."""
    return text[:MAX_ID_CHARS].encode("utf-8", "replace").decode()


def _entries(span: Span) -> tuple[RequestSpan, ...]:
    if len(span.name) > MAX_ID_CHARS or len(span.scope) > MAX_ID_CHARS:
        return ()
    return find(span.name, span.scope)


def _slices(spans: Iterable[Span]) -> dict[str, dict[str, float]]:
    told: dict[str, dict[str, float]] = {}
    columns = slice_columns()
    for span in spans:
        column = columns.get(span.name)
        if column and span.trace_id and 0 < span.start_ns <= span.end_ns:
            of_trace = told.setdefault(span.trace_id, {})
            # Every rank of a tensor-parallel group may tell the same slice.
            seconds = (span.end_ns - span.start_ns) / 1e9
            of_trace[column] = max(of_trace.get(column, 0.0), seconds)
    return told
