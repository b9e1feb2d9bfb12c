"""What a lever gave: one run's target over another's."""

import random

import pytest

from whybound.analyzers.realised import realised
from whybound.analyzers.target import parse_target

E2E, TTFT = parse_target("mean e2e"), parse_target("mean ttft")


def slow_and_quick(new_build, n=60, times=2.0, noise=0.0, seed=0):
    """Two runs of the same arrivals, the second `times` as quick, up to a noise of its own."""
    rng = random.Random(seed)
    pair = []
    for name, scale in (("base", 1.0), ("candidate", 1.0 / times)):
        build = new_build(name)
        for i in range(n):
            build.request(i, 0.2 * scale, [(1.0 + noise * rng.uniform(-1, 1)) * scale])
        pair.append(build.database())
    return pair


def test_a_lever_that_halves_every_request_gives_two(new_build):
    got = realised(*slow_and_quick(new_build), E2E)
    assert (got.gain, got.low, got.high) == pytest.approx((2.0, 2.0, 2.0))
    assert realised(*slow_and_quick(new_build), TTFT).gain == pytest.approx(2.0)


def test_noise_widens_the_interval_around_the_gain(new_build):
    got = realised(*slow_and_quick(new_build, noise=0.5), E2E)
    assert got.low < got.gain < got.high
    assert got.low < 2.0 < got.high
    assert 0.02 < got.high - got.low < 0.8


def test_harm_is_below_one(new_build):
    got = realised(*slow_and_quick(new_build, times=0.5), E2E)
    assert got.gain == pytest.approx(0.5)


def test_throughput_grows_to_get_better(new_build):
    pair = []
    for name, gap in (("base", 2.0), ("candidate", 1.0)):
        build = new_build(name)
        for i in range(10):
            build.request(i * gap, 0.1, [gap - 0.1])
        pair.append(build.database())
    assert realised(*pair, parse_target("throughput")).gain == pytest.approx(2.0)


def test_unlike_numbers_of_requests_are_compared_too(new_build):
    long, short = new_build("long"), new_build("short")
    for i in range(100):
        long.request(i, 0.2, [0.8])
    for i in range(7):
        short.request(i, 0.2, [0.3])
    assert realised(long.database(), short.database(), E2E).gain == pytest.approx(2.0)


@pytest.mark.parametrize("text", ["p95 e2e", "mean itl"])
def test_a_target_that_it_cannot_compare_is_none(new_build, text):
    assert realised(*slow_and_quick(new_build), parse_target(text)) is None


def test_a_run_without_requests_is_none_and_not_infinitely_better(new_build):
    full, empty = new_build("full"), new_build("empty")
    for i in range(20):
        full.request(i, 0.2, [0.8])
    pair = [full.database(), empty.database()]
    assert realised(*pair, E2E) is None
    assert realised(*reversed(pair), E2E) is None
    assert realised(*pair, parse_target("throughput")) is None
