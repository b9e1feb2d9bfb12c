"""The cost of a pass: laws that hold for any parameters, and its shares against what a nudge does."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from step_costs import STEPS

from whybound.analyzers.step_cost import PARTS, StepCost, affine, pass_cost, shares, step_s

BATCHES = st.floats(1, 512)
PROMPTS = st.just(0.0) | st.floats(1, 8192)
CONTEXTS = st.floats(0, 1e6)

OF_PART = {
    "weights": ("weights_s", "expert_s"),
    "kv": ("kv_s",),
    "compute": ("token_s",),
    "floor": ("floor_s",),
    "link": ("link_s", "link_token_s"),
    "launch": ("launch_s",),
    "host": ("host_s", "host_sequence_s"),
    "other": ("sequence_s",),
}
"""Part → the seconds that it is made of."""


def scaled(cost, names, times):
    return replace(cost, **{name: getattr(cost, name) * times for name in names})


# ---------------------------------------------------------------- laws


@given(STEPS, BATCHES, PROMPTS, CONTEXTS)
def test_shares_sum_to_one(cost, batch, prompt, context):
    found = shares(cost, batch, prompt, context)
    assert set(found) == set(PARTS)
    assert sum(found.values()) == pytest.approx(1.0)
    assert all(-1e-12 <= v <= 1 + 1e-12 for v in found.values())


@given(STEPS, BATCHES, PROMPTS, CONTEXTS)
def test_a_pass_takes_at_least_its_longest_part(cost, batch, prompt, context):
    p = pass_cost(cost, batch, prompt, context)
    for name in ("weights", "compute", "kv", "other", "floor", "link", "launch", "host", "gpu"):
        assert p.total >= getattr(p, name) * (1 - 1e-12), name
    assert p.total <= sum(
        getattr(p, n)
        for n in ("weights", "compute", "kv", "other", "floor", "link", "launch", "host")
    ) * (1 + 1e-12)


@given(
    STEPS, BATCHES, PROMPTS, CONTEXTS,
    st.sampled_from([f.name for f in fields(StepCost) if f.name != "tokens_per_pass"]),
    st.floats(1, 10),
)  # fmt: skip
def test_more_of_any_part_never_makes_a_pass_shorter(cost, batch, prompt, context, name, times):
    more = replace(cost, **{name: getattr(cost, name) * times})
    if name in ("expert_touch", "exposed", "serial"):
        more = replace(cost, **{name: min(1.0, getattr(more, name))})
    before = step_s(cost, batch, prompt, context)
    assert step_s(more, batch, prompt, context) >= before * (1 - 1e-9)


@given(STEPS, BATCHES, PROMPTS, CONTEXTS, st.floats(1, 4))
def test_more_work_never_makes_a_pass_shorter(cost, batch, prompt, context, times):
    before = step_s(cost, batch, prompt, context) * (1 - 1e-9)
    assert step_s(cost, batch * times, prompt, context) >= before
    assert step_s(cost, batch, prompt * times, context) >= before
    assert step_s(cost, batch, prompt, context * times) >= before


@given(STEPS, BATCHES, PROMPTS, CONTEXTS, st.floats(0.1, 10))
def test_a_machine_that_is_slower_in_all_is_slower_by_as_much(cost, batch, prompt, context, times):
    seconds = [f.name for f in fields(StepCost) if f.name.endswith("_s")]
    slower = scaled(cost, seconds, times)
    assert step_s(slower, batch, prompt, context) == pytest.approx(
        times * step_s(cost, batch, prompt, context)
    )
    before, after = (shares(c, batch, prompt, context) for c in (cost, slower))
    assert {k: pytest.approx(float(v), abs=1e-6) for k, v in before.items()} == after


@given(STEPS, BATCHES, PROMPTS, CONTEXTS, st.sampled_from(PARTS))
def test_a_share_is_what_the_pass_gains_when_the_part_shrinks_a_little(
    cost, batch, prompt, context, part
):
    """d ln T / d ln part, on one side or the other of where two ceilings meet."""
    whole, h = step_s(cost, batch, prompt, context), 1e-6
    less, more = (
        step_s(scaled(cost, OF_PART[part], 1 + s * h), batch, prompt, context) for s in (-1, 1)
    )
    down, up = (whole - less) / (h * whole), (more - whole) / (h * whole)
    share = float(shares(cost, batch, prompt, context)[part])
    assert min(down, up) - 1e-4 <= share <= max(down, up) + 1e-4


# ---------------------------------------------------------------- closed forms


@given(
    st.floats(1e-4, 0.1), st.floats(0, 0.01), st.floats(0, 0.001),
    st.floats(0, 512), st.floats(0, 8192), CONTEXTS,
)  # fmt: skip
def test_affine_is_a_straight_line(base, sequence, token, batch, prompt, context):
    cost = affine(base, sequence, token)
    assert step_s(cost, batch, prompt, context) == pytest.approx(
        base + sequence * batch + token * prompt
    )


def test_weights_and_arithmetic_overlap_but_for_the_serial_part():
    cost = StepCost(weights_s=0.01, token_s=0.001, serial=0.25)
    assert step_s(cost, 4, 0, 0) == pytest.approx(0.01 + 0.25 * 0.004)
    assert step_s(cost, 40, 0, 0) == pytest.approx(0.04 + 0.25 * 0.01)


def test_the_host_counts_as_far_as_the_device_waits_for_it():
    cost = StepCost(weights_s=0.01, host_s=0.004)
    assert step_s(cost, 1, 0, 0) == pytest.approx(0.01)
    assert step_s(replace(cost, exposed=1.0), 1, 0, 0) == pytest.approx(0.014)
    assert step_s(replace(cost, host_s=0.03), 1, 0, 0) == pytest.approx(0.03)


def test_one_token_touches_its_share_of_the_experts_and_many_touch_all():
    cost = StepCost(weights_s=0.001, expert_s=0.016, expert_touch=1 / 16)
    assert step_s(cost, 1, 0, 0) == pytest.approx(0.002)
    assert step_s(cost, 2, 0, 0) == pytest.approx(0.001 + 0.016 * (1 - (15 / 16) ** 2))
    assert step_s(cost, 1, 4096, 0) == pytest.approx(0.017)


def test_speculated_tokens_are_verified_too():
    cost = StepCost(token_s=0.001, draft_tokens=3.0)
    assert step_s(cost, 2, 0, 0) == pytest.approx(0.008)


def test_launches_are_hidden_below_longer_kernels():
    cost = StepCost(weights_s=0.01, launch_s=0.008)
    assert float(shares(cost, 1, 0, 0)["launch"]) == 0.0
    cost = replace(cost, launch_s=0.02)
    assert float(shares(cost, 1, 0, 0)["launch"]) == 1.0


# ---------------------------------------------------------------- arrays


@given(st.lists(STEPS, min_size=1, max_size=4), BATCHES, PROMPTS, CONTEXTS)
def test_an_array_of_hypotheses_is_each_by_itself(costs, batch, prompt, context):
    together = StepCost(
        **{f.name: np.array([getattr(c, f.name) for c in costs], float) for f in fields(StepCost)}
    )
    alone = [step_s(c, batch, prompt, context) for c in costs]
    assert step_s(together, batch, prompt, context) == pytest.approx(alone)
    parts = shares(together, batch, prompt, context)
    for i, cost in enumerate(costs):
        for name, share in shares(cost, batch, prompt, context).items():
            assert parts[name][i] == pytest.approx(float(share), abs=1e-12)


def test_take_picks_hypotheses_and_leaves_what_all_share():
    cost = StepCost(weights_s=np.array([1.0, 2.0, 3.0]), host_s=0.5, kv_s=np.array(7.0))
    some = cost.take(np.array([2, 0, 2]))
    assert some.weights_s.tolist() == [3.0, 1.0, 3.0]
    assert some.host_s == 0.5
    assert some.kv_s == 7.0
