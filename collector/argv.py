"""What a server's command line says: the engine, its port, its settings, without its secrets.

Pure: nothing is started and nothing is read but the words themselves.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import PurePath

REDACTED = "<redacted>"

DEFAULT_PORTS = {
    "vllm": 8000,
    "sglang": 30000,
    "llamacpp": 8080,
    "tensorrt_llm": 8000,
    "tgi": 3000,
}
"""The port an engine listens on when its command line names none (upstream defaults)."""

SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh"))
WRAPPERS = SHELLS | frozenset((
    "env", "taskset", "chrt", "nice", "ionice", "nohup", "setsid", "stdbuf", "time", "timeout",
    "numactl", "sudo", "doas", "unshare", "exec", "uv", "uvx", "poetry", "conda", "mamba",
    "micromamba", "pixi", "nsys", "ncu", "srun", "mpirun", "unbuffer", "strace", "perf",
))  # fmt: skip
"""Programs that start another one; the engine is looked for among their arguments."""

_PROGRAMS = {
    "llama-server": "llamacpp",
    "trtllm-serve": "tensorrt_llm",
    "text-generation-launcher": "tgi",
}
_MODULES = {
    "vllm.entrypoints": "vllm",
    "whybound.fixtures.engine": "vllm",
    "sglang": "sglang",
    "tensorrt_llm.commands.serve": "tensorrt_llm",
}
_WITH_SERVE = {"vllm": "vllm", "sglang": "sglang"}
"""Programs with many commands, of which only `serve` is a server."""

_SHORT = {
    "vllm": {
        "tp": "tensor_parallel_size",
        "pp": "pipeline_parallel_size",
        "dp": "data_parallel_size",
        "q": "quantization",
        "cc": "compilation_config",
        "sc": "speculative_config",
    },
    "sglang": {"tp": "tp_size", "pp": "pp_size", "dp": "dp_size"},
    "llamacpp": {
        "m": "model",
        "c": "ctx_size",
        "b": "batch_size",
        "ub": "ubatch_size",
        "np": "parallel",
        "ngl": "n_gpu_layers",
        "t": "threads",
        "tb": "threads_batch",
        "fa": "flash_attn",
        "cb": "cont_batching",
        "nocb": "no_cont_batching",
        "ctk": "cache_type_k",
        "ot": "override_tensor",
        "cmoe": "cpu_moe",
        "ncmoe": "n_cpu_moe",
        "ctv": "cache_type_v",
    },
    "tgi": {"p": "port"},
}
"""One-dash names, by engine, as the long names they stand for."""

_LONG = {
    "sglang": {
        "tp": "tp_size",
        "pp": "pp_size",
        "dp": "dp_size",
        "ep": "ep_size",
        "tensor_parallel_size": "tp_size",
        "pipeline_parallel_size": "pp_size",
        "data_parallel_size": "dp_size",
        "expert_parallel_size": "ep_size",
        "model": "model_path",
    },
}
"""Further long names, by engine, as those that its log and its metrics use."""

_SWITCH = re.compile(
    r"(no|enable|disable|enforce|trust|skip|use|allow)_|(metrics|slots|mlock|cpu_moe|cmoe)$"
)
"""Flags without a value: the word after them is a positional one, unless it says true or false."""

_MANY = re.compile(
    r"(served_model_name|lora_(modules|paths)|cuda_?graph_(capture_)?(sizes|bs)|allowed_\w+)$"
)
"""Flags that take several values; after one value of any other, a word is a positional one."""

_ADDING = frozenset(("override_tensor",))
"""Flags that each time add to what they said before."""

_TRUTHS = {"true", "false"}
_PYTHON = re.compile(r"python(\d(\.\d+)?)?t?$")
_FLAG = re.compile(r"--?[A-Za-z]")
_REDIRECTION = re.compile(r"(?<=\s)[0-2&]?>{1,2}&?\s*[^\s;|&]+")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)

# The length is bounded because log lines of unknown origin are searched with it too.
_SECRET_NAME = (
    r"(?:[\w.-]{0,100}[_.-])?(?:api[_-]?key|key|token|password|passwd|secret|credentials?)"  # noqa: S105
)
_SECRET = re.compile(_SECRET_NAME + "$", re.IGNORECASE)
_SECRETS_IN_TEXT = (
    # "api_key": "…" inside JSON
    (re.compile(rf'("{_SECRET_NAME}"\s*:\s*)"[^"]*"', re.I), rf'\1"{REDACTED}"'),
    # 'api_key': '…' and 'api_key': ['…'] inside what Python prints
    (
        re.compile(rf"""('{_SECRET_NAME}'\s*:\s*)(?:\[[^\]]*\]|'[^']*'|"[^"]*")""", re.I),
        rf"\1'{REDACTED}'",
    ),
    # --api-key … and NAME_TOKEN=… inside a shell's text
    (
        re.compile(
            rf"((?<!\w)(?:--{_SECRET_NAME}[=\s]\s*|{_SECRET_NAME}=))"
            r"""('[^']*'|"[^"]*"|\[[^\]]*\]|\S+)""",
            re.I,
        ),
        rf"\1{REDACTED}",
    ),
    (re.compile(r"(\b(?:bearer|basic)\s+)[^\s\"']+", re.I), rf"\1{REDACTED}"),
    (re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@\"']+@", re.I), rf"\1{REDACTED}@"),
    (re.compile(r"\b(?:hf_|sk-)[A-Za-z0-9_-]{16,}"), REDACTED),
)  # fmt: skip


