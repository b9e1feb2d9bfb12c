"""Conditions judged on intervals, in Kleene's three-valued logic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from .model import Condition, Signal

Lookup = Callable[[str], "Signal | None"]
"""A signal's usable fact, or None: absent, not a number, or covering too little of the run."""

Interval = tuple[float, float]


@dataclass(frozen=True)
class Judgement:
    """What a condition says.

    Attributes:
        truth: true, false, or None where the facts do not decide.
        margin: −1..1, how far from the other answer, as
            (value − threshold) / (|value| + |threshold|): positive when true, negative when false,
            0 on the threshold; None when undecided.
    """

    truth: bool | None
    margin: float | None


UNKNOWN = Judgement(None, None)


def leaves(conditions: Iterable[Condition]) -> Iterator[Condition]:
    """The comparisons under `conditions`, in order."""
    for condition in conditions:
        if condition.signal is not None:
            yield condition
        else:
            yield from leaves((condition.all or []) + (condition.any or []))


def signals_of(conditions: Iterable[Condition]) -> set[str]:
    """The names of every signal that `conditions` read."""
    names: set[str] = set()
    for leaf in leaves(conditions):
        names.update(n for n in (leaf.signal, leaf.other) if n is not None)
    return names


def interval(signal: Signal | None) -> Interval | None:
    """The range that a numeric signal is known to lie in.

    A bound that is not given is the value itself, or infinite where there is no value either. None
    if the signal is missing, categorical, not a number, or has its bounds the wrong way round.
    """
    if signal is None or (signal.value is None and signal.low is None and signal.high is None):
        return None
    if signal.value is None:
        low = -math.inf if signal.low is None else signal.low
        high = math.inf if signal.high is None else signal.high
    else:
        low = signal.value if signal.low is None else signal.low
        high = signal.value if signal.high is None else signal.high
    if not low <= high:  # also false for NaN
        return None
    if signal.value is None:
        return low, high
    # A resampled interval need not hold its own estimate; the wider range claims less.
    return (
        (min(low, signal.value), max(high, signal.value)) if signal.value == signal.value else None
    )


def judge_all(conditions: Iterable[Condition], lookup: Lookup) -> Judgement:
    """True if every condition is, false if one is not, known or not the rest; [] is true."""
    parts = [judge(c, lookup) for c in conditions]
    if any(p.truth is False for p in parts):
        return Judgement(False, _extreme(min, (p for p in parts if p.truth is False)))
    if any(p.truth is None for p in parts):
        return UNKNOWN
    return Judgement(True, _extreme(min, parts) if parts else 1.0)


def judge_any(conditions: Iterable[Condition], lookup: Lookup) -> Judgement:
    """True if one condition is, false if none is; [] is false."""
    parts = [judge(c, lookup) for c in conditions]
    if any(p.truth for p in parts):
        return Judgement(True, _extreme(max, (p for p in parts if p.truth)))
    if any(p.truth is None for p in parts):
        return UNKNOWN
    return Judgement(False, _extreme(max, parts) if parts else -1.0)


def judge(condition: Condition, lookup: Lookup) -> Judgement:
    """One condition; a comparison is true only if it holds over the whole of both intervals."""
    if condition.all is not None:
        return judge_all(condition.all, lookup)
    if condition.any is not None:
        return judge_any(condition.any, lookup)
    signal = lookup(condition.signal or "")
    if condition.text is not None:
        if signal is None or signal.text is None:
            return UNKNOWN
        same = signal.text == condition.text
        return _exact(same if condition.op == "==" else not same)
    left, right = interval(signal), _threshold(condition, lookup)
    if left is None or right is None:
        return UNKNOWN
    return _compare(left, condition.op or "", right)


def _threshold(condition: Condition, lookup: Lookup) -> Interval | None:
    if condition.other is None:
        return None if condition.value is None else (condition.value, condition.value)
    other = interval(lookup(condition.other))
    if other is None:
        return None
    ends = (other[0] * condition.factor, other[1] * condition.factor)
    # 0 × infinity is NaN: nothing is known of the product.
    return None if any(math.isnan(e) for e in ends) else (min(ends), max(ends))


def _compare(left: Interval, op: str, right: Interval) -> Judgement:
    if op in ("==", "!="):
        if left[0] == left[1] == right[0] == right[1]:
            return _exact(op == "==")
        apart = left[1] < right[0] or right[1] < left[0]
        return _exact(op == "!=") if apart else UNKNOWN
    if op in ("<", "<="):  # a < b is b > a
        left, right, op = right, left, ">" if op == "<" else ">="
    (low, high), (other_low, other_high) = left, right
    if low > other_high or (op == ">=" and low == other_high):
        return Judgement(True, _distance(low, other_high))
    if high < other_low or (op == ">" and high == other_low):
        return Judgement(False, _distance(high, other_low))
    return UNKNOWN


def _distance(value: float, threshold: float) -> float:
    if value == threshold:
        return 0.0
    share = (value - threshold) / (abs(value) + abs(threshold))
    return share if math.isfinite(share) else math.copysign(1.0, value - threshold)


def _exact(truth: bool) -> Judgement:
    return Judgement(truth, 1.0 if truth else -1.0)


def _extreme(pick: Callable[[list[float]], float], parts: Iterable[Judgement]) -> float:
    return pick([p.margin for p in parts if p.margin is not None])
