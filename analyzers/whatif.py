"""What a server under a given load would do: ceilings, Little's law and waiting, at a fixed point.

Pure functions over two records: the offered load and the engine, whose pass costs what `step_cost` says.
Every number may be an array, an element a hypothesis about the engine or an alternative to it: they are
solved together.

Sources: continuous-batching latency `E2E(λ) = A / (1 − βλ)` (Kong et al., arXiv 2605.15051); M/G/c wait
after Allen-Cunneen and Sakasegawa; overload over a horizon H after the fluid limit,
`W(t) = (ρ − 1) t`, mean `(ρ − 1) H / 2`: it depends on how long the run lasts, and is never a steady state.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .step_cost import Number, StepCost, step_s

if TYPE_CHECKING:
    from collections.abc import Sequence

UNLIMITED = 1e9
_MAX_MIX = 0.98  # the share of engine time that prefill may take before decode never ends
_HALVINGS = 44
_FULL = 65536.0  # tokens of a pass that no budget bounds
_TOGETHER = 3  # rounds to find how many prompts share a pass


@dataclass(frozen=True)
class Load:
    """What arrives. `rate` [1/s] counts for an open loop, `concurrency` for a closed one.

    `think_s` is what a caller of a closed loop pauses between an answer and its next request.
    `prompt_percentiles` holds the 0th to the 100th percentile of the prompts [tokens], or nothing.
    """

    open_loop: bool
    rate: Number
    concurrency: Number
    input_tokens: Number
    output_tokens: Number
    arrival_spread: Number = 1.0
    service_spread: Number = 0.5
    horizon_s: Number = 60.0
    think_s: Number = 0.0
    prompt_percentiles: tuple[float, ...] = ()


@dataclass(frozen=True)
class Engine:
    """What serves: the cost of a pass, and limits in requests and tokens.

    `path_s` is what a request spends between client and server. `front_end_s` is the work of one front end
    that serves requests in turn: with it grows a queue. `kv_tokens` is what the cache holds;
    `computed_ratio` of a prompt are not found in it; `recompute_tokens` a request are prefilled again after
    preemptions.
    """

    step: StepCost
    max_num_seqs: Number = UNLIMITED
    token_budget: Number = UNLIMITED
    kv_tokens: Number = UNLIMITED
    path_s: Number = 0.0
    front_end_s: Number = 0.0
    recompute_tokens: Number = 0.0
    computed_ratio: Number = 1.0


@dataclass(frozen=True)
class Outcome:
    """Means of one request, and the rates; `rho` is the offered rate over the capacity (open loop)."""

    path_s: Number
    front_end_s: Number
    wait_s: Number
    prefill_s: Number
    decode_s: Number
    itl_s: Number
    batch: Number
    rho: Number
    capacity_per_s: Number
    requests_per_s: Number
    output_tokens_per_s: Number

    @property
    def ttft_s(self) -> Number:
        """Path, front end, wait and prefill."""
        return self.path_s + self.front_end_s + self.wait_s + self.prefill_s

    @property
    def e2e_s(self) -> Number:
        """Time to first token plus decode."""
        return self.ttft_s + self.decode_s

    def part(self, index: Any) -> Outcome:
        """Of arrays, one element or a slice of them."""
        return Outcome(**{f.name: getattr(self, f.name)[index] for f in fields(self)})


World = tuple[Engine, Load]
"""An engine under a load: what the model solves."""


def stack(worlds: Sequence[World], n: int) -> World:
    """Worlds of `n` hypotheses each as one world of `len(worlds) · n`, to be solved at once.

    They must agree in what is no number: open or closed loop, and the prompts' percentiles.
    """
    engines, loads = [w[0] for w in worlds], [w[1] for w in worlds]
    step = {
        f.name: _joined([getattr(e.step, f.name) for e in engines], n) for f in fields(StepCost)
    }
    engine = {
        f.name: _joined([getattr(e, f.name) for e in engines], n)
        for f in fields(Engine)
        if f.name != "step"
    }
    load = {
        f.name: _joined([getattr(x, f.name) for x in loads], n)
        for f in fields(Load)
        if f.name not in {"open_loop", "prompt_percentiles"}
    }
    return Engine(step=StepCost(**step), **engine), replace(loads[0], **load)


def _joined(values: Sequence[Number], n: int) -> Number:
    return np.concatenate([np.broadcast_to(np.asarray(v, dtype=float), (n,)) for v in values])


def context_tokens(load: Load) -> Number:
    """Mean context of a running sequence: its prompt and on average half of its answer."""
    return load.input_tokens + load.output_tokens / 2


def slots(engine: Engine, load: Load) -> Number:
    """Requests that can run at once: the batch cap, or the KV cache over the mean context."""
    held = engine.kv_tokens / np.maximum(context_tokens(load), 1.0)
    return np.maximum(1.0, np.minimum(engine.max_num_seqs, held))


def uncapped(engine: Engine) -> Engine:
    """The same engine with a batch cap that no usual load reaches."""
    return replace(engine, max_num_seqs=np.maximum(engine.max_num_seqs, 1024.0))


@dataclass(frozen=True)
class Service:
    """What one request takes, and the terms that the waits need."""

    prefill_s: Number
    decode_s: Number
    itl_s: Number
    step_s: Number
    own_s: Number
    free: Number
    full_s: Number


def fresh_tokens(engine: Engine, load: Load) -> Number:
    """Tokens of the mean prompt that no cache holds, at least one: the last is always computed."""
    return np.maximum(1.0, load.input_tokens * engine.computed_ratio)


def computed_tokens(engine: Engine, load: Load) -> Number:
    """Prompt tokens a request that are really computed, those after preemptions included."""
    return fresh_tokens(engine, load) + engine.recompute_tokens


def service(engine: Engine, load: Load, batch: Number, rate: Number) -> Service:
    """What one request takes at a batch and a rate.

    Prefill takes the share m of every second, so the mean pass is `step / (1 − m)`. A long pass breeds the
    next, by m each time: those after a request's own prefill are longer by a geometric sum. A prompt above
    the free token budget takes as many full passes as it needs.
    """
    step, own, free, full = _passes(engine, load, batch, rate)
    mix = np.clip(rate * own, 0.0, _MAX_MIX)
    mean = step / (1.0 - mix)
    passes = np.maximum(1.0, fresh_tokens(engine, load) / free)
    alone = np.minimum(prefill_pass(step, own, mix), full)
    longest = np.where(passes > 1.0, full, alone)
    after = np.maximum(0.0, load.output_tokens - 1.0) / engine.step.tokens_per_pass
    echo = np.maximum(0.0, longest - mean) * mix / (1.0 - mix) * (1.0 - np.power(mix, after))
    decode = after * mean + echo
    tokens = np.maximum(load.output_tokens - 1.0, 1e-9)
    itl = np.where(after > 0, decode / tokens, mean)
    return Service(passes * longest, decode, itl, step, own, free, full)


def prefill_pass(step: Number, own: Number, mix: Number) -> Number:
    """Seconds of the pass that holds a prompt of `own` seconds, when prefill takes the share `mix` of time.

    With it go the prompts that arrived in the pass before, the one that this request met: `found_pass`.
    """
    return step + own + mix * found_pass(step, own, mix)


def found_pass(step: Number, own: Number, mix: Number) -> Number:
    """Mean length of the pass that an arrival finds in flight, E[T²] / E[T], seconds.

    A pass holds the prompts that arrived in the one before: a branching process with Poisson offspring, so
    E[T] = step / (1 − m) and Var[T] = own · m · E[T] / (1 − m²).
    """
    return step / (1.0 - mix) + own * mix / (1.0 - mix * mix)


def met(batch: Number, limit: Number) -> Number:
    """The batch that a request runs in, itself included, when `batch` run on average in `limit` slots.

    With slots to spare it finds the others as they are on average and adds itself; full slots stay full.
    """
    return np.minimum(limit, 1.0 + batch * (1.0 - batch / (limit * limit)))


def _passes(
    engine: Engine, load: Load, batch: Number, rate: Number
) -> tuple[Number, Number, Number, Number]:
    """Seconds of a pass without prefill, what one prompt adds, tokens free for prompts, a full pass's seconds.

    The batch is as a request meets it. Those who decode leave prompts their share of the token budget at
    least: without new prompts nobody would decode for long. A prompt above the free tokens is cut to them.
    Where a pass has a ceiling that hides one prompt it may not hide several: a prompt finds itself in a
    pass with as many others as arrive in a mean one, and adds its part of what they add together.
    """
    computed = fresh_tokens(engine, load)
    share = computed / np.maximum(computed + load.output_tokens, 1.0)
    limit = np.maximum(1.0, engine.token_budget * (1.0 - share))
    decoding = np.minimum(met(batch, slots(engine, load)), limit)
    free = np.maximum(1.0, engine.token_budget - decoding)
    context = decoding * context_tokens(load)
    step = step_s(engine.step, decoding, 0.0, context)
    chunk = np.minimum(computed, free)
    whole = step_s(engine.step, decoding, chunk, context)
    full = np.where(
        computed > free, whole, step_s(engine.step, decoding, np.minimum(free, _FULL), context)
    )
    own = (whole - step) * computed_tokens(engine, load) / chunk
    for _ in range(_TOGETHER):
        mean = step / (1.0 - np.clip(rate * own, 0.0, _MAX_MIX))
        tokens = np.minimum(chunk * (1.0 + rate * mean), free)
        together = step_s(engine.step, decoding, tokens, context)
        own = (together - step) * computed_tokens(engine, load) / tokens
    return step, own, free, full


def capacity(engine: Engine, load: Load) -> Number:
    """Requests a second at full slots, by Little's law; bounded by a pass's token budget and the front end."""
    c = slots(engine, load)
    idle = service(engine, load, c, 0.0)
    # a mixture's experts are read once for all prompts of a pass: in a full one each may add less
    room = np.minimum(idle.free, _FULL)
    filled = (idle.full_s - idle.step_s) * computed_tokens(engine, load) / room
    own = np.maximum(np.minimum(idle.own_s, filled), 1e-12)
    high = np.minimum(_MAX_MIX / own, c / (idle.prefill_s + idle.decode_s))
    low = np.zeros_like(high)
    for _ in range(_HALVINGS):
        mid = (low + high) / 2
        taken = service(engine, load, c, mid)
        below = mid * (taken.prefill_s + taken.decode_s) < c
        low, high = np.where(below, mid, low), np.where(below, high, mid)
    front = 1.0 / np.maximum(engine.front_end_s, 1e-9)
    return np.minimum(np.minimum(low, _budget_capacity(engine, load)), front)


def _budget_capacity(engine: Engine, load: Load) -> Number:
    """Requests a second when every pass is filled to the token budget."""
    tokens = computed_tokens(engine, load) + load.output_tokens
    share = computed_tokens(engine, load) / np.maximum(tokens, 1.0)
    decoding = np.minimum(slots(engine, load), engine.token_budget * (1.0 - share))
    full = step_s(
        engine.step, decoding, engine.token_budget * share, decoding * context_tokens(load)
    )
    limited = engine.token_budget / (tokens * np.maximum(full, 1e-12))
    return np.where(np.asarray(engine.token_budget) < UNLIMITED, limited, np.inf)


def solve(engine: Engine, load: Load) -> Outcome:
    """The fixed point of an engine under a load.

    An open loop above capacity gets the mean wait of its horizon; a closed loop runs at its callers' pace.
    """
    top = capacity(engine, load)
    rate = np.minimum(load.rate, top) if load.open_loop else _closed_rate(engine, load, top)
    batch = _batch_at(engine, load, rate)
    taken = service(engine, load, batch, rate)
    spent = taken.prefill_s + taken.decode_s
    if load.open_loop:
        wait = _open_wait(engine, load, top, batch, taken)
        front = front_end(engine, load, load.rate)
    else:
        front = np.minimum(front_end(engine, load, rate), load.concurrency * engine.front_end_s)
        outside = load.think_s + engine.path_s + front
        wait = np.maximum(0.0, load.concurrency / np.maximum(rate, 1e-12) - outside - spent)
    return Outcome(
        path_s=engine.path_s + np.zeros_like(rate),
        front_end_s=front + np.zeros_like(rate),
        wait_s=wait,
        prefill_s=taken.prefill_s,
        decode_s=taken.decode_s,
        itl_s=taken.itl_s,
        batch=batch,
        rho=load.rate / top if load.open_loop else np.ones_like(rate),
        capacity_per_s=top,
        requests_per_s=rate,
        output_tokens_per_s=rate * load.output_tokens,
    )


def front_end(engine: Engine, load: Load, rate: Number) -> Number:
    """Mean seconds in the front end at a rate: its work and the wait for those before, M/G/1 or fluid."""
    busy = rate * engine.front_end_s
    variability = (load.arrival_spread + _FRONT_END_SPREAD) / 2
    steady = variability * busy / np.maximum(1.0 - busy, 1e-3) * engine.front_end_s
    fluid = np.maximum(0.0, busy - 1.0) * load.horizon_s / 2
    walk = np.sqrt(variability * load.horizon_s * engine.front_end_s / 2)
    waited = np.where(busy >= 1.0, np.hypot(fluid, walk), np.minimum(steady, walk))
    return engine.front_end_s + waited


_FRONT_END_SPREAD = 0.3
"""Squared coefficient of variation of the front end's work: it follows the length of prompts."""


