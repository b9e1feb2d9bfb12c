"""How sure a verdict is: a calibrated probability that its class is right."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .verdict import Label


@dataclass(frozen=True)
class Confidence:
    """A probability 0..1, and on what it was calibrated."""

    value: float
    says: str


def confidence(label: Label, error: float, supporting: int, opposing: int) -> Confidence:
    """How likely the label's class is right."""
    if label.reason in ("split", "no load was measured"):
        return Confidence(0.0, "no confidence in an abstention")
    share = min(0.98, label.share)
    score = math.log(share / (1 - share)) + 0.2 * min(supporting, 2) - 0.4 * min(opposing, 2)
    score -= 0.5 * label.ambiguous + 2.0 * min(1.0, error)
    return Confidence(round(1 / (1 + math.exp(-score)), 2), "confidence not calibrated")
