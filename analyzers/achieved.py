"""Achieved beside floor: what each phase took, and what the device's peaks would allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .floors import Range, launch_floor_s, over
from .whatif import context_tokens, fresh_tokens, met, service, slots

if TYPE_CHECKING:
    from .posterior import Array
    from .verdict import Whatif
    from .work import Work


def floor_rows(model: Whatif) -> list[dict[str, Any]]:
    """One row a phase and resource whose floor is known; empty where model or device are not.

    A row: `phase`, `resource`, `of` (what is counted), `achieved_s`, `low_s` and `high_s` of it, `floor_s` with
    `floor_low_s` at the most and `floor_high_s` at the least of the peak that software reaches, and
    `ratio_low`, `ratio_high`: floor over achieved, 1 where nothing is left to gain.
    """
    fit, work, batch = model.fit, model.fit.work, model.outcome().batch
    taken = service(fit.engine, fit.load, batch, 0.0)
    decoding = float(np.median(met(batch, slots(fit.engine, fit.load))))
    read = work.read_floor_s(decoding, decoding * context_tokens(fit.load))
    prompt = work.prompt_floor_s(float(np.median(fresh_tokens(fit.engine, fit.load))))
    rows = []
    if read is not None:
        floor = over(float(read), _fractions(work.bandwidth_fraction))
        rows.append(
            _row("decode", "memory", "weights and KV cache, read once a step", taken.step_s, floor)
        )
    if prompt is not None:
        floor = over(prompt, _fractions(work.flops_fraction))
        rows.append(
            _row("prefill", "compute", "arithmetic of the mean prompt", taken.prefill_s, floor)
        )
    launch = _launch(work)
    if launch is not None:
        rows.append(
            _row("decode", "launch", "host time to launch the kernels", taken.step_s, launch)
        )
    return rows


def _fractions(fractions: tuple[float, float, float]) -> Range:
    """As shares of a peak: a measured roof may be passed, but not by more than all of it."""
    return Range(*(min(f, 1.0) for f in fractions))


def _launch(work: Work) -> Range | None:
    """Kernels one by one, as without graphs: with them the floor is far below."""
    if work.kernels is None or work.device is None or work.device.kind == "cpu":
        return None
    return launch_floor_s(round(work.kernels[0]), work.device.launch_eager_s)


def _row(phase: str, resource: str, of: str, achieved: Array, floor: Range) -> dict[str, Any]:
    low, mid, high = (float(v) for v in np.quantile(achieved, [0.1, 0.5, 0.9]))
    return {
        "phase": phase,
        "resource": resource,
        "of": of,
        "achieved_s": mid,
        "low_s": low,
        "high_s": high,
        "floor_s": floor.mid,
        "floor_low_s": floor.low,
        "floor_high_s": floor.high,
        "ratio_low": floor.low / high,
        "ratio_high": floor.high / low,
    }
