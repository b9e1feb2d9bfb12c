"""The label rule, branch by branch, on gain vectors made by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whybound.analyzers.counterfactual import Gain, Policy
from whybound.analyzers.verdict import (
    AXIS_CLASS,
    ENGINE_CANDIDATES,
    Label,
    confidence,
    decide,
    question,
)
from whybound.analyzers.whatif import Engine
from whybound.rules.model import CLASSES, SUB_CAUSES

CAP = Policy("batch cap", 16, Engine(0.02, 0.001, 0.0, max_num_seqs=16), "batch cap")
BUDGET = Policy("token budget", 512, Engine(0.02, 0.001, 0.0, token_budget=512), "token budget")
NOTHING = {
    "engine_x2": 1.05,
    "host_half": 1.0,
    "path_half": 1.0,
    "load_half": 1.02,
    "policy_best": 1.0,
}


def label(policy=CAP, *, open_loop=True, latency=True, wait_share=0.0, rho=0.5, low=None, **gains):
    """The label of these middle gains on top of a run in which nothing helps; `low` is the policy's."""
    mids = {**NOTHING, **gains}
    vector = {a: Gain(low if a == "policy_best" and low else m, m, m) for a, m in mids.items()}
    return decide(
        vector, policy, open_loop=open_loop, latency=latency, wait_share=wait_share, rho=rho
    )


# ---------------------------------------------------------------- no action


def test_no_gain_above_1_15_is_no_action():
    got = label(engine_x2=1.149, policy_best=1.149)
    assert (got.class_, got.candidates, got.reason) == (None, (), "nothing would help")


def test_no_axis_is_no_verdict_and_not_a_good_run():
    got = decide({}, None, open_loop=True, latency=True, wait_share=None, rho=0.5)
    assert (got.class_, got.binding_resource) == (None, None)
    assert got.reason == "no axis could be computed"


# ---------------------------------------------------------------- scheduling


@pytest.mark.parametrize("policy", [CAP, BUDGET])
def test_a_setting_that_gives_as_much_as_the_root_of_the_best_resource_is_scheduling(policy):
    got = label(policy, engine_x2=3.9, policy_best=2.0)  # ln 2 ≥ ½ ln 3.9
    assert (got.class_, got.sub_cause) == ("scheduling", policy.name)
    assert got.binding_resource == "engine step"
    assert got.policy is policy


def test_below_the_root_of_the_best_resource_it_is_not():
    assert label(engine_x2=4.1, policy_best=2.0).class_ is None


@pytest.mark.parametrize(("gain", "class_"), [(1.3, "scheduling"), (1.29, None)])
def test_a_setting_must_give_1_3(gain, class_):
    assert label(engine_x2=1.6, policy_best=gain).class_ == class_


def test_a_policy_gain_without_a_policy_names_no_setting():
    assert label(None, engine_x2=1.6, policy_best=2.0).class_ is None


def test_a_policy_gain_that_may_be_below_the_threshold_is_ambiguous():
    assert label(engine_x2=2.0, policy_best=2.0, low=1.1).ambiguous
    assert not label(engine_x2=2.0, policy_best=2.0, low=1.4).ambiguous


def test_scheduling_beats_queueing_and_names_it_second():
    got = label(engine_x2=3.0, policy_best=2.5, load_half=3.5, wait_share=0.8, rho=1.2)
    assert (got.class_, got.runner_up) == ("scheduling", "queueing")


def test_scheduling_before_an_engine_that_no_one_can_split_has_no_second():
    assert label(engine_x2=3.0, policy_best=2.5, load_half=1.5).runner_up is None


# ---------------------------------------------------------------- queueing


LOADED = {"engine_x2": 8.0, "load_half": 4.0, "wait_share": 0.7, "rho": 0.98}


def test_an_open_loop_that_waits_and_gains_from_half_the_load_is_queueing():
    got = label(**LOADED)
    assert (got.class_, got.sub_cause) == ("queueing", "offered load above capacity")
    assert got.binding_resource == "engine step"
    assert got.runner_up is None


def test_queueing_with_a_setting_close_by_names_scheduling_second():
    got = label(**{**LOADED, "load_half": 2.0, "policy_best": 2.0})
    assert (got.class_, got.runner_up) == ("queueing", "scheduling")


@pytest.mark.parametrize(
    "change",
    [
        {"open_loop": False},
        {"latency": False},
        {"wait_share": 0.49},
        {"wait_share": None},
        {"load_half": 1.99},
        {"path_half": 9.0},
    ],
    ids=str,
)
def test_every_condition_of_queueing_is_needed(change):
    assert label(**{**LOADED, **change}).class_ != "queueing"


