"""How many bits a weight takes, by part of the model, scales and zero points included."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .shape import PARTS, Quantization

DTYPES = {
    "float32": 32, "float": 32, "fp32": 32, "bfloat16": 16, "bf16": 16, "float16": 16, "half": 16, "fp16": 16,
}  # fmt: skip

KV_BITS = {
    "fp8": 8, "fp8_e4m3": 8, "fp8_e5m2": 8, "fp8_inc": 8, "fp8_e4m3fn": 8, "int8": 8,
    "nvfp4": 4.5, "fp4": 4.5,
    "f32": 32, "f16": 16, "q8_0": 8.5, "q5_1": 6, "q5_0": 5.5, "q4_1": 5, "q4_0": 4.5, "iq4_nl": 4.5,
    **DTYPES,
}  # fmt: skip
"""Bits of a number in the KV cache, by the engines' names for its type."""

QUANTIZED = ("attention", "mlp", "shared", "experts")
"""What methods quantize; embedding, head, router and small parts stay in the model's dtype unless said."""

_SKIPPED = {
    "attention": re.compile(r"(self_attn|attention|linear_attn|mixer)(?!.*norm)"),
    "shared": re.compile(r"shared_expert(?!_gate)"),
    "experts": re.compile(r"(?<!shared_)experts"),
    "mlp": re.compile(r"mlp(?!.*expert)(?!\.gate(\b|$))|feed_forward(?!.*expert)(?!\.router)"),
}
"""Which part a name in a method's list of what it leaves alone is about."""

_LAYER = re.compile(r"layers\.(\d{1,6})(\.|\*|$)")
_WHOLE_LAYER = re.compile(r"layers\.#(\.?\*)?$")
_PARTIAL = re.compile(
    r"\b(kv_b_proj|q_proj|k_proj|v_proj|o_proj|down_proj|up_proj|gate_proj|conv1d|kv_a)"
)


def dtype_bits(dtype: str) -> int | None:
    """Bits of a plain dtype, `torch.` before it or not; None when it is not one."""
    return DTYPES.get(dtype.removeprefix("torch.").lower())


def read_quantization(
    config: Mapping[str, Any], dtype_bits: int, layers: int, held: Mapping[str, int]
) -> Quantization | None:
    """A `quantization_config` as bits by part; None when there is none.

    Args:
        config: the map under `quantization_config`.
        dtype_bits: bits of what is left alone.
        layers: decoder layers; names of layers beyond them are no part of the decoder.
        held: how many layers hold each part, to tell what share of it a list of layers leaves alone.

    Returns:
        Its `bits` are empty when the method or its numbers are not known.
    """
    if not config:
        return None
    method = _text(config, "quant_method") or _text(config, "quant_algo") or "unknown"
    algo = _text(config, "quant_algo")
    if method == "gguf":
        return _gguf(config)
    each = _bits_of(method.lower(), algo.upper(), config)
    if each is None:
        return Quantization(method, {}, exact=False)
    bits = dict.fromkeys(PARTS, float(dtype_bits))
    ignored = ignored_names(config, layers)
    kept = []
    for part in QUANTIZED:
        share = _share_kept(part, ignored, held.get(part, 0))
        if method == "mxfp4" and part != "experts":
            share = 1.0
        bits[part] = share * dtype_bits + (1 - share) * each
        if share == 1.0:
            kept.append(part)
    if config.get("lm_head") is True:
        bits["head"] = each
    plain = [p for p in PARTS if p not in QUANTIZED and bits[p] == dtype_bits]
    exact = not any(_PARTIAL.search(name) or _WHOLE_LAYER.search(name) for name in ignored)
    return Quantization(method, bits, (*kept, *plain), exact and not config.get("assumed"))


def ignored_names(config: Mapping[str, Any], layers: int) -> dict[str, int]:
    """What the method leaves alone: names with layer and expert numbers as `#`, and how many there are of each."""
    counted = config.get("ignored")
    if isinstance(counted, Mapping):
        return {str(k): v for k, v in counted.items() if isinstance(v, int) and v > 0}
    found: dict[str, int] = {}
    for key in ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers"):
        names = config.get(key)
        for name in names if isinstance(names, list) else ():
            if not isinstance(name, str):
                continue
            layer = _LAYER.search(name[:200])
            if layer is None or int(layer[1]) < layers:
                short = re.sub(r"\d+", "#", name[:200])
                found[short] = found.get(short, 0) + 1
    return found


