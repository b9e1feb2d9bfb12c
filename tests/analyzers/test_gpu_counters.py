"""What the GPUs did while requests ran: against samples worked out by hand."""

import pytest


def gpu(build, t, gpu="0", **values):
    for signal, value in values.items():
        build.gauge(t, **{signal: value})
        build.rows["samples"][-1].update(gpu=gpu, engine="", replica="")


def one(con, columns):
    (row,) = con.execute(f"SELECT {columns} FROM gpu_counters").fetchall()
    return row


def test_only_samples_while_requests_ran_count_and_gpus_are_averaged(build):
    for at in range(5):
        build.request(at, 0.2, [0.1])
    for t, running in ((0.5, 2), (1.5, 0), (2.5, 3)):
        build.gauge(t, engine_running_count=running)
    for t, dram in ((0.6, 0.8), (1.6, 0.0), (2.6, 0.6), (9.0, 0.1)):
        gpu(build, t, gpu_dram_active_ratio=dram)
    gpu(build, 2.6, gpu="1", gpu_dram_active_ratio=1.0)
    con = build.database()
    assert one(con, "gpu_dram_ratio, n") == (pytest.approx((0.8 + 0.6 + 1.0) / 3), 2)
    assert one(con, "gpu_busy_ratio, gpu_sm_ratio, gpu_power_w") == (None, None, None)


def test_the_profiling_counter_is_preferred_to_the_driver_s_utilisation(build):
    build.request(0, 0.2, [0.1])
    build.request(2, 0.2, [0.1])
    gpu(build, 1.0, gpu_busy_ratio=0.99, gpu_power_w=300.0)
    assert one(build.database(), "gpu_busy_ratio, gpu_power_w") == (0.99, 300.0)
    gpu(build, 1.0, gpu_graphics_active_ratio=0.4)
    assert one(build.database(), "gpu_busy_ratio, gpu_power_w") == (0.4, 300.0)


def test_no_gpu_no_row(build):
    build.request(0, 0.2, [0.1])
    build.gauge(0.1, engine_running_count=1)
    assert build.database().execute("SELECT * FROM gpu_counters").fetchall() == []


def test_clocks_are_held_down_while_any_reason_does(build):
    """Of two GPUs over two scrapes, one at one scrape, for two reasons at once."""
    build.request(0, 0.2, [0.1])
    build.request(2, 0.2, [0.1])
    for t, name, held in ((0.5, "0", 1), (0.5, "1", 0), (1.5, "0", 0), (1.5, "1", 0)):
        for reason in ("sw_power_cap", "hw_thermal"):
            gpu(build, t, gpu=name, gpu_throttled_ratio=held)
            build.rows["samples"][-1]["reason"] = reason
        gpu(build, t, gpu=name, gpu_busy_ratio=1.0)
    assert one(build.database(), "gpu_throttled_ratio, gpu_busy_ratio") == (0.25, 1.0)


def test_what_the_driver_does_not_tell_is_not_that_nothing_holds(build):
    build.request(0, 0.2, [0.1])
    build.request(2, 0.2, [0.1])
    gpu(build, 1.0, gpu_busy_ratio=0.99)
    assert one(build.database(), "gpu_throttled_ratio") == (None,)
