"""Timings, contexts, all-reduces and host memory, as logs and settings tell them, worked out by hand."""

from __future__ import annotations

import pytest

from whybound.analyzers.signals import read_signals

LOG = {"labels": '{"from":"log"}'}


def ns(t_s: float) -> int:
    return 1_700_000_000_000_000_000 + round(t_s * 1e9)


def facts(build):
    found = read_signals(build.database())
    return {s.name: s.text if s.value is None else pytest.approx(s.value) for s in found}


def line(build, t, replica="r", engine="llamacpp", **values):
    """One line of a log."""
    for signal, value in values.items():
        build.add(
            "samples", t_ns=ns(t), signal=signal, kind="gauge", value=float(value), node="n",
            engine=engine, replica=replica, gpu="", phase="", reason="", **LOG,
        )  # fmt: skip


def context(build, t, *, tokens, decode_s, sample_s=None, samples=None):
    line(build, t, log_context_output_tokens=tokens, log_context_decode_s=decode_s)
    if sample_s is not None:
        line(build, t, log_context_sample_s=sample_s)
    if samples is not None:
        line(build, t, log_context_sample_count=samples)


# ---------------------------------------------------------------- timings


def test_sampling_and_computation_of_a_token(build):
    context(build, 0, tokens=89, decode_s=1.78, sample_s=7.65, samples=90)
    line(build, 0, log_context_prompt_tokens=10, log_context_prompt_s=0.5)
    found = facts(build)
    assert (found["step_host_s"], found["step_device_s"]) == (0.085, 0.02)
    assert found["step_s"] == found["server_itl_mean_s"] == 0.105
    assert found["prefill_tokens_per_s"] == 20


def test_runs_that_count_the_prompt_too_are_those_that_were_decoded(build, new_build):
    context(build, 0, tokens=63, decode_s=12.6, sample_s=2.56, samples=71)
    assert facts(build)["step_host_s"] == 0.04
    untold = new_build("untold")
    context(untold, 0, tokens=63, decode_s=12.6, sample_s=2.56)
    assert facts(untold)["step_host_s"] == 0.04


def test_a_context_that_decoded_nothing_adds_no_token(build):
    context(build, 0, tokens=40, decode_s=2.0)
    context(build, 1, tokens=1, decode_s=0.0)
    found = facts(build)
    assert found["step_device_s"] == 0.05
    assert not {"step_host_s", "step_s"} & set(found)


def request(build, t, prompt, prompt_s, output, decode_s):
    line(
        build, t, log_request_prompt_tokens=prompt, log_request_prompt_s=prompt_s,
        log_request_output_tokens=output, log_request_decode_s=decode_s,
    )  # fmt: skip


def test_a_servers_requests(build):
    request(build, 0, 100, 0.5, 10, 1.0)
    request(build, 9, 300, 1.5, 90, 4.0)
    found = facts(build)
    assert found["server_prefill_mean_s"] == 1.0
    assert found["server_decode_mean_s"] == 2.5
    assert found["server_inference_mean_s"] == 3.5
    assert found["server_itl_mean_s"] == 0.05
    assert found["prefill_tokens_per_s"] == 200
    assert (found["log_input_mean_tokens"], found["log_output_mean_tokens"]) == (200, 50)
    assert not {"step_host_s", "step_device_s", "step_s", "server_e2e_mean_s"} & set(found)


def test_of_a_load_only_its_window_counts_and_histograms_go_first(build):
    build.request(10, 0.1, [1])
    build.request(20, 0.1, [1])
    request(build, 1, 100, 0.5, 10, 9.0)
    request(build, 12, 100, 0.5, 10, 1.0)
    assert facts(build)["server_itl_mean_s"] == 0.1
    build.histogram("itl_s", {9: (0, 0), 15: (3, 10)})
    found = facts(build)
    assert (found["server_itl_mean_s"], found["server_decode_mean_s"]) == (0.3, 1.0)


# ---------------------------------------------------------------- contexts


def decode(build, t, running, tokens, generated, **more):
    line(
        build, t, engine="sglang", engine_running_count=running, kv_used_tokens=tokens,
        log_generation_tokens_per_s=generated, **more,
    )  # fmt: skip


def contexts(build):
    found = facts(build)
    names = ("context_short_tokens", "context_long_tokens", "step_short_s", "step_long_s")
    return tuple(found.get(n) for n in names)


NONE = (None,) * 4


