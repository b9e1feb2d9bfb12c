"""The pipeline: a run directory in, a diagnosis out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import structs

from ..collector.store import Run, open_run
from ..errors import WhyboundError
from ..rules.evaluate import Outcome, Signals, evaluate_all
from ..rules.load import load_levers, load_prechecks, load_rules
from ..rules.model import (
    BudgetItem,
    Diagnosis,
    Evidence,
    Finding,
    PrecheckResult,
    Rule,
    Signal,
    Target,
    Verdict,
)
from .achieved import floor_rows
from .advice import rank_levers
from .budget import ceilings, time_budget
from .changes import change_finding, difference
from .confidence import confidence
from .counterfactual import UNCAPPED, Question, tied
from .coverage import level_one, missing_lines
from .database import open_database, view_sources
from .derived import derived_signals
from .fit import fit, load_mode
from .given import GIVEN, disagreements, with_derived
from .goal import measured_target
from .narrate import exhibits, sentence
from .next_step import next_measurement
from .signals import read_signals
from .tail import tail_phases
from .target import TargetSpec, default_target, parse_guard, parse_target
from .target_file import read_target
from .told import told_signals
from .verdict import MISFIT, NOTHING, Label, Whatif, label_run, misfit, question, what_if
from .weigh import TRUST, Weighed, claimed, named, overruled, weigh

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import duckdb

METRICS = ("ttft", "itl", "e2e", "throughput")
PHASES = ("prefill", "decode")


def diagnose(
    path: str | Path,
    target: str | None = None,
    guards: Sequence[str] = (),
    beside: str | Path | None = None,
) -> Diagnosis:
    """Diagnose a run directory.

    Args:
        path: a run directory, finished, still recording, or left by a crash.
        target: e.g. `p95 itl < 30ms`, or a YAML file of it; None takes the run's own, else the default of
            its load.
        guards: e.g. `p95 ttft < 500ms`; none takes the target file's, else the run's own.
        beside: a run of the same server with other settings, whose difference is evidence.

    Raises:
        WhyboundError: it is not a run, comes from a newer version, or the target cannot be read.
    """
    run = open_run(Path(path))
    con = open_database(run)
    try:
        return diagnose_open(run, con, target, guards, _variant(beside) if beside else None)
    finally:
        con.close()


Variant = tuple[list[Signal], dict[str, str]]
"""A run's signals, and its settings as they hold."""


def _variant(path: str | Path) -> Variant:
    con = open_database(open_run(Path(path)))
    try:
        return read_signals(con), _settings(con)
    finally:
        con.close()


def diagnose_open(
    run: Run,
    con: duckdb.DuckDBPyConnection,
    target: str | None = None,
    guards: Sequence[str] = (),
    beside: Variant | None = None,
) -> Diagnosis:
    """As `diagnose`, on a run whose database is already open."""
    started = time.monotonic()
    a = analyse(run, con, target, guards, beside)
    rules = load_rules()
    fired = [f for f in a.findings if f.state == "fires"]
    levers = rank_levers(
        load_levers(),
        label=a.label,
        named={lever for f in fired if f.rule in rules for lever in rules[f.rule].levers},
        target=a.goal,
        budget=a.budget,
        signals=a.points(),
        model=a.model,
    )
    if a.goal.met:
        levers = []
    fitted = a.model.fit if a.model else None
    missing = missing_lines(run, a.facts, fitted) + a.not_shown + disagreements(a.signals, con)
    _tables(con, a.signals, a.findings)
    return Diagnosis(
        run=_identity(run, con, time.monotonic() - started),
        target=a.goal,
        prechecks=a.prechecks,
        verdict=_told(a, missing),
        budget=a.budget,
        ceilings=ceilings(a.budget),
        findings=a.findings,
        levers=levers,
        next_measurement=next_measurement(
            a.verdict,
            a.prechecks,
            run.manifest,
            {s.name for s in a.signals if s.level > 0 or s.source in GIVEN},
            missing,
            a.findings,
            rules,
        ),
        exhibits=exhibits(con, a.budget, a.by_name)
        | tail_phases(con, a.spec)
        | {"floors": (floor_rows(a.model) if a.model else []) or None},
        coverage={"levels": {"1": level_one(a.facts), "2": 0.0, "3": 0.0}, "missing": missing},
        scorecard=_scorecard(run, con),
    )


