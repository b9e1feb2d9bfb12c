"""Every view on empty, one-row and missing tables; the important ones against tables worked out by hand."""

import random

import pytest

from whybound.analyzers.database import requires, view_sources
from whybound.analyzers.diagnose import diagnose_open
from whybound.analyzers.signals import read_signals
from whybound.collector.schema import TABLES
from whybound.collector.store import open_run

VIEWS = list(view_sources())
ALWAYS = {"run_window"}  # one row, always: those that join it must not vanish
BORN_AT = {"load_mode": "events", "client_realtime": "events", "token_budget_tokens": "settings"}


def ns(t_s):
    return 1_700_000_000_000_000_000 + round(t_s * 1e9)


def rows(con, query):
    """Rows without their time zone: numbers rounded to a nanosecond's worth."""
    return [
        tuple(round(v, 9) if isinstance(v, float) else v for v in row)
        for row in con.execute(query).fetchall()
    ]


def one(con, query):
    (row,) = rows(con, query)
    return row


def base_tables(view):
    found = set()
    for name in requires(view_sources()[view]):
        found |= {name} if name in TABLES else base_tables(name)
    return found


# ---------------------------------------------------------------- empty, one row, a table missing


def test_empty_run_has_no_rows_and_no_signals(build):
    con = build.database()
    counts = {view: len(con.execute(f"SELECT * FROM {view}").fetchall()) for view in VIEWS}
    assert counts == {view: int(view in ALWAYS) for view in VIEWS}
    assert rows(con, "SELECT * FROM run_window") == [(None,) * 5]
    assert read_signals(con) == []


def test_one_row_run(one_row):
    con = one_row.database()
    for view in VIEWS:
        con.execute(f"SELECT * FROM {view}").fetchall()
    facts = {s.name: s.text if s.value is None else s.value for s in read_signals(con)}
    assert facts["client_e2e_mean_s"] == pytest.approx(0.4)
    assert facts["load_mode"] == "open"
    assert facts["max_num_seqs_count"] == 4
    # What one request cannot show must not be there: a rate, a growth, an interval, a counter's step.
    for name in ("offered_rate_per_s", "queue_growth_per_s", "warmup_drift_ratio", "generation_tokens_per_s",
                 "server_e2e_mean_s", "server_front_end_mean_s", "preemptions_count"):  # fmt: skip
        assert name not in facts


def test_no_view_shows_nan_or_infinity(one_row):
    con = one_row.database()
    for view in VIEWS:
        for row in con.execute(f"SELECT * FROM {view}").fetchall():
            assert not [
                v for v in row if isinstance(v, float) and (v != v or abs(v) == float("inf"))
            ], view


NOT_READ_YET = {"steps", "facts"}
"""Tables that no view reads: the fit reads the passes, and what was given stands beside the views."""


@pytest.mark.parametrize("table", TABLES)
def test_missing_table_leaves_no_fact_that_rests_on_it(emulated, table):
    """Missing is never zero: the others' facts stay as they are, those of the table are not there."""
    build = emulated(rate=3, n=40, policy={"max_num_seqs": 2})
    whole = {s.name: s.value for s in read_signals(build.database())}
    left = read_signals(build.database(without=table))
    if table in NOT_READ_YET:
        assert {s.name for s in left} == set(whole)
    else:
        assert {s.name for s in left} < set(whole)
    for signal in left:
        assert base_tables(signal.source) != {table}, signal
        assert BORN_AT.get(signal.name) != table, signal
    assert [s.name for s in left if s.value == 0 and whole[s.name] != 0] == []


def test_without_histograms_no_server_time_is_claimed(emulated):
    facts = {
        s.name: s.value for s in read_signals(emulated(rate=3, n=40).database(without="histograms"))
    }
    assert not [
        n for n in facts if n.startswith(("server_", "front_end", "network_", "wait_share"))
    ]
    assert "phases_error_ratio" not in facts


def test_without_settings_no_slot_is_called_taken_or_free(emulated):
    facts = {s.name for s in read_signals(emulated(rate=3, n=40).database(without="settings"))}
    assert not facts & {"slots_used_ratio", "waiting_no_slot_ratio", "waiting_step_in_flight_ratio"}


# ---------------------------------------------------------------- by hand


