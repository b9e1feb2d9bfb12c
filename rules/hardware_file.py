"""`hardware.yaml` as it is written: its keys and units, read strictly and checked against itself."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec

from .strict_yaml import Key, read

Dtype = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4"]
LinkKind = Literal["nvlink", "xgmi", "pcie", "ethernet"]

DTYPES: tuple[Dtype, ...] = get_args(Dtype)

Positive = Annotated[float, msgspec.Meta(gt=0)]
Factor = Annotated[float, msgspec.Meta(ge=1)]
Rates = dict[Dtype, Positive]
Pair = tuple[Positive, Positive]
Fraction = tuple[Positive, Positive, Positive]


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Unknown keys are errors everywhere below."""


class Achievable(Strict, frozen=True, kw_only=True):
    """Fractions of the peak that are reached: low, middle, high; `other` for a dtype without its own."""

    bandwidth: Fraction
    other: Fraction
    fp32: Fraction | None = None
    tf32: Fraction | None = None
    bf16: Fraction | None = None
    fp16: Fraction | None = None
    fp8: Fraction | None = None
    int8: Fraction | None = None
    fp4: Fraction | None = None


class Launch(Strict, frozen=True, kw_only=True):
    """Microseconds a kernel, low and high."""

    eager: Pair
    graph: Pair
    kernel_floor: Pair


class Family(Strict, frozen=True, kw_only=True):
    """What devices of one architecture share."""

    kind: Literal["cuda", "rocm"]
    flops_per_unit_clock: Rates
    achievable: Achievable
    launch_us: Launch


class Link(Strict, frozen=True, kw_only=True):
    """To its peers, a direction."""

    kind: LinkKind
    gb_per_s: Positive


class Entry(Strict, frozen=True, kw_only=True):
    """One device; what it states itself counts before its family."""

    id: str
    family: str
    models: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    words: tuple[str, ...] = ()
    assumed: bool = True
    dense_tflops: Rates
    flops_per_unit_clock: Rates | None = None
    achievable: Achievable | None = None
    memory_gib: Positive
    bandwidth_gb_per_s: Positive
    bandwidth_doubt: Factor = 1.03
    link: Link
    host_gb_per_s: Positive
    units: Annotated[int, msgspec.Meta(gt=0)]
    boost_mhz: Positive
    tdp_w: Positive
    flops_doubt: Factor = 1.05
    source: Annotated[str, msgspec.Meta(min_length=1)]
    doubts: str = ""


class CpuKind(Strict, frozen=True, kw_only=True):
    """What one core does in a clock with these instruction sets."""

    id: str
    flags: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    flops_per_unit_clock: Rates
    flops_doubt: Factor
    source: Annotated[str, msgspec.Meta(min_length=1)]
    doubts: str


class Cpu(Strict, frozen=True, kw_only=True):
    """What all processors share."""

    achievable: Achievable
    launch_us: Launch
    core_gb_per_s: Positive
    socket_gb_per_s: Positive
    bandwidth_doubt: Factor


class Hardware(Strict, frozen=True, kw_only=True):
    """The whole file."""

    families: dict[str, Family]
    devices: tuple[Entry, ...]
    cpus: tuple[CpuKind, ...]
    cpu: Cpu


def read_hardware(path: Path) -> Hardware:
    """Read one table.

    Raises:
        RuleError: the file cannot be read, or an entry is malformed or contradicts itself; names the line.
    """
    document = read(path)
    try:
        table = msgspec.convert(document.data, Hardware)
    except msgspec.ValidationError as error:
        what, _, at = str(error).partition(" - at `$")
        key: Key = tuple(int(i) if i else n for n, i in re.findall(r"\.(\w+)|\[(\d+)\]", at))
        raise document.error(key, what) from None
    problem = _problem(table)
    if problem:
        raise document.error(*problem)
    return table


def _problem(table: Hardware) -> tuple[Key, str] | None:
    """The first thing that no type can say: order, references, contradictions."""
    seen: set[str] = set()
    holders: list[tuple[Key, Achievable | None, Launch | None]] = [
        *((("families", n), f.achievable, f.launch_us) for n, f in table.families.items()),
        *((("devices", i), e.achievable, None) for i, e in enumerate(table.devices)),
        (("cpu",), table.cpu.achievable, table.cpu.launch_us),
    ]
    for key, achievable, launch in holders:
        for name in achievable.__struct_fields__ if achievable else ():
            fraction = getattr(achievable, name)
            if fraction and not (fraction[0] <= fraction[1] <= fraction[2] <= 1):
                return (*key, "achievable", name), f"{name} must be low <= middle <= high <= 1"
        for name in launch.__struct_fields__ if launch else ():
            if getattr(launch, name)[0] > getattr(launch, name)[1]:
                return (*key, "launch_us", name), f"{name} must be low <= high"
    for i, entry in enumerate(table.devices):
        if entry.id in seen:
            return ("devices", i, "id"), f"the device {entry.id!r} is given twice"
        seen.add(entry.id)
        if entry.family not in table.families:
            known = ", ".join(table.families)
            return ("devices", i, "family"), f"unknown family {entry.family!r}; known are {known}"
        rates = entry.flops_per_unit_clock or table.families[entry.family].flops_per_unit_clock
        for dtype, tflops in entry.dense_tflops.items():
            at: Key = ("devices", i, "dense_tflops", dtype)
            if dtype not in rates:
                return at, f"{dtype} has a peak but no flops_per_unit_clock"
            off = abs(math.log(tflops * 1e6 / (entry.units * rates[dtype] * entry.boost_mhz)))
            if off > math.log(entry.flops_doubt):
                return at, (
                    f"{dtype} is {math.exp(off):.2f} times off units × FLOPs a clock × clock, beyond"
                    f" its doubt of {entry.flops_doubt}; a sparse figure is 2 times off"
                )
    return None
