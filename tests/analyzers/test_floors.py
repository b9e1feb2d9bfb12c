"""Floors: worked examples, scaling, order of the range, and where they do not apply."""

import math
import random

import pytest

from whybound.analyzers import floors as f
from whybound.analyzers.floors import BARE, Range
from whybound.errors import WhyboundError

H100, HBM = 989e12, 3.35e12
EFFICIENCY = Range(0.6, 0.8, 0.9)


def same(low, mid=None, high=None):
    return (pytest.approx(low), pytest.approx(mid or low), pytest.approx(high or mid or low))


def ends(r):
    return (r.low, r.mid, r.high)


def test_eight_billion_parameters_on_an_h100():
    """16.1 GB over 3.35 TB/s: 4.8 ms at the bare roof, 6.0 ms at 0.8."""
    bare = f.decode_floor_s(16.1e9, 131072, 0, HBM)
    assert ends(bare) == same(16.1 / 3350)
    reached = f.decode_floor_s(16.1e9, 131072, 0, HBM, efficiency=EFFICIENCY)
    assert reached.mid == pytest.approx(6.0e-3, rel=0.01)
    assert reached.low < reached.mid < reached.high
    assert reached.low > bare.low
    full = f.decode_floor_s(16.1e9, 131072, 32 * 4000, HBM)
    assert full.low == pytest.approx((16.1e9 + 131072 * 128000) / HBM)
    assert ends(f.decode_floor_s(16.1e9, 131072, 0, HBM, devices=4)) == same(16.1 / 3350 / 4)


def test_kv_bytes_a_token_of_a_grouped_query_model():
    assert f.kv_bytes_per_token(32, 8, 128) == 131072
    assert f.kv_bytes_per_token(32, 8, 128, bytes_per_value=1) == 65536


def test_prefill_counts_new_tokens_and_causal_attention():
    assert f.prefill_flops(8e9, 1000) == 1.6e13
    assert f.prefill_flops(8e9, 1000, cached_tokens=400) == 2 * 8e9 * 600
    whole = f.prefill_flops(8e9, 1000, layers=32, heads=32, head_dim=128)
    assert whole == pytest.approx(1.6e13 + 2 * 32 * 32 * 128 * 1000**2)
    first = f.prefill_flops(8e9, 400, layers=32, heads=32, head_dim=128)
    rest = f.prefill_flops(8e9, 1000, cached_tokens=400, layers=32, heads=32, head_dim=128)
    assert first + rest == pytest.approx(whole)  # a chunk at a time costs the same
    assert ends(f.compute_floor_s(whole, H100)) == same(whole / H100)


def test_a_mixture_reads_more_of_its_experts_as_the_batch_grows():
    assert f.experts_touched_share(64, 8, 1) == pytest.approx(1 / 8)
    assert f.experts_touched_share(64, 8, 0) == 0
    assert f.experts_touched_share(8, 8, 1) == 1
    shares = [f.experts_touched_share(128, 8, t) for t in (1, 2, 8, 64, 512)]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1, abs=1e-9)
    assert f.weight_bytes_read(2e9, 60e9, experts=64, top_k=8) == pytest.approx(9.5e9)
    assert f.weight_bytes_read(2e9, 60e9, experts=64, top_k=8, tokens=1e4) == pytest.approx(62e9)
    assert f.weight_bytes_read(16e9) == 16e9  # dense


def test_the_ridge():
    assert f.ridge_batch(H100, HBM, 2.0) == pytest.approx(295, abs=1)
    assert f.ridge_batch(H100, HBM, 0.5) == pytest.approx(74, abs=1)  # 4-bit weights, 16-bit math
    batch = f.ridge_batch(H100, HBM, 2.0)
    read = f.decode_floor_s(2 * 8e9, 0, 0, HBM)
    work = f.compute_floor_s(2 * 8e9 * batch, H100)
    assert read.low == pytest.approx(work.low)
    assert ends(f.roofline_s(read, work)) == same(read.low)


def test_the_roofline_is_the_longer_end_by_end():
    assert f.roofline_s(Range(1, 2, 6), Range(2, 3, 4)) == Range(2, 3, 6)


def test_launching():
    floor = f.launch_floor_s(400, (4e-6, 36e-6))
    assert ends(floor) == same(1.6e-3, 4.8e-3, 14.4e-3)
    assert f.launch_floor_s(0, (4e-6, 36e-6)) == Range(0, 0, 0)


def test_slots():
    slots = f.kv_slots(80e9, 0.9, 16e9, 4e9, 131072, 4000)
    assert slots == pytest.approx(52e9 / (131072 * 4000))
    assert f.kv_slots(16e9, 0.9, 16e9, 0, 131072, 4000) == 0


