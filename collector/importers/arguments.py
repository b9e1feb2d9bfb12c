"""How an engine was started: its arguments as settings that were asked for, with its release's defaults beside."""

from __future__ import annotations

import re

from ...errors import WhyboundError
from ..argv import REDACTED, is_secret, redact_text, requested_settings
from ..engine_defaults import defaults_of, newest_of
from .importer import Importer, Row, Sample, Sink, Source
from .launch_text import COMMAND, DOCKER, Launch, commands_in, names_image
from .launch_yaml import MAX_YAML_CHARS, OWN_KEYS, image_engine, launches_in, read_yaml

MAX_TEXT_CHARS = 4 << 20

_ENGINE_ENV = re.compile(
    r"(?:VLLM|SGLANG|SGL|TRTLLM|TLLM|LLAMA|NCCL|CUDA|PYTORCH|TORCH|OMP|FLASHINFER|HIP|ROCR)_\w+$"
)
_LLAMA = "LLAMA_ARG_"
_LLAMA_NAMES = {"n_parallel": "parallel", "batch": "batch_size", "ubatch": "ubatch_size"}
_TGI_ENV = frozenset((
    "MODEL_ID", "NUM_SHARD", "QUANTIZE", "MAX_BATCH_PREFILL_TOKENS", "MAX_BATCH_TOTAL_TOKENS",
    "MAX_CONCURRENT_REQUESTS", "MAX_INPUT_TOKENS", "MAX_TOTAL_TOKENS", "WAITING_SERVED_RATIO", "MAX_BATCH_SIZE",
    "CUDA_GRAPHS", "SPECULATE", "KV_CACHE_DTYPE", "PREFIX_CACHING", "ATTENTION",
))  # fmt: skip
_OWNERS = (
    ("VLLM_", "vllm"),
    ("SGLANG_", "sglang"),
    ("SGL_", "sglang"),
    (_LLAMA, "llamacpp"),
    ("TLLM_", "tensorrt_llm"),
)
_ASSIGNED = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w{0,80})=(.*)$")


def _command(sample: Sample) -> float:
    """A command that starts an engine; a log, a table or a page may quote one, and has surer importers."""
    text = sample.text
    if text.lstrip()[:1] in ("{", "["):
        return 0.0
    return 0.6 if COMMAND.search(text) or (DOCKER.search(text) and names_image(text)) else 0.0


def _manifest(sample: Sample) -> float:
    text = sample.text
    if not re.search(r"^(?:apiVersion|kind):", text, re.MULTILINE):
        return 0.0
    return 0.8 if COMMAND.search(text) or image_engine(text) else 0.0


def _compose(sample: Sample) -> float:
    text = sample.text
    if not re.search(r"^services:\s*(?:#.*)?$", text, re.MULTILINE):
        return 0.0
    return 0.8 if COMMAND.search(text) or image_engine(text) else 0.0


def _own_file(sample: Sample) -> float:
    """A mapping with at least two keys of one engine's at its top."""
    keys = {
        m[1].replace("-", "_")
        for m in re.finditer(r"^([A-Za-z_][\w-]{0,60}):(?:\s|$)", sample.text, re.MULTILINE)
    }
    return 0.55 if any(len(keys & own) >= 2 for own in OWN_KEYS.values()) else 0.0


def _environment(sample: Sample) -> float:
    lines = [x for x in sample.text.splitlines() if x.strip() and not x.lstrip().startswith("#")]
    names = [m[1] for line in lines if (m := _ASSIGNED.match(line))]
    if not names or len(names) < 0.9 * len(lines):
        return 0.0
    own = sum(name.startswith(tuple(o for o, _ in _OWNERS)) for name in names)
    return 0.6 if own or len(_TGI_ENV & set(names)) >= 2 else 0.0


def _read_command(source: Source, sink: Sink) -> None:
    launches = list(commands_in(_text(source, MAX_TEXT_CHARS)))
    if not launches:
        raise WhyboundError("it names an engine, but no command that starts one can be read")
    if len(launches) > 1:
        sink.note(
            f"{len(launches)} commands; the first counts: {redact_text(' '.join(launches[0].command))[:120]}"
        )
    _put(launches[:1], source, sink, "argv")


def _read_yaml(source: Source, sink: Sink) -> None:
    launches = list(launches_in(read_yaml(_text(source, MAX_YAML_CHARS + 1), source.path.name)))
    if not launches:
        raise WhyboundError("no container or configuration in it is an engine's that is known")
    if len(launches) == 1:
        launches[0].replica = ""
    _put(launches, source, sink, "yaml")


def _read_environment(source: Source, sink: Sink) -> None:
    env = {}
    for line in _text(source, MAX_TEXT_CHARS).splitlines():
        if (found := _ASSIGNED.match(line)) and not line.lstrip().startswith("#"):
            env[found[1]] = found[2].strip().strip("'\"")
    owner = next((e for o, e in _OWNERS if any(name.startswith(o) for name in env)), "")
    if not owner:
        owner = "tgi" if _TGI_ENV & env.keys() else sink.options.get("engine", "")
    _put([Launch(owner, [], env)], source, sink, "env")


def _put(launches: list[Launch], source: Source, sink: Sink, origin: str) -> None:
    for launch in launches:
        asked = settings_of(launch)
        sink.rows(
            "settings", [_row(launch, k, v, "requested", origin, sink) for k, v in asked.items()]
        )
        defaults = {
            k: v for k, v in defaults_of(launch.engine, launch.version).items() if k not in asked
        }
        told = launch.version or f"{newest_of(launch.engine)}, as the release is not told"
        if defaults:
            sink.note(f"{len(defaults)} settings not given: defaults of {launch.engine} {told}")
            rows = [
                _row(launch, k, v, "default", f"{launch.engine} {told}", sink)
                for k, v in defaults.items()
            ]
            sink.rows("settings", rows)


def settings_of(launch: Launch) -> dict[str, str]:
    """What a launch asks for: arguments over environment, secrets redacted."""
    asked: dict[str, str] = {}
    for name, value in launch.env.items():
        if name.startswith(_LLAMA):
            key = name[len(_LLAMA) :].lower()
            key = _LLAMA_NAMES.get(key, key)
        elif (launch.engine == "tgi" and name in _TGI_ENV) or _ENGINE_ENV.match(name):
            key = name.lower()
        else:
            continue
        asked[key] = REDACTED if is_secret(name) else redact_text(value)[:1000]
    if launch.version:
        asked["version"] = launch.version
    asked |= {
        k: REDACTED if is_secret(k) else redact_text(v)[:1000] for k, v in launch.extra.items()
    }
    return asked | requested_settings(launch.command)


def _row(launch: Launch, key: str, value: str, origin: str, source: str, sink: Sink) -> Row:
    return {
        "t_ns": sink.epoch_ns, "engine": launch.engine, "replica": launch.replica, "key": key,
        "value": value, "origin": origin, "source": source, "node": sink.options.get("node", ""),
    }  # fmt: skip


def _text(source: Source, limit: int) -> str:
    """The text of a file, at most `limit` characters."""
    parts, size = [], 0
    for line in source.lines():
        parts.append(line)
        size += len(line) + 1
        if size > limit:
            break
    return "\n".join(parts)[: limit + 1]


IMPORTERS = (
    Importer("kubernetes", "Kubernetes manifest", _manifest, _read_yaml),
    Importer("compose", "docker compose file", _compose, _read_yaml),
    Importer("engine-config", "an engine's configuration file", _own_file, _read_yaml),
    Importer("arguments", "a command that starts an engine", _command, _read_command),
    Importer("environment", "environment variables of an engine", _environment, _read_environment),
)
