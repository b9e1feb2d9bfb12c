"""When requests arrive: pure, the same for the same spec, in every process and every run."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .spec import LoadSpec
from .traces import Arrival


class Planned(NamedTuple):
    """One request of an open loop: its number, seconds after the start, warm-up or not."""

    number: int
    offset_s: float
    warmup: bool


def offsets_s(spec: LoadSpec, trace: Sequence[Arrival] | None = None) -> Iterator[float]:
    """Arrival times in seconds after the start, ascending; endless but for a file.

    Poisson: exponential gaps of mean 1/rate. Gamma: gaps of shape 1/cv² and scale cv²/rate, which
    has the same mean and coefficient of variation cv (above 1: bursts). Constant: i/rate.

    Raises:
        ValueError: a closed loop has no arrival times.
    """
    rng = random.Random(f"{spec.seed}:arrivals")
    if spec.process == "file":
        return (arrival.t_s for arrival in trace or ())
    rate = spec.rate_per_s
    if rate is None:
        raise ValueError(f"{spec.process} has no arrival times")
    if spec.process == "constant":
        return (i / rate for i in itertools.count())
    if spec.process == "gamma":
        cv = spec.cv_ratio or 1.0
        shape, scale = 1 / cv**2, cv**2 / rate
        return itertools.accumulate(rng.gammavariate(shape, scale) for _ in itertools.count())
    return itertools.accumulate(rng.expovariate(rate) for _ in itertools.count())


def plan(spec: LoadSpec, trace: Sequence[Arrival] | None = None) -> Iterator[Planned]:
    """The plan of an open loop: warm-up arrivals, then `n` of them or `duration_s` long."""
    measured = 0
    for number, offset in enumerate(offsets_s(spec, trace)):
        warmup = offset < spec.warmup_s
        if not warmup:
            if spec.duration_s is not None and offset >= spec.warmup_s + spec.duration_s:
                return
            if spec.n is not None and measured >= spec.n:
                return
            measured += 1
        yield Planned(number, offset, warmup)


def share_of(total: int, worker: int, workers: int) -> int:
    """The part of `total` that belongs to one of `workers`; the parts sum to `total`."""
    return total // workers + (worker < total % workers)
