"""Step costs of an 8-billion-parameter model on an H100, healthy and held back in one way each."""

from dataclasses import replace

from whybound.analyzers.step_cost import StepCost

H100 = {"model": "Qwen/Qwen3-8B", "gpu_name": "NVIDIA H100 80GB HBM3"}
"""Settings that name both."""

HEALTHY = StepCost(
    weights_s=0.0052, token_s=2.4e-5, kv_s=5.5e-8, sequence_s=2e-6, floor_s=0.0015, launch_s=0.0008,
    host_s=0.0006, host_sequence_s=5e-6, exposed=0.1, serial=0.1,
)  # fmt: skip
"""15 GB at 2.9 TB/s: reading weights is nearly all of a step at small batches."""

LAUNCHES = replace(HEALTHY, launch_s=0.014)
HOST = replace(HEALTHY, host_s=0.009, host_sequence_s=2e-5, exposed=0.9)
