"""What a pass of this model on this device costs at the device's peaks: the anchors of the fit.

From two things a person can name, the model and the GPU. Where one is not known its terms are None, and the
fit takes a wide prior instead; `missing` says what was lacking.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import WhyboundError
from ..rules.hardware import Device, find_device
from .devices import fitting, gpus_of, number
from .model_shape import shape_of
from .step_cost import Number, experts_touched

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .shapes.shape import Shape

MANY_TOKENS = 4096
"""A pass of so many tokens touches every expert of any mixture."""

COMPUTE_DTYPE = {"float32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16"}
"""A model's dtype → the number format of its arithmetic; bf16 else."""


ROOFS = "measured roofs"
"""Stands in `Work.devices` for a machine whose roofs were measured."""

Range = tuple[float, float]
"""Low and high."""

DOUBT = 1.05
"""Factor of doubt on a peak that a table states; a measured roof is a lower bound anyway."""


@dataclass(frozen=True)
class Work:
    """What one GPU's share of the model costs at peak rates; None where nothing is known of it.

    Attributes:
        gpus: that share each layer (tensor parallelism).
        read_s: seconds to read what a pass of one token reads, experts left out.
        ridge_tokens: tokens of a pass at which arithmetic takes as long as reading all weights.
        kv_per_read: seconds to read a token of context, over `read_s`. expert_per_read: the same for reading
            all experts. expert_touch: the share of them that one token touches.
        attention_ratio: arithmetic that a prompt token adds to a generated token's, as a share of it.
        kernels: launched a pass.
        link_s, link_token_s: collectives of a pass at their latencies; of one token at the link's peak.
        weight_bytes, kv_bytes_per_token: of one GPU.
        token_flops: of one generated token, on one GPU.
        bandwidth_fraction, flops_fraction: low, middle, high of the peaks that software reaches.
        devices: ids of the devices that it may be; one where it is named.
        dispatch_s: host seconds to start one operation on a CPU, where that was measured.
        missing: what would narrow it.
    """

    gpus: int
    shape: Shape | None
    device: Device | None
    read_s: Range | None = None
    ridge_tokens: Range | None = None
    kv_per_read: float | None = None
    expert_per_read: float = 0.0
    expert_touch: float = 0.0
    attention_ratio: float = 0.1
    kernels: Range | None = None
    link_s: Range | None = None
    link_token_s: float | None = None
    weight_bytes: float | None = None
    kv_bytes_per_token: float | None = None
    token_flops: float | None = None
    bandwidth_fraction: tuple[float, float, float] = (0.6, 0.78, 0.9)
    flops_fraction: tuple[float, float, float] = (0.27, 0.5, 0.8)
    devices: tuple[str, ...] = ()
    dispatch_s: float | None = None
    missing: tuple[str, ...] = ()

    @property
    def read_peak_s(self) -> float | None:
        """Middle of `read_s` where the device is known; None else."""
        return (
            None
            if self.read_s is None or not self.known
            else math.sqrt(self.read_s[0] * self.read_s[1])
        )

    @property
    def token_peak_s(self) -> float | None:
        """Arithmetic of one generated token at the peak, where model and device are known."""
        if self.read_peak_s is None or self.ridge_tokens is None:
            return None
        ridge = math.sqrt(self.ridge_tokens[0] * self.ridge_tokens[1])
        return self.read_peak_s * (1.0 + self.expert_per_read) / ridge

    def read_floor_s(self, batch: Number, context: Number) -> Number | None:
        """A decode pass that only reads, at the peak: weights once, KV of `context` tokens; None where unknown."""
        if self.read_peak_s is None or self.kv_per_read is None:
            return None
        experts = self.expert_per_read * experts_touched(self.expert_touch, batch)
        return self.read_peak_s * (1.0 + experts + self.kv_per_read * context)

    def prompt_floor_s(self, tokens: Number) -> Number | None:
        """The arithmetic of `tokens` of a prompt at the peak; None where model or device are not known."""
        if self.token_peak_s is None:
            return None
        return self.token_peak_s * (1.0 + self.attention_ratio) * tokens

    @property
    def on_gpu(self) -> bool:
        """Does it run on a GPU? A machine whose own roofs were measured counts as one only when named."""
        named = self.device is not None and self.device.kind != "cpu"
        return named or (bool(self.devices) and self.devices != (ROOFS,))

    @property
    def known(self) -> bool:
        """Are model and device both known, so that a floor can be stated?"""
        return self.shape is not None and len(self.devices) == 1


