"""Finds the configuration of the model that a local server was told to serve, as one row of settings.

Read only, at most a mebibyte of JSON or a GGUF header, and only what tells a shape: no path, no free text.
"""

from __future__ import annotations

import json
import os
import re
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import WhyboundError
from .gguf_config import config_of
from .gguf_header import read_header
from .model_keys import compact

Row = dict[str, Any]

MAX_JSON_BYTES = 1024 * 1024
_HUB_ID = re.compile(r"(?!.*\.\.)([\w-][\w.-]{0,95}/)?[\w-][\w.-]{0,95}", re.ASCII)


def model_config_rows(
    settings: Mapping[str, str],
    *,
    engine: str,
    node: str,
    environ: Mapping[str, str] | None = None,
) -> list[Row]:
    """The row `model_config` of the table `settings`; none when no configuration is found here.

    Looked for in this order: the folder or `.gguf` file that the setting `model` (`model_path`, `model_id`)
    names, then the Hugging Face cache. Nothing is downloaded, and a file that cannot be read or is malformed
    gives no row: a recording does not fail for it.

    Args:
        settings: what the server's command line asks for, see `argv.requested_settings`.
        engine: its kind, for the row.
        node: host that records.
        environ: variables that say where the cache is; this process's when None.
    """
    name = next((settings[k] for k in ("model", "model_path", "model_id") if settings.get(k)), "")
    env = os.environ if environ is None else environ
    with suppress(OSError, WhyboundError, ValueError, RecursionError):
        found = _look(name, settings, env) if name else None
        if found and (value := compact(found[0])):
            row = {
                "t_ns": time.time_ns(), "engine": engine, "replica": "", "key": "model_config",
                "value": value, "origin": "effective", "source": found[1], "node": node,
            }  # fmt: skip
            return [row]
    return []


def _look(
    name: str, settings: Mapping[str, str], env: Mapping[str, str]
) -> tuple[Mapping[str, Any], str] | None:
    """The configuration, and the kind of place where it was."""
    path = Path(name).expanduser()
    if path.suffix == ".gguf" and path.is_file():
        with _opened(path) as stream:
            return config_of(read_header(stream)), "gguf"
    if path.is_dir():
        return _folder(path), "config.json"
    if not _HUB_ID.fullmatch(name):
        return None
    for cache in _caches(settings, env):
        snapshot = _snapshot(cache / f"models--{name.replace('/', '--')}", settings)
        if snapshot is not None:
            return _folder(snapshot), "hub cache"
    return None


def _folder(path: Path) -> Mapping[str, Any]:
    config = _json(path / "config.json")
    beside = path / "hf_quant_config.json"
    if not config.get("quantization_config") and beside.is_file():
        stated = _json(beside).get("quantization")
        if isinstance(stated, dict):
            config["quantization_config"] = {"quant_method": "modelopt", **stated}
    return config


def _json(path: Path) -> dict[str, Any]:
    with _opened(path) as stream:
        raw = stream.read(MAX_JSON_BYTES + 1)
    if len(raw) > MAX_JSON_BYTES:
        raise ValueError("too long for a configuration")
    config = json.loads(raw)
    if not isinstance(config, dict):
        raise ValueError("no map")
    return config


def _opened(path: Path) -> BinaryIO:
    """A regular file for reading; a pipe or a device of that name would hang the recording."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError("no regular file")
    return os.fdopen(handle, "rb")


def _caches(settings: Mapping[str, str], env: Mapping[str, str]) -> list[Path]:
    """Where the hub's files may lie, as huggingface_hub has it; vLLM's `--download-dir` first."""
    home = env.get("HF_HOME") or str(Path(env.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface")
    named = [
        settings.get("download_dir"), env.get("HF_HUB_CACHE"), env.get("HUGGINGFACE_HUB_CACHE"),
        str(Path(home) / "hub"),
    ]  # fmt: skip
    return [Path(place).expanduser() for place in named if place]


def _snapshot(repository: Path, settings: Mapping[str, str]) -> Path | None:
    """The snapshot of the asked revision, else of `main`, else the newest that has a configuration."""
    snapshots = repository / "snapshots"
    if not snapshots.is_dir():
        return None
    revision = settings.get("revision") or "main"
    if re.fullmatch(r"[\w][\w.-]{0,99}", revision):
        reference = repository / "refs" / revision
        commit = revision
        if reference.is_file():
            with _opened(reference) as stream:
                commit = stream.read(100).decode("ascii", "replace").strip()
        if (
            re.fullmatch(r"[\w.-]{1,100}", commit)
            and (snapshots / commit / "config.json").is_file()
        ):
            return snapshots / commit
    if settings.get("revision"):
        return None
    having = [s for s in snapshots.iterdir() if (s / "config.json").is_file()]
    return max(having, key=lambda s: s.stat().st_mtime, default=None)
