"""A log of a line or two: what it tells is taken, by its kind and, where the line is typical, by itself."""
# ruff: noqa: E501 - log lines stand as they are written

from __future__ import annotations

import pytest
from import_files import imported

from whybound.collector.engine_log import LogReader

MOE = "WARNING 10-06 15:57:52 [fused_moe.py:798] Using default MoE config. Performance might be sub-optimal! Config file not found at ['/x/E=128,N=192.json']"
JIT = "(EngineCore pid=5) WARNING 05-30 07:49:17 [jit_monitor.py:103] {} JIT compilation during inference: {}. This causes a latency spike; consider extending warmup to cover this shape/config."
SPEC = "(APIServer pid=1) INFO 05-30 07:49:21 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 3.07, Accepted throughput: 1.05 tokens/s, Drafted throughput: 1.51 tokens/s, Accepted: 141 tokens, Drafted: 204 tokens, Per-position acceptance rate: 0.897, 0.676, 0.500, Avg Draft acceptance rate: 69.1%"
SPEC_FIRST = "INFO 05-30 07:49:21 [metrics.py:101] SpecDecoding metrics: Draft acceptance rate: 71.6%, Mean acceptance length: 3.15, Accepted: 4300 tokens, Drafted: 6004 tokens"
CAPPED = "[2026-08-17 16:52:13] max_running_requests is capped to 5 by the mamba state cache (max_mamba_cache_size=27, 5 state slots per request)"
CAPTURE = "[2026-08-17 16:52:13 TP0] Capture {} CUDA graph begin. backend=full, num_tokens_per_req=1, bs=[1, 2, {}], avail mem=73.10 GB"
RETRACTED = "[2026-01-01 00:00:01 TP{}] KV cache pool is full. Retract requests.{}"


def read(engine: str, *lines: str):
    """Settings, events and samples of lines, each as pairs."""
    source = LogReader(engine, replica="r", near_ns=1_800_000_000 * 10**9, utc_offset_s=0)
    rows = source.feed_bytes(("\n".join(lines) + "\n").encode()) + source.finish()
    return (
        {r["key"]: r["value"] for t, r in rows if t == "settings"},
        [(r["kind"], r["value"]) for t, r in rows if t == "events"],
        [(r["signal"], pytest.approx(r["value"])) for t, r in rows if t == "samples"],
    )


@pytest.mark.parametrize(
    ("line", "kind", "table"),
    [
        (MOE, "vllm-log", "events"),
        ("Maximum concurrency for 8,192 tokens per request: 1.36x", "vllm-log", "settings"),
        (JIT.format("Triton kernel", "k"), "vllm-log", "events"),
        (SPEC, "vllm-log", "samples"),
        ("Avg generation throughput: 20.5 tokens/s, Running: 3 reqs", "vllm-log", "samples"),
        (CAPPED, "sglang-log", "settings"),
        (RETRACTED.format(0, ""), "sglang-log", "events"),
        (CAPTURE.format("target decode", 32), "sglang-log", "settings"),
    ],
)
@pytest.mark.parametrize("forced", [False, True], ids=["by content", "by kind"])
def test_one_line_is_used(tmp_path, line, kind, table, forced):
    (tmp_path / "server.log").write_text(line + "\n")
    options = {"kind": kind} if forced else {}
    (outcome,), rows = imported(tmp_path, tmp_path / "server.log", **options)
    assert (outcome.kind, outcome.refused) == (kind, None)
    assert rows(table)


@pytest.mark.parametrize(
    "line",
    [
        "WARNING … using default MoE config…",
        "(Worker_TP0 pid=1) WARNING [fused_moe.py:1] Using default MoE config.",
        "Using default MoE kernel config. Performance might be sub-optimal!",
    ],
)
@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm"])
def test_the_moe_warning_is_told_in_any_dress(engine, line):
    assert [kind for kind, _ in read(engine, line)[1]] == ["moe_default_config"]


def test_a_script_that_quotes_a_line_stays_a_command(tmp_path):
    script = "vllm serve m --max-num-seqs 4\ngrep 'Maximum concurrency for ' boot.log\n"
    (tmp_path / "run.sh").write_text(script)
    (outcome,), _ = imported(tmp_path, tmp_path / "run.sh")
    assert outcome.kind == "arguments"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Avg generation throughput: 8.6 tokens/s", {"log_generation_tokens_per_s": 8.6}),
        (
            "Engine 000: Avg prompt throughput: 3978.0 tokens/s, Avg generation throughput: 6.62 tokens/s, GPU KV cache usage: 5.0%",
            {
                "log_prompt_tokens_per_s": 3978,
                "log_generation_tokens_per_s": 6.62,
                "kv_used_ratio": 0.05,
            },
        ),
        (
            "Avg prompt throughput: ... Avg generation throughput: 20 tokens/s, Running: 4 reqs, Prefix cache hit rate: 12.5%",
            {
                "log_generation_tokens_per_s": 20,
                "engine_running_count": 4,
                "prefix_hit_ratio": 0.125,
            },
        ),
    ],
)
def test_statistics_without_some_fields_give_the_others(text, told):
    assert dict(read("vllm", "INFO 01-01 00:00:00 [loggers.py:123] " + text)[2]) == told


