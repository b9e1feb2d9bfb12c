"""What is believed of the parts of a pass before the run is seen, and the step cost of each hypothesis.

Known work anchors a part at its floor divided by the fraction of the peak that software reaches; without it
the part is anywhere between a hundredth of the fastest step seen and all of it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from .posterior import Prior
from .step_cost import StepCost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .posterior import Array
    from .work import Work

HOST_S = (0.8e-3, 1.0)
"""Median and log spread of an engine's host time a pass: 0.3 to 2 ms when healthy, 10 ms when starved."""

HOST_SEQUENCE_S = (6e-6, 1.2)
SEQUENCE_S = (2e-6, 1.0)
LAUNCH_S = {"yes": (0.3e-6, 1.2e-6), "no": (3e-6, 12e-6)}
"""Host seconds a kernel with and without captured graphs where the device is not known; per kernel."""

FLOOR_S = (1.5e-6, 4e-6)
LAUNCH_SPREAD = 0.8
"""Log spread of the host's time for all launches: a starved host launches several times slower."""

DISPATCH_SPREAD = 0.9
"""Log spread of what starting all operations of a pass takes on a CPU."""

ANY_KERNELS = (250.0, 1000.0)
ANY_LINK_S = (3e-4, 5e-3)
ANY_SPREAD = 0.4
"""Kernels and collectives of a pass of any model, from 16 to 80 layers, and the doubt that adds."""

FLOOR_SPREAD = 0.35
"""The same of what all kernels take at least."""

LINK_SPREAD = 1.0
"""The same of collectives: from a switch to a detour through host memory."""

LINK_SLOWER = 60.0
"""How many times slower than the device's own link the real path may be: PCIe through the host."""

RIDGE_TOKENS = (4.0, 500.0)
"""Ridge batch of anything from a CPU to a large GPU."""

EXPOSED = {"yes": (0.0, 0.2), "no": (0.75, 1.0)}
"""How much of the host's pass the device waits for, by whether scheduling is asynchronous."""


def priors(work: Work, fastest_s: float, texts: Mapping[str, str]) -> dict[str, Prior]:
    """The unknowns of the fit. Logarithms of seconds, but for fractions.

    Args:
        work: what is known of model and device.
        fastest_s: the fastest step seen, which no part of it exceeds by much.
        texts: `graphs_enabled`, `async_scheduling_enabled`: yes or no; absent is either.
    """
    low, _, high = work.bandwidth_fraction
    found = {
        "read": _log_uniform(*_read(work, fastest_s)),
        "ridge": _log_uniform(*(work.ridge_tokens or RIDGE_TOKENS)),
        "bandwidth": Prior(0.8 * low, min(1.02 * high, 1.25)),
        "kv_fraction": Prior(0.35, 1.0),
        "flops": Prior(work.flops_fraction[0], work.flops_fraction[2]),
        "sequence": _normal(*SEQUENCE_S),
        "host": _normal(*HOST_S),
        "host_sequence": _normal(*HOST_SEQUENCE_S),
        "exposed": Prior(*EXPOSED.get(texts.get("async_scheduling_enabled", ""), (0.0, 1.0))),
        "serial": Prior(0.0, 0.4),
        "small": Prior(0.0, 0.6),
        "logged": Prior(0.0, 1.0),
    }
    if work.kv_per_read is None:
        found["kv"] = _log_uniform(1e-8, 1e-3)
    found |= _kernel_priors(work, fastest_s, texts.get("graphs_enabled"))
    if work.gpus > 1:
        found["link"] = _normal(_middle(work.link_s or ANY_LINK_S), LINK_SPREAD)
        token = work.link_token_s or 1e-3 * fastest_s
        found["link_token"] = _log_uniform(token, LINK_SLOWER * token)
    return found


def _kernel_priors(work: Work, fastest_s: float, graphs: str | None) -> dict[str, Prior]:
    if not work.on_gpu and work.kernels and work.dispatch_s:
        # on a CPU an operation costs its dispatch, and in an engine several times what a bare loop measures
        started = _middle(work.kernels) * 2.0 * work.dispatch_s
        return {
            "launch": _normal(started, DISPATCH_SPREAD),
            "floor": _normal(started, DISPATCH_SPREAD),
        }
    if not work.on_gpu:
        wide = _log_uniform(0.01 * fastest_s, 1.05 * fastest_s)
        return {"launch": wide, "floor": wide}
    kernels, more = (work.kernels, 0.0) if work.kernels else (ANY_KERNELS, ANY_SPREAD)
    device = work.device
    eager = device.launch_eager_s if device else LAUNCH_S["no"]
    graph = device.launch_graph_s if device else LAUNCH_S["yes"]
    floor = device.kernel_floor_s if device else FLOOR_S
    # engines fuse what they can: near the lower count; launched one by one they are more
    few, many = 1.15 * kernels[0], math.sqrt(kernels[0] * kernels[1])
    if graphs == "yes":
        launch = _normal(few * _middle(graph), LAUNCH_SPREAD + more)
    elif graphs == "no":
        launch = _normal(many * _middle(eager), LAUNCH_SPREAD + more)
    else:
        launch = _log_uniform(few * graph[0], many * eager[1] * 2.0)
    return {"launch": launch, "floor": _normal(few * _middle(floor), FLOOR_SPREAD + more)}


def _middle(pair: tuple[float, float]) -> float:
    return math.sqrt(pair[0] * pair[1])


def _read(work: Work, fastest_s: float) -> tuple[float, float]:
    """Seconds at peak to read the weights: no step is faster than that."""
    if work.read_s is None:
        return 0.01 * fastest_s, 1.05 * fastest_s
    low, high = work.read_s
    if work.known:
        return low, high
    return low, max(1.01 * low, min(high, 1.1 * fastest_s))


def _normal(median: float, spread: float) -> Prior:
    return Prior(math.log(median), spread, normal=True)


def _log_uniform(low: float, high: float) -> Prior:
    return Prior(math.log(low), math.log(high))


def step_of(work: Work, points: Mapping[str, Array]) -> StepCost:
    """The step cost of each hypothesis."""
    read = np.exp(points["read"])
    reached = points["bandwidth"]
    expert = read * work.expert_per_read
    token = (read + expert) / np.exp(points["ridge"])
    each = np.exp(points["kv"]) if "kv" in points else work.kv_per_read or 0.0
    zero = np.zeros_like(read)
    return StepCost(
        weights_s=read / reached,
        expert_s=expert / reached,
        expert_touch=work.expert_touch,
        token_s=token / points["flops"],
        attention_ratio=work.attention_ratio,
        kv_s=read * each / (reached * points["kv_fraction"]),
        sequence_s=np.exp(points["sequence"]),
        floor_s=np.exp(points["floor"]),
        launch_s=np.exp(points["launch"]),
        host_s=np.exp(points["host"]),
        host_sequence_s=np.exp(points["host_sequence"]),
        link_s=np.exp(points["link"]) if "link" in points else zero,
        link_token_s=np.exp(points["link_token"]) if "link_token" in points else zero,
        exposed=points["exposed"],
        serial=points["serial"],
        small=points["small"],
    )