@dataclass(frozen=True)
class Analysis:
    """What is known of a run before levers are ranked and words are found.

    `unlike`: why a variant beside it says nothing; empty where it does, or where there is none.
    """

    spec: TargetSpec
    signals: list[Signal]
    model: Whatif | None
    prechecks: list[PrecheckResult]
    findings: list[Finding]
    verdict: Verdict
    label: Label
    goal: Target
    not_shown: list[str]
    budget: list[BudgetItem]
    unlike: str = ""

    @property
    def by_name(self) -> dict[str, Signal]:
        """The signals by name."""
        return {s.name: s for s in self.signals if not s.scope}

    @property
    def facts(self) -> dict[str, float]:
        """The signals that are numbers."""
        return _numbers(self.signals)

    def points(self) -> Signals:
        """The signals for a lever's conditions: its gain's interval carries the fit's doubt already."""
        return Signals(
            structs.replace(s, low=None, high=None) if s.source == "fit" else s
            for s in self.signals
        )


def analyse(
    run: Run,
    con: duckdb.DuckDBPyConnection,
    target: str | None,
    guards: Sequence[str],
    beside: Variant | None = None,
) -> Analysis:
    """Signals, fit, rules and verdict of a run whose database is open."""
    settings = _settings(con)
    found = read_signals(con)
    found += told_signals(found, settings)
    by_name = {s.name: s for s in found if not s.scope}
    texts = {s.name: s.text for s in by_name.values() if s.text is not None}
    mode = load_mode(_numbers(found), texts.get("load_mode"))
    text, guards = _asked(run, target, guards)
    spec = parse_target(text) if text else default_target(mode)
    fitted = fit(con, _numbers(found) | _callers(run), texts, settings, mode)
    model = None
    if fitted is not None:
        model = what_if(fitted, fitted.facts)
        found = with_derived(found, derived_signals(model, by_name))
    facts = _numbers(found)
    signals = Signals(found)
    prechecks = [_precheck(rule, o) for rule, o in _outcomes(load_prechecks(), signals)]
    findings = [_finding(rule, o) for rule, o in _outcomes(load_rules(), signals)]
    rules = load_rules()
    changed = difference((found, settings), beside) if beside is not None else None
    helped = changed and change_finding(changed, load_levers(), settings.get("engine", ""))
    if helped:
        findings, rules = [helped[0], *findings], rules | {helped[1].id: helped[1]}
    given = not _recorded(by_name) or bool(helped)
    verdict, label = _verdict(spec, model, prechecks, findings, rules, given=given)
    by_name = {s.name: s for s in found if not s.scope}
    goal, not_shown = measured_target(
        spec,
        [parse_guard(g) for g in guards],
        con,
        by_name,
        run.manifest,
        unsound=next((p.says for p in prechecks if p.effect == "invalid"), None),
    )
    if overruled(label):
        model = None
        not_shown = [
            *not_shown,
            "cost model: it does not see what the rules speak for, and estimates nothing",
        ]
    unlike = ""
    if changed is not None and changed.unlike:
        unlike = f"the two variants cannot be compared: {changed.unlike}"
        not_shown = [unlike, *not_shown]
    budget = time_budget(goal, by_name, model, _wait_after_cap(model, facts))
    return Analysis(
        spec, found, model, prechecks, findings, verdict, label, goal, not_shown, budget, unlike
    )


RECORDED = (
    ("server_itl_mean_s", "server_decode_mean_s", "client_itl_mean_s"),
    ("offered_rate_per_s", "engine_offered_rate_per_s"),
    ("output_mean_tokens", "engine_output_mean_tokens"),
)
"""What a fit rests on, alternatives together: token timing, arrivals, answers."""


