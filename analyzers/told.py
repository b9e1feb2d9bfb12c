"""What follows from given figures together: ratios to what the GPU can do, shares of a step, room in the cache.

A person reads a clock, a bandwidth or the time of one all-reduce; a rule asks how it compares. Nothing here is
measured, and what is measured or given under the same name counts before it.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from ..errors import WhyboundError
from ..rules.hardware import find_device
from ..rules.model import TOLD, Signal
from .model_shape import shape_of
from .signals import unit_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..rules.hardware import Device

SOURCE = TOLD[1]
"""The `source` of a signal that follows from given ones."""

KV_OF_WEIGHTS = 1e-4
"""Most bytes of keys and values a token over the bytes of the weights: what small models without grouped heads
reach (0.5 to 1 × 10⁻⁴); most have a tenth of it."""

COLLECTIVES = (56.0, 100.0, 160.0)
"""All-reduces a decode step where nobody counted: two a layer, of 28 to 80 layers."""

Facts = dict[str, float]
CONTEXT = re.compile(r"segment=context_(\d+)$")


def told_signals(signals: Sequence[Signal], settings: Mapping[str, str]) -> list[Signal]:
    """The signals that follow from those that are there, without the ones that are there already."""
    names = {s.name for s in signals if not s.scope}
    gpu = settings.get("gpu_name")
    device = find_device(gpu) if gpu else None
    middle, *bounds = _worlds(signals)
    made = _made(middle, device, settings)
    spread = [_made(facts, device, settings) for facts in bounds]
    made |= _of_each_gpu(signals)
    for name, value in _contexts(signals, middle, settings).items():
        _add(made, name, value)
    kind = _device_kind(settings)
    numbers = [_signal(name, v, [m[name] for m in spread if name in m]) for name, v in made.items()]
    texts = [Signal(name="device_kind", text=kind, source=SOURCE)] if kind else []
    return [s for s in (*numbers, *texts) if s.name not in names]


def _device_kind(settings: Mapping[str, str]) -> str:
    """`cpu` or `gpu`, where a setting tells; else empty."""
    if settings.get("device") == "cpu" or settings.get("gpu_count") == "0":
        return "cpu"
    return "gpu" if settings.get("gpu_name") or settings.get("device") == "cuda" else ""


def _worlds(signals: Sequence[Signal]) -> list[Facts]:
    """The facts at their middles, then with one of them at one end of its interval at a time."""
    plain = {s.name: s.value for s in signals if s.value is not None and not s.scope}
    ends = [
        (s.name, end)
        for s in signals
        if s.name in plain and not s.scope and s.low is not None and s.high is not None
        for end in (s.low, s.high)
    ]
    if "collective_s" in plain and "collectives_per_token_count" not in plain:
        few, usual, many = COLLECTIVES
        plain["collectives_per_token_count"] = usual
        ends += [("collectives_per_token_count", few), ("collectives_per_token_count", many)]
    return [plain, *(plain | {name: end} for name, end in ends)]


def _made(facts: Facts, device: Device | None, settings: Mapping[str, str]) -> Facts:
    made: Facts = {}
    for name, rule in OF_FACTS.items():
        _add(made, name, rule(facts, settings))
    if device is not None:
        for name, of_device in OF_DEVICE.items():
            _add(made, name, of_device(facts, device, settings))
    return made


def _signal(name: str, value: float, ends: Sequence[float]) -> Signal:
    low, high = min((value, *ends)), max((value, *ends))
    certain = low == high
    return Signal(
        name=name, value=value, low=None if certain else low, high=None if certain else high,
        unit=unit_of(name), source=SOURCE,
    )  # fmt: skip


def _add(made: Facts, name: str, value: float | None) -> None:
    if value is not None and math.isfinite(value) and value >= 0:
        made[name] = value


def _step(facts: Mapping[str, float]) -> float | None:
    """One decode step in seconds, under whichever name it was told."""
    for name in (
        "step_s",
        "server_itl_mean_s",
        "client_itl_mean_s",
        "client_tpot_mean_s",
        "client_itl_p50_s",
    ):
        if facts.get(name):
            return facts[name]
    rate = facts.get("output_tokens_per_s") or facts.get("generation_tokens_per_s")
    running = facts.get("running_mean_count") or facts.get("inflight_mean_count") or 1.0
    return running / rate if rate else None


def _collective_share(facts: Facts, _: Mapping[str, str]) -> float | None:
    step, one = _step(facts), facts.get("collective_s")
    many = facts.get("collectives_per_token_count")
    return min(1.0, one * many / step) if step and one and many else None


def _idle(facts: Facts, _: Mapping[str, str]) -> float | None:
    step, idle = _step(facts), facts.get("step_idle_s")
    return min(1.0, idle / step) if step and idle is not None else None


def _first_token(facts: Facts, _: Mapping[str, str]) -> float | None:
    """Of the end-to-end time, or of the first token and the gaps that follow it."""
    first = facts.get("client_ttft_mean_s") or facts.get("client_ttft_p50_s")
    whole = facts.get("client_e2e_mean_s") or facts.get("client_e2e_p50_s")
    gap = facts.get("client_tpot_mean_s") or facts.get("client_itl_mean_s")
    tokens = facts.get("output_mean_tokens")
    if first and not whole and gap and tokens:
        whole = first + gap * max(0.0, tokens - 1.0)
    return min(1.0, first / whole) if first and whole else None


def _kv_demand(facts: Facts, _: Mapping[str, str]) -> float | None:
    """Everybody inside at the end of the answer, over what the cache holds."""
    inside = facts.get("inflight_mean_count") or facts.get("running_mean_count")
    prompt, room = facts.get("input_mean_tokens"), facts.get("kv_capacity_tokens")
    if not inside or not prompt or not room:
        return None
    one = max(
        prompt + facts.get("output_mean_tokens", 0.0), facts.get("kv_per_request_tokens", 0.0)
    )
    return inside * one / room


def _kv_highest(facts: Facts, _: Mapping[str, str]) -> float | None:
    """A person tells one figure of the cache's use; the highest is taken for it."""
    return facts.get("kv_used_mean_ratio")


