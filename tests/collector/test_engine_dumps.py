"""Each engine's map against a page in its own words; what no page of an engine can tell is stated."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from whybound.collector.engine_map import EXPORTERS, engines, load_map
from whybound.collector.sources.exposition import detect_engine
from whybound.collector.sources.scrape import Scrape, scrape_rows

INF = float("inf")


def scrape(text: str) -> Scrape:
    return scrape_rows(text, t_ns=1, node="n", replica="r")


def values(got: Scrape) -> dict[tuple[str, str], float]:
    """(signal, reason or phase) → value, or sum of a histogram."""
    rows = [(r, r["value"]) for r in got.samples] + [(r, r["sum"]) for r in got.histograms]
    return {(r["signal"], r["reason"] or r["phase"]): v for r, v in rows}


SGLANG = """
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{model_name="m",tp_rank="0",dp_rank="0"} 12
sglang:num_queue_reqs{model_name="m",tp_rank="0",dp_rank="0"} 5
sglang:token_usage{model_name="m",tp_rank="0",dp_rank="0"} 0.93
sglang:utilization{model_name="m"} 0
sglang:fwd_occupancy{model_name="m"} 75
# TYPE sglang:num_retracted_requests_total counter
sglang:num_retracted_requests_total{model_name="m"} 7
sglang:cached_tokens_total{cache_source="total"} 900
sglang:cached_tokens_total{cache_source="device"} 600
sglang:cached_tokens_total{cache_source="host"} 300
sglang:realtime_tokens_total{mode="prefill_compute"} 4000
sglang:realtime_tokens_total{mode="decode"} 800
# TYPE sglang:time_to_first_token_seconds histogram
sglang:time_to_first_token_seconds_bucket{le="0.1"} 1
sglang:time_to_first_token_seconds_bucket{le="+Inf"} 2
sglang:time_to_first_token_seconds_sum 1.5
sglang:time_to_first_token_seconds_count 2
# TYPE sglang:per_stage_req_latency_seconds histogram
sglang:per_stage_req_latency_seconds_bucket{stage="prefill_forward",le="+Inf"} 2
sglang:per_stage_req_latency_seconds_sum{stage="prefill_forward"} 0.5
sglang:per_stage_req_latency_seconds_count{stage="prefill_forward"} 2
"""

TRTLLM = """
# TYPE trtllm_num_requests_running gauge
trtllm_num_requests_running{model_name="m",engine_type="trtllm"} 6
trtllm_num_requests_waiting{model_name="m",engine_type="trtllm"} 2
trtllm_kv_cache_utilization{model_name="m",engine_type="trtllm"} 0.4
trtllm_request_success_total{finished_reason="stop"} 150
trtllm_request_queue_time_seconds_bucket{le="+Inf"} 3
trtllm_request_queue_time_seconds_sum 32.5
trtllm_request_queue_time_seconds_count 3
"""

TRITON = """
# TYPE nv_trt_llm_request_metrics gauge
nv_trt_llm_request_metrics{model="t",request_type="waiting",version="1"} 3
nv_trt_llm_request_metrics{model="t",request_type="context",version="1"} 1
nv_trt_llm_request_metrics{model="t",request_type="scheduled",version="1"} 4
nv_trt_llm_request_metrics{model="t",request_type="max",version="1"} 512
nv_trt_llm_request_metrics{model="t",request_type="a_new_one",version="1"} 9
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="t",version="1"} 0.6
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="free",model="t",version="1"} 4000
nv_inference_request_duration_us{model="t",version="1"} 25000000
"""

TGI = """
# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 8
tgi_queue_size 3
tgi_request_success 40
tgi_request_duration_bucket{le="+Inf"} 40
tgi_request_duration_sum 80
tgi_request_duration_count 40
tgi_request_queue_duration_bucket{le="+Inf"} 40
tgi_request_queue_duration_sum 10
tgi_request_queue_duration_count 40
tgi_batch_forward_duration_bucket{method="decode",le="+Inf"} 100
tgi_batch_forward_duration_sum{method="decode"} 2
tgi_batch_forward_duration_count{method="decode"} 100
tgi_batch_forward_duration_bucket{method="prefill",le="+Inf"} 10
tgi_batch_forward_duration_sum{method="prefill"} 3
tgi_batch_forward_duration_count{method="prefill"} 10
"""

DYNAMO = """
# TYPE dynamo_frontend_inflight_requests gauge
dynamo_frontend_inflight_requests{model="m"} 12
dynamo_frontend_queued_requests{model="m"} 3
dynamo_frontend_requests_total{model="m",status="success"} 6000
dynamo_frontend_time_to_first_token_seconds_bucket{model="m",le="+Inf"} 10
dynamo_frontend_time_to_first_token_seconds_sum{model="m"} 4
dynamo_frontend_time_to_first_token_seconds_count{model="m"} 10
dynamo_frontend_model_max_num_seqs{model="m"} 256
"""

LMCACHE = """
# TYPE lmcache_mp_lookup_requested_tokens_total counter
lmcache_mp_lookup_requested_tokens_total{cache_salt="a"} 400
lmcache_mp_lookup_hit_tokens_total{cache_salt="a"} 300
lmcache_mp_l1_usage_ratio 0.64
"""

RAY_VLLM = """
# TYPE ray_vllm_num_requests_running gauge
ray_vllm_num_requests_running{engine="0",ReplicaId="x",WorkerId="w"} 4
ray_vllm_num_requests_waiting{engine="0",ReplicaId="x",WorkerId="w"} 1
ray_vllm_kv_cache_usage_perc{engine="0",ReplicaId="x",WorkerId="w"} 0.3
ray_vllm_prompt_tokens_total{engine="0",ReplicaId="x",WorkerId="w"} 77
ray_vllm_time_to_first_token_seconds_bucket{ReplicaId="x",le="+Inf"} 2
ray_vllm_time_to_first_token_seconds_sum{ReplicaId="x"} 0.5
ray_vllm_time_to_first_token_seconds_count{ReplicaId="x"} 2
ray_serve_num_ongoing_requests_at_replicas{deployment="d"} 5
"""

PAGES = {
    "sglang": ("sglang", SGLANG, {
        ("engine_running_count", ""): 12, ("engine_waiting_count", ""): 5, ("kv_used_ratio", ""): 0.93,
        ("forward_busy_ratio", ""): 0.75, ("preemptions_count", ""): 7, ("prompt_cached_tokens", ""): 900,
        ("step_tokens", "prefill_compute"): 4000, ("step_tokens", "decode"): 800, ("ttft_s", ""): 1.5,
        ("request_stage_s", "prefill_forward"): 0.5,
    }),
    "trtllm-serve": ("tensorrt_llm", TRTLLM, {
        ("engine_running_count", ""): 6, ("engine_waiting_count", ""): 2, ("kv_used_ratio", ""): 0.4,
        ("requests_finished_count", "stop"): 150, ("queue_s", ""): 32.5,
    }),
    "dynamo 0.7's trtllm": ("tensorrt_llm", TRTLLM.replace("trtllm_", "trtllm:"), {
        ("engine_running_count", ""): 6, ("engine_waiting_count", ""): 2, ("kv_used_ratio", ""): 0.4,
        ("requests_finished_count", "stop"): 150, ("queue_s", ""): 32.5,
    }),
    "triton": ("tensorrt_llm", TRITON, {
        ("engine_running_count", ""): 4, ("engine_waiting_count", ""): 3, ("engine_slots_count", ""): 512,
        ("engine_prefill_requests_count", ""): 1, ("kv_used_ratio", ""): 0.6,
    }),
    "tgi": ("tgi", TGI, {
        ("engine_running_count", ""): 8, ("engine_waiting_count", ""): 3, ("requests_finished_count", ""): 40,
        ("e2e_s", ""): 80, ("queue_s", ""): 10, ("step_forward_s", "decode"): 2,
        ("step_forward_s", "prefill"): 3,
    }),
    "dynamo": ("dynamo", DYNAMO, {
        ("frontend_inflight_count", ""): 12, ("frontend_queued_count", ""): 3,
        ("requests_finished_count", "success"): 6000, ("ttft_s", ""): 4,
    }),
    "lmcache": ("lmcache", LMCACHE, {
        ("lmcache_queries_tokens", ""): 400, ("lmcache_hits_tokens", ""): 300,
        ("lmcache_used_ratio", ""): 0.64,
    }),
    "ray serve": ("vllm", RAY_VLLM, {
        ("engine_running_count", ""): 4, ("engine_waiting_count", ""): 1, ("kv_used_ratio", ""): 0.3,
        ("prompt_tokens", ""): 77, ("ttft_s", ""): 0.5,
    }),
}  # fmt: skip


@pytest.mark.parametrize(("engine", "text", "expected"), PAGES.values(), ids=PAGES)
def test_a_page_in_the_engine_s_own_words(
    engine: str, text: str, expected: dict[tuple[str, str], float]
) -> None:
    got = scrape(text)
    assert got.engine == engine
    assert values(got) == expected
    assert got.unmapped == {}


def test_a_worker_s_page_keeps_its_engine_and_adds_what_the_engine_has_not() -> None:
    got = scrape(
        "vllm:num_requests_running 2\nvllm:kv_cache_usage_perc 0.5\n"
        "dynamo_component_gpu_cache_usage_percent 0.9\ndynamo_component_inflight_requests 3\n"
        "lmcache:num_lookup_hits_total 8\n"
    )
    assert got.engine == "vllm"
    assert values(got) == {
        ("engine_running_count", ""): 2,
        ("kv_used_ratio", ""): 0.5,
        ("worker_inflight_count", ""): 3,
        ("lmcache_hits_tokens", ""): 8,
    }


ALONE = [
    (file, entry.signal, upstream.name, upstream.where, entry.kind, upstream.scale)
    for file in (*engines(), "lmcache")
    for entry in load_map(file).signals
    for upstream in entry.names
    if file not in ("vllm", "llamacpp") and detect_engine([upstream.name]) == file
]


@pytest.mark.parametrize(("engine", "signal", "name", "where", "kind", "scale"), ALONE)
def test_every_name_alone_gives_its_signal(
    engine: str, signal: str, name: str, where: dict[str, str], kind: str, scale: float
) -> None:
    """A name that is shadowed by another, or that its map leaves aside elsewhere, fails here."""
    exposed = name.removesuffix("_total") + {"counter": "_total", "histogram": "_count"}.get(
        kind, ""
    )
    labels = "{" + ",".join(f'{k}="{v}"' for k, v in where.items()) + "}" if where else ""
    got = scrape(f"{exposed}{labels} 3\n")
    [row] = got.samples + got.histograms
    assert (got.engine, row["signal"]) == (engine, signal)
    assert row.get("value", row.get("count")) == pytest.approx(
        3 if kind == "histogram" else 3 * scale
    )


def test_there_are_names_of_every_engine() -> None:
    assert len(ALONE) > 120
    assert {a[0] for a in ALONE} == {*engines(), "lmcache"} - {"vllm", "llamacpp"}


CANONICAL = {
    "engine_running_count", "engine_waiting_count", "kv_used_ratio", "preemptions_count", "ttft_s", "itl_s",
    "tpot_s", "e2e_s", "queue_s", "prefill_s", "decode_s", "inference_s", "prompt_tokens", "generation_tokens",
    "prompt_cached_tokens", "requests_finished_count",
}  # fmt: skip

LACKS = {
    "vllm": set(),
    "sglang": {"prefill_s", "decode_s", "inference_s"},
    "tensorrt_llm": {"itl_s", "preemptions_count"},
    "tgi": {
        "ttft_s", "itl_s", "kv_used_ratio", "preemptions_count", "prefill_s", "decode_s", "prompt_tokens",
        "generation_tokens", "prompt_cached_tokens",
    },
    "llamacpp": {
        "ttft_s", "itl_s", "tpot_s", "e2e_s", "queue_s", "prefill_s", "decode_s", "inference_s",
        "preemptions_count", "requests_finished_count",
    },
    "dynamo": {
        "engine_running_count", "engine_waiting_count", "preemptions_count", "tpot_s", "queue_s", "prefill_s",
        "decode_s", "inference_s", "prompt_tokens", "prompt_cached_tokens",
    },
}  # fmt: skip


@pytest.mark.parametrize("engine", engines())
def test_what_an_engine_cannot_tell(engine: str) -> None:
    own = {e.signal for e in load_map(engine).signals if detect_engine([e.names[0].name]) == engine}
    assert CANONICAL - own == LACKS[engine]


def test_exporters_have_a_map() -> None:
    for name in EXPORTERS:
        assert load_map(name).signals
        assert not load_map(name).serves


CORPUS = os.environ.get("WHYBOUND_CORPUS", "")
SEEN = {
    "vllm": {"engine_running_count", "engine_waiting_count", "kv_used_ratio", "ttft_s", "queue_s"},
    "sglang": {"prompt_tokens", "generation_tokens", "prefix_hit_last_batch_ratio"},
    "tensorrt_llm": {"requests_finished_count", "ttft_s", "e2e_s"},
    "lmcache": {"lmcache_used_bytes"},
}
"""What every recorded page of an engine tells, excerpts and all."""


def _recorded() -> list[Path]:
    if not CORPUS:
        return []
    return sorted(p for s in ("txt", "prom") for p in Path(CORPUS).glob(f"4-prometheus*/*/*.{s}"))


@pytest.mark.skipif(not CORPUS, reason="WHYBOUND_CORPUS does not name the corpus folder")
@pytest.mark.parametrize("path", _recorded(), ids=lambda p: p.name)
def test_recorded_pages_of_every_engine(path: Path) -> None:
    got = scrape(path.read_bytes())
    found = {r["signal"] for r in got.samples + got.histograms} - {"engine_process_cpu_s"}
    assert got.unmapped == {}
    if "190d8172" in path.name:  # the cache's server before anything asked it
        assert (got.engine, found) == ("", set())
    elif got.engine == "vllm" and path.stat().st_size < 2000:
        assert found == {"requests_finished_count", "ttft_s"}
    elif got.engine == "lmcache":
        assert found & {"lmcache_queries_tokens", "lmcache_used_bytes", "lmcache_evictions_count"}
    else:
        assert SEEN[got.engine] <= found, got.engine
