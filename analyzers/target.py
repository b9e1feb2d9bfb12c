"""What "faster" means for a run, as text: a metric, a statistic, perhaps a threshold and a load."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import UsageError
from ..rules.strict_yaml import did_you_mean

EXAMPLE = 'e.g. "p95 itl < 30ms @ concurrency=32" or "mean e2e"'
GUARD_EXAMPLE = 'e.g. "p95 ttft < 500ms" or "mmlu drop < 0.5"'

_TIME = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_REQUESTS = {"": 1.0, "/s": 1.0, "req/s": 1.0, "requests/s": 1.0}


@dataclass(frozen=True)
class Metric:
    """What can be aimed at.

    Attributes:
        unit: the unit of its value.
        units: how a threshold may be written → the factor to `unit`; `""` where a bare number is clear.
        higher: larger is better.
        latency: it has a value for each request (or gap), so a mean and quantiles; else one number a run.
        signal: the signal that holds it, `{}` is the statistic; empty when no signal does.
        server_signal: the engine's own, for a run without a load generator.
    """

    unit: str
    units: dict[str, float]
    higher: bool = False
    latency: bool = False
    signal: str = ""
    server_signal: str = ""


METRICS = {
    "ttft": Metric("s", _TIME, False, True, "client_ttft_{}_s", "server_ttft_mean_s"),
    "itl": Metric("s", _TIME, False, True, "client_itl_{}_s", "server_itl_mean_s"),
    "tpot": Metric("s", _TIME, False, True, "client_tpot_{}_s"),
    "e2e": Metric("s", _TIME, False, True, "client_e2e_{}_s", "server_e2e_mean_s"),
    "throughput": Metric(
        "tokens_per_s", {"": 1.0, "tok/s": 1.0, "tokens/s": 1.0, "/s": 1.0}, higher=True,
        signal="output_tokens_per_s", server_signal="generation_tokens_per_s",
    ),
    "request_rate": Metric("requests_per_s", _REQUESTS, higher=True, signal="completed_rate_per_s"),
    "goodput": Metric("requests_per_s", _REQUESTS, higher=True),
    "error_rate": Metric("ratio", {"": 1.0, "%": 0.01}, signal="failed_ratio"),
    "energy": Metric("joules_per_token", {"": 1.0, "j/tok": 1.0, "j/token": 1.0}),
    "cost": Metric("usd_per_mtok", {"": 1.0, "$": 1.0, "/mtok": 1.0, "$/mtok": 1.0, "usd/mtok": 1.0}),
}  # fmt: skip
"""Every metric by the name under which a person asks for it."""

SIGNALS = {name: (m.signal, m.unit) for name, m in METRICS.items() if m.signal}
"""Metric → the signal that holds it (`{}` is the statistic) and its unit."""

LIMITS = ("ttft", "itl", "tpot", "e2e")
"""Guards on these are the limits of goodput."""

QUALITY = ("drop", "score")
_ALSO = {"latency": "e2e", "tps": "throughput", "errors": "error_rate", "rps": "request_rate"}
_OPS = re.compile(r"(<=|>=|==|[<>=≤≥])")
_VALUE = re.compile(r"\$?\s*(?P<number>(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*(?P<unit>[a-zµ%$/]*)")
_QUANTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)")
_LOADS = ("concurrency", "rate")
_Refuse = Callable[[str], UsageError]


@dataclass(frozen=True)
class TargetSpec:
    """A parsed target or guard.

    Attributes:
        metric: a name of `METRICS`, or e.g. `mmlu drop` for a quality score.
        statistic: `mean`, `p50`, `p99.9`, …; `rate` for what is one number a run.
        text: as written.
        unit: of the value and the threshold.
        threshold: in `unit`; None when none was given.
        load: the load at which it is stated, `concurrency=32` or `rate=4`; None when none was.
    """

    metric: str
    statistic: str
    text: str
    unit: str
    threshold: float | None = None
    load: str | None = None

    @property
    def higher_is_better(self) -> bool:
        """Throughput grows when things get better; latencies, errors, cost and energy shrink."""
        if self.is_quality:
            return self.metric.endswith("score")
        return METRICS[self.metric].higher

    @property
    def is_quality(self) -> bool:
        """A quality score: it is never measured here."""
        return self.metric not in METRICS

    @property
    def quantile(self) -> float | None:
        """0..1, 0.95 for p95; None for a mean or a rate."""
        return float(self.statistic[1:]) / 100 if self.statistic.startswith("p") else None

    @property
    def is_tail(self) -> bool:
        """The 90th percentile of a latency, or one above it: then its own requests are looked at."""
        return (self.quantile or 0.0) >= 0.9


def parse_target(text: str, source: str = "--target") -> TargetSpec:
    """Read a target such as `p95 itl < 30ms @ concurrency=32`.

    Args:
        text: a statistic (mean, median, pNN; left out: mean), a metric, perhaps a threshold, a load.
        source: where it was written, for the message.

    Raises:
        UsageError: it names nothing that can be measured, or contradicts itself; one line that says
            which part and shows a good example.
    """
    spec = _parse(text, source, EXAMPLE)
    if spec.is_quality:
        raise UsageError(
            f"{source} {text!r}: a quality score is kept, not aimed at: make it a --guard,"
            f" {GUARD_EXAMPLE}"
        )
    return spec


def parse_guard(text: str, source: str = "--guard") -> TargetSpec:
    """Read a guard, what must still hold when the target is met: a target with a threshold, without load.

    Raises:
        UsageError: as `parse_target`; it has no threshold; it has a load of its own.
    """
    spec = _parse(text, source, GUARD_EXAMPLE)
    if spec.threshold is None:
        raise UsageError(f"{source} {text!r}: a guard needs a threshold, {GUARD_EXAMPLE}")
    if spec.load is not None:
        raise UsageError(
            f"{source} {text!r}: a guard holds at the target's load, leave the @ part out"
        )
    return spec


def default_target(mode: str | None) -> TargetSpec:
    """Mean end-to-end for an open loop, output tokens a second for a closed one."""
    return parse_target("throughput" if mode == "closed" else "mean e2e")


def _parse(text: str, source: str, example: str) -> TargetSpec:
    def refuse(what: str) -> UsageError:
        return UsageError(f"{source} {text!r}: {what}, {example}")

    head, at, load = text.strip().lower().partition("@")
    left, op, right = ([*_OPS.split(head, maxsplit=1), "", ""])[:3]
    words = left.split()
    if not words or len(words) > 2:
        raise refuse(
            "it does not say what can be measured: write a statistic, a metric and a threshold"
        )
    metric, statistic, unit = _named(words, refuse)
    threshold = _threshold(metric, statistic, op, right, refuse) if op else None
    return TargetSpec(
        metric, statistic, text.strip(), unit, threshold, _load(load, refuse) if at else None
    )


def _named(words: list[str], refuse: _Refuse) -> tuple[str, str, str]:
    """Metric, statistic and unit."""
    word = words[-1]
    if word in QUALITY and len(words) == 2:
        if words[0] in METRICS or _statistic(words[0]):
            raise refuse(
                f"{words[0]!r} is no quality score; a drop against another run is `profile compare`"
            )
        if not re.fullmatch(r"[a-z][\w.-]*", words[0]):
            raise refuse(f"{words[0]!r} is no name of a quality score")
        return f"{words[0]} {word}", "rate", ""
    if word not in METRICS:
        hint = f", did you mean {_ALSO[word]!r}?" if word in _ALSO else did_you_mean(word, METRICS)
        raise refuse(f"{word!r} is nothing that can be measured{hint}")
    metric = METRICS[word]
    statistic = _statistic(words[0]) if len(words) == 2 else ("mean" if metric.latency else "rate")
    if statistic is None:
        raise refuse(f"unknown statistic {words[0]!r}: use mean, median or p1 to p99.9")
    if not metric.latency:
        if statistic not in ("mean", "rate"):
            raise refuse(f"{word} is one number a run and has no {words[0]}")
        statistic = "rate"
    elif statistic == "rate":
        raise refuse(f"{word} has no rate: use mean, median or p1 to p99.9")
    return word, statistic, metric.unit


def _statistic(word: str) -> str | None:
    """Its canonical name; None when it is none, p0 and p100 included."""
    if word == "median":
        return "p50"
    match = _QUANTILE.fullmatch(word)
    if match is None:
        return word if word in ("mean", "rate") else None
    return f"p{float(match[1]):g}" if 1 <= float(match[1]) <= 99.9 else None


def _threshold(metric: str, statistic: str, op: str, right: str, refuse: _Refuse) -> float:
    """The threshold in the metric's unit."""
    known = METRICS.get(metric)
    higher = known.higher if known else metric.endswith("score")
    if op in ("=", "=="):
        raise refuse(f"{op} is no direction: write {'>' if higher else '<'}")
    if (op[0] in ">≥") != higher:
        better = "higher" if higher else "lower"
        raise refuse(f"it contradicts itself, {metric} is better when it is {better}")
    match = _VALUE.fullmatch(right.strip())
    if match is None:
        raise refuse(f"{right.strip()!r} is no number with a unit")
    number, unit = float(match["number"]), match["unit"]
    if known is None:
        if unit not in ("", "%"):
            raise refuse(f"unit {unit!r} does not fit a quality score")
        return number
    if unit not in known.units:
        if unit == "" and known.latency:
            raise refuse(
                f"{match['number']} what? a time needs a unit, {match['number']}ms or {match['number']}s"
            )
        fitting = ", ".join(u for u in known.units if u)
        raise refuse(f"unit {unit or 'none'!r} does not fit {metric}, use {fitting}")
    value = number * known.units[unit]
    if value <= 0:
        raise refuse("no run can show less than nothing: write a threshold above 0")
    if metric == "error_rate" and value >= 1:
        raise refuse(f"a share is below 1: write {match['number']}%")
    return value


def _load(text: str, refuse: _Refuse) -> str:
    key, _, value = (part.strip() for part in text.partition("="))
    if key not in _LOADS:
        raise refuse(
            f"@ {text.strip()!r} is no load{did_you_mean(key, _LOADS)}, write concurrency=32 or rate=4"
        )
    match = _VALUE.fullmatch(value)
    fits = match is not None and match["unit"] in (("", "/s") if key == "rate" else ("",))
    number = float(match["number"]) if match and fits else 0.0
    if number <= 0 or (key == "concurrency" and number != int(number)):
        raise refuse(f"{key} {value!r} is no load, write concurrency=32 or rate=4")
    return f"{key}={number:.15g}"
