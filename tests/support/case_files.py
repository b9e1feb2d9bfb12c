"""Reports of slow servers as files that a person could have handed over: only what they had before the cure."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from case_compared import compared
from case_evidence import Evidence
from case_figures import figures
from case_keys import Known, find, number, span, written
from case_knobs import lone_prompt
from case_launch import STARTS, launch, name_of
from case_pairs import reference_paths
from case_reshape import reshaped
from case_sides import Leaf, Sides, sides
from case_words import said

from whybound.collector.fact_figures import figure
from whybound.collector.fact_values import first_readable, read_fact

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
BATCH_OF_PROMPTS, MANY_REQUESTS = 32, 1024
"""So many prompts without a word on how they came are one batch; more requests than the second are a run."""
_CALLERS = re.compile(
    r"concurren|rate|rps|qps|users|clients|streams|arrival|batch|parallel", re.IGNORECASE
)
_SPEED = re.compile(
    r"(?P<n>\d+(?:\.\d+)?) ?"
    r"(?P<unit>G(?:bit|b|B)(?:/s|ps)|gb(?:it)?(?:/s|ps)|Gb?E\b|G(?= (?:IB|NICs?|RoCE|Ethernet|RDMA|link)))"
)


def cases_folder() -> Path | None:
    """The folder of the cases: what WHYBOUND_CASES names, else `cases` beside the corpus; None without."""
    named = os.environ.get("WHYBOUND_CASES")
    corpus = os.environ.get("WHYBOUND_CORPUS")
    folder = Path(named) if named else Path(corpus).resolve().parent / "cases" if corpus else None
    return folder if folder and any(folder.glob("*.yaml")) else None


def read_cases(folder: Path) -> list[dict[str, Any]]:
    """Every case of a folder, by its name."""
    return [yaml.safe_load(p.read_text()) for p in sorted(folder.glob("*.yaml"))]


def evidence_of(case: Mapping[str, Any], known: Collection[str] | None = None) -> Evidence:
    """What the person had, in the words of this project; what the table does not know is `unmapped`.

    Args:
        case: the report. Only its evidence, hardware, workload, engine, model and arguments are read; of its
            gain, which figures are those before and after.
        known: signals that there are; those of this project where it is None.
    """
    found = Evidence() if known is None else Evidence(known=known)
    case = {**case, "evidence": reshaped(case.get("evidence") or {}, case.get("workload") or {})}
    told = sides(case, reference_paths(case))
    figures(told.before, found, told.other, _about(case))
    compared(case, told, found)
    _hardware(case, found)
    _workload(case, told, found)
    lone_prompt(found)
    launch(case, found)
    _log(case, told, found)
    return found


def _about(case: Mapping[str, Any]) -> str:
    """Engine, model, arguments and interconnect, in words."""
    parts = [(case.get(part) or {}).get("name", "") for part in ("engine", "model")]
    interconnect = (case.get("hardware") or {}).get("interconnect", "")
    return " ; ".join(map(str, [*parts, interconnect, *(case.get("launch_args") or [])]))


def write_files(case: Mapping[str, Any], folder: Path) -> tuple[list[Path], Evidence]:
    """The files of a case: `launch.sh`, `server.log` and `facts.yaml`, those that there are."""
    found = evidence_of(case)
    paths = []
    texts = {
        "launch.sh": found.command,
        "server.log": "\n".join(found.log),
    } | _facts_files(found)
    for name, text in texts.items():
        if text:
            (folder / name).write_text(text + "\n")
            paths.append(folder / name)
    return paths, found


def log_kind(found: Evidence) -> str | None:
    """What a log of this engine is called, for an excerpt too short to be told by its content."""
    return f"{found.settings['engine']}-log" if found.settings["engine"] in STARTS else None


def _facts_files(found: Evidence) -> dict[str, str]:
    """Name → text: a file of facts, and another for each further scope of a signal."""
    wholes: list[dict[str, Any]] = []
    for key, value in found.facts.items():
        name, _, scope = key.partition("@")
        whole = next((w for w in wholes if name not in w["facts"]), None)
        if whole is None:
            wholes.append(whole := {"facts": {}})
        whole["facts"][name] = {"value": value, "scope": scope} if scope else value
    if found.settings:
        wholes = wholes or [{"facts": {}}]
        wholes[0] |= {"settings": found.settings, "engine": found.settings.get("engine", "")}
    return {
        f"facts{'' if i == 0 else f'-{i + 1}'}.yaml": yaml.safe_dump(
            whole, sort_keys=False, allow_unicode=True
        )
        for i, whole in enumerate(wholes)
    }


def _hardware(case: Mapping[str, Any], found: Evidence) -> None:
    hardware = dict(case.get("hardware") or {})
    told = str(hardware.pop("gpu", "") or hardware.pop("accelerator", ""))
    of_machine = re.search(r"\(\d+ ?x ([A-Z][\w -]+)\)", told)  # a machine, and the GPUs in it
    if gpu := name_of(of_machine[1] if of_machine else told):
        found.settings["gpu_name"] = gpu
    if isinstance(gpus := hardware.pop("gpus", hardware.pop("devices", None)), int) and gpus:
        found.settings["gpu_count"] = str(gpus)
    if gpus == 0:
        found.settings["device"] = "cpu"
    figures([Leaf(("hardware", str(k)), v) for k, v in hardware.items()], found)
    between = str(hardware.get("interconnect", ""))
    if speed := _SPEED.search(between):
        found.offer("link_per_s", _speed(speed), "hardware.interconnect")
    nodes = number(hardware.get("nodes"))
    if nodes and nodes > 1 and isinstance(gpus, int) and 1 < gpus <= nodes:
        found.offer("gpu_link_path", "ETH", "hardware.nodes")
        found.unmapped.pop("hardware.nodes", None)


def _speed(found: re.Match[str]) -> str:
    """Bytes a second of `200 Gb/s`; a small b is a bit."""
    unit = found["unit"]
    bits = "bit" in unit or unit.startswith("Gb") or unit in ("gbps", "G", "GE")
    return f"{float(found['n']) / (8 if bits else 1):.4g} GB/s"


def _workload(case: Mapping[str, Any], told: Sides, found: Evidence) -> None:
    items = sorted(_workload_items(case.get("workload") or {}), key=lambda i: i[0] == "n")
    for key, value in items:
        where = f"workload.{key}"
        row = find([str(key)], "workload")
        if isinstance(value, str):
            _lengths(value, where, found)
        if row is None or row.none:
            found.unmapped[where] = row.none if row else "unknown key"
            continue
        text = written(row, [str(key)], value) if row.as_ else _workload_figure(row, value, told)
        if row.as_ == "of_input":
            text = _of_input(value, case.get("workload") or {}, found)
        if text is None:
            found.unmapped[where] = f"no value for {row.signal}: {str(value)[:60]}"
            continue
        found.offer(row.signal, text, where)
        if row.second:
            found.offer(row.second, text, where)
        if row.mode:
            found.offer("load_mode", row.mode, where)
    _all_at_once(case.get("workload") or {}, found)


def _of_input(value: Any, workload: Mapping[str, Any], found: Evidence) -> str | None:
    """Tokens that prompts share, over the tokens of a prompt."""
    whole = span(
        workload.get("prompt_tokens")
        or workload.get("input_tokens")
        or found.facts.get("input_mean_tokens")
    )
    part = number(value)
    return f"{min(1.0, 2 * part / sum(whole)):.4g}" if part and whole and min(whole) > 0 else None


def _all_at_once(workload: Mapping[str, Any], found: Evidence) -> None:
    """Many prompts without a word on a rate or on callers arrive together, as throughput tools send them."""
    prompts = number(workload.get("prompts") or workload.get("num_prompts"))
    if not prompts:
        requests = number(workload.get("requests") or workload.get("num_requests")) or 0
        prompts = requests if requests <= MANY_REQUESTS else 0
    if any(_CALLERS.search(str(key)) for key in workload) or prompts < BATCH_OF_PROMPTS:
        return
    if not {"inflight_mean_count", "offered_rate_per_s"} & set(found.facts):
        found.offer("inflight_mean_count", f"{prompts / 2:g}..{prompts:g}", "workload.prompts")
        found.offer("load_mode", "closed", "workload.prompts")


def _lengths(text: str, key: str, found: Evidence) -> None:
    """Lengths among words: `512-token outputs`."""
    for words, signal in (
        ("outputs?|completions?|answers?", "output_mean_tokens"),
        ("prompts?|inputs?", "input_mean_tokens"),
    ):
        if told := re.search(rf"(\d+(?:\.\d+)?[kK]?)[- ]tok(?:en)?s? (?:{words})\b", text):
            found.offer(signal, f"{number(told[1]):g}", key)


def _workload_items(workload: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Keys and values; of several kinds of requests, each told apart, the mean of each key."""
    kinds = [v for v in workload.values() if isinstance(v, Mapping)]
    for key, value in workload.items():
        if not isinstance(value, Mapping):
            yield str(key), value
    for key in dict.fromkeys(k for kind in kinds for k in kind):
        plain = [v for kind in kinds if (v := number(kind.get(key))) is not None]
        yield str(key), sum(plain) / len(plain) if plain else None


