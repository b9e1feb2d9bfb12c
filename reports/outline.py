"""What a report says, in which order; the terminal and the page both draw from here.

Nothing is measured or ranked here: order and numbers are the diagnosis's own.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal

from ..rules.model import (
    Diagnosis,
    Finding,
    Gain,
    GuardResult,
    LeverAdvice,
    PrecheckResult,
    Target,
)
from .wording import clean, flat, gain, gain_interval, measured, quantity, share, words

CONFIDENT = 0.7
"""From here on a verdict counts as confident."""
WORTH_DOING = 1.10
"""Below this gain, a report says to look for a bigger lever."""
UNSOUND = "These gains rest on the unsound measurement: mend it first."

Status = Literal["confident", "leaning", "abstains", "withheld", "no_action", "no_data"]

AXES = {
    "bandwidth_x2": "twice the memory bandwidth",
    "kv_capacity_x2": "twice the KV cache",
    "flops_x2": "twice the FLOPs",
    "host_half": "half the host time",
    "kernel_floor_half": "half the kernel floor",
    "link_x2": "twice the link bandwidth",
    "path_half": "half the client path",
    "load_half": "half the load",
    "policy_best": "the best policy",
}

STATE_WORDS = {
    "fires": "fires",
    "cannot_tell": "cannot tell",
    "clear": "clear",
    "not_applicable": "not applicable",
}
_STATE_ORDER = list(STATE_WORDS)


@dataclass(frozen=True)
class Headline:
    """The verdict at a glance.

    Attributes:
        badge: one or two words for the status.
        title: the sentence.
        because: further sentences; may be empty.
    """

    status: Status
    badge: str
    title: str
    because: list[str]


def headline(diagnosis: Diagnosis) -> Headline:
    """The verdict as a sentence; silence is never shown as health."""
    v = diagnosis.verdict
    says = [clean(v.says)] if v.says else []
    if v.withheld:
        failed = [_with_remedy(p) for p in invalidating(diagnosis)]
        title = "Verdict withheld: the measurement is not sound."
        # The verdict's own sentence usually repeats the precheck's
        return Headline("withheld", "Withheld", title, failed or says)
    if v.class_ is not None and not v.abstained:
        title = f"Bound by {v.class_}" + (f": {words(v.sub_cause)}." if v.sub_cause else ".")
        if v.confidence >= CONFIDENT:
            return Headline("confident", "Confident", title, says)
        return Headline("leaning", "Not confident", title, says)
    if v.abstained or v.candidates:
        return Headline("abstains", "Abstains", _abstention(diagnosis), says)
    if not (v.gain_vector or diagnosis.budget or diagnosis.findings):
        return Headline("no_data", "No data", "Cannot tell: nothing was measured.", says)
    return Headline("no_action", "No action", "No single change would help enough.", says)


def _abstention(diagnosis: Diagnosis) -> str:
    v = diagnosis.verdict
    names = [words(name) for name in v.candidates]
    if len(names) > 1:
        return f"Cannot tell between {', '.join(names[:-1])} and {names[-1]}."
    leaning = names[0] if names else v.class_
    return f"Cannot tell: perhaps {leaning}." if leaning else "Cannot tell what binds this run."


def _with_remedy(check: PrecheckResult) -> str:
    says = clean(check.says)
    return f"{says}. To mend it: {clean(check.remedy)}." if check.remedy else says


def confidence_line(diagnosis: Diagnosis) -> str:
    """Confidence, method, and what lies underneath or close behind."""
    v = diagnosis.verdict
    by = f" by {words(v.method)}" if v.method else ""
    said = [f"confidence {share(v.confidence)}{by}"]
    said += [f"underneath: {words(v.binding_resource)}"] if v.binding_resource else []
    if v.runner_up:
        said.append(f"{'close second' if v.ambiguous else 'runner-up'}: {words(v.runner_up)}")
    elif v.ambiguous:
        said.append("ambiguous")
    return " · ".join(said)


def beside(diagnosis: Diagnosis) -> str:
    """The verdicts by metric and by phase, in one line: `ttft: queueing · itl: memory`."""
    given = {**diagnosis.verdict.by_metric, **diagnosis.verdict.by_phase}
    return " · ".join(f"{words(name)}: {_short_verdict(value)}" for name, value in given.items())


def _short_verdict(value: Any) -> str:
    if isinstance(value, dict) and "class" in value:
        class_, sub_cause = value["class"], value.get("sub_cause")
        return words(class_ or "cannot tell") + (f" ({words(sub_cause)})" if sub_cause else "")
    return words(value) if isinstance(value, str) else flat(value)


def gain_vector(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """What would move the target, as (what is better, gain), the largest first."""
    found = [(axis, _ends(value)) for axis, value in diagnosis.verdict.gain_vector.items()]
    known = sorted(((a, ends) for a, ends in found if ends), key=lambda pair: -pair[1][0])
    shown = [(_axis(a), gain(mid), gain_interval(*ci) if ci else "") for a, (mid, *ci) in known]
    return [(a, f"{text} ({ci})" if ci else text) for a, text, ci in shown]


def _axis(name: str) -> str:
    return AXES.get(name, words(name))


def _ends(value: Any) -> list[float]:
    """[mid], or [mid, low, high], of a number or an object; empty when there is none."""
    if isinstance(value, dict):
        mid = next((value[k] for k in ("gain", "mid", "value") if _is_number(value.get(k))), None)
        low, high = value.get("low"), value.get("high")
        bounded = _is_number(low) and _is_number(high)
        ends: list[Any] = [mid, low, high] if bounded else [mid]
        return [] if mid is None else ends
    return [value] if _is_number(value) else []


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def invalidating(diagnosis: Diagnosis) -> list[PrecheckResult]:
    """The prechecks for which a verdict is withheld."""
    return [p for p in diagnosis.prechecks if p.state == "fires" and p.effect == "invalid"]


def target_state(target: Target) -> str:
    """Whether the threshold is met: `threshold 300 ms: missed`."""
    if target.threshold is None:
        return "no threshold given"
    threshold = f"threshold {quantity(target.threshold, target.unit)}"
    if target.why:
        return f"{threshold}: {clean(target.why)}"
    met = {True: "met", False: "missed", None: "cannot tell"}[target.met]
    return f"{threshold}: {met}"


def ordered_guards(target: Target) -> list[GuardResult]:
    """The broken ones first, then those that cannot be told."""
    return sorted(target.guards, key=lambda g: (False, None, True).index(g.met))


def guard_line(guard: GuardResult) -> str:
    """One guard as `p95 ttft < 500ms: 412 ms (390 to 437), met`."""
    state = {True: "met", False: "broken", None: clean(guard.why or "cannot tell")}[guard.met]
    if guard.value is None:
        return f"{clean(guard.text)}: {state}"
    return (
        f"{clean(guard.text)}: {measured(guard.value, guard.unit, guard.low, guard.high)}, {state}"
    )


def target_value(target: Target) -> str:
    """The target's value with its interval."""
    return measured(target.value, target.unit, target.low, target.high)


