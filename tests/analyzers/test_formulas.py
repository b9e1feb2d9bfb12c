"""Gains by formula: known values, identity at no change, monotone, bounded, limits, bad input."""

import math
import random

import pytest

from whybound.analyzers import formulas as f
from whybound.errors import WhyboundError

SEEDS = range(25)


def near(value):
    return pytest.approx(value, rel=1e-9)


def draw(seed):
    r = random.Random(seed)
    return r.random(), 1.0 + 10 ** r.uniform(-3, 3), r


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        (f.amdahl(0.08, 3), 1 / (0.92 + 0.08 / 3)),
        (f.amdahl(0.5, math.inf), 2.0),
        (f.amdahl(1.0, 4.0), 4.0),
        (f.amdahl(0.5, 0.5), 1 / 1.5),
        (f.decode_floor_gain(1.0, 16e-3, 4e-3), 4.0),
        (f.prefill_floor_gain(0.5, 0.2, 0.1), 1 / 0.75),
        (f.quantization_gain(1.0, "memory", bytes_ratio=4, flops_ratio=1), 4.0),
        (f.quantization_gain(1.0, "compute", bytes_ratio=4, flops_ratio=1), 1.0),
        (f.quantization_gain(1.0, "memory", bytes_ratio=4, flops_ratio=2, kernel_efficiency=0.26), 1.04),
        (f.batching_gain(8, 64, 295), 8.0),
        (f.batching_gain(100, 1000, 295), 2.95),
        (f.batching_gain(400, 1000, 295), 1.0),
        (f.batching_gain(8, 4, 295), 0.5),
        (f.fusion_gain(0.2, 5, 2), 1 / (0.8 + 0.2 * 2 / 5)),
        (f.cuda_graph_gain(4e-3, 10e-3), 1 / 0.6),
        (f.cuda_graph_gain(4e-3, 10e-3, 1e-3), 10 / 7),
        (f.speculative_tokens(0.8, 4), (1 - 0.8**5) / 0.2),
        (f.speculative_tokens(1.0, 4), 5.0),
        (f.speculative_tokens(0.0, 4), 1.0),
        (f.tensor_parallel_gain(10e-3, 4, 1.5e-3, 1e-3), 11 / 5),
        (f.prefix_cache_gain(0.2, 0.5, 1000, 1e-4), 0.2 / 0.15),
        (f.async_scheduling_gain(8e-3, 2e-3), 1.25),
    ],
)  # fmt: skip
def test_a_known_value(gain, expected):
    assert gain == near(expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_changed_gives_one(seed):
    p, s, _ = draw(seed)
    assert f.amdahl(p, 1.0) == near(1.0)
    assert f.amdahl(0.0, s) == near(1.0)
    assert f.decode_floor_gain(p, s, s) == near(1.0)
    assert f.prefill_floor_gain(p, s, 2 * s) == near(
        1.0
    )  # a floor above the measured: a wrong roof
    for bound in ("memory", "compute"):
        assert f.quantization_gain(p, bound, bytes_ratio=1, flops_ratio=1) == near(1.0)
    assert f.batching_gain(s, s, 300) == near(1.0)
    assert f.fusion_gain(p, s, s) == near(1.0)
    assert f.cuda_graph_gain(0.0, s) == near(1.0)
    assert f.cuda_graph_gain(p * s, s, p * s) == near(1.0)
    assert f.speculative_gain(p, 0, s, 1.0) == near(1.0)
    assert f.tensor_parallel_gain(s, 1, s, p) == near(1.0)
    assert f.prefix_cache_gain(s, 0.0, 100, 1.0) == near(1.0)
    assert f.async_scheduling_gain(s, 0.0) == near(1.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_more_is_never_less(seed):
    p, s, r = draw(seed)
    q, t = p + (1 - p) * r.random(), s * (1 + r.random())
    assert f.amdahl(q, s) >= f.amdahl(p, s)
    assert f.amdahl(p, t) >= f.amdahl(p, s)
    assert f.decode_floor_gain(p, t, 1.0) >= f.decode_floor_gain(p, s, 1.0)
    assert f.batching_gain(1, t, 300) >= f.batching_gain(1, s, 300)
    assert f.batching_gain(1, s, t) >= f.batching_gain(1, s, s)
    assert f.fusion_gain(p, t, 1) >= f.fusion_gain(p, s, 1)
    assert f.cuda_graph_gain(q, 1.0) >= f.cuda_graph_gain(p, 1.0)
    assert f.speculative_tokens(q, 5) >= f.speculative_tokens(p, 5)
    assert f.speculative_tokens(p, 6) >= f.speculative_tokens(p, 5)
    assert f.speculative_gain(p, 3, 0.1, t) <= f.speculative_gain(p, 3, 0.1, s)
    assert f.tensor_parallel_gain(1.0, 8, p) >= f.tensor_parallel_gain(1.0, 8, q)
    assert f.prefix_cache_gain(1.0, q, 1, 1.0) >= f.prefix_cache_gain(1.0, p, 1, 1.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_gain_is_above_the_share_taken_away(seed):
    p, s, r = draw(seed)
    p = min(p, 0.999)
    most = 1 / (1 - p) * (1 + 1e-12)
    assert f.amdahl(p, s) <= most
    assert f.amdahl(p, math.inf) == near(1 / (1 - p))
    assert f.amdahl(p, 1e12) == pytest.approx(1 / (1 - p), rel=1e-6)
    assert f.decode_floor_gain(p, s, r.random() + 1e-9) <= most
    assert f.quantization_gain(p, "memory", bytes_ratio=s, flops_ratio=1) <= most
    assert f.fusion_gain(p, s, 1) <= most
    assert f.cuda_graph_gain(p, 1.0, p / s) <= f.cuda_graph_gain(p, 1.0) <= most
    assert f.batching_gain(s, s * 100, 300) <= max(300 / s, 1.0)
    assert 1 <= f.speculative_tokens(p, 7) <= 8
    assert f.tensor_parallel_gain(s, 8, 0.0) <= 8 * (1 + 1e-12)
    assert 1 <= f.async_scheduling_gain(s, p) <= 2


@pytest.mark.parametrize("seed", SEEDS)
def test_speculation_harms_exactly_where_verifying_costs_more_than_it_yields(seed):
    r = random.Random(seed)
    a, g, c = r.random(), r.randint(1, 8), r.random() * 0.2
    edge = f.speculative_tokens(a, g) - g * c
    if edge <= 0:
        assert f.speculation_harms(a, g, c, 1.0)
        return
    assert f.speculation_harms(a, g, c, edge * 1.001)
    assert not f.speculation_harms(a, g, c, edge * 0.999)


BAD = [math.nan, -0.1]


@pytest.mark.parametrize(
    ("call", "names"),
    [
        *[(lambda p=p: f.amdahl(p, 2), "p, the share") for p in (*BAD, 1.1, 8, math.inf)],
        *[(lambda s=s: f.amdahl(0.1, s), "s, how many") for s in (*BAD, 0.0, -math.inf)],
        *[(lambda x=x: f.decode_floor_gain(0.5, x, 1), "measured time") for x in (*BAD, 0, math.inf)],
        *[(lambda x=x: f.prefill_floor_gain(0.5, 1, x), "floor") for x in (*BAD, 0)],
        (lambda: f.quantization_gain(0.5, "disk", bytes_ratio=2, flops_ratio=2), "'disk'"),
        (lambda: f.quantization_gain(0.5, "memory", bytes_ratio=0, flops_ratio=2), "ratio of bytes"),
        (lambda: f.quantization_gain(0.5, "memory", bytes_ratio=2, flops_ratio=math.nan), "FLOP/s"),
        (lambda: f.batching_gain(0, 8, 300), "current batch"),
        (lambda: f.batching_gain(8, math.nan, 300), "target batch"),
        (lambda: f.batching_gain(8, 9, -1), "ridge batch"),
        (lambda: f.fusion_gain(0.5, 3, 0), "passes after"),
        (lambda: f.cuda_graph_gain(2.0, 1.0), "launch time is 2 s in a step of 1 s"),
        (lambda: f.cuda_graph_gain(0.5, 0.0), "step time"),
        (lambda: f.speculative_tokens(1.2, 3), "acceptance"),
        (lambda: f.speculative_tokens(0.5, -1), "drafted tokens"),
        (lambda: f.tensor_parallel_gain(1.0, 0, 0.1), "devices"),
        (lambda: f.prefix_cache_gain(0.1, 1.0, 1000, 1e-3), "saved prefill"),
        (lambda: f.async_scheduling_gain(1.0, math.nan), "host time"),
    ],
)  # fmt: skip
def test_a_bad_number_is_one_line_that_names_it(call, names):
    with pytest.raises(WhyboundError) as raised:
        call()
    line = str(raised.value)
    assert names in line
    assert "give" in line
    assert "\n" not in line


def test_a_percentage_is_recognized():
    with pytest.raises(WhyboundError, match=r"8 % is 0\.08"):
        f.amdahl(8, 3)
