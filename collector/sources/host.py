"""The host beside the engine: CPU, run-queue wait and memory of its processes and of the machine.

CPU time alone is no evidence of being host-bound, as engines spin while they wait; the time that
threads were runnable and did not run is. Everything is read from `/proc`, without privileges.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from ..argv import engine_of, is_wrapper
from ..process_tree import ProcessTree
from .cgroup import read_cpu_limit, read_throttled_s, throttle_files
from .schedstat import ThreadCounters, read_schedstats
from .ticks import ticks

RESCAN_S = 5.0
"""How often the tree is searched for new processes and threads, and idle threads are looked at.

In between only those are read that ran at the last look: an engine has hundreds of threads, most of
them idle for good. A thread that wakes up is so counted up to this much late, but counted whole.
"""

Row = dict[str, Any]
Sink = Callable[[str, list[Row]], None]
CpuTimes = Mapping[str, float]

_TITLE = re.compile(r"::(APIServer|EngineCore|Worker)")
_NS_A_S = 1e9
_NOT_BUSY = ("idle", "iowait", "steal")
_WITHIN_USER = ("guest", "guest_nice")


class HostSource:
    """Samples of the processes below `pid` and of the whole machine (table `samples`).

    A process (labels `pid`, `role`): `host_process_cpu_seconds` and `host_process_run_wait_seconds`
    (counters, s), `host_process_ctx_switches` (counter: how often a thread of it was put on a
    CPU), `host_process_rss` (bytes). The machine: `host_cpu_busy_ratio` and
    `host_cpu_steal_ratio` (shares of all CPUs since the sample before, 0..1), `host_load1_count`,
    `host_cpu_count`, `host_cpu_limit_count` (cores that the tightest quota of the server's cgroups
    allows; no row without one), `host_mem_available` (bytes), `host_swap_in_bytes` (counter) and
    `host_cpu_throttled_seconds` (counter, s: by the quota of the server's cgroup and of those
    above it). What the kernel does not tell has no row and is named by `report`.
    """

    def __init__(self, *, pid: int | None, node: str, interval_s: float, sink: Sink) -> None:
        """Prepare; nothing is read before `run`, but `pid` should be alive.

        Args:
            pid: the root of the process tree; None for the machine alone.
            node: host that records.
            interval_s: seconds between samples, above 0.
            sink: takes the name of a table and rows for it.
        """
        self._node, self._interval_s, self._sink = node, interval_s, sink
        self._tree = ProcessTree(pid) if pid is not None else None
        self._watched: dict[psutil.Process, _Watched] = {}
        self._next_scan_s = 0.0
        self._throttle = throttle_files(_text(Path(f"/proc/{pid or 'self'}/cgroup")))
        self._cpu_before: CpuTimes | None = None
        self._missing: dict[str, str] = {}
        self._samples = self._skipped = self._rows = 0
        self._pids: set[int] = set()
        self._cost_s = 0.0
        self._last_error: str | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Sample at once, then at the interval, and once more when `stop` is set; never raises."""
        async for skipped in ticks(stop, self._interval_s):
            self._skipped += skipped
            try:
                # In a thread: hundreds of small reads must not hold up what else the loop does.
                rows = await asyncio.to_thread(self._sample, whole=stop.is_set())
                self._sink("samples", rows)
            except Exception as error:
                # The end of the line on purpose: a collector must not take the run down with it.
                self._last_error = f"{type(error).__name__}: {error}"
            else:
                self._samples += 1
                self._rows += len(rows)

    def report(self) -> dict[str, Any]:
        """What was collected and what was not.

        Keys: `samples_count`, `skipped_count` (instants that passed while it was busy),
        `rows_count`, `processes_count` (all that were ever seen), `cost_s` (our own CPU seconds),
        `missing` (signal → why), `last_error`.
        """
        return {
            "samples_count": self._samples,
            "skipped_count": self._skipped,
            "rows_count": self._rows,
            "processes_count": len(self._pids),
            "cost_s": self._cost_s,
            "missing": dict(self._missing),
            "last_error": self._last_error,
        }

    def _sample(self, *, whole: bool = False) -> list[Row]:
        began_s = time.thread_time()
        t_ns = time.time_ns()
        rows = self._machine_rows()
        if self._tree is not None and (whole or time.monotonic() >= self._next_scan_s):
            self._next_scan_s = time.monotonic() + RESCAN_S
            self._scan(self._tree)
            whole = True
        for process, watched in list(self._watched.items()):
            try:
                rows += self._process_rows(process, watched, whole)
            except psutil.AccessDenied:
                self._missing["host_process_*"] = f"process {process.pid} is another user's"
            except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                del self._watched[process]  # it ended, as processes do
        for row in rows:
            row |= {"t_ns": t_ns, "node": self._node}
        self._cost_s += time.thread_time() - began_s
        return rows

    def _scan(self, tree: ProcessTree) -> None:
        found = tree.scan()
        self._watched = {p: self._watched.get(p) or _Watched() for p in found}
        self._pids |= {p.pid for p in found}
        for process in found:
            # Again at every scan: an engine gives its processes their titles some time after.
            self._watched[process].name(process)

    def _process_rows(self, process: psutil.Process, watched: _Watched, whole: bool) -> list[Row]:
        with process.oneshot():
            if process.status() == psutil.STATUS_ZOMBIE:
                raise psutil.NoSuchProcess(process.pid)
            cpu = process.cpu_times()
            resident = process.memory_info().rss
        labels = watched.labels
        rows = [
            _row("host_process_cpu_seconds", "counter", "s", cpu.user + cpu.system, labels),
            _row("host_process_rss", "gauge", "bytes", resident, labels),
        ]
        asked = None if whole else watched.counters.active
        threads = read_schedstats(process.pid, asked)
        if whole and not threads and process.is_running():
            why = "/proc/PID/task/*/schedstat cannot be read"
            self._missing |= dict.fromkeys(
                ("host_process_run_wait_seconds", "host_process_ctx_switches"), why
            )
            watched.untold = True
        if watched.untold:
            return rows
        wait_ns, turns = watched.counters.total(threads, asked)
        return [
            *rows,
            _row("host_process_run_wait_seconds", "counter", "s", wait_ns / _NS_A_S, labels),
            _row("host_process_ctx_switches", "counter", "count", turns, labels),
        ]

    def _machine_rows(self) -> list[Row]:
        rows = [
            _row("host_load1_count", "gauge", "count", os.getloadavg()[0]),
            _row("host_mem_available", "gauge", "bytes", psutil.virtual_memory().available),
        ]
        if count := psutil.cpu_count():
            rows.append(_row("host_cpu_count", "gauge", "count", count))
        if (limit := read_cpu_limit(self._throttle)) is not None:
            rows.append(_row("host_cpu_limit_count", "gauge", "count", limit))
        now = psutil.cpu_times()._asdict()
        if self._cpu_before is not None and (shares := cpu_shares(self._cpu_before, now)):
            rows.append(_row("host_cpu_busy_ratio", "gauge", "ratio", shares[0]))
            rows.append(_row("host_cpu_steal_ratio", "gauge", "ratio", shares[1]))
        self._cpu_before = now
        throttled_s = read_throttled_s(self._throttle)
        if throttled_s is None:
            self._missing["host_cpu_throttled_seconds"] = "no cgroup tells its throttled time"
        else:
            rows.append(_row("host_cpu_throttled_seconds", "counter", "s", throttled_s))
        swapped = re.search(r"^pswpin (\d+)$", _text(Path("/proc/vmstat")), re.MULTILINE)
        if swapped:
            size = int(swapped[1]) * os.sysconf("SC_PAGE_SIZE")
            rows.append(_row("host_swap_in_bytes", "counter", "bytes", size))
        return rows


