"""`profile import`: files into a run; and the runs of a moment that `profile diagnose` makes of files."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError, WhyboundError
from .options import HELP, progress_wanted

if TYPE_CHECKING:
    from ..collector.importers.run import Outcome, Progress

FACTS = click.option(
    "--fact",
    "facts",
    multiple=True,
    metavar="NAME=VALUE",
    help="A figure that you know: a signal, or what people call one; e.g. gpu_sm_ratio=0.6..0.75, "
    "ttft_p50_ms=300, 'kv_usage=near 100%'; may be repeated.",
)
FACTS_FILE = click.option(
    "--facts",
    "facts_files",
    multiple=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A YAML file of such signals.",
)
KIND = click.option(
    "--kind", metavar="KIND", help="What the files are, where their content does not tell."
)
BESIDE = click.option(
    "--beside",
    multiple=True,
    metavar="RUN|FILE",
    type=click.Path(path_type=Path),
    help="The same server with another setting: what the difference gave is evidence.  May be repeated.",
)
WHEN = click.option(
    "--when", type=click.Choice(["before", "after"]), help="Before or after a change."
)
_SHOWN_EVERY_S = 0.2
_MOST_SHOWN = 40


@click.command("import", context_settings=HELP)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="RUN",
    type=click.Path(path_type=Path),
    help="Folder of the run.",
)
@KIND
@WHEN
@FACTS
@click.option("--force", is_flag=True, help="Replace the run that is there.")
@click.option("--json", "as_json", is_flag=True, help="The outcomes as JSON on standard output.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def import_command(
    files: tuple[Path, ...],
    output: Path,
    kind: str | None,
    when: str | None,
    facts: tuple[str, ...],
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Files into a run; folders are looked into. Each file's kind is told by its content.

    \b
    profile import server.log bench.json metrics.prom -o R
    profile import logs/ -o R
    """  # noqa: D301
    from ..collector.importers.run import import_files

    if not files and not facts:
        raise UsageError("no files; name what is to be imported")
    fresh = not output.exists()
    outcomes = import_files(
        files,
        output,
        kind=kind,
        force=force,
        when=when,
        facts=_facts(facts, when or ""),
        signals=_signals(),
        progress=_progress(quiet),
    )
    if as_json:
        import json
        from dataclasses import asdict

        click.echo(json.dumps([asdict(o) for o in outcomes], indent=1))
    else:
        _show(outcomes)
    if not facts and not any(o.rows for o in outcomes):
        if fresh:
            shutil.rmtree(output, ignore_errors=True)
        raise WhyboundError("nothing was imported; the lines above say why")
    click.echo(f"next: profile diagnose {_quoted(str(output))}", err=True)


def is_run(path: Path) -> bool:
    """Is it the folder of a run, as far as can be seen from outside?"""
    return path.is_dir() and ((path / "manifest.json").is_file() or (path / "wal").is_dir())


def is_empty(path: Path) -> bool:
    """Is there nothing that could be imported: no such path, or a folder without anything in it?"""
    return not path.exists() or (path.is_dir() and not any(path.iterdir()))


@contextmanager
def temporary_run(
    paths: Sequence[Path], facts: Sequence[str], kind: str | None
) -> Iterator[tuple[Path, str]]:
    """A run of files and facts, and of a run with them beside; gone afterwards.

    Yields:
        Its folder, and what to call it.

    Raises:
        UsageError: there is nothing at all, or more than one run.
        WhyboundError: nothing of the files can be read.
    """
    from ..collector.importers.run import import_files

    runs = [p for p in paths if is_run(p)]
    files = [p for p in paths if not is_run(p)]
    if len(runs) > 1:
        raise UsageError("more than one run; diagnose them one by one")
    rows = _facts(facts, "")
    if not files and not rows and not runs:
        raise UsageError("nothing to diagnose; name a RUN, files, or --fact NAME=VALUE")
    with tempfile.TemporaryDirectory(prefix="whybound-") as folder:
        run = Path(folder) / "run"
        if runs:
            _linked(runs[0], run)
        outcomes = import_files(
            files,
            run,
            kind=kind,
            facts=rows,
            signals=_signals(),
            add=bool(runs),
            progress=_progress(False),
        )
        if outcomes:
            _show(outcomes)
        if not runs and not rows and not any(o.rows for o in outcomes):
            raise WhyboundError("nothing in them can be diagnosed; the lines above say why")
        names = [str(p) for p in (*runs, *files)] + (["facts by hand"] if rows else [])
        yield run, ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _linked(run: Path, copy: Path) -> None:
    """A copy of a run that shares its sealed files, and leaves the run itself as it is."""

    def link(source: str, target: str) -> None:
        try:
            if not source.endswith(".parquet"):
                raise OSError
            os.link(source, target)
        except OSError:
            shutil.copy2(source, target)

    try:
        shutil.copytree(run, copy, copy_function=link)
    except (OSError, shutil.Error) as error:
        raise WhyboundError(f"cannot copy {run}: {error}") from error


def _signals() -> list[str]:
    from ..analyzers.given import known_signals

    return list(known_signals())


def _facts(written: Sequence[str], when: str) -> list[dict[str, Any]]:
    """`NAME=VALUE` as rows; the names have to be signals, or what people call one."""
    if not written:
        return []
    from ..collector.importers.facts_file import named_row

    known = _signals()
    rows = []
    for text in written:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals:
            raise UsageError(f"--fact {text!r} is not NAME=VALUE")
        row, said = named_row(name, value, known, t_ns=time.time_ns(), when=when)
        rows.append(row)
        if said:
            click.echo(said, err=True)
    return rows


def _progress(quiet: bool) -> Progress | None:
    if not progress_wanted(quiet):
        return None
    shown_s = 0.0

    def show(file: str, read: int, size: int) -> None:
        nonlocal shown_s
        now_s = time.monotonic()
        if now_s - shown_s >= _SHOWN_EVERY_S and size > 32 << 20:
            shown_s = now_s
            click.echo(
                f"\r{_one_line(file)[-60:]}: {read >> 20} of {size >> 20} MB\x1b[K",
                err=True,
                nl=False,
            )

    return show


def _show(outcomes: Sequence[Outcome]) -> None:
    """A line a file on standard error."""
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", err=True, nl=False)
    for outcome in outcomes[:_MOST_SHOWN]:
        rows = ", ".join(f"{n} {table}" for table, n in outcome.rows.items())
        parts = [outcome.kind or "not recognised", rows, *outcome.notes]
        if outcome.refused:
            parts.append(f"{'stopped' if outcome.rows else 'left out'}: {outcome.refused}")
        click.echo(f"{_one_line(outcome.file)}: {'; '.join(p for p in parts if p)}", err=True)
    if len(outcomes) > _MOST_SHOWN:
        read = sum(1 for o in outcomes[_MOST_SHOWN:] if o.rows)
        click.echo(f"and {len(outcomes) - _MOST_SHOWN} more, {read} of them read", err=True)


def _one_line(name: str) -> str:
    """A file's name as it may stand in a terminal: no control characters."""
    return "".join(c if c.isprintable() else "?" for c in name)


def _quoted(name: str) -> str:
    import shlex

    return shlex.quote(name)
