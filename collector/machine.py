"""The machine under a local server, as settings of a recording: what it is, and what it reaches."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .local_server import LOOPBACK
from .roof_probe import cpu_name
from .roofs import load_roofs

Row = dict[str, Any]

AMD_GPU = Path("/dev/kfd")
"""Where this is, a server without NVIDIA's driver works on AMD's GPUs and not on the cores."""


def is_local(urls: list[str]) -> bool:
    """Are all these addresses of this machine? Through a tunnel they may still lead elsewhere."""
    return bool(urls) and all(urlsplit(url).hostname in LOOPBACK for url in urls)


def machine_rows(*, node: str, emulated: bool) -> list[Row]:
    """Rows of the table `settings`: `cpu_name`, `cpu_count` (cores that this process may use),
    `gpu_name`, `gpu_count`, and of roofs that were measured here `roof_read_bytes_per_s`,
    `roof_<dtype>_flops`, `roof_launch_s`, `roof_all_reduce_s`.

    What is not known has no row. An emulated server works under no roof of this machine.

    Args:
        node: host that records.
        emulated: the server says so of itself.
    """  # noqa: D205 — one sentence with its list
    name, cores = cpu_name(), len(os.sched_getaffinity(0))
    found = [("cpu_name", name, "cpuinfo"), ("cpu_count", str(cores), "cpuinfo")]
    gpus = _gpus()
    if gpus:
        found += [("gpu_name", gpus[0], "nvml"), ("gpu_count", str(len(gpus)), "nvml")]
    if not emulated:
        found += [(k, v, "profile check --roofs") for k, v in _roofs(gpus, name, cores)]
    now = time.time_ns()
    return [
        {
            "t_ns": now, "engine": "", "replica": "", "key": key, "value": value,
            "origin": "effective", "source": source, "node": node,
        }
        for key, value, source in found
    ]  # fmt: skip


def _roofs(gpus: list[str], cpu: str, cores: int) -> Iterator[tuple[str, str]]:
    roofs = load_roofs(gpus[0] if gpus else cpu)
    if roofs is None or len(set(gpus)) > 1:
        return
    # Roofs of all cores are none for some of them, and a container's may have changed since.
    if not gpus and (roofs.get("cores_count") != cores or AMD_GPU.exists()):
        return
    yield "roof_read_bytes_per_s", repr(float(roofs["read_bytes_per_s"]))
    for dtype, flops in roofs["flops"].items():
        yield f"roof_{dtype}_flops", repr(float(flops))
    for key in ("launch_s", "all_reduce_s"):
        if key in roofs:
            yield f"roof_{key}", repr(float(roofs[key]))


def _gpus() -> list[str]:
    """The names of this node's NVIDIA GPUs; empty without a driver."""
    with suppress(Exception):  # drivers fail in more ways than NVML has codes for
        import pynvml

        pynvml.nvmlInit()
        try:
            handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
            names = [pynvml.nvmlDeviceGetName(h) for h in handles]
            return [n.decode(errors="replace") if isinstance(n, bytes) else n for n in names]
        finally:
            pynvml.nvmlShutdown()
    return []
