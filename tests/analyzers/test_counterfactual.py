"""Gains: what changes, what stays, and what the measured parts do to them."""

from dataclasses import replace

import pytest

from whybound.analyzers.counterfactual import (
    Question,
    axis_engines,
    best_policy,
    gain,
    metric_of,
    ordered,
    policies,
    tied,
)
from whybound.analyzers.whatif import UNLIMITED, Engine, Load, capacity, solve

E2E, TTFT, ITL, RATE = (Question(m) for m in ("e2e", "ttft", "itl", "throughput"))
ENGINE = Engine(
    0.02,
    0.001,
    0.00005,
    max_num_seqs=4,
    token_budget=2048,
    kv_tokens=20000,
    path_s=0.1,
    front_end_s=0.05,
)
LOAD = Load(open_loop=True, rate=1, concurrency=4, input_tokens=100, output_tokens=50)
CLOSED = replace(LOAD, open_loop=False, concurrency=16)


def base_facts(engine=ENGINE, load=LOAD, **scale):
    """What a run would show that the model explains exactly, perhaps but for a factor."""
    base = solve(engine, load)
    facts = {
        "front_end_work_mean_s": base.front_end_s,
        "wait_mean_s": base.wait_s,
        "server_prefill_mean_s": base.prefill_s,
        "server_decode_mean_s": base.decode_s,
    }
    return {k: v * scale.get(k, 1) for k, v in facts.items()}


# ---------------------------------------------------------------- the model tied to the measurement


def test_parts_at_the_base_are_the_measured_ones():
    facts = base_facts(server_decode_mean_s=1.7, wait_mean_s=40)
    base = solve(ENGINE, LOAD)
    parts = tied(base, base, facts)
    assert parts["decode_s"] == pytest.approx(facts["server_decode_mean_s"])
    assert parts["wait_s"] == pytest.approx(facts["wait_mean_s"])
    assert parts["path_s"] == ENGINE.path_s


def test_a_part_is_scaled_where_the_model_explains_a_fifth_of_it():
    base, twice = solve(ENGINE, LOAD), solve(replace(ENGINE, base_s=0.01), LOAD)
    parts = tied(twice, base, base_facts(server_decode_mean_s=4.9))
    assert parts["decode_s"] == pytest.approx(twice.decode_s * 4.9)


def test_what_the_model_does_not_explain_is_a_constant_that_no_lever_removes():
    base, twice = solve(ENGINE, LOAD), solve(replace(ENGINE, base_s=0.01), LOAD)
    parts = tied(twice, base, base_facts(server_decode_mean_s=5.1))
    assert parts["decode_s"] == pytest.approx(twice.decode_s + 4.1 * base.decode_s)


def test_a_part_that_was_measured_as_nothing_stays_nothing():
    base, worse = solve(ENGINE, LOAD), solve(ENGINE, replace(LOAD, rate=5))
    assert tied(worse, base, base_facts(wait_mean_s=0))["wait_s"] == 0


# ---------------------------------------------------------------- gains


@pytest.mark.parametrize(
    "ask", [E2E, TTFT, ITL, RATE, Question("itl", 0.99), Question("e2e", 0.95)]
)
@pytest.mark.parametrize("load", [LOAD, CLOSED], ids=["open", "closed"])
def test_no_change_gains_nothing(ask, load):
    same = (ENGINE, load)
    assert gain(ask, same, same, base_facts(load=load)) == pytest.approx(1.0)


@pytest.mark.parametrize("ask", [E2E, TTFT, ITL])
@pytest.mark.parametrize(
    "load", [LOAD, replace(LOAD, rate=8), CLOSED], ids=["light", "over", "closed"]
)
def test_no_axis_harms_a_latency(ask, load):
    facts = base_facts(load=load)
    for axis, changed in axis_engines(ENGINE, load).items():
        assert gain(ask, (ENGINE, load), changed, facts) >= 1 - 1e-6, axis


def test_half_the_path_is_worth_its_share():
    e2e = solve(ENGINE, LOAD).e2e_s
    got = gain(E2E, (ENGINE, LOAD), axis_engines(ENGINE, LOAD)["path_half"], base_facts())
    assert got == pytest.approx(e2e / (e2e - 0.05))


def test_throughput_of_a_full_closed_loop_is_that_of_the_engine():
    quick = axis_engines(ENGINE, CLOSED)["engine_x2"]
    assert gain(RATE, (ENGINE, CLOSED), quick, {}) == pytest.approx(2.0, rel=0.01)


def test_throughput_of_an_open_loop_below_capacity_cannot_grow():
    for axis, changed in axis_engines(ENGINE, LOAD).items():
        if axis != "load_half":
            assert gain(RATE, (ENGINE, LOAD), changed, {}) == pytest.approx(1.0), axis


def test_ttft_leaves_out_decode():
    facts = base_facts()
    whole, first = (metric_of(q, (ENGINE, LOAD), (ENGINE, LOAD), facts) for q in (E2E, TTFT))
    assert whole - first == pytest.approx(facts["server_decode_mean_s"])


# ---------------------------------------------------------------- axes and policies


def test_an_axis_that_cannot_be_computed_is_absent():
    assert "kv_capacity_x2" not in axis_engines(replace(ENGINE, kv_tokens=UNLIMITED), LOAD)
    assert "load_half" not in axis_engines(ENGINE, CLOSED)
    assert set(axis_engines(ENGINE, LOAD)) == {
        "engine_x2", "host_half", "path_half", "kv_capacity_x2", "load_half",
    }  # fmt: skip


def test_a_batch_cap_is_raised_no_further_than_the_kv_cache_holds():
    caps = [p.value for p in policies(ENGINE, LOAD, lower_budget=False) if p.name == "batch cap"]
    assert caps == [8, 16, 32, 64, 128]  # 20000 tokens of 125 each: 160 slots


def test_limits_that_are_not_known_are_not_set():
    free = replace(ENGINE, max_num_seqs=UNLIMITED, token_budget=UNLIMITED)
    assert policies(free, LOAD, lower_budget=False) == []
    assert best_policy(E2E, free, LOAD, {}) is None


def test_best_policy_raises_the_cap_that_holds_requests_back():
    busy = replace(LOAD, rate=1.2 * capacity(ENGINE, LOAD))
    policy, value = best_policy(E2E, ENGINE, busy, base_facts(load=busy))
    assert policy.name == "batch cap"
    assert value > 1.3
    assert policy.value < 128  # the mildest within 3 % of the best


def test_best_policy_of_the_gaps_is_a_smaller_budget_that_still_carries_the_load():
    load = replace(
        LOAD, input_tokens=2000, rate=0.5, prompt_percentiles=tuple(20.0 * i for i in range(101))
    )
    engine = replace(ENGINE, token_budget=8192, max_num_seqs=32)
    found = best_policy(Question("itl", 0.99), engine, load, {})
    assert found is not None
    policy, value = found
    assert (policy.name, policy.value < 8192) == ("token budget", True)
    assert value > 1.3
    assert solve(policy.engine, load).rho <= 0.95


def test_a_gain_of_three_engines_is_the_middle_one_within_the_range():
    for gains in ([2.0, 1.5, 1.2], [1.5, 1.2, 2.0]):
        got = ordered(gains)
        assert (got.low, got.mid, got.high) == (1.2, 1.5, 2.0)
