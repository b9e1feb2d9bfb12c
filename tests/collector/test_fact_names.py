"""What people call figures: the signal and the value that is read of it, and what is refused."""

from __future__ import annotations

import time

import pytest
from import_files import imported

from whybound.analyzers.given import known_signals
from whybound.collector.fact_figures import figure
from whybound.collector.fact_names import MAX_NAME, MAX_WRITTEN, plainer, read_name
from whybound.collector.fact_table import table
from whybound.collector.importers.facts_file import MAX_FACTS, MAX_SAID, named_row
from whybound.errors import UsageError

KNOWN = [*known_signals()]


def row(name, value):
    return named_row(name, value, KNOWN, t_ns=1)


@pytest.mark.parametrize(
    ("name", "value", "signal", "number"),
    [
        # latencies
        ("ttft_p50_ms", "300", "client_ttft_p50_s", 0.3),
        ("TTFT (p99, ms)", "1,200", "client_ttft_p99_s", 1.2),
        ("ttft", "1.2 s", "client_ttft_mean_s", 1.2),
        ("mean_ttft_ms", 812, "client_ttft_mean_s", 0.812),
        ("median_tpot_ms", "20", "client_tpot_p50_s", 0.02),
        ("p99_itl_ms", "80", "client_itl_p99_s", 0.08),
        ("tpot", "about 60 ms", "client_tpot_mean_s", 0.06),
        ("e2e_p95_s", "12", "client_e2e_p95_s", 12),
        ("latency", "2 s", "client_e2e_mean_s", 2),
        ("queue_time_ms", "800", "server_queue_mean_s", 0.8),
        ("bench.c8.ttft_p95_ms", 400, "client_ttft_p95_s", 0.4),
        # rates and load
        ("tok_s", "43", "output_tokens_per_s", 43),
        ("tok/s", "43", "output_tokens_per_s", 43),
        ("tps", "43", "output_tokens_per_s", 43),
        ("gen_throughput", "43", "generation_tokens_per_s", 43),
        ("prefill_tok_s", "900", "prompt_tokens_per_s", 900),
        ("throughput", "43 tok/s", "output_tokens_per_s", 43),
        ("throughput", "4 req/s", "completed_rate_per_s", 4),
        ("per_request_tok_s", "20", "client_tpot_mean_s", 0.05),
        ("request_rate", "4 req/s", "offered_rate_per_s", 4),
        ("concurrency", "~100", "inflight_mean_count", 100),
        ("users", "1-2", "inflight_mean_count", 1.5),
        ("workload.running", "4", None, None),
        ("input_tokens", "3-6k", "input_mean_tokens", 4500),
        ("prompt_tokens", "2048", "input_mean_tokens", 2048),
        ("load.output_tokens", "128", "output_mean_tokens", 128),
        ("success_rate", "98%", "failed_ratio", 0.02),
        # the engine
        ("kv_usage_pct", "98", "kv_used_mean_ratio", 0.98),
        ("vllm:kv_cache_usage_perc", "0.97", "kv_used_mean_ratio", 0.97),
        ("kv usage", "97 of 100", "kv_used_mean_ratio", 0.97),
        ("num_preemptions", "12", "preemptions_count", 12),
        ("vllm:num_requests_waiting", "240", "waiting_mean_count", 240),
        ("running", "12", "running_mean_count", 12),
        ("max_num_seqs", "64", "max_num_seqs_count", 64),
        ("kv_cache_tokens", "60k", "kv_capacity_tokens", 60_000),
        ("cuda_graph", "off", "graph_replayed_ratio", 0),
        ("cuda_graph", False, "graph_replayed_ratio", 0),
        ("eager", "yes", "graph_replayed_ratio", 0),
        ("prefix_cache_hit_rate", "12%", "prefix_hit_ratio", 0.12),
        ("acceptance_rate", "0.6", "speculation_accepted_ratio", 0.6),
        ("step_ms", "30", "step_s", 0.03),
        ("forward_ms", "9.5", "step_device_s", 0.0095),
        # GPUs
        ("gpu_util", "96%", "gpu_busy_ratio", 0.96),
        ("gpu_util", "96", "gpu_busy_ratio", 0.96),
        ("GPU-util %", 96, "gpu_busy_ratio", 0.96),
        ("gpu_idle_pct", "40", "gpu_busy_ratio", 0.6),
        ("sm_active", [60, 75], "gpu_sm_ratio", None),
        ("power_w", "650", "gpu_power_w", 650),
        ("sm_clock", "1410", "gpu_sm_clock_mhz", 1410),
        ("hbm_gb_s", "1500", "memory_read_per_s", 1.5e12),
        # hosts and networks
        ("pcie_link_width", "x4", "gpu_pcie_width_ratio", 0.25),
        ("lnksta", "Speed 8GT/s, Width x2 (max x8)", "gpu_pcie_width_ratio", 0.25),
        ("preemptions", "none", "preemptions_count", 0),
        ("prefill_10k_tok_s", 1300, "prompt_tokens_per_s", 1300),
        ("process_cpu_pct", "100", "server_process_cpu_ratio", 1),
        ("engine_core_cpu", "1.0", "server_process_cpu_ratio", 1),
        ("cpu_util", "30%", "host_cpu_busy_mean_ratio", 0.3),
        ("cpu_throttled", "12%", "cpu_periods_throttled_ratio", 0.12),
        ("cpu_limit", "2", "cpu_limit_cores_count", 2),
        ("allreduce_us", "20", "collective_s", 2e-5),
        ("all_reduces_per_token", "160", "collectives_per_token_count", 160),
        ("link_Gbps", "100", "link_per_s", 1.25e10),
        ("nvlink_gb_s", "300", "link_per_s", 3e11),
        ("kv_transfer_ms", "30", "kv_transfer_mean_s", 0.03),
        ("swap_gb", "4", "spilled_bytes", 4e9),
    ],
)
def test_what_people_call_it(name, value, signal, number):
    if signal is None:
        assert read_name(name, value, KNOWN) is None
        return
    found, said = row(name, value)
    assert found["signal"] == signal
    if number is not None:
        assert found["value"] == pytest.approx(number)
    assert said.startswith(f"read {name} as {signal} = ")


