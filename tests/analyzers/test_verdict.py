"""The label rule, branch by branch, on gain vectors made by hand; and one label of many hypotheses."""

from dataclasses import replace

import pytest
from fits import LOAD, fit_of, model_of, seen
from hypothesis import given
from hypothesis import strategies as st
from passes import H100, HEALTHY, HOST, LAUNCHES

from whybound.analyzers.confidence import confidence
from whybound.analyzers.counterfactual import Question
from whybound.analyzers.step_cost import StepCost
from whybound.analyzers.verdict import (
    AXIS_CLASS,
    NOTHING,
    Label,
    decide,
    label_run,
    question,
    what_if,
)
from whybound.analyzers.whatif import UNLIMITED, capacity
from whybound.analyzers.work import work_of
from whybound.rules.model import CLASSES, SUB_CAUSES

E2E, TTFT, ITL, RATE = (Question(m) for m in ("e2e", "ttft", "itl", "throughput"))
IDLE = {
    **dict.fromkeys(AXIS_CLASS, 1.0),
    "bandwidth_x2": 1.05,
    "load_half": 1.02,
    "policy_best": 1.0,
}


def said(*, open_loop=True, latency=True, loaded=False, **gains):
    """The label of these gains on top of a run in which nothing helps."""
    return decide({**IDLE, **gains}, open_loop=open_loop, latency=latency, loaded=loaded)


# ---------------------------------------------------------------- no action


def test_no_gain_above_1_15_is_no_action():
    got = said(bandwidth_x2=1.149, policy_best=1.149, load_half=1.149)
    assert (got.class_, got.reason, got.axis) == (None, NOTHING, "bandwidth_x2")


def test_a_gain_of_1_15_is_a_class():
    assert said(bandwidth_x2=1.15).class_ == "memory"


def test_parts_of_an_axis_are_no_axis():
    """They name the sub-cause of the whole; alone they decide nothing."""
    assert said(**{"host_half:kernel launch": 2.0}).class_ is None


# ---------------------------------------------------------------- scheduling


def test_a_setting_that_gives_as_much_as_the_root_of_the_best_resource_is_scheduling():
    got = said(bandwidth_x2=3.9, policy_best=2.0)  # ln 2 ≥ ½ ln 3.9
    assert (got.class_, got.axis) == ("scheduling", "bandwidth_x2")
    assert said(bandwidth_x2=4.1, policy_best=2.0).class_ == "memory"


@pytest.mark.parametrize(("gain", "class_"), [(1.3, "scheduling"), (1.29, "memory")])
def test_a_setting_must_give_1_3(gain, class_):
    assert said(bandwidth_x2=1.6, policy_best=gain).class_ == class_


def test_scheduling_comes_before_queueing():
    got = said(policy_best=2.5, load_half=3.5, bandwidth_x2=3.0, loaded=True)
    assert got.class_ == "scheduling"


def test_a_setting_is_scheduling_in_a_closed_loop_and_for_throughput_too():
    assert said(policy_best=1.5, open_loop=False).class_ == "scheduling"
    assert said(policy_best=1.5, latency=False).class_ == "scheduling"


# ---------------------------------------------------------------- queueing


LOADED = {"bandwidth_x2": 8.0, "load_half": 4.0, "loaded": True}


def test_an_open_loop_that_waits_and_gains_from_half_the_load_is_queueing():
    got = said(**LOADED)
    assert (got.class_, got.axis) == ("queueing", "bandwidth_x2")


@pytest.mark.parametrize(
    "change",
    [
        {"open_loop": False},
        {"latency": False},
        {"loaded": False},
        {"load_half": 1.99},
        {"path_half": 9.0},
        {"link_x2": 9.0},
    ],
    ids=str,
)
def test_every_condition_of_queueing_is_needed(change):
    got = said(**{**LOADED, **change})
    assert got.class_ == ("network" if {"path_half", "link_x2"} & set(change) else "memory")


# ---------------------------------------------------------------- resources


