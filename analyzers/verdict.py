"""The class and the binding resource, from the gain vector by one label rule.

With g the gains: nothing above 1.15 → no action. `policy_best` ≥ 1.3 and ln `policy_best` ≥ ½ ln of the best
resource → scheduling. Else, open loop, a latency target, wait share ≥ ½, `load_half` ≥ 2 and the top resource
no network → queueing. Else the class of the best resource. Every hypothesis of the fit is labelled; the share
of them that agree is what the confidence starts from, and without a majority the verdict abstains between
the classes that remain.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from .counterfactual import (
    HOST_PARTS,
    UNCAPPED,
    Gain,
    Policy,
    Question,
    Solved,
    axis_worlds,
    best_policy,
    gains,
    policy_worlds,
    solve_all,
    spread,
)
from .whatif import Outcome, service, uncapped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..rules.model import Class
    from .fit import Fit
    from .posterior import Array

NO_ACTION = 1.15
POLICY = 1.3
QUEUE_LOAD = 2.0
AMBIGUOUS = 0.7

OVERLOADED = 1.2
"""Offered over capacity from which a run is loaded although less than half of its time is waiting."""

MAJORITY = 0.4
"""Share of the hypotheses that must agree on a class for a verdict."""

POSSIBLE = 0.12
"""Share of the hypotheses from which a class stays a candidate of an abstention."""

AXIS_CLASS: dict[str, tuple[Class, str]] = {
    "bandwidth_x2": ("memory", "memory bandwidth"),
    "kv_capacity_x2": ("memory", "KV cache capacity"),
    "flops_x2": ("compute", "arithmetic"),
    "host_half": ("launch", "host"),
    "kernel_floor_half": ("latency", "kernel floor"),
    "link_x2": ("network", "links between GPUs"),
    "path_half": ("network", "client or proxy path"),
}
"""Resource axis → the class that it speaks for, and the resource's name."""

SUB_CAUSE = {
    "bandwidth_x2": "bandwidth",
    "kv_capacity_x2": "capacity",
    "kernel_floor_half": "small kernels",
    "link_x2": "collectives",
    "path_half": "client or proxy",
}
"""Resource axis → sub-cause, where the axis alone tells it."""

NOTHING = "nothing would help"


@dataclass(frozen=True)
class Label:
    """What the rule says, before prechecks and findings are weighed.

    Attributes:
        share: of the hypotheses that say so, 0..1. shares: of every class, `none` for no action.
        axis: the binding resource's axis. candidates: what remains when the verdict abstains.
        says: the sentence of the rule behind a verdict that rests on rules alone.
    """

    class_: Class | None
    sub_cause: str | None
    binding_resource: str | None
    gains: dict[str, Gain]
    policy: Policy | None = None
    runner_up: str | None = None
    ambiguous: bool = False
    candidates: tuple[str, ...] = field(default=())
    share: float = 0.0
    shares: dict[str, float] = field(default_factory=dict)
    axis: str | None = None
    reason: str = ""
    says: str = ""


@dataclass(frozen=True)
class Said:
    """The label of one gain vector: a class, the axis of its best resource, and whether a second is close."""

    class_: Class | None
    axis: str
    reason: str
    ambiguous: bool = False


