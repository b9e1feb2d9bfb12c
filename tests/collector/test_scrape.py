"""Pages made rows: every mapped name is asserted on, by value."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from whybound.collector.engine_map import load_map
from whybound.collector.schema import TABLES
from whybound.collector.sources.exposition import detect_engine
from whybound.collector.sources.scrape import Scrape, scrape_rows

PAGES = Path(__file__).parent / "pages"
INF = float("inf")

# (signal, upstream name, kind, unit, value, reason) of every mapped line of the page
V0_6: list[tuple[str, str, str, str, float, str]] = [
    ("engine_running_count", "vllm:num_requests_running", "gauge", "count", 3, ""),
    ("engine_waiting_count", "vllm:num_requests_waiting", "gauge", "count", 2, ""),
    ("engine_swapped_count", "vllm:num_requests_swapped", "gauge", "count", 1, ""),
    ("kv_used_ratio", "vllm:gpu_cache_usage_perc", "gauge", "ratio", 0.75, ""),
    ("cpu_kv_used_ratio", "vllm:cpu_cache_usage_perc", "gauge", "ratio", 0.125, ""),
    ("preemptions_count", "vllm:num_preemptions_total", "counter", "count", 4, ""),
    ("prompt_tokens", "vllm:prompt_tokens_total", "counter", "tokens", 1280, ""),
    ("generation_tokens", "vllm:generation_tokens_total", "counter", "tokens", 640, ""),
    ("requests_finished_count", "vllm:request_success_total", "counter", "count", 15, "length"),
    ("requests_finished_count", "vllm:request_success_total", "counter", "count", 5, "stop"),
    ("spec_draft_tokens", "vllm:spec_decode_num_draft_tokens_total", "counter", "tokens", 120, ""),
    (
        "spec_accepted_tokens", "vllm:spec_decode_num_accepted_tokens_total",
        "counter", "tokens", 60, "",
    ),
    ("engine_process_cpu_s", "process_cpu_seconds_total", "counter", "s", 8.25, ""),
]  # fmt: skip
V0_10: list[tuple[str, str, str, str, float, str]] = [
    ("engine_running_count", "vllm:num_requests_running", "gauge", "count", 5, ""),
    ("engine_waiting_count", "vllm:num_requests_waiting", "gauge", "count", 7, ""),
    ("kv_used_ratio", "vllm:kv_cache_usage_perc", "gauge", "ratio", 0.5, ""),
    ("prefix_queries_tokens", "vllm:prefix_cache_queries_total", "counter", "tokens", 2000, ""),
    ("prefix_hits_tokens", "vllm:prefix_cache_hits_total", "counter", "tokens", 500, ""),
    ("preemptions_count", "vllm:num_preemptions_total", "counter", "count", 6, ""),
    ("prompt_tokens", "vllm:prompt_tokens_total", "counter", "tokens", 2000, ""),
    ("generation_tokens", "vllm:generation_tokens_total", "counter", "tokens", 900, ""),
    ("requests_finished_count", "vllm:request_success_total", "counter", "count", 11, "stop"),
    ("requests_finished_count", "vllm:request_success_total", "counter", "count", 19, "length"),
    ("requests_finished_count", "vllm:request_success_total", "counter", "count", 0, "abort"),
    ("engine_process_cpu_s", "process_cpu_seconds_total", "counter", "s", 8.25, ""),
]
V0_33: list[tuple[str, str, str, str, float, str]] = [
    ("estimated_flops", "vllm:estimated_flops_per_gpu_total", "counter", "flops", 1e12, ""),
    (
        "estimated_read_bytes", "vllm:estimated_read_bytes_per_gpu_total",
        "counter", "bytes", 2e9, "",
    ),
    (
        "estimated_write_bytes", "vllm:estimated_write_bytes_per_gpu_total",
        "counter", "bytes", 3e8, "",
    ),
    ("engine_running_count", "vllm:num_requests_running", "gauge", "count", 8, ""),
    ("engine_waiting_count", "vllm:num_requests_waiting", "gauge", "count", 9, ""),
    (
        "engine_waiting_by_reason_count", "vllm:num_requests_waiting_by_reason",
        "gauge", "count", 6, "capacity",
    ),
    (
        "engine_waiting_by_reason_count", "vllm:num_requests_waiting_by_reason",
        "gauge", "count", 3, "deferred",
    ),
    ("kv_used_ratio", "vllm:kv_cache_usage_perc", "gauge", "ratio", 0.25, ""),
    ("prefix_queries_tokens", "vllm:prefix_cache_queries_total", "counter", "tokens", 4000, ""),
    ("prefix_hits_tokens", "vllm:prefix_cache_hits_total", "counter", "tokens", 1000, ""),
    (
        "external_prefix_queries_tokens", "vllm:external_prefix_cache_queries_total",
        "counter", "tokens", 3000, "",
    ),
    (
        "external_prefix_hits_tokens", "vllm:external_prefix_cache_hits_total",
        "counter", "tokens", 250, "",
    ),
    ("preemptions_count", "vllm:num_preemptions_total", "counter", "count", 10, ""),
    ("prompt_tokens", "vllm:prompt_tokens_total", "counter", "tokens", 4000, ""),
    ("generation_tokens", "vllm:generation_tokens_total", "counter", "tokens", 1100, ""),
    (
        "prompt_tokens_by_source", "vllm:prompt_tokens_by_source_total",
        "counter", "tokens", 2750, "local_compute",
    ),
    (
        "prompt_tokens_by_source", "vllm:prompt_tokens_by_source_total",
        "counter", "tokens", 1000, "local_cache_hit",
    ),
    (
        "prompt_tokens_by_source", "vllm:prompt_tokens_by_source_total",
        "counter", "tokens", 250, "external_kv_transfer",
    ),
    ("prompt_cached_tokens", "vllm:prompt_tokens_cached_total", "counter", "tokens", 1250, ""),
    ("requests_finished_count", "vllm:request_success_total", "counter", "count", 12, "stop"),
    ("requests_finished_count", "vllm:request_success_total", "counter", "count", 20, "length"),
    ("requests_finished_count", "vllm:request_success_total", "counter", "count", 1, "repetition"),
    (
        "admission_rejected_count", "vllm:admission_rejections_total",
        "counter", "count", 13, "max_num_queued_reqs",
    ),
    (
        "admission_rejected_count", "vllm:admission_rejections_total",
        "counter", "count", 0, "max_num_queued_tokens",
    ),
    ("spec_drafts_count", "vllm:spec_decode_num_drafts_total", "counter", "count", 300, ""),
    ("spec_draft_tokens", "vllm:spec_decode_num_draft_tokens_total", "counter", "tokens", 900, ""),
    (
        "spec_accepted_tokens", "vllm:spec_decode_num_accepted_tokens_total",
        "counter", "tokens", 450, "",
    ),
    (
        "spec_accepted_by_position_tokens", "vllm:spec_decode_num_accepted_tokens_per_pos_total",
        "counter", "tokens", 270, "",
    ),
    (
        "spec_accepted_by_position_tokens", "vllm:spec_decode_num_accepted_tokens_per_pos_total",
        "counter", "tokens", 180, "",
    ),
    (
        "kv_transfer_failures_count", "vllm:nixl_num_failed_transfers_total",
        "counter", "count", 2, "",
    ),
    ("engine_process_cpu_s", "process_cpu_seconds_total", "counter", "s", 8.25, ""),
]  # fmt: skip
LLAMACPP: list[tuple[str, str, str, str, float, str]] = [
    ("prompt_tokens", "llamacpp:prompt_tokens_total", "counter", "tokens", 2000, ""),
    ("prompt_cached_tokens", "llamacpp:prompt_tokens_cached_total", "counter", "tokens", 500, ""),
    ("engine_prefill_s", "llamacpp:prompt_seconds_total", "counter", "s", 0.75, ""),
    ("generation_tokens", "llamacpp:tokens_predicted_total", "counter", "tokens", 1900, ""),
    ("engine_decode_s", "llamacpp:tokens_predicted_seconds_total", "counter", "s", 15.5, ""),
    ("engine_decode_steps_count", "llamacpp:n_decode_total", "counter", "count", 600, ""),
    (
        "spec_draft_tokens", "llamacpp:spec_decode_num_draft_tokens_total",
        "counter", "tokens", 90, "",
    ),
    (
        "spec_accepted_tokens", "llamacpp:spec_decode_num_accepted_tokens_total",
        "counter", "tokens", 45, "",
    ),
    ("spec_drafts_count", "llamacpp:spec_decode_num_drafts_total", "counter", "count", 30, ""),
    (
        "spec_accepted_by_position_tokens",
        "llamacpp:spec_decode_num_accepted_tokens_per_pos_total", "counter", "tokens", 27, "",
    ),
    (
        "spec_accepted_by_position_tokens",
        "llamacpp:spec_decode_num_accepted_tokens_per_pos_total", "counter", "tokens", 18, "",
    ),
    ("engine_running_count", "llamacpp:requests_processing", "gauge", "count", 4, ""),
    ("engine_waiting_count", "llamacpp:requests_deferred", "gauge", "count", 2, ""),
    ("busy_slots_mean_count", "llamacpp:n_busy_slots_per_decode", "gauge", "count", 3.25, ""),
]  # fmt: skip

# (signal, upstream name, unit, first bound, first count, sum, count) of every mapped histogram
H0_6: list[tuple[str, str, str, float, float, float, float]] = [
    ("iteration_tokens", "vllm:iteration_tokens_total", "tokens", 1.0, 5, 1920, 40),
    ("ttft_s", "vllm:time_to_first_token_seconds", "s", 0.001, 0, 2.5, 20),
    ("itl_s", "vllm:time_per_output_token_seconds", "s", 0.001, 0, 12.4, 620),
    ("e2e_s", "vllm:e2e_request_latency_seconds", "s", 0.3, 2, 18.5, 20),
    ("queue_s", "vllm:request_queue_time_seconds", "s", 0.3, 18, 1.5, 20),
    ("inference_s", "vllm:request_inference_time_seconds", "s", 0.3, 3, 16.0, 20),
    ("prefill_s", "vllm:request_prefill_time_seconds", "s", 0.3, 19, 2.0, 20),
    ("decode_s", "vllm:request_decode_time_seconds", "s", 0.3, 4, 14.0, 20),
    ("model_forward_s", "vllm:model_forward_time_milliseconds", "s", 0.0003, 0, 9.0, 20),
    ("model_execute_s", "vllm:model_execute_time_milliseconds", "s", 0.0003, 0, 9.5, 20),
    ("request_prompt_tokens", "vllm:request_prompt_tokens", "tokens", 1.0, 0, 1280, 20),
    ("request_generation_tokens", "vllm:request_generation_tokens", "tokens", 1.0, 0, 640, 20),
]
H0_10: list[tuple[str, str, str, float, float, float, float]] = [
    ("request_prompt_tokens", "vllm:request_prompt_tokens", "tokens", 1.0, 0, 2000, 30),
    ("request_generation_tokens", "vllm:request_generation_tokens", "tokens", 1.0, 0, 900, 30),
    ("iteration_tokens", "vllm:iteration_tokens_total", "tokens", 1.0, 100, 2400, 200),
    ("ttft_s", "vllm:time_to_first_token_seconds", "s", 0.001, 0, 3.5, 30),
    ("itl_s", "vllm:inter_token_latency_seconds", "s", 0.001, 0, 8.7, 870),
    ("e2e_s", "vllm:e2e_request_latency_seconds", "s", 0.3, 10, 13, 30),
    ("queue_s", "vllm:request_queue_time_seconds", "s", 0.3, 30, 0.75, 30),
    ("inference_s", "vllm:request_inference_time_seconds", "s", 0.3, 11, 11.5, 30),
    ("prefill_s", "vllm:request_prefill_time_seconds", "s", 0.3, 29, 2.25, 30),
    ("decode_s", "vllm:request_decode_time_seconds", "s", 0.3, 12, 9.25, 30),
]
H0_33: list[tuple[str, str, str, float, float, float, float]] = [
    ("request_prompt_tokens", "vllm:request_prompt_tokens", "tokens", 1.0, 0, 4000, 33),
    ("request_generation_tokens", "vllm:request_generation_tokens", "tokens", 1.0, 0, 1100, 33),
    ("iteration_tokens", "vllm:iteration_tokens_total", "tokens", 1.0, 200, 3850, 300),
    ("ttft_s", "vllm:time_to_first_token_seconds", "s", 0.001, 0, 4.5, 33),
    ("itl_s", "vllm:inter_token_latency_seconds", "s", 0.001, 0, 10.5, 1067),
    ("tpot_s", "vllm:request_time_per_output_token_seconds", "s", 0.001, 0, 0.35, 33),
    ("e2e_s", "vllm:e2e_request_latency_seconds", "s", 0.3, 10, 16, 33),
    ("queue_s", "vllm:request_queue_time_seconds", "s", 0.3, 32, 1.25, 33),
    ("inference_s", "vllm:request_inference_time_seconds", "s", 0.3, 11, 14, 33),
    ("prefill_s", "vllm:request_prefill_time_seconds", "s", 0.3, 32, 3, 33),
    ("decode_s", "vllm:request_decode_time_seconds", "s", 0.3, 12, 11, 33),
    ("request_preemptions_count", "vllm:request_num_preemptions", "count", 1.0, 30, 10, 33),
    (
        "request_prefill_computed_tokens", "vllm:request_prefill_kv_computed_tokens",
        "tokens", 1.0, 0, 2750, 33,
    ),
    ("kv_transfer_s", "vllm:nixl_xfer_time_seconds", "s", 0.005, 1, 0.5, 15),
    ("kv_transfer_bytes", "vllm:nixl_bytes_transferred", "bytes", 1048576.0, 5, 1.5e8, 15),
]  # fmt: skip

# Names that stand on none of the pages: (engine, line, signal, upstream name, value)
ALONE = [
    ("vllm", "vllm:gpu_prefix_cache_queries_total 40", "prefix_queries_tokens",
     "vllm:gpu_prefix_cache_queries_total", 40),
    ("vllm", "vllm:gpu_prefix_cache_hits_total 10", "prefix_hits_tokens",
     "vllm:gpu_prefix_cache_hits_total", 10),
    ("vllm", "vllm:prompt_tokens_recomputed_total 7", "prompt_recomputed_tokens",
     "vllm:prompt_tokens_recomputed_total", 7),
    ("vllm", "vllm:mooncake_num_failed_transfers_total 3", "kv_transfer_failures_count",
     "vllm:mooncake_num_failed_transfers_total", 3),
    ("vllm", "vllm:mooncake_xfer_time_seconds_count 5", "kv_transfer_s",
     "vllm:mooncake_xfer_time_seconds", 5),
    ("vllm", "vllm:mooncake_bytes_transferred_count 6", "kv_transfer_bytes",
     "vllm:mooncake_bytes_transferred", 6),
    ("llamacpp", "llamacpp:kv_cache_usage_ratio 0.5", "kv_used_ratio",
     "llamacpp:kv_cache_usage_ratio", 0.5),
    ("llamacpp", "llamacpp:tokens_drafted_total 8", "spec_draft_tokens",
     "llamacpp:tokens_drafted_total", 8),
    ("llamacpp", "llamacpp:tokens_drafted_accepted_total 4", "spec_accepted_tokens",
     "llamacpp:tokens_drafted_accepted_total", 4),
]  # fmt: skip


def scrape(text: str | bytes, **more: Any) -> Scrape:
    return scrape_rows(text, **({"t_ns": 1000, "node": "n1", "replica": "h:1"} | more))


def page(name: str) -> str:
    return (PAGES / f"{name}.txt").read_text()


@pytest.mark.parametrize(
    ("name", "engine", "samples", "histograms"),
    [
        ("vllm_0_6", "vllm", V0_6, H0_6),
        ("vllm_0_10", "vllm", V0_10, H0_10),
        ("vllm_0_33", "vllm", V0_33, H0_33),
        ("llamacpp", "llamacpp", LLAMACPP, []),
    ],
)
def test_a_page_becomes_these_rows_and_no_others(
    name: str, engine: str, samples: list[Any], histograms: list[Any]
) -> None:
    got = scrape(page(name))
    assert sorted(
        (r["signal"], r["raw_name"], r["kind"], r["unit"], r["value"], r["reason"])
        for r in got.samples
    ) == sorted(samples)
    shown = [
        (*(r[k] for k in ("signal", "raw_name", "unit")), r["bounds"][0], r["counts"][0],
         r["sum"], r["count"])
        for r in got.histograms
    ]  # fmt: skip
    assert sorted(shown) == sorted(histograms)
    assert got.engine == engine
    assert (got.unmapped, got.absent, got.bad_lines) == ({}, [], 0)
    assert (got.not_finite_count, got.incomplete_count, got.truncated) == (0, 0, False)
    for row in got.samples + got.histograms:
        assert (row["t_ns"], row["node"], row["engine"], row["gpu"]) == (1000, "n1", engine, "")
        assert row["replica"] == "h:1"


@pytest.mark.parametrize(("engine", "line", "signal", "raw_name", "value"), ALONE)
def test_an_old_or_rare_name_alone(
    engine: str, line: str, signal: str, raw_name: str, value: float
) -> None:
    got = scrape(line + "\n")
    [row] = got.samples + got.histograms
    assert (got.engine, row["signal"], row["raw_name"]) == (engine, signal, raw_name)
    assert row.get("value", row.get("count")) == value


def test_every_mapped_name_is_asserted_on() -> None:
    """A name added to a map without a line above fails here."""
    tables = V0_6 + V0_10 + V0_33 + LLAMACPP + H0_6 + H0_10 + H0_33
    asserted = {(row[0], row[1]) for row in tables} | {(row[2], row[3]) for row in ALONE}
    asserted = {(signal, name.removesuffix("_total")) for signal, name in asserted}
    mapped = {
        (entry.signal, upstream.name.removesuffix("_total"))
        for engine in ("vllm", "llamacpp")
        for entry in load_map(engine).signals
        for upstream in entry.names
        if detect_engine([upstream.name]) in (engine, "")
    }
    assert asserted == mapped


def test_rows_have_the_columns_of_their_tables() -> None:
    got = scrape(page("vllm_0_33"))
    for table in ("samples", "histograms", "settings"):
        for row in getattr(got, table):
            assert list(row) == TABLES[table].column_names()


def test_cache_config_becomes_settings_once() -> None:
    first = scrape(page("vllm_0_33"))
    assert {r["key"]: r["value"] for r in first.settings} == {
        "_block_size_resolved": "True",
        "block_size": "128",
        "cache_dtype": "fp8",
        "enable_prefix_caching": "True",
        "gpu_memory_utilization": "0.92",
        "kv_cache_size_tokens": "524288",
        "num_gpu_blocks": "4096",
        "num_gpu_blocks_override": "None",
    }
    assert {(r["origin"], r["source"], r["engine"], r["replica"]) for r in first.settings} == {
        ("effective", "metrics", "vllm", "h:1")
    }
    again = scrape(page("vllm_0_33"), previous=first.state)
    assert again.settings == []
    restarted = page("vllm_0_33").replace('num_gpu_blocks="4096"', 'num_gpu_blocks="2048"')
    changed = scrape(restarted, previous=again.state)
    assert [(r["key"], r["value"]) for r in changed.settings] == [("num_gpu_blocks", "2048")]


def test_labels_are_kept_and_moved() -> None:
    got = scrape(page("vllm_0_33"))
    by_signal = {r["signal"]: r for r in got.samples + got.histograms}
    assert by_signal["kv_used_ratio"]["labels"] == '{"engine":"0","model_name":"tiny"}'
    assert by_signal["ttft_s"]["labels"] == '{"engine":"0","model_name":"tiny"}'
    assert by_signal["requests_finished_count"]["labels"] == '{"engine":"0","model_name":"tiny"}'
    assert by_signal["engine_process_cpu_s"]["labels"] == "{}"
    positions = [
        json.loads(r["labels"])["position"]
        for r in got.samples
        if r["signal"] == "spec_accepted_by_position_tokens"
    ]
    assert positions == ["0", "1"]


def test_an_unchanged_histogram_is_not_repeated_but_samples_are() -> None:
    first = scrape(page("vllm_0_10"))
    again = scrape(page("vllm_0_10"), previous=first.state)
    assert again.histograms == []
    assert len(again.samples) == len(first.samples)
    moved = page("vllm_0_10").replace(
        'request_queue_time_seconds_sum{engine="0",model_name="tiny"} 0.75',
        'request_queue_time_seconds_sum{engine="0",model_name="tiny"} 0.8',
    )
    assert [r["signal"] for r in scrape(moved, previous=again.state).histograms] == ["queue_s"]


def test_bounds_ascend_to_infinity_and_counts_are_cumulative() -> None:
    text = """\
