"""The time budget: parts that sum to the whole, and an unknown that is said."""

from dataclasses import replace

import pytest
from fits import LOAD, model_of
from hypothesis import given
from hypothesis import strategies as st
from passes import HEALTHY, HOST, LAUNCHES

from whybound.analyzers.budget import COMPONENTS, ceilings, time_budget, waiting_parts
from whybound.analyzers.step_cost import affine
from whybound.analyzers.whatif import Load
from whybound.rules.model import CLASSES, PARAMS, Signal, Target

SPLIT = {
    "waiting_no_slot_ratio": 0.5,
    "waiting_no_kv_block_ratio": 0.2,
    "waiting_no_token_budget_ratio": 0.1,
    "waiting_step_in_flight_ratio": 0.1,
}
RUN = {
    "client_e2e_mean_s": 10.0, "client_ttft_mean_s": 4.5, "send_lag_mean_s": 0.5, "network_e2e_s": 1.5,
    "network_ttft_s": 1.0, "front_end_work_mean_s": 1.0, "front_end_ttft_work_mean_s": 0.5,
    "server_queue_mean_s": 2.0, "step_wait_mean_s": 0.25, "server_prefill_mean_s": 0.5,
    "server_decode_mean_s": 4.0, **SPLIT,
}  # fmt: skip


def target(metric, statistic="mean"):
    return Target(metric=metric, statistic=statistic, text=metric, unit="s")


def budget(metric, facts, after_cap=None, model=None):
    signals = {k: Signal(name=k, value=v) for k, v in facts.items()}
    return time_budget(target(metric), signals, model, after_cap)


def seconds(items):
    return {b.component: pytest.approx(b.seconds) for b in items}


# ---------------------------------------------------------------- by hand


def test_end_to_end():
    items = budget("e2e", RUN, after_cap=0.4)
    assert seconds(items) == {
        "client_lag": 0.5, "network": 1.0, "front_end": 1.0, "wait_slot": 0.6, "wait_busy": 0.4,
        "wait_kv": 0.4, "wait_budget": 0.2, "wait_step": 0.45, "wait_unknown": 0.2, "prefill": 0.5,
        "decode": 4.0, "unknown": 0.75,
    }  # fmt: skip
    assert {b.component: b.class_ for b in items if b.class_} == {
        "network": "network", "front_end": "launch", "wait_slot": "scheduling", "wait_busy": "queueing",
        "wait_kv": "memory", "wait_budget": "scheduling",
    }  # fmt: skip


def test_ttft_has_no_decode():
    found = seconds(budget("ttft", RUN))
    assert "decode" not in found
    assert found["network"] == 0.5
    assert found["front_end"] == 0.5


def test_gaps_split_into_the_step_and_the_stall():
    facts = {"client_itl_mean_s": 0.05, "client_itl_p50_s": 0.02, "chunks_per_token_ratio": 1.0}
    assert seconds(budget("itl", facts)) == {"decode": 0.02, "stall": 0.03, "unknown": 0.0}


def test_gaps_of_merged_chunks_are_not_split():
    facts = {"client_itl_mean_s": 0.05, "client_itl_p50_s": 0.02, "server_itl_mean_s": 0.01}
    assert seconds(budget("itl", {**facts, "chunks_per_token_ratio": 0.25})) == {
        "decode": 0.01,
        "unknown": 0.04,
    }


# ---------------------------------------------------------------- what the passes are held up by


def phase(items, name):
    return sum(b.seconds for b in items if b.component.startswith(f"{name}_"))


def of(items, *components):
    return sum(b.share for b in items if b.component in components)


@pytest.mark.parametrize("steps", [[HEALTHY], [LAUNCHES], [HEALTHY, LAUNCHES, HOST]])
def test_the_parts_of_a_phase_sum_to_it(steps):
    model = model_of(*steps, max_num_seqs=64.0)
    items = budget("e2e", RUN, after_cap=0.4, model=model)
    assert phase(items, "prefill") == pytest.approx(RUN["server_prefill_mean_s"])
    stalled = sum(b.seconds for b in items if b.component == "stall")
    assert phase(items, "decode") + stalled == pytest.approx(RUN["server_decode_mean_s"])
    assert sum(b.share for b in items) == pytest.approx(1.0)
    assert not {"prefill", "decode"} & {b.component for b in items}
    for b in items:
        if b.low is not None:
            assert 0 <= b.low <= b.seconds <= b.high


def test_a_part_is_named_for_its_ceiling():
    load = replace(LOAD, rate=0.5)
    for step, part in ((HEALTHY, "weights"), (LAUNCHES, "launch")):
        items = budget("e2e", RUN, model=model_of(step, load=load))
        largest = max(
            (b for b in items if b.component.startswith("decode_")), key=lambda b: b.share
        )
        assert largest.component == f"decode_{part}"
        assert largest.class_ == {"weights": "memory", "launch": "launch"}[part]


def test_hypotheses_that_differ_give_the_parts_their_bounds():
    load = replace(LOAD, rate=0.5)
    sure = budget("e2e", RUN, model=model_of(HEALTHY, HEALTHY, load=load))
    open_ = budget("e2e", RUN, model=model_of(HEALTHY, LAUNCHES, load=load))
    weights = [next(b for b in items if b.component == "decode_weights") for items in (sure, open_)]
    assert weights[0].high - weights[0].low == pytest.approx(0.0, abs=1e-9)
    assert weights[1].high - weights[1].low > 0.5 * RUN["server_decode_mean_s"]


