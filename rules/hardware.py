"""What devices can do at most: dense peaks, memory, links, and how much of it software reaches."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from .device_names import Candidate, named
from .hardware_file import (
    Achievable,
    Dtype,
    Entry,
    Family,
    Fraction,
    Hardware,
    LinkKind,
    Pair,
    read_hardware,
)

Kind = Literal["cuda", "rocm", "cpu"]

_FILE = Path(__file__).parent / "hardware.yaml"


@dataclass(frozen=True)
class Device:
    """One device; SI units throughout, links per direction.

    Attributes:
        id: the entry's name in `hardware.yaml`.
        kind: cuda, rocm or cpu.
        dense_flops: peak FLOP/s by dtype, never sparse; a dtype that the device lacks is absent.
        memory_bytes: as built; what the driver reports is a little less, with ECC on GDDR 6 % less.
        bandwidth_bytes_per_s: peak of the device's memory.
        link: kind and bytes/s a direction to its peers; None for a CPU.
        host_bytes_per_s: bytes/s a direction to host memory; None for a CPU.
        units: SMs, CUs or cores.
        boost_hz: the clock that the peaks are stated at.
        tdp_w: power limit in watts; None where it is not known.
        flops_per_unit_clock: by dtype; times units and clock it gives the peak.
        achievable_bandwidth: low, middle and high fraction (0..1) of the bandwidth that is reached.
        achievable_flops: the same of the peak, by dtype.
        launch_eager_s: host seconds a kernel, low and high, when each is launched by itself.
        launch_graph_s: the same when a captured graph is replayed.
        kernel_floor_s: low and high seconds of a kernel that does nothing.
        flops_doubt: the true peaks lie within value / doubt .. value × doubt; at least 1.
        bandwidth_doubt: the same of the bandwidth.
        source: where the figures come from.
        doubts: what is not certain, in words; empty when nothing is.
        assumed: may it be taken for a GPU that nobody named? Not where it is rare, a consumer's or an edge part.
        ambiguous: ids of other devices that the name asked for may mean as well.
    """

    id: str
    kind: Kind
    dense_flops: dict[Dtype, float]
    memory_bytes: float
    bandwidth_bytes_per_s: float
    link: tuple[LinkKind, float] | None
    host_bytes_per_s: float | None
    units: int
    boost_hz: float
    tdp_w: float | None
    flops_per_unit_clock: dict[Dtype, float]
    achievable_bandwidth: tuple[float, float, float]
    achievable_flops: dict[Dtype, tuple[float, float, float]]
    launch_eager_s: tuple[float, float]
    launch_graph_s: tuple[float, float]
    kernel_floor_s: tuple[float, float]
    flops_doubt: float
    bandwidth_doubt: float
    source: str
    doubts: str = ""
    assumed: bool = True
    ambiguous: tuple[str, ...] = ()


def load_devices(path: Path | None = None) -> dict[str, Device]:
    """Every device of the table (default: this room's), by id, in the table's order.

    Raises:
        RuleError: the file cannot be read, or an entry is malformed or contradicts itself.
    """
    table = _table() if path is None else read_hardware(path)
    return {entry.id: _device(entry, table.families[entry.family]) for entry in table.devices}


def find_device(name: str) -> Device | None:
    """The device that NVML, nvidia-smi, DCGM, rocm-smi or a person calls `name`; None when unknown.

    A name that fits several parts ("H100") gives the common one and the others in `ambiguous`. A
    word that speaks of another part (Ti, Laptop, MIG, Max-Q) makes the name unknown: no roof is
    better than a wrong one.
    """
    entries = [Candidate(e.id, e.models, e.words, e.memory_gib) for e in _table().devices]
    found = named(name, entries)
    if not found:
        return None
    return replace(load_devices()[found[0]], ambiguous=tuple(found[1:]))


def cpu_device(
    flags: Collection[str], *, cores: int, clock_hz: float, memory_bytes: float, sockets: int = 1
) -> Device | None:
    """A processor from what its cores can do: cores × clock × FLOPs a clock, in wide doubt.

    Args:
        flags: instruction sets as /proc/cpuinfo names them.
        cores: physical cores that the server may use, at least 1.
        clock_hz: the clock that holds under load, above 0.
        memory_bytes: main memory that the server may use.
        sockets: processors that the cores are spread over; each has its own memory channels.

    Returns:
        None when no instruction set of the table is there.
    """
    table = _table()
    for kind in table.cpus:
        if set(kind.flags) <= set(flags):
            break
    else:
        return None
    bandwidth = min(cores * table.cpu.core_gb_per_s, sockets * table.cpu.socket_gb_per_s)
    rates = dict(kind.flops_per_unit_clock)
    return Device(
        id=kind.id, kind="cpu",
        dense_flops={d: cores * clock_hz * rate for d, rate in rates.items()},
        memory_bytes=memory_bytes, bandwidth_bytes_per_s=bandwidth * 1e9,
        link=None, host_bytes_per_s=None, units=cores, boost_hz=clock_hz, tdp_w=None,
        flops_per_unit_clock=rates, achievable_bandwidth=table.cpu.achievable.bandwidth,
        achievable_flops=_fractions(table.cpu.achievable, rates),
        launch_eager_s=_micro(table.cpu.launch_us.eager),
        launch_graph_s=_micro(table.cpu.launch_us.graph),
        kernel_floor_s=_micro(table.cpu.launch_us.kernel_floor),
        flops_doubt=kind.flops_doubt, bandwidth_doubt=table.cpu.bandwidth_doubt,
        source=kind.source, doubts=kind.doubts,
    )  # fmt: skip


def _device(entry: Entry, family: Family) -> Device:
    achievable = entry.achievable or family.achievable
    return Device(
        id=entry.id, kind=family.kind,
        dense_flops={d: t * 1e12 for d, t in entry.dense_tflops.items()},
        memory_bytes=entry.memory_gib * 2**30,
        bandwidth_bytes_per_s=entry.bandwidth_gb_per_s * 1e9,
        link=(entry.link.kind, entry.link.gb_per_s * 1e9),
        host_bytes_per_s=entry.host_gb_per_s * 1e9,
        units=entry.units, boost_hz=entry.boost_mhz * 1e6, tdp_w=entry.tdp_w,
        flops_per_unit_clock=dict(entry.flops_per_unit_clock or family.flops_per_unit_clock),
        achievable_bandwidth=achievable.bandwidth,
        achievable_flops=_fractions(achievable, entry.dense_tflops),
        launch_eager_s=_micro(family.launch_us.eager),
        launch_graph_s=_micro(family.launch_us.graph),
        kernel_floor_s=_micro(family.launch_us.kernel_floor),
        flops_doubt=entry.flops_doubt, bandwidth_doubt=entry.bandwidth_doubt,
        source=entry.source, doubts=entry.doubts, assumed=entry.assumed,
    )  # fmt: skip


def _fractions(achievable: Achievable, dtypes: Collection[Dtype]) -> dict[Dtype, Fraction]:
    return {d: getattr(achievable, d) or achievable.other for d in dtypes}


def _micro(pair: Pair) -> Pair:
    return pair[0] * 1e-6, pair[1] * 1e-6


@cache
def _table() -> Hardware:
    return read_hardware(_FILE)
