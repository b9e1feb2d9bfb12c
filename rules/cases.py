"""A rule's own examples, and whether they pin every threshold that it has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from .conditions import interval, leaves
from .evaluate import Signals, evaluate
from .model import Case, Condition, Rule, Signal, State

NEAR = 0.1
"""A case is just across a threshold when it is within this share of it."""

_TRUE = Condition(all=[])


def case_signals(rule: Rule, case: Case) -> Signals:
    """The case's facts as signals, in the run's scope, or in one scope of the rule's `per`."""
    keys = sorted(k.strip() for k in rule.per.split(",")) if rule.per else []
    scope = ",".join(f"{key}=0" for key in keys)
    return Signals(_signal(name, scope, given) for name, given in case.signals.items())


def check_cases(rule: Rule) -> list[str]:
    """What is wrong with the rule's cases, a sentence each; empty when they hold.

    Every case must be judged as it says. One must fire, one must not be able to tell, and each
    comparison in `when` needs a `clear` case that is just across its threshold and would fire but
    for it; each one in `applies` likewise needs a `not_applicable` case.
    """
    problems = []
    for case in rule.cases:
        found = _state(rule, case)
        if found != case.state:
            problems.append(f"case {case.name!r} should be {case.state} but is {found}")
    for state in ("fires", "cannot_tell"):
        if not any(case.state == state for case in rule.cases):
            problems.append(f"no case is {state}")
    expected: dict[str, State] = {"when": "clear", "applies": "not_applicable"}
    for part, state in expected.items():
        for leaf, without in _without_each(rule, part):
            if not any(_pins(rule, case, leaf, without, state) for case in rule.cases):
                against = leaf.text or leaf.other or leaf.value
                problems.append(
                    f"no {state} case just across {leaf.signal} {leaf.op} {against} in {part!r}"
                )
    return problems


def _pins(rule: Rule, case: Case, leaf: Condition, without: Rule, state: State) -> bool:
    """Is this comparison, by a little, the only reason why the case does not fire?"""
    if case.state != state or _state(without, case) != "fires":
        return False
    if leaf.text is not None:
        return True
    given = {s.name: interval(s) for s in case_signals(rule, case).values()}
    value = given.get(leaf.signal or "")
    threshold = (leaf.value, leaf.value) if leaf.other is None else given.get(leaf.other)
    if value is None or threshold is None or threshold[0] is None:
        return False
    at = threshold[0] * leaf.factor
    return abs(value[0] - at) <= NEAR * abs(at) and abs(value[1] - at) <= NEAR * abs(at)


def _state(rule: Rule, case: Case) -> State:
    return evaluate(rule, case_signals(rule, case))[0].state


def _without_each(rule: Rule, part: str) -> Iterator[tuple[Condition, Rule]]:
    """Each comparison of `part`, with the rule in which it is always true."""
    conditions: list[Condition] = getattr(rule, part)
    for leaf in leaves(conditions):
        changed = [_replaced(c, leaf) for c in conditions]
        yield leaf, msgspec.structs.replace(rule, **{part: changed})


def _replaced(condition: Condition, leaf: Condition) -> Condition:
    if condition is leaf:
        return _TRUE
    for name in ("all", "any"):
        children: list[Condition] | None = getattr(condition, name)
        if children is not None:
            swapped: dict[str, Any] = {name: [_replaced(c, leaf) for c in children]}
            return msgspec.structs.replace(condition, **swapped)
    return condition


def _signal(name: str, scope: str, given: Any) -> Signal:
    if isinstance(given, str):
        return Signal(name=name, scope=scope, text=given)
    if isinstance(given, list):
        low, high = given
        return Signal(name=name, scope=scope, value=(low + high) / 2, low=low, high=high)
    return Signal(name=name, scope=scope, value=given)
