"""The summary: quantiles within their bound, rows counted once, goodput by its limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whybound.collector.load.summary import Sketch, Tally, is_good


def row(request_id: str = "a", **values) -> dict:
    base = {
        "request_id": request_id, "warmup": False, "status": "ok", "error": None,
        "send_lag_s": 0.001, "client_ttft_s": 0.2, "client_e2e_s": 1.0, "end_ns": 3 * 10**9,
        "chunk_gap_s": [0.1, 0.2], "input_tokens": 10, "output_tokens": 3,
    }  # fmt: skip
    return base | values


def summarise(tally: Tally):
    return tally.summary(start_ns=10**9, model="m", salt="s", workers=1, realtime=True)


@given(st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=300), st.floats(0, 1))
def test_sketch_is_within_half_a_percent(values, q):
    sketch = Sketch()
    for value in values:
        sketch.add(value)
    exact = np.quantile(values, q, method="lower")
    assert sketch.quantile(q) == pytest.approx(exact, rel=0.0051)


def test_sketch_of_nothing_and_of_zeros():
    sketch = Sketch()
    assert sketch.quantile(0.5) is None
    assert sketch.quantiles() == {}
    for value in (0.0, 0.0, 5.0):
        sketch.add(value)
    assert sketch.quantile(0.5) == 0.0
    assert sketch.quantile(1.0) == pytest.approx(5.0, rel=0.0051)


def test_each_request_counts_once():
    tally = Tally()
    tally.add(row("a", status="unfinished"))
    assert (tally.sent, tally.in_flight) == (1, 1)
    tally.add(row("a"))
    tally.add(row("b", status="unfinished"))
    tally.add(row("b", status="unfinished", error="not finished when the load ended"))
    tally.add(row("c", status="refused", error="connection refused"))
    tally.add(row("w", status="unfinished", warmup=True))
    tally.add(row("w", warmup=True, client_ttft_s=99.0))
    got = summarise(tally)
    assert (got.sent, got.ok, got.failed, got.unfinished, got.warmup) == (3, 1, 1, 1, 1)
    assert got.first_error == "connection refused"
    assert got.duration_s == 2.0
    assert (got.requests_per_s, got.output_tokens_per_s, got.goodput_per_s) == (0.5, 1.5, None)
    assert got.ttft_s["p99"] == pytest.approx(0.2, rel=0.0051)


def test_unknown_tokens_stay_unknown():
    tally = Tally()
    tally.add(row(output_tokens=None, input_tokens=None, send_lag_s=None))
    got = summarise(tally)
    assert (got.input_tokens, got.output_tokens, got.output_tokens_per_s) == (None, None, None)
    assert got.send_lag_p99_s is None


def test_nothing_sent():
    got = summarise(Tally((("ttft", 1.0),)))
    assert (got.sent, got.duration_s, got.requests_per_s, got.e2e_s) == (0, 0.0, 0.0, {})


@pytest.mark.parametrize(
    ("slo", "good"),
    [
        ((), True),
        ((("ttft", 0.2),), True),
        ((("ttft", 0.19),), False),
        ((("ttft", 0.2), ("e2e", 0.9)), False),
        ((("tpot", 0.4),), True),
        ((("tpot", 0.39),), False),
        ((("itl", 0.2),), True),
        ((("itl", 0.19),), False),
    ],
)
def test_goodput_limits(slo, good):
    assert is_good(row(), slo) is good
    tally = Tally(slo)
    tally.add(row())
    assert summarise(tally).goodput_per_s == ((0.5 if good else 0.0) if slo else None)


def test_a_missing_metric_is_not_good():
    assert not is_good(row(client_ttft_s=None), (("ttft", 9.0),))
    assert not is_good(row(output_tokens=None), (("tpot", 9.0),))
    assert is_good(row(output_tokens=1, chunk_gap_s=[]), (("tpot", 0.1), ("itl", 0.1)))
