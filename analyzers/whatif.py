"""What a server under a given load would do: ceilings, Little's law and waiting, at a fixed point.

Pure functions over two records: the offered load and the engine. The pass time is affine,
`T(B) = base + per_sequence × B`, prefill adds `per_prefill_token` a token to the passes it rides in.

Sources: continuous-batching latency `E2E(λ) = A / (1 − βλ)` (Kong et al., arXiv 2605.15051); M/G/c wait
after Allen-Cunneen and Sakasegawa; overload over a horizon H after the fluid limit,
`W(t) = (ρ − 1) t`, mean `(ρ − 1) H / 2`: it depends on how long the run lasts, and is never a steady state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

UNLIMITED = 1e9
_MAX_MIX = 0.98  # the share of engine time that prefill may take before decode never ends


@dataclass(frozen=True)
class Load:
    """What arrives. `rate` [1/s] counts for an open loop, `concurrency` for a closed one."""

    open_loop: bool
    rate: float
    concurrency: float
    input_tokens: float
    output_tokens: float
    arrival_spread: float = 1.0
    service_spread: float = 0.5
    horizon_s: float = 60.0
    longest_prompt_tokens: float = 0.0


@dataclass(frozen=True)
class Engine:
    """What serves. Seconds per pass, sequence and prefill token; limits in requests and tokens.

    `path_s` and `front_end_s` are seconds a request spends outside the engine loop.
    `kv_tokens` is what the cache holds.
    """

    base_s: float
    per_sequence_s: float
    per_prefill_token_s: float
    max_num_seqs: float = UNLIMITED
    token_budget: float = UNLIMITED
    kv_tokens: float = UNLIMITED
    path_s: float = 0.0
    front_end_s: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """Means of one request, and the rates.

    `rho` is the offered rate over the capacity (open loop). `stall_s` is the longest usual gap between
    tokens: a pass that carries as much of the longest prompt as the token budget lets in.
    """

    path_s: float
    front_end_s: float
    wait_s: float
    prefill_s: float
    decode_s: float
    itl_s: float
    stall_s: float
    batch: float
    rho: float
    capacity_per_s: float
    requests_per_s: float
    output_tokens_per_s: float

    @property
    def ttft_s(self) -> float:
        """Path, front end, wait and prefill."""
        return self.path_s + self.front_end_s + self.wait_s + self.prefill_s

    @property
    def e2e_s(self) -> float:
        """Time to first token plus decode."""
        return self.ttft_s + self.decode_s


def slots(engine: Engine, load: Load) -> float:
    """Requests that can run at once: the batch cap, or the KV cache over the mean context.

    The context of a running sequence is its prompt and on average half of its answer.
    """
    context = load.input_tokens + load.output_tokens / 2
    return max(1.0, min(engine.max_num_seqs, engine.kv_tokens / max(context, 1.0)))


def uncapped(engine: Engine) -> Engine:
    """The same engine with a batch cap that no usual load reaches."""
    return replace(engine, max_num_seqs=max(engine.max_num_seqs, 1024.0))


def service(engine: Engine, load: Load, batch: float, rate: float) -> tuple[float, float, float]:
    """Prefill seconds, decode seconds and inter-token seconds of one request at a batch and a rate.

    Prefill of others takes `rate × input × per_prefill_token` of every second, so a decode pass is
    stretched by `1 / (1 − that)`; a prompt longer than the free token budget needs several passes.
    """
    own = load.input_tokens * engine.per_prefill_token_s
    mix = min(rate * own, _MAX_MIX)
    step = engine.base_s + engine.per_sequence_s * batch
    chunks = max(1.0, math.ceil(load.input_tokens / max(1.0, engine.token_budget - batch)))
    itl = step / (1.0 - mix)
    return chunks * step + own, max(0.0, load.output_tokens - 1.0) * itl, itl


def capacity(engine: Engine, load: Load) -> float:
    """Requests a second at full slots, by Little's law; bounded by the token budget of a pass."""
    c = slots(engine, load)
    own = load.input_tokens * engine.per_prefill_token_s
    low, high = 0.0, (_MAX_MIX / own if own > 0 else 1e6)
    for _ in range(60):
        mid = (low + high) / 2
        prefill, decode, _ = service(engine, load, c, mid)
        low, high = (mid, high) if mid * (prefill + decode) < c else (low, mid)
    return min(low, _budget_capacity(engine, load))


