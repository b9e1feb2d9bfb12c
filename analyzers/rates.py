"""What is one number a run: rates, shares and ratios over the window that is judged (`run_window`).

Their intervals come from 20 equal slices of that window, or from a share's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .measured import MIN_REQUESTS, NO_LOAD, Measured, column, few
from .quantiles import BLOCKS, Floats, ratio_interval, share_interval
from .target import LIMITS, METRICS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import duckdb

    from ..rules.model import Signal
    from .target import TargetSpec

POWER_SHARE = 0.9
"""Share of the window that the power samples of every GPU must span."""

_LIMITED = {
    "ttft": "client_ttft_s",
    "e2e": "client_e2e_s",
    # one token keeps any pace
    "tpot": "CASE WHEN output_tokens < 2 THEN 0 ELSE client_tpot_s END",
    "itl": "CASE WHEN coalesce(len(chunk_gap_s), 0) = 0 THEN 0"
    " ELSE list_sort(chunk_gap_s)[ceil(0.95 * len(chunk_gap_s))::INTEGER] END",
}
"""What a request must keep for goodput: of its gaps, the 95th percentile, as the load generator counts."""


def _window(con: duckdb.DuckDBPyConnection) -> Floats | None:
    """The edges of the slices of the window, seconds from its start; None when it has no length."""
    row = con.execute("SELECT duration_s FROM run_window").fetchone()
    if row is None or not row[0]:
        return None
    return np.linspace(0.0, row[0], BLOCKS + 1)


def client_rate(metric: str, value: float, con: duckdb.DuckDBPyConnection) -> Measured:
    """The interval of throughput, request_rate or error_rate around the client's value."""
    if metric == "error_rate":
        failed = column(
            con,
            "SELECT (status NOT IN ('ok', 'unfinished'))::DOUBLE FROM measured_requests"
            " ORDER BY arrival_ns, request_id",
        )
        return Measured(value, *share_interval(failed))
    if metric == "request_rate":
        return _counted(con, "status = 'ok'", value)
    edges = _window(con)
    n = len(column(con, "SELECT output_tokens FROM measured_requests"))
    if edges is None or n < MIN_REQUESTS:
        return few(value, n)
    return _around(value, _tokens(con, edges), np.diff(edges))


def _around(value: float, above: Floats, below: Floats) -> Measured:
    """A ratio with the relative width that its slices give; they may miss a little at the window's ends."""
    if below.sum() <= 0 or above.sum() <= 0:
        return Measured(value, why="what grew in the window is too little for a 95 % interval")
    low, high = ratio_interval(above, below)
    scale = value / float(above.sum() / below.sum())
    return Measured(value, low * scale, high * scale)


def _counted(con: duckdb.DuckDBPyConnection, which: str, value: float | None = None) -> Measured:
    """Requests a second for which the SQL condition holds, by the time of their end."""
    edges = _window(con)
    if edges is None:
        return Measured(why=NO_LOAD)
    ends = column(
        con,
        "SELECT (r.end_ns - w.start_ns) / 1e9 FROM measured_requests r, run_window w"  # noqa: S608 — ours
        f" WHERE coalesce({which}, false) AND r.end_ns IS NOT NULL",
    )
    rate = len(ends) / edges[-1] if value is None else value
    n = len(column(con, "SELECT arrival_ns FROM measured_requests"))
    if n < MIN_REQUESTS:
        return few(rate, n)
    counts = np.histogram(ends, bins=edges)[0].astype(np.float64)
    return _around(float(rate), counts, np.diff(edges))


def goodput(guards: Sequence[TargetSpec], con: duckdb.DuckDBPyConnection) -> Measured:
    """Requests a second that ended well and kept the limit of every guard on a latency."""
    limits = [g for g in guards if g.metric in LIMITS and g.threshold is not None]
    if not limits:
        return Measured(why="goodput counts requests within limits, and no guard is one")
    if not len(column(con, "SELECT arrival_ns FROM measured_requests")):
        return Measured(why=NO_LOAD)
    kept = [f"({_LIMITED[g.metric]}) <= {g.threshold!r}" for g in limits]
    return _counted(con, " AND ".join(["status = 'ok'", *kept]))


