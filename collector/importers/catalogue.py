"""All importers."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from .importer import Importer

MODULES = (
    "arrival_traces",
    "bench_csv",
    "bench_json",
    "bench_tables",
    "bench_text",
    "gpu_amd",
    "gpu_dmon",
    "gpu_host",
    "gpu_links",
    "gpu_query",
    "gpu_status",
    "llama_bench",
    "metrics_matrix",
    "metrics_text",
    "not_results",
    "run_config",
    "sample_tables",
    "span_files",
    "facts_file",
    "logs",
    "arguments",
    "timelines",
)
"""The modules with importers; of equally sure ones the first wins."""


@cache
def importers() -> tuple[Importer, ...]:
    """Every importer, in the order of `MODULES`.

    Raises:
        ValueError: two have the same kind.
    """
    found: dict[str, Importer] = {}
    for module in MODULES:
        for importer in import_module(f".{module}", __package__).IMPORTERS:
            if importer.kind in found:
                raise ValueError(f"two importers for {importer.kind}")
            found[importer.kind] = importer
    return tuple(found.values())
