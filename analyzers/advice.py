"""Levers for a verdict: which apply, what each would give and what bounds it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..rules.conditions import signals_of
from ..rules.effects import applied
from ..rules.evaluate import helps, lever_conditions
from ..rules.model import MODELLED, PARAMS, Amdahl, Gain, LeverAdvice
from .apply import SETTINGS, changed
from .confidence import calibration
from .counterfactual import Gain as Spread
from .counterfactual import best_policy, gains, solve_all, spread
from .formulas import amdahl
from .verdict import question

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..rules.evaluate import Signals
    from ..rules.model import BudgetItem, Effect, Lever, Target
    from .counterfactual import Policy, Question, Solved
    from .posterior import Array
    from .verdict import Label, Whatif
    from .whatif import World

SMALL = 1.02
"""Gains below this are called none: they vanish in the noise of any run."""

NO_BOUND = 1e9
"""Stands for an infinite bound: JSON has no infinity."""

LOAD_DOUBT = (0.9, 1.1)
"""The same traffic on another day: at high utilisation this is most of a gain's doubt."""

NOTICEABLE = 1.10
"""From this gain a lever is shown whatever class it is for."""


def rank_levers(
    levers: Mapping[str, Lever],
    *,
    label: Label,
    named: Iterable[str],
    target: Target,
    budget: list[BudgetItem],
    signals: Signals,
    model: Whatif | None,
) -> list[LeverAdvice]:
    """Levers that attack the verdict's class or candidates, that a firing rule names, or that gain much.

    Those that help come before those to check first, and those before the ones that will not help;
    within each by `worth`, then by ladder rung; where the verdict is not the model's, those that attack it
    come first.
    """
    estimates = {} if model is None else model_estimates(levers, label, target, budget, model)
    wanted = set(named)
    classes = {label.class_} if label.class_ else set(label.candidates)
    advice = []
    for lever in levers.values():
        estimate = estimates.get(lever.id)
        is_for = lever.id in wanted or any(a.split(".")[0] in classes for a in lever.attacks)
        if is_for or (estimate is not None and estimate.gain.mid >= NOTICEABLE):
            advice.append(advise(lever, label, target, budget, signals, estimate))
    order = {True: 0, "check_first": 1, False: 2}

    def rank(a: LeverAdvice) -> tuple[int, bool, float, int]:
        beside = label.reason == RULES and not attacks(levers[a.id], label)
        return order[a.helps], beside, -worth(a), a.ladder_rung

    return sorted(advice, key=rank)


RULES = "rules"
"""`Label.reason` of a class that what was seen speaks for, against the cost model or without one."""


def attacks(lever: Lever, label: Label) -> bool:
    """Is it for the label's class, and its sub-cause where both name one?"""
    for attacked in lever.attacks:
        class_, _, sub_cause = attacked.partition(".")
        if class_ == label.class_ and (not sub_cause or sub_cause == label.sub_cause):
            return True
    return False


EFFORT = {"minutes": 0.0, "hours": 0.03, "days": 0.08, "weeks": 0.15}
"""Logarithm of gain that an effort must bring more than the least one, to come before it."""


def worth(advice: LeverAdvice) -> float:
    """What levers are ranked by: ln of the gain, half of it at the cautious end, less the effort."""
    if advice.gain is None:
        return -EFFORT[advice.effort]
    low, mid = max(advice.gain.low, 1e-3), max(advice.gain.mid, 1e-3)
    return (math.log(low) + math.log(mid)) / 2 - EFFORT[advice.effort]


@dataclass(frozen=True)
class Estimate:
    """What the model says of a lever: the gain, and the value of the setting that it sets."""

    gain: Gain
    value: float | None = None


