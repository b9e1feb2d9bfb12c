"""Parameters and KV bytes of public models, exactly as published."""

import pytest

from whybound.analyzers.shapes.build import shape_from_config
from whybound.rules.models import find_model, load_models

# "hub": total of the safetensors parameters that the Hugging Face Hub states for the repository.
PUBLISHED = [
    ("lmsys/vicuna-7b-v1.5", 6_738_415_616, "hub"),
    ("lmsys/vicuna-13b-v1.5", 13_015_864_320, "hub"),
    ("meta-llama/Meta-Llama-3-8B", 8_030_261_248, "hub"),
    ("meta-llama/Llama-3.1-70B", 70_553_706_496, "hub"),
    ("meta-llama/Llama-3.1-405B", 405_853_388_800, "hub"),
    ("meta-llama/Llama-3.2-1B", 1_235_814_400, "hub"),
    ("meta-llama/Llama-3.2-3B", 3_212_749_824, "hub"),
    ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", 1_100_048_384, "hub"),
    ("HuggingFaceTB/SmolLM2-135M", 134_515_008, "hub"),
    ("HuggingFaceTB/SmolLM3-3B", 3_075_098_624, "hub"),
    ("mistralai/Mistral-7B-v0.1", 7_241_732_096, "hub"),
    ("mistralai/Mixtral-8x7B-v0.1", 46_702_792_704, "hub"),
    ("mistralai/Mixtral-8x22B-Instruct-v0.1", 140_630_071_296, "hub"),
    ("Qwen/Qwen2.5-0.5B", 494_032_768, "hub"),
    ("Qwen/Qwen2.5-7B", 7_615_616_512, "hub"),
    ("Qwen/Qwen2.5-72B", 72_706_203_648, "hub"),
    ("Qwen/Qwen1.5-MoE-A2.7B", 14_315_784_192, "hub"),
    ("Qwen/Qwen3-8B", 8_190_735_360, "hub"),
    ("Qwen/Qwen3-30B-A3B", 30_532_122_624, "hub"),
    ("Qwen/Qwen3-235B-A22B", 235_093_634_560, "hub"),
    ("Qwen/Qwen3-Coder-Next", 79_674_391_296, "hub"),
    ("google/gemma-2b", 2_506_172_416, "hub"),
    ("google/gemma-7b", 8_537_680_896, "keras-hub presets"),
    ("google/gemma-2-27b", 27_227_128_320, "hub"),
    ("google/gemma-3-270m", 268_098_176, "hub"),
    ("microsoft/phi-2", 2_779_683_840, "hub"),
    ("microsoft/Phi-3-mini-4k-instruct", 3_821_079_552, "hub"),
    ("deepseek-ai/DeepSeek-V2-Lite", 15_706_484_224, "hub"),
    ("deepseek-ai/DeepSeek-V2.5", 235_741_434_880, "hub"),
    ("deepseek-ai/DeepSeek-V3", 671_026_419_200, "model card: 671B of the main model; shard headers"),
    ("moonshotai/Kimi-K2-Instruct", 1_026_408_232_448, "shard headers without scales"),
    ("openai/gpt-oss-20b", 20_914_757_184, "model card: 20.9B; metadata at Ollama"),
    ("openai/gpt-oss-120b", 116_829_156_672, "hub, of the dequantized copy by axolotl-ai-co"),
    ("zai-org/glm-4-9b-chat-hf", 9_399_951_360, "hub"),
    ("rednote-hilab/dots.llm1.inst", 142_774_381_696, "hub"),
    ("facebook/opt-125m", 125_239_296, "hub"),
    ("openai-community/gpt2", 124_439_808, "widely cited"),
    ("allenai/OLMo-2-1124-7B", 7_298_617_344, "hub"),
    ("allenai/OLMoE-1B-7B-0125", 6_919_161_856, "hub"),
    ("ibm-granite/granite-3.3-8b-instruct", 8_170_864_640, "hub"),
    ("nvidia/Nemotron-H-8B-Base-8K", 8_100_852_736, "hub"),
    ("nvidia/NVIDIA-Nemotron-Nano-9B-v2", 8_888_227_328, "hub"),
]  # fmt: skip

# In 16 bits; by hand: layers × 2 × KV heads × head width × 2, for MLA layers × (512 + 64) × 2.
KV_BYTES = [
    ("meta-llama/Llama-2-7b-hf", 32 * 2 * 32 * 128 * 2),
    ("meta-llama/Meta-Llama-3-8B", 131_072),
    ("meta-llama/Llama-3.1-70B", 327_680),
    ("meta-llama/Llama-3.1-405B", 516_096),
    ("mistralai/Mixtral-8x7B-v0.1", 131_072),
    ("Qwen/Qwen2.5-7B", 57_344),
    ("Qwen/Qwen3-235B-A22B", 192_512),
    ("google/gemma-3-27b-it", 62 * 2 * 16 * 128 * 2),
    ("deepseek-ai/DeepSeek-V3", 70_272),
    ("deepseek-ai/DeepSeek-V2-Lite", 31_104),
    ("openai/gpt-oss-120b", 73_728),
    ("facebook/opt-125m", 36_864),
    ("Qwen/Qwen3-Coder-Next", 12 * 2 * 2 * 256 * 2),
    ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 6 * 2 * 2 * 128 * 2),
    ("ai21labs/Jamba-v0.1", 4 * 2 * 8 * 128 * 2),
]

# By hand; the cards say 12.9B, 37B and 3.3B.
ACTIVE = [
    ("mistralai/Mixtral-8x7B-v0.1", 12_879_925_248),
    ("deepseek-ai/DeepSeek-V3", 37_552_282_624 + 58 * 256),
    ("Qwen/Qwen3-30B-A3B", 30_532_122_624 - 48 * (128 - 8) * 3 * 2048 * 768),
]


def shape(name):
    return shape_from_config(find_model(name).config)


@pytest.mark.parametrize(("name", "parameters", "source"), PUBLISHED)
def test_parameters_are_those_published(name, parameters, source):
    found = shape(name)
    assert found.parameters == parameters, source
    assert found.exact


@pytest.mark.parametrize(("name", "kv_bytes"), KV_BYTES)
def test_kv_bytes_a_token(name, kv_bytes):
    assert shape(name).kv_bytes_per_token == kv_bytes


@pytest.mark.parametrize(("name", "active"), ACTIVE)
def test_parameters_that_a_token_passes(name, active):
    assert shape(name).active_parameters == active


@pytest.mark.parametrize("model", load_models(), ids=lambda m: m.id)
def test_every_model_of_the_table_is_counted(model):
    found = shape_from_config(model.config)
    assert found.exact
    assert not found.missing
    assert found.weight_bytes
    assert found.kv_bytes_per_token
    if not model.differs:
        assert found.parameters == model.published
    else:
        assert found.parameters != model.published
        assert (
            found.parameters == pytest.approx(model.published, rel=0.1) or "tied" in model.differs
        )
