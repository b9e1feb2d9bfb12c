"""Flags that make a server export spans: what is added, and what is not, with the reason."""

from __future__ import annotations

import shlex

import pytest

from whybound.collector.argv import engine_of
from whybound.collector.instrument import instrument, why_not

ADDRESS = "127.0.0.1:4317"
VLLM = ["--otlp-traces-endpoint", f"http://{ADDRESS}"]


@pytest.mark.parametrize(
    ("line", "added"),
    [
        ("vllm serve m --port 81", VLLM),
        ("env A=1 taskset -c 0 vllm serve m", VLLM),
        ("env -S 'vllm serve m'", VLLM),
        ("python -m vllm.entrypoints.openai.api_server --model m", VLLM),
        ("python -m whybound.fixtures.engine --port 0", VLLM),
        ("sglang serve --model-path m", ["--enable-trace", "--otlp-traces-endpoint", ADDRESS]),
        ("sglang serve --model-path m --enable-trace", ["--otlp-traces-endpoint", ADDRESS]),
        ("trtllm-serve m", ["--otlp_traces_endpoint", f"http://{ADDRESS}"]),
        ("text-generation-launcher --model-id m", ["--otlp-endpoint", f"http://{ADDRESS}"]),
    ],
)
def test_flags_go_to_the_end(line: str, added: list[str]) -> None:
    cmd = shlex.split(line)
    engine = engine_of(cmd)
    assert instrument(cmd, engine, ADDRESS) == (cmd + added, added)
    assert why_not(cmd, engine) is None
    again = instrument(cmd + added, engine, ADDRESS)
    assert again == (cmd + added, [])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("vllm serve m --otlp-traces-endpoint grpc://other:1", "already"),
        ("vllm serve m --otlp-traces-endpoint=grpc://other:1", "already"),
        ("vllm serve m --otlp_traces_endpoint grpc://other:1", "already"),
        ("bash -c 'vllm serve m'", "shell"),
        ("llama-server -m x.gguf", "llama.cpp exports no spans"),
        ("python my_server.py", "no engine"),
        ("", "no engine"),
    ],
)
def test_nothing_is_added_and_it_is_said_why(line: str, reason: str) -> None:
    cmd = shlex.split(line)
    engine = engine_of(cmd)
    assert instrument(cmd, engine, ADDRESS) == (cmd, [])
    assert reason in str(why_not(cmd, engine))


def test_an_engine_that_is_new_to_us_is_left_alone() -> None:
    assert instrument(["x"], "newer", ADDRESS) == (["x"], [])
    assert "newer" in str(why_not(["x"], "newer"))