@pytest.mark.parametrize("axis", AXIS_CLASS)
def test_the_best_resource_gives_the_class(axis):
    got = said(**{axis: 1.6})
    assert (got.class_, got.axis, got.ambiguous) == (AXIS_CLASS[axis][0], axis, False)


def test_a_second_resource_within_seven_tenths_is_ambiguous():
    assert said(path_half=2.0, host_half=1.63).ambiguous  # ln 1.63 > 0.7 ln 2
    assert not said(path_half=2.0, host_half=1.61).ambiguous


def test_two_axes_of_one_class_are_not_ambiguous():
    assert not said(bandwidth_x2=2.0, kv_capacity_x2=1.9).ambiguous


def test_an_axis_that_cannot_be_computed_is_not_asked_for():
    got = decide({"host_half": 2.0}, open_loop=False, latency=True, loaded=False)
    assert (got.class_, got.axis) == ("launch", "host_half")


def test_no_axis_is_an_error_and_not_a_good_run():
    with pytest.raises(ValueError, match=r"empty|axis"):
        decide({"load_half": 2.0}, open_loop=True, latency=True, loaded=False)


GAINS = st.dictionaries(
    st.sampled_from([*AXIS_CLASS, "load_half", "policy_best"]), st.floats(0.2, 50)
)


@given(GAINS, st.floats(0.2, 50), st.booleans(), st.booleans(), st.booleans())
def test_a_label_is_always_a_known_class_or_says_why_not(gains, host, open_loop, latency, loaded):
    vector = {**gains, "host_half": host}
    got = decide(vector, open_loop=open_loop, latency=latency, loaded=loaded)
    assert got.axis in vector
    assert vector[got.axis] == max(v for a, v in vector.items() if a in AXIS_CLASS)
    if got.class_ is None:
        assert got.reason == NOTHING
        assert not got.ambiguous
    else:
        assert got.class_ in CLASSES
        assert max(vector.values()) >= 1.15


@given(GAINS, st.floats(0.2, 50), st.booleans(), st.booleans(), st.booleans(), st.floats(1, 3))
def test_more_of_the_winners_gain_does_not_dethrone_it(
    gains, host, open_loop, latency, loaded, times
):
    vector = {**gains, "host_half": host}
    mode = {"open_loop": open_loop, "latency": latency, "loaded": loaded}
    first = decide(vector, **mode)
    if first.reason == "resource":
        vector[first.axis] *= times
        assert decide(vector, **mode).class_ == first.class_


# ---------------------------------------------------------------- one label of many hypotheses


CAPPED = {"max_num_seqs": 64.0, "kv_tokens": 4e5, "token_budget": 8192.0}


def label(*steps, ask=E2E, facts=None, extra=None, **world):
    fit = fit_of(*steps, **{**CAPPED, **world})
    return label_run(ask, what_if(fit, (seen(fit) if facts is None else facts) | (extra or {})))


@pytest.mark.parametrize(
    ("step", "class_", "sub_cause"),
    [
        (HEALTHY, "memory", "bandwidth"),
        (LAUNCHES, "launch", "kernel launch"),
        (HOST, "launch", "host scheduler"),
        (StepCost(weights_s=0.001, floor_s=0.02), "latency", "small kernels"),
        (StepCost(weights_s=0.001, token_s=0.002), "compute", "decode above the ridge"),
        (StepCost(weights_s=0.001, kv_s=1e-4), "memory", "bandwidth"),
    ],
    ids=["weights", "launches", "host", "floor", "arithmetic", "kv"],
)
@pytest.mark.parametrize("ask", [E2E, ITL], ids=["e2e", "itl"])
def test_a_step_held_up_in_one_way_is_labelled_so(step, class_, sub_cause, ask):
    load = replace(LOAD, rate=1.0, input_tokens=16.0)
    got = label(step, step, ask=ask, load=load)
    assert (got.class_, got.sub_cause, got.share) == (class_, sub_cause, 1.0)
    assert got.binding_resource == AXIS_CLASS[got.axis][1]
    assert got.candidates == ()
    assert got.shares == {class_: 1.0}


