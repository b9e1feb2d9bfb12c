"""A measured value with its bounds, and how its numbers are read from a run's database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import duckdb

    from .quantiles import Floats

MIN_REQUESTS = 20
"""As for the batch means: below it nothing tells how much neighbours have in common."""

NO_LOAD = "no load generator ran, and the engine's own metrics do not hold it"


@dataclass(frozen=True)
class Measured:
    """A value and its bounds, in the metric's unit.

    `low` or `high` alone may be None: then the data bound it on one side only. `why` says why there is no
    value, or no two-sided interval; empty when there is.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""


def few(value: float, n: int) -> Measured:
    """A value of too few requests for an interval."""
    return Measured(value, why=f"{n} requests give no 95 % interval ({MIN_REQUESTS} needed)")


def column(con: duckdb.DuckDBPyConnection, sql: str, *params: Any) -> Floats:
    """One column of numbers, as floats; its NULLs are NaN."""
    [values] = con.execute(sql, list(params)).fetchnumpy().values()
    return np.ma.filled(np.ma.asarray(values, dtype=np.float64), np.nan)