@pytest.mark.parametrize(
    ("name", "value", "low", "high"),
    [
        ("concurrency", "30+", 30, None),
        ("gpu_util", "near 100%", 0.9, 1),
        ("gpu_util", "starved", 0, 0.6),
        ("gpu_util", "pegged", 0.95, 1),
        ("kv_usage", "full", 0.95, 1),
        ("sm_util", "60-75 %", 0.6, 0.75),
        ("sm_util", "not high", 0, 0.7),
        ("input_tokens", "3-6k", 3000, 6000),
        ("ttft_ms", "< 30", 0, 0.03),
    ],
)
def test_words_and_ranges(name, value, low, high):
    found, _ = row(name, value)
    assert (found["low"], found["high"]) == (pytest.approx(low), high and pytest.approx(high))


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("gpu_sm_rati", "50 %", "did you mean gpu_sm_ratio"),
        ("foo_bar", "3", "no signal 'foo_bar'"),
        ("rps", "4", "may be completed_rate_per_s or offered_rate_per_s"),
        ("max_concurrency", "32", "may be inflight_mean_count or kv_room_ratio"),
        ("decode_alone_tok_s", "43", "another state (alone)"),
        ("ttft_healthy_s", "1", "another state (healthy)"),
        ("health_check_ms", "1", "a request without work"),
        ("tok_s_vllm_vs_sglang", "1", "two sides"),
        ("ttft_ms", "300 -> 100", "before"),
        ("ttft", "300", "no unit"),
        ("ttft_ms", "20 tok/s", "no unit of it"),
        ("ttft_p90_ms", "3", "of p90 no signal"),
        ("ttft_min_ms", "3", "a least value"),
        ("power_cap_w", "300", "under `settings`"),
        ("peak_tok_s", "300", "a peak of a rate"),
        ("total_input_tokens", "300", "a whole run"),
        ("sampling_ms", "3", "a part of the host's time"),
        ("gpu_memory_utilization", "0.9", "no signal"),
        ("prefill_latency_ms", "300", "no signal"),
        ("tok_s", "3 GB/s", "no signal"),
        ("cpu", "100%", "says nothing of it"),
        ("process_cpu_pct", "-5", "negative"),
        ("", "1", "no signal"),
        ("...", "1", "no signal"),
        ("ttft_ms", None, "is no value"),
    ],
)
def test_refused(name, value, why):
    with pytest.raises(UsageError) as caught:
        row(name, value)
    assert why in str(caught.value)


