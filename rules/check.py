"""What a rule or a lever must satisfy beyond its types; pure, and every problem names its key."""

from __future__ import annotations

import math
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .conditions import leaves, signals_of
from .model import PARAMS, SOLVERS, SUB_CAUSES, Case, Condition, Effect, Lever, Rule
from .strict_yaml import Key, did_you_mean

KINDS: dict[type, str] = {Rule: "rule", Lever: "lever"}

SCOPE_KEYS = ("gpu", "node", "phase", "replica", "segment")

ENGINES = (
    "vllm", "sglang", "tensorrt_llm", "tgi", "llamacpp", "dynamo", "nginx", "kubernetes", "nvidia_smi",
)  # fmt: skip
"""Who a flag may be for: the engines, what stands in front of them, and what they stand on."""

LADDER_RUNGS = range(1, 11)
"""Workload and SLO, baseline, delete idle, right-size, scheduling and reuse, fewer bytes, topology,
share and autoscale, purchase model, power."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: at `key` of the item `id` in the folder `kind`, where known."""

    key: Key
    what: str
    kind: str = ""
    id: str = ""


def check_rule(rule: Rule, kind: str) -> Iterator[Problem]:
    """Problems of one rule; `kind` is `symptoms` or `prechecks`.

    Whether its cases hold is for `cases.check_cases` to say.
    """
    yield from _kind(rule, kind)
    if rule.sub_cause is not None:
        known = SUB_CAUSES[rule.class_] if rule.class_ else ()
        if rule.sub_cause not in known:
            hint = did_you_mean(rule.sub_cause, known) or "; name its class first"
            yield Problem(("sub_cause",), f"unknown sub_cause {rule.sub_cause!r}{hint}")
    for part in [k.strip() for k in rule.per.split(",")] if rule.per else ():
        if part not in SCOPE_KEYS:
            hint = did_you_mean(part, SCOPE_KEYS)
            yield Problem(("per",), f"unknown scope key {part!r}{hint}")
    if not 1 <= rule.odds < math.inf:
        yield Problem(("odds",), f"odds are at least 1 and finite, not {rule.odds}")
    if not 0 <= rule.min_coverage <= 1:
        yield Problem(("min_coverage",), f"min_coverage is 0..1, not {rule.min_coverage}")
    if not rule.when:
        yield Problem(("when",), "at least one condition is needed")
    yield from _conditions(("when",), rule.when)
    yield from _conditions(("applies",), rule.applies)
    yield from _names(rule)
    for i, case in enumerate(rule.cases):
        yield from _case(("cases", i, "signals"), case, rule.needs)


def check_lever(lever: Lever) -> Iterator[Problem]:
    """Problems of one lever, references aside."""
    if lever.ladder_rung not in LADDER_RUNGS:
        yield Problem(("ladder_rung",), f"ladder_rung is 1..10, not {lever.ladder_rung}")
    for i, attack in enumerate(lever.attacks):
        class_, dot, cause = attack.partition(".")
        if class_ not in SUB_CAUSES:
            hint = did_you_mean(class_, SUB_CAUSES)
            yield Problem(("attacks", i), f"unknown class {class_!r}{hint}")
        elif dot and cause not in SUB_CAUSES[class_]:
            hint = did_you_mean(cause, SUB_CAUSES[class_])
            yield Problem(("attacks", i), f"unknown sub-cause {cause!r}{hint}")
    if not lever.attacks:
        yield Problem(("attacks",), "a lever is for at least one class")
    for engine, flag in lever.flags.items():
        if engine not in ENGINES:
            hint = did_you_mean(engine, ENGINES)
            yield Problem(("flags", engine), f"unknown engine {engine!r}{hint}")
        if "{" in flag.replace("{value}", ""):
            yield Problem(("flags", engine), "only {value} stands for something in a flag")
    if lever.solver is not None and lever.solver not in SOLVERS:
        hint = did_you_mean(lever.solver, SOLVERS)
        yield Problem(("solver",), f"unknown solver {lever.solver!r}{hint}")
    if bool(lever.effect) == (lever.solver is not None):
        yield Problem(("effect",), "a lever has at least one effect, or else a solver, not both")
    for i, effect in enumerate(lever.effect):
        yield from _effect(("effect", i), effect)
    yield from _conditions(("enabling",), lever.enabling)
    yield from _conditions(("harms",), lever.harms)


def check_references(
    prechecks: Mapping[str, Rule], symptoms: Mapping[str, Rule], levers: Mapping[str, Lever]
) -> Iterator[Problem]:
    """Names that resolve to nothing, and rules that name a lever for another class."""
    for name in prechecks.keys() & symptoms.keys():
        yield Problem(("id",), f"{name!r} is a precheck and a symptom", "symptoms", name)
    for kind, rules in (("prechecks", prechecks), ("symptoms", symptoms)):
        for rule in rules.values():
            for i, name in enumerate(rule.levers):
                key = ("levers", i)
                if name not in levers:
                    what = f"no lever {name!r}{did_you_mean(name, levers)}"
                    yield Problem(key, what, kind, rule.id)
                elif rule.class_ and not _is_for(levers[name], rule):
                    cause = f"{rule.class_}.{rule.sub_cause}" if rule.sub_cause else rule.class_
                    what = f"the lever {name!r} does not attack {cause!r}"
                    yield Problem(key, what, kind, rule.id)
    for lever in levers.values():
        for field in ("reinforces", "obstructs"):
            for i, name in enumerate(getattr(lever, field)):
                if name not in levers or name == lever.id:
                    what = f"no other lever {name!r}{did_you_mean(name, levers)}"
                    yield Problem((field, i), what, "levers", lever.id)


