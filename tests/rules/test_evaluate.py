# ruff: noqa: E501 - tables of cases read best with one row a line
"""Kleene logic over intervals, and the law that less evidence never makes an answer."""

import dataclasses
import math
import operator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whybound.errors import WhyboundError
from whybound.rules.conditions import interval, judge, judge_all, judge_any
from whybound.rules.evaluate import Signals, evaluate, evaluate_all, holds, sentence
from whybound.rules.load import load_prechecks, load_rules
from whybound.rules.model import Condition, Rule, Signal

NAN, INF = math.nan, math.inf


def sig(name="a", value=None, **more):
    return Signal(name=name, value=value, **more)


def rule(when, *, needs=("a", "b"), says="{a:.0%} of {b}", **more):
    return Rule(
        id="r", title="t", why="w", source="s", needs=list(needs), when=when, says=says, cases=[],
        **more,
    )  # fmt: skip


def above(name, value, op=">"):
    return Condition(signal=name, op=op, value=value)


def truth(condition, *signals):
    return judge(condition, Signals(signals).usable()).truth


@pytest.mark.parametrize(
    ("low", "high", "op", "value", "expected"),
    [
        (2, 3, ">", 1, True), (2, 3, ">", 2, None), (2, 3, ">", 3, False), (2, 3, ">", 4, False),
        (2, 3, ">=", 2, True), (2, 3, ">=", 2.5, None), (2, 3, ">=", 3, None), (2, 3, ">=", 3.1, False),
        (2, 3, "<", 4, True), (2, 3, "<", 3, None), (2, 3, "<", 2, False), (2, 3, "<", 1, False),
        (2, 3, "<=", 3, True), (2, 3, "<=", 2, None), (2, 3, "<=", 1, False),
        (2, 2, "==", 2, True), (2, 3, "==", 2, None), (2, 3, "==", 4, False), (2, 3, "==", 1, False),
        (2, 2, "!=", 2, False), (2, 3, "!=", 2, None), (2, 3, "!=", 4, True),
        (-INF, INF, ">", 0, None), (1, INF, ">", 0, True), (-INF, -1, ">", 0, False),
        (INF, INF, ">=", 1, True),
    ],
)  # fmt: skip
def test_a_comparison_holds_over_the_whole_interval(low, high, op, value, expected):
    assert truth(above("a", value, op), sig("a", low=low, high=high)) is expected


@pytest.mark.parametrize(
    ("a", "b", "factor", "op", "expected"),
    [
        ((4, 5), (1, 1), 3, ">", True), ((3, 5), (1, 1), 3, ">", None), ((3, 5), (1, 1), 3, ">=", True),
        ((4, 5), (1, 2), 3, ">", None), ((0, 1), (2, 3), 0.5, "<", None), ((0, 0.9), (2, 3), 0.5, "<", True),
        ((0, 0), (1, 2), -1, ">", True), ((-1.5, -1.5), (1, 2), -1, ">", None), ((-2, -2), (1, 2), -1, ">", False), ((1, 1), (0, INF), 0, ">", None),
    ],
)  # fmt: skip
def test_a_signal_against_another_times_a_factor(a, b, factor, op, expected):
    condition = Condition(signal="a", op=op, other="b", factor=factor)
    signals = (sig("a", low=a[0], high=a[1]), sig("b", low=b[0], high=b[1]))
    assert truth(condition, *signals) is expected
    assert truth(condition, signals[0]) is None
    assert truth(condition, signals[1]) is None


@pytest.mark.parametrize(
    "unknown",
    [
        None, sig("a", NAN), sig("a", 5, coverage=0.49), sig("a", 5, coverage=NAN), sig("a", text="5"),
        sig("a"), sig("a", low=3, high=2), sig("a", 5, low=9, high=2), sig("a", 5, low=NAN),
    ],
)  # fmt: skip
def test_what_is_not_known_is_unknown_and_never_zero(unknown):
    signals = Signals([unknown] if unknown else [])
    for op in ("<", "<=", ">", ">=", "==", "!="):
        for value in (0, 1, -1):
            assert judge(above("a", value, op), signals.usable()).truth is None
    only = evaluate(rule([above("a", 0)], needs=["a"], says="{a:.0%}"), signals)[0]
    assert only.state == "cannot_tell"
    # A text is there, it only answers no question about a number.
    assert only.missing == (() if unknown and unknown.text else ("a",))


