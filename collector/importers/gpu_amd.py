"""AMD's GPUs: `amd-smi static` and `amd-smi metric` as JSON, and their CSV."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...errors import WhyboundError
from .gpu_rows import GpuRows, plain, quantity
from .importer import Importer, Sample, Sink, Source

# path → (signal, unit where none is told); the first that has a value counts
_JSON: tuple[tuple[str, str, str], ...] = (
    ("usage/gfx_activity", "gpu_busy_ratio", "%"),
    ("usage/umc_activity", "gpu_mem_busy_ratio", "%"),
    ("power/socket_power", "gpu_power_w", "W"),
    ("power/current_socket_power", "gpu_power_w", "W"),
    ("power/average_socket_power", "gpu_power_w", "W"),
    ("limit/ppt0/socket_power_limit", "gpu_power_limit_w", "W"),
    ("limit/socket_power", "gpu_power_limit_w", "W"),
    ("limit/ppt0/max_power_limit", "gpu_power_limit_default_w", "W"),
    ("limit/max_power", "gpu_power_limit_default_w", "W"),
    ("clock/gfx_0/clk", "gpu_sm_clock_mhz", "MHz"),
    ("clock/gfx_0/max_clk", "gpu_sm_clock_max_mhz", "MHz"),
    ("clock/mem_0/clk", "gpu_mem_clock_mhz", "MHz"),
    ("temperature/hotspot", "gpu_temperature_celsius", "C"),
    ("temperature/edge", "gpu_temperature_celsius", "C"),
    ("mem_usage/used_vram", "gpu_mem_used_bytes", "MiB"),
    ("mem_usage/total_vram", "gpu_mem_total_bytes", "MiB"),
    ("vram/size", "gpu_mem_total_bytes", "MiB"),
    ("bus/max_pcie_width", "gpu_pcie_width_max_count", ""),
    ("pcie/width", "gpu_pcie_width_count", ""),
    ("energy/total_energy_consumption", "gpu_energy_joules", "J"),
)
_ERRORS = (
    ("ecc/total_correctable_count", "corrected"),
    ("ecc/total_uncorrectable_count", "uncorrected"),
)
_COLUMNS = {
    path.rsplit("/", 1)[-1]: (signal, unit) for path, signal, unit in _JSON if "max" not in path
} | {
    "gfx_0_clk": ("gpu_sm_clock_mhz", "MHz"),
    "gfx_0_max_clk": ("gpu_sm_clock_max_mhz", "MHz"),
    "mem_0_clk": ("gpu_mem_clock_mhz", "MHz"),
    "total_correctable_count": ("gpu_ecc_errors_count", ""),
    "total_uncorrectable_count": ("gpu_ecc_errors_count", ""),
}


def _amd_json(sample: Sample) -> float:
    text = sample.text[:16_384]
    if not text.lstrip().startswith(("{", "[")) or '"gpu"' not in text:
        return 0.0
    return (
        0.85
        if re.search(r'"(asic|gfx_activity|socket_power|total_energy_consumption)"', text)
        else 0.0
    )


def _flat(value: Any, path: str = "") -> Iterable[tuple[str, str]]:
    """Leaves by path; `{"value": 5, "unit": "W"}` is one leaf, `5 W`."""
    if not isinstance(value, Mapping):
        yield path, str(value)
    elif "value" in value and "unit" in value:
        unit = {"MB": "MiB", "GB": "GiB", "°C": "C"}.get(str(value["unit"]), str(value["unit"]))
        yield path, f"{value['value']} {unit}"
    else:
        for key, child in value.items():
            yield from _flat(child, f"{path}/{key}" if path else str(key))


def read_json(source: Source, sink: Sink) -> None:
    """Samples and settings of each GPU, as far as the dump has them; it bears the file's time.

    Raises:
        WhyboundError: there is no GPU in it.
    """
    rows = GpuRows(sink)
    whole = source.json()
    gpus = whole.get("gpu_data", whole) if isinstance(whole, Mapping) else whole
    gpus = [
        g
        for g in (gpus if isinstance(gpus, list) else [gpus])
        if isinstance(g, Mapping) and "gpu" in g
    ]
    for found in gpus:
        gpu = str(found["gpu"])
        flat = dict(_flat(found))
        done: set[str] = set()
        for path, signal, unit in _JSON:
            value = quantity(flat.get(path, ""), unit) if signal not in done else None
            if value is not None:
                rows.sample(signal, value, gpu, raw_name=path)
                done.add(signal)
        for path, reason in _ERRORS:
            value = quantity(flat.get(path, ""))
            rows.sample("gpu_ecc_errors_count", value, gpu, reason=reason, raw_name=path)
        if "gpu_sm_clock_max_mhz" not in done:
            levels = [
                quantity(t) for p, t in flat.items() if p.startswith("clock/sys/frequency_levels/")
            ]
            top = max((v for v in levels if v is not None), default=None)
            rows.sample("gpu_sm_clock_max_mhz", top, gpu, raw_name="clock/sys/frequency_levels")
        rows.setting("gpu_name", flat.get("asic/market_name", ""), "amd-smi")
        rows.setting("driver_version", flat.get("driver/version", ""), "amd-smi")
    if gpus and any("asic" in g for g in gpus):
        rows.setting("gpu_count", str(len(gpus)), "amd-smi")
    if rows.close() == 0:
        raise WhyboundError(f"{source.path.name}: no value of a GPU in it is known")


def _names(line: str) -> list[str]:
    return [n.strip().lower() for n in plain(line).split(",")]


def _amd_csv(sample: Sample) -> float:
    names = _names(sample.text.lstrip("\ufeff").lstrip().partition("\n")[0])
    return 0.85 if "gpu" in names and len(set(names) & set(_COLUMNS)) >= 1 else 0.0


def read_csv(source: Source, sink: Sink) -> None:
    """Samples of each GPU; a column `timestamp` in Unix seconds gives their time.

    Raises:
        WhyboundError: no row has a value that is known.
    """
    rows = GpuRows(sink)
    names: list[str] = []
    for line in source.lines():
        fields = next(csv.reader([line], skipinitialspace=True), [])
        if not fields:
            continue
        if not names or _names(line) == names:
            names = _names(line)
            continue
        if len(fields) != len(names):
            continue
        row = dict(zip(names, fields, strict=True))
        stamp = quantity(row.get("timestamp", ""))
        rows.t_ns = int(stamp * 1e9) if stamp and stamp > 1e9 else sink.epoch_ns
        for name, (signal, unit) in _COLUMNS.items():
            reason = ""
            if signal == "gpu_ecc_errors_count":
                reason = "uncorrected" if "uncorrectable" in name else "corrected"
            if name in row:
                rows.sample(
                    signal, quantity(row[name], unit), row["gpu"], reason=reason, raw_name=name
                )
    if rows.close() == 0:
        raise WhyboundError(f"{source.path.name}: no value in it can be read")


IMPORTERS = (
    Importer("amd-smi-json", "`amd-smi static` or `metric --json`", _amd_json, read_json),
    Importer("amd-smi-csv", "`amd-smi metric --csv`", _amd_csv, read_csv),
)
