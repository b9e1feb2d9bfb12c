"""Which spans are whole requests and what their attributes mean: the strict loader of `spans.yaml`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Literal

import msgspec

from .map_file import read_map
from .schema import TABLES

_FILE = Path(__file__).parent / "spans.yaml"


class RequestSpan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One engine's span that is a whole request; the fields are explained in `spans.yaml`."""

    engine: str
    doc: str
    source: str
    span: str
    scope: str = ""
    marker: str = ""
    request_id: list[str]
    unit: Literal["s", "ms", "rust"]
    seconds: dict[str, str]
    minus: dict[str, tuple[str, str]] = {}
    slices: dict[str, str] = {}
    whole: list[str] = []
    tokens: dict[str, str]

    def columns(self) -> list[str]:
        """The columns of `requests` that hold a duration of this span, without helpers."""
        named = [*self.seconds, *self.minus, *self.slices, *self.whole]
        return [name for name in named if not name.startswith(".")]


@cache
def request_spans() -> tuple[RequestSpan, ...]:
    """The entries of `spans.yaml`, in the order in which a span is tried against them.

    Raises:
        WhyboundError: the file is broken; see `parse_spans`.
    """
    return parse_spans(_FILE.read_text(encoding="utf-8"), _FILE.name)


@cache
def slice_columns() -> dict[str, str]:
    """Column by the name of the child span that tells it, over all engines."""
    return {name: column for entry in request_spans() for column, name in entry.slices.items()}


@lru_cache(maxsize=1024)  # names come from outside
def find(name: str, scope: str) -> tuple[RequestSpan, ...]:
    """The entries that a span of this name and instrumentation scope fits, markers aside."""
    return tuple(
        entry
        for entry in request_spans()
        if scope.startswith(entry.scope) and re.fullmatch(entry.span, name)
    )


def parse_spans(text: str, where: str) -> tuple[RequestSpan, ...]:
    """Read the map, strictly.

    Raises:
        WhyboundError: it is no YAML, has an unknown or missing key, a wrong type, a column that the table
            `requests` lacks, a difference of what is not known, or a name that is no regular expression;
            the message names `where` and what.
    """
    return read_map(
        text,
        tuple[RequestSpan, ...],
        lambda entries: (f for entry in entries for f in _faults(entry)),
        where,
    )


def _faults(entry: RequestSpan) -> Iterator[str]:
    table = set(TABLES["requests"].column_names())
    for column in [*entry.columns(), *entry.tokens]:
        if column not in table:
            yield f"{entry.engine}: requests has no column {column}"
    known = {*entry.seconds, *entry.slices, *entry.whole}
    for column, parts in entry.minus.items():
        for part in parts:
            if part not in known:
                yield f"{entry.engine}: {column} is a difference of {part}, which nothing tells"
    try:
        re.compile(entry.span)
    except re.error as e:
        yield f"{entry.engine}: span {entry.span!r} is no regular expression: {e}"
