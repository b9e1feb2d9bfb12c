"""The table of public models, and how a name finds its model."""

import pytest

from whybound.rules.models import find_model, load_models
from whybound.rules.strict_yaml import RuleError

NAMES = [
    ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B", ""),
    ("llama-3.1-8b", "meta-llama/Llama-3.1-8B", ""),
    ("llama3.1:8b", "meta-llama/Llama-3.1-8B", ""),
    ("Meta-Llama-3.1-8B-Instruct-FP8", "meta-llama/Llama-3.1-8B", "fp8"),
    ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "meta-llama/Llama-3.1-8B", "w4a16"),
    ("/models/Llama-3.1-8B-Instruct-Q4_K_M.gguf", "meta-llama/Llama-3.1-8B", "q4_k_m"),
    ("DeepSeek-R1-Distill-Llama-70B-AWQ", "meta-llama/Llama-3.1-70B", "awq"),
    ("nvidia/Llama-3.1-8B-Instruct-NVFP4", "meta-llama/Llama-3.1-8B", "nvfp4"),
    ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "Qwen/Qwen2.5-7B", "int4"),
    ("Qwen2.5-7B-Instruct-GPTQ-Int8", "Qwen/Qwen2.5-7B", "int8"),
    ("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", "Qwen/Qwen3-30B-A3B", "fp8"),
    ("/srv/hub/models--Qwen--Qwen3-8B/snapshots/0abc", "Qwen/Qwen3-8B", ""),
    ("deepseek-ai/DeepSeek-V3-0324", "deepseek-ai/DeepSeek-V3", ""),
    ("google/gemma-2-9b-it", "google/gemma-2-9b", ""),
    ("mistralai/Mistral-7B-Instruct-v0.1", "mistralai/Mistral-7B-v0.1", ""),
    ("TheBloke/Mistral-7B-Instruct-v0.2-AWQ", "mistralai/Mistral-7B-Instruct-v0.2", "awq"),
    ("openai/gpt-oss-20b", "openai/gpt-oss-20b", ""),
    ("facebook/opt-125m", "facebook/opt-125m", ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "model", "quantization"), NAMES)
def test_a_name_finds_its_model(name, model, quantization):
    found = find_model(name)
    assert (found.model.id, found.quantization) == (model, quantization)
    assert bool(found.config.get("quantization_config")) == bool(
        quantization or found.model.config.get("quantization_config")
    )


@pytest.mark.parametrize(
    "name",
    ["", "m", "Llama-3.1-8B-roleplay", "llama", "8b", "gpt-4", "x" * 10_000, "../..", "FP8", "/"],
)
def test_a_name_that_is_not_in_the_table_finds_nothing(name):
    assert find_model(name) is None


def test_the_table_is_large_and_every_name_finds_its_own_configuration():
    models = load_models()
    assert len(models) >= 90
    for model in models:
        for name in (model.id, *model.also):
            assert find_model(name).model.config == model.config, name
        assert model.source


def test_a_name_does_not_change_the_table():
    before = dict(find_model("gpt-oss-20b").config)
    find_model("gpt-oss-20b-FP8")
    assert find_model("gpt-oss-20b").config == before


ROW = "  - {id: a/B-1b, published: 1, source: hub, config: {hidden_size: %d}}\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("models:\n" + ROW % 1 + (ROW % 2).replace("a/B-1b", "c/B-1B-Instruct"), "is also found as"),
        ("models:\n  - {id: a/B, published: 1, source: hub}\n", "config"),
        ("models:\n  - {id: a/B, published: x, source: hub, config: {}}\n", "published"),
        ("models:\n  - {id: a/B, published: 1, source: hub, config: {}, colour: red}\n", "colour"),
        ("model:\n  - 1\n", "only key"),
    ],
)  # fmt: skip
def test_a_malformed_table_is_named_with_its_line(tmp_path, text, why):
    path = tmp_path / "models.yaml"
    path.write_text(text)
    with pytest.raises(RuleError, match=why):
        load_models(path)
