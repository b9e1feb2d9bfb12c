"""DuckDB over a run: views, signals, the cost model, the diagnosis."""
