"""What a shape costs, by hand on small models; what is refused; what is absent."""

import math
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whybound.analyzers.shapes.build import shape_from_config
from whybound.errors import WhyboundError

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip
ATTENTION = 64 * 64 + 2 * 64 * 32 + 64 * 64
FFN = 3 * 64 * 160
LAYER = ATTENTION + FFN
MOE = {
    **LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip
MLA = {
    **LLAMA, "model_type": "deepseek_v3", "num_key_value_heads": 4, "kv_lora_rank": 24, "q_lora_rank": None,
    "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12,
}  # fmt: skip


def shape(**changed):
    return shape_from_config({**LLAMA, **changed})


def test_a_dense_model_by_hand():
    found = shape()
    assert found.parameters == 2 * (LAYER + 2 * 64) + 64 + 2 * 100 * 64
    assert found.active_parameters == found.parameters
    assert found.weight_bytes == 2 * found.parameters
    assert found.flops_per_token == 2 * 2 * LAYER
    assert found.head_flops == 2 * 64 * 100
    assert found.kv_bytes_per_token == 2 * 2 * 2 * 16 * 2
    assert found.kv_bytes(1000) == 1000 * found.kv_bytes_per_token
    # scores and values: 2 × 4 heads × 16 each, for each of 10 tokens, in 2 layers
    assert found.attention_flops(10) == 2 * 10 * (2 * 64 + 2 * 64)
    assert found.prefill_attention_flops(10) == sum(found.attention_flops(n) for n in range(1, 11))
    assert found.prefill_attention_flops(3, cached_tokens=7) == sum(
        found.attention_flops(n) for n in (8, 9, 10)
    )


def test_a_tied_embedding_is_held_and_read_once():
    tied, untied = shape(tie_word_embeddings=True), shape()
    assert untied.parameters - tied.parameters == 100 * 64
    assert tied.read_bytes(1) == tied.weight_bytes
    # one row of the input table of an untied model
    assert untied.read_bytes(1) == untied.weight_bytes - 99 * 64 * 2


def test_a_pass_touches_experts_as_tokens_come():
    found = shape_from_config(MOE)
    expert = FFN
    assert found.active_parameters == found.parameters - 2 * 6 * expert
    assert found.flops_per_token == 2 * 2 * (ATTENTION + 64 * 8 + 2 * expert)
    still = found.weight_bytes - 2 * (2 * 8 * expert)  # all but the experts
    for tokens in (1, 2, 7, 40):
        touched = 8 * (1 - (1 - 2 / 8) ** tokens)
        rows = min(1.0, tokens / 100)
        expected = still - (1 - rows) * 100 * 64 * 2 + 2 * 2 * touched * expert
        assert found.read_bytes(tokens) == round(expected)
    assert found.read_bytes(10**6) == found.weight_bytes


def test_dense_layers_first_and_shared_experts():
    found = shape_from_config({
        **MLA, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 20,
        "n_shared_experts": 2, "first_k_dense_replace": 1,
    })  # fmt: skip
    dense, mixed = found.blocks
    assert (found.dense_layers, dense.mlp, mixed.mlp) == (1, FFN, 0)
    assert (mixed.expert, mixed.shared, mixed.router) == (3 * 64 * 20, 2 * 3 * 64 * 20, 4 * 64)


def test_latent_attention():
    found = shape_from_config(MLA)
    q, kv, up, out = 64 * 4 * 24, 64 * 32, 24 * 4 * 28, 4 * 12 * 64
    assert found.blocks[0].attention == q + kv + up + out
    assert found.kv_bytes_per_token == 2 * (24 + 8) * 2
    assert found.attention_flops(10) == 2 * 10 * 2 * 4 * (24 + 12)
    assert found.attention_flops(10, absorbed=True) == 2 * 10 * 2 * 4 * (24 + 32)


def test_a_window_bounds_cache_and_attention():
    found = shape(model_type="mistral", sliding_window=8)
    full = shape(model_type="mistral")
    assert found.sliding_layers == 2
    assert found.kv_bytes(100) == full.kv_bytes(8)
    assert found.attention_flops(100) == full.attention_flops(8)
    assert found.prefill_attention_flops(100) == sum(
        full.attention_flops(min(n, 8)) for n in range(1, 101)
    )


@pytest.mark.parametrize(
    ("config", "sliding"),
    [
        ({"model_type": "gemma2", "sliding_window": 8}, 3),
        ({"model_type": "gemma3_text", "sliding_window": 8}, 5),
        ({"model_type": "cohere2", "sliding_window": 8}, 5),
        ({"model_type": "gpt_oss", "sliding_window": 8}, 3),
        ({"model_type": "qwen2", "sliding_window": 8}, 0),
        ({"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": True, "max_window_layers": 4}, 2),
        ({"model_type": "llama4_text", "attention_chunk_size": 8}, 5),
        ({"sliding_window": 8, "layer_types": ["sliding_attention"] * 2 + ["full_attention"] * 4}, 2),
    ],
)  # fmt: skip
def test_which_layers_slide(config, sliding):
    assert shape(num_hidden_layers=6, **config).sliding_layers == sliding


def test_recurrent_layers_hold_a_state_and_no_growing_cache():
    hybrid = shape(
        model_type="nemotron_h", num_hidden_layers=4, hybrid_override_pattern="M-M*",
        mamba_num_heads=2, mamba_head_dim=8, ssm_state_size=16, n_groups=1, conv_kernel=4,
    )  # fmt: skip
    assert hybrid.growing_layers == 1
    assert hybrid.kv_bytes_per_token == 2 * 2 * 16 * 2
    assert hybrid.state_bytes == 2 * (2 * 8 * 16 + (16 + 32) * 3) * 2


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"model_type": "mamba2"}, "mamba2"),
        ({"model_type": "gemma3n_text"}, "gemma3n_text"),
        ({"model_type": "brand_new", "ssm_state_size": 16}, "ssm_state_size"),
        ({"model_type": "brand_new", "layer_types": ["full_attention", "lightning"]}, "lightning"),
        ({"model_type": "llama", "layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
        ({"model_type": "llama", "num_kv_shared_layers": 1}, "num_kv_shared_layers"),
        ({"model_type": "llama", "block_configs": [{}]}, "block_configs"),
        ({"model_type": "llama", "num_key_value_heads": [2, 1]}, "num_key_value_heads differs"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "MX"}, "X"),
        ({"model_type": "nemotron_h"}, "hybrid_override_pattern"),
    ],
)  # fmt: skip
def test_layers_that_are_not_modelled_are_refused_by_name(config, why):
    found = shape(**config)
    assert why in found.unknown
    assert not found.exact
    derived = (found.parameters, found.weight_bytes, found.kv_bytes_per_token, found.flops_per_token,
               found.read_bytes(1), found.attention_flops(5), found.kernels_per_layer)  # fmt: skip
    assert derived == (None,) * 7


