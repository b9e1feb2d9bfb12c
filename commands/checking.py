"""`profile check`: is this machine, or this run, fit for measuring?"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click

from .options import HELP


@click.command("check", context_settings=HELP)
@click.argument("run", required=False, type=click.Path(path_type=Path))
@click.option("--roofs", is_flag=True, help="Measure what this machine reaches; half a minute.")
@click.option(
    "--python", metavar="EXE", help="Of --roofs: a Python with torch, such as the server's own."
)
@click.option("--json", "as_json", is_flag=True, help="Of --roofs: as JSON.")
@click.option(
    "--save/--no-save",
    default=None,
    help="Of --roofs: keep them for later recordings; the default, unless they were disturbed.",
)
def check_command(
    run: Path | None, roofs: bool, python: str | None, as_json: bool, save: bool | None
) -> int:
    """This machine (driver, profilers, permissions), its roofs, or the soundness of a run."""
    if roofs and run:
        raise click.UsageError("--roofs is about this machine: leave RUN out")
    if not roofs and (python or as_json or save is not None):
        raise click.UsageError("--python, --json and --save go with --roofs")
    if roofs:
        from .roofing import check_roofs

        return check_roofs(python, as_json=as_json, save=save)
    return _check_run(run) if run else _check_machine()


def _check_run(path: Path) -> int:
    from ..analyzers.diagnose import diagnose

    diagnosis = diagnose(path)
    bad = 0
    for check in diagnosis.prechecks:
        bad += check.effect == "invalid"
        click.echo(f"{check.state:<15} {check.id}: {check.says}")
        if check.remedy:
            click.echo(f"{'':<15} do: {check.remedy}")
    for line in diagnosis.coverage["missing"]:
        click.echo(f"{'missing':<15} {line}")
    return 1 if bad else 0


def _check_machine() -> int:
    import psutil

    rows = [
        ("cores", f"{len(os.sched_getaffinity(0))} usable of {psutil.cpu_count()}", ""),
        ("GPU", *_gpu()),
        ("nsys", *_tool("nsys", "timelines need Nsight Systems")),
        ("ncu", *_tool("ncu", "kernel counters need Nsight Compute")),
        ("real-time load", *_realtime()),
    ]
    for name, state, hint in rows:
        click.echo(f"{name:<15} {state}" + (f" ({hint})" if hint else ""))
    return 0


def _gpu() -> tuple[str, str]:
    import pynvml

    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        return "not available", str(error)
    return f"{count} with driver", ""


def _tool(name: str, hint: str) -> tuple[str, str]:
    path = shutil.which(name)
    return (path, "") if path else ("not found", hint)


def _realtime() -> tuple[str, str]:
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    except PermissionError:
        return "not allowed", "CAP_SYS_NICE lets the load generator keep time beside a busy server"
    return "allowed", ""