def _recorded(found: Mapping[str, Signal]) -> bool:
    """Was all that the fit rests on measured, none of it told by hand or by another tool's summary?"""
    return all(
        any(name in found and found[name].source not in GIVEN for name in names)
        for names in RECORDED
    )


def _numbers(found: Iterable[Signal]) -> dict[str, float]:
    return {s.name: s.value for s in found if s.value is not None and not s.scope}


def _asked(run: Run, target: str | None, guards: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """The target and guards that are asked for, else the run's own; a run names no files."""
    own, kept = run.manifest.get("target"), run.manifest.get("guards") or []
    if not isinstance(own, str | None) or not isinstance(kept, list):
        raise WhyboundError(f"{run.path}: the target or guards in its manifest are no text")
    kept = [str(g) for g in kept]
    if target is None:
        return own, guards or kept
    return read_target(target, guards, kept)


SIGNAL_COLUMNS = pa.schema({
    "name": pa.string(), "scope": pa.string(), "value": pa.float64(), "text": pa.string(),
    "low": pa.float64(), "high": pa.float64(), "unit": pa.string(), "n": pa.int64(),
    "coverage": pa.float64(), "level": pa.int32(), "source": pa.string(),
})  # fmt: skip
FINDING_COLUMNS = pa.schema({
    "rule": pa.string(), "scope": pa.string(), "state": pa.string(), "class": pa.string(),
    "sub_cause": pa.string(), "says": pa.string(),
})  # fmt: skip


def _tables(con: duckdb.DuckDBPyConnection, signals: list[Signal], findings: list[Finding]) -> None:
    """Signals and findings as tables beside the views, for `profile sql`."""
    for table, rows, schema in (
        ("signals", signals, SIGNAL_COLUMNS),
        ("findings", findings, FINDING_COLUMNS),
    ):
        content = pa.Table.from_pylist([msgspec.to_builtins(r) for r in rows], schema)
        con.register("arrived", content)
        con.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM arrived")  # noqa: S608
        con.unregister("arrived")


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
        sql=_query(signal),
        low=signal.low,
        high=signal.high,
    )


def _query(signal: Signal) -> str:
    if signal.source in GIVEN:
        return f"SELECT * FROM facts WHERE signal = '{signal.name}'"  # noqa: S608
    # what the model, a table of devices or other facts gave is in no view
    known = signal.source in view_sources()
    return f"SELECT {signal.name} FROM {signal.source}" if known else ""  # noqa: S608


def _callers(run: Run) -> dict[str, float]:
    """How many callers the load generator of a closed loop was told to be."""
    spec = run.manifest.get("load_spec")
    callers = spec.get("concurrency_count") if isinstance(spec, dict) else None
    return {"callers_count": float(callers)} if isinstance(callers, int | float) and callers else {}


