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

SHORT = "in=64,out=32"

ROWS = (
    Row("batch cap", "four slots", SHORT, "scheduling", rate=(1.4, 4), requests=60, more="seed=1", sub_cause="batch cap"),
    Row("light load", "wide", SHORT, "engine step", rate=(2.0, 1), more="seed=2", never=("queueing", "scheduling", "network")),
    Row("overload", "wide", SHORT, "queueing", rate=(1.5, 64), requests=300, more="seed=3,drain=60", sub_cause="offered load above capacity"),
    Row("prefill blocks decode", "wide", "mix=0.8*32/32+0.2*1500/16", "scheduling", rate=(0.4, 8), requests=60, more="seed=4", target="p99 itl", sub_cause="prefill blocking decode"),
    Row("proxy delays 200 ms", "wide", "in=64,out=16", "network", rate=(1.5, 1), more="seed=6", target="mean ttft", trap=("proxy", "--delay-ms", "200"), sub_cause="client or proxy"),
    Row("proxy buffers the stream", "wide", SHORT, "network", rate=(2.5, 1), more="seed=7", target="mean ttft", trap=("proxy", "--buffer-bytes", "16384"), sub_cause="client or proxy"),
    Row("token budget", "small budget", "mix=1.0*1000/16", "scheduling", closed=(4, 40), sub_cause="token budget"),
    Row("few KV blocks", "few blocks", "in=100,out=150", "memory", closed=(16, 48), sub_cause="capacity"),
    Row("front end", "slow front end", "in=64,out=8", "launch", rate=(1.5, 1), requests=60, more="seed=8", target="mean ttft", sub_cause="front end"),
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
