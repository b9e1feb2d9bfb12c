"""What an importer is, and what it hands over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

Row = dict[str, Any]

HEAD_BYTES = 64 * 1024
"""What a recogniser sees of a file's beginning, after decompression."""


@dataclass(frozen=True)
class Sample:
    """The beginning of a file, for recognising it.

    Attributes:
        name: the file's own name without its folder: a hint at most, never the only reason.
        head: its first bytes, decompressed, at most `HEAD_BYTES`.
        text: the same as text, with what is no text replaced; "" when it is binary.
        size_bytes: on disk.
    """

    name: str
    head: bytes
    text: str
    size_bytes: int


class Source(Protocol):
    """A file to read: decompressed, decoded and bounded, however it lies on disk."""

    path: Path
    sample: Sample

    def lines(self) -> Iterator[str]:
        """Its lines without their ends, one at a time; overlong ones cut; undecodable bytes replaced."""
        ...

    def open(self) -> AbstractContextManager[BinaryIO]:
        """Its bytes."""
        ...

    def json(self) -> Any:
        """All of it as JSON, bounded in size and depth.

        Raises:
            WhyboundError: it is none, too large or too deep.
        """
        ...


@dataclass
class Sink:
    """Where an importer puts what it read; counted by table.

    Attributes:
        put: takes rows of a table (see `collector.schema`); dictionaries with only known columns.
        epoch_ns: the time to give to what has no time of its own: the file's.
        options: what the person said of this file: `when` (before or after), `engine`, `node`.
        notes: one-line remarks for the person: what was left out and why.
    """

    put: Callable[[str, Sequence[Row]], None]
    epoch_ns: int
    options: Mapping[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def rows(self, table: str, rows: Sequence[Row]) -> None:
        """Add rows of a table."""
        self.counts[table] += len(rows)
        self.put(table, rows)

    def note(self, text: str) -> None:
        """A remark for the person, once."""
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True)
class Importer:
    """One kind of file.

    Attributes:
        kind: its name, as `--kind` takes it: lower case with hyphens, e.g. `vllm-log`.
        title: what it is, for people.
        recognise: 0..1, how sure the sample is of this kind; at least 0.5 counts, the surest wins.
        read: the rows of a file into the sink. Raises WhyboundError, one line, where it cannot; what it had
            put by then stays.
        refuses: why files of this kind are recognised but not read; "" for those that are.
    """

    kind: str
    title: str
    recognise: Callable[[Sample], float]
    read: Callable[[Source, Sink], None]
    refuses: str = ""
