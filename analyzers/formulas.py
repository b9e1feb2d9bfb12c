"""What a change would give: gains as times, by formula, from shares and ratios.

A gain is the time before over the time after: 1 changes nothing, below 1 harms. These are bounds on
one request's own time: no queue shrinks here and no other ceiling is met; `counterfactual` does that.
"""

from __future__ import annotations

import math
from typing import Literal

from ..errors import WhyboundError
from .checked import at_least, positive, share


def amdahl(p: float, s: float) -> float:
    """1 / ((1 − p) + p / s): the gain when a share p of the time becomes s times faster (Amdahl 1967).

    Args:
        p: share of the time, 0..1.
        s: times faster, above 0; below 1 it became slower, infinity takes the part away.

    Returns:
        Above 0; infinite when all of the time is taken away.

    Raises:
        WhyboundError: p is not a share or s not above 0; so in every function here.
    """
    share("p, the share of the time,", p)
    rest = (1.0 - p) + p / positive("s, how many times faster,", s, infinite=True)
    return 1.0 / rest if rest > 0 else math.inf


def decode_floor_gain(p: float, measured_s: float, floor_s: float) -> float:
    """Gain when decode, a share p of the time, comes down to its floor: Amdahl with s = measured / floor.

    It bounds every lever on decode together; one lever gives a part of it. A floor above what was
    measured gives 1: that roof is wrong, and the caller should say so.
    """
    return _to_floor(p, measured_s, floor_s)


def prefill_floor_gain(p: float, measured_s: float, floor_s: float) -> float:
    """As `decode_floor_gain`, for prefill and its FLOPs over the peak."""
    return _to_floor(p, measured_s, floor_s)


def _to_floor(p: float, measured_s: float, floor_s: float) -> float:
    return amdahl(p, max(positive("measured time", measured_s) / positive("floor", floor_s), 1.0))


def quantization_gain(
    p: float, bound: Literal["memory", "compute"], *, bytes_ratio: float, flops_ratio: float,
    kernel_efficiency: float = 1.0,
) -> float:  # fmt: skip
    """Gain of fewer bits: by bytes where memory binds, by FLOP/s where compute does.

    Args:
        p: share of the time in the kernels that change.
        bound: what binds them now.
        bytes_ratio: bytes read before over after; 2 for 16 to 8 bits, less where only weights shrink.
        flops_ratio: peak FLOP/s after over before; 1 where the arithmetic stays (weights only).
        kernel_efficiency: of the new kernels against the old ones, above 0; 0.26 to 0.95 were
            measured for 4-bit weights (arXiv 2605.30571).
    """
    ratio = {
        "memory": positive("ratio of bytes", bytes_ratio),
        "compute": positive("ratio of FLOP/s", flops_ratio),
    }
    if bound not in ratio:
        raise WhyboundError(f"bound is {bound!r}: give 'memory' or 'compute'")
    return amdahl(p, ratio[bound] * positive("kernel efficiency", kernel_efficiency))


def batching_gain(current: float, target: float, ridge: float) -> float:
    """Throughput gained by a larger batch: min(target, ridge) / current, and 1 where the ridge is passed.

    Args:
        current: sequences a pass now.
        target: sequences a pass then; fewer than now lose.
        ridge: sequences at which arithmetic takes as long as reading the weights; see `ridge_batch`.
    """
    now = positive("current batch", current)
    more = positive("target batch", target) / now
    return min(more, max(positive("ridge batch", ridge) / now, 1.0))


def fusion_gain(p: float, passes_before: float, passes_after: float) -> float:
    """Gain of fusing memory-bound operators, a share p of the time: passes over memory before / after."""
    before = positive("passes before", passes_before)
    return amdahl(p, before / positive("passes after", passes_after))


