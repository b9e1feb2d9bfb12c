from __future__ import annotations

import pytest

from whybound.reports import wording as w


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 ms"),
        (0.0000123, "0.0123 ms"),
        (0.01234, "12.3 ms"),
        (0.4126, "413 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.00 s"),
        (3.412, "3.41 s"),
        (123.4, "123 s"),
        (-0.004, "−4.00 ms"),
        (None, "not measured"),
        (float("inf"), "unbounded s"),
    ],
)
def test_seconds_have_three_significant_figures(value, text):
    assert w.seconds(value) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (1.0, "0 %"),
        (1.25, "+25 %"),
        (0.9, "−10 %"),
        (1.034, "+3.4 %"),
        (0.9999, "0 %"),
        (2.0, "+100 %"),
        (15.1, "×15.1"),
        (float("inf"), "unbounded"),
    ],
)
def test_a_gain_is_a_signed_percentage(ratio, text):
    assert w.gain(ratio) == text


def test_a_gain_interval_names_the_unit_once():
    assert w.gain_interval(0.95, 1.33) == "−5 to +33 %"
    assert w.gain_interval(1.42, 4.1) == "+42 % to ×4.10"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0 %"), (0.0002, "<0.1 %"), (0.004, "0.4 %"), (0.51, "51 %"), (1, "100 %")],
)
def test_a_small_share_is_not_shown_as_nothing(value, text):
    assert w.share(value) == text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((0.412, "s", 0.39, 1.437), "412 ms (390 to 1,440)"),
        ((3.2, "per_s"), "3.20/s (no interval)"),
        ((131072, "tokens", None, 140000.0), "131,072 tokens (? to 140,000)"),
        ((42.31, "count", 38.8, 45.9), "42.3 (38.8 to 45.9)"),
        ((1.5e9, "bytes"), "1.50 GB (no interval)"),
        (("open", ""), "open"),
        ((None, "ratio"), "not measured"),
        ((5e8, "ns", 4e8, 6e8), "500 ms (400 to 600)"),
    ],
)
def test_a_value_stands_with_its_unit_and_its_interval(arguments, text):
    assert w.measured(*arguments) == text


def test_nothing_invisible_gets_through():
    assert w.clean("a\x1b[31mb\x00\u202ec\n\td") == "a\ufffd[31mb\ufffd\ufffdc d"
    assert w.clean("sh -c 'a  b'") == "sh -c 'a  b'"
    assert w.clean_lines("SELECT 1\n  FROM t\x07\n") == "SELECT 1\n  FROM t\ufffd"


def test_a_signal_is_named_without_the_unit_that_stands_beside_it():
    assert w.signal_words("output_tokens_per_s") == "output"
    assert w.signal_words("server_queue_mean_s") == "server queue mean"
    assert w.signal_words("load_mode") == "load mode"


def test_free_form_documents_become_one_line():
    assert (
        w.flat({"a_b": {"c": [1, 2.5], "d": None}, "e": True})
        == "a b c 1, 2.500 · d not measured · e yes"
    )
