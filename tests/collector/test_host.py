import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from whybound.collector.schema import TABLES, UNIT_SUFFIXES
from whybound.collector.sources.cgroup import read_cpu_limit, read_throttled_s, throttle_files
from whybound.collector.sources.host import HostSource, cpu_shares, role_of
from whybound.collector.sources.schedstat import ThreadCounters, read_schedstats
from whybound.collector.sources.ticks import ticks

Rows = list[dict[str, Any]]
PROCESS = {
    "host_process_cpu_seconds": ("counter", "s"),
    "host_process_run_wait_seconds": ("counter", "s"),
    "host_process_ctx_switches": ("counter", "count"),
    "host_process_rss": ("gauge", "bytes"),
}
MACHINE = {
    "host_cpu_busy_ratio": ("gauge", "ratio"),
    "host_cpu_steal_ratio": ("gauge", "ratio"),
    "host_load1_count": ("gauge", "count"),
    "host_cpu_count": ("gauge", "count"),
    "host_mem_available": ("gauge", "bytes"),
    "host_swap_in_bytes": ("counter", "bytes"),
    "host_cpu_throttled_seconds": ("counter", "s"),
}


def record(
    pid: int | None,
    *,
    for_s: float,
    interval_s: float = 0.1,
    meanwhile: Callable[[], None] = lambda: None,
) -> tuple[Rows, dict[str, Any]]:
    rows: Rows = []

    def sink(table: str, more: Rows) -> None:
        assert table == "samples"
        rows.extend(more)

    source = HostSource(pid=pid, node="n1", interval_s=interval_s, sink=sink)

    async def run() -> None:
        stop = asyncio.Event()
        task = asyncio.create_task(source.run(stop))
        await asyncio.sleep(for_s / 2)
        meanwhile()
        await asyncio.sleep(for_s / 2)
        stop.set()
        await task

    asyncio.run(run())
    return rows, source.report()