def decide(g: Mapping[str, float], *, open_loop: bool, latency: bool, loaded: bool) -> Said:
    """The label rule on one gain vector. Pure.

    Args:
        g: gain by axis, above 0; absent ones cannot be computed.
        open_loop: arrivals do not wait for answers.
        latency: the target is a latency.
        loaded: at least half of the target is waiting, or more is offered than can be served.

    Raises:
        ValueError: no resource axis is given.
    """
    resources = {a: g[a] for a in AXIS_CLASS if a in g}
    top = max(resources, key=lambda a: resources[a])
    if max(v for a, v in g.items() if ":" not in a) < NO_ACTION:
        return Said(None, top, NOTHING)
    ln_top = math.log(max(resources[top], 1.0 + 1e-9))
    policy = g.get("policy_best", 1.0)
    if policy >= POLICY and math.log(policy) >= 0.5 * ln_top:
        return Said("scheduling", top, "policy", ln_top > math.log(policy) and ln_top > math.log(2))
    queued = open_loop and latency and loaded and g.get("load_half", 0.0) >= QUEUE_LOAD
    if queued and AXIS_CLASS[top][0] != "network":
        return Said("queueing", top, "load")
    if resources[top] < NO_ACTION:
        return Said(None, top, NOTHING)
    class_ = AXIS_CLASS[top][0]
    others = [v for a, v in resources.items() if AXIS_CLASS[a][0] != class_]
    close = math.log(max(max(others, default=1.0), 1.0)) >= AMBIGUOUS * ln_top
    return Said(class_, top, "resource", close)


@dataclass(frozen=True)
class Whatif:
    """All axes and policies of a fit, solved once for each path that a metric may see."""

    fit: Fit
    facts: Mapping[str, float]
    tried: Mapping[str, Policy]
    by_path: Mapping[str, Solved]

    def outcome(self, world: str = "") -> Outcome:
        """How a world comes out behind the whole path; the base by default."""
        return self.by_path["e2e"].outcomes[world]

    def solved(self, ask: Question) -> Solved:
        """The worlds behind the path that the metric sees."""
        return self.by_path["ttft" if ask.metric == "ttft" and "ttft" in self.by_path else "e2e"]


def what_if(fit: Fit, facts: Mapping[str, float]) -> Whatif:
    """Solve every axis and policy of a run.

    A proxy that holds chunks back delays the first token by what it takes off the gaps, and not the end:
    the first token has its own path.
    """
    tried = policy_worlds(fit.engine, fit.load)
    paths = {"e2e": fit.engine}
    first = facts.get("network_ttft_s")
    if first is not None:
        paths["ttft"] = replace(fit.engine, path_s=max(0.0, first))
    by_path = {}
    for name, engine in paths.items():
        client = "network_ttft_s" in facts or "network_e2e_s" in facts
        worlds = axis_worlds(engine, fit.load, linked=fit.work.gpus > 1, client=client)
        worlds |= {
            key: (replace(policy.engine, path_s=engine.path_s), fit.load)
            for key, policy in tried.items()
        }
        worlds[UNCAPPED] = (uncapped(engine), fit.load)
        by_path[name] = solve_all((engine, fit.load), worlds, fit.n)
    return Whatif(fit, facts, tried, by_path)


def label_run(ask: Question, model: Whatif) -> Label:
    """Gain vector and label of one metric of a run."""
    solved = model.solved(ask)
    found = gains(ask, solved, model.facts)
    best = best_policy(ask, found, model.tried, solved)
    vector = {a: v for a, v in found.items() if not a.startswith("policy:")}
    if best is not None:
        vector["policy_best"] = best[1]
    rho = np.asarray(solved.outcomes[""].rho)
    said = _each(ask, model, vector, rho)
    return _verdict(ask, said, vector, best[0] if best else None, model)


def _each(ask: Question, model: Whatif, vector: Mapping[str, Array], rho: Array) -> list[Said]:
    """The label of every hypothesis."""
    facts, load = model.facts, model.fit.load
    # no gap between tokens holds the queue
    wait = facts.get("server_queue_mean_s") if ask.metric in ("ttft", "e2e") else None
    total = facts.get(f"server_{ask.metric}_mean_s", facts.get(f"client_{ask.metric}_mean_s"))
    waits = bool(wait is not None and total and wait / total >= 0.5)
    return [
        decide(
            {axis: max(float(v[i]), 1e-9) for axis, v in vector.items()},
            open_loop=load.open_loop,
            latency=ask.metric != "throughput",
            # where everyone finds a slot in the batch, overload shows in longer steps, not in a queue
            loaded=waits or float(rho[i]) > (1.0 if wait is None else OVERLOADED),
        )
        for i in range(model.fit.n)
    ]


