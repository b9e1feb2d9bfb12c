"""How architectures differ from a Llama, as data: biases, norms, gates, windows, ties.

Read from the modelling code of Hugging Face transformers; each family's parameter count is checked against it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

Bias = bool | tuple[str, bool]
"""Always, never, or by a key of the configuration with its default."""


@dataclass(frozen=True)
class Family:
    """Where an architecture departs from: RMS norms, no bias, a gated feed-forward, rotary positions, untied.

    `norms`, `final_norm`: vectors of hidden size (a LayerNorm with bias is two). `qk_norm`: "head" one vector of
    a head's width each for queries and keys, "full" all heads' width, "" none. `window`: which layers slide when
    there is a window: "all", "late" (from max_window_layers on), "alternate" (the first of each two),
    "pattern" (all but each sliding_window_pattern-th). `correction`: a bias an expert in the router.
    """

    qkv_bias: Bias = False
    o_bias: Bias = False
    mlp_bias: Bias = False
    gated: bool = True
    norms: int = 2
    final_norm: int = 1
    qk_norm: str = ""
    qk_norm_key: str = ""
    tied: bool = False
    head_bias: bool = False
    window: str = ""
    pattern: int = 0
    positions: str = ""
    positions_extra: int = 0
    sinks: bool = False
    correction: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    shared_gate: bool = False


_BIAS: Bias = ("attention_bias", False)
_LLAMA = Family(qkv_bias=_BIAS, o_bias=_BIAS, mlp_bias=("mlp_bias", False))
_QWEN3 = Family(qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", window="late")
_GEMMA = Family(qkv_bias=_BIAS, o_bias=_BIAS, tied=True)
_COHERE = Family(
    qkv_bias=_BIAS, o_bias=_BIAS, norms=1, tied=True, qk_norm="heads", qk_norm_key="use_qk_norm"
)
_OLMO = Family(qkv_bias=_BIAS, o_bias=_BIAS)
_DEEPSEEK = Family(qkv_bias=_BIAS, o_bias=_BIAS)
_DEEPSEEK_V3 = replace(_DEEPSEEK, correction=True)
_BIASED = Family(
    qkv_bias=True, o_bias=True, mlp_bias=True, gated=False, norms=4, final_norm=2, tied=True
)
_ERNIE = Family(
    qkv_bias=("use_bias", False),
    o_bias=("use_bias", False),
    mlp_bias=("use_bias", False),
    tied=True,
)
_QWEN3_NEXT = Family(qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", shared_gate=True)

FAMILIES: dict[str, Family] = {
    "llama": _LLAMA,
    "mistral": Family(window="all"),
    "ministral": Family(window="all"),
    "ministral3": Family(window="all"),
    "mixtral": Family(window="all"),
    "qwen2": Family(qkv_bias=True, window="late"),
    "qwen2_moe": Family(qkv_bias=("qkv_bias", True), window="late", shared_gate=True),
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "qwen3_vl_text": _QWEN3,
    "qwen3_vl_moe_text": _QWEN3,
    "qwen3_next": _QWEN3_NEXT,
    "qwen3_5_text": _QWEN3_NEXT,
    "qwen3_5_moe_text": _QWEN3_NEXT,
    "gemma": _GEMMA,
    "gemma2": replace(_GEMMA, norms=4, window="alternate"),
    "gemma3_text": replace(_GEMMA, norms=4, qk_norm="head", window="pattern", pattern=6),
    "phi": replace(
        _BIASED, norms=2, head_bias=True, tied=False, qk_norm_key="qk_layernorm"
    ),
    "phi3": Family(window="all"),
    "deepseek": _DEEPSEEK,
    "deepseek_v2": _DEEPSEEK,
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "glm4_moe_lite": _DEEPSEEK_V3,
    "glm4_moe": Family(
        qkv_bias=_BIAS, qk_norm="head", qk_norm_key="use_qk_norm", correction=True
    ),
    "glm4v_moe_text": Family(qkv_bias=_BIAS, correction=True),
    "dots1": Family(qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", correction=True),
    "glm": Family(qkv_bias=("attention_bias", True)),
    "glm4": Family(qkv_bias=("attention_bias", True), norms=4),
    "gpt_oss": Family(
        qkv_bias=("attention_bias", True), o_bias=("attention_bias", True), sinks=True,
        router_bias=True, expert_bias=True, window="alternate",
    ),
    "gpt2": replace(_BIASED, positions="n_positions"),
    "opt": replace(_BIASED, positions="max_position_embeddings", positions_extra=2),
    "gpt_neox": replace(
        _BIASED, tied=False, qkv_bias=("attention_bias", True), o_bias=("attention_bias", True)
    ),
    "starcoder2": replace(
        _BIASED, qkv_bias=("use_bias", True), o_bias=("use_bias", True), mlp_bias=("use_bias", True),
        window="all",
    ),
    "nemotron": replace(
        _BIASED, qkv_bias=_BIAS, o_bias=_BIAS, mlp_bias=("mlp_bias", False), tied=False
    ),
    "stablelm": Family(qkv_bias=("use_qkv_bias", False), norms=4, final_norm=2),
    "falcon": Family(gated=False, tied=True),
    "olmo": replace(_OLMO, norms=0, final_norm=0),
    "olmo2": replace(_OLMO, qk_norm="full"),
    "olmo3": replace(_OLMO, qk_norm="full"),
    "olmoe": replace(_OLMO, qk_norm="full"),
    "granite": replace(_LLAMA, tied=True),
    "granitemoe": replace(_LLAMA, mlp_bias=False, tied=True),
    "cohere": _COHERE,
    "cohere2": replace(_COHERE, qk_norm="", window="pattern", pattern=4),
    "minicpm": replace(_LLAMA, tied=True),
    "minicpm3": Family(qkv_bias=_BIAS, o_bias=_BIAS, tied=True),
    "llama4_text": replace(_LLAMA, mlp_bias=False, window="chunked", pattern=4),
    "smollm3": replace(_LLAMA, tied=True),
    "seed_oss": Family(
        qkv_bias=("attention_bias", True), o_bias=("attention_out_bias", False),
        mlp_bias=("mlp_bias", False),
    ),
    "ernie4_5": _ERNIE,
    "exaone4": Family(qk_norm="head", window="pattern", pattern=4),
    "hunyuan_v1_dense": Family(qkv_bias=_BIAS, o_bias=_BIAS, qk_norm="head", tied=True),
    "minimax_m2": Family(qk_norm="full", correction=True),
    "internlm2": Family(qkv_bias=("bias", False), o_bias=("bias", False)),
    "baichuan": Family(),
    "nemotron_h": Family(qkv_bias=_BIAS, o_bias=_BIAS, gated=False, correction=True),
    "jamba": Family(),
}  # fmt: skip

GENERIC = Family()

ALIASES = {
    "gemma3": "gemma3_text",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen2_vl": "qwen2",
    "qwen2_vl_text": "qwen2",
    "llama4": "llama4_text",
    "kimi_k25": "kimi_k2",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "glm4v_moe": "glm4v_moe_text",
    "gpt_neox_text": "gpt_neox",
}

DEFAULTS: dict[str, dict[str, int]] = {
    "gemma3_text": {
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "vocab_size": 262_208, "hidden_size": 2_304, "sliding_window": 4_096,
    },
    "gemma2": {"head_dim": 256, "sliding_window": 4_096},
    "gemma": {"head_dim": 256},
    "gpt2": {"n_positions": 1_024, "vocab_size": 50_257},
    "qwen3": {"head_dim": 128, "sliding_window": 4_096},
    "qwen2": {"sliding_window": 4_096},
    "mistral": {"num_key_value_heads": 8},
    "mixtral": {"num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2},
    "gpt_oss": {"sliding_window": 128},
    "qwen2_moe": {"num_experts_per_tok": 4},
}  # fmt: skip
"""What transformers takes where the published configuration leaves it out."""

RECURRENT = (
    "mamba", "mamba2", "falcon_mamba", "falcon_h1", "bamba", "zamba", "zamba2", "rwkv", "rwkv6", "rwkv7",
    "recurrent_gemma", "granitemoehybrid", "minimax", "kimi_linear", "lfm2", "lfm2_moe", "plamo2",
    "olmo_hybrid", "xlstm",
)  # fmt: skip
"""Architectures with layers that hold no growing KV cache and that are not modelled."""

OTHERS = (
    "t5", "mt5", "umt5", "t5gemma", "bart", "mbart", "whisper", "mllama_text_model", "mllama", "gemma3n",
    "gemma3n_text", "gemma4", "gemma4_text", "longcat_flash", "deepseek_v32", "deepseek_v4", "glm_moe_dsa",
    "bert", "roberta", "openelm",
)  # fmt: skip
"""Encoders, cross-attention, shared KV, two attentions a layer, sparse attention: not modelled either."""
