"""`profile check --roofs`: what this machine reaches, measured with torch and kept for recordings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

NOTE = "A roof below what the engine achieves is no roof: it is what torch reached here."


def check_roofs(python: str | None, *, as_json: bool, save: bool | None) -> int:
    """Measure, show, and keep what is sound; `save` None keeps it unless it was disturbed."""
    from ..collector.roofs import default_python, disturbed, measure_roofs, save_roofs

    roofs = measure_roofs(python or default_python())
    problem = disturbed(roofs)
    kept = save_roofs(roofs) if (not problem if save is None else save) else None
    if as_json:
        click.echo(json.dumps({**roofs, "disturbed": problem, "note": NOTE}))
    else:
        for name, figure, note in _lines(roofs):
            click.echo(f"{name:<15} {figure}" + (f" ({note})" if note else ""))
        click.echo(NOTE)
    if problem:
        click.echo(
            f"profile: these roofs are too low: {problem}; measure when it is idle", err=True
        )
    if kept:
        click.echo(f"profile: kept in {kept}", err=True)
    elif problem and save is None:
        click.echo("profile: not kept; --save keeps them all the same", err=True)
    return 0


def _lines(roofs: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    cores = f"{roofs.get('threads_count', '?')} threads, torch {roofs.get('torch', '?')}"
    yield "device", roofs["device_name"], cores if roofs.get("kind") == "cpu" else ""
    for key, name in (
        ("read_bytes_per_s", "read"),
        ("read_1_core_bytes_per_s", "read, one core"),
        ("copy_bytes_per_s", "copy"),
    ):
        if key in roofs:
            yield name, f"{roofs[key] / 1e9:.1f} GB/s", ""
    for dtype, flops in roofs["flops"].items():
        yield dtype, f"{flops / 1e12:.3g} TFLOP/s", roofs.get("flops_from", {}).get(dtype, "")
    for key, name in (
        ("launch_s", "launch"),
        ("graph_launch_s", "in a graph"),
        ("all_reduce_s", "all-reduce"),
    ):
        if key in roofs:
            yield name, f"{roofs[key] * 1e6:.2f} µs", ""
    for name, why in roofs.get("not_measured", {}).items():
        yield "not measured", name, why
