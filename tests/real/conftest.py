"""Real vLLM on CPU: skipped, saying so, where WHYBOUND_VLLM names no installation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from injected import Server, capacity, free_port

HERE = Path(__file__).parent

SERVE = (
    "--served-model-name", "m", "--load-format", "dummy", "--dtype", "float32",
    "--max-model-len", "2048", "--enforce-eager", "--disable-uvicorn-access-log",
    "--host", "127.0.0.1",
)  # fmt: skip


@dataclass(frozen=True)
class Profiled:
    """One finished `profile run`."""

    run_dir: Path
    returncode: int
    diagnosis: dict[str, Any]
    stderr: str


@pytest.fixture(scope="session")
def vllm_bin() -> Path:
    folder = os.environ.get("WHYBOUND_VLLM")
    if not folder or not (Path(folder) / "vllm").exists():
        pytest.skip("WHYBOUND_VLLM names no folder with a vllm command: real-engine tests left out")
    return Path(folder)


@pytest.fixture(scope="session")
def model(vllm_bin: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    subprocess.run([vllm_bin / "python", HERE / "make_model.py", folder], check=True, timeout=120)
    return folder


@pytest.fixture(scope="session")
def serve(model: Path) -> tuple[str, ...]:
    """The command that serves the small model, without its port."""
    return ("vllm", "serve", str(model), *SERVE)


@pytest.fixture(scope="session")
def vllm_env(vllm_bin: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{vllm_bin}:{os.environ['PATH']}",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_HOST_IP": "127.0.0.1",
    }


@pytest.fixture(scope="session")
def one_at_a_time_per_s(
    serve: tuple[str, ...], vllm_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> float:
    """Requests of 64/32 tokens a second that this machine serves one after the other."""
    server = Server(
        (*serve, "--max-num-seqs", "1"), vllm_env, tmp_path_factory.mktemp("one") / "log"
    )
    try:
        capacity(server.url, "in=64,out=32", 1)  # warms up
        return capacity(server.url, "in=64,out=32", 1)
    finally:
        server.stop()


@pytest.fixture
def profile_run(
    serve: tuple[str, ...], vllm_env: dict[str, str], tmp_path: Path
) -> Callable[..., Profiled]:
    """Calls `profile run … -- vllm serve …` as a person would, and reads what it left."""

    numbers = count(1)

    def call(options: Sequence[str], flags: Sequence[str]) -> Profiled:
        run_dir = tmp_path / f"R{next(numbers)}"
        command = [
            sys.executable, "-m", "whybound", "run", "-o", run_dir, "--json", *options,
            "--", *serve, "--port", str(free_port()), *flags,
        ]  # fmt: skip
        done = subprocess.run(
            command, env=vllm_env, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return Profiled(run_dir, done.returncode, json.loads(done.stdout), done.stderr)

    return call
