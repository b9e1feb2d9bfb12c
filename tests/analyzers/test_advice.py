"""Ranked levers: what bounds a gain, what comes first, and what is to be checked before."""

import math
from dataclasses import replace

import pytest
from fits import LOAD, fit_of, seen
from msgspec import structs
from passes import H100, HEALTHY, HOST, LAUNCHES

from whybound.analyzers.advice import NO_BOUND, SMALL, model_estimates, rank_levers
from whybound.analyzers.budget import time_budget
from whybound.analyzers.formulas import amdahl
from whybound.analyzers.step_cost import StepCost
from whybound.analyzers.verdict import Label, label_run, question, what_if
from whybound.analyzers.whatif import UNLIMITED, capacity
from whybound.analyzers.work import work_of
from whybound.rules.evaluate import Signals
from whybound.rules.load import load_levers
from whybound.rules.model import PARAMS, BudgetItem, Effect, Signal, Target

LEVERS = load_levers()
KNOWN = work_of(H100, 256, 288)
ALONE = replace(LOAD, rate=0.05)
LIMITS = {"max_num_seqs": 64.0, "kv_tokens": 4e5, "token_budget": 8192.0, "work": KNOWN}


def asked(metric="e2e", statistic="mean"):
    return Target(metric=metric, statistic=statistic, text=f"{statistic} {metric}", unit="s")


def ranked(*steps, metric="e2e", facts=None, levers=LEVERS, signals=None, named=(), **world):
    """The advice on a run of this step, its budget and label beside it."""
    fit = fit_of(*steps, **{**LIMITS, **world})
    known = seen(fit) | (facts or {})
    model = what_if(fit, known)
    target = asked(metric)
    label = label_run(question(metric, "mean"), model)
    told = [Signal(name=k, value=v) for k, v in known.items()]
    budget = time_budget(target, {s.name: s for s in told}, model, None)
    advice = rank_levers(
        levers, label=label, named=named, target=target, budget=budget,
        signals=Signals(told if signals is None else [*told, *signals]), model=model,
    )  # fmt: skip
    return advice, budget, label, model


# ---------------------------------------------------------------- bounds


WORLDS = {"weights": HEALTHY, "launches": LAUNCHES, "host": HOST, "kv": replace(HEALTHY, kv_s=1e-5)}


@pytest.mark.parametrize("name", WORLDS)
def test_where_nothing_waits_no_gain_is_above_amdahls_bound(name):
    """One request at a time: a gain is of service alone, and its part cannot give more than it takes."""
    advice, budget, _, _ = ranked(WORLDS[name], WORLDS[name], load=ALONE)
    upper = {
        b.component: max(b.share, (b.high or 0) / b.seconds * b.share) for b in budget if b.seconds
    }
    bounded = 0
    for a in advice:
        if LEVERS[a.id].solver is not None or a.gain is None or a.amdahl is None:
            continue
        parts = {c for e in LEVERS[a.id].effect for c in PARAMS[e.param].components}
        p = min(1.0, sum(upper.get(c, 0.0) for c in parts))
        assert a.gain.high <= amdahl(p, a.amdahl.s or math.inf) * (1 + 1e-6), a.id
        bounded += 1
    assert bounded >= 3


def test_a_bound_that_caps_is_named():
    """A lever that claims more than its part of the time takes is cut, and says so."""
    cut = LEVERS["weights_fp8"]
    wide = structs.replace(
        cut, effect=[Effect(param="path_latency", times=0.01, efficiency=(1.0, 1.0))]
    )
    advice, budget, _, _ = ranked(
        HEALTHY, load=ALONE, path_s=0.5, levers={"weights_fp8": wide}, facts={"network_e2e_s": 0.2},
    )  # fmt: skip
    (found,) = advice
    share = next(b.share for b in budget if b.component == "network")
    assert found.gain.high <= 1 / (1 - share) * (1 + 1e-6)
    assert "Amdahl" in found.gain.capped_by


def test_where_requests_wait_a_gain_may_be_above_it_and_says_why():
    capped = {**LIMITS, "max_num_seqs": 4.0}
    rate = 0.97 * float(capacity(fit_of(HEALTHY, **capped).engine, LOAD)[0])
    advice, _, _, _ = ranked(HEALTHY, **{**capped, "load": replace(LOAD, rate=rate)})
    found = {a.id: a for a in advice}["weights_fp8"]
    assert found.gain.mid > found.amdahl.gain
    assert "wait" in found.gain.capped_by


def test_every_gain_is_an_interval_of_positive_ratios():
    for load in (ALONE, replace(LOAD, rate=8.0), replace(LOAD, open_loop=False, concurrency=32.0)):
        for metric in ("e2e", "ttft", "itl", "throughput"):
            for a in ranked(HEALTHY, LAUNCHES, metric=metric, load=load)[0]:
                if a.gain is not None:
                    assert 0 < a.gain.low <= a.gain.mid <= a.gain.high < NO_BOUND, (a.id, metric)
                    assert a.gain.method in ("amdahl", "fixed_point")
                if a.amdahl is not None:
                    assert 0 <= a.amdahl.p <= 1
                    assert 1 <= a.amdahl.gain <= NO_BOUND


# ---------------------------------------------------------------- order


EFFORTS = ("minutes", "hours", "days", "weeks")


def test_the_order_is_help_then_gain():
    """A lever that gives more, surely and in the middle, for no more effort, never comes behind."""
    advice, _, _, _ = ranked(HEALTHY, load=replace(LOAD, rate=10.0))
    state = [{True: 0, "check_first": 1, False: 2}[a.helps] for a in advice]
    assert state == sorted(state)
    for i, first in enumerate(advice):
        for second in advice[i + 1 :]:
            if state[i] == state[advice.index(second)] and first.gain and second.gain:
                better = second.gain.low > first.gain.low and second.gain.mid > first.gain.mid
                assert not better or EFFORTS.index(second.effort) > EFFORTS.index(first.effort)