def identity(run: dict[str, Any]) -> list[str]:
    """Engine, model, start, duration and version: what is known of them."""
    duration, version = run.get("duration_s"), run.get("whybound_version") or run.get("version")
    known = [flat(run[key]) for key in ("engine", "model") if run.get(key)]
    known += [_started(run["started"])] if run.get("started") else []
    known += [quantity(duration, "s")] if isinstance(duration, int | float) else []
    return known + ([f"whybound {flat(version)}"] if version else [])


def _started(value: Any) -> str:
    if not isinstance(value, int | float):
        return clean(value)
    # A number is seconds or, as everywhere in the tables, nanoseconds since the epoch
    epoch_s = value / 1e9 if value > 1e12 else value
    return datetime.fromtimestamp(epoch_s, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def command(run: dict[str, Any]) -> str:
    """What was run, as one would type it; else the run's name or folder; else `unnamed run`."""
    value = run.get("command")
    if isinstance(value, list | tuple):
        return clean(shlex.join(str(word) for word in value))
    named = value or run.get("name") or run.get("path") or run.get("run")
    return clean(named) if named else "unnamed run"


def ordered_findings(diagnosis: Diagnosis) -> list[Finding]:
    """What fires first, and of it what speaks for the verdict's class; otherwise as given."""
    verdict = diagnosis.verdict.class_
    return sorted(
        diagnosis.findings, key=lambda f: (_STATE_ORDER.index(f.state), f.class_ != verdict)
    )


def split_levers(diagnosis: Diagnosis) -> tuple[list[LeverAdvice], list[LeverAdvice]]:
    """The levers that help, and apart from them those that do not or must be checked first."""
    helping = [lever for lever in diagnosis.levers if lever.helps is True]
    return helping, [lever for lever in diagnosis.levers if lever.helps is not True]


def to_try(diagnosis: Diagnosis) -> list[LeverAdvice]:
    """Where a class is named and no lever's gain can be told: those to try after a check, best first."""
    helping, apart = split_levers(diagnosis)
    if helping or diagnosis.verdict.class_ is None or diagnosis.target.met:
        return []
    return [lever for lever in apart if lever.helps == "check_first"]


def flag_for(lever: LeverAdvice, engine: object) -> tuple[str | None, list[tuple[str, str]]]:
    """The flag for the run's engine, or null, and the other engines' flags as (engine, flag)."""
    wanted = str(engine or "").lower()
    own = next((flag for name, flag in lever.flags.items() if name.lower() == wanted), None)
    others = [(name, flag) for name, flag in lever.flags.items() if name.lower() != wanted]
    return own, others


def bigger_lever(diagnosis: Diagnosis) -> str | None:
    """The line for when no lever is worth the work; null when one is, or when none is known."""
    gains = [lever.gain for lever in split_levers(diagnosis)[0] if lever.gain]
    if not gains:
        return None
    best: Gain = max(gains, key=lambda g: g.mid)
    if best.mid >= WORTH_DOING:
        return None
    return f"The best lever gives {gain(best.mid)}: look for a bigger lever."


def missing(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """What was not measured, as (what, why); why may be empty."""
    entries = diagnosis.coverage.get("missing") or []
    entries = entries.items() if isinstance(entries, dict) else entries
    return [_missing_entry(entry) for entry in entries]


def _missing_entry(entry: Any) -> tuple[str, str]:
    if isinstance(entry, dict):
        keys = ("what", "name", "signal", "table", "exhibit")
        what = next((entry[k] for k in keys if entry.get(k)), "something")
        return words(what), clean(entry.get("why") or entry.get("because") or "")
    if isinstance(entry, list | tuple) and len(entry) == 2:
        return words(entry[0]), clean(entry[1] or "")
    return clean(entry), ""


def levels(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """The three measurement levels and what each covers."""
    names = {"1": "1 requests", "2": "2 timeline", "3": "3 kernels"}
    given = {str(k): v for k, v in (diagnosis.coverage.get("levels") or {}).items()}
    return [(name, _coverage(given.get(key))) for key, name in names.items()]


def _coverage(value: Any) -> str:
    if value is None or value is False:
        return "not measured"
    if value is True:
        return "measured"
    is_share = isinstance(value, int | float) and 0 <= value <= 1
    return share(value) if is_share else flat(value)


def phases(diagnosis: Diagnosis, key: str) -> tuple[list[dict[str, Any]], str]:
    """The rows of `exhibits[key]`, and why there are none."""
    rows = [row for row in diagnosis.exhibits.get(key) or [] if isinstance(row, dict)]
    rows = [row for row in rows if isinstance(row.get("seconds"), int | float)]
    if rows:
        return rows, ""
    given = diagnosis.exhibits.get(f"{key}_why")
    named = {what: why for what, why in missing(diagnosis) if what in {words(key), "phases"}}
    why = clean(given) if given else next((w for w in named.values() if w), "")
    return [], why or "no server-side phase times in this run"


def has_intervals(rows: list[dict[str, Any]]) -> bool:
    """Whether any of these phases has a bound; if none has, a report says so once."""
    return any(row.get("low") is not None or row.get("high") is not None for row in rows)


def phase_times(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Phases as (name, time), the time with its interval where any phase has one."""
    bounded = has_intervals(rows)
    return [
        (
            words(row.get("phase", "?")),
            measured(row["seconds"], "s", row.get("low"), row.get("high"))
            if bounded
            else quantity(row["seconds"], "s"),
        )
        for row in rows
    ]


def floor_lines(diagnosis: Diagnosis) -> list[str]:
    """A line for each floor: what a phase took, what the device would allow, and how near it is."""
    lines = []
    for row in diagnosis.exhibits.get("floors") or []:
        if row["resource"] == "launch":
            continue
        near = f"{share(min(row['ratio_low'], 9.99))} to {share(min(row['ratio_high'], 9.99))}"
        above = " (a roof below what was achieved is none)" if row["ratio_low"] > 1 else ""
        lines.append(
            f"{row['phase']} {measured(row['achieved_s'], 's', row['low_s'], row['high_s'])}, floor"
            f" {measured(row['floor_s'], 's', row['floor_low_s'], row['floor_high_s'])}"
            f" for {words(row['of'])}: {near} of the time{above}"
        )
    return lines


def explaining(diagnosis: Diagnosis) -> list[PrecheckResult]:
    """Prechecks, those that fire first, then those that could not be judged."""
    return sorted(diagnosis.prechecks, key=lambda p: _STATE_ORDER.index(p.state))
