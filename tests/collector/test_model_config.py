"""Where a served model's configuration is found, and what of it is kept."""

import asyncio
import json
import os
import sys

import pytest
from gguf_bytes import LLAMA, gguf, llama_tensors

from whybound.analyzers.database import open_database
from whybound.analyzers.model_shape import shape_of
from whybound.analyzers.shapes.build import shape_from_config
from whybound.collector.model_config import model_config_rows
from whybound.collector.model_keys import MAX_VALUE_BYTES, compact
from whybound.collector.session import Plan, free_port, record
from whybound.collector.store import open_run
from whybound.rules.models import load_models

CONFIG = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 448, "torch_dtype": "float32",
    "tie_word_embeddings": False,
}  # fmt: skip


def found(settings, **environ):
    return model_config_rows(settings, engine="vllm", node="n", environ=environ)


def folder(path, config=CONFIG, name="config.json"):
    path.mkdir(parents=True, exist_ok=True)
    (path / name).write_text(config if isinstance(config, str) else json.dumps(config))
    return path


def snapshot(home, repo, commit, config=CONFIG, ref=None):
    base = home / "hub" / f"models--{repo.replace('/', '--')}"
    if ref:
        folder(base / "refs", commit, ref)
    return folder(base / "snapshots" / commit, config)


@pytest.mark.parametrize("key", ["model", "model_path", "model_id"])
def test_a_folder(tmp_path, key):
    [row] = found({key: str(folder(tmp_path))})
    assert json.loads(row["value"]) == CONFIG
    place = (row["key"], row["origin"], row["source"], row["engine"], row["node"], row["replica"])
    assert place == ("model_config", "effective", "config.json", "vllm", "n", "")
    assert str(tmp_path) not in json.dumps(row)


def test_a_gguf_file(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(LLAMA, llama_tensors()) + b"\0" * 4096)
    [row] = found({"model": str(path)})
    assert row["source"] == "gguf"
    assert shape_from_config(json.loads(row["value"])).exact
    assert "not kept" not in row["value"]


def test_the_hub_s_cache(tmp_path):
    snapshot(tmp_path, "a/b", "111", {**CONFIG, "vocab_size": 1})
    snapshot(tmp_path, "a/b", "222", {**CONFIG, "vocab_size": 2}, ref="main")
    snapshot(tmp_path, "a/b", "333", {**CONFIG, "vocab_size": 3}, ref="v3")

    def vocab(settings, **environ):
        rows = found(settings, **environ)
        return rows and json.loads(rows[0]["value"])["vocab_size"]

    home = {"HF_HOME": str(tmp_path)}
    assert vocab({"model": "a/b"}, **home) == 2
    assert vocab({"model": "a/b", "revision": "v3"}, **home) == 3
    assert vocab({"model": "a/b", "revision": "111"}, **home) == 1
    assert vocab({"model": "a/b", "revision": "404"}, **home) == []
    assert vocab({"model": "a/b"}, HF_HUB_CACHE=str(tmp_path / "hub")) == 2
    assert vocab({"model": "a/b", "download_dir": str(tmp_path / "hub")}, HF_HOME="/nowhere") == 2
    assert found({"model": "a/b"}, **home)[0]["source"] == "hub cache"
    assert found({"model": "a/c"}, **home) == []


def test_without_a_reference_the_newest_snapshot_counts(tmp_path):
    for i, commit in enumerate(("old", "new")):
        path = snapshot(tmp_path, "a/b", commit, {**CONFIG, "vocab_size": 1 + i})
        os.utime(path, (1000 + i, 1000 + i))
    [row] = found({"model": "a/b"}, HF_HOME=str(tmp_path))
    assert json.loads(row["value"])["vocab_size"] == 2


