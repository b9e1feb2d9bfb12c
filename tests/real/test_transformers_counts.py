"""Every family's parameters, counted by formula and by transformers: the same, to the last bias."""

import json
import subprocess
from pathlib import Path

import pytest

from whybound.analyzers.shapes.build import shape_from_config

HERE = Path(__file__).parent

BASE = {
    "hidden_size": 96, "intermediate_size": 200, "num_hidden_layers": 8, "num_attention_heads": 12,
    "num_key_value_heads": 4, "vocab_size": 1000, "tie_word_embeddings": False, "pad_token_id": 0,
}  # fmt: skip
WIDE = {**BASE, "head_dim": 16}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40}
LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
ROUTED = {
    "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 40, "n_shared_experts": 2,
    "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
}  # fmt: skip
LATENT = {
    **BASE, "kv_lora_rank": 24, "q_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
    "v_head_dim": 20, "num_key_value_heads": 12,
}  # fmt: skip
LINEAR = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
    "linear_value_head_dim": 12, "linear_conv_kernel_dim": 4,
}  # fmt: skip
SHARED = {**EXPERTS, "shared_expert_intermediate_size": 70}
MAMBA2 = {
    "mamba_num_heads": 6,
    "mamba_head_dim": 10,
    "ssm_state_size": 8,
    "n_groups": 2,
    "conv_kernel": 4,
}
OPT = {
    "hidden_size": 96, "num_hidden_layers": 4, "num_attention_heads": 12, "ffn_dim": 200, "vocab_size": 1000,
    "max_position_embeddings": 64,
}  # fmt: skip
FALCON = {"hidden_size": 96, "num_hidden_layers": 4, "num_attention_heads": 12, "vocab_size": 1000}
NEOX = {k: v for k, v in BASE.items() if k != "num_key_value_heads"}
JAMBA = {
    **BASE, "num_experts": 4, "num_experts_per_tok": 2, "attn_layer_period": 4, "attn_layer_offset": 2,
    "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 8, "mamba_d_conv": 4,
    "mamba_expand": 2, "mamba_dt_rank": 6, "use_mamba_kernels": False,
}  # fmt: skip

FAMILIES = [
    ("llama", BASE), ("llama", {**WIDE, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    ("mistral", {**WIDE, "sliding_window": 64}), ("mixtral", {**BASE, **LOCAL}), ("qwen2", BASE),
    ("qwen2_moe", {**BASE, **SHARED, "decoder_sparse_step": 2}),
    ("qwen2_moe", {**BASE, **SHARED, "mlp_only_layers": [0, 3]}), ("qwen3", WIDE),
    ("qwen3_moe", {**WIDE, **EXPERTS}), ("gemma", WIDE), ("gemma2", {**WIDE, "sliding_window": 64}),
    ("gemma3_text", {**WIDE, "sliding_window": 64, "tie_word_embeddings": True}), ("phi3", BASE), ("phi", BASE),
    ("deepseek_v2", {**LATENT, **ROUTED}), ("deepseek_v3", {**LATENT, **ROUTED, "first_k_dense_replace": 3}),
    ("deepseek_v3", {**LATENT, **ROUTED, "q_lora_rank": None}), ("glm4_moe_lite", {**LATENT, **ROUTED}),
    ("glm4_moe", {**WIDE, **ROUTED, "use_qk_norm": True, "attention_bias": True}),
    ("glm4_moe", {**WIDE, **ROUTED}), ("dots1", {**WIDE, **ROUTED}), ("glm", WIDE), ("glm4", WIDE),
    ("gpt_oss", {**WIDE, **LOCAL}), ("opt", {**OPT, "word_embed_proj_dim": 96}),
    ("opt", {**OPT, "word_embed_proj_dim": 48, "do_layer_norm_before": False}),
    ("gpt2", {"n_embd": 96, "n_layer": 4, "n_head": 12, "vocab_size": 1000, "n_positions": 64}),
    ("gpt_neox", NEOX), ("starcoder2", BASE), ("nemotron", {**BASE, "head_dim": 8}), ("stablelm", BASE),
    ("stablelm", {**BASE, "use_qkv_bias": True, "use_parallel_residual": True}), ("falcon", FALCON),
    ("falcon", {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 4, "tie_word_embeddings": False}),
    ("olmo", BASE), ("olmo2", BASE), ("olmo3", BASE),
    ("olmoe", {**BASE, "num_experts": 8, "num_experts_per_tok": 2}),
    ("granite", BASE), ("granitemoe", {**BASE, **LOCAL}), ("cohere", BASE),
    ("cohere", {**BASE, "use_qk_norm": True, "tie_word_embeddings": True}), ("cohere2", BASE),
    ("minicpm3", LATENT),
    ("llama4_text", {**WIDE, **LOCAL, "intermediate_size_mlp": 300, "interleave_moe_layer_step": 2}),
    ("smollm3", BASE), ("seed_oss", WIDE), ("ernie4_5", {**WIDE, "use_bias": True}),
    ("exaone4", {**BASE, "sliding_window": 64}), ("hunyuan_v1_dense", WIDE), ("minimax_m2", {**WIDE, **LOCAL}),
    ("qwen3_next", {**WIDE, **SHARED, **LINEAR}), ("qwen3_5_text", {**WIDE, **LINEAR}),
    ("qwen3_5_moe_text", {**WIDE, **SHARED, **LINEAR}), ("jamba", JAMBA),
    ("nemotron_h", {**WIDE, **MAMBA2, "hybrid_override_pattern": "M-M*-M-*"}),
    ("nemotron_h", {**WIDE, **MAMBA2, **ROUTED, "hybrid_override_pattern": "MEM*EMEM",
                    "moe_shared_expert_intermediate_size": 50}),
]  # fmt: skip
CONFIGS = [{"model_type": name, **config} for name, config in FAMILIES]


@pytest.fixture(scope="module")
def counts(vllm_bin):
    done = subprocess.run(
        [vllm_bin / "python", HERE / "count_parameters.py"],
        input=json.dumps(CONFIGS), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout[done.stdout.index("[") :])


@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.parametrize("i", range(len(CONFIGS)), ids=[c["model_type"] for c in CONFIGS])
def test_parameters_are_those_that_transformers_builds(counts, i):
    shape = shape_from_config(CONFIGS[i])
    assert shape.exact
    assert shape.parameters == counts[i]
