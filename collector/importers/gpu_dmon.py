"""`nvidia-smi dmon`, `nvidia-smi pmon` and `dcgmi dmon`: columns under a header, one line a GPU and instant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from ...errors import WhyboundError
from .gpu_rows import GpuRows, local_ns, plain, quantity
from .importer import Importer, Sample, Sink, Source

_NS = 1_000_000_000

# column → (signal, unit, reason)
_DMON: Mapping[str, tuple[str, str, str]] = {
    "pwr": ("gpu_power_w", "W", ""),
    "gtemp": ("gpu_temperature_celsius", "C", ""),
    "temp": ("gpu_temperature_celsius", "C", ""),
    "sm": ("gpu_busy_ratio", "%", ""),
    "mem": ("gpu_mem_busy_ratio", "%", ""),
    "mclk": ("gpu_mem_clock_mhz", "MHz", ""),
    "pclk": ("gpu_sm_clock_mhz", "MHz", ""),
    "pviol": ("gpu_throttled_ratio", "%", "power_violation"),
    "tviol": ("gpu_throttled_ratio", "", "thermal_violation"),
    "fb": ("gpu_mem_used_bytes", "MiB", ""),
    "sbecc": ("gpu_ecc_errors_count", "", "corrected"),
    "dbecc": ("gpu_ecc_errors_count", "", "uncorrected"),
    "rxpci": ("gpu_pcie_rx_per_s", "MB/s", ""),
    "txpci": ("gpu_pcie_tx_per_s", "MB/s", ""),
}
_DCGMI: Mapping[str, tuple[str, str]] = {
    "GPUTL": ("gpu_busy_ratio", "%"),
    "MCUTL": ("gpu_mem_busy_ratio", "%"),
    "FBUSD": ("gpu_mem_used_bytes", "MiB"),
    "FBTTL": ("gpu_mem_total_bytes", "MiB"),
    "TMPTR": ("gpu_temperature_celsius", "C"),
    "GPUT": ("gpu_temperature_celsius", "C"),
    "POWER": ("gpu_power_w", "W"),
    "POWR": ("gpu_power_w", "W"),
    "SMCLK": ("gpu_sm_clock_mhz", "MHz"),
    "MMCLK": ("gpu_mem_clock_mhz", "MHz"),
    "TOTEC": ("gpu_energy_joules", "mJ"),
    "GRACT": ("gpu_graphics_active_ratio", ""),
    "SMACT": ("gpu_sm_active_ratio", ""),
    "SMOCC": ("gpu_occupancy_ratio", ""),
    "TENSO": ("gpu_tensor_active_ratio", ""),
    "DRAMA": ("gpu_dram_active_ratio", ""),
    "PCITX": ("gpu_pcie_tx_per_s", ""),
    "PCIRX": ("gpu_pcie_rx_per_s", ""),
    "NVLTX": ("gpu_nvlink_tx_per_s", ""),
    "NVLRX": ("gpu_nvlink_rx_per_s", ""),
}
_MASK = "DVCCTR"


def _words(line: str) -> list[str]:
    return [w for w in re.split(r"[,\s]+", plain(line).strip().lstrip("#").strip()) if w]


def _header(line: str) -> list[str] | None:
    """Columns of an nvidia-smi header: it begins with # and names gpu."""
    if not line.lstrip().startswith("#"):
        return None
    words = [w.lower() for w in _words(line)]
    return words if "gpu" in words else None


def _kind(sample: Sample) -> str:
    for line in sample.text.splitlines()[:40]:
        found = _header(line)
        if found and {"pid", "command"} <= set(found):
            return "pmon"
        if found and len(set(found) & set(_DMON)) >= 1:
            return "dmon"
        words = _words(line)
        if (
            line.lstrip().startswith("#")
            and words[:1] == ["Entity"]
            and set(words) & {*_DCGMI, _MASK}
        ):
            return "dcgmi"
    return ""


