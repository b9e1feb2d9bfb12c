"""`profile diagnose`, `report` and `sql`: read a run, or what can be made one."""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack
from pathlib import Path

import click

from ..errors import UsageError, WhyboundError
from .importing import BESIDE, FACTS, FACTS_FILE, KIND, is_empty, is_run, temporary_run
from .options import FORMATS, GUARDS, HELP, TARGET, rendered, save

_RUN = click.argument("run", type=click.Path(path_type=Path))

_CONTENTS = """
SELECT * FROM (
  SELECT view_name AS name, comment FROM duckdb_views() WHERE NOT internal
  UNION ALL SELECT table_name, comment FROM duckdb_tables()
) WHERE comment IS NOT NULL ORDER BY name
"""
"""What a run's database holds; the logs' own tables have no comment and are not shown."""


@click.command("diagnose", context_settings=HELP)
@click.argument("paths", metavar="[RUN|FILE]...", nargs=-1, type=click.Path(path_type=Path))
@TARGET
@GUARDS
@FACTS
@FACTS_FILE
@KIND
@BESIDE
@click.option(
    "--format", "form", type=FORMATS, default="text", show_default=True, help="How to show it."
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--save/--no-save",
    "keep",
    default=True,
    help="Write diagnosis.json and report.html into the run.",
)
def diagnose_command(
    paths: tuple[Path, ...],
    target: str | None,
    guards: tuple[str, ...],
    facts: tuple[str, ...],
    facts_files: tuple[Path, ...],
    kind: str | None,
    beside: tuple[Path, ...],
    form: str,
    as_json: bool,
    keep: bool,
) -> None:
    """The verdict and the ranked levers of a run, for its own target and guards or for others.

    Loose files need no import first: they become a run that is gone afterwards. So do facts alone, and files or
    facts beside a run, which itself stays as it is.

    \b
    profile diagnose RUN
    profile diagnose server.log bench.json
    profile diagnose --fact gpu_sm_ratio=0.6..0.75 --fact 'gpu_dram_ratio=not high'
    profile diagnose slow.log slow-bench.json --beside fast.log --beside fast-bench.json
    """  # noqa: D301
    from ..analyzers.diagnose import diagnose

    shape = "json" if as_json else form
    if (
        len(paths) == 1
        and not (facts or facts_files or kind or beside)
        and (is_run(paths[0]) or is_empty(paths[0]))
    ):
        diagnosis = diagnose(paths[0], target, guards)
        if keep and target is None and not guards:
            for problem in save(diagnosis, paths[0]):
                click.echo(f"profile: {problem}", err=True)
        click.echo(rendered(diagnosis, shape))
        return
    with ExitStack() as runs:
        run, name = runs.enter_context(temporary_run((*paths, *facts_files), facts, kind))
        other = runs.enter_context(temporary_run(beside, (), kind))[0] if beside else None
        diagnosis = diagnose(run, target, guards, other)
        diagnosis.run["path"] = name
        click.echo(rendered(diagnosis, shape))


@click.command("report", context_settings=HELP)
@_RUN
@click.option(
    "--format", "form", type=FORMATS, default="html", show_default=True, help="How to show it."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File to write [RUN/report.html; `-` is standard output].",
)
def report_command(run: Path, form: str, output: Path | None) -> None:
    """The one page (or text, or JSON) of a run that was recorded."""
    from ..analyzers.diagnose import diagnose

    content = rendered(diagnose(run), form)
    if output is None and form == "html":
        output = run / "report.html"
    if output is None or str(output) == "-":
        click.echo(content)
        return
    try:
        output.write_text(content, encoding="utf-8")
    except OSError as error:
        raise WhyboundError(
            f"cannot write {output}: {error.strerror}; choose another -o"
        ) from error
    click.echo(f"wrote {output}", err=True)


@click.command("sql", context_settings=HELP)
@_RUN
@click.argument("query", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="How to show it; JSON is one object a line.",
)
def sql_command(run: Path, query: str | None, form: str) -> None:
    """Query a run's tables and views in DuckDB; without a query, list them.

    \b
    profile sql RUN "SELECT * FROM server_phases"
    profile sql RUN "SELECT rule, state, says FROM findings"
    """  # noqa: D301
    import duckdb

    from ..analyzers.database import open_database
    from ..analyzers.diagnose import diagnose_open
    from ..collector.store import open_run

    try:
        statements = duckdb.connect().extract_statements(query or _CONTENTS)
        # COPY could write into the folder of the run's own tables, and EXPLAIN ANALYZE runs what it is given
        if [s.type for s in statements] != [duckdb.StatementType.SELECT]:
            raise UsageError("QUERY must be one SELECT (or DESCRIBE, SHOW, SUMMARIZE)")
        opened = open_run(run)
        con = open_database(opened, documented=True)
        if re.search(r"\b(signals|findings)\b", query or ""):
            diagnose_open(opened, con)
        relation = con.sql(query or _CONTENTS)
        if form == "table":
            relation.show(max_rows=1000, max_width=None if sys.stdout.isatty() else 200)
            return
        table = relation.to_arrow_table()
    except duckdb.Error as error:
        raise WhyboundError(f"DuckDB: {str(error).splitlines()[0]}") from error
    import pyarrow.csv as pa_csv

    if form == "csv":
        pa_csv.write_csv(table, sys.stdout.buffer)
    else:
        import msgspec

        encoder = msgspec.json.Encoder(decimal_format="number")  # a sum of integers is a DECIMAL
        for row in table.to_pylist():
            click.echo(encoder.encode(row).decode())