def _bits_of(method: str, algo: str, config: Mapping[str, Any]) -> float | None:
    """Bits of a quantized weight: its own and its share of the group's scale and zero point."""
    if method in ("awq", "gptq", "auto-round", "auto_round", "gptq_marlin", "awq_marlin"):
        own, group = _number(config, "bits"), _number(config, "group_size")
        return own and _grouped(own, group, 16 + own)
    if method in ("fp8", "fbgemm_fp8", "modelopt", "modelopt_fp4", "modelopt_fp8"):
        if "NVFP4" in algo or method == "modelopt_fp4":
            return 4.5
        if method == "modelopt" and algo not in ("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO"):
            return None
        block = config.get("weight_block_size")
        size = [n for n in block if isinstance(n, int) and n > 0] if isinstance(block, list) else []
        return 8 + 32 / (size[0] * size[1]) if len(size) == 2 else 8.0
    if method == "mxfp4":
        return 4.25
    if method == "bitsandbytes":
        if config.get("load_in_8bit") is True or config.get("_load_in_8bit") is True:
            return 8.0
        doubled = config.get("bnb_4bit_use_double_quant") is True
        return 4 + (8 / 64 + 32 / (64 * 256) if doubled else 32 / 64)
    if method in ("compressed-tensors", "compressed_tensors"):
        return _compressed(config.get("config_groups"))
    return None


def _compressed(groups: object) -> float | None:
    """One scheme for all weights; None where groups differ."""
    found = set()
    for group in groups.values() if isinstance(groups, Mapping) else ():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        own = _number(weights, "num_bits") if isinstance(weights, Mapping) else None
        if not own or not isinstance(weights, Mapping):
            return None
        if own == 4 and _text(weights, "type") == "float":
            found.add(4.5 if weights.get("group_size") != 32 else 4.25)
        else:
            asymmetric = own if weights.get("symmetric") is False else 0
            found.add(_grouped(own, _number(weights, "group_size"), 16 + asymmetric))
    return found.pop() if len(found) == 1 else None


def _gguf(config: Mapping[str, Any]) -> Quantization:
    """Bits by part as the tensors of a GGUF file take them, or an average read off a file's name."""
    average = config.get("bits")
    if isinstance(average, (int, float)) and not isinstance(average, bool) and 0 < average <= 32:
        return Quantization("gguf", dict.fromkeys(PARTS, float(average)), exact=False)
    measured = config.get("part_bits")
    if not isinstance(measured, Mapping):
        return Quantization("gguf", {}, exact=False)
    bits = {}
    for part in PARTS:
        key = part if part in ("embedding", "head", "experts") else "rest"
        value = measured.get(key, measured.get("embedding"))
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 64:
            return Quantization("gguf", {}, exact=False)
        bits[part] = float(value)
    return Quantization("gguf", bits)


def _share_kept(part: str, ignored: Mapping[str, int], layers: int) -> float:
    """Which share of a part is left alone: all where a name has no layer number, else layers by number."""
    named = [
        n if "#" in name else layers
        for name, n in ignored.items()
        if _SKIPPED[part].search(name) and "norm" not in name and not _is_visual(name)
    ]
    whole = sum(n for name, n in ignored.items() if _WHOLE_LAYER.search(name))
    return min(1.0, (max(named, default=0) + whole) / layers) if layers else 0.0


def _is_visual(name: str) -> bool:
    return any(word in name for word in ("visual", "vision", "multi_modal", "mm_projector"))


def _grouped(own: float, group: float | None, extra: float) -> float:
    return own + extra / group if group and group > 0 else own


def _number(config: Mapping[str, Any], key: str) -> float | None:
    value = config.get(key)
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 65_536
    return float(value) if good and value is not None else None


def _text(config: Mapping[str, Any], key: str) -> str:
    value = config.get(key)
    return value if isinstance(value, str) else ""


def online(method: str) -> Mapping[str, Any]:
    """What an engine does that is told to quantize a plain checkpoint while loading; empty when not known."""
    return {
        "fp8": {"quant_method": "fp8"},
        "bitsandbytes": {"quant_method": "bitsandbytes"},
        "mxfp4": {"quant_method": "mxfp4"},
    }.get(method.lower(), {"quant_method": method})
