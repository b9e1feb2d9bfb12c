"""Which layer is of which kind, and the layers of a model as blocks of like ones."""

from __future__ import annotations

from dataclasses import replace

from ...errors import WhyboundError
from .families import Family
from .fields import Fields
from .layers import attention, dense, grouped, joined, latent_attention, mixture
from .recurrent import delta_net, gated_attention, mamba1, mamba2
from .shape import Block, Shape

SLIDING = {"sliding_attention", "chunked_attention", "sliding", "local"}
FULL = {"full_attention", "attention", "full", "global"}


def blocks_of(fields: Fields, name: str, family: Family, shape: Shape) -> tuple[Block, ...] | str:
    """The layers, or why they are not modelled; what is absent is left in `fields.missing`."""
    if shape.layers is None or shape.hidden is None or shape.heads is None:
        return ()
    if name == "nemotron_h":
        return _nemotron_h(fields, family, shape)
    kinds = _kinds(fields, name, family, shape)
    if isinstance(kinds, str):
        return kinds
    hidden, heads = shape.hidden, shape.heads
    width, kv = shape.head_dim or 0, shape.kv_heads or 0
    if shape.kv_lora_rank:
        full = latent_attention(fields, family, hidden, heads)
    else:
        full = attention(fields, family, hidden, heads, kv, width)
        if name in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"):
            full = gated_attention(full, hidden, heads, width)
    slid = replace(full, window=shape.sliding_window)
    fixed = Block()
    if "linear" in kinds:
        fixed = mamba1(fields, hidden) if name == "jamba" else delta_net(fields, hidden)
    mixers = {"full": full, "slide": slid, "linear": fixed}
    norms = Block(small=_norms(fields, name, family) * hidden)
    sparse = _sparse(fields, name, shape)
    layers = []
    for i, kind in enumerate(kinds):
        feed = _mixture(fields, family, shape) if sparse[i] else _dense(fields, family, shape)
        layers.append(joined(mixers[kind], feed, norms))
    return grouped(layers)


def _dense(fields: Fields, family: Family, shape: Shape) -> Block:
    if shape.ffn is None:
        fields.missing.append("intermediate_size")
        return Block()
    return dense(fields, family, shape.hidden or 0, shape.ffn)


def _mixture(fields: Fields, family: Family, shape: Shape) -> Block:
    if shape.experts_per_token is None:
        fields.missing.append("num_experts_per_tok")
    ffn = shape.expert_ffn or fields.needed("intermediate_size")
    shared = (shape.shared_experts or 0) * ffn
    if shape.architecture == "llama4_text":
        shared = ffn
    shared = (
        fields.whole(
            "shared_expert_intermediate_size",
            "moe_shared_expert_intermediate_size",
            low=0,
            default=shared,
        )
        or 0
    )
    return mixture(
        fields,
        family,
        shape.hidden or 0,
        ffn,
        shape.experts or 0,
        shape.experts_per_token or 0,
        shared,
    )


def _norms(fields: Fields, name: str, family: Family) -> int:
    """Vectors of hidden size in one layer's norms."""
    if name == "falcon":
        return (
            4
            if fields.flag("new_decoder_architecture") or not fields.flag("parallel_attn", True)
            else 2
        )
    if name == "stablelm" and fields.flag("use_parallel_residual"):
        return 2
    return family.norms


