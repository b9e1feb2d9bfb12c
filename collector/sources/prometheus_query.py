"""What is asked of a Prometheus server: the selectors, the names that carry a signal, times as it reads them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import WhyboundError
from ..engine_map import EngineMap
from .prometheus_matrix import Fleet

MAX_INSTANCES = 50
"""Instances up to which a query names them."""


@dataclass(frozen=True)
class Unit:
    """What is asked for at once: the names that may carry one signal, or one with settings."""

    signal: str
    names: tuple[str, ...]
    known_only: bool = False


def matchers(match: str | None) -> str:
    """The inside of `{…}`; empty when there is none.

    Raises:
        WhyboundError: it is not a list of label matchers.
    """
    text = (match or "").strip()
    inside = text[1:-1] if text.startswith("{") and text.endswith("}") else text
    inside = inside.strip().rstrip(",")
    one = r'\s*[a-zA-Z_][a-zA-Z0-9_]*\s*(=~|!~|!=|=)\s*("(\\.|[^"\\])*"|\'(\\.|[^\'\\])*\')\s*'
    if inside and re.fullmatch(f"{one}(,{one})*", inside) is None:
        raise WhyboundError(
            f"--match {match!r} is no list of label matchers; write '{{job=\"vllm\"}}'"
        )
    return inside


def units(mapping: EngineMap, names: set[str]) -> list[Unit]:
    """What to ask for: gauges first, then counters, histograms, settings; names of any server last."""
    mapped: dict[str, set[str]] = {}
    anyones: dict[str, set[str]] = {}
    kinds: dict[str, str] = {}
    for name, target in mapping.targets.items():
        signal = target.entry.signal
        kinds[signal] = target.entry.kind
        if name in names:
            mapped.setdefault(signal, set()).add(name)
        elif signal in mapping.of_any_server:
            anyones.setdefault(signal, set()).add(name)
    order = {"gauge": 0, "counter": 1, "histogram": 2}
    ordered = sorted(mapped, key=lambda s: (order[kinds[s]], s))
    return [
        *(Unit(signal, tuple(sorted(mapped[signal]))) for signal in ordered),
        *(Unit(name, (name,)) for name in sorted(mapping.infos.keys() & names)),
        *(Unit(s, tuple(sorted(found)), known_only=True) for s, found in anyones.items()),
    ]


def names_of(mapping: EngineMap, names: set[str], signal: str) -> list[str]:
    """Those of the names that carry a signal, sorted."""
    return sorted(n for n in names if signal in mapping.signals_of(n))


def name_matcher(names: Sequence[str]) -> str:
    """Matches any of the names."""
    # names hold nothing that a pattern or a string would take as a sign
    return f'__name__="{names[0]}"' if len(names) == 1 else f'__name__=~"{"|".join(names)}"'


def instance_matcher(fleet: Fleet) -> str:
    """Narrows a name that every server has to the replicas, as far as they are few and have addresses."""
    instances = [replica.rsplit("/", 1)[-1] for replica in fleet.job]
    if not 0 < len(instances) <= MAX_INSTANCES or "" in instances:
        return ""
    pattern = "|".join(re.escape(i) for i in instances).replace("\\", "\\\\").replace('"', '\\"')
    return f'instance=~"{pattern}"'


def seconds(ms: int) -> str:
    """Unix milliseconds as the API takes them."""
    return f"{ms / 1000:.3f}"
