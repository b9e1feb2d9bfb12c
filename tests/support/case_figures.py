"""Figures of a report's evidence as facts: the table over the leaves of the slow side."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from case_evidence import Evidence
from case_keys import Known, find, number, ranged, span, written
from case_sides import Leaf
from case_words import said, slowed

from whybound.collector.fact_values import read_fact
from whybound.collector.fact_words import stack_kind
from whybound.errors import UsageError

_LARGER_IS_BETTER = re.compile(
    r"_per_s$|^gpu_(busy|sm|clock)|^kv_(capacity|room)|^prefix_hit|^max_num_seqs_count|^cpu_limit|^graph_|_accepted_|^kernel_(blocks|read)"
)
_EACH = re.compile(r"gpu\w*per_(gpu|rank|device|card)|per_gpu\w*util|gpus?_utils?$")
"""Lists with a figure for each GPU."""


def figures(
    leaves: Sequence[Leaf], found: Evidence, beside: Sequence[Leaf] = (), about: str = ""
) -> None:
    """The table over the leaves; of several for one signal the surest of the slow side, then the worst.

    Args:
        leaves: of the slow side.
        found: what is filled.
        beside: leaves of the other side, of which a ratio may take one.
        about: engine, model, arguments and interconnect of the report, in words.
    """
    offers: dict[str, list[tuple[int, int, float, Leaf, str]]] = {}
    parts: dict[tuple[str, tuple[str, ...]], list[tuple[float, Leaf]]] = {}
    for leaf in leaves:
        key = ".".join(leaf.path)
        row = find(leaf.path, "evidence", about, leaf.value)
        lines = leaf.value if isinstance(leaf.value, list) else [leaf.value]
        if row is not None and row.log and all(isinstance(x, str) for x in lines):
            found.log += lines
            continue
        if row is not None and row.states:
            for name, value in slowed(str(leaf.value)):
                found.offer(name, value, key)
            continue
        if row is None or row.none or row.log:
            told = (
                list(said(leaf.value))
                if isinstance(leaf.value, str) and (not (row and row.none) or row.words)
                else []
            )
            for name, value in told:
                found.offer(name, value, key)
            if told:
                continue
            found.unmapped[key] = row.none if row and row.none else "unknown key"
            continue
        if row.setting:
            _setting(row, leaf, found)
            continue
        row = _known(row, found)
        if row.signal not in found.known:
            found.unmapped[key] = f"no signal {row.signal}"
            continue
        if _EACH.search(key.lower()) and isinstance(leaf.value, list):
            for gpu, one in enumerate(leaf.value):
                if (text := written(row, leaf.path, _percent(one, leaf.value))) is not None:
                    found.offer(f"{row.signal}@gpu={gpu}", text, key)
            continue
        text = (
            _accepted(leaf, about)
            if row.as_ == "accepted"
            else _text(row, leaf, (*leaves, *beside))
        )
        if text is None:
            found.unmapped[key] = f"no value for {row.signal}: {str(leaf.value)[:60]}"
            continue
        for name, value in row.also.items():
            found.offer(name, value, key)
        if row.run and (run := re.search(row.run, key.lower())):
            found.offer("prefill_run_count", run[1], key)
        if row.part:
            value = read_fact(row.signal, text).value or 0.0
            parts.setdefault((row.signal, leaf.path[:-1]), []).append((value, leaf))
            continue
        if row.second:
            offers.setdefault(row.second, []).append((row.order + 5, leaf.rank, 0.0, leaf, text))
        own = re.search(r"(?:^|[._])gpu(\d+)(?:[._]|$)", key.lower())
        name = f"{row.signal}@gpu={own[1]}" if own else row.signal
        offers.setdefault(name, []).append(
            (row.order, leaf.rank, -_badness(row.signal, text), leaf, text)
        )
    for name, several in offers.items():
        _, _, _, leaf, text = min(several, key=lambda o: o[:3])
        found.offer(name, text, ".".join(leaf.path))
    for (signal, parent), values in parts.items():
        keys = " + ".join(".".join(leaf.path) for _, leaf in values)
        whole = sum(v for v, _ in values)
        found.offer(signal, f"{whole:.4g} s", keys or ".".join(parent))
        most, leaf = max(values, key=lambda v: v[0])
        if most > whole / 2 and (kind := stack_kind(" ".join(leaf.path))):
            found.offer("host_stack_kind", kind, ".".join(leaf.path))


def _percent(one: Any, of: list[Any]) -> Any:
    """A share as percent where another one beside it is above 1."""
    plain = [number(x) for x in of]
    return f"{one} %" if number(one) is not None and any(x and x > 1 for x in plain) else one


def _text(row: Known, leaf: Leaf, leaves: Sequence[Leaf]) -> str | None:
    """The value of a leaf as its row has it, if it can be read."""
    if row.over:
        return _over(row, leaf, leaves)
    pair = isinstance(leaf.value, dict)
    text = _worse_of(row, leaf) if pair else written(row, leaf.path, leaf.value)
    if text is None:
        return None
    try:
        read_fact(row.signal, text)
    except UsageError:
        return None
    return text


def _known(row: Known, found: Evidence) -> Known:
    """The row with a signal that there is: a median stands for a mean where only means are kept."""
    if row.signal in found.known or "_p50_" not in row.signal:
        return row
    return row._replace(signal=row.signal.replace("_p50_", "_mean_"))


def _over(row: Known, leaf: Leaf, leaves: Sequence[Leaf]) -> str | None:
    """A figure over the one that the row names."""
    others = [
        x for x in leaves if x.path != leaf.path and re.search(row.over, ".".join(x.path).lower())
    ]
    near = [x for x in others if x.path[:-1] == leaf.path[:-1]]
    other = next(iter(near or ([] if row.beside else others)), None)
    one, two = span(leaf.value), span(other.value) if other else None
    if not one or not two or min(*one, *two) <= 0:
        return None
    return ranged(one[0] / two[1], one[1] / two[0])


def _accepted(leaf: Leaf, about: str) -> str | None:
    """Tokens that a step yields → the share of the drafted ones, where the arguments tell how many these are."""
    drafted = re.search(
        r"(?:\bk=|num.speculative.tokens\W{1,4}|num.steps[ =]+|draft.n.max[ =]+|draft.max[ =]+|\bmtp[ =]+)(\d+)",
        about, re.IGNORECASE,
    )  # fmt: skip
    ends = span(leaf.value)
    if not drafted or not ends or min(ends) < 1:
        return None
    shares = [min(1.0, (e - 1) / int(drafted[1])) for e in ends]
    return ranged(*shares)


def _worse_of(row: Known, leaf: Leaf) -> str | None:
    """The worse of a pair whose sides nothing names: people complain of that one."""
    either: list[Any] = leaf.value["either"]
    texts = [t for v in either if (t := written(row, leaf.path, v)) is not None]
    return max(texts, key=lambda t: _badness(row.signal, t), default=None)


def _badness(signal: str, text: str) -> float:
    plain = number(text) or 0.0
    return -plain if _LARGER_IS_BETTER.search(signal) else plain


def _setting(row: Known, leaf: Leaf, found: Evidence) -> None:
    values = leaf.value if isinstance(leaf.value, list) else [leaf.value]
    plain = [v for v in map(number, values) if v is not None]
    text = (
        f"{sum(plain) / len(plain) * row.scale:g}" if plain and row.scale != 1 else str(leaf.value)
    )
    found.settings[row.setting] = text
    found.told[row.setting] = ".".join(leaf.path)
