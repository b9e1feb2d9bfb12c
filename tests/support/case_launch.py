"""How an engine was started, from arguments and from words about them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from case_evidence import Evidence
from case_keys import number, tokens
from case_sides import leaves_of
from case_switches import environment, memory_share, speculates, switched, told_by, yaml_setting
from case_words import graph_sizes

_TRIED = re.compile(r"\((?:the )?(?:after|fix|cure|check|tried|tested|workaround|with fix)\b")
_COUNTS = {
    "dual": "2",
    "two": "2",
    "2": "2",
    "four": "4",
    "quad": "4",
    "4": "4",
    "eight": "8",
    "8": "8",
}
_UNSAID = re.compile(r"\s*(not |n/a|same-node|-$)|.*\bname not in\b", re.IGNORECASE)
_ENGINES = (("sglang", "sglang"), ("vllm", "vllm"), ("llama.cpp", "llamacpp"))
STARTS = {
    "vllm": "vllm serve{model}",
    "sglang": "python -m sglang.launch_server --model-path{model}",
    "llamacpp": "llama-server -m{model}",
}
_BARE = {
    "vllm": "vllm serve",
    "sglang": "python -m sglang.launch_server",
    "llamacpp": "llama-server",
}
_QUANT = re.compile(r"\b(awq|gptq|nvfp4|mxfp4|fp8|int8|int4)\b", re.IGNORECASE)
_SPECULATION = re.compile(
    r"(?:speculative )?(?:EAGLE/)?(?:MTP|EAGLE3?)(?: (\d+)| on)?(?: num_steps=(\d+).*)?$|\w+ [kn]=(\d+)$",
    re.IGNORECASE,
)
_GRAPHS = re.compile(
    r"(?:cuda.?graphs?.?(?:max.?(?:bs|batch(?:.size)?)|bs)|capture.?sizes?)\D{1,3}([\d ,]+)",
    re.IGNORECASE,
)
_BYTES = {"gib": 2**30, "gb": 10**9, "mib": 2**20, "mb": 10**6}
_ASKED = re.compile(
    r"(?:max.?running.?requests|max.?num.?seqs)\D{1,3}(\d+)\D* (?:requested|asked|configured)"
)


def launch(case: Mapping[str, Any], found: Evidence) -> None:
    engine, model = case.get("engine") or {}, case.get("model") or {}
    named = str(engine.get("name", "")).lower()
    kind = next((kind for word, kind in _ENGINES if word in named), "")
    name = name_of(model.get("name", ""))
    arguments: list[str] = []
    gpus = number((case.get("hardware") or {}).get("gpus"))
    given = [part for a in case.get("launch_args") or [] for part in _parts(str(a), gpus)]
    for written_ in given:
        if _TRIED.search(written_):
            found.unmapped[f"launch_args: {written_}"] = "what was tried"
            continue
        told = _in_words(str(written_), found)
        argument = _argument(str(written_), kind) or _switched(str(written_), kind, case)
        if (switch := switched(str(written_), kind)) is not None:
            argument, told = switch[0], True
            found.settings.update(switch[1])
        if argument:
            arguments.append(argument)
        elif not told:
            found.unmapped[f"launch_args: {written_}"] = "words, not an argument"
    if kind:
        model_given = f" {shlex.quote(_word(name))}" if name else ""
        start = STARTS[kind].format(model=model_given) if name else _BARE[kind]
        found.command = " ".join([start, *arguments])
    else:
        for argument in arguments:
            flag, _, value = argument.partition(" ")
            found.settings[flag.lstrip("-").replace("-", "_")] = value or "true"
        if name:
            found.settings["model"] = name
    if found_version := re.match(r"v?\d+\.\d+(?:\.\w+)?", str(engine.get("version", ""))):
        found.settings["version"] = found_version[0]
    found.settings["engine"] = kind or named
    asked = any("--quantization" in a for a in arguments)
    if not asked and (quant := _QUANT.search(f"{model.get('quant', '')}")):
        found.settings["quantization"] = quant[1].lower()
    if kv := model.get("kv"):
        found.settings["kv_cache_dtype"] = str(kv)
    if context := number(model.get("context")):
        found.settings["max_model_len"] = f"{context:g}"


def _parts(text: str, gpus: float | None = None) -> list[str]:
    """`TP8/EP8` is `tp 8` and `ep 8`; `TP4` is `tp 4`; of more than the GPUs there are, the first was run."""
    bare = re.sub(r"\s*\([^)]*\)", "", text).strip()
    sizes = re.fullmatch(r"(?:TP[ =]?(\d+)) ?/ ?(?:PP[ =]?(\d+))", bare, re.IGNORECASE)
    if sizes and gpus and int(sizes[1]) * int(sizes[2]) > gpus:
        return [f"tp {sizes[1]}"]
    if re.fullmatch(
        r"(?:[TEDP]P[ =]?\d+)(?: ?[/,+x ] ?[TEDP]P[ =]?\d+)*", text.strip(), re.IGNORECASE
    ):
        return [
            f"{a.lower()} {n}" for a, n in re.findall(r"([A-Za-z]P)[ =]?(\d+)", text, re.IGNORECASE)
        ]
    return [text]


def _in_words(text: str, found: Evidence) -> bool:
    """Facts and settings that an argument tells beside what it is."""
    key = f"launch_args: {text}"
    before = len(found.facts) + len(found.settings)
    beside = False
    for signal, value in told_by(text).items():
        found.offer(signal, value, key)
        beside = signal in found.facts
    if (line := yaml_setting(text)) and not re.search(r"enforce_eager", text):
        found.settings[line[0]] = line[1]
    if splits := re.search(r"\b(num[_-](?:kv[_-])?splits)[ =]+(\d+)", text):
        found.settings[splits[1].replace("-", "_")] = splits[2]
    if sizes := graph_sizes(text):
        found.offer("graph_max_batch_count", sizes, key)
    elif graph := _GRAPHS.search(text):
        found.offer("graph_max_batch_count", str(max(map(int, re.findall(r"\d+", graph[1])))), key)
    if asked := _ASKED.search(text):
        found.offer("max_num_seqs_asked_count", asked[1], key)
    if threads := re.search(r"(?:OMP|MKL|TORCH)_NUM_THREADS\W{1,3}(\d+)", text):
        found.offer("cpu_threads_count", threads[1], key)
    if cache := re.fullmatch(r"KV(?: cache)? (fp8\w*|int8|bf16|fp16|q\d_\d)", text):
        found.settings["kv_cache_dtype"] = cache[1]
    if gpus := re.match(r"(dual|two|2|four|quad|4|eight|8)[- ]gpus?\b", text, re.IGNORECASE):
        found.settings.setdefault("gpu_count", _COUNTS[gpus[1].lower()])
    if re.match(r"(MTP|spec\w*|EAGLE\w*|k)[ =]0/\d+$", text):
        found.settings["speculation"] = "off"
    if cache := re.match(r"(\w+) (?:K/V|KV)[ -]cache$|(fp8\w*|int8|q\d_\d) KV$", text):
        found.settings["kv_cache_dtype"] = cache[1] or cache[2]
    return beside or len(found.facts) + len(found.settings) > before


def _switched(text: str, kind: str, case: Mapping[str, Any]) -> str:
    """Speculation that was tried on and off is on, where the figure of the complaint is of it."""
    found = re.match(r"(\w+) on/off$", text)
    if not found:
        return ""
    before = number((case.get("gain") or {}).get("before"))
    held = (x for x in leaves_of(case.get("evidence") or {}) if number(x.value) == before)
    slow = any(found[1].lower() in tokens(leaf.path) for leaf in held)
    return _argument(found[1], kind) if before is not None and slow else ""


def _argument(text: str, kind: str) -> str:
    """A launch argument as it is typed: `TP 2` is `--tensor-parallel-size 2`; "" when it is a description."""
    text = re.sub(r"\s*\([^)]*\)", "", text)
    text = re.split(r"\s*->|\s+vs\s+", text)[0].replace(" default ", " ")
    text = re.sub(r"\s+requested$", "", text).strip()
    if re.search(r"\b(toggled|tried|variants|on/off)\b", text):
        return ""
    if found := re.match(r"tensor.parallel(?:ism)?[^\d-]* (\d+)", text, re.IGNORECASE):
        text = f"tp {found[1]}"
    if found := re.fullmatch(r"(pp|dp) (\d+)", text, re.IGNORECASE):
        long = {"pp": "pipeline-parallel", "dp": "data-parallel"}[found[1].lower()]
        return f"--{found[1].lower() if kind == 'sglang' else long}-size {found[2]}"
    if text.startswith("--") and "concurrency" in text:  # of a load generator
        return ""
    if text.startswith("-"):
        name, _, value = text.partition(" ")
        return f"{name} {shlex.quote(value)}" if re.search("[<>]", value) else text
    if found := re.fullmatch(r"([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+) (\S+)", text):
        text = f"{found[1]}={found[2]}"
    if found := re.fullmatch(
        r"(quantization|kv[ _-]cache[ _-]dtype|attention[ _-]backend|dtype)[ =:]+([\w.]+)", text
    ):
        return f"--{re.sub('[ _]', '-', found[1])} {found[2]}"
    if found := re.fullmatch(r"(\w+) attention(?: backend)?", text):
        dp = found[1].lower() == "dp"
        return (
            ("--enable-dp-attention" if kind == "sglang" else "")
            if dp
            else f"--attention-backend {found[1]}"
        )
    if variable := environment(text):
        return variable
    if share := memory_share(text, kind):
        return share
    if memory := re.match(r"kv[ _-]cache (\d+(?:\.\d+)?) ?([GM]i?B)$", text, re.IGNORECASE):
        size = float(memory[1]) * _BYTES[memory[2].lower()]
        return f"--kv-cache-memory-bytes {size:.0f}" if kind == "vllm" else ""
    if found := re.fullmatch(r"(MTP|EAGLE\d?) ([1-9]\d*)/\d+", text):
        text = f"MTP {found[2]}"
    if found := re.fullmatch(
        r"(?:\w+ )?num_speculative_tokens[ =](\d+)(?: ?/ ?\d+)*", text, re.IGNORECASE
    ):
        return _speculation(found[1], kind)
    if speculates(text):
        return _speculation("", kind)
    if found := _SPECULATION.match(text):
        return _speculation(next((g for g in found.groups() if g), ""), kind)
    if re.fullmatch(r"ep \d+", text, re.IGNORECASE):
        return "--enable-expert-parallel" if kind == "vllm" else f"--ep-size {text.split()[1]}"
    if found := re.fullmatch(r"(?:ctx|context) (\d+)([kK]?)", text):
        size = int(found[1]) * (1024 if found[2] else 1)
        flag = {"vllm": "--max-model-len", "sglang": "--context-length"}.get(kind, "--ctx-size")
        return f"{flag} {size}"
    if found := re.fullmatch(r"tp (\d+)", text, re.IGNORECASE):
        return f"{'--tp-size' if kind == 'sglang' else '--tensor-parallel-size'} {found[1]}"
    if found := re.fullmatch(r"([a-z]+(?:[_-][a-z]+)+)[ =](\S+)", text):
        value = found[2]
        return (
            ""
            if "/" in value or not re.match(r"[\w.]+$", value)
            else f"--{found[1].replace('_', '-')} {value}"
        )
    return ""


def _speculation(count: str, kind: str) -> str:
    """How an engine is told to speculate, with so many tokens a step where that is known."""
    if kind == "sglang":
        steps = f" --speculative-num-steps {count}" if count else ""
        return f"--speculative-algorithm EAGLE{steps}"
    config = {"method": "mtp"} | ({"num_speculative_tokens": int(count)} if count else {})
    return f"--speculative-config {shlex.quote(json.dumps(config))}"


def _word(name: str) -> str:
    return re.sub(r"\s+", "-", name)


def name_of(value: Any) -> str:
    """A name, without what stands in brackets and without a second one; "" where it was not told."""
    text = str(value or "")
    if _UNSAID.match(text):
        return ""
    return re.split(r"\s*\(|;|,| and ", text)[0].strip()
