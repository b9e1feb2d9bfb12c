"""What a person calls a figure → the signal that it is, and its value in the form that `read_fact` takes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import UsageError
from .fact_figures import figure, unit_word
from .fact_forms import written
from .fact_table import Row, find, row_of, table, tokens
from .fact_values import is_share, read_fact, unit_suffix
from .fact_words import share

MAX_NAME = 200
MAX_WRITTEN = 200
MAX_LISTED = 100
_LOAD = frozenset(("load", "workload", "traffic"))
_ODD_STATISTIC = re.compile(r"p(?!(?:50|95|99|10)$)\d\d(?:\.?\d)?|std(?:ev|dev)?|stdev|variance")
_PAIRED = re.compile(r"->|→|\bvs\b", re.IGNORECASE)
_KINDS = (("_tokens_per_s", ("tok_s",)), ("_rate_per_s", ("req_s",)))
_RATE = re.compile(r"(?:tok|req)_s|[kmgt]i?b_s")


class Reading(NamedTuple):
    """What a name and its value are read as."""

    signal: str
    written: str


def read_name(name: str, value: Any, known: Collection[str]) -> Reading | None:
    """The signal that a name which is none stands for.

    Args:
        name: at most `MAX_NAME` characters; parts of a path are joined by dots.
        value: a text, a number, yes or no, or a list of them.
        known: the signals that there are.

    Returns:
        None where nobody calls a figure so, or where its signal is none of the known.

    Raises:
        UsageError: the name may be several signals, is of another state than the one that is judged or has no
            signal, or the value cannot be read; the message says which.
    """
    if len(name) > MAX_NAME:
        raise UsageError(f"{name[:40]!r}… is longer than any name")
    if not _bounded(value):
        raise UsageError(f"{_short(name)!r}: {_start(value)} is no value")
    path = _path(name)
    if not path:
        return None
    row = _row(name, path, value)
    if row is None:
        return None
    signal = _kept(row.signal, known)
    if not signal:
        return None
    words = tokens(path)
    if other := next((w for w in words if w in table()["elsewhere"]), None):
        raise UsageError(
            f"{_short(name)!r} tells of another state ({other}) than the one that is judged; "
            f"what it is in this one is {signal}"
        )
    if "vs" in words or "versus" in words or _PAIRED.search(str(value)):
        raise UsageError(f"{_short(name)!r} has two sides; write {signal}: {{before: …, after: …}}")
    return Reading(signal, _value(name, row._replace(signal=signal), path, value))


def plainer(signal: str, text: str) -> str:
    """The value of a known signal in plainer words: `3-6k`, `30+`, `starved`; as it is where it can be read."""
    if not unit_suffix(signal) or len(text) > MAX_WRITTEN:
        return text
    in_words = share(text) if is_share(signal) else None
    for candidate in (text, figure(text), in_words):
        if candidate and _reads(signal, candidate):
            return candidate
    return text


def _path(name: str) -> list[str]:
    """The parts of a name, with what people put between words as `_`; `%` is pct."""
    plain = re.sub(
        r"[\s\-/()\[\]]+", "_", name.replace("%", " pct ").replace("::", ".").replace(":", ".")
    )
    return [part for p in re.split(r"\.(?!\d)", plain) if (part := p.strip("_"))]


def _row(name: str, path: Sequence[str], value: Any) -> Row | None:
    """The row of the table; a name of the load and of a measurement has to be one signal."""
    measured, load = table()["measured"], table()["load"]
    last = path[-1:]
    if len(path) > 1 and path[0].lower() in _LOAD:
        found = find(last, load, value)
    else:
        found = find(path, measured, value, by_unit=False)
        asked = None if found and len(path) > 1 else find(last, load, value, by_unit=False)
        either = {row_of(r, path).signal for r in (found, asked) if r} - {""}
        if found and asked and len(either) > 1:
            raise UsageError(f"{_short(name)!r} may be {' or '.join(sorted(either))}; name one")
        found = found or asked or find(path, measured, value)
    if found is None:
        return None
    row: Row | None = row_of(found, path)
    if row and clashes(row.signal, value):
        row = _by_unit(path, measured, value)
    if row is not None and row.none:
        raise UsageError(f"{_short(name)!r} is no signal: {row.none}")
    odd = next((t for t in tokens(path) if _ODD_STATISTIC.fullmatch(t)), None)
    if odd or ("{stat}" in found.get("signal", "") and {"min", "minimum"} & set(tokens(path))):
        raise UsageError(
            f"{_short(name)!r}: of {odd or 'a least value'} no signal is kept; mean, p50, p95 and p99 are"
        )
    return row


def _by_unit(path: Sequence[str], rows: Any, value: Any) -> Row | None:
    """The row of a name whose value has the unit of another rate: `throughput = 4 req/s`."""
    longer = [*path[:-1], f"{path[-1]}_{unit_word(str(value))}"]
    found: Mapping[str, Any] | None = find(longer, rows)
    row = row_of(found, longer) if found else None
    return None if row is None or clashes(row.signal, value) else row


def clashes(signal: str, value: Any) -> bool:
    """Is a value's unit that of another kind of rate: requests where the signal counts tokens?"""
    unit = unit_word(value) if isinstance(value, str) else ""
    kinds = next((units for end, units in _KINDS if signal.endswith(end)), None)
    return kinds is not None and bool(_RATE.fullmatch(unit)) and unit not in kinds


def _kept(signal: str, known: Collection[str]) -> str:
    """The signal that there is: a median stands for a mean where only means are kept; "" without."""
    mean = signal.replace("_p50_", "_mean_")
    return signal if signal in known else mean if mean in known else ""


def _value(name: str, row: Row, path: Sequence[str], value: Any) -> str:
    text = written(row, path, value)
    if text is not None and _reads(row.signal, text):
        return text
    try:
        read_fact(row.signal, str(value))
    except UsageError as error:
        raise UsageError(f"{_short(name)!r} is {str(error)[:300]}") from error
    raise UsageError(f"{_short(name)!r} is {row.signal}: {str(value)[:40]!r} says nothing of it")


def _start(value: Any) -> str:
    """The beginning of something of any size."""
    return repr(value[:40]) if isinstance(value, str) else type(value).__name__


def _short(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:60]}…"


def _reads(signal: str, text: str) -> bool:
    try:
        read_fact(signal, text)
    except UsageError:
        return False
    return True


def _bounded(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) <= MAX_LISTED and all(
            not isinstance(v, list) and _bounded(v) for v in value
        )
    return isinstance(value, bool | int | float | str) and len(str(value)) <= MAX_WRITTEN
