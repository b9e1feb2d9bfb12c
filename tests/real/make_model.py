"""Make a small Llama with a byte tokenizer for real-engine tests: no download, no weights.

    python make_model.py FOLDER

Needs the `tokenizers` package, which every vLLM has. 12 M parameters (47 MB in float32): a decode step takes
4 to 12 ms on one core, so that queues, budgets and batches are real and a test is short. Weights are dummies
(`--load-format dummy`).
"""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

HIDDEN, LAYERS, INTERMEDIATE, HEADS, KV_HEADS, VOCAB = 512, 4, 1408, 8, 4, 448

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HIDDEN // HEADS,
    "vocab_size": VOCAB,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "bos_token_id": 0,
    "eos_token_id": 0,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "rope_theta": 10000.0,
}


def main(folder: Path) -> None:
    """Write config, tokenizer and generation settings into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {"<|end|>": 0, **{letter: i + 1 for i, letter in enumerate(alphabet)}}
    vocab |= {f"<extra{i}>": i for i in range(len(vocab), VOCAB)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|end|>",
        "bos_token": "<|end|>",
        "model_max_length": 4096,
        "chat_template": "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}",
    }
    for name, content in (
        ("config.json", CONFIG),
        ("tokenizer_config.json", settings),
        ("generation_config.json", {"bos_token_id": 0, "eos_token_id": 0}),
    ):
        (folder / name).write_text(json.dumps(content, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
