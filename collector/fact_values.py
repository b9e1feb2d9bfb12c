"""A figure as a person writes it, into the unit of the signal that it is of: `60-75 %`, `< 30 ms`, `not high`.

Words are read by one convention, for shares of a whole alone: low is up to 0.3, high from 0.7 on, full from
0.95 on, idle up to 0.05; `not high` is up to 0.7, and so on for the others. `about 60 %` is 10 % around it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from ..errors import UsageError
from .schema import UNIT_SUFFIXES


class FactValue(NamedTuple):
    """A number with its bounds, bounds alone, or a text."""

    value: float | None = None
    text: str | None = None
    low: float | None = None
    high: float | None = None


_NUMBER = r"[+-]?(?:\d[\d,_]*(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d{1,3})?"
_UNIT = r"[^\d\s.,][^\s]{0,30}(?:\s?/\s?\w{1,20})?|"
_ONE = re.compile(
    rf"(?P<about>~|≈|about|around|ca\.?|circa)?\s*(?P<a>{_NUMBER})\s*(?P<unit>{_UNIT})$", re.I
)
_RANGE = re.compile(
    rf"(?:between\s+)?(?P<a>{_NUMBER})\s*(?P<first>{_UNIT})\s*(?:\.\.|–|—|-|to|and)\s*(?P<b>{_NUMBER})\s*(?P<unit>{_UNIT})$",
    re.I,
)
_BOUND = re.compile(
    rf"(?P<op><=?|>=?|≤|≥|under|below|less than|at most|up to|max|over|above|more than|at least|min)\s*"
    rf"(?P<a>{_NUMBER})\s*(?P<unit>{_UNIT})$",
    re.I,
)
_UPPER = frozenset(("<", "<=", "≤", "under", "below", "less than", "at most", "up to", "max"))

WORDS = {
    "idle": (0.0, 0.05),
    "none": (0.0, 0.05),
    "low": (0.0, 0.3),
    "medium": (0.3, 0.7),
    "moderate": (0.3, 0.7),
    "high": (0.7, 1.0),
    "full": (0.95, 1.0),
    "saturated": (0.95, 1.0),
}
"""What a word says of a share: its low and high."""
_NOT = {
    "low": (0.3, 1.0),
    "high": (0.0, 0.7),
    "full": (0.0, 0.95),
    "saturated": (0.0, 0.95),
    "idle": (0.05, 1.0),
}
_NO_SHARE = re.compile(
    r"gain|rho|spread|drift|dispersion|stalled|per_|chunks|skew|_load_|_of_|spill|warmup|first_request|error|transient|speedup|slowdown|_ttft_ratio|output_ratio|process_cpu|_room|_demand|over_floor"
)
_SIGNED = re.compile(r"growth|offset|network")
ABOUT = 0.1

_S = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "seconds": 1.0,
    "min": 60.0,
    "h": 3600.0,
}
_K = {"": 1.0, "k": 1e3, "m": 1e6}
_BYTES = {
    "b": 1.0,
    "kb": 1e3,
    "mb": 1e6,
    "gb": 1e9,
    "tb": 1e12,
    "kib": 2.0**10,
    "mib": 2.0**20,
    "gib": 2.0**30,
    "tib": 2.0**40,
}
UNITS: dict[str, dict[str, float]] = {
    "s": _S,
    "ns": {u: f * 1e9 for u, f in _S.items()},
    "ratio": {"": 1.0, "%": 0.01, "percent": 0.01, "pct": 0.01, "x": 1.0, "×": 1.0, "times": 1.0},
    "bytes": {"": 1.0, "bytes": 1.0} | _BYTES,
    "per_s": {"": 1.0, "/s": 1.0, "1/s": 1.0, "hz": 1.0, "/min": 1 / 60, "per second": 1.0, "k/s": 1e3}
    | {f"{what}/s": 1.0 for what in ("req", "reqs", "requests", "tok", "toks", "token", "tokens", "rps")}
    | {f"{what}/min": 1 / 60 for what in ("req", "requests", "tok", "tokens")}
    | {"rps": 1.0, "qps": 1.0, "tps": 1.0, "ktok/s": 1e3}
    | {f"{u}/s": f for u, f in _BYTES.items()},
    "count": _K | dict.fromkeys(("requests", "request", "req", "reqs", "seqs", "gpus", "gpu", "times"), 1.0),
    "tokens": _K | {"tokens": 1.0, "token": 1.0, "tok": 1.0, "toks": 1.0},
    "w": {"": 1.0, "w": 1.0, "kw": 1e3, "mw": 1e-3},
    "joules": {"": 1.0, "j": 1.0, "kj": 1e3, "mj": 1e-3, "wh": 3600.0, "kwh": 3.6e6},
    "mhz": {"": 1.0, "mhz": 1.0, "ghz": 1e3, "hz": 1e-6, "khz": 1e-3},
    "celsius": {"": 1.0, "c": 1.0, "°c": 1.0},
    "flops": {"": 1.0, "flops": 1.0, "gflops": 1e9, "tflops": 1e12, "pflops": 1e15, "tflop/s": 1e12},
    "usd": {"": 1.0, "$": 1.0, "usd": 1.0},
}  # fmt: skip
"""Unit of a signal → what people write, in lower case → factor. A time needs its unit: 30 may be either."""


def unit_suffix(name: str) -> str:
    """The unit in a signal's name; "" for what is categorical."""
    if name.endswith("_per_s"):
        return "per_s"
    suffix = name.rsplit("_", 1)[-1]
    return suffix if suffix in UNIT_SUFFIXES else ""