def test_run_window_is_that_of_the_load_without_its_warmup(build):
    build.request(0, 0.1, [0.1], warmup=True)
    build.request(2, 0.1, [0.4])
    build.request(5, 0.1, [0.1])
    build.gauge(0, engine_running_count=1)
    build.gauge(60, engine_running_count=1)
    assert one(build.database(), "SELECT sending_s, duration_s FROM run_window") == (3.0, 3.2)


def test_run_window_is_that_of_the_scrapes_without_a_load(build):
    build.gauge(1, engine_running_count=1)
    build.gauge(9, engine_running_count=1)
    build.add(
        "samples", t_ns=0, signal="host_cpu_ratio", kind="gauge", value=1.0, engine="", node="n"
    )
    assert one(build.database(), "SELECT sending_s, duration_s FROM run_window") == (8.0, 8.0)


def test_a_request_is_taken_in_its_last_state(build):
    build.request(0, None, status="unfinished", request_id="a")
    build.request(0, 0.5, [0.5], request_id="a")
    build.request(1, None, status="unfinished", request_id="b")
    assert rows(
        build.database(),
        "SELECT request_id, status, client_e2e_s FROM measured_requests ORDER BY 1",
    ) == [("a", "ok", 1.0), ("b", "unfinished", None)]


def test_counter_deltas_count_a_reset_once_and_nothing_outside_the_window(build):
    build.request(10, 0.1, [1])
    build.request(20, 0.1, [1])
    build.counter("generation_tokens", {0: 0, 8: 500, 12: 540, 16: 10, 20: 30, 40: 900})
    con = build.database()
    # 8 → 12 lies around the start (its middle is inside), 20 → 40 outside; at 16 the engine restarted
    assert one(con, "SELECT delta, resets, intervals, span_s FROM counter_deltas") == (
        40 + 10 + 20,
        1,
        3,
        12.0,
    )


def test_counter_series_are_kept_apart(build):
    build.request(0, 0.1, [1])
    build.request(9, 0.1, [1])
    for reason, last in (("stop", 7.0), ("length", 2.0)):
        build.counter("requests_finished_count", {0: 0, 5: last}, reason=reason)
    assert rows(build.database(), "SELECT reason, delta FROM counter_deltas ORDER BY 1") == [
        ("length", 2.0),
        ("stop", 7.0),
    ]


def test_histogram_totals_with_a_reset_and_unchanged_scrapes_left_out(build):
    build.request(10, 0.1, [1])
    build.request(20, 0.1, [1])
    # sum and count; nothing between 11 and 15 changed, so no scrape was stored; at 17 it restarted
    build.histogram("queue_s", {5: (50, 100), 11: (52, 104), 15: (58, 106), 17: (3, 2), 21: (4, 3)})
    build.histogram("prefill_s", {5: (7, 7)})
    assert rows(
        build.database(), "SELECT signal, total, observations, mean FROM histogram_totals"
    ) == [("queue_s", 2 + 6 + 3 + 1, 4 + 2 + 2 + 1, round(12 / 9, 9))]


def phases(build, **means):
    """Histograms of ten requests with these mean seconds."""
    build.request(0, 0.1, [1])
    build.request(9, 0.1, [1])
    for signal, mean in means.items():
        build.histogram(signal, {0: (0, 0), 5: (10 * mean, 10)})
    return build.database()


def test_server_phases(build):
    con = phases(
        build, queue_s=0.5, prefill_s=0.25, decode_s=2, inference_s=2.25, ttft_s=0.8, e2e_s=3
    )
    assert one(con, "SELECT * EXCLUDE (server_itl_mean_s) FROM server_phases") == (
        10, 0.5, 0.25, 2.0, 2.25, 0.8, 3.0, 0.25, 0.05, round(0.5 / 3, 9), round(0.25 / 3, 9),
    )  # fmt: skip
    assert one(con, "SELECT server_itl_mean_s FROM server_phases") == (None,)


def test_server_phases_front_end_is_never_below_zero_and_never_guessed(build, new_build):
    con = phases(build, queue_s=1, prefill_s=1, decode_s=1, e2e_s=2.9)
    assert one(con, "SELECT server_front_end_mean_s, front_end_share_ratio FROM server_phases") == (
        0.0,
        0.0,
    )
    con = phases(new_build("other"), prefill_s=1, decode_s=1, e2e_s=2.9, ttft_s=1.5)
    assert one(
        con,
        "SELECT server_front_end_mean_s, server_ttft_front_end_mean_s, wait_share_ratio FROM server_phases",
    ) == (None, None, None)


