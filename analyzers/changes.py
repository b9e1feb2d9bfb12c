"""Two variants of one server: what differs in the settings, what it gave, and what that says of the slower one.

A change of one setting that makes the same load faster is the strongest evidence there is of what was in the way:
the classes that the setting's lever attacks. With several changes it says so of those that they share; with
another load, model or GPU it says nothing but that the two cannot be compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ..rules.model import Condition, Evidence, Finding, Rule

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..rules.model import Class, Lever, Signal

ODDS = 25.0
"""How many times likelier a lever of its class helps than one of another: above that of any single symptom."""

SEVERAL = 5.0
"""The same where more than one setting changed."""

HELPED = 1.15
"""Gain from which a change says something: below it no action is worth it."""

ALIKE = 0.1
"""Relative difference up to which two loads are the same."""

METRICS = (
    ("output_tokens_per_s", True), ("completed_rate_per_s", True), ("generation_tokens_per_s", True),
    ("client_e2e_mean_s", False), ("client_ttft_mean_s", False), ("client_ttft_p50_s", False),
    ("client_tpot_mean_s", False), ("client_itl_mean_s", False), ("server_itl_mean_s", False),
)  # fmt: skip
"""What is compared, best first, and whether more is better."""

LOAD = ("input_mean_tokens", "output_mean_tokens", "inflight_mean_count", "offered_rate_per_s")
SAME = ("model", "gpu_name", "gpu_count", "engine")
NOT_A_CHANGE = re.compile(
    r"version|path|port|host|uid|hash|time|seed|served_model|api_key|log|kv_cache_tokens|blocks"
)
"""Settings that differ between any two starts, or follow from others."""


@dataclass(frozen=True)
class Difference:
    """How two variants compare.

    Attributes:
        changed: setting → its value here and there.
        metric, gain: what was compared, and by which ratio the other one is better; below 1 it is worse.
        unlike: why they cannot be compared; empty where they can.
    """

    changed: Mapping[str, tuple[str, str]]
    metric: str
    gain: float
    unlike: str = ""


def difference(
    here: tuple[Sequence[Signal], Mapping[str, str]],
    there: tuple[Sequence[Signal], Mapping[str, str]],
) -> Difference:
    """Compare two runs, each its signals and settings as they hold."""
    (signals, settings), (others, other_settings) = here, there
    a, b = _plain(signals), _plain(others)
    changed = {
        key: (settings.get(key, ""), other_settings.get(key, ""))
        for key in sorted({*settings, *other_settings})
        if settings.get(key) != other_settings.get(key)
        and not NOT_A_CHANGE.search(key)
        and (key in settings) + (key in other_settings) == 2
    }
    changed |= {
        key: (settings.get(key, "not set"), other_settings.get(key, "not set"))
        for key in sorted({*settings} ^ {*other_settings})
        if not NOT_A_CHANGE.search(key) and key not in SAME
    }
    unlike = _unlike(a, b, changed)
    for name, more in METRICS:
        if a.get(name) and b.get(name):
            return Difference(
                changed, name, b[name] / a[name] if more else a[name] / b[name], unlike
            )
    return Difference(changed, "", 1.0, unlike or "they have no figure in common")


def _plain(signals: Sequence[Signal]) -> dict[str, float]:
    return {s.name: s.value for s in signals if s.value is not None and not s.scope}


def _unlike(
    a: Mapping[str, float], b: Mapping[str, float], changed: Mapping[str, tuple[str, str]]
) -> str:
    for key in SAME:
        if key in changed:
            return f"{key} is {changed[key][0]} here and {changed[key][1]} there"
    for name in LOAD:
        x, y = a.get(name), b.get(name)
        if name == "inflight_mean_count" and "offered_rate_per_s" in a:
            continue  # at a given rate it follows from the speed
        if x and y and abs(x - y) > ALIKE * max(x, y):
            return f"{name} is {x:.4g} here and {y:.4g} there"
    hit, other = a.get("prefix_hit_ratio"), b.get("prefix_hit_ratio")
    cached = hit is not None and other is not None and abs(hit - other) > ALIKE
    if cached and not any("prefix" in key for key in changed):
        return f"the prefix cache gave {hit:.0%} here and {other:.0%} there, with the same settings"
    return ""


def change_finding(
    found: Difference, levers: Mapping[str, Lever], engine: str
) -> tuple[Finding, Rule] | None:
    """What the difference says of the slower one; None where it says nothing.

    Returns:
        The finding, and a rule that holds its weight.
    """
    if found.unlike or found.gain < HELPED or not found.changed:
        return None
    spoken = [_causes(key, pair, levers, engine) for key, pair in found.changed.items()]
    spoken = [s for s in spoken if s]
    if not spoken:
        return None
    shared = set.intersection(*({c for c, _ in s} for s in spoken))
    if not shared:
        return None
    class_, sub_cause = next(cause for cause in spoken[0] if cause[0] in shared)
    what = ", ".join(f"{k} {x} → {y}" for k, (x, y) in list(found.changed.items())[:3])
    says = f"{what}: {found.metric} became {found.gain:.2f} times better"
    rule = Rule(
        id="change_helped", title="A change of settings helped", why="", source="", needs=[found.metric],
        when=[Condition(signal=found.metric, op=">", value=0.0)], says="", cases=[], class_=class_,
        sub_cause=sub_cause, odds=ODDS if len(found.changed) == 1 else SEVERAL,
    )  # fmt: skip
    evidence = [
        Evidence(signal=found.metric, value=found.gain, unit="ratio", source="both runs", sql="")
    ]
    return (
        Finding(
            rule=rule.id, title=rule.title, scope="", state="fires", class_=class_, sub_cause=sub_cause,
            says=says, evidence=evidence,
        ),
        rule,
    )  # fmt: skip


def _causes(
    key: str, pair: tuple[str, str], levers: Mapping[str, Lever], engine: str
) -> list[tuple[Class, str | None]]:
    """The class and sub-cause that each lever attacks which is this change of this setting."""
    found: dict[tuple[Class, str | None], None] = {}
    for lever in levers.values():
        if key not in _names(lever, engine) or not _same_way(lever, pair):
            continue
        class_, _, sub_cause = lever.attacks[0].partition(".")
        found[cast("Class", class_), sub_cause or None] = None
    return list(found)


def _names(lever: Lever, engine: str) -> set[str]:
    """What the lever's setting is called: its own name, and that of the engine's flag."""
    names = {lever.setting} if lever.setting else set()
    for text in (lever.flags.get(engine, ""),) if engine else lever.flags.values():
        flags = re.findall(r"--([a-z][a-z0-9-]+)", text) + re.findall(r"^([a-z_]+):", text)
        names |= {flag.replace("-", "_") for flag in flags}
    return names


def _same_way(lever: Lever, pair: tuple[str, str]) -> bool:
    """Does the change go the lever's way: up or down, on or off?"""
    before, after = (_number(x) for x in pair)
    if before is None or after is None:
        off = ("", "not set", "none", "null", "false", "no", "0", "auto")
        if lever.id.startswith("stop_"):
            return pair[1].lower() in off
        if lever.setting == "quantization":
            return lever.id.removeprefix("weights_") in pair[1].lower()
        return pair[1].lower() not in off
    if lever.solver == "tensor_parallel":
        return (after > before) == lever.id.endswith("_up")
    for effect in lever.effect:
        if effect.param in ("max_num_seqs", "token_budget", "kv_capacity"):
            up = (effect.times or 1.0) > 1.0
            return (after > before) == up
    return after != before


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