def test_equal_gains_are_ordered_by_effort_and_ladder():
    one = structs.replace(LEVERS["weights_fp8"], enabling=[], harms=[])
    twins = {
        "days": structs.replace(one, id="days", effort="days"),
        "minutes": structs.replace(one, id="minutes", effort="minutes"),
        "late": structs.replace(one, id="late", effort="minutes", ladder_rung=one.ladder_rung + 1),
    }
    advice, _, _, _ = ranked(HEALTHY, levers=twins, load=ALONE)
    assert [a.id for a in advice] == ["minutes", "late", "days"]


def test_the_lever_for_what_binds_comes_first():
    """Weights that are read twice as fast against hosts, and the other way round."""
    plain = {
        name: structs.replace(LEVERS[name], enabling=[], harms=[])
        for name in ("weights_fp8", "cuda_graphs", "async_scheduling")
    }
    best = {}
    for name, step in (("weights", HEALTHY), ("launches", LAUNCHES), ("host", HOST)):
        best[name] = ranked(step, levers=plain, load=ALONE)[0][0].id
    assert best == {"weights": "weights_fp8", "launches": "cuda_graphs", "host": "async_scheduling"}


# ---------------------------------------------------------------- who helps


def test_a_part_that_takes_no_time_is_no_lever():
    plain = structs.replace(LEVERS["weights_fp8"], enabling=[], harms=[])
    slow = StepCost(weights_s=1e-5, token_s=1e-7, host_s=0.02)
    advice, _, _, _ = ranked(slow, levers={"weights_fp8": plain}, named=["weights_fp8"], load=ALONE)
    (found,) = advice
    assert found.helps is False
    assert found.gain.mid < SMALL


def test_a_condition_that_was_not_measured_is_to_be_checked_first():
    lever = LEVERS["weights_fp8"]
    assert lever.enabling
    advice, _, _, _ = ranked(HEALTHY, levers={"weights_fp8": lever}, load=ALONE)
    assert [a.helps for a in advice] == ["check_first"]
    assert advice[0].why.startswith("not known: ")
    assert "gpu_fp8_supported" in advice[0].why


def test_where_the_verdict_abstains_nothing_is_said_to_help():
    floor = StepCost(weights_s=0.001, floor_s=0.02)
    advice, _, label, _ = ranked(HEALTHY, LAUNCHES, floor, load=replace(LOAD, rate=0.3))
    assert label.class_ is None
    assert label.candidates
    assert advice
    assert not [a.id for a in advice if a.helps is True]


def test_without_a_model_levers_stand_on_measured_shares():
    label = Label("memory", "bandwidth", "memory bandwidth", {}, share=1.0, reason="resource")
    item = BudgetItem(
        component="decode_weights", label="", class_="memory", seconds=0.6, share=0.6, source="x"
    )
    rest = structs.replace(item, component="unknown", class_=None, seconds=0.4, share=0.4)
    plain = structs.replace(
        LEVERS["weights_fp8"], enabling=[], harms=[],
        effect=[Effect(param="weight_bytes", times=0.5, efficiency=(0.5, 1.0))],
    )  # fmt: skip
    (found,) = rank_levers(
        {"weights_fp8": plain}, label=label, named=[], target=asked(), budget=[item, rest],
        signals=Signals([]), model=None,
    )  # fmt: skip
    assert found.gain.method == "amdahl"
    assert found.gain.high == pytest.approx(1 / (0.4 + 0.3))
    assert found.gain.low == pytest.approx(1 / (0.4 + 0.6 * 0.75))
    assert found.helps is True


def test_a_component_that_nobody_measured_bounds_nothing():
    label = Label("memory", None, None, {}, share=1.0, reason="resource")
    (found,) = rank_levers(
        {"weights_fp8": structs.replace(LEVERS["weights_fp8"], enabling=[], harms=[])}, label=label, named=[],
        target=asked(), budget=[], signals=Signals([]), model=None,
    )  # fmt: skip
    assert (found.gain, found.amdahl, found.helps) == (None, None, "check_first")


# ---------------------------------------------------------------- a setting's value


def test_the_flag_carries_the_value_that_was_chosen():
    capped = {**LIMITS, "max_num_seqs": 4.0}
    rate = 1.3 * float(capacity(fit_of(HEALTHY, **capped).engine, LOAD)[0])
    advice, _, label, _ = ranked(HEALTHY, **{**capped, "load": replace(LOAD, rate=rate)})
    assert label.class_ == "scheduling"
    found = {a.id: a for a in advice}["raise_max_num_seqs"]
    flag, value = found.flags["vllm"].split(" ")[:2]
    assert flag == "--max-num-seqs"
    assert int(value) > 4
    assert found.gain.mid > 1.3


def test_a_cap_that_is_not_known_has_no_value():
    free = {**LIMITS, "max_num_seqs": UNLIMITED, "token_budget": UNLIMITED, "kv_tokens": UNLIMITED}
    fit = fit_of(HEALTHY, **free)
    model = what_if(fit, seen(fit))
    label = label_run(question("e2e", "mean"), model)
    found = model_estimates(LEVERS, label, asked(), [], model)
    assert not {"raise_max_num_seqs", "raise_token_budget", "raise_kv_memory"} & set(found)
    assert {"weights_fp8", "cuda_graphs"} <= set(found)


def test_one_run_gets_one_advice():
    one, two = (ranked(HEALTHY, LAUNCHES, load=replace(LOAD, rate=8.0))[0] for _ in range(2))
    assert one == two