class _Times:
    """Times of rows: as printed (`-o T`, `-o DT`), else a second apart, which is what these tools do."""

    def __init__(self, rows: GpuRows, epoch_ns: int) -> None:
        self._rows, self._epoch_ns = rows, epoch_ns
        self._day = datetime.fromtimestamp(epoch_ns / 1e9)
        self._last: int | None = None
        self._seen: set[str] = set()
        self._round = 0
        self.told = False

    def set(self, row: Mapping[str, str], who: str) -> None:
        """The time of the next rows: of `who`'s line, which begins a round where it was seen already."""
        clock, date = row.get("time", ""), row.get("date", "")
        if clock:
            day = date or f"{self._day:%Y%m%d}"
            at = local_ns(f"{day} {clock}", ("%Y%m%d %H:%M:%S",))
            if at is not None:
                if not date and self._last is not None and at < self._last - 3600 * _NS:
                    self._day += timedelta(days=1)  # past midnight
                    at += 24 * 3600 * _NS
                self._last = self._rows.t_ns = at
                self.told = True
                return
        if who in self._seen:
            self._seen.clear()
            self._round += 1
        self._seen.add(who)
        self._rows.t_ns = self._epoch_ns + self._round * _NS


def _smi_lines(source: Source) -> Iterator[dict[str, str]]:
    """Each data line as column → text; lines that do not fit their header are passed over."""
    names: list[str] = []
    for line in source.lines():
        found = _header(line)
        if found:
            names = found
        elif not line.lstrip().startswith("#") and names:
            last = len(names) - 1
            words = _words(line)
            if len(words) > len(names) and names[last] == "command":
                words[last:] = [" ".join(words[last:])]
            if len(words) == len(names):
                yield dict(zip(names, words, strict=True))


def _finish(source: Source, sink: Sink, rows: GpuRows, times: _Times) -> None:
    if rows.close() == 0:
        raise WhyboundError(
            f"{source.path.name}: there is a header and no line under it that can be read"
        )
    if not times.told:
        sink.note(f"{source.path.name}: it has no times: a second apart, from the file's time")


def read_dmon(source: Source, sink: Sink) -> None:
    """Samples of each GPU.

    Raises:
        WhyboundError: there is no line of values.
    """
    rows = GpuRows(sink)
    times = _Times(rows, sink.epoch_ns)
    for row in _smi_lines(source):
        times.set(row, row["gpu"])
        for name, (signal, unit, reason) in _DMON.items():
            if name in row:
                rows.sample(
                    signal, quantity(row[name], unit), row["gpu"], reason=reason, raw_name=name
                )
    _finish(source, sink, rows, times)


def read_pmon(source: Source, sink: Sink) -> None:
    """How much of the time each process kept its GPU busy.

    Raises:
        WhyboundError: there is no line of a process.
    """
    rows = GpuRows(sink)
    times = _Times(rows, sink.epoch_ns)
    for row in _smi_lines(source):
        times.set(row, f"{row['gpu']} {row['pid']}")
        labels = {"pid": row["pid"], "command": row.get("command", "")}
        for name, signal, unit in (
            ("sm", "gpu_process_busy_ratio", "%"),
            ("mem", "gpu_process_mem_busy_ratio", "%"),
            ("fb", "gpu_process_mem_used_bytes", "MiB"),
        ):
            if row["pid"].isdigit() and name in row:
                value = quantity(row[name], unit)
                rows.sample(signal, value, row["gpu"], raw_name=name, labels=labels)
    _finish(source, sink, rows, times)


def read_dcgmi(source: Source, sink: Sink) -> None:
    """Samples of each GPU; of other entities (instances, switches) none.

    Raises:
        WhyboundError: there is no line of a GPU.
    """
    rows = GpuRows(sink)
    times = _Times(rows, sink.epoch_ns)
    names: list[str] = []
    for line in source.lines():
        words = _words(line)
        if line.lstrip().startswith("#"):
            names = words[1:] if words[:1] == ["Entity"] else names
            continue
        match = re.match(r"\s*GPU[ -](\d+)\s+(.*)", plain(line))
        if match is None or len(match[2].split()) != len(names):
            continue
        gpu = match[1]
        times.set({}, gpu)
        for name, text in zip(names, match[2].split(), strict=True):
            if name == _MASK:
                rows.throttle_mask(gpu, text, name)
            elif name in _DCGMI:
                signal, unit = _DCGMI[name]
                rows.sample(signal, quantity(text, unit), gpu, raw_name=name)
    _finish(source, sink, rows, times)


IMPORTERS = (
    Importer(
        "nvidia-smi-dmon",
        "`nvidia-smi dmon`",
        lambda s: 0.9 * (_kind(s) == "dmon"),
        read_dmon,
    ),
    Importer(
        "nvidia-smi-pmon",
        "`nvidia-smi pmon`",
        lambda s: 0.9 * (_kind(s) == "pmon"),
        read_pmon,
    ),
    Importer("dcgmi-dmon", "`dcgmi dmon`", lambda s: 0.9 * (_kind(s) == "dcgmi"), read_dcgmi),
)
