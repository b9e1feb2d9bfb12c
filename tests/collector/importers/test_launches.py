"""How an engine was started, in all the ways that people write it down."""
# ruff: noqa: E501 — cases read best one a line

from __future__ import annotations

import time

import pytest
from import_files import imported

from whybound.collector.engine_defaults import defaults_of, newest_of, version_of
from whybound.collector.importers.launch_yaml import read_yaml
from whybound.errors import WhyboundError

KUBERNETES = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: llama-8b}
spec:
  template:
    spec:
      initContainers:
        - {name: fetch, image: busybox, command: [sh, -c, "true"]}
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.9.1
          args: ["--model", "meta/llama", "--max-num-seqs=128", "--no-enable-prefix-caching", "--api-key", "s3cret-value"]
          env:
            - {name: VLLM_ATTENTION_BACKEND, value: FLASHINFER}
            - {name: HF_TOKEN, value: hf_abcdefghijklmnopqrstu}
            - {name: VLLM_API_KEY, value: hunter2}
          resources: {limits: {nvidia.com/gpu: 2, cpu: 1500m}}
---
apiVersion: v1
kind: Service
metadata: {name: llama-8b}
"""
COMPOSE = """\
services:
  web: {image: nginx}
  prefill:
    image: lmsysorg/sglang:v0.5.5
    command: >
      python3 -m sglang.launch_server --model-path m --chunked-prefill-size 4096
    environment: [SGLANG_ENABLE_X=1]
  decode:
    image: lmsysorg/sglang:v0.5.5
    entrypoint: [python3, -m, sglang.launch_server]
    command: [--model-path, m, --max-running-requests, "64"]
"""
TGI_COMPOSE = """\
services:
  tgi:
    image: ghcr.io/huggingface/text-generation-inference:3.3.4
    command: --model-id m --max-batch-prefill-tokens 4096
    environment:
      MAX_CONCURRENT_REQUESTS: 512
"""
README = """\
# Serving

Start it with

