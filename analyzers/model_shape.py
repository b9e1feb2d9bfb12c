"""The shape of the model that a run served, out of its settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..errors import WhyboundError
from ..rules.models import find_model
from .shapes.build import shape_from_config
from .shapes.quantization import online
from .shapes.shape import Shape

MAX_BYTES = 64 * 1024
"""Of a recorded configuration; a collector writes a quarter of it at most."""

_UNQUANTIZED = {"", "none", "null", "auto"}


def shape_of(settings: Mapping[str, str]) -> Shape | None:
    """The shape of the served model, from what a run recorded.

    From `model_config` (the configuration's own keys as JSON) where it was recorded, else by the name in `model`,
    `model_path`, `model_id` or `served_model_name`. The engine's `dtype`, `quantization`, `kv_cache_dtype` and
    llama.cpp's `cache_type_k`/`_v` count over the checkpoint's.

    Args:
        settings: keys and values as recorded, those that hold.

    Returns:
        None when there is neither a configuration nor a known name. `Shape.source` says which it was; a
        configuration or name that gives no numbers says why in `missing` or `unknown`.

    Raises:
        WhyboundError: the recorded configuration is no JSON map, or holds an impossible value.
    """
    config, source = _configuration(settings)
    if config is None:
        return None
    method = settings.get("quantization", "").strip()
    if method.lower() not in _UNQUANTIZED and not config.get("quantization_config"):
        config = {**config, "quantization_config": online(method)}
    return shape_from_config(
        config, source=source, dtype=settings.get("dtype", ""), kv_dtype=_kv_dtype(settings)
    )


def _configuration(settings: Mapping[str, str]) -> tuple[Mapping[str, Any] | None, str]:
    recorded = settings.get("model_config")
    if recorded:
        return _recorded(recorded), "the model's configuration, as recorded"
    for key in ("model", "model_path", "model_id", "hf_repo", "served_model_name"):
        found = find_model(settings.get(key, ""))
        if found is not None:
            return found.config, f"the name {found.model.id}, in the table of public models"
    return None, ""


def _recorded(text: str) -> Mapping[str, Any]:
    try:
        config = json.loads(text) if len(text) <= MAX_BYTES else None
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise WhyboundError(
            "setting model_config: no JSON map of at most 64 kB; record the run again"
        )
    return config


def _kv_dtype(settings: Mapping[str, str]) -> str:
    """One type, or llama.cpp's two of equal size as `k/v`."""
    k, v = settings.get("cache_type_k", ""), settings.get("cache_type_v", "")
    if k or v:
        return f"{k or 'f16'}/{v or 'f16'}"
    return settings.get("kv_cache_dtype", "")