def child(text: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", text], start_new_session=True)


def of(rows: Rows, signal: str, pid: int | None = None) -> list[float]:
    return [
        r["value"]
        for r in rows
        if r["signal"] == signal and (pid is None or json.loads(r["labels"])["pid"] == pid)
    ]


def of_column(rows: Rows, column: str) -> list[int]:
    return [r[column] for r in rows]


def test_rows_are_what_the_schema_says() -> None:
    rows, report = record(os.getpid(), for_s=0.25)
    known = PROCESS | MACHINE
    columns = set(TABLES["samples"].column_names())
    for row in rows:
        assert (row["kind"], row["unit"]) == known[row["signal"]]
        assert row["unit"] in UNIT_SUFFIXES
        assert columns - {"raw_name"} <= set(row) <= columns
        assert (row["node"], row["engine"]) == ("n1", "")
        assert list(json.loads(row["labels"])) == (
            ["pid", "role"] if row["signal"] in PROCESS else []
        )
    signals = {r["signal"] for r in rows}
    assert signals | set(report["missing"]) >= set(known)
    assert not signals & set(report["missing"])
    assert report["last_error"] is None
    assert report["samples_count"] >= 3
    assert report["rows_count"] == len(rows)


def test_machine_alone() -> None:
    rows, report = record(None, for_s=0.25)
    assert {r["signal"] for r in rows} <= set(MACHINE)
    assert report["processes_count"] == 0
    # The first sample has no interval behind it, so it has no shares.
    assert len(of(rows, "host_cpu_busy_ratio")) < len(of(rows, "host_load1_count"))
    assert all(0 <= v <= 1 for v in of(rows, "host_cpu_busy_ratio"))
    assert of(rows, "host_cpu_count")[0] == os.cpu_count()


def test_a_busy_process_is_seen_busy() -> None:
    busy = child("while True: pass")
    try:
        rows, _ = record(busy.pid, for_s=0.6)
    finally:
        busy.kill()
        busy.wait()
    cpu = of(rows, "host_process_cpu_seconds", busy.pid)
    wait = of(rows, "host_process_run_wait_seconds", busy.pid)
    assert cpu == sorted(cpu)
    assert wait == sorted(wait)
    # It always wants to run: what it did not get, it waited for.
    times = of_column(rows, "t_ns")
    span_s = (times[-1] - times[0]) / 1e9
    wanted_s = (cpu[-1] - cpu[0]) + (wait[-1] - wait[0])
    assert 0.6 * span_s < wanted_s < span_s + 0.1
    assert min(of(rows, "host_process_rss", busy.pid)) > 1e6


def test_run_wait_of_starved_threads() -> None:
    """Four busy processes on one CPU: each waits about three quarters of the time."""
    text = """
import os
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
os.fork(); os.fork()
while True: pass
"""
    busy = child(text)
    try:
        deadline = time.monotonic() + 5
        while len(psutil.Process(busy.pid).children(recursive=True)) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        rows, report = record(busy.pid, for_s=0.8)
    finally:
        os.killpg(busy.pid, 9)
        busy.wait()
    assert report["processes_count"] == 4
    waits = [of(rows, "host_process_run_wait_seconds", p) for p in {pid_of(r) for r in rows} - {0}]
    assert len(waits) == 4
    for wait in waits:
        assert wait[-1] - wait[0] > 0.3


def pid_of(row: dict[str, Any]) -> int:
    return int(json.loads(row["labels"]).get("pid", 0))


def test_a_vanished_process_is_no_error() -> None:
    idle = child("import time; time.sleep(60)")

    def end() -> None:
        idle.kill()
        idle.wait()

    rows, report = record(idle.pid, for_s=0.6, meanwhile=end)
    assert report["last_error"] is None
    assert len(of(rows, "host_process_rss", idle.pid)) < len(of(rows, "host_load1_count"))
    assert 0 not in of(rows, "host_process_rss")
    assert record(idle.pid, for_s=0.1)[1]["last_error"] is None


def test_a_zombie_has_no_rows() -> None:
    zombie = child("")
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    rows, report = record(zombie.pid, for_s=0.1)
    zombie.wait()
    assert of(rows, "host_process_rss") == []
    assert report["last_error"] is None


def test_no_schedstat_is_missing_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whybound.collector.sources.host.read_schedstats", lambda pid, threads: {})
    rows, report = record(os.getpid(), for_s=0.1)
    assert of(rows, "host_process_run_wait_seconds") == []
    assert of(rows, "host_process_cpu_seconds") != []
    assert "schedstat" in report["missing"]["host_process_run_wait_seconds"]


def test_a_failing_sink_does_not_end_it() -> None:
    calls: list[int] = []

    def sink(table: str, rows: Rows) -> None:
        calls.append(len(rows))
        raise OSError("disk full")

    source = HostSource(pid=None, node="n", interval_s=0.05, sink=sink)

    async def run() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(0.2, stop.set)
        await source.run(stop)

    asyncio.run(run())
    assert len(calls) > 2
    assert source.report()["last_error"] == "OSError: disk full"
    assert source.report()["samples_count"] == 0


def test_cost() -> None:
    """At one sample a second, 100 threads cost less than 1 % of a core."""
    done = threading.Event()
    threads = [threading.Thread(target=done.wait) for _ in range(100)]
    for thread in threads:
        thread.start()
    try:
        _, report = record(os.getpid(), for_s=1.0)
    finally:
        done.set()
    assert report["cost_s"] / report["samples_count"] < 0.01


def test_schedstats_of_this_process() -> None:
    threads = read_schedstats(os.getpid())
    assert str(os.getpid()) in threads
    assert threads[str(os.getpid())][1] > 0
    with pytest.raises(FileNotFoundError):
        read_schedstats(2**22 + 1)


def test_counters_outlive_threads() -> None:
    counters = ThreadCounters()
    assert counters.total({"1": (100, 1), "2": (50, 5)}, None) == (150, 6)
    assert counters.total({"1": (110, 2)}, None) == (160, 7)
    assert counters.total({"1": (110, 2), "2": (7, 1)}, None) == (167, 8)  # 2 is a new thread
    assert counters.total({"1": (110, 2), "2": (3, 1)}, None) == (170, 9)  # and so is this one
    assert counters.total({}, None) == (170, 9)


def test_between_scans_only_threads_that_ran_are_read() -> None:
    counters = ThreadCounters()
    counters.total({"1": (10, 1), "2": (10, 1), "3": (10, 1)}, None)
    assert counters.total({"1": (20, 2), "2": (20, 2), "3": (10, 1)}, None) == (50, 5)
    assert counters.active == {"1", "2"}
    assert counters.total({"1": (25, 3)}, counters.active) == (55, 6)  # 2 ended, 3 was not asked
    assert counters.total({"1": (25, 3), "3": (40, 2)}, None) == (85, 7)
    assert counters.active == {"3"}


def test_asking_for_some_threads() -> None:
    me = str(os.getpid())
    assert set(read_schedstats(os.getpid(), frozenset({me, "1"}))) == {me}


@pytest.mark.parametrize(
    ("cmd", "role"),
    [
        (["VLLM::EngineCore"], "EngineCore"),
        (["VLLM::EngineCore_DP1"], "EngineCore"),
        (["mine::Worker_TP0"], "Worker"),
        (["VLLM::APIServer_0"], "APIServer"),
        (["/usr/bin/python3", "/usr/bin/vllm", "serve", "m"], "APIServer"),
        (["python", "-m", "whybound.fixtures.engine"], "APIServer"),
        (["bash", "-c", "vllm serve m"], "called"),
        (["python", "-c", "from multiprocessing.spawn import spawn_main"], "called"),
        ([], "called"),
    ],
)
def test_role(cmd: list[str], role: str) -> None:
    assert role_of(cmd, "called") == role


def test_cpu_shares() -> None:
    before = {"user": 10.0, "system": 1.0, "idle": 100.0, "iowait": 0.0, "steal": 0.0, "guest": 5.0}
    after = {"user": 13.0, "system": 2.0, "idle": 104.0, "iowait": 1.0, "steal": 1.0, "guest": 8.0}
    assert cpu_shares(before, after) == pytest.approx((0.4, 0.1))
    assert cpu_shares(before, before) is None


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_throttling_of_cgroup_2(tmp_path: Path) -> None:
    write(tmp_path / "cpu.stat", "usage_usec 1\n")
    write(tmp_path / "pod" / "cpu.stat", "usage_usec 1\nthrottled_usec 500000\n")
    write(tmp_path / "pod" / "c1" / "cpu.stat", "nr_throttled 3\nthrottled_usec 2000000\n")
    files = throttle_files("0::/pod/c1\n", tmp_path)
    assert len(files) == 3
    assert read_throttled_s(files) == 2.5
    assert read_throttled_s(throttle_files("0::/\n", tmp_path)) is None


@pytest.mark.parametrize("mount", ["cpu,cpuacct", "cpu"])
def test_throttling_of_cgroup_1(tmp_path: Path, mount: str) -> None:
    write(tmp_path / mount / "cpu.stat", "nr_periods 9\nthrottled_time 1500000000\n")
    write(tmp_path / "unified" / "cpu.stat", "usage_usec 1\n")
    cgroups = "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/docker/x\n"
    assert read_throttled_s(throttle_files(cgroups, tmp_path)) == 1.5


def test_the_tightest_quota_counts(tmp_path: Path) -> None:
    for folder, quota in (("pod", "600000 100000"), ("pod/c1", "max 100000")):
        write(tmp_path / folder / "cpu.stat", "usage_usec 1\n")
        write(tmp_path / folder / "cpu.max", quota + "\n")
    files = throttle_files("0::/pod/c1\n", tmp_path)
    assert read_cpu_limit(files) == 6
    write(tmp_path / "pod" / "c1" / "cpu.max", "150000 100000\n")
    assert read_cpu_limit(files) == 1.5
    assert read_cpu_limit([tmp_path / "gone" / "cpu.stat"]) is None


@pytest.mark.parametrize(("quota", "cores"), [("250000", 2.5), ("-1", None)])
def test_quota_of_cgroup_1(tmp_path: Path, quota: str, cores: float | None) -> None:
    write(tmp_path / "cpu" / "cpu.stat", "nr_periods 9\n")
    write(tmp_path / "cpu" / "cpu.cfs_quota_us", quota + "\n")
    write(tmp_path / "cpu" / "cpu.cfs_period_us", "100000\n")
    assert read_cpu_limit([tmp_path / "cpu" / "cpu.stat"]) == cores


def test_no_cgroup(tmp_path: Path) -> None:
    assert throttle_files("", tmp_path) == []
    assert read_throttled_s([tmp_path / "gone"]) is None


def test_ticks_do_not_drift_and_count_what_they_skip() -> None:
    async def run() -> list[int]:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(0.45, stop.set)
        beats = []
        async for skipped in ticks(stop, 0.1):
            beats.append(skipped)
            if len(beats) == 2:
                await asyncio.sleep(0.22)  # over the beats at 0.2 and 0.3
        return beats

    beats = asyncio.run(run())
    assert sum(beats) >= 2
    assert len(beats) + sum(beats) <= 6  # at 0, 0.1, 0.4 and the end; two skipped
