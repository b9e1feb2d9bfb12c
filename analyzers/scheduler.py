"""The pass-level scheduler: what one engine step does with its requests (vLLM V1 semantics).

Pure state without a clock: the replay drives it with a fitted step cost, the emulated engine with
its own. One step ("pass") is in flight at a time. The clauses, after vLLM's scheduler
(`v1/core/sched/scheduler.py`):

* running requests first, in order of admission, then waiting ones, all from one token budget;
* a prompt is cut to the budget (chunked prefill), or admitted whole or not at all without it;
* prefix hits take KV blocks but no budget;
* when KV blocks run out, the last admitted request (by priority: the least important, then latest)
  is preempted: its blocks go, it waits at its old place and recomputes prompt and output; a pass
  that preempts admits nobody;
* the pass that finishes the prompt emits the first output token.

Blocks are counted, not named, so a block shared by a prefix hit is counted once for each holder.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ..errors import WhyboundError

Reason = Literal["no_slot", "no_budget", "no_block", "none"]
"""Why the first waiting request was not admitted; after a preemption in the pass: `no_block`."""

State = Literal["new", "waiting", "running", "finished", "aborted"]


@dataclass(frozen=True)
class Policy:
    """The engine's scheduling settings.

    Attributes:
        max_num_seqs: requests that may run at once, ≥ 1.
        token_budget: tokens one pass may process, prefill and decode together, ≥ 1.
        num_blocks: KV blocks in all, ≥ 1.
        block_size: tokens a KV block holds, ≥ 1.
        chunked_prefill: cut prompts to the budget; otherwise a prompt above the budget is refused.
        priority: order by `Request.priority` (lower first), then arrival; else by arrival alone.
        long_prefill_threshold: most prompt tokens of one request in one pass; 0 is no limit. It is
            ignored without chunked prefill.
        watermark_blocks: blocks that must stay free after an admission, while anything else runs.
        reserve_full_prompt: admit a prompt only when all of it would fit into the free blocks,
            not just its first chunk (vLLM's `scheduler_reserve_full_isl`, on by default there).
    """

    max_num_seqs: int
    token_budget: int
    num_blocks: int
    block_size: int = 16
    chunked_prefill: bool = True
    priority: bool = False
    long_prefill_threshold: int = 0
    watermark_blocks: int = 0
    reserve_full_prompt: bool = True

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "token_budget", "num_blocks", "block_size"):
            if getattr(self, name) < 1:
                raise WhyboundError(
                    f"scheduling policy: {name} is {getattr(self, name)}; it must be at least 1"
                )
        for name in ("long_prefill_threshold", "watermark_blocks"):
            if getattr(self, name) < 0:
                raise WhyboundError(
                    f"scheduling policy: {name} is {getattr(self, name)}; it must not be negative"
                )


@dataclass(slots=True, eq=False)
class Request:
    """One request: what it asks for, and, below `priority`, what the scheduler keeps about it.

    Attributes:
        id: the caller's own.
        prompt_tokens: ≥ 1.
        output_tokens: tokens it will generate, ≥ 1.
        arrival_s: used by `simulate` alone, on the caller's clock.
        hit_tokens: prompt tokens found in the prefix cache at each admission; the last prompt token
            is always computed, so at most `prompt_tokens - 1` count.
        priority: lower is more important; ignored unless the policy orders by it.
        computed: tokens whose keys and values are in the cache now.
        generated: output tokens emitted so far.
        length: prompt plus generated tokens.
        goal: length at the last admission; below it the request is in prefill (or recomputes).
    """

    id: int
    prompt_tokens: int
    output_tokens: int
    arrival_s: float = 0.0
    hit_tokens: int = 0
    priority: int = 0
    computed: int = field(default=0, init=False)
    generated: int = field(default=0, init=False)
    length: int = field(default=0, init=False)
    goal: int = field(default=0, init=False)
    blocks: int = field(default=0, init=False)
    preemptions: int = field(default=0, init=False)
    rank: tuple[int, int] = field(default=(0, 0), init=False)
    state: State = field(default="new", init=False)


@dataclass(slots=True)
class Pass:
    """One engine step: who gets how many tokens, and the sums that a step cost needs.

    Attributes:
        scheduled: requests with their tokens in this pass, in order of scheduling.
        admitted: those of them that left the waiting queue for it, resumed ones included.
        preempted: requests that lost their blocks when it was put together.
        prefill_tokens: prompt (or recomputed) tokens; `decode_count` more tokens are decoded.
        decode_context_tokens: sum over decoding requests of the KV tokens they attend to.
        prefill_context_tokens: the same over chunks: each chunk reads its whole context once.
        prefill_pairs: causal query-key pairs of the chunks; attention FLOPs are proportional.
        waiting_reason: why the first request still waiting was not admitted; `none`: nobody waits.
        running_count: requests that hold a slot, scheduled or not.
        free_blocks: after this pass's allocations.
    """

    scheduled: list[tuple[Request, int]] = field(default_factory=list)
    admitted: list[Request] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    prefill_tokens: int = 0
    prefill_count: int = 0
    decode_count: int = 0
    decode_context_tokens: int = 0
    prefill_context_tokens: int = 0
    prefill_pairs: int = 0
    waiting_reason: Reason = "none"
    running_count: int = 0
    waiting_count: int = 0
    free_blocks: int = 0

    @property
    def context_tokens(self) -> int:
        """KV tokens attended to, prefill and decode together."""
        return self.decode_context_tokens + self.prefill_context_tokens


class Outcome(NamedTuple):
    """What a completed pass gave: requests that emitted one token each, and those that are done."""

    emitted: list[Request]
    finished: list[Request]


class Scheduler:
    """The engine's queue, batch and block count.

    Args:
        policy: the settings.
        lookup: prefix-hit tokens of a request, asked at each admission; None: its own `hit_tokens`.
    """

    def __init__(self, policy: Policy, lookup: Callable[[Request], int] | None = None) -> None:
        self.policy = policy
        self.free_blocks = policy.num_blocks
        self.running: list[Request] = []
        self.waiting_count = 0
        self._heap: list[tuple[tuple[int, int], Request]] = []
        self._added = 0
        self._lookup = lookup
        self._in_flight = False

    @property
    def running_count(self) -> int:
        """Requests that hold a slot."""
        return len(self.running)

    def refusal(self, request: Request) -> str | None:
        """Why this request could never finish under the policy; None when it can."""
        policy = self.policy
        if request.prompt_tokens < 1 or request.output_tokens < 1:
            return "a request needs at least one prompt token and one output token"
        # The last output token is never fed back, so its key and value are never stored.
        most_tokens = request.prompt_tokens + request.output_tokens - 1
        need = -(-most_tokens // policy.block_size)
        if need > policy.num_blocks:
            return f"needs {need} KV blocks; the cache has {policy.num_blocks}"
        if not policy.chunked_prefill and request.prompt_tokens > policy.token_budget:
            return (
                f"a prompt of {request.prompt_tokens} tokens exceeds the token budget of "
                f"{policy.token_budget} and chunked prefill is off"
            )
        return None

    def add(self, request: Request) -> str | None:
        """Queue a new request; a refused one is left as it was, and the reason returned."""
        reason = self.refusal(request)
        if reason is None:
            self._added += 1
            request.rank = (request.priority if self.policy.priority else 0, self._added)
            request.length = request.prompt_tokens
            self._wait(request)
        return reason

    def abort(self, request: Request) -> None:
        """Forget a request at once, wherever it is; a pass in flight ignores it. Idempotent."""
        if request.state == "running":
            self.running.remove(request)
            self._release(request)
        elif request.state == "waiting":
            self.waiting_count -= 1  # its heap entry is skipped when it surfaces
        else:
            return
        request.state = "aborted"

    def schedule(self) -> Pass | None:
        """Put the next pass together; None when nothing runs and nothing waits.

        Raises:
            RuntimeError: the previous pass was not completed.
        """
        if self._in_flight:
            raise RuntimeError("schedule() was called before the previous pass was completed")
        step = Pass()
        while True:
            evictions = len(step.preempted)
            budget = self._continue_running(step)
            evicted = len(step.preempted) > evictions
            step.waiting_reason = "no_block" if evicted else self._admit(step, budget)
            # Under priorities a request may evict itself before anyone was scheduled: vLLM runs an
            # empty step then; here the pass is put together again, with those blocks free.
            if step.scheduled or not evicted:
                break
        if not step.scheduled:
            assert not self.waiting_count, (
                "an admissible request was not scheduled on an idle engine"
            )
            return None
        self._tally(step)
        self._in_flight = True
        return step

    def complete(self, step: Pass) -> Outcome:
        """Account for a pass that ran: tokens computed, tokens emitted, finished requests freed."""
        self._in_flight = False
        emitted: list[Request] = []
        finished: list[Request] = []
        for request, tokens in step.scheduled:
            if request.state != "running":
                continue  # aborted while the pass was in flight
            request.computed += tokens
            if request.computed == request.length:
                request.generated += 1
                request.length += 1
                emitted.append(request)
                if request.generated == request.output_tokens:
                    request.state = "finished"
                    self._release(request)
                    finished.append(request)
        if finished:
            self.running = [r for r in self.running if r.state == "running"]
        return Outcome(emitted, finished)

    # ---------------------------------------------------------------- inside a pass

    def _continue_running(self, step: Pass) -> int:
        """Schedule running requests, evicting others for blocks; what is left of the budget."""
        policy, running, scheduled = self.policy, self.running, step.scheduled
        budget, size = policy.token_budget, policy.block_size
        index = 0
        while index < len(running) and budget > 0:
            request = running[index]
            tokens = request.length - request.computed
            if tokens > 1:
                tokens = self._chunk(tokens, budget)
            after = request.computed + tokens
            if after > request.blocks * size:
                need = -(-after // size) - request.blocks
                while need > self.free_blocks and request.state == "running":
                    returned = self._evict(step)
                    if returned:  # a request already scheduled in this pass gave its tokens back
                        budget += returned
                        index -= 1
                if request.state != "running":
                    break  # it was its own victim
                self.free_blocks -= need
                request.blocks += need
            scheduled.append((request, tokens))
            budget -= tokens
            index += 1
        return budget

    def _chunk(self, tokens: int, budget: int) -> int:
        threshold = self.policy.long_prefill_threshold
        if threshold and self.policy.chunked_prefill and tokens > threshold:
            tokens = threshold
        return min(tokens, budget)

    def _evict(self, step: Pass) -> int:
        """Preempt one running request; tokens that it already had in this pass, else 0."""
        returned = 0
        if self.policy.priority:
            victim = max(self.running, key=lambda r: r.rank)
            self.running.remove(victim)
            for place, (request, tokens) in enumerate(step.scheduled):
                if request is victim:
                    del step.scheduled[place]
                    returned = tokens
                    break
        else:
            victim = self.running.pop()
        self._release(victim)
        victim.computed = 0
        victim.preemptions += 1
        step.preempted.append(victim)
        self._wait(victim)
        return returned

    def _admit(self, step: Pass, budget: int) -> Reason:
        """Move waiting requests into the pass; why the first that is left was not."""
        policy, size = self.policy, self.policy.block_size
        while True:
            request = self._first_waiting()
            if request is None:
                return "none"
            if len(self.running) >= policy.max_num_seqs:
                return "no_slot"
            if budget <= 0:
                return "no_budget"
            hit = request.hit_tokens if self._lookup is None else self._lookup(request)
            hit = min(hit, request.prompt_tokens - 1)
            tokens = request.length - hit
            # Without chunking a first admission is whole or not at all. A recompute can outgrow the
            # budget by what was generated; it is cut, since it could never come back otherwise.
            if not policy.chunked_prefill and budget < tokens <= policy.token_budget:
                return "no_budget"
            tokens = self._chunk(tokens, budget)
            need = -(-(hit + tokens) // size)
            asked = -(-request.length // size) if policy.reserve_full_prompt else need
            if self.running:  # with nobody else running, waiting for blocks would be for ever
                asked += policy.watermark_blocks
            if asked > self.free_blocks:
                return "no_block"
            heapq.heappop(self._heap)
            self.waiting_count -= 1
            self.free_blocks -= need
            request.state = "running"
            request.blocks = need
            request.computed = hit
            request.goal = request.length
            self.running.append(request)
            step.scheduled.append((request, tokens))
            step.admitted.append(request)
            budget -= tokens

    def _first_waiting(self) -> Request | None:
        heap = self._heap
        while heap and heap[0][1].state != "waiting":
            heapq.heappop(heap)
        return heap[0][1] if heap else None

    def _wait(self, request: Request) -> None:
        # A preempted request keeps its rank, so it comes back before all that arrived after it.
        request.state = "waiting"
        self.waiting_count += 1
        heapq.heappush(self._heap, (request.rank, request))

    def _release(self, request: Request) -> None:
        self.free_blocks += request.blocks
        request.blocks = 0

    def _tally(self, step: Pass) -> None:
        decode_count = decode_context = 0
        for request, tokens in step.scheduled:
            computed = request.computed
            if computed >= request.goal:
                decode_count += 1
                decode_context += computed + 1
            else:
                step.prefill_count += 1
                step.prefill_tokens += tokens
                step.prefill_context_tokens += computed + tokens
                step.prefill_pairs += tokens * computed + tokens * (tokens + 1) // 2
        step.decode_count = decode_count
        step.decode_context_tokens = decode_context
        step.running_count = len(self.running)
        step.waiting_count = self.waiting_count
        step.free_blocks = self.free_blocks


class Timing(NamedTuple):
    """When one simulated request met its stations, in seconds on the clock of `arrival_s`.

    All but `id`, `arrival_s` and `refused` are None for a refused request. The four waits sum to
    `scheduled_s - arrival_s`: for the pass in flight at arrival, then for a slot, for token budget
    and for KV blocks, each being the time of passes in which that held back the head of the queue.
    Waiting after a preemption is not queueing: as in vLLM it stays inside prefill or decode.
    """

    id: int
    arrival_s: float
    scheduled_s: float | None
    first_token_s: float | None
    end_s: float | None
    wait_busy_s: float | None
    wait_slot_s: float | None
    wait_budget_s: float | None
    wait_block_s: float | None
    preemptions: int | None
    refused: str | None


Observer = Callable[[float, float, Pass, Outcome], None]
"""Called after each pass with its start and end in seconds, the pass, and what it gave."""


def simulate(
    requests: Iterable[Request],
    policy: Policy,
    step_cost: Callable[[Pass], float],
    observe: Observer | None = None,
) -> list[Timing]:
    """Run requests through the scheduler, pass by pass, until all have finished.

    Args:
        requests: in any order; they are copied, not changed, so one list serves many runs.
        policy: the settings.
        step_cost: seconds that a pass takes, ≥ 0.
        observe: sees every pass, e.g. to collect inter-token gaps.

    Returns:
        One timing a request, in order of arrival (ties in the given order); empty for none.

    Raises:
        WhyboundError: the step cost was negative or not a number.
    """
    copies = [
        Request(r.id, r.prompt_tokens, r.output_tokens, r.arrival_s, r.hit_tokens, r.priority)
        for r in sorted(requests, key=lambda r: r.arrival_s)
    ]
    scheduler = Scheduler(policy)
    visits = [_Visit(r) for r in copies]
    by_request = dict(zip(copies, visits, strict=True))
    lost = {"no_slot": 0.0, "no_budget": 0.0, "no_block": 0.0, "none": 0.0}
    now, upcoming = copies[0].arrival_s if copies else 0.0, 0
    while True:
        while upcoming < len(visits) and copies[upcoming].arrival_s <= now:
            visits[upcoming].arrive(scheduler, now, lost)
            upcoming += 1
        step = scheduler.schedule()
        if step is None:
            if upcoming == len(visits):
                break
            now = copies[upcoming].arrival_s
            continue
        for request in step.admitted:
            if request.preemptions == 0:
                by_request[request].leave_queue(now, lost)
        duration = step_cost(step)
        if not duration >= 0:
            raise WhyboundError(f"step cost: {duration} s for one pass; it must not be negative")
        start, now = now, now + duration
        lost[step.waiting_reason] += duration
        outcome = scheduler.complete(step)
        for request in outcome.emitted:
            if request.generated == 1:
                by_request[request].first_token_s = now
        for request in outcome.finished:
            by_request[request].end_s = now
        if observe is not None:
            observe(start, now, step, outcome)
    return [visit.timing() for visit in visits]


class _Visit:
    """Stamps of one request on its way; waits are differences of the run's lost-time totals."""

    __slots__ = (
        "block_s", "budget_s", "end_s", "first_token_s", "queued_s", "refused", "request",
        "scheduled_s", "slot_s",
    )  # fmt: skip

    def __init__(self, request: Request) -> None:
        self.request = request
        self.refused: str | None = None
        self.queued_s = self.scheduled_s = self.first_token_s = self.end_s = request.arrival_s
        self.slot_s = self.budget_s = self.block_s = 0.0

    def arrive(self, scheduler: Scheduler, now: float, lost: dict[str, float]) -> None:
        self.refused = scheduler.add(self.request)
        self.queued_s = now
        self.slot_s = lost["no_slot"]
        self.budget_s = lost["no_budget"]
        self.block_s = lost["no_block"]

    def leave_queue(self, now: float, lost: dict[str, float]) -> None:
        self.scheduled_s = now
        self.slot_s = lost["no_slot"] - self.slot_s
        self.budget_s = lost["no_budget"] - self.budget_s
        self.block_s = lost["no_block"] - self.block_s

    def timing(self) -> Timing:
        request = self.request
        if self.refused is not None:
            return Timing(request.id, request.arrival_s, *(None,) * 8, refused=self.refused)
        return Timing(
            id=request.id,
            arrival_s=request.arrival_s,
            scheduled_s=self.scheduled_s,
            first_token_s=self.first_token_s,
            end_s=self.end_s,
            wait_busy_s=self.queued_s - request.arrival_s,
            wait_slot_s=self.slot_s,
            wait_budget_s=self.budget_s,
            wait_block_s=self.block_s,
            preemptions=request.preemptions,
            refused=None,
        )
