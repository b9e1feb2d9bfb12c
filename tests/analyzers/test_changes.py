"""Two variants of one server: the difference as evidence."""

from __future__ import annotations

import pytest

from whybound.analyzers.changes import change_finding, difference
from whybound.rules.load import load_levers
from whybound.rules.model import Signal

LEVERS = load_levers()
BASE = {"max_num_seqs": "2", "model": "m", "dtype": "bfloat16", "port": "8000"}


def variant(settings=None, **facts):
    return [Signal(name=n, value=v) for n, v in facts.items()], BASE | (settings or {})


def said(here, there, engine="vllm"):
    return change_finding(difference(here, there), LEVERS, engine)


@pytest.mark.parametrize(
    ("here", "there", "class_", "sub_cause"),
    [
        ({}, {"max_num_seqs": "64"}, "scheduling", "batch cap"),
        ({"max_num_seqs": "64"}, {"max_num_seqs": "48"}, "memory", "capacity"),
        ({}, {"gpu_memory_utilization": "0.95"}, "memory", "capacity"),
        ({"enforce_eager": "x"}, {"enforce_eager": "x", "api_server_count": "4"}, "launch", "front end"),
        (
            {"max_num_batched_tokens": "8192"}, {"max_num_batched_tokens": "1024"},
            "scheduling", "prefill blocking decode",
        ),
        ({"tensor_parallel_size": "2"}, {"tensor_parallel_size": "1"}, "network", "collectives"),
        ({"speculative_config": "{}"}, {"speculative_config": "none"}, "compute", "decode above the ridge"),
        ({"max_running_requests": "4"}, {"max_running_requests": "32"}, None, None),
    ],
)  # fmt: skip
def test_the_setting_that_helped_names_the_class_that_it_relieves(here, there, class_, sub_cause):
    if here.get("gpu_memory_utilization") is None and "gpu_memory_utilization" in there:
        here = {"gpu_memory_utilization": "0.8"}
    found = said(
        variant(here, output_tokens_per_s=100.0), variant(there, output_tokens_per_s=250.0)
    )
    if class_ is None:
        assert found is None
        return
    assert found is not None
    assert (found[0].class_, found[0].sub_cause) == (class_, sub_cause)
    assert "2.50 times better" in found[0].says


def test_the_flag_of_another_engine_is_known_by_its_own_name():
    here, there = {"max_running_requests": "4"}, {"max_running_requests": "32"}
    found = said(
        variant(here, output_tokens_per_s=1.0), variant(there, output_tokens_per_s=2.0), "sglang"
    )
    assert found is not None
    assert found[0].class_ == "scheduling"


def test_the_same_change_that_did_not_help_says_nothing():
    there = {"max_num_seqs": "64"}
    assert (
        said(variant(output_tokens_per_s=100.0), variant(there, output_tokens_per_s=110.0)) is None
    )
    assert (
        said(variant(output_tokens_per_s=100.0), variant(there, output_tokens_per_s=60.0)) is None
    )


def test_a_latency_that_falls_is_a_gain():
    found = difference(
        variant(client_ttft_mean_s=3.0), variant({"max_num_seqs": "64"}, client_ttft_mean_s=1.0)
    )
    assert (found.metric, found.gain) == ("client_ttft_mean_s", pytest.approx(3.0))


@pytest.mark.parametrize(
    ("there", "facts", "why"),
    [
        ({"model": "other"}, {}, "model is m here and other there"),
        ({}, {"input_mean_tokens": 500.0}, "input_mean_tokens"),
        ({}, {"offered_rate_per_s": 8.0}, "offered_rate_per_s"),
        ({}, {"prefix_hit_ratio": 0.9}, "prefix cache"),
    ],
)
def test_what_is_not_alike_cannot_be_compared(there, facts, why):
    common = {"input_mean_tokens": 100.0, "offered_rate_per_s": 2.0, "prefix_hit_ratio": 0.1}
    there = {"max_num_seqs": "64"} | there
    found = difference(
        variant(output_tokens_per_s=1.0, **common),
        variant(there, output_tokens_per_s=2.0, **(common | facts)),
    )
    assert why in found.unlike
    assert change_finding(found, LEVERS, "vllm") is None


def test_several_changes_weigh_less_and_those_that_share_no_class_say_nothing():
    both = {"max_num_seqs": "64", "enable_chunked_prefill": "true"}
    here = {"enable_chunked_prefill": "false"}
    one = said(
        variant(output_tokens_per_s=1.0), variant({"max_num_seqs": "64"}, output_tokens_per_s=2.0)
    )
    two = said(variant(here, output_tokens_per_s=1.0), variant(both, output_tokens_per_s=2.0))
    assert one is not None
    assert two is not None
    assert two[1].odds < one[1].odds
    unlike = {"max_num_seqs": "64", "tensor_parallel_size": "1"}
    here = {"tensor_parallel_size": "2"}
    assert (
        said(variant(here, output_tokens_per_s=1.0), variant(unlike, output_tokens_per_s=2.0))
        is None
    )


def test_ports_and_paths_are_no_change():
    assert (
        difference(
            variant(output_tokens_per_s=1.0), variant({"port": "9000"}, output_tokens_per_s=2.0)
        ).changed
        == {}
    )


def test_runs_without_a_common_figure():
    assert difference(variant(client_ttft_mean_s=1.0), variant(output_tokens_per_s=1.0)).unlike
