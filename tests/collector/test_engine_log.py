"""The pure reader: every pattern on its example, lines of three engines, hostile ones, any chunking."""
# ruff: noqa: E501 - log lines stand as they are written

from __future__ import annotations

import calendar
import os
import random
import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whybound.collector.engine_log import HELD_BYTES, MAX_LINE_BYTES, LogReader
from whybound.collector.log_arguments import pairs, setting
from whybound.collector.log_header import Clock, split_header
from whybound.collector.log_patterns import (
    load_file,
    load_patterns,
    log_engines,
    parse_patterns,
)
from whybound.collector.schema import TABLES, UNIT_SUFFIXES
from whybound.errors import WhyboundError

NEAR_NS = calendar.timegm((2026, 12, 1, 0, 0, 0)) * 10**9
STAMP_NS = calendar.timegm((2026, 11, 29, 14, 56, 55)) * 10**9
HEAD = "(APIServer pid=7) INFO 11-29 14:56:55 [x.py:1] "
STATISTICS = (
    "Engine 000: Avg prompt throughput: 12.5 tokens/s, Avg generation throughput: 99.0 tokens/s, "
    "Running: 3 reqs, Waiting: 1 reqs, GPU KV cache usage: 6.7%, Prefix cache hit rate: 17.1%"
)


def reader(engine: str | None = "vllm", **more) -> LogReader:
    return LogReader(
        engine, **{"node": "n", "replica": "h:1", "near_ns": NEAR_NS, "utc_offset_s": 0, **more}
    )


def read(text: str | bytes, engine: str | None = "vllm", **more):
    source = reader(engine, **more)
    data = text if isinstance(text, bytes) else text.encode()
    return source.feed_bytes(data) + source.finish()


def of(rows, table):
    return [row for name, row in rows if name == table]


def values(rows):
    return {row["key"]: row["value"] for row in of(rows, "settings")}


def samples(rows):
    return {row["signal"]: pytest.approx(row["value"]) for row in of(rows, "samples")}


def events(rows):
    return [(row["kind"], row["value"], row["text"]) for row in of(rows, "events")]


# ---------------------------------------------------------------- patterns as data

ALL = [(f, p) for f in (*log_engines(), "generic") for p in load_file(f).patterns]


@pytest.mark.parametrize(("engine", "pattern"), ALL, ids=[f"{e}-{p.id}" for e, p in ALL])
def test_every_pattern_takes_something_from_its_example(engine, pattern):
    assert pattern.gate in pattern.example
    line = pattern.example
    if pattern.in_errors:
        line = "ERROR 11-29 14:56:55 [x.py:1] " + line
    rows = read(line + "\n", engine)
    tables = {name for name, _ in rows}
    expected = {
        "settings": bool(pattern.settings or pattern.arguments or pattern.implies),
        "samples": bool(pattern.samples),
        "steps": bool(pattern.step),
        "events": bool(pattern.event),
    }
    assert {t for t, yes in expected.items() if yes} <= tables
    kinds = [row["kind"] for row in of(rows, "events")]
    assert kinds == ([pattern.event.kind] if pattern.event else kinds)
    for name, row in rows:
        assert set(row) <= set(TABLES[name].column_names())
        assert row["engine"] == engine
        assert row["node"] == "n"
    for row in of(rows, "samples"):
        assert row["unit"] in UNIT_SUFFIXES
        assert '"from":"log"' in row["labels"]


@pytest.mark.parametrize("engine", log_engines())
def test_every_mark_names_its_engine(engine):
    for mark in load_file(engine).marks:
        source = reader(None)
        source.feed(f"something before\n{mark}")
        assert source.engine == engine, mark


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("gate: G", "gate: ''"),
        ("regex: 'G(?P<n>x)'", "regex: 'G(?P<n>x'"),
        ("settings: [n]", "settings: [m]"),
        ("settings: [n]", "settings: [n]\n    unknown: 1"),
        ("settings: [n]", "samples: [{signal: s, unit: furlongs, group: n}]"),
        ("settings: [n]", "step: [{column: none, group: n}]"),
    ],
)
def test_a_broken_file_is_refused(change, told):
    text = (
        "engine: e\ndoc: d\nsource: s\nmarks: [m]\npatterns:\n  - id: p\n    gate: G\n"
        "    regex: 'G(?P<n>x)'\n    example: Gx\n    doc: d\n    settings: [n]\n"
    )
    assert parse_patterns(text, "e.yaml").patterns[0].id == "p"
    with pytest.raises(WhyboundError, match=r"^e\.yaml: "):
        parse_patterns(text.replace(change, told), "e.yaml")


