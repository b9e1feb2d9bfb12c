import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whybound.analyzers.scheduler import Pass, Policy, Request, Scheduler, simulate
from whybound.errors import WhyboundError


def policy(**changes):
    return Policy(**{"max_num_seqs": 8, "token_budget": 64, "num_blocks": 1000, **changes})


def drain(scheduler, limit=10_000):
    """All passes until idle, with what each emitted: [(pass, outcome)]."""
    log = []
    while (step := scheduler.schedule()) is not None:
        assert len(log) < limit, "the scheduler does not come to an end"
        log.append((step, scheduler.complete(step)))
    return log


def shares(step):
    return [(r.id, n) for r, n in step.scheduled]


# ---------------------------------------------------------------- the clauses, one by one


def test_prompt_is_cut_to_the_budget_and_its_last_chunk_emits_the_first_token():
    scheduler = Scheduler(policy())
    scheduler.add(Request(1, prompt_tokens=150, output_tokens=2))
    log = drain(scheduler)
    assert [shares(s) for s, _ in log] == [[(1, 64)], [(1, 64)], [(1, 22)], [(1, 1)]]
    assert [len(o.emitted) for _, o in log] == [0, 0, 1, 1]
    assert [s.prefill_tokens for s, _ in log] == [64, 64, 22, 0]
    assert log[2][0].prefill_pairs == 22 * 128 + 22 * 23 // 2
    assert [s.decode_context_tokens for s, _ in log] == [0, 0, 0, 151]


def test_running_requests_come_first_from_one_budget():
    scheduler = Scheduler(policy())
    scheduler.add(Request(1, 10, 5))
    first = scheduler.schedule()
    scheduler.complete(first)
    scheduler.add(Request(2, 100, 1))
    scheduler.add(Request(3, 100, 1))
    step = scheduler.schedule()
    assert shares(step) == [(1, 1), (2, 63)]
    assert step.waiting_reason == "no_budget"


def test_without_chunking_a_prompt_waits_until_it_fits_whole():
    scheduler = Scheduler(policy(chunked_prefill=False))
    scheduler.add(Request(1, 40, 2))
    scheduler.add(Request(2, 40, 1))
    scheduler.add(Request(3, 8, 1))
    log = drain(scheduler)
    # The third would fit beside the first, but nobody overtakes.
    assert [shares(s) for s, _ in log] == [[(1, 40)], [(1, 1), (2, 40), (3, 8)]]
    assert log[0][0].waiting_reason == "no_budget"


def test_prefix_hits_take_blocks_but_no_budget():
    scheduler = Scheduler(policy())
    scheduler.add(Request(1, 100, 1, hit_tokens=96))
    step = scheduler.schedule()
    assert shares(step) == [(1, 4)]
    assert step.free_blocks == 1000 - 7
    assert step.prefill_pairs == 4 * 96 + 10


def test_the_last_prompt_token_is_computed_even_on_a_full_hit():
    scheduler = Scheduler(policy())
    scheduler.add(Request(1, 32, 1, hit_tokens=32))
    assert shares(scheduler.schedule()) == [(1, 1)]


def test_lookup_is_asked_at_admission_not_at_arrival():
    hits = {1: 0}
    scheduler = Scheduler(policy(), lookup=lambda r: hits[r.id])
    scheduler.add(Request(1, 64, 1))
    hits[1] = 48
    assert shares(scheduler.schedule()) == [(1, 16)]


def test_long_prefill_threshold_leaves_budget_for_others():
    scheduler = Scheduler(policy(long_prefill_threshold=20))
    scheduler.add(Request(1, 100, 1))
    scheduler.add(Request(2, 30, 1))
    assert shares(scheduler.schedule()) == [(1, 20), (2, 20)]


def test_slots_bound_the_batch():
    scheduler = Scheduler(policy(max_num_seqs=2))
    for i in range(3):
        scheduler.add(Request(i, 4, 3))
    step = scheduler.schedule()
    assert (step.running_count, step.waiting_count, step.waiting_reason) == (2, 1, "no_slot")


