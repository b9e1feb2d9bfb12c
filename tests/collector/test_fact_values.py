"""Figures as people write them: converted, bounded, or refused with what is possible."""
# ruff: noqa: E501 — cases read best one a line

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whybound.collector.fact_values import UNITS, WORDS, read_fact, unit_suffix
from whybound.collector.schema import UNIT_SUFFIXES
from whybound.errors import UsageError


@pytest.mark.parametrize(
    ("name", "written", "value", "low", "high"),
    [
        ("gpu_sm_ratio", "0.65", 0.65, None, None),
        ("gpu_sm_ratio", "65 %", 0.65, None, None),
        ("gpu_sm_ratio", "60-75 %", 0.675, 0.6, 0.75),
        ("gpu_sm_ratio", "60% – 75%", 0.675, 0.6, 0.75),
        ("gpu_sm_ratio", "0.6..0.75", 0.675, 0.6, 0.75),
        ("gpu_sm_ratio", "60 to 75 percent", 0.675, 0.6, 0.75),
        ("gpu_sm_ratio", "between 60 and 75 %", 0.675, 0.6, 0.75),
        ("gpu_sm_ratio", "~ 60 %", 0.6, 0.54, 0.66),
        ("gpu_sm_ratio", "< 90 %", None, 0.0, 0.9),
        ("gpu_sm_ratio", "at least 90%", None, 0.9, None),
        ("gpu_dram_ratio", "not high", None, 0.0, 0.7),
        ("gpu_dram_ratio", "High", None, 0.7, 1.0),
        ("kv_used_max_ratio", "full", None, 0.95, 1.0),
        ("capacity_gain_uncapped_ratio", "1.4x", 1.4, None, None),
        ("client_itl_p95_s", "30 ms", 0.03, None, None),
        ("client_itl_p95_s", "30ms..0.1 s", 0.065, 0.03, 0.1),
        ("client_itl_p95_s", "250 µs", 0.00025, None, None),
        ("duration_s", "2 min", 120.0, None, None),
        ("network_ttft_s", "-3 ms", -0.003, None, None),
        ("output_tokens_per_s", "1,250 tok/s", 1250.0, None, None),
        ("offered_rate_per_s", "120 req/min", 2.0, None, None),
        ("gpu_link_per_s", "25 GB/s", 25e9, None, None),
        ("kv_capacity_tokens", "131k", 131_000.0, None, None),
        ("max_num_seqs_count", "64", 64.0, None, None),
        ("gpu_power_w", "0.7 kW", 700.0, None, None),
        ("gpu_sm_clock_mhz", "1.41 GHz", 1410.0, None, None),
        ("offered_rate_per_s", "1e3", 1000.0, None, None),
    ],
)
def test_figures(name, written, value, low, high):
    found = read_fact(name, written)
    for got, want in ((found.value, value), (found.low, low), (found.high, high)):
        assert got == (None if want is None else pytest.approx(want)), found
    assert found.text is None


def test_what_is_categorical_is_text():
    assert read_fact("load_mode", " open ").text == "open"


@pytest.mark.parametrize(
    ("name", "written", "said"),
    [
        ("client_itl_p95_s", "30", "no unit"), ("client_itl_p95_s", "30 GB", "no unit of it"),
        ("client_itl_p95_s", "fast", "is no number"), ("client_itl_p95_s", "low", "no share"),
        ("capacity_gain_uncapped_ratio", "high", "no share"), ("gpu_sm_ratio", "65", "write 65 %"),
        ("gpu_sm_ratio", "75-60 %", "backwards"), ("gpu_sm_ratio", "-5 %", "negative"), ("gpu_sm_ratio", "", "no value"),
        ("client_itl_p95_s", "-30 ms", "negative"), ("gpu_sm_ratio", "nan", "is no number"),
        ("duration_s", "1e999 s", "finite"), ("gpu_sm_ratio", "9" * 500, "no value"), ("gpu_sm_ratio", "1 2 3", "is no number"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_the_signal_and_what_is_possible(name, written, said):
    with pytest.raises(UsageError, match=said) as caught:
        read_fact(name, written)
    assert str(caught.value).startswith(name)
    assert "\n" not in str(caught.value)


def test_every_unit_of_the_schema_can_be_written():
    assert set(UNITS) == UNIT_SUFFIXES
    assert unit_suffix("queue_growth_per_s") == "per_s"


@given(st.floats(0, 1e9), st.sampled_from(sorted(UNITS)))
def test_a_number_reads_back(number, unit):
    written = f"{number!r} {next(u for u, f in UNITS[unit].items() if f == 1.0 and u) if unit == 's' else ''}"
    if unit == "ns":
        written = f"{number!r} ns"
    found = read_fact(f"some_{unit}", written)
    assert math.isclose(found.value or 0.0, number, rel_tol=1e-12)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text):
    try:
        found = read_fact("gpu_sm_ratio", text)
    except UsageError:
        return
    assert found.low is None or found.high is None or found.low <= found.high


def test_words_are_shares_in_order():
    assert all(0 <= low < high <= 1 for low, high in WORDS.values())