def _verdict(
    ask: Question,
    said: Sequence[Said],
    vector: Mapping[str, Array],
    policy: Policy | None,
    model: Whatif,
) -> Label:
    """One label from those of all hypotheses."""
    shown = {axis: spread(v) for axis, v in vector.items()}
    counts = Counter(s.class_ for s in said)
    shares = {str(c or "none"): n / len(said) for c, n in counts.most_common()}
    (first, n), *rest = counts.most_common()
    agreed = [s for s in said if s.class_ == first]
    axis = Counter(s.axis for s in agreed).most_common(1)[0][0]
    second = rest[0][0] if rest and rest[0][1] / len(said) >= POSSIBLE else None
    share = n / len(said)
    label = Label(
        first, None, AXIS_CLASS[axis][1], shown, policy,
        share=share, shares=shares, axis=axis, reason=agreed[0].reason,
    )  # fmt: skip
    if share < MAJORITY:
        left = tuple(c for c, part in shares.items() if part >= POSSIBLE)
        return replace(label, class_=None, candidates=left, ambiguous=True, reason="split")
    if first is None:
        return replace(label, binding_resource=None, reason=NOTHING)
    close = sum(s.ambiguous for s in agreed) > len(agreed) / 2
    runner_up = str(second) if second is not None else _second(shown, first) if close else None
    sub_cause = _sub_cause(ask, first, axis, shown, policy, model)
    return replace(label, sub_cause=sub_cause, runner_up=runner_up, ambiguous=close)


MISFIT = 0.7
"""|ln(predicted / observed)|, the median over the observations, from which the model is no model of this run."""


def misfit(label: Label) -> Label:
    """An abstention: no step cost that model, GPU and settings allow comes near what was seen."""
    named = [c for c in label.shares if c != "none"]
    return replace(
        label, class_=None, sub_cause=None, candidates=tuple(named), ambiguous=True, reason="misfit"
    )


def _second(shown: Mapping[str, Gain], first: str) -> str | None:
    """The class of the best resource of another class."""
    others = {a: shown[a].mid for a in AXIS_CLASS if a in shown and AXIS_CLASS[a][0] != first}
    return AXIS_CLASS[max(others, key=lambda a: others[a])][0] if others else None


def _sub_cause(
    ask: Question,
    class_: Class,
    axis: str,
    shown: Mapping[str, Gain],
    policy: Policy | None,
    model: Whatif,
) -> str | None:
    if class_ == "scheduling":
        return policy.sub_cause if policy else None
    if class_ == "queueing":
        return "offered load above capacity"
    if class_ == "launch":
        parts = (*HOST_PARTS, "front end")
        return max(parts, key=lambda p: shown[f"host_half:{p}"].mid)
    if class_ == "compute":
        return _arithmetic(ask, model)
    return SUB_CAUSE[axis]


def _arithmetic(ask: Question, model: Whatif) -> str:
    """Whose arithmetic it is: prompts' or generated tokens'."""
    fit = model.fit
    if fit.engine.recompute_tokens > 0.5 * fit.load.input_tokens:
        return "recomputation"
    if ask.metric in ("ttft", "prefill"):
        return "prefill FLOPs"
    base = model.outcome()
    taken = service(fit.engine, fit.load, base.batch, 0.0)
    passes = fit.load.output_tokens / np.maximum(1.0, base.batch)
    decode = float(np.median(fit.decode["compute"] * taken.step_s * passes))
    prefill = float(np.median(fit.prefill["compute"] * taken.own_s))
    return "decode above the ridge" if decode > prefill else "prefill FLOPs"


def question(metric: str, statistic: str) -> Question:
    """The model's question for a target; what the model does not know is asked of end-to-end."""
    known = ("ttft", "itl", "tpot", "e2e", "throughput")
    quantile = float(statistic[1:]) / 100 if statistic[0] == "p" else None
    return Question(metric if metric in known else "e2e", quantile)
