"""The weight of evidence: odds worked out by hand."""

from __future__ import annotations

import math

import pytest

from whybound.analyzers.verdict import Label
from whybound.analyzers.weigh import MOST, NONE_BEFORE, claimed, named, weigh
from whybound.rules.model import CLASSES, Condition, Evidence, Finding, Rule


def rule(id_: str, class_: str, odds: float, sub_cause: str | None = None) -> Rule:
    return Rule(
        id=id_, title=id_, why="", source="", needs=["x_ratio"], says="", cases=[],
        when=[Condition(signal="x_ratio", op=">", value=0.5)], class_=class_, sub_cause=sub_cause, odds=odds,
    )  # fmt: skip


def finding(r: Rule, state: str = "fires", source: str = "facts") -> Finding:
    return Finding(
        rule=r.id, title=r.title, scope="", state=state, class_=r.class_, sub_cause=r.sub_cause,
        says=f"{r.id} seen",
        evidence=[Evidence(signal="x_ratio", value=1.0, unit="ratio", source=source, sql="")],
    )  # fmt: skip


NOBODY = Label(None, None, None, {}, reason="no load was measured")


def weighed(*rules: Rule, shares=None, trust=0.0, **how):
    return weigh([finding(r, **how) for r in rules], {r.id: r for r in rules}, shares, trust)


def test_without_evidence_the_classes_are_alike():
    shares = weighed().shares
    assert shares["memory"] == pytest.approx(1 / (7 + NONE_BEFORE))
    assert sum(shares.values()) == pytest.approx(1)


def test_the_odds_of_one_rule_are_those_of_its_class():
    shares = weighed(rule("a", "launch", 9)).shares
    assert shares["launch"] / shares["memory"] == pytest.approx(9)
    assert shares["launch"] == pytest.approx(9 / (9 + 6 + NONE_BEFORE))


def test_the_second_symptom_of_a_class_counts_by_half():
    shares = weighed(rule("a", "launch", 9), rule("b", "launch", 16)).shares
    assert shares["launch"] / shares["memory"] == pytest.approx(16 * math.sqrt(9))


def test_what_is_clear_or_rests_on_the_model_alone_counts_nothing():
    assert weighed(rule("a", "launch", 9), state="clear").findings == ()
    assert weighed(rule("a", "launch", 9), source="fit").findings == ()


def test_the_model_counts_with_a_power_of_its_odds():
    said = {"memory": 1.0}
    full = weighed(shares=said, trust=1.0).shares
    half = weighed(shares=said, trust=0.5).shares
    assert full["memory"] / full["launch"] == pytest.approx(21)
    assert half["memory"] / half["launch"] == pytest.approx(math.sqrt(21))


def test_a_strong_rule_names_its_class_with_its_own_sentence():
    found = named(weighed(rule("a", "network", 20, "client or proxy")), NOBODY)
    assert (found.class_, found.sub_cause, found.says) == ("network", "client or proxy", "a seen")
    assert claimed(found) == pytest.approx(MOST * 20 / 26.5, abs=0.01)


def test_a_weak_rule_leaves_the_verdict_open():
    found = named(weighed(rule("a", "network", 2)), NOBODY)
    assert found.class_ is None
    assert found.candidates[0] == "network"
    assert claimed(found) == 0.0


def test_rules_against_one_another_leave_both_as_candidates():
    found = named(weighed(rule("a", "network", 10), rule("b", "launch", 9)), NOBODY)
    assert found.class_ is None
    assert found.candidates == ("network", "launch")


def test_the_stronger_of_two_is_named_and_the_other_is_the_runner_up():
    found = named(weighed(rule("a", "network", 20), rule("b", "launch", 4)), NOBODY)
    assert (found.class_, found.runner_up) == ("network", "launch")


def test_more_evidence_against_never_raises_the_claim():
    alone = claimed(named(weighed(rule("a", "network", 20)), NOBODY))
    for odds in (2, 4, 8, 16):
        opposed = claimed(
            named(weighed(rule("a", "network", 20), rule("b", "launch", odds)), NOBODY)
        )
        assert opposed < alone


def test_no_claim_is_above_the_most():
    rules = [rule(f"r{i}", "memory", 20) for i in range(30)]
    found = named(weighed(*rules, shares={"memory": 1.0}, trust=1.0), NOBODY)
    assert claimed(found) <= MOST
    assert set(found.shares) == {*CLASSES, "none"}
