"""A lever applied to the model: what its effect, given as data, makes of an engine and a load."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..rules.effects import applied
from .whatif import UNLIMITED, Engine, Load, World
from .work import kv_split

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..rules.model import Effect, Lever
    from .counterfactual import Policy
    from .step_cost import Number
    from .work import Work

STEP_FIELDS = {
    "weight_bytes": ("weights_s", "expert_s"),
    "kv_bytes_per_token": ("kv_s",),
    "compute_per_token": ("token_s",),
    "launch_cost": ("launch_s",),
    "host_step": ("host_s", "host_sequence_s"),
    "host_exposed": ("exposed",),
    "kernel_floor": ("floor_s",),
    "link_time": ("link_s", "link_token_s"),
}
"""Parameter → what it is in the cost of a pass."""

ENGINE_FIELDS = {
    "max_num_seqs": "max_num_seqs",
    "token_budget": "token_budget",
    "kv_capacity": "kv_tokens",
    "path_latency": "path_s",
    "front_end": "front_end_s",
    "prefill_tokens": "computed_ratio",
}
"""Parameter → the engine's field; `offered_load` is the load's rate."""

SETTINGS = {"max_num_seqs": "batch cap", "token_budget": "token budget"}
"""Parameters that a policy of the grid sets: the value is the grid's best, not the lever's example."""


def changed(
    lever: Lever,
    world: World,
    work: Work,
    policy: Mapping[str, Policy],
    arrives: Mapping[int, Number] | float = 1.0,
) -> tuple[World, float | None] | None:
    """The world after a lever, and the new value of the setting that it sets; None when unknown to the model.

    Args:
        lever: what is done.
        world: what it is done to.
        work: bytes of model and device, for what freed memory holds.
        policy: the best policy of each setting, by `SETTINGS`' names.
        arrives: how much of each effect arrives, 0..1: one number, or an array of hypotheses by effect.
    """
    engine, load = world
    if lever.solver is not None:
        solved = SOLVERS[lever.solver](lever.id, engine, load, work)
        return None if solved is None else (solved, None)
    value: float | None = None
    known = False
    for i, effect in enumerate(lever.effect):
        part: Number = arrives if isinstance(arrives, float) else arrives[i]
        if effect.param in SETTINGS:
            setting = _setting(effect, engine, policy.get(SETTINGS[effect.param]))
            if setting is None:
                continue
            engine, value = setting
        elif effect.param == "offered_load":
            if not load.open_loop:
                continue
            load = replace(load, rate=applied(effect, load.rate, part))
        elif effect.param in STEP_FIELDS:
            engine = _step(effect, engine, work, part)
        else:
            name = ENGINE_FIELDS[effect.param]
            before = getattr(engine, name)
            if np.all(np.asarray(before) >= UNLIMITED):
                continue
            engine = _with(engine, name, applied(effect, before, part))
        known = True
    return ((engine, load), value) if known else None


def _with(engine: Engine, name: str, value: Number) -> Engine:
    changes: dict[str, Any] = {name: value}
    return replace(engine, **changes)


def _setting(effect: Effect, engine: Engine, best: Policy | None) -> tuple[Engine, float] | None:
    """The grid's value, when it goes the way that the lever goes."""
    name = ENGINE_FIELDS[effect.param]
    now = float(np.median(getattr(engine, name)))
    upwards = applied(effect, 1.0, 1.0) > 1.0
    if best is None or (best.value > now) != upwards:
        return None
    return _with(engine, name, best.value), best.value


def _step(effect: Effect, engine: Engine, work: Work, part: Number) -> Engine:
    fields = STEP_FIELDS[effect.param]
    step = replace(
        engine.step, **{f: applied(effect, getattr(engine.step, f), part) for f in fields}
    )
    engine = replace(engine, step=step)
    if effect.param == "kv_bytes_per_token":
        smaller = applied(effect, 1.0, part)
        return replace(engine, kv_tokens=_held(engine.kv_tokens, engine.kv_tokens / smaller))
    if effect.param == "weight_bytes" and work.weight_bytes and work.kv_bytes_per_token:
        freed = work.weight_bytes * (1.0 - applied(effect, 1.0, 1.0))
        more = engine.kv_tokens + freed / work.kv_bytes_per_token
        return replace(engine, kv_tokens=_held(engine.kv_tokens, more))
    return engine


