"""Signals: one row a fact, a unit in every name, nothing for a NULL."""

import math

import pytest

from whybound.analyzers.derived import derived_signals
from whybound.analyzers.fit import fit
from whybound.analyzers.signals import _row_signals, read_signals, signal_views, unit_of
from whybound.analyzers.verdict import what_if
from whybound.collector.schema import UNIT_SUFFIXES
from whybound.rules.load import load_levers, load_prechecks, load_rules
from whybound.rules.observations import load_given

TOLD = set(load_given())
"""Signals that no recording holds: a person knows them, or another tool printed them."""


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
    """A name that neither a view nor the fit has would leave its rule at `cannot_tell` for ever."""
    con = emulated(rate=3, n=40).database()
    known = TOLD | of_the_fit(con)
    for view in signal_views():
        known |= {d[0] for d in con.execute(f"SELECT * FROM {view}").description}
    asked = {r.id: set(r.needs) for r in (load_rules() | load_prechecks()).values()}
    for lever in load_levers().values():
        asked[lever.id] = names_in(lever.enabling + lever.harms)
    assert {i: sorted(names - known) for i, names in asked.items() if names - known} == {}


KNOWN = {"model": "Qwen/Qwen3-8B", "gpu_name": "NVIDIA H100 80GB HBM3", "tensor_parallel_size": "2"}
"""Settings of which every derived signal can be told."""


def of_the_fit(con):
    """Names of the signals that the fitted model adds to a run's own."""
    seen = {s.name: s for s in read_signals(con)}
    facts = {k: s.value for k, s in seen.items() if s.value is not None}
    fitted = fit(con, facts, {}, KNOWN, "open")
    derived = derived_signals(what_if(fitted, fitted.facts), seen)
    for signal in derived:
        assert signal.text is not None or signal.unit in UNIT_SUFFIXES, signal
    return {s.name for s in derived}


def names_in(conditions):
    found = set()
    for c in conditions:
        found |= {n for n in (c.signal, c.other) if n}
        found |= names_in(c.all or []) | names_in(c.any or [])
    return found
