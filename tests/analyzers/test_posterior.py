"""The sampler: what it must find where the answer is known."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whybound.analyzers.posterior import PARTICLES, Prior, sample

WIDE = Prior(-5.0, 5.0)


def gauss(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2


@pytest.mark.parametrize(("seen", "sd"), [(1.0, 0.5), (2.0, 0.05), (-3.0, 0.2)])
def test_a_normal_prior_and_a_normal_observation_give_the_normal_between(seen, sd):
    """Prior N(0, 1), one observation: precision 1 + 1/sd², mean weighted by precision."""
    prior = {"x": Prior(0.0, 1.0, normal=True), "y": Prior(0.0, 1.0, normal=True)}
    draws = [sample(prior, lambda p: gauss(p["x"], seen, sd), seed=seed)["x"] for seed in range(4)]
    precision = 1 + 1 / sd**2
    expected, spread = seen / sd**2 / precision, precision**-0.5
    assert np.mean(draws) == pytest.approx(expected, abs=0.15 * spread)
    assert np.std(draws) == pytest.approx(spread, rel=0.12)


def test_what_was_not_seen_stays_as_it_was_believed():
    prior = {"x": WIDE, "y": Prior(2.0, 0.5, normal=True)}
    found = sample(prior, lambda p: gauss(p["x"], 1.0, 0.01))
    assert np.std(found["x"]) < 0.03
    assert np.mean(found["y"]) == pytest.approx(2.0, abs=0.1)
    assert np.std(found["y"]) == pytest.approx(0.5, rel=0.15)


def test_of_a_sum_only_the_sum_is_known():
    found = sample({"x": WIDE, "y": WIDE}, lambda p: gauss(p["x"] + p["y"], 1.0, 0.02))
    assert np.mean(found["x"] + found["y"]) == pytest.approx(1.0, abs=0.01)
    assert np.std(found["x"] + found["y"]) < 0.04
    assert np.std(found["x"]) > 1.5
    assert np.corrcoef(found["x"], found["y"])[0, 1] < -0.99


def test_two_explanations_stay_two():
    found = sample({"x": WIDE, "y": WIDE}, lambda p: gauss(np.abs(p["x"]), 2.0, 0.05))["x"]
    right = float(np.mean(found > 0))
    assert 0.35 < right < 0.65
    assert np.std(np.abs(found)) < 0.1
    assert np.mean(np.abs(found)) == pytest.approx(2.0, abs=0.02)


def test_an_explanation_three_times_as_likely_gets_three_quarters():
    def either(p):
        near, far = gauss(p["x"], -2.0, 0.1), gauss(p["x"], 2.0, 0.1) + np.log(3.0)
        return np.logaddexp(near, far)

    shares = [np.mean(sample({"x": WIDE, "y": WIDE}, either, seed=s)["x"] > 0) for s in range(4)]
    assert np.mean(shares) == pytest.approx(0.75, abs=0.08)


def test_a_ceiling_bounds_from_below_alone():
    """Only max(x, y) is seen: one of them is there, the other anywhere below."""
    found = sample({"x": WIDE, "y": WIDE}, lambda p: gauss(np.maximum(p["x"], p["y"]), 1.0, 0.05))
    assert np.mean(np.maximum(found["x"], found["y"])) == pytest.approx(1.0, abs=0.02)
    below = np.minimum(found["x"], found["y"])
    assert below.min() < -4
    assert 0.35 < np.mean(found["x"] > found["y"]) < 0.65


def test_one_run_one_result():
    def ask(seed):
        return sample({"x": WIDE, "y": WIDE}, lambda p: gauss(p["x"], 1.0, 0.2), seed=seed)["x"]

    assert np.array_equal(ask(5), ask(5))
    assert not np.array_equal(ask(5), ask(6))


@pytest.mark.parametrize("bad", [-np.inf, np.nan])
def test_what_is_impossible_is_left_out(bad):
    def ask(p):
        return np.where(p["x"] > 0, gauss(p["x"], 1.0, 2.0), bad)

    assert sample({"x": WIDE, "y": WIDE}, ask)["x"].min() > 0


def test_where_one_hypothesis_alone_is_possible_it_is_the_answer():
    def ask(p):
        return np.where(p["x"] == p["x"].max(), 0.0, -np.inf)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = sample({"x": WIDE, "y": WIDE}, ask, n=50)
    assert np.isfinite(found["x"]).all()
    assert found["x"].min() > 4.0


@pytest.mark.parametrize("value", [-np.inf, np.nan, np.inf, 0.0])
def test_where_nothing_tells_the_prior_stays(value):
    found = sample({"x": WIDE, "y": WIDE}, lambda p: np.full_like(p["x"], value))
    assert np.std(found["x"]) == pytest.approx(WIDE.spread, rel=0.15)


def test_one_unknown_alone():
    assert np.mean(sample({"x": WIDE}, lambda p: gauss(p["x"], 1.0, 0.1))["x"]) == pytest.approx(
        1.0, abs=0.03
    )


@pytest.mark.parametrize("sd", [0.05, 1e-3])
def test_a_sharp_answer_far_out_is_reached(sd):
    prior = dict.fromkeys("abcdefgh", WIDE)

    def ask(p):
        return sum(gauss(p[name], 4.0, sd) for name in "abcd")

    found = sample(prior, ask)
    assert np.mean(found["a"]) == pytest.approx(4.0, abs=sd)
    assert np.std(found["a"]) == pytest.approx(sd, rel=0.3)


@given(st.floats(-5, 5), st.floats(0.001, 10))
def test_no_hypothesis_leaves_a_uniform_prior(seen, sd):
    found = sample({"x": WIDE, "y": WIDE}, lambda p: gauss(p["x"], seen, sd), n=60)
    for values in found.values():
        assert len(values) == 60
        assert values.min() >= -5.0
        assert values.max() <= 5.0


def test_as_many_as_are_asked_for():
    assert len(sample({"x": WIDE, "y": WIDE}, lambda p: p["x"] * 0.0)["x"]) == PARTICLES


def test_the_spread_of_a_prior_is_its_standard_deviation():
    rng = np.random.default_rng(0)
    for prior in (WIDE, Prior(3.0, 0.7, normal=True)):
        assert np.std(prior.draw(rng, 20000)) == pytest.approx(prior.spread, rel=0.03)
