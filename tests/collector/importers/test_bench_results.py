"""Results of load generators: figures in our units, requests where they are all there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from imported import imported

from whybound.errors import WhyboundError

VLLM: dict[str, Any] = {
    "date": "20260616-091038", "endpoint_type": "openai-chat", "backend": "openai-chat",
    "tokenizer_id": "m", "num_prompts": 3, "request_rate": "inf", "burstiness": 1.0,
    "max_concurrency": 2, "duration": 10.0, "completed": 2, "failed": 1, "total_input_tokens": 300,
    "total_output_tokens": 20, "request_throughput": 0.2, "output_throughput": 2.0,
    "mean_ttft_ms": 100.0, "median_ttft_ms": 90.0, "p99_ttft_ms": 190.0, "mean_e2el_ms": 2000.0,
    "mean_itl_ms": 50.0, "p95_itl_ms": 80.0,
}  # fmt: skip
DETAIL: dict[str, Any] = {
    "input_lens": [100, 200, 50], "output_lens": [3, 2, 0], "ttfts": [0.1, 0.2, 0.0],
    "itls": [[0.5, 0.25], [0.5], []], "start_times": [1453.5, 1454.0, 1454.5],
    "errors": ["", "", "refused\nby peer"],
}  # fmt: skip


def test_vllm_in_milliseconds_becomes_seconds_with_means_of_totals() -> None:
    found = imported(json.dumps(VLLM))
    assert found.kind == "vllm-bench"
    facts = found.facts()
    assert facts["client_ttft_mean_s"] == 0.1
    assert facts["client_ttft_p50_s"] == 0.09
    assert facts["client_ttft_p99_s"] == 0.19
    assert facts["client_itl_p95_s"] == 0.08
    assert facts["input_mean_tokens"] == 150
    assert facts["output_mean_tokens"] == 10
    assert facts["requests_count"] == 3
    assert facts["failed_ratio"] == pytest.approx(1 / 3)
    assert facts["load_mode"] == "closed"
    assert facts["inflight_mean_count"] == pytest.approx(0.4)  # Little: 0.2/s of 2 s each
    assert "client_ttft_p95_s" not in facts  # not in the file: not zero
    assert "offered_rate_per_s" not in facts
    assert not found.rows("requests")
    row = found.rows("facts")[0]
    assert (row["n"], row["source"], row["file"]) == (2, "vllm-bench", "file")


def test_the_requests_of_save_detailed_lie_on_the_run_by_their_monotonic_times() -> None:
    found = imported(json.dumps({**VLLM, **DETAIL}))
    first, second, third = found.rows("requests")
    assert second["arrival_ns"] - first["arrival_ns"] == 500_000_000
    assert first["client_ttft_s"] == 0.1
    assert first["client_e2e_s"] == pytest.approx(0.85)
    assert first["chunk_gap_s"] == [0.5, 0.25]
    assert first["end_ns"] - first["arrival_ns"] == 850_000_000
    assert (second["input_tokens"], second["output_tokens"], second["status"]) == (200, 2, "ok")
    assert third["status"] == "error"
    assert third["error"] == "refused by peer"
    assert third["client_ttft_s"] is None  # vLLM writes 0 for a token that never came
    assert third["client_e2e_s"] is None
    assert [row["text"] for row in found.rows("events")] == ["closed"]
    assert found.told("monotonic")


def test_detail_of_versions_without_times_keeps_the_durations_alone() -> None:
    detail = {k: v for k, v in DETAIL.items() if k != "start_times"}
    first = imported(json.dumps({**VLLM, **detail})).rows("requests")[0]
    assert first["arrival_ns"] is None
    assert first["client_e2e_s"] == pytest.approx(0.85)


@pytest.mark.parametrize(
    ("rate", "cap", "done", "mode"),
    [
        ("inf", 4, 1.0, "closed"),
        (2.0, None, 1.0, "open"),
        (2.0, 4, 1.95, "open"),
        (2.0, 4, 0.5, "closed"),
        ("inf", None, 1.0, None),
    ],
)
def test_the_mode_of_a_load_is_what_held_it_back(
    rate: Any, cap: int | None, done: float, mode: str | None
) -> None:
    result = {**VLLM, "request_rate": rate, "max_concurrency": cap, "request_throughput": done}
    facts = imported(json.dumps(result)).facts()
    assert facts.get("load_mode") == mode
    assert facts.get("offered_rate_per_s") == (2.0 if mode == "open" else None)


def test_what_is_no_finite_number_is_left_out_and_told() -> None:
    bad = {
        "mean_ttft_ms": float("nan"),
        "median_ttft_ms": -1,
        "p99_ttft_ms": "fast",
        "mean_itl_ms": True,
    }
    found = imported(json.dumps({**VLLM, **bad, "mean_e2el_ms": "2000"}))
    facts = found.facts()
    assert not [s for s in facts if "ttft" in s]
    assert "client_itl_mean_s" not in facts
    assert facts["client_e2e_mean_s"] == 2.0  # a text that is a number
    assert found.told("client_ttft_mean_s left out 1 times")


def test_results_appended_to_one_file_are_segments() -> None:
    sweep = [{**VLLM, **DETAIL, "max_concurrency": n, "duration": n} for n in (1, 2, 4)]
    found = imported("\n".join(json.dumps(one) for one in sweep))
    assert found.facts() == {}
    assert found.facts("segment=concurrency:4")["duration_s"] == 4
    assert not found.rows("requests")  # pooled over loads they would describe none
    assert found.told("3 load points")


def test_sglang_writes_a_line_a_run_and_infinity() -> None:
    line = {
        "backend": "sglang", "dataset_name": "random", "request_rate": float("inf"),
        "max_concurrency": 8, "random_range_ratio": 1.0, "duration": 5.0, "completed": 10,
        "total_input_tokens": 1000, "total_output_tokens": 500,
        "total_output_tokens_retokenized": 499, "request_throughput": 2.0,
        "output_throughput": 100.0, "mean_e2e_latency_ms": 3000.0, "mean_ttft_ms": 20.0,
        "mean_itl_ms": 10.0, "concurrency": 6.0,
    }  # fmt: skip
    found = imported(json.dumps(line) + "\n" + json.dumps({**line, "max_concurrency": 16})[:-40])
    assert found.kind == "sglang-bench"
    facts = found.facts()
    assert facts["client_e2e_mean_s"] == 3.0
    assert facts["inflight_mean_count"] == 6.0
    assert facts["load_mode"] == "closed"
    assert found.told("1 lines are no JSON object")  # the run that was cut off


def guide(strategy: dict[str, Any], kept: int) -> dict[str, Any]:
    def told(mean: float) -> dict[str, Any]:
        return {
            "successful": {"mean": mean, "median": mean, "percentiles": {"p95": mean, "p99": mean}}
        }

    request = {
        "request_id": "r", "request_start_time": 1.7e9, "request_end_time": 1.7e9 + 2,
        "time_to_first_token_ms": 500.0, "request_latency": 2.0, "prompt_tokens": 7,
        "output_tokens": 3,
    }  # fmt: skip
    return {
        "type_": "generative_benchmark",
        "config": {"strategy": strategy},
        "duration": 4.0,
        "start_time": 1.7e9,
        "metrics": {
            "request_totals": {"successful": 2, "errored": 0, "incomplete": 0},
            "time_to_first_token_ms": told(500.0),
            "inter_token_latency_ms": told(20.0),
            "request_latency": told(2.0),
            "requests_per_second": told(0.5),
            "request_concurrency": told(1.0),
            "prompt_token_count": told(7.0),
            "output_token_count": told(3.0),
        },
        "requests": {"successful": [request] * kept, "errored": []},
    }


def test_guidellm_gives_its_requests_only_where_it_kept_all() -> None:
    whole = {"benchmarks": [guide({"type_": "synchronous"}, 2)]}
    found = imported(json.dumps(whole))
    assert found.facts()["client_ttft_mean_s"] == 0.5
    assert found.facts()["client_tpot_mean_s"] == 0.02  # its ITL is a mean per request
    assert "client_itl_mean_s" not in found.facts()
    assert [row["client_e2e_s"] for row in found.rows("requests")] == [2.0, 2.0]
    sampled = imported(json.dumps({"benchmarks": [guide({"type_": "synchronous"}, 1)]}))
    assert not sampled.rows("requests")
    assert sampled.told("1 of 2 requests")


def test_a_sweep_of_guidellm_is_told_by_what_was_varied() -> None:
    points = [guide(s, 0) for s in ({"type_": "synchronous"}, {"type_": "constant", "rate": 0.5})]
    found = imported(json.dumps({"benchmarks": points}))
    assert found.facts("segment=concurrency:1")["load_mode"] == "closed"
    open_point = found.facts("segment=rate:0.5")
    assert (open_point["load_mode"], open_point["offered_rate_per_s"]) == ("open", 0.5)


def test_aiperf_tells_its_units_itself() -> None:
    def metric(unit: str, avg: float) -> dict[str, Any]:
        return {"unit": unit, "avg": avg, "p50": avg, "p95": avg, "p99": avg, "p25": avg}

    whole = {
        "time_to_first_token": metric("ms", 250.0),
        "request_latency": metric("sec", 3.0),
        "inter_token_latency": metric("fortnights", 1.0),
        "benchmark_duration": {"unit": "ms", "avg": 9000.0},
        "request_count": {"unit": "requests", "avg": 9},
        "request_throughput": {"unit": "requests/sec", "avg": 1.0},
        "input_config": {"loadgen": {"concurrency": 4}},
    }
    found = imported(json.dumps(whole))
    assert found.kind == "aiperf"
    facts = found.facts()
    assert facts["client_ttft_mean_s"] == 0.25
    assert facts["client_e2e_p99_s"] == 3.0
    assert facts["duration_s"] == 9.0
    assert "client_tpot_mean_s" not in facts  # a unit that nobody knows is not guessed
    assert facts["inflight_mean_count"] == 3.0


def test_aiperf_records_keep_the_cancelled_ones_as_failed() -> None:
    about = {
        "record_processor_id": "p",
        "credit_phase": "profiling",
        "timestamp_ns": 1_759_522_419 * 10**9,
    }
    good = {
        "metadata": {**about, "x_request_id": "a"},
        "metrics": {
            "ttft": {"value": 100.0, "unit": "ms"}, "request_latency": {"value": 1.5, "unit": "s"},
            "inter_chunk_latency": {"value": [10.0, 20.0], "unit": "ms"},
            "output_sequence_length": {"value": 3, "unit": "tokens"},
        },
        "error": None,
    }  # fmt: skip
    bad = {
        "metadata": {**about, "x_request_id": "b"},
        "metrics": {},
        "error": {"code": 499, "message": "cut"},
    }
    warm = {**good, "metadata": {**about, "credit_phase": "warmup"}}
    rows = imported("\n".join(json.dumps(r) for r in (good, bad, warm))).rows("requests")
    assert [(r["request_id"], r["status"], r["error"]) for r in rows] == [
        ("a", "ok", None),
        ("b", "error", "cut"),
    ]
    assert rows[0]["chunk_gap_s"] == [0.01, 0.02]
    assert rows[0]["client_e2e_s"] == 1.5


def test_inference_perf_tells_how_late_it_sent() -> None:
    stats = {"mean": 0.5, "median": 0.4, "p95": 0.9, "p99": 1.0}
    whole = {
        "load_summary": {
            "count": 10,
            "schedule_delay": {**stats, "mean": -0.1},
            "requested_rate": 4.0,
            "achieved_rate": 3.9,
            "send_duration": 2.5,
        },
        "successes": {
            "count": 10,
            "latency": {"time_to_first_token": stats},
            "throughput": {"requests_per_sec": 3.5},
            "prompt_len": {"mean": 200, "max": 210, "p95": 205},
        },
        "failures": {"count": 0},
    }
    found = imported(json.dumps(whole))
    facts = found.facts()
    assert facts["send_lag_p99_s"] == 1.0
    assert "send_lag_mean_s" not in facts  # earlier than planned, in the mean
    assert facts["offered_rate_per_s"] == 3.9
    assert facts["load_mode"] == "open"
    assert facts["client_ttft_p50_s"] == 0.4


def test_llmperf_counts_by_the_minute_and_its_itl_is_none() -> None:
    whole = {
        "num_concurrent_requests": 5, "results_ttft_s_mean": 0.2,
        "results_inter_token_latency_s_mean": 0.005, "results_end_to_end_latency_s_mean": 1.2,
        "results_num_completed_requests_per_min": 120.0, "results_num_completed_requests": 150,
        "results_number_output_tokens_mean": 101.0, "results_number_errors": 0,
    }  # fmt: skip
    facts = imported(json.dumps(whole)).facts()
    assert facts["completed_rate_per_s"] == 2.0
    assert "client_itl_mean_s" not in facts
    assert facts["client_tpot_mean_s"] == pytest.approx(0.01)  # (1.2 - 0.2) / 100


def test_inferencex_multiplies_by_its_gpus() -> None:
    whole = {
        "hw": "mi355x",
        "conc": 32,
        "tput_per_gpu": 157.0,
        "output_tput_per_gpu": 20.0,
        "tp": 8,
        "isl": 1024,
        "osl": 512,
        "mean_ttft": 2.5,
        "median_e2el": 9.0,
    }
    facts = imported(json.dumps(whole)).facts()
    assert facts["output_tokens_per_s"] == 160.0
    assert facts["client_ttft_mean_s"] == 2.5
    assert facts["inflight_mean_count"] == 32


def test_genai_bench_says_its_unit_once() -> None:
    whole = {
        "aggregated_metrics": {
            "num_concurrency": 1,
            "iteration_type": "num_concurrency",
            "run_duration": 10.0,
            "num_completed_requests": 2,
            "num_error_requests": 0,
            "requests_per_second": 0.2,
            "stats": {"ttft": {"mean": 200.0, "p50": 190.0}, "e2e_latency": {"mean": 1000.0}},
        },
        "individual_request_metrics": [
            {"ttft": 200.0, "e2e_latency": 1000.0, "num_output_tokens": 5, "error_code": None}
        ],
        "_time_unit": "ms",
    }
    found = imported(json.dumps(whole))
    assert found.facts()["client_ttft_mean_s"] == 0.2
    assert found.rows("requests")[0]["client_e2e_s"] == 1.0


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(VLLM)[:-50],
        json.dumps({**VLLM, "x": 0})[:-2] + "[" * 3000,
        '{"benchmarks": [], "guidellm_version": "0.6.0"}',
        '{"benchmarks": [{"type_": "generative_benchmark", "metrics": 3}]}',
    ],
)
def test_what_is_broken_ends_in_one_line(text: str) -> None:
    with pytest.raises(WhyboundError) as refused:
        imported(text)
    assert "\n" not in str(refused.value)


def test_a_file_of_before_says_so_in_every_fact() -> None:
    found = imported(json.dumps(VLLM), when="before")
    assert {row["when"] for row in found.rows("facts")} == {"before"}
