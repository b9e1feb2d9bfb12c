"""Printed tables, CSV and markdown of load tests, and what lies beside them."""

from __future__ import annotations

import json
import time

import pytest
from imported import T0, imported

from whybound.errors import WhyboundError

BLOCK = """\
INFO starting
============ Serving Benchmark Result ============
Successful requests:                     30
Failed requests:                         0
Maximum request concurrency:             {cap}
Benchmark duration (s):                  300.00
Total input tokens:                      3,000
Total generated tokens:                  600
Request throughput (req/s):              0.10
Output token throughput (tok/s):         2.00
---------------Time to First Token----------------
Mean TTFT (ms):                          {ttft}
P99 TTFT (ms):                           900.00
==================================================
"""


def test_a_printed_table_is_read_out_of_a_log() -> None:
    found = imported(BLOCK.format(cap=25, ttft="250.5"))
    assert found.kind == "bench-table"
    facts = found.facts()
    assert facts["client_ttft_mean_s"] == 0.2505
    assert facts["completed_rate_per_s"] == pytest.approx(0.1)
    assert facts["input_mean_tokens"] == 100
    assert facts["load_mode"] == "closed"
    assert facts["inflight_mean_count"] == 25


def test_several_tables_are_segments_and_a_cut_one_is_left_out() -> None:
    log = "".join(BLOCK.format(cap=n, ttft=f"{n}00.0") for n in (1, 2, 4))
    found = imported(log[: log.rindex("Output token")])
    assert found.facts("segment=concurrency:2")["client_ttft_mean_s"] == 0.2
    assert found.facts("segment=concurrency:4") == {}
    assert found.told("cut off")
    with pytest.raises(WhyboundError, match="cut short"):
        imported(BLOCK.format(cap=1, ttft="1")[:300])


def test_nan_in_a_printed_table_is_no_number() -> None:
    found = imported(BLOCK.format(cap=1, ttft="nan"))
    assert "client_ttft_mean_s" not in found.facts()
    assert found.told("client_ttft_mean_s left out")


def test_a_csv_of_points_is_read_by_its_headers() -> None:
    text = (
        "concurrency,Mean TTFT (ms),p95_itl_s,output tok/s,comment\n1,100,0.02,50,\n8,400,,300,x\n"
    )
    found = imported(text)
    assert found.kind == "bench-csv"
    assert found.facts("segment=concurrency:1")["client_itl_p95_s"] == 0.02
    last = found.facts("segment=concurrency:8")
    assert last["client_ttft_mean_s"] == 0.4
    assert last["output_tokens_per_s"] == 300
    assert "client_itl_p95_s" not in last
    assert found.told("comment")


def test_a_latency_without_a_unit_is_not_guessed() -> None:
    found = imported("concurrency,mean ttft,throughput (tok/s)\n1,100,50\n2,200,90\n")
    assert "client_ttft_mean_s" not in found.facts("segment=concurrency:1")
    assert found.facts("segment=concurrency:2")["output_tokens_per_s"] == 90


def test_markdown_cells_may_carry_their_units() -> None:
    rows = (
        "# Results",
        "",
        "| rate | p95 TTFT | output tok/s |",
        "|---:|---:|---:|",
        "| 0.5 | 900 ms | 42 |",
        "| none | 1 s | 9 |",
        "| 1.0 | 2 s | 50 |",
    )
    text = "\n".join(rows)
    found = imported(text)
    assert found.kind == "bench-markdown"
    assert found.facts("segment=rate:0.5")["client_ttft_p95_s"] == 0.9
    assert found.facts("segment=rate:1")["client_ttft_p95_s"] == 2.0
    assert len({row["scope"] for row in found.rows("facts")}) == 2


def test_llama_bench_reads_prompts_and_generates() -> None:
    text = (
        "| model | size | test | t/s |\n| --- | --- | --- | --- |\n"
        "| llama 7B | 3.5 GiB | pp512 | 2000.5 ± 10.0 |\n| llama 7B | 3.5 GiB | tg128 | 80.25 ± 0.5 |\n"
    )
    facts = imported(text).facts("segment=concurrency:1")
    assert facts["prompt_tokens_per_s"] == 2000.5
    assert facts["output_tokens_per_s"] == 80.25