# ---------------------------------------------------------------- header and time


@pytest.mark.parametrize(
    ("line", "process", "level", "stamp", "message"),
    [
        ("(EngineCore pid=12) INFO 11-29 14:56:22 [core.py:133]   m", "EngineCore", "INFO",
         (None, 11, 29, 14, 56, 22, 0), "  m"),
        ("INFO 03-12 06:00:56 metrics.py:349] m", "", "INFO", (None, 3, 12, 6, 0, 56, 0), "m"),
        ("INFO 2025-09-10 16:32:05.957 metrics.py:386] m", "", "INFO",
         (2025, 9, 10, 16, 32, 5, 957_000_000), "m"),
        ("2026-01-21 09:14:07,983 INFO vllm.platforms: m", "", "INFO",
         (2026, 1, 21, 9, 14, 7, 983_000_000), "m"),
        ("(Worker_TP0_EP1 pid=9) 2026-04-21 08:04:33,1 - INFO - autotuner.py:457 - flashinfer.jit: m",
         "Worker", "INFO", (2026, 4, 21, 8, 4, 33, 100_000_000), "m"),
        ("[2025-10-31 03:45:20 DP6 TP6 EP6] m", "", "", (2025, 10, 31, 3, 45, 20, 0), "m"),
        ("[2025-05-02 16:14:59] INFO:     m", "", "INFO", (2025, 5, 2, 16, 14, 59, 0), "m"),
        ("(SGLangEngine pid=35555, ip=10.15.36.1) [2025-10-31 03:45:20 TP0] m", "SGLangEngine", "",
         (2025, 10, 31, 3, 45, 20, 0), "m"),
        ("vllm_0  | (APIServer pid=1) ERROR:    m", "APIServer", "ERROR", None, "m"),
        ("0.10.252.333 W m", "", "WARNING", None, "m"),
        ("no header at all", "", "", None, "no header at all"),
        ("", "", "", None, ""),
    ],
)  # fmt: skip
def test_header(line, process, level, stamp, message):
    header, rest = split_header(line)
    assert (header.process, header.level, rest) == (process, level, message)
    assert (header.stamp and header.stamp[:7]) == stamp


def test_ranks_stand_in_the_process_name_or_the_bracket():
    assert split_header("(Worker_TP1_EP3 pid=9) INFO: m")[0].ranks == {
        "tp_rank": "1",
        "ep_rank": "3",
    }
    assert split_header("[2025-10-31 03:45:20 DP6 TP2] m")[0].ranks == {
        "dp_rank": "6",
        "tp_rank": "2",
    }


@pytest.mark.parametrize(
    ("near", "year"),
    [((2026, 12, 1), 2026), ((2027, 1, 1), 2026), ((2026, 11, 29), 2026), ((2026, 6, 1), 2025)],
)
def test_the_year_is_the_latest_that_fits(near, year):
    near_ns = calendar.timegm((*near, 0, 0, 0)) * 10**9
    stamp = split_header(HEAD)[0].stamp
    expected = calendar.timegm((year, 11, 29, 14, 56, 55)) * 10**9
    assert Clock(0).resolve(stamp, near_ns) == expected
    assert Clock(3600).resolve(stamp, near_ns) == expected - 3600 * 10**9


def test_no_year_no_time_and_no_date_no_time():
    assert Clock(0).resolve(split_header(HEAD)[0].stamp, None) is None
    for bad in ("13-01 00:00:00", "02-30 00:00:00", "01-01 25:00:00", "01-01 00:61:00"):
        stamp = split_header(f"INFO {bad} [x.py:1] m")[0].stamp
        assert Clock(0).resolve(stamp, NEAR_NS) is None
    # a leap day is one of a leap year
    leap = split_header("INFO 02-29 12:00:00 [x.py:1] m")[0].stamp
    assert Clock(0).resolve(leap, NEAR_NS) == calendar.timegm((2024, 2, 29, 12, 0, 0)) * 10**9


def test_the_machines_own_zone_is_the_default():
    stamp = split_header("[2026-07-29 14:56:55] m")[0].stamp
    expected = int(time.mktime((2026, 7, 29, 14, 56, 55, 0, 0, -1))) * 10**9
    assert Clock().resolve(stamp, None) == expected


