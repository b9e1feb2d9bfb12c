"""What an engine's settings are when nobody sets them: the strict loader of `engines/defaults.yaml`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import msgspec

from .map_file import read_map

_FILE = Path(__file__).parent / "engines" / "defaults.yaml"
_VERSION = re.compile(r"v?(\d{1,5}(?:\.\d{1,5}){0,3})")


class Default(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One value, from the release `since` on and up to `until`; empty: without an end."""

    key: str
    value: str
    since: str = ""
    until: str = ""


class EngineDefaults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One engine's; `newest` is the last release that was looked at."""

    newest: str
    defaults: list[Default]


class DefaultsFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of the file."""

    doc: str
    source: str
    engines: dict[str, EngineDefaults]


def version_of(text: str) -> str:
    """The release in a text such as `v0.11.0-cu128`; "" when there is none."""
    found = _VERSION.match(text)
    return found[1] if found and "." in found[1] else ""


def defaults_of(engine: str, version: str = "") -> dict[str, str]:
    """An engine's defaults.

    Args:
        engine: its kind; an unknown one has none.
        version: its release; "" takes the newest that is known.
    """
    known = _load().engines.get(engine)
    if known is None:
        return {}
    at = _number(version_of(version) or known.newest)
    return {
        d.key: d.value
        for d in known.defaults
        if (not d.since or _number(d.since) <= at) and (not d.until or at <= _number(d.until))
    }


def newest_of(engine: str) -> str:
    """The last release whose defaults are known; "" for an unknown engine."""
    known = _load().engines.get(engine)
    return known.newest if known else ""


@cache
def _load() -> DefaultsFile:
    text = _FILE.read_text(encoding="utf-8")
    return read_map(text, DefaultsFile, _faults, f"engines/{_FILE.name}")


def _number(version: str) -> tuple[int, ...]:
    parts = [int(p) for p in version_of(version).split(".") if p] or [int(version or 0)]
    return tuple(parts + [0] * (4 - len(parts)))


def _faults(file: DefaultsFile) -> Iterator[str]:
    for engine, known in file.engines.items():
        spans: dict[str, list[Default]] = {}
        for d in known.defaults:
            spans.setdefault(d.key, []).append(d)
        for key, values in spans.items():
            values.sort(key=lambda d: _number(d.since or "0.0"))
            for one, two in pairwise(values):
                if not one.until or not two.since or _number(one.until) >= _number(two.since):
                    yield f"{engine}: {key} has two defaults for one release"
