"""Levers applied to an engine: each parameter moves what it names, and what cannot be told is None."""

from dataclasses import replace

import numpy as np
import pytest
from fits import LOAD, hypotheses
from msgspec import structs
from passes import H100, HEALTHY

from whybound.analyzers.apply import (
    ENGINE_FIELDS,
    SETTINGS,
    SOLVERS,
    STEP_FIELDS,
    changed,
)
from whybound.analyzers.counterfactual import Policy
from whybound.analyzers.whatif import UNLIMITED, Engine, solve
from whybound.analyzers.work import work_of
from whybound.rules import model as rules_model
from whybound.rules.load import load_levers
from whybound.rules.model import PARAMS, Effect

STEP = replace(HEALTHY, expert_s=0.001, expert_touch=0.1, link_s=0.001, link_token_s=1e-6)
ENGINE = Engine(
    hypotheses(STEP, STEP), max_num_seqs=16.0, token_budget=2048.0, kv_tokens=1e5, path_s=0.05,
    front_end_s=0.01, recompute_tokens=10.0, computed_ratio=0.8,
)  # fmt: skip
WORK = work_of(H100, 256, 288)
NOBODY = work_of({}, 256, 288)
LEVER = load_levers()["weights_fp8"]


def lever(*effects, solver=None):
    return structs.replace(LEVER, effect=list(effects), solver=solver)


def halve(param):
    return Effect(param=param, efficiency=(1.0, 1.0), times=0.5)


def differing(before, after):
    """Names of the fields that differ, those of the step among them."""
    found = set()
    for name, value in vars(before).items():
        new = getattr(after, name)
        if name == "step":
            found |= differing(value, new)
        elif np.shape(value) != np.shape(new) or not np.allclose(value, new, rtol=1e-12):
            found.add(name)
    return found


# ---------------------------------------------------------------- parameters


def test_every_parameter_is_somewhere_in_the_model():
    known = {*STEP_FIELDS, *ENGINE_FIELDS, "offered_load"}
    assert set(PARAMS) == known
    assert set(SETTINGS) <= set(ENGINE_FIELDS)
    assert set(SOLVERS) == set(rules_model.SOLVERS)


@pytest.mark.parametrize("param", sorted(STEP_FIELDS))
def test_a_parameter_of_the_step_moves_the_fields_that_it_names(param):
    (engine, load), value = changed(lever(halve(param)), (ENGINE, LOAD), NOBODY, {})
    expected = set(STEP_FIELDS[param])
    if param == "kv_bytes_per_token":
        expected |= {"kv_tokens"}  # the cache holds twice as many
    assert differing(ENGINE, engine) == expected
    for name in STEP_FIELDS[param]:
        assert getattr(engine.step, name) == pytest.approx(getattr(ENGINE.step, name) / 2), name
    assert load == LOAD
    assert value is None


@pytest.mark.parametrize("param", sorted(set(ENGINE_FIELDS) - set(SETTINGS)))
def test_a_parameter_of_the_engine_moves_the_field_that_it_names(param):
    (engine, _), value = changed(lever(halve(param)), (ENGINE, LOAD), NOBODY, {})
    (name,) = differing(ENGINE, engine)
    assert name == ENGINE_FIELDS[param]
    assert getattr(engine, name) == pytest.approx(getattr(ENGINE, name) / 2)
    assert value is None


def test_the_base_is_left_alone():
    before = {k: np.array(v) for k, v in vars(ENGINE.step).items()}
    for name in load_levers():
        changed(load_levers()[name], (ENGINE, LOAD), WORK, {})
    assert all(np.array_equal(before[k], v) for k, v in vars(ENGINE.step).items())


def test_a_setting_takes_the_best_of_the_grid_and_not_the_levers_example():
    up = Effect(param="max_num_seqs", efficiency=(1.0, 1.0), times=4.0)
    best = Policy("batch cap", 128.0, replace(ENGINE, max_num_seqs=128.0), "batch cap")
    (engine, _), value = changed(lever(up), (ENGINE, LOAD), NOBODY, {"batch cap": best})
    assert (engine.max_num_seqs, value) == (128.0, 128.0)


@pytest.mark.parametrize("times", [4.0, 0.25])
def test_a_setting_that_should_go_the_other_way_is_not_this_levers(times):
    effect = Effect(param="token_budget", efficiency=(1.0, 1.0), times=times)
    other = 512.0 if times > 1 else 8192.0
    best = Policy("token budget", other, replace(ENGINE, token_budget=other), "token budget")
    assert changed(lever(effect), (ENGINE, LOAD), NOBODY, {"token budget": best}) is None
    assert changed(lever(effect), (ENGINE, LOAD), NOBODY, {}) is None


def test_load_goes_down_in_an_open_loop_and_is_not_told_in_a_closed_one():
    half = lever(halve("offered_load"))
    (engine, load), _ = changed(half, (ENGINE, LOAD), NOBODY, {})
    assert load.rate == pytest.approx(LOAD.rate / 2)
    assert differing(ENGINE, engine) == set()
    assert changed(half, (ENGINE, replace(LOAD, open_loop=False)), NOBODY, {}) is None


def test_a_limit_that_is_not_known_is_not_moved():
    free = replace(ENGINE, kv_tokens=UNLIMITED)
    assert changed(lever(halve("kv_capacity")), (free, LOAD), NOBODY, {}) is None
    (engine, _), _ = changed(lever(halve("kv_bytes_per_token")), (free, LOAD), NOBODY, {})
    assert np.all(np.asarray(engine.kv_tokens) == UNLIMITED)


