"""In how many bits weights and KV cache are held: the engine's settings over the checkpoint's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .fields import Fields
from .quantization import KV_BITS, QUANTIZED, dtype_bits, read_quantization
from .shape import PARTS, Block, Shape


def with_bits(fields: Fields, shape: Shape, dtype: str, kv_dtype: str) -> Shape:
    """Bits of weights and KV cache, by the engine's settings over the checkpoint's."""
    asked = "" if dtype.lower() in ("", "auto") else dtype.removeprefix("torch.").lower()
    used = asked or shape.dtype
    if dtype.lower() == "auto" and used == "float32":
        used = "bfloat16"
    bits = dtype_bits(used)
    raw = fields.table("quantization_config")
    if raw and not used:
        bits = 16  # what is not quantized is computed in 16 bits wherever such a checkpoint runs
    held = {part: sum(b.count for b in shape.blocks if _holds(b, part)) for part in QUANTIZED}
    quantization = read_quantization(raw, bits or 16, shape.layers or 0, held)
    missing = list(shape.missing)
    by_part: dict[str, float] = {}
    if quantization is not None:
        by_part = dict(quantization.bits)
        if not by_part:
            missing.append("quantization_config")
    elif bits is not None:
        by_part = dict.fromkeys(PARTS, float(bits))
    else:
        missing.append("dtype")
    name, kv_bits = _kv(raw, kv_dtype, used, bits)
    if kv_bits is None:
        missing.append("kv_cache_dtype")
    return replace(
        shape, dtype=used, dtype_bits=bits, quantization=quantization, bits=by_part,
        kv_dtype=name, kv_bits=kv_bits, missing=tuple(missing),
    )  # fmt: skip


def _holds(block: Block, part: str) -> bool:
    return bool(block.expert if part == "experts" else getattr(block, part))


def _kv(
    quantization: Mapping[str, Any], asked: str, dtype: str, bits: int | None
) -> tuple[str, float | None]:
    """The KV cache's type and bits: asked for, else the checkpoint's scheme, else the model's dtype."""
    asked = asked.removeprefix("torch.").lower()
    if asked not in ("", "auto"):
        halves = [KV_BITS.get(part) for part in asked.split("/")]
        known = [b for b in halves if b is not None]
        return asked, sum(known) / len(known) if len(known) == len(halves) else None
    scheme = quantization.get("kv_cache_scheme")
    if isinstance(scheme, Mapping) and scheme.get("num_bits") == 8:
        return "fp8", 8.0
    if str(quantization.get("kv_cache_quant_algo", "")).upper() == "FP8":
        return "fp8", 8.0
    if quantization.get("quant_method") == "gguf":
        return "f16", 16.0
    return dtype, None if bits is None else float(bits)
