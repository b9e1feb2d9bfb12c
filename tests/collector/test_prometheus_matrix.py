"""Matrices against scrapes: the same pages by both ways give the same rows."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from whybound.collector.engine_map import load_map
from whybound.collector.sources.exposition import parse
from whybound.collector.sources.prometheus_matrix import (
    Fleet,
    Series,
    SignalRows,
    fleet_of,
    own_labels,
    replica_of,
)
from whybound.collector.sources.scrape import scrape_rows

VLLM = load_map("vllm")
PAGE = (Path(__file__).parent / "pages" / "vllm_0_33.txt").read_text()
TARGET = {"job": "vllm", "instance": "h:1"}
END = 10**10


def series_of(pages: dict[int, str], target: dict[str, str]) -> list[Series]:
    """What a Prometheus would hold of the pages, by ms."""
    found: dict[tuple[tuple[str, str], ...], list[tuple[float, str]]] = {}
    for at, page in pages.items():
        for family in parse(page).families:
            for s in family.samples:
                key = tuple(sorted({"__name__": s.name, **s.labels, **target}.items()))
                found.setdefault(key, []).append((at / 1000, repr(s.value)))
    return [Series(dict(key), values) for key, values in found.items()]


def matrix_rows(
    series: list[Series],
    fleet: Fleet | None = None,
    windows: tuple[int, ...] = (0, END),
    **options: Any,
) -> tuple[dict[str, list[dict[str, Any]]], SignalRows]:
    """All rows, one signal at a time as the source asks for them."""
    if fleet is None:
        fleet = fleet_of(
            [s.metric for s in series if s.metric["__name__"].endswith("requests_running")],
            VLLM.instance_labels,
        )
    rows: dict[str, list[dict[str, Any]]] = {"samples": [], "histograms": [], "settings": []}
    by_signal: dict[str, list[Series]] = {}
    for s in series:
        target = VLLM.targets.get(s.metric["__name__"])
        by_signal.setdefault(target.entry.signal if target else s.metric["__name__"], []).append(s)
    last = None
    for group in by_signal.values():
        last = SignalRows(VLLM, fleet, "n", known_only=options.get("known_only", False))
        for after, until in pairwise(windows):
            for table, some in last.rows(group, after_ms=after, until_ms=until).items():
                rows[table] += some
    assert last is not None
    return rows, last


def gauge(name: str, values: dict[int, float], **labels: str) -> Series:
    return Series(
        {"__name__": name, **TARGET, **labels}, [(t / 1000, str(v)) for t, v in values.items()]
    )


def canonical(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(r, sort_keys=True) for r in rows)


def scraped(pages: dict[int, str]) -> dict[str, list[dict[str, Any]]]:
    state, rows = None, {"samples": [], "histograms": [], "settings": []}
    for at, page in pages.items():
        scrape = scrape_rows(page, t_ns=at * 10**6, node="n", replica="h:1", previous=state)
        state = scrape.state
        for table in rows:
            rows[table] += getattr(scrape, table)
    return rows


@pytest.mark.parametrize("windows", [(0, END), (0, 2000, 2500, 4000, END)])
def test_rows_are_those_of_a_scrape(windows: tuple[int, ...]) -> None:
    later = PAGE.replace(
        'vllm:num_requests_running{engine="0",model_name="m"} 8.0',
        'vllm:num_requests_running{engine="0",model_name="m"} 3.0',
    )
    pages = {1000: PAGE, 2000: PAGE, 3000: later, 4000: PAGE}
    direct = scraped(pages)
    for table in ("samples", "histograms"):
        for row in direct[table]:
            row["labels"] = json.dumps(
                {**json.loads(row["labels"]), "job": "vllm"}, sort_keys=True, separators=(",", ":")
            )
    series = series_of(pages, TARGET)
    random.Random(1).shuffle(series)
    found, _ = matrix_rows(series, windows=windows)
    assert len(direct["histograms"]) >= 10
    for table in ("samples", "histograms", "settings"):
        assert canonical(found[table]) == canonical(direct[table]), table


def test_a_sample_on_the_edge_of_two_windows_counts_once() -> None:
    running = gauge("vllm:num_requests_running", {1000: 1, 2000: 2, 3000: 3})
    found, _ = matrix_rows([running], windows=(1000, 2000, 3000))
    assert [(r["t_ns"], r["value"]) for r in found["samples"]] == [(2 * 10**9, 2), (3 * 10**9, 3)]


def test_parts_of_a_histogram_meet_at_equal_times_only() -> None:
    name = "vllm:e2e_request_latency_seconds"
    parts = [
        gauge(name + "_bucket", {1000: 1, 2000: 3}, le="1.0"),
        gauge(name + "_bucket", {1000: 2, 2000: 4, 3000: 4}, le="+Inf"),
        gauge(name + "_sum", {1000: 1.5, 3000: 4}),
        gauge(name + "_count", {1000: 2, 4000: 5}),
        gauge(name + "_bucket", {5000: 7}, le="1.0"),  # neither a count nor +Inf then
    ]
    found, rows = matrix_rows(parts)
    inf = float("inf")
    assert [
        (r["t_ns"] // 10**9, r["bounds"], r["counts"], r["sum"], r["count"])
        for r in found["histograms"]
    ] == [
        (1, [1.0, inf], [1, 2], 1.5, 2),
        (2, [1.0, inf], [3, 4], None, 4),
        (3, [inf], [4], 4, 4),
        (4, [inf], [5], None, 5),
    ]
    assert rows.incomplete_count == 1


def test_of_two_names_of_a_signal_the_preferred_one_counts_where_both_are() -> None:
    found, _ = matrix_rows(
        [
            gauge("vllm:gpu_cache_usage_perc", {1000: 0.1, 2000: 0.2}),
            gauge("vllm:kv_cache_usage_perc", {2000: 0.25}),  # after an upgrade
            Series(
                {"__name__": "vllm:gpu_cache_usage_perc", "job": "vllm", "instance": "old:1"},
                [(2.0, "0.9")],
            ),
        ]
    )
    assert sorted((r["replica"], r["t_ns"] // 10**9, r["value"]) for r in found["samples"]) == [
        ("h:1", 1, 0.1), ("h:1", 2, 0.25), ("old:1", 2, 0.9),
    ]  # fmt: skip


def test_nan_infinity_and_garbage_are_dropped_and_counted() -> None:
    s = Series(
        {"__name__": "vllm:num_requests_running", **TARGET},
        [(1.0, "NaN"), (2.0, "+Inf"), (3.0, "x"), (4.0, "7")],
    )
    found, rows = matrix_rows([s])
    assert [r["value"] for r in found["samples"]] == [7.0]
    assert rows.not_finite_count == 3


def test_replicas_come_from_pod_and_instance_and_ranks_from_what_varies() -> None:
    found, _ = matrix_rows(
        [
            gauge("vllm:num_requests_running", {1000: 1}, pod="a", engine="0"),
            gauge("vllm:num_requests_running", {1000: 2}, pod="a", engine="1"),
            gauge("vllm:num_requests_running", {1000: 3}, pod="b", engine="0"),
        ]
    )
    assert [(r["replica"], r["value"]) for r in found["samples"]] == [
        ("a/h:1/0", 1), ("a/h:1/1", 2), ("b/h:1", 3),
    ]  # fmt: skip
    assert json.loads(found["samples"][0]["labels"]) == {"engine": "0", "job": "vllm"}
    assert replica_of({"instance": "h:1"}) == "h:1"
    assert replica_of({"job": "vllm"}) == ""


def test_a_replica_that_two_jobs_scrape_counts_once() -> None:
    series = [
        gauge("vllm:num_requests_running", {1000: 1}),
        Series(
            {"__name__": "vllm:num_requests_running", "job": "a", "instance": "h:1"}, [(1.1, "1")]
        ),
    ]
    found, rows = matrix_rows(series)
    assert [r["t_ns"] for r in found["samples"]] == [1_100_000_000]
    assert rows.other_job_count == 1
    fleet = fleet_of([s.metric for s in series], [])
    assert fleet.doubled == {"h:1": ["a", "vllm"]}


def test_labels_that_the_target_took_come_back() -> None:
    metric = {
        "__name__": "x", "engine": "fast", "exported_engine": "0", "exported_pod": "p", "job": "j"
    }  # fmt: skip
    assert own_labels(metric) == {
        "__name__": "x", "engine": "0", "target_engine": "fast", "exported_pod": "p", "job": "j"
    }  # fmt: skip


def test_settings_leave_out_who_and_repeat_only_what_changed() -> None:
    def info(values: dict[int, float], **labels: str) -> Series:
        return gauge("vllm:cache_config_info", values, engine="0", team="x", **labels)

    who = gauge("vllm:num_requests_running", {1000: 1}, engine="0", team="x", model_name="m")
    found, _ = matrix_rows(
        [
            who,
            info({3000: 1, 4000: 1}, block_size="16", num_gpu_blocks="20"),
            info({1000: 1, 2000: 1}, block_size="16", num_gpu_blocks="10"),
        ]
    )
    # in whichever order the series come, the later value is the later row
    last = {(r["key"]): r["value"] for r in found["settings"]}
    assert last == {"block_size": "16", "num_gpu_blocks": "20"}
    assert [r["t_ns"] // 10**9 for r in found["settings"] if r["key"] == "num_gpu_blocks"] == [1, 3]


def test_names_of_any_server_are_kept_for_known_replicas_only() -> None:
    mine = gauge("process_cpu_seconds_total", {1000: 5})
    other = Series(
        {"__name__": "process_cpu_seconds_total", "job": "node", "instance": "h:9"}, [(1.0, "9")]
    )
    fleet = fleet_of([{"job": "vllm", "instance": "h:1"}], [])
    found, _ = matrix_rows([mine, other], fleet, known_only=True)
    assert [(r["signal"], r["value"]) for r in found["samples"]] == [("engine_process_cpu_s", 5)]


def test_nothing_gives_nothing() -> None:
    rows = SignalRows(VLLM, Fleet(), "n", known_only=False)
    assert rows.rows([], after_ms=0, until_ms=END) == {}
    assert fleet_of([], ["engine"]) == Fleet()