def test_a_stamp_of_another_zone_gives_way_to_the_time_of_reading():
    live = reader()
    near = STAMP_NS + 400_000_000
    assert {row["t_ns"] for _, row in live.feed(HEAD + STATISTICS, t_ns=near)} == {STAMP_NS}
    far = STAMP_NS + 3600 * 10**9
    assert {row["t_ns"] for _, row in live.feed(HEAD + STATISTICS, t_ns=far)} == {far}
    assert live.counts()["clock_mismatches"] == 1


def test_without_a_stamp_a_row_takes_the_last_one_or_the_files():
    rows = read(f"# GPU blocks: 7\n{HEAD}# GPU blocks: 8\n# GPU blocks: 9\n")
    assert [row["t_ns"] for row in of(rows, "settings")] == [NEAR_NS, NEAR_NS + 1, NEAR_NS + 2]
    # two lines of one stamp stay two: their figures are a nanosecond apart
    rows = read(f"{HEAD}{STATISTICS}\n{STATISTICS}\n")
    assert {row["t_ns"] for row in of(rows, "samples")} == {STAMP_NS, STAMP_NS + 1}
    assert {row["t_ns"] for _, row in read("# GPU blocks: 7\n", near_ns=None)} == {None}


# ---------------------------------------------------------------- vLLM

VLLM = rf"""
{HEAD}non-default args: {{'model_tag': 'm', 'model': '/models/m', 'max_num_seqs': 16, 'api_key': ['sk-abc'], 'enforce_eager': True, 'served_model_name': ['a', 'b'], 'hf_token': 'x', 'profiler_config': P(a=1, b='}}')}}
{HEAD}Using max model len 1024
{HEAD}Chunked prefill is enabled with max_num_batched_tokens=2048.
(EngineCore pid=8) INFO 11-29 14:56:56 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='/models/m', speculative_config=None, dtype=torch.float32, max_seq_len=1024, quantization=None, enforce_eager=True, kv_cache_dtype=auto, device_config=cpu, o=C(tensor_parallel_size=9, x='a, b=c'), tensor_parallel_size=2, enable_prefix_caching=True, pooler_config=None, compilation_config={{'mode': <CompilationMode.NONE: 0>, 'splitting_ops': [], 'cudagraph_mode': <CUDAGraphMode.FULL_AND_PIECEWISE: (2, 1)>, 'cudagraph_capture_sizes': [1, 2, 4], 'max_cudagraph_capture_size': None, 'pass_config': {{'cudagraph_mode': 3}}}}, kernel_config=K(a=[1])
(EngineCore pid=8) INFO 11-29 14:56:57 [kv_cache_utils.py:2327] CPU KV cache size: 524,288 tokens, Maximum concurrency for 1,024 tokens per request: 512.00x
"""


def test_vllm_settings():
    rows = read(VLLM)
    assert values(rows) == {
        "model": "/models/m",
        "max_num_seqs": "16",
        "api_key": "<redacted>",
        "hf_token": "<redacted>",
        "enforce_eager": "true",
        "served_model_name": "a b",
        "max_model_len": "1024",
        "max_num_batched_tokens": "2048",
        "enable_chunked_prefill": "true",
        "version": "0.32.0",
        "speculative_config": "none",
        "quantization": "none",
        "dtype": "float32",
        "kv_cache_dtype": "auto",
        "device": "cpu",
        "tensor_parallel_size": "2",
        "enable_prefix_caching": "true",
        "compilation_mode": "NONE",
        "cudagraph_mode": "FULL_AND_PIECEWISE",
        "cudagraph_capture_sizes": "1 2 4",
        "graph_max_batch": "4",
        "kv_cache_tokens": "524288",
        "max_concurrency": "512.00",
    }
    found = of(rows, "settings")
    assert {(r["origin"], r["source"], r["replica"]) for r in found} == {
        ("effective", "log", "h:1")
    }
    assert len({r["t_ns"] for r in found}) == len(found)
    assert not [r for _, r in rows if "sk-abc" in str(r)]


def test_a_setting_that_did_not_change_is_told_once_and_a_later_one_is_later():
    rows = read(f"{HEAD}# GPU blocks: 7\n{HEAD}# GPU blocks: 7\n{HEAD}# GPU blocks: 9\n")
    assert [(r["value"], r["t_ns"]) for r in of(rows, "settings")] == [
        ("7", STAMP_NS), ("9", STAMP_NS + 1),
    ]  # fmt: skip


def test_vllm_statistics_v1():
    rows = read(HEAD + STATISTICS + "\n")
    assert samples(rows) == {
        "log_prompt_tokens_per_s": 12.5,
        "log_generation_tokens_per_s": 99.0,
        "engine_running_count": 3,
        "engine_waiting_count": 1,
        "kv_used_ratio": 0.067,
        "prefix_hit_ratio": 0.171,
    }
    assert {r["labels"] for r in of(rows, "samples")} == {
        '{"engine":"0","from":"log","pid":"7","process":"APIServer"}'
    }


