"""Token lengths of a workload: fixed, drawn from a distribution, or classes with exact shares."""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Lengths:
    """A distribution of token counts.

    Attributes:
        kind: `fixed` (a), `uniform` (whole numbers a..b, both possible) or `lognormal` (mean a,
            coefficient of variation b; rounded, at least 1, no upper limit).
    """

    kind: Literal["fixed", "uniform", "lognormal"]
    a: float
    b: float = 0.0

    @property
    def mean_tokens(self) -> float:
        """The expected length in tokens."""
        return (self.a + self.b) / 2 if self.kind == "uniform" else self.a

    def draw(self, rng: random.Random) -> int:
        """One length in tokens, at least 1."""
        if self.kind == "fixed":
            return int(self.a)
        if self.kind == "uniform":
            return rng.randint(int(self.a), int(self.b))
        # Log-normal with mean m and coefficient of variation c: σ² = ln(1 + c²), μ = ln m − σ²/2.
        variance = math.log1p(self.b**2)
        value = rng.lognormvariate(math.log(self.a) - variance / 2, math.sqrt(variance))
        return max(1, round(value))

    def __str__(self) -> str:
        if self.kind == "fixed":
            return f"{self.a:g}"
        return f"{self.kind}({self.a:g}:{self.b:g})"


@dataclass(frozen=True)
class WorkClass:
    """One class of a mix: `share_ratio` of the requests (0..1) has these lengths."""

    name: str
    share_ratio: float
    input: Lengths
    output: Lengths


_FUNCTION = re.compile(r"(uniform|lognormal)\(([^:()]+):([^:()]+)\)")


def parse_lengths(text: str) -> Lengths:
    """Read `64`, `uniform(32:128)` or `lognormal(mean:cv)`.

    Raises:
        ValueError: it is none of these; the message names the forms.
    """
    call = _FUNCTION.fullmatch(text.strip())
    if call is None:
        return Lengths("fixed", _tokens(text))
    if call[1] == "uniform":
        low, high = _tokens(call[2]), _tokens(call[3])
        if high < low:
            raise ValueError(f"uniform({low}:{high}) is empty: write the smaller number first")
        return Lengths("uniform", low, high)
    mean, cv = _tokens(call[2]), float(call[3])
    if not cv > 0 or math.isinf(cv):
        raise ValueError("the coefficient of variation must be above 0")
    return Lengths("lognormal", mean, cv)


def parse_one_sided(text: str, other: Lengths, side: Literal["in", "out"]) -> tuple[WorkClass, ...]:
    """Classes of `in=…` or `out=…`, the other side given: `mix(0.8*32,0.2*1000)`, or one length.

    Raises:
        ValueError: a length or the shares are malformed.
    """
    if not text.startswith("mix("):
        return (_paired(1.0, parse_lengths(text), other, side),)
    if not text.endswith(")"):
        raise ValueError("mix( is not closed")
    parts = [_share(part) for part in re.split(r",(?![^()]*\))", text[4:-1])]
    return _checked(tuple(_paired(s, parse_lengths(rest), other, side) for s, rest in parts))


def parse_mix(text: str) -> tuple[WorkClass, ...]:
    """Classes of `mix=0.8*32/32+0.2*1000/16`: share * input / output, joined by `+`.

    Raises:
        ValueError: a class or the shares are malformed.
    """
    classes = []
    for part in text.split("+"):
        share, rest = _share(part)
        first, slash, second = rest.partition("/")
        if not slash:
            raise ValueError(f"{part!r} lacks its output length: write share*input/output")
        classes.append(_paired(share, parse_lengths(first), parse_lengths(second), "in"))
    return _checked(tuple(classes))


def _paired(share: float, own: Lengths, other: Lengths, side: str) -> WorkClass:
    first, second = (own, other) if side == "in" else (other, own)
    return WorkClass(f"{first}/{second}", share, first, second)


def _share(part: str) -> tuple[float, str]:
    share, star, rest = part.partition("*")
    if not star:
        raise ValueError(f"{part!r} lacks its share: write 0.8*{part}")
    return float(share), rest


def _checked(classes: tuple[WorkClass, ...]) -> tuple[WorkClass, ...]:
    if any(not 0 < c.share_ratio <= 1 for c in classes):
        raise ValueError("each share must be above 0 and at most 1")
    total = sum(c.share_ratio for c in classes)
    if abs(total - 1) > 1e-6:
        raise ValueError(f"the shares sum to {total:g}, not 1")
    return classes


def _tokens(text: str) -> int:
    if not re.fullmatch(r"\s*\d+\s*", text) or int(text) < 1:
        raise ValueError(
            f"{text!r} is no length: write 64, uniform(32:128), lognormal(200:1.5)"
            " or mix(0.8*32,0.2*1000)"
        )
    return int(text)