def test_an_unknown_decoder_is_taken_for_a_generic_one_and_says_so():
    found = shape(model_type="brand_new")
    assert (found.exact, found.parameters) == (False, shape().parameters)


@pytest.mark.parametrize(
    "key",
    ["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size", "intermediate_size"],
)
def test_what_is_absent_is_none_and_named(key):
    found = shape_from_config({k: v for k, v in LLAMA.items() if k != key})
    assert key in found.missing
    assert found.parameters is None
    assert found.kv_bytes_per_token is None


def test_absent_dtype_leaves_counts_and_takes_bytes():
    found = shape_from_config({k: v for k, v in LLAMA.items() if k != "torch_dtype"})
    assert found.parameters
    assert (found.weight_bytes, found.kv_bytes_per_token, found.read_bytes(1)) == (None, None, None)
    assert "dtype" in found.missing


IMPOSSIBLE = (0, -1, True, "32", math.nan, math.inf, 2.5, 10**9, 10**400, {})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (key, value)
        for key in sorted(set(LLAMA) - {"model_type", "tie_word_embeddings", "torch_dtype"})
        for value in IMPOSSIBLE
        if (key, value) != ("intermediate_size", 0)  # a layer may be without a feed-forward
    ],
)
def test_impossible_values_are_one_line(key, value):
    with pytest.raises(WhyboundError, match=key) as caught:
        shape(**{key: value})
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"num_attention_heads": 6}, "6 heads do not divide"),
        ({"num_key_value_heads": 3}, "3 KV heads do not divide"),
        ({"layer_types": ["full_attention"]}, "1 layer_types for 2 layers"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 3}, "3 experts"),
    ],
)
def test_contradictions(config, why):
    with pytest.raises(WhyboundError, match=why):
        shape(**config)


def test_a_multimodal_model_is_its_decoder():
    inner = {k: v for k, v in LLAMA.items() if k != "torch_dtype"}
    outer = {
        "model_type": "llava",
        "text_config": inner,
        "torch_dtype": "float16",
        "hidden_size": 9,
    }
    assert shape_from_config(outer).weight_bytes == shape().weight_bytes


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda c: st.lists(c, max_size=3) | st.dictionaries(st.text(max_size=8), c, max_size=3),
    max_leaves=5,
)


