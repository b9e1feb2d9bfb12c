"""What the columns of a plain table of a load test mean, by their headers."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import msgspec

from ..map_file import read_map
from .fact_sheet import latency_signal

_FILE = Path(__file__).parent / "columns.yaml"
_METRICS = {
    "ttft": "ttft", "itl": "itl", "tpot": "tpot", "e2e": "e2e", "e2el": "e2e", "latency": "e2e",
}  # fmt: skip
_STATS = {
    "mean": "mean", "avg": "mean", "average": "mean", "median": "p50", "p50": "p50", "p95": "p95",
    "p99": "p99",
}  # fmt: skip
_UNITS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "seconds": 1.0, "us": 1e-6}
_PHRASES = (
    ("time to first token", "ttft"),
    ("inter token latency", "itl"),
    ("time per output token", "tpot"),
    ("end to end latency", "e2e"),
    ("e2e latency", "e2e"),
    ("request latency", "e2e"),
)
_CELL = re.compile(r"\s*([-+]?[\d.,]+(?:[eE][-+]?\d+)?)\s*(?:±\s*[\d.,]+\s*)?(ms|s|us)?\s*")


class Columns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file `columns.yaml`."""

    keys: dict[str, str]
    signals: dict[str, str]


@cache
def _map() -> Columns:
    return read_map(_FILE.read_text(encoding="utf-8"), Columns, lambda _: (), _FILE.name)


def meaning(header: str) -> tuple[str, float | None] | None:
    """The signal (or `.concurrency`, `.rate`) that a column holds, and the scale of its numbers.

    The scale is None where the header names no unit and one is needed: then the cells must. None where
    the header means nothing here.
    """
    text = " ".join(re.sub(r"[_\-()\[\]/|:]+", " ", header.lower()).split())
    latency = _latency(text)
    if latency:
        return latency
    for key, pattern in _map().keys.items():
        if re.fullmatch(pattern, text):
            return f".{key}", 1.0
    for signal, pattern in _map().signals.items():
        if re.fullmatch(pattern, text):
            return signal, 1.0
    return None


def cell(text: str, scale: float | None) -> float | str | None:
    """A cell in the signal's unit; None when empty; the text itself when it is no number or has no unit."""
    if not text.strip() or text.strip() in ("-", "n/a", "N/A", "nan", "NaN"):
        return None
    match = _CELL.fullmatch(text)
    if match is None:
        return text
    unit = _UNITS[match[2]] if match[2] else scale
    try:
        if unit is None:
            return f"{text} (of what unit?)"  # so that nobody takes it for a number
        return float(match[1].replace(",", "")) * unit
    except ValueError:
        return text


def _latency(text: str) -> tuple[str, float | None] | None:
    for phrase, word in _PHRASES:
        text = text.replace(phrase, word)
    words = text.split()
    metric = next((_METRICS[w] for w in words if w in _METRICS), None)
    stat = next((_STATS[w] for w in words if w in _STATS), None)
    unit = next((_UNITS[w] for w in words if w in _UNITS), None)
    if metric is None or len(words) > 4:
        return None
    if any(w not in _METRICS and w not in _STATS and w not in _UNITS for w in words):
        return None
    if stat is None:
        return None  # of which statistic is anyone's guess
    signal = latency_signal(metric, stat)
    return (signal, unit) if signal else None