def test_a_lever_without_an_effect_is_not_told():
    assert changed(lever(), (ENGINE, LOAD), NOBODY, {}) is None


def test_what_arrives_is_between_nothing_and_all():
    half = lever(halve("weight_bytes"))
    arrives = {0: np.array([0.0, 1.0])}
    (engine, _), _ = changed(half, (ENGINE, LOAD), NOBODY, {}, arrives)
    assert engine.step.weights_s == pytest.approx(STEP.weights_s * np.array([1.0, 0.5]))


# ---------------------------------------------------------------- memory


def test_weights_that_shrink_make_room_for_the_cache():
    """8.2 GB fewer at 147 456 bytes a token: 55 500 more."""
    (engine, _), _ = changed(lever(halve("weight_bytes")), (ENGINE, LOAD), WORK, {})
    more = WORK.weight_bytes / 2 / WORK.kv_bytes_per_token
    assert np.asarray(engine.kv_tokens) == pytest.approx(1e5 + more)
    assert more == pytest.approx(55500, rel=0.01)


def test_freed_weights_of_a_model_that_is_not_known_make_no_room_that_anyone_can_state():
    (engine, _), _ = changed(lever(halve("weight_bytes")), (ENGINE, LOAD), NOBODY, {})
    assert engine.kv_tokens == 1e5


# ---------------------------------------------------------------- solvers


def solved(name, engine=ENGINE, load=LOAD, work=WORK):
    return changed(load_levers()[name], (engine, load), work, {})


def test_speculation_verifies_more_tokens_and_keeps_more_than_one():
    (engine, load), _ = solved("speculative_decoding")
    kept, drafted = (
        np.asarray(getattr(engine.step, n)) for n in ("tokens_per_pass", "draft_tokens")
    )
    assert np.all(drafted >= 1)
    assert np.all((kept > 1) & (kept <= drafted + 1))
    assert np.all(engine.step.weights_s > ENGINE.step.weights_s)  # the drafter's time
    assert load == LOAD
    one = replace(ENGINE, step=replace(ENGINE.step, link_s=0.0, link_token_s=0.0, expert_s=0.0))
    (fast, _), _ = solved("speculative_decoding", engine=one)
    alone = replace(LOAD, rate=0.05)
    assert np.all(solve(fast, alone).decode_s < solve(one, alone).decode_s)


def test_speculation_that_is_not_on_cannot_be_stopped():
    assert solved("stop_speculation") is None
    step = replace(ENGINE.step, draft_tokens=3.0, tokens_per_pass=2.0)
    (engine, _), _ = solved("stop_speculation", engine=replace(ENGINE, step=step))
    assert (engine.step.draft_tokens, engine.step.tokens_per_pass) == (0.0, 1.0)


def test_twice_the_gpus_divide_what_is_read_and_add_collectives():
    plain = replace(ENGINE, step=replace(ENGINE.step, link_s=0.0, link_token_s=0.0))
    (engine, load), _ = solved("tensor_parallel_up", engine=plain)
    for name in ("weights_s", "expert_s", "token_s", "kv_s"):
        assert getattr(engine.step, name) == pytest.approx(getattr(plain.step, name) / 2), name
    for name in ("launch_s", "host_s", "floor_s", "sequence_s"):
        assert np.array_equal(getattr(engine.step, name), getattr(plain.step, name)), name
    assert engine.step.link_s > 0
    assert engine.step.link_token_s > 0
    assert np.all(np.asarray(engine.kv_tokens) > 1e5)
    assert load == LOAD


def test_a_latent_cache_is_not_divided():
    latent = work_of({**H100, "model": "deepseek-ai/DeepSeek-V2-Lite"}, 256, 288)
    plain = replace(ENGINE, step=replace(ENGINE.step, link_s=0.0, link_token_s=0.0))
    (engine, _), _ = solved("tensor_parallel_up", engine=plain, work=latent)
    assert engine.step.weights_s == pytest.approx(plain.step.weights_s / 2)
    assert engine.step.kv_s == pytest.approx(plain.step.kv_s)


def test_half_the_gpus_are_the_way_back():
    two = work_of({**H100, "tensor_parallel_size": "2"}, 256, 288)
    (engine, load), _ = solved("tensor_parallel_down", work=two)
    assert engine.step.weights_s == pytest.approx(ENGINE.step.weights_s * 2)
    assert not np.any(engine.step.link_s)
    assert not np.any(engine.step.link_token_s)
    assert load.rate == LOAD.rate / 2  # twice the replicas on the same GPUs
    assert solved("tensor_parallel_down") is None


def test_a_model_that_no_longer_fits_is_no_lever():
    llama = {**H100, "model": "meta-llama/Llama-2-70b-hf", "tensor_parallel_size": "2"}
    big = work_of(llama, 256, 288)
    assert solved("tensor_parallel_down", work=big) is None


@pytest.mark.parametrize("name", ["tensor_parallel_up", "tensor_parallel_down"])
def test_a_model_that_is_not_known_is_not_split(name):
    assert solved(name, work=NOBODY) is None


@pytest.mark.parametrize("name", sorted(load_levers()))
@pytest.mark.parametrize("work", [WORK, NOBODY], ids=["known", "unknown"])
def test_every_lever_leaves_a_world_that_can_be_solved(name, work):
    after = changed(load_levers()[name], (ENGINE, LOAD), work, {})
    if after is not None:
        outcome = solve(*after[0])
        for part in ("e2e_s", "itl_s", "capacity_per_s"):
            value = np.asarray(getattr(outcome, part))
            assert np.isfinite(value).all(), part
            assert (value > 0).all(), part