@pytest.mark.parametrize("types", [[[], None], [None, []], [{}, 3], ["full_attention", ["x"]]])
def test_layer_types_that_are_no_words_are_not_modelled(types):
    got = shape_from_config({**LLAMA, "num_hidden_layers": 2, "layer_types": types})
    assert "not modelled" in got.unknown


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from([
    *LLAMA, "layer_types", "quantization_config", "sliding_window", "num_local_experts", "kv_lora_rank",
    "num_experts_per_tok", "head_dim", "architectures", "text_config", "moe_layers", "hybrid_override_pattern",
]), JUNK))  # fmt: skip
def test_any_json_gives_a_shape_or_an_error_of_ours(changed):
    found = None
    with suppress(WhyboundError):
        found = shape(**changed)
    assert found is None or found.parameters is None or found.parameters > 0


def compressed(**weights):
    groups = {"group_0": {"weights": weights}}
    return {"quant_method": "compressed-tensors", "config_groups": groups}


BITS = [
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 128**2, 16),
    ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4 + 20 / 128, 16),
    ({"quant_method": "gptq", "bits": 8, "group_size": 32}, 8 + 24 / 32, 16),
    ({"quant_method": "gptq", "bits": 4, "group_size": -1, "lm_head": True}, 4, 4),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5, 16),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8, 16),
    (compressed(num_bits=8, type="float", strategy="channel"), 8, 16),
    (compressed(num_bits=4, type="int", group_size=128, symmetric=True), 4 + 16 / 128, 16),
    (compressed(num_bits=4, type="float", strategy="tensor_group", group_size=16), 4.5, 16),
]  # fmt: skip


@pytest.mark.parametrize(("config", "bits", "head_bits"), BITS)
def test_quantized_weights_by_hand(config, bits, head_bits):
    found = shape(quantization_config=config)
    plain = 100 * 64 * 2 + (2 * 2 * 64 + 64) * 2 + 100 * 64 * head_bits / 8
    assert found.weight_bytes == round(plain + 2 * LAYER * bits / 8)
    assert found.quantization.exact
    assert found.parameters == shape().parameters
    assert found.kv_bytes_per_token == shape().kv_bytes_per_token


def test_only_experts_of_mxfp4_are_quantized():
    found = shape_from_config({**MOE, "quantization_config": {"quant_method": "mxfp4"}})
    experts = 2 * 8 * FFN
    assert found.weight_bytes == round(2 * (found.parameters - experts) + experts * 4.25 / 8)
    assert "attention" in found.quantization.kept


@pytest.mark.parametrize(
    "ignored",
    [
        ["lm_head", "re:.*self_attn.*"],
        ["model.layers.0.self_attn*", "model.layers.1.self_attn*", "model.layers.2.self_attn*"],
        [
            "model.layers.0.self_attn",
            "model.layers.1.self_attn",
            "model.layers.0.post_attention_layernorm",
        ],
    ],
)
def test_what_is_left_alone_stays_in_16_bits(ignored):
    found = shape(quantization_config={"quant_method": "fp8", "modules_to_not_convert": ignored})
    assert found.bits["attention"] == 16
    assert found.bits["mlp"] == 8


def test_a_part_of_the_layers_left_alone():
    found = shape(quantization_config={"quant_method": "fp8", "ignore": ["model.layers.1.mlp.up"]})
    assert found.bits["mlp"] == 12


@pytest.mark.parametrize(
    "config",
    [{"quant_method": "brand_new"}, {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
     {"quant_method": "awq"}, {"quant_method": "compressed-tensors", "config_groups": {}}, {"bits": 4}],
)  # fmt: skip
def test_a_method_that_is_not_known_gives_no_bytes(config):
    found = shape(quantization_config=config)
    assert found.parameters
    assert found.weight_bytes is None
    assert "quantization_config" in found.missing


@pytest.mark.parametrize(
    ("asked", "scheme", "bits"),
    [
        ("", {}, 16), ("auto", {}, 16), ("fp8", {}, 8), ("fp8_e5m2", {}, 8), ("bfloat16", {}, 16),
        ("f16/q8_0", {}, 12.25), ("", {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, 8),
        ("", {"kv_cache_quant_algo": "FP8"}, 8), ("auto", {"kv_cache_quant_algo": "FP8"}, 8),
        ("bfloat16", {"kv_cache_quant_algo": "FP8"}, 16),
    ],
)  # fmt: skip
def test_the_cache_has_its_own_type(asked, scheme, bits):
    config = {**LLAMA, "quantization_config": {"quant_method": "fp8", **scheme}}
    assert shape_from_config(config, kv_dtype=asked).kv_bits == bits


def test_a_cache_type_that_is_not_known():
    found = shape_from_config(LLAMA, kv_dtype="brand_new")
    assert found.kv_bytes_per_token is None
    assert "kv_cache_dtype" in found.missing