```bash
$ CUDA_VISIBLE_DEVICES=0,1 vllm serve meta/llama \\
    --tensor-parallel-size 2 \\
    --max-num-seqs 32
```
"""


def put(path, text):
    path.write_text(text)
    return path


def settings_of(tmp_path, text, name="f", **options):
    outcomes, rows = imported(tmp_path, put(tmp_path / name, text), **options)
    found = {}
    for row in rows("settings"):
        found.setdefault(row["origin"], {})[row["key"]] = row["value"]
    return outcomes[0], found, rows("settings")


@pytest.mark.parametrize(
    ("text", "engine", "asked"),
    [
        ("vllm serve m --max-num-seqs 64 --enforce-eager", "vllm", {"model": "m", "max_num_seqs": "64", "enforce_eager": "true"}),
        (README, "vllm", {"model": "meta/llama", "max_num_seqs": "32", "tensor_parallel_size": "2", "cuda_visible_devices": "0,1"}),
        ("#!/bin/sh\nset -e\nexec python -m vllm.entrypoints.openai.api_server --model m --max-num-seqs=8", "vllm", {"max_num_seqs": "8"}),
        ("docker run --gpus all -e VLLM_USE_V1=0 -p 8000:8000 vllm/vllm-openai:v0.8.5 --model m --max-num-seqs 16", "vllm", {"max_num_seqs": "16", "vllm_use_v1": "0", "version": "0.8.5"}),
        ("python -m sglang.launch_server --model-path m --tp 4 --chunked-prefill-size 2048", "sglang", {"tp_size": "4", "chunked_prefill_size": "2048"}),
        ("./build/bin/llama-server -m x.gguf -c 8192 -np 4", "llamacpp", {"ctx_size": "8192", "parallel": "4"}),
        ("ExecStart=/usr/bin/llama-server -m x.gguf -ngl 99", "llamacpp", {"n_gpu_layers": "99"}),
        ("trtllm-serve serve m --max_batch_size 64 --max_num_tokens 4096", "tensorrt_llm", {"max_batch_size": "64", "max_num_tokens": "4096"}),
        ("text-generation-launcher --model-id m --max-batch-prefill-tokens 4096", "tgi", {"max_batch_prefill_tokens": "4096"}),
        (KUBERNETES, "vllm", {"max_num_seqs": "128", "enable_prefix_caching": "false", "gpu_count": "2", "cpu_limit_count": "1.5", "version": "0.9.1", "api_key": "<redacted>", "vllm_attention_backend": "FLASHINFER", "vllm_api_key": "<redacted>"}),
        (TGI_COMPOSE, "tgi", {"max_batch_prefill_tokens": "4096", "max_concurrent_requests": "512"}),
        ("model: m\nmax-num-seqs: 12\ngpu-memory-utilization: 0.8\nenforce-eager: true\n", "vllm", {"max_num_seqs": "12", "enforce_eager": "true"}),
        ("max_batch_size: 32\nkv_cache_config:\n  free_gpu_memory_fraction: 0.7\n  enable_block_reuse: false\ncuda_graph_config: {enable_padding: true, max_batch_size: 64}\n", "tensorrt_llm", {"free_gpu_memory_fraction": "0.7", "enable_prefix_caching": "false", "graph_max_batch": "64"}),
        ("# engine\nVLLM_USE_V1=1\nexport OMP_NUM_THREADS=4\nVLLM_API_KEY='x'\n", "vllm", {"omp_num_threads": "4", "vllm_api_key": "<redacted>"}),
        ("LLAMA_ARG_CTX_SIZE=4096\nLLAMA_ARG_N_PARALLEL=2\n", "llamacpp", {"ctx_size": "4096", "parallel": "2"}),
        ("MODEL_ID=m\nMAX_BATCH_PREFILL_TOKENS=2048\n", "tgi", {"max_batch_prefill_tokens": "2048"}),
    ],
    ids=lambda x: x if isinstance(x, str) and len(x) < 13 else "",
)  # fmt: skip
def test_what_was_asked_for(tmp_path, text, engine, asked):
    outcome, found, rows = settings_of(tmp_path, text)
    assert outcome.refused is None, outcome
    assert {k: found["requested"].get(k) for k in asked} == asked
    assert {r["engine"] for r in rows} == {engine}
    assert "hunter2" not in str(rows)
    assert "s3cret" not in str(rows)
    assert "hf_abc" not in str(rows)


def test_services_are_replicas_and_others_are_passed_over(tmp_path):
    outcome, _, rows = settings_of(tmp_path, COMPOSE)
    assert outcome.kind == "compose"
    asked = {(r["replica"], r["key"]): r["value"] for r in rows if r["origin"] == "requested"}
    assert asked["prefill", "chunked_prefill_size"] == "4096"
    assert asked["decode", "max_running_requests"] == "64"
    assert {r["replica"] for r in rows} == {"prefill", "decode"}


def test_defaults_are_those_of_the_release_and_give_way_to_what_was_asked(tmp_path):
    outcome, found, _ = settings_of(tmp_path, KUBERNETES)
    assert found["default"]["gpu_memory_utilization"] == "0.9"
    assert "cudagraph_mode" not in found["default"], "0.9 has no such setting"
    assert "enable_prefix_caching" not in found["default"], "it was asked for"
    assert "defaults of vllm 0.9.1" in " ".join(outcome.notes)
    outcome, found, _ = settings_of(tmp_path, "vllm serve m\n")
    assert found["default"]["gpu_memory_utilization"] == "0.92"
    assert "as the release is not told" in " ".join(outcome.notes)
    assert "max_num_seqs" not in found["default"], "it depends on the GPU"


@pytest.mark.parametrize(
    ("engine", "version", "key", "value"),
    [
        ("vllm", "0.7.3", "enable_chunked_prefill", None), ("vllm", "v0.8.0", "enable_chunked_prefill", "true"),
        ("vllm", "0.10.2", "cudagraph_mode", "PIECEWISE"), ("vllm", "0.11.0", "cudagraph_mode", "FULL_AND_PIECEWISE"),
        ("vllm", "0.13.0", "async_scheduling", "false"), ("vllm", "0.14.0", "async_scheduling", None),
        ("vllm", "0.19.1", "gpu_memory_utilization", "0.9"), ("vllm", "", "gpu_memory_utilization", "0.92"),
        ("tensorrt_llm", "", "max_batch_size", "2048"), ("nobody", "", "x", None),
    ],
)  # fmt: skip
def test_default_of_a_release(engine, version, key, value):
    assert defaults_of(engine, version).get(key) == value


def test_versions():
    assert [version_of(t) for t in ("v0.11.0-cu128", "latest", "0.5", "3")] == [
        "0.11.0",
        "",
        "0.5",
        "",
    ]
    assert newest_of("vllm").startswith("0.")
    assert newest_of("nobody") == ""


def test_of_several_commands_the_first_counts_and_that_is_said(tmp_path):
    outcome, found, _ = settings_of(
        tmp_path, "vllm serve a --max-num-seqs 1\nvllm serve b --max-num-seqs 2\n"
    )
    assert found["requested"]["model"] == "a"
    assert "2 commands; the first counts" in outcome.notes[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &a [x]\n" + "b: [" + ", ".join(["*a"] * 300) + "]\n", "aliases"),
        ("[" * 20_000, "deep|YAML"), ("a: " + "x" * 600_000, "KiB"), ("a: [1\nb: }", "not YAML"),
        ("a: !!python/object/apply:os.system [ls]", "not YAML"),
    ],
)  # fmt: skip
def test_hostile_yaml_ends_in_one_line(text, said):
    began = time.process_time()
    with pytest.raises(WhyboundError, match=said):
        read_yaml(text, "f.yaml")
    assert time.process_time() - began < 3


def test_text_that_only_speaks_of_an_engine_is_said_to_hold_no_command(tmp_path):
    outcome, _, _ = settings_of(tmp_path, "You may use `vllm serve` here, or not.\n" * 3)
    assert outcome.kind == "arguments"
    outcome, _, _ = settings_of(tmp_path, "about llama-server and nothing else\n")
    assert "no command" in outcome.refused
