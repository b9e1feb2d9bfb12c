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
from functools import lru_cache

UNLIMITED = 1e9
_MAX_MIX = 0.98  # the share of engine time that prefill may take before decode never ends


@dataclass(frozen=True)
class Load:
    """What arrives. `rate` [1/s] counts for an open loop, `concurrency` for a closed one.

    `prompt_percentiles` holds the 0th to the 100th percentile of the prompts [tokens], or nothing.
    """

    open_loop: bool
    rate: float
    concurrency: float
    input_tokens: float
    output_tokens: float
    arrival_spread: float = 1.0
    service_spread: float = 0.5
    horizon_s: float = 60.0
    prompt_percentiles: tuple[float, ...] = ()


@dataclass(frozen=True)
class Engine:
    """What serves. Seconds per pass, sequence and prefill token; limits in requests and tokens.

    `path_s` and `front_end_s` are seconds a request spends outside the engine loop.
    `kv_tokens` is what the cache holds; `recompute_tokens` a request are prefilled again after preemptions.
    """

    base_s: float
    per_sequence_s: float
    per_prefill_token_s: float
    max_num_seqs: float = UNLIMITED
    token_budget: float = UNLIMITED
    kv_tokens: float = UNLIMITED
    path_s: float = 0.0
    front_end_s: float = 0.0
    recompute_tokens: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """Means of one request, and the rates; `rho` is the offered rate over the capacity (open loop)."""

    path_s: float
    front_end_s: float
    wait_s: float
    prefill_s: float
    decode_s: float
    itl_s: float
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
    """Prefill seconds, decode seconds and mean inter-token seconds of one request at a batch and a rate.

    Prefill takes the share m of every second, so the mean pass is `step / (1 − m)`. A long pass breeds the
    next, by m each time: those after a request's own prefill are longer by a geometric sum. A prompt above
    the free token budget takes as many full passes as it needs.
    """
    own = _own(engine, load)
    mix = min(rate * own, _MAX_MIX)
    step, free = _step(engine, load, batch)
    mean = step / (1.0 - mix)
    full = step + engine.per_prefill_token_s * free
    passes = max(1.0, load.input_tokens / free)
    longest = full if passes > 1.0 else min(prefill_pass(step, own, mix), full)
    after = max(0.0, load.output_tokens - 1.0)
    echo = max(0.0, longest - mean) * mix / (1.0 - mix) * (1.0 - mix**after)
    decode = after * mean + echo
    return passes * longest, decode, decode / after if after > 0 else mean


def prefill_pass(step: float, own: float, mix: float) -> float:
    """Seconds of the pass that holds a prompt of `own` seconds, when prefill takes the share `mix` of time.

    With it go the prompts that arrived in the pass before, the one that this request met: `found_pass`.
    """
    return step + own + mix * found_pass(step, own, mix)


def found_pass(step: float, own: float, mix: float) -> float:
    """Mean length of the pass that an arrival finds in flight, E[T²] / E[T], seconds.

    A pass holds the prompts that arrived in the one before: a branching process with Poisson offspring, so
    E[T] = step / (1 − m) and Var[T] = own · m · E[T] / (1 − m²).
    """
    return step / (1.0 - mix) + own * mix / (1.0 - mix * mix)


def met(batch: float, limit: float) -> float:
    """The batch that a request runs in, itself included, when `batch` run on average in `limit` slots.

    With slots to spare it finds the others as they are on average and adds itself; full slots stay full.
    """
    return min(limit, 1.0 + batch * (1.0 - batch / (limit * limit)))


def _own(engine: Engine, load: Load) -> float:
    return (load.input_tokens + engine.recompute_tokens) * engine.per_prefill_token_s


def _step(engine: Engine, load: Load, batch: float) -> tuple[float, float]:
    """Seconds of a pass without prefill as a request meets it, and the prompt tokens it has room for.

    Those who decode leave prompts their share of the token budget at least: without new prompts nobody
    would decode for long.
    """
    share = load.input_tokens / max(load.input_tokens + load.output_tokens, 1.0)
    decoding = min(met(batch, slots(engine, load)), max(1.0, engine.token_budget * (1.0 - share)))
    return engine.base_s + engine.per_sequence_s * decoding, max(
        1.0, engine.token_budget - decoding
    )


def capacity(engine: Engine, load: Load) -> float:
    """Requests a second at full slots, by Little's law; bounded by the token budget of a pass."""
    c = slots(engine, load)
    own = _own(engine, load)
    prefill, decode, _ = service(engine, load, c, 0.0)
    low, high = 0.0, min(_MAX_MIX / own if own > 0 else math.inf, c / (prefill + decode))
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


