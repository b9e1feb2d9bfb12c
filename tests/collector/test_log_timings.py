"""Lines of timings, all-reduces and host memory: every form that the engines print them in."""
# ruff: noqa: E501 - log lines stand as they are written

from __future__ import annotations

import pytest
from import_files import imported

from whybound.collector.argv import requested_settings
from whybound.collector.engine_log import LogReader

PROMPT = "prompt eval time =    1000.00 ms /   500 tokens (    2.00 ms per token,   500.00 tokens per second)"
ANSWER = "       eval time =    2000.00 ms /   100 tokens (   20.00 ms per token,    50.00 tokens per second)"
OLD_PROMPT = 'INFO [           print_timings] prompt eval time     =    1000.00 ms /   500 tokens (    2.00 ms per token,   500.00 tokens per second) | tid="1" timestamp=1715000000'
OLD_ANSWER = 'INFO [           print_timings] generation eval time =    2000.00 ms /   100 runs   (   20.00 ms per token,    50.00 tokens per second) | tid="1" timestamp=1715000000'
REQUEST = {
    "log_request_prompt_tokens_per_s": 500,
    "log_request_prompt_tokens": 500,
    "log_request_prompt_s": 1,
    "log_request_generation_tokens_per_s": 50,
    "log_request_output_tokens": 100,
    "log_request_decode_s": 2,
}


def read(engine, *lines):
    """Settings and samples of lines."""
    source = LogReader(engine, replica="r", near_ns=1_800_000_000 * 10**9, utc_offset_s=0)
    rows = source.feed_bytes(("\n".join(lines) + "\n").encode()) + source.finish()
    return (
        {r["key"]: r["value"] for t, r in rows if t == "settings"},
        {r["signal"]: pytest.approx(r["value"]) for t, r in rows if t == "samples"},
    )


@pytest.mark.parametrize(
    "lines",
    [
        (PROMPT, ANSWER),
        ("slot print_timing: id  0 | task 7 | " + PROMPT, "slot print_timing: id  0 | task 7 | " + ANSWER),
        ("0.12.345.678 I slot print_timing: id  0 | task 7 | " + PROMPT, "0.12.345.679 I slot print_timing: id  0 | task 7 | " + ANSWER),
        ("slot print_timing: id  0 | task 7 | ", PROMPT, ANSWER),
        (OLD_PROMPT, OLD_ANSWER),
    ],
)  # fmt: skip
def test_a_servers_request(lines):
    assert read("llamacpp", *lines)[1] == REQUEST


@pytest.mark.parametrize(
    ("lines", "runs"),
    [
        (("llama_print_timings:      sample time =      12.25 ms /    32 runs   (    0.38 ms per token,  2612.24 tokens per second)",
          "llama_print_timings: prompt eval time =     925.78 ms /    24 tokens (   38.57 ms per token,    25.92 tokens per second)",
          "llama_print_timings:        eval time =    4178.32 ms /    31 runs   (  134.78 ms per token,     7.42 tokens per second)",
          "llama_print_timings:       total time =    5211.06 ms /    55 tokens"), 32),
        (("0.15.300.670 I llama_perf_sampler_print:    sampling time =      12.25 ms /    56 runs   (    0.22 ms per token,  4571.43 tokens per second)",
          "0.15.300.673 I llama_perf_context_print:        load time =    1431.67 ms",
          "0.15.300.674 I llama_perf_context_print: prompt eval time =     925.78 ms /    24 tokens (   38.57 ms per token,    25.92 tokens per second)",
          "0.15.300.676 I llama_perf_context_print:        eval time =    4178.32 ms /    31 runs   (  134.78 ms per token,     7.42 tokens per second)"), 56),
        (("common_perf_print:    sampling time =      12.25 ms",
          "common_perf_print:    samplers time =      24.44 ms /   104 tokens",
          "common_perf_print: prompt eval time =     925.78 ms /    24 tokens (   38.57 ms per token,    25.92 tokens per second)",
          "common_perf_print:        eval time =    4178.32 ms /    31 runs   (  134.78 ms per token,     7.42 tokens per second)",
          "common_perf_print: unaccounted time =      12.20 ms /   0.3 %      (total - sampling - prompt eval - eval) / (total)"), None),
    ],
    ids=["print_timings", "perf_context", "common_perf"],
)  # fmt: skip
def test_a_context_without_a_server(lines, runs):
    expected = {
        "log_context_sample_s": 0.01225,
        "log_context_prompt_tokens": 24,
        "log_context_prompt_s": 0.92578,
        "log_context_output_tokens": 31,
        "log_context_decode_s": 4.17832,
    }
    assert read("llamacpp", *lines)[1] == expected | ({"log_context_sample_count": runs} if runs else {})  # fmt: skip


def test_nothing_decoded_has_no_rate_and_no_time():
    line = "0.00.051.569 I slot print_timing: id  0 | task 0 |        eval time =       0.00 ms /     1 tokens (    0.00 ms per token,      inf tokens per second)"
    assert read("llamacpp", line)[1] == {"log_request_output_tokens": 1, "log_request_decode_s": 0}


