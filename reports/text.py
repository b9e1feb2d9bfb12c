"""A diagnosis in the terminal: verdict first, next command last, 45 lines at 100 columns."""

from __future__ import annotations

import io
from dataclasses import dataclass

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..rules.model import BudgetItem, Diagnosis, Finding, LeverAdvice
from . import glyphs, outline, wording

_DEFAULT_WIDTH = 100
_WIDE = 80
_MOST_LINES = 45
_SMALL = 0.01
_GUARDS = 3


@dataclass(frozen=True)
class _Limits:
    """How many of each are shown, and in how many lines of a wide terminal prose may run."""

    evidence: int
    parts: int
    levers: int
    checks: int
    prose: int


_ROOMY = _Limits(evidence=3, parts=6, levers=4, checks=3, prose=2)
_TIGHT = _Limits(evidence=2, parts=4, levers=3, checks=2, prose=1)

_STATUS_STYLES = {"confident": "bold green", "withheld": "bold red", "no_action": "bold"}


def render(
    diagnosis: Diagnosis, *, width: int | None, color: bool, ascii_only: bool = False
) -> str:
    r"""The diagnosis as text of at most `width` columns; null is 100.

    Args:
        diagnosis: what to draw; empty lists are said to be not measured.
        width: columns, 20 or more; a command to be pasted is never broken, even where it is longer.
        color: ANSI styles; without it there is not one escape code.
        ascii_only: for terminals that are not UTF-8: other characters become ASCII or `\uXXXX`.

    Returns:
        Lines that end with a line feed.
    """
    columns = max(20, _DEFAULT_WIDTH if width is None else width)
    text = _draw(diagnosis, columns, color, ascii_only, _ROOMY)
    if columns >= _WIDE and text.count("\n") > _MOST_LINES:
        text = _draw(diagnosis, columns, color, ascii_only, _TIGHT)
    return text


def _draw(diagnosis: Diagnosis, width: int, color: bool, ascii_only: bool, limits: _Limits) -> str:
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        height=100,
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    _Report(diagnosis, console, width, ascii_only, limits).print()
    lines = (line.rstrip() for line in stream.getvalue().splitlines())
    return "\n".join(lines).rstrip() + "\n"