@lru_cache(maxsize=4096)
def solve(engine: Engine, load: Load) -> Outcome:
    """The fixed point of an engine under a load.

    An open loop above capacity gets the mean wait of its horizon; a closed loop runs at its callers' pace.
    """
    top = capacity(engine, load)
    outside = engine.path_s + engine.front_end_s
    rate = min(load.rate, top) if load.open_loop else _closed_rate(engine, load, top, outside)
    batch = _batch_at(engine, load, rate)
    prefill, decode, itl = service(engine, load, batch, rate)
    if load.open_loop:
        wait = _open_wait(engine, load, top, batch, prefill + decode)
    else:
        wait = max(0.0, load.concurrency / max(rate, 1e-12) - outside - prefill - decode)
    return Outcome(
        path_s=engine.path_s,
        front_end_s=engine.front_end_s,
        wait_s=wait,
        prefill_s=prefill,
        decode_s=decode,
        itl_s=itl,
        batch=batch,
        rho=load.rate / top if load.open_loop else 1.0,
        capacity_per_s=top,
        requests_per_s=rate,
        output_tokens_per_s=rate * load.output_tokens,
    )


def itl_at(engine: Engine, load: Load, outcome: Outcome, quantile: float) -> float:
    """The gap between tokens at a quantile (0..1), seconds.

    Each prefill holds up every running sequence once, so a share `batch / (output − 1)` of the gaps carries
    a prompt; the longest of them make the tail. A pass takes no more of a prompt than the token budget.
    """
    step, free = _step(engine, load, outcome.batch)
    chunks = max(1.0, load.input_tokens / free)
    stalled = min(1.0, chunks * outcome.batch / max(1.0, load.output_tokens - 1.0))
    if stalled <= 1.0 - quantile or not load.prompt_percentiles:
        return step
    rank = 1.0 - (1.0 - quantile) / stalled
    prompt = load.prompt_percentiles[round(rank * (len(load.prompt_percentiles) - 1))]
    return step + engine.per_prefill_token_s * min(engine.token_budget, prompt)


def _batch_at(engine: Engine, load: Load, rate: float) -> float:
    """Batch at a rate up to the capacity: the smallest B with B = λ (prefill + decode(B)), by bisection."""
    low, high = 0.0, slots(engine, load)
    for _ in range(60):
        mid = (low + high) / 2
        prefill, decode, _ = service(engine, load, mid, rate)
        low, high = (mid, high) if rate * (prefill + decode) > mid else (low, mid)
    return high


def _closed_rate(engine: Engine, load: Load, top: float, outside: float) -> float:
    """Requests a second of a closed loop: N = X outside + B(X) while every caller finds a slot, else the top."""
    low, high = 0.0, top
    for _ in range(60):
        rate = (low + high) / 2
        batch = min(slots(engine, load), max(0.0, load.concurrency - rate * outside))
        prefill, decode, _ = service(engine, load, batch, rate)
        low, high = (rate, high) if rate * (prefill + decode) < batch else (low, rate)
    return low


def _open_wait(engine: Engine, load: Load, top: float, batch: float, service_s: float) -> float:
    """Mean wait: for a slot (M/G/c), for token budget, for the pass in flight; above capacity, the fluid limit."""
    rho = load.rate / top
    variability = (load.arrival_spread + load.service_spread) / 2
    fluid = max(0.0, rho - 1.0) * load.horizon_s / 2
    # over a finite run the queue of a critical server grows like a random walk: sqrt(variance of work)
    walk = 0.5 * math.sqrt(2 * variability * load.horizon_s / top)
    if rho >= 1.0:
        return math.hypot(fluid, walk)
    c = slots(engine, load)
    full = _queued(rho, c)
    steady = variability * full / (c * (1 - rho)) * service_s
    # the engine runs but has a slot: one pass has to end. A queue for a slot moves at the end of a pass anyway
    running = 1.0 - math.pow(1.0 - rho, c) if c < 1e4 else 1.0 - math.exp(-load.rate * service_s)
    in_flight = max(0.0, running - full) * _residual(engine, load, batch)
    return min(steady + _budget_wait(engine, load, batch), walk) + in_flight


def _residual(engine: Engine, load: Load, batch: float) -> float:
    """What is left, on average, of the pass that an arrival finds, seconds."""
    own = _own(engine, load)
    step, free = _step(engine, load, batch)
    found = found_pass(step, own, min(load.rate * own, _MAX_MIX))
    return min(found, step + engine.per_prefill_token_s * free) / 2


def _budget_wait(engine: Engine, load: Load, batch: float) -> float:
    """Mean wait for token budget: full passes serve prompts in order, each as many at once as it has room for."""
    if engine.token_budget >= UNLIMITED:
        return 0.0
    step, free = _step(engine, load, batch)
    at_once = max(1.0, free / load.input_tokens)
    whole = at_once * load.input_tokens / free * (step + engine.per_prefill_token_s * free)
    busy = min(load.rate * whole / at_once, _MAX_MIX)
    return load.arrival_spread / 2 * _queued(busy, at_once) / (at_once * (1.0 - busy)) * whole


def _queued(rho: float, servers: float) -> float:
    """Probability that all servers are taken, after Sakasegawa."""
    return math.pow(rho, math.sqrt(2.0 * (servers + 1.0)) - 1.0)
