"""The text of a load: what it means, and how it says what is wrong."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whybound.collector.load.lengths import Lengths, WorkClass
from whybound.collector.load.spec import LoadSpec, describe, from_dict, parse_load, to_dict
from whybound.errors import UsageError


def fixed(n: int) -> Lengths:
    return Lengths("fixed", n)


def test_defaults():
    spec = parse_load("poisson:rate=4")
    assert spec == LoadSpec(
        "poisson",
        rate_per_s=4.0,
        duration_s=60.0,
        classes=(WorkClass("64/64", 1.0, fixed(64), fixed(64)),),
    )
    assert spec.is_open
    assert not parse_load("closed:concurrency=16").is_open


def test_every_key():
    spec = parse_load(
        "gamma:rate=4.5,cv=2,n=100,d=2m,warmup=500ms,drain=5s,timeout=1h,seed=7,salt=x,api=chat,"
        "in=uniform(32:128),out=lognormal(200:1.5),vocab=500,prefix=700,prefixes=3,"
        "ignore_eos=false,temperature=0,keepalive=true,realtime=yes,processes=2,"
        "slo=ttft:0.5;itl:50ms,key_env=KEY,prompt=words"
    )
    assert spec == LoadSpec(
        process="gamma", rate_per_s=4.5, cv_ratio=2.0, n=100, duration_s=120.0, warmup_s=0.5,
        drain_s=5.0, timeout_s=3600.0, seed=7, salt="x", api="chat", prompt="words",
        vocab_size_count=500, prefix_tokens=700, prefixes_count=3, ignore_eos=False,
        temperature=0.0, keepalive=True, realtime="yes", processes=2,
        slo=(("ttft", 0.5), ("itl", 0.05)), key_env="KEY",
        classes=(
            WorkClass(
                "uniform(32:128)/lognormal(200:1.5)", 1.0,
                Lengths("uniform", 32, 128), Lengths("lognormal", 200, 1.5),
            ),
        ),
    )  # fmt: skip


def test_mixes():
    paired = parse_load("poisson:rate=4,mix=0.8*32/32+0.2*1000/16").classes
    assert paired == (
        WorkClass("32/32", 0.8, fixed(32), fixed(32)),
        WorkClass("1000/16", 0.2, fixed(1000), fixed(16)),
    )
    one_sided = parse_load("poisson:rate=4,in=mix(0.8*32,0.2*uniform(900:1000)),out=5").classes
    assert [c.name for c in one_sided] == ["32/5", "uniform(900:1000)/5"]
    other_side = parse_load("poisson:rate=4,out=mix(0.5*1,0.5*2),in=9").classes
    assert [c.name for c in other_side] == ["9/1", "9/2"]


def test_files():
    spec = parse_load("file:traces/a.jsonl,prefix=0")
    assert (spec.arrivals_path, spec.classes, spec.duration_s) == ("traces/a.jsonl", (), None)
    spec = parse_load("closed:concurrency=2,prompts=p.txt,out=9")
    assert (spec.prompt, spec.ignore_eos, spec.classes[0].name) == ("file", False, "prompts/9")
    assert parse_load("closed:concurrency=2,prompts=p.txt,ignore_eos=true").ignore_eos


@pytest.mark.parametrize(
    ("text", "position", "says"),
    [
        ("poison:rate=4", 1, "unknown arrival process 'poison': did you mean 'poisson'?"),
        ("poisson:rat=4", 9, "unknown key 'rat': did you mean 'rate'?"),
        ("poisson:rate=4,inn=5", 16, "unknown key 'inn': did you mean 'in'?"),
        ("poisson:rate=4, zzz=5", 17, "unknown key 'zzz': use one of rate, cv, "),
        ("poisson:rate=4,rate=5", 16, "key 'rate' is given twice"),
        ("poisson:rate", 9, "key 'rate' has no value: write rate=…"),
        ("poisson:rate=", 9, "key 'rate' has no value: write rate=…"),
        ("poisson:rate=fast", 9, "key 'rate': must be a number"),
        ("poisson:rate=0", 9, "key 'rate': must be above 0"),
        ("poisson:rate=inf", 9, "key 'rate': must be above 0"),
        ("poisson:n=3", 8, "poisson needs rate: write rate=…"),
        ("gamma:rate=3", 6, "gamma needs cv: write cv=…"),
        ("closed", 7, "closed needs concurrency"),
        ("closed:concurrency=2,rate=3", 22, "closed has no rate: it belongs to poisson and gamma"),
        ("poisson:rate=4,d=5x", 16, "key 'd': must be a time such as 90s"),
        ("poisson:rate=4,n=2.5", 16, "key 'n': must be a whole number, at least 1"),
        ("poisson:rate=4,api=chats", 16, "key 'api': must be completions or chat"),
        ("poisson:rate=4,vocab=4", 16, "key 'vocab': must be at least 5"),
        ("poisson:rate=4,keepalive=yes", 16, "key 'keepalive': must be true or false"),
        ("poisson:rate=4,in=many", 16, "key 'in': 'many' is no length: write 64, uniform("),
        ("poisson:rate=4,in=uniform(9:2)", 16, "key 'in': uniform(9:2) is empty"),
        ("poisson:rate=4,in=mix(0.8*32,0.1*9)", 16, "key 'in': the shares sum to 0.9, not 1"),
        ("poisson:rate=4,in=mix(0.8*32", 16, "key 'in': mix( is not closed"),
        ("poisson:rate=4,mix=0.8*32+0.2*9/1", 16, "key 'mix': '0.8*32' lacks its output length"),
        ("poisson:rate=4,mix=32/32", 16, "key 'mix': '32/32' lacks its share: write 0.8*32/32"),
        ("poisson:rate=4,in=5,mix=1*3/3", 21, None),
        ("poisson:rate=4,slo=ttfb:1", 16, "key 'slo': must be like ttft:0.5;itl:0.05"),
        ("poisson:rate=4,api=chat,prompt=ids", 25, "prompt=ids cannot be sent to the chat API"),
        ("file", 5, "no file of arrivals: write file:arrivals.jsonl"),
        ("file:a.csv,in=5", 12, "a file of arrivals brings its own lengths, so no in"),
    ],
)
def test_errors_name_key_place_and_remedy(text, position, says):
    with pytest.raises(UsageError) as caught:
        parse_load(text)
    message = str(caught.value)
    assert "\n" not in message
    if says is not None:
        assert message.startswith(f"load {text!r}, character {position}: {says}")
    else:
        assert "exclude each other" in message


@given(st.text(alphabet="poisngamcltd:=,()*+/0.8132rein;", max_size=60))
def test_any_text_is_a_load_or_a_usage_error(text):
    try:
        spec = parse_load(text)
    except UsageError:
        return
    assert from_dict(to_dict(spec)) == spec


@pytest.mark.parametrize(
    "text",
    [
        "poisson:rate=4,mix=0.8*32/32+0.2*1000/16,slo=ttft:1;e2e:9,salt=q,warmup=5s",
        "gamma:rate=4,cv=2,in=lognormal(200:1.5),n=5",
        "file:a.jsonl,prefix=10",
    ],
)
def test_a_load_survives_json(text):
    spec = parse_load(text)
    assert from_dict(json.loads(json.dumps(to_dict(spec)))) == spec


def test_describe():
    text = "poisson:rate=4,mix=0.8*32/32+0.2*1000/16,prefix=700,n=9,d=60,warmup=5s,seed=3"
    assert describe(parse_load(text)) == (
        "Poisson arrivals, 4 requests/s, 80% 32/32 + 20% 1000/16 tokens in/out,"
        " 1 shared prefix(es) of 700 tokens, 9 requests, 60 s, after 5 s of warm-up, seed 3"
    )
    assert describe(parse_load("closed:concurrency=8")).startswith(
        "closed loop, 8 in flight, 64/64"
    )
    assert "p.txt as they are" in describe(parse_load("closed:concurrency=8,prompts=p.txt"))