vllm:time_to_first_token_seconds_bucket{le="+Inf"} 9
vllm:time_to_first_token_seconds_bucket{le="0.5"} 3
vllm:time_to_first_token_seconds_bucket{le="10"} 7
vllm:time_to_first_token_seconds_sum 12.5
vllm:time_to_first_token_seconds_count 9
"""
    [row] = scrape(text).histograms
    assert (row["bounds"], row["counts"]) == ([0.5, 10.0, INF], [3.0, 7.0, 9.0])


def test_a_histogram_without_its_last_bucket_takes_the_count() -> None:
    text = (
        'vllm:e2e_request_latency_seconds_bucket{le="1"} 3\n'
        "vllm:e2e_request_latency_seconds_count 5\n"
    )
    [row] = scrape(text).histograms
    assert (row["bounds"], row["counts"], row["sum"]) == ([1.0, INF], [3.0, 5.0], None)


def test_a_histogram_cut_before_its_count_is_dropped_and_counted() -> None:
    got = scrape('vllm:e2e_request_latency_seconds_bucket{le="1"} 3\n')
    assert (got.histograms, got.incomplete_count) == ([], 1)


def test_a_counter_reset_is_stored_as_it_is() -> None:
    first = scrape("vllm:prompt_tokens_total 1000\n")
    second = scrape("vllm:prompt_tokens_total 12\n", previous=first.state)
    assert [r["value"] for r in first.samples + second.samples] == [1000.0, 12.0]


def test_values_that_are_no_numbers_are_dropped_and_counted() -> None:
    got = scrape("vllm:kv_cache_usage_perc NaN\nvllm:num_requests_running 1\n")
    assert [r["signal"] for r in got.samples] == ["engine_running_count"]
    assert got.not_finite_count == 1


def test_ranks_behind_one_page_are_replicas_of_their_own() -> None:
    first = page("vllm_0_33")
    lines = [line for line in first.splitlines() if 'engine="0"' in line]
    second = "\n".join(lines).replace('engine="0"', 'engine="1"')
    got = scrape(f"{first}{second}\n")
    running = [r for r in got.samples if r["signal"] == "engine_running_count"]
    assert [r["replica"] for r in running] == ["h:1/0", "h:1/1"]
    assert json.loads(running[1]["labels"])["engine"] == "1"
    assert len(got.histograms) == 2 * len(H0_33)
    # What no rank speaks for keeps the server's name.
    rejected = [r for r in got.samples if r["signal"] == "admission_rejected_count"]
    assert {r["replica"] for r in rejected} == {"h:1"}
    # A rank that falls silent does not rename the other.
    later = scrape(first, previous=got.state)
    assert {r["replica"] for r in later.settings} == set()
    assert {r["replica"] for r in later.samples} == {"h:1/0", "h:1"}


def test_ray_page_counts_each_counter_once_and_tells_replicas_apart() -> None:
    text = """\
