"""The table of what people call figures: which signal a key and its value are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from whybound.collector.fact_values import read_fact, unit_suffix
from whybound.errors import UsageError

_STATS = {
    "median": "p50", "p50": "p50", "p95": "p95", "p99": "p99", "p10": "p10", "mean": "mean", "avg": "mean",
    "max": "max", "worst": "max", "peak": "max",
}  # fmt: skip
_NUMBER = re.compile(r"(?:about|~|near|≈)?\s*(-?\d[\d,]*(?:\.\d+)?)\s*([kK%]?)")
_OF = re.compile(r"([\d.]+)(?:\s*-\s*([\d.]+))? of ([\d.]+)(?:\s*-\s*([\d.]+))?(?:\s+samples)?$")
_ALMOST = re.compile(r"(?:near|about|~|≈|almost)\s*(\d+(?:\.\d+)?)\s*(%?)$")


class Known(NamedTuple):
    """One row of the table that a key matched."""

    signal: str
    setting: str
    unit: str
    as_: str
    take: str
    scale: float
    mode: str
    none: str
    over: str
    log: bool


@cache
def table() -> dict[str, Any]:
    """The table, as it is written."""
    return yaml.safe_load(Path(__file__).with_name("case_keys.yaml").read_text())  # type: ignore[no-any-return]


def tokens(path: Sequence[str]) -> list[str]:
    """The words of a path, in lower case."""
    return [t for part in path for t in re.split(r"[^a-z0-9.]+", part.lower()) if t]


def find(path: Sequence[str], section: str) -> Known | None:
    """The row that a path matches; None when there is none."""
    written = ".".join(path).lower()
    for row in table()[section]:
        if re.search(row["key"], written):
            stat = next((_STATS[t] for t in reversed(tokens(path)) if t in _STATS), "mean")
            return Known(
                row.get("signal", "").format(stat=stat), row.get("setting", ""), row.get("unit", ""),
                row.get("as", ""), row.get("take", ""), row.get("scale", 1.0), row.get("mode", ""),
                row.get("none", ""), row.get("over", ""), row.get("log", False),
            )  # fmt: skip
    return None


def number(value: Any) -> float | None:
    """The number that a value begins with: `about 2`, `~40`, `4K`."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    found = _NUMBER.match(str(value).strip())
    if not found:
        return None
    return float(found[1].replace(",", "")) * (1000 if found[2] in ("k", "K") else 1)


def written(row: Known, path: Sequence[str], value: Any) -> str | None:
    """A value as a file of facts has it, in the unit of its signal; None when it cannot be told."""
    if row.as_ == "text":
        found = re.search(row.take, str(value).split("->")[0])
        return found[1] if found else None
    if row.as_ == "zero":
        return "0" if number(value) == 0 else None
    if row.as_ in ("inverse", "complement"):
        plain = number(value)
        if not plain:
            return None
        return f"{1 / plain:.6g} {row.unit}" if row.as_ == "inverse" else f"{1 - plain:.4g}"
    text = _plain(value)
    if not text:
        return None
    kind = unit_suffix(row.signal)
    if kind == "ratio" and (found := _OF.match(text)):
        shares = [
            float(a) / float(b) for a, b in ((found[1], found[3]), (found[2], found[4])) if a and b
        ]
        return "..".join(f"{min(1.0, s):.4g}" for s in sorted(shares))
    unit = _unit(path) or row.unit
    if kind == "ratio" and (found := _ALMOST.match(text)) and float(found[1]) > 90:
        return f"{0.9 * float(found[1]):g}-100 %"
    with_unit = [f"{text} {unit}"] if unit and re.search(r"\d$", text) else []
    for candidate in (*with_unit, text):
        try:
            read_fact(row.signal, candidate)
        except UsageError:
            continue
        return candidate
    return None


def _unit(path: Sequence[str]) -> str:
    """The unit that a path tells: the last word that is one."""
    units = table()["units"]
    return next((units[t] for t in reversed(tokens(path)) if t in units), "")


def _plain(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return ""
    if isinstance(value, list):
        plain = [v for v in map(number, value) if v is not None]
        if len(plain) < len(value) or not plain:
            return ""
        return (
            f"{min(plain):.10g}..{max(plain):.10g}"
            if min(plain) < max(plain)
            else f"{plain[0]:.10g}"
        )
    text = re.sub(r"\s*\([^)]*\)", "", str(value)).split("->")[0].strip()
    return re.sub(r"^near\b", "about", text)
