"""Tables that load generators print: vLLM's and SGLang's block of results, InferenceX's summary."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ...errors import WhyboundError
from .bench_points import add_point, point_scope
from .fact_sheet import FactSheet, latency_signal
from .importer import Importer, Sample, Sink, Source
from .json_lines import number

_TITLE = "= Serving Benchmark Result ="
_END = re.compile(r"={40,}\s*$")
_LINE = re.compile(r"\s*(?P<name>[^:]+?)(?: \((?P<unit>[^)]*)\))?:\s+(?P<value>\S+)\s*$")
_STAT = re.compile(r"(Mean|Median|P50|P95|P99) (TTFT|TPOT|ITL|E2EL|E2E Latency)")
_METRICS = {"TTFT": "ttft", "TPOT": "tpot", "ITL": "itl", "E2EL": "e2e", "E2E Latency": "e2e"}
_NAMES = {
    "Successful requests": ".completed",
    "Failed requests": ".failed",
    "Maximum request concurrency": ".concurrency",
    "Max request concurrency": ".concurrency",
    "Request rate configured": ".rate",
    "Traffic request rate": ".rate",
    "Benchmark duration": "duration_s",
    "Total input tokens": ".input",
    "Total generated tokens": ".output",
    "Request throughput": "completed_rate_per_s",
    "Output token throughput": "output_tokens_per_s",
    "Concurrency": "inflight_mean_count",
}
_NOT_SET = ("not set", "None", "none")

_REPLAY = "Trace Replay Performance Tester"
_SUMMARY: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (re.compile(r"Duration: ([\d.,]+)s"), ("duration_s",)),
    (re.compile(r"Total Requests: ([\d,]+)"), (".all",)),
    (
        re.compile(r"  TTFT avg/p50/p95/max: ([\d.]+)s / ([\d.]+)s / ([\d.]+)s"),
        ("client_ttft_mean_s", "client_ttft_p50_s", "client_ttft_p95_s"),
    ),
    (
        re.compile(r"  Throughput: ([\d.,]+) input tok/s \| ([\d.,]+) output tok/s$"),
        ("prompt_tokens_per_s", "output_tokens_per_s"),
    ),
    (re.compile(r"  Avg Workload Cache Hit Rate: ([\d.]+)%"), (".hit_percent",)),
)


def _is_block(sample: Sample) -> float:
    return 0.85 if _TITLE in sample.text else 0.0


def _read_blocks(source: Source, sink: Sink) -> None:
    blocks = list(_blocks(source, sink))
    if not blocks:
        raise WhyboundError(
            f"{source.path.name}: no whole table of results in it; was the run cut short?"
        )
    sheet = FactSheet(source, sink, "bench-table")
    scopes: dict[str, int] = {}
    for told in blocks:
        scope = point_scope(told) if len(blocks) > 1 else ""
        if len(blocks) > 1:
            scope = scope or f"segment=point:{len(scopes) + 1}"
            scopes[scope] = scopes.get(scope, 0) + 1
            scope += f"#{scopes[scope]}" if scopes[scope] > 1 else ""
        add_point(sheet, told, sink, scope=scope, t_ns=None)
    if len(blocks) > 1:
        sink.note(f"{len(blocks)} tables of results: each is a segment")
    sheet.close()


def _blocks(source: Source, sink: Sink) -> Iterator[dict[str, Any]]:
    told: dict[str, Any] | None = None
    for line in source.lines():
        if _TITLE in line:
            told = {}
        elif told is not None and _END.match(line):
            yield _exact(told)
            told = None
        elif told is not None:
            _add_line(told, line)
    if told is not None:
        sink.note(f"{source.path.name}: its last table is cut off: left out")


def _exact(told: dict[str, Any]) -> dict[str, Any]:
    """With the rate of its requests made of their count: printed, a slow one is cut to two decimals."""
    done, lasted = number(told.get(".completed")), number(told.get("duration_s"))
    return {**told, "completed_rate_per_s": done / lasted} if done and lasted else told


def _add_line(told: dict[str, Any], line: str) -> None:
    match = _LINE.match(line)
    if match is None:
        return
    name, value = match["name"], match["value"]
    stat = _STAT.fullmatch(name)
    if stat:
        spelled = {"Mean": "mean", "Median": "p50"}.get(stat[1], stat[1].lower())
        signal = latency_signal(_METRICS[stat[2]], spelled)
        found = number(value)
        if signal and match["unit"] == "ms":
            told.setdefault(signal, value if found is None else found / 1e3)
    elif name in _NAMES and value not in _NOT_SET:
        told.setdefault(_NAMES[name], value)


def _is_replay(sample: Sample) -> float:
    return 0.9 if _REPLAY in sample.text[:4096] else 0.0


def _read_replay(source: Source, sink: Sink) -> None:
    told: dict[str, Any] = {}
    over, failed = False, 0
    for line in source.lines():
        failed += " ERROR - Request failed" in line
        said = line.rpartition(" INFO - ")[2]
        over = over or "Test Complete" in said
        for pattern, names in _SUMMARY:
            match = pattern.match(said.rstrip()) or pattern.match(said.strip())
            if match and over:
                told.update(zip(names, (number(v) for v in match.groups()), strict=True))
    if not over:
        raise WhyboundError(f"{source.path.name}: the replay did not end: it has no summary")
    sheet = FactSheet(source, sink, "trace-replay-log")
    n, lasted, hits = (number(told.get(k)) for k in (".all", "duration_s", ".hit_percent"))
    if n is not None and n >= failed:
        told[".completed"], told[".failed"] = n - failed, failed
        if lasted:
            told["completed_rate_per_s"] = (n - failed) / lasted
    if failed:
        sink.note(f"{failed} of its requests failed; its latencies may hold theirs")
    add_point(sheet, told, sink, scope="", t_ns=None)
    sheet.add_text("load_mode", "closed")  # a user waits for the answer, and then thinks
    if hits is not None:
        sink.note(
            f"the workload's own cache hit rate of {hits:g} % is of its traces, not the server's"
        )
    sheet.close()


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        "bench-table",
        "printed results of vllm bench serve or sglang.bench_serving",
        _is_block,
        _read_blocks,
    ),
    Importer("trace-replay-log", "log of InferenceX's trace replay", _is_replay, _read_replay),
)