def test_llama_bench_in_its_other_forms_leaves_mixed_tests_out() -> None:
    tests = [
        {"n_prompt": 512, "n_gen": 0, "avg_ts": 2000.5},
        {"n_prompt": 0, "n_gen": 128, "avg_ts": 80.25},
        {"n_prompt": 512, "n_gen": 128, "avg_ts": 300.0},
    ]
    lines = ["n_prompt,n_gen,avg_ts", *(",".join(str(v) for v in t.values()) for t in tests)]
    texts = (json.dumps(tests), "\n".join(json.dumps(t) for t in tests), "\n".join(lines))
    for text in texts:
        found = imported(text)
        facts = found.facts("segment=concurrency:1")
        assert (facts["prompt_tokens_per_s"], facts["output_tokens_per_s"]) == (2000.5, 80.25)
        assert (facts["input_mean_tokens"], facts["output_mean_tokens"]) == (512, 128)
        assert found.told("1 tests")


def test_genai_perf_spells_its_columns_otherwise() -> None:
    text = (
        "Metric,avg,min,max,p99,p95,p50\nTime To First Token (ms),100,1,900,800,700,90\n\n"
        "Metric,Value\nRequest Count (count),5\nRequest Throughput (per sec),2.5\n"
    )
    facts = imported(text).facts()
    assert (facts["client_ttft_mean_s"], facts["client_ttft_p99_s"]) == (0.1, 0.8)
    assert facts["completed_rate_per_s"] == 2.5


def test_json_records_are_points_too() -> None:
    whole = {
        "model": "m",
        "steps": [{"configured_rps": r, "ttft_p50_ms": 10 * r, "output_tps": 5} for r in (1, 2)],
    }
    found = imported(json.dumps(whole))
    assert found.kind == "bench-records"
    assert found.facts("segment=rate:2")["client_ttft_p50_s"] == 0.02


REPLAY = "[2026-04-21 05:13:44,786] INFO - "


def test_the_log_of_a_replay_counts_what_failed() -> None:
    lines = [
        f"{REPLAY}Trace Replay Performance Tester v1.0",
        "[2026-04-21 05:14:00,000] ERROR - Request failed: ",
        f"{REPLAY}Test Complete",
        f"{REPLAY}Duration: 100.0s",
        f"{REPLAY}Total Requests: 11",
        f"{REPLAY}  TTFT avg/p50/p95/max: 1.11s / 0.77s / 1.87s / 16.44s",
        f"{REPLAY}  Throughput: 1,875 input tok/s | 71 output tok/s",
    ]
    facts = imported("\n".join(lines)).facts()
    assert facts["completed_rate_per_s"] == pytest.approx(0.1)
    assert facts["failed_ratio"] == pytest.approx(1 / 11)
    assert facts["client_ttft_p95_s"] == 1.87
    assert facts["prompt_tokens_per_s"] == 1875
    assert "inflight_mean_count" not in facts  # its users think in between
    with pytest.raises(WhyboundError, match="did not end"):
        imported("\n".join(lines[:2]))


def test_requests_of_a_replay_may_have_fields_beyond_any_usual_line() -> None:
    times = json.dumps([1776748581.0 + i / 100 for i in range(12_000)])
    head = (
        "user_id,request_idx,input_tokens,output_tokens_actual,ttft,ttlt,success,error_message,"
        "request_start_time,prefill_complete_time,request_complete_time,token_timestamps"
    )
    row = f'User-001,7,377,1494,0.5,2.5,True,,1776748580.5,1776748581.0,1776748583.0,"{times}"'
    assert len(row) > 131_072
    (request,) = imported(f"{head}\n{row}\n").rows("requests")
    assert request["client_ttft_s"] == 0.5
    assert len(request["chunk_gap_s"]) == 11_999
    assert request["arrival_ns"] == 1776748580_500_000_000


def test_the_two_clocks_of_an_engine_are_laid_together_where_it_was_quickest() -> None:
    def request(name: str, arrival: float, queued: float) -> str:
        after = {"queued": 0.0, "scheduled": 0.5, "first_token": 1.0, "last_token": 3.0}
        times = {f"{what}_ts": queued + s for what, s in after.items()}
        tokens = {"input_toks": 5, "output_toks": 3}
        return json.dumps({"request_id": name, "arrival_time": arrival, **tokens, **times})

    text = request("a", 1.7e9, 100.25) + "\n" + request("b", 1.7e9 + 1, 101.0)
    a, b = imported(text).rows("requests")
    assert (a["source"], a["queue_wait_s"], a["prefill_s"], a["decode_s"]) == (
        "span",
        0.5,
        0.5,
        2.0,
    )
    assert b["server_e2e_s"] == pytest.approx(3.0, abs=1e-6)
    assert a["server_e2e_s"] == pytest.approx(3.25, abs=1e-6)