def engine_of(cmd: Sequence[str]) -> str:
    """Which engine a command starts, seen through wrappers and `python -m`.

    Returns:
        "vllm", "sglang", "llamacpp", "tensorrt_llm" or "tgi"; "" when it is none of them.
    """
    return _engine_and_arguments(cmd)[0]


def port_of(cmd: Sequence[str]) -> int | None:
    """The port a command will listen on: its last `--port`, else its engine's default.

    Returns:
        1..65535; None when it cannot be told (unknown engine, port 0, an unexpanded variable).
    """
    engine, arguments = _engine_and_arguments(cmd)
    value = _last_value(arguments, ("--port", "-p") if engine else ("--port",))
    if value is None:
        return DEFAULT_PORTS.get(engine)
    port = int(value) if value.isdecimal() else 0
    return port if 0 < port < 65536 else None


def host_of(cmd: Sequence[str]) -> str | None:
    """The address a command is told to listen on; None when it names none."""
    engine, arguments = _engine_and_arguments(cmd)
    return _last_value(arguments, ("--hostname", "--host") if engine == "tgi" else ("--host",))


def requested_settings(cmd: Sequence[str]) -> dict[str, str]:
    """Every setting a command line asks for, as text, secrets redacted.

    `--flag value` and `--flag=value` give the value, `--flag` "true", `--no-flag` "false"; dashes
    in names become underscores; JSON stays as it is written; several values are joined by a space;
    of a repeated flag the last counts, but of those that add up all. The model that vLLM and
    TensorRT-LLM take by place is `model`.
    """
    engine, arguments = _engine_and_arguments(cmd)
    short, long = _SHORT.get(engine, {}), _LONG.get(engine, {})
    settings: dict[str, str] = {}
    positional: list[str] = []
    for name, values, rest in _flags(arguments):
        positional += rest
        if not name:
            continue
        key = name.lstrip("-").replace("-", "_")
        head, dot, tail = key.partition(".")
        if not name.startswith("--"):
            key = short.get(head, head) + dot + tail
        key = long.get(key, key)
        if not values and key.startswith("no_"):
            settings[key[3:]] = "false"
        elif values and _SECRET.fullmatch(key):
            settings[key] = REDACTED
        else:
            value = _scrub(" ".join(values)) if values else "true"
            before = settings.get(key) if key in _ADDING else None
            settings[key] = f"{before},{value}" if before else value
    if positional and engine in ("vllm", "tensorrt_llm"):
        settings.setdefault("model", _scrub(positional[0]))
    return settings


def redact(cmd: Sequence[str]) -> list[str]:
    """The command with every secret replaced by `<redacted>`, word for word otherwise.

    Secrets are the values of flags and variables whose name ends in key, token, password, secret or
    credential, credentials in URLs and JSON, and words shaped like well-known tokens.
    """
    safe: list[str] = []
    secret = False
    for word in cmd:
        if word.startswith("--") or _is_flag(word):
            name, equals, _ = word.partition("=")
            secret = bool(_SECRET.fullmatch(name.lstrip("-")))
            safe.append(f"{name}={REDACTED}" if secret and equals else _scrub(word))
        elif secret:
            safe.append(REDACTED)
        else:
            safe.append(_scrub(word))
    return safe