def test_vllm_statistics_v0_count_the_gpus_cache():
    rows = read(
        "INFO 11-29 14:56:55 metrics.py:349] Avg prompt throughput: 1.0 tokens/s, "
        "Avg generation throughput: 2.0 tokens/s, Running: 5 reqs, Swapped: 1 reqs, "
        "Pending: 2 reqs, GPU KV cache usage: 92.9%, CPU KV cache usage: 1.0%.\n"
    )
    found = samples(rows)
    assert (found["kv_used_ratio"], found["engine_swapped_count"]) == (0.929, 1)
    assert "prefix_hit_ratio" not in found


def test_vllm_statistics_with_every_optional_part():
    text = STATISTICS.replace(
        "Waiting: 1 reqs, ",
        "Waiting: 1 reqs, Deferred: 1 reqs, KV fetch: 1 waiting to start, 0 in progress, "
        "0 completed waiting, Preemptions: 4, ",
    )
    rows = read(HEAD + text + ", External prefix cache hit rate: 50.0%\n")
    assert samples(rows) == samples(read(HEAD + STATISTICS + "\n"))
    assert [(k, v) for k, v, _ in events(rows)] == [("preemption", 4.0)]


def test_data_parallel_ranks_become_replicas_once_there_are_several():
    two = STATISTICS.replace("000", "001")
    rows = read(f"{HEAD}{STATISTICS}\n{HEAD}{two}\n{HEAD}{STATISTICS}\n")
    replicas = [r["replica"] for r in of(rows, "samples") if r["signal"] == "kv_used_ratio"]
    assert replicas == ["h:1", "h:1/1", "h:1/0"]


@pytest.mark.parametrize(
    ("prefill", "decode", "kind"),
    [((1, 512), (3, 3), "mixed"), ((2, 9), (0, 0), "prefill"), ((0, 0), (8, 16), "decode")],
)
def test_vllm_iteration_is_a_step(prefill, decode, kind):
    text = (
        f"Iteration(7): {prefill[0]} context requests, {prefill[1]} context tokens, "
        f"{decode[0]} generation requests, {decode[1]} generation tokens, "
        "iteration elapsed time: 12.50 ms"
    )
    old = f"(EngineCore_DP0 pid=9) INFO 11-29 14:56:55 [core.py:9] {text}\n"
    new = f"{HEAD}Engine 000: {text}, GPU KV cache usage: 1.5%\n"
    assert read(old) == read(new)
    (step,) = of(read(new), "steps")
    assert step == {
        "t_ns": STAMP_NS - 12_500_000, "engine": "vllm", "node": "n", "replica": "h:1", "kind": kind,
        "prefill_requests_count": prefill[0], "prefill_tokens": prefill[1],
        "decode_requests_count": decode[0], "decode_tokens": decode[1], "elapsed_s": 0.0125,
        "source": "log",
    }  # fmt: skip


def test_a_step_without_requests_is_none():
    text = HEAD + (
        "Iteration(7): {} context requests, 0 context tokens, 0 generation requests, "
        "0 generation tokens, iteration elapsed time: 1.00 ms{}\n"
    )
    assert read(text.format(0, "")) == []
    assert read(text.format(1, " (dummy), GPU KV cache usage: 0.0%")) == []


# ---------------------------------------------------------------- SGLang and llama.cpp

SGLANG = """\
[2025-05-02 16:13:35] server_args=ServerArgs(model_path='/m', quantization=None, context_length=None, host='127.0.0.1', max_running_requests=None, chunked_prefill_size=2048, api_key='k', page_size=1, cuda_graph_bs=[1, 2], disable_radix_cache=False, disable_cuda_graph=True)
[2025-05-02 16:14:33 TP0] KV Cache is allocated. #tokens: 15000, K size: 0.82 GB, V size: 0.82 GB
[2025-05-02 16:14:58 TP0] max_total_num_tokens=15387, chunked_prefill_size=2048, max_prefill_tokens=16384, max_running_requests=2049, context_len=40960, available_gpu_mem=1.20 GB
[2025-05-02 16:15:00 TP0] Prefill batch. #new-seq: 1, #new-token: 6, #cached-token: 2, token usage: 0.05, #running-req: 2, #queue-req: 7
[2025-05-02 16:15:01 TP0] Decode batch, #running-req: 4, #full token: 5632, full token usage: 0.12, mamba num: 4, mamba usage: 0.03, accept len: 3.12, cuda graph: True, gen throughput (token/s): 95.33, #queue-req: 1
[2025-05-02 16:15:01 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_token_ratio: 0.9998 -> 1.0000
[2025-05-02 16:15:01 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_token_ratio: 0.9 -> 1.0000
"""


