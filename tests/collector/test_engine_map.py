"""The maps as data: strict, complete, and their alarms on what is expected but absent."""

from __future__ import annotations

import pytest

from whybound.collector.engine_map import COMPANIONS, engines, load_map, parse_map, parse_version
from whybound.collector.sources.exposition import detect_engine
from whybound.errors import WhyboundError

GOOD = """
engine: toy
doc: a toy
source: this test
prefix: "toy:"
since: 1.0.0
variants:
  - {prefix: ray_, colon: _, lazy: true, doc: another exporter}
signals:
  - {signal: engine_running_count, kind: gauge, unit: count, expected: true, doc: running,
     names: [{name: "toy:running"}]}
  - {signal: kv_used_ratio, kind: gauge, unit: ratio, expected: true, doc: cache,
     names: [{name: "toy:kv", since: 1.5.0}, {name: "toy:gpu", until: 1.7.0}]}
  - {signal: queue_s, kind: histogram, unit: s, expected: true, doc: queue,
     names: [{name: "toy:queue_ms", since: 1.4.0, scale: 0.001}]}
ignored:
  - {reason: noise, names: ["toy:noise_total"]}
"""


def test_maps_that_are_shipped_load() -> None:
    assert engines() == ["dynamo", "llamacpp", "sglang", "tensorrt_llm", "tgi", "vllm"]
    for engine in engines():
        assert load_map(engine).engine == engine


def test_every_mapped_signal_says_what_it_is_and_its_engine_is_recognised() -> None:
    for engine in engines():
        for entry in load_map(engine).signals:
            assert len(entry.doc) > 5, entry.signal
            upstream = [u.name for u in entry.names]
            if entry.signal != "engine_process_cpu_s":
                assert detect_engine(upstream) in {engine, *COMPANIONS.get(engine, ())}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("kind: gauge, unit: count", "kind: gouge, unit: count", "$.signals[0].kind"),
        ("kind: gauge, unit: count", "kind: gauge, unit: furlongs", "furlongs is not a unit"),
        ("kind: gauge, unit: count", "kind: gauge, unit: count, scael: 2", "scael"),
        ("doc: running", "docs: running", "docs"),
        ("signal: kv_used_ratio", "signal: engine_running_count", "is there twice"),
        ("toy:noise_total", "toy:running", "toy:running is there twice"),
        (
            '"toy:running"}',
            '"toy:running", where: {a: b}}, {name: "toy:running", where: {a: b}}',
            "twice",
        ),
        ("toy:noise_total", "joy:noise", "does not begin with toy:"),
        ("until: 1.7.0", "since: 1.8.0, until: 1.7.0", "since 1.8.0 is after until 1.7.0"),
        ("until: 1.7.0", "until: later", "'later' is not a version"),
        ("since: 1.5.0", "since: 1.5", "$.signals[1].names[0].since"),
        ("scale: 0.001", "scale: 0", "scale must be above 0"),
        ('[{name: "toy:running"}]', "[]", "has no names"),
        ("engine: toy", "engine: [", "not YAML"),
    ],
)
def test_a_broken_map_is_refused_in_one_line(old: str, new: str, says: str) -> None:
    parse_map(GOOD, "toy.yaml")
    assert GOOD.count(old) >= 1
    with pytest.raises(WhyboundError) as caught:
        parse_map(GOOD.replace(old, new, 1), "toy.yaml")
    assert says in str(caught.value)
    assert str(caught.value).startswith("toy.yaml: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.10.2", (0, 10, 2)),
        ("v0.9.0", (0, 9, 0)),
        ("0.11.0rc1.dev5+cu129", (0, 11, 0)),
        ("1", (1,)),
    ],
)
def test_versions(text: str, version: tuple[int, ...]) -> None:
    assert parse_version(text) == version


def test_a_text_that_is_no_version_is_refused() -> None:
    with pytest.raises(ValueError, match="'main' is not a version"):
        parse_version("main")


