"""Layers with a fixed state instead of a growing cache: gated delta net, Mamba and Mamba-2."""

from __future__ import annotations

from dataclasses import replace

from .fields import Fields
from .shape import Block

KERNELS = (6, 18)
"""Projections, convolution, gates, scan or state update, norm, output."""


def delta_net(fields: Fields, hidden: int) -> Block:
    """Gated delta net (Qwen3-Next, Qwen3.5).

    Matrices: hidden × (2 key + 2 value width) + hidden × 2 value heads + value width × hidden; small: the
    convolution over 2 key + value width, and a decay and a time step a value head, and the norm of a head.
    State: value heads × key width a head × value width a head, and the convolution's window.
    """
    k_heads, v_heads = (
        fields.needed("linear_num_key_heads"),
        fields.needed("linear_num_value_heads"),
    )
    k_dim, v_dim = fields.needed("linear_key_head_dim"), fields.needed("linear_value_head_dim")
    kernel = fields.needed("linear_conv_kernel_dim")
    keys, values = k_heads * k_dim, v_heads * v_dim
    convolved = 2 * keys + values
    return Block(
        attention=hidden * (2 * keys + 2 * values) + hidden * 2 * v_heads + values * hidden,
        small=convolved * kernel + 2 * v_heads + v_dim,
        state=v_heads * k_dim * v_dim + convolved * max(0, kernel - 1),
        kernels=KERNELS,
    )


def gated_attention(plain: Block, hidden: int, heads: int, width: int) -> Block:
    """Attention with an output gate: the query projection is twice as wide (Qwen3-Next)."""
    return replace(plain, attention=plain.attention + hidden * heads * width)


def mamba2(fields: Fields, hidden: int) -> Block:
    """Mamba-2 as Nemotron-H has it, arXiv:2405.21060.

    Width = heads × head width; convolved = width + 2 × groups × state. Matrices: hidden × (width + convolved +
    heads) + width × hidden; small: the convolution, three numbers a head, the norm.
    """
    heads, dim = fields.needed("mamba_num_heads"), fields.needed("mamba_head_dim")
    state, groups = fields.needed("ssm_state_size"), fields.needed("n_groups")
    kernel = fields.needed("conv_kernel")
    width = heads * dim
    convolved = width + 2 * groups * state
    projected = width + convolved + heads
    small = convolved * (kernel + fields.flag("use_conv_bias", default=True)) + 3 * heads + width
    if fields.flag("mamba_proj_bias") or fields.flag("use_bias"):
        small += projected + hidden
    return Block(
        attention=hidden * projected + width * hidden,
        small=small,
        state=heads * dim * state + convolved * max(0, kernel - 1),
        kernels=KERNELS,
    )


def mamba1(fields: Fields, hidden: int) -> Block:
    """Mamba as Jamba has it, arXiv:2403.19887, with its three inner norms.

    Width = expand × hidden. Matrices: hidden × 2 width + width × (rank + 2 state) + rank × width + width × hidden.
    """
    width = fields.needed("mamba_expand") * hidden
    state, kernel = fields.needed("mamba_d_state"), fields.needed("mamba_d_conv")
    rank = fields.whole("mamba_dt_rank") or -(-hidden // 16)
    small = width * (kernel + fields.flag("mamba_conv_bias", default=True))
    small += width + width * state + width + rank + 2 * state
    if fields.flag("mamba_proj_bias"):
        small += 2 * width + hidden
    return Block(
        attention=hidden * 2 * width + width * (rank + 2 * state) + rank * width + width * hidden,
        small=small,
        state=width * state + width * max(0, kernel - 1),
        kernels=KERNELS,
    )
