"""Count the parameters of models as transformers builds them, without memory for their weights.

    python count_parameters.py < configurations.json > counts.json

Needs `torch` and `transformers`, which every vLLM has. A router's correction biases are buffers there and count.
"""

import json
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM


def count(config: dict) -> int:
    """Numbers in all parameters of the model; tied ones once."""
    kind = config.pop("model_type")
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **config))
    model.tie_weights()
    parameters = sum(p.numel() for p in model.parameters())
    return parameters + sum(
        b.numel() for name, b in model.named_buffers() if "correction_bias" in name
    )


if __name__ == "__main__":
    json.dump([count(config) for config in json.load(sys.stdin)], sys.stdout)
