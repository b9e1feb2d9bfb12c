"""The fit on runs whose true step cost is known: what it finds, and what it says it cannot tell."""

from dataclasses import fields, replace
from functools import partial

import numpy as np
import pytest
from fits import middle
from passes import H100, HEALTHY, HOST, LAUNCHES

from whybound.analyzers import fit as fit_module
from whybound.analyzers.fit import HYPOTHESES, Fit, fit, not_separated
from whybound.analyzers.posterior import sample
from whybound.analyzers.signals import read_signals
from whybound.analyzers.step_cost import PARTS, StepCost, step_s

CHAT = {"rate": 8, "n": 200, "tokens": (256, 64)}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, emulated_at):
    """The database of an emulated world, recorded once; tests only read it."""
    found = {}

    def record(**world):
        world = {**CHAT, **world}
        key = repr(sorted(world.items()))
        if key not in found:
            build = emulated_at(tmp_path_factory.mktemp("world") / "run", **world)
            found[key] = build.database()
        return found[key]

    return record


def fitted(recorded, settings=H100, texts=None, **world):
    con = recorded(**world)
    signals = read_signals(con)
    facts = {s.name: s.value for s in signals if s.value is not None}
    told = {s.name: s.text for s in signals if s.text is not None} | (texts or {})
    return fit(con, facts, told, settings, "open")


def mean(found, *parts, phase="decode"):
    return sum(float(np.mean(getattr(found, phase)[p])) for p in parts)


def apart(found):
    """What the fit says that it cannot tell from what."""
    return [m for m in found.missing if m.startswith("what tells")]


# ---------------------------------------------------------------- what it finds


def test_a_step_that_reads_weights_on_a_known_device(recorded):
    found = fitted(recorded, texts={"graphs_enabled": "yes"}, step=HEALTHY)
    assert mean(found, "weights") > 0.75
    assert np.std(found.decode["weights"]) < 0.15
    assert mean(found, "launch", "host") < 0.2
    assert found.missing == ()
    assert found.error < 0.05


def test_what_the_run_saw_every_hypothesis_reproduces(recorded):
    found = fitted(recorded, step=HEALTHY)
    for o, error in zip(found.seen, found.errors, strict=True):
        assert error < 1.5 * o.doubt, o
    for batch in (2.0, 8.0):
        context = batch * 288
        truth = step_s(HEALTHY, batch, 0, context)
        assert step_s(found.engine.step, batch, 0, context) == pytest.approx(truth, rel=0.2)


def test_a_step_three_times_as_long_as_its_work_waits_for_something_else(recorded):
    """15 GB at 3.35 TB/s do not take 14 ms, whatever else is not known."""
    for step in (LAUNCHES, HOST):
        found = fitted(recorded, step=step)
        assert mean(found, "weights", "kv", "compute") < 0.25
        assert mean(found, "launch", "host") > 0.6


@pytest.mark.parametrize(("step", "part"), [(LAUNCHES, "launch"), (HOST, "host")])
def test_with_the_engines_own_account_they_are(recorded, step, part):
    found = fitted(recorded, step=step, log_steps=True)
    assert mean(found, part) == pytest.approx(0.95 if part == "launch" else 0.6, abs=0.1)
    assert apart(found) == []


def test_arithmetic_of_long_prompts(recorded):
    found = fitted(recorded, step=HEALTHY, tokens=(4000, 32), rate=3, policy={"token_budget": 8192})
    assert mean(found, "compute", phase="prefill") > 0.75
    assert mean(found, "compute") < 0.3


def test_a_slope_over_prompts_tells_arithmetic_where_nothing_is_named(recorded):
    found = fitted(
        recorded, {}, step=HEALTHY, tokens=(3000, 32), rate=3, prompt_spread=0.8, log_steps=True,
        policy={"token_budget": 8192},
    )  # fmt: skip
    assert mean(found, "compute", phase="prefill") > 0.7


# ---------------------------------------------------------------- what it cannot tell


def test_one_batch_size_and_nothing_named_stays_wide(recorded):
    """One caller at a time: of the step only its length is seen."""
    found = fitted(recorded, {}, step=HEALTHY, rate=0.5, n=60)
    assert max(np.std(v) for v in found.decode.values()) > 0.2
    assert mean(found, "weights") < 0.9
    assert apart(found)
    joined = " ".join(found.missing)
    assert "model" in joined
    assert "device" in joined
    # the sum is known all the same
    assert np.std(np.log(step_s(found.engine.step, 1, 0, 288))) < 0.1


def test_naming_model_and_device_narrows_it(recorded):
    def width(settings):
        found = fitted(recorded, settings, step=HEALTHY, rate=0.5, n=60)
        return max(np.std(v) for v in found.decode.values())

    assert width(H100) < 0.5 * width({})