def test_moving_a_cache():
    floor = f.transfer_s(8192 * 131072, 50e9, latency_s=1e-3)  # 8k tokens at 400 Gb/s
    assert floor.low == pytest.approx(21.5e-3 + 1e-3, rel=0.01)
    slow = f.transfer_s(8192 * 131072, 50e9, latency_s=1e-3, efficiency=EFFICIENCY)
    assert slow.high == pytest.approx(8192 * 131072 / 30e9 + 1e-3)


def test_fetching_a_cache_pays_over_pcie_and_not_from_a_disk():
    assert f.offload_gain(131072, 25e9, 8e9, 544e12) == pytest.approx(5.6, rel=0.01)
    assert f.offload_gain(131072, 2e9, 8e9, 544e12) < 1


def test_all_reduce():
    ring = f.ring_all_reduce_s(1e6, 4, 100e9, latency_s=1e-6)
    assert ring.low == pytest.approx(1.5 * 1e6 / 100e9 + 6e-6)
    tree = f.tree_all_reduce_s(1e6, 4, 100e9, latency_s=1e-6)
    assert tree.low == pytest.approx(1.5 * 1e6 / 100e9 + 4e-6)
    assert (
        f.tree_all_reduce_s(1e3, 64, 1e11, latency_s=1e-6).low
        < f.ring_all_reduce_s(1e3, 64, 1e11, latency_s=1e-6).low
    )
    for kind in (f.ring_all_reduce_s, f.tree_all_reduce_s):
        assert kind(1e6, 1, 100e9, latency_s=1e-6) == Range(0, 0, 0)


def test_all_to_all():
    even = f.all_to_all_s(128, 8, 4096, 2, 8, 50e9)
    assert even.low == pytest.approx(128 * 8 * 4096 * 2 * 7 / 8 / 50e9)
    assert f.all_to_all_s(128, 8, 4096, 2, 8, 50e9, imbalance=1.5).low == pytest.approx(
        1.5 * even.low
    )
    assert f.all_to_all_s(128, 8, 4096, 2, 1, 50e9, latency_s=1e-5) == Range(0, 0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_a_floor_scales_with_work_and_roof_and_is_never_under_the_bare_one(seed):
    r = random.Random(seed)
    work, roof, k = 10 ** r.uniform(6, 12), 10 ** r.uniform(9, 15), 1 + r.random() * 9
    low, mid, high = sorted(r.uniform(0.05, 1.0) for _ in range(3))
    efficiency = Range(low, mid, high)
    for floor in (
        lambda w, b, e=BARE: f.decode_floor_s(w, 0, 0, b, efficiency=e),
        lambda w, b, e=BARE: f.compute_floor_s(w, b, efficiency=e),
        lambda w, b, e=BARE: f.transfer_s(w, b, efficiency=e),
        lambda w, b, e=BARE: f.ring_all_reduce_s(w, 8, b, efficiency=e),
        lambda w, b, e=BARE: f.tree_all_reduce_s(w, 8, b, efficiency=e),
    ):
        one = floor(work, roof)
        assert floor(k * work, roof).mid == pytest.approx(k * one.mid)
        assert floor(work, k * roof).mid == pytest.approx(one.mid / k)
        real = floor(work, roof, efficiency)
        assert one.low <= real.low <= real.mid <= real.high
        assert real.high == pytest.approx(one.high / low)


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: f.decode_floor_s(0, 1, 1, HBM), "weight bytes"),
        (lambda: f.decode_floor_s(1, 1, 1, 0), "bandwidth"),
        (lambda: f.decode_floor_s(1, 1, math.nan, HBM), "context tokens"),
        (lambda: f.compute_floor_s(math.nan, H100), "FLOPs"),
        (lambda: f.compute_floor_s(1, H100, efficiency=Range(0, 0.5, 1)), "efficiency"),
        (lambda: f.compute_floor_s(1, H100, efficiency=Range(0.5, 0.5, 1.2)), "efficiency"),
        (lambda: Range(2, 1, 3), "low <= middle <= high"),
        (lambda: Range(math.nan, 1, 3), "low <= middle <= high"),
        (lambda: f.prefill_flops(8e9, 10, cached_tokens=11), "cached tokens"),
        (lambda: f.experts_touched_share(8, 9, 1), "experts a token"),
        (lambda: f.kv_slots(80e9, 90, 1, 1, 1, 1), "used share"),
        (lambda: f.ring_all_reduce_s(1, 0, 1), "devices"),
        (lambda: f.all_to_all_s(1, 1, 1, 1, 2, 1, imbalance=0.5), "imbalance"),
        (lambda: f.launch_floor_s(-1, (1, 2)), "kernels"),
    ],
)  # fmt: skip
def test_a_bad_number_is_named(call, names):
    with pytest.raises(WhyboundError, match="give") as raised:
        call()
    assert names in str(raised.value)