def queued(build, scrapes, *, prompt=10, until=10, **settings):
    build.request(0, 0.1, [0.1], input_tokens=prompt)
    build.request(until, 0.1, [0.1], input_tokens=prompt)
    build.settings(**settings)
    for t, (running, waiting, kv) in enumerate(scrapes):
        build.gauge(t, engine_running_count=running, engine_waiting_count=waiting, kv_used_ratio=kv)
    return build.database()


@pytest.mark.parametrize(
    ("scrape", "settings", "prompt", "cause"),
    [
        ((4, 3, 0.2), {"max_num_seqs": 4, "max_num_batched_tokens": 100}, 10, "no_slot"),
        ((2, 3, 0.95), {"max_num_seqs": 4, "max_num_batched_tokens": 100}, 10, "no_kv_block"),
        ((2, 3, 0.2), {"max_num_seqs": 4, "max_num_batched_tokens": 100}, 200, "no_token_budget"),
        ((2, 1, 0.2), {"max_num_seqs": 4, "max_num_batched_tokens": 100}, 199, "step_in_flight"),
        ((2, 3, 0.2), {"max_num_batched_tokens": 100}, 10, "unknown"),
        ((2, 3, None), {"max_num_seqs": 8, "max_num_batched_tokens": 100}, 10, "unknown"),
        ((2, 3, 0.2), {"max_num_seqs": 8, "max_num_batched_tokens": 100}, None, "unknown"),
    ],
)
def test_waiting_causes(build, scrape, settings, prompt, cause):
    con = queued(build, [scrape], prompt=prompt, **settings)
    assert rows(con, "SELECT running, waiting, cause FROM waiting_causes") == [
        (*map(float, scrape[:2]), cause)
    ]


def test_waiting_causes_between_two_requests_a_slot_only_looks_free(build):
    con = queued(build, [(4, 5, 0.1), (4, 5, 0.1), (4, 5, 0.1), (3, 5, 0.1)], max_num_seqs=4)
    assert rows(con, "SELECT cause FROM waiting_causes") == [("no_slot",)] * 4


def test_queue(build):
    scrapes = [(0, 0, 0.0), (2, 0, 0.1), (4, 2, 0.2), (4, 4, 0.3), (2, 2, 0.92)]
    con = queued(build, scrapes, prompt=50, max_num_seqs=4, max_num_batched_tokens=100)
    assert one(
        con,
        "SELECT n, running_mean_count, running_max_count, waiting_mean_count, waiting_max_count,"
        " waiting_busy_ratio, slots_used_ratio, waiting_no_slot_ratio, waiting_no_kv_block_ratio,"
        " waiting_no_token_budget_ratio, chunks_per_prompt_ratio FROM queue",
    ) == (5, 2.4, 4.0, 1.6, 4.0, 0.75, 1.0, 0.75, 0.25, 0.0, 0.5)
    # 0, 0, 2, 4, 2 waiting at seconds 0 to 4: slope (Σ t w − 5 · 2 · 1.6) / 10
    assert one(con, "SELECT queue_growth_per_s FROM queue") == (0.8,)


def test_queue_means_are_by_little_where_the_engine_counts_them(build):
    build.histogram("inference_s", {0: (0, 0), 5: (30, 10)})
    build.histogram("queue_s", {0: (0, 0), 5: (12, 10)})
    con = queued(build, [(0, 0, 0.0), (1, 0, 0.0)], max_num_seqs=4)
    seconds = 10.2  # first arrival to last completion
    assert one(con, "SELECT running_mean_count, waiting_mean_count FROM queue") == (
        round(30 / seconds, 9),
        round(12 / seconds, 9),
    )


def test_engine_limits_effective_beats_requested_and_blocks_make_tokens(build):
    build.settings("requested", max_num_seqs=256, max_num_batched_tokens=512, block_size="auto")
    build.settings("effective", max_num_seqs=8, num_gpu_blocks=100, block_size=16)
    assert one(
        build.database(),
        "SELECT max_num_seqs_count, max_num_seqs_origin, token_budget_tokens, kv_capacity_tokens"
        " FROM engine_limits",
    ) == (8.0, "setting", 512.0, 1600.0)


def test_engine_limits_takes_the_logged_kv_size_first(build):
    build.settings(num_gpu_blocks=100, block_size=16, kv_cache_tokens=1500)
    assert one(build.database(), "SELECT kv_capacity_tokens FROM engine_limits") == (1500.0,)


