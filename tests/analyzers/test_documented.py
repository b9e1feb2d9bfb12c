"""The views are documented where they are written, and what they say of themselves is true."""

import re
from collections import Counter

import duckdb
import pytest

from whybound.analyzers.database import requires, view_sources
from whybound.analyzers.signals import signal_views, unit_of
from whybound.collector.schema import TABLES, UNIT_SUFFIXES

SQL = view_sources()
UNIT = re.compile(r"^\[([^\]]+)\]")
UNITS = {u.replace("per_s", "1/s") for u in UNIT_SUFFIXES} | {"0..1"}


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory):
    """(view or table, column) → type and comment; (view or table, None) → its comment."""
    from whybound.analyzers.database import open_database
    from whybound.collector.store import create_run, open_run

    path = tmp_path_factory.mktemp("documented") / "run"
    create_run(path, force=False)
    con = open_database(open_run(path), documented=True)
    columns = con.execute(
        "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() WHERE NOT internal"
    ).fetchall()
    objects = con.execute(
        "SELECT view_name, comment FROM duckdb_views() WHERE NOT internal"
        " UNION ALL SELECT table_name, comment FROM duckdb_tables()"
    ).fetchall()
    public = set(SQL) | set(TABLES)
    found = {(t, c): (kind, text) for t, c, kind, text in columns if t in public}
    return {**found, **{(t, None): ("", text) for t, text in objects if t in public}}


def test_every_view_and_table_is_there_with_a_comment(catalogue):
    assert {t for t, c in catalogue if c is None} == set(SQL) | set(TABLES)
    assert [t for (t, c), (_, text) in catalogue.items() if c is None and not text] == []


def test_every_public_column_has_a_comment(catalogue):
    bare = [
        f"{t}.{c}"
        for (t, c), (_, text) in catalogue.items()
        if c and not text and c != "n" and not c.startswith(("low_", "high_"))
    ]
    assert bare == []


def test_every_measured_column_says_its_unit(catalogue):
    """By the suffix of its name or in brackets before its comment; where both do, they agree."""
    for (table, column), (kind, text) in catalogue.items():
        if table not in signal_views() or not column or column == "n" or kind == "VARCHAR":
            continue
        unit = unit_of(column)
        name = column.removeprefix("low_").removeprefix("high_")
        stated = UNIT.match(text or "")
        assert unit or (stated and stated[1] in UNITS), f"{table}.{column}: no unit"
        if stated and unit and name == column:
            same = {"ratio": {"ratio", "0..1"}, "per_s": {"1/s"}}.get(unit, {unit})
            assert stated[1] in same, f"{table}.{column}: [{stated[1]}], but named _{unit}"


def test_bounds_have_their_column(catalogue):
    for table, column in catalogue:
        for prefix in ("low_", "high_"):
            if column and column.startswith(prefix):
                assert (table, column.removeprefix(prefix)) in catalogue, f"{table}.{column}"


@pytest.mark.parametrize("view", SQL)
def test_header(view):
    sql = SQL[view]
    assert re.search(r"^-- requires: \S", sql, re.MULTILINE), "no `-- requires:`"
    assert re.search(r"^-- grain: \S", sql, re.MULTILINE), "no `-- grain:`"
    assert re.findall(r"^CREATE (?:VIEW|TABLE) (\w+)", sql, re.MULTILINE) == [view]
    commented = set(re.findall(r"COMMENT ON (?:VIEW|TABLE|COLUMN) (\w+)", sql))
    assert commented == {view}


@pytest.mark.parametrize("view", SQL)
def test_requires_lists_exactly_what_is_read(view):
    (body,) = re.findall(
        r"^CREATE (?:VIEW|TABLE) \w+ AS\n(.*?);$", SQL[view], re.MULTILINE | re.DOTALL
    )
    # without its tables DuckDB cannot bind a list of quantiles; the names do not depend on it
    bound = re.sub(r"quantile_cont\((\w+), \[[^\]]*\]\)", r"list(\1)", body)
    read = duckdb.connect().get_table_names(bound)
    assert sorted(requires(SQL[view])) == sorted(read)


def test_signal_names_are_unique_over_the_views(catalogue):
    seen = Counter(
        column
        for table, column in catalogue
        if table in signal_views()
        and column
        and column != "n"
        and not column.startswith(("low_", "high_"))
    )
    assert [name for name, times in seen.items() if times > 1] == []


def test_base_tables_name_units_of_the_schema():
    for table in TABLES.values():
        for column in table.columns:
            assert column.unit is None or column.unit in UNIT_SUFFIXES, (
                f"{table.name}.{column.name}"
            )
            assert column.unit is None or unit_of(column.name) == column.unit, (
                f"{table.name}.{column.name}"
            )


def test_a_slow_query_draws_no_progress_on_standard_output(build):
    """DuckDB's own default is to, above two seconds: into `--json` as well."""
    found = build.database().execute("SELECT current_setting('enable_progress_bar')").fetchone()
    assert found == (False,)
