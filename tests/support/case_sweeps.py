"""Sweeps among a report's figures: over load, or over the length of the context."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from case_keys import VERSUS, find, number
from case_sides import Leaf, Sides, level, levels_of

_LOADS = re.compile(
    r"concurren|stream|users|batch|clients|(^|_)(rate|rps|qps)|request_rate|parallel", re.IGNORECASE
)
_CONTEXTS = re.compile(r"depth|context|ctx|input|prompt|length|isl", re.IGNORECASE)


def by_load(
    told: Sides, workload: Mapping[str, Any], kind: str
) -> dict[str, list[tuple[float, Leaf]]]:
    """Signal → points and figures of the slow side's sweep over load, or over context.

    Args:
        told: the sides of the case.
        workload: of the case; what it lists tells what the points are.
        kind: "load" or "context".
    """
    found: dict[tuple[str, str], list[tuple[float, Leaf]]] = {}
    ranks: dict[tuple[str, str], int] = {}
    for leaf in told.swept:
        row = find(leaf.path, "evidence", value=leaf.value)
        at = list(levels_of(leaf.path, told.chosen))
        point = level(at[-1][1]) if at else None
        if row is None or not row.signal or point is None:
            continue
        parent = at[-1][0]
        names = sorted({x.path[len(parent)] for x in told.swept if x.path[: len(parent)] == parent})
        if _sweep_kind(at[-1], names, workload) != kind:
            continue
        rest = ".".join(VERSUS.sub(r"\1", p) for p in leaf.path if p != at[-1][1])
        key = (f"{row.signal}{'/' if row.as_ == 'inverse' else ''}", rest)
        found.setdefault(key, []).append((point, leaf))
        ranks[key] = min(ranks.get(key, 9), leaf.rank)
    best: dict[str, list[tuple[float, Leaf]]] = {}
    for key in sorted(found, key=lambda k: (ranks[k], -len(found[k]))):
        if len(found[key]) > 1:
            best.setdefault(key[0], sorted(found[key], key=lambda x: x[0]))
    return best


def _sweep_kind(
    at: tuple[tuple[str, ...], str], names: Sequence[str], workload: Mapping[str, Any]
) -> str:
    """Whether the points of a sweep are loads or contexts; "" where nothing says."""
    points = {level(n) for n in names}
    for key, value in workload.items():
        listed = set(map(number, value)) if isinstance(value, list) else set()
        if len(listed & points) > 1:
            return _load_or_context(str(key))
    if all(re.match(r"(c|bs|conc\w*|batch|rate|qps|users|n)_?\d", n, re.IGNORECASE) for n in names):
        return "load"
    if re.search(r"_(users|clients|streams|requests|concurrent|reqs?|rps|qps|req_s)$", names[0]):
        return "load"
    if re.match(
        r"(at_)?(ctx|context|depth|in|input|prompt|isl)_?\d|.*\d[km]?_?(tokens?|tok|ctx|context)$",
        names[0],
        re.I,
    ):
        return "context"
    return _load_or_context(".".join(at[0]))


def _load_or_context(words: str) -> str:
    """What words about a sweep say that it is over; "" where they say neither."""
    if _LOADS.search(words):
        return "load"
    return "context" if _CONTEXTS.search(words) else ""
