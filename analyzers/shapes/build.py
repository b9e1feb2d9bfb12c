"""A model's configuration made into its shape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .families import ALIASES, DEFAULTS, FAMILIES, GENERIC, OTHERS, RECURRENT, Family
from .fields import Fields, decoder_of
from .layers import head_dim, kv_heads
from .layout import blocks_of
from .precision import with_bits
from .shape import Shape

_RECURRENT_KEY = re.compile(
    r"mamba|(^|_)ssm_|rwkv|^linear_|conv_L_cache|lightning|lru_width|delta_net"
)
_STRANGE = (
    "num_kv_shared_layers", "hidden_size_per_layer_input", "attention_k_eq_v", "block_configs",
    "cross_attention_layers", "is_encoder_decoder", "index_topk", "moe_latent_size",
    "sliding_window_head_dim", "swa_head_dim", "sparse_attention_config", "use_sparse_attention",
    "hybrid_layer_pattern", "swa_num_attention_heads", "num_global_key_value_heads",
)  # fmt: skip
"""Keys that change what a layer holds in a way that is not modelled."""


def shape_from_config(
    config: Mapping[str, Any],
    source: str = "",
    dtype: str = "",
    kv_dtype: str = "",
) -> Shape:
    """The shape of the decoder that a `config.json` describes.

    Args:
        config: the map as read; of a multimodal model the nested decoder is taken.
        source: where it was read, for `Shape.source`.
        dtype: the engine's, over the configuration's; "" or "auto" leaves the latter.
        kv_dtype: the KV cache's, e.g. "fp8"; "" or "auto": the checkpoint's, else the model's.

    Returns:
        A shape whose derived values are None where the configuration lacks a key (`missing`) or the layers are
        not modelled (`unknown`).

    Raises:
        WhyboundError: a value is impossible; names the key and the value.
    """
    fields = Fields(config)
    name = architecture(config)
    family = FAMILIES.get(name)
    for key, value in DEFAULTS.get(name, {}).items():
        fields.default(key, value)
    shape = _sizes(fields, name, family or GENERIC, source)
    why = _not_modelled(fields, name)
    if why:
        return replace(shape, unknown=why, exact=False)
    blocks = blocks_of(fields, name, family or GENERIC, shape)
    missing = tuple(dict.fromkeys(fields.missing))
    if missing or fields.varying or isinstance(blocks, str):
        said = blocks if isinstance(blocks, str) else ""
        if fields.varying:
            said = f"{fields.varying[0]} differs from layer to layer: not modelled"
        return replace(shape, missing=missing, unknown=said, exact=False)
    shape = _with_table(fields, name, family or GENERIC, replace(shape, blocks=blocks))
    exact = family is not None and not _odd(fields, name)
    return with_bits(fields, replace(shape, exact=exact), dtype, kv_dtype)


def architecture(config: Mapping[str, Any]) -> str:
    """The decoder's `model_type`, else one made of its class name; "" when it says neither."""
    decoder = decoder_of(config)
    for level in (decoder, config):
        kind = level.get("model_type")
        if isinstance(kind, str) and kind:
            name = kind.lower().replace("-", "_")[:60]
            return ALIASES.get(name, name)
    classes = config.get("architectures")
    if isinstance(classes, list) and classes and isinstance(classes[0], str):
        stem = re.sub(r"(For[A-Z]\w*|LMHeadModel|Model)$", "", classes[0][:100])
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", stem).lower()
        return next((n for n in (ALIASES.get(name, name), stem.lower()) if n in FAMILIES), name)
    return ""


