"""What figures of a report say together about its steps: syncs, thread blocks, gaps, a proxy that holds frames."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from case_evidence import Evidence
from case_keys import is_time, ranged, span, unit_of
from case_sides import Sides

from whybound.collector.fact_values import read_fact

DECODE_ONLY = re.compile(r"(decode_(only|alone)|pure_decode|(no|without)_prefill)")
_SYNC = re.compile(r"(?<!a)sync|block(ing|ed)|dtoh|d2h|readback")
_EACH_STEP = re.compile(
    r"(per_|a_|each_)(step|token|iter\w*|cycle)|(step|iteration|chain|cycle)\w*[._]"
    r"|(cpu|host|python)_\w*(work|breakdown|parts|budget|path|timeline)\w*\."
)
_BATCH = re.compile(r"(decode_)?(batch(_size|_per_\w+)?|concurrency|bs|running)")


def steps(case: Mapping[str, Any], told: Sides, found: Evidence) -> None:
    """Fill in what figures of steps say together."""
    _syncs(told, found)
    _blocks(case, told, found)
    _gaps(told, found)
    _busy(found)
    _arms(told, found)


def _syncs(told: Sides, found: Evidence) -> None:
    """Time in synchronizing calls in a step, over the step."""
    step = _seconds(found, "step_s") or _seconds(found, "client_tpot_mean_s")
    parents: dict[tuple[str, ...], list[tuple[float, str]]] = {}
    for leaf in told.before:
        key = ".".join(leaf.path).lower()
        named = ".".join(leaf.path[-2:] if "per_token" in leaf.path[-1] else leaf.path[-1:]).lower()
        ends = span(leaf.value) if _SYNC.search(named) and is_time(key) else None
        if ends and _EACH_STEP.search(key) and not re.search(r"total|nccl|reduce|share", key):
            value = (
                sum(ends) / 2 * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}.get(unit_of(leaf.path), 1.0)
            )
            parents.setdefault(leaf.path[:-1], []).append((value, ".".join(leaf.path)))
    for parts in parents.values():
        whole = sum(value for value, _ in parts)
        if step and 0 < whole <= step:
            keys = " + ".join(key for _, key in parts)
            found.offer("sync_share_ratio", f"{whole / step:.4g}", keys)
            for _, key in parts:
                found.unmapped.pop(key, None)


def _blocks(case: Mapping[str, Any], told: Sides, found: Evidence) -> None:
    """Thread blocks that one request of a batch has, times the batch."""
    leaves = [(".".join(x.path), x.value) for x in told.before]
    leaves += [(f"workload.{k}", v) for k, v in (case.get("workload") or {}).items()]
    batch = next(
        (n for k, v in leaves if _BATCH.fullmatch(k.split(".")[-1].lower()) and (n := _middle(v))),
        None,
    )
    for key, value in leaves:
        each = (
            _middle(value)
            if re.search(r"(ctas?|thread_?blocks?)_per_(request|seq|row)", key.lower())
            else None
        )
        if batch and each:
            found.offer("kernel_blocks_count", f"{batch * each:g}", key)
            found.unmapped.pop(key, None)


def _gaps(told: Sides, found: Evidence) -> None:
    """Gaps between tokens under load over a step of decode alone; those at the client beside the engine's."""
    gap = _seconds(found, "client_itl_mean_s") or _seconds(found, "client_tpot_mean_s")
    for leaf in (*told.before, *told.other):
        key, ends = ".".join(leaf.path), span(leaf.value)
        if not DECODE_ONLY.search(key.lower()) or not is_time(key) or not ends or min(ends) <= 0:
            continue
        alone = sum(ends) / 2 * {"us": 1e-6, "ms": 1e-3}.get(unit_of(leaf.path), 1.0)
        if gap:
            found.offer("decode_slowdown_by_prefill_ratio", f"{gap / alone:.4g}", key)
            found.unmapped.pop(key, None)
    if "server_itl_mean_s" in found.facts and "client_itl_p50_s" in found.facts:
        found.offer(
            "client_itl_mean_s", found.facts["client_itl_p50_s"], found.told["client_itl_p50_s"]
        )


def _busy(found: Evidence) -> None:
    """A GPU is busy at least in the time in which its multiprocessors are."""
    told_ = found.facts.get("gpu_sm_ratio")
    fact = read_fact("gpu_sm_ratio", str(told_)) if told_ else None
    least = fact and (fact.low if fact.low is not None else fact.value)
    if least and least >= 0.9:
        found.offer("gpu_busy_ratio", ranged(least, 1.0), found.told["gpu_sm_ratio"])


def _arms(told: Sides, found: Evidence) -> None:
    """What the name of the slow arm says of a proxy: `nagle_on`, `no_delay_off`, `buffering_on`."""
    for leaf in told.before:
        for part in leaf.path[:-1]:
            if re.fullmatch(
                r"(with_)?nagle(_on)?|(tcp_?)?no_?delay_off|(proxy_)?buffering_on", part.lower()
            ):
                found.offer("proxy_buffering", "on", ".".join(leaf.path))


def _seconds(found: Evidence, signal: str) -> float | None:
    """A fact in seconds, the middle of its range; None without."""
    fact = read_fact(signal, str(found.facts[signal])) if signal in found.facts else None
    return fact.value if fact else None


def _middle(value: Any) -> float | None:
    """A figure, or the middle of its range."""
    ends = None if isinstance(value, dict) else span(value)
    return None if ends is None else sum(ends) / 2
