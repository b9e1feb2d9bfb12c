"""The table of what people call figures: which signal a key and its value are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from case_values import ends_of, figure, has_time, unit_word
from case_words import (
    cores,
    exceeds,
    flag,
    found_none,
    link_path,
    on_host,
    rate,
    share,
    stack_kind,
    times,
)

from whybound.collector.fact_values import read_fact, unit_suffix
from whybound.errors import UsageError

_STATS = {
    "median": "p50", "p50": "p50", "p95": "p95", "p99": "p99", "p10": "p10", "mean": "mean", "avg": "mean",
    "max": "max", "worst": "max", "peak": "max",
}  # fmt: skip
_NUMBER = re.compile(
    r"(?:(?:about|~|near(?:ly)?|≈|almost|around|roughly|mostly|approx\.?|ca\.?|over|under"
    r"|up to|at least|[<>]=?)\s*)?"
    r"(-?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d{1,3})?)\s*([kK](?![a-zA-Z])|%)?"
)
_OF = re.compile(r"([\d.]+)(?:\s*-\s*([\d.]+))? of ([\d.]+)(?:\s*-\s*([\d.]+))?(?:\s+samples)?$")
_ALMOST = re.compile(r"(?:near|about|~|≈|almost)\s*(\d+(?:\.\d+)?)\s*(%?)$")
_A_RATE = re.compile(
    r"((?<!per_)tok(en)?s?|req(uest)?s?|[gmk]i?b|(images|pages|frames|chunks|steps|iters|cores?|seqs))"
    r"_(per_)?s(ec(ond)?)?(?![a-z])"
)
_SHARES = re.compile(
    r"gpu_\w+_ratio|kv_used|prefix_hit|speculation_accepted|failed|cpu_periods|collective_share|host_cpu|graph_replayed"
)
"""Signals that are no more than 1: a larger number without a unit is percent."""
_TIME_UNITS = frozenset(("ns", "us", "ms", "s", "sec", "seconds", "min", "minutes"))
_BANDWIDTH = re.compile(
    r"(?<![a-zA-Z])(?P<size>[GMTgmt])i?(?P<b>[Bb])(?P<bit>its?)?(?P<per>ps|_per_s|_s|/s)(?![a-zA-Z])"
)


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


@cache
def table() -> dict[str, Any]:
    """The table, as it is written."""
    return yaml.safe_load(Path(__file__).with_name("case_keys.yaml").read_text())  # type: ignore[no-any-return]


def tokens(path: Iterable[str]) -> list[str]:
    """The words of a path, in lower case."""
    return [t for part in path for t in re.split(r"[^a-z0-9.]+", part.lower()) if t]


VERSUS = re.compile(r"(\w+?)_(?:vs|versus|over|against)_(\w+)$", re.IGNORECASE)
"""Two systems in one key: `A_vs_B`."""


def find(path: Sequence[str], section: str, about: str = "", value: Any = None) -> Known | None:
    """The row that a path matches; None when there is none.

    Args:
        path: the keys, from the outermost.
        section: of the table.
        about: what the report is about (engine, arguments), for rows that need to know it.
        value: of the figure; one that bears a unit of time is a time.
    """
    bare = [p for p in path if not VERSUS.search(p)]
    if 0 < len(bare) < len(path) and (row := find(bare, section, about, value)):
        return row
    dotted = ".".join(path).lower()
    timed = is_time(dotted) or (isinstance(value, str) and has_time(value))
    for row in table()[section]:
        if (row.get("time") and not timed) or ("not" in row and re.search(row["not"], dotted)):
            continue
        if "about" in row and not re.search(row["about"], about, re.IGNORECASE):
            continue
        if re.search(row["key"], dotted):
            stat = next((_STATS[t] for t in reversed(tokens(path)) if t in _STATS), "mean")
            return Known(
                row.get("signal", "").format(stat=stat), row.get("setting", ""), row.get("unit", ""),
                row.get("as", ""), row.get("scale", 1.0), row.get("mode", ""), row.get("none", ""),
                row.get("over", ""), row.get("log", False), row.get("order", 0), row.get("part", False),
                row.get("also", {}), row.get("run", ""), row.get("second", ""), row.get("states", False),
                row.get("beside", False),
            )  # fmt: skip
    if isinstance(value, str) and (unit := unit_word(value)) and not dotted.endswith(f"_{unit}"):
        return find([*path[:-1], f"{path[-1]}_{unit}"], section, about)
    return None


def is_time(dotted: str) -> bool:
    """Does a key tell a unit of time that is not that of a rate?"""
    return bool(set(re.split(r"[^a-z0-9]+", _A_RATE.sub("", dotted.lower()))) & _TIME_UNITS)


def number(value: Any) -> float | None:
    """The number that a value begins with: `about 2`, `~40`, `4K`."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    found = _NUMBER.match(str(value).strip())
    if not found:
        return None
    return float(found[1].replace(",", "")) * (
        1000 if (found[2] or "") in ("k", "K") and found[2] else 1
    )


