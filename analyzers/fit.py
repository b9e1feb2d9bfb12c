"""The step cost of this engine on this machine, from what the run shows at request level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .whatif import UNLIMITED, Engine, Load, met, prefill_pass

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

PRIOR_GROWTH = (0.002, 0.015, 0.08)
"""per_sequence / base where the run cannot tell, [low, mid, high]: the inverse of the ridge batch (about 300
on an H100) for short contexts, rising with the KV bytes read a sequence and on CPUs."""

MIXED = 0.85
"""Share of time that prefill may take for a tenth of the passes to be free of it."""


@dataclass(frozen=True)
class Fit:
    """Three engines, for a slow, a middle and a fast growth of the step with the batch, and the load.

    `identified` says whether the growth was seen in this run or taken from the prior; `missing` names
    what the model had to do without.
    """

    load: Load
    engines: tuple[Engine, Engine, Engine]
    identified: bool
    missing: tuple[str, ...]


def fit(con: duckdb.DuckDBPyConnection, facts: Mapping[str, float], mode: str | None) -> Fit | None:
    """Fit the model to a run; None when the run holds no load or no token timing.

    Without a load generator the load is what the engines' own counters tell (`offered`).

    Args:
        con: the run's database.
        facts: signals of the run by name.
        mode: `open` or `closed`; None counts as open.
    """
    facts = offered(facts)
    step = facts.get("server_itl_mean_s", facts.get("client_itl_mean_s"))
    if step is None or "output_mean_tokens" not in facts or "offered_rate_per_s" not in facts:
        return None
    load = Load(
        open_loop=mode != "closed",
        rate=facts["offered_rate_per_s"],
        concurrency=facts.get("inflight_mean_count", 1.0),
        input_tokens=max(1.0, facts.get("input_mean_tokens", 1.0)),
        output_tokens=max(1.0, facts["output_mean_tokens"]),
        arrival_spread=min(facts.get("arrival_spread_ratio", 1.0), 50.0),
        service_spread=min(facts.get("output_spread_ratio", 0.5), 10.0),
        horizon_s=max(facts.get("sending_s", 60.0), 1e-3),
        prompt_percentiles=_prompts(con),
    )
    growth, identified = _growth(con, facts)
    batch = max(1.0, facts.get("running_mean_count", 1.0))
    undisturbed = (
        min(step, facts.get("client_itl_p50_s", step)) if _one_chunk_a_token(facts) else step
    )
    engines = [_engine(facts, load, undisturbed, batch, g) for g in growth]
    missing = [
        name
        for name in ("server_prefill_mean_s", "max_num_seqs_count", "server_queue_mean_s")
        if name not in facts
    ]
    if not identified:
        missing.append("step time at more than one batch size")
    return Fit(load, (engines[0], engines[1], engines[2]), identified, tuple(missing))


ENGINES_OWN = {
    "offered_rate_per_s": "engine_offered_rate_per_s",
    "input_mean_tokens": "engine_input_mean_tokens",
    "output_mean_tokens": "engine_output_mean_tokens",
    "running_mean_count": "engine_running_mean_count",
    "sending_s": "engine_duration_s",
}
"""What the load generator tells → the same by the engines' own metrics."""


def offered(facts: Mapping[str, float]) -> Mapping[str, float]:
    """The facts with the load in them, as a client offered it or, without one, as the engines saw it.

    Several engines are taken for one that gets its share: the model is of one engine.
    """
    if "offered_rate_per_s" in facts and "output_mean_tokens" in facts:
        return facts
    seen = {name: facts[own] for name, own in ENGINES_OWN.items() if own in facts}
    if "offered_rate_per_s" in seen:
        seen["offered_rate_per_s"] /= max(1.0, facts.get("engine_replicas_count", 1.0))
    return {**facts, **seen}


def _prompts(con: duckdb.DuckDBPyConnection) -> tuple[float, ...]:
    """The 0th to the 100th percentile of the prompts; empty when none was measured."""
    row = con.execute(
        "SELECT quantile_cont(input_tokens, [x / 100 FOR x IN range(101)]) FROM measured_requests"
    ).fetchone()
    return tuple(row[0]) if row and row[0] else ()


