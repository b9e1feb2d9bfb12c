"""What a run does not hold, and what in it does not add up."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..collector.store import Run
    from .fit import Fit

UNFINISHED = 0.02
"""Share of requests cut off by the end above which the means are said to be lower bounds."""

ODD = 0.05
"""Relative disagreement between two measures of the same thing that is worth a line."""


LITTLE = 0.25
"""As `ODD`, for gauges read a few dozen times: their own sampling error is of the order of 10 %."""


def level_one(facts: Mapping[str, float]) -> float:
    """The share, 0..1, of the request-level facts that a whole run would have."""
    wanted = (
        "client_ttft_mean_s", "client_itl_mean_s", "server_queue_mean_s", "server_prefill_mean_s",
        "server_decode_mean_s", "server_front_end_mean_s", "network_e2e_s", "running_mean_count",
    )  # fmt: skip
    return sum(name in facts for name in wanted) / len(wanted)


def missing_lines(run: Run, facts: Mapping[str, float], model: Fit | None) -> list[str]:
    """What was not measured, was assumed, or does not add up: one line each."""
    lines = _identities(facts)
    if "client_ttft_mean_s" not in facts:
        lines.append("client latencies: no load generator ran")
    if "offered_rate_per_s" not in facts:
        lines += _load_assumed(facts, model)
    if "server_queue_mean_s" not in facts:
        lines.append("queue and phases: the engine's metrics hold no such histograms")
    if facts.get("unfinished_ratio", 0.0) > UNFINISHED:
        lines.append(
            f"{facts['unfinished_ratio']:.0%} of the requests did not end in the run: latencies are those of"
            " the ones that did, a lower bound"
        )
    if model is not None:
        lines += [f"cost model: {m} unknown" for m in model.missing]
    for source, why in (run.manifest.get("not_collected") or {}).items():
        lines.append(f"{source}: {why}")
    for table, count in (run.losses.get("dropped") or {}).items():
        if count:
            lines.append(f"{table}: {count} rows dropped")
    lines.append("timeline and kernels (levels 2 and 3): not recorded")
    return lines


def _load_assumed(facts: Mapping[str, float], model: Fit | None) -> list[str]:
    """What the engines' counters cannot tell of the load, and what is assumed instead."""
    lines = []
    if model is not None:
        kind = (
            f"an open loop of Poisson arrivals at {model.load.rate:.3g}/s"
            if model.load.open_loop
            else f"{model.load.concurrency:.3g} callers who each wait for their answer"
        )
        lines.append(f"load mode: not recorded, taken for {kind} by the engine's own counters")
    engines = facts.get("engine_replicas_count", 1.0)
    if engines > 1:
        lines.append(
            f"routing: {engines:.0f} engines are judged as their mean, skew between them is not seen"
        )
    judged, observed = facts.get("engine_duration_s"), facts.get("engine_observed_s")
    if judged is not None and observed and judged < 0.9 * observed:
        lines.append(
            f"idle time: {judged:.0f} of {observed:.0f} s are judged, before and after nothing was served"
        )
    return lines


def _identities(facts: Mapping[str, float]) -> list[str]:
    """Identities that fail: phases against the whole, the engine's tokens against the client's, steadiness."""
    lines = []
    phases = facts.get("phases_error_ratio")
    if phases is not None and abs(phases) > ODD:
        lines.append(
            f"phases: queue, prefill, decode and front end are {phases:+.0%} off the end-to-end time"
        )
    tokens = facts.get("tokens_error_ratio")
    if tokens is not None and abs(tokens) > ODD:
        lines.append(
            f"tokens: the engine counted {tokens:+.0%} against the client: other clients, warm-up requests"
            " that ended late, or lost scrapes"
        )
    little = facts.get("little_error_ratio")
    if little is not None and abs(little) > LITTLE:
        lines.append(
            f"Little's law: the gauges show {little:+.0%} requests inside the engine against its own phase sums:"
            " scrapes came at special instants, or the run was not stationary"
        )
    if facts.get("transient_ratio", 0.0) >= 0.5:
        lines.append(
            "steady state: none was reached in this run; its means depend on how long it lasted"
        )
    return lines