def redact_text(text: str) -> str:
    """Free text, such as a log line, with every secret that can be told replaced by `<redacted>`."""
    return _scrub(text)


def is_secret(name: str) -> bool:
    """Is this the name of a setting or variable whose value is a secret?"""
    return bool(_SECRET.fullmatch(name))


def is_wrapper(cmd: Sequence[str]) -> bool:
    """Does the command's first word only start another program?"""
    return bool(cmd) and PurePath(cmd[0]).name in WRAPPERS


def _engine_and_arguments(cmd: Sequence[str]) -> tuple[str, list[str]]:
    """The engine and its own arguments; ("", all arguments) for a program that is not known."""
    words = _spelled_out(list(cmd))
    starts = range(len(words)) if is_wrapper(words) else range(min(1, len(words)))
    for start in starts:
        engine, used = _engine_at(words[start:])
        if engine:
            return engine, _one_command(words[start + used :])
    return "", words[1:]


def _engine_at(words: Sequence[str]) -> tuple[str, int]:
    """The engine that these words start, and how many words name it; ("", 0) for none."""
    used = 1
    name = PurePath(words[0]).name
    if _PYTHON.match(name):
        while used < len(words) and _is_flag(words[used]) and words[used] not in ("-m", "-c"):
            used += 2 if words[used] in ("-X", "-W") else 1
        if used + 1 < len(words) and words[used] == "-m":
            module = words[used + 1]
            for prefix, engine in _MODULES.items():
                if module == prefix or module.startswith(prefix + "."):
                    return engine, used + 2
        name = PurePath(words[used]).name if used < len(words) else ""
        used += 1
    if name in _PROGRAMS:
        return _PROGRAMS[name], used
    if name in _WITH_SERVE and "serve" in words[used : used + 1]:
        return _WITH_SERVE[name], used + 1
    return "", 0


def _spelled_out(words: list[str]) -> list[str]:
    """The words with `sh -c 'TEXT'` opened up into the words of TEXT."""
    for i, word in enumerate(words[:-1]):
        if i and word == "-S" and PurePath(words[i - 1]).name == "env":
            return words[:i] + shell_words(words[i + 1]) + words[i + 2 :]
        if PurePath(word).name in SHELLS and is_wrapper(words):
            for j in range(i + 1, len(words) - 1):
                if not words[j].startswith("-"):
                    break
                if re.fullmatch(r"-[a-z]*c", words[j]):
                    return words[: i + 1] + _spelled_out(["exec", *shell_words(words[j + 1])])
    return words


def shell_words(text: str) -> list[str]:
    """The words of a shell's text; `&&`, `;`, `|` and `&` are words of their own."""
    lexer = shlex.shlex(_REDIRECTION.sub(" ", text), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # an open quote: better roughly than not at all
        return text.split()


def _one_command(words: list[str]) -> list[str]:
    """The words up to the shell's next operator."""
    ends = (i for i, word in enumerate(words) if word and not word.strip("();<>|&"))
    return words[: next(ends, len(words))]


def _is_flag(word: str) -> bool:
    return bool(_FLAG.match(word))


def _last_value(arguments: Sequence[str], names: tuple[str, ...]) -> str | None:
    found = [values[0] for name, values, _ in _flags(arguments) if name in names and values]
    return found[-1] if found else None


def _flags(arguments: Sequence[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Each flag with its values and the positional words after it; first the words before any."""
    name, values, positional = "", list[str](), list[str]()
    for word in arguments:
        if _is_flag(word):
            yield name, values, positional
            name, equals, value = word.partition("=")
            values, positional = ([value] if equals else []), []
        elif word != "--" and not positional and _takes(name, values, word):
            values.append(word)
        elif word != "--":
            positional.append(word)
    yield name, values, positional


def _takes(flag: str, values: Sequence[str], word: str) -> bool:
    """Is `word` one more value of `flag`, which has `values` so far?"""
    key = flag.lstrip("-").replace("-", "_")
    if values:
        return bool(_MANY.match(key) or _SECRET.fullmatch(key))
    return bool(key) and (not _SWITCH.match(key) or word.lower() in _TRUTHS)


def _scrub(text: str) -> str:
    for pattern, replacement in _SECRETS_IN_TEXT:
        text = pattern.sub(replacement, text)
    return text