# TYPE ray_vllm_num_requests_running gauge
ray_vllm_num_requests_running{ReplicaId="a",WorkerId="w1",engine="0",model_name="m"} 3
ray_vllm_num_requests_running{ReplicaId="b",WorkerId="w2",engine="0",model_name="m"} 4
# TYPE ray_vllm_prompt_tokens counter
ray_vllm_prompt_tokens{ReplicaId="a",WorkerId="w1",engine="0",model_name="m"} 100
# TYPE ray_vllm_prompt_tokens_total counter
ray_vllm_prompt_tokens_total{ReplicaId="a",WorkerId="w1",engine="0",model_name="m"} 100
ray_node_cpu_utilization 3
ray_vllm_something_new{ReplicaId="a"} 1
"""
    got = scrape(text)
    assert got.engine == "vllm"
    assert [(r["raw_name"], r["replica"], r["value"]) for r in got.samples] == [
        ("ray_vllm_num_requests_running", "h:1/a", 3.0),
        ("ray_vllm_num_requests_running", "h:1/b", 4.0),
        ("ray_vllm_prompt_tokens_total", "h:1/a", 100.0),
    ]
    assert got.unmapped == {"ray_vllm_something_new": 1}
    assert "engine_waiting_count" in got.absent
    assert "preemptions_count" not in got.absent  # Ray shows no counter that was never raised


def test_unmapped_and_absent_are_told() -> None:
    text = page("vllm_0_33").replace("vllm:num_requests_running", "vllm:num_reqs_running")
    got = scrape(text)
    assert got.unmapped == {"vllm:num_reqs_running": 1}
    assert got.absent == ["engine_running_count"]


def test_an_engine_that_nobody_knows_gives_only_what_any_server_has() -> None:
    got = scrape("lmdeploy:token_usage 0.5\nprocess_cpu_seconds_total 3\n")
    assert (got.engine, got.unmapped, got.absent) == ("", {"lmdeploy:token_usage": 1}, [])
    assert [r["signal"] for r in got.samples] == ["engine_process_cpu_s"]


@pytest.mark.parametrize("text", ["", "\n", "<html>", b"\x00\xff\xfe", "# only a comment\n"])
def test_nothing_in_nothing_out(text: str | bytes) -> None:
    got = scrape(text)
    assert (got.samples, got.histograms, got.settings, got.engine) == ([], [], [], "")
    assert got.sample_count == 0


def test_a_page_is_cheap() -> None:
    """Best of several: the machine may be busy, the code is not."""
    text = page("vllm_0_33") + page("vllm_0_33").replace('engine="0"', 'engine="1"')  # 50 kB
    assert len(text) > 50_000
    state = scrape(text).state

    def once() -> float:
        began = time.perf_counter()
        scrape(text, previous=state)
        return time.perf_counter() - began

    assert min(once() for _ in range(20)) < 0.025


CORPUS = os.environ.get("WHYBOUND_CORPUS")


def _recorded() -> list[Path]:
    if not CORPUS:
        return []
    root = Path(CORPUS)
    found = [p for s in (".txt", ".prom") for p in root.glob(f"4-prometheus*/*/*{s}")]
    samples = root.parent / "samples"
    return sorted(found) + sorted(samples.glob("vllm-cpu/metrics_*.txt")) + sorted(
        samples.glob("llama.cpp/metrics_*.txt")
    )  # fmt: skip


@pytest.mark.skipif(not CORPUS, reason="WHYBOUND_CORPUS does not name the corpus folder")
@pytest.mark.parametrize("path", _recorded(), ids=lambda p: p.name)
def test_recorded_pages(path: Path) -> None:
    got = scrape(path.read_bytes())
    assert got.bad_lines == 0
    assert got.incomplete_count == 0
    if got.engine in ("vllm", "llamacpp"):
        assert got.unmapped == {}
        assert got.samples
    if got.engine == "vllm" and path.stat().st_size > 10_000:  # not an excerpt
        assert got.absent == []
        assert {"ttft_s", "itl_s", "queue_s"} <= {r["signal"] for r in got.histograms}
        assert {"block_size", "num_gpu_blocks"} <= {r["key"] for r in got.settings}


@pytest.mark.skipif(not CORPUS, reason="WHYBOUND_CORPUS does not name the corpus folder")
def test_there_are_recorded_pages() -> None:
    assert len(_recorded()) >= 20
