# ruff: noqa: E501 - tables of cases read best with one row a line
"""Levers: whole causal chains, real flags, and a three-valued answer to "does it help here?"."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whybound.rules.conditions import signals_of
from whybound.rules.effects import applied, applied_range
from whybound.rules.evaluate import Signals, helps
from whybound.rules.load import load_levers, load_rules
from whybound.rules.model import CLASSES, PARAMS, SOLVERS, Effect, Signal

LEVERS = load_levers()
each = pytest.mark.parametrize("lever", LEVERS.values(), ids=LEVERS)

# As the engines spell them (vLLM 0.33, SGLang 0.5.23, TensorRT-LLM's llm_args).
KNOWN = {
    "vllm": {
        "--max-num-seqs", "--max-num-batched-tokens", "--enable-chunked-prefill", "--max-num-queued-reqs",
        "--enable-prefix-caching", "--kv-cache-dtype", "--gpu-memory-utilization", "--api-server-count",
        "--stream-interval", "--data-parallel-size", "--quantization", "--enforce-eager",
        "--compilation-config.cudagraph_mode", "--max-cudagraph-capture-size", "--async-scheduling",
        "--optimization-level", "--numa-bind", "--speculative-config", "--speculative-config.method",
        "--speculative-config.num_speculative_tokens", "--tensor-parallel-size", "--disable-custom-all-reduce",
        "VLLM_USE_NCCL_SYMM_MEM", "--kv-transfer-config.kv_connector", "--kv-transfer-config.kv_role",
        "--kv-offloading-size", "--attention-backend",
    },
    "sglang": {
        "--max-running-requests", "--chunked-prefill-size", "--max-queued-requests", "--disable-radix-cache",
        "--kv-cache-dtype", "--mem-fraction-static", "--tokenizer-worker-num", "--stream-interval", "--dp-size",
        "--quantization", "--cuda-graph-backend-decode", "--cuda-graph-max-bs-decode", "--disable-overlap-schedule",
        "--enable-torch-compile", "--numa-node", "--speculative-algorithm", "--speculative-num-draft-tokens",
        "--tp-size", "--enable-symm-mem", "--enable-nccl-nvls", "--disaggregation-mode",
        "--enable-hierarchical-cache", "--decode-attention-backend",
        "--policy",  # of its router
    },
    "tensorrt_llm": {
        "max_batch_size", "max_num_tokens", "enable_chunked_prefill", "kv_cache_config.enable_block_reuse",
        "kv_cache_config.dtype", "kv_cache_config.free_gpu_memory_fraction", "num_serve_frontends",
        "stream_interval", "quant_config.quant_algo", "cuda_graph_config.enable_padding",
        "cuda_graph_config.max_batch_size", "disable_overlap_scheduler", "torch_compile_config.enable_fullgraph",
        "TLLM_NUMA_AWARE_WORKER_AFFINITY", "speculative_config", "speculative_config.decoding_type",
        "speculative_config.max_draft_len", "tensor_parallel_size", "allreduce_strategy",
        "cache_transceiver_config.backend", "kv_cache_config.host_cache_size", "attn_backend",
    },
    "dynamo": {"--router-mode", "--router-conditional-disagg"},
    "nginx": {"proxy_buffering", "proxy_http_version", "least_conn"},
    "kubernetes": {"resources.requests.cpu"},
    "nvidia_smi": {"-rgc", "-pl"},
}  # fmt: skip
PATTERN = {
    "vllm": r"--[\w-]+(?:\.\w+)?|[A-Z_]{5,}(?==)",
    "sglang": r"--[\w-]+",
    "tensorrt_llm": r"[\w.]+(?=:)|[A-Z_]{5,}(?==)",
    "dynamo": r"--[\w-]+",
    "nginx": r"proxy_\w+|least_conn",
    "kubernetes": r"[\w.]+(?=:)",
    "nvidia_smi": r"(?<!\S)-\w+",
}
NOT_ENGINES = {"dynamo", "nginx", "kubernetes", "nvidia_smi"}


@each
def test_flags_are_spelt_as_the_engines_do(lever):
    for engine, flag in lever.flags.items():
        found = set(re.findall(PATTERN[engine], flag))
        assert found
        assert found <= KNOWN[engine]


@each
def test_the_causal_chain_is_whole(lever):
    for name in (
        "phase", "resource", "relieves", "burdens", "failure_mode", "quality_gate", "disable_when",
        "rollback", "revalidate", "why", "source",
    ):  # fmt: skip
        assert len(getattr(lever, name).strip()) >= 4, name
    assert lever.enabling


@each
def test_a_lever_on_an_engine_setting_says_how_to_set_it(lever):
    if lever.setting:
        assert {"vllm", "sglang"} <= set(lever.flags)
    engines = set(lever.flags) - NOT_ENGINES
    if "tensorrt_llm" not in engines and engines:
        assert "TensorRT-LLM" in lever.source  # says why there is none


@each
def test_nothing_known_is_check_first_never_yes(lever):
    assert helps(lever, Signals()) == "check_first"


def test_every_lever_is_offered_by_a_rule_and_every_rule_offers_one():
    offered = {name for rule in load_rules().values() for name in rule.levers}
    assert offered == set(LEVERS)
    assert all(rule.levers for rule in load_rules().values())


def test_every_part_of_the_budget_has_a_lever():
    relieved = {
        part for x in LEVERS.values() for e in x.effect for part in PARAMS[e.param].components
    }
    assert relieved == {part for p in PARAMS.values() for part in p.components}
    assert {e.param for x in LEVERS.values() for e in x.effect} == set(PARAMS)
    assert {x.solver for x in LEVERS.values()} == {None, *SOLVERS}
    assert {a.partition(".")[0] for lever in LEVERS.values() for a in lever.attacks} <= set(CLASSES)


def signals(**values):
    return Signals(
        Signal(name=n, text=v) if isinstance(v, str) else Signal(name=n, value=v)
        for n, v in values.items()
    )


DECODE = {
    "weight_bits_count": 16.0, "decode_weights_share_ratio": 0.8, "decode_kv_share_ratio": 0.1,
    "decode_compute_share_ratio": 0.05, "prefill_compute_share_ratio": 0.9, "decode_link_share_ratio": 0.0,
    "prefill_share_ratio": 0.1, "running_mean_count": 8.0, "ridge_batch_count": 295.0, "kv_used_max_ratio": 0.2,
}  # fmt: skip
WAITING = {"waiting_busy_ratio": 0.9, "slots_used_ratio": 1.0}


@pytest.mark.parametrize(
    ("lever", "facts", "expected"),
    [
        ("raise_max_num_seqs", {**WAITING, "kv_used_max_ratio": 0.1, "preemptions_count": 0}, True),
        ("raise_max_num_seqs", {**WAITING, "kv_used_max_ratio": 0.9, "preemptions_count": 3}, False),
        ("raise_max_num_seqs", {**WAITING, "kv_used_max_ratio": 0.97}, False),
        ("raise_max_num_seqs", {"waiting_busy_ratio": 0.0, "wait_share_ratio": 0.0}, False),
        ("raise_max_num_seqs", {**WAITING, "preemptions_count": 0}, "check_first"),
        ("raise_max_num_seqs", {**WAITING, "kv_used_max_ratio": 0.82}, "check_first"),
        # nothing is preempted while the cache has room, counted or not
        ("raise_max_num_seqs", {**WAITING, "kv_used_max_ratio": 0.1}, True),
        ("lower_max_num_seqs", {"kv_used_max_ratio": 1.0, "preemptions_per_request_ratio": 0.2}, True),
        ("lower_max_num_seqs", {"kv_used_max_ratio": 0.5}, False),
        ("raise_token_budget", {"wait_share_ratio": 0.5, "slots_used_ratio": 0.1, "chunks_per_prompt_ratio": 31.0, "stalled_itl_ratio": 1.5}, True),
        ("raise_token_budget", {"wait_share_ratio": 0.5, "slots_used_ratio": 0.1, "chunks_per_prompt_ratio": 31.0, "stalled_itl_ratio": 8.0}, False),
        ("lower_token_budget", {"stalled_itl_ratio": 25.0, "input_p95_tokens": 1000.0, "token_budget_tokens": 2048.0, "wait_share_ratio": 0.0}, True),
        ("lower_token_budget", {"stalled_itl_ratio": 25.0, "input_p95_tokens": 9000.0, "token_budget_tokens": 2048.0, "wait_share_ratio": 0.4, "slots_used_ratio": 0.2, "chunks_per_prompt_ratio": 3.0}, False),
        ("shed_or_queue_limit", {"load_mode": "closed"}, False),
        ("shed_or_queue_limit", {"load_mode": "open", "wait_share_ratio": 0.6, "rho_uncapped_ratio": 1.4}, True),
        ("add_replica", {"wait_share_ratio": 0.05, "rho_capped_ratio": 0.4}, False),
        ("add_replica", {"wait_share_ratio": 0.05, "rho_capped_ratio": 1.4}, True),
        ("fix_proxy_buffering", {"client_itl_p50_s": 0.0, "server_itl_mean_s": 0.009, "network_ttft_share_ratio": 0.9}, True),
        ("more_api_servers", {"front_end_work_ratio": 0.3, "front_end_work_mean_s": 0.4, "wait_share_ratio": 0.01}, True),
        ("more_api_servers", {"front_end_work_ratio": 0.01, "bunched_tokens_ratio": 0.0}, False),
        ("prefix_caching", {"prefix_hit_ratio": 0.0}, "check_first"),
        ("prefix_caching", {"prefix_caching_enabled": "yes"}, False),
        ("kv_cache_fp8", {"kv_used_max_ratio": 0.2, "input_mean_tokens": 300.0, "decode_kv_share_ratio": 0.01}, False),
        ("kv_cache_fp8", {"kv_used_max_ratio": 0.99, "kv_bits_count": 16.0}, True),
        ("kv_cache_fp8", {"kv_used_max_ratio": 0.99, "kv_bits_count": 8.0}, False),
        ("weights_fp8", {**DECODE, "gpu_fp8_supported": "yes"}, True),
        ("weights_fp8", {**DECODE, "gpu_fp8_supported": "no"}, False),
        ("weights_fp8", {**DECODE, "gpu_fp8_supported": "yes", "weight_bits_count": 8.0}, False),
        ("weights_fp8", DECODE, "check_first"),
        ("weights_int8", {**DECODE, "gpu_fp8_supported": "yes"}, False),
        ("weights_nvfp4", {**DECODE, "gpu_fp4_supported": "no"}, False),
        ("weights_int4", DECODE, True),
        ("weights_int4", {**DECODE, "running_mean_count": 100.0}, False),
        ("weights_int4", {**DECODE, "prefill_share_ratio": 0.8}, False),
        ("cuda_graphs", {"graphs_enabled": "no", "decode_launch_share_ratio": 0.5}, True),
        ("cuda_graphs", {"graphs_enabled": "yes", "decode_launch_share_ratio": 0.5}, False),
        ("raise_graph_batch", {"graphs_enabled": "yes", "decode_launch_share_ratio": 0.5, "running_max_count": 64.0}, False),
        ("async_scheduling", {"async_scheduling_enabled": "no", "decode_host_share_ratio": 0.3}, True),
        ("async_scheduling", {"async_scheduling_enabled": "yes"}, False),
        ("give_engine_cpu", {"host_cpu_throttled_ratio": 0.4}, True),
        ("give_engine_cpu", {"host_cpu_throttled_ratio": 0.0}, "check_first"),
        ("speculative_decoding", {**DECODE, "speculation_enabled": "no", "draft_acceptance_ratio": 0.7}, True),
        ("speculative_decoding", {**DECODE, "speculation_enabled": "no"}, "check_first"),
        ("speculative_decoding", {**DECODE, "speculation_enabled": "no", "running_mean_count": 100.0}, False),
        ("stop_speculation", {**DECODE, "speculation_enabled": "yes"}, False),
        ("stop_speculation", {**DECODE, "speculation_enabled": "yes", "running_mean_count": 100.0}, True),
        ("tensor_parallel_up", {**DECODE, "gpu_count": 8.0, "tensor_parallel_count": 4.0}, True),
        ("tensor_parallel_up", {**DECODE, "gpu_count": 4.0, "tensor_parallel_count": 4.0}, False),
        ("tensor_parallel_down", {"tensor_parallel_count": 1.0}, False),
        ("tensor_parallel_down", {"tensor_parallel_count": 4.0, "decode_link_share_ratio": 0.4, "kv_used_max_ratio": 0.2}, True),
        ("unlock_clocks_or_power", {"gpu_throttled_ratio": 0.0}, False),
        ("kv_offload", {"prefix_caching_enabled": "yes", "shared_prefix_ratio": 0.5, "prefix_hit_ratio": 0.1, "kv_used_max_ratio": 0.3}, False),
        ("disaggregate_prefill", {"chunked_prefill_enabled": "yes", "stalled_itl_ratio": 5.0, "input_mean_tokens": 6000.0, "prefill_share_ratio": 0.4, "prefix_hit_ratio": 0.8}, False),
    ],
)  # fmt: skip
def test_does_it_help_here(lever, facts, expected):
    assert helps(LEVERS[lever], signals(**facts)) == expected


def test_opposite_levers_never_both_help():
    for rising, falling in (
        ("raise_max_num_seqs", "lower_max_num_seqs"),
        ("raise_token_budget", "lower_token_budget"),
        ("tensor_parallel_up", "tensor_parallel_down"),
    ):
        names = sorted(
            signals_of([*LEVERS[rising].enabling, *LEVERS[falling].enabling, *LEVERS[rising].harms])
        )
        for low in (0.0, 0.3, 0.9, 1.0, 4.0, 3000.0):
            for high in (0.0, 0.3, 0.9, 1.0, 4.0, 3000.0):
                for split in range(len(names)):
                    facts = signals(
                        **{n: (low if i < split else high) for i, n in enumerate(names)}
                    )
                    assert not (
                        helps(LEVERS[rising], facts) is True
                        and helps(LEVERS[falling], facts) is True
                    )


@pytest.mark.parametrize(
    ("effect", "before", "expected"),
    [
        (Effect(param="front_end", times=0.5, efficiency=(0.0, 1.0)), 8.0, (8.0, 4.0)),
        (Effect(param="max_num_seqs", times=4, efficiency=(1.0, 1.0)), 16.0, (64.0, 64.0)),
        (Effect(param="kv_capacity", times=2, efficiency=(0.9, 1.0)), 100.0, (190.0, 200.0)),
        (Effect(param="front_end", add=-2.0, efficiency=(0.5, 1.0)), 8.0, (7.0, 6.0)),
        (Effect(param="token_budget", set=512, efficiency=(1.0, 1.0)), 2048.0, (512.0, 512.0)),
    ],
)
def test_what_an_effect_makes_of_a_parameter(effect, before, expected):
    assert applied_range(effect, before) == pytest.approx(expected)


@given(st.floats(0.1, 10), st.floats(0.1, 100), st.floats(0, 1))
def test_an_effect_that_arrives_in_part_lies_between_nothing_and_all(times, before, efficiency):
    effect = Effect(param="front_end", times=times, efficiency=(0.0, 1.0))
    low, high = sorted([before, before * times])
    assert low - 1e-9 <= applied(effect, before, efficiency) <= high + 1e-9
