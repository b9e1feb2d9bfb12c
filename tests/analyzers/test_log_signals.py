"""What an engine's log and settings tell of graphs, stalls, speculation and limits, worked out by hand."""

from __future__ import annotations

import json

import pytest

from whybound.analyzers.signals import read_signals

LOG = {"labels": '{"from":"log"}'}


def ns(t_s: float) -> int:
    return 1_700_000_000_000_000_000 + round(t_s * 1e9)


def facts(build):
    """Every signal: number or text."""
    found = read_signals(build.database())
    return {s.name: s.text if s.value is None else pytest.approx(s.value) for s in found}


def line(build, t, replica="r", engine="vllm", **values):
    """One statistics line of a log."""
    for signal, value in values.items():
        build.add(
            "samples", t_ns=ns(t), signal=signal, kind="gauge", value=float(value), node="n",
            engine=engine, replica=replica, gpu="", phase="", reason="", **LOG,
        )  # fmt: skip


def decode(build, t, running, generated, waiting=0, **more):
    line(
        build,
        t,
        engine_running_count=running,
        engine_waiting_count=waiting,
        log_generation_tokens_per_s=generated,
        **more,
    )


def event(build, kind, t=0.0, value=None, engine="vllm", replica="r", text=""):
    build.add(
        "events", t_ns=ns(t), kind=kind, text=text, value=value, node="n", engine=engine,
        replica=replica, source="log",
    )  # fmt: skip


# ---------------------------------------------------------------- graphs


@pytest.mark.parametrize(
    ("effective", "requested", "largest"),
    [
        ({"graph_max_batch": 32, "cuda_graph_max_bs": 160}, {}, 32),
        ({"graph_max_batch": 256}, {"cuda_graph_sizes": "512"}, 256),
        ({}, {"cuda_graph_bs": "1 2 4 8"}, 8),
        ({}, {"cuda_graph_max_bs": "24"}, 24),
        ({}, {"compilation_config": '{"level": 3, "cudagraph_capture_sizes": [1, 2, 16]}'}, 16),
        ({}, {"compilation_config": '{"max_cudagraph_capture_size": 64}'}, 64),
        ({}, {"compilation_config": '{"level": 3}'}, None),
        ({"graph_max_batch": 32, "enforce_eager": "true"}, {}, None),
        ({"cuda_graphs": "0"}, {}, None),
        # 3 guessed tokens and the model's own: 512 tokens are 128 requests
        ({"graph_max_batch": 512}, {"speculative_config": '{"num_speculative_tokens": 3}'}, 128),
        ({"graph_max_batch": 512, "speculative_config": "C(method='mtp', num_spec_tokens=7)"}, {}, 64),
        ({"max_num_seqs": 4}, {}, None),
    ],
)  # fmt: skip
def test_graph_max_batch(build, effective, requested, largest):
    build.settings(**effective)
    build.settings("requested", **requested)
    assert facts(build).get("graph_max_batch_count") == largest


def test_graph_replayed_is_the_share_of_decode_lines(build):
    for t, graph in enumerate((1, 1, 1, 0)):
        decode(build, t, 8, 100, log_graph_used_ratio=graph)
    line(build, 9, engine_running_count=3, engine_waiting_count=1)
    assert facts(build)["graph_replayed_ratio"] == 0.75


# ---------------------------------------------------------------- stalls


def stalled(build, *lines):
    for t, (running, generated, *waiting) in enumerate(lines):
        decode(build, t, running, generated, *waiting)
    found = facts(build)
    return found.get("stalled_generation_ratio"), found.get("generation_per_running_per_s")


def test_two_slow_lines_are_one_stall_and_a_rate_that_says_the_rest(build):
    assert stalled(build, (4, 0.5), (3, 5.0)) == (0.5, pytest.approx(5.5 / 7.5))


def test_more_requests_make_no_less_than_fewer(build):
    assert stalled(build, (2, 6.62), (1, 272.6)) == (0.5, pytest.approx(279.22 / 3.5))


def test_a_large_batch_may_give_each_request_little(build):
    # 8 of 80 tokens a second each, and ten times as many in all: no stall
    assert stalled(build, (1, 80), (100, 800))[0] == 0


def test_a_small_batch_is_held_to_what_each_got_in_a_large_one(build):
    assert stalled(build, (1, 4), (10, 500))[0] == 0.5


def test_a_batch_that_drains_within_an_interval_sets_no_standard(build):
    # 640 tokens a second were those of 20 requests, of which one is left at the end
    assert stalled(build, (20, 600), (1, 640), (1, 60))[0] == 0


def test_waiting_requests_make_no_stall_of_this_kind(build):
    assert stalled(build, (4, 0, 3), (4, 100, 0))[0] == 0


def test_one_line_has_nothing_to_be_held_to(build):
    assert stalled(build, (4, 8.0)) == (None, 2)


