"""The host beside the GPUs: `lscpu`, `numactl -H`, and the CPU quota's `cpu.stat`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...errors import WhyboundError
from .gpu_rows import GpuRows, quantity
from .importer import Importer, Sample, Sink, Source

_LSCPU = {
    "model name": "cpu_name",
    "cpu(s)": "cpu_count",
    "socket(s)": "cpu_sockets",
    "core(s) per socket": "cpu_cores_per_socket",
    "thread(s) per core": "cpu_threads_per_core",
    "numa node(s)": "numa_nodes",
    "hypervisor vendor": "hypervisor",
}
_STAT = re.compile(
    r"^(nr_periods|nr_throttled|throttled_usec|throttled_time) \d+\s*$", re.MULTILINE
)


def _pairs(source: Source) -> Iterator[tuple[str, str]]:
    for line in source.lines():
        name, colon, value = line.partition(":")
        if colon:
            yield name.strip().lower(), value.strip()


def _lscpu(sample: Sample) -> float:
    known = {"architecture", "cpu(s)", "vendor id", "model name", "socket(s)"}
    seen = {line.partition(":")[0].strip().lower() for line in sample.text.splitlines()[:60]}
    return 0.9 if len(known & seen) >= 4 else 0.0


def read_lscpu(source: Source, sink: Sink) -> None:
    """Settings of the machine: cores, sockets, NUMA nodes.

    Raises:
        WhyboundError: it tells none of them.
    """
    rows = GpuRows(sink)
    for name, value in _pairs(source):
        if name in _LSCPU:
            rows.setting(_LSCPU[name], value, "lscpu")
    if rows.close() == 0:
        raise WhyboundError(f"{source.path.name}: no line of lscpu is known")


def _numactl(sample: Sample) -> float:
    return 0.9 if re.search(r"^available: \d+ nodes? \(", sample.text, re.MULTILINE) else 0.0


def read_numactl(source: Source, sink: Sink) -> None:
    """The number of NUMA nodes, and the cores of each.

    Raises:
        WhyboundError: it does not tell them.
    """
    rows = GpuRows(sink)
    for line in source.lines():
        nodes = re.match(r"available: (\d+) nodes?", line)
        cpus = re.match(r"node (\d+) cpus:(.*)", line)
        if nodes:
            rows.setting("numa_nodes", nodes[1], "numactl")
        if cpus:
            rows.setting(f"numa_{cpus[1]}_cpus", str(len(cpus[2].split())), "numactl")
    if rows.close() == 0:
        raise WhyboundError(f"{source.path.name}: numactl told no node")


def _cpu_stat(sample: Sample) -> float:
    return 0.9 if len(set(_STAT.findall(sample.text))) >= 2 else 0.0


def read_cpu_stat(source: Source, sink: Sink) -> None:
    """What the quota of a control group (version 1 or 2) has cost since it began.

    `host_cpu_periods_count` and `host_cpu_throttled_periods_count` are its own counts,
    `host_cpu_throttled_seconds` the time in which it stood still.

    Raises:
        WhyboundError: there is no quota: it has no periods.
    """
    rows = GpuRows(sink)
    found = {}
    for line in source.lines():
        words = line.split()
        if len(words) == 2:
            found[words[0]] = quantity(words[1])
    if not found.get("nr_periods"):
        raise WhyboundError(
            f"{source.path.name}: no quota is set: the control group has no periods"
        )
    throttled_s = found.get("throttled_usec")
    throttled_s = throttled_s * 1e-6 if throttled_s is not None else None
    if throttled_s is None and (old := found.get("throttled_time")) is not None:
        throttled_s = old * 1e-9
    rows.sample("host_cpu_periods_count", found["nr_periods"], "", raw_name="nr_periods")
    rows.sample(
        "host_cpu_throttled_periods_count", found.get("nr_throttled"), "", raw_name="nr_throttled"
    )
    rows.sample("host_cpu_throttled_seconds", throttled_s, "", raw_name="throttled_usec")
    rows.close()


IMPORTERS = (
    Importer("lscpu", "`lscpu`", _lscpu, read_lscpu),
    Importer("numactl", "`numactl -H`", _numactl, read_numactl),
    Importer("cpu-stat", "`cpu.stat` of a control group", _cpu_stat, read_cpu_stat),
)