def front_end_work(measured_s: Number, load: Load, rate: float) -> Number:
    """The work of one request whose mean time in the front end is `measured_s`: `front_end` solved for it."""
    low, high = (
        np.zeros_like(np.asarray(measured_s, dtype=float)),
        np.asarray(measured_s, dtype=float),
    )
    engine = Engine(StepCost())
    for _ in range(_HALVINGS):
        mid = (low + high) / 2
        below = front_end(replace(engine, front_end_s=mid), load, rate) < measured_s
        low, high = np.where(below, mid, low), np.where(below, high, mid)
    return low


def itl_at(engine: Engine, load: Load, outcome: Outcome, quantile: float) -> Number:
    """The gap between tokens at a quantile (0..1), seconds.

    Each prefill holds up every running sequence once, so a share `batch / (output − 1)` of the gaps carries
    a prompt; the longest of them make the tail, or several that came during one long pass: each breeds the
    next with the share m of prefill in the time, so k together are m^(k-1) as rare. A pass takes no more
    than the token budget.
    """
    step, own, free, _ = _passes(engine, load, outcome.batch, outcome.requests_per_s)
    computed = fresh_tokens(engine, load)
    chunks = np.maximum(1.0, computed / free)
    stalled = np.minimum(1.0, chunks * outcome.batch / np.maximum(1.0, load.output_tokens - 1.0))
    if not load.prompt_percentiles:
        return step
    left = np.clip((1.0 - quantile) / np.maximum(stalled, 1e-9), 1e-9, 1.0)
    table = np.asarray(load.prompt_percentiles)
    longest = table[np.rint((1.0 - left) * (len(table) - 1)).astype(int)]
    mix = np.clip(outcome.requests_per_s * own, 1e-6, _MAX_MIX)
    together = (1.0 + np.log(left) / np.log(mix)) * load.input_tokens
    prompts = np.maximum(longest, together) * engine.computed_ratio
    context = outcome.batch * context_tokens(load)
    held = step_s(engine.step, outcome.batch, np.minimum(engine.token_budget, prompts), context)
    return np.where(stalled <= 1.0 - quantile, step, np.maximum(step, held))


