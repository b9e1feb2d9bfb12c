from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from whybound.reports import charts
from whybound.rules.model import CLASSES


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def segment(
    key: str, share: float, class_: str | None = None, label: str = "Part"
) -> charts.Segment:
    return charts.Segment(key, label, share, class_, f"{label} detail")


def spans(svg: str) -> list[tuple[float, float]]:
    parts = [r for r in parse(svg).iter("rect") if r.get("class") == "part"]
    return [(float(r.get("x", "")[:-1]), float(r.get("width", "")[:-1])) for r in parts]


def test_parts_lie_end_to_end_and_fill_the_bar():
    svg = charts.stacked_bar([segment("1", 0.5), segment("2", 0.3), segment("3", 0.2)], "Budget")
    assert spans(svg) == [(0, 50), (50, 30), (80, 20)]


def test_shares_above_one_are_scaled_and_unusable_ones_left_out():
    assert spans(charts.stacked_bar([segment("1", 1.0), segment("2", 1.0)], "B")) == [
        (0, 50),
        (50, 50),
    ]
    shares = [float("nan"), -0.2, 0.0, 0.5]
    assert spans(charts.stacked_bar([segment("k", s) for s in shares], "B")) == [(0, 50)]


def test_an_empty_bar_says_so():
    assert parse(charts.stacked_bar([], "Budget")).findtext("title") == "Budget: no parts"


def test_a_label_stands_where_it_fits_else_the_key_else_nothing():
    svg = charts.stacked_bar(
        [
            segment("1", 0.6, label="Decode"),
            segment("2", 0.2, label="Waiting a while"),
            segment("3", 0.005),
        ],
        "B",
    )
    texts = [(t.get("class", "").split(), t.text) for t in parse(svg).iter("text")]
    assert (["label"], "1 Decode 60 %") in texts
    assert (["label", "wide"], "2 Waiting a while 20 %") in texts or (["label"], "2") in texts
    assert not any(t and t.startswith("3") for _, t in texts)


def test_a_narrow_place_shows_the_key_where_a_wide_one_shows_the_label():
    svg = charts.stacked_bar([segment("1", 0.25, label="Prefill"), segment("2", 0.75)], "B")
    labels = {t.get("class"): t.text for t in parse(svg).iter("text")}
    assert labels["label wide"] == "1 Prefill 25 %"
    assert labels["label narrow"] == "1"


@pytest.mark.parametrize(
    "svg",
    [
        charts.stacked_bar([segment("1", 1.0, "memory", "<b>&\"'</b>")], "<i>"),
        charts.bar(0.1, 0.2, "</svg>", "<b>"),
        charts.meter(0.5, 0.7, "<b>"),
        charts.swatch("<b>"),
        charts.interval((1.1, 1.2, 1.3), (1.0, 2.0)),
        charts.interval((1.1, 1.2, 1.3), (1.0, 2.0), (1.0, 1.1, 1.2)),
    ],
)
def test_every_chart_is_a_named_image_and_escapes_what_it_is_given(svg):
    root = parse(svg)
    assert root.get("role") == "img"
    assert root[0].tag == "title"
    assert root[0].text
    assert {e.tag for e in root.iter()} <= {"svg", "title", "rect", "text", "g", "path", "circle"}


def test_every_class_has_a_fill_that_differs_without_colour():
    root = parse(charts.patterns())
    fills = {p.get("id"): ElementTree.tostring(p[1]).decode() for p in root.iter("pattern")}
    assert set(fills) == {f"p-{c}" for c in CLASSES} | {"p-none"}
    drawn = [re.sub(r'class="[^"]*"', "", fill) for name, fill in fills.items() if name != "p-none"]
    assert len(set(drawn)) == len(CLASSES)
    assert root.get("aria-hidden") == "true"


def test_an_unknown_class_is_neutral():
    assert 'fill="url(#p-none)"' in charts.swatch("nonsense")
    assert 'fill="url(#p-none)"' in charts.swatch(None)


def test_a_row_is_never_too_thin_to_see_and_never_leaves_its_place():
    thin = parse(charts.bar(0.2, 0.0, None, "t"))[2]
    assert float(thin.get("width", "")[:-1]) > 0
    wide = parse(charts.bar(0.9, 0.9, None, "t"))[2]
    assert float(wide.get("x", "")[:-1]) + float(wide.get("width", "")[:-1]) == pytest.approx(100)


def test_the_axis_holds_all_gains_and_no_change():
    low, high = charts.gain_axis([1.2, 1.8, float("inf")])
    assert low < 1.0
    assert high > 1.8
    low, high = charts.gain_axis([])
    assert low < 1.0 < high
    assert charts.gain_axis([0.7])[0] < 0.7


def test_an_interval_is_drawn_in_order_on_its_axis():
    root = parse(charts.interval((1.25, 1.5, 1.75), (1.0, 2.0)))
    assert root.findtext("title") == "Predicted +50 %, +25 to +75 %"
    assert root.find(".//circle").get("cx") == "75.0"
    assert "M37.5 12H112.5" in root.find(".//path[@class='whisker']").get("d")


def test_what_was_measured_stands_beside_what_was_predicted():
    root = parse(charts.interval((1.25, 1.5, 1.75), (1.0, 2.0), (1.4, 1.45, 1.5)))
    assert root.findtext("title") == "Predicted +50 %, +25 to +75 %; measured +45 %, +40 to +50 %"
    assert [g.get("class") for g in root.iter("g")] == ["dot", "diamond"]


def test_a_meter_keeps_to_its_scale():
    levels = [parse(charts.meter(v, 0.7, "t"))[2].get("width") for v in (-1, 0.5, 3)]
    assert levels == ["0.0", "60.0", "120.0"]
