"""The gain vector: by what ratio the target improves when one thing is made better.

Each axis changes one thing in every hypothesis of the fit and solves it again, all of them together. The
model's parts are tied to the measured ones first, so that only its *changes* are believed, not its absolute
values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from .step_cost import Number
from .whatif import UNLIMITED, Engine, Load, Outcome, World, itl_at, slots, solve, stack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .posterior import Array

PARTS = ("path_s", "front_end_s", "wait_s", "prefill_s", "decode_s")

SCOPE = {
    "e2e": PARTS,
    "ttft": PARTS[:-1],
    "prefill": ("prefill_s",),
    "decode": ("decode_s",),
}
"""Metric → the parts of a request that it sums."""

ROOM = 0.8
"""Utilisation that a smaller token budget may lead to at most, where the server was not as busy before."""

BUSIER = 1.05
"""Times the utilisation before that it may lead to in any case."""

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
    """Ratio by which the target improves: the 10th, 50th and 90th percentile over the hypotheses."""

    low: float
    mid: float
    high: float


def spread(gains: Array) -> Gain:
    """The middle and the 80 % interval of a gain over hypotheses."""
    low, mid, high = np.quantile(gains, [0.1, 0.5, 0.9])
    return Gain(float(low), float(mid), float(high))


@dataclass(frozen=True)
class Question:
    """The metric (ttft, itl, tpot, e2e, throughput, prefill, decode) and a quantile; None is the mean."""

    metric: str
    quantile: float | None = None


@dataclass(frozen=True)
class Solved:
    """Worlds of `n` hypotheses each and how they come out; the first is the base, called ""."""

    worlds: Mapping[str, World]
    outcomes: Mapping[str, Outcome]


def solve_all(base: World, worlds: Mapping[str, World], n: int) -> Solved:
    """The base and every alternative to it, in one go."""
    named = {"": base, **worlds}
    together = solve(*stack(list(named.values()), n))
    parts = {name: together.part(slice(i * n, (i + 1) * n)) for i, name in enumerate(named)}
    return Solved(named, parts)


def gains(ask: Question, solved: Solved, facts: Mapping[str, float]) -> dict[str, Array]:
    """How much better each alternative is than the base, an array over hypotheses; 1 is nothing."""
    old = metric_of(ask, "", solved, facts)
    found = {}
    for name in solved.worlds:
        if name:
            new = metric_of(ask, name, solved, facts)
            better, worse = (new, old) if ask.metric == "throughput" else (old, new)
            known = (old > 0) & (new > 0)
            found[name] = np.where(known, better / np.where(known, worse, 1.0), 1.0)
    return found


def tied(alternative: Outcome, base: Outcome, facts: Mapping[str, float]) -> dict[str, Number]:
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
        else:
            scaled = new * seen / np.maximum(model, 1e-12)
            parts[part] = np.where(seen <= 5.0 * model, scaled, new + seen - model)
    return parts


def metric_of(ask: Question, name: str, solved: Solved, facts: Mapping[str, float]) -> Number:
    """The target in an alternative: seconds, or tokens a second for `throughput`."""
    after, before = solved.outcomes[name], solved.outcomes[""]
    if ask.metric == "throughput":
        return after.output_tokens_per_s
    if ask.metric in ("itl", "tpot"):
        if ask.metric == "itl" and ask.quantile is not None:
            return _gap(ask.quantile, name, solved, facts)
        return after.itl_s
    parts = tied(after, before, facts)
    return sum(parts[part] for part in SCOPE[ask.metric])


def _gap(quantile: float, name: str, solved: Solved, facts: Mapping[str, float]) -> Number:
    """A quantile of the gaps between tokens, tied to what the client saw.

    What it saw above the engine's own gap is bunching: by the front end where the server itself reports
    first tokens late, on the path where only the client does. Without bunched tokens it is a constant that
    nothing removes.
    """
    outcome, before = solved.outcomes[name], solved.outcomes[""]
    engine_now = itl_at(*solved.worlds[name], outcome, quantile)
    engine_then = itl_at(*solved.worlds[""], before, quantile)
    seen = facts.get(f"client_itl_p{quantile * 100:g}_s")
    if seen is None:
        return engine_now
    excess = seen - engine_then
    held_back = excess
    if facts.get("bunched_tokens_ratio", 0.0) >= BUNCHED:
        held = "front_end_s"
        if facts.get("network_ttft_s", 0.0) > facts.get("front_end_ttft_work_mean_s", 0.0):
            held = "path_s"
        then, now = getattr(before, held), getattr(outcome, held)
        held_back = excess * np.where(then > 0, now / np.maximum(then, 1e-12), 1.0)
    scaled = engine_now * seen / np.maximum(engine_then, 1e-12)
    return np.where(seen <= BUNCHED_OVER * engine_then, scaled, engine_now + held_back)


UNCAPPED = "policy:uncapped"
"""The world with the batch cap out of the way: for accounts of the wait and the capacity, no setting to try."""

STEP_AXES = {
    "bandwidth_x2": ("weights_s", "expert_s", "kv_s"),
    "flops_x2": ("token_s",),
    "kernel_floor_half": ("floor_s",),
    "link_x2": ("link_s", "link_token_s"),
}
"""Axis → the seconds of a pass that it halves."""

HOST_PARTS = {
    "kernel launch": ("launch_s",),
    "host scheduler": ("host_s", "host_sequence_s"),
}
"""Parts of `host_half` inside the engine; the front end is the third."""


def halved(engine: Engine, names: tuple[str, ...]) -> Engine:
    """The engine with these seconds of its pass halved."""
    changed = {name: getattr(engine.step, name) / 2 for name in names}
    return replace(engine, step=replace(engine.step, **changed))


def axis_worlds(engine: Engine, load: Load, *, linked: bool, client: bool) -> dict[str, World]:
    """Each axis that can be computed, as the changed world.

    `linked`: several GPUs serve together. `client`: the way to the server was measured.

    `host_half:NAME` are its parts, to name the sub-cause. KV capacity is an axis only where it is known.
    """
    axes: dict[str, World] = {
        axis: (halved(engine, names), load)
        for axis, names in STEP_AXES.items()
        if linked or axis != "link_x2"
    }
    host = replace(engine, front_end_s=engine.front_end_s / 2)
    axes["host_half:front end"] = (host, load)
    for name, seconds in HOST_PARTS.items():
        axes[f"host_half:{name}"] = (halved(engine, seconds), load)
        host = halved(host, seconds)
    axes["host_half"] = (host, load)
    if client:
        axes["path_half"] = (replace(engine, path_s=engine.path_s / 2), load)
    if np.all(np.asarray(engine.kv_tokens) < UNLIMITED):
        more = replace(engine, kv_tokens=engine.kv_tokens * 2, recompute_tokens=0.0)
        axes["kv_capacity_x2"] = (more, load)
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


def policy_worlds(engine: Engine, load: Load) -> dict[str, Policy]:
    """Every setting to try, by the name of its world."""
    tried = policies(engine, load, lower_budget=False) + policies(engine, load, lower_budget=True)
    return {f"policy:{p.name}={p.value:g}": p for p in tried}


def best_policy(
    ask: Question, found: Mapping[str, Array], tried: Mapping[str, Policy], solved: Solved
) -> tuple[Policy, Array] | None:
    """The setting with the largest gain, the mildest within 3 % of it; None when nothing can be set.

    For gaps between tokens a smaller budget trades prefill for decode: the mildest that keeps most of the
    gain is taken, and none that leaves the server without room. No batch cap is a candidate there: a
    smaller one trades gaps for a queue. Elsewhere no smaller budget is.
    """
    itl = ask.metric in ("itl", "tpot", "decode")
    open_loop = solved.worlds[""][1].open_loop
    base_budget = float(np.median(solved.worlds[""][0].token_budget))
    room = max(ROOM, BUSIER * float(np.median(solved.outcomes[""].rho)))
    options = []
    for name, policy in tried.items():
        smaller = policy.name == "token budget" and policy.sub_cause == "prefill blocking decode"
        if itl != smaller or (smaller and policy.value >= base_budget):
            continue
        if itl and open_loop and float(np.median(solved.outcomes[name].rho)) > room:
            continue
        options.append((policy, found[name], float(np.median(found[name]))))
    if not options:
        return None
    best = max(g for _, _, g in options)
    enough = best**TRADED if itl and best > 1 else best * 0.97
    return next((p, g) for p, g, mid in options if mid >= enough)
