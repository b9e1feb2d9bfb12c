"""What follows from given figures: worked out by hand."""

from __future__ import annotations

import pytest

from whybound.analyzers.told import told_signals
from whybound.rules.model import Signal


def made(settings=None, scoped=(), **facts):
    signals = [
        Signal(name=n, value=v)
        if not isinstance(v, tuple)
        else Signal(name=n, value=sum(v) / 2, low=v[0], high=v[1])
        for n, v in facts.items()
    ]
    signals += [Signal(name=n, scope=s, value=v) for n, s, v in scoped]
    return {s.name: s for s in told_signals(signals, settings or {})}


def test_a_clock_over_that_of_the_named_gpu():
    found = made({"gpu_name": "NVIDIA H100 80GB HBM3"}, gpu_sm_clock_mhz=915.0)
    assert found["gpu_clock_ratio"].value == pytest.approx(0.5)
    assert "gpu_clock_ratio" not in made({"gpu_name": "no such card"}, gpu_sm_clock_mhz=990.0)


def test_bytes_a_second_over_those_of_the_gpu_keep_their_interval():
    found = made({"gpu_name": "NVIDIA H100 80GB HBM3"}, memory_read_per_s=(1.675e12, 2.68e12))
    assert found["gpu_dram_ratio"].low == pytest.approx(0.5, rel=0.01)
    assert found["gpu_dram_ratio"].high == pytest.approx(0.8, rel=0.01)


def test_what_is_there_is_not_made_again():
    found = made({"gpu_name": "H100"}, gpu_sm_clock_mhz=990.0, gpu_clock_ratio=0.7)
    assert found.keys() == {"device_kind", "gpu_sm_count"}


def test_collectives_of_a_step():
    found = made(collective_s=20e-6, collectives_per_token_count=100.0, client_tpot_mean_s=0.01)
    assert found["collective_share_ratio"].value == pytest.approx(0.2)
    by_rate = made(collective_s=20e-6, collectives_per_token_count=100.0, output_tokens_per_s=100.0)
    assert by_rate["collective_share_ratio"].value == pytest.approx(0.2)
    assert "collective_share_ratio" not in made(
        collective_s=20e-6, collectives_per_token_count=100.0
    )


def test_what_everyone_inside_needs_over_what_the_cache_holds():
    found = made(
        inflight_mean_count=4.0,
        input_mean_tokens=900.0,
        output_mean_tokens=100.0,
        kv_capacity_tokens=2000.0,
    )
    assert found["kv_demand_ratio"].value == pytest.approx(2.0)
    fixed = made(
        inflight_mean_count=1.0,
        input_mean_tokens=900.0,
        kv_per_request_tokens=4000.0,
        kv_capacity_tokens=8000.0,
    )
    assert fixed["kv_demand_ratio"].value == pytest.approx(0.5)


def test_room_for_whole_contexts():
    assert made({"max_model_len": "8192"}, kv_capacity_tokens=4096.0)[
        "kv_room_ratio"
    ].value == pytest.approx(0.5)
    assert "kv_room_ratio" not in made({"max_model_len": "auto"}, kv_capacity_tokens=4096.0)


def test_gpus_that_are_not_alike():
    found = made(scoped=[("gpu_busy_ratio", "gpu=0", 1.0), ("gpu_busy_ratio", "gpu=1", 0.1)])
    assert found["gpu_busy_spread_ratio"].value == pytest.approx(0.9)
    assert made(scoped=[("gpu_busy_ratio", "gpu=0", 1.0)]) == {}


@pytest.mark.parametrize(("long_s", "ratio"), [(0.0043, 0.35), (0.0200, 2.8)])
def test_a_step_that_grows_with_context_beside_what_its_bytes_explain(long_s, ratio):
    found = made(
        scoped=[
            ("client_tpot_mean_s", "segment=context_0", 0.002),
            ("client_tpot_mean_s", "segment=context_32000", long_s),
        ]
    )
    assert found["context_slowdown_ratio"].value == pytest.approx(ratio, rel=0.05)


def test_contexts_that_are_nearly_alike_tell_nothing():
    near = [("client_tpot_mean_s", f"segment=context_{n}", 0.002) for n in (100, 1000)]
    assert made(scoped=near).keys() == {"context_growth_ratio"}


def test_what_the_model_s_own_keys_and_values_explain():
    """Llama-3.1-8B keeps 131,072 bytes a token beside 16 GB of weights: 2000 tokens are 1.6 % of a step."""
    pair = {
        "context_short_tokens": 200.0,
        "context_long_tokens": 2200.0,
        "step_short_s": 0.010,
        "step_long_s": 0.0116,
    }
    known = made({"model": "meta-llama/Llama-3.1-8B-Instruct", "dtype": "bfloat16"}, **pair)
    assert known["context_growth_ratio"].value == pytest.approx(1.16)
    assert known["context_slowdown_ratio"].value == pytest.approx(0.16 / 0.0164, rel=0.1)
    assert made(**pair)["context_slowdown_ratio"].value == pytest.approx(0.16 / 0.2, rel=0.01)


def test_the_use_of_gpus_that_were_told_apart_has_a_mean():
    found = made(scoped=[("gpu_busy_ratio", "gpu=0", 0.8), ("gpu_busy_ratio", "gpu=1", 0.4)])
    assert found["gpu_busy_ratio"].value == pytest.approx(0.6)


def test_idle_time_of_a_step():
    assert made(step_idle_s=0.0005, client_tpot_mean_s=0.005)[
        "step_idle_ratio"
    ].value == pytest.approx(0.1)


def test_collectives_that_nobody_counted_are_an_interval():
    found = made(collective_s=40e-6, client_tpot_mean_s=0.04)["collective_share_ratio"]
    assert found.value == pytest.approx(0.1)
    assert (found.low, found.high) == (pytest.approx(0.056), pytest.approx(0.16))


def test_one_figure_of_the_cache_s_use_stands_for_its_highest():
    assert made(kv_used_mean_ratio=0.2)["kv_used_max_ratio"].value == pytest.approx(0.2)
    assert "kv_used_max_ratio" not in made(kv_used_mean_ratio=0.2, kv_used_max_ratio=0.9)
