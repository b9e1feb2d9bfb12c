"""Is this process itself fit to measure? CPU used, CPU waited for, event-loop lag, priority."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

_TICK_S = 0.05


def cpu_s() -> float:
    """CPU seconds of this process so far, user and system."""
    times = os.times()
    return times.user + times.system


def run_wait_s(task_dir: Path = Path("/proc/self/task")) -> float | None:
    """Seconds that this process's threads were runnable and did not run; None where unknown.

    On a few cores an engine that spins starves its client while both show a low CPU share; this is
    the one number that shows it (field 2 of schedstat, ns).
    """
    total_ns = 0
    try:
        for task in task_dir.iterdir():
            with contextlib.suppress(FileNotFoundError):  # a thread that has just ended
                total_ns += int((task / "schedstat").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    return total_ns / 1e9


def take_realtime() -> str | None:
    """Ask for round-robin real-time priority; returns None, or why it failed in one line."""
    try:
        # Reset on fork: nothing that this process might start inherits the priority.
        policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(1))
    except (OSError, AttributeError) as error:
        return f"no real-time priority: {error}"
    return None


class LoopLag:
    """How late the event loop wakes, sampled 20 times a second."""

    def __init__(self) -> None:
        self._worst_s = 0.0

    async def watch(self) -> None:
        """Run until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _TICK_S
            await asyncio.sleep(_TICK_S)
            self._worst_s = max(self._worst_s, loop.time() - due)

    def take_s(self) -> float:
        """The worst lag in seconds since the last call."""
        worst, self._worst_s = self._worst_s, 0.0
        return worst