def _batch_at(engine: Engine, load: Load, rate: Number) -> Number:
    """Batch at a rate up to the capacity: the smallest B with B = λ (prefill + decode(B)), by bisection."""
    high = np.broadcast_to(slots(engine, load), np.shape(rate)) + 0.0
    low = np.zeros_like(high)
    for _ in range(_HALVINGS):
        mid = (low + high) / 2
        taken = service(engine, load, mid, rate)
        above = rate * (taken.prefill_s + taken.decode_s) > mid
        low, high = np.where(above, mid, low), np.where(above, high, mid)
    return high


def _closed_rate(engine: Engine, load: Load, top: Number) -> Number:
    """Requests a second of a closed loop: N = X outside + B(X) while every caller finds a slot, else the top."""
    low, high = np.zeros_like(top), top
    for _ in range(_HALVINGS):
        rate = (low + high) / 2
        front = np.minimum(front_end(engine, load, rate), load.concurrency * engine.front_end_s)
        outside = load.think_s + engine.path_s + front
        batch = np.minimum(slots(engine, load), np.maximum(0.0, load.concurrency - rate * outside))
        taken = service(engine, load, batch, rate)
        below = rate * (taken.prefill_s + taken.decode_s) < batch
        low, high = np.where(below, rate, low), np.where(below, high, rate)
    return low


