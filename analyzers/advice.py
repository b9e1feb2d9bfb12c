"""Levers for a verdict: which apply, what each would give and what bounds it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..rules.effects import applied
from ..rules.evaluate import helps, lever_conditions
from ..rules.model import PARAMS, Amdahl, Gain, LeverAdvice
from .counterfactual import gain as model_gain
from .verdict import engines_for, question
from .whatif import UNLIMITED, Engine, Load

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..rules.evaluate import Signals
    from ..rules.model import BudgetItem, Effect, Lever, Target
    from .fit import Fit
    from .verdict import Label

SMALL = 1.02
"""Gains below this are called none: they vanish in the noise of any run."""

LOAD_DOUBT = (0.9, 1.0, 1.1)
"""The same traffic on another day: at high utilisation this is most of a gain's doubt."""

ENGINE_FIELD = {
    "max_num_seqs": "max_num_seqs",
    "token_budget": "token_budget",
    "kv_capacity": "kv_tokens",
    "path_latency": "path_s",
    "front_end": "front_end_s",
}
"""Parameter → the field of the model's engine; `offered_load` is the load's rate."""


def amdahl(p: float, s: float) -> float:
    """1 / ((1 − p) + p / s): the gain when a share p (0..1) becomes s times faster; s may be infinite."""
    return 1.0 / max((1.0 - p) + p / s, 1e-9)


def rank_levers(
    levers: Mapping[str, Lever],
    *,
    label: Label,
    named: Iterable[str],
    target: Target,
    budget: list[BudgetItem],
    signals: Signals,
    facts: Mapping[str, float],
    fit: Fit | None,
) -> list[LeverAdvice]:
    """Levers that attack the verdict's class or candidates, or that a firing rule names; best first.

    Those that help come before those to check first, and those before the ones that will not help;
    within each by gain, then by effort and ladder rung.
    """
    wanted = set(named)
    classes = {label.class_} if label.class_ else set(label.candidates)
    advice = []
    for lever in levers.values():
        if lever.id in wanted or any(a.split(".")[0] in classes for a in lever.attacks):
            advice.append(_advise(lever, label, target, budget, signals, facts, fit))
    effort = {"minutes": 0, "hours": 1, "days": 2, "weeks": 3}
    order = {True: 0, "check_first": 1, False: 2}
    return sorted(
        advice,
        key=lambda a: (
            order[a.helps],
            -(a.gain.mid if a.gain else 0.0),
            effort[a.effort],
            a.ladder_rung,
        ),
    )


def _advise(
    lever: Lever,
    label: Label,
    target: Target,
    budget: list[BudgetItem],
    signals: Signals,
    facts: Mapping[str, float],
    fit: Fit | None,
) -> LeverAdvice:
    bound = _bound(lever, budget)
    value, modelled = _modelled(lever, label, target, facts, fit)
    estimate = modelled or _share_estimate(lever, bound, budget, target)
    help_state, why = _state(lever, label, signals, estimate)
    flags = {
        k: v.replace("{value}", f"{value:.0f}" if value else "N") for k, v in lever.flags.items()
    }
    return LeverAdvice(
        id=lever.id,
        title=lever.title,
        ladder_rung=lever.ladder_rung,
        effort=lever.effort,
        flags=flags,
        relieves=lever.relieves,
        burdens=lever.burdens,
        failure_mode=lever.failure_mode,
        quality_gate=lever.quality_gate,
        disable_when=lever.disable_when,
        rollback=lever.rollback,
        helps=help_state,
        why=why,
        amdahl=bound,
        gain=estimate,
    )


def _speedup(effect: Effect, efficiency: float) -> float:
    """How many times shorter the component of the effect's parameter gets; `inf` when it vanishes."""
    after = applied(effect, 1.0, efficiency) if effect.times is not None else 1.0
    if PARAMS[effect.param].law == "inverse":
        return max(after, 1e-9)
    return 1.0 / after if after > 0 else math.inf


def _bound(lever: Lever, budget: list[BudgetItem]) -> Amdahl | None:
    """Amdahl's bound on the lever: the share of the parts it acts on, and its full effect on them.

    None when the budget does not hold such a part: then there is nothing to bound.
    """
    shares = {b.component: b.share for b in budget}
    parts = [(shares.get(PARAMS[e.param].component, 0.0), _speedup(e, 1.0)) for e in lever.effect]
    p = sum(share for share, _ in parts)
    if p <= 0:
        return None
    after = sum(share / s for share, s in parts)
    s = p / after if after > 0 else math.inf
    return Amdahl(p=p, s=s if math.isfinite(s) else None, gain=amdahl(p, s))