def test_sglang():
    rows = read(SGLANG, None)
    found = values(rows)
    assert found == {
        "model_path": "/m", "quantization": "none", "chunked_prefill_size": "2048", "page_size": "1",
        "cuda_graph_bs": "1 2", "disable_radix_cache": "false", "disable_cuda_graph": "true",
        "kv_cache_tokens": "15387", "max_total_num_tokens": "15387", "max_prefill_tokens": "16384",
        "max_running_requests": "2049", "context_len": "40960",
    }  # fmt: skip
    prefill = [
        r for r in of(rows, "samples") if r["t_ns"] == max(r["t_ns"] for r in of(rows, "samples"))
    ]
    assert {r["signal"]: r["value"] for r in prefill} == {
        "engine_running_count": 4, "engine_waiting_count": 1, "kv_used_tokens": 5632,
        "kv_used_ratio": 0.12, "log_generation_tokens_per_s": 95.33, "log_graph_used_ratio": 1,
        "log_spec_length_count": 3.12,
    }  # fmt: skip
    first = [r for r in of(rows, "samples") if r not in prefill]
    assert {r["signal"]: r["value"] for r in first} == {
        "engine_running_count": 2, "engine_waiting_count": 7, "kv_used_ratio": 0.05,
    }  # fmt: skip
    assert {r["labels"] for r in first} == {'{"from":"log","tp_rank":"0"}'}
    assert [(k, v) for k, v, _ in events(rows)] == [("retraction", 5.0)]


LLAMACPP = """\
build: 6123 (79c1160b0) with cc (Debian) for x86_64-linux-gnu
llama_context: n_ctx         = 16384
llama_context: n_ctx_seq     = 4096
llama_context: n_batch       = 2048
llama_context: n_ubatch      = 512
0.10.751.525 I srv    load_model: initializing slots, n_slots = 4
main: server is listening on http://127.0.0.1:8080 - starting the main loop
srv  update_slots: failed to find free space in the KV cache, retrying with smaller batch size, i = 0
"""


def test_llamacpp():
    source = LogReader(None)
    rows = source.feed_bytes(LLAMACPP.encode(), t_ns=5 * 10**9) + source.finish()
    assert values(rows) == {
        "version": "6123", "ctx_size": "16384", "kv_cache_tokens": "16384", "batch_size": "2048",
        "ubatch_size": "512", "parallel": "4",
    }  # fmt: skip
    assert [k for k, _, _ in events(rows)] == ["engine_started", "engine_warning"]
    assert all(5 * 10**9 <= row["t_ns"] < 5 * 10**9 + 100 for _, row in rows)


# ---------------------------------------------------------------- events


def test_equal_events_of_a_second_are_counted_whatever_their_numbers():
    lines = [
        f"INFO 11-29 14:56:{55 + i // 500} shm_broadcast.py:1057] No available shared memory broadcast "
        f"block found in {i} seconds."
        for i in range(1000)
    ]
    found = events(read("\n".join(lines) + "\n"))
    assert [(k, v) for k, v, _ in found] == [("engine_warning", 500.0), ("engine_warning", 500.0)]
    assert found[0][2].startswith("No available shared memory broadcast block found in 0 seconds")


def test_v0_tells_of_preemptions_by_their_number_so_far():
    lines = [
        f"WARNING 11-29 14:56:{55 + i} scheduler.py:1057] Sequence group {i} is preempted by "
        f"PreemptionMode.RECOMPUTE mode. {name}={50 * i + 1}"
        for i, name in enumerate(
            ("total_num_cumulative_preemption", "total_cumulative_preemption_cnt")
        )
    ]
    found = events(read("\n".join(lines) + "\n"))
    assert [(k, v) for k, v, _ in found] == [("preemptions_so_far", 1), ("preemptions_so_far", 51)]


def test_different_events_of_a_second_are_bounded():
    source = reader()
    lines = "".join(f"{HEAD.replace('INFO', 'ERROR')}{'x' * i} failed\n" for i in range(1, 200))
    rows = source.feed_bytes(lines.encode()) + source.finish()
    assert len(of(rows, "events")) == 64
    assert source.counts()["suppressed_events"] == 199 - 64


