"""Reports of slow servers as files that a person could have handed over: only what they had before the cure."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from case_keys import Known, find, number, written
from case_sides import Leaf, Sides, sides

from whybound.analyzers.given import known_signals

_UNSAID = re.compile(r"\s*(not |n/a|same-node|-$)|.*\bname not in\b", re.IGNORECASE)
_STATISTICS = (
    (r"Avg generation throughput: ([\d.]+)", "generation_tokens_per_s", ""),
    (r"Running: (\d+)", "running_mean_count", ""),
    (r"Waiting: (\d+)", "waiting_mean_count", ""),
    (r"KV cache usage: ([\d.]+)", "kv_used_mean_ratio", "%"),
)
"""What a statistics line of vLLM says; those that a field is missing of are facts, as no engine writes them."""
_LOG_FIELDS = {
    "running": r"Running: \d+ reqs, |#running-req: \d+, ",
    "waiting": r"Waiting: \d+ reqs, |#queue-req: \d+, ",
    "kv usage": r"(?:, )?GPU KV cache usage: [\d.]+%|token usage: [\d.]+, ",
}
_ENGINES = (("sglang", "sglang"), ("vllm", "vllm"), ("llama.cpp", "llamacpp"))
_STARTS = {
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
    r"(?:speculative )?(?:EAGLE/)?(?:MTP|EAGLE3?)(?: (\d+)| on)?(?: num_steps=(\d+).*)?$|\w+ k=(\d+)$",
    re.IGNORECASE,
)
_LARGER_IS_BETTER = re.compile(r"_per_s$|^gpu_(busy|sm|clock)|^kv_capacity|^prefix_hit|^max_num")


@dataclass
class Evidence:
    """What a case holds before its cure.

    Attributes:
        facts: signal → value as a file of facts has it.
        settings: of the engine and the machine.
        command: that started the engine; "" where it is none that is known.
        log: lines, without the fields that were not reported.
        told: signal or setting → the key that it came from.
        unmapped: key → why it is not used.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    command: str = ""
    log: list[str] = field(default_factory=list)
    told: dict[str, str] = field(default_factory=dict)
    unmapped: dict[str, str] = field(default_factory=dict)


def cases_folder() -> Path | None:
    """The folder of the cases: what WHYBOUND_CASES names, else `cases` beside the corpus; None without."""
    named = os.environ.get("WHYBOUND_CASES")
    corpus = os.environ.get("WHYBOUND_CORPUS")
    folder = Path(named) if named else Path(corpus).resolve().parent / "cases" if corpus else None
    return folder if folder and any(folder.glob("*.yaml")) else None


def read_cases(folder: Path) -> list[dict[str, Any]]:
    """Every case of a folder, by its name."""
    return [yaml.safe_load(p.read_text()) for p in sorted(folder.glob("*.yaml"))]


def evidence_of(case: Mapping[str, Any]) -> Evidence:
    """What the person had, in the words of this project; what the table does not know is `unmapped`."""
    found = Evidence()
    told = sides(case)
    _figures(told.before, found, told.other)
    _hardware(case, found)
    _workload(case, told, found)
    _launch(case, found)
    _log(case, told, found)
    return found


def write_files(case: Mapping[str, Any], folder: Path) -> tuple[list[Path], Evidence]:
    """The files of a case: `launch.sh`, `server.log` and `facts.yaml`, those that there are."""
    found = evidence_of(case)
    paths = []
    texts = {
        "launch.sh": found.command,
        "server.log": "\n".join(found.log),
        "facts.yaml": _facts_file(found) if found.facts or found.settings else "",
    }
    for name, text in texts.items():
        if text:
            (folder / name).write_text(text + "\n")
            paths.append(folder / name)
    return paths, found


def log_kind(found: Evidence) -> str | None:
    """What a log of this engine is called, for an excerpt too short to be told by its content."""
    return f"{found.settings['engine']}-log" if found.settings["engine"] in _STARTS else None


def _facts_file(found: Evidence) -> str:
    whole: dict[str, Any] = {}
    for key, value in found.facts.items():
        name, _, scope = key.partition("@")
        whole.setdefault("facts", {})[name] = {"value": value, "scope": scope} if scope else value
    if found.settings:
        whole["settings"] = found.settings
        whole["engine"] = found.settings.get("engine", "")
    return yaml.safe_dump({"facts": {}} | whole, sort_keys=False, allow_unicode=True)