def _sizes(fields: Fields, name: str, family: Family, source: str) -> Shape:
    """What the configuration says of itself, field by field."""
    hidden = fields.needed("hidden_size", "n_embd", "d_model")
    heads = fields.needed("num_attention_heads", "n_head", "n_heads")
    experts = fields.whole(
        "n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts", low=0
    )
    latent = fields.whole("kv_lora_rank")
    ffn = fields.whole(
        "intermediate_size_mlp", "intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", low=0
    )
    return Shape(
        architecture=name,
        source=source,
        layers=fields.needed("num_hidden_layers", "n_layer", "n_layers") or None,
        hidden=hidden or None,
        heads=heads or None,
        kv_heads=kv_heads(fields, name, heads) if heads and not latent else (heads or None),
        head_dim=None if latent else head_dim(fields, hidden, heads) or None,
        vocab=fields.needed("vocab_size", "n_vocab") or None,
        ffn=ffn if ffn is not None or not hidden else _default_ffn(name, hidden),
        expert_ffn=fields.whole("moe_intermediate_size", "expert_ffn_hidden_size"),
        experts=experts or None,
        experts_per_token=fields.whole(
            "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_k", "moe_topk"
        ),
        shared_experts=fields.whole("n_shared_experts", "moe_num_shared_experts", low=0),
        kv_lora_rank=latent,
        q_lora_rank=fields.whole("q_lora_rank"),
        qk_nope_head_dim=fields.whole("qk_nope_head_dim"),
        qk_rope_head_dim=fields.whole("qk_rope_head_dim"),
        v_head_dim=fields.whole("v_head_dim"),
        sliding_window=_window_size(fields),
        tied=fields.flag("tie_word_embeddings", default=family.tied),
        dtype=fields.text("dtype", "torch_dtype").removeprefix("torch."),
    )


def _default_ffn(name: str, hidden: int) -> int | None:
    return 4 * hidden if name in ("gpt2", "falcon") else None


def _window_size(fields: Fields) -> int | None:
    return (
        fields.whole("sliding_window", "attention_chunk_size", "sliding_window_size", low=0) or None
    )


def _not_modelled(fields: Fields, name: str) -> str:
    if name in RECURRENT:
        return f"{name}: its layers without a growing KV cache are not modelled"
    if name in OTHERS:
        return f"{name}: its layers are not modelled"
    strange = next((key for key in _STRANGE if fields.has(key)), None)
    if strange:
        return f"{strange} is set: layers of that kind are not modelled"
    known = name in FAMILIES
    recurrent = next(
        (k for k in fields.names() if _RECURRENT_KEY.search(k) and fields.has(k)), None
    )
    if recurrent and not known:
        return f"{recurrent} is set: layers without a growing KV cache are not modelled for {name or 'this'}"
    return ""


def _with_table(fields: Fields, name: str, family: Family, shape: Shape) -> Shape:
    """The embedding, the head, the last norm; and the layers counted by kind."""
    hidden, vocab = shape.hidden or 0, shape.vocab or 0
    inner = (fields.whole("word_embed_proj_dim") or hidden) if name == "opt" else hidden
    positions = fields.needed(family.positions) + family.positions_extra if family.positions else 0
    bridged = 2 * hidden * inner if inner != hidden else 0
    head = 0 if shape.tied else vocab * inner
    final = family.final_norm
    if name == "falcon" or (
        name == "opt" and not fields.flag("do_layer_norm_before", default=True)
    ):
        final = 2 if name == "falcon" else 0
    blocks = shape.blocks
    sliding = sum(b.count for b in blocks if b.window is not None)
    growing = sum(b.count for b in blocks if b.kv_width)
    mixed = sum(b.count for b in blocks if b.experts)
    return replace(
        shape,
        embedding=vocab * inner + positions * hidden + bridged,
        head=head,
        final=final * hidden + vocab * family.head_bias,
        missing=tuple(dict.fromkeys(fields.missing)),
        sliding_layers=sliding,
        sliding_window=shape.sliding_window if sliding else None,
        growing_layers=growing,
        dense_layers=sum(b.count for b in blocks) - mixed if mixed else None,
        shared_experts=shape.shared_experts or (1 if any(b.shared for b in blocks) else None),
    )


def _odd(fields: Fields, name: str) -> bool:
    """Known family, but with an option whose parameters are not counted."""
    return (
        (name == "phi" and fields.has("qk_layernorm"))
        or (name == "stablelm" and fields.has("qk_layernorm"))
        or (name == "falcon" and (fields.has("bias") or fields.has("alibi")))
        or (name == "gpt2" and fields.has("add_cross_attention"))
    )
