"""Shapes and contents: exact mixes, lengths from the seed, contents from seed and salt."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whybound.collector.load.spec import parse_load
from whybound.collector.load.traces import Arrival
from whybound.collector.load.workload import Contents, shapes


def first(text: str, n: int, **kwargs) -> list:
    return list(islice(shapes(parse_load(text), **kwargs), n))


def bodies(text: str, n: int, salt: str = "s", prompts=(), trace=None) -> list[dict]:
    spec = parse_load(text)
    contents = Contents(spec, salt, "m", prompts)
    every = islice(shapes(spec, trace, len(prompts)), n)
    return [json.loads(contents.body(shape)) for shape in every]


@given(st.integers(0, 10**6))
def test_shares_are_exact_in_each_block_of_ten(seed):
    got = first(f"poisson:rate=1,mix=0.8*32/32+0.2*1000/16,seed={seed}", 200)
    for block in range(0, 200, 10):
        counts = Counter(shape.workload for shape in got[block : block + 10])
        assert counts == {"32/32": 8, "1000/16": 2}
    assert {s.workload: (s.input_tokens, s.output_tokens) for s in got} == {
        "32/32": (32, 32),
        "1000/16": (1000, 16),
    }


def test_the_order_in_a_block_is_shuffled():
    got = first("poisson:rate=1,in=mix(0.8*32,0.2*1000)", 1000)
    places = Counter(shape.number % 10 for shape in got if shape.input_tokens == 1000)
    assert sum(places.values()) == 200
    assert min(places[i] for i in range(10)) > 5


@given(st.lists(st.integers(1, 100), min_size=1, max_size=6))
def test_odd_shares_never_stray_by_a_whole_request(weights):
    total = sum(weights)
    mix = "+".join(f"{w / total:.15f}*{i + 1}/1" for i, w in enumerate(weights))
    got = first(f"poisson:rate=1,mix={mix}", 300)
    for blocks in (1, 7, 30):
        counts = Counter(shape.input_tokens for shape in got[: 10 * blocks])
        for i, weight in enumerate(weights):
            assert abs(counts[i + 1] - 10 * blocks * weight / total) < 1 + 1e-6


def test_distributions():
    uniform = np.array([s.input_tokens for s in first("poisson:rate=1,in=uniform(32:128)", 3000)])
    assert (uniform.min(), uniform.max()) == (32, 128)
    assert uniform.mean() == pytest.approx(80, abs=3)
    drawn = np.array(
        [s.output_tokens for s in first("poisson:rate=1,out=lognormal(200:0.5)", 8000)]
    )
    assert drawn.mean() == pytest.approx(200, rel=0.04)
    assert drawn.std() / drawn.mean() == pytest.approx(0.5, rel=0.08)
    tiny = [s.output_tokens for s in first("poisson:rate=1,out=lognormal(1:3)", 500)]
    assert min(tiny) == 1


def test_lengths_hang_on_the_seed_alone():
    text = "poisson:rate=1,in=uniform(1:500),prefix=3,prefixes=4"
    assert first(f"{text},seed=1", 50) == first(f"{text},seed=1,salt=x,vocab=900", 50)
    assert first(f"{text},seed=1", 50) != first(f"{text},seed=2", 50)


def test_contents_hang_on_seed_and_salt():
    text = "poisson:rate=1,in=20"
    one = bodies(f"{text},seed=1", 9, "a")
    assert one == bodies(f"{text},seed=1", 9, "a")
    prompts = [tuple(b["prompt"]) for b in one]
    assert len(set(prompts)) == 9
    for other in (bodies(f"{text},seed=1", 9, "b"), bodies(f"{text},seed=2", 9, "a")):
        assert not set(prompts) & {tuple(b["prompt"]) for b in other}
        # Not even a first cache block of 16 tokens is shared.
        assert not {p[:4] for p in prompts} & {tuple(b["prompt"][:4]) for b in other}


def test_body_of_completions():
    (body,) = bodies("poisson:rate=1,in=2000,out=7,temperature=0.5", 1)
    assert len(body["prompt"]) == 2000
    assert (min(body["prompt"]), max(body["prompt"])) == (3, 299)
    del body["prompt"]
    assert body == {
        "model": "m", "max_tokens": 7, "stream": True, "ignore_eos": True, "temperature": 0.5,
        "stream_options": {"include_usage": True},
    }  # fmt: skip


def test_shared_prefixes_come_on_top_and_are_few():
    got = bodies("poisson:rate=1,in=30,prefix=700,prefixes=2", 40)
    assert {len(b["prompt"]) for b in got} == {730}
    assert len({tuple(b["prompt"][:700]) for b in got}) == 2
    assert len({tuple(b["prompt"][700:]) for b in got}) == 40
    plain = bodies("poisson:rate=1,in=30", 1)
    assert len(plain[0]["prompt"]) == 30


def test_a_file_counts_its_prefix_in():
    trace = [
        Arrival(0, 50, 4, "a"),
        Arrival(1, 60, 5, "a"),
        Arrival(2, 50, 6, "b"),
        Arrival(3, 9, 1),
    ]
    trace.append(Arrival(4, 10, 1, "a"))
    got = bodies("file:x,prefix=40", 9, trace=trace)
    prompts = [b["prompt"] for b in got]
    assert [len(p) for p in prompts] == [50, 60, 50, 9, 10]
    assert prompts[0][:40] == prompts[1][:40] != prompts[2][:40]
    assert prompts[4][:9] == prompts[0][:9]
    assert [b["max_tokens"] for b in got] == [4, 5, 6, 1, 1]
    assert [s.workload for s in shapes(parse_load("file:x,prefix=0"), trace)] == ["file"] * 5


def test_chat_sends_words():
    (body,) = bodies("poisson:rate=1,in=12,prefix=5,api=chat", 1)
    (message,) = body["messages"]
    assert message["role"] == "user"
    assert len(message["content"].split()) == 17


def test_prompts_of_a_file_each_once_a_round():
    prompts = ["a", "b", "c", [{"role": "system", "content": "d"}]]
    got = bodies("poisson:rate=1,prompts=x,api=chat,out=3", 8, prompts=prompts)
    contents = [json.dumps(b["messages"]) for b in got]
    assert len(set(contents[:4])) == len(set(contents[4:])) == 4
    assert {"role": "system", "content": "d"} in [b["messages"][0] for b in got]
    assert "ignore_eos" not in got[0]
    assert {b["prompt"] for b in bodies("poisson:rate=1,prompts=x", 3, prompts=prompts[:3])} == {
        "a",
        "b",
        "c",
    }
