import asyncio
import ctypes.util
import json
import sys
import types
from typing import Any

import pytest

from whybound.collector.schema import TABLES, UNIT_SUFFIXES
from whybound.collector.sources.nvml import NvmlSource

Rows = list[dict[str, Any]]


class FakeError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__({3: "Not Supported", 9: "Driver Not Loaded", 15: "GPU is lost"}[value])
        self.value = value


def ns(**fields: Any) -> types.SimpleNamespace:
    return types.SimpleNamespace(**fields)


class Fake(types.ModuleType):
    """Two GPUs; answers are as the real module gives them. `refuse` makes functions fail."""

    NVMLError = FakeError
    NVML_SUCCESS = 0
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_FUNCTION_NOT_FOUND = 13
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 138, 139

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.count = 2
        self.refuse: dict[str, int] = {}
        self.calls: list[str] = []
        self.answers: dict[str, Any] = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlDeviceGetHandleByIndex": lambda i: f"h{i}",
            "nvmlDeviceGetName": b"NVIDIA H200",
            "nvmlDeviceGetUUID": lambda h: f"GPU-{h}",
            "nvmlDeviceGetUtilizationRates": ns(gpu=97, memory=41),
            "nvmlDeviceGetMemoryInfo": ns(total=4 << 30, used=1 << 30, free=3 << 30),
            "nvmlDeviceGetPowerUsage": 412_500,
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetClockInfo": lambda h, which: {1: 1755, 2: 3201}[which],
            "nvmlDeviceGetMaxClockInfo": lambda h, which: {1: 1980, 2: 3202}[which],
            "nvmlDeviceGetPowerManagementDefaultLimit": 650_000,
            "nvmlDeviceGetCurrPcieLinkWidth": 8,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlDeviceGetTotalEccErrors": lambda h, kind, since: {(1, 0): 3}[kind, since],
            "nvmlDeviceGetTemperature": 66,
            "nvmlDeviceGetCurrentClocksEventReasons": 0x1 | 0x4 | 0x40,
            "nvmlDeviceGetPcieThroughput": lambda h, which: {0: 20, 1: 300}[which],
            "nvmlDeviceGetFieldValues": lambda h, fields: [
                ns(nvmlReturn=0, value=ns(ullVal=f - 130))
                for f, scope in fields
                if scope == 0xFFFFFFFF
            ],
        }

    def nvmlDeviceGetCount(self) -> int:
        return self.count

    def __getattr__(self, name: str) -> Any:
        if name not in self.answers:
            raise AttributeError(f"module 'pynvml' has no attribute {name!r}")

        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            if name in self.refuse:
                raise FakeError(self.refuse[name])
            answer = self.answers[name]
            return answer(*arguments) if callable(answer) else answer

        return call


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    module = Fake()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def record(for_s: float = 0.12, interval_s: float = 0.05) -> tuple[Rows, dict[str, Any]]:
    rows: Rows = []

    def sink(table: str, more: Rows) -> None:
        assert table == "samples"
        rows.extend(more)

    source = NvmlSource(node="n1", interval_s=interval_s, sink=sink)

    async def run() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(for_s, stop.set)
        await source.run(stop)

    asyncio.run(run())
    return rows, source.report()


EXPECTED = {
    "gpu_busy_ratio": ("gauge", "ratio", 0.97),
    "gpu_mem_busy_ratio": ("gauge", "ratio", 0.41),
    "gpu_mem_used_bytes": ("gauge", "bytes", float(1 << 30)),
    "gpu_mem_total_bytes": ("gauge", "bytes", float(4 << 30)),
    "gpu_power_w": ("gauge", "w", 412.5),
    "gpu_power_limit_w": ("gauge", "w", 700.0),
    "gpu_sm_clock_mhz": ("gauge", "mhz", 1755.0),
    "gpu_sm_clock_max_mhz": ("gauge", "mhz", 1980.0),
    "gpu_mem_clock_mhz": ("gauge", "mhz", 3201.0),
    "gpu_mem_clock_max_mhz": ("gauge", "mhz", 3202.0),
    "gpu_power_limit_default_w": ("gauge", "w", 650.0),
    "gpu_pcie_width_count": ("gauge", "count", 8.0),
    "gpu_pcie_width_max_count": ("gauge", "count", 16.0),
    "gpu_ecc_errors_count": ("counter", "count", 3.0),
    "gpu_temperature_celsius": ("gauge", "celsius", 66.0),
    "gpu_pcie_rx_per_s": ("gauge", "per_s", 300e3),
    "gpu_pcie_tx_per_s": ("gauge", "per_s", 20e3),
    "gpu_nvlink_tx_bytes": ("counter", "bytes", 8 * 1024.0),
    "gpu_nvlink_rx_bytes": ("counter", "bytes", 9 * 1024.0),
}


def test_every_signal_in_its_unit(fake: Fake) -> None:
    rows, report = record()
    for gpu in ("0", "1"):
        got = {
            r["signal"]: (r["kind"], r["unit"], r["value"])
            for r in rows
            if r["gpu"] == gpu and r["signal"] != "gpu_throttled_ratio"
        }
        assert got == EXPECTED
    columns = set(TABLES["samples"].column_names())
    for row in rows:
        assert set(row) == columns
        assert row["unit"] in UNIT_SUFFIXES
        assert json.loads(row["labels"]) == {"name": "NVIDIA H200", "uuid": f"GPU-h{row['gpu']}"}
    assert report["state"] == "ok"
    assert report["missing"] == {}
    assert report["samples_count"] >= 3
    assert report["rows_count"] == len(rows)
    assert report["gpus"][1] == {"index": 1, "name": "NVIDIA H200", "uuid": "GPU-h1"}
    assert fake.calls[-1] == "nvmlShutdown"