@pytest.mark.parametrize(
    "name", ["", "../../etc", "a/../b", "a/b/c", "/nowhere", "-", "a\0b", "x" * 5000, "http://a/b"]
)
def test_names_that_lead_nowhere(tmp_path, name):
    assert found({"model": name}, HF_HOME=str(tmp_path)) == []


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        json.dumps({"a": "x" * 2_000_000}),
        "{}",
        '{"model_type": "llama"}',
        "\ud800".encode("utf-16", "surrogatepass"),
    ],
)
def test_a_configuration_that_is_none_gives_no_row(tmp_path, content):
    raw = content if isinstance(content, bytes) else content.encode()
    (tmp_path / "config.json").write_bytes(raw)
    assert found({"model": str(tmp_path)}) == []


def test_a_pipe_does_not_hang_the_recording(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    os.mkfifo(tmp_path / "m.gguf")
    assert found({"model": str(tmp_path)}) == []
    assert found({"model": str(tmp_path / "m.gguf")}) == []


def test_quantization_beside_the_configuration(tmp_path):
    folder(tmp_path)
    folder(
        tmp_path,
        {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}},
        "hf_quant_config.json",
    )
    [row] = found({"model": str(tmp_path)})
    shape = shape_from_config(json.loads(row["value"]))
    assert (shape.bits["mlp"], shape.kv_bits) == (4.5, 8)


def test_only_what_tells_a_shape_is_kept():
    text = compact({
        **CONFIG, "_name_or_path": "/home/someone/secret", "token": "hf_abcdefghijklmnopqrst",
        "architectures": ["LlamaForCausalLM"], "torch_dtype": "free text, with spaces", "head_dim": {"a": 1},
        "rope_scaling": {"factor": 8}, "quantization_config": {
            "quant_method": "fp8", "note": "/home/x", "modules_to_not_convert": ["a b", "lm_head", "/etc/passwd"]},
    })  # fmt: skip
    kept = json.loads(text)
    for word in ("secret", "hf_", "/home", "spaces", "passwd", "rope", "note"):
        assert word not in text
    assert kept["quantization_config"] == {"quant_method": "fp8", "ignored": {"lm_head": 1}}
    assert kept["architectures"] == ["LlamaForCausalLM"]


def test_lists_of_modules_are_counted_and_the_value_is_short():
    names = [
        f"model.layers.{i}.mlp.experts.{j}.{part}_proj"
        for i in range(5)
        for j in range(300)
        for part in ("up", "down")
    ]
    text = compact({**CONFIG, "quantization_config": {"quant_method": "fp8", "ignore": names}})
    ignored = json.loads(text)["quantization_config"]["ignored"]
    # layer 4 is beyond the decoder's four: it predicts further tokens
    assert ignored == {
        "model.layers.#.mlp.experts.#.up_proj": 1200,
        "model.layers.#.mlp.experts.#.down_proj": 1200,
    }
    many = compact(
        {
            **CONFIG,
            "quantization_config": {
                "ignore": [f"{chr(97 + i % 26) * 100}{chr(97 + i // 26)}" for i in range(600)]
            },
        }
    )
    assert len(many) <= MAX_VALUE_BYTES


def test_a_multimodal_model_keeps_its_decoder():
    outer = {
        "model_type": "llava",
        "hidden_size": 9,
        "vision_config": {"hidden_size": 8},
        "text_config": CONFIG,
    }
    assert json.loads(compact(outer)) == CONFIG


@pytest.mark.parametrize("model", load_models(), ids=lambda m: m.id)
def test_no_key_that_a_shape_needs_is_left_behind(model):
    assert shape_from_config(json.loads(compact(model.config))) == shape_from_config(model.config)


def test_a_recording_holds_the_configuration_of_its_model(tmp_path):
    port = free_port()
    model = folder(tmp_path / "model")
    program = tmp_path / "vllm"
    program.write_text(
        f"#!/bin/sh\nexec {sys.executable} -m whybound.fixtures.engine --port {port}\n"
    )
    program.chmod(0o755)
    command = (str(program), "serve", str(model), "--port", str(port))
    plan = Plan(run_dir=tmp_path / "R", command=command, port=port, duration_s=0.3)
    asyncio.run(record(plan, asyncio.Event()))
    con = open_database(open_run(tmp_path / "R"))
    settings = dict(con.execute("SELECT key, value FROM setting_latest").fetchall())
    assert shape_of(settings).parameters == 12_259_840
