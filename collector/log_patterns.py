"""What an engine's log lines mean: the strict loader of `engines/logs/*.yaml`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from .map_file import read_map
from .schema import TABLES, UNIT_SUFFIXES

_FOLDER = Path(__file__).parent / "engines" / "logs"

TRACEBACK = "Traceback (most recent call last):"
"""Begins what is read on until its exception."""


class SampleTake(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One gauge from a group of the match: the number times `scale`, or what `words` says."""

    signal: str
    unit: str
    group: str
    scale: float = 1.0
    words: dict[str, float] = {}


class StepTake(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One column of `steps` from a group of the match, times `scale`."""

    column: str
    group: str
    scale: float = 1.0


class EventTake(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event; its text is the message.

    Attributes:
        value: the group with its number; null: how often it came within a second.
        repeated: what the number of equal events within a second becomes.
        once: later equal ones are only counted, for the whole run.
        first_rank: every rank of a tensor-parallel group writes it; only the first one's counts.
    """

    kind: str
    value: str | None = None
    repeated: Literal["count", "sum", "max", "first"] = "count"
    once: bool = False
    first_rank: bool = False


class ArgumentsTake(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings from a group that holds `key=value` or `'key': value` pairs in Python's notation.

    Attributes:
        keep: the keys that are taken; empty: all but `skip`.
        rename: key as printed → the engine's flag.
        none: keys whose `None` is a fact ("none"), not an absence.
        inside: key → keys inside its value → the names they are stored under.
        largest: keys, inside ones too → the setting that holds the largest whole number in their values.
    """

    group: str
    keep: list[str] = []
    skip: list[str] = []
    rename: dict[str, str] = {}
    none: list[str] = []
    inside: dict[str, dict[str, str]] = {}
    largest: dict[str, str] = {}


class Pattern(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of line; see `generic.yaml` for `gate`, `level` and `in_errors`.

    Attributes:
        settings: groups that are settings of the same name.
        copies: setting → the group whose value it has too.
        largest: setting → the group whose largest whole number it holds; a list may be cut, this is not.
        implies: settings that hold where the line stands.
        words: what a setting's value is called → what is stored.
    """

    id: str
    gate: str
    regex: str
    example: str
    doc: str
    level: list[str] = []
    in_errors: bool = False
    settings: list[str] = []
    copies: dict[str, str] = {}
    largest: dict[str, str] = {}
    implies: dict[str, str] = {}
    words: dict[str, str] = {}
    arguments: ArgumentsTake | None = None
    samples: list[SampleTake] = []
    step: list[StepTake] = []
    event: EventTake | None = None


class PatternFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `engines/logs/*.yaml`.

    Attributes:
        marks: what only this engine writes.
        typical: what a few lines of its log may hold beside; of a text without any mark it says less than they do.
    """

    engine: str
    doc: str
    source: str
    marks: list[str]
    typical: list[str] = []
    ignore_errors: list[str] = []
    patterns: list[Pattern]


@dataclass(frozen=True)
class Compiled:
    """A pattern ready for use on one message."""

    pattern: Pattern
    gate: bytes
    regex: re.Pattern[str]


@dataclass(frozen=True)
class PatternSet:
    """All that is looked for in one engine's log.

    Attributes:
        by_gate: each gate with the places of its patterns in `patterns`.
        gates: a line without any of these holds nothing of interest.
        foreign: marks of other engines; they are among the gates.
    """

    engine: str
    patterns: tuple[Compiled, ...]
    by_gate: tuple[tuple[bytes, tuple[int, ...]], ...]
    gates: tuple[bytes, ...]
    foreign: tuple[bytes, ...]
    ignore_errors: tuple[str, ...]


def parse_patterns(text: str, where: str) -> PatternFile:
    """Read one file, strictly.

    Raises:
        WhyboundError: it is no YAML, has an unknown or missing key, a wrong type, an unknown unit or
            column, a pattern twice, a regex that does not compile, or names a group that its regex
            lacks; the message names `where` and what.
    """
    return read_map(text, PatternFile, _faults, where)


def log_engines() -> list[str]:
    """The engine kinds whose log is known, sorted."""
    return sorted(p.stem for p in _FOLDER.glob("*.yaml") if p.stem != "generic")


@cache
def load_file(engine: str) -> PatternFile:
    """One file as it stands.

    Raises:
        WhyboundError: it is broken; see `parse_patterns`.
    """
    path = _FOLDER / f"{engine}.yaml"
    return parse_patterns(path.read_text(encoding="utf-8"), f"engines/logs/{path.name}")


@cache
def load_patterns(engine: str) -> PatternSet:
    """The patterns of one engine, then the generic ones; for an unknown engine those alone.

    Raises:
        WhyboundError: a file is broken; see `parse_patterns`.
    """
    known = log_engines()
    files = [load_file(stem) for stem in ([engine] if engine in known else []) + ["generic"]]
    compiled = tuple(
        Compiled(p, p.gate.encode(), re.compile(p.regex)) for f in files for p in f.patterns
    )
    foreign = tuple(load_file(e).marks[0].encode() for e in known if e != engine)
    by_gate: dict[bytes, tuple[int, ...]] = {}
    for place, c in enumerate(compiled):
        by_gate[c.gate] = (*by_gate.get(c.gate, ()), place)
    scanned = [c.gate for c in compiled if not c.pattern.in_errors]
    return PatternSet(
        engine=engine,
        patterns=compiled,
        by_gate=tuple(by_gate.items()),
        gates=tuple(dict.fromkeys([*scanned, TRACEBACK.encode(), *foreign])),
        foreign=foreign,
        ignore_errors=tuple(text for f in files for text in f.ignore_errors),
    )


@cache
def engine_marks() -> tuple[tuple[bytes, str], ...]:
    """Every mark with the engine that writes it."""
    return tuple((m.encode(), e) for e in log_engines() for m in load_file(e).marks)


def _faults(file: PatternFile) -> Iterator[str]:
    seen: set[str] = set()
    for p in file.patterns:
        if p.id in seen:
            yield f"pattern {p.id} is there twice"
        seen.add(p.id)
        try:
            groups = set(re.compile(p.regex).groupindex)
        except re.error as e:
            yield f"{p.id}: regex: {e}"
            continue
        used = [*p.settings, *p.copies.values(), *p.largest.values()]
        used += [s.group for s in p.samples]
        used += [s.group for s in p.step] + ([p.arguments.group] if p.arguments else [])
        used += [p.event.value] if p.event and p.event.value else []
        for group in used:
            if group not in groups:
                yield f"{p.id}: its regex has no group {group}"
        for sample in p.samples:
            if sample.unit not in UNIT_SUFFIXES:
                yield f"{p.id}: {sample.unit} is not a unit of the tables"
        for step in p.step:
            if step.column not in TABLES["steps"].column_names():
                yield f"{p.id}: steps has no column {step.column}"
        if not p.gate:
            yield f"{p.id}: the gate is empty, so every line would be tried"
