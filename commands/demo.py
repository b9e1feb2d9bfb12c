"""`profile demo`: the whole loop on the emulated engine."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import WhyboundError
from .options import FORMATS, HELP, rendered, save

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..rules.model import Diagnosis, LeverAdvice

CAP = 4
LOAD = "poisson:rate=5,in=64,out=48,d=12s,warmup=1s,seed=7"
"""Above what four slots serve (about 3.8 requests/s in the toy world), far below what sixteen do."""


@click.command("demo", context_settings=HELP)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Keep the two runs in this folder."
)
@click.option("--force", is_flag=True, help="Replace runs that are already there.")
@click.option(
    "--format", "form", type=FORMATS, default="text", show_default=True, help="How to show it."
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def demo_command(output: Path | None, force: bool, form: str, as_json: bool, quiet: bool) -> None:
    """The whole loop on the emulated engine: measure, name the bottleneck, apply the lever, measure again.

    A server whose batch cap starves it is loaded; the verdict predicts a gain; the lever is applied; the
    measured gain stands beside the prediction. The engine is emulated: its numbers show the method, not
    a GPU.
    """

    def say(line: str) -> None:
        if not quiet:
            click.echo(line, err=True)

    folder = output or Path(tempfile.mkdtemp(prefix="whybound-demo-"))
    try:
        diagnosis = _loop(folder, force or output is None, say)
    finally:
        if output is None:
            shutil.rmtree(folder, ignore_errors=True)
    click.echo(rendered(diagnosis, "json" if as_json else form))
    if output is not None:
        say(
            f"runs kept: {folder / 'before'} and {folder / 'after'}; page: {folder / 'before' / 'report.html'}"
        )


def _loop(folder: Path, force: bool, say: Callable[[str], None]) -> Diagnosis:
    from ..analyzers.database import open_database
    from ..analyzers.diagnose import diagnose
    from ..analyzers.realised import realised
    from ..analyzers.target import default_target
    from ..collector.store import open_run

    say("the engine of this demo is emulated: no GPU, no model, the same scheduler")
    say(
        f"1/4 measuring a server with --max-num-seqs {CAP} under {LOAD.split(',', maxsplit=1)[0]} requests/s …"
    )
    before = _record(folder / "before", CAP, force)
    diagnosis = diagnose(before)
    lever, value = _best(diagnosis)
    say(f"2/4 {diagnosis.verdict.says}")
    assert lever.gain is not None
    g = lever.gain
    say(
        f"3/4 applying {lever.flags['vllm']}, predicted {g.mid:.2f}x ({g.low:.2f} to {g.high:.2f}) …"
    )
    after = _record(folder / "after", value, force)
    pair = [open_database(open_run(run)) for run in (before, after)]
    lever.realised = realised(pair[0], pair[1], default_target("open"))
    if lever.realised is not None:
        say(
            f"4/4 measured {lever.realised.gain:.2f}x ({lever.realised.low:.2f} to {lever.realised.high:.2f})"
        )
    for problem in save(diagnosis, before):
        say(problem)
    save(diagnose(after), after)
    return diagnosis


def _best(diagnosis: Diagnosis) -> tuple[LeverAdvice, int]:
    """The first lever that helps and that the engine has a number for, with that number."""
    for lever in diagnosis.levers:
        flag = lever.flags.get("vllm", "")
        if lever.helps is True and flag.startswith("--max-num-seqs"):
            return lever, int(flag.rsplit(maxsplit=1)[-1])
    raise WhyboundError(
        f"the demo found no batch cap to raise: {diagnosis.verdict.says} A busy machine can do that;"
        " run it again with nothing else running"
    )


def _record(run_dir: Path, cap: int, force: bool) -> Path:
    from ..collector.load.spec import parse_load
    from ..collector.session import Plan, free_port, record

    port = free_port()
    command = (
        sys.executable, "-m", "whybound.fixtures.engine", "--gpu-preset", "toy", "--port", str(port),
        "--max-num-seqs", str(cap), "--seed", "1",
    )  # fmt: skip
    run_dir.parent.mkdir(parents=True, exist_ok=True)
    plan = Plan(
        run_dir=run_dir, force=force, interval_s=0.5, load=parse_load(LOAD), load_text=LOAD,
        command=command, ready_s=60.0, grace_s=5.0,
    )  # fmt: skip

    async def go() -> None:
        recorded = await record(plan, asyncio.Event())
        if recorded.error or recorded.server_exit is not None:
            raise WhyboundError(
                f"the emulated engine failed: {recorded.error or recorded.server_exit}"
            )

    asyncio.run(go())
    return run_dir
