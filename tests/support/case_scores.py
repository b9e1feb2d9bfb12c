"""What a verdict on a case is worth: its class by the label rule, or the precheck that is the cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

CLASS_OF = {
    "memory_bandwidth": "memory",
    "memory_capacity": "memory",
    "host_overhead": "launch",
    "latency_occupancy": "latency",
}
"""Names of labels that are not those of classes."""
PRECHECKS = {
    "hardware_health_clocks": ("clocks_stuck_low", "power_cap"),
    "thermal": ("thermal_throttling", "clocks_stuck_low"),
    "cold_start_jit": ("cold_start", "warmup_included", "compiled_during_measurement"),
}
"""Sub-causes that are no bottleneck but a reason not to trust one: the precheck has to be named."""
STARVED = {
    "hardware_health_clocks": ("compute", "memory", "latency", "launch"),
    "thermal": ("compute", "memory", "latency", "launch"),
}
"""What may be starved by it, where the label names one of several: slow clocks slow all that they drive."""
MAY_NAME = {
    "cpu_starvation": ("cpu_shortage", "cpu_quota", "cpu_limit_used_up", "more_cpu_was_tried"),
    "cpu_oversubscription": (
        "cpu_shortage",
        "cpu_quota",
        "cpu_limit_used_up",
        "more_cpu_was_tried",
    ),
    "collectives": ("gpus_across_sockets", "pcie_narrow"),
    "client_proxy": ("client_bound", "other_client_faster"),
}
"""Sub-causes that a precheck may name where the verdict is withheld for it; the class alone is right too."""
CONFIDENT = 0.7


@dataclass(frozen=True)
class Expected:
    """A label: class and second class, and the prechecks that name the cause."""

    primary: str
    secondary: str | None
    must_name: tuple[str, ...] = ()
    may_name: tuple[str, ...] = ()
    starved: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scored:
    """One case judged.

    Attributes:
        right: by the label rule.
        top2: right, or the class is among the first two that the verdict names.
        second: the verdict names the label's second class.
        confident_wrong: another class, with a confidence of at least 0.7.
        mapped: facts, settings and lines of a log that were fed.
        unmapped: key → why it was not.
        seconds: of processor time to import and diagnose.
    """

    id: str
    label: str
    must_name: list[str]
    level: str
    tricky: bool
    verdict: str
    confidence: float
    runner_up: str | None
    candidates: list[str]
    prechecks: list[str]
    right: bool
    top2: bool
    second: bool
    confident_wrong: bool
    mapped: int
    unmapped: dict[str, str]
    seconds: float


def expected(case: Mapping[str, Any]) -> Expected:
    """The label of a case in the words of the verdict.

    A limit on admission below the useful batch is scheduling, with queueing second.
    """
    label = case["label"]
    primary = CLASS_OF.get(label["primary"], label["primary"])
    second = label.get("secondary")
    second = CLASS_OF.get(second, second)
    cause = label.get("subcause") or ""
    if cause == "admission_limit":
        primary, second = "scheduling", "queueing"
    must = PRECHECKS.get(cause, ())
    if "benchmark_error" in (case.get("tags") or []):
        must = ("client_bound", "other_client_faster")
    return Expected(
        primary, second, must, MAY_NAME.get(cause, ()), (primary, *STARVED.get(cause, ()))
    )  # fmt: skip


def scored(case: Mapping[str, Any], diagnosis: Any, found: Any, seconds: float) -> Scored:
    """Judge a diagnosis of a case."""
    want, verdict = expected(case), diagnosis.verdict
    fired = [p.id for p in diagnosis.prechecks if p.state == "fires" and p.effect != "none"]
    class_ = verdict.class_
    named = bool(set(fired) & {*want.must_name, *want.may_name})
    if want.must_name:
        right = named and (verdict.withheld or class_ in want.starved)
    else:
        right = class_ == want.primary or (named and verdict.withheld)
    two = [c for c in dict.fromkeys([class_, verdict.runner_up, *verdict.candidates]) if c][:2]
    return Scored(
        id=case["id"],
        label=want.primary,
        must_name=list(want.must_name),
        runner_up=verdict.runner_up,
        level=case["confidence"]["level"],
        tricky=bool(case.get("traps")),
        verdict=class_
        or ("withheld" if verdict.withheld else "abstains" if verdict.abstained else "none"),
        confidence=verdict.confidence,
        candidates=list(verdict.candidates),
        prechecks=fired,
        right=right,
        top2=right or (not want.must_name and want.primary in two),
        second=class_ is not None and class_ == want.secondary,
        confident_wrong=not right and class_ is not None and verdict.confidence >= CONFIDENT,
        mapped=len(found.facts) + len(found.settings) + len(found.log),
        unmapped=dict(found.unmapped),
        seconds=seconds,
    )


def totals(results: Sequence[Scored]) -> dict[str, Any]:
    """Shares of all cases, and of those whose label is sure or doubtful; and which class went where."""
    parts = {"all": list(results)}
    for level in ("high", "medium"):
        parts[level] = [r for r in results if r.level == level]
    confusion: Counter[tuple[str, str]] = Counter((r.label, r.verdict) for r in results)
    return {
        "parts": {name: _part(rows) for name, rows in parts.items() if rows},
        "confusion": [[a, b, n] for (a, b), n in sorted(confusion.items())],
        "unmapped": Counter(why for r in results for why in set(r.unmapped.values())).most_common(),
    }


def _part(rows: Sequence[Scored]) -> dict[str, Any]:
    tricky = [r for r in rows if r.tricky]
    named = [r for r in rows if r.verdict not in ("withheld", "abstains", "none")]
    return {
        "cases": len(rows),
        "top1": _share(r.right for r in rows),
        "top2": _share(r.top2 for r in rows),
        "named": len(named),
        "top1_of_named": _share(r.right for r in named),
        "tricky": len(tricky),
        "confident_wrong_of_tricky": _share(r.confident_wrong for r in tricky),
    }


def _share(of: Iterable[bool]) -> float | None:
    values = list(of)
    return round(sum(values) / len(values), 4) if values else None


def table_text(results: Sequence[Scored]) -> str:
    """The results as a table, the shares, and the matrix of classes."""
    lines = [
        f"{'case':<42} {'label':<12} {'verdict':<10} {'conf':>4}  {'':<5} "
        "runner-up; candidates; prechecks; evidence used/not"
    ]
    for r in results:
        mark = "right" if r.right else "top2" if r.top2 else "WRONG" if r.confident_wrong else ""
        lines.append(
            f"{r.id[:42]:<42} {r.label + '*' * bool(r.must_name):<12} {r.verdict:<10} {r.confidence:4.2f}  "
            f"{mark:<5} {r.runner_up or '-'}; {','.join(r.candidates) or '-'}; {','.join(r.prechecks) or '-'}; "
            f"{r.mapped}/{len(r.unmapped)}"
        )
        if r.unmapped:
            lines.append(f"{'':<6}not used: {', '.join(r.unmapped)}")
    whole = totals(results)
    lines.append("* a precheck is the cause and has to be named\n")
    for name, p in whole["parts"].items():
        lines.append(
            f"{name:<7} {p['cases']:>3} cases: top-1 {_pct(p['top1'])}, top-2 {_pct(p['top2'])}; "
            f"{p['named']} name a class, {_pct(p['top1_of_named'])} of them right; confident and wrong "
            f"{_pct(p['confident_wrong_of_tricky'])} of {p['tricky']} tricky ones"
        )
    lines.append("\n" + _matrix(whole["confusion"]))
    lines.append("\nevidence that was not used: cases that hold some of a kind")
    lines += [f"{n:>5} {why}" for why, n in whole["unmapped"]]
    return "\n".join(lines)


def as_json(results: Sequence[Scored]) -> dict[str, Any]:
    """The results and the totals for other programs."""
    return {"cases": [asdict(r) for r in results], **totals(results)}


def _pct(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _matrix(confusion: Sequence[Sequence[Any]]) -> str:
    """Labels down, verdicts across."""
    rows = sorted({a for a, _, _ in confusion})
    columns = sorted({b for _, b, _ in confusion})
    counts = {(a, b): n for a, b, n in confusion}
    lines = [f"{'label / verdict':<16}" + "".join(f"{c:>11}" for c in columns)]
    lines += [
        f"{a:<16}" + "".join(f"{counts.get((a, b), '') or '.':>11}" for b in columns) for a in rows
    ]
    return "\n".join(lines)
