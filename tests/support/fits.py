"""A fit as a run would give it, made by hand: hypotheses of a known step under a known load."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from whybound.analyzers.fit import Fit, phase_shares
from whybound.analyzers.step_cost import StepCost
from whybound.analyzers.verdict import Whatif, what_if
from whybound.analyzers.whatif import Engine, Load, solve
from whybound.analyzers.work import Work, work_of

LOAD = Load(open_loop=True, rate=4.0, concurrency=8.0, input_tokens=256.0, output_tokens=64.0)


def hypotheses(*steps: StepCost) -> StepCost:
    """These steps as the equally likely hypotheses of one."""
    return StepCost(
        **{f.name: np.array([float(getattr(s, f.name)) for s in steps]) for f in fields(StepCost)}
    )


def middle(fit: Fit) -> StepCost:
    """The middle of the hypotheses, part by part."""
    return StepCost(**{k: float(np.median(v)) for k, v in vars(fit.engine.step).items()})


def fit_of(*steps: StepCost, load: Load = LOAD, work: Work | None = None, **engine: Any) -> Fit:
    """A fit of which these steps are the hypotheses; `engine` holds its limits."""
    whole = Engine(hypotheses(*steps), **engine)
    batch = float(np.median(solve(whole, load).batch))
    decode, prefill = phase_shares(whole, load, batch)
    given = {"load": load, "engine": whole, "n": len(steps), "decode": decode, "prefill": prefill}
    known = work_of({}, load.input_tokens, load.output_tokens) if work is None else work
    rest = {"peaks": {}, "seen": (), "errors": (0.0,), "work": known, "missing": (), "facts": {}}
    return Fit(**given, **rest)


def seen(fit: Fit, **scale: float) -> dict[str, float]:
    """The signals of a run that the middle of the hypotheses explains exactly, perhaps but for a factor."""
    base = solve(replace(fit.engine, step=hypotheses(middle(fit))), fit.load)
    found = {
        "front_end_work_mean_s": base.front_end_s,
        "wait_mean_s": base.wait_s,
        "server_queue_mean_s": base.wait_s,
        "server_prefill_mean_s": base.prefill_s,
        "server_decode_mean_s": base.decode_s,
        "server_ttft_mean_s": base.front_end_s + base.wait_s + base.prefill_s,
        "server_e2e_mean_s": base.e2e_s - base.path_s,
        "client_ttft_mean_s": base.ttft_s,
        "client_e2e_mean_s": base.e2e_s,
        "client_itl_mean_s": base.itl_s,
        "completed_rate_per_s": base.requests_per_s,
        "running_mean_count": base.batch,
    }
    return {k: float(np.squeeze(v)) * scale.get(k, 1.0) for k, v in found.items()}


def model_of(*steps: StepCost, facts: Mapping[str, float] | None = None, **world: Any) -> Whatif:
    """All axes and policies of `fit_of`, on the facts that it explains unless others are given."""
    fit = fit_of(*steps, **world)
    return what_if(fit, seen(fit) if facts is None else facts)