def model_estimates(
    levers: Mapping[str, Lever],
    label: Label,
    target: Target,
    budget: list[BudgetItem],
    model: Whatif,
    settings: Mapping[str, Policy] | None = None,
) -> dict[str, Estimate]:
    """The gain of every lever whose effect the model knows, by the fixed point, all solved together.

    Each hypothesis of the fit draws how much of each effect arrives and how the load differs from the
    measured one; the interval holds 80 % of them. `settings`: new values by the setting's name; None takes
    the best of the grid.
    """
    ask = question(target.metric, target.statistic)
    policy = best_policies(ask, model) if settings is None else settings
    base = _on_another_day(model.solved(ask).worlds[""], model.fit.n)
    worlds: dict[str, World] = {}
    values: dict[str, float | None] = {}
    for lever in levers.values():
        after = changed(lever, base, model.fit.work, policy, _arrives(lever, model.fit.n))
        if after is not None:
            worlds[lever.id], values[lever.id] = after
    solved = solve_all(base, worlds, model.fit.n)
    found = gains(ask, solved, model.facts)
    return {
        name: Estimate(_gain(levers[name], ratios, solved, target, budget, label), values[name])
        for name, ratios in found.items()
    }


def best_policies(ask: Question, model: Whatif) -> dict[str, Policy]:
    """The best value of each setting by itself, by the setting's name."""
    solved = model.solved(ask)
    found = gains(ask, solved, model.facts)
    best = {}
    for setting in SETTINGS.values():
        tried = {k: p for k, p in model.tried.items() if p.name == setting}
        chosen = best_policy(ask, found, tried, solved)
        if chosen is not None:
            best[setting] = chosen[0]
    return best


def _on_another_day(base: World, n: int) -> World:
    """The base with its load a little off, in every hypothesis another way."""
    engine, load = base
    if not load.open_loop:
        return base
    rng = np.random.default_rng(1)
    return engine, replace(load, rate=load.rate * rng.uniform(*LOAD_DOUBT, n))


def _arrives(lever: Lever, n: int) -> dict[int, Array]:
    """How much of each effect arrives in each hypothesis, 0..1."""
    rng = np.random.default_rng(2)
    return {i: rng.uniform(*effect.efficiency, n) for i, effect in enumerate(lever.effect)}


def _gain(
    lever: Lever,
    ratios: Array,
    solved: Solved,
    target: Target,
    budget: list[BudgetItem],
    label: Label,
) -> Gain:
    """A gain and what caps it; only waiting and a smaller batch may carry it above Amdahl's bound."""
    shown = widened(spread(ratios))
    bound = _bound(lever, budget, high=True)
    low, mid, high = shown.low, shown.mid, shown.high
    bound = bound if bound is not None and high > bound.gain else None
    if bound is not None and _service_only(solved):
        low, mid, high = (min(v, bound.gain) for v in (low, mid, high))
        why = f"Amdahl's bound on the {bound.p:.0%} that it acts on"
    elif float(np.median(solved.outcomes[""].rho)) > 1.0:
        why = "nothing steady: more arrives than can be served, so the gain grows with how long that lasts"
    elif bound is not None:
        why = (
            "the wait and the batch shrink with it: more than Amdahl's"
            f" {bound.gain:.2f} at the upper end of its share"
        )
    else:
        named = f", {label.binding_resource}" if label.binding_resource else ""
        why = f"the next ceiling{named}"
    return Gain(
        low=low, mid=mid, high=high, metric=_metric(target), method="fixed_point", capped_by=why
    )


def widened(gain: Spread) -> Spread:
    """The interval as wide as development runs asked for, around the same middle."""
    factor = calibration().interval
    return Spread(
        gain.mid * (gain.low / gain.mid) ** factor,
        gain.mid,
        gain.mid * (gain.high / gain.mid) ** factor,
    )


def _service_only(solved: Solved) -> bool:
    """Nothing waits and hardly anyone shares a pass, so a gain is one of service time alone."""
    base = solved.outcomes[""]
    alone = float(np.median(base.batch)) <= 1.5
    waits = float(np.median(base.wait_s / np.maximum(base.e2e_s, 1e-12)))
    return alone and waits < 0.02


def advise(
    lever: Lever,
    label: Label,
    target: Target,
    budget: list[BudgetItem],
    signals: Signals,
    modelled: Estimate | None,
) -> LeverAdvice:
    """What is said of one lever: its gain by the model, or by its share, and whether it helps here."""
    bound = _bound(lever, budget)
    estimate = modelled.gain if modelled else _share_estimate(lever, bound, budget, target)
    value = modelled.value if modelled else None
    help_state, why = _state(lever, label, signals, estimate, modelled is not None)
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
        value=value,
    )


