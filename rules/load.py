"""Reads rules and levers strictly: what is unknown, missing or contradictory is an error."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from .check import KINDS, Problem, check_lever, check_references, check_rule
from .model import CLASSES, Case, Condition, Effect, Lever, Op, Rule, State
from .strict_yaml import Document, Key, RuleError, did_you_mean, read

ROOM = Path(__file__).parent

_Item = TypeVar("_Item", Rule, Lever)
_STRUCTS: dict[str, type[msgspec.Struct]] = {
    "when": Condition, "applies": Condition, "all": Condition, "any": Condition,
    "enabling": Condition, "harms": Condition, "cases": Case, "effect": Effect,
}  # fmt: skip
_CHOICES: dict[str, tuple[str, ...]] = {
    "class": CLASSES,
    "op": get_args(Op),
    "state": get_args(State),
    "effect": ("invalid", "explains"),
    "effort": ("minutes", "hours", "days", "weeks"),
}


@dataclass(frozen=True)
class Catalogue:
    """Everything that the room knows, each by its id; every reference between them resolves."""

    prechecks: dict[str, Rule]
    symptoms: dict[str, Rule]
    levers: dict[str, Lever]


def load_catalogue(folder: Path | None = None) -> Catalogue:
    """Read `prechecks/`, `symptoms/` and `levers/` under `folder` (default: this room).

    Raises:
        RuleError: the first file that is malformed, or a reference that resolves to nothing.
    """
    found = _own() if folder is None else _read_catalogue(folder)
    return Catalogue(dict(found.prechecks), dict(found.symptoms), dict(found.levers))


def load_prechecks(folder: Path | None = None) -> dict[str, Rule]:
    """The prechecks in the YAML files of `folder`, by id, sorted. See `load_rules`."""
    return load_catalogue().prechecks if folder is None else _rules(folder, "prechecks")[0]


def load_rules(folder: Path | None = None) -> dict[str, Rule]:
    """The symptoms in the YAML files of `folder` (default: this room's), by id, sorted.

    A folder given alone is checked file by file; only `load_catalogue` also checks that the levers
    that its rules name exist. An empty folder gives an empty dict.

    Raises:
        RuleError: the folder or a file cannot be read, or a file is malformed.
    """
    return load_catalogue().symptoms if folder is None else _rules(folder, "symptoms")[0]


def load_levers(folder: Path | None = None) -> dict[str, Lever]:
    """The levers in the YAML files of `folder` (default: this room's), by id, sorted.

    Raises:
        RuleError: the folder or a file cannot be read, or a file is malformed.
    """
    return load_catalogue().levers if folder is None else _levers(folder)[0]


@cache
def _own() -> Catalogue:
    return _read_catalogue(ROOM)


def _read_catalogue(folder: Path) -> Catalogue:
    prechecks, checked_in = _rules(folder / "prechecks", "prechecks")
    symptoms, seen_in = _rules(folder / "symptoms", "symptoms")
    levers, pulled_in = _levers(folder / "levers")
    documents = {"prechecks": checked_in, "symptoms": seen_in, "levers": pulled_in}
    _raise_first(
        (documents[p.kind][p.id], p) for p in check_references(prechecks, symptoms, levers)
    )
    return Catalogue(prechecks, symptoms, levers)


def _rules(folder: Path, kind: str) -> tuple[dict[str, Rule], dict[str, Document]]:
    items, documents = _folder(folder, Rule)
    _raise_first((documents[i], p) for i, rule in items.items() for p in check_rule(rule, kind))
    return items, documents


def _levers(folder: Path) -> tuple[dict[str, Lever], dict[str, Document]]:
    items, documents = _folder(folder, Lever)
    _raise_first((documents[i], p) for i, lever in items.items() for p in check_lever(lever))
    return items, documents


def _raise_first(problems: Iterable[tuple[Document, Problem]]) -> None:
    for document, problem in problems:
        raise document.error(problem.key, problem.what)


def _folder(folder: Path, kind: type[_Item]) -> tuple[dict[str, _Item], dict[str, Document]]:
    if not folder.is_dir():
        raise RuleError(f"{folder}: no such folder; it should hold one YAML file a {KINDS[kind]}")
    stray = sorted(folder.glob("*.yml"))
    if stray:
        raise RuleError(f"{stray[0]}: name it {stray[0].stem}.yaml, other endings are not read")
    items: dict[str, _Item] = {}
    documents: dict[str, Document] = {}
    for path in sorted(folder.glob("*.yaml")):
        document = read(path)
        item = _convert(document, kind)
        if item.id != path.stem:
            raise document.error(
                ("id",), f"id {item.id!r} differs from the file name {path.stem!r}"
            )
        items[item.id], documents[item.id] = item, document
    return items, documents


def _convert(document: Document, kind: type[_Item]) -> _Item:
    try:
        return msgspec.convert(document.data, kind)
    except msgspec.ValidationError as error:
        key, what = _explain(str(error), document.data, kind)
        raise document.error(key, what) from None


def _explain(message: str, data: Any, kind: type[msgspec.Struct]) -> tuple[Key, str]:
    """The key that a message of msgspec is about, and a sentence that offers what is known."""
    what, _, at = message.partition(" - at `$")
    key: Key = tuple(
        int(index) if index else name for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", at)
    )
    names = [part for part in key if isinstance(part, str)]
    struct = _STRUCTS.get(names[-1], kind) if names else kind
    quoted = re.search(r"`(\w+)`$", what)
    if what.startswith("Object contains unknown field") and quoted:
        known = [field.encode_name for field in msgspec.structs.fields(struct)]
        return (*key, quoted[1]), f"unknown key {quoted[1]!r}{did_you_mean(quoted[1], known)}"
    if what.startswith("Object missing required field") and quoted:
        return key, f"the key {quoted[1]!r} is missing"
    if what.startswith("Invalid enum value") and names:
        value = what.removeprefix("Invalid enum value ").strip("'")
        return key, f"unknown {names[-1]} {value!r}{did_you_mean(value, _CHOICES[names[-1]])}"
    if not what.startswith("Expected"):
        return key, what
    found = data
    for part in key:
        found = found[part]
    wanted = what.split(",")[0].replace("Expected ", "").replace("`", "").replace(" | null", "")
    label = repr(names[-1]) if names else "the file"
    if "[...]" in at:
        label = f"each value of {label}"
    return key, f"{label} must be {_PLAIN_TYPES.get(wanted, wanted)}, not {found!r:.60}"


_PLAIN_TYPES = {
    "str": "text", "float": "a number", "int": "a whole number", "array": "a list",
    "object": "a map of keys",
}  # fmt: skip