def test_categorical_signals():
    is_open = Condition(signal="a", op="==", text="open")
    is_not = Condition(signal="a", op="!=", text="open")
    assert truth(is_open, sig("a", text="open")) is True
    assert truth(is_open, sig("a", text="closed")) is False
    assert truth(is_not, sig("a", text="closed")) is True
    assert truth(is_not, sig("a", text="open")) is False
    assert truth(is_open, sig("a", 1.0)) is None
    assert truth(is_not) is None


def test_the_interval_of_a_signal():
    assert interval(sig("a", 5)) == (5, 5)
    assert interval(sig("a", 5, low=4)) == (4, 5)
    assert interval(sig("a", 5, low=6, high=7)) == (
        5,
        7,
    )  # a resampled interval beside its estimate
    assert interval(sig("a", low=4)) == (4, INF)
    assert interval(sig("a", high=4)) == (-INF, 4)
    assert interval(None) is None


YES, NO, MAYBE = above("yes", 0), above("no", 0), above("maybe", 0)
FACTS = Signals([sig("yes", 1), sig("no", -1)])


@pytest.mark.parametrize(
    ("parts", "all_", "any_"),
    [
        ([], True, False),
        ([YES, YES], True, True),
        ([YES, NO], False, True),
        ([NO, MAYBE], False, None),
        ([YES, MAYBE], None, True),
        ([MAYBE, MAYBE], None, None),
        ([NO, NO], False, False),
    ],
)
def test_kleene_tables(parts, all_, any_):
    lookup = FACTS.usable()
    assert judge_all(parts, lookup).truth is all_
    assert judge_any(parts, lookup).truth is any_
    if parts:
        assert judge(Condition(all=parts), lookup).truth is all_
        assert judge(Condition(any=parts), lookup).truth is any_


def test_false_and_unknown_is_clear():
    outcome = evaluate(rule([above("a", 10), above("b", 0)]), Signals([sig("a", 1)]))[0]
    assert (outcome.state, outcome.missing) == ("clear", ("b",))


def test_applies_comes_first():
    def state(*signals):
        judged = rule([above("a", 0)], applies=[above("b", 0)])
        return evaluate(judged, Signals(signals))[0].state

    assert state(sig("a", 1), sig("b", 1)) == "fires"
    assert state(sig("a", 1), sig("b", -1)) == "not_applicable"
    assert state(sig("b", -1)) == "not_applicable"
    assert state(sig("a", 1)) == "cannot_tell"
    assert state(sig("a", -1)) == "cannot_tell"


def test_an_outcome_carries_its_evidence():
    facts = [sig("b", 2.0), sig("a", 0.5, low=0.4, high=0.6), sig("c", 9.0)]
    (outcome,) = evaluate(rule([above("a", 0.3)], needs=["a", "b", "d"]), Signals(facts))
    assert outcome.rule == "r"
    assert outcome.scope == ""
    assert [s.name for s in outcome.evidence] == ["a", "b"]
    assert outcome.missing == ("d",)
    assert outcome.says == "50% of 2.0"
    assert outcome.margin == pytest.approx((0.4 - 0.3) / 0.7)


@pytest.mark.parametrize(
    ("value", "threshold", "state", "margin"),
    [
        (0.5, 0.5, "fires", 0), (1.5, 0.5, "fires", 0.5), (0.25, 0.75, "clear", -0.5),
        (1, 0, "fires", 1), (0, 1, "clear", -1), (0, 0, "fires", 0), (INF, 1, "fires", 1), (-INF, 1, "clear", -1),
    ],
)  # fmt: skip
def test_the_margin_is_the_distance_from_the_other_answer(value, threshold, state, margin):
    (outcome,) = evaluate(rule([above("a", threshold, ">=")]), Signals([sig("a", value)]))
    assert (outcome.state, outcome.margin) == (state, margin)


def test_the_margin_of_several_conditions():
    signals = Signals([sig("a", 3.0), sig("b", 1.0)])
    both = rule([above("a", 1), above("b", 0.5)])
    either = rule([Condition(any=[above("a", 1), above("b", 0.5)])])
    neither = rule([above("a", 9), above("b", 2)])
    unknown = rule([above("a", 1), above("c", 0)])
    assert evaluate(both, signals)[0].margin == pytest.approx(1 / 3)
    assert evaluate(either, signals)[0].margin == pytest.approx(1 / 2)
    assert evaluate(neither, signals)[0].margin == pytest.approx(-1 / 2)
    assert evaluate(unknown, signals)[0].margin is None