def test_a_line_whose_interval_began_idle_does_not_count(build):
    # the first after the start and the one after nothing ran, and SGLang's first step after an idle prefill
    event(build, "engine_started", t=-1)
    decode(build, 0, 1, 0.4)
    decode(build, 1, 1, 50)
    decode(build, 2, 0, 1)
    decode(build, 3, 1, 0.2)
    decode(build, 4, 1, 50)
    line(build, 5, engine_running_count=0, engine_waiting_count=0)
    decode(build, 6, 1, 0.3)
    decode(build, 7, 1, 50)
    found = facts(build)
    assert found["stalled_generation_ratio"] == 0
    assert found["generation_per_running_per_s"] == 50


def test_lines_of_one_stamp_pass_no_time(build):
    for i in range(3):
        decode(build, i * 1e-9, 4, 10, waiting=i)
    found = facts(build)
    assert not {"queue_growth_per_s", "engine_offered_rate_per_s"} & set(found)
    assert found["log_generation_tokens_per_s"] == 10
    assert build.database().execute("SELECT duration_s FROM run_window").fetchone() == (0,)


# ---------------------------------------------------------------- notices


def test_retractions_and_preemptions_of_a_log_alone(build):
    event(build, "retraction", 1, 2.0, engine="sglang")
    event(build, "retraction", 50, 3.0, engine="sglang")
    event(build, "preemption", 60, 4.0)
    found = facts(build)
    assert (found["retractions_count"], found["preemptions_count"]) == (5, 4)
    assert "preemptions_per_s" not in found


def test_cumulative_preemptions_are_the_last_of_each_engine(build):
    for t, (replica, total) in enumerate((("a", 1), ("a", 51), ("b", 1), ("a", 101))):
        event(build, "preemptions_so_far", t, total, replica=replica)
    assert facts(build)["preemptions_count"] == 102


def test_the_counter_goes_before_the_log_and_a_load_bounds_it(build, new_build):
    for b in (build, new_build("without")):
        b.request(0, 0.5, [0.5])
        b.request(9, 0.5, [0.5])
        event(b, "preemption", 5, 4.0)
        event(b, "preemption", 100, 9.0)
        event(b, "retraction", -50, 1.0)
        if b is build:
            b.counter("preemptions_count", {0: 1, 9: 6})
        found = facts(b)
        assert found["preemptions_count"] == (5 if b is build else 4)
        assert "retractions_count" not in found


def test_retracted_requests_that_wait_are_at_least_as_many(build):
    decode(build, 0, 4, 10, log_retracted_count=0)
    assert "retractions_count" not in facts(build)
    decode(build, 1, 4, 10, log_retracted_count=3)
    assert facts(build)["retractions_count"] == 3


def test_jit_compiles_and_the_moe_warning(build):
    assert not {"jit_compiles_count", "moe_default_config"} & set(facts(build))
    event(build, "moe_default_config")
    event(build, "jit_compile", 1, engine="sglang", replica="s")
    event(build, "engine_started", 2, engine="sglang", replica="s")
    found = facts(build)
    assert found["moe_default_config"] == "yes"
    assert "jit_compiles_count" not in found  # it was part of the start
    event(build, "jit_compile", 3, engine="sglang", replica="s")
    event(build, "jit_compile", 3)
    assert facts(build)["jit_compiles_count"] == 2


# ---------------------------------------------------------------- limits


def test_kv_room_as_logged_and_as_worked_out(build, new_build):
    build.settings(max_concurrency="1.36", kv_cache_tokens=100, max_model_len=10)
    assert facts(build)["kv_room_ratio"] == 1.36
    other = new_build("other")
    other.settings(kv_cache_tokens=15000, context_len=40960)
    assert facts(other)["kv_room_ratio"] == 15000 / 40960


@pytest.mark.parametrize(
    ("asked", "holds", "more", "expected"),
    [
        (48, 5, {}, 48),
        (5, 5, {}, None),
        (4, 5, {}, None),
        # each of two schedulers has half of 64
        (64, 32, {"dp_size": 2, "enable_dp_attention": "true"}, None),
        (64, 5, {"dp_size": 2, "enable_dp_attention": "true"}, 32),
        (64, 32, {"dp_size": 2, "enable_dp_attention": "false"}, 64),
    ],
)
def test_the_cap_that_was_asked_for(build, asked, holds, more, expected):
    build.settings("requested", max_running_requests=asked)
    build.settings("default", max_running_requests=4096)
    build.settings(max_running_requests=holds, **more)
    found = facts(build)
    assert found.get("max_num_seqs_asked_count") == expected
    assert found["max_num_seqs_count"] == holds


