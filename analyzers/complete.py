"""A load and its timing from what was given of them: identities between rates, counts and times.

A log has rates and counts, a bench table latencies and throughput; each lacks what the other has. Little's law
and the definition of a rate give much of the rest. What nothing gives is assumed, and said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ASSUMED = {"input_mean_tokens": 500.0, "output_mean_tokens": 200.0}
"""A usual request, where nothing tells: tokens."""

Facts = dict[str, float]

SAME = {
    "output_tokens_per_s": ("generation_tokens_per_s", "log_generation_tokens_per_s"),
    "prompt_tokens_per_s": ("log_prompt_tokens_per_s",),
    "input_mean_tokens": ("log_input_mean_tokens",),
    "output_mean_tokens": ("log_output_mean_tokens",),
    "prefix_hit_ratio": ("log_prefix_hit_ratio",),
    "client_itl_mean_s": ("client_tpot_mean_s", "client_itl_p50_s", "client_tpot_p50_s"),
    "client_ttft_mean_s": ("client_ttft_p50_s",),
    "client_e2e_mean_s": ("client_e2e_p50_s",),
    "completed_rate_per_s": ("engine_completed_rate_per_s", "offered_rate_per_s"),
    "offered_rate_per_s": ("completed_rate_per_s",),
}
"""What stands in for a figure, best first: the same thing under another name, or a median for a mean."""


@dataclass(frozen=True)
class Completed:
    """The facts with what follows from them, and the names of those that were assumed."""

    facts: Facts
    assumed: tuple[str, ...]


def complete(given: Mapping[str, float]) -> Completed:
    """Fill in what the fit of a load needs, as far as the facts allow; measured values are never touched."""
    facts = dict(given)
    _derive(facts)
    assumed = []
    if _itl(facts) is not None or "output_tokens_per_s" in facts:
        for name, value in ASSUMED.items():
            if name not in facts:
                facts[name] = value
                assumed.append(name)
        _derive(facts)
    return Completed(facts, tuple(assumed))


def _derive(facts: Facts) -> None:
    """Apply the identities until none gives anything new."""
    for _ in range(4):
        before = len(facts)
        for name, others in SAME.items():
            _fill(facts, name, next((facts[o] for o in others if o in facts), None))
        for name, rule in IDENTITIES:
            if name not in facts:
                _fill(facts, name, rule(facts))
        if len(facts) == before:
            return


def _fill(facts: Facts, name: str, value: float | None) -> None:
    if name not in facts and value is not None and value > 0:
        facts[name] = value


def _itl(facts: Facts) -> float | None:
    return facts.get("server_itl_mean_s", facts.get("client_itl_mean_s"))


def _ratio(top: float | None, bottom: float | None) -> float | None:
    return None if top is None or not bottom else top / bottom


def _times(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a * b


def _answer(facts: Facts) -> float | None:
    """Tokens a second over requests a second, or the decode time in gaps."""
    by_rate = _ratio(facts.get("output_tokens_per_s"), facts.get("completed_rate_per_s"))
    if by_rate is not None:
        return by_rate
    whole, first, gap = (facts.get(f"client_{m}_mean_s") for m in ("e2e", "ttft", "itl"))
    if whole is None or first is None or not gap or whole <= first:
        return None
    return (whole - first) / gap + 1.0


def _batch(facts: Facts) -> float | None:
    """Little's law on decode; else those inside that do not wait, at most the cap."""
    decoding = _times(facts.get("output_tokens_per_s"), _itl(facts))
    inside = facts.get("inflight_mean_count")
    if decoding is None and inside is not None:
        decoding = inside - facts.get("waiting_mean_count", 0.0)
    if decoding is None:
        return None
    return max(1.0, min(decoding, facts.get("max_num_seqs_count", decoding)))


def _inside(facts: Facts) -> float | None:
    by_law = _times(facts.get("completed_rate_per_s"), facts.get("client_e2e_mean_s"))
    if by_law is not None:
        return by_law
    running = facts.get("running_mean_count")
    return None if running is None else running + facts.get("waiting_mean_count", 0.0)


def _waiting(facts: Facts) -> float | None:
    """Mean wait by Little's law; else the first token's time that no prefill explains, of those above the cap."""
    waiting = facts.get("waiting_mean_count")
    if waiting:
        return _ratio(waiting, facts.get("completed_rate_per_s"))
    inside, cap = facts.get("inflight_mean_count"), facts.get("max_num_seqs_count")
    if inside is None or cap is None or inside <= 1.05 * cap:
        return None
    return _times(facts.get("client_ttft_mean_s"), 1.0 - cap / inside)


def _whole(facts: Facts) -> float | None:
    """The first token, and the gaps that follow it."""
    first, gap = facts.get("client_ttft_mean_s"), facts.get("client_itl_mean_s")
    tokens = facts.get("output_mean_tokens")
    return (
        None if first is None or gap is None or not tokens else first + gap * max(0.0, tokens - 1.0)
    )


IDENTITIES: tuple[tuple[str, Callable[[Facts], float | None]], ...] = (
    ("output_mean_tokens", _answer),
    ("client_e2e_mean_s", _whole),
    (
        "input_mean_tokens",
        lambda f: _ratio(f.get("prompt_tokens_per_s"), f.get("completed_rate_per_s")),
    ),
    (
        "completed_rate_per_s",
        lambda f: _ratio(f.get("output_tokens_per_s"), f.get("output_mean_tokens")),
    ),
    (
        "completed_rate_per_s",
        lambda f: _ratio(f.get("inflight_mean_count"), f.get("client_e2e_mean_s")),
    ),
    (
        "output_tokens_per_s",
        lambda f: _times(f.get("completed_rate_per_s"), f.get("output_mean_tokens")),
    ),
    ("running_mean_count", _batch),
    (
        "client_itl_mean_s",
        lambda f: (
            None
            if _itl(f) is not None
            else _ratio(f.get("running_mean_count"), f.get("output_tokens_per_s"))
        ),
    ),
    ("inflight_mean_count", _inside),
    ("server_queue_mean_s", _waiting),
    ("wait_mean_s", lambda f: f.get("server_queue_mean_s")),
)
"""Signal → what gives it, in order; None where the facts do not."""
