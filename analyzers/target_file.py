"""Where a target and its guards come from: the command line, or a YAML file that it names."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..rules.strict_yaml import Document, RuleError, did_you_mean, read
from .target import GUARD_EXAMPLE, LIMITS, parse_guard, parse_target

KEYS = ("target", "guards", "load")


def read_target(
    target: str | None, guards: Sequence[str] = (), kept: Sequence[str] = ()
) -> tuple[str | None, tuple[str, ...]]:
    """The texts of a target and its guards, checked.

    Args:
        target: a target, or the name of a file with the keys `target`, `guards` (a list) and `load`
            (`concurrency=32`, or a map of it): what `@` says in a text. None: the run's own, or the default.
        guards: these replace the file's.
        kept: guards that hold when neither gives any: those of a run.

    Returns:
        The target with its load as one text, None when none was given, and the guards.

    Raises:
        UsageError: one of them cannot be read (for a file: `file:line: what`), or the target is goodput
            and no guard says what is good.
    """
    if target is not None and os.path.isfile(target):
        target, in_file = _read_file(Path(target))
        guards = guards or in_file
    elif target is not None:
        if target.strip().lower().endswith((".yaml", ".yml")):
            raise UsageError(f"--target {target!r}: no such file")
        parse_target(target)
    guards = guards or kept
    specs = [parse_guard(g) for g in guards]
    limited = any(s.metric in LIMITS for s in specs)
    if target is not None and parse_target(target).metric == "goodput" and not limited:
        raise UsageError(
            f"--target {target!r}: goodput counts requests within limits: say which with --guard,"
            f" {GUARD_EXAMPLE.partition(' or ')[0]}"
        )
    return target, tuple(guards)


def _read_file(path: Path) -> tuple[str, tuple[str, ...]]:
    try:
        document = read(path)
    except RuleError as error:
        raise UsageError(str(error)) from None
    data = document.data
    if not isinstance(data, dict):
        raise _refused(document, (), "write `target: p95 itl < 30ms`")
    for key in data:
        if key not in KEYS:
            raise _refused(document, (key,), f"unknown key {key!r}{did_you_mean(key, KEYS)}")
    if not isinstance(data.get("target"), str):
        raise _refused(document, ("target",), "write `target: p95 itl < 30ms`")
    guards = data.get("guards", [])
    if not isinstance(guards, list) or not all(isinstance(g, str) for g in guards):
        raise _refused(document, ("guards",), "guards is a list of texts, `- p95 ttft < 500ms`")
    text = data["target"]
    if "load" in data:
        if "@" in text:
            raise _refused(document, ("load",), "the target has a load of its own, leave one out")
        text = f"{text} @ {_load(document, data['load'])}"
    parse_target(text, f"{document.where(('load',) if 'load' in data else ('target',))}:")
    for i, guard in enumerate(guards):
        parse_guard(guard, f"{document.where(('guards', i))}:")
    return text, tuple(guards)


def _load(document: Document, value: Any) -> str:
    if isinstance(value, dict) and len(value) == 1:
        [(key, number)] = value.items()
        return f"{key}={number}"
    if isinstance(value, str) and "@" not in value:
        return value
    raise _refused(document, ("load",), "write `load: concurrency=32` or `load: rate=4`")


def _refused(document: Document, key: tuple[str | int, ...], what: str) -> UsageError:
    return UsageError(f"{document.where(key)}: {what}")
