"""Public models by name: the fields of their configuration, and what a name says of its quantization."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePath
from typing import Any

import msgspec

from .strict_yaml import Document, RuleError, read

FILE = Path(__file__).parent / "models.yaml"


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model of `models.yaml`; the file's head says what each key is."""

    id: str
    published: int
    source: str
    config: dict[str, Any]
    also: tuple[str, ...] = ()
    differs: str = ""


@dataclass(frozen=True)
class Found:
    """A model by name: its configuration with the name's quantization, which is "" when it names none."""

    model: Model
    quantization: str
    config: Mapping[str, Any]


def _int(bits: int, group: int) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": bits, "group_size": group}


def _gguf(bits: float) -> dict[str, Any]:
    return {"quant_method": "gguf", "bits": bits}


_CHANNEL = {"quant_method": "gptq", "bits": 8}
_NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}

QUANTIZATIONS: dict[str, dict[str, Any]] = {
    "fp8": {"quant_method": "fp8"},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 128},
    "gptq": _int(4, 128), "int4": _int(4, 128), "w4a16": _int(4, 128), "autoround": _int(4, 128),
    "int8": _CHANNEL, "w8a8": _CHANNEL, "w8a16": _CHANNEL,
    "nvfp4": _NVFP4, "fp4": _NVFP4,
    "mxfp4": {"quant_method": "mxfp4"},
    "bnb": {"quant_method": "bitsandbytes"},
    "q8_0": _gguf(8.5), "q6_k": _gguf(6.56), "q6_k_l": _gguf(6.7), "q5_k_m": _gguf(5.7),
    "q5_k_s": _gguf(5.57), "q5_0": _gguf(5.6), "q5_1": _gguf(6.1), "q4_k_m": _gguf(4.89),
    "q4_k_s": _gguf(4.67), "q4_0": _gguf(4.66), "q4_1": _gguf(5.1), "iq4_xs": _gguf(4.46),
    "iq4_nl": _gguf(4.68), "q3_k_l": _gguf(4.3), "q3_k_m": _gguf(4.0), "q3_k_s": _gguf(3.64),
    "iq3_m": _gguf(3.76), "iq3_xxs": _gguf(3.25), "q2_k": _gguf(3.16), "iq2_m": _gguf(2.93),
    "f16": _gguf(16), "bf16": _gguf(16), "f32": _gguf(32),
}  # fmt: skip
"""What a name ends in → the `quantization_config` that it stands for, with the method's usual numbers.

The averages of GGUF types are llama.cpp's own for an 8B Llama (tools/quantize/README.md); other models differ by
some per cent.
"""

_VARIANTS = frozenset((
    "meta", "instruct", "chat", "it", "hf", "base", "pt", "gguf", "thinking", "preview", "dynamic", "static",
    "quantized", "block", "4bit", "8bit", "mlx", "bf16", "marlin", "g128", "128g", "instr", "ud", "kv", "a8", "w8",
    "sym", "latest", "dynamic8", "perchannel", "pertensor", "tensor", "channel",
))  # fmt: skip
"""Words of a name that leave the architecture as it is."""

_DATE = re.compile(r"(2[3-9](0[1-9]|1[0-2])|(0[1-9]|1[0-2])([0-2]\d|3[01]))")
"""2507, 0528: four digits that date a release."""

_QUANT = re.compile(
    r"(?i)(?<![a-z0-9])("
    + "|".join(sorted(QUANTIZATIONS, key=len, reverse=True))
    + r")(?![a-z0-9])"
)


def find_model(name: str) -> Found | None:
    """The model of a hub id, a folder, a file or a short name; None when it is not in the table.

    `meta-llama/Llama-3.1-8B-Instruct`, `llama-3.1-8b`, `llama3.1:8b`, `Meta-Llama-3.1-8B-Instruct-FP8` and
    `Llama-3.1-8B-Q4_K_M.gguf` are one model. A name with a word that the table does not know (a fine-tune's) is
    not found: its configuration might differ.
    """
    short = _last(name)
    model = _by_key().get(_key(short))
    if model is None:
        return None
    quantization = _quantization(short)
    config = dict(model.config)
    if quantization and not (quantization == "bf16" and "gguf" not in name.lower()):
        config["quantization_config"] = {**QUANTIZATIONS[quantization], "assumed": True}
    elif quantization:
        config.pop("quantization_config", None)
    return Found(model, quantization, config)


@cache
def load_models(path: Path = FILE) -> tuple[Model, ...]:
    """The table, in file order.

    Raises:
        RuleError: it is malformed, or two models answer to one name.
    """
    document = read(path)
    if not isinstance(document.data, dict) or set(document.data) != {"models"}:
        raise RuleError(f"{path}: the only key must be 'models'")
    models = tuple(_model(document, i, raw) for i, raw in enumerate(document.data["models"]))
    taken: dict[str, str] = {}
    for i, model in enumerate(models):
        for name in (model.id, *model.also):
            other = taken.setdefault(_key(_last(name)), model.id)
            if other != model.id and not _alike(models, other, model):
                raise document.error(("models", i), f"{name!r} is also found as {other!r}")
    return models


def _alike(models: tuple[Model, ...], id_: str, model: Model) -> bool:
    return next(m for m in models if m.id == id_).config == model.config


def _model(document: Document, i: int, raw: object) -> Model:
    try:
        return msgspec.convert(raw, Model)
    except msgspec.ValidationError as error:
        raise document.error(("models", i), str(error)) from None


@cache
def _by_key() -> dict[str, Model]:
    found: dict[str, Model] = {}
    for model in load_models():
        for name in (model.id, *model.also):
            found.setdefault(_key(_last(name)), model)
    return found


def _last(name: str) -> str:
    """The model's own name: the folder of a cached snapshot, the file without its ending, no owner."""
    name = name.strip().rstrip("/")[:400]
    cached = re.search(r"models--[^/]+--([^/]+?)(/|$)", name)
    if cached:
        return cached[1]
    return re.sub(r"(?i)(-\d{5}-of-\d{5})?\.gguf$", "", PurePath(name).name)


def _quantization(name: str) -> str:
    found = _QUANT.findall(name)
    if not found and re.search(r"(?i)(?<![a-z0-9])4bit(?![a-z0-9])", name):
        return "int4"
    exact = [q.lower() for q in found]
    return next((q for q in exact if q not in ("bf16", "gptq")), exact[0] if exact else "")


def _key(name: str) -> str:
    """A name without quantization, variant, date and separators, in lower case."""
    words = re.split(r"[-_ :/]+", _QUANT.sub(" ", name).lower())
    words = [w.strip(".") for w in words]
    kept = [w for w in words if w and w not in _VARIANTS and not _DATE.fullmatch(w)]
    return "".join(kept).replace(".", "")
