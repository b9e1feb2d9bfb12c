"""The fixed point: laws that hold for any engine, and the pass-level scheduler as its judge."""

import random
from dataclasses import fields, replace

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from passes import HEALTHY, LAUNCHES
from step_costs import STEPS

from whybound.analyzers.scheduler import Policy, Request, simulate
from whybound.analyzers.step_cost import StepCost, affine, step_s
from whybound.analyzers.whatif import (
    UNLIMITED,
    Engine,
    Load,
    capacity,
    front_end,
    front_end_work,
    slots,
    solve,
    stack,
    uncapped,
)

seconds = st.floats(1e-4, 0.1)
ENGINES = st.builds(
    Engine,
    step=st.builds(affine, seconds, st.floats(0, 0.01), st.floats(0, 0.001)) | STEPS,
    max_num_seqs=st.integers(1, 512).map(float) | st.just(UNLIMITED),
    token_budget=st.integers(16, 16384).map(float) | st.just(UNLIMITED),
    kv_tokens=st.integers(1000, 10**6).map(float) | st.just(UNLIMITED),
    path_s=st.floats(0, 0.5),
    front_end_s=st.floats(0, 0.1),
)
LOADS = st.builds(
    Load,
    open_loop=st.booleans(),
    rate=st.floats(0.01, 100),
    concurrency=st.integers(1, 256).map(float),
    input_tokens=st.integers(1, 5000).map(float),
    output_tokens=st.integers(1, 1000).map(float),
)
MANY = settings(
    max_examples=30, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate)
)


# ---------------------------------------------------------------- laws


@MANY
@given(ENGINES, LOADS)
def test_every_outcome_is_finite_and_not_negative(engine, load):
    outcome = solve(engine, load)
    for part in ("wait_s", "prefill_s", "decode_s", "itl_s", "batch", "rho", "requests_per_s"):
        assert 0 <= getattr(outcome, part) < float("inf"), part
    assert outcome.batch <= slots(engine, load) * (1 + 1e-9)
    assert outcome.requests_per_s <= outcome.capacity_per_s * (1 + 1e-9)


@MANY
@given(ENGINES, LOADS, st.floats(1, 8))
def test_more_slots_never_lower_capacity(engine, load, times):
    assume(engine.max_num_seqs < UNLIMITED)
    more = replace(engine, max_num_seqs=engine.max_num_seqs * times)
    assert capacity(more, load) >= capacity(engine, load) * (1 - 1e-6)


@MANY
@given(ENGINES, LOADS)
def test_half_the_step_costs_never_makes_a_latency_worse(engine, load):
    engine = replace(engine, front_end_s=0.0)  # a closed loop that the engine slows no more, it can
    seconds = [f.name for f in fields(StepCost) if f.name.endswith("_s")]
    half = replace(
        engine, step=replace(engine.step, **{n: getattr(engine.step, n) / 2 for n in seconds})
    )
    before, after = solve(engine, load), solve(half, load)
    for latency in ("ttft_s", "e2e_s", "itl_s"):
        assert getattr(after, latency) <= getattr(before, latency) * (1 + 1e-6), latency
    assert after.capacity_per_s >= before.capacity_per_s * (1 - 1e-6)


@MANY
@given(ENGINES, LOADS)
def test_littles_law_holds_for_closed_loops(engine, load):
    """Concurrency = rate × end-to-end, waiting and the way outside included."""
    load = replace(load, open_loop=False)
    outcome = solve(engine, load)
    assert outcome.requests_per_s * outcome.e2e_s == pytest.approx(load.concurrency, rel=1e-3)


@MANY
@given(ENGINES, LOADS, st.floats(0.01, 0.99))
def test_open_loop_below_capacity_serves_what_arrives(engine, load, rho):
    load = replace(load, open_loop=True)
    load = replace(load, rate=rho * capacity(engine, load))
    outcome = solve(engine, load)
    assert outcome.requests_per_s == pytest.approx(load.rate)
    assert outcome.rho == pytest.approx(rho)
    # Little's law inside the engine
    assert outcome.batch == pytest.approx(
        load.rate * (outcome.prefill_s + outcome.decode_s), rel=1e-3
    )


@MANY
@given(ENGINES, LOADS, st.floats(1.01, 5), st.floats(1.5, 10))
def test_above_capacity_the_wait_grows_with_the_run(engine, load, rho, longer):
    load = replace(load, open_loop=True)
    load = replace(load, rate=rho * capacity(engine, load))
    short, long = (solve(engine, replace(load, horizon_s=h)) for h in (60.0, 60.0 * longer))
    assert short.requests_per_s == pytest.approx(short.capacity_per_s)
    assert short.wait_s >= (rho - 1) * 60 / 2 * 0.999
    assert long.wait_s - short.wait_s >= (rho - 1) * 60 * (longer - 1) / 2 * 0.999