def cuda_graph_gain(launch_total_s: float, step_s: float, replay_total_s: float = 0.0) -> float:
    """Gain of replaying a step as a graph: launching's share of the step, Amdahl.

    Args:
        launch_total_s: seconds of the step in which the device waits for launches, not hidden behind
            kernels; at most the step.
        step_s: of the whole step.
        replay_total_s: what launching the graph costs; 0 bounds it.
    """
    at_least("launch time", launch_total_s, 0)
    at_least("replay time", replay_total_s, 0)
    if launch_total_s > positive("step time", step_s):
        raise WhyboundError(
            f"launch time is {launch_total_s:g} s in a step of {step_s:g} s: give only launches that"
            " are not hidden"
        )
    if launch_total_s == 0:
        return 1.0
    faster = launch_total_s / replay_total_s if replay_total_s else math.inf
    return amdahl(launch_total_s / step_s, faster)


# ---------------------------------------------------------------- beyond the seven


def speculative_tokens(acceptance: float, drafted: int) -> float:
    """Tokens a verification yields: (1 − α^(g+1)) / (1 − α), in 1..g + 1 (Leviathan et al. 2023).

    Args:
        acceptance: α, chance that a drafted token is accepted, independently; 0..1.
        drafted: g, tokens drafted a verification, at least 0.
    """
    a = share("acceptance", acceptance)
    g = at_least("drafted tokens", drafted, 0)
    # As a sum: the closed form loses its digits near α = 1.
    return math.fsum(a**k for k in range(int(g) + 1))


def speculative_gain(
    acceptance: float, drafted: int, draft_cost: float, verify_cost: float
) -> float:
    """Gain in time a token: E[tokens] / (g · c + v).

    Args:
        acceptance: α, 0..1.
        drafted: g.
        draft_cost: c, seconds of one draft step over those of one decode step of the target.
        verify_cost: v, a pass over batch · (g + 1) tokens over one of batch tokens; 1 far below the
            ridge, up to g + 1 above it.
    """
    cost = drafted * at_least("draft cost", draft_cost, 0) + positive("verify cost", verify_cost)
    return speculative_tokens(acceptance, drafted) / cost


def speculation_harms(
    acceptance: float, drafted: int, draft_cost: float, verify_cost: float
) -> bool:
    """Does speculating slow the server? Where v > E[tokens] − g · c."""
    return speculative_gain(acceptance, drafted, draft_cost, verify_cost) < 1.0


def tensor_parallel_gain(
    device_s: float, devices: int, all_reduce_s: float, host_s: float = 0.0
) -> float:
    """Gain of splitting a step over n devices: (device + host) / (device / n + all-reduces + host).

    Args:
        device_s: seconds of the step on one device.
        devices: n, at least 1.
        all_reduce_s: of all all-reduces of the step (two a layer); not counted for one device.
        host_s: seconds of the step that no device shortens, not overlapped.
    """
    at_least("host time", host_s, 0)
    at_least("all-reduce time", all_reduce_s, 0)
    n = at_least("devices", devices, 1)
    before = positive("device time", device_s) + host_s
    return before / (device_s / n + (all_reduce_s if n > 1 else 0.0) + host_s)


def prefix_cache_gain(
    ttft_s: float, hit_share: float, input_tokens: float, prefill_s_per_token: float,
    lookup_s: float = 0.0,
) -> float:  # fmt: skip
    """Gain in TTFT when a share of the prompt's tokens is found: TTFT / (TTFT − h · i · t + lookup).

    The queue behind other prefills shrinks as well, which is not in it.

    Args:
        ttft_s: now.
        hit_share: share of the input tokens that will be found and are not now, 0..1.
        input_tokens: of the prompt.
        prefill_s_per_token: seconds; the saving cannot exceed the TTFT.
        lookup_s: what finding them costs.
    """
    saved = share("hit share", hit_share) * at_least("input tokens", input_tokens, 0)
    saved *= at_least("prefill seconds a token", prefill_s_per_token, 0)
    after = positive("TTFT", ttft_s) - saved + at_least("lookup time", lookup_s, 0)
    if saved > ttft_s:
        raise WhyboundError(
            f"saved prefill is {saved:g} s of a TTFT of {ttft_s:g} s: give the prefill time a token"
            " of this server"
        )
    return ttft_s / after if after > 0 else math.inf


def async_scheduling_gain(device_s: float, host_s: float) -> float:
    """Gain of preparing the next step while the device works: (device + host) / max of both, at most 2."""
    device, host = positive("device time", device_s), at_least("host time", host_s, 0)
    return (device + host) / max(device, host)