def test_collectives_are_network_where_gpus_share_a_layer_and_nothing_where_one_serves():
    step = replace(HEALTHY, link_s=0.03)
    two = work_of({**H100, "tensor_parallel_size": "2"}, 256, 288)
    got = label(step, work=two)
    assert (got.class_, got.sub_cause) == ("network", "collectives")
    assert "link_x2" not in label(step).gains


def test_prefill_arithmetic_is_told_from_decode_arithmetic():
    step = replace(HEALTHY, token_s=2e-4)
    load = replace(LOAD, rate=0.1, input_tokens=4000.0, output_tokens=8.0)
    got = label(step, ask=TTFT, load=load)
    assert (got.class_, got.sub_cause) == ("compute", "prefill FLOPs")
    again = label(step, ask=E2E, load=load, recompute_tokens=3000.0)
    assert (again.class_, again.sub_cause) == ("compute", "recomputation")


def test_a_slow_front_end_is_launch_and_its_own_sub_cause():
    got = label(HEALTHY, front_end_s=0.4, load=replace(LOAD, rate=0.5))
    assert (got.class_, got.sub_cause) == ("launch", "front end")


def test_a_slow_path_is_network_only_where_it_was_measured():
    load = replace(LOAD, rate=1.0)
    got = label(HEALTHY, path_s=0.9, load=load, extra={"network_e2e_s": 0.9})
    assert (got.class_, got.sub_cause) == ("network", "client or proxy")


def test_the_first_token_has_a_path_of_its_own():
    """A proxy that buffers: the end comes in time, the first token does not."""
    load = replace(LOAD, rate=1.0)
    extra = {"network_e2e_s": 0.0, "network_ttft_s": 0.5}
    assert label(HEALTHY, load=load, ask=TTFT, extra=extra).class_ == "network"
    assert label(HEALTHY, load=load, ask=E2E, extra=extra).class_ == "memory"


def test_a_batch_cap_below_the_load_is_scheduling():
    capped = {**CAPPED, "max_num_seqs": 4.0}
    rate = 1.3 * float(capacity(fit_of(HEALTHY, **capped).engine, LOAD)[0])
    got = label(HEALTHY, HEALTHY, load=replace(LOAD, rate=rate), max_num_seqs=4.0)
    assert (got.class_, got.sub_cause) == ("scheduling", "batch cap")
    assert got.policy is not None
    assert got.policy.value > 4


def test_more_than_the_device_can_serve_is_queueing():
    """Arithmetic is the ceiling at any batch: no cap helps."""
    step = StepCost(weights_s=0.001, token_s=0.002)
    rate = 1.5 * float(capacity(fit_of(step, **CAPPED).engine, LOAD)[0])
    got = label(step, load=replace(LOAD, rate=rate, horizon_s=600.0))
    assert (got.class_, got.sub_cause) == ("queueing", "offered load above capacity")
    assert got.binding_resource == "arithmetic"


@pytest.mark.parametrize(("rho", "queueing"), [(1.05, False), (1.5, True)])
def test_a_short_wait_is_no_queue_unless_far_more_comes_than_can_be_served(rho, queueing):
    """An engine that lets everyone in holds no queue and is overloaded all the same."""
    step = StepCost(weights_s=0.001, token_s=0.002)
    rate = rho * float(capacity(fit_of(step, **CAPPED).engine, LOAD)[0])
    fit = fit_of(step, load=replace(LOAD, rate=rate), **CAPPED)
    short = seen(fit, server_queue_mean_s=1e-3, wait_mean_s=1e-3)
    assert (label_run(E2E, what_if(fit, short)).class_ == "queueing") == queueing


def test_nothing_helps_throughput_that_is_all_that_was_asked_for():
    got = label(HEALTHY, HEALTHY, ask=RATE, load=replace(LOAD, rate=0.5))
    assert (got.class_, got.binding_resource, got.reason) == (None, None, NOTHING)
    assert got.shares == {"none": 1.0}