def test_per_judges_each_scope_by_its_own_signals():
    judged = rule([above("a", 1)], needs=["a"], says="{a}", per="node,gpu")
    signals = Signals([
        sig("a", 2, scope="gpu=1,node=x"),
        sig("a", 0, scope="gpu=0,node=x"),
        sig("a", NAN, scope="gpu=2,node=x"),
        sig("a", 9),  # the run's own value stands for no GPU
        sig("a", 9, scope="gpu=0"),
        sig("other", 9, scope="gpu=7,node=x"),
    ])  # fmt: skip
    found = [(o.scope, o.state) for o in evaluate(judged, signals)]
    assert found == [
        ("gpu=0,node=x", "clear"), ("gpu=1,node=x", "fires"), ("gpu=2,node=x", "cannot_tell"),
    ]  # fmt: skip


def test_per_without_a_scope_cannot_tell():
    judged = rule([above("a", 1)], needs=["a"], says="{a}", per="gpu")
    for signals in (Signals(), Signals([sig("a", 9, scope="node=x")])):
        assert [(o.scope, o.state) for o in evaluate(judged, signals)] == [("", "cannot_tell")]


def test_coverage_is_the_rules_own_demand():
    half = Signals([sig("a", 5, coverage=0.6)])
    assert evaluate(rule([above("a", 1)], min_coverage=0.5), half)[0].state == "fires"
    assert evaluate(rule([above("a", 1)], min_coverage=0.7), half)[0].state == "cannot_tell"


def test_signals_given_twice_are_refused_unless_equal():
    assert len(Signals([sig("a", 1), sig("a", 1), sig("a", 1, scope="gpu=0")])) == 2
    with pytest.raises(WhyboundError, match="signal a is given twice, by x and y"):
        Signals([sig("a", 1, source="x"), sig("a", 2, source="y")])


@pytest.mark.parametrize(
    ("template", "signals", "expected"),
    [
        ("{a:.0%} {a:.2f}", [sig("a", 0.5)], "50% 0.50"),
        ("{a:.1f}", [], "?"),
        ("{a:.1f}", [sig("a", NAN)], "?"),
        ("{a:.1f}", [sig("a", text="open")], "?"),
        ("{a}", [sig("a", text="open")], "open"),
        ("{a:.0f} {b}", [sig("a", low=1, high=2)], "1–2 ?"),
        ("{a:d}", [sig("a", 1.5)], "?"),
        ("{a", [], "{a"),
        ("{0} {}", [], "? ?"),
        ("{{a}}", [sig("a", 1)], "{a}"),
        ("plain", [], "plain"),
    ],
)
def test_sentences_never_raise(template, signals, expected):
    assert sentence(template, Signals(signals).usable()) == expected


def test_holds():
    signals = Signals([sig("a", 1)])
    assert holds([above("a", 0)], signals) is True
    assert holds([above("a", 2)], signals) is False
    assert holds([above("b", 0)], signals) is None
    assert holds([], signals) is True


# ---------------------------------------------------------------- properties

NAMES = ["a", "b", "c", "d"]
OPS = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
small = st.integers(-3, 3).map(float)
comparisons = st.one_of(
    st.builds(Condition, signal=st.sampled_from(NAMES), op=st.sampled_from(list(OPS)), value=small),
    st.builds(
        Condition, signal=st.sampled_from(NAMES), op=st.sampled_from(list(OPS)),
        other=st.sampled_from(NAMES), factor=small,
    ),
    st.builds(
        Condition, signal=st.just("mode"), op=st.sampled_from(["==", "!="]),
        text=st.sampled_from(["open", "closed"]),
    ),
)  # fmt: skip
conditions = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.builds(Condition, all=st.lists(inner, min_size=1, max_size=3)),
        st.builds(Condition, any=st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=6,
)
rules = st.builds(
    lambda when, applies: rule(when, applies=applies, needs=[*NAMES, "mode"], says="{a:.1f}"),
    st.lists(conditions, min_size=1, max_size=3),
    st.lists(conditions, max_size=1),
)


@st.composite
def facts(draw, names=tuple(NAMES), texts=("mode",), numbers=small):
    """Signals as exact numbers, ranges, texts; some absent."""
    found = []
    for name in names:
        if draw(st.booleans()):
            low, high = sorted([draw(numbers), draw(numbers)])
            value = low if draw(st.booleans()) else None
            found.append(Signal(name=name, value=value, low=low, high=high))
    for name in texts:
        if draw(st.booleans()):
            found.append(Signal(name=name, text=draw(st.sampled_from(["open", "closed"]))))
    return found


