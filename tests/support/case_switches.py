"""Launch arguments in words, as environment variables, or as settings of a file: what they are when typed."""

from __future__ import annotations

import re

from whybound.collector.fact_words import flag

_ON = r"(?:on|enabled|true|yes|1)"
_OFF = r"(?:off|disabled|false|no|0)"
_ENGINE_FLAGS = {
    "prefix": {
        "vllm": ("--enable-prefix-caching", "--no-enable-prefix-caching"),
        "sglang": ("", "--disable-radix-cache"),
    },
    "chunked": {
        "vllm": ("--enable-chunked-prefill", "--no-enable-chunked-prefill"),
        "sglang": ("", "--chunked-prefill-size -1"),
    },
    "eager": {"vllm": ("--enforce-eager", ""), "sglang": ("--disable-cuda-graph", "")},
    "graphs": {"vllm": ("", "--enforce-eager"), "sglang": ("", "--disable-cuda-graph")},
}
"""Switch → engine → the flags for on and off; "" where that is what holds without one."""
_SETTINGS = {
    "prefix": "enable_prefix_caching",
    "chunked": "enable_chunked_prefill",
    "eager": "enforce_eager",
}
_SWITCHES = (
    ("prefix", r"(?:automatic )?(?:prefix|radix)[ _-]?(?:cach(?:e|ing)|reuse)|apc"),
    ("chunked", r"chunked[ _-]?prefill(?:ing)?"),
    ("eager", r"enforce[ _-]?eager|eager(?: mode)?"),
    ("graphs", r"cuda[ _-]?graphs?"),
)
_VARIABLE = re.compile(r"(?:-e |export )?([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)=(\S+)")
_YAML = re.compile(r"([a-z][a-z0-9]*(?:_[a-z0-9]+)+): ?(\S+)$")
_SHARE = {"vllm": "--gpu-memory-utilization", "sglang": "--mem-fraction-static"}
_ARGUMENTS = (
    "MAX_NUM_SEQS", "MAX_MODEL_LEN", "MAX_NUM_BATCHED_TOKENS", "MAX_BATCH_SIZE", "MAX_CONCURRENT_REQUESTS",
    "GPU_MEMORY_UTILIZATION", "MEM_FRACTION_STATIC", "TENSOR_PARALLEL_SIZE", "TP_SIZE", "MAX_RUNNING_REQUESTS",
    "KV_CACHE_DTYPE", "CHUNKED_PREFILL_SIZE", "PIPELINE_PARALLEL_SIZE", "DATA_PARALLEL_SIZE", "CTX_SIZE",
    "CONTEXT_LENGTH", "QUANTIZATION", "ENFORCE_EAGER", "ATTENTION_BACKEND", "CPU_OFFLOAD_GB", "N_GPU_LAYERS",
)  # fmt: skip
"""Arguments that scripts take from variables of that name."""
_NO_P2P = re.compile(
    r"NCCL_P2P_DISABLE=1|disable[-_]custom[-_]all[-_]reduce|NCCL_P2P_LEVEL=LOC", re.I
)
_HOST_WEIGHTS = re.compile(
    r"(?:-ot|--override-tensors?)\b.*=\s*CPU|--(?:n-)?cpu-moe\b|-ncmoe\b|--cpu-offload-gb[ =](?!0\b)"
    r"|--moe-backend[ =]offload"
    r"|experts? (?:\w+ ){0,3}(?:on|in) (?:the )?(?:CPU|host|RAM)",
    re.I,
)


def environment(text: str) -> str | None:
    """`MAX_NUM_SEQS=1` is `--max-num-seqs 1`; None where it is no such variable, "" where it is one of others."""
    found = _VARIABLE.match(text)
    if not found:
        return None
    name = re.sub(r"^(VLLM|SGLANG|SGL|LLAMA_ARG|TGI|ENGINE|SERVER|MODEL)_(?=[A-Z])", "", found[1])
    if name not in _ARGUMENTS:
        return ""
    value = found[2].strip("'\"")
    dashed = "--" + name.lower().replace("_", "-")
    if value.lower() in ("true", "1") and name == "ENFORCE_EAGER":
        return dashed
    return "" if value.lower() == "false" else f"{dashed} {value}"


def yaml_setting(text: str) -> tuple[str, str] | None:
    """Name and value of a line of settings: `capacity_scheduler_policy: MAX_UTILIZATION`."""
    found = _YAML.match(text.strip())
    return (found[1], found[2]) if found else None


def switched(text: str, kind: str) -> tuple[str, dict[str, str]] | None:
    """The flag, and the settings, of a switch in words: `prefix caching off`; None where it is none."""
    plain = re.sub(r"\s*\([^)]*\)", "", text).strip().lower()
    for name, pattern in _SWITCHES:
        whole = re.fullmatch(rf"(?:no |without )?(?:{pattern})(?:[ :=]+({_ON}|{_OFF}))?", plain)
        within = re.search(rf"\b(?:{pattern})(?: is|:|=)? ?({_ON}|{_OFF})\b", plain)
        if not (whole or within) or plain.startswith("-"):
            continue
        word = (whole or within)[1]  # type: ignore[index]
        on = flag(word) if word else not plain.startswith(("no ", "without "))
        flags = _ENGINE_FLAGS[name].get(kind)
        if flags:
            return flags[0 if on else 1], {}
        return "", {_SETTINGS[name]: str(bool(on)).lower()} if name in _SETTINGS else {}
    return None


def memory_share(text: str, kind: str) -> str:
    """`util 0.94` is `--gpu-memory-utilization 0.94`; "" where it is none."""
    found = re.match(
        r"(?:gpu )?(?:mem(?:ory)?[ _-])?(?:util(?:i[sz]ation)?|fraction)[ =:]+(0?\.\d+)$",
        text.lower(),
    )
    return f"{_SHARE[kind]} {found[1]}" if found and kind in _SHARE else ""


def speculates(text: str) -> bool:
    """Do words say that the engine speculates?"""
    plain = re.sub(r"\([^)]*\)", "", text).strip()
    return bool(
        re.fullmatch(
            r"(?:(?:[\w-]+ )?(?:speculative decoding|speculation|spec(?:ulative)? ?decod\w*)|MTP|EAGLE-?\d?|NEXTN)"
            r"(?: (?:on|enabled|active))?", plain, re.IGNORECASE,
        )
    )  # fmt: skip


def told_by(text: str) -> dict[str, str]:
    """Signals that an argument tells in itself."""
    told = {}
    if _NO_P2P.search(text):
        told["custom_all_reduce"] = "off"
    if _HOST_WEIGHTS.search(text):
        told["weights_on_host"] = "yes"
    found = re.match(r"--[a-z-]*concurrency[ =](\d+)", text)
    if found:
        told["inflight_mean_count"] = found[1]
    return told