def test_graph_capture_of_the_workers_is_one_event_with_the_longest():
    lines = "".join(
        f"(Worker_TP{i} pid=4{i}) INFO 11-29 14:56:55 [r.py:9] Graph capturing finished in {10 + i} secs, took 1 GiB\n"
        for i in range(4)
    )
    (event,) = events(read(lines))
    assert event[:2] == ("graph_capture", 13.0)


TRACE = """\
{p}Traceback (most recent call last):
{p}  File "x.py", line 1, in f
{q}INFO:     127.0.0.1:5 - "GET /metrics HTTP/1.1" 200 OK
{p}    raise ValueError("no: WARNING ERROR")
{p}           ^^^^^^^
{p}{e}
"""


@pytest.mark.parametrize(
    "p", ["", "(EngineCore pid=3) ", "(EngineCore pid=3) ERROR 11-29 14:56:55 [c.py:1] "]
)
@pytest.mark.parametrize(
    ("e", "kind"),
    [
        ("ValueError: To serve at least one request", "engine_error"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "out_of_memory"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "engine_error"),
        ("KeyboardInterrupt", "engine_error"),
    ],
)  # fmt: skip
def test_a_traceback_is_its_exception(p, e, kind):
    text = TRACE.format(p=p, q="(APIServer pid=1) ", e=e)
    assert events(read(text)) == [(kind, 1.0, e)]
    later = text.replace("14:56:55", "14:57:55")
    if "ERROR" in p:
        assert len(events(read(text + later))) == 1 + ("CUDA" in e)


def test_tracebacks_of_two_processes_may_be_mixed():
    lines = [
        TRACE.format(p=f"(Worker_TP{i} pid={i}) ", q="", e=f"ValueError: of {'ab'[i]}").splitlines()
        for i in (0, 1)
    ]
    mixed = "\n".join(line for both in zip(*lines, strict=True) for line in both) + "\n"
    assert [text for _, _, text in events(read(mixed))] == ["ValueError: of a", "ValueError: of b"]


def test_texts_are_redacted_and_harmless():
    line = (
        "\x1b[31mERROR\x1b[0m 11-29 14:56:55 [x.py:1] bad \x07 key --api-key=topsecret {'api_key': ['hidden']} "
        + "z" * 400
    )
    ((kind, value, text),) = events(read(line.encode() + b"\n"))
    assert (kind, value) == ("engine_error", 1.0)
    assert len(text) <= 300
    assert text.isprintable()
    assert "topsecret" not in text
    assert "hidden" not in text


def test_what_a_prompt_says_is_no_fact():
    prompt = (
        f"{HEAD}Received request cmpl-1: prompt: 'GPU KV cache size: 5 tokens {STATISTICS} "
        "Sequence group 1 is preempted by torch.OutOfMemoryError Graph capturing finished in 9 secs'\n"
    )
    assert read(prompt) == []


def test_another_engines_lines_are_foreign():
    source = reader("vllm")
    assert source.feed_bytes(SGLANG.encode()) == []
    assert source.counts()["foreign_lines"] == 2


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1, b='x, y=2', c=[1, {'d': 2}]", [("a", "1"), ("b", "'x, y=2'"), ("c", "[1, {'d': 2}]")]),
        ("{'a': 1, 'b': '}'}, c=3", [("a", "1"), ("b", "'}'")]),
        ("Name(a=1, b=C(d=(2, 3)))", [("a", "1"), ("b", "C(d=(2, 3))")]),
        ("a=1, b=[1, 2", [("a", "1")]),
        ("a=1, b='open", [("a", "1")]),
        ("a='it\\'s, b=2', c=3", [("a", "'it\\'s, b=2'"), ("c", "3")]),
        ("", []),
        ("no pairs here, none", []),
        ("'; DROP': 1, a=2", [("a", "2")]),
    ],
)  # fmt: skip
def test_pairs(text, expected):
    assert pairs(text) == expected


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("True", "true"), ("None", None), ("'x'", "x"), ('"x"', "x"), ("1,901,888", "1901888"),
        ("<A.FULL: (2, 0)>", "FULL"), ("torch.bfloat16", "bfloat16"), ("['a', 'b']", "a b"),
        ("[]", ""), ("(1, 2)", "1 2"), ("[[1], 2]", "[[1], 2]"), ("['a, b']", "['a, b']"),
        ("{'k': 1}", "{'k': 1}"), ("__import__('os')", "__import__('os')"),
        ("C(password='x')", "C(password=<redacted>)"),
    ],
)  # fmt: skip
def test_setting(raw, value):
    assert setting("key_name_x", raw) == value
    assert setting("none_x", "None", none=True) == "none"


