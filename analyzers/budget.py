"""Where the target's time goes: parts that sum to the whole, with an explicit unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..rules.model import BudgetItem, Ceiling
from .whatif import service

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..rules.model import Signal, Target
    from .posterior import Array
    from .verdict import Whatif

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

STEP_PARTS: dict[str, tuple[str, str | None]] = {
    "weights": ("reading weights", "memory"),
    "kv": ("reading the KV cache", "memory"),
    "compute": ("arithmetic", "compute"),
    "floor": ("kernels too small", "latency"),
    "link": ("collectives", "network"),
    "launch": ("launching kernels", "launch"),
    "host": ("scheduling on the host", "launch"),
    "other": ("sampling and upkeep", None),
}
COMPONENTS |= {
    f"{phase}_{part}": (f"{phase}: {label}", class_)
    for phase in ("prefill", "decode")
    for part, (label, class_) in STEP_PARTS.items()
}


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


@dataclass(frozen=True)
class Seconds:
    """A part of the target, with the bounds that the hypotheses give it where they differ."""

    mid: float
    low: float | None = None
    high: float | None = None


def time_budget(
    target: Target,
    signals: Mapping[str, Signal],
    model: Whatif | None,
    wait_after_cap_s: float | None,
) -> list[BudgetItem]:
    """The parts of the target's mean time; empty when the target has no time that was measured.

    Prefill and decode are split by what their passes are held up by, where a fit tells. For throughput it
    is the engine's wall time a request.
    """
    facts = {k: s.value for k, s in signals.items() if s.value is not None}
    if target.metric == "throughput":
        return _wall_budget(facts, model)
    if target.metric in ("itl", "tpot"):
        return _gap_budget(facts, target.metric, model)
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
    found = {name: Seconds(v) for name, v in parts.items()}
    if "server_prefill_mean_s" in facts:
        found |= _prefill(facts["server_prefill_mean_s"], model)
    if not first and "server_decode_mean_s" in facts:
        found |= _decode(facts["server_decode_mean_s"], model)
    return _items(found, total, "client_latency, server_phases, queue")


def _prefill(seconds: float, model: Whatif | None) -> dict[str, Seconds]:
    if model is None:
        return {"prefill": Seconds(seconds)}
    return _split("prefill", seconds, model.fit.prefill)


def _decode(seconds: float, model: Whatif | None) -> dict[str, Seconds]:
    """Decode, without what others' prompts add to its passes."""
    if model is None:
        return {"decode": Seconds(seconds)}
    stalled = seconds * float(np.median(stalled_share(model)))
    return {"stall": Seconds(stalled), **_split("decode", seconds - stalled, model.fit.decode)}


def stalled_share(model: Whatif) -> Array:
    """Share of a mean decode pass that prompts of others add to it, an array over the hypotheses."""
    base = model.outcome()
    load, engine = model.fit.load, model.fit.engine
    alone = service(engine, load, base.batch, 0.0).itl_s
    share: Array = np.clip(1.0 - alone / np.maximum(base.itl_s, 1e-12), 0.0, 0.95)
    return share


def _split(phase: str, seconds: float, shares: Mapping[str, Array]) -> dict[str, Seconds]:
    """A phase by what its passes are held up by; the parts that are shown sum to it."""
    means = {part: float(np.mean(share)) for part, share in shares.items()}
    kept = {part: mean for part, mean in means.items() if mean >= _LEAST}
    whole = seconds / sum(kept.values()) if kept else 0.0
    found = {}
    for part, mean in kept.items():
        low, high = np.quantile(shares[part], [0.1, 0.9])
        found[f"{phase}_{part}"] = Seconds(
            mean * whole, min(float(low), mean) * whole, max(float(high), mean) * whole
        )
    return found


_LEAST = 0.002
"""Shares of a phase below this are no line of a budget."""


def _gap_budget(facts: Mapping[str, float], metric: str, model: Whatif | None) -> list[BudgetItem]:
    total = facts.get(f"client_{metric}_mean_s", facts.get("server_itl_mean_s"))
    if total is None or total <= 0:
        return []
    median = facts.get("client_itl_p50_s")
    if median is None or facts.get("chunks_per_token_ratio", 0.0) < 0.9:
        step = min(total, facts.get("server_itl_mean_s", total))
        return _items(_decode(step, model), total, "server_phases")
    step = min(median, total)
    decode = (
        {"decode": Seconds(step)} if model is None else _split("decode", step, model.fit.decode)
    )
    return _items({"stall": Seconds(total - step), **decode}, total, "client_latency")


def _wall_budget(facts: Mapping[str, float], model: Whatif | None) -> list[BudgetItem]:
    """The engine's time a request: what its prompt adds, and its part of the passes it decodes in."""
    rate = facts.get("completed_rate_per_s")
    if not rate or model is None:
        return []
    base = model.outcome()
    batch = np.maximum(1.0, base.batch)
    taken = service(model.fit.engine, model.fit.load, base.batch, base.requests_per_s)
    prefill = float(np.median(taken.own_s))
    passes = model.fit.load.output_tokens / model.fit.engine.step.tokens_per_pass
    decode = float(np.median(passes * taken.step_s / batch))
    parts = {
        **_split("prefill", prefill, model.fit.prefill),
        **_split("decode", decode, model.fit.decode),
    }
    return _items(parts, 1.0 / rate, "fit, queue")


def _items(parts: Mapping[str, Seconds], total: float, source: str) -> list[BudgetItem]:
    """Parts as shares of the total; what is missing is `unknown`, an excess scales all parts down."""
    known = sum(p.mid for p in parts.values())
    scale = total / known if known > total else 1.0
    whole = {k: p for k, p in parts.items() if p.mid > 0}
    whole["unknown"] = Seconds(max(0.0, total - known * scale) / scale)
    return [
        BudgetItem(
            component=name,
            label=COMPONENTS[name][0],
            class_=COMPONENTS[name][1],
            seconds=p.mid * scale,
            share=p.mid * scale / total,
            source=source,
            low=None if p.low is None else p.low * scale,
            high=None if p.high is None else p.high * scale,
        )
        for name, p in whole.items()
    ]


def ceilings(budget: list[BudgetItem]) -> list[Ceiling]:
    """The most that the target could gain if a part took no time: Amdahl with s = ∞, 1 / (1 − share)."""
    found = [
        Ceiling(component=b.component, share=b.share, gain_if_free=1.0 / max(1.0 - b.share, 1e-9))
        for b in budget
        if b.component != "unknown" and b.share >= 0.005
    ]
    return sorted(found, key=lambda c: -c.share)
