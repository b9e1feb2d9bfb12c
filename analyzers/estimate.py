"""What one lever would give on a run, before it is applied."""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from ..collector.store import open_run
from ..errors import WhyboundError
from ..rules.effects import applied
from ..rules.load import load_levers
from ..rules.model import LeverAdvice, Target
from .advice import advise, model_estimates
from .apply import ENGINE_FIELDS, SETTINGS
from .counterfactual import Policy
from .database import open_database
from .diagnose import analyse
from .whatif import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..rules.model import Lever
    from .verdict import Whatif


@dataclass(frozen=True)
class Estimated:
    """The lever's advice, the target that it is for, and the value of the setting that was asked."""

    advice: LeverAdvice
    target: Target
    value: float | None


def estimate(
    path: str | Path, lever: str, target: str | None = None, guards: Sequence[str] = ()
) -> Estimated:
    """The gain of a lever on a run.

    Args:
        path: a run directory.
        lever: a lever's id, or a setting with its new value, e.g. `max_num_seqs=64`.
        target: what faster means; None takes the run's own.
        guards: as of `diagnose`.

    Raises:
        WhyboundError: no such lever or setting, a value that is none, or the run tells no step cost.
    """
    name, _, given = lever.partition("=")
    levers = load_levers()
    run = open_run(Path(path))
    con = open_database(run)
    try:
        a = analyse(run, con, target, guards)
    finally:
        con.close()
    if a.model is None:
        raise WhyboundError(
            f"{path}: no load with token timing was measured, so nothing can be estimated;"
            " record one with `profile attach --url URL --load poisson:rate=1`"
        )
    value = _value(lever, given) if given else None
    chosen = _for_setting(name, value, levers, a.model) if given else _named(name, levers)
    fixed = None if value is None else {SETTINGS[name]: _policy(name, value, a.model)}
    found = model_estimates({chosen.id: chosen}, a.label, a.goal, a.budget, a.model, fixed)
    advice = advise(chosen, a.label, a.goal, a.budget, a.points(), found.get(chosen.id))
    return Estimated(advice, a.goal, value)


def _named(name: str, levers: dict[str, Lever]) -> Lever:
    if name in levers:
        return levers[name]
    near = get_close_matches(name, [*levers, *SETTINGS], 1)
    hint = f"; did you mean {near[0]}{'=N' if near[0] in SETTINGS else ''}?" if near else ""
    raise WhyboundError(f"no lever {name!r}{hint} (profile levers lists them)")


def _value(lever: str, given: str) -> float:
    try:
        value = float(given)
    except ValueError:
        value = 0.0
    if not 1 <= value < UNLIMITED:
        raise WhyboundError(
            f"{lever!r}: the new value is a number of at least 1, e.g. max_num_seqs=64"
        )
    return value


def _for_setting(name: str, value: float | None, levers: dict[str, Lever], model: Whatif) -> Lever:
    """The lever that moves this setting the way that the value lies."""
    if name not in SETTINGS:
        known = ", ".join(f"{s}=N" for s in SETTINGS)
        raise WhyboundError(f"no setting {name!r} that the model knows; it knows {known}")
    now = float(getattr(model.fit.engine, ENGINE_FIELDS[name]))
    up = value is not None and value > now
    for lever in levers.values():
        effect = lever.effect[0] if len(lever.effect) == 1 else None
        sets = effect is not None and effect.param == name and effect.times is not None
        if sets and effect is not None and (applied(effect, 1.0, 1.0) > 1) == up:
            return lever
    raise WhyboundError(f"no lever sets {name}")


def _policy(name: str, value: float, model: Whatif) -> Policy:
    engine = model.fit.engine
    changed = (
        replace(engine, max_num_seqs=value)
        if name == "max_num_seqs"
        else replace(engine, token_budget=value)
    )
    return Policy(SETTINGS[name], value, changed, "")
