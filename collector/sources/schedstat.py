"""Run-queue wait: how long the threads of a process were runnable and did not run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping


class ThreadCounters:
    """Counters of a process, kept whole over threads that end.

    Attributes:
        active: the threads that had run between the last two looks at all of them.
    """

    def __init__(self) -> None:
        self.active: frozenset[str] = frozenset()
        self._threads: dict[str, tuple[int, int]] = {}
        self._ended = (0, 0)

    def total(
        self, read: Mapping[str, tuple[int, int]], asked: frozenset[str] | None
    ) -> tuple[int, int]:
        """Sums over the threads that are and those that were; they never shrink.

        Args:
            read: what `read_schedstats` gave.
            asked: for which threads; None for all.
        """
        for thread in self._threads.keys() & (self._threads.keys() if asked is None else asked):
            before = self._threads[thread]
            # A number whose counters fell belongs to a new thread.
            if thread not in read or read[thread] < before:
                self._ended = (self._ended[0] + before[0], self._ended[1] + before[1])
                del self._threads[thread]
        if asked is None:
            self.active = frozenset(t for t, now in read.items() if self._threads.get(t) != now)
        self._threads |= read
        return (
            self._ended[0] + sum(wait for wait, _ in self._threads.values()),
            self._ended[1] + sum(turns for _, turns in self._threads.values()),
        )


def read_schedstats(pid: int, threads: Iterable[str] | None = None) -> dict[str, tuple[int, int]]:
    """Of each thread of a process: ns that it waited for a CPU, and how often it got one.

    Args:
        pid: the process.
        threads: numbers of those to read; None for all.

    Returns:
        By thread number; threads that ended meanwhile are absent, all are where the kernel keeps
        no such statistics.

    Raises:
        FileNotFoundError: all were asked for, and the process is gone.
    """
    folder = f"/proc/{pid}/task"
    found = {}
    for thread in os.listdir(folder) if threads is None else threads:
        try:
            descriptor = os.open(f"{folder}/{thread}/schedstat", os.O_RDONLY)
        except OSError:
            continue
        try:
            _, wait_ns, turns = os.read(descriptor, 96).split()
        except (OSError, ValueError):
            continue
        finally:
            os.close(descriptor)
        found[thread] = (int(wait_ns), int(turns))
    return found
