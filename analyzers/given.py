"""Signals that were given: by hand, or as figures that another tool printed; beside those that were measured.

Of one signal and scope, what a run measured counts before what a tool printed, and that before what a person
typed; among equals the later one. What does not count stays in the table `facts`, and `disagreements` says
where it says something else.
"""

from __future__ import annotations

import math
import re
from functools import cache
from typing import TYPE_CHECKING

from ..rules.conditions import interval, signals_of
from ..rules.load import load_levers, load_prechecks, load_rules
from ..rules.model import TOLD, Signal
from ..rules.observations import load_given
from .database import view_sources
from .signals import unit_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import duckdb

SOURCE = "facts"
"""The `source` of a signal that another tool printed."""

HAND = TOLD[0]
"""The `source` of a signal that a person typed."""

GIVEN = (SOURCE, HAND)

DERIVED = frozenset((
    "capacity_gain_uncapped_ratio", "rho_capped_ratio", "rho_uncapped_ratio", "prefill_share_ratio",
    "ridge_batch_count", "decode_floor_ratio", "prefill_floor_ratio", "weight_bits_count", "kv_bits_count",
    "gpu_fp8_supported", "gpu_fp4_supported",
))  # fmt: skip
"""Signals of the fitted model, which no view has."""

_COLUMN = re.compile(r"COMMENT ON COLUMN \w+\.(\w+) IS '((?:[^']|'')*)'")
_LEVEL = re.compile(r"^-- signals: level (\d)$", re.MULTILINE)
_GIVEN = """
SELECT signal, scope, value, text, low, high, n, source, file
FROM facts
WHERE "when" IS NULL OR "when" IN ('', 'before')
ORDER BY source = 'hand', t_ns DESC
"""
"""The most direct first. What was true after a change is no fact of the run that is judged."""


@cache
def known_signals() -> Mapping[str, int]:
    """Every signal that a view, the fit, a person, a rule or a lever knows, with its level."""
    levels = dict.fromkeys((*DERIVED, *load_given()), 1)
    rules = (load_rules() | load_prechecks()).values()
    for name in {need for rule in rules for need in rule.needs}:
        levels[name] = 1
    for lever in load_levers().values():
        levels |= dict.fromkeys(signals_of(lever.enabling + lever.harms), 1)
    for sql in view_sources().values():
        if found := _LEVEL.search(sql):
            levels |= dict.fromkeys((name for name, _ in _COLUMN.findall(sql)), int(found[1]))
    return levels


def described() -> dict[str, str]:
    """Every signal that can be given, with its meaning; of the fitted model's own there is none."""
    meanings: dict[str, str] = {}
    for sql in view_sources().values():
        if _LEVEL.search(sql):
            meanings |= {
                name: says.replace("''", "'")
                for name, says in _COLUMN.findall(sql)
                if not name.startswith(("low_", "high_")) and name != "n"
            }
    return dict(sorted((meanings | dict(load_given())).items()))


def given_signals(con: duckdb.DuckDBPyConnection) -> list[Signal]:
    """The signals of the table `facts`, one a name and scope, the most direct; unknown names left out."""
    found: dict[tuple[str, str], Signal] = {}
    known = known_signals()
    for name, scope, value, text, low, high, n, source, _ in con.execute(_GIVEN).fetchall():
        if name not in known or (name, scope or "") in found:
            continue
        numbers = [v if v is not None and math.isfinite(v) else None for v in (value, low, high)]
        signal = Signal(
            name=name, scope=scope or "", value=numbers[0], text=text if value is None else None,
            low=numbers[1], high=numbers[2], unit=unit_of(name), n=n or 0, level=known[name],
            source=HAND if source == "hand" else SOURCE,
        )  # fmt: skip
        if signal.text is not None or interval(signal) is not None:
            found[name, signal.scope] = signal
    return list(found.values())


def with_given(measured: Sequence[Signal], con: duckdb.DuckDBPyConnection) -> list[Signal]:
    """Measured signals, and the given ones that none of them tells."""
    told = {(s.name, s.scope) for s in measured}
    return [*measured, *(s for s in given_signals(con) if (s.name, s.scope) not in told)]


def with_derived(signals: Sequence[Signal], derived: Sequence[Signal]) -> list[Signal]:
    """Signals and what the fitted model derives from them; of a name in both the derived one counts."""
    told = {(s.name, s.scope) for s in derived}
    kept = (s for s in signals if s.source not in GIVEN or (s.name, s.scope) not in told)
    return [*kept, *derived]


def disagreements(signals: Iterable[Signal], con: duckdb.DuckDBPyConnection) -> list[str]:
    """A line for each given figure that counts for nothing: unknown, or not what counts says.

    Args:
        signals: as `with_given` returns them.
        con: the run's database.
    """
    counts = {(s.name, s.scope): s for s in signals}
    lines: dict[str, None] = {}
    for name, scope, value, text, low, high, _, source, file in con.execute(_GIVEN).fetchall():
        where = "by hand" if source == "hand" else f"in {file or source}"
        if name not in known_signals():
            lines[f"{name} was given {where}, and is no signal that is known"] = None
            continue
        used = counts.get((name, scope or ""))
        other = Signal(name=name, value=value, text=text, low=low, high=high)
        if used is not None and not _agree(used, other):
            lines[
                f"{name} was given {where} as {_shown(other)}; {_shown(used)} counts, from {used.source}"
            ] = None
    return list(lines)


def _agree(one: Signal, other: Signal) -> bool:
    """Do two figures allow a common value, to 5 %?"""
    if one.text is not None or other.text is not None:
        return one.text == other.text
    a, b = interval(one), interval(other)
    if a is None or b is None:
        return True
    slack = 0.05 * max(abs(x) for x in (*a, *b) if math.isfinite(x))
    return a[0] - slack <= b[1] and b[0] - slack <= a[1]


def _shown(signal: Signal) -> str:
    if signal.text is not None:
        return signal.text
    if signal.low is not None and signal.high is not None and signal.low < signal.high:
        return f"{signal.low:.4g}..{signal.high:.4g}"
    if signal.value is not None:
        return f"{signal.value:.4g}"
    return f">= {signal.low:.4g}" if signal.low is not None else f"<= {signal.high:.4g}"
