"""Engines as YAML starts them: Kubernetes manifests, compose files, and the engines' own configuration files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from ...errors import WhyboundError
from ..argv import shell_words
from .launch_text import IMAGES, Launch, launch_of

MAX_YAML_CHARS = 512 << 10
MAX_DOCUMENTS = 200
MAX_ALIASES = 200
"""A few lines of aliases of aliases stand for gigabytes."""

_ALIAS = re.compile(r"(?:^|[\s\[,])\*[\w.-]+")
_POD_SPECS = ("containers", "initContainers")

OWN_KEYS = {
    "vllm": {
        "max_num_seqs", "max_num_batched_tokens", "max_model_len", "gpu_memory_utilization",
        "tensor_parallel_size", "enable_prefix_caching", "enable_chunked_prefill", "enforce_eager",
        "served_model_name", "kv_cache_dtype", "pipeline_parallel_size", "data_parallel_size",
    },
    "sglang": {
        "max_running_requests", "chunked_prefill_size", "mem_fraction_static", "tp_size", "model_path",
        "schedule_policy", "cuda_graph_max_bs", "context_length", "disable_radix_cache", "page_size",
    },
    "tensorrt_llm": {
        "max_batch_size", "max_num_tokens", "max_seq_len", "kv_cache_config", "cuda_graph_config",
        "enable_chunked_prefill", "disable_overlap_scheduler", "enable_attention_dp", "moe_config",
        "print_iter_log", "stream_interval",
    },
}  # fmt: skip
"""Keys at the top of an engine's own configuration file; two of one engine tell it."""
_FLATTENED = {
    "kv_cache_config": {
        "free_gpu_memory_fraction": "",
        "enable_block_reuse": "enable_prefix_caching",
    },
    "cuda_graph_config": {"max_batch_size": "graph_max_batch", "batch_sizes": "cuda_graph_bs"},
}
"""Objects in a configuration file → the keys in them that are settings → their names where they differ."""


def read_yaml(text: str, where: str) -> list[Any]:
    """The documents of a YAML text, as plain data.

    Raises:
        WhyboundError: too long, too many aliases, or not YAML.
    """
    if len(text) > MAX_YAML_CHARS:
        raise WhyboundError(
            f"{where} is YAML of over {MAX_YAML_CHARS >> 10} KiB; give a smaller part"
        )
    if len(_ALIAS.findall(text)) > MAX_ALIASES:
        raise WhyboundError(f"{where} has more than {MAX_ALIASES} YAML aliases; it is not read")
    documents = []
    try:
        for document in yaml.safe_load_all(text):
            documents.append(document)
            if len(documents) >= MAX_DOCUMENTS:
                break
    except yaml.YAMLError as error:
        raise WhyboundError(f"{where} is not YAML: {' '.join(str(error).split())[:160]}") from error
    except RecursionError as error:
        raise WhyboundError(f"{where} is YAML nested too deep") from error
    except ValueError as error:
        raise WhyboundError(f"{where} is not YAML: {error}") from error
    return documents


def launches_in(documents: list[Any]) -> Iterator[Launch]:
    """Every engine that the documents start."""
    for document in documents:
        if not isinstance(document, dict):
            continue
        if isinstance(document.get("services"), dict):
            yield from _compose(document["services"])
        elif "kind" in document:
            yield from _manifest(document)
        elif launch := _own_file(document):
            yield launch


def _compose(services: dict[Any, Any]) -> Iterator[Launch]:
    for name, service in services.items():
        if isinstance(service, dict):
            image = str(service.get("image") or "")
            words = _words(service.get("entrypoint")) + _words(service.get("command"))
            launch = launch_of(words, image)
            if launch is not None:
                launch.replica = str(name)
                launch.env |= _environment(service.get("environment"))
                yield launch


def _manifest(document: dict[Any, Any]) -> Iterator[Launch]:
    """Every container below `spec` whose command or image is an engine's."""
    waiting: list[tuple[Any, int]] = [(document, 0)]
    while waiting:
        node, deep = waiting.pop()
        if isinstance(node, list):
            waiting += [(item, deep + 1) for item in node[:1000] if deep < 30]
        elif isinstance(node, dict):
            for key, below in list(node.items())[:1000]:
                if key in _POD_SPECS and isinstance(below, list):
                    yield from _containers(below, document)
                elif deep < 30:
                    waiting.append((below, deep + 1))


def _containers(containers: list[Any], document: dict[Any, Any]) -> Iterator[Launch]:
    for container in containers[:100]:
        if not isinstance(container, dict):
            continue
        image = str(container.get("image") or "")
        words = _words(container.get("command")) + _words(container.get("args"))
        launch = launch_of(words, image)
        if launch is None:
            continue
        launch.version = launch.version or launch.env.get("VLLM_VERSION", "")
        launch.env |= _environment(container.get("env"))
        metadata = document.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        launch.replica = str(name or container.get("name") or "")
        launch.extra = _resources(container.get("resources"))
        yield launch


def _resources(resources: Any) -> dict[str, str]:
    limits = resources.get("limits") if isinstance(resources, dict) else None
    if not isinstance(limits, dict):
        return {}
    found = {}
    for key, value in limits.items():
        if str(key).endswith(".com/gpu"):
            found["gpu_count"] = str(value)
        elif key == "cpu":
            text = str(value)
            found["cpu_limit_count"] = (
                str(int(text[:-1]) / 1000) if text[:-1].isdecimal() and text.endswith("m") else text
            )
    return found


def _own_file(document: dict[Any, Any]) -> Launch | None:
    """An engine's own configuration file: `vllm serve --config FILE` and the like."""
    keys = {str(key).replace("-", "_") for key in document}
    scores = {engine: len(keys & own) for engine, own in OWN_KEYS.items()}
    engine = max(scores, key=lambda e: scores[e])
    if scores[engine] < 2:
        return None
    settings: dict[str, str] = {}
    for key, value in document.items():
        name = str(key).replace("-", "_")
        if isinstance(value, dict):
            for inner, alias in _FLATTENED.get(name, {}).items():
                if inner in value:
                    settings[alias or inner] = _scalar(value[inner])
        elif isinstance(value, list):
            settings[name] = " ".join(
                _scalar(v) for v in value[:100] if not isinstance(v, dict | list)
            )
        elif value is not None:
            settings[name] = _scalar(value)
    return Launch(engine, [], extra=settings)


def _scalar(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _words(command: Any) -> list[str]:
    """A command's words; in YAML it is a text or a list of them."""
    if isinstance(command, list):
        words = [_scalar(word) for word in command[:2000] if not isinstance(word, dict | list)]
        # one text with the whole command line is what many write into args
        return shell_words(words[0]) if len(words) == 1 and " " in words[0].strip() else words
    return shell_words(command.replace("\\\n", " ")) if isinstance(command, str) else []


def _environment(env: Any) -> dict[str, str]:
    """Variables as a mapping, as `NAME=value` texts, or as name and value."""
    if isinstance(env, dict):
        return {
            str(k): _scalar(v)
            for k, v in env.items()
            if v is not None and not isinstance(v, dict | list)
        }
    found = {}
    for item in env if isinstance(env, list) else []:
        if isinstance(item, dict) and "name" in item and item.get("value") is not None:
            found[str(item["name"])] = _scalar(item["value"])
        elif isinstance(item, str) and "=" in item:
            name, _, value = item.partition("=")
            found[name] = value
    return found


def image_engine(text: str) -> bool:
    """Does a text name an engine's image?"""
    return any(
        pattern.search(line)
        for pattern, _, _ in IMAGES
        for line in text.splitlines()
        if "image:" in line
    )