def test_pairs_that_are_seen_as_a_sum_are_named():
    some = np.linspace(0, 1, 50)
    known = dict.fromkeys(PARTS, np.zeros(50))
    assert not_separated({**known, "weights": some, "launch": 1 - some}) == [
        "what tells weights from launch in a decode step"
    ]
    third = np.tile([1.0, 0.0, 0.0], 20)
    three = {"weights": third, "launch": np.roll(third, 1), "host": np.roll(third, 2)}
    assert not_separated({**dict.fromkeys(PARTS, np.zeros(60)), **three}) == [
        "what tells weights, launch and host apart in a decode step"
    ]
    narrow = 0.5 + 0.05 * some
    assert not_separated({**known, "weights": narrow, "launch": 1 - narrow}) == []
    both = {**known, "weights": some, "launch": some}
    assert not_separated(both) == []


# ---------------------------------------------------------------- its form


def test_hypotheses_are_whole(recorded):
    found = fitted(recorded, step=HEALTHY)
    assert isinstance(found, Fit)
    assert found.n == HYPOTHESES
    for phase in (found.decode, found.prefill):
        assert set(phase) == set(PARTS)
        assert sum(phase.values()) == pytest.approx(np.ones(found.n))
    for f in fields(StepCost):
        value = np.asarray(getattr(found.engine.step, f.name))
        assert value.shape in ((), (found.n,)), f.name
        assert np.isfinite(value).all(), f.name
    step = middle(found)
    assert all(np.ndim(v) == 0 for v in vars(step).values())
    assert step.weights_s == np.median(found.engine.step.weights_s)


def test_one_run_has_one_fit(new_build, emulated_at):
    def again(name):
        build = emulated_at(new_build(name).path, **CHAT, step=HEALTHY)
        return fitted(lambda **_: build.database())

    one, two = again("one"), again("two")
    assert np.array_equal(one.engine.step.weights_s, two.engine.step.weights_s)


def test_limits_and_load_are_the_runs_own(recorded):
    found = fitted(recorded, step=HEALTHY, policy={"max_num_seqs": 32, "token_budget": 512})
    engine = found.engine
    assert (engine.max_num_seqs, engine.token_budget, engine.kv_tokens) == (32, 512, 4096 * 16)
    assert found.load.open_loop
    assert found.load.rate == pytest.approx(8, rel=0.2)
    assert (found.load.input_tokens, engine.computed_ratio) == (256, 1.0)
    assert found.load.output_tokens == pytest.approx(64, rel=0.1)
    assert found.load.prompt_percentiles == (256.0,) * 101


TIMING = ("itl", "tpot", "decode", "inference", "ttft", "e2e", "prefill", "running", "inflight")
"""Times, and the numbers of requests inside that give them by Little's law."""

LOAD = (
    "rate",
    "requests",
    "finished",
    "inflight",
    "running",
    "duration",
    "sending",
    "tokens_per_s",
)


@pytest.mark.parametrize("lost", [TIMING, LOAD, ("",)], ids=["timing", "load", "everything"])
def test_without_a_load_or_the_time_of_a_token_there_is_no_fit(recorded, lost):
    con = recorded(step=HEALTHY)
    facts = {s.name: s.value for s in read_signals(con) if s.value is not None}
    left = {k: v for k, v in facts.items() if not any(word in k for word in lost)}
    assert fit(con, left, {}, H100, "open") is None


def test_what_the_engine_was_not_asked_for_is_named(recorded):
    con = recorded(step=HEALTHY)
    facts = {s.name: s.value for s in read_signals(con) if s.value is not None}
    del facts["server_prefill_mean_s"]
    found = fit(con, facts, {}, H100, "open")
    assert "server_prefill_mean_s" in found.missing
    assert not any(o.kind == "prefill" for o in found.seen)


def test_the_measured_roof_of_this_machine_is_believed_over_the_sheet(recorded):
    """At 1 TB/s, as measured, 14 ms are no more than reading 15 GB: the same run, another verdict."""
    slow = replace(HEALTHY, weights_s=0.0165)
    roofs = {**H100, "roof_read_bytes_per_s": "1e12", "roof_bf16_flops": "6e14"}
    assert mean(fitted(recorded, H100, step=slow), "weights") < 0.25
    assert mean(fitted(recorded, roofs, step=slow), "weights") > 0.7


@pytest.mark.parametrize("seed", range(4))
def test_of_two_unlikely_explanations_the_likelier_one_is_found_whatever_the_seed(
    recorded, monkeypatch, seed
):
    """Launches four times as slow as usual, or kernels that are small beyond belief: both far from the middle."""
    monkeypatch.setattr(fit_module, "sample", partial(sample, seed=seed))
    graphs = {"graphs_enabled": "yes"}
    found = fitted(recorded, texts=graphs, step=LAUNCHES, rate=5, n=120, log_steps=True)
    assert mean(found, "launch") > 0.8