def test_last_admitted_is_preempted_and_recomputes_prompt_and_output():
    # 4 blocks of 4: two requests of 4 + 8 - 1 = 11 tokens need 3 blocks each.
    scheduler = Scheduler(policy(num_blocks=4, block_size=4))
    for i in (1, 2):
        scheduler.add(Request(i, 4, 8))
    log = drain(scheduler)
    at, step = next((i, s) for i, (s, _) in enumerate(log) if s.preempted)
    assert [r.id for r in step.preempted] == [2]
    assert step.waiting_reason == "no_block"
    assert not step.admitted
    emitted_before = sum(r.id == 2 for _, o in log[:at] for r in o.emitted)
    resumed = next(s for s, _ in log[at:] if s.admitted)
    assert dict(shares(resumed)) == {2: 4 + emitted_before}
    assert resumed.prefill_tokens == 4 + emitted_before
    assert sum(r.id == 2 for _, o in log for r in o.emitted) == 8


def test_priority_evicts_the_least_important_and_gives_its_tokens_back():
    scheduler = Scheduler(policy(num_blocks=4, block_size=4, priority=True, token_budget=64))
    low = Request(1, 4, 8, priority=5)
    high = Request(2, 4, 8, priority=0)
    scheduler.add(low)
    scheduler.complete(scheduler.schedule())
    scheduler.add(high)
    log = drain(scheduler)
    assert (low.preemptions, high.preemptions) == (1, 0)
    order = [r.id for _, o in log for r in o.finished]
    assert order == [2, 1]


def test_priority_orders_the_queue():
    scheduler = Scheduler(policy(priority=True, max_num_seqs=1))
    for i, priority in ((1, 2), (2, 1), (3, 1)):
        scheduler.add(Request(i, 4, 1, priority=priority))
    assert [r.id for _, o in drain(scheduler) for r in o.finished] == [2, 3, 1]


@pytest.mark.parametrize("reserve", [True, False])
def test_a_prompt_that_would_not_fit_whole_is_not_admitted_when_reserved(reserve):
    scheduler = Scheduler(
        policy(num_blocks=10, block_size=16, token_budget=64, reserve_full_prompt=reserve)
    )
    scheduler.add(Request(1, 48, 10))  # 3 blocks, 4 soon
    scheduler.complete(scheduler.schedule())
    scheduler.add(Request(2, 120, 1))  # 8 blocks; its first chunk needs 4
    step = scheduler.schedule()
    assert [r.id for r in step.admitted] == ([] if reserve else [2])
    assert step.waiting_reason == ("no_block" if reserve else "none")


def test_watermark_holds_blocks_back_only_while_others_run():
    scheduler = Scheduler(policy(num_blocks=10, watermark_blocks=9))
    scheduler.add(Request(1, 40, 2))
    scheduler.add(Request(2, 4, 1))
    step = scheduler.schedule()
    assert ([r.id for r in step.admitted], step.waiting_reason) == ([1], "no_block")


@pytest.mark.parametrize(
    ("request_", "changes", "says"),
    [
        (Request(1, 100, 61), {"num_blocks": 9}, "needs 10 KV blocks; the cache has 9"),
        (Request(1, 65, 1), {"chunked_prefill": False}, "chunked prefill is off"),
        (Request(1, 0, 1), {}, "at least one prompt token"),
        (Request(1, 1, 0), {}, "one output token"),
    ],
)
def test_what_can_never_finish_is_refused_with_a_reason(request_, changes, says):
    scheduler = Scheduler(policy(**changes))
    assert says in scheduler.add(request_)
    assert scheduler.waiting_count == 0
    assert scheduler.schedule() is None


def test_the_last_output_token_needs_no_block():
    scheduler = Scheduler(policy(num_blocks=1, block_size=16))
    assert scheduler.add(Request(1, 10, 7)) is None
    assert len(drain(scheduler)) == 7


def test_abort_frees_at_once_wherever_the_request_is():
    scheduler = Scheduler(policy(max_num_seqs=1))
    running, waiting = Request(1, 10, 5), Request(2, 10, 5)
    scheduler.add(running)
    scheduler.add(waiting)
    step = scheduler.schedule()
    scheduler.abort(running)
    scheduler.abort(waiting)
    scheduler.abort(waiting)
    assert scheduler.complete(step) == ([], [])
    assert (scheduler.free_blocks, scheduler.running_count, scheduler.waiting_count) == (1000, 0, 0)
    assert scheduler.schedule() is None