def _figures(leaves: Sequence[Leaf], found: Evidence, beside: Sequence[Leaf] = ()) -> None:
    """The table over the leaves; of several for one signal the surest of the slow side, then the worst."""
    offers: dict[str, list[tuple[int, float, Leaf, str]]] = {}
    for leaf in leaves:
        key = ".".join(leaf.path)
        row = find(leaf.path, "evidence")
        if row is not None and row.log and isinstance(leaf.value, str):
            found.log.append(str(leaf.value))
            continue
        if row is None or row.none or row.log:
            found.unmapped[key] = row.none if row and row.none else "unknown key"
            continue
        if row.setting:
            _setting(row, leaf, found)
            continue
        row = _known(row)
        if row.signal not in known_signals():
            found.unmapped[key] = f"no signal {row.signal}"
            continue
        if row.over:
            text = _over(row, leaf, (*leaves, *beside))
        elif isinstance(leaf.value, dict):
            text = _worse_of(row, leaf)
        else:
            text = written(row, leaf.path, leaf.value)
        if text is None:
            found.unmapped[key] = f"no value for {row.signal}: {str(leaf.value)[:60]}"
            continue
        gpu = re.search(r"gpu(\d+)_", key)
        name = f"{row.signal}@gpu={gpu[1]}" if gpu else row.signal
        offers.setdefault(name, []).append((leaf.rank, -_badness(row.signal, text), leaf, text))
    for name, several in offers.items():
        _, _, leaf, text = min(several, key=lambda o: o[:2])
        found.facts[name] = text
        found.told[name] = ".".join(leaf.path)


def _known(row: Known) -> Known:
    """The row with a signal that there is: a median stands for a mean where only means are kept."""
    if row.signal in known_signals() or "_p50_" not in row.signal:
        return row
    return row._replace(signal=row.signal.replace("_p50_", "_mean_"))


def _over(row: Known, leaf: Leaf, leaves: Sequence[Leaf]) -> str | None:
    """A figure over the one that the row names."""
    other = next((x for x in leaves if re.search(row.over, ".".join(x.path).lower())), None)
    one, two = number(leaf.value), number(other.value) if other else None
    return f"{one / two:.4g}" if one and two else None


def _worse_of(row: Known, leaf: Leaf) -> str | None:
    """The worse of a pair whose sides nothing names: people complain of that one."""
    texts = [t for v in leaf.value["either"] if (t := written(row, leaf.path, v)) is not None]
    return max(texts, key=lambda t: _badness(row.signal, t), default=None)


def _badness(signal: str, text: str) -> float:
    plain = number(text) or 0.0
    return -plain if _LARGER_IS_BETTER.search(signal) else plain


def _setting(row: Known, leaf: Leaf, found: Evidence) -> None:
    values = leaf.value if isinstance(leaf.value, list) else [leaf.value]
    plain = [v for v in map(number, values) if v is not None]
    text = (
        f"{sum(plain) / len(plain) * row.scale:g}" if plain and row.scale != 1 else str(leaf.value)
    )
    found.settings[row.setting] = text
    found.told[row.setting] = ".".join(leaf.path)


def _said(value: Any) -> str:
    """A name, without what stands in brackets and without a second one; "" where it was not told."""
    text = str(value or "")
    if _UNSAID.match(text):
        return ""
    return re.split(r"\s*\(|;|,| and ", text)[0].strip()


def _hardware(case: Mapping[str, Any], found: Evidence) -> None:
    hardware = dict(case.get("hardware") or {})
    if gpu := _said(hardware.pop("gpu", "")):
        found.settings["gpu_name"] = gpu
    if isinstance(gpus := hardware.pop("gpus", None), int) and gpus:
        found.settings["gpu_count"] = str(gpus)
    _figures([Leaf(("hardware", str(k)), v) for k, v in hardware.items()], found)


def _workload(case: Mapping[str, Any], told: Sides, found: Evidence) -> None:
    for key, value in _workload_items(case.get("workload") or {}):
        row = find([str(key)], "workload")
        if row is None or row.none:
            found.unmapped[f"workload.{key}"] = row.none if row else "unknown key"
            continue
        text = _workload_figure(value, told)
        if text is None:
            found.unmapped[f"workload.{key}"] = f"no value for {row.signal}: {str(value)[:60]}"
            continue
        found.facts.setdefault(row.signal, text)
        found.told.setdefault(row.signal, f"workload.{key}")
        if row.mode:
            found.facts.setdefault("load_mode", row.mode)
            found.told.setdefault("load_mode", f"workload.{key}")