def _tokens(con: duckdb.DuckDBPyConnection, edges: Floats) -> Floats:
    """Output tokens in each slice; those of a request come evenly between its first token and its end."""
    rows = con.execute(
        "SELECT (coalesce(first_token_ns, r.end_ns, w.end_ns) - w.start_ns) / 1e9,"
        " (coalesce(r.end_ns, w.end_ns) - w.start_ns) / 1e9, output_tokens"
        " FROM measured_requests r, run_window w WHERE output_tokens IS NOT NULL"
    ).fetchall()
    first, end, tokens = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    length = np.maximum(end - first, 1e-9)
    total = np.array([(tokens * np.clip((e - first) / length, 0.0, 1.0)).sum() for e in edges])
    return np.diff(total)


def server(metric: str, con: duckdb.DuckDBPyConnection, signals: Mapping[str, Signal]) -> Measured:
    """What the engine counted of a run without a load generator: means and tokens a second."""
    found = signals.get(METRICS[metric].server_signal)
    if found is None or found.value is None:
        return Measured(why=NO_LOAD)
    edges = _window(con)
    if edges is None:
        return Measured(found.value, why="the window has no length")
    if metric == "throughput":
        tokens = _grown(con, "samples", "generation_tokens", "value", edges)
        return _around(found.value, tokens, np.diff(edges))
    counts = _grown(con, "histograms", f"{metric}_s", "count", edges)
    if counts.sum() < MIN_REQUESTS:
        return few(found.value, int(counts.sum()))
    sums = _grown(con, "histograms", f"{metric}_s", "sum", edges)
    return _around(found.value, sums, counts)


def _grown(
    con: duckdb.DuckDBPyConnection, table: str, signal: str, name: str, edges: Floats
) -> Floats:
    """Growth in each slice of all series of a counter or histogram; a reset costs one interval."""
    rows = con.execute(
        f"""
        SELECT (t_ns - start_ns) / 1e9 AS t, CASE WHEN v < before THEN v ELSE v - before END AS grown,
          (before_ns - start_ns) / 1e9 AS since
        FROM (
          SELECT t_ns, lag(t_ns) OVER series AS before_ns, "{name}" AS v, lag("{name}") OVER series AS before
          FROM {table} WHERE signal = ?
          WINDOW series AS (PARTITION BY node, engine, replica, phase, reason, labels ORDER BY t_ns)
        ), run_window
        WHERE before IS NOT NULL ORDER BY t
        """,  # noqa: S608 — names are ours
        [signal],
    ).fetchall()
    if not rows:
        return np.zeros(len(edges) - 1)
    t, grown, since = np.array(rows, dtype=np.float64).T
    t, total = np.insert(t, 0, since.min()), np.insert(np.cumsum(grown), 0, 0.0)
    return np.diff(np.interp(edges, t, total))


def energy(con: duckdb.DuckDBPyConnection) -> Measured:
    """Joules of every GPU that was sampled over the window, per output token."""
    edges = _window(con)
    rows = con.execute(
        "SELECT node, gpu, (t_ns - start_ns) / 1e9, value FROM samples, run_window"
        " WHERE signal = 'gpu_power_w' ORDER BY node, gpu, t_ns"
    ).fetchall()
    if edges is None or not rows:
        return Measured(why="no GPU power was sampled (NVML)")
    joules = np.zeros(len(edges) - 1)
    for gpu in {r[:2] for r in rows}:
        t, watts = np.array([r[2:] for r in rows if r[:2] == gpu], dtype=np.float64).T
        spanned = min(t[-1], edges[-1]) - max(t[0], 0.0)
        if spanned < POWER_SHARE * edges[-1]:
            share = max(0.0, spanned) / edges[-1]
            return Measured(why=f"the power of GPU {gpu[1]} was sampled for {share:.0%} of the run")
        # held at both ends, where less than a tenth of the window may lack samples
        t = np.concatenate([[min(t[0], 0.0)], t, [max(t[-1], edges[-1])]])
        watts = np.concatenate([watts[:1], watts, watts[-1:]])
        total = np.concatenate([[0.0], np.cumsum(np.diff(t) * (watts[1:] + watts[:-1]) / 2)])
        joules += np.diff(np.interp(edges, t, total))
    tokens = _tokens(con, edges)
    if tokens.sum() <= 0:
        tokens = _grown(con, "samples", "generation_tokens", "value", edges)
    if tokens.sum() <= 0:
        return Measured(why="no output token was counted")
    return Measured(float(joules.sum() / tokens.sum()), *ratio_interval(joules, tokens))
