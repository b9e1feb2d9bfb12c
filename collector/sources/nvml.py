"""The GPUs of this node as NVML sees them: use, memory, power, clocks, throttling, links.

NVML's own window is about a second or less, so these are samples of state, not a timeline. Its
utilization counts time in which a kernel was resident, which is not a measure of load.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from .ticks import ticks

Row = dict[str, Any]

THROTTLE_REASONS = {
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
"""Bits of NVML's clock event reasons that hold clocks down; idleness (bit 0) is none of them."""

_NEVER = ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_FUNCTION_NOT_FOUND")
"""Errors after which a question is not asked again."""

_ALL_LINKS = 0xFFFFFFFF


@dataclass(frozen=True)
class Reading:
    """One value: `unit` is a suffix of the schema, `raw` the NVML function that gave it."""

    signal: str
    unit: str
    value: float
    kind: str = "gauge"
    reason: str = ""


class NvmlSource:
    """Samples of every GPU of the node (table `samples`; column `gpu` is NVML's index).

    `gpu_busy_ratio` (share of time a kernel was resident: not a measure of load),
    `gpu_mem_busy_ratio` (share of time device memory was read or written: not bandwidth),
    `gpu_mem_used_bytes`, `gpu_mem_total_bytes`, `gpu_power_w`, `gpu_power_limit_w` (enforced),
    `gpu_power_limit_default_w`, `gpu_sm_clock_mhz`, `gpu_sm_clock_max_mhz`, `gpu_mem_clock_mhz`,
    `gpu_mem_clock_max_mhz`, `gpu_temperature_celsius`, `gpu_pcie_width_count` and
    `gpu_pcie_width_max_count` (lanes), `gpu_ecc_errors_count` (uncorrected, since the driver was loaded),
    `gpu_throttled_ratio` (1 while `reason` holds the clocks down, else 0, so that its mean is a
    share of time), `gpu_pcie_rx_per_s` and `gpu_pcie_tx_per_s` (bytes a second over the last
    20 ms), `gpu_nvlink_rx_bytes` and `gpu_nvlink_tx_bytes` (counters: payload over all links).
    """

    def __init__(
        self, *, node: str, interval_s: float, sink: Callable[[str, list[Row]], None]
    ) -> None:
        """Prepare; the driver is not touched before `run`.

        Args:
            node: host that records.
            interval_s: seconds between samples, above 0.
            sink: takes the name of a table and rows for it.
        """
        self._node, self._interval_s, self._sink = node, interval_s, sink
        self._state = "not started"
        self._gpus: list[_Gpu] = []
        self._missing: dict[str, str] = {}
        self._samples = self._skipped = self._rows = self._failed = 0
        self._cost_s = 0.0
        self._last_error: str | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Sample until `stop` is set, and once more then; return at once without a driver."""
        try:
            nvml = await asyncio.to_thread(self._open)
        except Exception as error:
            # Drivers fail in more ways than NVML has codes for; a run goes on without GPU rows.
            self._state = f"not available: {_one_line(error)}"
            return
        try:
            async for skipped in ticks(stop, self._interval_s):
                self._skipped += skipped
                # In a thread: the PCIe questions block for 20 ms each.
                rows = await asyncio.to_thread(self._sample, nvml)
                try:
                    self._sink("samples", rows)
                except Exception as error:
                    self._last_error = _one_line(error)
                else:
                    self._samples += 1
                    self._rows += len(rows)
        finally:
            with suppress(Exception):  # a driver that is lost cannot be closed either
                nvml.nvmlShutdown()

    def report(self) -> dict[str, Any]:
        """What was collected and what was not.

        Keys: `state` ("ok", "not started" or "not available: WHY"), `gpus` (index, name, uuid),
        `samples_count`, `skipped_count` (instants that passed while it was busy), `rows_count`,
        `failed_count` (questions without an answer), `cost_s` (our own CPU seconds), `missing`
        ("gpu N FUNCTION" → why), `last_error`.
        """
        return {
            "state": self._state,
            "gpus": [{"index": g.index, **json.loads(g.labels)} for g in self._gpus],
            "samples_count": self._samples,
            "skipped_count": self._skipped,
            "rows_count": self._rows,
            "failed_count": self._failed,
            "cost_s": self._cost_s,
            "missing": dict(self._missing),
            "last_error": self._last_error,
        }

    def _open(self) -> Any:
        import pynvml as nvml

        nvml.nvmlInit()
        try:
            for index in range(nvml.nvmlDeviceGetCount()):
                try:
                    handle = nvml.nvmlDeviceGetHandleByIndex(index)
                    labels = {
                        "name": _str(nvml.nvmlDeviceGetName(handle)),
                        "uuid": _str(nvml.nvmlDeviceGetUUID(handle)),
                    }
                except Exception as error:  # one lost GPU must not hide the others
                    self._missing[f"gpu {index}"] = _one_line(error)
                    continue
                self._gpus.append(_Gpu(index, handle, json.dumps(labels, sort_keys=True)))
            if not self._gpus:
                raise LookupError("; ".join(self._missing.values()) or "the driver has no GPU")
        except BaseException:
            nvml.nvmlShutdown()
            raise
        self._state = "ok"
        return nvml

    def _sample(self, nvml: Any) -> list[Row]:
        began_s = time.thread_time()
        never = {getattr(nvml, name) for name in _NEVER}
        rows: list[Row] = []
        for gpu in self._gpus:
            for name, ask in QUESTIONS.items():
                missing = f"gpu {gpu.index} {name}"
                if missing in self._missing:
                    continue
                t_ns = time.time_ns()
                try:
                    readings = list(ask(nvml, gpu.handle))
                except Exception as error:  # whatever it is, it must not lose the rest
                    if isinstance(error, AttributeError) or getattr(error, "value", None) in never:
                        self._missing[missing] = _one_line(error)
                    else:
                        self._failed += 1
                        self._last_error = f"{missing}: {_one_line(error)}"
                    continue
                rows += [self._row(gpu, t_ns, name, reading) for reading in readings]
        self._cost_s += time.thread_time() - began_s
        return rows

    def _row(self, gpu: _Gpu, t_ns: int, raw_name: str, reading: Reading) -> Row:
        return {
            "t_ns": t_ns,
            "signal": reading.signal,
            "kind": reading.kind,
            "unit": reading.unit,
            "value": float(reading.value),
            "node": self._node,
            "engine": "",
            "replica": "",
            "gpu": str(gpu.index),
            "phase": "",
            "reason": reading.reason,
            "labels": gpu.labels,
            "raw_name": raw_name,
        }


@dataclass(frozen=True)
class _Gpu:
    index: int
    handle: Any
    labels: str


def _utilization(nvml: Any, handle: Any) -> Iterator[Reading]:
    rates = nvml.nvmlDeviceGetUtilizationRates(handle)
    yield Reading("gpu_busy_ratio", "ratio", rates.gpu / 100)
    yield Reading("gpu_mem_busy_ratio", "ratio", rates.memory / 100)


def _memory(nvml: Any, handle: Any) -> Iterator[Reading]:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    yield Reading("gpu_mem_used_bytes", "bytes", memory.used)
    yield Reading("gpu_mem_total_bytes", "bytes", memory.total)


def _power(nvml: Any, handle: Any) -> Iterator[Reading]:
    yield Reading("gpu_power_w", "w", nvml.nvmlDeviceGetPowerUsage(handle) / 1000)


def _power_limit(nvml: Any, handle: Any) -> Iterator[Reading]:
    yield Reading("gpu_power_limit_w", "w", nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000)


def _sm_clock(nvml: Any, handle: Any) -> Iterator[Reading]:
    mhz = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
    yield Reading("gpu_sm_clock_mhz", "mhz", mhz)


def _sm_clock_max(nvml: Any, handle: Any) -> Iterator[Reading]:
    mhz = nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM)
    yield Reading("gpu_sm_clock_max_mhz", "mhz", mhz)


def _mem_clock_max(nvml: Any, handle: Any) -> Iterator[Reading]:
    mhz = nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM)
    yield Reading("gpu_mem_clock_max_mhz", "mhz", mhz)


def _power_default(nvml: Any, handle: Any) -> Iterator[Reading]:
    mw = nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle)
    yield Reading("gpu_power_limit_default_w", "w", mw / 1000)


def _pcie_width(nvml: Any, handle: Any) -> Iterator[Reading]:
    lanes = nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)
    yield Reading("gpu_pcie_width_count", "count", lanes)


def _pcie_width_max(nvml: Any, handle: Any) -> Iterator[Reading]:
    lanes = nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)
    yield Reading("gpu_pcie_width_max_count", "count", lanes)


def _ecc(nvml: Any, handle: Any) -> Iterator[Reading]:
    errors = nvml.nvmlDeviceGetTotalEccErrors(
        handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    )
    yield Reading("gpu_ecc_errors_count", "count", errors, kind="counter", reason="uncorrected")


def _mem_clock(nvml: Any, handle: Any) -> Iterator[Reading]:
    mhz = nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)
    yield Reading("gpu_mem_clock_mhz", "mhz", mhz)


def _temperature(nvml: Any, handle: Any) -> Iterator[Reading]:
    celsius = nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
    yield Reading("gpu_temperature_celsius", "celsius", celsius)


def _throttling(nvml: Any, handle: Any) -> Iterator[Reading]:
    try:
        bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except (AttributeError, nvml.NVMLError):  # the name before driver 535
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    for bit, reason in THROTTLE_REASONS.items():
        yield Reading("gpu_throttled_ratio", "ratio", 1 if bits & bit else 0, reason=reason)


def _nvlink(nvml: Any, handle: Any) -> Iterator[Reading]:
    fields = {
        "gpu_nvlink_tx_bytes": nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
        "gpu_nvlink_rx_bytes": nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
    }
    values = nvml.nvmlDeviceGetFieldValues(handle, [(f, _ALL_LINKS) for f in fields.values()])
    for signal, field in zip(fields, values, strict=True):
        if field.nvmlReturn != nvml.NVML_SUCCESS:
            raise nvml.NVMLError(field.nvmlReturn)
        yield Reading(signal, "bytes", field.value.ullVal * 1024, kind="counter")  # in KiB


def _pcie_rx(nvml: Any, handle: Any) -> Iterator[Reading]:
    # NVML says KB; the difference between 1000 and 1024 is below its own precision.
    rate = nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_RX_BYTES) * 1000
    yield Reading("gpu_pcie_rx_per_s", "per_s", rate)


def _pcie_tx(nvml: Any, handle: Any) -> Iterator[Reading]:
    rate = nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_TX_BYTES) * 1000
    yield Reading("gpu_pcie_tx_per_s", "per_s", rate)


QUESTIONS: dict[str, Callable[[Any, Any], Iterator[Reading]]] = {
    "nvmlDeviceGetUtilizationRates": _utilization,
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetPowerUsage": _power,
    "nvmlDeviceGetEnforcedPowerLimit": _power_limit,
    "nvmlDeviceGetPowerManagementDefaultLimit": _power_default,
    "nvmlDeviceGetClockInfo(SM)": _sm_clock,
    "nvmlDeviceGetMaxClockInfo(SM)": _sm_clock_max,
    "nvmlDeviceGetClockInfo(MEM)": _mem_clock,
    "nvmlDeviceGetMaxClockInfo(MEM)": _mem_clock_max,
    "nvmlDeviceGetTemperature": _temperature,
    "nvmlDeviceGetCurrentClocksEventReasons": _throttling,
    "nvmlDeviceGetTotalEccErrors": _ecc,
    "nvmlDeviceGetCurrPcieLinkWidth": _pcie_width,
    "nvmlDeviceGetMaxPcieLinkWidth": _pcie_width_max,
    "nvmlDeviceGetFieldValues(NVLINK)": _nvlink,
    "nvmlDeviceGetPcieThroughput(RX)": _pcie_rx,
    "nvmlDeviceGetPcieThroughput(TX)": _pcie_tx,
}
"""Asked of each GPU at each sample, in this order; one refusal costs one answer."""


def _str(text: str | bytes) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else text


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