FLAGS = "SELECT graphs_enabled, chunked_prefill_enabled, prefix_caching_enabled FROM engine_limits"


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({"cudagraph_mode": "FULL_AND_PIECEWISE", "enforce_eager": "false"}, ("yes", None, None)),
        ({"cudagraph_mode": "NONE", "enforce_eager": "false"}, ("no", None, None)),
        ({"enforce_eager": "true"}, ("no", None, None)),
        ({"enforce_eager": "False"}, ("yes", None, None)),
        ({"disable_cuda_graph": "true"}, ("no", None, None)),
        ({"enable_chunked_prefill": "true", "enable_prefix_caching": "False"}, (None, "yes", "no")),
        ({"chunked_prefill_size": "-1", "disable_radix_cache": "false"}, (None, "no", "yes")),
        ({"chunked_prefill_size": "8192"}, (None, "yes", None)),
        ({"max_num_seqs": "4"}, (None, None, None)),
    ],
)
def test_engine_limits_flags(build, settings, flags):
    build.settings(**settings)
    assert one(build.database(), FLAGS) == flags


def test_engine_state_takes_the_log_only_where_nothing_was_scraped(build, new_build):
    def logged(target, t, running):
        target.gauge(t, engine_running_count=running)
        target.rows["samples"][-1] |= {"labels": '{"from":"log","process":"APIServer"}'}

    for t in range(4):
        build.request(t, 0.1)
        logged(build, t + 0.1, 7)
    assert rows(build.database(), "SELECT running FROM engine_state") == [(7.0,)] * 3
    both = new_build("both")
    for t in range(4):
        both.request(t, 0.1)
        logged(both, t + 0.1, 7)
        both.gauge(t + 0.2, engine_running_count=2)
    assert rows(both.database(), "SELECT running FROM engine_state") == [(2.0,)] * 3


def test_engine_limits_reads_an_unknown_cap_off_the_plateau(build, new_build):
    full = [(3, 2, 0.1)] * 7 + [(2, 1, 0.1)] * 3
    con = queued(build, full)
    assert one(con, "SELECT max_num_seqs_count, max_num_seqs_origin FROM engine_limits") == (
        3.0,
        "plateau",
    )
    con = queued(new_build("few"), full[1:])
    assert rows(con, "SELECT * FROM engine_limits") == []


def test_request_batch_is_the_mean_number_decoding_beside(build):
    build.request(0, 1, [2.0, 2.0])  # decodes from 1 to 5
    build.request(2, 1, [1.0, 1.0])  # from 3 to 5
    build.request(3, 1, [1.0] * 4)  # from 4 to 8
    build.request(3, 1)  # a single token: no decode phase
    con = build.database()
    # alone 1 to 3, two 3 to 4, three 4 to 5, then alone; the single token adds no time
    assert rows(
        con, "SELECT request_id, batch_mean_count, gap_p50_s FROM request_batch ORDER BY 1"
    ) == [
        ("q0", (2 * 1 + 1 * 2 + 1 * 3) / 4, 2.0),
        ("q1", (1 * 2 + 1 * 3) / 2, 1.0),
        ("q2", (1 * 3 + 3 * 1) / 4, 1.0),
    ]


def test_step_fit_finds_the_line(build):
    for i in range(6):  # waves of 1 to 6 requests, far apart; each decodes at 20 + 3 × batch ms
        for _ in range(i + 1):
            build.request(10 * i, 0.1, [0.02 + 0.003 * (i + 1)] * 10)
    con = build.database()
    n, low, high, base, slope, error, r2 = one(
        con,
        "SELECT n, batch_min_count, batch_max_count, step_base_s, step_per_sequence_s,"
        " step_per_sequence_error_s, fit_r2_ratio FROM step_fit",
    )
    assert (n, low, high) == (21, 1.0, 6.0)
    assert (base, slope, r2) == pytest.approx((0.02, 0.003, 1.0), rel=1e-6)
    assert error == pytest.approx(0, abs=1e-8)


def test_step_fit_of_one_batch_size_claims_no_slope(build):
    build.request(0, 0.1, [0.02] * 5)
    build.request(9, 0.1, [0.02] * 5)
    assert one(
        build.database(),
        "SELECT n, gap_mean_s, step_base_s, step_per_sequence_s, step_per_sequence_error_s FROM step_fit",
    ) == (2, 0.02, None, None, None)


