"""What is believed before a run is seen: anchored where the work is known, wide where it is not."""

import math

import numpy as np
import pytest

from whybound.analyzers.priors import priors, step_of
from whybound.analyzers.step_cost import step_s
from whybound.analyzers.work import work_of

FASTEST = 0.02
H100 = {"model": "Qwen/Qwen3-8B", "gpu_name": "NVIDIA H100 80GB HBM3"}
WORLDS = {
    "both": H100,
    "two gpus": {**H100, "tensor_parallel_size": "2"},
    "mixture": {**H100, "model": "Qwen/Qwen3-30B-A3B"},
    "model": {"model": "Qwen/Qwen3-8B"},
    "device": {"gpu_name": H100["gpu_name"]},
    "device, two": {"gpu_name": H100["gpu_name"], "tensor_parallel_size": "2"},
    "roofs": {**H100, "roof_read_bytes_per_s": "2e12", "roof_bf16_flops": "5e14"},
    "processor": {"model": "Qwen/Qwen3-8B", "device": "cpu"},
    "width unknown": {**H100, "quantization": "awq"},
    "nothing": {},
}
EVERY = pytest.mark.parametrize("world", WORLDS)


def work(world):
    return work_of(WORLDS[world], 500, 600)


def drawn(world, texts=None, fastest=FASTEST, n=400):
    """Hypotheses of the prior, and the step cost of each."""
    w, rng = work(world), np.random.default_rng(0)
    points = {k: p.draw(rng, n) for k, p in priors(w, fastest, texts or {}).items()}
    return points, step_of(w, points)


def median(values):
    return float(np.median(values))


@EVERY
@pytest.mark.parametrize("fastest", [1e-4, 0.02, 5.0])
def test_every_hypothesis_is_a_step_that_can_be(world, fastest):
    _, step = drawn(world, fastest=fastest)
    for name, value in vars(step).items():
        values = np.asarray(value, dtype=float)
        assert np.isfinite(values).all(), name
        assert (values >= (-1 if name == "attention_ratio" else 0)).all(), name
    for batch, prompt in ((1, 0), (1, 2000), (256, 0)):
        taken = step_s(step, batch, prompt, 600 * batch)
        assert np.isfinite(taken).all()
        assert (taken > 0).all()


@EVERY
def test_a_prior_draws_only_what_it_allows(world):
    rng = np.random.default_rng(0)
    for name, prior in priors(work(world), FASTEST, {}).items():
        assert prior.spread > 0, name
        assert np.isfinite(prior.log_density(prior.draw(rng, 500))).all(), name


@EVERY
def test_what_fits_the_fastest_step_seen_is_among_them(world):
    """Some hypothesis costs at most the step seen, and some as much: else nothing could be fitted."""
    _, step = drawn(world, n=4000)
    taken = step_s(step, 1, 0, 600)
    assert taken.min() < FASTEST
    assert taken.max() > FASTEST / 2


def test_known_work_anchors_the_weights_and_unknown_leaves_them_wide():
    w = work("both")
    _, known = drawn("both")
    _, free = drawn("nothing")
    assert (known.weights_s >= w.read_s[0]).all()  # no step is faster than its peak
    assert median(known.weights_s) == pytest.approx(w.read_peak_s, rel=0.6)
    assert np.ptp(np.log(known.weights_s)) < math.log(2)
    assert np.ptp(np.log(free.weights_s)) > math.log(20)


def test_known_arithmetic_takes_at_least_its_peak():
    w = work("both")
    _, step = drawn("both")
    assert (step.token_s > 0.9 * w.token_peak_s).all()
    assert (step.kv_s > w.kv_per_read * w.read_s[0]).all()


def test_a_mixture_keeps_its_experts_beside_its_weights():
    w = work("mixture")
    _, step = drawn("mixture")
    assert step.expert_touch == w.expert_touch
    assert step.expert_s / step.weights_s == pytest.approx(w.expert_per_read)
    ratio = step_s(step, 256, 0, 0) / step_s(step, 1, 0, 0)
    assert median(ratio) > 2
    _, dense = drawn("both")
    assert median(step_s(dense, 64, 0, 0) / step_s(dense, 1, 0, 0)) < 1.5


@pytest.mark.parametrize("world", ["both", "model", "nothing"])
def test_one_gpu_has_no_collectives(world):
    _, step = drawn(world)
    assert not np.any(step.link_s)
    assert not np.any(step.link_token_s)


@pytest.mark.parametrize("world", ["two gpus", "device, two"])
def test_several_have(world):
    _, step = drawn(world)
    assert (step.link_s > 0).all()
    assert (step.link_token_s > 0).all()


def test_without_captured_graphs_each_kernel_is_launched_by_itself():
    """How much longer is the fit's to say; it is several times, and unknown lies over both."""
    (_, on), (_, off), (_, either) = (
        drawn("both", t) for t in ({"graphs_enabled": "yes"}, {"graphs_enabled": "no"}, {})
    )
    assert median(off.launch_s) > 3 * median(on.launch_s)
    assert median(on.launch_s) < median(either.launch_s) < median(off.launch_s)


def test_asynchronous_scheduling_hides_the_host():
    (_, on), (_, off), (_, either) = (
        drawn("both", {"async_scheduling_enabled": t} if t else {}) for t in ("yes", "no", None)
    )
    assert on.exposed.max() < off.exposed.min()
    assert either.exposed.min() < on.exposed.max()
    assert either.exposed.max() > off.exposed.min()
    assert ((off.exposed >= 0) & (off.exposed <= 1)).all()


def test_measured_roofs_are_believed():
    """2e12 bytes a second were measured, so reading takes 15 GB over that, and not over 3.35e12."""
    _, roofs = drawn("roofs")
    _, sheet = drawn("both")
    assert median(roofs.weights_s) > 1.2 * median(sheet.weights_s)