def _settings(con: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """The engine's settings as they hold, and how many GPUs were sampled."""
    held = dict(
        con.execute("SELECT key, value FROM setting_latest WHERE value IS NOT NULL").fetchall()
    )
    seen = con.execute("SELECT count(DISTINCT gpu) FROM samples WHERE gpu <> ''").fetchone()
    return held | ({"gpus_seen": str(seen[0])} if seen and seen[0] else {})


def _verdict(
    spec: TargetSpec,
    model: Whatif | None,
    prechecks: list[PrecheckResult],
    findings: list[Finding],
    rules: Mapping[str, Rule],
    *,
    given: bool,
) -> tuple[Verdict, Label]:
    """The verdict of the target's metric, with those of the other metrics and of each phase beside it."""
    withheld = any(p.effect == "invalid" for p in prechecks)
    label = _modelled(spec, model)
    weighed = None
    if model is None or given:
        weighed = weigh(findings, rules, _shares(label) if model else None, _trust(model))
        label = named(weighed, label) if model or weighed.findings else label
    verdict = Verdict(
        class_=None if withheld else label.class_,
        sub_cause=None if withheld else label.sub_cause,
        binding_resource=label.binding_resource,
        abstained=not withheld and label.class_ is None and label.reason != NOTHING,
        withheld=withheld,
        candidates=list(label.candidates),
        runner_up=label.runner_up,
        ambiguous=label.ambiguous,
        shares=label.shares,
        gain_vector={
            a: {"low": g.low, "mid": g.mid, "high": g.high} for a, g in sorted(label.gains.items())
        },
    )
    verdict.confidence, verdict.method = _confidence(model, label, findings, weighed)
    if withheld:
        verdict.confidence = 0.0
    elif model is not None and not overruled(label):
        verdict.by_phase = {p: _short(label_run(Question(p), model)) for p in PHASES}
        verdict.by_metric = {m: _short(label_run(question(m, "mean"), model)) for m in METRICS}
    return verdict, label


def _modelled(spec: TargetSpec, model: Whatif | None) -> Label:
    """The cost model's label; without a model an abstention."""
    if model is None:
        return Label(None, None, None, {}, reason="no evidence")
    label = label_run(question(spec.metric, spec.statistic), model)
    return misfit(label) if model.fit.error > MISFIT else label


def _shares(label: Label) -> Mapping[str, float] | None:
    """What the hypotheses say; nothing where the model is no model of this run."""
    return None if label.reason == "misfit" else label.shares


def _trust(model: Whatif | None) -> float:
    """How far the model's odds count: the less the more of it was assumed."""
    if model is None:
        return 0.0
    work = model.fit.work
    return TRUST[(work.shape is not None) + (work.device is not None)]


def _confidence(
    model: Whatif | None, label: Label, findings: list[Finding], weighed: Weighed | None
) -> tuple[float, str]:
    """How sure the verdict is, and by which method it was reached."""
    if weighed is not None:
        vector = "weighed with the cost model's" if model else "no gain vector"
        if not weighed.findings and model is None:
            return 0.0, "nothing that weighs"
        return claimed(label), f"odds of the rules that fire, {vector}; confidence not calibrated"
    assert model is not None
    fired = [f for f in findings if f.state == "fires" and f.class_ is not None]
    agree = sum(f.class_ == label.class_ for f in fired)
    sure = confidence(label, agree, len(fired) - agree, nameless=nameless(model))
    return sure.value, f"fixed_point gain vector over {model.fit.n} hypotheses; {sure.says}"


def nameless(model: Whatif) -> bool:
    """Is neither the served model nor the device known?"""
    return model.fit.work.shape is None and model.fit.work.device is None


def _short(label: Label) -> dict[str, Any]:
    return {
        "class": label.class_,
        "sub_cause": label.sub_cause,
        "binding_resource": label.binding_resource,
        "candidates": list(label.candidates),
        "gain_vector": {a: round(g.mid, 4) for a, g in sorted(label.gains.items()) if ":" not in a},
    }


def _wait_after_cap(model: Whatif | None, facts: Mapping[str, float]) -> float | None:
    """Mean wait that would be left with the batch cap out of the way; None without a model."""
    if model is None:
        return None
    after = tied(model.outcome(UNCAPPED), model.outcome(), facts)
    return float(np.median(after["wait_s"]))


def _told(a: Analysis, missing: list[str]) -> Verdict:
    verdict = a.verdict
    verdict.says = sentence(verdict, a.label, a.goal, a.facts, a.prechecks, missing)
    if a.label.says and a.label.reason not in ("rules", "split") and verdict.class_ is not None:
        verdict.says += f" What was seen: {a.label.says}."
    if a.unlike:
        verdict.says += f" {a.unlike[0].upper()}{a.unlike[1:]}."
    causes = [p.says for p in a.prechecks if p.effect == "explains"]
    if causes and not verdict.withheld:
        verdict.says += f" What the prechecks add: {'; '.join(causes)}."
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
