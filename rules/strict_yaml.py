"""YAML read strictly, with the line of every key, so that an error can say where it is."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..errors import WhyboundError

MAX_BYTES = 64 * 1024
"""A rule is about 80 lines; a file of this size is not one."""
MAX_DEPTH = 16

Key = tuple[str | int, ...]

# libyaml is ten times faster and reports the same positions; its absence only costs time.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN = tuple(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null"))
_NUMBER = re.compile(r"[-+]?((0|[1-9]\d*)(\.\d*)?|\.\d+)([eE][-+]?\d+)?|[-+]?\.inf|\.nan")


class RuleError(WhyboundError):
    """A rule or lever file is malformed: `file:line: what, what is known instead`."""


@dataclass(frozen=True)
class Document:
    """One file as plain data; `lines` holds the 1-based line of each key and list item."""

    path: Path
    data: Any
    lines: dict[Key, int]

    def where(self, key: Key = ()) -> str:
        """`file:line` of `key`, or of its nearest ancestor that has a line."""
        while key and key not in self.lines:
            key = key[:-1]
        return f"{self.path}:{self.lines.get(key, 1)}"

    def error(self, key: Key, what: str) -> RuleError:
        """An error at `key`."""
        return RuleError(f"{self.where(key)}: {what}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`, did you mean 'x'?` for the nearest of `known`, else all of them; empty if none."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f", did you mean {near[0]!r}?"
    return f"; known are {', '.join(names)}" if names else ""


def read(path: Path) -> Document:
    """Read one file.

    Strings, integers, floats, booleans, null, lists and maps with string keys; nothing else.
    Anchors, aliases, merge keys, tags, duplicate keys, several documents and deep nesting are
    refused: a rule needs none of them, and each can make a small file mean something large or
    hidden.

    Raises:
        RuleError: the file cannot be read or breaks one of these; names the file and the line.
    """
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8")
    except OSError as error:
        raise RuleError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise RuleError(f"{path}: not UTF-8 at byte {error.start}") from None
    if len(raw) > MAX_BYTES:
        raise RuleError(f"{path}: {len(raw)} bytes, more than the {MAX_BYTES} of a rule file")
    try:
        _refuse_tricks(path, text)
        node = yaml.compose(text, Loader=_Loader)
        if node is None:
            raise RuleError(f"{path}:1: empty file")
        lines: dict[Key, int] = {(): node.start_mark.line + 1}
        return Document(path, _plain(path, node, (), lines), lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise RuleError(f"{path}:{line}: not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise RuleError(f"{path}:1: not valid YAML: {' '.join(str(error).split())}") from None


def _refuse_tricks(path: Path, text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        at = f"{path}:{event.start_mark.line + 1 if event.start_mark else 1}"
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise RuleError(f"{at}: anchors and aliases are not allowed, write it out")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise RuleError(f"{at}: nested deeper than {MAX_DEPTH}")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _plain(path: Path, node: Any, key: Key, lines: dict[Key, int]) -> Any:
    at = f"{path}:{node.start_mark.line + 1}"
    if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
        items = []
        for i, item in enumerate(node.value):
            here: Key = (*key, i)
            lines[here] = item.start_mark.line + 1
            items.append(_plain(path, item, here, lines))
        return items
    if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
        return _mapping(path, node, key, lines)
    if not isinstance(node, yaml.ScalarNode) or node.tag not in _PLAIN:
        kind = node.tag.rsplit(":", 1)[-1]
        raise RuleError(f"{at}: a {kind!r} is not allowed here, write it in quotes as text")
    return _scalar(at, node)


def _scalar(at: str, node: Any) -> str | int | float | bool | None:
    if node.tag == _PLAIN[0]:
        return str(node.value)
    if node.tag == _PLAIN[3]:
        return node.value.lower() in ("true", "yes", "on")
    if node.tag == _PLAIN[4]:
        return None
    if not _NUMBER.fullmatch(node.value):
        # YAML 1.1 reads 1:30 as 90, 010 as 8 and 1_0 as 10.
        raise RuleError(f"{at}: write the number {node.value!r} in plain decimals")
    if node.value.lstrip("+-").isdecimal() and len(node.value) < 19:
        return int(node.value)
    return float(node.value.replace(".nan", "nan").replace(".inf", "inf"))


def _mapping(path: Path, node: Any, key: Key, lines: dict[Key, int]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name_node, value_node in node.value:
        line = name_node.start_mark.line + 1
        name = name_node.value
        if not isinstance(name_node, yaml.ScalarNode) or name_node.tag != _PLAIN[0]:
            raise RuleError(
                f"{path}:{line}: the key {name!r} is not plain text, write it in quotes"
            )
        here: Key = (*key, name)
        if name in out:
            first = lines[here]
            raise RuleError(f"{path}:{line}: {name!r} is given twice, first in line {first}")
        lines[here] = line
        out[name] = _plain(path, value_node, here, lines)
    return out