@MANY
@given(ENGINES, LOADS, st.floats(0.05, 1.2), st.floats(1.01, 4))
def test_more_load_never_shortens_the_wait(engine, load, rho, times):
    # a pass as long as the run is no server
    c = slots(engine, load)
    assume(step_s(engine.step, c, 0, c * load.input_tokens) < 1)
    load = replace(load, open_loop=True)
    load = replace(load, rate=rho * capacity(engine, load))
    more = replace(load, rate=load.rate * times)
    assert solve(engine, more).e2e_s >= solve(engine, load).e2e_s * (1 - 1e-3)


@MANY
@given(ENGINES, LOADS, st.floats(0.01, 0.95))
def test_the_work_of_a_front_end_is_found_from_its_time(engine, load, busy):
    engine = replace(engine, front_end_s=busy / load.rate)
    seen = front_end(engine, load, load.rate)
    assert front_end_work(seen, load, load.rate) == pytest.approx(engine.front_end_s, rel=1e-3)


@MANY
@given(st.lists(ENGINES, min_size=2, max_size=4), LOADS)
def test_worlds_solved_together_are_worlds_solved_alone(engines, load):
    together = solve(*stack([(e, load) for e in engines], 1))
    for i, engine in enumerate(engines):
        alone = solve(engine, load)
        assert together.part(i).e2e_s == pytest.approx(alone.e2e_s, rel=1e-6)


# ---------------------------------------------------------------- closed forms


@pytest.mark.parametrize("rho", [0.05, 0.2, 0.4])
def test_end_to_end_follows_a_over_one_minus_beta_lambda(rho):
    """Kong et al.: with decode alone and slots to spare, E2E(λ) = A/(1 − βλ)."""
    engine = Engine(affine(0.02, 0.001, 0.0))
    out = 100
    alone, beta = out * 0.021, out * 0.001
    rate = rho / beta
    load = Load(open_loop=True, rate=rate, concurrency=1, input_tokens=1, output_tokens=out)
    got = solve(engine, load)
    assert got.e2e_s - got.wait_s == pytest.approx(alone / (1 - beta * rate), rel=0.01)
    assert got.wait_s < 0.02 * got.e2e_s  # no queue, only the pass in flight


def test_capacity_of_full_slots_is_littles_law():
    engine = Engine(affine(0.02, 0.001, 0.0), max_num_seqs=8)
    load = Load(open_loop=True, rate=1, concurrency=1, input_tokens=1, output_tokens=50)
    assert capacity(engine, load) == pytest.approx(8 / (50 * (0.02 + 0.001 * 8)), rel=1e-6)


def test_capacity_under_a_token_budget_is_full_passes():
    """Budget 100, prompts of 900 and answers of 100: 10 decode beside 90 tokens of prompts in each pass."""
    engine = Engine(affine(0.02, 0.001, 0.0001), max_num_seqs=1024, token_budget=100)
    load = Load(open_loop=True, rate=1, concurrency=1, input_tokens=900, output_tokens=100)
    full = 0.02 + 0.001 * 10 + 0.0001 * 90
    assert capacity(engine, load) == pytest.approx(100 / (1000 * full), rel=1e-6)
    assert capacity(replace(engine, token_budget=200), load) > 1.3 * capacity(engine, load)


def test_kv_capacity_limits_the_slots():
    engine = Engine(affine(0.02, 0.001, 0.0), max_num_seqs=64, kv_tokens=3000)
    load = Load(open_loop=True, rate=1, concurrency=1, input_tokens=250, output_tokens=100)
    assert slots(engine, load) == 10
    assert slots(uncapped(engine), load) == 10


# ---------------------------------------------------------------- against the scheduler


def emulated(rate, policy, step, tokens, n):
    """Mean wait, prefill and decode of Poisson arrivals, and the load as the model sees it."""
    rng = random.Random(1)
    now, requests = 0.0, []
    for i in range(n):
        now += rng.expovariate(rate)
        answer = max(2, round(tokens[1] * rng.uniform(0.67, 1.33)))
        requests.append(Request(i, tokens[0], answer, arrival_s=now))
    timings = simulate(
        requests, policy, lambda p: step[0] + step[1] * p.decode_count + step[2] * p.prefill_tokens
    )
    wait, prefill, decode = (
        sum(getattr(t, b) - getattr(t, a) for t in timings) / n
        for a, b in (
            ("arrival_s", "scheduled_s"),
            ("scheduled_s", "first_token_s"),
            ("first_token_s", "end_s"),
        )
    )
    load = Load(
        open_loop=True, rate=(n - 1) / (now - requests[0].arrival_s), concurrency=1, input_tokens=tokens[0],
        output_tokens=sum(r.output_tokens for r in requests) / n, service_spread=0.036, horizon_s=now,
    )  # fmt: skip
    return (wait, prefill, decode), load


CHAT = ((0.02, 0.0005, 0.00005), (64, 48))
LONG = ((0.02, 0.0005, 0.00005), (1000, 48))
HEAVY = ((0.01, 0.0002, 0.0001), (2000, 20))