def is_share(name: str) -> bool:
    """Is a signal a share of a whole, of which low, high and their like say something?"""
    return unit_suffix(name) == "ratio" and not _NO_SHARE.search(name)


def read_fact(name: str, written: str) -> FactValue:
    """A figure in the unit of its signal.

    Args:
        name: of the signal; its suffix is the unit.
        written: a number, a range, a bound, a word (for shares), or the text of a categorical signal.

    Raises:
        UsageError: it cannot be read, its unit is another kind, or it cannot be (a share above 1, a negative
            time); the message names the signal and what is possible.
    """
    text = " ".join(str(written).split())
    unit = unit_suffix(name)
    if not text or len(text) > 200:
        raise UsageError(f"{name}: {text[:40]!r} is no value")
    if not unit:
        return FactValue(text=text)
    found = _in_words(name, unit, text) or _in_numbers(name, unit, text)
    if found is None:
        raise UsageError(
            f"{name}: {text!r} is no number, range or bound; write e.g. {_example(unit)}"
        )
    _check(name, unit, text, found)
    return found


def _in_words(name: str, unit: str, text: str) -> FactValue | None:
    word = text.lower()
    negated = word.startswith("not ")
    bounds = (_NOT if negated else WORDS).get(word.removeprefix("not ").removeprefix("very "))
    if bounds is None:
        return None
    if not is_share(name):
        raise UsageError(
            f"{name}: {text!r} says nothing of it, as it is no share; write e.g. {_example(unit)}"
        )
    return FactValue(low=bounds[0], high=bounds[1])


def _in_numbers(name: str, unit: str, text: str) -> FactValue | None:
    if found := _BOUND.match(text):
        value = _number(name, unit, found["a"], found["unit"])
        upper = found["op"].lower() in _UPPER
        floor = None if _SIGNED.search(name) else 0.0
        return FactValue(low=floor, high=value) if upper else FactValue(low=value)
    if found := _ONE.match(text):
        value = _number(name, unit, found["a"], found["unit"])
        if found["about"]:
            around = ABOUT * abs(value)
            return FactValue(value=value, low=value - around, high=value + around)
        return FactValue(value=value)
    if found := _RANGE.match(text):
        low = _number(name, unit, found["a"], found["first"] or found["unit"])
        high = _number(name, unit, found["b"], found["unit"])
        if low > high:
            raise UsageError(f"{name}: {text!r} runs backwards")
        return FactValue(value=(low + high) / 2, low=low, high=high)
    return None


def _number(name: str, unit: str, digits: str, written: str) -> float:
    known = UNITS[unit]
    key = written.lower().replace(" ", "")
    if key not in known:
        what = f"{written!r} is no unit of it" if key else "it has no unit"
        units = ", ".join(u for u in known if u)
        raise UsageError(
            f"{name}: {digits}{' ' + written if written else ''}: {what}; one of {units}"
        )
    number = float(digits.replace(",", "").replace("_", "")) * known[key]
    if not math.isfinite(number):
        raise UsageError(f"{name}: {digits} is no finite number")
    return number


def _check(name: str, unit: str, text: str, found: FactValue) -> None:
    numbers = [n for n in (found.value, found.low, found.high) if n is not None]
    if min(numbers) < 0 and not _SIGNED.search(name):
        raise UsageError(f"{name}: {text!r} is negative, which it cannot be")
    if unit == "ratio" and max(numbers) > 1 and name.startswith(("gpu_", "kv_used")):
        raise UsageError(
            f"{name}: {text!r} is above 1, and it is a share; write {text.strip(' %')} %"
        )


def _example(unit: str) -> str:
    return {"s": "30 ms, 20..40 ms or '< 1 s'", "ratio": "0.6, 60-75 % or '< 0.9'"}.get(
        unit, "64, 40..60 or '>= 8'"
    )


def first_readable(name: str, candidates: Iterable[str]) -> str | None:
    """The first of several ways to write a figure that `read_fact` takes; None when it takes none."""
    for candidate in candidates:
        try:
            read_fact(name, candidate)
        except UsageError:
            continue
        return candidate
    return None
