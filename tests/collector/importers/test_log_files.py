"""Logs of every engine as files: recognised, replicas told apart, wrappings taken off, hostile ones survived."""
# ruff: noqa: E501 — log lines stand as they are written

from __future__ import annotations

import calendar
import json
import os
import random
from itertools import pairwise

import pytest
from import_files import imported

from whybound.collector.importers.catalogue import importers
from whybound.collector.importers.importer import Sample
from whybound.collector.importers.logs import _replica
from whybound.collector.importers.recognise import recognise

VLLM_V1 = "(APIServer pid=7) INFO 11-29 08:00:{s:02} [loggers.py:123] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 99.0 tokens/s, Running: 64 reqs, Waiting: {n} reqs, GPU KV cache usage: 6.7%, Prefix cache hit rate: 17.1%"
VLLM_V0 = "INFO 03-12 06:00:{s:02} metrics.py:349] Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 42.1 tokens/s, Running: 8 reqs, Swapped: 1 reqs, Pending: {n} reqs, GPU KV cache usage: 99.5%, CPU KV cache usage: 0.0%."
SGLANG_NEW = "[2025-10-31 03:45:{s:02} TP0] Decode batch, #running-req: 317, #token: 1094261, token usage: 0.67, cuda graph: True, gen throughput (token/s): 14806.57, #queue-req: {n}, "
SGLANG_OLD = "[2024-11-02 10:00:{s:02} TP0] Decode batch. #running-req: 12, #token: 4096, token usage: 0.11, gen throughput (token/s): 512.22, #queue-req: {n}"
TRTLLM = "[08/04/2026-19:08:{s:02}] [TRT-LLM] [I] [_torch][RANK 0] iter = {n}, global_rank = 0, rank = 0, num_scheduled_requests = 4, kv_cache_util = 0.125, currank_total_requests = 1/8, host_step_time = 7.5ms, prev_device_step_time = 7.2ms, timestamp = 2026-08-04 19:08:13, states = {{'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 4}}"
TGI = "2024-09-03T04:40:{s:02}.370247Z  INFO text_generation_router::server: router/src/server.rs:1651: Setting max batch total tokens to {n}9056"
LLAMA = "0.{s:02}.333.444 I llama_context: n_batch       = {n}024"

KINDS = [
    (
        VLLM_V1,
        "vllm-log",
        {"engine_running_count": 64, "kv_used_ratio": 0.067, "prefix_hit_ratio": 0.171},
    ),
    (
        VLLM_V0,
        "vllm-log",
        {"engine_swapped_count": 1, "kv_used_ratio": 0.995, "engine_running_count": 8},
    ),
    (
        SGLANG_NEW,
        "sglang-log",
        {"engine_running_count": 317, "log_graph_used_ratio": 1, "kv_used_ratio": 0.67},
    ),
    (SGLANG_OLD, "sglang-log", {"engine_running_count": 12, "kv_used_ratio": 0.11}),
    (TRTLLM, "tensorrt-llm-log", {"engine_running_count": 4, "kv_used_ratio": 0.125}),
    (TGI, "tgi-log", {}),
    (LLAMA, "llamacpp-log", {}),
]


def text_of(template, count=5):
    return "\n".join(template.format(s=i, n=i % 10) for i in range(1, count + 1)) + "\n"