def span(value: Any) -> tuple[float, float] | None:
    """The least and the greatest of a figure, a pair or a list; None unless all are numbers."""
    if isinstance(value, str):
        one = number(value)
        return ends_of(value) or (None if one is None else (one, one))
    each = [span(v) if isinstance(v, str) else (number(v),) * 2 for v in _listed(value)]
    known = [e for ends in each if ends for e in ends if e is not None]
    return (min(known), max(known)) if known and len(known) == 2 * len(each) else None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def ranged(low: float, high: float) -> str:
    """A range as a file of facts has it; one figure where the ends are one."""
    return f"{low:.4g}" if low == high else f"{low:.4g}..{high:.4g}"


def written(row: Known, path: Sequence[str], value: Any) -> str | None:
    """A value as a file of facts has it, in the unit of its signal; None when it cannot be told."""
    if row.as_:
        return _AS[row.as_](row, path, value)
    kind = unit_suffix(row.signal)
    text = _plain(value) if kind else _uncommented(value)
    if not text:
        return None
    if kind == "ratio" and (found := _OF.match(_uncommented(value))):
        shares = [
            float(a) / float(b) for a, b in ((found[1], found[3]), (found[2], found[4])) if a and b
        ]
        return "..".join(f"{min(1.0, s):.4g}" for s in sorted(shares))
    unit = _unit(path) or row.unit
    if not unit and _SHARES.match(row.signal) and (ends := span(value)) and max(ends) > 1:
        unit = "%"
    if kind == "ratio" and (found := _ALMOST.match(text)) and float(found[1]) > 90:
        return f"{0.9 * float(found[1]):g}-100 %"
    with_unit = [f"{text} {unit}"] if unit and re.search(r"\d$", text) else []
    in_words = [w] if kind == "ratio" and (w := share(text) or share(str(value))) else []
    for candidate in (*with_unit, text, *in_words):
        try:
            read_fact(row.signal, candidate)
        except UsageError:
            continue
        return candidate
    return None


def _zero(row: Known, path: Sequence[str], value: Any) -> str | None:
    """Of nothing the share is 0; of yes or no, and of shares, it is what is said."""
    if number(value) == 0:
        return "0"
    if isinstance(value, bool) or not re.search(r"\d", str(value)):
        told = flag(value)
        return None if told is None else str(int(told))
    is_share = "%" in str(value) or _OF.match(str(value)) or {"pct", "ratio"} & set(tokens(path))
    return written(row._replace(as_=""), path, value) if is_share else None


def _turned(row: Known, path: Sequence[str], value: Any) -> str | None:
    ends = span(value)
    if not ends or min(ends) <= 0:
        return None
    scale = {"ms": 1e3, "us": 1e6}.get(_unit(path), 1.0) if is_time(".".join(path)) else 1.0
    low, high = (scale / ends[1], scale / ends[0])
    text = f"{low:.6g}" if low == high else f"{low:.6g}..{high:.6g}"
    return f"{text} {row.unit}".strip()


def _rest(row: Known, path: Sequence[str], value: Any) -> str | None:
    plain = number(value)
    if plain is None:
        return None
    percent = "%" in str(value) or {"pct", "percent"} & set(tokens(path))
    return f"{1 - plain / (100 if percent else 1):.4g}"


def _inverse_share(row: Known, path: Sequence[str], value: Any) -> str | None:
    """A share of what is possible → how many times as long it takes."""
    if isinstance(value, str) and (found := times(value)):
        return found
    ends = span(value)
    if not ends or min(ends) <= 0:
        return None
    percent = max(ends) > 1.5
    low, high = ((100 if percent else 1) / x for x in reversed(ends))
    return ranged(low, high)


