"""Where load generators say what: the strict loader of `bench.yaml`, and what one load point says by it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..map_file import read_map
from .fact_sheet import latency_signal

_FILE = Path(__file__).parent / "bench.yaml"
_UNIT_S = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


class Bench(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tool's result; the fields are explained in `bench.yaml`."""

    kind: str
    title: str
    marks: list[str]
    unless: str = ""
    lines: bool = False
    points: str = ""
    unit: Literal["s", "ms", "told"]
    path: str
    latency: dict[str, str]
    stats: dict[str, list[str]]
    signals: dict[str, list[str]]
    minutes: list[str] = []
    left_out: str = ""


@cache
def benches() -> tuple[Bench, ...]:
    """The entries of `bench.yaml`.

    Raises:
        WhyboundError: the file is broken.
    """
    return read_map(
        _FILE.read_text(encoding="utf-8"),
        tuple[Bench, ...],
        lambda entries: (f for entry in entries for f in _faults(entry)),
        _FILE.name,
    )


def told(entry: Bench, point: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """Signal, or name with a leading dot → the value as the file has it, in the signal's unit if a number."""
    found: dict[str, Any] = {}
    for signal, paths in entry.signals.items():
        value = first(point, whole, paths)
        if value is not None:
            scale = 1 / 60 if signal in entry.minutes else 1.0
            scale *= _told_scale(entry, point, paths[0]) if signal.endswith("_s") else 1.0
            found[signal] = _scaled(value, scale)
    for metric, theirs in entry.latency.items():
        for stat, spellings in entry.stats.items():
            named = latency_signal(metric, stat)
            paths = [entry.path.format(metric=theirs, stat=s) for s in spellings]
            value = first(point, whole, paths)
            if named and value is not None and named not in found:
                found[named] = _scaled(value, _latency_scale(entry, point, paths[0]))
    return found


def first(point: Mapping[str, Any], whole: Mapping[str, Any], paths: list[str]) -> Any:
    """The first value that is there; None when none is."""
    for path in paths:
        value = _at(whole if path.startswith("/") else point, path.removeprefix("/"))
        if value is not None:
            return value
    return None


def _at(holder: Any, path: str) -> Any:
    for key in path.split("."):
        holder = holder.get(key) if isinstance(holder, Mapping) else None
    return holder


def _latency_scale(entry: Bench, point: Mapping[str, Any], path: str) -> float:
    if entry.unit != "told":
        return _UNIT_S[entry.unit]
    unit = _at(point, path.rpartition(".")[0] + ".unit") or point.get("_time_unit")
    return _UNIT_S.get(unit, float("nan")) if isinstance(unit, str) else float("nan")


def _told_scale(entry: Bench, point: Mapping[str, Any], path: str) -> float:
    """Of a duration among `signals`: what stands beside it, else seconds."""
    unit = _at(point, path.rpartition(".")[0] + ".unit") if entry.unit == "told" else None
    return _UNIT_S.get(unit, 1.0) if isinstance(unit, str) else 1.0


def _scaled(value: Any, scale: float) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and scale != 1.0:
        return value * scale
    if (
        isinstance(value, str) and scale != 1.0
    ):  # a number as text, or nonsense: told by who takes it
        try:
            return float(value) * scale
        except ValueError:
            return value
    return value


def _faults(entry: Bench) -> Iterator[str]:
    for pattern in [*entry.marks, entry.unless]:
        try:
            re.compile(pattern)
        except re.error as error:
            yield f"{entry.kind}: {pattern!r} is no regular expression: {error}"
    for metric in entry.latency:
        for stat in entry.stats:
            if latency_signal(metric, stat) is None:
                yield f"{entry.kind}: {metric} {stat} is no signal"
    for signal, paths in entry.signals.items():
        if not paths:
            yield f"{entry.kind}: {signal} has no path"