def work_of(settings: Mapping[str, str], input_tokens: float, context_tokens: float) -> Work:
    """The work of a run's engine, from its settings.

    A device that is not named is looked for among those whose memory fits what the engine holds.

    Args:
        settings: as they hold: model, dtype, quantization, tensor_parallel_size, gpu_name, model_config,
            roof_*…
        input_tokens: mean prompt, for the attention of prefill.
        context_tokens: mean context of a running sequence, for what attention reads.
    """
    try:
        shape = shape_of(settings)
    except WhyboundError:  # an impossible configuration is as good as none: the run is still judged
        shape = None
    if shape is not None and not shape.known:
        shape = None
    dtype = _format(shape, settings)
    roofs = _roofs(settings, dtype)
    device = find_device(settings["gpu_name"]) if settings.get("gpu_name") else None
    whole = _terms(shape, 1, input_tokens, context_tokens)
    gpus, told = gpus_of(settings, whole, device)
    terms = _terms(shape, gpus, input_tokens, context_tokens)
    candidates = [device] if device else [] if roofs else fitting(settings, terms)
    missing = []
    if gpus > 1 and not told:
        missing.append(f"how many GPUs share a layer ({gpus} were taken for it)")
    if "read_bytes" not in terms:
        missing.append("the model's configuration (its parameters and KV bytes a token)")
    if not device and not roofs:
        missing.append("the device (its memory bandwidth and peak arithmetic)")
    fast = roofs or (_fastest(candidates, dtype) if candidates else None)
    kept = {k: v for k, v in terms.items() if k not in {"read_bytes", "all_bytes"}}
    bandwidth = (0.5, 0.85, 1.2) if roofs else _bandwidth(device)
    flops = (0.3, 0.8, 1.3) if roofs else _flops(device, dtype)
    return Work(
        gpus=gpus, shape=shape, device=device, read_s=_read_s(terms, fast), ridge_tokens=_ridge(terms, fast),
        bandwidth_fraction=bandwidth, flops_fraction=flops, kernels=_kernels(shape),
        link_s=_link_s(shape, gpus), link_token_s=_link_token_s(shape, gpus, device),
        devices=(ROOFS,) if roofs else tuple(d.id for d in candidates),
        dispatch_s=number(settings, "roof_launch_s"), missing=tuple(missing), **kept,
    )  # fmt: skip


@dataclass(frozen=True)
class _Peaks:
    """Bytes and FLOPs a second at most, and FLOPs a byte, low and high over what it may be."""

    bytes_per_s: Range
    flops_per_byte: Range


def _roofs(settings: Mapping[str, str], dtype: str) -> _Peaks | None:
    """What was measured on this machine; None unless both roofs were."""
    read, flops = (
        number(settings, "roof_read_bytes_per_s"),
        number(settings, f"roof_{dtype}_flops"),
    )
    if read is None or flops is None or not (1e6 < read < 1e15 and 1e6 < flops < 1e18):
        return None  # no machine: a slip in a unit is no roof
    return _Peaks((read / DOUBT, read * DOUBT), (flops / read / DOUBT, flops / read * DOUBT))


def _fastest(candidates: Sequence[Device], dtype: str) -> _Peaks:
    read = [d.bandwidth_bytes_per_s for d in candidates]
    ridge = [_dense(d, dtype) / d.bandwidth_bytes_per_s for d in candidates]
    return _Peaks((min(read) / DOUBT, max(read) * DOUBT), (min(ridge) / DOUBT, max(ridge) * DOUBT))


def _read_s(terms: Mapping[str, float], fast: _Peaks | None) -> Range | None:
    if fast is None or "read_bytes" not in terms:
        return None
    return terms["read_bytes"] / fast.bytes_per_s[1], terms["read_bytes"] / fast.bytes_per_s[0]


def _ridge(terms: Mapping[str, float], fast: _Peaks | None) -> Range | None:
    """Tokens: FLOPs a byte that the device can do, times bytes a FLOP that the model needs.

    A model that is not known has two bytes a weight and two FLOPs.
    """
    if fast is None:
        return None
    known = "all_bytes" in terms and "token_flops" in terms
    each = terms["all_bytes"] / terms["token_flops"] if known else 1.0
    return fast.flops_per_byte[0] * each, fast.flops_per_byte[1] * each


