"""The step cost of this engine on this machine: every hypothesis that fits what the run shows.

Bayesian regression with the work's floors as priors and Student's t as noise (`posterior`, `priors`,
`evidence`). What the run cannot separate stays spread over the hypotheses, and with it every number that
rests on it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from .complete import complete
from .evidence import Observation, log_likelihood, observations, predict
from .posterior import sample
from .priors import priors, step_of
from .step_cost import PARTS, StepCost, shares
from .whatif import (
    UNLIMITED,
    Engine,
    Load,
    context_tokens,
    fresh_tokens,
    front_end_work,
    met,
    slots,
)
from .work import Work, work_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

    from .posterior import Array

HYPOTHESES = 100
"""Of the particles, so many are kept for what-ifs."""

APART = -0.6
"""Correlation of two parts' shares below which one grows at the other's cost: the run sees their sum."""

WIDE = 0.12
"""Standard deviation of a share from which it counts as not known."""


@dataclass(frozen=True)
class Fit:
    """The load, and an engine whose every number may be an array of `n` equally likely hypotheses.

    Attributes:
        decode, prefill: share of a phase's engine time for which each part is the ceiling, an array each.
        peaks: fractions of the device's peaks that each hypothesis reaches.
        seen: the observations. errors: |ln(predicted / observed)| of each, over the hypotheses' median.
        work: what was known of model and device.
        missing: names of what the model had to do without.
        facts: signals by name, with what follows from them (`complete`).
    """

    load: Load
    engine: Engine
    n: int
    decode: Mapping[str, Array]
    prefill: Mapping[str, Array]
    peaks: Mapping[str, Array]
    seen: tuple[Observation, ...]
    errors: tuple[float, ...]
    work: Work
    missing: tuple[str, ...]
    facts: Mapping[str, float]

    @property
    def error(self) -> float:
        """Median of the errors, 0 where the model reproduces all that was seen."""
        return float(np.median(self.errors)) if self.errors else 1.0


def fit(
    con: duckdb.DuckDBPyConnection,
    facts: Mapping[str, float],
    texts: Mapping[str, str],
    settings: Mapping[str, str],
    mode: str | None,
) -> Fit | None:
    """Fit the model to a run; None when the run holds no load or no token timing.

    Without a load generator the load is what the engines' own counters tell (`offered`).

    Args:
        con: the run's database.
        facts: signals of the run by name, numbers.
        texts: signals that are words.
        settings: the engine's settings as they hold.
        mode: `open` or `closed`; None counts as open.
    """
    completed = complete(offered(facts))
    facts = completed.facts
    # an engine whose histogram holds nothing tells no gap of nothing
    step = facts.get("server_itl_mean_s") or facts.get("client_itl_mean_s") or 0.0
    offered_rate = facts.get("offered_rate_per_s", 0.0)
    if step <= 0 or offered_rate <= 0 or "output_mean_tokens" not in facts:
        return None
    callers, think_s = _callers(facts) if mode == "closed" else (1.0, 0.0)
    load = Load(
        open_loop=mode != "closed",
        rate=offered_rate,
        concurrency=callers,
        think_s=think_s,
        input_tokens=max(1.0, facts.get("input_mean_tokens", 1.0)),
        output_tokens=max(1.0, facts["output_mean_tokens"]),
        arrival_spread=min(facts.get("arrival_spread_ratio", 1.0), 50.0),
        service_spread=min(facts.get("output_spread_ratio", 0.5), 10.0),
        horizon_s=max(facts.get("sending_s", 60.0), 1e-3),
        prompt_percentiles=_prompts(con),
    )
    work = work_of(settings, load.input_tokens, context_tokens(load))
    shell = _shell(facts, load)
    batch = max(0.05, facts.get("running_mean_count", 1.0))
    rate = float(facts.get("completed_rate_per_s") or load.rate)
    seen = observations(con, facts, load, batch)
    fastest = min((o.value for o in seen if o.kind in ("step", "elapsed", "itl")), default=step)

    def engine_of(points: Mapping[str, Array]) -> Engine:
        return replace(shell, step=step_of(work, points))

    def likelihood(points: Mapping[str, Array]) -> Array:
        return log_likelihood(seen, engine_of(points), load, points, rate)

    points = sample(priors(work, fastest, texts), likelihood)
    kept = np.linspace(0, len(points["read"]) - 1, HYPOTHESES).astype(int)
    points = {name: v[kept] for name, v in points.items()}
    engine = engine_of(points)
    foreseen = [np.maximum(predict(o, engine, load, points, rate), 1e-12) for o in seen]
    errors = [
        abs(float(np.median(np.log(f / o.value)))) for f, o in zip(foreseen, seen, strict=True)
    ]
    decode, prefill = phase_shares(engine, load, batch)
    missing = [
        name
        for name in ("server_prefill_mean_s", "max_num_seqs_count", "server_queue_mean_s")
        if name not in facts
    ]
    return Fit(
        load=load, engine=engine, n=HYPOTHESES, decode=decode, prefill=prefill, peaks=points,
        seen=tuple(seen), errors=tuple(errors), work=work,
        missing=(
            *(f"{name}, taken for {facts[name]:g}," for name in completed.assumed),
            *missing, *work.missing, *not_separated(decode),
        ),
        facts=facts,
    )  # fmt: skip


def phase_shares(
    engine: Engine, load: Load, batch: float
) -> tuple[dict[str, Array], dict[str, Array]]:
    """What the time of a decode pass, and of what a prompt adds to one, goes to: shares, an array a part."""
    decoding = met(batch, slots(engine, load))
    context = decoding * context_tokens(load)
    alone = shares(engine.step, decoding, 0.0, context)
    chunk = np.minimum(fresh_tokens(engine, load), np.maximum(1.0, engine.token_budget - decoding))
    mixed = shares(engine.step, decoding, chunk, context)
    return alone, mixed


def not_separated(decode: Mapping[str, Array]) -> list[str]:
    """Parts of a decode step of which the run shows only the sum: in pairs, else all of them together."""
    wide = [p for p in PARTS if np.std(decode[p]) > WIDE]
    pairs = [
        f"what tells {a} from {b} in a decode step"
        for a, b in combinations(wide, 2)
        if np.corrcoef(decode[a], decode[b])[0, 1] < APART
    ]
    if pairs or len(wide) < 3:
        return pairs
    apart = sum(float(np.var(decode[p])) for p in wide)
    together = float(np.var(sum(decode[p] for p in wide)))
    if together > (1 + APART) * apart:
        return []
    return [f"what tells {', '.join(wide[:-1])} and {wide[-1]} apart in a decode step"]


ENGINES_OWN = {
    "offered_rate_per_s": "engine_offered_rate_per_s",
    "input_mean_tokens": "engine_input_mean_tokens",
    "output_mean_tokens": "engine_output_mean_tokens",
    "running_mean_count": "engine_running_mean_count",
    "sending_s": "engine_duration_s",
    "inflight_mean_count": "engine_inflight_mean_count",
}
"""What the load generator tells → the same by the engines' own metrics."""


