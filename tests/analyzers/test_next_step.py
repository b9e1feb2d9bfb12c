"""The next measurement: the most information about the class for the least effort."""

from __future__ import annotations

import math

import pytest

from whybound.analyzers.given import known_signals
from whybound.analyzers.next_step import information, next_measurement
from whybound.rules.load import load_prechecks, load_rules
from whybound.rules.model import CLASSES, Finding, Verdict
from whybound.rules.observations import load_observations

RULES = load_rules()
OPEN = [
    Finding(
        rule=r.id,
        title=r.title,
        scope="",
        state="cannot_tell",
        class_=r.class_,
        sub_cause=None,
        says="",
        evidence=[],
    )
    for r in RULES.values()
]


def asked(shares, known=(), findings=OPEN, **verdict):
    v = Verdict(
        class_=None,
        abstained=True,
        confidence=0.0,
        shares=shares,
        candidates=list(shares)[:2],
        says="",
        **verdict,
    )
    return next_measurement(
        v, [], {"url": "http://127.0.0.1:8000"}, set(known), [], findings, RULES
    )


def even(*classes):
    return dict.fromkeys(classes, 1 / len(classes))


def test_an_answer_that_is_known_beforehand_tells_nothing():
    assert information({"memory": 1.0}, "memory", 10) == pytest.approx(0)
    assert information({"memory": 1.0}, "launch", 10) == pytest.approx(0)
    assert information(even("memory", "launch"), "memory", 1) == pytest.approx(0)


def test_information_is_at_most_that_of_the_classes_and_grows_with_the_odds():
    told = [information(even("memory", "launch"), "memory", odds) for odds in (2, 5, 20, 1e6)]
    assert told == sorted(told)
    assert told[-1] < math.log(2)


def test_memory_or_launch_is_asked_of_the_cheap_counters():
    assert "dcgmi" in asked(even("memory", "launch")).command


def test_a_proxy_or_the_queue_is_not_asked_of_gpu_counters():
    assert "dcgmi" not in asked(even("scheduling", "queueing")).command


def test_what_is_known_already_is_not_asked_again():
    first = next(o for o in load_observations() if o.id == "gpu_counters")
    second = asked(even("memory", "launch"), known=first.gives)
    assert "dcgmi" not in second.command


def test_a_settled_verdict_asks_nothing():
    v = Verdict(class_="memory", abstained=False, confidence=0.9, shares={"memory": 0.95}, says="")
    assert next_measurement(v, [], {}, set(), [], OPEN, RULES) is None


def test_an_unsure_verdict_asks():
    v = Verdict(
        class_="memory",
        abstained=False,
        confidence=0.5,
        shares={"memory": 0.6, "launch": 0.4},
        says="",
        runner_up="launch",
    )
    found = next_measurement(v, [], {}, set(), [], OPEN, RULES)
    assert found is not None
    assert {"memory", "launch"} <= set(found.decides)


def test_the_url_is_quoted_for_the_shell():
    v = Verdict(
        class_=None, abstained=True, confidence=0.0, shares=even("scheduling", "queueing"), says=""
    )
    found = next_measurement(v, [], {"url": "http://h/;rm -rf x"}, set(), [], OPEN, RULES)
    assert ";rm" not in found.command or "'http://h/;rm -rf x'" in found.command


@pytest.mark.parametrize("o", load_observations(), ids=lambda o: o.id)
def test_every_observation_gives_signals_that_are_known_and_answers_a_rule(o):
    assert set(o.gives) <= set(known_signals())
    assert o.effort in (1, 2, 3)
    assert any(set(r.needs) & set(o.gives) for r in (RULES | load_prechecks()).values())


def test_every_class_has_an_observation_that_speaks_for_it():
    spoken = {
        r.class_ for r in RULES.values() for o in load_observations() if set(r.needs) & set(o.gives)
    }
    assert spoken == set(CLASSES)