def test_arrivals_above_the_capacity_need_no_measured_wait_share():
    assert label(**{**LOADED, "wait_share": None, "rho": 1.01}).class_ == "queueing"


# ---------------------------------------------------------------- resources


@pytest.mark.parametrize(
    ("axis", "class_", "sub_cause"),
    [
        ("path_half", "network", "client or proxy"),
        ("host_half", "launch", "front end"),
        ("kv_capacity_x2", "memory", "capacity"),
    ],
)
def test_the_best_resource_gives_the_class(axis, class_, sub_cause):
    got = label(**{axis: 1.6})
    assert (got.class_, got.sub_cause, got.binding_resource) == (
        class_,
        sub_cause,
        AXIS_CLASS[axis][1],
    )
    assert not got.ambiguous


def test_a_second_resource_within_seven_tenths_is_ambiguous_and_named():
    got = label(path_half=2.0, host_half=1.63)  # ln 1.63 > 0.7 ln 2
    assert (got.class_, got.runner_up, got.ambiguous) == ("network", "launch", True)
    got = label(path_half=2.0, host_half=1.61)
    assert (got.class_, got.runner_up, got.ambiguous) == ("network", None, False)


def test_the_engine_step_alone_is_an_abstention_between_its_classes():
    got = label(engine_x2=2.0)
    assert (got.class_, got.candidates) == (None, ENGINE_CANDIDATES)
    assert got.binding_resource == "engine step"


def test_an_abstention_names_what_is_close_to_the_engine_too():
    got = label(engine_x2=2.0, path_half=1.7)
    assert got.candidates == (*ENGINE_CANDIDATES, "network")


def test_a_kv_cache_that_gives_half_of_what_the_whole_engine_would_is_memory():
    got = label(engine_x2=2.0, kv_capacity_x2=1.45)  # ln 1.45 ≥ ½ ln 2
    assert (got.class_, got.sub_cause) == ("memory", "capacity")
    assert label(engine_x2=2.0, kv_capacity_x2=1.4).class_ is None


# ---------------------------------------------------------------- for any vector


GAINS = st.dictionaries(
    st.sampled_from([*AXIS_CLASS, "load_half", "policy_best"]), st.floats(0.2, 50), min_size=1
)


@given(
    GAINS, st.sampled_from([None, CAP, BUDGET]), st.booleans(), st.booleans(),
    st.none() | st.floats(0, 1), st.floats(0, 3),
)  # fmt: skip
def test_a_label_is_always_a_known_class_or_says_why_not(
    gains, policy, open_loop, latency, share, rho
):
    vector = {a: Gain(v, v, v) for a, v in gains.items()}
    got = decide(vector, policy, open_loop=open_loop, latency=latency, wait_share=share, rho=rho)
    assert got.gains == vector
    if got.class_ is None:
        assert got.reason in ("nothing would help", "engine", "no axis could be computed")
        assert bool(got.candidates) == (got.reason == "engine")
    else:
        assert got.class_ in CLASSES
        assert got.sub_cause in SUB_CAUSES[got.class_]
        assert got.runner_up is None or got.runner_up in CLASSES


# ---------------------------------------------------------------- confidence


def sure(margin=1.0, ambiguous=False, error=0.0, agree=1, against=0, identified=True):
    found = Label("network", "client or proxy", "path", {}, margin=margin, ambiguous=ambiguous)
    return confidence(found, error, agree, against, identified)


def test_confidence_moves_the_right_way():
    base = sure()
    assert 0.7 < base < 0.95
    assert sure(margin=3) > base > sure(margin=0)
    assert sure(agree=2) > base > sure(agree=0)
    assert sure(against=1) < base
    assert sure(ambiguous=True) < base
    assert sure(identified=False) < base
    assert sure(error=1.0) < sure(error=0.2) == base


def test_an_abstention_has_no_confidence():
    assert confidence(Label(None, None, None, {}), 0.0, 3, 0, True) == 0.0


@given(
    st.floats(-5, 50),
    st.booleans(),
    st.floats(0, 10),
    st.integers(0, 9),
    st.integers(0, 9),
    st.booleans(),
)
def test_confidence_stays_within_its_bounds(margin, ambiguous, error, agree, against, identified):
    assert 0.05 <= sure(margin, ambiguous, error, agree, against, identified) <= 0.95


# ---------------------------------------------------------------- the question


@pytest.mark.parametrize(
    ("metric", "statistic", "asked"),
    [
        ("ttft", "p95", ("ttft", 0.95)),
        ("itl", "mean", ("itl", None)),
        ("throughput", "rate", ("throughput", None)),
        ("error_rate", "rate", ("e2e", None)),
    ],
)
def test_question(metric, statistic, asked):
    got = question(metric, statistic)
    assert (got.metric, got.quantile) == asked
