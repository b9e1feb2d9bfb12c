"""The pipeline: a run directory in, a diagnosis out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..collector.store import Run, open_run
from ..errors import WhyboundError
from ..rules.evaluate import Outcome, Signals, evaluate_all
from ..rules.load import load_levers, load_prechecks, load_rules
from ..rules.model import Diagnosis, Evidence, Finding, PrecheckResult, Rule, Signal, Verdict
from .advice import rank_levers
from .budget import ceilings, time_budget
from .counterfactual import MEASURED, PARTS, tied
from .coverage import level_one, missing_lines
from .database import open_database
from .fit import Fit, fit
from .goal import measured_target
from .narrate import exhibits, next_measurement, sentence
from .signals import read_signals
from .tail import tail_phases
from .target import TargetSpec, default_target, parse_guard, parse_target
from .target_file import read_target
from .verdict import Label, confidence, label_run, question
from .whatif import capacity, solve, uncapped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import duckdb

METRICS = ("ttft", "itl", "e2e", "throughput")


def diagnose(path: str | Path, target: str | None = None, guards: Sequence[str] = ()) -> Diagnosis:
    """Diagnose a run directory.

    Args:
        path: a run directory, finished, still recording, or left by a crash.
        target: e.g. `p95 itl < 30ms`, or a YAML file of it; None takes the run's own, else the default of
            its load.
        guards: e.g. `p95 ttft < 500ms`; none takes the target file's, else the run's own.

    Raises:
        WhyboundError: it is not a run, comes from a newer version, or the target cannot be read.
    """
    run = open_run(Path(path))
    con = open_database(run)
    try:
        return diagnose_open(run, con, target, guards)
    finally:
        con.close()


def diagnose_open(
    run: Run,
    con: duckdb.DuckDBPyConnection,
    target: str | None = None,
    guards: Sequence[str] = (),
) -> Diagnosis:
    """As `diagnose`, on a run whose database is already open."""
    started = time.monotonic()
    found = read_signals(con)
    by_name = {s.name: s for s in found}
    facts = {s.name: s.value for s in found if s.value is not None}
    mode = by_name["load_mode"].text if "load_mode" in by_name else None
    text, guards = _asked(run, target, guards)
    spec = parse_target(text) if text else default_target(mode)
    model = fit(con, facts, mode)
    if model is not None:
        derived = _derived(model, by_name)
        found += derived
        by_name |= {s.name: s for s in derived}
        facts |= {s.name: s.value for s in derived if s.value is not None}
    signals = Signals(found)
    prechecks = [_precheck(rule, o) for rule, o in _outcomes(load_prechecks(), signals)]
    findings = [_finding(rule, o) for rule, o in _outcomes(load_rules(), signals)]
    verdict, label = _verdict(spec, model, facts, prechecks, findings)
    goal, not_shown = measured_target(
        spec,
        [parse_guard(g) for g in guards],
        con,
        by_name,
        run.manifest,
        unsound=next((p.says for p in prechecks if p.effect == "invalid"), None),
    )
    budget = time_budget(goal, by_name, model, _wait_after_cap(label, model, facts))
    fired = [f for f in findings if f.state == "fires"]
    rules = load_rules()
    levers = rank_levers(
        load_levers(),
        label=label,
        named={lever for f in fired for lever in rules[f.rule].levers},
        target=goal,
        budget=budget,
        signals=signals,
        facts=facts,
        fit=model,
    )
    if goal.met:
        levers = []
    missing = missing_lines(run, facts, model) + not_shown
    _tables(con, found, findings)
    return Diagnosis(
        run=_identity(run, con, time.monotonic() - started),
        target=goal,
        prechecks=prechecks,
        verdict=_told(verdict, label, goal, facts, prechecks, missing),
        budget=budget,
        ceilings=ceilings(budget),
        findings=findings,
        levers=levers,
        next_measurement=next_measurement(verdict, prechecks, run.manifest, missing),
        exhibits=exhibits(con, budget, by_name) | tail_phases(con, spec),
        coverage={"levels": {"1": level_one(facts), "2": 0.0, "3": 0.0}, "missing": missing},
        scorecard=_scorecard(run, con),
    )


def _asked(run: Run, target: str | None, guards: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """The target and guards that are asked for, else the run's own; a run names no files."""
    own, kept = run.manifest.get("target"), run.manifest.get("guards") or []
    if not isinstance(own, str | None) or not isinstance(kept, list):
        raise WhyboundError(f"{run.path}: the target or guards in its manifest are no text")
    kept = [str(g) for g in kept]
    if target is None:
        return own, guards or kept
    return read_target(target, guards, kept)


