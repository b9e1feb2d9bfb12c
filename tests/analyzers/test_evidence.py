"""What a run tells of its passes, and that the true cost of a pass predicts it."""

from dataclasses import replace

import numpy as np
import pytest
from passes import H100, HEALTHY, HOST, LAUNCHES

from whybound.analyzers.evidence import Observation, log_likelihood, observations, predict
from whybound.analyzers.fit import fit, offered
from whybound.analyzers.signals import read_signals
from whybound.analyzers.step_cost import StepCost, affine, step_s
from whybound.analyzers.whatif import Engine, Load

ARITHMETIC = replace(HEALTHY, weights_s=0.0005, token_s=1e-4, attention_ratio=0.1, floor_s=1e-4)
CHAT = {"rate": 15, "n": 250, "tokens": (256, 64)}
WORLDS = {
    "weights": {"step": HEALTHY, **CHAT},
    "launches": {"step": LAUNCHES, **CHAT, "rate": 8},
    "host": {"step": HOST, **CHAT, "rate": 8},
    "kv": {"step": replace(HEALTHY, kv_s=1e-6), **CHAT, "tokens": (512, 96), "rate": 6},
    "arithmetic": {"step": ARITHMETIC, **CHAT, "rate": 5},
    "crowded": {"step": affine(0.01, 0.002, 0.00005), "rate": 14, "n": 300, "tokens": (64, 48)},
    "crowded with prompts": {"step": replace(HEALTHY, token_s=1e-4), "rate": 12, "n": 250, "tokens": (600, 48)},
    "straight line": {"step": affine(0.02, 0.0005, 0.00005), **CHAT, "rate": 3},
    "logged": {"step": HEALTHY, **CHAT, "log_steps": True},
    "logged launches": {"step": LAUNCHES, **CHAT, "rate": 8, "log_steps": True},
    "prompts of all lengths": {"step": ARITHMETIC, **CHAT, "rate": 4, "prompt_spread": 0.8, "log_steps": True},
    "small budget": {"step": HEALTHY, **CHAT, "tokens": (900, 64), "rate": 4, "policy": {"token_budget": 128}},
}  # fmt: skip


def told(con):
    """Numbers of a run by name."""
    return offered({s.name: s.value for s in read_signals(con) if s.value is not None})


def fitted(con, settings=H100):
    """The fit of a run, and its facts."""
    facts = told(con)
    return fit(con, facts, {}, settings, "open"), facts


def as_array(step):
    return StepCost(**{k: np.array([float(v)]) for k, v in vars(step).items()})


@pytest.mark.parametrize("name", WORLDS)
def test_the_true_cost_predicts_what_was_seen(emulated, name):
    """Every observation within twice its doubt, and most of them far within."""
    world = WORLDS[name]
    found, facts = fitted(emulated(**world).database())
    truth = replace(found.engine, step=as_array(world["step"]))
    peaks = {"bandwidth": np.ones(1), "flops": np.ones(1), "logged": np.zeros(1)}
    rate = facts["completed_rate_per_s"]
    off = {}
    for o in found.seen:
        predicted = float(np.squeeze(predict(o, truth, found.load, peaks, rate)))
        off[f"{o.kind} at {o.batch:.1f}"] = abs(np.log(predicted / o.value)) / o.doubt
    assert {k: v for k, v in off.items() if v > 2} == {}
    assert np.median(list(off.values())) < 0.5


def test_a_run_tells_of_steps_gaps_and_prefill(emulated):
    seen = fitted(emulated(**WORLDS["weights"]).database())[0].seen
    kinds = {o.kind for o in seen}
    assert kinds == {"step", "itl", "prefill"}
    batches = sorted(o.batch for o in seen if o.kind == "step")
    assert len(batches) >= 3
    assert batches[-1] > 1.5 * batches[0]
    for o in seen:
        assert o.value > 0
        assert o.doubt > 0
        assert o.n >= 1
        assert o.source


def test_the_engines_own_account_is_preferred_to_gaps(emulated):
    seen = fitted(emulated(**WORLDS["logged"]).database())[0].seen
    kinds = {o.kind for o in seen}
    assert "step" not in kinds
    assert {"elapsed", "host", "device"} <= kinds
    logged = [o for o in seen if o.kind == "elapsed"]
    assert any(o.prompt_tokens > 0 for o in logged)
    assert any(o.prompt_tokens == 0 for o in logged)


def test_a_pass_that_is_logged_is_told_by_a_pass_of_its_kind(emulated):
    """Prompts come one or two at once: a bin of both is told by its middle pass, not by a mean of tokens."""
    seen = fitted(emulated(**{**WORLDS["logged"], "rate": 40}).database())[0].seen
    for o in seen:
        if o.kind == "elapsed":
            assert o.value == pytest.approx(
                step_s(HEALTHY, o.batch, o.prompt_tokens, o.context), rel=0.05
            )