def test_samples_over_time_get_canonical_names() -> None:
    head = (
        "timestamp_sec,relative_time_sec,kv_cache_usage_pct,num_requests_running,"
        "num_requests_waiting,num_preemptions_total"
    )
    found = imported(f"{head}\n1776756015.5,0,68.5,15,1,0\n1776756016.5,1,nan,15,x,2\n")
    assert found.samples("kv_used_ratio") == [0.685]
    assert found.samples("preemptions_count") == [0, 2]
    assert found.told("2 values")
    assert {row["engine"] for row in found.rows("samples")} == {"vllm"}


def test_times_that_count_from_a_start_end_with_the_file() -> None:
    found = imported(
        "elapsed_s,power_w,temp_c,sm_mhz,gpu_util,mem_used_mb\n10,15.7,64,2405,50,100\n20,15.4,62,2405,0,100\n"
    )
    assert {row["t_ns"] for row in found.rows("samples")} == {T0 - 10 * 10**9, T0}
    assert found.samples("gpu_busy_ratio") == [0.5, 0]


def test_notes_of_a_server_are_settings() -> None:
    given = {"max_model_len": 4096, "extra_vllm_args": "--max-num-seqs 64 --enforce-eager"}
    cache = {"num_gpu_blocks": 100, "block_size": 16}
    whole = {"model": "m", "server_config": given, "kv_cache": cache}
    rows = imported(json.dumps(whole)).rows("settings")
    told = {row["key"]: (row["value"], row["origin"]) for row in rows}
    assert told["max_num_seqs"] == ("64", "requested")
    assert told["enforce_eager"] == ("True", "requested")
    assert told["num_gpu_blocks"] == ("100", "effective")
    rows = imported("model: m\ntensor_parallelism: 2\nmax_num_seqs: 32\n").rows("settings")
    assert {row["key"]: row["value"] for row in rows}["tensor_parallel_size"] == "2"


def test_arrivals_are_a_load_and_no_measurement() -> None:
    rows = (
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "2023-11-16 18:15:46.6805900,100,10",
        "2023-11-16 18:15:48.6805900,300,30",
        ",5,5",
        "2023-11-16 18:15:50.6805900,200,20",
    )
    text = "\n".join(rows)
    found = imported(text)
    facts = found.facts()
    assert facts["offered_rate_per_s"] == pytest.approx(0.5)
    assert facts["input_mean_tokens"] == 200
    assert facts["load_mode"] == "open"
    assert found.told("--load")
    lines = [
        {"timestamp": 1000 * i, "input_length": 10, "output_length": 5, "hash_ids": []}
        for i in range(3)
    ]
    assert imported("\n".join(json.dumps(r) for r in lines)).facts()["offered_rate_per_s"] == 1.0


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"trace_id": "t", "span_count": 1, "spans": [{"start_time": "2026"}]}', "an agent"),
        ('{"claim_status": "x", "confidence": 0.0, "metric_values": {}}', "another tool"),
        ('{"id":"chatcmpl-1","choices":[{"delta":{"content":"a"}}]}\n', "chunks of one"),
        ('[{"conversations": [{"from": "human", "value": "hi"}]}]', "--load as prompts"),
        ("target: http://x\nrate-type: sweep\n", "configuration"),
    ],
)
def test_what_is_no_result_says_what_it_is(text: str, why: str) -> None:
    with pytest.raises(WhyboundError, match=why):
        imported(text)


@pytest.mark.parametrize(
    "text",
    [
        "=" * 65_000,
        "\n" * 65_000,
        "| " * 32_000 + "\n|" + "-|" * 32_000,
        "a," * 32_000,
        "# " + " " * 60_000 + "x",
    ],
)
def test_no_text_takes_long_to_tell(text: str) -> None:
    began = time.process_time()
    with pytest.raises(WhyboundError):
        imported(text)
    assert time.process_time() - began < 2
