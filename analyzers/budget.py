"""Where the target's time goes: parts that sum to the whole, with an explicit unknown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..rules.model import BudgetItem, Ceiling
from .whatif import solve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..rules.model import Signal, Target
    from .fit import Fit

COMPONENTS: dict[str, tuple[str, str | None]] = {
    "client_lag": ("load generator's own delay", None),
    "network": ("network, proxy and client", "network"),
    "front_end": ("front end: tokenize, IPC, detokenize", "launch"),
    "wait_slot": ("waiting: no free slot in the batch", "scheduling"),
    "wait_budget": ("waiting: token budget too small", "scheduling"),
    "wait_kv": ("waiting: no free KV block", "memory"),
    "wait_busy": ("waiting: more load than capacity", "queueing"),
    "wait_step": ("waiting: the pass in flight", None),
    "wait_unknown": ("waiting: cause not seen", None),
    "prefill": ("prefill", None),
    "decode": ("decode", None),
    "stall": ("decode held up by prefill of others", "scheduling"),
    "unknown": ("not explained", None),
}
"""Component → its label and the class that it speaks for; None where request level cannot tell."""


def waiting_parts(
    facts: Mapping[str, float], wait_s: float, wait_after_cap_s: float | None
) -> dict[str, float]:
    """Split mean waiting seconds by cause, in proportion to the requests that waited for it.

    Waiting for a slot counts as the cap's only as far as a larger cap would remove it
    (`wait_after_cap_s`, from the model); the rest is load above capacity.
    """
    causes = {
        "slot": facts.get("waiting_no_slot_ratio"),
        "kv": facts.get("waiting_no_kv_block_ratio"),
        "budget": facts.get("waiting_no_token_budget_ratio"),
        "step": facts.get("waiting_step_in_flight_ratio"),
    }
    if all(v is None for v in causes.values()):
        return {"wait_unknown": wait_s}
    parts = {f"wait_{k}": wait_s * (v or 0.0) for k, v in causes.items()}
    for_slot = parts.pop("wait_slot")
    left = for_slot if wait_after_cap_s is None else min(for_slot, wait_after_cap_s)
    parts["wait_slot"], parts["wait_busy"] = for_slot - left, left
    parts["wait_unknown"] = max(0.0, wait_s - sum(parts.values()))
    return parts


def time_budget(
    target: Target, signals: Mapping[str, Signal], fit: Fit | None, wait_after_cap_s: float | None
) -> list[BudgetItem]:
    """The parts of the target's mean time; empty when the target has no time that was measured.

    For throughput it is the engine's wall time a request, from the fitted step cost.
    """
    facts = {k: s.value for k, s in signals.items() if s.value is not None}
    if target.metric == "throughput":
        return _wall_budget(facts, fit)
    if target.metric in ("itl", "tpot"):
        return _gap_budget(facts, target.metric)
    first = target.metric == "ttft"
    total = facts.get(f"client_{target.metric}_mean_s", facts.get(f"server_{target.metric}_mean_s"))
    if total is None or total <= 0:
        return []
    parts: dict[str, float] = {"client_lag": max(0.0, facts.get("send_lag_mean_s", 0.0))}
    path = facts.get("network_ttft_s" if first else "network_e2e_s")
    if path is not None:
        parts["network"] = max(0.0, path - parts["client_lag"])
    front = facts.get("front_end_ttft_work_mean_s" if first else "front_end_work_mean_s")
    if front is not None:
        parts["front_end"] = front
    if "server_queue_mean_s" in facts:
        parts |= waiting_parts(facts, facts["server_queue_mean_s"], wait_after_cap_s)
        in_flight = facts.get("step_wait_mean_s", 0.0)
        parts["wait_step"] = parts.get("wait_step", 0.0) + in_flight
    for phase in ("prefill",) if first else ("prefill", "decode"):
        if f"server_{phase}_mean_s" in facts:
            parts[phase] = facts[f"server_{phase}_mean_s"]
    return _items(parts, total, "client_latency, server_phases, queue")


def _gap_budget(facts: Mapping[str, float], metric: str) -> list[BudgetItem]:
    total = facts.get(f"client_{metric}_mean_s", facts.get("server_itl_mean_s"))
    if total is None or total <= 0:
        return []
    median = facts.get("client_itl_p50_s")
    if median is None or facts.get("chunks_per_token_ratio", 0.0) < 0.9:
        return _items(
            {"decode": min(total, facts.get("server_itl_mean_s", total))}, total, "server_phases"
        )
    step = min(median, total)
    return _items({"decode": step, "stall": total - step}, total, "client_latency")


def _wall_budget(facts: Mapping[str, float], fit: Fit | None) -> list[BudgetItem]:
    rate = facts.get("completed_rate_per_s")
    if not rate or fit is None:
        return []
    engine, load = fit.engines[1], fit.load
    batch = max(1.0, facts.get("running_mean_count", solve(engine, load).batch))
    step = engine.base_s + engine.per_sequence_s * batch
    parts = {
        "prefill": load.input_tokens * engine.per_prefill_token_s,
        "decode": load.output_tokens * step / batch,
    }
    return _items(parts, 1.0 / rate, "step_fit, queue")


def _items(parts: Mapping[str, float], total: float, source: str) -> list[BudgetItem]:
    """Parts as shares of the total; what is missing is `unknown`, an excess scales all parts down."""
    known = sum(parts.values())
    scale = total / known if known > total else 1.0
    whole = {k: v * scale for k, v in parts.items() if v > 0}
    whole["unknown"] = max(0.0, total - known * scale)
    return [
        BudgetItem(
            component=name,
            label=COMPONENTS[name][0],
            class_=COMPONENTS[name][1],
            seconds=seconds,
            share=seconds / total,
            source=source,
        )
        for name, seconds in whole.items()
    ]


def ceilings(budget: list[BudgetItem]) -> list[Ceiling]:
    """The most that the target could gain if a part took no time: Amdahl with s = ∞, 1 / (1 − share)."""
    found = [
        Ceiling(component=b.component, share=b.share, gain_if_free=1.0 / max(1.0 - b.share, 1e-9))
        for b in budget
        if b.component != "unknown" and b.share >= 0.005
    ]
    return sorted(found, key=lambda c: -c.share)