def _workload_figure(row: Known, value: Any, told: Sides) -> str | None:
    """A number or a range; of several, the point of the sweep that was chosen, else the largest."""
    if isinstance(value, list):
        plain = [v for v in map(number, value) if v is not None]
        one = next((v for v in plain if v in told.levels), max(plain, default=None))
        return None if one is None else f"{one:.10g}"
    if re.search(r"\btwice\b", str(value)):
        return "2"
    text = figure(str(value))
    plain = number(value)
    numbers = [] if plain is None else [f"{plain:.10g}"]
    return first_readable(row.signal, (f"{text} {row.unit}".strip(), *numbers))


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
    lines = [told_ for line in found.log for told_ in said(line)]
    for signal, value in sorted(lines, key=lambda s: s[0].endswith("_s") and -_size(*s)):
        found.offer(signal, value, "log")  # of several times the longest
    for key, values in seen.items():
        signal, _, unit = key.partition(" ")
        text = (
            f"{min(values):g}"
            if min(values) == max(values)
            else f"{min(values):g}..{max(values):g}"
        )
        found.offer(signal, f"{text} {unit}".strip(), "log_lines_rebuilt")


def _size(signal: str, text: str) -> float:
    return read_fact(signal, text).value or 0.0


def _numbers(value: Any) -> list[float]:
    plain = [number(v) for v in (value if isinstance(value, list) else [value])]
    return [v for v in plain if v is not None and v != int(v)]