def _count(row: Known, path: Sequence[str], value: Any) -> str | None:
    """A number, or how many there are in a list of names; what was seen at all is at least one."""
    if isinstance(value, list) and value and not all(number(v) is not None for v in value):
        return str(len(value))
    if (text := _plain(value)) and re.fullmatch(r"[\d.,<>=~ ]+", text):
        return text
    if isinstance(value, str) and (plain := number(value)) is not None:
        return f"{plain:g}"
    return ">= 1" if flag(value) or (isinstance(value, str) and value.strip()) else None


def _largest(row: Known, path: Sequence[str], value: Any) -> str | None:
    found = re.findall(r"\d+", str(value))
    return str(max(map(int, found))) if found else None


def _bandwidth(row: Known, path: Sequence[str], value: Any) -> str | None:
    """Bytes a second; a small b in a key or a value is a bit."""
    text = _plain(value)
    unit = _BANDWIDTH.search(str(value)) or next(
        (m for part in reversed(path) if (m := _BANDWIDTH.search(part.replace("/", "_")))), None
    )
    low_high = re.findall(r"\d+(?:\.\d+)?", str(value if isinstance(value, list) else text))
    if unit is None or not low_high:
        return None
    bits = unit["bit"] or (unit["b"] == "b" and (unit["size"].isupper() or unit["per"] == "ps"))
    scale = {"g": 1.0, "m": 1e-3, "t": 1e3}[unit["size"].lower()] / (8 if bits else 1)
    ends = [float(n) * scale for n in low_high]
    return f"{ranged(min(ends), max(ends))} GB/s"


def _process(row: Known, path: Sequence[str], value: Any) -> str | None:
    """Of one process, where 100 % is a core: a number above 8 without a unit is percent."""
    if isinstance(value, str) and (number(value) is None or re.search(r"[a-z]{2}", value)):
        return share(value)
    text, ends = _plain(value), span(value)
    if not text or ends is None:
        return None
    percent = "%" in text or {"pct", "percent"} & set(tokens(path)) or max(ends) > 8
    return f"{text.replace('%', '').strip()} {'%' if percent else ''}".strip()


def _images(row: Known, path: Sequence[str], value: Any) -> str | None:
    """How many images a request has: a count, or one where the words tell none."""
    if isinstance(value, list):
        return str(len(value)) if value else None
    if isinstance(value, str) and not (found := re.match(r"(\d+)(?: (?!x)[a-z]|$)", value)):
        return "1" if value.strip().lower() not in ("none", "no", "0") else "0"
    plain = number(found[1] if isinstance(value, str) and found else value)
    return None if plain is None else f"{plain:g}"


def _least(row: Known, path: Sequence[str], value: Any) -> str | None:
    plain = number(value)
    return f">= {plain:g}" if plain and plain > 1 else None


def _absent(row: Known, path: Sequence[str], value: Any) -> str | None:
    return "0" if re.search("preempt", str(value).lower()) else None


_AS = {
    "zero": _zero,
    "inverse": _turned,
    "complement": _rest,
    "inverse_share": _inverse_share,
    "count": _count,
    "largest": _largest,
    "bandwidth": _bandwidth,
    "stack": lambda _row, _path, value: stack_kind(value),
    "link": lambda _row, _path, value: link_path(str(value)),
    "times": lambda _row, _path, value: times(str(value)),
    "process": _process,
    "images": _images,
    "least": _least,
    "of_input": lambda _row, _path, value: None,  # a ratio that needs the input beside it
    "absent": _absent,
    "words": lambda _row, _path, value: found_none(value),
    "on_host": lambda _row, _path, value: on_host(value),
    "exceeds": lambda _row, _path, value: exceeds(str(value)),
    "accepted": lambda _row, _path, value: None,  # a share that needs the tokens drafted a step
    "cores": lambda _row, _path, value: cores(str(value)),
    "rate": lambda _row, _path, value: rate(str(value)),
    "plain_ratio": lambda _row, _path, value: ranged(*ends) if (ends := span(value)) else None,
    "not_flag": lambda _row, _path, value: {True: "0", False: "1"}.get(flag(value)),  # type: ignore[arg-type]
    "on_off": lambda _row, _path, value: {True: "on", False: "off"}.get(flag(value)),  # type: ignore[arg-type]
    "share": lambda _row, _path, value: share(str(value)),
}


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
    return figure(str(value))


def _uncommented(value: Any) -> str:
    """A text without what stands in brackets, and without what comes after."""
    text = re.sub(r"\s*\([^)]*\)", "", str(value)).split("->")[0].strip()
    return "" if isinstance(value, bool) or value is None else text