def test_one_pass_in_flight():
    scheduler = Scheduler(policy())
    scheduler.add(Request(1, 10, 5))
    scheduler.schedule()
    with pytest.raises(RuntimeError, match="before the previous pass was completed"):
        scheduler.schedule()


@pytest.mark.parametrize("name", ["max_num_seqs", "token_budget", "num_blocks", "block_size"])
def test_a_policy_without_room_is_refused(name):
    with pytest.raises(WhyboundError, match=name):
        policy(**{name: 0})


# ---------------------------------------------------------------- properties

sizes = st.tuples(
    st.integers(1, 60), st.integers(1, 25), st.integers(0, 70), st.integers(0, 2)
)  # prompt, output, hits, priority


@st.composite
def worlds(draw, **fixed):
    drawn = Policy(
        max_num_seqs=draw(st.integers(1, 6)),
        token_budget=draw(st.integers(1, 40)),
        num_blocks=draw(st.integers(1, 30)),
        block_size=draw(st.sampled_from([1, 4, 16])),
        chunked_prefill=draw(st.booleans()),
        priority=fixed.get("priority", draw(st.booleans())),
        long_prefill_threshold=draw(st.sampled_from([0, 0, 3, 16])),
        watermark_blocks=draw(st.sampled_from([0, 0, 2])),
        reserve_full_prompt=draw(st.booleans()),
    )
    return drawn, draw(st.lists(sizes, min_size=1, max_size=12)), draw(st.integers(1, 5))


def check_pass(step: Pass, scheduler: Scheduler) -> None:
    rules = scheduler.policy
    assert 0 < sum(n for _, n in step.scheduled) <= rules.token_budget
    assert all(n > 0 for _, n in step.scheduled)
    assert len({r.id for r, _ in step.scheduled}) == len(step.scheduled) <= rules.max_num_seqs
    assert step.running_count <= rules.max_num_seqs
    assert step.prefill_tokens + step.decode_count == sum(n for _, n in step.scheduled)
    held = sum(r.blocks for r in scheduler.running)
    assert scheduler.free_blocks >= 0
    assert held + scheduler.free_blocks == rules.num_blocks
    for request, tokens in step.scheduled:
        assert request.computed + tokens <= request.blocks * rules.block_size
    assert (step.waiting_reason == "none") == (step.waiting_count == 0)


@settings(max_examples=150, deadline=None)
@given(worlds())
def test_tokens_and_blocks_are_conserved_and_everybody_finishes(world):
    rules, asks, per_pass = world
    scheduler = Scheduler(rules)
    todo = [Request(i, p, o, hit_tokens=h, priority=k) for i, (p, o, h, k) in enumerate(asks)]
    admissible = [r for r in todo if scheduler.refusal(r) is None]
    # The best running request always advances, and each of the others can undo it once at most.
    bound = (1 + sum(p + o for p, o, _, _ in asks)) * (1 + len(asks) * rules.priority)
    emitted = dict.fromkeys((r.id for r in admissible), 0)
    computed = dict.fromkeys(emitted, 0)
    passes = preemptions = 0
    while todo or scheduler.running_count or scheduler.waiting_count:
        arriving, todo = todo[:per_pass], todo[per_pass:]
        for request in arriving:
            scheduler.add(request)
        step = scheduler.schedule()
        if step is None:
            continue
        check_pass(step, scheduler)
        for request, tokens in step.scheduled:
            computed[request.id] += tokens
        preemptions += len(step.preempted)
        outcome = scheduler.complete(step)
        for request in outcome.emitted:
            emitted[request.id] += 1
        passes += 1
        assert passes <= bound + len(asks)
    assert scheduler.free_blocks == rules.num_blocks
    assert all(r.state == "finished" for r in admissible)
    assert emitted == {r.id: r.output_tokens for r in admissible}
    assert preemptions == sum(r.preemptions for r in admissible)
    for r in admissible:
        needed = r.prompt_tokens - min(r.hit_tokens, r.prompt_tokens - 1) + r.output_tokens - 1
        assert computed[r.id] == needed if r.preemptions == 0 else computed[r.id] >= needed


