"""The gain vector: by what ratio the target improves when one thing is made better.

Each axis changes one thing in the fitted model and solves it again. The model's parts are tied to the
measured ones first, so that only its *changes* are believed, not its absolute values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .whatif import UNLIMITED, Engine, Load, Outcome, itl_at, slots, solve

if TYPE_CHECKING:
    from collections.abc import Mapping

PARTS = ("path_s", "front_end_s", "wait_s", "prefill_s", "decode_s")

ROOM = 0.8
"""Utilisation that a smaller token budget may lead to at most."""

TRADED = 0.7
"""Part of the best gain, in logarithm, that the mildest acceptable token budget must keep."""

BUNCHED = 0.2
"""Share of tokens that came together with another above which they are said to come in bunches."""

BUNCHED_OVER = 1.5
"""Times the engine's modelled gap that the client must see before the rest is called bunching."""

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
    sub_cause: str


@dataclass(frozen=True)
class Gain:
    """Ratio by which the target improves, over the three fitted engines; ordered low ≤ mid ≤ high."""

    low: float
    mid: float
    high: float


def ordered(values: list[float]) -> Gain:
    """The smallest, the middle and the largest of the gains of three engines."""
    a = sorted(values)
    return Gain(a[0], a[len(a) // 2], a[-1])


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


World = tuple[Engine, Load]
"""An engine under a load: what the model solves."""


@dataclass(frozen=True)
class Question:
    """The metric (ttft, itl, tpot, e2e or throughput) and the quantile of interest; None is the mean."""

    metric: str
    quantile: float | None = None


def metric_of(ask: Question, new: World, base: World, facts: Mapping[str, float]) -> float:
    """The target in an alternative to `base`: seconds, or tokens a second for `throughput`."""
    after, before = solve(*new), solve(*base)
    if ask.metric == "throughput":
        return after.output_tokens_per_s
    if ask.metric in ("itl", "tpot"):
        if ask.metric == "itl" and ask.quantile is not None:
            return _gap(ask.quantile, (new, after), (base, before), facts)
        return after.itl_s
    parts = tied(after, before, facts)
    if ask.metric == "ttft":
        del parts["decode_s"]
    return sum(parts.values())


def _gap(
    quantile: float,
    new: tuple[World, Outcome],
    base: tuple[World, Outcome],
    facts: Mapping[str, float],
) -> float:
    """A quantile of the gaps between tokens, tied to what the client saw.

    What it saw above the engine's own gap is bunching: by the front end where the server itself reports
    first tokens late, on the path where only the client does. Without bunched tokens it is a constant that
    nothing removes.
    """
    (world, outcome), (old, before) = new, base
    engine_now, engine_then = itl_at(*world, outcome, quantile), itl_at(*old, before, quantile)
    seen = facts.get(f"client_itl_p{quantile * 100:g}_s")
    if seen is None or seen <= BUNCHED_OVER * engine_then:
        return engine_now * (seen / engine_then if seen and engine_then > 0 else 1.0)
    excess = seen - engine_then
    if facts.get("bunched_tokens_ratio", 0.0) < BUNCHED:
        return engine_now + excess
    held = "front_end_s"
    if facts.get("network_ttft_s", 0.0) > facts.get("front_end_ttft_work_mean_s", 0.0):
        held = "path_s"
    then, now = getattr(before, held), getattr(outcome, held)
    return engine_now + excess * (now / then if then > 0 else 1.0)


def gain(ask: Question, base: World, new: World, facts: Mapping[str, float]) -> float:
    """How much better `new` is than `base`: 1 is nothing."""
    old, changed = (metric_of(ask, world, base, facts) for world in (base, new))
    if old <= 0 or changed <= 0:
        return 1.0
    return changed / old if ask.metric == "throughput" else old / changed


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
        axes["kv_capacity_x2"] = (
            replace(engine, kv_tokens=engine.kv_tokens * 2, recompute_tokens=0.0),
            load,
        )
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
                found.append(
                    Policy("batch cap", cap, replace(engine, max_num_seqs=cap), "batch cap")
                )
    for budget in _budgets(engine, load, lower_budget):
        changed = replace(engine, token_budget=budget)
        cause = "prefill blocking decode" if lower_budget else "token budget"
        found.append(Policy("token budget", budget, changed, cause))
    return found


def _budgets(engine: Engine, load: Load, lower: bool) -> list[float]:
    """Token budgets to try. An unknown one lets whole prompts in: only smaller ones can then be tried."""
    start = engine.token_budget
    if start >= UNLIMITED:
        if not lower or not load.prompt_percentiles:
            return []
        start = 2.0 ** math.ceil(math.log2(max(load.prompt_percentiles[-1], 32.0)))
    tried = (start * 2.0 ** (-power if lower else power) for power in range(1, 7))
    return [budget for budget in tried if 32 <= budget <= 16384]


def best_policy(
    ask: Question, engine: Engine, load: Load, facts: Mapping[str, float]
) -> tuple[Policy, float] | None:
    """The setting with the largest gain, the mildest within 3 % of it; None when nothing can be set.

    For gaps between tokens a smaller budget trades prefill for decode: the mildest that keeps most of the
    gain is taken, and none that leaves the server without room. No batch cap is a candidate there: a
    smaller one trades gaps for a queue.
    """
    itl = ask.metric in ("itl", "tpot")
    tried = []
    for policy in policies(engine, load, lower_budget=itl):
        if itl and policy.name == "batch cap":
            continue
        if itl and load.open_loop and solve(policy.engine, load).rho > ROOM:
            continue
        tried.append((policy, gain(ask, (engine, load), (policy.engine, load), facts)))
    if not tried:
        return None
    best = max(g for _, g in tried)
    enough = best**TRADED if itl and best > 1 else best * 0.97
    return next((p, g) for p, g in tried if g >= enough)
