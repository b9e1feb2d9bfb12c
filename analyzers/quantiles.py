"""Intervals of what one run shows: quantiles, rates and ratios, for neighbours that are not independent.

Every interval is two-sided, 95 %. A bound that the data cannot give is None.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MISS = 0.025
"""What an interval may miss on each side."""
BLOCKS = 20
STUDENT = 2.093
"""97.5 % point of Student's t with `BLOCKS` − 1 degrees of freedom."""
CHI_SQUARE = 30.14 / 19
"""95 % point of χ² over its degrees of freedom, `BLOCKS` − 1: block means of independent values stay below."""
RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """Bounds of a statistic, and the independent observations that the data are worth."""

    low: float | None
    high: float | None
    n_effective: int


def samples_needed(p: float) -> int:
    """The fewest samples with a two-sided interval for quantile p (0..1): 368 for 0.99, 72 for 0.95.

    Below it the largest (or smallest) sample misses the quantile on its side too often: pⁿ > 0.025.
    """
    return math.ceil(math.log(MISS) / math.log(max(p, 1.0 - p)))


def ranks(n: int, p: float) -> tuple[int | None, int | None]:
    """Ranks (from 1) of the order statistics that bound quantile p of n independent values.

    Distribution-free: the number of values below the quantile is binomial (n, p). David and Nagaraja,
    Order Statistics, 7.1.
    """
    k = np.arange(1, n + 1)
    log_choose = np.concatenate([[0.0], np.cumsum(np.log((n - k + 1) / k))])
    counts = np.arange(n + 1)
    cdf = np.cumsum(np.exp(log_choose + counts * math.log(p) + (n - counts) * math.log1p(-p)))
    low = int(np.searchsorted(cdf, MISS, side="right"))
    high = int(np.searchsorted(cdf, 1.0 - MISS, side="left")) + 1
    return low if low >= 1 else None, high if high <= n else None


def inflation(happened: Floats) -> float:
    """How many neighbours in a series of 0 and 1 are worth one independent observation, at least 1.

    Variance of the means of 20 consecutive blocks over that of independent values; 1 unless it is more
    than chance explains (χ², 5 %), and where it cannot be told: below 40 values, or 3 of the rarer kind.
    With it n becomes n/inflation: the order statistics of a correlated series (Heidelberger and Lewis, 1984).
    """
    rarer = min(happened.sum(), (1.0 - happened).sum())
    if len(happened) < 2 * BLOCKS or rarer < 3:
        return 1.0
    share = float(happened.mean())
    means = np.array([b.mean() for b in np.array_split(happened, BLOCKS)])
    ratio = len(happened) / BLOCKS * float(means.var(ddof=1)) / (share * (1.0 - share))
    return ratio if ratio > CHI_SQUARE else 1.0


def quantile_interval(values: Floats, p: float) -> Interval:
    """Bounds of quantile p of `values`, at least one, in the order in which they came."""
    n = len(values)
    ordered = np.sort(values)
    at = float(np.quantile(ordered, p))
    worth = max(1, math.floor(n / inflation((values > at).astype(np.float64))))
    low, high = ranks(worth, p)
    return Interval(
        # ranks among `worth` values, as ranks from 0 among n, rounded outwards
        low=None if low is None else float(ordered[(low - 1) * n // worth]),
        high=None if high is None else float(ordered[-(-high * n // worth) - 1]),
        n_effective=worth,
    )


def clustered_interval(values: Floats, owner: NDArray[np.int64], p: float, block: int) -> Interval:
    """Bounds of quantile p of values that come in clusters (gaps by request).

    A moving-block bootstrap over clusters (Künsch, 1989), percentile bounds: whole runs of `block`
    neighbouring clusters are drawn, since requests in flight together share their stalls. The quantile
    of a resample is at most x exactly when its share of values up to x is at least p, so the bounds are
    found by bisection over the values, exactly.

    Args:
        values: at least one.
        owner: the cluster of each, 0..n−1 in order of arrival, each of them present.
        p: 0..1.
        block: clusters drawn together, at least 1.
    """
    n = int(owner.max()) + 1
    block = max(1, min(block, n // 10))
    starts = np.random.default_rng(0).integers(0, n, size=(RESAMPLES, math.ceil(n / block)))

    def drawn(chosen: NDArray[np.int64]) -> Floats:
        counts = np.bincount(chosen, minlength=n)
        around = np.concatenate([[0], np.cumsum(np.concatenate([counts, counts[: block - 1]]))])
        sums: Floats = (around[block:] - around[:-block])[starts].sum(axis=1).astype(np.float64)
        return sums

    total = drawn(owner)
    ordered = np.unique(values)

    def bound(share: float) -> float:
        below, above = 0, len(ordered) - 1
        while below < above:
            middle = (below + above) // 2
            reached = drawn(owner[values <= ordered[middle]]) >= p * total
            below, above = (below, middle) if reached.mean() >= share else (middle + 1, above)
        return float(ordered[below])

    return Interval(bound(MISS), bound(1.0 - MISS), n)


def ratio_interval(above: Floats, below: Floats) -> tuple[float, float]:
    """Bounds of Σ above / Σ below from `BLOCKS` consecutive blocks: batch means of a ratio.

    Its error is that of the residuals above − ratio · below (Cochran, Sampling Techniques, 6.3).
    """
    ratio = float(above.sum() / below.sum())
    spread = float((above - ratio * below).std(ddof=1)) / float(below.mean())
    half = STUDENT * spread / math.sqrt(len(above))
    return max(0.0, ratio - half), ratio + half


def share_interval(happened: Floats) -> tuple[float, float]:
    """Wilson's bounds of a share (0..1), with neighbours discounted; never of no width, even at 0 or 1."""
    share, n, z = float(happened.mean()), len(happened) / inflation(happened), 1.96
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)