def _share_estimate(
    lever: Lever, bound: Amdahl | None, budget: list[BudgetItem], target: Target
) -> Gain | None:
    """Amdahl on measured shares with the part of the effect that usually arrives."""
    if bound is None:
        return None
    shares = {b.component: b.share for b in budget}
    gains = []
    for pick in (0, 1):
        saved = sum(
            shares.get(PARAMS[e.param].component, 0.0)
            * (1.0 - 1.0 / _speedup(e, e.efficiency[pick]))
            for e in lever.effect
        )
        gains.append(1.0 / max(1.0 - saved, 1e-9))
    low, high = sorted(gains)
    return Gain(
        low=low, mid=math.sqrt(low * high), high=min(high, bound.gain),
        metric=_metric(target), method="amdahl", capped_by=f"share of the part it acts on, {bound.p:.0%}",
    )  # fmt: skip


def _modelled(
    lever: Lever, label: Label, target: Target, facts: Mapping[str, float], fit: Fit | None
) -> tuple[float | None, Gain | None]:
    """The new value of the setting and the gain by the fixed point, where the model knows the parameter."""
    if fit is None or len(lever.effect) != 1:
        return None, None
    effect = lever.effect[0]
    ask = question(target.metric, target.statistic)
    value: float | None = None
    gains: list[list[float]] = []
    for engine in engines_for(ask, fit, facts):
        changed = _changed(effect, label, engine, fit.load)
        if changed is None:
            return None, None
        new_engine, new_load, value = changed
        base = (engine, fit.load)
        gains.append(
            [
                model_gain(
                    ask,
                    base,
                    (new_engine, replace(new_load, rate=new_load.rate * r)),
                    facts,
                )
                for r in LOAD_DOUBT
            ]
        )
    mid = gains[1][1]
    low, high = _interval(gains, mid, target)
    return value, Gain(
        low=low, mid=mid, high=high, metric=_metric(target), method="fixed_point", capped_by=_cap(label),
    )  # fmt: skip


def _interval(gains: list[list[float]], mid: float, target: Target) -> tuple[float, float]:
    """The gain's bounds: the fit's doubt, the load's, and that of the measured base, added in squares of logs."""
    fit = [math.log(row[1] / mid) for row in gains]
    load = [math.log(g / mid) for g in gains[1]]
    base = [0.0, 0.0]
    if target.value and target.low and target.high:
        base = [math.log(target.low / target.value), math.log(target.high / target.value)]
    down, up = (
        math.sqrt(pick(fit) ** 2 + pick(load) ** 2 + pick(base) ** 2) for pick in (min, max)
    )
    return mid * math.exp(-down), mid * math.exp(up)


def _changed(
    effect: Effect, label: Label, engine: Engine, load: Load
) -> tuple[Engine, Load, float | None] | None:
    policy = label.policy
    setting = {"max_num_seqs": "batch cap", "token_budget": "token budget"}.get(effect.param)
    if setting and policy and policy.name == setting:
        raises = policy.value > getattr(engine, ENGINE_FIELD[effect.param])
        if raises == (applied(effect, 1.0, 1.0) > 1.0):
            return replace(engine, **{ENGINE_FIELD[effect.param]: policy.value}), load, policy.value
    if effect.param == "offered_load" and load.open_loop:
        return engine, replace(load, rate=applied(effect, load.rate, 1.0)), None
    name = ENGINE_FIELD.get(effect.param)
    if name is None or getattr(engine, name) >= UNLIMITED:
        return None
    new = applied(effect, getattr(engine, name), 1.0)
    fields: dict[str, Any] = {name: new}
    return replace(engine, **fields), load, new if setting else None


def _cap(label: Label) -> str:
    return (
        f"the next ceiling, {label.binding_resource}"
        if label.binding_resource
        else "the next ceiling"
    )


def _metric(target: Target) -> str:
    return f"{target.statistic} {target.metric}" if target.statistic != "rate" else target.metric


def _state(lever: Lever, label: Label, signals: Signals, estimate: Gain | None) -> tuple[Any, str]:
    state = helps(lever, signals)
    if state is False:
        enabled, _ = lever_conditions(lever, signals)
        return (
            False,
            "its enabling condition does not hold"
            if enabled.truth is False
            else "it would harm here",
        )
    if estimate is not None and estimate.mid < SMALL:
        return (
            False,
            f"gains {estimate.mid - 1:+.0%}: the part it acts on is not where the time goes",
        )
    if state == "check_first":
        return "check_first", "a condition under which it helps was not measured"
    if label.class_ is None:
        return "check_first", "the verdict abstains: measure first"
    if estimate is None:
        return "check_first", "its part of the time was not measured"
    return True, lever.why
