"""What "faster" means for a run: a metric, a statistic, perhaps a threshold and a load."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..rules.model import Target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..rules.model import Signal

EXAMPLE = 'e.g. "p95 itl < 30ms @ concurrency=32" or "mean e2e"'

SIGNALS = {
    "ttft": ("client_ttft_{}_s", "s"),
    "itl": ("client_itl_{}_s", "s"),
    "tpot": ("client_tpot_{}_s", "s"),
    "e2e": ("client_e2e_{}_s", "s"),
    "throughput": ("output_tokens_per_s", "per_s"),
    "error_rate": ("failed_ratio", "ratio"),
}
"""Metric → the signal that holds it (`{}` is the statistic) and its unit."""

SERVER_SIGNALS = {
    "ttft": "server_ttft_mean_s",
    "itl": "server_itl_mean_s",
    "e2e": "server_e2e_mean_s",
    "throughput": "generation_tokens_per_s",
}
"""Where the client saw nothing (attach without load), the engine's own mean."""

STATISTICS = ("mean", "p50", "p95", "p99")
_TIME = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0}
_FORM = re.compile(
    r"^\s*(?:(?P<stat>[a-z]\w*)\s+)?(?P<metric>[a-z_0-9]+)"
    r"(?:\s*(?P<op><=?|>=?)\s*(?P<value>[0-9.]+(?:e-?\d+)?)\s*(?P<unit>[a-z%/]*))?"
    r"(?:\s*@\s*(?P<load>\S.*?))?\s*$"
)


@dataclass(frozen=True)
class TargetSpec:
    """A parsed target; `threshold` in seconds, per second or as a ratio; `load` as written."""

    metric: str
    statistic: str
    text: str
    unit: str
    threshold: float | None = None
    load: str | None = None

    @property
    def higher_is_better(self) -> bool:
        """Throughput grows when things get better; everything else shrinks."""
        return self.metric == "throughput"


def parse_target(text: str) -> TargetSpec:
    """Read a target such as `p95 itl < 30ms @ concurrency=32`.

    Raises:
        UsageError: it names no metric that can be measured; the message holds a good example.
    """
    match = _FORM.match(text.strip().lower())
    if match is None or match["metric"] not in SIGNALS:
        raise UsageError(
            f"--target {text!r} names nothing that can be measured: give a statistic"
            f" ({', '.join(STATISTICS)}), a metric ({', '.join(SIGNALS)}) and a threshold, {EXAMPLE}"
        )
    metric, statistic = match["metric"], match["stat"] or "mean"
    if metric in ("throughput", "error_rate"):
        statistic = "rate"
    elif statistic not in STATISTICS:
        raise UsageError(
            f"--target {text!r}: unknown statistic {statistic!r}; use {', '.join(STATISTICS)}"
        )
    threshold = None
    if match["value"]:
        if (match["op"][0] == ">") != (metric == "throughput"):
            raise UsageError(f"--target {text!r}: {metric} gets better the other way, {EXAMPLE}")
        threshold = float(match["value"]) * _factor(text, metric, match["unit"])
    return TargetSpec(metric, statistic, text.strip(), SIGNALS[metric][1], threshold, match["load"])


def _factor(text: str, metric: str, unit: str) -> float:
    if metric == "error_rate":
        return 0.01 if unit == "%" else 1.0
    if metric == "throughput" and unit in ("", "tok/s", "tokens/s", "/s"):
        return 1.0
    if metric != "throughput" and unit in _TIME:
        return _TIME[unit]
    raise UsageError(f"--target {text!r}: unit {unit!r} does not fit {metric}, {EXAMPLE}")


def default_target(mode: str | None) -> TargetSpec:
    """Mean end-to-end for an open loop, output tokens a second for a closed one."""
    return parse_target("throughput" if mode == "closed" else "mean e2e")


def measured_target(spec: TargetSpec, signals: Mapping[str, Signal]) -> Target:
    """The target with its value in this run; `value` is null when it was not measured."""
    signal = signals.get(SIGNALS[spec.metric][0].format(spec.statistic))
    if signal is None and spec.statistic in ("mean", "rate"):
        signal = signals.get(SERVER_SIGNALS.get(spec.metric, ""))
    value = signal.value if signal else None
    met = None
    if value is not None and spec.threshold is not None:
        met = value >= spec.threshold if spec.higher_is_better else value <= spec.threshold
    return Target(
        metric=spec.metric,
        statistic=spec.statistic,
        text=spec.text,
        unit=spec.unit,
        value=value,
        low=signal.low if signal else None,
        high=signal.high if signal else None,
        threshold=spec.threshold,
        met=met,
    )
