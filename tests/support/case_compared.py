"""Facts that two figures of a report make together: a pair, a sweep, a distance from a floor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from case_evidence import Evidence
from case_keys import find, is_time, number, ranged, span, written
from case_pairs import cpu_of, references
from case_sides import Leaf, Sides
from case_sweeps import by_load

from whybound.collector.fact_values import read_fact

_FLOOR = re.compile(r"floor|roof|speed_of_light|(^|[._])sol|ideal|theoretical|ceiling|bound")
_NOT_THIS = re.compile(r"example|sibling|published|readme")
_OUTPUT = ("output_tokens_per_s", "generation_tokens_per_s", "completed_rate_per_s")
_TTFT = ("client_ttft_mean_s", "client_ttft_p50_s")
_SINGLE = re.compile(r"concurren|stream|users|batch", re.IGNORECASE)


def compared(case: Mapping[str, Any], told: Sides, found: Evidence) -> None:
    """Fill in what pairs, sweeps and floors say."""
    for signal, value, this, other in references(case, told):
        keys = " / ".join(dict.fromkeys((".".join(this.path), ".".join(other.path))))
        found.offer(signal, value, keys)
    _sweeps(case, told, found)
    _contexts(case, told, found)
    _floors(told, found)
    _cpu_given(told, found)


def _sweeps(case: Mapping[str, Any], told: Sides, found: Evidence) -> None:
    """Output and TTFT at the highest load over those at the lowest."""
    sweeps = by_load(told, case.get("workload") or {}, "load")
    output = next((sweeps[s] for s in _OUTPUT if s in sweeps), None)
    streams = (s for s in sweeps if s.startswith("client_tpot") and s.endswith("/"))
    each = next((sweeps[s] for s in streams), None)
    if output is None and each is not None:  # of one stream, times the streams
        output = [(n, Leaf(x.path, n * one)) for n, x in each if (one := _one(x.value))]
    for signal, points in (
        ("sweep_output_gain_ratio", output),
        ("sweep_ttft_gain_ratio", next((sweeps[s] for s in _TTFT if s in sweeps), None)),
    ):
        if points and len(points) > 1:
            (low, first), (high, last) = points[0], points[-1]
            one, two = _one(first.value), _one(last.value)
            if one and two and low:
                key = f"{'.'.join(last.path)} / {'.'.join(first.path)}"
                found.offer(signal, f"{two / one:.4g}", key)
                found.offer("sweep_load_gain_ratio", f"{high / low:.4g}", key)


def _contexts(case: Mapping[str, Any], told: Sides, found: Evidence) -> None:
    """TPOT of one stream at the shortest and the longest context, each with its scope."""
    workload = case.get("workload") or {}
    alone = any(_SINGLE.search(str(k)) and number(v) == 1 for k, v in workload.items())
    for signal, points in by_load(told, workload, "context").items():
        rate = signal in _OUTPUT[:2]
        if (rate and not alone) or not (
            rate or signal.startswith(("client_tpot_m", "client_itl_m"))
        ):
            continue
        for depth, leaf in (points[0], points[-1]):
            row = find(leaf.path, "evidence")
            plain = _one(leaf.value)
            text = (
                f"{1 / plain:.6g} s" if rate and plain
                else written(row, leaf.path, plain) if row and plain else None
            )  # fmt: skip
            if text:
                name = f"client_tpot_mean_s@segment=context_{depth:g}"
                found.offer(name, text, ".".join(leaf.path))


def _floors(told: Sides, found: Evidence) -> None:
    """A decode step over the time that the person reckoned it needs at least."""
    for leaf in (*told.before, *told.other):
        key = ".".join(leaf.path)
        ends = span(leaf.value)
        if not _FLOOR.search(key.lower()) or _NOT_THIS.search(key.lower()) or not ends:
            continue
        if min(ends) <= 0:
            continue
        if is_time(key):
            step = found.facts.get("step_s") or found.facts.get("client_tpot_mean_s")
            unit = next((u for u in ("ns", "us", "ms") if re.search(rf"_{u}(_|\.|$)", key)), "s")
            if step and (told_ := read_fact("step_s", str(step))):
                low, high = told_.low or told_.value, told_.high or told_.value
                floor = [read_fact("step_s", f"{e} {unit}").value for e in ends]
                if low and high and floor[0] and floor[1]:
                    # the least over the least: the ends of both spans belong together
                    ratio = sorted((low / floor[0], high / floor[1]))
                    found.offer("step_over_floor_ratio", ranged(*ratio), key)
                    found.unmapped.pop(key, None)
        elif re.search(r"tok(en)?s?_(per_)?s", key.lower()):
            rate = found.facts.get("output_tokens_per_s")
            measured = rate and read_fact("output_tokens_per_s", str(rate)).value
            if measured:
                found.offer(
                    "step_over_floor_ratio", ranged(ends[0] / measured, ends[1] / measured), key
                )
                found.unmapped.pop(key, None)


def _cpu_given(told: Sides, found: Evidence) -> None:
    """The CPU that the slow one of several variants was given, where their names tell it."""
    variants = {n for leaf in (*told.before, *told.other) if (n := cpu_of(leaf.path))}
    key = next((k for s in _OUTPUT if (k := found.told.get(s))), "")
    if len(variants) > 1 and (n := cpu_of(key.split("."))):
        found.offer("cpu_limit_cores_count", str(n), key)


def _one(value: Any) -> float | None:
    """A figure, or the middle of its range; of a pair whose sides nothing names, the lower."""
    ends = span(value["either"]) if isinstance(value, dict) else span(value)
    return None if ends is None else ends[0] if isinstance(value, dict) else sum(ends) / 2