class _Report:
    """Prints one diagnosis, section after section, on a console of known width."""

    def __init__(
        self, diagnosis: Diagnosis, console: Console, width: int, ascii_only: bool, limits: _Limits
    ):
        self.d, self.console, self.width, self.ascii_only = diagnosis, console, width, ascii_only
        self.limits = limits

    def print(self) -> None:
        for section in (
            self._title,
            self._verdict,
            self._budget,
            self._phases,
            self._levers,
            self._soundness,
            self._next,
        ):
            section()

    # -- writing

    def _plain(self, text: str) -> str:
        return glyphs.to_ascii(text) if self.ascii_only else text

    def _text(self, text: str, style: str = "") -> Text:
        return Text(self._plain(wording.clean(text)), style=style, overflow="fold")

    def _row(self, *texts: tuple[str, str]) -> Text:
        """Runs of (text, style), as they stand."""
        row = Text(overflow="fold")
        for text, style in texts:
            row.append(self._plain(text), style=style)
        return row

    def _clip(self, text: str, lines: int, indent: int = 0) -> str:
        """Prose cut to about `lines` lines of a wide terminal; a narrow one folds it to more."""
        text = wording.clean(text)
        ragged = 8 * (lines - 1)  # words that do not fit leave the end of a line empty
        room = lines * (max(self.width, _WIDE) - indent) - ragged
        return text if len(text) <= room else text[: room - 3] + "…"

    def _out(self, what: RenderableType, indent: int = 0) -> None:
        self.console.print(Padding(what, (0, 0, 0, indent)) if indent else what)

    def _heading(self, text: str) -> None:
        self._out(self._text(text, "bold"))

    # -- sections

    def _title(self) -> None:
        self._out(self._text(self._clip(outline.command(self.d.run), 1), "bold"))
        known = " · ".join(outline.identity(self.d.run))
        badge = "[emulated engine]" if self.d.run.get("emulated") else ""
        if known or badge:
            gap = " " if known and badge else ""
            self._out(self._row((self._clip(known, 1) + gap, "dim"), (badge, "bold yellow")))
        self.console.print()

    def _verdict(self) -> None:
        head = outline.headline(self.d)
        style = _STATUS_STYLES.get(head.status, "bold yellow")
        title = self._clip(head.title, 1, len(head.badge) + 2)
        self._out(self._row((f"{head.badge.upper()}  ", style), (title, "bold")))
        self._out(self._text(self._clip(outline.confidence_line(self.d), 1), "dim"))
        beside = outline.beside(self.d)
        if beside and self.limits.prose > 1:
            self._out(self._text(self._clip(beside, 1), "dim"))
        if head.because:
            self._out(self._text(self._clip(" ".join(head.because), self.limits.prose)))
        target = self.d.target
        met = {True: "green", False: "red", None: ""}[target.met]
        self._out(
            self._row(
                (f"Target {wording.clean(target.text)}: ", ""),
                (outline.target_value(target), "bold"),
                (f", {outline.target_state(target)}", met),
            )
        )
        guards = outline.ordered_guards(target)
        for guard in guards[:_GUARDS]:
            style = {True: "green", False: "red", None: ""}[guard.met]
            self._out(self._text(self._clip(f"Guard {outline.guard_line(guard)}", 1), style))
        if len(guards) > _GUARDS:
            left = {g.met for g in guards[_GUARDS:]}
            said = "all met" if left == {True} else "not all met, the page shows them"
            self._out(self._text(f"and {len(guards) - _GUARDS} guards more, {said}", "dim"))
        firing = [f for f in outline.ordered_findings(self.d) if f.state == "fires"]
        for finding in firing[: self.limits.evidence]:
            self._out(self._row(("- ", "dim"), (self._clip(_evidence(finding), 1, 2), "")))
        if not self.d.findings:
            self._out(self._text("No rule was evaluated.", "dim"))

    def _budget(self) -> None:
        self.console.print()
        if not self.d.budget:
            self._out(self._text("Time budget: not measured"))
            return
        self._heading("Time budget")
        keyed = list(zip(glyphs.KEYS, self.d.budget, strict=False))
        self._out(self._bar(keyed))
        large = sorted((kb for kb in keyed if kb[1].share >= _SMALL), key=lambda kb: -kb[1].share)
        shown = [kb for kb in keyed if kb in large[: self.limits.parts]]
        self._legend(shown)
        rest = [b for b in self.d.budget if b not in [part for _, part in shown]]
        if rest:
            named = ", ".join(f"{b.label} {wording.share(b.share)}" for b in rest)
            self._out(self._text(self._clip(f"also: {named}", 1), "dim"))

    def _legend(self, keyed: list[tuple[str, BudgetItem]]) -> None:
        table = Table.grid(padding=(0, 2, 0, 0))
        for justify in ("left", "left", "right", "left", "left")[: 5 if self.width >= _WIDE else 4]:
            table.add_column(justify=justify, overflow="fold")  # type: ignore[arg-type]
        for key, b in keyed:
            glyph, style = glyphs.fill(b.class_, self.ascii_only)
            cells = [
                self._row((f"{key}{glyph}", style)),
                self._text(b.label),
                self._text(wording.share(b.share), "bold"),
                self._text(wording.measured(b.seconds, "s", b.low, b.high)),
                self._text(b.class_ or "no class", "dim"),
            ]
            table.add_row(*cells[: len(table.columns)])
        self._out(table)

    def _bar(self, keyed: list[tuple[str, BudgetItem]]) -> Text:
        bar = Text(overflow="fold")
        shares = [b.share for _, b in keyed]
        for (key, b), cells in zip(keyed, glyphs.allot(shares, self.width), strict=True):
            glyph, style = glyphs.fill(b.class_, self.ascii_only)
            bar.append((key + glyph * (cells - 1)) if cells else "", style=style)
        return bar

    def _phases(self) -> None:
        figures = [outline.phases(self.d, key) for key in ("phases_mean", "phases_tail")]
        if not any(rows for rows, _ in figures) and figures[0] == figures[1]:
            self._out(self._text(self._clip(f"Phases: not measured: {figures[0][1]}", 1)))
        else:
            for name, (rows, why) in zip(("mean", "tail"), figures, strict=True):
                times = " · ".join(f"{name} {time}" for name, time in outline.phase_times(rows))
                noted = "" if outline.has_intervals(rows) or not rows else " (no intervals)"
                said = times or f"not measured: {why}"
                self._out(
                    self._text(self._clip(f"Phases, {name}{noted}: {said}", self.limits.prose))
                )
        for line in outline.floor_lines(self.d):
            self._out(self._text(self._clip(f"Floor: {line}", self.limits.prose)))
        labels = {b.component: b.label for b in self.d.budget}
        tops = [
            f"{labels.get(c.component, c.component)} {wording.gain(c.gain_if_free)}"
            for c in self.d.ceilings
        ]
        if tops:
            self._out(self._text(self._clip(f"At most, if it took no time: {', '.join(tops)}", 1)))

    def _levers(self) -> None:
        helping, apart = outline.split_levers(self.d)
        self.console.print()
        self._heading("What to change first")
        if self.d.target.met:
            self._out(self._text("The target is met: nothing has to change."))
        bigger = outline.bigger_lever(self.d)
        if bigger:
            self._out(self._text(bigger, "bold yellow"))
        if self.d.verdict.withheld and self.d.levers:
            self._out(self._text(outline.UNSOUND, "bold yellow"))
        tries = outline.to_try(self.d)
        if tries:
            self._out(self._text("No gain can be told yet; for this verdict, best first:"))
            self._tries(tries[: self.limits.levers])
        elif not helping:
            self._out(self._text("No lever is known to help here.", "dim"))
        elif self.width >= _WIDE:
            self._lever_table(helping[: self.limits.levers])
        else:
            self._lever_list(helping[: self.limits.levers])
        if len(helping) > self.limits.levers:
            self._out(
                self._text(f"and {len(helping) - self.limits.levers} more in the report", "dim")
            )
        for state, words in ((False, "Will not help"), ("check_first", "Check first")):
            named = [
                f"{x.title} ({x.why})" if x.why else x.title
                for x in apart
                if x.helps == state and x not in tries
            ]
            if named:
                self._out(self._text(self._clip(f"{words}: {'; '.join(named)}", 1), "dim"))

    def _lever_table(self, levers: list[LeverAdvice]) -> None:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(justify="right")
        table.add_column(overflow="fold")
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for i, lever in enumerate(levers, start=1):
            gains = self._text(_predicted(lever), "bold")
            if lever.realised:
                gains.append("\n").append_text(self._text(_measured(lever), "green"))
            title = self._text(
                self._clip(f"{lever.title}, {lever.effort}", 1, self.width // 2 + 12)
            )
            table.add_row(self._text(str(i)), title, gains, self._text(self._flag(lever)))
        self._out(table)

    def _tries(self, levers: list[LeverAdvice]) -> None:
        for i, lever in enumerate(levers, start=1):
            title = self._clip(f"{lever.title}, {lever.effort}: {self._flag(lever)}", 1, 4)
            self._out(self._text(f"{i}  {title}"))
            if lever.why:
                self._out(self._text(self._clip(lever.why, 1, 4), "dim"), indent=3)

    def _lever_list(self, levers: list[LeverAdvice]) -> None:
        for i, lever in enumerate(levers, start=1):
            self._out(self._text(f"{i} {lever.title}, {lever.effort}"))
            self._out(self._text(_predicted(lever), "bold"), indent=2)
            if lever.realised:
                self._out(self._text(_measured(lever), "green"), indent=2)
            self._out(self._text(self._flag(lever)), indent=2)

    def _flag(self, lever: LeverAdvice) -> str:
        own, others = outline.flag_for(lever, self.d.run.get("engine"))
        if own or not others:
            return own or "no flag"
        return "; ".join(f"{wording.words(engine)}: {flag}" for engine, flag in others)

    def _soundness(self) -> None:
        self.console.print()
        checks = [p for p in self.d.prechecks if p.state == "fires"]
        for i, p in enumerate(checks[: self.limits.checks]):
            remedy = f" -> {p.remedy}" if p.remedy else ""
            said = self._clip(p.says + remedy, 1 if i else self.limits.prose, 22)
            label = f"Precheck {outline.STATE_WORDS[p.state]}: "
            self._out(self._row((label, "bold red"), (said, "")))
        clear = sum(p.state == "clear" for p in self.d.prechecks)
        more = len(checks) - self.limits.checks
        counts = [f"{clear} clear"] if clear or self.d.prechecks else ["none was run"]
        counts += [f"{more} more that fire"] if more > 0 else []
        unknown = [wording.words(p.id) for p in self.d.prechecks if p.state == "cannot_tell"]
        counts += [f"not measured: {', '.join(unknown)}"] if unknown else []
        self._out(self._text(self._clip(f"Prechecks: {', '.join(counts)}", 2), "dim"))
        absent = [f"level {name}" for name, how in outline.levels(self.d) if how == "not measured"]
        absent += [f"{what} ({why})" if why else what for what, why in outline.missing(self.d)]
        said = ", ".join(absent) or "nothing is listed"
        self._out(self._text(self._clip(f"Not measured: {said}", 1), "dim"))
        card = wording.flat(self.d.scorecard) if self.d.scorecard else "not computed"
        self._out(self._text(self._clip(f"Scorecard: {card}", 1), "dim"))

    def _next(self) -> None:
        self.console.print()
        following = self.d.next_measurement
        if following is None:
            self._out(self._text("Next measurement: none proposed"))
            return
        decides = ", ".join(wording.words(x) for x in following.decides)
        says = wording.clean(following.because) + (f" (decides {decides})" if decides else "")
        self._out(self._text(self._clip(f"Next measurement: {says}", 2)))
        # Never folded: it is there to be pasted
        self.console.print(self._text(following.command, "bold"), soft_wrap=True)


def _evidence(finding: Finding) -> str:
    facts = [
        f"{wording.signal_words(e.signal)} {wording.measured(e.value, e.unit, e.low, e.high)}"
        for e in finding.evidence[:1]
    ]
    return f"{finding.says} [{facts[0]}]" if facts else finding.says


def _predicted(lever: LeverAdvice) -> str:
    if not lever.gain:
        return "gain not estimated"
    ends = wording.gain_interval(lever.gain.low, lever.gain.high)
    return f"{wording.gain(lever.gain.mid)} ({ends})"


def _measured(lever: LeverAdvice) -> str:
    assert lever.realised is not None
    ends = wording.gain_interval(lever.realised.low, lever.realised.high)
    return f"measured {wording.gain(lever.realised.gain)} ({ends})"
