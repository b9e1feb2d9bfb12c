"""One layer's parameters and costs, by formula, out of the configuration's fields."""

from __future__ import annotations

from dataclasses import replace

from ...errors import WhyboundError
from .families import Bias, Family
from .fields import Fields
from .shape import Block


def biased(fields: Fields, bias: Bias) -> bool:
    """Is there a bias, by the family or by its key?"""
    return bias if isinstance(bias, bool) else fields.flag(*bias)


def head_dim(fields: Fields, hidden: int, heads: int) -> int:
    """`head_dim`, else hidden / heads [numbers]; 0 while either is missing.

    Raises:
        WhyboundError: the heads do not divide the hidden size.
    """
    stated = fields.whole("head_dim", "attention_head_dim", "kv_channels")
    if stated is not None or not hidden or not heads:
        return stated or 0
    if hidden % heads:
        raise WhyboundError(
            f"model configuration: {heads} heads do not divide the hidden size {hidden}; check its config.json"
        )
    return hidden // heads


def kv_heads(fields: Fields, family_name: str, heads: int) -> int:
    """Heads of keys and values [count]: as many as query heads where the configuration is silent.

    Raises:
        WhyboundError: they do not divide the query heads.
    """
    if family_name == "falcon" and not fields.flag("new_decoder_architecture"):
        return 1 if fields.flag("multi_query", default=True) else heads
    found = fields.whole("num_key_value_heads", "num_kv_heads", "multi_query_group_num")
    found = heads if found is None else found
    if heads % found if found else False:
        raise WhyboundError(
            f"model configuration: {found} KV heads do not divide {heads} heads; check its config.json"
        )
    return found


def attention(
    fields: Fields, family: Family, hidden: int, heads: int, kv: int, width: int
) -> Block:
    """Grouped-query attention.

    Matrices: hidden × (heads + 2 KV heads) × width + heads × width × hidden. A token leaves 2 × KV heads × width
    numbers; a new token costs 2 × heads × 2 × width flops for each token of its context.
    """
    q, k = heads * width, kv * width
    small = (q + 2 * k) * biased(fields, family.qkv_bias) + hidden * biased(fields, family.o_bias)
    normed = not family.qk_norm_key or fields.flag(family.qk_norm_key)
    if normed:
        small += {"": 0, "head": 2 * width, "full": q + k, "heads": q + k}[family.qk_norm]
    small += heads * family.sinks
    return Block(
        attention=hidden * (q + 2 * k) + q * hidden,
        small=small,
        kv_width=2 * k,
        context_flops=4 * q,
        absorbed_context_flops=4 * q,
        kernels=(7 + (2 if family.qk_norm and normed else 0), 16),
    )


def latent_attention(fields: Fields, family: Family, hidden: int, heads: int) -> Block:
    """Multi-head latent attention (MLA), DeepSeek-V2, arXiv:2405.04434.

    Queries: hidden × q_lora_rank + its norm + q_lora_rank × heads × (nope + rope), or hidden × heads × (nope +
    rope) without compression. Keys and values: hidden × (kv_lora_rank + rope) + norm + kv_lora_rank × heads ×
    (nope + v). Output: heads × v × hidden. A token leaves kv_lora_rank + rope numbers.
    """
    rank = fields.needed("kv_lora_rank")
    nope, rope = fields.needed("qk_nope_head_dim"), fields.needed("qk_rope_head_dim")
    v = fields.needed("v_head_dim")
    q_rank = fields.whole("q_lora_rank")
    q_width = heads * (nope + rope)
    small = rank
    if q_rank is None:
        matrices = hidden * q_width
    else:
        matrices = hidden * q_rank + q_rank * q_width
        small += q_rank
    matrices += hidden * (rank + rope) + rank * heads * (nope + v) + heads * v * hidden
    if biased(fields, family.qkv_bias):
        small += (q_rank or 0) + rank + rope + hidden
    return Block(
        attention=matrices,
        small=small,
        kv_width=rank + rope,
        context_flops=2 * heads * (nope + rope + v),
        absorbed_context_flops=2 * heads * (2 * rank + rope),
        kernels=(12, 22),
    )


def dense(fields: Fields, family: Family, hidden: int, ffn: int) -> Block:
    """A feed-forward: 3 × hidden × ffn with a gate, else 2 × hidden × ffn."""
    bias = biased(fields, family.mlp_bias)
    ups = 2 if family.gated else 1
    return Block(mlp=(ups + 1) * hidden * ffn, small=(ups * ffn + hidden) * bias, kernels=(3, 6))


def mixture(
    fields: Fields, family: Family, hidden: int, ffn: int, experts: int, each: int, shared: int
) -> Block:
    """A mixture of experts: router hidden × E, E experts of width `ffn`, shared ones of `shared` altogether.

    `each`: experts a token passes.

    Raises:
        WhyboundError: a token would pass more experts than there are.
    """
    if each > experts:
        raise WhyboundError(
            f"model configuration: {each} experts a token of {experts}; check its config.json"
        )
    mats = 3 if family.gated else 2
    router = hidden * experts + (hidden if family.shared_gate and shared else 0)
    return Block(
        shared=mats * hidden * shared,
        router=router,
        small=experts * (family.correction + family.router_bias),
        expert=mats * hidden * ffn,
        expert_small=((mats - 1) * ffn + hidden) * family.expert_bias,
        experts=experts,
        experts_per_token=each,
        kernels=(6 + (3 if shared else 0), 14 + (6 if shared else 0)),
    )


def joined(*blocks: Block) -> Block:
    """The parts of one layer as one block of one layer."""
    total = Block()
    for b in blocks:
        total = replace(
            total,
            attention=total.attention + b.attention,
            mlp=total.mlp + b.mlp,
            shared=total.shared + b.shared,
            router=total.router + b.router,
            expert=total.expert + b.expert,
            expert_small=total.expert_small + b.expert_small,
            experts=total.experts + b.experts,
            experts_per_token=total.experts_per_token + b.experts_per_token,
            small=total.small + b.small,
            kv_width=total.kv_width + b.kv_width,
            window=b.window if total.window is None else total.window,
            context_flops=total.context_flops + b.context_flops,
            absorbed_context_flops=total.absorbed_context_flops + b.absorbed_context_flops,
            state=total.state + b.state,
            kernels=(total.kernels[0] + b.kernels[0], total.kernels[1] + b.kernels[1]),
        )
    return total


def grouped(layers: list[Block]) -> tuple[Block, ...]:
    """Layers that are alike counted together, in order of first appearance."""
    counts: dict[Block, int] = {}
    for layer in layers:
        counts[layer] = counts.get(layer, 0) + 1
    return tuple(replace(layer, count=n) for layer, n in counts.items())
