"""The same bottlenecks on the emulated engine: cheap, and with a truth that is known. Not the only proof."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from injected import Row, run_table

pytestmark = pytest.mark.slow

ENGINE = (sys.executable, "-m", "whybound.fixtures.engine", "--gpu-preset", "toy", "--seed", "1")

SERVERS: dict[str, tuple[str, ...]] = {
    "four slots": ("--max-num-seqs", "4"),
    "wide": ("--max-num-seqs", "64"),
    "small budget": ("--max-num-seqs", "16", "--max-num-batched-tokens", "32"),
    "few blocks": ("--max-num-seqs", "32", "--num-gpu-blocks-override", "90", "--block-size", "16"),
    "slow front end": ("--max-num-seqs", "64", "--front-end-ms", "80"),
}

ROWS = (
    Row("batch cap", "four slots", "poisson:rate=5,in=64,out=48,seed=1,d=10s", "scheduling", sub_cause="batch cap"),
    Row("light load", "wide", "poisson:rate=4,in=64,out=32,seed=2,d=12s", "abstains", never=("queueing", "scheduling", "network")),
    Row("overload", "wide", "poisson:rate={overload},in=64,out=32,seed=3,d=12s,drain=60", "queueing"),
    Row("prefill blocks decode", "wide", "poisson:rate=3,mix=0.8*32/32+0.2*1500/16,seed=4,d=15s", "scheduling", target="p99 itl", sub_cause="prefill blocking decode"),
    Row("proxy delays 200 ms", "wide", "poisson:rate=4,in=64,out=16,seed=6,d=12s", "network", target="mean ttft", trap=("proxy", "--delay-ms", "200"), sub_cause="client or proxy"),
    Row("proxy buffers the stream", "wide", "poisson:rate=4,in=64,out=32,seed=7,d=12s", "network", target="mean ttft", trap=("proxy", "--buffer-bytes", "16384"), sub_cause="client or proxy"),
    Row("token budget", "small budget", "closed:concurrency=4,mix=1.0*1000/16,n=40", "scheduling", sub_cause="token budget"),
    Row("few KV blocks", "few blocks", "closed:concurrency=16,in=100,out=150,n=48", "memory", sub_cause="capacity"),
    Row("front end", "slow front end", "poisson:rate=6,in=64,out=8,seed=8,d=12s", "launch", target="mean ttft", sub_cause="front end"),
)  # fmt: skip


def test_the_table(tmp_path: Path) -> None:
    assert not run_table(
        ENGINE,
        SERVERS,
        ROWS,
        env=None,
        folder=tmp_path,
        warm="closed:concurrency=8,in=64,out=4,n=16",
    )