def _format(shape: Shape | None, settings: Mapping[str, str]) -> str:
    """The number format of the arithmetic: eight bits only where weights and activations both are."""
    method = (shape.quantization.method if shape and shape.quantization else "").lower()
    method = method or settings.get("quantization", "").lower()
    if "fp8" in method or "w8a8" in method:
        return "fp8"
    dtype = (settings.get("dtype") or (shape.dtype if shape else "")).replace("torch.", "").lower()
    return COMPUTE_DTYPE.get(dtype, "bf16")


def _dense(device: Device, dtype: str) -> float:
    peaks: Mapping[str, float] = {str(k): v for k, v in device.dense_flops.items()}
    for name in (dtype, "bf16", "fp16", "fp32"):
        if name in peaks:
            return peaks[name]
    return max(peaks.values())


def _terms(
    shape: Shape | None, gpus: int, input_tokens: float, context_tokens: float
) -> dict[str, float]:
    """What follows from the model's shape alone, of one GPU's share."""
    terms: dict[str, float] = {}
    if shape is None:
        return terms
    flops, head = shape.flops_per_token, shape.head_flops or 0
    prompt, context = max(1, round(input_tokens)), max(1, round(context_tokens))
    attention, held = shape.prefill_attention_flops(prompt), shape.kv_bytes(context)
    if flops and attention is not None:
        terms["token_flops"] = (flops + head) / gpus
        terms["attention_ratio"] = (attention / prompt - head) / (flops + head)
    if shape.weight_bytes:
        terms["weight_bytes"] = shape.weight_bytes / gpus
    split = kv_split(shape, gpus)
    if held is not None:
        terms["kv_bytes_per_token"] = held / context / split
    one, all_ = shape.read_bytes(1), shape.read_bytes(MANY_TOKENS)
    if one is None or all_ is None:
        return terms
    experts = shape.experts or 0
    touch = (shape.experts_per_token or 0) / experts if experts else 0.0
    expert = (all_ - one) / (1.0 - touch) if touch else 0.0
    dense = one - expert * touch
    terms |= {"read_bytes": dense / gpus, "all_bytes": all_ / gpus, "expert_touch": touch}
    terms["expert_per_read"] = expert / dense
    if held is not None:
        terms["kv_per_read"] = held / context / dense * gpus / split
    return terms


def kv_split(shape: Shape, gpus: int) -> int:
    """Over how many GPUs the KV cache is divided: at most one a KV head, and a latent cache is on every GPU."""
    if shape.kv_lora_rank:
        return 1
    return max(1, min(gpus, shape.kv_heads or gpus))


def _kernels(shape: Shape | None) -> Range | None:
    if shape is None or shape.kernels_per_layer is None or not shape.layers:
        return None
    low, high = shape.kernels_per_layer
    return low * shape.layers + 4, high * shape.layers + 10


def _bandwidth(device: Device | None) -> tuple[float, float, float]:
    return device.achievable_bandwidth if device else (0.6, 0.78, 0.9)


def _flops(device: Device | None, dtype: str) -> tuple[float, float, float]:
    """What matrix shapes of inference reach: below what the best matrix multiplication does."""
    fractions = {str(k): v for k, v in device.achievable_flops.items()} if device else {}
    _, mid, high = fractions.get(dtype, (0.35, 0.6, 0.8))
    return 0.45 * mid, 0.8 * mid, high


def _link_s(shape: Shape | None, gpus: int) -> Range | None:
    """Two all-reduces a layer, each at least its latency: 4 µs over a switch, 40 µs through host memory."""
    if gpus < 2 or shape is None or not shape.layers:
        return None
    return 2 * shape.layers * 4e-6, 2 * shape.layers * 40e-6


def _link_token_s(shape: Shape | None, gpus: int, device: Device | None) -> float | None:
    """Ring: 2 (n − 1) / n · hidden · 2 bytes, twice a layer, at the device's own link."""
    if gpus < 2 or shape is None or not shape.layers or not shape.hidden:
        return None
    link = device.link[1] if device and device.link else None
    if link is None:
        return None
    return 2 * shape.layers * 2 * (gpus - 1) / gpus * shape.hidden * 2 / link