def _kind(rule: Rule, kind: str) -> Iterator[Problem]:
    if kind == "symptoms" and rule.class_ is None:
        yield Problem((), "a symptom needs the class that it speaks for")
    for name in ("effect", "remedy"):
        given = getattr(rule, name) is not None
        if given and kind == "symptoms":
            yield Problem((name,), f"{name!r} is for prechecks; a symptom names levers")
        elif not given and kind == "prechecks":
            yield Problem((), f"a precheck needs {name!r}")


def _is_for(lever: Lever, rule: Rule) -> bool:
    return rule.class_ in lever.attacks or f"{rule.class_}.{rule.sub_cause}" in lever.attacks


def _conditions(key: Key, conditions: list[Condition]) -> Iterator[Problem]:
    for i, condition in enumerate(conditions):
        here = (*key, i)
        shapes = [n for n in ("signal", "all", "any") if getattr(condition, n) is not None]
        if len(shapes) != 1:
            yield Problem(here, "a condition is one of: a signal with op, all, any")
        elif condition.signal is None:
            children = condition.all if condition.all is not None else condition.any
            if not children:
                yield Problem(here, f"{shapes[0]!r} is empty")
            yield from _conditions((*here, shapes[0]), children or [])
            if condition.op or condition.value is not None or condition.other or condition.text:
                yield Problem(here, f"{shapes[0]!r} stands alone in its condition")
        else:
            yield from _comparison(here, condition)


def _comparison(here: Key, condition: Condition) -> Iterator[Problem]:
    against = [n for n in ("value", "other", "text") if getattr(condition, n) is not None]
    if condition.op is None:
        yield Problem(here, "the comparison has no 'op'")
    if len(against) != 1:
        yield Problem(here, "compare with exactly one of: value, other, text")
    elif against[0] == "text" and condition.op not in ("==", "!="):
        yield Problem(here, "text can only be == or !=")
    if condition.factor != 1.0 and condition.other is None:
        yield Problem(here, "'factor' multiplies 'other', which is not given")
    for name in ("value", "factor"):
        number = getattr(condition, name)
        if number is not None and not math.isfinite(number):
            yield Problem((*here, name), f"{name!r} must be finite, not {number}")


def _names(rule: Rule) -> Iterator[Problem]:
    used = signals_of([*rule.when, *rule.applies])
    texts = {leaf.signal for leaf in leaves([*rule.when, *rule.applies]) if leaf.text is not None}
    try:
        fields = [f for f in string.Formatter().parse(rule.says) if f[1] is not None]
    except ValueError as error:
        yield Problem(("says",), f"not a format string: {error}")
        fields = []
    shown = set()
    for _, name, spec, conversion in fields:
        shown.add(name or "")
        if not (name or "").isidentifier() or conversion or "{" in (spec or ""):
            yield Problem(("says",), f"{{{name}}} must be a signal's name with a plain format")
        elif not _formats(spec or "", name in texts):
            yield Problem(("says",), f"the format {spec!r} of {name} cannot be used")
    for name in sorted((used | shown) - set(rule.needs) - {""}):
        hint = did_you_mean(name, rule.needs)
        yield Problem(("needs",), f"{name!r} is used but not in 'needs'{hint}")
    for i, name in enumerate(rule.needs):
        if name not in used | shown:
            yield Problem(("needs", i), f"{name!r} is needed but neither tested nor said")
        if name in rule.needs[:i]:
            yield Problem(("needs", i), f"{name!r} is needed twice")


def _formats(spec: str, is_text: bool) -> bool:
    try:
        format("a" if is_text else 0.5, spec)
    except ValueError:
        return False
    return True


def _case(key: Key, case: Case, needs: list[str]) -> Iterator[Problem]:
    for name, value in case.signals.items():
        here = (*key, name)
        if name not in needs:
            hint = did_you_mean(name, needs)
            yield Problem(here, f"the case gives {name!r}, which the rule does not need{hint}")
        if isinstance(value, bool):
            yield Problem(here, f"{name!r} reads as true or false; put the word in quotes")
        elif isinstance(value, list):
            numbers = [x for x in value if isinstance(x, int | float) and not isinstance(x, bool)]
            if len(value) != 2 or len(numbers) != 2 or not value[0] <= value[1]:
                yield Problem(here, f"{name!r} is a number, a text, or [low, high] in that order")
        elif not isinstance(value, int | float | str):
            yield Problem(
                here, f"{name!r} is a number, a text, or [low, high]; leave out a missing one"
            )


def _effect(here: Key, effect: Effect) -> Iterator[Problem]:
    if effect.param not in PARAMS:
        hint = did_you_mean(effect.param, PARAMS)
        yield Problem((*here, "param"), f"unknown param {effect.param!r}{hint}")
    changes = [n for n in ("times", "add", "set") if getattr(effect, n) is not None]
    if len(changes) != 1:
        yield Problem(here, "an effect is exactly one of: times, add, set")
    for name in changes:
        number = getattr(effect, name)
        if not math.isfinite(number):
            yield Problem((*here, name), f"{name!r} must be finite, not {number}")
        elif name == "times" and number <= 0:
            yield Problem((*here, name), f"'times' must be above 0, not {number}")
    low, high = effect.efficiency
    if not 0 <= low <= high <= 1:
        yield Problem((*here, "efficiency"), "efficiency is [low, high] within 0..1")
