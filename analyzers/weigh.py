"""The weight of evidence: rules that fire, and the cost model, into the odds of the classes.

For evidence that was told, not recorded. Each rule says how many times likelier its symptom is seen where its
class is right than where another is (`Rule.odds`); the model's hypotheses count with less than their share the
more of it was assumed. As symptoms of one class come together, the strongest counts in full, the next ones by
halves. Odds multiply (I. J. Good, 1950, "Probability and the Weighing of Evidence").
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from ..rules.model import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..rules.model import Class, Finding, Rule
    from .verdict import Label

NONE = "none"
"""That nothing stands out, beside the classes: only the model can say so."""

NONE_BEFORE = 0.5
"""Its odds before any evidence, to each class: who asks has a complaint."""

DOUBT = 0.05
"""Share of the hypotheses that a class has although none of them says it: the model may be wrong."""

TRUST = (0.3, 0.5, 0.8)
"""Power of the model's odds where neither model nor device is known, one of them, both."""

ENOUGH = 0.35
"""Probability from which a class is named."""

AHEAD = 1.3
"""Odds to the second class from which it is named."""

POSSIBLE = 0.1
"""Probability from which a class stays a candidate."""

CLOSE = 4.0
"""Odds of the first class to one that stays a candidate."""

MOST_CANDIDATES = 4

SHARED = 0.2
"""Share of the model's hypotheses below which it does not see the class, and its gains are no estimates."""

MOST = 0.85
"""Most that a verdict on evidence that was told may claim, whatever speaks for it: the rules' odds are judged,
not counted."""


@dataclass(frozen=True)
class Weighed:
    """Probabilities of the classes and `none`, and the findings that count, the strongest first."""

    shares: Mapping[str, float]
    findings: tuple[Finding, ...]


def direct(findings: Iterable[Finding]) -> list[Finding]:
    """Findings that fire for a class and rest on more than the model's own output."""
    return [
        f
        for f in findings
        if f.state == "fires"
        and f.class_ is not None
        and any(e.source != "fit" for e in f.evidence)
    ]


def weigh(
    findings: Sequence[Finding],
    rules: Mapping[str, Rule],
    shares: Mapping[str, float] | None,
    trust: float,
) -> Weighed:
    """The probability of every class.

    Args:
        findings: all of them.
        rules: by id.
        shares: of the model's hypotheses, by class and `none`; None without a model.
        trust: power of the model's odds, 0..1.
    """
    counted = sorted(direct(findings), key=lambda f: -rules[f.rule].odds)
    score = dict.fromkeys(CLASSES, 0.0) | {NONE: math.log(NONE_BEFORE)}
    seen: Counter[str] = Counter()
    for finding in counted:
        name = str(finding.class_)
        score[name] += math.log(rules[finding.rule].odds) / 2 ** seen[name]
        seen[name] += 1
    if shares is not None:
        for name in score:
            score[name] += trust * math.log(shares.get(name, 0.0) + DOUBT)
    top = max(score.values())
    odds = {name: math.exp(value - top) for name, value in score.items()}
    whole = sum(odds.values())
    return Weighed({name: value / whole for name, value in odds.items()}, tuple(counted))


def named(weighed: Weighed, label: Label) -> Label:
    """The label that the evidence comes to.

    Args:
        weighed: by `weigh`.
        label: the model's; it keeps its words and gains where the class is the same.
    """
    said = label.shares
    ranked = sorted(weighed.shares, key=lambda c: -weighed.shares[c])
    first, second = ranked[0], ranked[1]
    p = weighed.shares[first]
    shares = {c: round(weighed.shares[c], 4) for c in ranked}
    left = tuple(c for c in ranked if weighed.shares[c] >= max(POSSIBLE, p / CLOSE))[
        :MOST_CANDIDATES
    ]
    if p < ENOUGH or p < AHEAD * weighed.shares[second]:
        return replace(
            label, class_=None, sub_cause=None, candidates=left, ambiguous=True, share=p,
            shares=shares, reason="split", says=_for_each(weighed, left),
        )  # fmt: skip
    runner_up = second if weighed.shares[second] >= POSSIBLE and second != NONE else None
    label = replace(
        label, share=p, shares=shares, candidates=(), runner_up=runner_up,
        ambiguous=weighed.shares[second] * 2 >= p,
    )  # fmt: skip
    if first == NONE or (first == label.class_ and not _ours(weighed, first)):
        return label
    strongest = next(f for f in weighed.findings if f.class_ == first)
    if said.get(first, 0.0) < SHARED:
        label = replace(label, gains={}, policy=None, binding_resource=None)
    if first == label.class_ and label.reason not in ("split", "misfit"):
        sub_cause = strongest.sub_cause or label.sub_cause
        return replace(label, sub_cause=sub_cause, says=strongest.says)
    return replace(
        label, class_=cast("Class", first), sub_cause=strongest.sub_cause, reason="rules",
        says=strongest.says,
    )  # fmt: skip


def overruled(label: Label) -> bool:
    """Does the class rest on rules that the cost model does not see? Then it has no gains to tell."""
    return label.reason == "rules" and not label.gains


def _for_each(weighed: Weighed, classes: Sequence[str]) -> str:
    """What speaks for each class, by the strongest finding of each that has one."""
    said = []
    for class_ in classes:
        found = next((f for f in weighed.findings if f.class_ == class_), None)
        if found is not None:
            said.append(f"for {class_}, {found.says[:1].lower()}{found.says[1:]}")
    return "; ".join(said)


def _ours(weighed: Weighed, class_: str) -> bool:
    return any(f.class_ == class_ for f in weighed.findings)


def claimed(label: Label) -> float:
    """How sure the verdict may be: the probability of its class, never more than `MOST`; 0 for an abstention."""
    return round(MOST * label.share, 2) if label.class_ is not None else 0.0
