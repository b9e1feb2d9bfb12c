"""Notes that benchmarks keep of the server they ran against: its arguments as settings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from ...errors import WhyboundError
from .importer import Importer, Row, Sample, Sink, Source
from .request_rows import node_of

MAX_CONFIG_BYTES = 1 << 20
_REQUESTED = ("engine_kwargs", "server_config")
_EFFECTIVE = ("kv_cache", "scheduler_config", "cache_config", "parallel_config")
_RENAMED = {"tensor_parallelism": "tensor_parallel_size", "cache_dtype": "kv_cache_dtype"}
_KNOWN = ("max_num_seqs", "max_num_batched_tokens", "max_model_len", "tensor_parallelism")
_YAML_KEY = re.compile(r"^(\w+):\s*\S", re.MULTILINE)


def _is_json(sample: Sample) -> float:
    text = sample.text.lstrip()
    marked = any(f'"{name}"' in text for name in _REQUESTED)
    return 0.7 if text.startswith("{") and marked and '"model"' in text else 0.0


def _read_json(source: Source, sink: Sink) -> None:
    whole = source.json()
    if not isinstance(whole, Mapping):
        raise WhyboundError(f"{source.path.name}: no object with a server's configuration")
    rows: list[Row] = []
    for name in _REQUESTED:
        rows += _rows(_pairs(whole.get(name)), "requested", sink)
    resolved = whole.get("resolved_config")
    for holder in (whole, resolved if isinstance(resolved, Mapping) else {}):
        for name in _EFFECTIVE:
            rows += _rows(_pairs(holder.get(name)), "effective", sink)
    version = whole.get("vllm_version") or whole.get("vllm_version_reported")
    rows += _rows([("version", version)] if isinstance(version, str) else [], "effective", sink)
    _put(rows, source, sink)


def _is_yaml(sample: Sample) -> float:
    if sample.size_bytes > MAX_CONFIG_BYTES or sample.text.lstrip().startswith(("{", "[", "<")):
        return 0.0
    keys = set(_YAML_KEY.findall(sample.text))
    return 0.6 if "model" in keys and len(keys.intersection(_KNOWN)) >= 2 else 0.0


def _read_yaml(source: Source, sink: Sink) -> None:
    with source.open() as file:
        data = file.read(MAX_CONFIG_BYTES)
    try:
        whole = yaml.safe_load(data)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        said = " ".join(str(error).split())[:150]
        raise WhyboundError(f"{source.path.name} is no YAML: {said}") from error
    if not isinstance(whole, Mapping):
        raise WhyboundError(f"{source.path.name}: no configuration in it")
    _put(_rows(_pairs(whole), "requested", sink), source, sink)


def _put(rows: list[Row], source: Source, sink: Sink) -> None:
    if not rows:
        raise WhyboundError(f"{source.path.name}: no setting of a server in it")
    sink.rows("settings", rows)


def _pairs(config: Any) -> Iterator[tuple[str, Any]]:
    """Scalars under their names; the arguments inside `extra_vllm_args` too."""
    for key, value in config.items() if isinstance(config, Mapping) else ():
        if not isinstance(key, str):
            continue
        if key.startswith("extra_") and isinstance(value, str):
            yield from _arguments(value)
        elif isinstance(value, bool | int | float | str):
            yield key, value


def _arguments(text: str) -> Iterator[tuple[str, str]]:
    try:
        words = shlex.split(text)
    except ValueError:
        return
    for at, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            follows = words[at + 1] if at + 1 < len(words) else ""
            given = value if equals else follows if follows[:2] != "--" and follows else "True"
            yield name, given


def _rows(pairs: Any, origin: str, sink: Sink) -> list[Row]:
    return [
        {
            "t_ns": sink.epoch_ns,
            "engine": sink.options.get("engine", "vllm"),
            "replica": "",
            "key": _RENAMED.get(key, key).replace("-", "_")[:200],
            "value": str(value)[:1000],
            "origin": origin,
            "source": "file",
            "node": node_of(sink),
        }
        for key, value in pairs
    ]


IMPORTERS: tuple[Importer, ...] = (
    Importer("run-config", "a benchmark's notes of its server (JSON)", _is_json, _read_json),
    Importer("run-config-yaml", "a benchmark's notes of its server (YAML)", _is_yaml, _read_yaml),
)
