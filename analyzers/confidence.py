"""How sure a verdict is: the probability that its class is right, as development runs taught it.

Logistic in the logarithm of the odds that the hypotheses give the class, and in what makes a verdict doubtful.
The coefficients are in `calibration.yaml`, written by `benchmarks/calibrate.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import yaml

if TYPE_CHECKING:
    from .verdict import Label

SURE = 0.98
"""The hypotheses are a hundred and share one form: their agreement says no more than this."""


class Calibration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was learnt, and on what.

    Attributes:
        calibrated_on: in words.
        confidence: coefficients of `features`, and `intercept`; one that is not there counts for nothing.
        interval: factor on both sides of a gain's interval, in logarithm, for it to hold four gains in five.
    """

    calibrated_on: str
    confidence: dict[str, float]
    interval: float


@dataclass(frozen=True)
class Confidence:
    """A probability 0..1, and on what it was calibrated."""

    value: float
    says: str


@cache
def calibration() -> Calibration:
    """The coefficients in force."""
    text = (Path(__file__).parent / "calibration.yaml").read_text()
    return msgspec.convert(yaml.safe_load(text), Calibration)


NAMELESS_MOST = 0.65
"""Most that a verdict may claim where neither model nor device is known and no rule speaks for it: then only the
length of a step was seen."""


def features(
    label: Label, supporting: int, opposing: int, *, nameless: bool = False
) -> dict[str, float]:
    """What the confidence is computed from.

    Args:
        label: of the target.
        supporting: rules that fire for its class.
        opposing: rules that fire for others.
        nameless: neither the model nor the device is known.
    """
    share = min(SURE, max(1 - SURE, label.share))
    return {
        "share": math.log(share / (1.0 - share)),
        "ambiguous": float(label.ambiguous),
        "opposed": float(opposing > supporting),
        "nameless": float(nameless),
    }


def confidence(
    label: Label, supporting: int, opposing: int, *, nameless: bool = False
) -> Confidence:
    """How likely the label's class is right, of a run that was recorded; 0 for an abstention."""
    learnt = calibration()
    if label.reason in ("split", "misfit", "no load was measured"):
        return Confidence(0.0, "no confidence in an abstention")
    weights = learnt.confidence
    score = weights["intercept"] + sum(
        weights.get(name, 0.0) * value
        for name, value in features(label, supporting, opposing, nameless=nameless).items()
    )
    value = 1.0 / (1.0 + math.exp(-score))
    if nameless and not supporting:
        value = min(value, NAMELESS_MOST)
    return Confidence(round(value, 2), f"confidence calibrated on {learnt.calibrated_on}")
