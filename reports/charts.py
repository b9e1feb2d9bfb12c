"""Small inline SVG: pure functions from numbers to markup, coloured by the page's style sheet.

Every class has a colour and a pattern, so that a grey print can still be read. Widths are
percentages of the place a chart stands in, so that text keeps its size on a phone and on paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from ..rules.model import CLASSES
from .wording import clean, gain, gain_interval, share

_TILE = 8
# What is drawn over the class colour, on a tile of 8 × 8
_PATTERNS = {
    "memory": "",
    "compute": '<path d="M-2 2 2-2M0 8 8 0M6 10 10 6"/>',
    "launch": '<path d="M2 1.2v1.6M6 5.2v1.6"/>',
    "latency": '<path d="M0 2H8M0 6H8"/>',
    "scheduling": '<path d="M0 8 8 0M0 0 8 8"/>',
    "queueing": '<path d="M2 0V8M6 0V8"/>',
    "network": '<path d="M-2 6 2 10M0 0 8 8M6-2 10 2"/>',
    "none": '<path d="M-2 2 2-2M0 8 8 0M6 10 10 6"/>',
}
# Text of 12 px needs about 7 px a character; the bar is at least this wide on a phone and on paper
_CHARACTER_PX = 7.0
_NARROW_PX = 340.0
_WIDE_PX = 640.0


@dataclass(frozen=True)
class Segment:
    """One part of a stacked bar: `share` of the whole in 0..1, `detail` for its tooltip."""

    key: str
    label: str
    share: float
    class_: str | None
    detail: str


def class_id(class_: str | None) -> str:
    """The name under which a class is coloured; an unknown one is neutral."""
    return class_ if class_ in CLASSES else "none"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2f}%"


def _bounded(value: float) -> float:
    return min(1.0, max(0.0, value)) if math.isfinite(value) else 0.0


def _fill(class_: str | None) -> str:
    return f"url(#p-{class_id(class_)})"


def patterns() -> Markup:
    """The fills that the other charts refer to; a page holds them once."""
    tiles = "".join(
        f'<pattern id="p-{name}" width="{_TILE}" height="{_TILE}" patternUnits="userSpaceOnUse">'
        f'<rect class="c-{name}" width="{_TILE}" height="{_TILE}"/>'
        f'<g class="over o-{name}">{lines}</g></pattern>'
        for name, lines in _PATTERNS.items()
    )
    return Markup(  # noqa: S704 - constants of this file only
        f'<svg class="patterns" width="0" height="0" aria-hidden="true"><defs>{tiles}</defs></svg>'
    )


def swatch(class_: str | None) -> Markup:
    """A legend's sample of a class's fill, named after the class."""
    return Markup(
        '<svg class="swatch" viewBox="0 0 14 14" width="14" role="img"><title>{}</title>'
        '<rect width="14" height="14" rx="2" fill="{}"/></svg>'
    ).format(clean(class_ or "no class"), _fill(class_))


def stacked_bar(segments: Sequence[Segment], title: str) -> Markup:
    """One bar of parts, each labelled above it where the label fits, else by its key.

    Shares are drawn to one scale: the whole is their sum or 1, whichever is more. Without segments
    there is an empty frame.
    """
    whole = max(1.0, sum(_bounded(s.share) for s in segments))
    drawn, x = Markup(), 0.0
    for segment in segments:
        width = _bounded(segment.share) / whole
        if width > 0:
            drawn += _segment(segment, x, width)
        x += width
    named = ", ".join(f"{s.label} {share(s.share)}" for s in segments) or "no parts"
    return Markup(
        '<svg class="stack" width="100%" height="52" role="img"><title>{}: {}</title>'
        '<rect class="frame" y="18" width="100%" height="34"/>{}</svg>'
    ).format(clean(title), clean(named), drawn)


def _segment(segment: Segment, x: float, width: float) -> Markup:
    rect = Markup(
        '<rect class="part" x="{}" y="18" width="{}" height="34" fill="{}"><title>{}</title></rect>'
    ).format(_percent(x), _percent(width), _fill(segment.class_), clean(segment.detail))
    full = f"{segment.key} {clean(segment.label)} {share(segment.share)}"
    return rect + _labels(full, segment.key, x, width)


def _labels(full: str, key: str, x: float, width: float) -> Markup:
    """The label for wide and for narrow places; the style sheet shows one of the two."""

    def fitting(px: float) -> str:
        if len(full) * _CHARACTER_PX <= width * px:
            return full
        return key if (len(key) + 0.5) * _CHARACTER_PX <= width * px else ""

    wide, narrow = fitting(_WIDE_PX), fitting(_NARROW_PX)
    text = Markup('<text class="label {}" x="{}" dx="1" y="12">{}</text>')
    if wide == narrow:
        return text.format("", _percent(x), wide) if wide else Markup()
    shown = [("wide", wide), ("narrow", narrow)]
    return Markup().join(text.format(k, _percent(x), label) for k, label in shown if label)


def bar(start: float, length: float, class_: str | None, title: str) -> Markup:
    """One row of a waterfall: `start` and `length` as 0..1 of the row; never too thin to see."""
    begin = _bounded(start)
    width = min(1.0 - begin, max(_bounded(length), 0.006))
    return Markup(
        '<svg class="row" width="100%" height="14" role="img"><title>{}</title>'
        '<rect class="rail" y="46%" width="100%" height="1"/>'
        '<rect x="{}" width="{}" height="100%" fill="{}"/></svg>'
    ).format(clean(title), _percent(begin), _percent(width), _fill(class_))


def meter(value: float, mark: float, title: str) -> Markup:
    """A 0..1 value on a scale with one mark."""
    return Markup(
        '<svg class="meter" viewBox="0 0 120 12" width="120" role="img"><title>{}</title>'
        '<rect class="rail" y="3" width="120" height="6" rx="3"/>'
        '<rect class="level" y="3" width="{}" height="6" rx="3"/>'
        '<rect class="mark" x="{}" width="1.5" height="12"/></svg>'
    ).format(clean(title), round(120 * _bounded(value), 1), round(120 * _bounded(mark), 1))


def gain_axis(gains: Sequence[float]) -> tuple[float, float]:
    """The common scale of interval charts: all gains and 1.00, with a little air around."""
    finite = [g for g in gains if math.isfinite(g)]
    low, high = min([1.0, *finite]), max([1.05, *finite])
    air = 0.04 * (high - low)
    return low - air, high + air


def interval(
    predicted: tuple[float, float, float],
    axis: tuple[float, float],
    realised: tuple[float, float, float] | None = None,
) -> Markup:
    """A gain as (low, mid, high) on `axis`, over the measured one if any; a line marks 1.00."""
    said = f"Predicted {gain(predicted[1])}, {gain_interval(predicted[0], predicted[2])}"
    marks = _whisker(predicted, axis, 8 if realised else 12, "dot")
    if realised:
        said += f"; measured {gain(realised[1])}, {gain_interval(realised[0], realised[2])}"
        marks += _whisker(realised, axis, 18, "diamond")
    return Markup(
        '<svg class="interval" viewBox="0 0 150 24" width="150" height="24" role="img">'
        '<title>{}</title><path class="zero" d="M{} 0V24"/>{}</svg>'
    ).format(said, _at(1.0, axis), marks)


def _at(value: float, axis: tuple[float, float]) -> float:
    low, high = axis
    return round(150 * _bounded((value - low) / (high - low)), 1)


def _whisker(
    ends: tuple[float, float, float], axis: tuple[float, float], y: int, shape: str
) -> Markup:
    low, mid, high = (_at(end, axis) for end in ends)
    point = (
        Markup('<circle cx="{}" cy="{}" r="4"/>').format(mid, y)
        if shape == "dot"
        else Markup('<path d="M{} {}l5 5-5 5-5-5z"/>').format(mid, y - 5)
    )
    return Markup(
        '<g class="{}"><path class="whisker" d="M{} {}H{}M{} {}v6M{} {}v6"/>{}</g>'
    ).format(shape, low, y, high, low, y - 3, high, y - 3, point)
