"""Which GPUs serve, where nobody says: those whose memory fits the weights and the KV cache that are held."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..rules.hardware import load_devices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..rules.hardware import Device

HELD = 0.9
"""Share of a GPU's memory that an engine takes for weights and KV cache when it does not say."""

SAME_MEMORY = 1.2
"""Factor within which a device's memory fits what an engine was seen to hold."""

MOST_GPUS = 1024

SIGNS_OF_A_GPU = ("device", "gpus_seen", "gpu_count", "gpu_memory_utilization", "cudagraph_mode")
"""Settings of which one at least must be there for a GPU to be assumed of a model that nobody named."""


def number(settings: Mapping[str, str], key: str) -> float | None:
    """A setting that is a finite number above 0; None for anything else."""
    try:
        value = float(settings[key])
    except (KeyError, ValueError):
        return None
    return value if 0 < value < math.inf else None


def gpus_of(
    settings: Mapping[str, str], whole: Mapping[str, float], device: Device | None
) -> tuple[int, bool]:
    """How many GPUs share each layer, and whether it was told.

    Where it was not: one if weights and KV cache fit on one, else all that were seen, else as few as hold them.

    Args:
        settings: as they hold; `gpus_seen` are those that were sampled.
        whole: bytes of the whole model, `weight_bytes` and `kv_bytes_per_token`, where they are known.
        device: the GPU, where it is known.
    """
    for key in ("tensor_parallel_size", "tp_size", "tp"):
        value = number(settings, key)
        if value:
            return max(1, min(int(value), MOST_GPUS)), True
    bytes_held = held(settings, whole)
    if bytes_held is None:
        return 1, False
    sizes = [device.memory_bytes] if device else [d.memory_bytes for d in _gpus()]
    most = SAME_MEMORY * max(sizes)
    seen = number(settings, "gpus_seen") or number(settings, "gpu_count") or 1.0
    near = [s for s in sizes if 1 / SAME_MEMORY <= bytes_held / seen / s <= SAME_MEMORY]
    if bytes_held <= most and not (seen > 1 and near and _told(settings)):
        return 1, False
    if seen > 1:
        return int(seen), False
    n = 2
    while n < MOST_GPUS and bytes_held / n > most:
        n *= 2
    return n, False


def fitting(settings: Mapping[str, str], share: Mapping[str, float]) -> list[Device]:
    """GPUs whose memory is what one GPU's weights and KV cache take of it; all GPUs where that is not known.

    None where nothing at all speaks of a GPU: then a step may cost anything, and the fit says what it can.
    """
    if settings.get("device", "cuda") not in ("cuda", "auto", ""):
        return []
    if not share and not any(key in settings for key in SIGNS_OF_A_GPU):
        return []
    bytes_held = held(settings, share) if _told(settings) else None
    if bytes_held is None:
        return _gpus()
    near = [d for d in _gpus() if 1 / SAME_MEMORY <= bytes_held / d.memory_bytes <= SAME_MEMORY]
    return near or _gpus()


def held(settings: Mapping[str, str], terms: Mapping[str, float]) -> float | None:
    """Memory that weights and KV cache, and what the engine leaves, come to; None where it is not known."""
    if "weight_bytes" not in terms:
        return None
    tokens = number(settings, "kv_cache_tokens") or number(settings, "kv_cache_size_tokens")
    if tokens is None or "kv_bytes_per_token" not in terms:
        return terms["weight_bytes"] / HELD
    share = number(settings, "gpu_memory_utilization") or HELD
    return (terms["weight_bytes"] + tokens * terms["kv_bytes_per_token"]) / min(share, 1.0)


def _told(settings: Mapping[str, str]) -> bool:
    return "kv_cache_tokens" in settings or "kv_cache_size_tokens" in settings


def _gpus() -> list[Device]:
    return [d for d in load_devices().values() if d.kind != "cpu" and d.assumed]
