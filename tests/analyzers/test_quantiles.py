"""Intervals cover what they claim to cover, also where neighbours are alike."""

from __future__ import annotations

import numpy as np
import pytest

from whybound.analyzers.quantiles import (
    clustered_interval,
    inflation,
    quantile_interval,
    ranks,
    ratio_interval,
    samples_needed,
    share_interval,
)


@pytest.mark.parametrize(
    ("p", "needed"), [(0.5, 6), (0.9, 36), (0.95, 72), (0.99, 368), (0.999, 3688), (0.01, 368)]
)
def test_samples_needed(p: float, needed: int) -> None:
    assert samples_needed(p) == needed
    assert None not in ranks(needed, p)
    assert None in ranks(needed - 1, p)


def test_ranks_are_those_of_the_tables() -> None:
    assert ranks(100, 0.5) == (40, 61)
    assert ranks(10, 0.5) == (2, 9)


def test_below_the_needed_samples_one_side_stays() -> None:
    found = quantile_interval(np.arange(50.0), 0.99)
    assert found.high is None
    assert found.low == 47.0


def test_an_interval_of_independent_values_covers() -> None:
    rng = np.random.default_rng(1)
    truth = -np.log(0.05)
    inside = 0
    for _ in range(300):
        found = quantile_interval(rng.exponential(size=400), 0.95)
        assert found.low is not None
        assert found.high is not None
        inside += found.low <= truth <= found.high
    assert inside / 300 >= 0.93


def _correlated(rng: np.random.Generator, n: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Gaussian AR(1), lag-one correlation 0.9: 19 neighbours are worth one for its mean."""
    noise = rng.normal(scale=np.sqrt(1 - 0.81), size=n)
    series = np.empty(n)
    series[0] = rng.normal()
    for i in range(1, n):
        series[i] = 0.9 * series[i - 1] + noise[i]
    return series


def test_an_interval_of_neighbours_that_are_alike_covers() -> None:
    rng = np.random.default_rng(2)
    naive, honest = 0, 0
    for _ in range(150):
        series = _correlated(rng, 2000)
        found = quantile_interval(series, 0.5)
        assert found.low is not None
        assert found.high is not None
        honest += found.low <= 0 <= found.high
        low, high = ranks(2000, 0.5)
        assert low is not None
        assert high is not None
        ordered = np.sort(series)
        naive += ordered[low - 1] <= 0 <= ordered[high - 1]
    assert naive / 150 < 0.6
    assert honest / 150 >= 0.9


def test_inflation() -> None:
    rng = np.random.default_rng(3)
    assert inflation((rng.random(2000) > 0.9).astype(float)) == 1.0
    assert inflation((_correlated(rng, 4000) > 1).astype(float)) > 3
    assert inflation(np.zeros(500)) == 1.0
    assert inflation(np.array([])) == 1.0


def test_gaps_of_one_request_are_one_cluster() -> None:
    """Each request has a pace of its own: 100 requests of 50 gaps are 100 values, not 5000."""
    rng = np.random.default_rng(4)
    owner = np.repeat(np.arange(100), 50)
    inside, width = 0, []
    for _ in range(60):
        values = rng.exponential(size=100)[owner]
        found = clustered_interval(values, owner, 0.9, 1)
        assert found.low is not None
        assert found.high is not None
        inside += found.low <= -np.log(0.1) <= found.high
        width.append(found.high - found.low)
    assert inside / 60 >= 0.88
    low, high = ranks(5000, 0.9)
    assert low is not None
    assert high is not None
    independent = np.sort(rng.exponential(size=5000))
    assert np.median(width) > 4 * (independent[high - 1] - independent[low - 1])


def test_requests_in_flight_together_share_their_stalls() -> None:
    rng = np.random.default_rng(5)
    owner = np.repeat(np.arange(400), 10)
    shared = np.repeat(rng.exponential(size=20), 20)[owner]
    alone, together = (clustered_interval(shared, owner, 0.5, block) for block in (1, 20))
    assert alone.low is not None
    assert alone.high is not None
    assert together.low is not None
    assert together.high is not None
    assert together.high - together.low > 1.5 * (alone.high - alone.low)


def test_a_cluster_bound_is_one_of_the_values() -> None:
    owner = np.repeat(np.arange(30), 4)
    values = np.tile([1.0, 2.0, 3.0, 4.0], 30)
    found = clustered_interval(values, owner, 0.6, 3)
    assert (found.low, found.high) == (3.0, 3.0)


def test_a_rate_covers() -> None:
    rng = np.random.default_rng(6)
    inside = 0
    for _ in range(200):
        low, high = ratio_interval(rng.poisson(50, 20).astype(float), np.full(20, 10.0))
        inside += low <= 5.0 <= high
    assert 0.9 <= inside / 200 <= 0.99


def test_a_share_of_nothing_still_has_a_width() -> None:
    low, high = share_interval(np.zeros(100))
    assert low == pytest.approx(0, abs=1e-9)
    assert high == pytest.approx(0.037, abs=1e-3)
