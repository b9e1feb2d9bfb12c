"""Real bottlenecks injected into a real vLLM on CPU, each through the command line; one table at the end.

Run alone on the machine: beside other work the server starves, and that is then the bottleneck.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from injected import Row, run_table

pytestmark = pytest.mark.vllm

SERVERS: dict[str, tuple[str, ...]] = {
    "one slot": ("--max-num-seqs", "1"),
    "wide": ("--max-num-seqs", "64"),
    "small budget": ("--max-num-seqs", "16", "--max-num-batched-tokens", "32"),
    "few blocks": ("--max-num-seqs", "16", "--num-gpu-blocks-override", "12"),
}

ROWS = (
    Row("batch cap", "one slot", "poisson:rate=4,in=64,out=64,seed=1,warmup=2s,d=20s", "scheduling", sub_cause="batch cap"),
    Row("light load", "wide", "poisson:rate=2,in=64,out=64,seed=2,warmup=2s,d=25s", "abstains", never=("queueing", "scheduling", "network")),
    Row("overload", "wide", "poisson:rate={overload},in=64,out=32,seed=3,warmup=1s,d=20s,drain=60", "queueing"),
    Row("prefill blocks decode", "wide", "poisson:rate=3,mix=0.8*32/32+0.2*1000/16,seed=4,warmup=2s,d=25s", "scheduling", target="p99 itl", sub_cause="prefill blocking decode"),
    Row("API server stopped every 50 ms", "wide", "poisson:rate=3,in=64,out=32,seed=5,warmup=2s,d=20s", "launch", target="p95 itl", trap=("duty",), sub_cause="front end"),
    Row("proxy delays 200 ms", "wide", "poisson:rate=2,in=64,out=48,seed=6,warmup=2s,d=20s", "network", target="mean ttft", trap=("proxy", "--delay-ms", "200"), sub_cause="client or proxy"),
    Row("proxy buffers the stream", "wide", "poisson:rate=2,in=64,out=64,seed=7,warmup=2s,d=20s", "network", target="mean ttft", trap=("proxy", "--buffer-bytes", "16384"), sub_cause="client or proxy"),
    Row("starved load generator", "wide", "poisson:rate=2,in=64,out=64,seed=8,warmup=2s,d=20s,realtime=no", "withheld", trap=("burn",)),
    Row("token budget", "small budget", "closed:concurrency=4,mix=1.0*1000/16,n=32", "scheduling", sub_cause="token budget"),
    Row("few KV blocks", "few blocks", "closed:concurrency=8,in=200,out=250,n=32", "memory", sub_cause="capacity"),
)  # fmt: skip


WARM = "closed:concurrency=16,mix=0.9*64/8+0.1*1000/2,n=20"


def test_the_table(serve: tuple[str, ...], vllm_env: dict[str, str], tmp_path: Path) -> None:
    folder = Path(os.environ.get("WHYBOUND_TABLE_DIR", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    assert not run_table(serve, SERVERS, ROWS, env=vllm_env, folder=folder, warm=WARM)
