"""Is the target met, and do its guards hold? Only what the interval shows counts; the rest cannot be told."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..rules.model import GuardResult, Target
from .measured import Measured
from .measures import measure
from .target import METRICS, TargetSpec

if TYPE_CHECKING:
    import duckdb

    from ..rules.model import Signal

CUT_OFF = 0.02
"""Share of unfinished requests above which a latency is a lower bound: the slow ones are missing."""
SAME_RATE = 0.05
"""A measured rate this near (as a ratio) to the stated one is that rate."""


def measured_target(
    spec: TargetSpec,
    guards: Sequence[TargetSpec],
    con: duckdb.DuckDBPyConnection,
    signals: Mapping[str, Signal],
    manifest: Mapping[str, Any],
    unsound: str | None = None,
) -> tuple[Target, list[str]]:
    """The target and its guards in this run.

    `Target.met` is of the whole: the threshold is met and every guard is; a broken guard makes it false,
    one that cannot be told makes it null. Without a threshold it is null.

    Args:
        spec: the target.
        guards: what must hold beside it; those on latencies are also the limits of goodput.
        con: the run's database.
        signals: the run's signals by name.
        manifest: of the run, for its load.
        unsound: what a failed precheck says of the measurement: then nothing can be told.

    Returns:
        The target, and a line for each value or interval that is missing.
    """
    doubt = unsound and f"the measurement is not sound: {unsound}"
    doubt = doubt or (spec.load and other_load(spec.load, manifest, signals))
    missing: list[str] = []

    def judged(one: TargetSpec) -> tuple[Measured, bool | None, str]:
        found = measure(one, guards, con, signals)
        if found.why and not one.is_quality:
            missing.append(f"{_name(one)}: {_reason(one, found)}")
        if doubt and one.threshold is not None and found.value is not None:
            return found, None, doubt
        return found, *_met(one, found, signals)

    found, met, why = judged(spec)
    results = [_guard(g, *judged(g)) for g in guards]
    if met is True:
        met, why = _with_guards(results)
    low, high = _two_sided(found)
    return Target(
        metric=spec.metric, statistic=spec.statistic, text=spec.text, unit=spec.unit,
        value=found.value, low=low, high=high, threshold=spec.threshold, guards=results,
        met=met, why=why or None,
    ), missing  # fmt: skip


def _guard(spec: TargetSpec, found: Measured, met: bool | None, why: str) -> GuardResult:
    low, high = _two_sided(found)
    return GuardResult(
        text=spec.text, unit=spec.unit, value=found.value, low=low, high=high, met=met,
        why=why or None,
    )  # fmt: skip


def _two_sided(found: Measured) -> tuple[float | None, float | None]:
    return (None, None) if None in (found.low, found.high) else (found.low, found.high)


def _name(spec: TargetSpec) -> str:
    return spec.metric if spec.statistic == "rate" else f"{spec.statistic} {spec.metric}"


def _reason(spec: TargetSpec, found: Measured) -> str:
    if found.value is None and not spec.is_quality:
        return f"cannot be measured with this load: {found.why}"
    return found.why


def _met(
    spec: TargetSpec, found: Measured, signals: Mapping[str, Signal]
) -> tuple[bool | None, str]:
    """Whether the threshold is met, and why that cannot be told; the interval must lie on one side of it."""
    if found.value is None:
        return None, _reason(spec, found)
    if spec.threshold is None:
        return None, ""
    sign = -1.0 if spec.higher_is_better else 1.0
    bounds = (found.high, found.low) if spec.higher_is_better else (found.low, found.high)
    best, worst = (None if b is None else sign * b for b in bounds)
    limit = sign * spec.threshold
    if best is not None and best > limit:
        return False, ""
    if worst is None or worst > limit:
        return None, "cannot tell yet: " + (found.why or "the interval holds the threshold")
    cut_off = signals.get("unfinished_ratio")
    latency = not spec.is_quality and METRICS[spec.metric].latency
    if latency and cut_off is not None and (cut_off.value or 0.0) > CUT_OFF:
        return None, (
            f"cannot tell yet: {cut_off.value:.0%} of the requests did not end in the run,"
            " the value is a lower bound"
        )
    return True, ""


def _with_guards(guards: Sequence[GuardResult]) -> tuple[bool | None, str]:
    """Whether a target whose threshold is met is met with its guards."""
    but = "met, but the guard"
    for guard in guards:
        if guard.met is False:
            return False, f"{but} {guard.text} is broken"
    for guard in guards:
        if guard.met is None:
            return None, f"{but} {guard.text} is not shown to hold: {guard.why}"
    return True, ""


def _shown(load: Mapping[str, Any]) -> str:
    for key, name in (("concurrency", "concurrency_count"), ("rate", "rate_per_s")):
        if isinstance(load.get(name), int | float):
            return f"{key}={load[name]:g}"
    return f"a load of the kind {load.get('process')}"


def other_load(
    stated: str, manifest: Mapping[str, Any], signals: Mapping[str, Signal]
) -> str | None:
    """Why the run's load is not the stated one (`concurrency=32`, `rate=4`); None when it is."""
    key, _, value = stated.partition("=")
    spec = manifest.get("load_spec")
    if not isinstance(spec, dict):
        return f"stated at {stated}, and the load of this run is not known"
    seen = spec.get("concurrency_count" if key == "concurrency" else "rate_per_s")
    if seen is None and key == "rate" and spec.get("process") == "file":
        offered = signals.get("offered_rate_per_s")
        seen = offered.value if offered else None
    near = SAME_RATE if key == "rate" else 0.0
    if isinstance(seen, int | float) and math.isclose(seen, float(value), rel_tol=near):
        return None
    return f"stated at {stated}, measured at {_shown(spec)}"
