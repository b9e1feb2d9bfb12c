"""What of a model's configuration a recording keeps: the keys that tell its shape, as compact JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

MAX_VALUE_BYTES = 16 * 1024
MAX_ITEMS = 2_048
MAX_PATTERNS = 64

ARCHITECTURE = frozenset((
    "architectures", "model_type", "dtype", "torch_dtype", "tie_word_embeddings", "vocab_size", "n_vocab",
    "hidden_size", "n_embd", "d_model", "num_hidden_layers", "n_layer", "n_layers", "num_attention_heads",
    "n_head", "n_heads", "num_key_value_heads", "num_kv_heads", "multi_query_group_num", "head_dim",
    "attention_head_dim", "kv_channels", "intermediate_size", "intermediate_size_mlp", "ffn_hidden_size",
    "n_inner", "ffn_dim", "attention_bias", "attention_out_bias", "mlp_bias", "qkv_bias", "use_bias", "bias",
    "use_qkv_bias", "use_qk_norm", "qk_layernorm", "use_parallel_residual", "parallel_attn", "multi_query",
    "new_decoder_architecture", "alibi", "max_position_embeddings", "n_positions", "word_embed_proj_dim",
    "do_layer_norm_before", "add_cross_attention", "is_encoder_decoder",
    "n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts", "num_experts_per_tok",
    "num_experts_per_token", "experts_per_token", "moe_k", "moe_topk", "moe_intermediate_size",
    "expert_ffn_hidden_size", "n_shared_experts", "moe_num_shared_experts", "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size", "first_k_dense_replace", "moe_layer_start_index", "moe_layer_freq",
    "moe_layer_interval", "decoder_sparse_step", "interleave_moe_layer_step", "moe_layers", "mlp_only_layers",
    "mlp_layer_types", "moe_latent_size", "expert_layer_period", "expert_layer_offset",
    "sliding_window", "sliding_window_size", "use_sliding_window", "max_window_layers", "attention_chunk_size",
    "sliding_window_pattern", "layer_types", "layers_block_type", "no_rope_layers",
    "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim",
    "full_attention_interval", "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
    "linear_value_head_dim", "linear_conv_kernel_dim", "hybrid_override_pattern", "mamba_num_heads",
    "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel", "use_conv_bias", "mamba_proj_bias",
    "mamba_expand", "mamba_d_state", "mamba_d_conv", "mamba_dt_rank", "mamba_conv_bias", "attn_layer_period",
    "attn_layer_offset", "num_kv_shared_layers", "hidden_size_per_layer_input", "attention_k_eq_v",
    "cross_attention_layers", "index_topk", "swa_head_dim", "use_sparse_attention", "hybrid_layer_pattern",
    "swa_num_attention_heads", "num_global_key_value_heads", "sliding_window_head_dim",
    "num_nextn_predict_layers", "conv_L_cache", "lru_width",
))  # fmt: skip
"""The keys of a `config.json` that are kept; all others stay where they are."""

PRESENT = ("block_configs", "sparse_attention_config")
"""Keys whose being there matters and whose content does not: kept as true."""

_QUANTIZATION = frozenset((
    "quant_method", "quant_algo", "bits", "group_size", "zero_point", "sym", "desc_act", "weight_block_size",
    "load_in_8bit", "load_in_4bit", "_load_in_8bit", "bnb_4bit_use_double_quant", "kv_cache_quant_algo",
    "lm_head", "activation_scheme",
))  # fmt: skip
_WEIGHTS = ("num_bits", "type", "strategy", "group_size", "symmetric")
_IGNORED = ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers")
_NESTED = ("text_config", "language_config", "llm_config")

_WORD = re.compile(r"[\w.*+-]{1,2048}", re.ASCII)
_MODULE = re.compile(r"[\w.*$|()?:\\^-]{1,120}", re.ASCII)
_LAYER = re.compile(r"layers\.(\d{1,6})(\.|\*|$)")


def compact(config: Mapping[str, Any]) -> str:
    """The keys that tell a shape as one line of JSON, at most 16 kB; "" when there are none.

    A multimodal model's decoder stands for the whole. Of long lists of modules that a quantization leaves alone
    their patterns and numbers are kept.
    """
    kept = _whitelisted(config)
    if not any(k in kept for k in ("num_hidden_layers", "n_layer", "n_layers")):
        return ""
    for dropped in ("", "ignored"):
        if dropped:
            kept.get("quantization_config", {}).pop(dropped, None)
        text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
        if len(text) <= MAX_VALUE_BYTES:
            return text
    return ""


def _whitelisted(config: Mapping[str, Any]) -> dict[str, Any]:
    inner: dict[str, Any] = next(
        (config[k] for k in _NESTED if isinstance(config.get(k), dict)), {}
    )
    merged = {k: v for k, v in config.items() if not (inner and k in _DECODER_ONLY)}
    merged.update({k: v for k, v in inner.items() if v is not None})
    kept = {k: v for k, v in merged.items() if k in ARCHITECTURE and v is not None and _plain(v)}
    kept |= {k: True for k in PRESENT if merged.get(k)}
    quantization = merged.get("quantization_config")
    if isinstance(quantization, dict):
        kept["quantization_config"] = _quantization(quantization, kept)
    return kept


_DECODER_ONLY = ARCHITECTURE - {
    "dtype",
    "torch_dtype",
    "tie_word_embeddings",
    "architectures",
    "model_type",
}
"""Keys of the outer level of a multimodal model that are not its decoder's."""


def _quantization(raw: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    kept = {k: v for k, v in raw.items() if k in _QUANTIZATION and v is not None and _plain(v)}
    scheme = raw.get("kv_cache_scheme")
    if isinstance(scheme, dict):
        kept["kv_cache_scheme"] = _only(scheme, ("num_bits", "type"))
    groups = raw.get("config_groups")
    if isinstance(groups, dict):
        kept["config_groups"] = {
            f"group_{i}": {"weights": _only(group["weights"], _WEIGHTS)}
            for i, group in enumerate(list(groups.values())[:16])
            if isinstance(group, dict) and isinstance(group.get("weights"), dict)
        }
    measured = raw.get("part_bits")
    if isinstance(measured, dict):
        kept["part_bits"] = {str(k)[:20]: v for k, v in measured.items() if _plain(v)}
    layers = config.get("num_hidden_layers")
    names = [n for key in _IGNORED for n in raw.get(key) or () if isinstance(n, str)]
    if ignored := _patterns(names, layers if isinstance(layers, int) else 1 << 30):
        kept["ignored"] = ignored
    return kept


def _patterns(names: Iterable[str], layers: int) -> dict[str, int]:
    """Names of modules with their numbers as `#`, and how many there are; layers beyond the last left out."""
    found: dict[str, int] = {}
    for name in names:
        layer = _LAYER.search(name[:120])
        if not _MODULE.fullmatch(name) or (layer and int(layer[1]) >= layers):
            continue
        short = re.sub(r"\d+", "#", name)
        if short in found or len(found) < MAX_PATTERNS:
            found[short] = found.get(short, 0) + 1
    return found


def _only(raw: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {k: raw[k] for k in keys if raw.get(k) is not None and _plain(raw[k])}


def _plain(value: object) -> bool:
    """A number, a truth value, one word, or a short list of them."""
    if isinstance(value, list):
        return len(value) <= MAX_ITEMS and all(
            not isinstance(item, list) and _plain(item) for item in value
        )
    if isinstance(value, str):
        return bool(_WORD.fullmatch(value))
    return isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value))
