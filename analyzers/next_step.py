"""The one observation that would change the verdict most for the least effort, as a line to paste.

Each rule that cannot tell yet is a question: its answer moves the odds of the classes by `Rule.odds`. An
observation is worth the information (in nats) that its rules' answers are expected to give about the class, over
its effort.
"""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING, Any

from ..rules.model import NextMeasurement
from ..rules.observations import load_observations

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from ..rules.model import Finding, PrecheckResult, Rule, Verdict
    from ..rules.observations import Observation

SURE = 0.7
"""Confidence from which a verdict is settled and nothing need be measured."""

REMAINS = 0.1
"""Probability from which a class is one of those that an observation should tell apart."""

WORTH = 0.01
"""Nats below which an observation would tell nothing."""


def next_measurement(
    verdict: Verdict,
    prechecks: list[PrecheckResult],
    manifest: Mapping[str, Any],
    known: Collection[str],
    missing: list[str],
    findings: Sequence[Finding] = (),
    rules: Mapping[str, Rule] | None = None,
) -> NextMeasurement | None:
    """What would settle what is open; None when nothing is.

    Args:
        verdict: with `shares`, the probability of every class, where there are any.
        prechecks: all of them.
        manifest: the run's.
        known: signals that are there.
        missing: what was not collected, in words.
        findings: of the rules, with what could not be told.
        rules: by id.
    """
    broken = [p for p in prechecks if p.effect == "invalid"]
    if broken:
        load = shlex.quote(str(manifest.get("load_text") or "closed:concurrency=1,d=30s"))
        return NextMeasurement(
            command=_filled(f"profile attach --url {{url}} --load {load} -o RUN2", manifest),
            decides=[],
            because=broken[0].remedy or "repeat it soundly",
        )
    if not verdict.abstained and (verdict.class_ is None or verdict.confidence >= SURE):
        return None
    unknown = [m for m in missing if "the device (" in m or "the model's configuration (" in m]
    if verdict.abstained and unknown:
        return NextMeasurement(
            command="nvidia-smi -L > gpus.txt; profile diagnose server.log gpus.txt config.json",
            decides=list(verdict.candidates),
            because="bandwidth and peak of the GPU, parameters and KV bytes of the model are the two numbers that"
            " set the floors: name both",
        )
    if not verdict.shares and not known:
        return NextMeasurement(
            command=_filled(
                "profile attach --url {url} --load poisson:rate=1 -d 60s -o RUN2", manifest
            ),
            decides=[],
            because="nothing was measured: offer a load, or attach while there is one",
        )
    open_ = _undecided(findings, rules or {})
    best = max(
        load_observations(), key=lambda o: _worth(o, open_, verdict.shares, known) / o.effort
    )
    if _worth(best, open_, verdict.shares, known) < WORTH:
        if not verdict.abstained:
            return None
        best = next(o for o in load_observations() if o.id == "light_load")
    return NextMeasurement(
        command=_filled(best.command, manifest), decides=_decides(best, open_, verdict),
        because=" ".join(best.because.split()),
    )  # fmt: skip


def _undecided(findings: Sequence[Finding], rules: Mapping[str, Rule]) -> list[Rule]:
    states = {f.rule: f.state for f in findings}
    return [r for r in rules.values() if states.get(r.id) == "cannot_tell" and r.class_]


def _worth(
    o: Observation, open_: Sequence[Rule], shares: Mapping[str, float], known: Collection[str]
) -> float:
    """Nats that it is expected to tell about the class: of each class its best rule's answer."""
    if any(name in known for name in o.unless):
        return 0.0
    best: dict[str, float] = {}
    for rule in open_:
        part = _answered(o, rule, known)
        if part and shares.get(str(rule.class_), 0.0 if shares else 1.0) >= REMAINS:
            told = part * information(shares, str(rule.class_), rule.odds, o.sees)
            best[str(rule.class_)] = max(told, best.get(str(rule.class_), 0.0))
    return sum(best.values())


def _answered(o: Observation, rule: Rule, known: Collection[str]) -> float:
    """The part of what the rule lacks that the observation gives, 0..1."""
    lacks = [name for name in rule.needs if name not in known]
    return sum(name in o.gives for name in lacks) / len(lacks) if lacks else 0.0


def information(shares: Mapping[str, float], class_: str, odds: float, sees: float = 0.6) -> float:
    """Mutual information, in nats, of the class and of whether a symptom of `class_` is seen.

    Args:
        shares: probability by class; without any all are alike.
        class_: that the symptom speaks for.
        odds: how many times likelier it is seen there than elsewhere, at least 1.
        sees: how often it is seen where its class is right, 0..1.
    """
    p = shares.get(class_, 0.0) if shares else 1 / 7
    elsewhere = sees / odds
    seen = p * sees + (1 - p) * elsewhere
    return _entropy(seen) - p * _entropy(sees) - (1 - p) * _entropy(elsewhere)


def _entropy(p: float) -> float:
    return -sum(x * math.log(x) for x in (p, 1 - p) if x > 0)


def _decides(o: Observation, open_: Sequence[Rule], verdict: Verdict) -> list[str]:
    """The candidates; where there are none, the classes that it speaks for or against."""
    if verdict.candidates:
        return list(verdict.candidates)
    told = {str(r.class_) for r in open_ if set(r.needs) & set(o.gives)}
    own = [c for c in (verdict.class_, verdict.runner_up) if c]
    return list(dict.fromkeys([*own, *sorted(told)]))


def _filled(command: str, manifest: Mapping[str, Any]) -> str:
    """A line to paste; what comes from the run is quoted for the shell."""
    return command.replace("{url}", shlex.quote(str(manifest.get("url") or "URL")))