def _budget_capacity(engine: Engine, load: Load) -> float:
    """Requests a second when every pass is filled to the token budget."""
    if engine.token_budget >= UNLIMITED:
        return math.inf
    tokens = load.input_tokens + load.output_tokens
    share = load.input_tokens / max(tokens, 1.0)
    decoding = min(slots(engine, load), engine.token_budget * (1.0 - share))
    full = (
        engine.base_s
        + engine.per_sequence_s * decoding
        + engine.per_prefill_token_s * engine.token_budget * share
    )
    return engine.token_budget / (tokens * full) if full > 0 else math.inf


def solve(engine: Engine, load: Load) -> Outcome:
    """The fixed point of an engine under a load.

    An open loop above capacity gets the mean wait of its horizon; a closed loop runs at its callers' pace.
    """
    top = capacity(engine, load)
    outside = engine.path_s + engine.front_end_s
    rate = min(load.rate, top) if load.open_loop else top
    batch = slots(engine, load)
    if load.open_loop:
        batch = _batch_at(engine, load, rate) if load.rate < top else batch
    elif load.concurrency <= batch:
        rate, batch = _closed_below_slots(engine, load, top, outside)
    prefill, decode, itl = service(engine, load, batch, rate)
    if load.open_loop:
        wait = _open_wait(engine, load, top, prefill + decode) + itl / 2
    else:
        wait = max(0.0, load.concurrency / max(rate, 1e-12) - outside - prefill - decode)
    return Outcome(
        path_s=engine.path_s,
        front_end_s=engine.front_end_s,
        wait_s=wait,
        prefill_s=prefill,
        decode_s=decode,
        itl_s=itl,
        stall_s=engine.base_s
        + engine.per_sequence_s * batch
        + engine.per_prefill_token_s
        * min(engine.token_budget, max(load.longest_prompt_tokens, load.input_tokens)),
        batch=batch,
        rho=load.rate / top if load.open_loop else 1.0,
        capacity_per_s=top,
        requests_per_s=rate,
        output_tokens_per_s=rate * load.output_tokens,
    )


def _batch_at(engine: Engine, load: Load, rate: float) -> float:
    """Batch at a rate below capacity: B = λ (prefill + decode(B)), by iteration from below."""
    batch = 0.0
    limit = slots(engine, load)
    for _ in range(200):
        prefill, decode, _ = service(engine, load, batch, rate)
        following = min(limit, rate * (prefill + decode))
        if abs(following - batch) < 1e-6 * max(1.0, batch):
            break
        batch = following
    return max(batch, min(1.0, limit))


def _closed_below_slots(
    engine: Engine, load: Load, top: float, outside: float
) -> tuple[float, float]:
    """Rate and batch of a closed loop whose callers all find a slot: N = X (outside + service)."""
    low, high = 0.0, top
    batch = load.concurrency
    for _ in range(60):
        rate = (low + high) / 2
        prefill, decode, _ = service(engine, load, batch, rate)
        batch = min(load.concurrency, max(1.0, rate * (prefill + decode)))
        if rate * (outside + prefill + decode) < load.concurrency:
            low = rate
        else:
            high = rate
    return low, batch


def _open_wait(engine: Engine, load: Load, top: float, service_s: float) -> float:
    """Mean wait for a slot: M/G/c below capacity, the fluid limit above, the smaller of both near it."""
    rho = load.rate / top
    variability = (load.arrival_spread + load.service_spread) / 2
    fluid = max(0.0, rho - 1.0) * load.horizon_s / 2
    # over a finite run the queue of a critical server grows like a random walk: sqrt(variance of work)
    walk = 0.5 * math.sqrt(2 * variability * load.horizon_s / top)
    if rho >= 1.0:
        return fluid + walk
    c = slots(engine, load)
    steady = variability * math.pow(rho, math.sqrt(2 * (c + 1)) - 1) / (c * (1 - rho)) * service_s
    return min(steady, walk)