@pytest.mark.parametrize(("engine", "expected"), [("sglang", 48), ("vllm", None)])
def test_a_log_tells_what_was_asked_only_where_it_repeats_it(build, engine, expected):
    for t, value in enumerate((48, 5)):
        build.add(
            "settings", t_ns=ns(t), engine=engine, replica="r", key="max_running_requests", value=str(value),
            origin="effective", source="log", node="n",
        )  # fmt: skip
    assert facts(build).get("max_num_seqs_asked_count") == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"quantization": "awq_marlin"}, "yes"),
        ({"quantization": "gptq"}, "yes"),
        ({"quantize": "bitsandbytes-nf4"}, "yes"),
        ({"quantization": "fp8"}, "no"),
        ({"quantization": "modelopt_fp4"}, "no"),
        ({"quantization": "fp8", "weight_only_compression": "true"}, "yes"),
        ({"quantization": "compressed-tensors"}, None),
        ({"quantization": "compressed-tensors", "model": "org/Model-quantized.w4a16"}, "yes"),
        ({"quantization": "compressed-tensors", "model": "org/Model-quantized.w8a8"}, "no"),
        ({"model": "/models/Model-7B.Q4_K_M.gguf"}, "yes"),
        ({"model": "/models/Model-7B-F16.gguf"}, "no"),
        ({"model": "/models/model.gguf"}, "yes"),
        ({"model": "org/Model-7B-Instruct-AWQ"}, "yes"),
        ({"model": "org/Model-7B", "quantization": "none"}, "no"),
        ({"model": "org/Model-7B"}, None),
        ({"model": "org/M", "model_config": '{"quantization_config": {"quant_method": "gptq"}}'}, "yes"),
    ],
)  # fmt: skip
def test_weight_only_quantization(build, settings, expected):
    build.settings(**settings)
    assert facts(build).get("weight_only_quantization") == expected


def test_threads_of_the_pool(build):
    build.settings("requested", omp_num_threads=16)
    assert facts(build)["cpu_threads_count"] == 16


# ---------------------------------------------------------------- speculation


def test_speculation_by_counters(build):
    build.gauge(0, engine_running_count=1)
    build.gauge(10, engine_running_count=1)
    build.counter("spec_draft_tokens", {0: 100, 10: 300})
    build.counter("spec_accepted_tokens", {0: 50, 10: 200})
    line(build, 5, log_spec_accepted_tokens=1, log_spec_draft_tokens=10)
    assert facts(build)["speculation_accepted_ratio"] == 0.75


def test_speculation_by_the_log_is_weighed_by_what_was_drafted(build):
    line(
        build,
        0,
        log_spec_accepted_tokens=90,
        log_spec_draft_tokens=100,
        log_spec_accepted_ratio=0.9,
    )
    line(build, 1, log_spec_accepted_tokens=10, log_spec_draft_tokens=300)
    assert facts(build)["speculation_accepted_ratio"] == 0.25


def test_sglangs_length_has_the_models_own_token_in_it(build):
    line(build, 0, log_spec_length_count=2.5, log_spec_rate_ratio=0.625)
    line(build, 1, log_spec_length_count=1.0)  # drafted nothing
    (stated,) = (
        s for s in read_signals(build.database()) if s.name == "speculation_accepted_ratio"
    )
    # a rate of 2.5 out of 4, of which 3 were guessed
    assert (stated.low, stated.value, stated.high) == (pytest.approx(0.5), 0.625, 0.625)
    build.settings(speculative_num_draft_tokens=4)
    assert facts(build)["speculation_accepted_ratio"] == 0.5


def test_speculation_that_drafts_nothing_is_unknown(build):
    line(build, 0, log_spec_length_count=1.0)
    build.settings(speculative_num_draft_tokens=4)
    assert "speculation_accepted_ratio" not in facts(build)


# ---------------------------------------------------------------- the server's CPU


def test_server_cpu(build):
    build.gauge(0, engine_running_count=1)
    build.gauge(10, engine_running_count=1)
    for pid, rate in ((1, 1.1), (2, 0.4)):
        values = {float(t): rate * t for t in range(11)}
        build.counter("host_process_cpu_seconds", values, labels=json.dumps({"pid": pid}))
    # a child of two seconds that was all busy: 2 of 10 core seconds
    build.counter("host_process_cpu_seconds", {0.0: 0, 1.0: 2, 2.0: 4}, labels='{"pid": 3}')
    build.gauge(1, host_cpu_count=16)
    found = facts(build)
    assert found["server_process_cpu_ratio"] == 1.1
    assert found["server_cpu_cores_count"] == 1.9
    assert found["cpu_limit_cores_count"] == 16
    build.gauge(1, host_cpu_limit_count=6)
    assert facts(build)["cpu_limit_cores_count"] == 6
    build.settings("requested", cpu_limit_count=2)
    assert facts(build)["cpu_limit_cores_count"] == 2