def test_steps_at_the_shortest_and_the_longest_tenth(build):
    decode(build, -1, 2, 1, 1)  # what it began with is not known
    for i in range(20):  # 2 requests of 500, 1000, … 10 000 tokens
        decode(build, i, 2, 1000 * (i + 1), 200 - 5 * i)
    # of 20 lines two at each end: steps 2/200 and 2/195, 2/110 and 2/105
    short, long = (2 / 200 + 2 / 195) / 2, (2 / 110 + 2 / 105) / 2
    assert contexts(build) == (750, 9750, pytest.approx(short), pytest.approx(long))


def test_several_tokens_a_step_make_it_longer(build):
    for i in range(6):
        decode(build, i, 1, 1000 + 1000 * i, 60, log_spec_length_count=3)
    # the first has none before it
    assert contexts(build) == (2000, 6000, 0.05, 0.05)


def test_a_prefill_or_another_batch_in_the_interval_says_nothing_of_a_step(build):
    for i in range(5):
        decode(build, i, 1, 1000 + i, 100)
    line(build, 5, engine="sglang", engine_running_count=1, log_prompt_tokens_per_s=5000)
    decode(build, 6, 1, 9000, 20)
    decode(build, 7, 2, 40000, 20)
    assert contexts(build) == NONE


@pytest.mark.parametrize(("last", "seen"), [(3000, False), (3020, True)])
def test_the_long_context_is_half_as_long_again_and_more(build, last, seen):
    # the shortest of the lines that count has 1680: 1.5 times that and 500 are 3020
    for i, tokens in enumerate((1000, 1680, 1700, 1800, last)):
        decode(build, i, 1, tokens, 100)
    assert (contexts(build) != NONE) == seen


def test_three_lines_are_too_few(build):
    for i in range(4):
        decode(build, i, 1, 1000 + 2000 * i, 100)
    assert contexts(build) == NONE


# ---------------------------------------------------------------- all-reduce


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"custom_all_reduce": "off"}, "off"),
        ({"custom_all_reduce": "on", "tensor_parallel_size": 2}, "on"),
        ({"disable_custom_all_reduce": "true"}, "off"),
        ({"disable_custom_all_reduce": "false", "tp_size": 2}, None),
        ({"disable_custom_all_reduce": "true", "tensor_parallel_size": 1}, None),
        ({"nccl_p2p_disable": "1"}, "off"),
        ({"nccl_p2p_disable": "0"}, None),
        ({"nccl_p2p": "off", "tp_size": 4}, "off"),
        ({"nccl_p2p": "off", "custom_all_reduce": "on"}, "on"),
    ],
)
def test_custom_all_reduce(build, settings, expected):
    build.settings(**settings)
    assert facts(build).get("custom_all_reduce") == expected


# ---------------------------------------------------------------- host memory


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"offloaded_layers": 20, "model_layers": 33}, "yes"),
        ({"offloaded_layers": 33, "model_layers": 33}, "no"),
        ({"offloaded_layers": 33, "model_layers": 33, "n_cpu_moe": 12}, "yes"),
        ({"offloaded_layers": 29, "model_layers": 29, "weights_on_host": "true"}, "yes"),
        ({"n_cpu_moe": 0}, None),
        ({"cpu_moe": "true"}, "yes"),
        ({"override_tensor": "blk.1=CUDA0,exps=CPU"}, "yes"),
        ({"override_tensor": "exps=CUDA1"}, None),
        ({"cpu_offload_gb": 8}, "yes"),
        ({"cpu_offload_gb": "0"}, "no"),
        ({"n_gpu_layers": 99}, None),
    ],
)
def test_weights_on_host(build, settings, expected):
    build.settings(**settings)
    assert facts(build).get("weights_on_host") == expected


def test_a_default_denies_nothing(build):
    build.settings("default", cpu_offload_gb=0)
    assert "weights_on_host" not in facts(build)


def test_bytes_that_lie_in_host_memory(build, new_build):
    for t in (0, 1):  # two caches of a model with a sliding window
        line(build, t, log_kv_host_bytes=3e9)
    assert "spilled_bytes" not in facts(build)  # nothing is on a device
    build.settings(offloaded_layers=20, model_layers=33)
    assert facts(build)["spilled_bytes"] == 6e9
    workers = new_build("workers")
    for t in (0, 1):
        line(workers, t, engine="vllm", log_weights_host_bytes=2e9)
    found = facts(workers)
    assert (found["spilled_bytes"], found["weights_on_host"]) == (2e9, "yes")


def test_requests_swapped_out_were_preempted(build):
    line(build, 0, engine="vllm", engine_swapped_count=0)
    assert "preemptions_count" not in facts(build)
    line(build, 1, engine="vllm", engine_swapped_count=3)
    assert facts(build)["preemptions_count"] == 3
