"""The gain vector: by what ratio the target improves when one thing is made better.

Each axis changes one thing in the fitted model and solves it again. The model's parts are tied to the
measured ones first, so that only its *changes* are believed, not its absolute values.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .whatif import UNLIMITED, Engine, Load, Outcome, slots, solve

if TYPE_CHECKING:
    from collections.abc import Mapping

PARTS = ("path_s", "front_end_s", "wait_s", "prefill_s", "decode_s")

MEASURED = {
    "front_end_s": "front_end_work_mean_s",
    "wait_s": "wait_mean_s",
    "prefill_s": "server_prefill_mean_s",
    "decode_s": "server_decode_mean_s",
}
"""Part of a request → the signal that measured it."""


@dataclass(frozen=True)
class Policy:
    """A setting of the scheduler: what changes (`batch cap` or `token budget`) and the new value."""

    name: str
    value: float
    engine: Engine


@dataclass(frozen=True)
class Gain:
    """Ratio by which the target improves, over the three fitted engines; ordered low ≤ mid ≤ high."""

    low: float
    mid: float
    high: float


def ordered(values: list[float]) -> Gain:
    """The smallest, the middle and the largest of the gains of three engines."""
    a = sorted(values)
    return Gain(a[0], values[1] if len(values) == 3 else a[len(a) // 2], a[-1])


def tied(alternative: Outcome, base: Outcome, facts: Mapping[str, float]) -> dict[str, float]:
    """The parts of an alternative in seconds, scaled by measured / modelled at the base.

    At the base the parts are exactly the measured ones. A part that the model explains for less than a
    fifth keeps what it cannot explain as a constant: no lever is credited with removing what the model does
    not understand.
    """
    parts = {}
    for part in PARTS:
        model, new = getattr(base, part), getattr(alternative, part)
        seen = facts.get(MEASURED.get(part, ""))
        if seen is None:
            parts[part] = new
        elif seen <= 5.0 * model:
            parts[part] = new * seen / model if model > 0 else 0.0
        else:
            parts[part] = new + seen - model
    return parts


def metric_of(
    metric: str, tail: bool, alternative: Outcome, base: Outcome, facts: Mapping[str, float]
) -> float:
    """The target in an alternative: seconds, or tokens a second for `throughput`."""
    if metric == "throughput":
        return alternative.output_tokens_per_s
    if metric in ("itl", "tpot"):
        return alternative.stall_s if tail and metric == "itl" else alternative.itl_s
    parts = tied(alternative, base, facts)
    if metric == "ttft":
        del parts["decode_s"]
    return sum(parts.values())


def gain(
    metric: str,
    tail: bool,
    base: tuple[Engine, Load],
    new: tuple[Engine, Load],
    facts: Mapping[str, float],
) -> float:
    """How much better `new` is than `base` on the metric: 1 is nothing."""
    before = solve(*base)
    after = solve(*new)
    old, changed = (metric_of(metric, tail, o, before, facts) for o in (before, after))
    if old <= 0 or changed <= 0:
        return 1.0
    return changed / old if metric == "throughput" else old / changed


def axis_engines(engine: Engine, load: Load) -> dict[str, tuple[Engine, Load]]:
    """Each axis that request-level evidence can compute, as the changed engine or load.

    `engine_x2` halves the whole pass: it bounds bandwidth, FLOPs, kernel floor and engine host together,
    which only a timeline or a fitted cost model can tell apart.
    """
    axes = {
        "engine_x2": (
            replace(
                engine,
                base_s=engine.base_s / 2,
                per_sequence_s=engine.per_sequence_s / 2,
                per_prefill_token_s=engine.per_prefill_token_s / 2,
            ),
            load,
        ),
        "host_half": (replace(engine, front_end_s=engine.front_end_s / 2), load),
        "path_half": (replace(engine, path_s=engine.path_s / 2), load),
    }
    if engine.kv_tokens < UNLIMITED:
        axes["kv_capacity_x2"] = (replace(engine, kv_tokens=engine.kv_tokens * 2), load)
    if load.open_loop:
        axes["load_half"] = (engine, replace(load, rate=load.rate / 2))
    return axes


def policies(engine: Engine, load: Load, *, lower_budget: bool) -> list[Policy]:
    """Settings to try at no hardware cost: larger batch caps, larger (or smaller) token budgets.

    A batch cap is raised no further than the KV cache holds.
    """
    found = []
    if engine.max_num_seqs < UNLIMITED:
        room = slots(replace(engine, max_num_seqs=UNLIMITED), load)
        for power in range(1, 7):
            cap = engine.max_num_seqs * 2.0**power
            if cap <= min(room, 4096):
                found.append(Policy("batch cap", cap, replace(engine, max_num_seqs=cap)))
    if engine.token_budget < UNLIMITED:
        for power in range(1, 7):
            budget = engine.token_budget * 2.0 ** (-power if lower_budget else power)
            if 32 <= budget <= 16384:
                found.append(Policy("token budget", budget, replace(engine, token_budget=budget)))
    return found


def best_policy(
    metric: str, tail: bool, engine: Engine, load: Load, facts: Mapping[str, float]
) -> tuple[Policy, float] | None:
    """The setting with the largest gain, the mildest one within 3 % of it; None when nothing can be set.

    A setting that cannot carry the offered rate is no candidate.
    """
    itl = metric in ("itl", "tpot")
    tried = []
    for policy in policies(engine, load, lower_budget=itl):
        if itl and policy.name == "batch cap":
            continue
        if itl and load.open_loop and solve(policy.engine, load).rho > 0.95:
            continue
        tried.append((policy, gain(metric, tail, (engine, load), (policy.engine, load), facts)))
    if not tried:
        return None
    best = max(g for _, g in tried)
    return next((p, g) for p, g in tried if g >= best * 0.97 or (best < 1.0 and g == best))
