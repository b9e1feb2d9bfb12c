"""What one pass of the engine costs: T(batch, prompt tokens, context) as parts and their ceilings.

    T      = max(device, host) + exposed · min(device, host)
    host   = host_s + host_sequence_s · batch
    device = max(gpu, launch_s)
    gpu    = max(kernels, floor_s) + small · min(kernels, floor_s) + link_s + link_token_s · tokens
    kernels = max(weights, arithmetic) + serial · min(weights, arithmetic) + kv_s · context + sequence_s · batch

with tokens = batch · (1 + draft) + prompt tokens, arithmetic = token_s · (tokens + attention · prompt tokens)
and weights = weights_s + expert_s · (1 − (1 − expert_touch)^tokens): a pass of T tokens touches that share of
a mixture's experts under uniform routing. A roofline with partial overlap, the larger term and a part
`serial` of the smaller; the same between host and device.

Every field is a float or a numpy array; arrays broadcast, one element a hypothesis (`fit`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Number = Any
"""A float, or an array of float64 of one hypothesis an element."""

PARTS = ("weights", "kv", "compute", "floor", "link", "launch", "host", "other")
"""What can be the ceiling of a pass; `other` is device time a sequence that no axis improves."""


@dataclass(frozen=True)
class StepCost:
    """Seconds of the parts of a pass; see the module for the form.

    Attributes:
        weights_s: to read what every pass reads of the weights.
        expert_s, expert_touch: to read all experts, and the share of them that one token touches, 0..1.
        token_s: arithmetic of one token. attention_ratio: what attention adds to it for a prompt token.
        kv_s: to read the keys and values of one token of context.
        sequence_s: device time of a sequence outside the model: sampling, batch upkeep.
        floor_s: the shortest that all kernels of a pass can be.
        launch_s: host time to launch them.
        host_s, host_sequence_s: host time of a pass beside launches, and of each sequence in it.
        link_s, link_token_s: collectives of a pass, and of each token in it.
        exposed: part of the smaller of host and device that the other does not hide, 0..1.
        serial: the same of weights and arithmetic. small: the same of large kernels and those at their floor.
        draft_tokens: speculated tokens that are verified with each one; `tokens_per_pass` of them stay.
    """

    weights_s: Number = 0.0
    expert_s: Number = 0.0
    expert_touch: Number = 0.0
    token_s: Number = 0.0
    attention_ratio: Number = 0.0
    kv_s: Number = 0.0
    sequence_s: Number = 0.0
    floor_s: Number = 0.0
    launch_s: Number = 0.0
    host_s: Number = 0.0
    host_sequence_s: Number = 0.0
    link_s: Number = 0.0
    link_token_s: Number = 0.0
    exposed: Number = 0.0
    serial: Number = 0.0
    small: Number = 0.0
    draft_tokens: Number = 0.0
    tokens_per_pass: Number = 1.0

    def take(self, index: NDArray[np.intp]) -> StepCost:
        """The hypotheses at these places."""
        return StepCost(**{f.name: _at(getattr(self, f.name), index) for f in fields(self)})


def _at(value: Number, index: NDArray[np.intp]) -> Number:
    return value[index] if isinstance(value, np.ndarray) and value.ndim else value


def affine(base_s: Number, per_sequence_s: Number, per_prompt_token_s: Number) -> StepCost:
    """T = base + per_sequence · batch + per_prompt_token · prompt tokens: what no hardware is known of."""
    return StepCost(
        weights_s=base_s,
        token_s=per_prompt_token_s,
        sequence_s=per_sequence_s - per_prompt_token_s,
        serial=1.0,
    )


@dataclass(frozen=True)
class Pass:
    """The terms of one pass, seconds."""

    weights: Number
    compute: Number
    kv: Number
    other: Number
    floor: Number
    link: Number
    launch: Number
    host: Number
    kernels: Number
    gpu: Number
    total: Number


def pass_cost(cost: StepCost, batch: Number, prompt_tokens: Number, context: Number) -> Pass:
    """The terms of a pass that decodes `batch` sequences over `context` tokens in all and computes a prompt.

    Args:
        cost: the step's parameters.
        batch: decoding sequences, ≥ 0.
        prompt_tokens: of prompts, ≥ 0.
        context: cached tokens that decoding sequences attend to, summed over them.
    """
    tokens = batch * (1.0 + cost.draft_tokens) + prompt_tokens
    touched = experts_touched(cost.expert_touch, tokens)
    weights = cost.weights_s + cost.expert_s * touched
    compute = cost.token_s * (tokens + cost.attention_ratio * prompt_tokens)
    kv = cost.kv_s * context
    other = cost.sequence_s * batch
    least = np.minimum(weights, compute)
    kernels = np.maximum(weights, compute) + cost.serial * least + kv + other
    link = cost.link_s + cost.link_token_s * tokens
    gpu = np.maximum(kernels, cost.floor_s) + cost.small * np.minimum(kernels, cost.floor_s) + link
    device = np.maximum(gpu, cost.launch_s)
    host = cost.host_s + cost.host_sequence_s * batch
    total = np.maximum(device, host) + cost.exposed * np.minimum(device, host)
    return Pass(
        weights, compute, kv, other, cost.floor_s, link, cost.launch_s, host, kernels, gpu, total
    )


def experts_touched(touch: Number, tokens: Number) -> Number:
    """Share (0..1) of a mixture's experts that a pass of `tokens` reads when one token touches `touch` of them."""
    return 1.0 - np.power(1.0 - touch, tokens)


def step_s(cost: StepCost, batch: Number, prompt_tokens: Number, context: Number) -> Number:
    """Seconds of a pass; see `pass_cost`."""
    return pass_cost(cost, batch, prompt_tokens, context).total


def shares(cost: StepCost, batch: Number, prompt_tokens: Number, context: Number) -> dict[str, Any]:
    """The share of a pass for which each part is the ceiling; they sum to 1.

    The larger of two that overlap counts whole, the smaller as far as it is exposed.
    """
    p = pass_cost(cost, batch, prompt_tokens, context)
    memory_first = p.weights >= p.compute
    in_kernels = {
        "weights": np.where(memory_first, p.weights, cost.serial * p.weights),
        "compute": np.where(memory_first, cost.serial * p.compute, p.compute),
        "kv": p.kv,
        "other": p.other,
    }
    filled = p.kernels >= cost.floor_s
    launched = p.gpu >= cost.launch_s
    device = np.maximum(p.gpu, cost.launch_s)
    device_first = device >= p.host
    on_device = np.where(device_first, 1.0, cost.exposed)
    on_gpu = on_device * launched
    seconds = {n: v * np.where(filled, 1.0, cost.small) * on_gpu for n, v in in_kernels.items()}
    seconds["floor"] = cost.floor_s * np.where(filled, cost.small, 1.0) * on_gpu
    seconds["link"] = p.link * on_gpu
    seconds["launch"] = np.where(launched, 0.0, cost.launch_s) * on_device
    seconds["host"] = p.host * np.where(device_first, cost.exposed, 1.0)
    whole = np.maximum(p.total, 1e-12)
    return {name: seconds[name] / whole for name in PARTS}
