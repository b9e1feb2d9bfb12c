"""The value of a target's metric in a run, with its interval, from the tables.

Quantiles are of the requests that ended well, in order of arrival.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .measured import MIN_REQUESTS, NO_LOAD, Measured, column, few
from .quantiles import Interval, clustered_interval, quantile_interval, samples_needed
from .rates import client_rate, energy, goodput, server
from .target import METRICS, TargetSpec

if TYPE_CHECKING:
    import duckdb

    from ..rules.model import Signal

MAX_GAPS = 200_000
"""Gaps that a bootstrap looks at; of a longer run, those of requests drawn at random."""

PER_REQUEST = {
    "ttft": "client_ttft_s",
    "e2e": "client_e2e_s",
    "tpot": "client_tpot_s",
}
"""Metric → the column of `measured_requests` with its value for each request."""


def measure(
    spec: TargetSpec,
    guards: Sequence[TargetSpec],
    con: duckdb.DuckDBPyConnection,
    signals: Mapping[str, Signal],
) -> Measured:
    """What the run shows of a target or guard; `guards` are the limits of goodput."""
    metric = spec.metric
    if spec.is_quality:
        return Measured(why="not measured")
    if metric == "cost":
        return Measured(why="the price of the hardware is not known")
    if metric == "energy":
        return energy(con)
    if metric == "goodput":
        return goodput(guards, con)
    if spec.quantile is not None:
        return _gaps(spec.quantile, con, signals) if metric == "itl" else _quantile(spec, con)
    found = signals.get(METRICS[metric].signal.format(spec.statistic))
    if found is None or found.value is None:
        return server(metric, con, signals)
    if METRICS[metric].latency:
        if found.low is None:
            return few(found.value, found.n)
        return Measured(found.value, found.low, found.high)
    return client_rate(metric, found.value, con)


def _quantile(spec: TargetSpec, con: duckdb.DuckDBPyConnection) -> Measured:
    assert spec.quantile is not None
    name = PER_REQUEST[spec.metric]
    values = column(
        con,
        f"SELECT {name} FROM measured_requests"  # noqa: S608 — a name of ours
        f" WHERE status = 'ok' AND {name} IS NOT NULL ORDER BY arrival_ns, request_id",
    )
    if not len(values):
        return Measured(why=NO_LOAD)
    bounds = quantile_interval(values, spec.quantile)
    return Measured(
        float(np.quantile(values, spec.quantile)), bounds.low, bounds.high,
        "" if None not in (bounds.low, bounds.high) else _too_few(len(values), bounds, spec.quantile),
    )  # fmt: skip


def _too_few(n: int, bounds: Interval, p: float) -> str:
    worth = f", worth {bounds.n_effective} independent ones," if bounds.n_effective < n else ""
    needed = samples_needed(p)
    return f"{n} samples{worth} give no two-sided 95 % interval ({needed} needed)"


def _gaps(p: float, con: duckdb.DuckDBPyConnection, signals: Mapping[str, Signal]) -> Measured:
    """A quantile of the gaps between chunks, bounded by a bootstrap over requests."""
    value = con.execute("SELECT quantile_cont(gap_s, ?), count(*) FROM token_gaps", [p]).fetchone()
    assert value is not None
    at, n = value
    if at is None:
        return Measured(why=NO_LOAD)
    if n < samples_needed(p):
        return Measured(at, why=_too_few(n, Interval(None, None, n), p))
    lengths = column(
        con,
        "SELECT len(chunk_gap_s) FROM measured_requests WHERE status = 'ok' AND len(chunk_gap_s) > 0"
        " ORDER BY arrival_ns, request_id",
    )
    requests = len(lengths)
    if requests < MIN_REQUESTS:
        return Measured(
            at, why=f"gaps of {requests} requests give no 95 % interval ({MIN_REQUESTS} needed)"
        )
    keep = np.arange(requests)
    if n > MAX_GAPS:
        order = np.random.default_rng(0).permutation(requests)
        fits = int(np.searchsorted(np.cumsum(lengths[order]), MAX_GAPS, side="right"))
        keep = np.sort(order[: max(MIN_REQUESTS, fits)])
    gaps = column(
        con,
        "SELECT unnest(chunk_gap_s) FROM (SELECT chunk_gap_s, row_number() OVER (ORDER BY arrival_ns, request_id)"
        " AS r FROM measured_requests WHERE status = 'ok' AND len(chunk_gap_s) > 0)"
        " WHERE r IN (SELECT unnest(?)) ORDER BY r",
        (keep + 1).tolist(),
    )
    owner = np.repeat(np.arange(len(keep)), lengths[keep].astype(np.int64))
    inflight = signals.get("inflight_mean_count")
    together = (inflight.value or 0.0) * len(keep) / requests if inflight else 0.0
    block = math.ceil(max(together, len(keep) ** (1 / 3)))
    bounds = clustered_interval(gaps, owner, p, block)
    assert bounds.low is not None
    assert bounds.high is not None
    return Measured(at, min(bounds.low, at), max(bounds.high, at))