def _open_wait(engine: Engine, load: Load, top: Number, batch: Number, taken: Service) -> Number:
    """Mean wait: for a slot (M/G/c), for token budget, for the pass in flight; above capacity, the fluid limit."""
    rho = load.rate / top
    variability = (load.arrival_spread + load.service_spread) / 2
    fluid = np.maximum(0.0, rho - 1.0) * load.horizon_s / 2
    # over a finite run the queue of a critical server grows like a random walk: sqrt(variance of work)
    walk = 0.5 * np.sqrt(2 * variability * load.horizon_s / top)
    c = slots(engine, load)
    below = np.minimum(rho, 1.0 - 1e-9)
    full = _queued(below, c)
    spent = taken.prefill_s + taken.decode_s
    steady = variability * full / (c * (1.0 - below)) * spent
    # the engine runs but has a slot: one pass has to end. A queue for a slot moves at the end of a pass anyway
    running = np.where(
        c < 1e4,
        1.0 - np.power(1.0 - below, np.minimum(c, 1e4)),
        1.0 - np.exp(-load.rate * spent),
    )
    in_flight = np.maximum(0.0, running - full) * _residual(load, taken)
    wait = np.minimum(steady + _budget_wait(engine, load, taken), walk) + in_flight
    return np.where(rho >= 1.0, np.hypot(fluid, walk), wait)


def _residual(load: Load, taken: Service) -> Number:
    """What is left, on average, of the pass that an arrival finds, seconds."""
    mix = np.minimum(load.rate * taken.own_s, _MAX_MIX)
    found = found_pass(taken.step_s, taken.own_s, mix)
    return np.minimum(found, taken.full_s) / 2


def _budget_wait(engine: Engine, load: Load, taken: Service) -> Number:
    """Mean wait for token budget: full passes serve prompts in order, each as many at once as it has room for."""
    computed = fresh_tokens(engine, load)
    at_once = np.maximum(1.0, taken.free / computed)
    full = taken.step_s + taken.own_s * taken.free / computed
    whole = at_once * computed / taken.free * full
    busy = np.minimum(load.rate * whole / at_once, _MAX_MIX)
    wait = load.arrival_spread / 2 * _queued(busy, at_once) / (at_once * (1.0 - busy)) * whole
    return np.where(np.asarray(engine.token_budget) < UNLIMITED, wait, 0.0)


def _queued(rho: Number, servers: Number) -> Number:
    """Probability that all servers are taken, after Sakasegawa."""
    return np.power(rho, np.sqrt(2.0 * (servers + 1.0)) - 1.0)