class _Watched:
    """One process: its labels and counters; `untold` when the kernel keeps no such counters."""

    def __init__(self) -> None:
        self.labels = "{}"
        self.untold = False
        self.counters = ThreadCounters()

    def name(self, process: psutil.Process) -> None:
        """Make its labels from what it is called now; as they were when it has gone."""
        try:
            role = role_of(process.cmdline(), process.name())
        except psutil.Error:
            return
        self.labels = json.dumps({"pid": process.pid, "role": role}, sort_keys=True)


def role_of(cmd: Sequence[str], name: str) -> str:
    """What a process does: APIServer, EngineCore or Worker for vLLM's, else its name.

    Args:
        cmd: its command line, which vLLM replaces by a title such as `VLLM::EngineCore_DP0`.
        name: what it is called otherwise.
    """
    title = _TITLE.search(cmd[0]) if cmd else None
    if title:
        return title[1]
    if engine_of(cmd) == "vllm" and not is_wrapper(cmd):
        return "APIServer"
    return name


def cpu_shares(before: CpuTimes, after: CpuTimes) -> tuple[float, float] | None:
    """Busy and steal, each as a share (0..1) of all CPU time between two readings of /proc/stat.

    Time stolen by the hypervisor is not busy. None when no time has passed.
    """
    spent = {k: max(0.0, after[k] - before[k]) for k in after if k not in _WITHIN_USER}
    total = sum(spent.values())
    if total <= 0:
        return None
    return 1 - sum(spent.get(k, 0.0) for k in _NOT_BUSY) / total, spent.get("steal", 0.0) / total


def _row(signal: str, kind: str, unit: str, value: float, labels: str = "{}") -> Row:
    return {
        "signal": signal,
        "kind": kind,
        "unit": unit,
        "value": float(value),
        "engine": "",
        "replica": "",
        "gpu": "",
        "phase": "",
        "reason": "",
        "labels": labels,
    }


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
