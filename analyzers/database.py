"""A run as a DuckDB database: the tables as they lie on disk, and the documented views over them.

A view that many others read is made a table, so that it is computed once; nobody else need know.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

import duckdb

from ..collector.schema import TABLES, arrow_schema

if TYPE_CHECKING:
    from pathlib import Path

    from ..collector.store import Run

_REQUIRES = re.compile(r"^-- requires:\s*(.*)$", re.MULTILINE)


@cache
def view_sources() -> dict[str, str]:
    """The SQL of every view by name, in an order in which each can be created.

    Raises:
        ValueError: a file requires what does not exist, or two require each other.
    """
    folder = resources.files(__package__) / "sql"
    texts = {
        entry.name.removesuffix(".sql"): entry.read_text(encoding="utf-8")
        for entry in sorted(folder.iterdir(), key=lambda e: e.name)
        if entry.name.endswith(".sql")
    }
    ordered: dict[str, str] = {}
    pending = dict(texts)
    while pending:
        ready = [
            n
            for n, sql in pending.items()
            if all(r in ordered or r in TABLES for r in requires(sql))
        ]
        if not ready:
            raise ValueError(f"views with unknown or circular `-- requires:`: {', '.join(pending)}")
        for name in ready:
            ordered[name] = pending.pop(name)
    return ordered


def requires(sql: str) -> list[str]:
    """The names in a view's `-- requires:` line; empty when it has none."""
    match = _REQUIRES.search(sql)
    return match.group(1).split() if match else []


def open_database(
    run: Run, *, documented: bool = False, memory_limit: str = "1GB"
) -> duckdb.DuckDBPyConnection:
    """An in-memory database over a run: base tables, then every view.

    Once built it can read nothing but the run's own tables: external access is off and the configuration
    is locked, so that `profile sql` on a run from elsewhere is safe.

    Args:
        run: the run.
        documented: keep the comments of tables, views and columns; without them it opens in half the time.
        memory_limit: as DuckDB reads it.
    """
    con = duckdb.connect(":memory:", config={"memory_limit": memory_limit})
    con.execute("SET preserve_insertion_order = true")
    # above two seconds it would be drawn on standard output, into a report or JSON
    con.execute("SET enable_progress_bar = false")
    for table in TABLES:
        _base_table(con, run, table)
    con.execute("SET allowed_directories = ?", [[str(run.path.resolve() / "tables")]])
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")
    for sql in view_sources().values():
        con.execute(sql.partition("\nCOMMENT ON")[0])
    if documented:
        _document(con)
    return con


def _document(con: duckdb.DuckDBPyConnection) -> None:
    for table in TABLES.values():
        con.execute(f"COMMENT ON VIEW {table.name} IS '{_quoted(table.row)}'")
        for c in table.columns:
            unit = f"[{c.unit}] " if c.unit else ""
            con.execute(f"COMMENT ON COLUMN {table.name}.{c.name} IS '{_quoted(unit + c.doc)}'")
    for sql in view_sources().values():
        con.execute("COMMENT ON" + sql.partition("\nCOMMENT ON")[2])
    _inherit_comments(con)


def _inherit_comments(con: duckdb.DuckDBPyConnection) -> None:
    """A column that a view passes on under its own name keeps the comment that it has there."""
    comments: dict[str, dict[str, str | None]] = {}
    for table, column, comment in con.execute(
        "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal"
    ).fetchall():
        comments.setdefault(table, {})[column] = comment
    inherited = []
    for view, sql in view_sources().items():
        for column, comment in comments[view].items():
            known = [comments[r].get(column) for r in requires(sql)]
            if comment is None and any(known):
                comments[view][column] = text = next(k for k in known if k)
                inherited.append(f"COMMENT ON COLUMN {view}.{column} IS '{_quoted(text)}'")
    con.execute("; ".join(inherited))


def _base_table(con: duckdb.DuckDBPyConnection, run: Run, table: str) -> None:
    """Sealed Parquet and what is still only in the logs, as one view named like the table."""
    columns = ", ".join(
        f'CAST("{c.name}" AS VARCHAR) AS "{c.name}"' if c.type == "dictionary" else f'"{c.name}"'
        for c in TABLES[table].columns
    )
    # every name below is a constant of the schema
    log = run.log_table(table)
    name = f"log_{table}"
    con.register(name, log if log.num_rows else arrow_schema(table).empty_table())
    sources = [f"SELECT {columns} FROM {name}"]  # noqa: S608
    parts = run.parts(table)
    if parts:
        sources.insert(0, f"SELECT {columns} FROM read_parquet({_path_list(parts)})")  # noqa: S608
    con.execute(f"CREATE VIEW {table} AS " + " UNION ALL ".join(sources))


def _path_list(paths: list[Path]) -> str:
    # a view cannot hold a bound parameter, so the paths are quoted by DuckDB's own rule
    return "[" + ", ".join(f"'{_quoted(str(p.resolve()))}'" for p in paths) + "]"


def _quoted(text: str) -> str:
    return text.replace("'", "''")
