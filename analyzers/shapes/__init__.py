"""What a model's configuration says that a token costs: parameters, bytes, flops, KV cache."""