def _kinds(fields: Fields, name: str, family: Family, shape: Shape) -> list[str] | str:
    """Of each layer: full, slide or linear; or why that cannot be told."""
    count = shape.layers or 0
    listed = [
        str(k) for k in fields.items("layer_types") or fields.items("layers_block_type") or []
    ]
    if listed:
        if len(listed) != count:
            raise WhyboundError(
                f"model configuration: {len(listed)} layer_types for {count} layers; check its config.json"
            )
        linear = (
            {"linear_attention"}
            if name.startswith("qwen3_")
            else {"mamba"}
            if name == "jamba"
            else set()
        )
        other = next((k for k in listed if k not in SLIDING | FULL | linear), None)
        if other is not None:
            return f"layers of type {str(other)[:40]!r} are not modelled for {name or 'this architecture'}"
        return [
            "linear"
            if k in linear
            else "slide"
            if k in SLIDING and shape.sliding_window
            else "full"
            for k in listed
        ]
    if name == "jamba":
        period, offset = (
            fields.needed("attn_layer_period"),
            fields.whole("attn_layer_offset", low=0) or 0,
        )
        return ["full" if period and i % period == offset else "linear" for i in range(count)]
    if name in ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"):
        every = fields.whole("full_attention_interval", default=4) or 4
        return ["linear" if (i + 1) % every else "full" for i in range(count)]
    return ["slide" if _slides(fields, family, shape, i) else "full" for i in range(count)]


def _slides(fields: Fields, family: Family, shape: Shape, i: int) -> bool:
    """Does layer `i` slide, where no list says so?"""
    if not shape.sliding_window:
        return False
    if family.window == "all":
        return True
    if family.window == "late":
        late = fields.whole("max_window_layers", low=0, default=28) or 0
        return fields.flag("use_sliding_window") and i >= late
    if family.window == "alternate":
        return i % 2 == 0
    if family.window == "chunked":
        full = fields.items("no_rope_layers")
        return bool(full[i]) if len(full) == shape.layers else (i + 1) % family.pattern != 0
    if family.window == "pattern":
        return (i + 1) % (fields.whole("sliding_window_pattern", default=family.pattern) or 1) != 0
    return False


def _sparse(fields: Fields, name: str, shape: Shape) -> list[bool]:
    """Which layers hold experts."""
    count = shape.layers or 0
    if not shape.experts or (name == "jamba" and shape.experts == 1):
        return [False] * count
    listed = fields.items("mlp_layer_types")
    if len(listed) == count:
        return [k == "sparse" for k in listed]
    listed = fields.items("moe_layer_freq")
    if len(listed) == count:
        return [k == 1 for k in listed]
    dense_first = fields.whole("first_k_dense_replace", "moe_layer_start_index", low=0) or 0
    every = (
        fields.whole(
            "moe_layer_freq",
            "decoder_sparse_step",
            "interleave_moe_layer_step",
            "expert_layer_period",
            "moe_layer_interval",
        )
        or 1
    )
    chosen = fields.items("moe_layers")
    only_dense = fields.items("mlp_only_layers")
    if name == "jamba":
        offset = fields.whole("expert_layer_offset", low=0) or 0
        return [i % every == offset for i in range(count)]
    if name == "llama4_text":
        return [i in chosen if chosen else (i + 1) % every == 0 for i in range(count)]
    by_one = 1 if fields.has("decoder_sparse_step") else 0
    return [
        i >= dense_first and (i + by_one) % every == 0 and i not in only_dense for i in range(count)
    ]


def _nemotron_h(fields: Fields, family: Family, shape: Shape) -> tuple[Block, ...] | str:
    """A layer is one thing: M Mamba-2, * attention, - feed-forward, E mixture of experts."""
    pattern = fields.text("hybrid_override_pattern")
    if not pattern or len(pattern) != shape.layers:
        return "nemotron_h: hybrid_override_pattern does not name every layer"
    hidden = shape.hidden or 0
    norm = Block(small=hidden)
    make = {
        "M": lambda: mamba2(fields, hidden),
        "*": lambda: attention(
            fields, family, hidden, shape.heads or 0, shape.kv_heads or 0, shape.head_dim or 0
        ),
        "-": lambda: _dense(fields, family, shape),
        "E": lambda: _mixture(fields, family, shape),
    }
    strange = set(pattern) - set(make)
    if strange:
        return f"nemotron_h: layers {''.join(sorted(strange))[:10]!r} are not modelled"
    kinds = {kind: joined(make[kind](), norm) for kind in sorted(set(pattern))}
    return grouped([kinds[kind] for kind in pattern])
