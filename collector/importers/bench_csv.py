"""CSV files of load generators: aiperf's figures, InferenceX's requests, the requests of an engine."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from ...errors import WhyboundError
from .bench_points import add_point
from .fact_sheet import FactSheet, latency_signal
from .importer import Importer, Sample, Sink, Source
from .json_lines import csv_rows, json_records, number, whole_lines
from .request_rows import RequestSheet, load_mode_event

_AIPERF = {
    "time to first token (ms)": "ttft", "inter token latency (ms)": "tpot",
    "inter chunk latency (ms)": "itl", "request latency (ms)": "e2e",
}  # fmt: skip
_AIPERF_VALUES = {
    "benchmark duration (sec)": "duration_s",
    "error request count": ".failed",
    "output token throughput (tokens/sec)": "output_tokens_per_s",
    "request count": ".completed",
    "request count (count)": ".completed",
    "request throughput (requests/sec)": "completed_rate_per_s",
    "request throughput (per sec)": "completed_rate_per_s",
    "output token throughput (per sec)": "output_tokens_per_s",
    "input sequence length (tokens)": "input_mean_tokens",
    "output sequence length (tokens)": "output_mean_tokens",
    "input sequence length": "input_mean_tokens",
    "output sequence length": "output_mean_tokens",
}


def _is_aiperf(sample: Sample) -> float:
    first = sample.text.partition("\n")[0].strip()
    return 0.9 if first.startswith("Metric,avg,min,max,") and "p99" in first else 0.0


def _read_aiperf(source: Source, sink: Sink) -> None:
    told: dict[str, Any] = {}
    header: list[str] = []
    for line in whole_lines(source, sink):
        cells = [c.strip().strip('"') for c in _split(line)]
        if cells[:1] == ["Metric"]:
            header = cells[1:]
            continue
        if len(cells) < 2 or not header:
            continue
        row = dict(zip(header, cells[1:], strict=False))
        name = cells[0].lower()  # genai-perf writes "Time To", aiperf "Time to"
        metric, value = _AIPERF.get(name), _AIPERF_VALUES.get(name)
        if metric:
            for theirs, stat in (("avg", "mean"), ("p50", "p50"), ("p95", "p95"), ("p99", "p99")):
                signal, found = latency_signal(metric, stat), number(row.get(theirs))
                if signal and found is not None:
                    told[signal] = found / 1e3
        elif value:
            told[value] = row.get("Value", row.get("avg"))
    sheet = FactSheet(source, sink, "aiperf-csv")
    add_point(sheet, told, sink, scope="", t_ns=None)
    if not sheet.close():
        raise WhyboundError(f"{source.path.name}: no figure of aiperf in it")


def _split(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _is_replay(sample: Sample) -> float:
    first = sample.text.partition("\n")[0]
    named = ("request_start_time", "request_complete_time", "input_tokens", "output_tokens_actual")
    return 0.9 if all(name in first.split(",") for name in named) else 0.0


def _read_replay(source: Source, sink: Sink) -> None:
    sheet = RequestSheet(sink, source.path.name)
    for i, row in enumerate(csv_rows(source, sink)):
        good = row.get("success", "True") == "True"
        sheet.add(
            request_id=f"{row.get('user_id', '')}/{row.get('request_idx', i)}/{i}",
            start_s=row.get("request_start_time") or None,
            first_token_s=row.get("prefill_complete_time") or None,
            end_s=row.get("request_complete_time") or None,
            ttft_s=row.get("ttft") or None,
            e2e_s=row.get("ttlt") or None,
            gaps_s=_gaps(row.get("token_timestamps", "")),
            input_tokens=row.get("input_tokens") or None,
            output_tokens=row.get("output_tokens_actual") or None,
            error=None if good else row.get("error_message") or "failed",
        )
    if not sheet.close():
        raise WhyboundError(f"{source.path.name}: no request in it")
    if sheet.first_ns is not None:
        load_mode_event(sink, "closed", sheet.first_ns)
    sink.note("its users wait for each answer before they go on: the load is closed")


def _gaps(text: str) -> list[float] | None:
    try:
        times = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(times, list):
        return None
    known = [t for value in times if (t := number(value)) is not None]
    if len(known) < len(times):
        return None
    return [max(0.0, b - a) for a, b in pairwise(known)]


def _is_engine_requests(sample: Sample) -> float:
    line = sample.text.lstrip("\ufeff \n").partition("\n")[0]
    named = ('"queued_ts"', '"scheduled_ts"', '"first_token_ts"', '"last_token_ts"')
    return 0.9 if line.startswith("{") and all(name in line for name in named) else 0.0


def _read_engine_requests(source: Source, sink: Sink) -> None:
    """Times of vLLM's RequestStateStats, a line a request: arrival on the wall clock, the rest monotonic.

    The two clocks are laid together where a request was taken in the soonest after its arrival, so what
    lies between arrival and queue is counted from the fastest request.
    """
    offset: float | None = None
    for record in json_records(source, sink):
        arrival, queued = number(record.get("arrival_time")), number(record.get("queued_ts"))
        if arrival is not None and queued:
            offset = max(arrival - queued, offset if offset is not None else arrival - queued)
    sheet = RequestSheet(sink, source.path.name, "vllm")
    for i, record in enumerate(json_records(source, sink)):
        _add_engine_request(record, sheet, i, offset)
    if not sheet.close():
        raise WhyboundError(f"{source.path.name}: no request in it")
    sink.note(
        "its times come from two clocks, laid together at the request that was taken in the soonest: "
        "what passes before the queue is counted from that one"
    )


def _add_engine_request(
    record: Mapping[str, Any], sheet: RequestSheet, index: int, offset: float | None
) -> None:
    names = ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")
    # an engine writes 0 where a request never got so far
    times = [number(record.get(name)) or None for name in names]
    queued, scheduled, first, last = times

    def wall(t: float | None) -> float | None:
        return None if t is None or offset is None else t + offset

    def between(a: float | None, b: float | None) -> float | None:
        return None if a is None or b is None else b - a

    sheet.add(
        request_id=str(record.get("request_id") or f"request-{index}"),
        source="span",
        start_s=record.get("arrival_time"),
        first_token_s=wall(first),
        end_s=wall(last),
        input_tokens=record.get("input_toks"),
        output_tokens=record.get("output_toks"),
        error=None if last is not None else "never finished",
        server={
            "queue_wait_s": between(queued, scheduled),
            "prefill_s": between(scheduled, first),
            "decode_s": between(first, last),
        },
    )


IMPORTERS: tuple[Importer, ...] = (
    Importer("aiperf-csv", "figures of aiperf or genai-perf (CSV)", _is_aiperf, _read_aiperf),
    Importer(
        "trace-replay-requests",
        "requests of InferenceX's trace replay (CSV)",
        _is_replay,
        _read_replay,
    ),
    Importer(
        "engine-requests",
        "times of each request in vLLM's scheduler (JSON lines)",
        _is_engine_requests,
        _read_engine_requests,
    ),
)