def _held(before: Number, after: Number) -> Number:
    """Another number of tokens in the cache, where its size is known; it stays a limit."""
    return np.where(np.asarray(before) < UNLIMITED, np.minimum(after, UNLIMITED / 2), before)


# ---------------------------------------------------------------- what parameters cannot express


ACCEPTED = (0.3, 0.8)
"""Share of speculated tokens that are accepted, each given those before it: random text to repeating text."""

DRAFT = 3
DRAFT_COST = 0.08
"""Tokens speculated a pass, and the drafter's time for one of them as a share of a pass."""


def _speculation(lever: str, engine: Engine, load: Load, work: Work) -> World | None:
    """E = (1 − α^(γ+1)) / (1 − α) tokens a pass, for γ + 1 verified a sequence and the drafter's time."""
    if lever == "stop_speculation":
        if np.all(np.asarray(engine.step.draft_tokens) == 0):
            return None
        step = replace(engine.step, draft_tokens=0.0, tokens_per_pass=1.0)
        return replace(engine, step=step), load
    rng = np.random.default_rng(3)
    accepted = rng.uniform(*ACCEPTED, np.size(engine.step.weights_s))
    kept = (1.0 - accepted ** (DRAFT + 1)) / (1.0 - accepted)
    slower = 1.0 + DRAFT * DRAFT_COST
    step = replace(
        engine.step,
        weights_s=engine.step.weights_s * slower,
        launch_s=engine.step.launch_s * slower,
        draft_tokens=float(DRAFT),
        tokens_per_pass=kept,
    )
    return replace(engine, step=step), load


LINK_S = 10e-6
"""Latency of one all-reduce over the device's own link, seconds."""


def _tensor_parallel(lever: str, engine: Engine, load: Load, work: Work) -> World | None:
    """Twice or half the GPUs: what is read and computed divides, collectives come or go, the host stays."""
    if work.shape is None or not work.shape.layers:
        return None
    up = lever == "tensor_parallel_up"
    if not up and work.gpus < 2:
        return None
    times = 0.5 if up else 2.0
    gpus = work.gpus * (2 if up else 0.5)
    old = engine.step
    parts = {n: getattr(old, n) * times for n in ("weights_s", "expert_s", "token_s")}
    # a latent cache, or one of few heads, is not divided further: every GPU holds it
    divided = kv_split(work.shape, work.gpus) / kv_split(work.shape, int(gpus))
    parts["kv_s"] = old.kv_s * divided
    ring = 2.0 * (gpus - 1) / gpus
    was = 2.0 * (work.gpus - 1) / work.gpus
    if work.gpus > 1:
        parts["link_token_s"] = old.link_token_s * ring / was
        parts["link_s"] = old.link_s * (gpus > 1)
    elif work.device is not None and work.device.link is not None and work.shape.hidden:
        layers = 2 * work.shape.layers
        parts["link_s"] = layers * LINK_S
        parts["link_token_s"] = layers * ring * work.shape.hidden * 2 / work.device.link[1]
    else:
        return None
    kv = engine.kv_tokens
    if work.weight_bytes and work.kv_bytes_per_token and work.device is not None:
        held = work.device.memory_bytes * 0.9 - work.weight_bytes * work.gpus / gpus
        token = work.kv_bytes_per_token * divided
        kv = np.where(np.asarray(kv) < UNLIMITED, held / token, kv)
        if np.any(np.asarray(kv) <= 0):
            return None
    step = replace(old, **parts)
    # the same GPUs hold twice the replicas, so each gets half of what arrives
    load = load if up else replace(load, rate=load.rate / 2, concurrency=load.concurrency / 2)
    return replace(engine, step=step, kv_tokens=kv), load


SOLVERS: dict[str, Callable[[str, Engine, Load, Work], World | None]] = {
    "speculation": _speculation,
    "tensor_parallel": _tensor_parallel,
}
"""Name in a lever's file → what it makes of the world; None where it cannot be told."""
