"""Real files of many people: each is read, or refused with the right reason.

`WHYBOUND_CORPUS` names the folder; nothing of it is copied here.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
from imported import Imported, imported

from whybound.errors import WhyboundError

CORPUS = os.environ.get("WHYBOUND_CORPUS", "")
pytestmark = pytest.mark.skipif(not CORPUS, reason="WHYBOUND_CORPUS names no folder of real files")

REFUSED = {
    "bottleneck_diagnosis.json": "another tool's diagnosis",
    "schedulingOrchestration.md": "a document about metrics",
    "profile.yaml": "a load generator's configuration",
    "stream_interval_1.jsonl": "the chunks of one recorded answer",
    "stream_interval_20.jsonl": "the chunks of one recorded answer",
}
"""End of the name → what the refusal says."""
KINDS = {
    "_lifecycle_metrics.json": "inference-perf",
    "benchmark.log": "trace-replay-log",
    "server_metrics.csv": "inferencex-metrics",
    "detailed_results.csv": "trace-replay-requests",
    "guidellm-results.json": "guidellm",
    "benchmarks_stripped.json": "guidellm",
    "profile_export.jsonl": "aiperf-requests",
    "profile_export_aiperf.json": "aiperf",
    "profile_export_aiperf.csv": "aiperf-csv",
    "requests.jsonl": "engine-requests",
    "timeseries.csv": "engine-timeseries",
    "telemetry.csv": "gpu-telemetry",
    "meta.json": "run-config",
    "exp-config.yaml": "run-config-yaml",
    "_70b.json": "llmperf",
    "_c4.json": "vllm-bench",
    "monday-peak.json": "vllm-bench",
    "monday-peak.log": "bench-table",
    "monday-peak.md": "bench-table",
    "rate-sweep.log": "bench-table",
    "rate-sweep.json": "bench-records",
    "rate-sweep.md": "bench-markdown",
    "concurrency-stress.md": "bench-markdown",
    "wbb3.json": "inferencex",
    "120s.json": "genai-bench",
    "traces.json": "otlp-json",
    ".prom": "metrics-text",
    "_metrics.txt": "metrics-text",
    "prometheus.md": "metrics-pasted",
}


def files(*folders: str) -> list[Path]:
    """Those of the corpus that are not for other importers; empty without a corpus."""
    root = Path(CORPUS)
    found = [p for f in folders for p in sorted((root / f).rglob("*")) if p.is_file()]
    return [p for p in found if not p.name.endswith("server.log")]


@cache
def read(path: Path) -> Imported:
    return imported(path.read_bytes(), path.name)


def named(end: str) -> Path:
    return next(p for p in files("5-bench", "6-otlp") if p.name.endswith(end))


ALL = ("4-prometheus", "4-prometheus-extracted", "5-bench", "6-otlp", "7-arrival")


@pytest.mark.parametrize("path", files(*ALL) if CORPUS else [], ids=lambda p: p.name[:40])
def test_every_file_is_read_or_refused_for_its_reason(path: Path) -> None:
    reason = next((why for end, why in REFUSED.items() if path.name.endswith(end)), "")
    if "test_traces" in path.name:
        reason = "an agent's calls"
    if reason:
        with pytest.raises(WhyboundError, match=reason):
            read(path)
        return
    found = read(path)
    assert sum(len(rows) for rows in found.tables.values())
    kinds = {kind for end, kind in KINDS.items() if path.name.endswith(end)}
    assert not kinds or found.kind in kinds
    for row in found.rows("facts"):
        assert row["text"] or (row["value"] >= 0 and row["value"] < 1e9)


def test_a_page_under_load_agrees_with_itself() -> None:
    path = next(p for p in files("4-prometheus") if p.name.startswith("24265f96"))
    facts = read(path).facts()
    assert facts["engine_finished_count"] == 48
    parts = ("queue", "prefill", "decode", "front_end")
    whole = sum(facts[f"server_{name}_mean_s"] for name in parts)
    assert whole == pytest.approx(facts["server_e2e_mean_s"], rel=0.01)


def test_vllm_s_own_figures_come_out_of_its_requests() -> None:
    found = read(named("day05_medium_i512_o128_c4.json"))
    facts, rows = found.facts(), found.rows("requests")
    assert len(rows) == facts["requests_count"] == 16
    mean = sum(row["client_e2e_s"] for row in rows) / len(rows)
    assert mean == pytest.approx(facts["client_e2e_mean_s"], rel=0.01)
    spread = (max(r["end_ns"] for r in rows) - min(r["arrival_ns"] for r in rows)) / 1e9
    assert spread == pytest.approx(facts["duration_s"], rel=0.05)


def test_guidellm_and_its_servers_spans_tell_of_the_same_requests() -> None:
    spans = read(named("e4e0f030__ground_truth__jan20-codellama-prefill-1__traces.json"))
    sweep = read(named("guidellm-results.json"))
    alone = sweep.facts("segment=concurrency:1")
    rows = spans.rows("requests")
    assert len(rows) == 200  # five points of forty
    assert {row["engine"] for row in rows} == {"vllm"}
    first = sorted(rows, key=lambda row: row["arrival_ns"])[:40]
    mean = sum(row["server_ttft_s"] for row in first) / 40
    assert mean == pytest.approx(alone["client_ttft_mean_s"], rel=0.05)


def test_inferencex_agrees_between_its_log_its_requests_and_its_metrics() -> None:
    bench = Path(CORPUS) / "5-bench" / "SemiAnalysisAI__InferenceX"
    log = read(next(p for p in bench.glob("*conc1_*benchmark.log")))
    requests = read(next(p for p in bench.glob("*conc1_*detailed_results.csv")))
    metrics = read(next(p for p in bench.glob("*conc1_*server_metrics.csv")))
    rows = requests.rows("requests")
    assert len(rows) == log.facts()["requests_count"] == 45
    mean = sum(row["client_ttft_s"] for row in rows) / 45
    assert mean == pytest.approx(log.facts()["client_ttft_mean_s"], abs=0.01)
    assert max(metrics.samples("requests_finished_count")) == 45
    assert max(metrics.samples("engine_running_count")) <= 1
    full = read(next(p for p in bench.glob("*conc256_*benchmark.log"))).facts()
    assert full["requests_count"] * (1 - full["failed_ratio"]) == pytest.approx(82)


def test_the_rate_sweep_is_the_same_in_four_forms() -> None:
    table = read(named("__11-rate-sweep.log")).facts("segment=rate:0.3")
    records = read(named("__11-rate-sweep.json")).facts("segment=rate:0.3")
    result = read(named("11-rate-sweep-0.3.json")).facts()
    markdown = read(named("__11-rate-sweep.md")).facts("segment=rate:0.3")
    assert table["client_ttft_p95_s"] == pytest.approx(result["client_ttft_p95_s"], rel=1e-4)
    assert records["client_ttft_p95_s"] == pytest.approx(result["client_ttft_p95_s"], rel=1e-4)
    assert markdown["output_tokens_per_s"] == pytest.approx(result["output_tokens_per_s"], rel=0.02)
