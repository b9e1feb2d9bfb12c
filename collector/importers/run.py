"""Files into a run: each one recognised, read, and told of; one that fails never ends the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ...errors import UsageError, WhyboundError
from ..schema import TABLES
from ..store import RunWriter, create_run
from .catalogue import importers
from .importer import Importer, Row, Sink
from .reading import FileSource, Skipped, open_sources
from .recognise import by_kind, recognise
from .walk import files_of

NODE = "import"
"""The node under which imported rows are kept."""
WHEN = ("before", "after")
_FLUSH_ROWS = 50_000
"""Rows after which the disk is waited for: the writer drops what it cannot hold."""

_FLOATS = {t.name: tuple(c for c in t.columns if c.type == "float64") for t in TABLES.values()}
_MAY_BE_NEGATIVE = frozenset({"network_s"})

Progress = Callable[[str, int, int], None]
"""Takes the name of the file, the bytes read of it so far, and its size."""


@dataclass
class Outcome:
    """What became of one file.

    Attributes:
        file: its path as given; of a member of an archive `archive!member`.
        kind: as recognised; None when it was not.
        title: what that kind is, for people.
        rows: that came of it, by table.
        notes: remarks, one line each.
        refused: why nothing (or, with rows, not all) of it was read; None when all was.
    """

    file: str
    kind: str | None = None
    title: str = ""
    rows: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    refused: str | None = None


def import_files(
    paths: Sequence[Path],
    run_dir: Path,
    *,
    kind: str | None = None,
    force: bool = False,
    when: str | None = None,
    facts: Sequence[Row] = (),
    signals: Collection[str] = (),
    add: bool = False,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Make a run of files.

    Args:
        paths: files, and folders whose files are taken.
        run_dir: the run's folder.
        kind: of all files; None recognises each.
        force: replace the run that is there.
        when: "before" or "after" a change, for figures of either.
        facts: rows of `facts` given by hand, put in beside.
        signals: the names that facts may have; empty: any.
        add: into the run that is there, rather than making one.
        progress: is told how far the reading is.

    Returns:
        One outcome a file, in order.

    Raises:
        UsageError: no such kind, or `when` is neither.
        WhyboundError: the run cannot be made or written.
    """
    forced = by_kind(kind, importers()) if kind else None
    if when is not None and when not in WHEN:
        raise UsageError(f"when is {when!r}; it is before or after a change")
    if not add:
        create_run(run_dir, force=force)
    options = {"when": when} if when else {}
    if signals:
        options["signals"] = " ".join(sorted(signals))
    outcomes: list[Outcome] = []
    with RunWriter(run_dir, NODE) as writer:
        desk = _Desk(writer, forced, options, progress)
        if facts:
            desk.put("facts", facts)
        for found in files_of(paths):
            if isinstance(found, Skipped):
                outcomes.append(Outcome(found.name, refused=found.why))
            else:
                outcomes.extend(desk.file(found))
        writer.update_manifest(imported=[asdict(o) for o in outcomes], facts_given=len(facts))
    if writer.error:
        raise WhyboundError(writer.error)
    return outcomes


@dataclass
class _Desk:
    """Where files are taken one by one."""

    writer: RunWriter
    forced: Importer | None
    options: dict[str, str]
    progress: Progress | None
    pending: int = 0

    def file(self, path: Path) -> list[Outcome]:
        """The outcomes of one file: one, or one a member of the archive that it is."""
        name = str(path)
        outcomes: list[Outcome] = []
        read = 0

        def seen(count: int) -> None:
            nonlocal read
            read += count
            if self.progress:
                self.progress(name, read, size)

        try:
            size = path.stat().st_size
            with open_sources(path, seen) as sources:
                for source in sources:
                    if isinstance(source, Skipped):
                        outcomes.append(Outcome(source.name, refused=source.why))
                        continue
                    inside = source.path != path
                    told = f"{name}!{source.path.relative_to(path)}" if inside else name
                    outcomes.append(self._source(source, told, path.stat().st_mtime_ns))
        except FileNotFoundError:
            outcomes.append(Outcome(name, refused="it does not exist"))
        except OSError as error:
            outcomes.append(Outcome(name, refused=f"cannot be read: {error.strerror or error}"))
        except WhyboundError as error:
            outcomes.append(Outcome(name, refused=str(error)))
        return outcomes or [Outcome(name, refused="it holds no files")]

    def put(self, table: str, rows: Sequence[Row]) -> None:
        """Hand rows to the writer, and wait where it could not keep up."""
        self.writer.append(table, rows)
        self.pending += len(rows)
        if self.pending >= _FLUSH_ROWS:
            self.writer.flush()
            self.pending = 0

    def _source(self, source: FileSource, name: str, epoch_ns: int) -> Outcome:
        outcome = Outcome(name)
        importer = self.forced or recognise(source.sample, importers())
        if importer is None:
            what = "text" if source.sample.text else "binary"
            outcome.refused = f"of no known kind ({what}); name it with --kind if you know it"
            return outcome
        outcome.kind, outcome.title = importer.kind, importer.title
        if importer.refuses:
            outcome.refused = importer.refuses
            return outcome
        odd: dict[str, int] = {}

        def put(table: str, rows: Sequence[Row]) -> None:
            self.put(table, _checked(table, rows, odd))

        sink = Sink(put, epoch_ns, self.options)
        try:
            importer.read(source, sink)
        except WhyboundError as error:
            outcome.refused = str(error)
        except (RecursionError, MemoryError) as error:
            outcome.refused = f"too deep or too large to read: {type(error).__name__}"
        except Exception as error:
            # One strange file must not take the others down; --traceback is of no use here, the kind is.
            said = " ".join(str(error).split())[:200]
            outcome.refused = f"not read as {importer.kind}: {type(error).__name__}: {said}"
        outcome.rows = {table: n for table, n in sink.counts.items() if n}
        outcome.notes = sink.notes + [f"{n} {what} left out" for what, n in odd.items()]
        if source.long_lines:
            outcome.notes.append(f"{source.long_lines} overlong lines cut")
        if not outcome.rows and not outcome.refused:
            outcome.refused = "nothing in it that is used"
        return outcome


def _checked(table: str, rows: Sequence[Row], odd: dict[str, int]) -> Sequence[Row]:
    """The rows without numbers that are none, and without negative durations; those are counted."""
    columns = _FLOATS.get(table, ())
    for row in rows:
        for column in columns:
            value = row.get(column.name)
            if value is None:
                continue
            if not math.isfinite(value):
                what = "values that are no finite number"
            elif value < 0 and column.unit == "s" and column.name not in _MAY_BE_NEGATIVE:
                what = "negative durations"
            else:
                continue
            row[column.name] = None
            odd[what] = odd.get(what, 0) + 1
    return rows
