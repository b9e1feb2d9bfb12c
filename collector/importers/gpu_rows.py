"""Rows of GPUs and of their host out of what a tool printed, under the names that the live sources use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime

from ..sources.nvml import THROTTLE_REASONS
from .importer import Row, Sink

_BATCH = 5_000
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")

SCALES: Mapping[str, float] = {
    "%": 0.01,
    "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "MB": 1e6, "GB": 1e9,
    "W": 1.0, "mW": 1e-3, "MHz": 1.0, "GHz": 1e3, "C": 1.0,
    "KB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9, "J": 1.0, "mJ": 1e-3, "x": 1.0, "": 1.0,
}  # fmt: skip
"""Factor from a unit, as tools print it, to the schema's."""

COUNTERS = frozenset(
    {
        "gpu_energy_joules",
        "gpu_ecc_errors_count",
        "host_cpu_periods_count",
        "host_cpu_throttled_periods_count",
        "host_cpu_throttled_seconds",
    }
)
_NOTHING = ("n/a", "[n/a]", "not supported", "[not supported]", "unknown error", "err!", "-", "")

REASONS = frozenset(THROTTLE_REASONS.values())


def plain(line: str) -> str:
    """A line without a terminal's colours and underlines, which nvidia-smi prints into files too."""
    return _ANSI.sub("", line)


def quantity(text: str, unit: str = "") -> float | None:
    """`50 MiB` as 52428800.0, `16x` as 16.0; None for N/A and what is no number.

    Args:
        text: as printed.
        unit: of a value that is printed without one.
    """
    text = text.strip()
    if text.lower() in _NOTHING:
        return None
    match = _NUMBER.match(text)
    if match is None:
        return None
    told = text[match.end() :].strip() or unit
    scale = SCALES.get(told)
    return None if scale is None else float(match[0]) * scale


def local_ns(text: str, formats: Iterable[str]) -> int | None:
    """A wall-clock time without a zone, as this machine's; None when it has none of the formats."""
    for form in formats:
        try:
            return int(datetime.strptime(text, form).timestamp() * 1e6) * 1000
        except (ValueError, OverflowError):
            continue
    return None


def reason_of(name: str) -> str | None:
    """A throttle reason as NVML's source calls it, from any of its spellings; None: idle, or no reason."""
    bare = re.sub(r"[^a-z]+", "_", name.lower()).strip("_")
    bare = re.sub(r"^clocks?_(throttle|event)_reasons?_", "", bare)
    bare = bare.replace("display_clocks_setting", "display_clock_setting")
    return bare if bare in REASONS else None


class GpuRows:
    """Collects the rows of one file and hands them over in batches; `close` hands over the rest."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._node = sink.options.get("node", "")
        self._samples: list[Row] = []
        self._settings: dict[str, str] = {}
        self.count = 0
        self.t_ns = sink.epoch_ns
        """Time of the rows to come."""

    def sample(
        self,
        signal: str,
        value: float | None,
        gpu: str,
        *,
        reason: str = "",
        raw_name: str = "",
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """One value in its signal's unit; None gives no row, and neither does a negative one."""
        if value is None or not 0 <= value < float("inf"):
            return
        unit = "per_s" if signal.endswith("_per_s") else signal.rsplit("_", 1)[-1]
        self.count += 1
        self._samples.append(
            {
                "t_ns": self.t_ns,
                "signal": signal,
                "kind": "counter" if signal in COUNTERS else "gauge",
                "unit": {"seconds": "s"}.get(unit, unit),
                "value": value,
                "node": self._node,
                "engine": "",
                "replica": "",
                "gpu": gpu,
                "phase": "",
                "reason": reason,
                "labels": json.dumps(dict(labels or {}), sort_keys=True, separators=(",", ":")),
                "raw_name": raw_name,
            }
        )
        if len(self._samples) >= _BATCH:
            self._flush()

    def throttled(self, gpu: str, active: Mapping[str, bool], raw_name: str) -> None:
        """Which reasons hold the clocks down, 1 or 0 a reason, as far as they were told."""
        for reason, held in active.items():
            self.sample("gpu_throttled_ratio", float(held), gpu, reason=reason, raw_name=raw_name)

    def throttle_mask(self, gpu: str, text: str, raw_name: str) -> None:
        """The same from NVML's bit mask, `0x…` or decimal."""
        try:
            bits = int(text.strip(), 0)
        except ValueError:
            return
        active = {reason: bool(bits & bit) for bit, reason in THROTTLE_REASONS.items()}
        self.throttled(gpu, active, raw_name)

    def setting(self, key: str, value: str, source: str) -> None:
        """A fact of the machine, once."""
        value = value.strip()
        if self._settings.get(key) == value or value.lower() in _NOTHING:
            return
        self._settings[key] = value
        self.count += 1
        self._sink.rows(
            "settings",
            [
                {
                    "t_ns": self.t_ns,
                    "engine": "",
                    "replica": "",
                    "key": key,
                    "value": value,
                    "origin": "effective",
                    "source": source,
                    "node": self._node,
                }
            ],
        )

    def close(self) -> int:
        """Hand the rest over; how many rows there were."""
        self._flush()
        return self.count

    def _flush(self) -> None:
        if self._samples:
            self._sink.rows("samples", self._samples)
        self._samples = []
