"""Requests that load generators keep beside their figures, tool by tool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .importer import Sink
from .json_lines import count, number
from .request_rows import RequestSheet

Whole = Mapping[str, Any]


def from_arrays(whole: Whole, sheet: RequestSheet, sink: Sink, *, began_ns: int) -> None:
    """Arrays of vLLM's --save-detailed and SGLang's --output-details: one list a column.

    `start_times` come from a monotonic clock: the first one is laid on `began_ns`.
    """
    ttfts = _list(whole, "ttfts")
    if not ttfts:
        return
    columns = {name: _list(whole, name) for name in ("itls", "input_lens", "output_lens", "errors")}
    starts = [number(value) for value in _list(whole, "start_times")]
    known = [s for s in starts if s is not None]
    if len(starts) != len(ttfts):
        starts, known = [], []
        sink.note("its requests have no times of sending: only their durations are known")
    elif known:
        sink.note("its times come from a monotonic clock: the first request is laid on the start")
    zero = min(known, default=0.0)
    for i, ttft in enumerate(ttfts):
        own = {name: values[i] if i < len(values) else None for name, values in columns.items()}
        error = own["errors"] if isinstance(own["errors"], str) and own["errors"] else None
        begun, first = starts[i] if i < len(starts) else None, number(ttft)
        if first == 0:  # written where no token came
            first = None
            error = error or "no token came"
        gaps = own["itls"] if isinstance(own["itls"], list) else None
        sums = [number(gap) for gap in gaps or ()]
        whole_s = None
        if first is not None and gaps is not None and all(g is not None for g in sums):
            whole_s = first + sum(g for g in sums if g is not None)
        sheet.add(
            request_id=f"request-{i}",
            start_s=None if begun is None else began_ns / 1e9 + (begun - zero),
            ttft_s=first,
            e2e_s=whole_s,
            gaps_s=gaps,
            input_tokens=own["input_lens"],
            output_tokens=own["output_lens"],
            error=error,
        )


def from_guidellm(point: Whole, sheet: RequestSheet, sink: Sink, *, completed: int | None) -> None:
    """Requests of one guidellm benchmark, where all are in the file: it keeps a sample by default."""
    held = point.get("requests")
    good = _list(held, "successful")
    if not good or completed is None:
        return
    if len(good) < completed:
        sink.note(
            f"the file holds {len(good)} of {completed} requests: a sample, so the figures count alone"
        )
        return
    for status in ("successful", "errored"):
        for i, request in enumerate(_list(held, status)):
            if isinstance(request, Mapping):
                _add_guidellm(request, sheet, f"{status}-{i}", failed=status == "errored")


def _add_guidellm(request: Whole, sheet: RequestSheet, name: str, *, failed: bool) -> None:
    info = request.get("info")
    times = info.get("timings") if isinstance(info, Mapping) else None
    times = times if isinstance(times, Mapping) else {}
    ttft = number(request.get("time_to_first_token_ms"))
    sheet.add(
        request_id=str(request.get("request_id") or name),
        start_s=_first(request, "request_start_time", "start_time"),
        first_token_s=_first(times, "first_token_iteration") or request.get("first_token_time"),
        end_s=_first(request, "request_end_time", "end_time"),
        ttft_s=None if ttft is None else ttft / 1e3,
        e2e_s=request.get("request_latency"),
        input_tokens=request.get("prompt_tokens"),
        output_tokens=request.get("output_tokens"),
        error="failed" if failed else None,
    )


def from_genai_bench(whole: Whole, sheet: RequestSheet, sink: Sink) -> None:
    """Requests of genai-bench: durations without times."""
    scale = {"s": 1.0, "ms": 1e-3}.get(str(whole.get("_time_unit", "s")))
    requests = _list(whole, "individual_request_metrics")
    if not requests or scale is None:
        return
    sink.note("its requests have no times of sending: only their durations are known")
    for i, request in enumerate(r for r in requests if isinstance(r, Mapping)):
        ttft, e2e = number(request.get("ttft")), number(request.get("e2e_latency"))
        failed = request.get("error_code")
        sheet.add(
            request_id=f"request-{i}",
            ttft_s=None if ttft is None else ttft * scale,
            e2e_s=None if e2e is None else e2e * scale,
            input_tokens=request.get("num_input_tokens"),
            output_tokens=request.get("num_output_tokens"),
            error=None if failed is None else f"{failed} {request.get('error_message') or ''}",
        )


def add_aiperf(record: Whole, sheet: RequestSheet, index: int) -> None:
    """One line of aiperf's profile_export.jsonl; a request of its warm-up is left out."""
    about, metrics = record.get("metadata"), record.get("metrics")
    about = about if isinstance(about, Mapping) else {}
    metrics = metrics if isinstance(metrics, Mapping) else {}
    if about.get("credit_phase", about.get("benchmark_phase", "profiling")) == "warmup":
        return
    error = record.get("error")
    start = count(about.get("request_start_ns")) or count(about.get("timestamp_ns"))
    end = count(about.get("request_end_ns"))
    gaps = metrics.get("inter_chunk_latency")
    scale = _scale(gaps)
    values = gaps.get("value") if isinstance(gaps, Mapping) else None
    sheet.add(
        request_id=str(about.get("x_request_id") or f"request-{index}"),
        start_s=None if start is None else start / 1e9,
        end_s=None if end is None else end / 1e9,
        ttft_s=_seconds(metrics.get("time_to_first_token") or metrics.get("ttft")),
        e2e_s=_seconds(metrics.get("request_latency")),
        gaps_s=[v * scale for v in values if isinstance(v, int | float)]
        if isinstance(values, list) and scale is not None
        else None,
        input_tokens=_plain(metrics.get("input_sequence_length")),
        output_tokens=_plain(metrics.get("output_sequence_length")),
        error=str(error.get("message") or error.get("type") or "failed")
        if isinstance(error, Mapping)
        else None,
    )


def _seconds(metric: Any) -> float | None:
    value, scale = _plain(metric), _scale(metric)
    return None if value is None or scale is None else value * scale


def _scale(metric: Any) -> float | None:
    unit = metric.get("unit") if isinstance(metric, Mapping) else None
    return {"ms": 1e-3, "s": 1.0, "sec": 1.0, "us": 1e-6, "ns": 1e-9}.get(str(unit))


def _plain(metric: Any) -> float | None:
    return number(metric.get("value")) if isinstance(metric, Mapping) else None


def _list(holder: Any, key: str) -> list[Any]:
    found = holder.get(key) if isinstance(holder, Mapping) else None
    return found if isinstance(found, list) else []


def _first(holder: Whole, *keys: str) -> Any:
    return next((holder[k] for k in keys if holder.get(k) is not None), None)
