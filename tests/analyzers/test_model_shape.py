"""The shape of the served model, out of a run's settings."""

import json

import pytest

from whybound.analyzers.model_shape import shape_of
from whybound.errors import WhyboundError

CONFIG = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 448,
    "tie_word_embeddings": False, "torch_dtype": "float32",
}  # fmt: skip
RECORDED = {"model_config": json.dumps(CONFIG), "model": "meta-llama/Llama-3.1-8B"}


def test_a_recorded_configuration_counts_over_the_name():
    shape = shape_of(RECORDED)
    assert shape.parameters == 12_259_840
    assert shape.weight_bytes == 4 * 12_259_840
    assert shape.source == "the model's configuration, as recorded"


def test_a_name_stands_in_for_a_configuration():
    shape = shape_of({"model": "meta-llama/Llama-3.1-8B-Instruct"})
    assert shape.parameters == 8_030_261_248
    assert "meta-llama/Llama-3.1-8B" in shape.source
    assert shape_of({"served_model_name": "llama-3.1-8b"}).parameters == 8_030_261_248


@pytest.mark.parametrize(
    "settings", [{}, {"model": "m"}, {"model": "/models/mine"}, {"model_config": ""}]
)
def test_neither_configuration_nor_name(settings):
    assert shape_of(settings) is None


def test_the_engine_s_settings_count_over_the_checkpoint_s():
    assert shape_of({**RECORDED, "dtype": "torch.bfloat16"}).weight_bytes == 2 * 12_259_840
    # vLLM runs a float32 checkpoint in 16 bits when it chooses
    assert shape_of({**RECORDED, "dtype": "auto"}).weight_bytes == 2 * 12_259_840
    kv = shape_of({**RECORDED, "kv_cache_dtype": "fp8_e4m3"})
    assert kv.kv_bytes_per_token == 4 * 2 * 4 * 64
    assert kv.weight_bytes == 4 * 12_259_840
    both = shape_of({**RECORDED, "cache_type_k": "q8_0"})
    assert both.kv_bytes_per_token == 4 * 4 * 64 * (8.5 + 16) / 8


def test_quantized_while_loading():
    llama = {"model": "llama-3.1-8b"}
    plain, online = shape_of(llama), shape_of({**llama, "quantization": "fp8"})
    assert online.weight_bytes < 0.6 * plain.weight_bytes
    assert shape_of({**llama, "quantization": "None"}) == plain
    unknown = shape_of({**llama, "quantization": "brand_new"})
    assert unknown.parameters == plain.parameters
    assert unknown.weight_bytes is None


def test_a_quantization_read_off_a_name_is_not_exact():
    shape = shape_of({"model": "DeepSeek-R1-Distill-Llama-70B-AWQ"})
    assert not shape.quantization.exact
    assert shape.weight_bytes == pytest.approx(39.7e9, rel=0.02)


@pytest.mark.parametrize(
    "text", ["{", "[]", "1", "x" * 70_000, "[" * 60_000, '{"hidden_size": 1e999, "num_hidden_layers": 2}']
)  # fmt: skip
def test_a_recorded_configuration_that_is_none(text):
    with pytest.raises(WhyboundError, match=r"model_config|model configuration") as caught:
        shape_of({"model_config": text})
    assert "\n" not in str(caught.value)
