"""Is the hardware what it is sold for: against samples worked out by hand."""

import pytest

from whybound.analyzers.signals import read_signals
from whybound.rules.evaluate import Signals, evaluate
from whybound.rules.load import load_prechecks


def gpu(build, t, gpu="0", reason="", **values):
    for signal, value in values.items():
        build.gauge(t, **{signal: value})
        build.rows["samples"][-1].update(gpu=gpu, engine="", replica="", reason=reason)


def setting(build, key, value):
    build.add(
        "settings", t_ns=1, engine="", replica="", key=key, value=value, origin="effective", source="t", node="n"
    )  # fmt: skip


def opened(build):
    """The run's database, opened once a test."""
    if not hasattr(build, "opened"):
        build.opened = build.database()
    return build.opened


def health(build):
    cursor = opened(build).execute("SELECT * FROM gpu_health")
    names = [d[0] for d in cursor.description]
    rows = cursor.fetchall()
    assert len(rows) <= 1
    return {n: v for n, v in zip(names, rows[0], strict=True) if v is not None} if rows else None


def state(build, rule):
    signals = Signals(read_signals(opened(build)))
    (outcome,) = evaluate(load_prechecks()[rule], signals)
    return outcome.state


def test_no_gpu_no_row(build):
    build.request(0, 0.2, [0.1])
    build.gauge(0.1, engine_running_count=1)
    assert health(build) is None


def test_clocks_count_while_the_gpu_is_busy_and_the_slowest_gpu_counts(build):
    """Of one GPU 700 and 900 busy and 2400 idle, of the other 2000: 800 of 2400 against 2000 of 2400."""
    build.request(0, 0.2, [0.1])
    build.request(9, 0.2, [0.1])
    for t, busy, clock in ((1, 0.96, 700), (2, 0.96, 900), (3, 0.0, 2400)):
        gpu(build, t, gpu_busy_ratio=busy)
        gpu(
            build, t + 0.05, gpu_sm_clock_mhz=clock, gpu_sm_clock_max_mhz=2400
        )  # asked a little later
    gpu(build, 1, "1", gpu_busy_ratio=0.9, gpu_sm_clock_mhz=2000, gpu_sm_clock_max_mhz=2400)
    assert health(build)["gpu_clock_ratio"] == pytest.approx(800 / 2400)
    assert state(build, "clocks_stuck_low") == "fires"


def test_without_the_use_or_the_highest_clock_nobody_knows(build):
    build.request(0, 0.2, [0.1])
    build.request(9, 0.2, [0.1])
    gpu(build, 1, gpu_sm_clock_mhz=700, gpu_sm_clock_max_mhz=2400)
    gpu(build, 1, "1", gpu_busy_ratio=1.0, gpu_sm_clock_mhz=700)
    assert "gpu_clock_ratio" not in health(build)
    assert state(build, "clocks_stuck_low") == "cannot_tell"


def test_a_power_cap_is_no_slowdown_and_heat_is(build):
    """Four instants, two reasons of heat at one of them."""
    build.request(0, 0.2, [0.1])
    build.request(9, 0.2, [0.1])
    for t in range(1, 5):
        gpu(build, t, reason="sw_power_cap", gpu_throttled_ratio=1)
        for reason in ("hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown"):
            gpu(build, t, reason=reason, gpu_throttled_ratio=int(t == 1))
        gpu(build, t, reason="applications_clocks_setting", gpu_throttled_ratio=1)
    found = health(build)
    assert found["gpu_power_capped_ratio"] == 1.0
    assert found["gpu_slowdown_ratio"] == found["gpu_thermal_ratio"] == 0.25
    assert state(build, "thermal_throttling") == "fires"
    assert (
        state(build, "power_cap") == "cannot_tell"
    )  # a cap that is reached says nothing by itself


def test_a_dump_from_another_time_tells_what_it_can(build):
    build.request(0, 0.2, [0.1])
    build.request(9, 0.2, [0.1])
    gpu(
        build, 5000, gpu_pcie_width_count=8, gpu_pcie_width_max_count=16, gpu_mem_used_bytes=70e9,
        gpu_mem_total_bytes=80e9, gpu_temperature_celsius=61, gpu_power_limit_w=350,
        gpu_power_limit_default_w=700, gpu_busy_ratio=1.0, gpu_power_w=340,
    )  # fmt: skip
    gpu(build, 5000, reason="uncorrected", gpu_ecc_errors_count=2)
    gpu(build, 5000, "1", reason="uncorrected", gpu_ecc_errors_count=1)
    found = health(build)
    assert found["gpu_pcie_width_ratio"] == 0.5
    assert found["gpu_mem_used_ratio"] == 0.875
    assert found["gpu_temperature_celsius"] == 61
    assert found["gpu_power_limit_of_default_ratio"] == 0.5
    assert found["gpu_power_of_limit_ratio"] == pytest.approx(340 / 350)
    assert found["gpu_ecc_errors_count"] == 3
    assert state(build, "ecc_errors") == "fires"


