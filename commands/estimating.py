"""`profile estimate`: what a change will give, by Amdahl's law or on a run."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import click

from ..errors import UsageError, WhyboundError
from .options import GUARDS, HELP, TARGET

if TYPE_CHECKING:
    from ..analyzers.estimate import Estimated


@click.command("estimate", context_settings=HELP)
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--lever", metavar="ID|SETTING=N", help="On RUN: a lever, or a setting's new value.")
@click.option("--p", "p", type=float, help="Share of the time it acts on, 0 to 1.")
@click.option("--s", "s", type=float, help="Times faster that part gets, or inf.")
@TARGET
@GUARDS
@click.option("--json", "as_json", is_flag=True, help="As JSON; an infinite value is null.")
def estimate_command(
    run: str | None,
    lever: str | None,
    p: float | None,
    s: float | None,
    target: str | None,
    guards: tuple[str, ...],
    as_json: bool,
) -> int:
    """What a change will give, before the work: a lever on a run, or Amdahl's law on two numbers.

    \b
    profile estimate RUN --lever cuda_graphs
    profile estimate RUN --lever max_num_seqs=64
    profile estimate --p 0.08 --s 3      1.056
    profile estimate --p 0.08 --s inf    1.087, the most that any change to that part gives
    """  # noqa: D301 — \b is click's mark for text that is not to be wrapped
    if run is not None:
        if lever is None or p is not None or s is not None:
            raise UsageError(
                "with a RUN give --lever ID (profile levers lists them), not --p and --s"
            )
        return _on_run(run, lever, target, guards, as_json)
    if lever is not None:
        raise UsageError("--lever needs a RUN: profile estimate RUN --lever ID")
    if p is None or s is None:
        raise UsageError("give --p and --s, or a RUN and --lever ID")
    return _amdahl(p, s, as_json)


def _amdahl(p: float, s: float, as_json: bool) -> int:
    from ..analyzers.formulas import amdahl

    try:
        gain = amdahl(p, s)
    except WhyboundError as error:
        raise UsageError(str(error)) from None
    if as_json:
        finite = {"p": p, "s": s, "gain": gain}
        click.echo(json.dumps({k: v if math.isfinite(v) else None for k, v in finite.items()}))
    else:
        click.echo(f"{gain:.3f}")
    return 0


def _on_run(
    run: str, lever: str, target: str | None, guards: tuple[str, ...], as_json: bool
) -> int:
    import msgspec

    from ..analyzers.estimate import estimate

    found = estimate(run, lever, target, guards)
    if as_json:
        document = {"run": run, "target": found.target, "value": found.value, "lever": found.advice}
        click.echo(msgspec.json.format(msgspec.json.encode(document), indent=1).decode())
    else:
        click.echo(_told(found))
    return 0


def _told(found: Estimated) -> str:
    """A few lines: the gain with its interval, what caps it, whether it helps, and how to apply it."""
    from ..reports import wording

    advice, gain = found.advice, found.advice.gain
    if gain is None:
        head = "no estimate: the model does not know this part, or it was not measured"
    else:
        interval = wording.gain_interval(gain.low, gain.high)
        head = (
            f"{wording.gain(gain.mid)} on {found.target.text} ({interval}, 80 % of hypotheses),"
            f" by {wording.words(gain.method)}"
        )
    helps = {True: "yes", False: "no", "check_first": "check first"}[advice.helps]
    lines = [("gain", head)]
    if gain is not None:
        lines.append(("capped by", gain.capped_by))
    if advice.amdahl is not None:
        bound = wording.gain(advice.amdahl.gain) if advice.amdahl.gain < 1e6 else "none"
        lines.append(
            ("Amdahl", f"acts on {wording.share(advice.amdahl.p)} of the time; bound {bound}")
        )
    lines += [("helps", f"{helps}: {advice.why}"), *advice.flags.items()]
    return "\n".join(
        [f"{advice.id}: {advice.title}", *(f"  {key:<12}  {text}" for key, text in lines)]
    )