def _speedup(effect: Effect, efficiency: float) -> float:
    """How many times shorter the component of the effect's parameter gets; `inf` when it vanishes."""
    if effect.times is not None:
        after = applied(effect, 1.0, efficiency)
    else:
        after = 1.0 - efficiency if effect.set == 0 else 1.0
    if PARAMS[effect.param].law == "inverse":
        return max(after, 1e-9)
    return 1.0 / after if after > 0 else math.inf


def _shares(budget: list[BudgetItem], high: bool) -> dict[str, float]:
    return {
        b.component: max(b.share, (b.high or 0.0) / b.seconds * b.share)
        if high and b.seconds
        else b.share
        for b in budget
    }


def _bound(lever: Lever, budget: list[BudgetItem], high: bool = False) -> Amdahl | None:
    """Amdahl's bound on the lever: the share of the parts it acts on, and its full effect on them.

    None when the budget does not hold such a part: then there is nothing to bound. `high`: at the upper
    limits of the shares.
    """
    shares = _shares(budget, high)
    parts = [
        (shares.get(component, 0.0), max(_speedup(e, e.efficiency[0]), _speedup(e, 1.0)))
        for e in lever.effect
        for component in PARAMS[e.param].components
    ]
    p = min(1.0, sum(share for share, _ in parts))
    if p <= 0:
        return None
    after = sum(share / s for share, s in parts)
    s = p / after if after > 0 else math.inf
    return Amdahl(p=p, s=s if math.isfinite(s) else None, gain=min(amdahl(p, s), NO_BOUND))


def _share_estimate(
    lever: Lever, bound: Amdahl | None, budget: list[BudgetItem], target: Target
) -> Gain | None:
    """Amdahl on measured shares with the part of the effect that usually arrives."""
    if bound is None:
        return None
    shares = _shares(budget, high=False)
    found = []
    for pick in (0, 1):
        saved = sum(
            shares.get(component, 0.0) * (1.0 - 1.0 / _speedup(e, e.efficiency[pick]))
            for e in lever.effect
            for component in PARAMS[e.param].components
        )
        found.append(1.0 / max(1.0 - saved, 1e-9))
    low, high = sorted(found)
    return Gain(
        low=low, mid=math.sqrt(low * high), high=min(high, bound.gain),
        metric=_metric(target), method="amdahl", capped_by=f"share of the part it acts on, {bound.p:.0%}",
    )  # fmt: skip


def _metric(target: Target) -> str:
    return f"{target.statistic} {target.metric}" if target.statistic != "rate" else target.metric


def _state(
    lever: Lever, label: Label, signals: Signals, estimate: Gain | None, modelled: bool
) -> tuple[Any, str]:
    state = helps(lever, signals, modelled=modelled)
    if state is False:
        enabled, _ = lever_conditions(lever, signals, modelled=modelled)
        return (
            False,
            "its enabling condition does not hold"
            if enabled.truth is False
            else "it would harm here",
        )
    if estimate is not None and estimate.mid < SMALL:
        if label.reason == RULES and attacks(lever, label) and estimate.high >= 1.0:
            return (
                "check_first",
                "what was seen speaks for it; the cost model does not see why, so try and measure",
            )
        return (
            False,
            f"gains {estimate.mid - 1:+.0%}: the part it acts on is not where the time goes",
        )
    if state == "check_first":
        return "check_first", _unknown(lever, signals)
    if label.class_ is None:
        return "check_first", "the verdict abstains: measure first"
    if estimate is None:
        return "check_first", "its part of the time was not measured"
    return True, lever.why


def _unknown(lever: Lever, signals: Signals) -> str:
    """Which signals would tell whether the lever helps."""
    lookup = signals.usable()
    lacks = [n for n in sorted(signals_of(lever.enabling + lever.harms)) if lookup(n) is None]
    names = [n for n in lacks if n not in MODELLED] or lacks
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        f"not known: {', '.join(names[:3])}{more}" if names else "too close to its limits to tell"
    )