def _one_chunk_a_token(facts: Mapping[str, float]) -> bool:
    return 0.9 <= facts.get("chunks_per_token_ratio", 0.0) <= 1.1


def _growth(
    con: duckdb.DuckDBPyConnection, facts: Mapping[str, float]
) -> tuple[tuple[float, float, float], bool]:
    """per_sequence / base as [low, mid, high], and whether this run shows it."""
    row = con.execute(
        "SELECT n, batch_min_count, batch_max_count, step_base_s, step_per_sequence_s,"
        " step_per_sequence_error_s FROM step_fit"
    ).fetchone()
    if row is None or not _one_chunk_a_token(facts) or any(v is None for v in row):
        return PRIOR_GROWTH, False
    n, smallest, largest, base, slope, error = row
    if n < 20 or largest < 1.5 * smallest or base <= 0 or slope <= 0 or error > slope / 2:
        return PRIOR_GROWTH, False
    low, high = max(slope - 2 * error, slope / 10), slope + 2 * error
    return (low / base, slope / base, high / base), True


def _engine(
    facts: Mapping[str, float], load: Load, step: float, batch: float, growth: float
) -> Engine:
    """The engine whose pass takes `step` seconds at `batch`, and `1 + growth × batch` relative to base.

    Where a prompt needs several passes, `prefill / chunks` is a full pass. Passes that only decode show what
    a prompt token adds to it, as the tenth percentile of the gaps. Where prefill leaves none, base and
    prefill are seen as a sum only, `base (1 + growth × budget)`, a prompt token costing what a sequence costs.
    """
    decoding = met(batch, max(batch, facts.get("max_num_seqs_count", UNLIMITED)))
    base = step / (1.0 + growth * decoding)
    budget = facts.get("token_budget_tokens", UNLIMITED)
    prefill = facts.get("server_prefill_mean_s", 0.0)
    computed = max(1.0, load.input_tokens * (1.0 - facts.get("prefix_hit_ratio", 0.0)))
    free = max(1.0, budget - decoding)
    chunks = computed / free
    alone = facts.get("client_itl_p10_s") if _one_chunk_a_token(facts) else None
    if chunks >= 2.0 and prefill > 0 and alone and load.rate * prefill < MIXED:
        base = min(alone, prefill / chunks) / (1.0 + growth * decoding)
        per_token = max(0.0, prefill / chunks - alone) / free
    elif chunks >= 2.0 and prefill > 0:
        base = min(base, prefill / chunks / (1.0 + growth * budget))
        per_token = base * growth
    else:
        per_token = _prefill_alone(prefill, step, load.rate) / load.input_tokens
    return Engine(
        base_s=base,
        per_sequence_s=base * growth,
        per_prefill_token_s=per_token,
        max_num_seqs=facts.get("max_num_seqs_count", UNLIMITED),
        token_budget=budget,
        kv_tokens=_kv_tokens(facts, load),
        recompute_tokens=facts.get("preemptions_per_request_ratio", 0.0)
        * (load.input_tokens + load.output_tokens / 2),
        path_s=max(0.0, facts.get("network_e2e_s", facts.get("network_ttft_s", 0.0))),
        front_end_s=facts.get("front_end_work_mean_s", 0.0),
    )


def _prefill_alone(prefill: float, step: float, rate: float) -> float:
    """Seconds that one prompt adds to a pass, from the mean prefill seen, in which others ride along."""
    low, high = 0.0, max(0.0, prefill - step)
    for _ in range(40):
        own = (low + high) / 2
        mix = min(rate * own, 0.95)
        low, high = (own, high) if prefill_pass(step, own, mix) < prefill else (low, own)
    return low


def _kv_tokens(facts: Mapping[str, float], load: Load) -> float:
    """What the KV cache holds, in tokens of mean context.

    With preemptions it is what the full cache was seen to carry: engines admit by the prompt and only
    later find that the answers do not fit, so blocks times block size overstates the batch.
    """
    carried = facts.get("running_while_kv_full_count")
    if carried and facts.get("preemptions_count", 0.0) > 0:
        return max(1.0, carried) * (load.input_tokens + load.output_tokens / 2)
    return facts.get("kv_capacity_tokens", UNLIMITED)