@pytest.mark.parametrize("rho", [0.5, 0.8])
@pytest.mark.parametrize(
    ("cap", "budget", "world"),
    [
        pytest.param(1, 10**5, CHAT, id="cap 1"),
        pytest.param(4, 10**5, CHAT, id="cap 4"),
        pytest.param(16, 10**5, CHAT, id="cap 16"),
        pytest.param(64, 32, LONG, id="budget 32"),
        pytest.param(64, 128, LONG, id="budget 128"),
        pytest.param(64, 10**5, HEAVY, id="prefill heavy"),
    ],
)
def test_the_scheduler_agrees(cap, budget, world, rho):
    """Mean wait within a factor of 1.5 wherever it is 3 % of the time or more; phases within 20 %."""
    step, tokens = world
    engine = Engine(affine(*step), max_num_seqs=cap, token_budget=budget)
    top = capacity(
        engine,
        Load(open_loop=True, rate=1, concurrency=1, input_tokens=tokens[0], output_tokens=48),
    )
    if tokens[1] != 48:
        top = capacity(
            engine,
            Load(
                open_loop=True,
                rate=1,
                concurrency=1,
                input_tokens=tokens[0],
                output_tokens=tokens[1],
            ),
        )
    policy = Policy(max_num_seqs=cap, token_budget=budget, num_blocks=10**6)
    (wait, prefill, decode), load = emulated(
        rho * top, policy, step, tokens, n=1200 if cap < 64 else 400
    )
    model = solve(engine, load)
    print(
        f"\nρ {model.rho:.2f}: wait {wait:.4f} s, model {model.wait_s:.4f}; prefill {prefill:.4f}, "
        f"{model.prefill_s:.4f}; decode {decode:.3f}, {model.decode_s:.3f}"
    )
    assert model.prefill_s == pytest.approx(prefill, rel=0.2)
    assert model.decode_s == pytest.approx(decode, rel=0.2)
    if wait >= 0.03 * (wait + prefill + decode):
        assert 1 / 1.5 <= model.wait_s / wait <= 1.5
    else:
        assert model.wait_s <= 0.06 * (wait + prefill + decode)


def test_the_scheduler_carries_the_capacity_and_no_more():
    """Twice the capacity is offered; what comes out is the model's capacity, whatever bounds it."""
    for cap, budget, (step, tokens) in ((4, 10**5, CHAT), (1024, 64, LONG), (1024, 512, CHAT)):
        engine = Engine(affine(*step), max_num_seqs=cap, token_budget=budget)
        load = Load(
            open_loop=True, rate=1, concurrency=1, input_tokens=tokens[0], output_tokens=tokens[1]
        )
        top = capacity(engine, load)
        n = 400 if cap == 4 else 1500 if budget == 512 else 150
        requests = [Request(i, *tokens, arrival_s=i / (2 * top)) for i in range(n)]
        timings = simulate(
            requests,
            Policy(max_num_seqs=cap, token_budget=budget, num_blocks=10**6),
            lambda p, step=step: step[0] + step[1] * p.decode_count + step[2] * p.prefill_tokens,
        )
        ends = sorted(t.end_s for t in timings)
        middle = ends[n // 4 : -n // 4]
        assert (len(middle) - 1) / (middle[-1] - middle[0]) == pytest.approx(top, rel=0.1), (
            cap,
            budget,
        )


@pytest.mark.parametrize("step", [HEALTHY, LAUNCHES], ids=["weights", "launches"])
@pytest.mark.parametrize(
    ("cap", "tokens"), [(64, (100, 16)), (64, (100, 64)), (128, (300, 32)), (256, (150, 8))]
)
def test_prompts_that_one_pass_hides_alone_and_not_together(step, cap, tokens):
    """A ceiling hides the arithmetic of one prompt; at load several share a pass, and stand out of it."""
    engine = Engine(step, max_num_seqs=float(cap), token_budget=8192.0)
    load = Load(
        open_loop=True, rate=1.0, concurrency=1.0, input_tokens=float(tokens[0]),
        output_tokens=float(tokens[1]), service_spread=0.036,
    )  # fmt: skip
    top = float(capacity(engine, load))

    def served(rate, n):
        rng, now, requests = random.Random(1), 0.0, []
        for i in range(n):
            now += rng.expovariate(rate)
            answer = max(2, round(tokens[1] * rng.uniform(0.67, 1.33)))
            requests.append(Request(i, tokens[0], answer, arrival_s=now))
        return simulate(
            requests,
            Policy(max_num_seqs=cap, token_budget=8192, num_blocks=10**6),
            lambda p: float(
                step_s(step, p.decode_count, p.prefill_tokens, p.decode_context_tokens)
            ),
        )

    ends = sorted(t.end_s for t in served(2 * top, 800))[200:-200]
    assert (len(ends) - 1) / (ends[-1] - ends[0]) == pytest.approx(top, rel=0.1)
    timings = served(0.75 * top, 800)
    model = solve(engine, replace(load, rate=0.75 * top))
    for part, (start, end) in {
        "prefill_s": ("scheduled_s", "first_token_s"),
        "decode_s": ("first_token_s", "end_s"),
    }.items():
        mean = sum(getattr(t, end) - getattr(t, start) for t in timings) / len(timings)
        assert float(getattr(model, part)) == pytest.approx(mean, rel=0.2), part
