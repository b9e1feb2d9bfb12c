"""Facts typed by hand, in YAML: signals with units, ranges, bounds and before/after pairs.

facts:
  gpu_sm_ratio: 60-75 %
  gpu_dram_ratio: not high
  client_itl_p95_s: {before: 40 ms, after: 24 ms}
  kv_used_max_ratio: {value: 97 %, scope: replica=a}
  bench: {ttft_ms: {p50: 300}}
settings:
  max_num_seqs: 64

A name that is no signal is what a person calls one, if the table of these (fact_names) has it; what it was read
as is said. Mappings in mappings are names joined by dots.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from ...errors import UsageError, WhyboundError
from ..argv import REDACTED, is_secret, redact_text
from ..fact_names import MAX_NAME, plainer, read_name
from ..fact_values import read_fact, unit_suffix
from .importer import Importer, Row, Sample, Sink, Source
from .launch_yaml import MAX_YAML_CHARS, read_yaml

_KEY = re.compile(r"^['\"]?([A-Za-z_]\w{0,99})['\"]?:(?:\s|$)", re.MULTILINE)
_TOP = frozenset(("facts", "settings", "engine", "note", "notes"))
_INSIDE = frozenset(("value", "before", "after", "scope", "n"))
_SIDES = frozenset(("before", "after"))
MAX_FACTS = 1_000
MAX_DEEP = 20
MAX_SAID = 40
"""Names whose reading is said one by one."""


def _recognise(sample: Sample) -> float:
    """A mapping whose keys are `facts`, or names that end in a unit."""
    keys = _KEY.findall(sample.text)
    if not keys or sample.text.lstrip().startswith(("{", "[")):
        return 0.0
    if "facts" in keys:
        return 0.9 if set(keys) <= _TOP else 0.6
    told = sum(bool(unit_suffix(key)) and "_" in key for key in keys)
    return 0.7 if told >= 0.8 * len(keys) else 0.0


def _read(source: Source, sink: Sink) -> None:
    text = ""
    for line in source.lines():
        text += line + "\n"
        if len(text) > MAX_YAML_CHARS:
            break
    where = source.path.name
    documents = [d for d in read_yaml(text, where) if d is not None]
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise WhyboundError(f"{where}: facts are one mapping of signals to values")
    whole = documents[0]
    facts = whole.get("facts", {k: v for k, v in whole.items() if k not in _TOP})
    if not isinstance(facts, dict):
        raise WhyboundError(f"{where}: `facts` is no mapping of signals to values")
    known = sink.options.get("signals", "").split()
    try:
        rows, wrong = _all_rows(facts, known, where, sink)
        settings = list(_settings(whole, sink))
    except ValueError as error:  # a whole number of thousands of digits has no text
        raise WhyboundError(f"{where}: {error}") from error
    sink.rows("facts", rows)
    sink.rows("settings", settings)
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise WhyboundError(f"{where}: {wrong[0]}{more}")


def _all_rows(
    facts: Mapping[Any, Any], known: list[str], where: str, sink: Sink
) -> tuple[list[Row], list[str]]:
    """Rows, and what is wrong with the rest; signals by their own names come before what others stand for."""
    entries, wrong = _entries(facts, frozenset(known))
    rows: list[Row] = []
    given: dict[tuple[str, str, str], str] = {}
    read = []
    for entry in sorted(entries, key=lambda e: bool(known) and e.name not in known):
        try:
            those = list(_rows(entry, known, where, sink))
            for row, said in those:
                key = (row["signal"], row["scope"], row["when"])
                if said and (first := given.get(key)):
                    raise UsageError(f"{entry.name!r} is {row['signal']}, which {first} gives too")
            for row, said in those:
                given.setdefault((row["signal"], row["scope"], row["when"]), entry.name)
                rows.append(row)
                read += [said] if said else []
        except UsageError as error:
            wrong.append(str(error))
    for said in read[:MAX_SAID]:
        sink.note(said)
    if len(read) > MAX_SAID:
        sink.note(f"and {len(read) - MAX_SAID} more names read")
    return rows, wrong


class _Entry(NamedTuple):
    """A name with what stands beside it; `side` where a mapping above is of one."""

    name: str
    value: Any
    side: str = ""


def _entries(facts: Mapping[Any, Any], known: Collection[str]) -> tuple[list[_Entry], list[str]]:
    """Names and values, mappings in mappings flattened, and what is wrong with those that are not taken."""
    entries: list[_Entry] = []
    wrong: list[str] = []
    waiting: list[tuple[str, Any, str, int]] = [("", facts, "", 0)]
    taken = 0  # aliases of aliases stand for any number of mappings
    while waiting:
        name, value, side, deep = waiting.pop()
        taken += 1
        inner = name.rpartition(".")[2]
        own = name if name in known or not known else inner if inner in known else ""
        if len(entries) + len(wrong) >= MAX_FACTS or taken > MAX_DEEP * MAX_FACTS:
            wrong.append(f"more than {MAX_FACTS} facts; the rest is not read")
            break
        if len(name) > MAX_NAME or deep > MAX_DEEP:
            wrong.append(f"{name[:40]!r}… is longer or nested deeper than any name")
        elif name and (own or not isinstance(value, Mapping) or not value or _is_leaf(value)):
            entries.append(_Entry(own or name, value, side))
        else:
            for key, inside in reversed(list(value.items())):
                of = str(key) in _SIDES and isinstance(inside, Mapping)
                path = name if of else f"{name}.{key}" if name else str(key)
                waiting.append((path, inside, str(key) if of else side, deep + 1))
    return entries, wrong


def _is_leaf(value: Mapping[Any, Any]) -> bool:
    """Is a mapping a value with what is said of it, rather than names of its own?"""
    told = {"value", "before", "after"} & set(map(str, value))
    plain = not any(isinstance(value[k], Mapping) for k in value)
    return bool(told) and plain and set(map(str, value)) <= _INSIDE


def check_name(name: str, known: list[str]) -> None:
    """Refuse a name that no signal has; with an empty list every name passes.

    Raises:
        UsageError: none has; the message names those that are like it.
    """
    if not known or name in known:
        return
    likely = known if len(name) <= 100 else []  # no signal is that long, and likeness takes time
    close = difflib.get_close_matches(name, likely, n=3, cutoff=0.6)
    hint = (
        f"did you mean {' or '.join(close)}?"
        if close
        else "`profile sql RUN 'FROM signals'` lists a run's"
    )
    raise UsageError(f"no signal {_short(name)!r}; {hint}")


def fact_row(
    name: str,
    written: str,
    *,
    t_ns: int,
    when: str = "",
    scope: str = "",
    file: str = "",
    n: int = 0,
) -> Row:
    """One row of `facts`, given by hand.

    Raises:
        UsageError: the value cannot be read; see `read_fact`.
    """
    value = read_fact(name, written)
    return {
        "signal": name, "scope": scope, **value._asdict(), "n": n, "when": when,
        "source": "hand", "file": file, "t_ns": t_ns,
    }  # fmt: skip


def named_row(name: str, value: Any, known: list[str], **more: Any) -> tuple[Row, str]:
    """A row of what a person calls a figure, and what it was read as; "" where both are taken as they are.

    Args:
        name: a signal, or what people call one.
        value: a text, a number, yes or no, or a list.
        known: the signals that there are; with none every name is one.
        more: as `fact_row` takes it.

    Raises:
        UsageError: no signal is called so, or it may be several; or the value cannot be read.
    """
    if not known or name in known:
        text = _written(name, value)
        plain = plainer(name, text)
        row = fact_row(name, plain, **more)
        return row, "" if plain == text else f"read {name} = {_short(text)} as {_figure(row)}"
    reading = read_name(name, value, known)
    if reading is None:
        check_name(name, known)
        raise UsageError(f"no signal {name!r}")
    row = fact_row(reading.signal, reading.written, **more)
    return row, f"read {_short(name)} as {reading.signal} = {_figure(row)}"


def _figure(row: Row) -> str:
    """The value of a row in the unit of its signal, as a person reads it."""
    if row["text"] is not None:
        return _short(row["text"])
    low, high = (None if row[end] is None else _rounded(row[end]) for end in ("low", "high"))
    if row["value"] is not None and low is None:
        return str(_rounded(row["value"]))
    return f">= {low}" if high is None else f"<= {high}" if low is None else f"{low}..{high}"


def _rounded(number: float) -> float:
    return float(f"{number:.6g}")


def _short(text: str) -> str:
    return text if len(text) <= 60 and text.isprintable() else f"{text[:50]!r}…"


def _rows(entry: _Entry, known: list[str], file: str, sink: Sink) -> Iterator[tuple[Row, str]]:
    name, value, when = entry.name, entry.value, entry.side or sink.options.get("when", "")
    if not isinstance(value, Mapping):
        yield named_row(name, value, known, t_ns=sink.epoch_ns, when=when, file=file)
        return
    odd = sorted(set(map(str, value)) - _INSIDE)
    if odd:
        raise UsageError(f"{name}: unknown key {odd[0]!r}; there are {', '.join(sorted(_INSIDE))}")
    n = value.get("n", 0)
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise UsageError(f"{name}: n is a count")
    told = {"value": when, "before": "before", "after": "after"}
    if not any(key in value for key in told):
        raise UsageError(f"{name}: no value, before or after")
    for key, side in told.items():
        if key in value:
            yield named_row(
                name, value[key], known, t_ns=sink.epoch_ns, when=side,
                scope=_scope(value.get("scope")), file=file, n=n,
            )  # fmt: skip


def _written(name: str, value: Any) -> str:
    """A value as text; YAML reads `yes` and lists in its own way."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and len(value) == 2:
        return f"{value[0]}..{value[1]}"
    if isinstance(value, str | int | float):
        return str(value)
    raise UsageError(f"{name}: {str(value)[:40]!r} is no value")


def _scope(scope: Any) -> str:
    pairs = [p.strip() for p in str(scope or "").split(",") if p.strip()]
    if any("=" not in pair for pair in pairs):
        raise UsageError(f"scope {scope!r} is no key=value")
    return ",".join(sorted(pairs))


def _settings(whole: Mapping[Any, Any], sink: Sink) -> Iterator[Row]:
    settings = whole.get("settings")
    for key, value in settings.items() if isinstance(settings, dict) else ():
        if isinstance(value, dict | list) or value is None:
            continue
        name = str(key).lstrip("-").replace("-", "_")
        text = str(value).lower() if isinstance(value, bool) else redact_text(str(value))[:1000]
        yield {
            "t_ns": sink.epoch_ns, "engine": str(whole.get("engine") or ""), "replica": "", "key": name,
            "value": REDACTED if is_secret(name) else text, "origin": "requested", "source": "hand",
            "node": sink.options.get("node", ""),
        }  # fmt: skip


IMPORTERS = (Importer("facts", "facts typed by hand", _recognise, _read),)
