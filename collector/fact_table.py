"""The table of what people call a figure (fact_names.yaml), and the row that a name is of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from .fact_figures import has_time, unit_word

STATISTICS = {
    "median": "p50", "p50": "p50", "p95": "p95", "p99": "p99", "p10": "p10", "mean": "mean", "avg": "mean",
    "max": "max", "worst": "max", "peak": "max",
}  # fmt: skip
"""Words of a name → the statistic in a signal's name."""
_A_RATE = re.compile(
    r"((?<!per_)tok(en)?s?|req(uest)?s?|[gmk]i?b|(images|pages|frames|chunks|steps|iters|cores?|seqs))"
    r"_(per_)?s(ec(ond)?)?(?![a-z])"
)
_STATISTIC = re.compile(
    r"_(?:mean|avg|average|median|p50)(?=_|$)|^(?:mean|avg|average|median|p50)_(?=\w)",
    re.IGNORECASE,
)
_TIME_UNITS = frozenset(("ns", "us", "ms", "s", "sec", "seconds", "min", "minutes"))


class Row(NamedTuple):
    """What a name stands for: a signal, the unit of its number and how its value is read, or why there is none."""

    signal: str = ""
    unit: str = ""
    as_: str = ""
    none: str = ""


@cache
def table() -> Mapping[str, Any]:
    """The table, as it is written: `units`, `elsewhere`, and rows of `load` and `measured`."""
    text = Path(__file__).with_name("fact_names.yaml").read_text(encoding="utf-8")
    return yaml.safe_load(text)  # type: ignore[no-any-return]


def find(
    path: Sequence[str],
    rows: Iterable[Mapping[str, Any]],
    value: Any = None,
    by_unit: bool = True,
) -> Mapping[str, Any] | None:
    """The first row that a name is of; None when there is none.

    Args:
        path: the keys, from the outermost.
        rows: as the table has them.
        value: of the figure; one that bears a unit of time is a time.
        by_unit: where no row is found, look for the name with the value's unit behind it.

    A name that no row knows is looked up again without words for a mean or a median.
    """
    dotted = ".".join(path).lower()
    timed = is_time(dotted) or (isinstance(value, str) and has_time(value))
    for row in rows:
        if (row.get("time") and not timed) or ("not" in row and re.search(row["not"], dotted)):
            continue
        if re.search(row["key"], dotted):
            return row
    if (
        by_unit
        and isinstance(value, str)
        and (unit := unit_word(value))
        and not dotted.endswith(f"_{unit}")
    ):
        return find([*path[:-1], f"{path[-1]}_{unit}"], rows)
    plain = [_STATISTIC.sub("", part) for part in path]
    return find(plain, rows, value, by_unit) if plain != list(path) else None


def row_of(found: Mapping[str, Any], path: Sequence[str]) -> Row:
    """A row, its signal with the statistic that the name tells."""
    return Row(
        found.get("signal", "").format(stat=statistic(path)), found.get("unit", ""), found.get("as", ""),
        found.get("none", ""),
    )  # fmt: skip


def statistic(path: Iterable[str]) -> str:
    """The statistic that a name tells last, as signals have it; mean where it tells none."""
    return next((STATISTICS[t] for t in reversed(tokens(path)) if t in STATISTICS), "mean")


def tokens(path: Iterable[str]) -> list[str]:
    """The words of a path, in lower case."""
    return [t for part in path for t in re.split(r"[^a-z0-9.]+", part.lower()) if t]


def is_time(dotted: str) -> bool:
    """Does a key tell a unit of time that is not that of a rate?"""
    return bool(set(re.split(r"[^a-z0-9]+", _A_RATE.sub("", dotted.lower()))) & _TIME_UNITS)


def unit_of(path: Sequence[str]) -> str:
    """The unit that a path tells: the last word that is one; "" without."""
    units: Mapping[str, str] = table()["units"]
    return next((units[t] for t in reversed(tokens(path)) if t in units), "")
