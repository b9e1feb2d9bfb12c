"""A process's view of itself."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from whybound.collector.load.health import LoopLag, cpu_s, run_wait_s, take_realtime


def test_run_wait_sums_the_second_field_over_threads(tmp_path):
    for thread, text in (("7", "111 2000000000 5\n"), ("8", "9 500000000 1\n"), ("9", None)):
        (tmp_path / thread).mkdir()
        if text:  # a thread without the file has just ended
            (tmp_path / thread / "schedstat").write_text(text)
    assert run_wait_s(tmp_path) == 2.5


def test_run_wait_unknown_is_none(tmp_path):
    assert run_wait_s(tmp_path / "none") is None
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "schedstat").write_text("0")
    assert run_wait_s(tmp_path) is None


def test_cpu_grows_with_work():
    before, begun = cpu_s(), time.process_time()
    while time.process_time() - begun < 0.1:
        pass
    assert cpu_s() - before == pytest.approx(0.1, abs=0.05)


def test_loop_lag_sees_a_blocked_loop_once():
    async def main():
        lag = LoopLag()
        task = asyncio.create_task(lag.watch())
        await asyncio.sleep(0.12)
        time.sleep(0.3)
        await asyncio.sleep(0.06)
        task.cancel()
        return lag.take_s(), lag.take_s()

    worst, after = asyncio.run(main())
    assert 0.2 < worst < 1.0
    assert after == 0.0


@pytest.mark.parametrize("error", [None, PermissionError(1, "Operation not permitted")])
def test_realtime_or_why_not(monkeypatch, error):
    asked = []

    def set_scheduler(pid, policy, param):
        asked.append((pid, policy & os.SCHED_RR, param.sched_priority))
        if error:
            raise error

    monkeypatch.setattr(os, "sched_setscheduler", set_scheduler)
    says = take_realtime()
    assert asked == [(0, os.SCHED_RR, 1)]
    assert (says is None) == (error is None)
    if error:
        assert says.startswith("no real-time priority: ")