def _kv_room(facts: Facts, settings: Mapping[str, str]) -> float | None:
    try:
        longest = float(settings.get("max_model_len", ""))
    except ValueError:
        return None
    room = facts.get("kv_capacity_tokens")
    return room / longest if room and longest > 0 else None


OF_FACTS: dict[str, Callable[[Facts, Mapping[str, str]], float | None]] = {
    "collective_share_ratio": _collective_share,
    "step_idle_ratio": _idle,
    "first_token_share_ratio": _first_token,
    "kv_demand_ratio": _kv_demand,
    "kv_room_ratio": _kv_room,
    "kv_used_max_ratio": _kv_highest,
}
"""Signal → from the facts and the settings; None where they do not tell."""


def _clock(facts: Mapping[str, float], device: Device, _: Mapping[str, str]) -> float | None:
    clock = facts.get("gpu_sm_clock_mhz")
    return clock * 1e6 / device.boost_hz if clock and device.boost_hz else None


def _dram(facts: Mapping[str, float], device: Device, settings: Mapping[str, str]) -> float | None:
    """Bytes a second that were reached, over those of the data sheet."""
    reached = facts.get("memory_read_per_s")
    return min(1.0, reached / device.bandwidth_bytes_per_s) if reached else None


def _power(facts: Mapping[str, float], device: Device, settings: Mapping[str, str]) -> float | None:
    try:
        limit = float(settings.get("gpu_power_limit_w", "")) or device.tdp_w
    except ValueError:
        limit = device.tdp_w
    power = facts.get("gpu_power_w")
    return power / limit if power and limit else None


def _multiprocessors(_: Mapping[str, float], device: Device, __: Mapping[str, str]) -> float | None:
    return float(device.units) if device.kind == "cuda" else None


def _kernel(facts: Mapping[str, float], device: Device, _: Mapping[str, str]) -> float | None:
    """Bytes a second of one kernel, over those of the data sheet."""
    reached = facts.get("kernel_read_per_s")
    return min(1.0, reached / device.bandwidth_bytes_per_s) if reached else None


OF_DEVICE: dict[str, Callable[[Mapping[str, float], Device, Mapping[str, str]], float | None]] = {
    "gpu_clock_ratio": _clock,
    "gpu_dram_ratio": _dram,
    "kernel_read_ratio": _kernel,
    "gpu_sm_count": _multiprocessors,
    "gpu_power_of_limit_ratio": _power,
}
"""Signal → from the facts and the named GPU."""


def _of_each_gpu(signals: Sequence[Signal]) -> Facts:
    """Mean use of the GPUs that were told apart, and the busiest one's minus the idlest one's."""
    busy = [
        s.value
        for s in signals
        if s.name == "gpu_busy_ratio" and s.scope.startswith("gpu=") and s.value is not None
    ]
    if len(busy) < 2:
        return {}
    return {"gpu_busy_ratio": sum(busy) / len(busy), "gpu_busy_spread_ratio": max(busy) - min(busy)}


def _contexts(
    signals: Sequence[Signal], facts: Mapping[str, float], settings: Mapping[str, str]
) -> Facts:
    """What a step grows by from a short to a long context, and that over what its keys and values explain.

    A step reads the weights at least, so that its growth is at most that of the bytes: those of a token over
    those of the weights, the model's own where it is known, else at most `KV_OF_WEIGHTS`.
    """
    steps: dict[float, float] = {}
    for s in signals:
        found = CONTEXT.match(s.scope)
        if found and s.value and s.name in ("client_tpot_mean_s", "client_itl_mean_s"):
            steps[float(found[1])] = s.value
    for end in ("short", "long"):
        tokens, step = facts.get(f"context_{end}_tokens"), facts.get(f"step_{end}_s")
        if tokens is not None and step:
            steps[tokens] = step
    if len(steps) < 2:
        return {}
    short, long = min(steps), max(steps)
    growth = steps[long] / steps[short]
    explained = (long - short) * _kv_of_weights(settings)
    if explained < SEEN_OF_CONTEXT and growth < 1.0 + SEEN_OF_CONTEXT:
        return {"context_growth_ratio": growth}
    return {
        "context_growth_ratio": growth,
        "context_slowdown_ratio": max(0.0, growth - 1.0) / max(explained, 0.01),
    }


SEEN_OF_CONTEXT = 0.1
"""Growth of a step below which two contexts tell nothing: the noise of such figures."""


def _kv_of_weights(settings: Mapping[str, str]) -> float:
    """Bytes of keys and values a token over those of the weights that a step reads."""
    try:
        shape = shape_of(settings)
    except WhyboundError:
        shape = None
    if shape is None:
        return KV_OF_WEIGHTS
    token, read = shape.kv_bytes(1000), shape.read_bytes(1)
    return token / 1000 / read if token and read else KV_OF_WEIGHTS