def put(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.utime(path, (1_800_000_000, 1_800_000_000))
    return path


@pytest.mark.parametrize(("template", "kind", "values"), KINDS)
def test_every_engine_is_told_by_its_lines_whatever_the_name(tmp_path, template, kind, values):
    outcomes, rows = imported(tmp_path, put(tmp_path / "data.csv", text_of(template)))
    assert (outcomes[0].kind, outcomes[0].refused) == (kind, None)
    last = {r["signal"]: r["value"] for r in rows("samples")}
    for signal, value in values.items():
        assert last[signal] == pytest.approx(value), signal
    assert rows("samples") or rows("settings")


def test_a_log_whose_engine_shows_late_is_read_from_its_start(tmp_path):
    noise = "".join(f"INFO 11-29 07:00:00 [x.py:1] line {i}\n" for i in range(4000))
    early = "INFO 11-29 07:00:00 [x.py:1] Chunked prefill is enabled with max_num_batched_tokens=2048.\n"
    outcomes, rows = imported(tmp_path, put(tmp_path / "f", early + noise + text_of(VLLM_V1)))
    assert (outcomes[0].kind, outcomes[0].refused) == ("engine-log", None)
    assert {r["key"]: r["value"] for r in rows("settings")}["max_num_batched_tokens"] == "2048"
    assert "vLLM, 4006 lines" in outcomes[0].notes


def test_a_log_of_something_else_is_refused(tmp_path):
    noise = "".join(f"2025-01-01 00:00:00 INFO nginx line {i}\n" for i in range(50))
    outcomes, _ = imported(tmp_path, put(tmp_path / "f", noise))
    assert outcomes[0].refused == "a log, but no line of an engine that is known"


@pytest.mark.parametrize(
    ("wrap", "year"),
    [
        (lambda line, i: f"2025-03-04T05:06:{i:02}.123456789Z stdout F {line}", 2025),
        (lambda line, i: f"2025-03-04T07:06:{i:02}.5+02:00 stderr F {line}", 2025),
        (lambda line, i: f"2025-03-04T05:06:{i:02}.123456789Z {line}", 2025),
        (
            lambda line, i: json.dumps(
                {"log": line + "\n", "stream": "stdout", "time": f"2025-03-04T05:06:{i:02}.1Z"}
            ),
            2025,
        ),
        (lambda line, i: f"Mar  4 05:06:{i:02} host vllm[123]: {line}", 2026),
        (lambda line, i: f"vllm-1  | {line}", 2026),
        (lambda line, i: f"\x1b[36m{line}\x1b[0m", 2026),
    ],
    ids=["cri", "cri zone", "kubectl", "docker json", "journal", "compose", "coloured"],
)
def test_what_carries_the_lines_is_taken_off(tmp_path, wrap, year, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    lines = text_of(VLLM_V1).splitlines()
    text = "\n".join(wrap(line, i + 1) for i, line in enumerate(lines)) + "\n"
    outcomes, rows = imported(tmp_path, put(tmp_path / "f", text))
    assert outcomes[0].refused is None
    times = [r["t_ns"] for r in rows("samples") if r["signal"] == "engine_waiting_count"]
    assert len(times) == 5
    assert [round((b - a) / 1e9) for a, b in pairwise(times)] == [1] * 4
    if year == 2025:
        assert abs(times[0] / 1e9 - calendar.timegm((2025, 3, 4, 5, 6, 1))) < 1


def test_json_lines_of_rust_are_read(tmp_path):
    line = {
        "timestamp": "2024-03-09T05:08:19.961136Z",
        "level": "INFO",
        "message": "Setting max batch total tokens to 133696",
        "target": "text_generation_router",
        "line_number": 328,
    }
    outcomes, rows = imported(tmp_path, put(tmp_path / "f", (json.dumps(line) + "\n") * 3))
    assert outcomes[0].kind == "tgi-log"
    found = {r["key"]: (r["value"], r["t_ns"]) for r in rows("settings")}
    assert found["kv_cache_tokens"][0] == "133696"
    assert found["kv_cache_tokens"][1] // 10**9 == calendar.timegm((2024, 3, 9, 5, 8, 19))


def test_llama_cpp_lines_keep_their_distance(tmp_path):
    lines = "0.10.000.000 I llama_context: n_ctx         = 4096\n0.12.500.000 I slot print_timing: id  0 | task 1 |        eval time =  1000.0 ms /   40 tokens (   25.00 ms per token,    40.00 tokens per second)\n1.02.500.000 I slot print_timing: id  0 | task 2 |        eval time =  1000.0 ms /   50 tokens (   20.00 ms per token,    50.00 tokens per second)\n"
    _, rows = imported(tmp_path, put(tmp_path / "f", lines))
    signal = "log_request_generation_tokens_per_s"
    one, two = [(r["t_ns"], r["value"]) for r in rows("samples") if r["signal"] == signal]
    assert (two[0] - one[0], one[1], two[1]) == (50_000_000_000, 40, 50)


def test_effective_settings_are_effective_and_those_asked_for_are_beside(tmp_path):
    text = "INFO 11-29 08:00:00 [utils.py:233] non-default args: {'model': 'm', 'max_num_seqs': 64}\nINFO 11-29 08:00:05 [x.py:1] Chunked prefill is enabled with max_num_batched_tokens=4096.\n"
    script = put(
        tmp_path / "run.sh", "vllm serve m --max-num-batched-tokens 2048 --max-num-seqs 128\n"
    )
    _, rows = imported(tmp_path, put(tmp_path / "server.log", text), script)
    found = {(r["key"], r["origin"]): r["value"] for r in rows("settings")}
    assert found["max_num_batched_tokens", "effective"] == "4096"
    assert found["max_num_batched_tokens", "requested"] == "2048"


def test_the_parts_of_a_rotated_log_are_one_replica_and_two_servers_are_two(tmp_path):
    files = [put(tmp_path / n, text_of(VLLM_V1)) for n in ("a.log", "a.log.1", "b.log")]
    _, rows = imported(tmp_path, *files)
    assert {r["replica"] for r in rows("samples")} == {"a", "b"}


@pytest.mark.parametrize(
    ("name", "replica"),
    [
        ("server.log", "server"), ("server.log.1", "server"), ("server.log.12.gz", "server"),
        ("server-20260101.log", "server"), ("server.log.2026-01-01", "server"), ("server_2026-01-01_12.log", "server"),
        ("0b1f.txt", "0b1f"), (".log", ".log"), ("node-3", "node-3"),
    ],
)  # fmt: skip
def test_replica_of_a_name(name, replica):
    assert _replica(name) == replica


def test_a_bench_result_or_json_that_quotes_a_log_is_no_log():
    quoted = json.dumps({"note": text_of(VLLM_V1)}, indent=1)
    found = recognise(Sample("server.log", quoted.encode(), quoted, len(quoted)), importers())
    assert found is None or not found.kind.endswith("-log")


def test_utf_16_logs_are_read(tmp_path):
    outcomes, rows = imported(tmp_path, put(tmp_path / "f", text_of(VLLM_V1).encode("utf-16")))
    assert (outcomes[0].kind, outcomes[0].refused) == ("vllm-log", None)
    assert rows("samples")


def test_unsorted_and_repeated_lines_and_clocks_that_jump_do_no_harm(tmp_path):
    lines = text_of(VLLM_V1, 50).splitlines()
    random.Random(3).shuffle(lines)
    lines += [line.replace("11-29", "11-28") for line in lines] + [
        line.replace("11-29", "13-45") for line in lines
    ]
    outcomes, rows = imported(tmp_path, put(tmp_path / "f", "\n".join(lines * 2)))
    assert outcomes[0].refused is None
    assert len(rows("samples")) == 300 * 6
    assert all(r["t_ns"] is not None for r in rows("samples"))