# ---------------------------------------------------------------- hostile input


SETS_4242 = {
    "vllm": "# GPU blocks: 4242",
    "sglang": "max_total_num_tokens=4242",
    "llamacpp": "llama_context: n_batch = 4242",
    "tensorrt_llm": "max_seq_len=8224, max_num_requests=64, max_num_tokens=4242",
    "tgi": "Setting max batch total tokens to 4242",
}


@pytest.mark.parametrize(
    "middle",
    [
        b"x" * 1_000_000, b"\0" * 70_000, b"\xff\xfe" * 40_000, b"{'a': " * 11_000, b"[" * 65_000,
        b"'" * 65_000, b"\\'" * 32_000, b"a=b," * 16_000, b"a-" * 32_000, b"(A pid=1) " * 6_500,
        b"\x1b[" * 30_000, b"\r" * 65_000, b"9" * 65_000, b" " * 65_000, b"\x1b[31m" * 13_000,
    ],
    ids=lambda b: repr(b[:6]),
)  # fmt: skip
@pytest.mark.parametrize("engine", log_engines())
def test_hostile_lines_cost_little_and_do_no_harm(middle, engine):
    heads = [p.example.split("{")[0].encode() for f, p in ALL if f in (engine, "generic")]
    began = time.process_time()
    source = reader(engine)
    for head in heads:
        source.feed_bytes(head + middle + b" ERROR throughput: #running-req: \n")
    rows = source.finish() + source.feed(SETS_4242[engine])
    assert rows[-1][1]["value"] == "4242"
    assert (time.process_time() - began) / len(heads) < 0.25
    assert source.counts()["long_lines"] == len(heads) * (len(middle) > MAX_LINE_BYTES)
    for name, row in rows:
        assert len(row.get("text") or "") <= 300
        assert len(row.get("value") or "") <= 300 if name == "settings" else True


def test_the_number_of_settings_is_bounded():
    source = reader()
    for i in range(40):
        body = ", ".join(f"'k{i}_{j}': {j}" for j in range(300))
        source.feed(f"{HEAD}non-default args: {{{body}}}")
    rows = [source.feed(f"{HEAD}non-default args: {{'another': 1}}")]
    assert rows == [[]]
    assert source.feed(f"{HEAD}non-default args: {{'k0_0': 7}}")[0][1]["value"] == "7"


@pytest.mark.parametrize("number", ["9" * 400, "1.2.3", "..", "1e5", "99999999999999999999"])
def test_numbers_out_of_this_world_are_left_out(number):
    rows = read(HEAD + STATISTICS.replace("12.5", number) + "\n")
    assert "log_prompt_tokens_per_s" not in samples(rows)


# ---------------------------------------------------------------- any chunking, and detection

_LINES = [
    *VLLM.splitlines(), *SGLANG.splitlines()[:4], *LLAMACPP.splitlines()[:3],
    *(HEAD + p.example for f, p in ALL if f == "vllm"),
    *TRACE.format(p="(W_TP0 pid=3) ", q="", e="ValueError: x").splitlines(),
    HEAD + STATISTICS, HEAD.replace(":55", ":59") + STATISTICS, "", "\x1b[1;36m(EngineCore_0 pid=5)\x1b[0;0m "
    + HEAD + STATISTICS, "naïve ✓ text", "x" * 100 + " ERROR ", "\r 10%\r 20%\rERROR: done",
]  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(
    picks=st.lists(st.sampled_from(_LINES), max_size=25),
    seed=st.integers(0, 2**32),
    largest=st.sampled_from([1, 3, 40, 1000]),
    engine=st.sampled_from([None, "vllm", "sglang", "tgi"]),
    ended=st.booleans(),
)
def test_any_chunking_gives_the_same_rows(picks, seed, largest, engine, ended):
    text = "\n".join(picks) + ("\n" if ended else "")
    data = text.encode()
    whole = reader(engine)
    expected = whole.feed_bytes(data) + whole.finish()
    draw = random.Random(seed)
    pieces = reader(engine)
    rows, at = [], 0
    while at < len(data):
        size = draw.randint(1, largest)
        rows += pieces.feed_bytes(data[at : at + size])
        at += size
    assert rows + pieces.finish() == expected
    assert pieces.counts() == whole.counts()
    by_line = reader(engine)
    rows = [row for line in text.split("\n") if line or ended for row in by_line.feed(line)]
    if ended:
        assert rows + by_line.finish() == expected