def test_a_throughput_of_something_else_is_no_statistics():
    line = "INFO 01-01 00:00:00 [x.py:1] Benchmark throughput: 12 tokens/s, Running: 3 reqs"
    assert read("vllm", line) == ({}, [], [])


def test_jit_compiles_are_events_by_kernel_and_of_the_first_rank():
    lines = [JIT.format("Triton kernel", name) for name in ("a", "b", "b")]
    lines += [JIT.format("TileLang", "c")]
    lines += [lines[0].replace("EngineCore", f"Worker_TP{rank}") for rank in (1, 2)]
    assert read("vllm", *lines)[1] == [("jit_compile", None)] * 3


def test_speculation_takes_the_counts_in_every_order():
    assert dict(read("vllm", SPEC)[2]) == {
        "log_spec_accepted_tokens": 141,
        "log_spec_draft_tokens": 204,
        "log_spec_accepted_ratio": 0.691,
    }
    assert dict(read("vllm", SPEC_FIRST)[2]) == {
        "log_spec_accepted_tokens": 4300,
        "log_spec_draft_tokens": 6004,
    }


def test_sglang_decode_line_with_speculation_and_disaggregation():
    line = "[2026-01-01 00:00:00 DP0 TP0] Decode batch, #running-req: 3, #token: 41536, token usage: 0.01, accept len: 2.20, accept rate: 0.73, pre-allocated usage: 0.00, #prealloc-req: 0, #transfer-req: 1, #retracted-req: 2, cuda graph: False, gen throughput (token/s): 0.40, #queue-req: 7,"
    assert dict(read("sglang", line)[2]) == {
        "engine_running_count": 3, "engine_waiting_count": 7, "kv_used_tokens": 41536,
        "kv_used_ratio": 0.01, "log_generation_tokens_per_s": 0.4, "log_graph_used_ratio": 0,
        "log_spec_length_count": 2.2, "log_spec_rate_ratio": 0.73, "log_retracted_count": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "largest"),
    [
        (CAPTURE.format("target decode", 32), "32"),
        (CAPTURE.format("target verify", 6).replace("per_req", "per_bs"), "6"),
        (CAPTURE.format("draft decode", 32), None),
        (CAPTURE.format("target prefill", 32), None),
        (f"Capture cuda graph bs {list(range(1, 257))}", "256"),
    ],
)
def test_the_largest_captured_batch_is_that_of_the_model_itself(line, largest):
    assert read("sglang", line)[0].get("graph_max_batch") == largest


@pytest.mark.parametrize(
    ("compilation", "largest"),
    [
        ('{"level":3,"cudagraph_capture_sizes":[512,504,1],"max_capture_size":512,"x":null}', "512"),
        (f"{{'cudagraph_capture_sizes': {list(range(1, 513))}, 'max_cudagraph_capture_size': 512}}", "512"),
        ("{'cudagraph_capture_sizes': [], 'max_cudagraph_capture_size': 0}", None),
        ("{'cudagraph_mode': <CUDAGraphMode.NONE: 0>}", None),
    ],
)  # fmt: skip
def test_vllms_largest_size_survives_a_list_that_is_cut(compilation, largest):
    line = f"Initializing a V1 LLM engine (v0.11.0) with config: model='m', compilation_config={compilation}, use_cached_outputs=True"
    assert read("vllm", line)[0].get("graph_max_batch") == largest


def test_a_retraction_counts_once_for_all_ranks():
    lines = [RETRACTED.format(rank, "") for rank in range(4)]
    assert read("sglang", *lines)[1] == [("retraction", 1)]
    many = " #retracted_reqs: 3, #new_token_ratio: 0.1 -> 0.4"
    assert read("sglang", RETRACTED.format(0, many))[1] == [("retraction", 3)]


def test_the_cap_that_holds_is_the_later_one():
    arguments = "[2026-08-17 16:50:00] server_args=ServerArgs(model_path='m', max_running_requests=48, cuda_graph_max_bs_decode=64)"
    assert read("sglang", arguments, CAPPED)[0] == {
        "model_path": "m",
        "max_running_requests": "5",
        "cuda_graph_max_bs_decode": "64",
    }
