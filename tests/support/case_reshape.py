"""Lists of points or statistics taken apart as their keys say; figures `1000 times more` than another."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from case_keys import number, ranged, span
from case_values import times_more

from whybound.collector.fact_figures import figure

_SERIES = re.compile(r"samples|history|series|percentiles", re.IGNORECASE)
_STAT = r"(?:p\d\d|mean|avg|median|max|min)"
_STATS = re.compile(rf"(?<![a-z0-9]){_STAT}(?:_(?:and_)?{_STAT})+(?![a-z0-9])", re.IGNORECASE)
_POINT = r"\d+(?:\.\d+)?[km]?"
_POINTS = re.compile(
    rf"(?:^|_)(?P<what>at|c|conc|concurrency|bs|batch|ctx|depth|users|streams)_"
    rf"(?P<points>{_POINT}(?:_{_POINT})*_(?:and_)?{_POINT})(?:_(?P<of>[a-z]+))?",
    re.IGNORECASE,
)
"""`at_200_and_2000_tokens`, `conc_1_8_32`."""


def reshaped(node: Any, workload: Mapping[str, Any], above: tuple[str, ...] = ()) -> Any:
    """A tree of evidence in which each list of points or of statistics is a mapping.

    A list of as many figures as the workload lists points is a sweep over these.
    """
    if isinstance(node, Mapping):
        return {
            k: v if _SERIES.search(str(k)) else reshaped(v, workload, (*above, str(k)))
            for k, v in _multiplied(node).items()
        }
    if not isinstance(node, list) or len(node) < 2 or any(number(v) is None for v in node):
        return node
    for key in reversed(above):
        for names in (_statistics(key), _points(key)):
            if len(names) == len(node):
                return dict(zip(names, node, strict=True))
    points = [w for w in workload.values() if isinstance(w, list) and len(w) == len(node) > 2]
    if len(points) == 1:
        return {str(p): v for p, v in zip(points[0], node, strict=True)}
    return node


def _statistics(key: str) -> list[str]:
    found = _STATS.search(key)
    return re.findall(_STAT, found[0], re.IGNORECASE) if found else []


def _points(key: str) -> list[str]:
    found = _POINTS.search(key)
    if not found:
        return []
    what = "" if found["what"].lower() == "at" else f"{found['what']}_"
    of = f"_{found['of']}" if found["of"] and not what else ""
    return [f"{what}{n}{of}" for n in re.findall(_POINT, found["points"], re.IGNORECASE)]


def _multiplied(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """A value that is so many times the only figure beside it, in that one's unit."""
    more = {k: n for k, v in node.items() if isinstance(v, str) and (n := times_more(v))}
    others = [v for k, v in node.items() if k not in more and span(v)]
    if len(more) != 1 or len(others) != 1:
        return node
    (key, n), ends = next(iter(more.items())), span(others[0])
    assert ends is not None
    unit = re.search(r"[a-zµ%]+$", figure(str(others[0])))
    return {**node, key: f"{ranged(ends[0] * n, ends[1] * n)} {unit[0] if unit else ''}".strip()}