@settings(max_examples=80, deadline=None)
@given(worlds(priority=False))
def test_first_scheduling_is_in_order_of_arrival(world):
    rules, asks, per_pass = world
    requests = [
        Request(i, p, o, arrival_s=i / per_pass, hit_tokens=h)
        for i, (p, o, h, _) in enumerate(asks)
    ]
    timings = [t for t in simulate(requests, rules, lambda step: 1.0) if t.refused is None]
    starts = [t.scheduled_s for t in timings]
    assert starts == sorted(starts)
    for t in timings:
        waits = t.wait_busy_s + t.wait_slot_s + t.wait_budget_s + t.wait_block_s
        assert waits == pytest.approx(t.scheduled_s - t.arrival_s)
        assert t.arrival_s <= t.scheduled_s < t.first_token_s <= t.end_s
    assert all(r.state == "new" for r in requests), "simulate must not change its input"


# ---------------------------------------------------------------- simulate against closed forms


def poisson(n, rate, seed=1, **sizes_):
    rng = random.Random(seed)
    now = 0.0
    for i in range(n):
        now += rng.expovariate(rate)
        yield Request(i, sizes_.get("prompt", 1), sizes_.get("output", 1), now)


@pytest.mark.parametrize("rho", [0.3, 0.7])
def test_batch_of_one_waits_as_pollaczek_and_khinchine_say(rho):
    timings = simulate(poisson(40_000, rho), policy(max_num_seqs=1), lambda step: 1.0)
    wait = sum(t.scheduled_s - t.arrival_s for t in timings) / len(timings)
    assert wait == pytest.approx(rho / (2 * (1 - rho)), rel=0.04)


def test_random_service_waits_as_pollaczek_and_khinchine_say():
    # Output 1 or 3 at one second a pass: E[S] = 2, E[S²] = 5; W = λ E[S²] / (2 (1 − ρ)).
    rng = random.Random(5)
    requests = list(poisson(40_000, 0.3))
    for request in requests:
        request.output_tokens = rng.choice((1, 3))
    timings = simulate(requests, policy(max_num_seqs=1), lambda step: 1.0)
    wait = sum(t.scheduled_s - t.arrival_s for t in timings) / len(timings)
    assert wait == pytest.approx(0.3 * 5 / (2 * 0.4), rel=0.04)


def test_little_holds_in_the_batch():
    area = 0.0

    def watch(start, end, step, outcome):
        nonlocal area
        area += (end - start) * step.running_count

    timings = simulate(
        poisson(1_000, 2.0, prompt=30, output=10),
        policy(max_num_seqs=64, token_budget=512),
        lambda step: 0.02 + 0.001 * step.decode_count,
        watch,
    )
    assert area == pytest.approx(sum(t.end_s - t.scheduled_s for t in timings), rel=1e-6)


def test_waits_are_charged_to_what_holds_the_queue_back():
    burst = [Request(i, 10, 10, arrival_s=5.0) for i in range(4)]
    slot = simulate(burst, policy(max_num_seqs=1), lambda step: 1.0)
    assert [t.wait_slot_s for t in slot] == [0, 10, 20, 30]
    budget = simulate(
        [Request(i, 64, 1, arrival_s=5.0) for i in range(3)], policy(), lambda step: 1.0
    )
    assert [t.wait_budget_s for t in budget] == [0, 1, 2]
    block = simulate(burst, policy(num_blocks=2), lambda step: 1.0)
    assert block[2].wait_block_s > 0
    assert block[2].wait_slot_s == 0
    busy = simulate(
        [Request(0, 4, 2), Request(1, 4, 1, arrival_s=0.25)], policy(), lambda step: 1.0
    )
    assert busy[1].wait_busy_s == 0.75


def test_refused_requests_are_reported_and_do_not_disturb_the_others():
    timings = simulate([Request(1, 99_999, 1), Request(2, 4, 1)], policy(), lambda step: 1.0)
    assert timings[0].end_s is None
    assert "KV blocks" in timings[0].refused
    assert timings[1].end_s == 1.0


def test_nothing_to_simulate():
    assert simulate([], policy(), lambda step: 1.0) == []


def test_a_negative_step_cost_is_refused():
    with pytest.raises(WhyboundError, match="step cost"):
        simulate([Request(1, 4, 1)], policy(), lambda step: float("nan"))