def test_what_falls_into_the_window_is_preferred(build):
    build.request(0, 0.2, [0.1])
    build.request(9, 0.2, [0.1])
    gpu(build, 1, gpu_temperature_celsius=60)
    gpu(build, 5000, gpu_temperature_celsius=90)
    assert health(build)["gpu_temperature_celsius"] == 60


@pytest.mark.parametrize(
    ("tp", "path", "fires"),
    [
        ("2", "NV", "clear"),
        ("4", "SYS", "fires"),
        (None, "SYS", "cannot_tell"),
        ("1", "SYS", "clear"),
    ],
)
def test_the_worst_link_of_the_gpus_that_share_a_layer(build, tp, path, fires):
    """GPUs 0 and 1 on NVLink, 2 and 3 too, the pairs across two sockets."""
    build.request(0, 0.2, [0.1])
    for a, b, link in (
        (0, 1, "NV4"),
        (2, 3, "NV4"),
        (0, 2, "SYS"),
        (0, 3, "SYS"),
        (1, 2, "SYS"),
        (1, 3, "SYS"),
    ):
        setting(build, f"gpu_link_{a}_{b}", link)
    if tp:
        setting(build, "tensor_parallel_size", tp)
    assert health(build)["gpu_link_path"] == path
    assert state(build, "gpus_across_sockets") == fires


def test_half_the_lanes_matter_where_gpus_talk_over_them(build):
    build.request(0, 0.2, [0.1])
    gpu(build, 0, gpu_pcie_width_count=4, gpu_pcie_width_max_count=16)
    setting(build, "gpu_link_0_1", "PHB")
    setting(build, "tensor_parallel_size", "2")
    assert state(build, "pcie_narrow") == "fires"


def test_the_quota_and_the_swap(build):
    build.request(0, 0.2, [0.1])
    build.request(9, 0.2, [0.1])
    build.counter("host_cpu_periods_count", {5000: 1000})
    build.counter("host_cpu_throttled_periods_count", {5000: 400})
    build.counter("host_swap_in_bytes", {0: 0, 5: 2e8, 9: 3.6e8})
    con = opened(build)
    (row,) = con.execute(
        "SELECT cpu_periods_throttled_ratio, host_swap_in_per_s FROM host_limits"
    ).fetchall()
    assert row == (0.4, pytest.approx(4e7))
    assert state(build, "cpu_quota") == "fires"
    assert state(build, "swap_or_spill") == "fires"


def test_nothing_of_the_host_no_row(build):
    build.request(0, 0.2, [0.1])
    assert build.database().execute("SELECT * FROM host_limits").fetchall() == []


def test_the_cache_before_and_after_the_middle(build):
    """Halves of ten seconds: 0 of 1000 tokens, then 900 of 1000."""
    build.request(0, 0.2, [0.1])
    build.request(10, 0.2, [0.1])
    build.counter("prefix_queries_tokens", {0: 50, 4: 1050, 6: 1050, 10: 2050})
    build.counter("prefix_hits_tokens", {0: 10, 4: 10, 6: 10, 10: 910})
    con = opened(build)
    assert con.execute("SELECT * EXCLUDE n FROM cache_state").fetchall() == [(0.0, 0.9, 0.9)]
    assert state(build, "cache_state_differs") == "fires"


def test_a_cache_that_nobody_asked_in_one_half_has_no_change(build):
    build.request(0, 0.2, [0.1])
    build.request(10, 0.2, [0.1])
    build.counter("prefix_queries_tokens", {6: 0, 10: 1000})
    build.counter("prefix_hits_tokens", {6: 0, 10: 500})
    assert state(build, "cache_state_differs") == "cannot_tell"


def test_prefix_hits_of_engines_that_count_tokens_alone(build):
    build.request(0, 0.2, [0.1])
    build.request(10, 0.2, [0.1])
    build.counter("prompt_tokens", {0: 0, 10: 1000}, engine="sglang")
    build.counter("prompt_cached_tokens", {0: 0, 10: 250}, engine="sglang")
    build.counter("prompt_cached_tokens", {0: 0, 10: 999}, engine="llamacpp")
    (row,) = build.database().execute("SELECT prefix_hit_ratio FROM kv_cache").fetchall()
    assert row == (0.25,)
