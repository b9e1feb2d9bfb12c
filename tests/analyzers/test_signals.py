"""Signals: one row a fact, a unit in every name, nothing for a NULL."""

import math

import pytest

from whybound.analyzers.signals import _row_signals, read_signals, signal_views, unit_of
from whybound.collector.schema import UNIT_SUFFIXES
from whybound.rules.load import load_levers, load_prechecks, load_rules

DERIVED = {"rho_capped_ratio", "rho_uncapped_ratio", "capacity_gain_uncapped_ratio"}
"""Signals that need the fitted model; the diagnosis adds them."""

TOLD = {"shared_prefix_ratio"}
"""Signals that no recording holds: a person knows them."""


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("client_ttft_mean_s", "s"),
        ("output_tokens_per_s", "per_s"),
        ("queue_growth_per_s", "per_s"),
        ("kv_used_max_ratio", "ratio"),
        ("input_mean_tokens", "tokens"),
        ("load_mode", ""),
        ("s", "s"),
    ],
)
def test_unit_of(name, unit):
    assert unit_of(name) == unit


def test_a_row_becomes_signals_with_their_bounds():
    row = {"n": 7, "a_s": 1.5, "low_a_s": 1.0, "high_a_s": 2.0, "mode": "open", "b_count": 3}
    a, mode, b = _row_signals("view", 1, row)
    assert (a.value, a.low, a.high, a.unit, a.n, a.level, a.source) == (
        1.5,
        1.0,
        2.0,
        "s",
        7,
        1,
        "view",
    )
    assert (mode.text, mode.value, mode.unit) == ("open", None, "")
    assert (b.value, b.low, b.high) == (3.0, None, None)


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_what_is_not_a_number_is_no_signal(value):
    assert _row_signals("view", 1, {"n": 1, "a_s": value}) == []


@pytest.mark.parametrize("bound", [math.nan, math.inf])
def test_a_bound_that_is_not_a_number_is_no_bound(bound):
    (signal,) = _row_signals("view", 1, {"n": 1, "a_s": 1.0, "low_a_s": -bound, "high_a_s": bound})
    assert (signal.low, signal.high) == (None, None)


def test_signals_of_a_run(emulated):
    found = read_signals(emulated(rate=3, n=40).database())
    names = [s.name for s in found]
    assert len(names) == len(set(names))
    for signal in found:
        assert signal.source in signal_views()
        assert signal.level == signal_views()[signal.source]
        assert (signal.value is None) != (signal.text is None)
        assert signal.n > 0, signal
        if signal.text is None:
            assert signal.unit in UNIT_SUFFIXES, signal
            assert signal.low is None or signal.low <= signal.value <= signal.high, signal


def test_every_signal_that_a_rule_or_a_lever_asks_for_can_exist(emulated):
    """A name that no view has would leave its rule at `cannot_tell` for ever."""
    con = emulated(rate=3, n=40).database()
    known = DERIVED | TOLD
    for view in signal_views():
        known |= {d[0] for d in con.execute(f"SELECT * FROM {view}").description}
    for rule in (load_rules() | load_prechecks()).values():
        assert set(rule.needs) <= known, rule.id
    asked = [lever.enabling + lever.harms for lever in load_levers().values()]
    for conditions in asked:
        assert names_in(conditions) <= known


def names_in(conditions):
    found = set()
    for c in conditions:
        found |= {n for n in (c.signal, c.other) if n}
        found |= names_in(c.all or []) | names_in(c.any or [])
    return found
