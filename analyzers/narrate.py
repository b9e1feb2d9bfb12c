"""Words for a verdict: its sentence, what it rests on, the next measurement."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..rules.model import BudgetItem, PrecheckResult, Signal, Target, Verdict
from .verdict import NO_ACTION, NOTHING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

    from .verdict import Label


def seconds(value: float) -> str:
    """Three significant figures, in ms below a second."""
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def sentence(
    verdict: Verdict,
    label: Label,
    target: Target,
    facts: Mapping[str, float],
    prechecks: list[PrecheckResult],
    missing: list[str],
) -> str:
    """The verdict as one sentence with its number."""
    if verdict.withheld:
        broken = [p for p in prechecks if p.effect == "invalid"]
        return f"No verdict: the measurement is not sound. {broken[0].says}."
    if target.met:
        return f"The target is met ({target.text}): stop here."
    if label.reason == "rules" and verdict.class_ is not None:
        return f"{verdict.class_.capitalize()}: {label.says}."
    gains = label.gains
    if verdict.class_ == "scheduling" and label.policy is not None:
        return _scheduling(label, facts)
    if verdict.class_ == "queueing":
        return (
            f"Queueing: requests arrive at {facts.get('rho_capped_ratio', float('nan')):.2f} times the"
            f" capacity; half the load would make {target.text} {gains['load_half'].mid:.3g} times better."
        )
    if verdict.class_ is not None:
        return _resource(verdict, label, target, facts)
    if label.reason == NOTHING:
        half = gains.get("load_half")
        less = (
            f" Half the load would make it {half.mid:.3g} times better."
            if half is not None and half.mid >= NO_ACTION
            else ""
        )
        return (
            "No bottleneck stands out: no single change of server or path would improve the target by"
            f" 15 %.{less}"
        )
    if label.reason == "misfit":
        return (
            "Cannot tell: no step cost that this model on this GPU could have comes near what was measured."
            " The model, the GPU or a setting is not what it seems."
        )
    if label.reason == "split" and label.says:
        apart = f" apart from {_either(verdict.candidates[1:])}" if verdict.candidates[1:] else ""
        return f"Cannot tell {verdict.candidates[0]}{apart} yet: {label.says}."
    if label.reason == "no evidence":
        return "Cannot tell: nothing of what was told speaks for one class more than for another."
    if label.reason == "split":
        return (
            f"Cannot tell {_either(verdict.candidates)} apart: what was measured fits all of them"
            f"{'; ' + missing[0] if missing else ''}."
        )
    return f"Cannot tell: {missing[0] if missing else label.reason}."


def _resource(verdict: Verdict, label: Label, target: Target, facts: Mapping[str, float]) -> str:
    """The sentence of a class that a resource speaks for."""
    if verdict.class_ == "network" and label.axis == "link_x2":
        return (
            f"Network: collectives between GPUs take {_share(facts, 'decode_link')} of a decode step;"
            f" links twice as fast would make {target.text} {_times(label, 'link_x2')} better."
        )
    if verdict.class_ == "network":
        return (
            f"Network: {seconds(facts.get('network_ttft_s', 0.0))} of the time to first token and"
            f" {seconds(facts.get('network_e2e_s', 0.0))} of the end-to-end lie outside the server."
        )
    if verdict.class_ == "launch":
        return _launch(verdict, label, target, facts)
    if verdict.class_ == "memory" and label.axis == "kv_capacity_x2":
        return f"Memory: the KV cache is the limit, {facts.get('kv_used_max_ratio', float('nan')):.0%} used."
    if verdict.class_ == "memory":
        kv = facts.get("decode_kv_share_ratio", 0.0)
        weights = facts.get("decode_weights_share_ratio", 0.0)
        read = "the KV cache" if kv > weights else "weights"
        return (
            f"Memory: a decode step spends {max(kv, weights):.0%} of its time reading {read};"
            f" twice the bandwidth, or half the bytes, would make {target.text}"
            f" {_times(label, 'bandwidth_x2')} better."
        )
    if verdict.class_ == "compute":
        phase = "decode" if verdict.sub_cause == "decode above the ridge" else "prefill"
        return (
            f"Compute: arithmetic is the ceiling of {_share(facts, phase + '_compute')} of {phase}; twice"
            f" the FLOP/s, or half the work, would make {target.text} {_times(label, 'flops_x2')} better."
        )
    return (
        f"Latency: kernels too small to fill the device take {_share(facts, 'decode_floor')} of a decode"
        " step. Neither bandwidth nor arithmetic is the limit, and the host keeps up."
    )


def _share(facts: Mapping[str, float], part: str) -> str:
    return f"{facts.get(f'{part}_share_ratio', float('nan')):.0%}"


def _times(label: Label, axis: str) -> str:
    return f"{label.gains[axis].mid:.3g} times"


def _launch(verdict: Verdict, label: Label, target: Target, facts: Mapping[str, float]) -> str:
    if verdict.sub_cause == "front end" and target.metric in ("itl", "tpot"):
        return (
            "Launch: the front end holds tokens back. Of all tokens"
            f" {facts.get('bunched_tokens_ratio', float('nan')):.0%} reach the client together with another,"
            " and first tokens leave the server"
            f" {seconds(facts.get('front_end_ttft_work_mean_s', 0.0))} after the engine had them."
        )
    if verdict.sub_cause == "front end":
        return (
            f"Launch: the front end takes {facts.get('front_end_share_ratio', float('nan')):.0%} of the"
            " server's time, outside the engine."
        )
    part, what = (
        ("decode_launch", "launching kernels")
        if verdict.sub_cause == "kernel launch"
        else ("decode_host", "scheduling on the host")
    )
    return (
        f"Launch: the device waits for the host. {what.capitalize()} is the ceiling of"
        f" {_share(facts, part)} of a decode step; a host twice as fast would make {target.text}"
        f" {_times(label, 'host_half')} better."
    )


def _scheduling(label: Label, facts: Mapping[str, float]) -> str:
    policy = label.policy
    assert policy is not None
    if policy.name == "batch cap":
        cap = facts.get("max_num_seqs_count", float("nan"))
        kv = facts.get("kv_used_max_ratio")
        spare = f" and at most {kv:.0%} of the KV cache is used" if kv is not None else ""
        wait = facts.get("server_queue_mean_s")
        how_long = f" {seconds(wait)} on average" if wait else ""
        return (
            f"Scheduling: the batch cap of {cap:.0f} holds requests back. They wait{how_long}"
            f" while every slot is taken{spare}."
        )
    budget = facts.get("token_budget_tokens", float("nan"))
    if policy.value > budget:
        return (
            f"Scheduling: the token budget of {budget:.0f} cuts a prompt into"
            f" {facts.get('chunks_per_prompt_ratio', float('nan')):.0f} steps while slots stay free."
        )
    room = "whole prompts" if math.isnan(budget) else f"{budget:.0f} prompt tokens"
    return (
        f"Scheduling: long prompts block decode. A step may take {room}, and the worst"
        f" gaps between tokens are {facts.get('stalled_itl_ratio', float('nan')):.0f} times the median."
    )


def _either(names: list[str]) -> str:
    names = ["no bottleneck at all" if name == "none" else name for name in names]
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)


def exhibits(
    con: duckdb.DuckDBPyConnection, budget: list[BudgetItem], signals: Mapping[str, Signal]
) -> dict[str, Any]:
    """What the page draws; null where it was not measured."""
    phases = [
        {
            "phase": b.component,
            "label": b.label,
            "seconds": b.seconds,
            "class": b.class_,
            "source": b.source,
        }
        for b in budget
    ]
    return {
        "phases_mean": phases or None,
        "phases_tail": None,
        "kernels_top": None,
        "timeline_strip": None,
        "roofline": None,
        "nodes": None,
        "segments": None,
        "identity": {
            name: signals[name].value
            for name in ("phases_error_ratio", "tokens_error_ratio", "warmup_drift_ratio")
            if name in signals
        },
    }