# ---------------------------------------------------------------- hypotheses that do not agree


FLOOR = StepCost(weights_s=0.001, floor_s=0.02)


def test_without_a_majority_the_verdict_abstains_between_what_is_possible():
    got = label(HEALTHY, LAUNCHES, FLOOR, load=replace(LOAD, rate=0.5))
    assert (got.class_, got.sub_cause, got.reason) == (None, None, "split")
    assert set(got.candidates) == {"memory", "launch", "latency"}
    assert got.ambiguous
    assert got.share == pytest.approx(1 / 3)
    assert sum(got.shares.values()) == pytest.approx(1.0)


def test_a_clear_majority_is_the_verdict_and_the_rest_its_second():
    got = label(*[HEALTHY] * 8, LAUNCHES, LAUNCHES, load=replace(LOAD, rate=0.5))
    assert (got.class_, got.runner_up) == ("memory", "launch")
    assert got.share == pytest.approx(0.8)


def test_what_hardly_any_hypothesis_says_is_no_candidate():
    steps = [HEALTHY] * 8 + [LAUNCHES] * 8 + [FLOOR] * 8 + [HOST]
    got = label(*steps, StepCost(weights_s=0.001, token_s=0.002), load=replace(LOAD, rate=0.5))
    assert "compute" not in got.candidates


@pytest.mark.parametrize("ask", [E2E, TTFT, ITL, RATE, Question("itl", 0.99), Question("decode")])
def test_every_label_is_in_the_vocabulary(ask):
    for world in (
        {},
        {"max_num_seqs": UNLIMITED, "kv_tokens": UNLIMITED, "token_budget": UNLIMITED},
    ):
        got = label(HEALTHY, LAUNCHES, HOST, ask=ask, **world)
        assert got.class_ is None or got.class_ in CLASSES
        assert got.class_ is None or got.sub_cause in SUB_CAUSES[got.class_]
        assert set(got.candidates) <= {*CLASSES, "none"}
        assert set(got.shares) <= {*CLASSES, "none"}
        for gain in got.gains.values():
            assert 0 < gain.low <= gain.mid <= gain.high


def test_a_run_without_a_client_has_no_path():
    fit = fit_of(HEALTHY, **CAPPED)
    facts = {k: v for k, v in seen(fit).items() if not k.startswith("client_")}
    assert "path_half" not in label_run(E2E, what_if(fit, facts)).gains


# ---------------------------------------------------------------- confidence


def sure(share=0.9, ambiguous=False, agree=1, against=0, reason="resource", nameless=False):
    found = Label(
        "network", "client or proxy", "path", {}, share=share, ambiguous=ambiguous, reason=reason
    )
    return confidence(found, agree, against, nameless=nameless).value


def test_confidence_moves_the_right_way():
    assert sure(share=0.6) < sure(share=0.9)
    assert sure(ambiguous=True) <= sure()
    assert sure(against=2) <= sure()
    assert sure(nameless=True) <= sure()


@pytest.mark.parametrize("reason", ["split", "no load was measured"])
def test_an_abstention_has_no_confidence(reason):
    assert sure(reason=reason) == 0.0


@given(st.floats(0, 1), st.booleans(), st.integers(0, 9), st.integers(0, 9))
def test_confidence_is_a_probability(share, ambiguous, agree, against):
    assert 0 <= sure(share, ambiguous, agree, against) < 1


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


def test_the_paths_of_the_metrics_are_solved_once():
    model = model_of(HEALTHY, **CAPPED)
    assert set(model.by_path) == {"e2e"}
    fit = fit_of(HEALTHY, **CAPPED)
    with_first = what_if(fit, {**seen(fit), "network_ttft_s": 0.3})
    assert set(with_first.by_path) == {"e2e", "ttft"}
    assert float(with_first.by_path["ttft"].worlds[""][0].path_s) == 0.3