def throttling(rows: Rows) -> dict[str, float]:
    return {r["reason"]: r["value"] for r in rows if r["signal"] == "gpu_throttled_ratio"}


def test_throttle_reasons(fake: Fake) -> None:
    reasons = throttling(record()[0])
    assert {r for r, value in reasons.items() if value} == {"sw_power_cap", "hw_thermal_slowdown"}
    assert len(reasons) == 8  # what does not hold now is a measured zero
    fake.answers["nvmlDeviceGetCurrentClocksEventReasons"] = 0x1  # idle
    assert not any(throttling(record()[0]).values())


@pytest.mark.parametrize("how", ["no such name", "no such function"])
def test_throttle_reasons_of_an_old_driver(fake: Fake, how: str) -> None:
    answer = fake.answers["nvmlDeviceGetCurrentClocksEventReasons"]
    fake.answers["nvmlDeviceGetCurrentClocksThrottleReasons"] = answer
    if how == "no such name":
        del fake.answers["nvmlDeviceGetCurrentClocksEventReasons"]
    else:
        fake.refuse["nvmlDeviceGetCurrentClocksEventReasons"] = 3
    assert throttling(record()[0])["sw_power_cap"] == 1


def test_what_is_not_supported_is_asked_once_and_costs_nothing_else(fake: Fake) -> None:
    fake.refuse = {"nvmlDeviceGetUtilizationRates": 3}
    rows, report = record()
    signals = {r["signal"] for r in rows}
    assert signals == {*EXPECTED, "gpu_throttled_ratio"} - {"gpu_busy_ratio", "gpu_mem_busy_ratio"}
    assert report["missing"] == {
        "gpu 0 nvmlDeviceGetUtilizationRates": "Not Supported",
        "gpu 1 nvmlDeviceGetUtilizationRates": "Not Supported",
    }
    assert fake.calls.count("nvmlDeviceGetUtilizationRates") == 2
    assert report["failed_count"] == 0


def test_what_fails_is_asked_again(fake: Fake) -> None:
    fake.refuse = {"nvmlDeviceGetPowerUsage": 15}
    rows, report = record()
    assert "gpu_power_w" not in {r["signal"] for r in rows}
    assert report["failed_count"] == 2 * report["samples_count"]
    assert report["last_error"] == "gpu 1 nvmlDeviceGetPowerUsage: GPU is lost"
    assert report["missing"] == {}


def test_no_nvlink(fake: Fake) -> None:
    fake.answers["nvmlDeviceGetFieldValues"] = lambda h, fields: [ns(nvmlReturn=3) for _ in fields]
    rows, report = record()
    assert not [r for r in rows if "nvlink" in r["signal"]]
    assert report["missing"]["gpu 0 nvmlDeviceGetFieldValues(NVLINK)"] == "Not Supported"


def test_one_lost_gpu_does_not_hide_the_other(fake: Fake) -> None:
    def handle(index: int) -> str:
        if index == 0:
            raise FakeError(15)
        return f"h{index}"

    fake.answers["nvmlDeviceGetHandleByIndex"] = handle
    rows, report = record()
    assert {r["gpu"] for r in rows} == {"1"}
    assert report["missing"] == {"gpu 0": "GPU is lost"}


def test_no_driver(fake: Fake) -> None:
    fake.refuse = {"nvmlInit": 9}
    rows, report = record(for_s=60)
    assert rows == []
    assert report["state"] == "not available: Driver Not Loaded"
    assert fake.calls == ["nvmlInit"]


def test_no_gpu(fake: Fake) -> None:
    fake.count = 0
    rows, report = record(for_s=60)
    assert rows == []
    assert report["state"] == "not available: the driver has no GPU"
    assert fake.calls == ["nvmlInit", "nvmlShutdown"]


def test_no_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    _, report = record(for_s=60)
    assert report["state"].startswith("not available: ")
    assert "pynvml" in report["state"]


@pytest.mark.skipif(
    ctypes.util.find_library("nvidia-ml") is not None, reason="an NVIDIA driver is installed here"
)
def test_the_real_module_without_a_driver() -> None:
    rows, report = record(for_s=60)
    assert rows == []
    assert report["state"] == "not available: NVML Shared Library Not Found"
    assert report["samples_count"] == 0


def test_questions_exist_in_the_real_module() -> None:
    pynvml = pytest.importorskip("pynvml")
    for name in [*Fake().answers, "nvmlDeviceGetCount"]:
        assert callable(getattr(pynvml, name)), name
    constants = [n for n in vars(Fake) if n.startswith("NVML_")]
    assert len(constants) > 8
    for name in constants:
        assert getattr(pynvml, name) == getattr(Fake, name), name
    assert pynvml.NVMLError(3).value == 3


def test_a_failing_sink_does_not_end_it(fake: Fake) -> None:
    def sink(table: str, rows: Rows) -> None:
        raise OSError("disk full")

    source = NvmlSource(node="n", interval_s=0.05, sink=sink)

    async def run() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(0.12, stop.set)
        await source.run(stop)

    asyncio.run(run())
    assert source.report()["last_error"] == "disk full"
    assert source.report()["samples_count"] == 0
    assert fake.calls[-1] == "nvmlShutdown"