def test_gaps_that_mostly_hold_a_prompt_are_no_decode_steps(emulated):
    """As many requests a second as passes: every other gap is a prefill's."""
    slow = replace(HEALTHY, token_s=4e-4)
    con = emulated(step=slow, rate=3, n=150, tokens=(256, 64)).database()
    facts = told(con)
    load = Load(True, facts["offered_rate_per_s"], 1, 256, 64)
    crowded = {**facts, "completed_rate_per_s": 1.0 / facts["client_itl_mean_s"]}
    assert any(
        o.kind == "step"
        for o in observations(con, {**facts, "completed_rate_per_s": 0.1}, load, 5.0)
    )
    assert not any(o.kind == "step" for o in observations(con, crowded, load, 5.0))


def test_a_crowded_server_tells_its_mean_gap_by_batch(emulated):
    """It fills up before it is full: the slope of its step is there to be seen."""
    seen = fitted(emulated(**WORLDS["crowded"]).database(), {})[0].seen
    gaps = sorted((o.batch, o.value) for o in seen if o.source == "request_batch")
    assert {o.kind for o in seen if o.source == "request_batch"} == {"itl"}
    assert gaps[-1][0] > 4 * gaps[0][0]
    slope = (gaps[-1][1] - gaps[0][1]) / (gaps[-1][0] - gaps[0][0])
    assert slope == pytest.approx(0.002, rel=0.15)


def test_chunks_of_several_tokens_are_no_steps(emulated):
    con = emulated(**WORLDS["weights"]).database()
    facts = {**told(con), "chunks_per_token_ratio": 0.25}
    load = Load(True, 15, 1, 256, 64)
    assert not any(o.source == "request_batch" for o in observations(con, facts, load, 5.0))


def test_an_empty_run_tells_nothing(build):
    assert observations(build.database(), {}, Load(True, 1, 1, 10, 10), 1.0) == []


# ---------------------------------------------------------------- counters


GPU = {"gpu_busy_ratio": 0.9, "gpu_dram_ratio": 0.6, "gpu_tensor_ratio": 0.1}


def counted(build, facts):
    seen = observations(build.database(), facts, Load(True, 1, 1, 10, 10), 4.0)
    return {o.kind: pytest.approx(o.value) for o in seen}


def test_memory_and_tensor_use_are_of_the_time_that_kernels_ran(build):
    assert counted(build, GPU) == {"busy": 0.9, "dram": 0.6 / 0.9, "tensor": 0.1 / 0.9}


@pytest.mark.parametrize(
    "facts",
    [
        {"gpu_busy_ratio": 0.9},
        {"gpu_dram_ratio": 0.6},
        {**GPU, "gpu_busy_ratio": 0.0},
    ],
    ids=["busy alone", "dram alone", "idle"],
)
def test_busy_alone_is_no_measure_of_work(build, facts):
    assert counted(build, facts) == {}


@pytest.mark.parametrize(
    ("step", "kind", "value"),
    [
        (StepCost(weights_s=0.01), "dram", 0.8),
        (StepCost(weights_s=0.01), "busy", 1.0),
        (StepCost(weights_s=0.005, launch_s=0.01), "busy", 0.5),
        (StepCost(weights_s=0.005, floor_s=0.01), "dram", 0.4),
        (StepCost(weights_s=0.01, host_s=0.01, exposed=1.0), "busy", 0.5),
        (StepCost(weights_s=0.01, token_s=0.001), "tensor", 0.4 * 0.5),
    ],
)  # fmt: skip
def test_what_counters_would_show(step, kind, value):
    """A step of 10 ms at batch 4, at four fifths of the peak of memory and half of that of arithmetic."""
    o = Observation(kind, 1.0, 0.1, batch=4.0)
    load = Load(True, 1e-6, 1, 10, 100)
    peaks = {"bandwidth": np.array([0.8]), "flops": np.array([0.5])}
    got = predict(o, Engine(as_array(step), max_num_seqs=4.0), load, peaks, 1e-6)
    assert float(np.squeeze(got)) == pytest.approx(value, rel=0.01)


# ---------------------------------------------------------------- likelihood


def likelihood(seen, weights):
    step = StepCost(weights_s=np.array(weights))
    return log_likelihood(seen, Engine(step), Load(True, 1, 1, 10, 10), {}, 1.0)


def test_the_hypothesis_that_predicts_it_is_the_likeliest():
    seen = [Observation("step", 0.01, 0.1)]
    low, exact, high = likelihood(seen, [0.009, 0.01, 0.0111])
    assert exact == pytest.approx(0.0)
    assert low < exact
    assert high < exact


def test_more_and_surer_observations_tell_more():
    one, two, sure = (
        likelihood(seen, [0.02])[0]
        for seen in (
            [Observation("step", 0.01, 0.2)],
            [Observation("step", 0.01, 0.2)] * 2,
            [Observation("step", 0.01, 0.05)],
        )
    )
    assert two == pytest.approx(2 * one)
    assert sure < one


def test_an_outlier_pulls_little():
    """Twice as far off costs hardly more: tails of Student's t, not of a normal."""
    seen = [Observation("step", 0.01, 0.05)]
    far, farther = likelihood(seen, [0.1, 1.0])
    assert far - farther < 5


def test_nothing_seen_tells_nothing():
    assert likelihood([], [0.01, 0.02]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("weights", [0.0, np.inf, np.nan])
def test_a_hypothesis_that_cannot_be_is_not_preferred(weights):
    exact, bad = likelihood([Observation("step", 0.01, 0.1)], [0.01, weights])
    assert not bad >= exact
