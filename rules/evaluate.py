"""Rules judged on signals: pure, and unsure whenever the facts are.

The one law of this file: taking evidence away (a signal, its coverage, or the narrowness of its
range) turns an answer into `cannot_tell` or leaves it, and never makes one out of `cannot_tell`.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ..errors import WhyboundError
from .conditions import Judgement, Lookup, interval, judge_all, judge_any, signals_of
from .model import MODELLED, TOLD, Condition, Lever, Rule, Signal, State

MIN_COVERAGE = 0.5
"""Share of the run below which a signal does not speak for it, where a rule does not say."""


class Signals(Mapping[tuple[str, str], Signal]):
    """Signals by (name, scope)."""

    def __init__(self, signals: Iterable[Signal] = ()):
        self._rows: dict[tuple[str, str], Signal] = {}
        for signal in signals:
            key = (signal.name, signal.scope)
            if self._rows.setdefault(key, signal) != signal:
                where = f" of {signal.scope}" if signal.scope else ""
                sources = f"{self._rows[key].source or '?'} and {signal.source or '?'}"
                raise WhyboundError(f"signal {signal.name}{where} is given twice, by {sources}")

    def __getitem__(self, key: tuple[str, str]) -> Signal:
        return self._rows[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def usable(self, scope: str = "", min_coverage: float = MIN_COVERAGE) -> Lookup:
        """A look-up by name in exactly `scope`; None for what is absent, unknown or thinly covered.

        There is no falling back to the whole run: a replica whose own value is missing would be
        judged by the average of the others.
        """

        def lookup(name: str) -> Signal | None:
            signal = self._rows.get((name, scope))
            if signal is None or not signal.coverage >= min_coverage:
                return None
            return signal if signal.text is not None or interval(signal) is not None else None

        return lookup


@dataclass(frozen=True)
class Outcome:
    """What one rule says of one scope.

    Attributes:
        evidence: the usable signals among the rule's `needs`, in that order.
        missing: the names among them that are absent, unknown or cover too little of the run. A
            rule may be undecided with none missing: an interval then straddles a threshold.
        says: the rule's sentence on these values, `?` for what is missing; it states facts and
            reads the same whatever the state.
        margin: −1..1, distance from the nearest threshold that would change `fires` to `clear` or
            back (`conditions.Judgement`); None when the rule cannot tell or does not apply.
    """

    rule: str
    scope: str
    state: State
    evidence: tuple[Signal, ...]
    missing: tuple[str, ...]
    says: str
    margin: float | None


def evaluate(rule: Rule, signals: Signals) -> list[Outcome]:
    """Judge `rule` once a scope: the run, or with `per: gpu,node` each scope of exactly these keys.

    With `per` and no such scope there is one outcome for the run, `cannot_tell`. Never empty.
    """
    if rule.per is None:
        return [_outcome(rule, "", signals)]
    keys = {k.strip() for k in rule.per.split(",")}
    needs = set(rule.needs)
    scopes = {scope for name, scope in signals if name in needs and _keys_of(scope) == keys}
    return [_outcome(rule, scope, signals) for scope in sorted(scopes) or [""]]


def evaluate_all(rules: Iterable[Rule], signals: Signals) -> list[Outcome]:
    """Every outcome of every rule, in the order given."""
    return [outcome for rule in rules for outcome in evaluate(rule, signals)]


def helps(
    lever: Lever, signals: Signals, scope: str = "", *, modelled: bool = False
) -> bool | Literal["check_first"]:
    """Can this lever help here? False: a harm is certain or an enabling condition certainly fails.

    All of `enabling` must hold, and any one of `harms` forbids; otherwise what is unknown makes it
    `check_first`. `modelled`: the cost model gives its gain, so conditions on `MODELLED` signals, which say
    where the time goes, are left to it.
    """
    enabled, harmed = lever_conditions(lever, signals, scope, modelled=modelled)
    if enabled.truth is False or harmed.truth:
        return False
    return True if enabled.truth and harmed.truth is False else "check_first"


def lever_conditions(
    lever: Lever, signals: Signals, scope: str = "", *, modelled: bool = False
) -> tuple[Judgement, Judgement]:
    """Whether `enabling` (all) and `harms` (any) hold; harms that are not listed do not."""
    lookup = signals.usable(scope)
    enabling = [c for c in lever.enabling if not (modelled and signals_of([c]) <= MODELLED)]
    return judge_all(enabling, lookup), judge_any(lever.harms, lookup)


def holds(conditions: Iterable[Condition], signals: Signals, scope: str = "") -> bool | None:
    """Whether all of `conditions` hold; None when the facts do not decide."""
    return judge_all(conditions, signals.usable(scope)).truth


def sentence(template: str, lookup: Lookup) -> str:
    """`template` with each `{name:spec}` replaced by the signal's value; never raises.

    What is missing, not a number, or does not fit its spec becomes `?`; a clause that would say only
    that is left out where another remains. A signal that is only a range is shown as `low–high`. A
    template that is itself malformed is returned as it stands.
    """
    try:
        parts = list(string.Formatter().parse(template))
    except ValueError:
        return template
    out = []
    for literal, name, spec, _ in parts:
        out.append(literal)
        if name is not None:
            out.append(_shown(lookup(name), spec or ""))
    return _known_clauses("".join(out))


def _known_clauses(text: str) -> str:
    """Without the clauses that hold a `?`, where one without remains."""
    clauses = re.split(r"([,;] )", text)
    kept = [i for i in range(0, len(clauses), 2) if "?" not in clauses[i]]
    if not kept or len(kept) == (len(clauses) + 1) // 2:
        return text
    joined = clauses[kept[0]].removeprefix("and ")
    for i in kept[1:]:
        joined += clauses[i - 1] + clauses[i]
    return joined[:1].upper() + joined[1:]


def _recorded(lookup: Lookup) -> Lookup:
    """Only what was recorded."""

    def found(name: str) -> Signal | None:
        signal = lookup(name)
        return None if signal is None or signal.source in TOLD else signal

    return found


def _outcome(rule: Rule, scope: str, signals: Signals) -> Outcome:
    lookup = signals.usable(scope, rule.min_coverage)
    if rule.recorded:
        lookup = _recorded(lookup)
    applies, when = judge_all(rule.applies, lookup), judge_all(rule.when, lookup)
    state: State
    if applies.truth is False:
        state = "not_applicable"
    elif applies.truth is None or when.truth is None:
        state = "cannot_tell"
    else:
        state = "fires" if when.truth else "clear"
    found = [(name, lookup(name)) for name in rule.needs]
    return Outcome(
        rule=rule.id,
        scope=scope,
        state=state,
        evidence=tuple(s for _, s in found if s is not None),
        missing=tuple(name for name, s in found if s is None),
        says=sentence(rule.says, lookup),
        margin=when.margin if state in ("fires", "clear") else None,
    )


def _keys_of(scope: str) -> set[str]:
    return {pair.partition("=")[0].strip() for pair in scope.split(",") if pair.strip()}


def _shown(signal: Signal | None, spec: str) -> str:
    if signal is None:
        return "?"
    if signal.text is not None:
        values: list[float | str] = [signal.text]
    elif signal.value is not None:
        values = [signal.value]
    else:
        values = list(interval(signal) or ())
    try:
        shown = [format(v, spec) for v in values if isinstance(v, str) or not math.isnan(v)]
    except (ValueError, OverflowError):
        return "?"
    return "–".join(shown) or "?"
