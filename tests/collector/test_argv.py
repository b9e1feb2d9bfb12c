import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whybound.collector.argv import (
    REDACTED,
    engine_of,
    host_of,
    port_of,
    redact,
    requested_settings,
)


@pytest.mark.parametrize(
    ("line", "engine", "port"),
    [
        ("vllm serve m", "vllm", 8000),
        ("/opt/bin/vllm serve m --port 81", "vllm", 81),
        ("vllm serve m --port=82", "vllm", 82),
        ("vllm serve m --port 81 --port 83", "vllm", 83),
        ("vllm serve m --port 0", "vllm", None),
        ("vllm serve m --port $PORT", "vllm", None),
        ("vllm serve m --port 99999", "vllm", None),
        ("vllm serve --port 83 m", "vllm", 83),
        ("vllm bench serve --port 81", "", 81),
        ("vllm", "", None),
        ("python -m vllm.entrypoints.openai.api_server --model m", "vllm", 8000),
        ("/venv/bin/python3.11 -u -X dev -m vllm.entrypoints.openai.api_server", "vllm", 8000),
        ("python3 /venv/bin/vllm serve m", "vllm", 8000),
        ("python -m whybound.fixtures.engine --port 84", "vllm", 84),
        ("python -m sglang.launch_server --model-path m", "sglang", 30000),
        ("sglang serve --model-path m", "sglang", 30000),
        ("llama-server -m x.gguf", "llamacpp", 8080),
        ("trtllm-serve m", "tensorrt_llm", 8000),
        ("text-generation-launcher --model-id m", "tgi", 3000),
        ("text-generation-launcher --model-id m -p 85", "tgi", 85),
        ("env A=1 -u B taskset -c 0,1 chrt -r 1 nice -n 5 vllm serve m --port 86", "vllm", 86),
        ("env -S 'vllm serve m --port 86'", "vllm", 86),
        ("timeout 60 numactl --interleave=all llama-server --port 87", "llamacpp", 87),
        ("setsid --wait llama-server --port 87", "llamacpp", 87),
        ("bash -c 'vllm serve m --port 88'", "vllm", 88),
        ("bash -lc 'cd /x && exec vllm serve m --port 89 > log 2>&1; echo --port 1'", "vllm", 89),
        ("nice sh -e -c 'A=1 vllm serve m'", "vllm", 8000),
        ("bash -c 'sh -c \"vllm serve m --port 90\"'", "vllm", 90),
        ("bash start.sh", "", None),
        ("bash -c 'vllm serve m --port 92 \"open quote'", "vllm", 92),
        ("python my_server.py --port 91", "", 91),
        ("python my_server.py -p 91", "", None),
        ("grep vllm serve", "", None),
        ("my-proxy --name llama-server --port 92", "", 92),
        ("", "", None),
    ],
)
def test_engine_and_port(line: str, engine: str, port: int | None) -> None:
    cmd = shlex.split(line)
    assert engine_of(cmd) == engine
    assert port_of(cmd) == port


def test_host() -> None:
    assert host_of(["vllm", "serve", "m"]) is None
    assert host_of(["vllm", "serve", "m", "--host", "::1"]) == "::1"
    assert host_of(["bash", "-c", "vllm serve m --host=0.0.0.0 && true"]) == "0.0.0.0"
    assert host_of(["text-generation-launcher", "--hostname", "h"]) == "h"


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        (
            "vllm serve org/m --max-num-seqs 16 --dtype=float32 --enforce-eager "
            "--no-enable-prefix-caching",
            {
                "model": "org/m",
                "max_num_seqs": "16",
                "dtype": "float32",
                "enforce_eager": "true",
                "enable_prefix_caching": "false",
            },
        ),
        ("vllm serve --enforce-eager org/m", {"enforce_eager": "true", "model": "org/m"}),
        ("vllm serve --enable-chunked-prefill False m", {
            "enable_chunked_prefill": "False", "model": "m",
        }),
        ("vllm serve m --seed -1 -tp 2 -cc.mode=3", {
            "model": "m", "seed": "-1", "tensor_parallel_size": "2", "compilation_config.mode": "3",
        }),
        ("vllm serve --seed 1 m", {"seed": "1", "model": "m"}),
        ("vllm serve m --served-model-name a b", {"model": "m", "served_model_name": "a b"}),
        ("vllm serve m --seed 1 --seed 2", {"model": "m", "seed": "2"}),
        (
            """vllm serve m --speculative-config '{"method": "ngram", "n": [1, 2]}'""",
            {"model": "m", "speculative_config": '{"method": "ngram", "n": [1, 2]}'},
        ),
        ("taskset --cpu-list 3 llama-server -c 4096 -np 4 --metrics --no-mmap", {
            "ctx_size": "4096", "parallel": "4", "metrics": "true", "mmap": "false",
        }),
        ("python -m sglang.launch_server --model-path m --tp 2", {"model_path": "m", "tp_size": "2"}),
        ("my-server --a-b c", {"a_b": "c"}),
        ("vllm serve", {}),
        ("", {}),
    ],
)  # fmt: skip
def test_settings(line: str, settings: dict[str, str]) -> None:
    assert requested_settings(shlex.split(line)) == settings


SECRET = "hunter2"


@pytest.mark.parametrize(
    "cmd",
    [
        ["vllm", "serve", "m", "--api-key", SECRET],
        ["vllm", "serve", "m", "--api-key", "first", SECRET],
        ["vllm", "serve", "m", f"--api-key={SECRET}"],
        ["vllm", "serve", "m", "--hf-token", SECRET],
        ["vllm", "serve", "m", "--ssl-keyfile-password", SECRET],
        ["env", f"HF_TOKEN={SECRET}", "vllm", "serve", "m"],
        ["bash", "-c", f"HF_TOKEN={SECRET} vllm serve m --api-key '{SECRET} x' --seed 1"],
        ["bash", "-c", f"vllm serve m --api-key={SECRET}"],
        ["vllm", "serve", "m", "--otlp-traces-endpoint", f"https://me:{SECRET}@host/x"],
        ["vllm", "serve", "m", "--kv-transfer-config", f'{{"api_key": "{SECRET}"}}'],
        ["vllm", "serve", "m", "--header", f"Authorization: Bearer {SECRET}"],
        ["llama-server", "--model", "m", "--anything", f"hf_{SECRET * 4}"],
    ],
)
def test_no_secret_comes_out(cmd: list[str]) -> None:
    assert SECRET not in " ".join(redact(cmd))
    assert REDACTED in " ".join(redact(cmd))
    assert SECRET not in str(requested_settings(cmd))


def test_what_is_no_secret_stays() -> None:
    cmd = shlex.split(
        "vllm serve m --max-num-batched-tokens 2048 --tokenizer t --num-speculative-tokens 4 "
        "--ssl-keyfile /k.pem --return-tokens-as-token-ids --key-cache 1"
    )
    assert redact(cmd) == cmd
    assert requested_settings(cmd)["max_num_batched_tokens"] == "2048"
    assert requested_settings(cmd)["tokenizer"] == "t"


@given(st.lists(st.text(max_size=12), max_size=8))
def test_any_words_are_read_without_a_failure(words: list[str]) -> None:
    for wrapped in (words, ["bash", "-c", " ".join(words)], ["vllm", "serve", *words]):
        assert isinstance(engine_of(wrapped), str)
        assert port_of(wrapped) is None or 0 < (port_of(wrapped) or 0) < 65536
        assert all(isinstance(v, str) for v in requested_settings(wrapped).values())
        assert len(redact(wrapped)) == len(wrapped)
