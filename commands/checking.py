"""`profile check`: is this machine, or this run, fit for measuring?"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click

from .options import HELP


@click.command("check", context_settings=HELP)
@click.argument("run", required=False, type=click.Path(path_type=Path))
def check_command(run: Path | None) -> int:
    """This machine (driver, profilers, permissions), or the soundness of a run."""
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
