"""One documented DuckDB view a file, run in the order that `-- requires:` asks for."""