FIXED = 0.25
"""Variance over mean of the requests inside below which their number is held by callers who wait."""


def load_mode(facts: Mapping[str, float], told: str | None) -> str | None:
    """`open` or `closed`: as the load generator tells, else as the number of requests inside shows."""
    if told is not None:
        return told
    dispersion = facts.get("engine_inflight_dispersion_ratio")
    if dispersion is None or facts.get("engine_inflight_mean_count", 0.0) < 2:
        return None
    return "closed" if dispersion < FIXED else "open"


def _callers(facts: Mapping[str, float]) -> tuple[float, float]:
    """How many callers of a closed loop there are, and the seconds that each pauses, by Little's law.

    The pause counts where the callers are known and clearly more than are inside.
    """
    inside = facts.get("inflight_mean_count", 1.0)
    callers, rate = facts.get("callers_count", inside), facts.get("completed_rate_per_s", 0.0)
    whole = facts.get("client_e2e_mean_s", facts.get("server_e2e_mean_s"))
    if callers < PAUSING * inside or rate <= 0 or whole is None:
        return inside, 0.0
    return callers, max(0.0, callers / rate - whole)


PAUSING = 1.5
"""Callers over requests inside from which callers are said to pause: the drain of a short run leaves a few out."""


def offered(facts: Mapping[str, float]) -> Mapping[str, float]:
    """The facts with the load in them, as a client offered it or, without one, as the engines saw it.

    Several engines are taken for one that gets its share: the model is of one engine.
    """
    facts = dict(facts)
    if "offered_rate_per_s" in facts and "output_mean_tokens" in facts:
        return _with_gap(facts)
    seen = {name: facts[own] for name, own in ENGINES_OWN.items() if own in facts}
    if "engine_sending_s" in facts:
        seen["sending_s"] = facts["engine_sending_s"]
    if "offered_rate_per_s" in seen:
        seen["offered_rate_per_s"] /= max(1.0, facts.get("engine_replicas_count", 1.0))
    return _with_gap({**facts, **seen})


