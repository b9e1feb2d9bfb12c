"""Values of a load's keys, read from text; each raises ValueError that says what it must be."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

SLO_METRICS = ("ttft", "itl", "tpot", "e2e")

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


def number(text: str, low: float, open_end: bool) -> float:
    """A finite number, at least (or, `open_end`, above) `low`."""
    value = float(text)
    if not math.isfinite(value) or value < low or (open_end and value == low):
        raise ValueError(f"must be {'above' if open_end else 'at least'} {low:g}")
    return value


def positive(text: str) -> float:
    """A number above 0."""
    return number(text, 0.0, True)


def count(text: str) -> int:
    """A whole number, at least 1."""
    if not re.fullmatch(r"\d+", text) or int(text) < 1:
        raise ValueError("must be a whole number, at least 1")
    return int(text)


def whole(text: str) -> int:
    """A whole number, at least 0."""
    if not re.fullmatch(r"\d+", text):
        raise ValueError("must be a whole number, at least 0")
    return int(text)


def vocab(text: str) -> int:
    """A vocabulary size."""
    if whole(text) < 5:
        raise ValueError("must be at least 5: ids 0 to 2 are kept for special tokens")
    return int(text)


def seconds(text: str) -> float:
    """A time in seconds, from `90s`, `500ms`, `2m`, `1h` or a plain number."""
    match = re.fullmatch(r"([0-9.]+)\s*(ms|s|m|h|)", text)
    if match is None:
        raise ValueError("must be a time such as 90s, 500ms, 2m or 1h")
    return float(match[1]) * _UNITS[match[2]]


def some_seconds(text: str) -> float:
    """A time above 0, in seconds."""
    if seconds(text) <= 0:
        raise ValueError("must be above 0")
    return seconds(text)


def one_of(*choices: str) -> Callable[[str], str]:
    """A parser that takes one of `choices` as it stands."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be {', '.join(choices[:-1])} or {choices[-1]}")
        return text

    return parse


def flag(text: str) -> bool:
    """`true` or `false`."""
    return one_of("true", "false")(text) == "true"


def slo_limits(text: str) -> tuple[tuple[str, float], ...]:
    """Limits for goodput, from `ttft:0.5;itl:0.05` (seconds)."""
    limits = []
    for part in text.split(";"):
        metric, colon, limit = part.partition(":")
        if not colon or metric not in SLO_METRICS:
            raise ValueError(f"must be like ttft:0.5;itl:0.05, of {', '.join(SLO_METRICS)}")
        limits.append((metric, some_seconds(limit)))
    return tuple(limits)