@pytest.mark.parametrize("size", [997, 65_536, 65_537, 100_000, 1 << 22])
def test_chunking_around_long_lines_and_the_held_part(size):
    filler = b"nothing of interest here\n" * (HELD_BYTES // 25)
    long = HEAD.encode() + b"# GPU blocks: 1" + b" " * (MAX_LINE_BYTES + 7) + b"WARNING\n"
    edge = b"y" * MAX_LINE_BYTES + b"\n"
    data = (
        b"# GPU blocks: 1\n"
        + filler
        + edge
        + long
        + b"ERROR: lost\n"
        + HEAD.encode()
        + b"Using max model len 5\n"
    )
    data += (
        b"".join(m.encode() + b"\n" for m in load_file("vllm").marks) + edge + long + filler[:-3]
    )
    whole = reader(None)
    expected = whole.feed_bytes(data) + whole.finish()
    assert whole.counts()["long_lines"] == 2
    assert whole.counts()["held_out_lines"] > 0
    assert values(expected)["max_model_len"] == "5"
    pieces = reader(None)
    rows = [r for at in range(0, len(data), size) for r in pieces.feed_bytes(data[at : at + size])]
    assert rows + pieces.finish() == expected
    assert pieces.counts() == whole.counts()


def test_after_a_gap_the_rest_of_a_line_is_dropped():
    source = reader()
    source.feed_bytes(b"# GPU blocks: 1")
    source.gap(mid_line=True)
    assert source.feed_bytes(b"# GPU blocks: 2\n# GPU bl") == []
    assert values(source.feed_bytes(b"ocks: 3\n")) == {"num_gpu_blocks": "3"}


def test_gates_are_few_and_substrings_of_what_they_guard():
    for engine in log_engines():
        found = load_patterns(engine)
        assert len(found.gates) <= 34
        assert all(len(gate) >= 5 for gate in found.gates), found.gates


# ---------------------------------------------------------------- real logs


def _corpus() -> list[Path]:
    folder = os.environ.get("WHYBOUND_CORPUS")
    if not folder:
        return []
    root = Path(folder)
    return sorted(
        [
            *root.glob("6-log/*/*"),
            *root.glob("5-bench/*InferenceX*/*server.log"),
            *root.glob("../samples/vllm-cpu/server.log"),
        ]
    )


@pytest.mark.skipif(not _corpus(), reason="WHYBOUND_CORPUS names no folder with engine logs")
@pytest.mark.parametrize("path", _corpus(), ids=lambda p: p.name[-40:])
def test_real_logs(path):
    data = path.read_bytes()
    source = LogReader(None, near_ns=int(path.stat().st_mtime * 1e9), utc_offset_s=0)
    rows = source.feed_bytes(data) + source.finish()
    assert source.engine == "vllm"
    found = values(rows)
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.\d+)?", found["version"])
    assert int(found["kv_cache_tokens"]) >= 44_640
    assert int(found.get("max_num_batched_tokens", 64)) >= 64
    assert found["enforce_eager"] in ("true", "false")
    assert {"model", "dtype", "max_model_len", "enable_prefix_caching"} <= set(found)
    lines = data.decode(errors="replace").splitlines()
    told = sum("Avg prompt throughput" in line for line in lines)
    assert len([r for r in of(rows, "samples") if r["signal"] == "engine_running_count"]) == told
    assert all(0 <= r["value"] <= 1 for r in of(rows, "samples") if r["unit"] == "ratio")
    captured = [r["value"] for r in of(rows, "events") if r["kind"] == "graph_capture"]
    assert len(captured) == any("Graph capturing finished" in line for line in lines)
    assert len(of(rows, "events")) < 30
    assert source.counts()["suppressed_events"] == source.counts()["foreign_lines"] == 0
    times = [r["t_ns"] for r in of(rows, "samples")]
    assert times == sorted(times)


@pytest.mark.skipif(not _corpus(), reason="WHYBOUND_CORPUS names no folder with engine logs")
def test_a_client_that_asks_too_much_shows_as_an_error_once():
    (path,) = (p for p in _corpus() if "conc256" in p.name)
    rows = LogReader("vllm", near_ns=NEAR_NS).feed_bytes(path.read_bytes())
    errors = [text for kind, _, text in events(rows) if kind == "engine_error"]
    assert [text.split(":")[0] for text in errors] == [
        "Exception in ASGI application", "vllm.exceptions.VLLMValidationError",
    ]  # fmt: skip
