"""The one page: a self-contained HTML document without scripts, which prints on one sheet of A4."""

from __future__ import annotations

import math
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ..rules.model import BudgetItem, Diagnosis, LeverAdvice
from . import charts, outline, wording

_TOP_EVIDENCE = 4


def render(diagnosis: Diagnosis) -> str:
    """The diagnosis as a complete HTML document; all that comes from the run is escaped.

    Empty lists and nulls are drawn as "not measured", never as zero or as health.
    """
    findings = list(enumerate(outline.ordered_findings(diagnosis), start=1))
    helping, apart = outline.split_levers(diagnosis)
    page: str = _template().render(
        d=diagnosis,
        run=diagnosis.run,
        head=outline.headline(diagnosis),
        rests_on=[(i, f) for i, f in findings if f.state == "fires"][:_TOP_EVIDENCE],
        findings_open=[(i, f) for i, f in findings if f.state in {"fires", "cannot_tell"}],
        findings_quiet=[(i, f) for i, f in findings if f.state in {"clear", "not_applicable"}],
        budget_bar=_budget_bar(diagnosis),
        floors=outline.floor_lines(diagnosis),
        phase_figures=[
            _phase_figure(diagnosis, "phases_mean", "On average"),
            _phase_figure(diagnosis, "phases_tail", "In the tail"),
        ],
        labels={b.component: b.label for b in diagnosis.budget},
        classes={b.component: b.class_ for b in diagnosis.budget},
        helping=helping,
        to_try=outline.to_try(diagnosis),
        apart=apart,
        lever_charts=_lever_charts(diagnosis.levers),
    )
    return page


@cache
def _template() -> Any:
    """The compiled template; every printed string passes `wording.clean` before it is escaped."""
    env = Environment(
        loader=PackageLoader(__package__, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    style = resources.files(__package__) / "templates" / "page.css"
    env.globals.update(
        css=Markup(style.read_text("utf-8")),  # noqa: S704 - a file of this package
        charts=charts,
        outline=outline,
        w=wording,
    )
    return env.get_template("page.html.j2")


def _finalize(value: Any) -> Any:
    """Strings without control codes; a query keeps its lines."""
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return wording.clean_lines(value) if "\n" in value.strip() else wording.clean(value)


def _budget_bar(diagnosis: Diagnosis) -> Markup:
    segments = [
        charts.Segment(str(i), b.label, b.share, b.class_, f"{b.label}: {budget_time(b)}")
        for i, b in enumerate(diagnosis.budget, start=1)
    ]
    return charts.stacked_bar(segments, "Time budget")


def budget_time(item: BudgetItem) -> str:
    """Time, interval and share of one part: `412 ms (390 to 437), 51 %`."""
    shown = wording.measured(item.seconds, "s", item.low, item.high)
    return f"{shown}, {wording.share(item.share)}"


def _phase_figure(diagnosis: Diagnosis, key: str, title: str) -> dict[str, Any]:
    """One waterfall: its rows with their bars, end to end on the scale of their sum."""
    rows, why = outline.phases(diagnosis, key)
    total = sum(max(0.0, row["seconds"]) for row in rows)
    scale = total if total > 0 and math.isfinite(total) else 1.0
    drawn, start = [], 0.0
    for row, (name, time) in zip(rows, outline.phase_times(rows), strict=True):
        length = max(0.0, row["seconds"])
        svg = charts.bar(start / scale, length / scale, row.get("class"), f"{name}: {time}")
        drawn.append({"name": name, "time": time, "svg": svg, "source": row.get("source") or ""})
        start += length
    note = "" if outline.has_intervals(rows) else ", no intervals"
    return {"title": title, "rows": drawn, "why": why, "total": wording.seconds(total) + note}


def _lever_charts(levers: list[LeverAdvice]) -> dict[str, Markup]:
    """The interval chart of every lever that has a gain, all on one axis, by lever id."""
    ends = [e for x in levers if x.gain for e in (x.gain.low, x.gain.mid, x.gain.high)]
    ends += [e for x in levers if x.realised for e in (x.realised.low, x.realised.high)]
    axis = charts.gain_axis(ends)
    return {
        x.id: charts.interval(
            (x.gain.low, x.gain.mid, x.gain.high),
            axis,
            (x.realised.low, x.realised.gain, x.realised.high) if x.realised else None,
        )
        for x in levers
        if x.gain
    }
