"""`profile estimate`: the most that a change can give, by Amdahl's law."""

from __future__ import annotations

import json
import math

import click

from ..errors import UsageError, WhyboundError
from .options import HELP


@click.command("estimate", context_settings=HELP)
@click.option("--p", "p", type=float, required=True, help="Share of the time it acts on, 0 to 1.")
@click.option("--s", "s", type=float, required=True, help="Times faster that part gets, or inf.")
@click.option("--json", "as_json", is_flag=True, help="As JSON; an infinite value is null.")
def estimate_command(p: float, s: float, as_json: bool) -> int:
    """The gain when a share P of the time becomes S times faster: 1 / ((1 - P) + P / S).

    \b
    profile estimate --p 0.08 --s 3      1.056
    profile estimate --p 0.08 --s inf    1.087, the most that any change to that part gives
    """  # noqa: D301 — \b is click's mark for text that is not to be wrapped
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
