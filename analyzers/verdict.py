"""The class and the binding resource, from the gain vector by one label rule.

With g the gains: nothing above 1.15 → no action. `policy_best` ≥ 1.3 and ln `policy_best` ≥ ½ ln of the best
resource → scheduling. Else, open loop, a latency target, wait share ≥ ½, `load_half` ≥ 2 and the top resource
not the path → queueing. Else the class of the best resource. What request-level evidence cannot split
(`engine_x2`) is an abstention between the classes that it bounds, never a guess.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from .counterfactual import Gain, Policy, Question, axis_engines, best_policy, gain, ordered
from .whatif import solve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..rules.model import Class
    from .fit import Fit
    from .whatif import Engine

NO_ACTION = 1.15
POLICY = 1.3
QUEUE_LOAD = 2.0
AMBIGUOUS = 0.7
ENGINE_CANDIDATES = ("memory", "compute", "launch", "latency")

AXIS_CLASS: dict[str, tuple[Class | None, str, str]] = {
    "engine_x2": (None, "engine step", ""),
    "host_half": ("launch", "front end", "front end"),
    "path_half": ("network", "client or proxy path", "client or proxy"),
    "kv_capacity_x2": ("memory", "KV cache capacity", "capacity"),
}
"""Resource axis → class, binding resource, sub-cause; class None: several classes remain."""


@dataclass(frozen=True)
class Label:
    """What the rule says, before prechecks and findings are weighed."""

    class_: Class | None
    sub_cause: str | None
    binding_resource: str | None
    gains: dict[str, Gain]
    policy: Policy | None = None
    runner_up: str | None = None
    ambiguous: bool = False
    candidates: tuple[str, ...] = field(default=())
    margin: float = 0.0
    reason: str = ""


def engines_for(ask: Question, fit: Fit, facts: Mapping[str, float]) -> tuple[Engine, ...]:
    """The fitted engines behind the path that the metric sees.

    A proxy that holds chunks back delays the first token by what it takes off the gaps, and not the end.
    """
    first = facts.get("network_ttft_s")
    if ask.metric != "ttft" or first is None:
        return fit.engines
    return tuple(replace(engine, path_s=max(0.0, first)) for engine in fit.engines)


def gain_vector(
    ask: Question, fit: Fit, facts: Mapping[str, float]
) -> tuple[dict[str, Gain], Policy | None]:
    """Every axis that can be computed, over the three fitted engines, and the middle one's best policy."""
    values: dict[str, list[float]] = {}
    policy: Policy | None = None
    for i, engine in enumerate(engines_for(ask, fit, facts)):
        base = (engine, fit.load)
        for axis, changed in axis_engines(engine, fit.load).items():
            values.setdefault(axis, []).append(gain(ask, base, changed, facts))
        best = best_policy(ask, engine, fit.load, facts)
        if best is not None:
            values.setdefault("policy_best", []).append(best[1])
            if i == 1:
                policy = best[0]
    return {axis: ordered(v) for axis, v in values.items()}, policy


def decide(
    gains: Mapping[str, Gain],
    policy: Policy | None,
    *,
    open_loop: bool,
    latency: bool,
    wait_share: float | None,
    rho: float,
) -> Label:
    """Apply the label rule to the middle gains. Pure; `wait_share` None means it was not measured."""
    g = {axis: max(v.mid, 1e-9) for axis, v in gains.items()}
    resources = {a: v for a, v in g.items() if a in AXIS_CLASS}
    if not resources:
        return Label(None, None, None, dict(gains), reason="no axis could be computed")
    top = max(resources, key=lambda a: resources[a])
    binding = AXIS_CLASS[top][1]
    if max(g.values()) < NO_ACTION:
        return Label(None, None, None, dict(gains), reason="nothing would help")
    ln_top = math.log(max(resources[top], 1.0 + 1e-9))
    ln_policy = math.log(max(g.get("policy_best", 1.0), 1.0))
    if g.get("policy_best", 0.0) >= POLICY and ln_policy >= 0.5 * ln_top and policy is not None:
        margin = min(ln_policy / math.log(POLICY), 2 * ln_policy / ln_top) - 1.0
        return Label(
            "scheduling", policy.sub_cause, binding, dict(gains), policy,
            runner_up=_runner_up(g, resources, top), margin=margin,
            ambiguous=gains["policy_best"].low < POLICY, reason="policy",
        )  # fmt: skip
    loaded = (wait_share is not None and wait_share >= 0.5) or rho > 1.0
    if (
        open_loop
        and latency
        and loaded
        and g.get("load_half", 0.0) >= QUEUE_LOAD
        and top != "path_half"
    ):
        return Label(
            "queueing", "offered load above capacity", binding, dict(gains), policy,
            runner_up="scheduling" if ln_policy > AMBIGUOUS * math.log(g["load_half"]) else None,
            margin=math.log(g["load_half"]) / math.log(QUEUE_LOAD) - 1.0 + 0.2, reason="load",
        )  # fmt: skip
    if resources[top] < NO_ACTION:
        return Label(None, None, None, dict(gains), reason="nothing would help")
    kv = g.get("kv_capacity_x2", 1.0)
    if top == "engine_x2" and kv >= NO_ACTION and math.log(kv) >= 0.5 * ln_top:
        # engine_x2 bounds four axes together; one that is half of it alone is more than its fair part
        class_, binding, sub_cause = AXIS_CLASS["kv_capacity_x2"]
        return Label(
            class_, sub_cause, binding, dict(gains), policy, ambiguous=math.log(kv) < AMBIGUOUS * ln_top,
            runner_up="compute", margin=math.log(kv) / math.log(NO_ACTION) - 1.0, reason="resource",
        )  # fmt: skip
    return _by_resource(gains, resources, top, policy)


