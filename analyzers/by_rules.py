"""Where little was recorded: rules beside the model, or alone where there is nothing to fit it to."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from ..rules.model import Verdict
from .verdict import Label

if TYPE_CHECKING:
    from ..rules.model import Class, Finding

AGREED = 0.6
"""Confidence where all rules that fire speak for one class: thresholds alone are right in about two of three."""


def by_rules(findings: list[Finding], *, withheld: bool) -> tuple[Verdict, Label]:
    """The class that every firing rule speaks for; an abstention between several, or for want of any."""
    fired = [f for f in findings if f.state == "fires" and f.class_ is not None]
    votes = Counter(f.class_ for f in fired)
    reason = "no load with token timing was measured"
    if not votes:
        return Verdict(
            class_=None, abstained=not withheld, withheld=withheld, method="none"
        ), Label(None, None, None, {}, reason=reason)
    ranked = [str(c) for c, _ in votes.most_common()]
    alone = len(ranked) == 1
    class_ = cast("Class", ranked[0]) if alone and not withheld else None
    first = next(f for f in fired if f.class_ == ranked[0])
    verdict = Verdict(
        class_=class_,
        sub_cause=first.sub_cause if class_ else None,
        confidence=AGREED if class_ else 0.0,
        abstained=not alone and not withheld,
        withheld=withheld,
        candidates=[] if alone else ranked,
        method="rules alone, no gain vector; confidence not calibrated",
        says="",
    )
    return verdict, Label(
        class_, first.sub_cause if class_ else None, None, {}, candidates=tuple(verdict.candidates),
        reason="rules", says=first.says,
    )  # fmt: skip


def weighed(label: Label, findings: list[Finding]) -> Label:
    """The label of a model whose load was told, not recorded, against the rules that fire on other evidence.

    One class by all of these rules counts before the model's; where they differ among themselves, the model
    decides between them, or nobody does. The other stays as the runner-up.
    """
    direct = [
        f
        for f in findings
        if f.state == "fires"
        and f.class_ is not None
        and any(e.source != "fit" for e in f.evidence)
    ]
    classes = list(dict.fromkeys(str(f.class_) for f in direct))
    if not classes or (label.class_ in classes and len(classes) == 1):
        return label
    if len(classes) == 1:
        first = direct[0]
        return replace(
            label, class_=cast("Class", first.class_), sub_cause=first.sub_cause, candidates=(),
            runner_up=label.class_ or next(iter(label.candidates), None), ambiguous=True,
            reason="rules", says=first.says,
        )  # fmt: skip
    if label.class_ in classes:
        other = next(c for c in classes if c != label.class_)
        return replace(label, runner_up=other, ambiguous=True)
    both = (*classes, *([label.class_] if label.class_ else label.candidates))
    return replace(
        label, class_=None, sub_cause=None, candidates=tuple(dict.fromkeys(map(str, both))),
        ambiguous=True, reason="split",
    )  # fmt: skip