def _with_gap(facts: dict[str, float]) -> dict[str, float]:
    """The mean gap between tokens out of the decode phase, where the engine has no such histogram."""
    decode, answer = facts.get("server_decode_mean_s"), facts.get("output_mean_tokens", 0.0)
    if "server_itl_mean_s" not in facts and decode and answer > 1.5:
        facts["server_itl_mean_s"] = decode / (answer - 1.0)
    return facts


def _prompts(con: duckdb.DuckDBPyConnection) -> tuple[float, ...]:
    """The 0th to the 100th percentile of the prompts; empty when none was measured."""
    row = con.execute(
        "SELECT quantile_cont(input_tokens, [x / 100 FOR x IN range(101)]) FROM measured_requests"
    ).fetchone()
    return tuple(row[0]) if row and row[0] else ()


def _shell(facts: Mapping[str, float], load: Load) -> Engine:
    """The engine without its step: limits and what is outside of it, as measured."""
    recompute = facts.get("preemptions_per_request_ratio", 0.0) * context_tokens(load)
    front = facts.get("front_end_work_mean_s", 0.0)
    served = facts.get("completed_rate_per_s", load.rate)
    work = float(front_end_work(front, load, served)) if front > 0 else 0.0
    return Engine(
        step=StepCost(),
        max_num_seqs=_limit(facts, "max_num_seqs_count"),
        token_budget=_limit(facts, "token_budget_tokens"),
        kv_tokens=_kv_tokens(facts, load),
        recompute_tokens=recompute,
        path_s=max(0.0, facts.get("network_e2e_s", facts.get("network_ttft_s", 0.0))),
        front_end_s=work,
        computed_ratio=1.0 - min(0.99, max(0.0, facts.get("prefix_hit_ratio", 0.0))),
    )


def _limit(facts: Mapping[str, float], name: str) -> float:
    """A limit of at least one; anything else limits nothing."""
    value = facts.get(name, UNLIMITED)
    return min(value, UNLIMITED) if value >= 1 else UNLIMITED


def _kv_tokens(facts: Mapping[str, float], load: Load) -> float:
    """What the KV cache holds, in tokens of mean context.

    With preemptions it is what the full cache was seen to carry: engines admit by the prompt and only
    later find that the answers do not fit, so blocks times block size overstates the batch.
    """
    carried = facts.get("running_while_kv_full_count")
    if carried and facts.get("preemptions_count", 0.0) > 0:
        return float(max(1.0, carried) * context_tokens(load))
    return _limit(facts, "kv_capacity_tokens")
