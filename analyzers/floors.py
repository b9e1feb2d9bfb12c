"""What the work must cost at least: bytes over bandwidth, FLOPs over peak, messages over links.

Every function is pure and in SI units. A floor is a `Range`: its `low` is at the highest efficiency
that software reaches, its `high` at the lowest. Without an efficiency all three are the bare roof.
Nothing can be faster than `low`; where something measured is, the roof is wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import WhyboundError
from .checked import at_least, positive, share


@dataclass(frozen=True)
class Range:
    """Three values of one quantity, low <= mid <= high.

    Raises:
        WhyboundError: they are not in order, or one is not a number.
    """

    low: float
    mid: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.mid <= self.high:
            raise WhyboundError(
                f"range {self.low:g}, {self.mid:g}, {self.high:g}: give low <= middle <= high"
            )

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.mid + other.mid, self.high + other.high)


BARE = Range(1.0, 1.0, 1.0)
"""The whole of a roof: what no software reaches."""


def over(seconds: float, efficiency: Range) -> Range:
    """Seconds at the bare roof as seconds at an efficiency (each in 0..1, above 0)."""
    positive("efficiency", efficiency.low)
    share("efficiency", efficiency.high)
    return Range(seconds / efficiency.high, seconds / efficiency.mid, seconds / efficiency.low)


# ---------------------------------------------------------------- sizes


def kv_bytes_per_token(
    layers: int, kv_heads: int, head_dim: int, bytes_per_value: float = 2.0
) -> float:
    """Bytes of KV cache a token: keys and values of every layer (not for latent attention)."""
    positive("layers", layers)
    positive("KV heads", kv_heads)
    positive("head dimension", head_dim)
    return 2.0 * layers * kv_heads * head_dim * positive("bytes a value", bytes_per_value)


def experts_touched_share(experts: int, top_k: int, tokens: float) -> float:
    """Share (0..1) of a layer's experts that a pass of `tokens` reads: 1 − (1 − top_k / experts)^tokens.

    Uniform, independent routing; skew lowers it, so it is a mean and not a bound.
    """
    positive("experts", experts)
    positive("experts a token", top_k)
    at_least("tokens", tokens, 0)
    if top_k > experts:
        raise WhyboundError(f"experts a token is {top_k}: give at most the {experts} experts")
    return 1.0 - math.pow(1.0 - top_k / experts, tokens)


def weight_bytes_read(
    shared_bytes: float, expert_bytes: float = 0.0, *, experts: int = 1, top_k: int = 1,
    tokens: float = 1.0,
) -> float:  # fmt: skip
    """Bytes of weights that one pass reads.

    Args:
        shared_bytes: what every pass reads: attention, dense layers, shared experts, the head.
        expert_bytes: all routed experts together; 0 for a dense model.
        experts: routed experts a layer.
        top_k: of which each token takes so many.
        tokens: in the pass.
    """
    at_least("shared weight bytes", shared_bytes, 0)
    at_least("expert weight bytes", expert_bytes, 0)
    return shared_bytes + expert_bytes * experts_touched_share(experts, top_k, tokens)


def prefill_flops(
    active_params: float, tokens: float, *, cached_tokens: float = 0.0, layers: int = 0,
    heads: int = 0, head_dim: int = 0,
) -> float:  # fmt: skip
    """FLOPs to prefill a prompt: 2 · params · new tokens, plus causal attention 2 · L · H · D · (n² − c²).

    Args:
        active_params: that a token passes through; for a mixture of experts those it activates.
        tokens: of the whole prompt, n.
        cached_tokens: of its prefix that are in the cache already, c; at most n.
        layers: L; 0 leaves attention out.
        heads: H, those of the queries.
        head_dim: D.
    """
    positive("active parameters", active_params)
    at_least("tokens", tokens, 0)
    at_least("cached tokens", cached_tokens, 0)
    if cached_tokens > tokens:
        raise WhyboundError(
            f"cached tokens is {cached_tokens:g}: give at most the {tokens:g} tokens"
        )
    attention = 2.0 * layers * heads * head_dim * (tokens**2 - cached_tokens**2)
    return 2.0 * active_params * (tokens - cached_tokens) + attention


# ---------------------------------------------------------------- one pass


def decode_floor_s(
    weight_bytes: float, kv_token_bytes: float, context_tokens: float, bandwidth_bytes_per_s: float,
    *, devices: int = 1, efficiency: Range = BARE,
) -> Range:  # fmt: skip
    """Seconds of a decode pass that only reads: (weights + KV a token · context) / (devices · bandwidth).

    Args:
        weight_bytes: that the pass reads, over all devices; see `weight_bytes_read`.
        kv_token_bytes: KV cache a token, over all devices.
        context_tokens: summed over the batch.
        bandwidth_bytes_per_s: of one device.
        devices: that share the read (tensor parallelism).
        efficiency: fractions of the bandwidth that are reached.
    """
    positive("weight bytes", weight_bytes)
    at_least("KV bytes a token", kv_token_bytes, 0)
    at_least("context tokens", context_tokens, 0)
    positive("devices", devices)
    total = weight_bytes + kv_token_bytes * context_tokens
    return over(total / (devices * positive("bandwidth", bandwidth_bytes_per_s)), efficiency)


def compute_floor_s(
    flops: float, peak_flops: float, *, devices: int = 1, efficiency: Range = BARE
) -> Range:
    """Seconds of `flops` at the peak of `devices`; a prefill's floor with `prefill_flops`."""
    at_least("FLOPs", flops, 0)
    positive("devices", devices)
    return over(flops / (devices * positive("peak FLOP/s", peak_flops)), efficiency)


