"""Signals that need the fitted model, or the model's shape and the device: no view can give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..rules.model import Signal
from .counterfactual import UNCAPPED
from .step_cost import PARTS
from .whatif import context_tokens, fresh_tokens, met, service, slots

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .fit import Fit
    from .posterior import Array
    from .verdict import Whatif
    from .work import Work


def derived_signals(model: Whatif, seen: Mapping[str, Signal]) -> list[Signal]:
    """What the fit tells: utilisation now and without the batch cap, and what binds each phase's passes."""
    fit, base, free = model.fit, model.outcome(), model.outcome(UNCAPPED)
    counted = seen.get("requests_count", seen.get("engine_finished_count"))
    n = counted.n if counted else 0
    found = {"capacity_gain_uncapped_ratio": free.capacity_per_s / base.capacity_per_s}
    if fit.load.open_loop:
        found["rho_capped_ratio"] = base.rho
        found["rho_uncapped_ratio"] = free.rho
    for phase, shares in (("decode", fit.decode), ("prefill", fit.prefill)):
        found |= {f"{phase}_{part}_share_ratio": shares[part] for part in PARTS if part != "other"}
    if fit.work.gpus == 1:
        del found["decode_link_share_ratio"], found["prefill_link_share_ratio"]
    taken = service(fit.engine, fit.load, base.batch, base.requests_per_s)
    passes = fit.load.output_tokens / fit.engine.step.tokens_per_pass
    decode = passes * taken.step_s / np.maximum(1.0, base.batch)
    found["prefill_share_ratio"] = taken.own_s / (taken.own_s + decode)
    step = fit.engine.step
    found["ridge_batch_count"] = (step.weights_s + step.expert_s) / step.token_s
    found |= _floors(fit, taken.step_s, taken.own_s, base.batch)
    return [_signal(name, v, n) for name, v in found.items()] + work_signals(fit.work)


def _floors(fit: Fit, step_s: Array, own_s: Array, batch: Array) -> dict[str, Array]:
    """Floor over achieved, at the device's peaks, where model and device are known."""
    decoding = met(batch, slots(fit.engine, fit.load))
    read = fit.work.read_floor_s(decoding, decoding * context_tokens(fit.load))
    prompt = fit.work.prompt_floor_s(fresh_tokens(fit.engine, fit.load))
    found = {}
    if read is not None:
        found["decode_floor_ratio"] = read / step_s
    if prompt is not None:
        found["prefill_floor_ratio"] = np.asarray(prompt / (own_s + step_s))
    return found


def _signal(name: str, values: Array, n: int) -> Signal:
    low, mid, high = np.quantile(np.asarray(values, dtype=float), [0.1, 0.5, 0.9])
    unit = name.rsplit("_", 1)[-1]
    return Signal(
        name=name, value=float(mid), low=float(low), high=float(high), unit=unit, n=n, source="fit"
    )


def work_signals(work: Work) -> list[Signal]:
    """What model and device are: number formats."""
    found = []
    shape, device = work.shape, work.device
    if shape is not None and shape.bits:
        bits = shape.bits.get("mlp") or shape.bits.get("experts") or shape.bits.get("attention")
        if bits:
            found.append(_setting("weight_bits_count", float(round(bits))))
    if shape is not None and shape.kv_bits:
        found.append(_setting("kv_bits_count", float(shape.kv_bits)))
    if device is not None and device.kind != "cpu":
        for dtype in ("fp8", "fp4"):
            has = "yes" if dtype in {str(d) for d in device.dense_flops} else "no"
            found.append(
                Signal(name=f"gpu_{dtype}_supported", text=has, level=0, source="hardware")
            )
    return found


def _setting(name: str, value: float) -> Signal:
    return Signal(name=name, value=value, unit="count", level=0, n=1, source="model_config")
