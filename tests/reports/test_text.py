from __future__ import annotations

import re

import pytest
from rich.cells import cell_len

from whybound.reports import text
from whybound.rules.model import Verdict

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def plain(diagnosis, width: int | None = 100, **more) -> str:
    return text.render(diagnosis, width=width, color=False, **more)


@pytest.mark.parametrize("width", [20, 40, 80, 100, 160])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_nothing_is_wider_than_the_terminal_but_the_command_to_paste(
    any_diagnosis, width, ascii_only
):
    out = plain(any_diagnosis, width, ascii_only=ascii_only)
    command = any_diagnosis.next_measurement and any_diagnosis.next_measurement.command
    assert [line for line in out.splitlines() if cell_len(line) > width and line != command] == []


def test_it_fits_one_screen(any_diagnosis):
    assert plain(any_diagnosis).count("\n") <= 45


def test_without_a_width_it_is_made_for_100_columns(scheduling):
    assert plain(scheduling, None) == plain(scheduling, 100)


def test_the_verdict_is_first_and_the_command_last(scheduling):
    out = plain(scheduling)
    order = [
        "Bound by scheduling: batch cap.",
        "Target p95 e2e < 2 s: 3.41 s (3.27 to 3.58)",
        "slots are used",
        "Time budget",
        "Phases, mean",
        "What to change first",
        "Prechecks",
        "Not measured",
        "Scorecard",
        "Next measurement",
    ]
    places = [out.index(words) for words in order]
    assert places == sorted(places)
    assert out.splitlines()[-1] == scheduling.next_measurement.command
    assert "confidence 86 % by gain vector and rules" in out
    assert "threshold 2.00 s: missed" in out


def test_what_speaks_for_the_class_comes_before_what_does_not(scheduling):
    out = plain(scheduling)
    assert out.index("16 of 16 slots") < out.index("Offered load is 96 %")


def test_the_emulated_engine_is_named(scheduling, withheld):
    assert "[emulated engine]" in plain(scheduling)
    assert "emulated" not in plain(withheld)


def test_a_lever_shows_gain_interval_measured_gain_and_the_flag_of_the_engine(scheduling):
    line, below = plain(scheduling).split("1  Raise the batch cap")[1].splitlines()[:2]
    assert "+62 % (+44 to +79 %)" in line
    assert line.endswith("--max-num-seqs 64")
    assert "measured +55 % (+49 to +61 %)" in below
    assert "--max-running-requests" not in plain(scheduling)


def test_what_does_not_help_stands_apart(scheduling):
    out = plain(scheduling)
    assert "Will not help: Smaller prefill chunks (prefill is 10 % of the time)" in out
    assert "Check first: Speculative decoding" in out
    assert not re.search(r"^\d +Smaller prefill", out, re.MULTILINE)


def test_a_flag_of_another_engine_names_it(abstained):
    assert "vllm: drop --enforce-eager" in plain(abstained)


def test_an_abstention_names_the_candidates_and_small_levers(abstained):
    out = plain(abstained)
    assert "ABSTAINS  Cannot tell between memory, compute and launch." in out
    assert "The best lever gives +6 %: look for a bigger lever." in out
    assert "bigger lever" not in plain(abstained.__class__(**{**_fields(abstained), "levers": []}))


def _fields(diagnosis):
    return {name: getattr(diagnosis, name) for name in diagnosis.__struct_fields__}


def test_a_withheld_verdict_says_why_and_how_to_mend_it(withheld):
    out = plain(withheld)
    assert "WITHHELD" in out
    assert "The load generator was late: p99 lag 310 ms" in out
    assert "run the load from another machine" in out
    assert "These gains rest on the unsound measurement" in out
    assert "Bound by" not in out


def test_silence_is_not_health(empty):
    out = plain(empty)
    assert "NO DATA  Cannot tell: nothing was measured." in out
    assert "Target mean e2e: not measured" in out
    assert "Prechecks: none was run" in out
    assert "level 1 requests, level 2 timeline, level 3 kernels" in out
    assert "No action" not in out
    assert "0 ms" not in out


def test_no_action_needs_something_measured(scheduling):
    scheduling.verdict = Verdict(class_=None, confidence=0.8, gain_vector={"flops_x2": 1.02})
    assert "NO ACTION  No single change would help enough." in plain(scheduling)


def test_low_confidence_is_named(scheduling):
    scheduling.verdict.confidence = 0.69
    assert "NOT CONFIDENT  Bound by scheduling" in plain(scheduling)


def test_the_bar_is_as_long_as_the_terminal_and_differs_by_class(scheduling):
    bar = next(line for line in plain(scheduling).splitlines() if "▚▚▚" in line)
    assert len(bar) == 100
    assert bar.count("▚") == pytest.approx(52, abs=1)
    assert {"█", "▓", "▞", "▒"} <= set(bar)
    assert "3▚  Waiting for a slot" in plain(scheduling)


def test_colour_adds_nothing_but_colour(any_diagnosis):
    coloured = text.render(any_diagnosis, width=100, color=True)
    assert ANSI.search(coloured)
    bare = "\n".join(line.rstrip() for line in ANSI.sub("", coloured).splitlines()) + "\n"
    assert bare == plain(any_diagnosis)
    assert "\x1b" not in plain(any_diagnosis)


def test_colour_does_not_depend_on_the_environment(scheduling, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in plain(scheduling)
    monkeypatch.setenv("NO_COLOR", "1")
    assert ANSI.search(text.render(scheduling, width=100, color=True))


def test_a_terminal_without_utf8_gets_ascii(any_diagnosis):
    any_diagnosis.target.text = "p95 µ → 模型 ≤ 2"
    out = plain(any_diagnosis, ascii_only=True)
    assert out.isascii()
    assert "p95 u -> \\u6a21\\u578b <= 2" in out


def test_names_cannot_drive_the_terminal_or_the_markup(scheduling):
    scheduling.findings[2].says = "\x1b]0;owned\x07 [bold]x[/bold] :smile:"
    scheduling.next_measurement.command = "profile run\n\x1b[2J -- x"
    out = plain(scheduling)
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "[bold]x[/bold] :smile:" in out
    assert out.splitlines()[-1] == "profile run \ufffd[2J -- x"
