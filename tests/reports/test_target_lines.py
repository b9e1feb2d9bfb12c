"""The target's threshold and its guards, on the terminal and on the page."""

from __future__ import annotations

import html
import re
from typing import Any

from whybound.reports import outline, page, text
from whybound.rules.model import GuardResult, Target

MET = GuardResult(text="mean ttft < 1s", unit="s", value=0.412, low=0.39, high=0.437, met=True)
BROKEN = GuardResult(text="p95 ttft < 500ms", unit="s", value=0.71, low=0.65, high=0.78, met=False)
UNKNOWN = GuardResult(text="mmlu drop < 0.5", unit="", why="not measured")
HALF = GuardResult(
    text="p99 itl < 1s", unit="s", value=0.2, why="cannot tell yet: 50 samples give no interval"
)


def target(**fields: Any) -> Target:
    given = {"threshold": 0.03, **fields}
    return Target(metric="itl", statistic="p95", text="p95 itl < 30ms", unit="s", **given)


def test_a_guard_in_one_line() -> None:
    assert outline.guard_line(MET) == "mean ttft < 1s: 412 ms (390 to 437), met"
    assert outline.guard_line(BROKEN) == "p95 ttft < 500ms: 710 ms (650 to 780), broken"
    assert outline.guard_line(UNKNOWN) == "mmlu drop < 0.5: not measured"
    assert outline.guard_line(HALF) == (
        "p99 itl < 1s: 200 ms (no interval), cannot tell yet: 50 samples give no interval"
    )


def test_why_takes_the_place_of_the_state() -> None:
    assert outline.target_state(target(met=True)) == "threshold 30.0 ms: met"
    assert outline.target_state(target(met=None)) == "threshold 30.0 ms: cannot tell"
    why = "met, but the guard p95 ttft < 500ms is broken"
    assert outline.target_state(target(met=False, why=why)) == f"threshold 30.0 ms: {why}"
    assert outline.target_state(target(threshold=None, why="few")) == "no threshold given"


def test_the_broken_guard_comes_first(scheduling: Any) -> None:
    scheduling.target = target(met=False, guards=[MET, UNKNOWN, BROKEN])
    out = text.render(scheduling, width=100, color=False)
    lines = [line for line in out.splitlines() if line.startswith("Guard ")]
    assert [line.split(":")[0] for line in lines] == [
        "Guard p95 ttft < 500ms", "Guard mmlu drop < 0.5", "Guard mean ttft < 1s",
    ]  # fmt: skip
    seen = html.unescape(re.sub(r"<[^>]+>", "", page.render(scheduling)))
    assert "guard p95 ttft < 500ms: 710 ms (650 to 780), broken" in seen
    assert seen.index("guard p95 ttft") < seen.index("guard mean ttft")


def test_many_guards_do_not_fill_the_screen(scheduling: Any) -> None:
    scheduling.target = target(met=None, guards=[MET] * 5)
    out = text.render(scheduling, width=100, color=False)
    assert out.count("Guard ") == 3
    assert "and 2 guards more, all met" in out
    scheduling.target.guards[0] = UNKNOWN
    assert "and 2 guards more, all met" in text.render(scheduling, width=100, color=False)
    scheduling.target.guards = [UNKNOWN] * 5
    assert "not all met" in text.render(scheduling, width=100, color=False)


def test_a_guard_cannot_drive_the_page(scheduling: Any) -> None:
    scheduling.target = target(guards=[GuardResult(text="<script>x</script>\x1b[2J", unit="s")])
    assert "<script>x" not in page.render(scheduling)
    assert "\x1b" not in text.render(scheduling, width=100, color=False)
