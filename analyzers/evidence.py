"""What a run tells about the cost of a pass, as observations that a hypothesis predicts.

An observation is a positive number with a relative doubt: measurement noise, and what the model's form misses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from .step_cost import Number, StepCost, pass_cost, step_s
from .whatif import service

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import duckdb

    from .posterior import Array
    from .whatif import Engine, Load

Kind = Literal[
    "step", "elapsed", "itl", "prefill", "prefill_slope", "busy", "dram", "tensor", "host", "device"
]

STEP_DOUBT = 0.05
ITL_DOUBT = 0.08
MEAN_GAP_DOUBT = 0.1
PREFILL_DOUBT = 0.15
COUNTER_DOUBT = 0.15
FREE_OF_PREFILL = 0.35
"""Share of passes with a prompt above which the median gap is no pure decode step."""

_FREEDOM = 4.0  # of Student's t: outliers pull little


@dataclass(frozen=True)
class Observation:
    """One fact.

    Attributes:
        kind: how it is predicted.
        value: seconds, or a ratio; above 0.
        doubt: standard deviation of its logarithm.
        batch, prompt_tokens, context: of the pass it is about.
        n: measurements behind it.
        source: the view it comes from.
    """

    kind: Kind
    value: float
    doubt: float
    batch: float = 1.0
    prompt_tokens: float = 0.0
    context: float = 0.0
    n: int = 1
    source: str = ""


def observations(
    con: duckdb.DuckDBPyConnection, facts: Mapping[str, float], load: Load, batch: float
) -> list[Observation]:
    """All that this run tells; empty when it holds no token timing."""
    context = float(load.input_tokens + load.output_tokens / 2)
    found = _steps(con) or _gaps(con, facts, load, context)
    step = facts.get("server_itl_mean_s") or facts.get("client_itl_mean_s") or 0.0
    if step > 0:
        found.append(
            Observation(
                "itl", step, ITL_DOUBT, batch, context=batch * context, source="server_phases"
            )
        )
    prefill = facts.get("server_prefill_mean_s", 0.0)
    if prefill > 0:
        found.append(Observation("prefill", prefill, PREFILL_DOUBT, batch, source="server_phases"))
    found += _prefill_slope(con, batch, context)
    return found + _counters(facts, batch, context)


def _steps(con: duckdb.DuckDBPyConnection) -> list[Observation]:
    """Passes of the step log: by batch without prompts, by prompt tokens with."""
    rows = con.execute(
        """
        WITH s AS (
          -- among alike passes the order is any, but always the same
          SELECT hash(t_ns, elapsed_s, host_s, device_s) AS place,
            coalesce(prefill_tokens, 0) AS p, coalesce(decode_requests_count, 0) AS b,
            coalesce(context_tokens, 0) AS c, elapsed_s, host_s, device_s
          FROM steps WHERE elapsed_s > 0
        ), binned AS (
          SELECT *, p > 0 AS mixed,
            ntile(6) OVER (
              PARTITION BY p > 0 ORDER BY CASE WHEN p > 0 THEN p ELSE b END, place
            ) AS bin
          FROM s
        )
        SELECT mixed, count(*), median(b), median(p), median(c),
          median(elapsed_s), median(host_s), median(device_s)
        FROM binned GROUP BY mixed, bin HAVING count(*) >= 5 ORDER BY mixed, bin
        """
    ).fetchall()
    found = []
    for _, n, b, p, c, elapsed, host, device in rows:
        doubt = STEP_DOUBT * math.sqrt(max(1.0, len(rows) / 2))
        kinds: tuple[tuple[Kind, float | None], ...] = (
            ("elapsed", elapsed), ("host", host), ("device", device),
        )  # fmt: skip
        for kind, value in kinds:
            if value and value > 0:
                found.append(Observation(kind, value, doubt, b, p, c, n, "steps"))
    return found


def _gaps(
    con: duckdb.DuckDBPyConnection, facts: Mapping[str, float], load: Load, context: float
) -> list[Observation]:
    """Gaps between tokens by the batch that a request saw: medians where most passes only decode, else means.

    Of means only those count of requests that ended while others came: prompts were between all of their gaps.
    """
    gap = facts.get("client_itl_p50_s")
    if gap is None or not 0.9 <= facts.get("chunks_per_token_ratio", 0.0) <= 1.1:
        return []
    rate = facts.get("completed_rate_per_s", float(load.rate))
    alone = rate * facts.get("client_itl_mean_s", gap) <= FREE_OF_PREFILL
    rows = con.execute(
        """
        WITH chosen AS (
          SELECT b.batch_mean_count, hash(request_id) AS place,
            CASE WHEN $alone THEN b.gap_p50_s ELSE b.client_tpot_s END AS gap
          FROM request_batch b JOIN measured_requests r USING (request_id), run_window w
          WHERE b.batch_mean_count > 0 AND ($alone OR r.end_ns <= w.send_end_ns)
        ), binned AS (
          -- a crowded server is mostly full: the few requests that saw it fill up tell most
          SELECT *, CASE WHEN $alone THEN ntile(5) OVER (ORDER BY batch_mean_count, place)
            ELSE round(4 * (batch_mean_count - min(batch_mean_count) OVER ())
              / nullif(max(batch_mean_count) OVER () - min(batch_mean_count) OVER (), 0)) END AS bin
          FROM chosen WHERE gap > 0
        )
        SELECT count(*), median(batch_mean_count), median(gap) FROM binned
        GROUP BY bin HAVING count(*) >= 4 ORDER BY bin
        """,
        {"alone": alone},
    ).fetchall()
    kind: Kind = "step" if alone else "itl"
    doubt = (STEP_DOUBT if alone else MEAN_GAP_DOUBT) * math.sqrt(max(1.0, len(rows) / 2))
    return [
        Observation(kind, g, doubt, max(1.0, b), 0.0, max(1.0, b) * context, n, "request_batch")
        for n, b, g in rows
    ]


def _prefill_slope(
    con: duckdb.DuckDBPyConnection, batch: float, context: float
) -> list[Observation]:
    """Seconds of prefill that one more prompt token takes, over requests with spans."""
    row = con.execute(
        """
        SELECT count(*), regr_slope(prefill_s, tokens), regr_r2(prefill_s, tokens),
          quantile_cont(tokens, [0.25, 0.75])
        FROM (
          SELECT prefill_s, input_tokens - coalesce(cached_tokens, 0) AS tokens FROM request_phases
          WHERE prefill_s > 0 AND input_tokens > 0
        )
        """
    ).fetchone()
    if row is None or row[0] < 20 or any(v is None or math.isnan(v) for v in row[1:3]):
        return []
    n, slope, r2, (low, high) = row
    if slope <= 0 or r2 <= 0 or high < 1.2 * low:
        return []
    error = math.sqrt(max(0.0, 1.0 / r2 - 1.0) / (n - 2))
    if error > 0.5:
        return []
    doubt = math.hypot(0.12, error)
    return [
        Observation(
            "prefill_slope",
            slope,
            doubt,
            batch,
            (low + high) / 2,
            batch * context,
            n,
            "request_phases",
        )
    ]


def _counters(facts: Mapping[str, float], batch: float, context: float) -> list[Observation]:
    """Counters of the GPU while requests ran; memory and tensor use are of the time that kernels ran."""
    busy, dram, tensor = (facts.get(f"gpu_{name}_ratio") for name in ("busy", "dram", "tensor"))
    if busy is None or (dram is None and tensor is None) or busy <= 0.02:
        return []
    ratios: list[tuple[Kind, float]] = [("busy", busy)]
    ratios += [("dram", dram / busy)] if dram is not None else []
    ratios += [("tensor", tensor / busy)] if tensor is not None else []
    return [
        Observation(
            kind,
            min(ratio, 1.0),
            COUNTER_DOUBT,
            batch,
            context=batch * context,
            source="gpu_counters",
        )
        for kind, ratio in ratios
        if ratio > 0.002
    ]


def log_likelihood(
    seen: Sequence[Observation],
    engine: Engine,
    load: Load,
    peaks: Mapping[str, Array],
    rate: float,
) -> Array:
    """Of hypotheses, by Student's t on the logarithms.

    Args:
        seen: the observations.
        engine: its step an array a hypothesis.
        load: what arrived.
        peaks: `bandwidth` and `flops`: the fraction of the peaks that each hypothesis reaches.
        rate: requests a second that were served.
    """
    total = np.zeros_like(np.asarray(engine.step.weights_s, dtype=float))
    for o in seen:
        predicted = np.maximum(predict(o, engine, load, peaks, rate), 1e-12)
        z = (np.log(predicted) - math.log(o.value)) / o.doubt
        total = total - (_FREEDOM + 1) / 2 * np.log1p(z * z / _FREEDOM)
    return total


def predict(
    o: Observation, engine: Engine, load: Load, peaks: Mapping[str, Array], rate: float
) -> Number:
    """What a hypothesis says the observation would be."""
    step = engine.step
    if o.kind == "step":
        return step_s(step, o.batch, o.prompt_tokens, o.context)
    if o.kind in ("itl", "prefill"):
        taken = service(engine, load, o.batch, rate)
        return taken.itl_s if o.kind == "itl" else taken.prefill_s
    if o.kind == "prefill_slope":
        return _slope(o, engine, step)
    p = pass_cost(step, o.batch, o.prompt_tokens, o.context)
    if o.kind == "elapsed":
        # what the host prepares while the device runs may or may not be in an engine's own account
        return p.total - peaks["logged"] * (1.0 - step.exposed) * np.minimum(p.host, 0.9 * p.total)
    if o.kind == "host":
        return p.host
    if o.kind == "device":
        return np.maximum(p.gpu, p.launch)
    return _counter(o, engine, load, peaks, rate)


def _slope(o: Observation, engine: Engine, step: StepCost) -> Number:
    free = np.maximum(1.0, engine.token_budget - o.batch)
    chunk = np.minimum(o.prompt_tokens, free)
    one = step_s(step, o.batch, chunk, o.context)
    more = step_s(step, o.batch, 1.1 * chunk, o.context)
    return np.where(o.prompt_tokens > free, one / free, (more - one) / (0.1 * chunk))


def _counter(
    o: Observation, engine: Engine, load: Load, peaks: Mapping[str, Array], rate: float
) -> Number:
    """Time-average of a counter: over a pass that only decodes, and the prompts' work beside it."""
    taken = service(engine, load, o.batch, rate)
    decode = pass_cost(engine.step, o.batch, 0.0, o.context)
    mix = np.minimum(rate * taken.own_s, 0.98)
    whole = taken.step_s / (1.0 - mix)
    prompt = mix * whole  # seconds of a mean pass that prompts add
    gpu = decode.gpu + prompt
    if o.kind == "busy":
        return np.minimum(1.0, gpu / whole)
    if o.kind == "dram":
        return (decode.weights + decode.kv) * peaks["bandwidth"] / gpu
    arithmetic = decode.compute + np.minimum(
        prompt, rate * whole * load.input_tokens * engine.step.token_s
    )
    return arithmetic * peaks["flops"] / gpu
