"""`nvidia-smi --query-gpu=… --format=csv`, one row a GPU and instant."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping

from ...errors import WhyboundError
from .gpu_rows import GpuRows, local_ns, plain, quantity, reason_of
from .importer import Importer, Sample, Sink, Source

_STAMPS = ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S")
_STAMP = re.compile(r"\d{4}[/-]\d\d[/-]\d\d \d\d:\d\d:\d\d")

# name → (signal, unit where none is printed, preference among the names of one signal)
_COLUMNS: Mapping[str, tuple[str, str, int]] = {
    "utilization.gpu": ("gpu_busy_ratio", "%", 0),
    "utilization.memory": ("gpu_mem_busy_ratio", "%", 0),
    "memory.used": ("gpu_mem_used_bytes", "MiB", 0),
    "memory.total": ("gpu_mem_total_bytes", "MiB", 0),
    "power.draw": ("gpu_power_w", "W", 0),
    "power.draw.average": ("gpu_power_w", "W", 1),
    "power.draw.instant": ("gpu_power_w", "W", 2),
    "enforced.power.limit": ("gpu_power_limit_w", "W", 0),
    "power.limit": ("gpu_power_limit_w", "W", 1),
    "power.default_limit": ("gpu_power_limit_default_w", "W", 0),
    "clocks.sm": ("gpu_sm_clock_mhz", "MHz", 0),
    "clocks.gr": ("gpu_sm_clock_mhz", "MHz", 1),
    "clocks.mem": ("gpu_mem_clock_mhz", "MHz", 0),
    "clocks.max.sm": ("gpu_sm_clock_max_mhz", "MHz", 0),
    "clocks.max.gr": ("gpu_sm_clock_max_mhz", "MHz", 1),
    "clocks.max.mem": ("gpu_mem_clock_max_mhz", "MHz", 0),
    "temperature.gpu": ("gpu_temperature_celsius", "C", 0),
    "pcie.link.gen.current": ("gpu_pcie_gen_count", "", 0),
    "pcie.link.gen.gpucurrent": ("gpu_pcie_gen_count", "", 1),
    "pcie.link.gen.max": ("gpu_pcie_gen_max_count", "", 0),
    "pcie.link.width.current": ("gpu_pcie_width_count", "", 0),
    "pcie.link.width.max": ("gpu_pcie_width_max_count", "", 0),
    "ecc.errors.corrected.volatile.total": ("gpu_ecc_errors_count", "", 0),
    "ecc.errors.uncorrected.volatile.total": ("gpu_ecc_errors_count", "", 0),
}
_ALIASES = {
    "gpu_name": "name", "gpu_uuid": "uuid", "gpu_bus_id": "pci.bus_id",
    "clocks.current.sm": "clocks.sm", "clocks.current.graphics": "clocks.gr", "clocks.graphics": "clocks.gr",
    "clocks.current.memory": "clocks.mem", "clocks.memory": "clocks.mem", "clocks.max.memory": "clocks.max.mem",
    "clocks.max.graphics": "clocks.max.gr",
}  # fmt: skip
_OWN = re.compile(
    r"(utilization\.|memory\.(used|total|free)|power\.(draw|limit)|enforced\.power|clocks\.|temperature\.gpu"
    r"|pcie\.link|ecc\.errors|clocks_(throttle|event)_reasons)"
)


def _names(line: str) -> list[str]:
    """The columns of a header, without their `[unit]`."""
    names = [re.sub(r"\s*\[.*?\]\s*$", "", n).strip().lower() for n in plain(line).split(",")]
    return [_ALIASES.get(n, n) for n in names]


def _is_header(line: str) -> bool:
    return "," in line and any(_OWN.match(n) for n in _names(line))


def recognise(sample: Sample) -> float:
    """Sure where one of the first lines names columns of `--query-gpu`."""
    return 0.9 if any(_is_header(line) for line in sample.text.splitlines()[:20]) else 0.0


def _nameless(sample: Sample) -> float:
    """The same without its header: stamps, shares and MiB in CSV."""
    lines = [line for line in sample.text.splitlines()[:20] if line.strip()]
    if len(lines) == 0 or recognise(sample):
        return 0.0
    fields = [[f.strip() for f in line.split(",")] for line in lines]
    units = sum(f.endswith((" %", " MiB", " W", " MHz")) for row in fields for f in row)
    return 0.7 if min(map(len, fields)) >= 2 and units >= len(lines) else 0.0


def read(source: Source, sink: Sink) -> None:
    """Samples of each GPU; a row without a stamp bears the file's time.

    Raises:
        WhyboundError: no row could be read.
    """
    rows = GpuRows(sink)
    names: list[str] = []
    bad = 0
    indices: dict[str, str] = {}
    stamped = False
    for line in map(plain, source.lines()):
        if _is_header(line):
            names = _names(line)
            continue
        fields = next(csv.reader([line], skipinitialspace=True), [])
        if not names or not line.strip():
            continue
        if len(fields) != len(names):
            bad += 1
            continue
        row = {n: f.strip() for n, f in zip(names, fields, strict=True)}
        stamp = local_ns(row.get("timestamp", ""), _STAMPS)
        stamped |= stamp is not None
        rows.t_ns = stamp if stamp is not None else sink.epoch_ns
        key = row.get("uuid") or row.get("pci.bus_id") or ""
        gpu = row.get("index") or indices.setdefault(key, str(len(indices)))
        _row(rows, row, gpu)
    if rows.close() == 0:
        raise WhyboundError(f"{source.path.name}: no value in it can be read")
    if bad:
        sink.note(
            f"{source.path.name}: {bad} rows have not the header's number of columns: left out"
        )
    if not stamped:
        sink.note(f"{source.path.name}: no timestamp column: all its rows bear the file's time")


def _row(rows: GpuRows, row: Mapping[str, str], gpu: str) -> None:
    best: dict[tuple[str, str], tuple[int, float, str]] = {}
    active: dict[str, bool] = {}
    for name, text in row.items():
        column = _COLUMNS.get(name)
        reason = reason_of(name) if "_reasons." in name else None
        if name.endswith("_reasons.active"):
            rows.throttle_mask(gpu, text, name)
        elif reason and text.lower() in ("active", "not active"):
            active[reason] = text.lower() == "active"
        elif column is not None:
            signal, unit, rank = column
            value = quantity(text, unit)
            why = name.split(".")[2] if signal == "gpu_ecc_errors_count" else ""
            if value is not None and rank < best.get((signal, why), (9, 0.0, ""))[0]:
                best[signal, why] = (rank, value, name)
    if not any(n.endswith("_reasons.active") for n in row):
        rows.throttled(gpu, active, "clocks_event_reasons")
    for (signal, why), (_, value, name) in best.items():
        rows.sample(signal, value, gpu, reason=why, raw_name=name)
    for name, key in (
        ("name", "gpu_name"),
        ("driver_version", "driver_version"),
        ("count", "gpu_count"),
    ):
        rows.setting(key, row.get(name, ""), "nvidia-smi")


def _nothing(source: Source, sink: Sink) -> None:
    """Never called: the kind refuses."""


IMPORTERS = (
    Importer("nvidia-smi-csv", "`nvidia-smi --query-gpu=… --format=csv`", recognise, read),
    Importer(
        "nvidia-smi-csv-noheader",
        "`nvidia-smi --query-gpu=…` without its header",
        _nameless,
        _nothing,
        refuses="its columns have no names: leave `noheader` out",
    ),
)