def test_client_latency_interval_is_that_of_twenty_block_means(build):
    for i in range(40):  # blocks of two with means 1.0 and 1.2 in turn
        build.request(i, 0.1, [0.9 + 0.2 * (i // 2 % 2)])
    mean, low, high = one(
        build.database(),
        "SELECT client_e2e_mean_s, low_client_e2e_mean_s, high_client_e2e_mean_s FROM client_latency",
    )
    spread = 2.09 * (0.1 * (20 / 19) ** 0.5) / 20**0.5
    assert (mean, low, high) == pytest.approx((1.1, 1.1 - spread, 1.1 + spread), rel=1e-6)


def test_client_latency_has_no_interval_below_twenty_requests(build):
    for i in range(19):
        build.request(i, 0.1, [1.0])
    con = build.database()
    assert one(
        con,
        "SELECT n, client_e2e_mean_s, low_client_e2e_mean_s, high_client_itl_mean_s FROM client_latency",
    ) == (19, 1.1, None, None)
    (e2e,) = [s for s in read_signals(con) if s.name == "client_e2e_mean_s"]
    assert (e2e.low, e2e.high) == (None, None)


def test_client_latency_counts_tokens_not_chunks_and_failed_requests_not_at_all(build):
    build.request(0, 0.1, [0.4], output_tokens=9)  # five gaps of four tokens and one
    build.request(1, 0.1, [0.4], output_tokens=None)  # no usage came: it says nothing of tokens
    build.request(2, 5.0, [5.0], status="error")
    assert one(
        build.database(),
        "SELECT n, client_tpot_mean_s, client_itl_mean_s, chunks_per_token_ratio FROM client_latency",
    ) == (2, 0.4 / 8, 0.4, round(2 / 9, 9))


def test_path_is_client_minus_server(build):
    for i in range(10):
        build.request(i, 0.5, [0.5])
    build.histogram("ttft_s", {0: (0, 0), 9: (2, 10)})
    build.histogram("e2e_s", {0: (0, 0), 9: (7, 10)})
    assert one(
        build.database(),
        "SELECT n, network_ttft_s, network_ttft_share_ratio, network_e2e_s, network_share_ratio FROM path",
    ) == (10, 0.3, 0.6, 0.3, 0.3)


def test_identities(build):
    for i in range(8):
        build.request(i, 0.5, [1.5 if i < 2 else 0.5])
    for signal, mean in {"queue_s": 0.1, "prefill_s": 0.2, "decode_s": 0.5, "e2e_s": 1.0}.items():
        build.histogram(signal, {0: (0, 0), 5: (8 * mean, 8)})
    build.counter("generation_tokens", {-1: 0, 0: 0, 8: 20})
    assert one(
        build.database(),
        "SELECT n, warmup_drift_ratio, completed_while_sending_ratio, phases_error_ratio, tokens_error_ratio"
        " FROM identities",
    ) == (8, 2.0, 0.875, 0.0, 0.25)


def test_load(build):
    build.event("load_mode", "closed", t=0)
    build.event("load_mode", "open", t=1)
    for at in (0, 1, 3, 4):
        build.request(at, 0.5, [0.5], input_tokens=10 * (at + 1))
    build.request(2, None, status="refused")
    build.request(2.5, None, status="unfinished")
    assert one(
        build.database(),
        "SELECT n, load_mode, offered_rate_per_s, completed_rate_per_s, failed_ratio, unfinished_ratio,"
        " inflight_mean_count, input_max_tokens, output_tokens_per_s FROM load",
    ) == (6, "open", 1.25, 0.8, round(1 / 6, 9), round(1 / 6, 9), 0.8, 50.0, 1.6)


def test_client_health_says_nothing_of_a_priority_that_nobody_reported(build, new_build):
    for i in range(3):
        build.request(i, 0.1, [1], send_lag_s=0.01 * i)
    build.counter("client_run_wait_s", {0: 0, 2: 0.5}, labels='{"worker":"0"}')
    build.counter("client_run_wait_s", {0: 0, 2: 1.0}, labels='{"worker":"1"}')
    con = build.database()
    assert one(
        con,
        "SELECT n, send_lag_mean_s, client_run_wait_ratio, client_cpu_ratio, client_realtime FROM client_health",
    ) == (3, 0.01, 0.5, None, None)
    other = new_build("told")
    other.request(0, 0.1, [1])
    for value in (1.0, 0.0):
        other.event("client_realtime", value=value)
    assert one(other.database(), "SELECT client_realtime FROM client_health") == ("no",)


def test_kv_cache(build):
    for i in range(10):
        build.request(i, 0.5, [0.5])
    for t, used in enumerate((0.2, 0.4, 0.9)):
        build.gauge(t, kv_used_ratio=used)
    build.counter("preemptions_count", {0: 1, 9: 6})
    build.counter("prefix_queries_tokens", {0: 0, 9: 200})
    build.counter("prefix_hits_tokens", {0: 0, 9: 50})
    assert one(
        build.database(),
        "SELECT kv_used_mean_ratio, kv_used_max_ratio, preemptions_count, preemptions_per_s,"
        " preemptions_per_request_ratio, prefix_hit_ratio, prompt_tokens_per_s FROM kv_cache",
    ) == (0.5, 0.9, 5.0, 0.5, 0.5, 0.25, None)


def test_sealed_and_unsealed_rows_are_one_table(build):
    """A run that is still being recorded is read with its log."""
    from whybound.analyzers.database import open_database
    from whybound.collector.store import RunWriter, open_run

    build.request(0, 0.1, [0.1])
    build.run()
    build.request(1, 0.1, [0.1])
    with RunWriter(build.path, "n") as writer:
        writer.append("requests", build.rows["requests"][1:])
        writer.flush()
        assert one(open_database(open_run(build.path)), "SELECT count(*) FROM requests") == (2,)


def test_clock_offset_is_bounded_from_both_sides(build):
    for i, (up, down) in enumerate([(0.010, 0.002), (0.004, 0.020)]):
        build.request(i, 0.1, [0.1], request_id=f"q{i}")
        # the server's clock is 3 s ahead; the request took `up` to it, the answer `down` back
        build.add(
            "requests", request_id=f"q{i}", source="span", arrival_ns=ns(i + 3 + up), end_ns=ns(i + 3.2 - down),
            server_e2e_s=0.2, status="ok", node="n",
        )  # fmt: skip
    row = build.database().execute("SELECT * FROM clock").fetchone()
    n, offset, low, high, error = row
    assert n == 2
    assert (low, high) == (pytest.approx(2.998), pytest.approx(3.004))
    assert low <= offset <= high
    assert error == pytest.approx(0.003)


def test_warmup_is_found_where_the_transient_ends(build):
    rng = random.Random(1)
    for i in range(100):
        build.request(i, (2.0 if i < 20 else 0.2) + rng.uniform(0, 0.02), [0.1])
    transient_s, ratio = build.database().execute(
        "SELECT transient_s, transient_ratio FROM warmup"
    ).fetchone()  # fmt: skip
    assert 20 <= transient_s < 50  # it may cut more than it must, never less
    assert ratio == pytest.approx(transient_s / 100)


def test_warmup_of_a_steady_run_is_short(build):
    rng = random.Random(2)
    for i in range(100):
        build.request(i, 0.2 + rng.uniform(0, 0.1), [0.1])
    assert build.database().execute("SELECT transient_ratio FROM warmup").fetchone()[0] < 0.3


def test_host_pressure_is_what_neither_server_nor_client_used(build):
    build.request(0, 0.2, [0.1])
    build.request(10, 0.2, [0.1])
    for t in range(11):
        build.gauge(t, host_cpu_busy_ratio=0.95, host_cpu_count=2)
    build.counter("host_process_cpu_seconds", {float(t): 1.2 * t for t in range(11)})
    build.counter("client_cpu_s", {float(t): 0.1 * t for t in range(11)})
    busy, foreign, throttled = build.database().execute(
        "SELECT host_cpu_busy_mean_ratio, foreign_cpu_ratio, host_cpu_throttled_ratio FROM host_pressure"
    ).fetchone()  # fmt: skip
    assert busy == pytest.approx(0.95)
    assert foreign == pytest.approx(0.95 - 1.3 / 2)
    assert throttled is None


def test_signals_and_findings_are_tables_beside_the_views(emulated):
    build = emulated(rate=3, n=60)
    con = build.database()
    diagnose_open(open_run(build.path), con)
    joined = con.execute(
        "SELECT count(*) FROM signals s JOIN queue q ON s.name = 'running_mean_count'"
        " AND s.value = q.running_mean_count"
    ).fetchone()
    assert joined == (1,)
    assert con.execute("SELECT count(*) FROM findings").fetchone()[0] >= 8