@st.composite
def weakened(draw, found):
    """The same facts with less known: some gone, some wider, some covering nothing."""
    out = []
    for signal in found:
        how = draw(st.sampled_from(["keep", "drop", "widen", "cover", "nan"]))
        if how == "widen" and signal.low is not None:
            by = draw(st.integers(0, 3))
            signal = msgspec.structs.replace(signal, low=signal.low - by, high=signal.high + by)  # noqa: PLW2901
        elif how == "cover":
            signal = msgspec.structs.replace(signal, coverage=0.1)  # noqa: PLW2901
        elif how == "nan" and signal.text is None:
            signal = msgspec.structs.replace(signal, value=NAN)  # noqa: PLW2901
        if how != "drop":
            out.append(signal)
    return out


@settings(max_examples=150, deadline=None)
@given(st.data(), rules)
def test_less_evidence_never_makes_or_changes_an_answer(data, judged):
    more = data.draw(facts())
    less = data.draw(weakened(more))
    (before,), (after,) = evaluate(judged, Signals(more)), evaluate(judged, Signals(less))
    assert after.state in (before.state, "cannot_tell")


SHIPPED = [*load_rules().values(), *load_prechecks().values()]
ALL_NAMES = sorted({n for r in SHIPPED for n in r.needs if n != "load_mode"})
near = st.sampled_from(
    [0, 0.004, 0.03, 0.05, 0.2, 0.3, 0.5, 0.8, 0.9, 0.95, 1, 1.3, 2, 3, 30, 1024]
)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_the_shipped_rules_keep_the_law(data):
    more = data.draw(facts(tuple(ALL_NAMES), ("load_mode",), near.map(float)))
    less = data.draw(weakened(more))
    before, after = evaluate_all(SHIPPED, Signals(more)), evaluate_all(SHIPPED, Signals(less))
    for b, a in zip(before, after, strict=True):
        assert a.state in (b.state, "cannot_tell"), b.rule


def plain_truth(condition, values):
    """Ordinary two-valued logic on exact numbers: what the intervals stand for."""
    if condition.all is not None:
        return all(plain_truth(c, values) for c in condition.all)
    if condition.any is not None:
        return any(plain_truth(c, values) for c in condition.any)
    if condition.text is not None:
        right = condition.text
    elif condition.other is not None:
        right = values[condition.other] * condition.factor
    else:
        right = condition.value
    return OPS[condition.op](values[condition.signal], right)


@settings(max_examples=150, deadline=None)
@given(st.data(), conditions)
def test_an_answer_is_true_of_every_world_that_the_facts_allow(data, condition):
    found = data.draw(facts())
    known = {s.name: s for s in found}
    judged = judge(condition, Signals(found).usable())
    world = {}
    for name in NAMES:
        s = known.get(name)
        low, high = (s.low, s.high) if s else (-5.0, 5.0)
        world[name] = data.draw(st.floats(low, high))
    mode = known.get("mode")
    world["mode"] = mode.text if mode else data.draw(st.sampled_from(["open", "closed", "x"]))
    if judged.truth is not None:
        assert plain_truth(condition, world) is judged.truth
        assert -1 <= judged.margin <= 1
        assert judged.margin >= 0 if judged.truth else judged.margin <= 0
    else:
        assert judged.margin is None


@given(
    conditions,
    st.fixed_dictionaries(dict.fromkeys(NAMES, small)),
    st.sampled_from(["open", "closed"]),
)
def test_exact_facts_always_decide(condition, values, mode):
    signals = Signals([*(sig(n, v) for n, v in values.items()), sig("mode", text=mode)])
    found = judge(condition, signals.usable()).truth
    assert found is plain_truth(condition, {**values, "mode": mode})


def test_outcomes_travel_frozen():
    (outcome,) = evaluate(rule([above("a", 1)]), Signals())
    with pytest.raises(dataclasses.FrozenInstanceError):
        outcome.state = "fires"


def test_a_rule_on_what_was_recorded_takes_no_count_that_a_person_told():
    rule = load_prechecks()["too_few_samples"]
    for source, state in (("load", "fires"), ("facts", "fires"), ("facts by hand", "cannot_tell")):
        few = Signals([Signal(name="requests_count", value=8.0, source=source)])
        assert evaluate(rule, few)[0].state == state