def roofline_s(memory: Range, compute: Range) -> Range:
    """Seconds of work that reads and computes at once: the longer of the two, end by end."""
    return Range(
        max(memory.low, compute.low), max(memory.mid, compute.mid), max(memory.high, compute.high)
    )


def launch_floor_s(kernels: int, launch_s: tuple[float, float]) -> Range:
    """Seconds for the host to launch `kernels`, each costing low..high seconds; the middle is geometric."""
    at_least("kernels", kernels, 0)
    low, high = positive("launch cost", launch_s[0]), positive("launch cost", launch_s[1])
    return Range(kernels * low, kernels * math.sqrt(low * high), kernels * high)


def ridge_batch(peak_flops: float, bandwidth_bytes_per_s: float, bytes_per_param: float) -> float:
    """Tokens a pass at which a weight's 2 FLOPs a token take as long as reading it: F / BW · bytes / 2.

    For a mixture of experts multiply by experts / top_k. Give achievable figures for both, or neither.
    """
    peak = positive("peak FLOP/s", peak_flops)
    bandwidth = positive("bandwidth", bandwidth_bytes_per_s)
    return peak / bandwidth * positive("bytes a parameter", bytes_per_param) / 2.0


# ---------------------------------------------------------------- the KV cache


def kv_slots(
    memory_bytes: float, used_share: float, weight_bytes: float, activation_bytes: float,
    kv_token_bytes: float, context_tokens: float,
) -> float:  # fmt: skip
    """Sequences of `context_tokens` that fit: (memory · share − weights − activations) / (KV · context).

    All bytes a device. 0 when the weights leave no room.
    """
    positive("memory bytes", memory_bytes)
    at_least("weight bytes", weight_bytes, 0)
    at_least("activation bytes", activation_bytes, 0)
    room = memory_bytes * share("used share", used_share) - weight_bytes - activation_bytes
    one = positive("KV bytes a token", kv_token_bytes) * positive("context tokens", context_tokens)
    return max(room, 0.0) / one


def transfer_s(
    size_bytes: float, link_bytes_per_s: float, *, latency_s: float = 0.0, efficiency: Range = BARE
) -> Range:
    """Seconds to move `size_bytes` one way, such as the KV cache of a prompt between two servers."""
    at_least("bytes", size_bytes, 0)
    at_least("latency", latency_s, 0)
    moved = over(size_bytes / positive("link bandwidth", link_bytes_per_s), efficiency)
    return moved + Range(latency_s, latency_s, latency_s)


def offload_gain(
    kv_token_bytes: float, link_bytes_per_s: float, active_params: float, flops_per_s: float
) -> float:
    """How many times cheaper it is to fetch a token's KV than to compute it again; break-even at 1.

    (2 · params / FLOP/s) / (KV bytes / link). Attention is left out: it makes fetching better still.
    """
    fetch = positive("KV bytes a token", kv_token_bytes) / positive("link", link_bytes_per_s)
    again = 2.0 * positive("active parameters", active_params) / positive("FLOP/s", flops_per_s)
    return again / fetch


# ---------------------------------------------------------------- several devices


def ring_all_reduce_s(
    size_bytes: float, devices: int, link_bytes_per_s: float, *, latency_s: float = 0.0,
    efficiency: Range = BARE,
) -> Range:  # fmt: skip
    """Seconds of an all-reduce in a ring: 2 (n − 1) / n · bytes / link + 2 (n − 1) latencies.

    `link_bytes_per_s` is per direction; `latency_s` that of one hop. One device: nothing.
    """
    hops = 2 * (at_least("devices", devices, 1) - 1)
    return transfer_s(
        hops / devices * size_bytes, link_bytes_per_s,
        latency_s=hops * at_least("latency", latency_s, 0), efficiency=efficiency,
    )  # fmt: skip


def tree_all_reduce_s(
    size_bytes: float, devices: int, link_bytes_per_s: float, *, latency_s: float = 0.0,
    efficiency: Range = BARE,
) -> Range:  # fmt: skip
    """As `ring_all_reduce_s` in a pipelined double tree: the same bytes, 2 ⌈log2 n⌉ latencies."""
    n = at_least("devices", devices, 1)
    hops = 2 * math.ceil(math.log2(n))
    return transfer_s(
        2 * (n - 1) / n * size_bytes, link_bytes_per_s,
        latency_s=hops * at_least("latency", latency_s, 0), efficiency=efficiency,
    )  # fmt: skip


def all_to_all_s(
    tokens: float, top_k: int, hidden: int, bytes_per_value: float, devices: int,
    link_bytes_per_s: float, *, latency_s: float = 0.0, imbalance: float = 1.0,
    efficiency: Range = BARE,
) -> Range:  # fmt: skip
    """Seconds of one expert-parallel exchange; a mixture-of-experts layer has two (there and back).

    Args:
        tokens: that each device sends.
        top_k: experts a token.
        hidden: values a token.
        bytes_per_value: on the wire.
        devices: n; a share (n − 1) / n of the tokens leaves its device.
        link_bytes_per_s: a device, per direction.
        latency_s: once.
        imbalance: load of the busiest device over the mean, at least 1.
        efficiency: fractions of the link that are reached.
    """
    at_least("tokens", tokens, 0)
    positive("experts a token", top_k)
    positive("hidden size", hidden)
    positive("bytes a value", bytes_per_value)
    n = at_least("devices", devices, 1)
    leaves = tokens * top_k * hidden * bytes_per_value * (n - 1) / n
    return transfer_s(
        leaves * at_least("imbalance", imbalance, 1), link_bytes_per_s,
        latency_s=latency_s if n > 1 else 0.0, efficiency=efficiency,
    )  # fmt: skip
