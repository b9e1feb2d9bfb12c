"""What people call figures in a report: the product's table, and what some of its rows are in a report."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from whybound.collector import fact_forms, fact_table
from whybound.collector.fact_figures import number, ranged, span
from whybound.collector.fact_table import Row, is_time, statistic, tokens, unit_of

__all__ = [
    "VERSUS",
    "Known",
    "find",
    "is_time",
    "number",
    "ranged",
    "span",
    "table",
    "tokens",
    "unit_of",
    "written",
]

_SECTIONS = {"workload": "load", "evidence": "measured"}


class Known(NamedTuple):
    """One row of the table that a key matched."""

    signal: str
    setting: str
    unit: str
    as_: str
    scale: float
    mode: str
    none: str
    over: str
    log: bool
    order: int
    part: bool
    also: dict[str, str]
    run: str
    second: str
    states: bool
    beside: bool
    words: bool


@cache
def table() -> dict[str, Any]:
    """The table of reports, as it is written; `after` with the words of the product's `elsewhere`."""
    own = yaml.safe_load(Path(__file__).with_name("case_keys.yaml").read_text())
    return own | {"after": [*fact_table.table()["elsewhere"], *own["after"]]}


@cache
def _rows(section: str) -> list[Mapping[str, Any]]:
    """The rows of the product in their order, as they are in a report, with those of reports alone."""
    own, more = table()["rows"], table()[section]
    rows: list[Mapping[str, Any]] = []
    for row in fact_table.table()[section]:
        of = row.get("id", "")
        rows += [r for r in more if of and r.get("ahead") == of]
        meant = own.get(of, {})
        told = {"signal", "setting", "log", "states"} & set(meant)
        rows.append({k: v for k, v in row.items() if not (told and k == "none")} | meant)
    return rows + [r for r in more if "ahead" not in r]


_ARM = re.compile(
    r"bad|good|before|after|slow|fast|broken|healthy|stock|patched|old|new|on|off|now|default|current"
    r"|(?:c|bs|conc|batch|ctx|x|n)?_?\d+k?|\w+_(?:on|off)|(?:with|without|no)_\w+", re.IGNORECASE,
)  # fmt: skip
"""A key that says which side or point of a sweep a figure is of, and nothing of what it is."""
VERSUS = re.compile(r"(\w+?)_(?:vs|versus|over|against)_(\w+)$", re.IGNORECASE)
"""Two systems in one key: `A_vs_B`."""


def find(path: Sequence[str], section: str, about: str = "", value: Any = None) -> Known | None:
    """The row that a path matches; None when there is none.

    Args:
        path: the keys, from the outermost.
        section: workload or evidence.
        about: what the report is about (engine, arguments), for rows that need to know it.
        value: of the figure; one that bears a unit of time is a time.
    """
    bare = [p for p in path if not VERSUS.search(p)]
    if 0 < len(bare) < len(path) and (row := find(bare, section, about, value)):
        return row
    rows = _rows(_SECTIONS[section])
    those = [r for r in rows if "about" not in r or re.search(r["about"], about, re.IGNORECASE)]
    found = fact_table.find(path, those, value)
    if found is None and 0 < len(named := [p for p in path if not _ARM.fullmatch(p)]) < len(path):
        found = fact_table.find(named, those, value)
    if found is None:
        return None
    return Known(
        found.get("signal", "").format(stat=statistic(path)), found.get("setting", ""), found.get("unit", ""),
        found.get("as", ""), found.get("scale", 1.0), found.get("mode", ""), found.get("none", ""),
        found.get("over", ""), found.get("log", False), found.get("order", 0), found.get("part", False),
        found.get("also", {}), found.get("run", ""), found.get("second", ""), found.get("states", False),
        found.get("beside", False), found.get("words", False),
    )  # fmt: skip


def written(row: Known, path: Sequence[str], value: Any) -> str | None:
    """A value as a file of facts has it, in the unit of its signal; None when it cannot be told."""
    if row.as_ in ("of_input", "accepted"):  # what they need stands beside
        return None
    if row.as_ == "absent":
        return "0" if re.search("preempt", str(value).lower()) else None
    return fact_forms.written(Row(row.signal, row.unit, row.as_), path, value)