def test_a_signals_own_name_wins_and_its_number_is_not_guessed():
    assert row("gpu_busy_ratio", "0.96")[1] == ""
    with pytest.raises(UsageError, match="write 96 %"):
        row("gpu_busy_ratio", "96")
    found, said = row("gpu_busy_ratio", "starved")
    assert (found["low"], found["high"]) == (0, 0.6)
    assert said == "read gpu_busy_ratio = starved as 0.0..0.6"
    mine, said = named_row("tok_s", "43 s", ["tok_s"], t_ns=1)
    assert (mine["signal"], mine["value"], said) == ("tok_s", 43, "")


def test_what_was_read_is_said():
    assert (
        row("process_cpu_pct", "100")[1] == "read process_cpu_pct as server_process_cpu_ratio = 1.0"
    )
    assert row("concurrency", "30+")[1] == "read concurrency as inflight_mean_count = >= 30.0"


def test_a_median_stands_for_a_mean_where_only_that_is_kept():
    assert read_name("ttft_p50_ms", 3, ["client_ttft_mean_s"]) == ("client_ttft_mean_s", "3 ms")
    assert read_name("ttft_p50_ms", 3, ["client_ttft_p99_s"]) is None


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("30+", ">= 30"),
        ("3-6k", "3000..6000"),
        ("0.5-4k", "500..4000"),
        ("1 min 5 s", "65 s"),
        ("36 +- 1", "35..37"),
        ("drops to ~5 tok/s", "~5 tok/s"),
        ("a few seconds", "2..9 s"),
        ("up to 40 ms (p99)", "up to 40 ms"),
        ("words alone", "words alone"),
    ],
)
def test_figures(text, plain):
    assert figure(text) == plain


def test_plainer_leaves_what_it_cannot_read():
    assert plainer("input_mean_tokens", "many") == "many"
    assert plainer("load_mode", "30+") == "30+"
    assert plainer("client_ttft_p50_s", "about 300 ms") == "about 300 ms"


NESTED = """\
facts:
  gpu_sm_ratio: 60-75 %
  bench:
    ttft_ms: {p50: 300, p99: 900}
    before: {tok_s: 40}
    after: {tok_s: 90}
  before: {kv_usage: 98 %}
  empty: {}
  gpu: {util: {before: 30 %, after: 90 %}}
  workload: {concurrency: 32}
  host: {server_process_cpu_ratio: 99 %, foo: 3}
"""


def test_nested(tmp_path):
    (tmp_path / "f.yaml").write_text(NESTED)
    outcomes, rows = imported(tmp_path, tmp_path / "f.yaml", signals=KNOWN)
    assert {(r["signal"], r["when"]): r["value"] for r in rows("facts")} == {
        ("gpu_sm_ratio", ""): pytest.approx(0.675),
        ("client_ttft_p50_s", ""): 0.3,
        ("client_ttft_p99_s", ""): 0.9,
        ("output_tokens_per_s", "before"): 40,
        ("output_tokens_per_s", "after"): 90,
        ("kv_used_mean_ratio", "before"): 0.98,
        ("gpu_busy_ratio", "before"): 0.3,
        ("gpu_busy_ratio", "after"): 0.9,
        ("inflight_mean_count", ""): 32,
        ("server_process_cpu_ratio", ""): 0.99,
    }
    assert "read bench.ttft_ms.p50 as client_ttft_p50_s = 0.3" in outcomes[0].notes
    assert "empty: no value, before or after (and 1 more)" in outcomes[0].refused


