"""What a lever gave: the target of one run over that of another, with an interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..rules.model import Realised
from .target import SIGNALS, TargetSpec

if TYPE_CHECKING:
    import duckdb

BLOCKS = 20
RESAMPLES = 2000

_COLUMN = {"ttft": "client_ttft_s", "tpot": "client_tpot_s", "e2e": "client_e2e_s"}


def realised(
    base: duckdb.DuckDBPyConnection, candidate: duckdb.DuckDBPyConnection, spec: TargetSpec
) -> Realised | None:
    """The gain on a mean latency or on throughput, 1.25 is a quarter better; None when it was not measured.

    The 95 % interval is a block bootstrap: the requests of each run in 20 consecutive blocks, since
    neighbours are not independent, resampled with the same blocks in both runs (the arrivals are the
    same). It covers one pair of runs: restarts vary more.
    """
    if spec.metric == "throughput":
        pair = [_scalar(con, SIGNALS["throughput"][0], "load") for con in (base, candidate)]
        if pair[0] is None or pair[1] is None or pair[0] <= 0:
            return None
        gain = pair[1] / pair[0]
        return Realised(gain=gain, low=gain, high=gain)
    column = _COLUMN.get(spec.metric)
    if column is None or spec.statistic != "mean":
        return None
    blocks = [_blocks(con, column) for con in (base, candidate)]
    if any(len(b) < 2 for b in blocks):
        return None
    count = min(len(b) for b in blocks)
    draws = np.random.default_rng(0).integers(0, count, size=(RESAMPLES, count))
    means = [b[:count][draws].mean(axis=1) for b in blocks]
    low, high = np.quantile(means[0] / means[1], [0.025, 0.975])
    whole = [float(b.mean()) for b in blocks]
    return Realised(gain=whole[0] / whole[1], low=float(low), high=float(high))


def _blocks(
    con: duckdb.DuckDBPyConnection, column: str
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Block means of a latency, in order of arrival; shape (≤ 20,), seconds."""
    rows = con.execute(
        f"SELECT avg(v) FROM (SELECT {column} AS v, ntile({BLOCKS}) OVER (ORDER BY arrival_ns) AS b"  # noqa: S608
        f" FROM measured_requests WHERE status = 'ok' AND {column} IS NOT NULL) GROUP BY b ORDER BY b"
    ).fetchall()
    return np.array([r[0] for r in rows], dtype=np.float64)


def _scalar(con: duckdb.DuckDBPyConnection, column: str, view: str) -> float | None:
    row = con.execute(f"SELECT {column} FROM {view}").fetchone()  # noqa: S608 — names are ours
    return None if row is None else row[0]
