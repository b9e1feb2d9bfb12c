"""Arrival times: their statistics, their ends, and that workers agree on them."""

from __future__ import annotations

from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whybound.collector.load.arrivals import offsets_s, plan, share_of
from whybound.collector.load.spec import parse_load
from whybound.collector.load.traces import Arrival

N = 4000


def gaps(text: str) -> np.ndarray:
    times = np.array(list(islice(offsets_s(parse_load(text)), N)))
    return np.diff(times, prepend=0.0)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.1, 1000), st.integers(0, 10**6))
def test_poisson_gaps_are_exponential(rate, seed):
    g = gaps(f"poisson:rate={rate},seed={seed}") * rate
    # Within 5 standard errors: mean 1, standard deviation 1, and P(gap > 1) = 1/e.
    assert g.min() >= 0
    assert g.mean() == pytest.approx(1, abs=5 / N**0.5)
    assert g.std() == pytest.approx(1, abs=5 * 2 / N**0.5)
    assert (g > 1).mean() == pytest.approx(np.exp(-1), abs=5 * 0.5 / N**0.5)
    # Independent: no correlation between neighbours.
    assert abs(np.corrcoef(g[1:], g[:-1])[0, 1]) < 5 / N**0.5


@settings(max_examples=20, deadline=None)
@given(st.floats(0.25, 2.5), st.integers(0, 10**6))
def test_gamma_gaps_have_mean_and_cv(cv, seed):
    g = gaps(f"gamma:rate=8,cv={cv},seed={seed}") * 8
    assert g.mean() == pytest.approx(1, abs=5 * cv / N**0.5)
    # The kurtosis of a gamma grows with its cv; so does the error of its standard deviation.
    assert g.std() / g.mean() == pytest.approx(cv, rel=5 * (0.5 + cv) / N**0.5)


def test_gamma_with_cv_1_is_poisson_in_distribution():
    g, p = (np.sort(gaps(f"{t},seed=5")) for t in ("gamma:rate=1,cv=1", "poisson:rate=1"))
    quantiles = (np.array([0.1, 0.5, 0.9]) * N).astype(int)
    assert g[quantiles] == pytest.approx(p[quantiles], rel=0.15)


def test_constant_is_exact():
    assert list(islice(offsets_s(parse_load("constant:rate=4")), 4)) == [0, 0.25, 0.5, 0.75]


def test_the_seed_decides():
    def first(text):
        return list(islice(offsets_s(parse_load(text)), 20))

    assert first("poisson:rate=4,seed=1") == first("poisson:rate=4,seed=1,salt=x,in=9,n=3")
    assert first("poisson:rate=4,seed=1") != first("poisson:rate=4,seed=2")


def test_n_and_duration_count_from_the_end_of_the_warmup():
    planned = list(plan(parse_load("constant:rate=10,warmup=1,n=5")))
    assert [p.warmup for p in planned] == [True] * 10 + [False] * 5
    assert [p.number for p in planned] == list(range(15))
    planned = list(plan(parse_load("constant:rate=10,warmup=1,d=2")))
    assert [p.warmup for p in planned].count(False) == 20
    assert planned[-1].offset_s < 3.0
    assert len(list(plan(parse_load("constant:rate=10,n=50,d=1")))) == 10
    assert list(plan(parse_load("poisson:rate=0.001,d=1ms"))) == []


def test_a_file_is_followed_to_its_end():
    trace = [Arrival(0.0, 5, 6), Arrival(0.5, 7, 8), Arrival(2.0, 1, 1)]
    spec = parse_load("file:a.jsonl,prefix=0")
    assert [p.offset_s for p in plan(spec, trace)] == [0.0, 0.5, 2.0]
    assert len(list(plan(parse_load("file:a.jsonl,d=1"), trace))) == 2
    assert list(plan(spec, [])) == []


def test_closed_loop_has_no_arrivals():
    with pytest.raises(ValueError, match="closed has no arrival times"):
        offsets_s(parse_load("closed:concurrency=2"))


@given(st.integers(0, 1000), st.integers(1, 40))
def test_shares_sum_to_the_total(total, workers):
    shares = [share_of(total, w, workers) for w in range(workers)]
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1
    assert all(a >= b for a, b in pairwise(shares))