def _tables(con: duckdb.DuckDBPyConnection, signals: list[Signal], findings: list[Finding]) -> None:
    """Signals and findings as tables beside the views, for `profile sql`."""
    con.execute(
        "CREATE OR REPLACE TABLE signals (name VARCHAR, scope VARCHAR, value DOUBLE, text VARCHAR, low DOUBLE,"
        " high DOUBLE, unit VARCHAR, n BIGINT, coverage DOUBLE, level INTEGER, source VARCHAR)"
    )
    con.execute(
        "CREATE OR REPLACE TABLE findings (rule VARCHAR, scope VARCHAR, state VARCHAR, class VARCHAR,"
        " sub_cause VARCHAR, says VARCHAR)"
    )
    rows = [
        (
            s.name,
            s.scope,
            s.value,
            s.text,
            s.low,
            s.high,
            s.unit,
            s.n,
            s.coverage,
            s.level,
            s.source,
        )
        for s in signals
    ]
    if rows:
        con.executemany("INSERT INTO signals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    said = [(f.rule, f.scope, f.state, f.class_, f.sub_cause, f.says) for f in findings]
    if said:
        con.executemany("INSERT INTO findings VALUES (?, ?, ?, ?, ?, ?)", said)


def _outcomes(rules: Mapping[str, Rule], signals: Signals) -> list[tuple[Rule, Outcome]]:
    return [(rules[o.rule], o) for o in evaluate_all(rules.values(), signals)]


def _precheck(rule: Rule, outcome: Outcome) -> PrecheckResult:
    fires = outcome.state == "fires"
    return PrecheckResult(
        id=rule.id,
        state=outcome.state,
        effect=rule.effect or "none" if fires else "none",
        says=outcome.says,
        remedy=rule.remedy if fires else None,
    )


def _finding(rule: Rule, outcome: Outcome) -> Finding:
    return Finding(
        rule=rule.id,
        title=rule.title,
        scope=outcome.scope,
        state=outcome.state,
        class_=rule.class_,
        sub_cause=rule.sub_cause,
        says=outcome.says,
        evidence=[evidence(s) for s in outcome.evidence],
    )


def evidence(signal: Signal) -> Evidence:
    """A signal as evidence, with the query that shows it."""
    return Evidence(
        signal=signal.name,
        value=signal.text if signal.value is None else signal.value,
        unit=signal.unit,
        source=signal.source,
        sql=f"SELECT {signal.name} FROM {signal.source}" if signal.source != "fit" else "",  # noqa: S608
        low=signal.low,
        high=signal.high,
    )


def _derived(model: Fit, seen: Mapping[str, Signal]) -> list[Signal]:
    """Signals that need the fitted model: utilisation now, and with the batch cap out of the way."""
    gains = sorted(
        capacity(uncapped(engine), model.load) / capacity(engine, model.load)
        for engine in model.engines
    )
    counted = seen.get("requests_count", seen.get("engine_finished_count"))
    n = counted.n if counted else 0
    derived = [
        Signal(
            name="capacity_gain_uncapped_ratio", value=gains[1], low=gains[0], high=gains[2],
            unit="ratio", n=n, source="fit",
        )
    ]  # fmt: skip
    if model.load.open_loop:
        rho = sorted(solve(e, model.load).rho for e in model.engines)
        free = sorted(solve(uncapped(e), model.load).rho for e in model.engines)
        for name, v in (("rho_capped_ratio", rho), ("rho_uncapped_ratio", free)):
            derived.append(
                Signal(name=name, value=v[1], low=v[0], high=v[2], unit="ratio", n=n, source="fit")
            )
    return derived


def _verdict(
    spec: TargetSpec,
    model: Fit | None,
    facts: Mapping[str, float],
    prechecks: list[PrecheckResult],
    findings: list[Finding],
) -> tuple[Verdict, Label]:
    """The verdict of the target's metric, with those of the other metrics beside it."""
    if model is None:
        label = Label(None, None, None, {}, reason="no load was measured")
        return Verdict(class_=None, abstained=True, method="none"), label
    label = label_run(question(spec.metric, spec.statistic), model, facts)
    fired = [f for f in findings if f.state == "fires"]
    agree = sum(f.class_ == label.class_ for f in fired)
    error = _fit_error(model, facts)
    sure = confidence(label, error, agree, len(fired) - agree, model.identified)
    withheld = any(p.effect == "invalid" for p in prechecks)
    others = {m: label_run(question(m, "mean"), model, facts) for m in METRICS}
    verdict = Verdict(
        class_=None if withheld else label.class_,
        sub_cause=None if withheld else label.sub_cause,
        binding_resource=label.binding_resource,
        confidence=0.0 if withheld else sure,
        abstained=not withheld and label.class_ is None and label.reason != "nothing would help",
        withheld=withheld,
        candidates=list(label.candidates),
        runner_up=label.runner_up,
        ambiguous=label.ambiguous,
        method="fixed_point gain vector, confidence not calibrated",
        gain_vector={
            a: {"low": g.low, "mid": g.mid, "high": g.high} for a, g in sorted(label.gains.items())
        },
        by_metric={} if withheld else {m: _short(v) for m, v in others.items()},
    )
    return verdict, label


def _short(label: Label) -> dict[str, Any]:
    return {
        "class": label.class_,
        "sub_cause": label.sub_cause,
        "binding_resource": label.binding_resource,
        "candidates": list(label.candidates),
    }


def _fit_error(model: Fit, facts: Mapping[str, float]) -> float:
    """|ln(modelled / measured)| of the server's time, 0 when the model reproduces the run."""
    base = solve(model.engines[1], model.load)
    parts = [p for p in PARTS if p in MEASURED and MEASURED[p] in facts]
    seen = sum(facts[MEASURED[p]] for p in parts)
    modelled = sum(getattr(base, p) for p in parts)
    return abs(seen / modelled - 1.0) if modelled > 0 and seen > 0 else 1.0


def _wait_after_cap(label: Label, model: Fit | None, facts: Mapping[str, float]) -> float | None:
    """Mean wait that would be left with the batch cap out of the way; None without a model."""
    if model is None:
        return None
    engine = model.engines[1]
    base = solve(engine, model.load)
    return tied(solve(uncapped(engine), model.load), base, facts)["wait_s"]


def _told(
    verdict: Verdict,
    label: Label,
    goal: Any,
    facts: Mapping[str, float],
    prechecks: list[PrecheckResult],
    missing: list[str],
) -> Verdict:
    verdict.says = sentence(verdict, label, goal, facts, prechecks, missing)
    causes = [p.says for p in prechecks if p.effect == "explains"]
    if causes and not verdict.withheld:
        verdict.says += f" But the cause lies elsewhere: {'; '.join(causes)}."
    return verdict


def _identity(run: Run, con: duckdb.DuckDBPyConnection, took_s: float) -> dict[str, Any]:
    m = run.manifest
    row = con.execute("SELECT start_ns, duration_s FROM run_window").fetchone()
    engine = con.execute(
        "SELECT mode(engine) FROM samples WHERE engine <> '' UNION ALL"
        " SELECT mode(engine) FROM settings WHERE engine <> ''"
    ).fetchall()
    return {
        "path": str(run.path),
        "id": m.get("run_id"),
        "state": m.get("state"),
        "command": m.get("command"),
        "engine": next((e for (e,) in engine if e), m.get("engine")),
        "model": m.get("model"),
        "emulated": bool(m.get("emulated")),
        "load": m.get("load"),
        "started_ns": row[0] if row else None,
        "duration_s": row[1] if row else None,
        "whybound": m.get("whybound_version"),
        "losses": run.losses,
        "diagnosed_in_s": round(took_s, 3),
    }


def _scorecard(run: Run, con: duckdb.DuckDBPyConnection) -> dict[str, Any]:
    """The identity line: settings as they hold. Blanks stay blank."""
    settings = con.execute(
        "SELECT key, value, origin FROM setting_latest WHERE origin IN ('requested', 'effective') ORDER BY key"
    ).fetchall()
    return {
        "identity": run.manifest.get("identity"),
        "settings": {k: {"value": v, "origin": o} for k, v, o in settings},
    }
