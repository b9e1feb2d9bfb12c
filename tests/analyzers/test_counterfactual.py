"""Gains: what changes, what stays, and what the measured parts do to them."""

from dataclasses import replace

import numpy as np
import pytest
from fits import LOAD, fit_of, hypotheses, seen
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from passes import HEALTHY, HOST, LAUNCHES
from step_costs import STEPS

from whybound.analyzers.counterfactual import (
    Question,
    axis_worlds,
    best_policy,
    gains,
    metric_of,
    policies,
    policy_worlds,
    solve_all,
    spread,
    tied,
)
from whybound.analyzers.step_cost import StepCost, affine
from whybound.analyzers.whatif import UNLIMITED, Engine, Load, capacity, solve

E2E, TTFT, ITL, RATE = (Question(m) for m in ("e2e", "ttft", "itl", "throughput"))
P99, P95 = Question("itl", 0.99), Question("e2e", 0.95)
STEP = affine(0.02, 0.001, 0.00005)
ENGINE = Engine(
    hypotheses(STEP), max_num_seqs=4, token_budget=2048, kv_tokens=20000, path_s=0.1, front_end_s=0.05
)  # fmt: skip
SLOW = replace(LOAD, rate=1.0, input_tokens=100.0, output_tokens=50.0)
CLOSED = replace(SLOW, open_loop=False, concurrency=16.0)
MANY = settings(
    max_examples=25, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
NOISE = 0.95
"""Of the model's own: above capacity the faster engine serves more at once, and each a little slower."""


def base_facts(engine=ENGINE, load=SLOW, **scale):
    """What a run would show that the model explains exactly, perhaps but for a factor."""
    base = solve(engine, load)
    facts = {
        "front_end_work_mean_s": base.front_end_s,
        "wait_mean_s": base.wait_s,
        "server_prefill_mean_s": base.prefill_s,
        "server_decode_mean_s": base.decode_s,
    }
    return {k: float(np.median(v)) * scale.get(k, 1) for k, v in facts.items()}


def asked(ask, world, worlds, facts, n=1):
    """The middle gain of each world."""
    found = gains(ask, solve_all(world, worlds, n), facts)
    return {name: float(np.median(v)) for name, v in found.items()}


# ---------------------------------------------------------------- the model tied to the measurement


def test_parts_at_the_base_are_the_measured_ones():
    facts = base_facts(server_decode_mean_s=1.7, wait_mean_s=40)
    base = solve(ENGINE, SLOW)
    parts = tied(base, base, facts)
    assert parts["decode_s"] == pytest.approx(facts["server_decode_mean_s"])
    assert parts["wait_s"] == pytest.approx(facts["wait_mean_s"])
    assert parts["path_s"] == pytest.approx(ENGINE.path_s)


def halves():
    """The base and the same with steps of half the length."""
    quick = replace(ENGINE, step=hypotheses(affine(0.01, 0.0005, 0.000025)))
    return solve(ENGINE, SLOW), solve(quick, SLOW)


def test_a_part_is_scaled_where_the_model_explains_a_fifth_of_it():
    base, quick = halves()
    parts = tied(quick, base, base_facts(server_decode_mean_s=4.9))
    assert parts["decode_s"] == pytest.approx(quick.decode_s * 4.9)


def test_what_the_model_does_not_explain_is_a_constant_that_no_lever_removes():
    base, quick = halves()
    parts = tied(quick, base, base_facts(server_decode_mean_s=5.1))
    assert parts["decode_s"] == pytest.approx(quick.decode_s + 4.1 * base.decode_s)


def test_a_part_that_was_measured_as_nothing_stays_nothing():
    base, worse = solve(ENGINE, SLOW), solve(ENGINE, replace(SLOW, rate=5.0))
    assert tied(worse, base, base_facts(wait_mean_s=0))["wait_s"] == pytest.approx(0)


def test_what_was_not_measured_is_the_models():
    base, quick = halves()
    assert tied(quick, base, {})["decode_s"] == pytest.approx(quick.decode_s)


# ---------------------------------------------------------------- gains


EVERY_ASK = pytest.mark.parametrize(
    "ask", [E2E, TTFT, ITL, RATE, P99, P95, Question("prefill"), Question("decode")],
    ids=lambda q: f"{q.metric} {q.quantile}",
)  # fmt: skip


@EVERY_ASK
@pytest.mark.parametrize("load", [SLOW, CLOSED], ids=["open", "closed"])
def test_no_change_gains_nothing(ask, load):
    same = (ENGINE, load)
    assert asked(ask, same, {"same": same}, base_facts(load=load))["same"] == pytest.approx(1.0)


WORLDS = st.builds(
    Engine,
    step=STEPS,
    max_num_seqs=st.integers(1, 256).map(float),
    token_budget=st.integers(64, 16384).map(float) | st.just(UNLIMITED),
    kv_tokens=st.integers(10**4, 10**7).map(float) | st.just(UNLIMITED),
    path_s=st.floats(0, 0.3),
    front_end_s=st.just(0.0) | st.floats(1e-4, 0.02),
)
LOADS = st.builds(
    Load, open_loop=st.just(True), rate=st.just(1.0), concurrency=st.just(1.0),
    input_tokens=st.integers(1, 4000).map(float), output_tokens=st.integers(8, 500).map(float),
)  # fmt: skip


@MANY
@given(WORLDS, LOADS, st.floats(0.05, 1.5), st.sampled_from([E2E, TTFT, ITL]))
def test_no_resource_harms_a_latency(engine, load, rho, ask):
    """Each axis only takes away; open loop, from idle to half as much again as can be served.

    Above capacity a faster engine serves more, and what it serves more are prompts between the gaps.
    """
    assume(ask != ITL or rho < 1)
    engine = replace(engine, step=hypotheses(engine.step))
    load = replace(load, rate=rho * float(np.squeeze(capacity(engine, load))))
    worlds = axis_worlds(engine, load, linked=True, client=True)
    for axis, gain in asked(ask, (engine, load), worlds, {}).items():
        # a cache for more sequences lets in more of them, who then share every pass
        if axis != "kv_capacity_x2":
            assert gain >= NOISE, axis
    assert "link_x2" in worlds
    assert "link_x2" not in axis_worlds(engine, load, linked=False, client=True)


@MANY
@given(WORLDS, LOADS, st.integers(1, 300), st.booleans())
def test_no_resource_costs_a_closed_loop_throughput(engine, load, callers, linked):
    engine = replace(engine, step=hypotheses(engine.step))
    load = replace(load, open_loop=False, concurrency=float(callers))
    worlds = axis_worlds(engine, load, linked=linked, client=True)
    for axis, gain in asked(RATE, (engine, load), worlds, {}).items():
        assert gain >= NOISE, axis


@MANY
@given(WORLDS, LOADS, st.integers(1, 300))
def test_halving_all_seconds_of_a_step_gains_at_most_two(engine, load, callers):
    """Of an axis by itself no service can gain more; a queue may, and there is none in a closed loop's rate."""
    engine = replace(engine, step=hypotheses(engine.step))
    load = replace(load, open_loop=False, concurrency=float(callers))
    worlds = axis_worlds(engine, load, linked=True, client=True)
    for axis, gain in asked(RATE, (engine, load), worlds, {}).items():
        assert gain <= 2 / NOISE or axis == "kv_capacity_x2", axis


def test_half_the_path_is_worth_its_share():
    e2e = float(np.squeeze(solve(ENGINE, SLOW).e2e_s))
    got = asked(
        E2E, (ENGINE, SLOW), axis_worlds(ENGINE, SLOW, linked=False, client=True), base_facts()
    )
    assert got["path_half"] == pytest.approx(e2e / (e2e - 0.05))


@pytest.mark.parametrize(
    ("step", "axis"),
    [
        (StepCost(weights_s=0.02), "bandwidth_x2"),
        (StepCost(weights_s=0.001, kv_s=1e-5), "bandwidth_x2"),
        (StepCost(token_s=0.001), "flops_x2"),
        (StepCost(weights_s=0.001, launch_s=0.02), "host_half"),
        (StepCost(weights_s=0.001, host_s=0.02), "host_half"),
        (StepCost(weights_s=0.001, floor_s=0.02), "kernel_floor_half"),
        (StepCost(weights_s=0.001, link_s=0.02), "link_x2"),
    ],
)
def test_twice_the_one_resource_doubles_a_full_closed_loop(step, axis):
    engine = Engine(hypotheses(step), max_num_seqs=16.0)
    load = replace(CLOSED, concurrency=64.0)
    got = asked(RATE, (engine, load), axis_worlds(engine, load, linked=True, client=True), {})
    assert got.pop(axis) == pytest.approx(2.0, rel=0.1)
    assert max(v for a, v in got.items() if ":" not in a) < 1.25


@pytest.mark.parametrize(("step", "part"), [(LAUNCHES, "kernel launch"), (HOST, "host scheduler")])
def test_the_part_of_the_host_that_holds_the_device_up(step, part):
    fit = fit_of(step, max_num_seqs=16.0)
    found = asked(
        E2E,
        (fit.engine, fit.load),
        axis_worlds(fit.engine, fit.load, linked=False, client=True),
        seen(fit),
    )
    parts = {a: g for a, g in found.items() if a.startswith("host_half:")}
    assert max(parts, key=lambda a: parts[a]) == f"host_half:{part}"
    assert found["host_half"] >= max(parts.values()) * NOISE


def test_throughput_of_an_open_loop_below_capacity_cannot_grow():
    worlds = axis_worlds(ENGINE, SLOW, linked=True, client=True)
    for axis, gain in asked(RATE, (ENGINE, SLOW), worlds, {}).items():
        if axis != "load_half":
            assert gain == pytest.approx(1.0, abs=1e-6), axis


def test_ttft_leaves_out_decode():
    facts = base_facts()
    solved = solve_all((ENGINE, SLOW), {}, 1)
    whole, first = (metric_of(q, "", solved, facts) for q in (E2E, TTFT))
    assert whole - first == pytest.approx(facts["server_decode_mean_s"])


def test_every_hypothesis_has_its_own_gain():
    """Half of them read weights, half launch kernels: neither answer is that of the middle of both."""
    fit = fit_of(HEALTHY, LAUNCHES)
    worlds = axis_worlds(fit.engine, fit.load, linked=False, client=True)
    found = gains(Question("itl"), solve_all((fit.engine, fit.load), worlds, 2), {})
    read, launch = found["bandwidth_x2"], found["host_half"]
    assert read[0] > 1.5 > 1.2 > read[1]
    assert launch[1] > 1.5 > 1.2 > launch[0]


# ---------------------------------------------------------------- axes and policies


def test_an_axis_that_cannot_be_computed_is_absent():
    def axes(engine, load):
        return set(axis_worlds(engine, load, linked=False, client=True))

    assert "kv_capacity_x2" not in axes(replace(ENGINE, kv_tokens=UNLIMITED), SLOW)
    assert "load_half" not in axes(ENGINE, CLOSED)
    assert "path_half" not in axis_worlds(ENGINE, SLOW, linked=False, client=False)
    assert {a for a in axes(ENGINE, SLOW) if ":" not in a} == {
        "bandwidth_x2", "flops_x2", "kernel_floor_half", "host_half", "path_half", "kv_capacity_x2",
        "load_half",
    }  # fmt: skip


def test_an_axis_leaves_the_engine_that_it_was_made_of_alone():
    before = {k: np.array(v) for k, v in vars(ENGINE.step).items()}
    axis_worlds(ENGINE, SLOW, linked=True, client=True)
    policy_worlds(ENGINE, SLOW)
    assert all(np.array_equal(before[k], v) for k, v in vars(ENGINE.step).items())


def test_a_batch_cap_is_raised_no_further_than_the_kv_cache_holds():
    caps = [p.value for p in policies(ENGINE, SLOW, lower_budget=False) if p.name == "batch cap"]
    assert caps == [8, 16, 32, 64, 128]  # 20000 tokens of 125 each: 160 slots


def chosen(ask, engine, load, facts):
    """The best policy and its middle gain; None when nothing can be set."""
    tried = policy_worlds(engine, load)
    solved = solve_all((engine, load), {k: (p.engine, load) for k, p in tried.items()}, 1)
    best = best_policy(ask, gains(ask, solved, facts), tried, solved)
    return None if best is None else (best[0], float(np.median(best[1])))


def test_limits_that_are_not_known_are_not_set():
    free = replace(ENGINE, max_num_seqs=UNLIMITED, token_budget=UNLIMITED)
    assert policies(free, SLOW, lower_budget=False) == []
    assert chosen(E2E, free, SLOW, {}) is None


def test_best_policy_raises_the_cap_that_holds_requests_back():
    busy = replace(SLOW, rate=1.2 * float(np.squeeze(capacity(ENGINE, SLOW))))
    policy, value = chosen(E2E, ENGINE, busy, base_facts(load=busy))
    assert policy.name == "batch cap"
    assert value > 1.3
    assert policy.value < 128  # the mildest within 3 % of the best


def test_best_policy_of_the_gaps_is_a_smaller_budget_that_still_carries_the_load():
    load = replace(
        SLOW, input_tokens=2000.0, rate=0.5, prompt_percentiles=tuple(20.0 * i for i in range(101))
    )
    engine = replace(ENGINE, token_budget=8192, max_num_seqs=32)
    policy, value = chosen(P99, engine, load, {})
    assert (policy.name, policy.value < 8192) == ("token budget", True)
    assert value > 1.3
    assert float(np.squeeze(solve(policy.engine, load).rho)) <= 0.95


def test_a_cap_that_nobody_meets_gains_nothing():
    _, value = chosen(E2E, replace(ENGINE, max_num_seqs=64), SLOW, base_facts())
    assert value == pytest.approx(1.0, abs=0.01)


@given(st.lists(st.floats(0.5, 50), min_size=1, max_size=40))
def test_a_gain_is_shown_by_its_middle_and_eighty_percent(values):
    got = spread(np.array(values))
    assert min(values) <= got.low <= got.mid <= got.high <= max(values)
    assert got.mid == pytest.approx(np.median(values))