def test_two_names_of_one_signal_are_not_both_taken(tmp_path):
    (tmp_path / "f.yaml").write_text(
        "facts:\n  ttft_p50_ms: 300\n  client_ttft_p50_s: 200 ms\n  c8: {tok_s: 40}\n  c16: {tok_s: 90}\n"
    )
    outcomes, rows = imported(tmp_path, tmp_path / "f.yaml", signals=KNOWN)
    assert {r["signal"]: r["value"] for r in rows("facts")} == {
        "client_ttft_p50_s": 0.2,
        "output_tokens_per_s": 40,
    }
    assert "which client_ttft_p50_s gives too" in outcomes[0].refused


@pytest.mark.parametrize(
    "piece", ["queue_", "memory", "kv_", "collective.", "a.", "engine_core", "_", "gb_s"]
)
def test_hostile_names_take_no_time(piece):
    name = (piece * MAX_NAME)[:MAX_NAME]
    started = time.process_time()
    said = []
    for value in (
        "1", "9" * MAX_WRITTEN, "1 " * 100, "(" * MAX_WRITTEN, "about " * 33, " " * 199 + "x", "1-" * 100,
    ):  # fmt: skip
        refused = ""
        try:
            row(name, value)
        except UsageError as error:
            refused = str(error)
        said.append(refused)
    assert time.process_time() - started < 2
    assert max(map(len, said)) < 700


@pytest.mark.parametrize(
    "value", ["1" * (MAX_WRITTEN + 1), ["1"] * 101, [["1"]], 10**400, {"a": 1}]
)
def test_values_beyond_bounds_are_refused(value):
    with pytest.raises(UsageError):
        row("tok_s", value)


def test_hostile_files(tmp_path):
    aliases = (
        "facts:\n"
        + "  l0: &l0 {tok_s: 1}\n"
        + "".join(
            f"  l{i}: &l{i} {{{', '.join(f'x{j}: *l{i - 1}' for j in range(9))}}}\n"
            for i in range(1, 20)
        )
    )
    deep = "facts:\n  a: " + "{b: " * 60 + "1" + "}" * 60
    long = "facts:\n  " + "tok_s" * 50 + ": 1\n"
    many = "facts:\n" + "".join(f"  c{i}: {{x{i}: 1}}\n" for i in range(3 * MAX_FACTS))
    for text, said in (
        (aliases, "more than"),
        (deep, "deeper"),
        (long, "longer"),
        (many, "more than"),
    ):
        (tmp_path / "f.yaml").write_text(text)
        outcomes, _ = imported(tmp_path, tmp_path / "f.yaml", kind="facts", signals=KNOWN)
        assert said in outcomes[0].refused or "more)" in outcomes[0].refused


@pytest.mark.parametrize("text", ["tok_s: 0x{}", "gpu_sm_ratio: 0x{}", "0x{}: 1"])
def test_numbers_without_end(tmp_path, text):
    (tmp_path / "f.yaml").write_text("facts:\n  " + text.format("f" * 9000) + "\n")
    outcomes, _ = imported(tmp_path, tmp_path / "f.yaml", kind="facts", signals=KNOWN)
    assert outcomes[0].refused


def test_notes_are_bounded(tmp_path):
    names = [f"gpu{i}" for i in range(MAX_SAID + 5)]
    text = "facts:\n" + "".join(
        f"  {n}.util: {{value: 5 %, scope: gpu={i}}}\n" for i, n in enumerate(names)
    )
    (tmp_path / "f.yaml").write_text(text)
    outcomes, rows = imported(tmp_path, tmp_path / "f.yaml", signals=KNOWN)
    assert len(rows("facts")) == len(names)
    assert outcomes[0].notes[-1] == "and 5 more names read"


def test_every_row_of_the_table_is_sound():
    rows = [*table()["load"], *table()["measured"]]
    assert len({r["key"] for r in rows}) >= len(rows) - 2
    told = {r["signal"] for r in rows if "signal" in r and "{" not in r["signal"]}
    assert told <= {*KNOWN}
    for r in rows:
        assert bool(r.get("signal")) != bool(r.get("none"))
        assert set(r) <= {"id", "key", "not", "time", "signal", "unit", "as", "none"}
