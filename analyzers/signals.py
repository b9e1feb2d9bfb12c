"""Facts about a run, one row each, read off the views that are marked `-- signals:`.

Every column of such a view is a signal named after it: its suffix is the unit, its comment the doc, the
column `n` the number of observations. `low_<name>` and `high_<name>` bound `<name>`. A NULL gives no
signal: missing is never zero.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from ..collector.schema import UNIT_SUFFIXES
from ..rules.model import Signal
from .database import view_sources

if TYPE_CHECKING:
    import duckdb

_MARK = re.compile(r"^-- signals: level (\d)$", re.MULTILINE)


def signal_views() -> dict[str, int]:
    """The views whose columns are signals, with their measurement level."""
    return {
        name: int(match.group(1))
        for name, sql in view_sources().items()
        if (match := _MARK.search(sql))
    }


def read_signals(con: duckdb.DuckDBPyConnection) -> list[Signal]:
    """All signals of a run, measured ones and those that were given; empty when there are none."""
    from .given import with_given  # which needs the units of here

    found: list[Signal] = []
    for view, level in signal_views().items():
        cursor = con.execute(f"SELECT * FROM {view}")  # noqa: S608 — names come from our own files
        names = [d[0] for d in cursor.description or []]
        for row in cursor.fetchall():
            found.extend(_row_signals(view, level, dict(zip(names, row, strict=True))))
    return with_given(found, con)


def _row_signals(view: str, level: int, row: dict[str, Any]) -> list[Signal]:
    n = int(row.pop("n", 0) or 0)
    signals = []
    for name, value in row.items():
        if value is None or name.startswith(("low_", "high_")):
            continue
        common: dict[str, Any] = {"name": name, "n": n, "level": level, "source": view}
        if isinstance(value, str):
            signals.append(Signal(text=value, **common))
        elif math.isfinite(value):
            signals.append(
                Signal(
                    value=float(value),
                    low=_finite(row.get(f"low_{name}")),
                    high=_finite(row.get(f"high_{name}")),
                    unit=unit_of(name),
                    **common,
                )
            )
    return signals


def _finite(bound: float | None) -> float | None:
    return bound if bound is not None and math.isfinite(bound) else None


def unit_of(name: str) -> str:
    """The unit in a name's suffix: `_per_s` before `_s`; empty when it has none."""
    if name.endswith("_per_s"):
        return "per_s"
    suffix = name.rsplit("_", 1)[-1]
    return suffix if suffix in UNIT_SUFFIXES else ""