def _by_resource(
    gains: Mapping[str, Gain], resources: Mapping[str, float], top: str, policy: Policy | None
) -> Label:
    class_, binding, sub_cause = AXIS_CLASS[top]
    others = sorted((v for a, v in resources.items() if a != top), reverse=True)
    second = others[0] if others else 1.0
    ln_top = math.log(max(resources[top], 1.0 + 1e-9))
    ambiguous = math.log(max(second, 1.0)) >= AMBIGUOUS * ln_top
    if class_ is None:
        named = [
            str(AXIS_CLASS[a][0])
            for a, v in resources.items()
            if a != top and math.log(max(v, 1.0)) >= AMBIGUOUS * ln_top
        ]
        return Label(
            None, None, binding, dict(gains), policy,
            candidates=(*ENGINE_CANDIDATES, *(n for n in named if n not in ENGINE_CANDIDATES)),
            ambiguous=True, reason="engine",
        )  # fmt: skip
    runner = next((a for a, v in resources.items() if a != top and v == second), None)
    return Label(
        class_, sub_cause, binding, dict(gains), policy,
        runner_up=AXIS_CLASS[runner][0] if runner and ambiguous else None,
        ambiguous=ambiguous, margin=ln_top / math.log(NO_ACTION) - 1.0, reason="resource",
    )  # fmt: skip


def _runner_up(g: Mapping[str, float], resources: Mapping[str, float], top: str) -> str | None:
    if g.get("load_half", 1.0) > max(1.0, resources[top]):
        return "queueing"
    return AXIS_CLASS[top][0]


def question(metric: str, statistic: str) -> Question:
    """The model's question for a target; what the model does not know is asked of end-to-end."""
    known = ("ttft", "itl", "tpot", "e2e", "throughput")
    quantile = float(statistic[1:]) / 100 if statistic[0] == "p" else None
    return Question(metric if metric in known else "e2e", quantile)


def label_run(ask: Question, fit: Fit, facts: Mapping[str, float]) -> Label:
    """Gain vector and label of one metric of a run."""
    gains, policy = gain_vector(ask, fit, facts)
    metric = ask.metric
    # no gap between tokens holds the queue
    wait = facts.get("server_queue_mean_s") if metric in ("ttft", "e2e") else None
    total = facts.get(f"server_{metric}_mean_s", facts.get(f"client_{metric}_mean_s"))
    share = wait / total if wait is not None and total else None
    return decide(
        gains,
        policy,
        open_loop=fit.load.open_loop,
        latency=metric != "throughput",
        wait_share=share,
        rho=solve(fit.engines[1], fit.load).rho,
    )


def confidence(
    label: Label, fit_error: float, supporting: int, opposing: int, identified: bool
) -> float:
    """How sure, 0..0.95: from the margin to the rule's threshold, the fit, and the rules that agree.

    Not calibrated on held-out runs: the report says so.
    """
    if label.class_ is None:
        return 0.0
    score = 0.6 + 0.25 * (1.0 - math.exp(-max(label.margin, 0.0)))
    score += 0.05 * min(supporting, 2) - 0.15 * min(opposing, 2)
    score -= 0.1 * label.ambiguous + 0.05 * (not identified)
    score -= min(0.2, max(0.0, fit_error - 0.3) * 0.3)
    return round(min(0.95, max(0.05, score)), 2)