@pytest.mark.parametrize(
    "text",
    [
        "llama_print_timings:        eval time =    4178.32 ms /    31 runs   (  134.78 ms per token,     7.42 tokens per second)",
        "llama_perf_sampler_print:    sampling time =      12.25 ms /    56 runs   (    0.22 ms per token,  4571.43 tokens per second)",
        PROMPT + "\n" + ANSWER,
        "load_tensors: offloaded 20/33 layers to GPU",
    ],
)
def test_an_excerpt_is_used_by_its_content(tmp_path, text):
    (tmp_path / "x.log").write_text(text + "\n")
    (outcome,), rows = imported(tmp_path, tmp_path / "x.log")
    assert (outcome.kind, outcome.refused) == ("llamacpp-log", None)
    assert rows("samples") or rows("settings")


# ---------------------------------------------------------------- all-reduce

BACKENDS = "INFO 09-12 10:00:00 [cuda_communicator.py:314] Using [{}] all-reduce backends (out of potential backends: ['QUICK_REDUCE', 'CUSTOM', 'PYNCCL']) for group '{}'"


@pytest.mark.parametrize(
    ("engine", "line", "told"),
    [
        ("vllm", "WARNING 02-22 22:09:01 [custom_all_reduce.py:98] Custom allreduce is disabled because your platform lacks GPU P2P capability or P2P test failed.", "off"),
        ("vllm", "WARNING 02-22 22:09:01 custom_all_reduce.py:136] Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs.", "off"),
        ("vllm", "WARNING 02-22 22:09:01 [custom_all_reduce.py:92] Custom allreduce is disabled because this process group spans across nodes.", "off"),
        ("vllm", "WARNING 02-22 22:09:01 [custom_all_reduce.py:133] Custom allreduce is disabled due to an unsupported world size: 3. Supported world sizes: [2, 4, 6, 8].", "off"),
        ("vllm", "Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs.", "off"),
        ("vllm", "(Worker_TP0 pid=9) INFO 02-22 22:09:40 [custom_all_reduce.py:195] Registering 5635 cuda graph addresses", "on"),
        ("vllm", "INFO 02-22 22:09:40 [custom_all_reduce.py:195] Registering 0 cuda graph addresses", None),
        ("vllm", BACKENDS.format("'CUSTOM', 'PYNCCL'", "tp:0"), "on"),
        ("vllm", BACKENDS.format("'PYNCCL'", "tp:0"), "off"),
        ("vllm", BACKENDS.format("'PYNCCL'", "ep:0"), None),
        ("sglang", "[2025-10-31 03:45:20 TP0] Custom allreduce is disabled because your platform lacks GPU P2P capability or P2P test failed.", "off"),
        ("sglang", "[2025-10-31 03:45:20 TP0] Setup Custom allreduce failed with invalid argument. To silence this warning, specify --disable-custom-all-reduce explicitly.", "off"),
        ("sglang", "[2025-10-31 03:45:20 TP0] Registering 2275 cuda graph addresses", "on"),
    ],
)  # fmt: skip
def test_custom_all_reduce(engine, line, told):
    assert read(engine, line)[0].get("custom_all_reduce") == told


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("h:12:12 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.", "off"),
        ("h:12:12 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 0.", None),
        ("(EngineCore pid=3) h:12:34 [1] NCCL INFO P2P is disabled between connected GPUs 1 and 0. You can repress this message", "off"),
        ("h:12:34 [1] NCCL WARN P2P is disabled between NVLINK connected GPUs 5 and 4. This should not be the case", "off"),
        ("h:12:34 [1] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm"])
def test_peer_to_peer_of_nccl(engine, line, told):
    assert read(engine, line)[0].get("nccl_p2p") == told


# ---------------------------------------------------------------- host memory


@pytest.mark.parametrize(
    ("engine", "line", "told"),
    [
        ("llamacpp", "load_tensors: offloaded 20/33 layers to GPU", "true"),
        ("llamacpp", "load_tensors: offloaded 3/33 layers to GPU", "true"),
        ("llamacpp", "load_tensors: offloaded 33/33 layers to GPU", None),
        ("llamacpp", "Tensor blk.3.ffn_gate_exps.weight buffer type overriden to CPU", "true"),
        ("llamacpp", "load_tensors: tensor blk.3.ffn_gate_exps.weight (12 MiB q4_K) buffer type overridden to CPU", "true"),
        ("llamacpp", "Tensor blk.3.ffn_gate_exps.weight buffer type overriden to CUDA1", None),
    ],
)  # fmt: skip
def test_weights_on_host(engine, line, told):
    assert read(engine, line)[0].get("weights_on_host") == told


def test_bytes_in_host_memory():
    kv = "llama_kv_cache_unified:        CPU KV buffer size =   512.00 MiB"
    assert read("llamacpp", kv, kv.replace("CPU", "CUDA0"))[1] == {"log_kv_host_bytes": 2**29}
    weights = "INFO 09-12 10:00:00 [uva.py:120] Total CPU offloaded parameters: 24.5"
    assert read("vllm", weights)[1] == {"log_weights_host_bytes": 24.5 * 2**30}


def test_arguments_that_keep_weights_on_the_host():
    words = [
        "llama-server",
        "-m",
        "m.gguf",
        "-ot",
        "blk.1=CUDA0",
        "-ot",
        "exps=CPU",
        "-cmoe",
        "-ncmoe",
        "12",
        "-np",
        "2",
    ]
    found = requested_settings(words)
    assert found["override_tensor"] == "blk.1=CUDA0,exps=CPU"
    assert (found["cpu_moe"], found["n_cpu_moe"], found["parallel"]) == ("true", "12", "2")
