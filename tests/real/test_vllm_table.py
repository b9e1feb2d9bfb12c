"""Real bottlenecks injected into a real vLLM on CPU, each through the command line; one table at the end.

Run alone on the machine: beside other work the server starves, and that is then the bottleneck.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from injected import PROFILE, Row, run_table

pytestmark = pytest.mark.vllm

SERVERS: dict[str, tuple[str, ...]] = {
    "one slot": ("--max-num-seqs", "1"),
    "wide": ("--max-num-seqs", "64"),
    "small budget": ("--max-num-seqs", "16", "--max-num-batched-tokens", "32"),
    "few blocks": (
        "--max-num-seqs",
        "16",
        "--num-gpu-blocks-override",
        "12",
        "--max-model-len",
        "512",
    ),
}

SHORT = "in=64,out=32"
MIX = "mix=0.8*32/32+0.2*1000/16"

ROWS = (
    Row("batch cap", "one slot", SHORT, "scheduling", rate=(2.0, 1), more="seed=1", sub_cause="batch cap"),
    Row("light load", "wide", SHORT, "engine step", rate=(0.5, 1), more="seed=2", never=("queueing", "scheduling", "network")),
    Row("decode alone", "wide", "in=16,out=64", "engine step", closed=(1, 40), target="mean itl", never=("queueing", "scheduling", "network", "compute")),
    Row("prefill alone", "wide", "in=1000,out=2", "compute", closed=(1, 30), target="mean ttft", sub_cause="prefill FLOPs"),
    Row("overload", "wide", SHORT, "queueing", rate=(1.5, 64), requests=250, more="seed=3,drain=60", sub_cause="offered load above capacity"),
    Row("prefill blocks decode", "wide", MIX, "scheduling", rate=(0.5, 8), requests=60, more="seed=4", target="p99 itl", sub_cause="prefill blocking decode"),
    Row("API server stopped every 50 ms", "wide", SHORT, "launch", rate=(0.7, 1), more="seed=5", target="p95 itl", trap=("duty",), sub_cause="front end"),
    Row("proxy delays 200 ms", "wide", SHORT, "network", rate=(0.5, 1), more="seed=6", target="mean ttft", trap=("proxy", "--delay-ms", "200"), sub_cause="client or proxy"),
    Row("proxy buffers the stream", "wide", "in=64,out=64", "network", rate=(0.5, 1), more="seed=7", target="mean ttft", trap=("proxy", "--buffer-bytes", "16384"), sub_cause="client or proxy"),
    Row("starved load generator", "wide", SHORT, "withheld", rate=(0.5, 1), more="seed=8,realtime=no", trap=("burn",)),
    Row("token budget", "small budget", "mix=1.0*1000/16", "scheduling", closed=(4, 40), sub_cause="token budget"),
    Row("few KV blocks", "few blocks", "in=200,out=250", "memory", closed=(8, 32), sub_cause="capacity"),
)  # fmt: skip


WARM = "closed:concurrency=16,mix=0.9*64/8+0.1*1000/2,n=20"


SECOND = ("light load", "decode alone", "proxy delays 200 ms", "token budget")
"""Second instances of what another row shows, on the engine's step, the path and the budget: for the nightly run."""


def rows() -> tuple[Row, ...]:
    """All rows with WHYBOUND_NIGHTLY, else one of each bottleneck."""
    return (
        ROWS
        if os.environ.get("WHYBOUND_NIGHTLY")
        else tuple(r for r in ROWS if r.name not in SECOND)
    )


def test_the_table(
    serve: tuple[str, ...],
    vllm_env: dict[str, str],
    vllm_bin: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    measure = [*PROFILE, "check", "--roofs", "--save", "--python", str(vllm_bin / "python")]
    roofs = subprocess.run(measure, capture_output=True, text=True, check=False, timeout=300)
    assert roofs.returncode == 0, roofs.stderr
    print(roofs.stdout)
    folder = Path(os.environ.get("WHYBOUND_TABLE_DIR", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    chosen = rows()
    servers = {name: flags for name, flags in SERVERS.items() if name in {r.server for r in chosen}}
    assert not run_table(serve, servers, chosen, env=vllm_env, folder=folder, warm=WARM)