@pytest.fixture
def toy():  # type: ignore[no-untyped-def]
    from whybound.collector.engine_map import EngineMap

    return EngineMap("toy", [parse_map(GOOD, "toy.yaml")])


@pytest.mark.parametrize(
    ("present", "version", "absent"),
    [
        # The version decides what can be missed.
        ([], "1.0.0", ["engine_running_count", "kv_used_ratio"]),
        ([], "1.4.0", ["engine_running_count", "kv_used_ratio", "queue_s"]),
        # One of the alternatives is enough, and so is a declaration.
        (["toy:running", "toy:gpu"], "1.3.0", []),
        (["toy:running", "toy:kv", "toy:queue_ms"], "1.9.0", []),
        (["toy:running", "toy:kv", "toy:queue_ms_bucket"], "1.9.0", []),
        # Unknown version: the names bound it. Before 1.4.0 there may be no queue …
        (["toy:running", "toy:gpu"], None, []),
        (["toy:running"], None, ["kv_used_ratio"]),
        # … and toy:kv says 1.5.0 or later.
        (["toy:running", "toy:kv"], None, ["queue_s"]),
        # An exporter that hides what never changed: only gauges can be missed.
        (["ray_toy_kv"], None, ["engine_running_count"]),
        (["toy:kv"], None, ["engine_running_count", "queue_s"]),
    ],
)
def test_expected_but_absent(toy, present, version, absent) -> None:  # type: ignore[no-untyped-def]
    assert toy.absent(present, version) == absent


def test_a_page_of_impossible_versions_alarms_only_on_what_always_was() -> None:
    vllm = load_map("vllm")
    mixed = ["vllm:num_requests_swapped", "vllm:request_num_preemptions"]  # ..0.9.0 and 0.30.0..
    absent = vllm.absent(mixed)
    assert "engine_running_count" in absent
    assert "queue_s" not in absent


@pytest.mark.parametrize(
    ("version", "absent", "not_absent"),
    [
        ("0.5.5", {"ttft_s", "itl_s", "kv_used_ratio"}, {"queue_s", "prefix_queries_tokens"}),
        ("0.9.2", {"queue_s", "itl_s", "kv_used_ratio"}, {"prefix_queries_tokens"}),
        ("0.10.2", {"itl_s", "kv_used_ratio"}, {"engine_waiting_by_reason_count", "tpot_s"}),
        ("0.33.0", {"prefix_queries_tokens", "engine_waiting_by_reason_count"}, {"tpot_s"}),
    ],
)
def test_vllm_alarms_follow_the_version(
    version: str, absent: set[str], not_absent: set[str]
) -> None:
    missed = set(load_map("vllm").absent([], version))
    assert absent <= missed
    assert not (not_absent & missed)


@pytest.mark.parametrize(
    "name",
    [
        "vllm:mm_cache_queries",
        "vllm:mm_cache_queries_total",
        "vllm:kv_offload_tiering_read_time_bucket",
        "vllm:mooncake_store_operation",
        "vllm:prompt_tokens_created",
        "ray_vllm_mm_cache_hits_total",
        "python_info",
        "http_requests",
        "ray_node_gpus_utilization",
        "target_info",
    ],
)
def test_known_and_left_aside(name: str) -> None:
    assert load_map("vllm").is_ignored(name)


@pytest.mark.parametrize("name", ["vllm:brand_new", "ray_vllm_brand_new", "lmcache:hits"])
def test_what_no_map_knows_is_not_left_aside(name: str) -> None:
    assert not load_map("vllm").is_ignored(name)
    assert not load_map("vllm").wants(name)


def test_every_name_has_its_ray_spelling_and_none_is_also_left_aside() -> None:
    vllm = load_map("vllm")
    plain = {n for n in vllm.targets if n.startswith("vllm:")}
    ray = {n for n in vllm.targets if n.startswith("ray_")}
    assert ray == {"ray_" + n.replace(":", "_") for n in plain}
    assert not [n for n in plain | ray if vllm.is_ignored(n)]
