"""A GGUF header in the words of a `config.json`, so that one reader serves both."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from .gguf_header import Header

TYPES = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82),
    23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2),
    34: (256, 54), 35: (256, 66), 39: (32, 17),
}  # fmt: skip
"""ggml's tensor types: weights a block, bytes a block."""

ARCHITECTURES = {
    "gptneox": "gpt_neox", "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe", "qwen3next": "qwen3_next",
    "gemma3": "gemma3_text", "phi2": "phi", "deepseek2": "deepseek_v2", "gpt-oss": "gpt_oss",
    "glm4moe": "glm4_moe", "chatglm": "glm", "command-r": "cohere", "llama4": "llama4_text",
    "granitehybrid": "granitemoehybrid", "hunyuan-dense": "hunyuan_v1_dense",
}  # fmt: skip
"""llama.cpp's name → `model_type`, where dashes as underscores do not do it."""

KEYS = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "attention.kv_lora_rank": "kv_lora_rank",
    "attention.q_lora_rank": "q_lora_rank",
    "vocab_size": "vocab_size",
    "context_length": "max_position_embeddings",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_count": "n_shared_experts",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "leading_dense_block_count": "first_k_dense_replace",
    "interleave_moe_layer_step": "interleave_moe_layer_step",
}
"""Keys under the architecture's name → keys of a `config.json`."""

_BLOCK = re.compile(r"blk\.(\d{1,6})\.")


def config_of(header: Header) -> dict[str, object]:
    """The header as a `config.json` would say it, for `shape_of`; bits a weight by part where they are known.

    Per-layer lists of one value become that value; others stay lists, for the reader to refuse.
    """
    name = header.values.get("general.architecture")
    name = name if isinstance(name, str) and re.fullmatch(r"[\w.-]{1,64}", name) else ""
    config: dict[str, object] = {
        "model_type": ARCHITECTURES.get(name, name.replace("-", "_")),
    }
    for key, word in KEYS.items():
        value = header.values.get(f"{name}.{key}")
        if isinstance(value, list) and len(set(value)) == 1:
            value = value[0]
        if value is not None and not (key.startswith("expert") and value == 0):
            config[word] = value
    _refine(config, header, name)
    bits = _bits(header, config)
    config["quantization_config"] = {
        "quant_method": "gguf",
        **({"part_bits": bits} if bits else {}),
    }
    return config


def _refine(config: dict[str, object], header: Header, name: str) -> None:
    """What the tensors' names tell, and where llama.cpp counts otherwise than a `config.json`."""
    if name == "llama" and config.get("num_experts"):
        config["model_type"] = "mixtral"
    layers, extra = (
        config.get("num_hidden_layers"),
        header.values.get(f"{name}.nextn_predict_layers"),
    )
    if isinstance(layers, int) and isinstance(extra, int) and 0 < extra < layers:
        config["num_hidden_layers"] = layers - extra
    if "vocab_size" not in config and (tokens := header.lengths.get("tokenizer.ggml.tokens")):
        config["vocab_size"] = tokens
    if config.get("kv_lora_rank"):
        _latent(config, header, name)
    if name == "gpt2" and "max_position_embeddings" in config:
        config["n_positions"] = config["max_position_embeddings"]
    if not header.tensors:
        return
    config["tie_word_embeddings"] = "output.weight" not in header.tensors
    config["attention_bias"] = any(
        f"blk.0.attn_{part}.bias" in header.tensors for part in ("q", "qkv")
    )
    config["use_qk_norm"] = "blk.0.attn_q_norm.weight" in header.tensors
    if any(t.endswith("exp_probs_b.bias") for t in header.tensors) and name == "deepseek2":
        config["model_type"] = "deepseek_v3"


def _latent(config: dict[str, object], header: Header, name: str) -> None:
    """MLA: newer files give the cache's width as key length and the heads' own under `_mla`."""
    keys = header.values.get(f"{name}.attention.key_length_mla", config.pop("head_dim", None))
    values = header.values.get(
        f"{name}.attention.value_length_mla", header.values.get(f"{name}.attention.value_length")
    )
    rope = header.values.get(f"{name}.rope.dimension_count")
    config.pop("head_dim", None)
    config["num_key_value_heads"] = config.get("num_attention_heads")
    if isinstance(rope, int) and isinstance(keys, int) and keys > rope:
        config["qk_rope_head_dim"], config["qk_nope_head_dim"] = rope, keys - rope
    if isinstance(values, int):
        config["v_head_dim"] = values


def _bits(header: Header, config: dict[str, object]) -> dict[str, float]:
    """Bits a weight of embedding, head, experts and the rest; empty for a part of a split model."""
    if header.values.get("split.count", 1) not in (0, 1) or not header.tensors:
        return {}
    layers = config.get("num_hidden_layers")
    weights: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for part, n, size in _sized(header, layers if isinstance(layers, int) else 1 << 30):
        if size is None:
            return {}
        weights[part] = weights.get(part, 0) + n
        sizes[part] = sizes.get(part, 0) + size
    return {part: 8 * sizes[part] / n for part, n in weights.items() if n}


def _sized(header: Header, layers: int) -> Iterator[tuple[str, int, int | None]]:
    for name, (dims, kind) in header.tensors.items():
        block = _BLOCK.match(name)
        if (block and int(block[1]) >= layers) or name.startswith("rope_"):
            continue
        n = math.prod(dims)
        per, size = TYPES.get(kind, (1, 0))
        part = {"token_embd.weight": "embedding", "output.weight": "head"}.get(name, "rest")
        if "_exps." in name:
            part = "experts"
        yield part, n, -(-n // per) * size if size else None
