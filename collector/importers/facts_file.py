"""Facts typed by hand, in YAML: signals with units, ranges, bounds and before/after pairs.

facts:
  gpu_sm_ratio: 60-75 %
  gpu_dram_ratio: not high
  client_itl_p95_s: {before: 40 ms, after: 24 ms}
  kv_used_max_ratio: {value: 97 %, scope: replica=a}
settings:
  max_num_seqs: 64
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...errors import UsageError, WhyboundError
from ..argv import REDACTED, is_secret, redact_text
from ..fact_values import read_fact, unit_suffix
from .importer import Importer, Row, Sample, Sink, Source
from .launch_yaml import MAX_YAML_CHARS, read_yaml

_KEY = re.compile(r"^['\"]?([A-Za-z_]\w{0,99})['\"]?:(?:\s|$)", re.MULTILINE)
_TOP = frozenset(("facts", "settings", "engine", "note", "notes"))
_INSIDE = frozenset(("value", "before", "after", "scope", "n"))


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
    rows: list[Row] = []
    wrong = []
    for name, value in facts.items():
        try:
            check_name(str(name), known)
            rows += _rows(str(name), value, where, sink)
        except UsageError as error:
            wrong.append(str(error))
    sink.rows("facts", rows)
    sink.rows("settings", list(_settings(whole, sink)))
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise WhyboundError(f"{where}: {wrong[0]}{more}")


def check_name(name: str, known: list[str]) -> None:
    """Refuse a name that no signal has; with an empty list every name passes.

    Raises:
        UsageError: none has; the message names those that are like it.
    """
    if not known or name in known:
        return
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    hint = (
        f"did you mean {' or '.join(close)}?"
        if close
        else "`profile sql RUN 'FROM signals'` lists a run's"
    )
    raise UsageError(f"no signal {name!r}; {hint}")


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


def _rows(name: str, value: Any, file: str, sink: Sink) -> Iterator[Row]:
    when = sink.options.get("when", "")
    if not isinstance(value, Mapping):
        yield fact_row(name, _written(name, value), t_ns=sink.epoch_ns, when=when, file=file)
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
            yield fact_row(
                name, _written(name, value[key]), t_ns=sink.epoch_ns, when=side,
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