def _workload_items(workload: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Keys and values; of several kinds of requests, each told apart, the mean of each key."""
    kinds = [v for v in workload.values() if isinstance(v, Mapping)]
    for key, value in workload.items():
        if not isinstance(value, Mapping):
            yield str(key), value
    for key in dict.fromkeys(k for kind in kinds for k in kind):
        plain = [v for kind in kinds if (v := number(kind.get(key))) is not None]
        yield str(key), sum(plain) / len(plain) if plain else None


def _workload_figure(value: Any, told: Sides) -> str | None:
    """A number or a range; of several, the point of the sweep that was chosen, else the largest."""
    if isinstance(value, list):
        plain = [v for v in map(number, value) if v is not None]
        one = next((v for v in plain if v in told.levels), max(plain, default=None))
        return None if one is None else f"{one:.10g}"
    if span := re.match(r"(\d+)-(\d+)\b", str(value)):
        return f"{span[1]}..{span[2]}"
    one = number(value)
    return None if one is None else f"{one:.10g}"


def _launch(case: Mapping[str, Any], found: Evidence) -> None:
    engine, model = case.get("engine") or {}, case.get("model") or {}
    named = str(engine.get("name", "")).lower()
    kind = next((kind for word, kind in _ENGINES if word in named), "")
    name = _said(model.get("name", ""))
    arguments: list[str] = []
    for written_ in case.get("launch_args") or []:
        argument = _argument(str(written_), kind)
        if argument:
            arguments.append(argument)
        else:
            found.unmapped[f"launch_args: {written_}"] = "words, not an argument"
    if kind:
        model_given = f" {shlex.quote(_word(name))}" if name else ""
        start = _STARTS[kind].format(model=model_given) if name else _BARE[kind]
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


def _argument(text: str, kind: str) -> str:
    """A launch argument as it is typed: `TP 2` is `--tensor-parallel-size 2`; "" when it is a description."""
    text = re.sub(r"\s*\([^)]*\)", "", text)
    text = re.split(r"\s*->|\s+vs\s+", text)[0].replace(" default ", " ")
    text = re.sub(r"\s+requested$", "", text).strip()
    if re.search(r"\b(toggled|tried|variants|on/off)\b", text):
        return ""
    if text.startswith("-"):
        return text
    if found := _SPECULATION.match(text):
        return _speculation(next((g for g in found.groups() if g), ""), kind)
    if re.fullmatch(r"ep \d+", text, re.IGNORECASE):
        return "--enable-expert-parallel" if kind == "vllm" else f"--ep-size {text.split()[1]}"
    if found := re.fullmatch(r"ctx (\d+)", text):
        return f"--ctx-size {found[1]}"
    if found := re.fullmatch(r"tp (\d+)", text, re.IGNORECASE):
        return f"{'--tp-size' if kind == 'sglang' else '--tensor-parallel-size'} {found[1]}"
    if found := re.fullmatch(r"([a-z]+(?:_[a-z]+)+)[ =](\S+)", text):
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


def _log(case: Mapping[str, Any], told: Sides, found: Evidence) -> None:
    """The lines of the slow side, an instant apart, without the fields that nobody reported."""
    evidence = case.get("evidence") or {}
    unreported = [str(f).lower() for f in evidence.get("log_fields_not_reported") or []]
    cuts = [pattern for name, pattern in _LOG_FIELDS.items() if name in unreported]
    healthy = {n for leaf in told.other for n in _numbers(leaf.value)}
    clock = 0
    seen: dict[str, list[float]] = {}
    for line in evidence.get("log_lines_rebuilt") or []:
        if healthy & {float(n) for n in re.findall(r"\d+\.\d+", line)}:
            continue
        whole = line
        for pattern in cuts:
            line = re.sub(pattern, "", line)  # noqa: PLW2901
        if "Avg prompt throughput" in line and not re.search(
            r"Running: \d+ reqs, Waiting: \d+", line
        ):
            for pattern, signal, unit in _STATISTICS:
                if value := re.search(pattern, line):
                    seen.setdefault(f"{signal} {unit}".strip(), []).append(float(value[1]))
            continue
        step = 10 if "Avg prompt throughput" in whole else 1
        found.log.append(re.sub(r"00:00:0\d", f"00:{clock // 60:02}:{clock % 60:02}", line))
        clock += step
    for key, values in seen.items():
        signal, _, unit = key.partition(" ")
        text = (
            f"{min(values):g}"
            if min(values) == max(values)
            else f"{min(values):g}..{max(values):g}"
        )
        found.facts.setdefault(signal, f"{text} {unit}".strip())
        found.told.setdefault(signal, "log_lines_rebuilt")


def _numbers(value: Any) -> list[float]:
    plain = [number(v) for v in (value if isinstance(value, list) else [value])]
    return [v for v in plain if v is not None and v != int(v)]