def test_prompts_of_others_are_a_stall_and_no_part_of_decode():
    busy = replace(LOAD, rate=10.0, input_tokens=1500.0)
    quiet = replace(busy, rate=0.1)
    shares = [
        of(budget("e2e", RUN, model=model_of(HEALTHY, load=x, max_num_seqs=64.0)), "stall")
        for x in (quiet, busy)
    ]
    assert shares[0] < 0.02
    assert shares[1] > 0.1


def test_the_parts_of_a_gap_sum_to_the_step():
    facts = {"client_itl_mean_s": 0.05, "client_itl_p50_s": 0.02, "chunks_per_token_ratio": 1.0}
    items = budget("itl", facts, model=model_of(HEALTHY))
    assert phase(items, "decode") == pytest.approx(0.02)
    assert of(items, "stall") == pytest.approx(0.6)
    assert sum(b.share for b in items) == pytest.approx(1.0)


def test_throughput_is_the_engines_wall_time_a_request():
    """By hand: 100 prompt tokens at 0.5 ms; 50 passes at 20 ms and 1 ms a sequence, each for 8 of them."""
    load = Load(open_loop=False, rate=1.0, concurrency=8.0, input_tokens=100.0, output_tokens=50.0)
    model = model_of(affine(0.02, 0.001, 0.0005), load=load)
    base = model.by_path["e2e"].outcomes[""]
    batch, rate = float(base.batch[0]), float(base.requests_per_s[0])
    items = budget(
        "throughput", {"completed_rate_per_s": rate, "running_mean_count": 8.0}, model=model
    )
    met = batch + 1 if batch < 7 else batch
    assert phase(items, "prefill") == pytest.approx(100 * 0.0005, rel=0.02)
    assert phase(items, "decode") == pytest.approx(50 * (0.02 + 0.001 * met) / batch, rel=0.05)
    assert sum(b.share for b in items) == pytest.approx(1.0)
    # a full closed loop: the engine's time is all of it, but for the model's own error
    assert of(items, "unknown") < 0.1


@pytest.mark.parametrize("metric", ["e2e", "ttft", "itl", "tpot", "throughput", "error_rate"])
def test_what_was_not_measured_has_no_budget(metric):
    assert budget(metric, {}) == []


def test_a_total_alone_is_all_unknown():
    assert seconds(budget("e2e", {"client_e2e_mean_s": 3.0})) == {"unknown": 3.0}


# ---------------------------------------------------------------- waiting


def test_waiting_without_a_cause_is_unknown():
    assert waiting_parts({}, 2.0, 1.0) == {"wait_unknown": 2.0}


def test_waiting_for_a_slot_is_the_caps_only_as_far_as_a_larger_cap_would_end_it():
    facts = {"waiting_no_slot_ratio": 1.0}
    assert waiting_parts(facts, 3.0, 0.5)["wait_slot"] == 2.5
    assert waiting_parts(facts, 3.0, 9.0)["wait_slot"] == 0.0
    unmodelled = waiting_parts(facts, 3.0, None)
    assert (unmodelled["wait_slot"], unmodelled["wait_busy"]) == (0.0, 3.0)


# ---------------------------------------------------------------- properties


POSITIVE = st.floats(0, 1e4, allow_subnormal=False)
FACTS = st.fixed_dictionaries(
    {}, optional={name: st.floats(0, 1) if name in SPLIT else POSITIVE for name in RUN}
)


@given(FACTS, st.sampled_from(["e2e", "ttft"]), st.none() | POSITIVE)
def test_shares_sum_to_one_and_the_unknown_is_among_them(facts, metric, after_cap):
    items = budget(metric, facts, after_cap)
    if not items:
        assert facts.get(f"client_{metric}_mean_s", 0) <= 0
        return
    total = facts[f"client_{metric}_mean_s"]
    assert items[-1].component == "unknown"
    assert sum(b.share for b in items) == pytest.approx(1.0)
    assert sum(b.seconds for b in items) == pytest.approx(total)
    for b in items:
        assert b.seconds >= 0
        assert b.share == pytest.approx(b.seconds / total)


@given(
    st.dictionaries(st.sampled_from(sorted(SPLIT)), st.floats(0, 0.25)),
    POSITIVE,
    st.none() | POSITIVE,
)
def test_the_parts_of_the_wait_are_the_wait(facts, wait, after_cap):
    parts = waiting_parts(facts, wait, after_cap)
    assert sum(parts.values()) == pytest.approx(wait)
    assert all(v >= 0 for v in parts.values())


@given(FACTS)
def test_ceilings_are_amdahls_with_a_part_taking_no_time(facts):
    for ceiling in ceilings(budget("e2e", facts)):
        assert ceiling.component != "unknown"
        if ceiling.share < 0.999:
            assert ceiling.gain_if_free == pytest.approx(1 / (1 - ceiling.share))
        else:
            assert ceiling.gain_if_free > 900


def test_every_component_is_known_to_the_model():
    assert {c for _, c in COMPONENTS.values() if c} <= set(CLASSES)
    assert {c for p in PARAMS.values() for c in p.components} <= set(COMPONENTS)
