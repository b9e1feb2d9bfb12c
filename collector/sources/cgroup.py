"""The CPU quotas of a process's cgroups: how much they allow, and how long they kept it from running."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")


def throttle_files(cgroups: str, root: Path = CGROUP_ROOT) -> list[Path]:
    """The `cpu.stat` files of a process's cgroup and of those above it, which may have quotas too.

    Args:
        cgroups: the text of its /proc/PID/cgroup.
        root: where the cgroup file systems are mounted: version 2 there or in `unified`, version 1
            in a folder named after its controllers.
    """
    files = []
    for line in cgroups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mounts = (root / controllers, root / "cpu") if controllers else (root, root / "unified")
        for mount in dict.fromkeys(mounts):
            folder = mount / path.lstrip("/")
            levels = [folder, *folder.parents]
            levels = levels[: levels.index(mount) + 1]
            found = [level / "cpu.stat" for level in levels if (level / "cpu.stat").is_file()]
            files += found
            if found:
                break
    return files


def read_throttled_s(files: Sequence[Path]) -> float | None:
    """Seconds, summed over cgroups, in which their quotas kept them off the CPU; None if untold."""
    seconds = []
    for file in files:
        for line in _text(file).splitlines():
            key, _, value = line.partition(" ")
            if key == "throttled_usec":  # version 2
                seconds.append(int(value) / 1e6)
            elif key == "throttled_time":  # version 1, ns
                seconds.append(int(value) / 1e9)
    return sum(seconds) if seconds else None


def read_cpu_limit(files: Sequence[Path]) -> float | None:
    """Cores that the tightest quota beside these `cpu.stat` files allows; None where there is none."""
    limits = []
    for file in files:
        quota, _, period = _text(file.with_name("cpu.max")).strip().partition(" ")  # version 2
        if not quota:
            quota = _text(file.with_name("cpu.cfs_quota_us")).strip()  # version 1; -1 is no limit
            period = _text(file.with_name("cpu.cfs_period_us")).strip()
        if quota.isdecimal() and period.isdecimal() and int(quota) > 0 and int(period) > 0:
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
