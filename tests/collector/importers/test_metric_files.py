"""Dumps of metrics and answers of Prometheus: rows as a live scrape would have given."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from imported import T0, imported

from whybound.errors import WhyboundError

PAGE = """\
# HELP vllm:num_requests_running Number of requests.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="m"}} {running}
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{engine="0",model_name="m"}} {tokens}
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{{engine="0",model_name="m"}} 200.0
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{{engine="0",model_name="m"}} 50.0
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{{engine="0",model_name="m"}} 3.0
# TYPE vllm:request_success_total counter
vllm:request_success_total{{engine="0",finished_reason="stop",model_name="m"}} 10.0
# TYPE vllm:request_queue_time_seconds histogram
vllm:request_queue_time_seconds_bucket{{engine="0",le="1.0",model_name="m"}} 10.0
vllm:request_queue_time_seconds_bucket{{engine="0",le="+Inf",model_name="m"}} 10.0
vllm:request_queue_time_seconds_sum{{engine="0",model_name="m"}} 5.0
vllm:request_queue_time_seconds_count{{engine="0",model_name="m"}} 10.0
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{{engine="0",le="+Inf",model_name="m"}} 10.0
vllm:e2e_request_latency_seconds_sum{{engine="0",model_name="m"}} 20.0
vllm:e2e_request_latency_seconds_count{{engine="0",model_name="m"}} 10.0
# TYPE vllm:inter_token_latency_seconds histogram
vllm:inter_token_latency_seconds_bucket{{engine="0",le="+Inf",model_name="m"}} 0.0
vllm:inter_token_latency_seconds_sum{{engine="0",model_name="m"}} 0.0
vllm:inter_token_latency_seconds_count{{engine="0",model_name="m"}} 0.0
"""


def page(running: float | str = 4.0, tokens: float = 1000.0) -> str:
    return PAGE.format(running=running, tokens=tokens)


def test_one_page_gives_the_means_of_the_engines_life_and_says_so() -> None:
    found = imported(page())
    assert found.kind == "metrics-text"
    assert found.samples("engine_running_count") == [4.0]
    assert {row["t_ns"] for row in found.rows("samples")} == {T0}
    facts = found.facts()
    assert facts["server_queue_mean_s"] == 0.5
    assert facts["server_e2e_mean_s"] == 2.0
    assert facts["wait_share_ratio"] == 0.25
    assert facts["prefix_hit_ratio"] == 0.25
    assert facts["preemptions_per_request_ratio"] == pytest.approx(0.3)
    assert "server_itl_mean_s" not in facts  # no observation: no mean, and not zero
    assert "server_front_end_mean_s" not in facts  # the inference time is not on the page
    assert found.told("since the engine's start")


def test_one_page_tells_how_many_drafted_tokens_were_taken() -> None:
    drafts = "".join(
        f"# TYPE vllm:spec_decode_num_{what}_tokens counter\n"
        f'vllm:spec_decode_num_{what}_tokens_total{{engine="0",model_name="m"}} {count}\n'
        for what, count in (("draft", 400.0), ("accepted", 300.0))
    )
    assert imported(page() + drafts).facts()["speculation_accepted_ratio"] == 0.75
    assert "speculation_accepted_ratio" not in imported(page()).facts()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("# 1776748571\n", "# 1776748631\n"),
        ("# timestamp: 1776748571000\n", "# timestamp: 1776748631000\n"),
        ("=== 2026-04-21T05:16:11Z ===\n", "=== 2026-04-21T05:17:11Z ===\n"),
        ("# scraped at 2026-04-21 05:16:11\n", "# scraped at 2026-04-21 05:17:11\n"),
    ],
)
def test_pages_with_times_are_scrapes_one_after_another(first: str, second: str) -> None:
    found = imported(first + page(tokens=100) + second + page(tokens=700))
    rows = [row for row in found.rows("samples") if row["signal"] == "prompt_tokens"]
    assert [row["value"] for row in rows] == [100, 700]
    assert rows[1]["t_ns"] - rows[0]["t_ns"] == 60 * 10**9
    assert rows[0]["t_ns"] == 1776748571 * 10**9
    assert not found.rows("facts")  # what lies between the two says more than the whole life
    assert len(found.rows("histograms")) == 3  # the second scrape changed none


def test_of_pages_without_times_only_the_last_counts() -> None:
    found = imported(page(tokens=100) + page(tokens=700))
    assert found.samples("prompt_tokens") == [700]
    assert found.told("1 earlier pages without a time")


def test_the_name_of_a_file_may_tell_its_time() -> None:
    assert imported(page(), "1776748571.txt").rows("samples")[0]["t_ns"] == 1776748571 * 10**9
    assert (
        imported(page(), "scrape-1776748571500.prom").rows("samples")[0]["t_ns"]
        == 1776748571500 * 10**6
    )


def test_nan_and_lines_that_are_none_are_counted() -> None:
    found = imported(
        page(running="NaN") + 'vllm:num_requests_waiting{broken 3\nother_metric{a="b"} 1\n'
    )
    assert found.samples("engine_running_count") == []
    assert found.told("1 values that are no finite number")
    assert found.told("1 lines could not be read")
    assert found.told("1 unmapped families")


def test_a_page_pasted_into_a_document_is_found() -> None:
    text = f"# How to\n\n```bash\ncurl x/metrics\n```\n\nGives:\n\n```\n{page()}...\n```\n"
    found = imported(text)
    assert found.kind == "metrics-pasted"
    assert found.facts()["server_e2e_mean_s"] == 2.0
    with pytest.raises(WhyboundError, match="a document about metrics"):
        imported(
            "# Alerts on vllm:num_requests_waiting\n\n```yaml\nexpr: DCGM_FI_DEV_GPU_UTIL\n```\n"
        )


def test_a_page_of_nothing_known_is_refused_with_the_way_out() -> None:
    with pytest.raises(WhyboundError, match="known meaning"):
        imported("# TYPE a counter\na 1\n# TYPE b gauge\nb 2\n")


def test_many_foreign_series_take_bounded_memory() -> None:
    lines = [f'container_memory_bytes{{pod="p{i}"}} {i}' for i in range(50_000)]
    text = (page() + "# TYPE container_memory_bytes gauge\n" + "\n".join(lines) + "\n").encode()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    found = imported(text)
    grown = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert found.samples("engine_running_count") == [4.0]
    # the test's own source splits the text into lines, which takes some five times its size
    assert grown < 8 * len(text)


def series(name: str, values: list[tuple[float, str]], **labels: str) -> dict[str, Any]:
    return {
        "metric": {"__name__": name, "instance": "i:8000", "job": "j", **labels},
        "values": values,
    }


def answer(*result: dict[str, Any], kind: str = "matrix") -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": kind, "result": list(result)}}


TWO = [(1776748571.0, "1"), (1776748601.0, "3")]


def test_a_range_query_gives_samples_and_joined_histograms() -> None:
    whole = answer(
        series("vllm:num_requests_running", TWO),
        series("vllm:e2e_request_latency_seconds_bucket", TWO, le="+Inf"),
        series("vllm:e2e_request_latency_seconds_sum", [(t, str(2 * float(v))) for t, v in TWO]),
        series("vllm:e2e_request_latency_seconds_count", TWO),
        series("up", TWO),
        {"metric": {}, "values": TWO},
    )
    found = imported(json.dumps(whole))
    assert found.kind == "prometheus-json"
    assert found.samples("engine_running_count") == [1, 3]
    assert [row["sum"] for row in found.rows("histograms")] == [2.0, 6.0]
    assert {row["replica"] for row in found.rows("samples")} == {"i:8000"}
    assert found.told("1 series are results of an expression")
    assert found.told("1 series of no known meaning")


def test_several_answers_may_share_a_file() -> None:
    whole = [
        answer(series("vllm:num_requests_running", TWO)),
        answer(series("vllm:num_requests_waiting", [(1776748571.0, "NaN"), (1776748601.0, "2")])),
    ]
    for text in (json.dumps(whole), "\n".join(json.dumps(one) for one in whole)):
        found = imported(text)
        assert found.samples("engine_running_count") == [1, 3]
        assert found.samples("engine_waiting_count") == [2]
        assert found.told("1 values that are no finite number")


def test_an_instant_query_is_one_value_a_series() -> None:
    one = {"metric": {"__name__": "vllm:num_requests_running"}, "value": [1776748571.0, "5"]}
    found = imported(json.dumps(answer(one, kind="vector")))
    assert found.samples("engine_running_count") == [5]
    assert found.told("an instant query")


def test_gpu_series_beside_the_engines_name_no_engine() -> None:
    whole = answer(
        series("vllm:num_requests_running", TWO),
        series("DCGM_FI_DEV_GPU_UTIL", TWO, gpu="3"),
    )
    rows = [
        r for r in imported(json.dumps(whole)).rows("samples") if r["signal"] == "gpu_busy_ratio"
    ]
    assert [(r["gpu"], r["engine"], r["value"]) for r in rows] == [("3", "", 0.01), ("3", "", 0.03)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (json.dumps(answer(series("vllm:num_requests_running", TWO)))[:-30], "cut off"),
        (
            '{"status":"success","data":{"resultType":"matrix","result":' + "[" * 5000,
            "deeper|cut off",
        ),
        (json.dumps(answer({"metric": {}, "values": TWO})), "known meaning"),
        (json.dumps(answer(series("vllm:num_requests_running", [(1.0, "x")]))), "known meaning"),
        ('{"data":{"resultType":"matrix","result":7}}', "no answer"),
    ],
)
def test_broken_answers_end_in_one_line(text: str, why: str) -> None:
    with pytest.raises(WhyboundError, match=why) as refused:
        imported(text)
    assert "\n" not in str(refused.value)


def test_many_foreign_series_are_passed_over() -> None:
    foreign = [series("container_cpu", TWO, pod=f"p{i}") for i in range(20_000)]
    found = imported(json.dumps(answer(*foreign, series("vllm:num_requests_running", TWO))))
    assert found.samples("engine_running_count") == [1, 3]
    assert found.told("20000 series of no known meaning")


def test_a_dump_of_the_database_is_series_again() -> None:
    lines = [
        '{__name__="vllm:num_requests_running", instance="a:1"} 2 1776748571000',
        '{__name__="vllm:num_requests_running", instance="a:1"} 4 1776748601000',
        '{__name__="up", instance="a:1"} 1 1776748601000',
        "cut off here",
    ]
    found = imported("\n".join(lines))
    assert found.kind == "tsdb-dump"
    assert found.samples("engine_running_count") == [2, 4]
    assert found.told("1 lines could not be read")
    assert found.told("1 samples of no known meaning")
