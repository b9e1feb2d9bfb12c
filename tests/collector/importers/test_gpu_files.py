"""Files about GPUs and their host: recognised by content, read value by value, refused with a reason."""

from __future__ import annotations

import os
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from whybound.collector.importers.gpu_rows import quantity, reason_of
from whybound.collector.importers.importer import Importer, Sink
from whybound.collector.importers.reading import open_sources
from whybound.collector.importers.recognise import recognise
from whybound.collector.schema import TABLES, UNIT_SUFFIXES
from whybound.errors import WhyboundError

MODULES = ("gpu_query", "gpu_dmon", "gpu_status", "gpu_links", "gpu_amd", "gpu_host")
IMPORTERS: tuple[Importer, ...] = tuple(
    i for m in MODULES for i in import_module(f"whybound.collector.importers.{m}").IMPORTERS
)
EPOCH_NS = 1_700_000_000 * 10**9


class Read:
    """What a text became: its kind, rows by table, notes, and the refusal."""

    def __init__(self, path: Path) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {}
        sink = Sink(put=lambda t, r: self.rows.setdefault(t, []).extend(r), epoch_ns=EPOCH_NS)
        self.notes, self.refused, self.kind = sink.notes, "", ""
        with open_sources(path) as sources:
            for source in sources:
                importer = recognise(source.sample, IMPORTERS)  # type: ignore[union-attr]
                if importer is None:
                    continue
                self.kind, self.refused = importer.kind, importer.refuses
                try:
                    if not importer.refuses:
                        importer.read(source, sink)  # type: ignore[arg-type]
                except WhyboundError as error:
                    self.refused = str(error)
        for table, rows in self.rows.items():
            for row in rows:
                assert list(row) == TABLES[table].column_names()
                assert table != "samples" or row["unit"] in UNIT_SUFFIXES

    def of(self, signal: str, gpu: str = "0", reason: str = "") -> list[float]:
        return [
            r["value"]
            for r in self.rows.get("samples", [])
            if (r["signal"], r["gpu"], r["reason"]) == (signal, gpu, reason)
        ]

    @property
    def settings(self) -> dict[str, str]:
        return {r["key"]: r["value"] for r in self.rows.get("settings", [])}

    @property
    def facts(self) -> dict[tuple[str, str], float]:
        return {(r["signal"], r["scope"]): r["value"] for r in self.rows.get("facts", [])}


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def of(text: str, name: str = "some.txt") -> Read:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return Read(tmp_path / name)

    return of


def local_ns(text: str) -> int:
    return int(time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S"))) * 10**9


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("50 MiB", "", 52428800.0), ("16x", "", 16.0), ("67.03 W", "", 67.03), ("98 %", "", 0.98),
        ("98", "%", 0.98), ("1593 MHz", "", 1593.0), ("4000 KB/s", "", 4e6), ("N/A", "", None),
        ("[Not Supported]", "W", None), ("-", "%", None), ("40 C", "", 40.0), ("12 furlongs", "", None),
    ],
)  # fmt: skip
def test_quantities(text: str, unit: str, value: float | None) -> None:
    assert quantity(text, unit) == value


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("clocks_throttle_reasons.sw_power_cap", "sw_power_cap"),
        ("clocks_event_reasons.hw_thermal_slowdown", "hw_thermal_slowdown"),
        ("HW Power Brake Slowdown", "hw_power_brake_slowdown"),
        ("display_clocks_setting", "display_clock_setting"),
        ("clocks_event_reasons.gpu_idle", None),
        ("SW Thermal Slowdown", "sw_thermal_slowdown"),
    ],
)
def test_reasons_have_one_spelling(name: str, reason: str | None) -> None:
    assert reason_of(name) == reason


CSV = """\
timestamp, index, name, driver_version, utilization.gpu [%], memory.used [MiB], memory.total [MiB], \
power.draw [W], power.limit [W], clocks.current.sm [MHz], clocks.max.sm [MHz], \
clocks_event_reasons.active, pcie.link.width.current
2026/02/03 10:00:00.500, 0, NVIDIA H100 80GB HBM3, 560.35.03, 98 %, 70000 MiB, 81559 MiB, 650.10 W, 700.00 W, \
1500 MHz, 1980 MHz, 0x0000000000000004, 16
2026/02/03 10:00:00.510, 1, NVIDIA H100 80GB HBM3, 560.35.03, 5 %, 100 MiB, 81559 MiB, [N/A], 700.00 W, \
345 MHz, 1980 MHz, 0x0000000000000001, 16
2026/02/03 10:00:01.500, 0, NVIDIA
"""


def test_a_query_with_units(read: Any) -> None:
    got = read(CSV)
    assert got.kind == "nvidia-smi-csv"
    assert got.of("gpu_busy_ratio") == [0.98]
    assert got.of("gpu_busy_ratio", "1") == [0.05]
    assert got.of("gpu_power_w", "1") == []  # N/A is nothing
    assert got.of("gpu_sm_clock_mhz") == [1500.0]
    assert got.of("gpu_throttled_ratio", reason="sw_power_cap") == [1.0]
    assert got.of("gpu_throttled_ratio", "1", "sw_power_cap") == [0.0]
    assert got.of("gpu_throttled_ratio", "1", "hw_slowdown") == [0.0]
    assert got.settings == {"gpu_name": "NVIDIA H100 80GB HBM3", "driver_version": "560.35.03"}
    first = got.rows["samples"][0]
    assert first["t_ns"] == local_ns("2026-02-03 10:00:00") + 500_000_000
    assert "1 rows have not the header's number of columns" in got.notes[0]


def test_a_query_without_units_and_times_names_what_it_assumes(read: Any) -> None:
    got = read(
        "index, utilization.gpu [%], memory.used [MiB], clocks_throttle_reasons.sw_power_cap,"
        " ecc.errors.uncorrected.volatile.total\n0, 98, 70000, Not Active, 3\n"
    )
    assert got.of("gpu_busy_ratio") == [0.98]
    assert got.of("gpu_mem_used_bytes") == [70000 * 2**20]
    assert got.of("gpu_throttled_ratio", reason="sw_power_cap") == [0.0]
    assert got.of("gpu_ecc_errors_count", reason="uncorrected") == [3.0]
    assert got.rows["samples"][0]["t_ns"] == EPOCH_NS
    assert any("no timestamp column" in n for n in got.notes)


def test_a_query_without_its_header_is_refused_with_the_reason(read: Any) -> None:
    got = read("0, 98 %, 70000 MiB\n1, 5 %, 100 MiB\n")
    assert (got.kind, got.rows) == ("nvidia-smi-csv-noheader", {})
    assert "leave `noheader` out" in got.refused


def test_dmon_with_times_past_midnight(read: Any) -> None:
    got = read(
        "#Time        gpu    pwr  gtemp  mtemp     sm    mem    enc    dec   mclk   pclk  pviol  tviol\n"
        "#HH:MM:SS    Idx      W      C      C      %      %      %      %    MHz    MHz      %   bool\n"
        " 23:59:59      0    314     70      -     99     60      0      0   9501   1500     97      0\n"
        " 00:00:00      0    300     70      -     98     60      0      0   9501   1515      0      1\n"
        "#Time        gpu    pwr\n"
    )
    assert got.kind == "nvidia-smi-dmon"
    assert got.of("gpu_power_w") == [314.0, 300.0]
    assert got.of("gpu_mem_clock_mhz") == [9501.0, 9501.0]
    assert got.of("gpu_throttled_ratio", reason="power_violation") == [0.97, 0.0]
    assert got.of("gpu_throttled_ratio", reason="thermal_violation") == [0.0, 1.0]
    times = sorted({r["t_ns"] for r in got.rows["samples"]})
    assert times[1] - times[0] == 10**9
    assert got.notes == []


def test_dmon_without_times_is_laid_a_second_apart(read: Any) -> None:
    got = read(
        "# gpu   pwr    sm\n# Idx     W     %\n    0   100    50\n    1   110    60\n    0   120    70\n"
    )
    assert got.of("gpu_busy_ratio") == pytest.approx([0.5, 0.7])
    assert [r["t_ns"] - EPOCH_NS for r in got.rows["samples"]] == [0, 0, 0, 0, 10**9, 10**9]
    assert "it has no times" in got.notes[0]


def test_pmon(read: Any) -> None:
    got = read(
        "# gpu        pid  type    sm   mem   enc   dec   command\n"
        "# Idx          #   C/G     %     %     %     %   name\n"
        "    0       1234     C    80    20     -     -   python3 -m vllm\n"
        "    1          -     -     -     -     -     -   -\n"
    )
    assert got.kind == "nvidia-smi-pmon"
    assert got.of("gpu_process_busy_ratio") == [0.8]
    assert '"command":"python3 -m vllm"' in got.rows["samples"][0]["labels"]
    assert got.of("gpu_process_busy_ratio", "1") == []


def test_dcgmi_dmon(read: Any) -> None:
    got = read(
        "#Entity   GPUTL   FBUSD   SMACT   SMOCC   TENSO   DRAMA   POWER   DVCCTR\nID\n"
        "GPU 0     98      70000   0.912   0.301   0.452   0.710   512.5   4\n"
        "GPU 1     0       10      N/A     N/A     N/A     N/A     70.0    0\n"
    )
    assert got.kind == "dcgmi-dmon"
    assert got.of("gpu_sm_active_ratio") == [0.912]
    assert got.of("gpu_dram_active_ratio") == [0.71]
    assert got.of("gpu_mem_used_bytes") == [70000 * 2**20]
    assert got.of("gpu_sm_active_ratio", "1") == []
    assert got.of("gpu_throttled_ratio", reason="sw_power_cap") == [1.0]


OLD_TABLE = """\
Mon Apr 24 16:22:39 2023
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 470.57.02    Driver Version: 470.57.02    CUDA Version: 11.4     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  Tesla T4            On   | 00000000:00:1E.0 Off |                    2 |
| N/A   40C    P8    26W /  70W |   1032MiB / 15109MiB |      7%      Default |
+-------------------------------+----------------------+----------------------+
"""
NEW_TABLE = """\
Tue Feb  3 10:00:00 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 580.65.06              Driver Version: 580.65.06      CUDA Version: 13.0     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|=========================================+========================+======================|
|   0  NVIDIA H100 80GB HBM3          On  |   00000000:18:00.0 Off |                    0 |
| N/A   61C    P0            650W /  700W |   70000MiB /  81559MiB |     98%      Default |
|                                         |                        |             Disabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA RTX PRO 6000 Blac...    On  |   00000000:2A:00.0 Off |                  N/A |
| 30%   33C    P8             N/A /  N/A  |     100MiB /  97887MiB |      0%      Default |
+-----------------------------------------------------------------------------------------+
"""


@pytest.mark.parametrize(
    ("text", "power", "limit", "used", "busy", "ecc", "name", "at"),
    [
        (OLD_TABLE, 26.0, 70.0, 1032, 0.07, 2.0, "Tesla T4", "2023-04-24 16:22:39"),
        (NEW_TABLE, 650.0, 700.0, 70000, 0.98, 0.0, "NVIDIA H100 80GB HBM3", "2026-02-03 10:00:00"),
    ],
    ids=["470", "580"],
)
def test_the_table(
    read: Any,
    text: str,
    power: float,
    limit: float,
    used: int,
    busy: float,
    ecc: float,
    name: str,
    at: str,
) -> None:
    got = read(text)
    assert got.kind == "nvidia-smi"
    assert got.of("gpu_power_w") == [power]
    assert got.of("gpu_power_limit_w") == [limit]
    assert got.of("gpu_mem_used_bytes") == [used * 2**20]
    assert got.of("gpu_busy_ratio") == [busy]
    assert got.of("gpu_ecc_errors_count", reason="uncorrected") == [ecc]
    assert got.settings["gpu_name"] == name
    assert {r["t_ns"] for r in got.rows["samples"]} == {local_ns(at)}


def test_the_table_s_second_gpu_has_no_power_and_a_cut_name(read: Any) -> None:
    got = read(NEW_TABLE)
    assert got.of("gpu_power_w", "1") == []
    assert got.of("gpu_temperature_celsius", "1") == [33.0]
    assert got.settings["gpu_count"] == "2"


QUERY = """\

==============NVSMI LOG==============

Timestamp                                 : Tue Feb  3 10:00:00 2026
Driver Version                            : 560.35.03
CUDA Version                              : 12.6

Attached GPUs                             : 1
GPU 00000000:18:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    PCI
        GPU Link Info
            PCIe Generation
                Max                       : 4
                Current                   : 4
                Device Current            : 4
            Link Width
                Max                       : 16x
                Current                   : 8x
    Clocks Event Reasons
        Idle                              : Not Active
        SW Power Cap                      : Active
        HW Slowdown                       : Not Active
            HW Thermal Slowdown           : Not Active
            HW Power Brake Slowdown       : Active
        SW Thermal Slowdown               : Not Active
    FB Memory Usage
        Total                             : 81920 MiB
        Used                              : 70000 MiB
    BAR1 Memory Usage
        Total                             : 131072 MiB
        Used                              : 1 MiB
    Utilization
        Gpu                               : 97 %
        Memory                            : 55 %
    ECC Errors
        Volatile
            SRAM Correctable              : 1
            SRAM Uncorrectable Parity     : 2
            DRAM Correctable              : 0
            DRAM Uncorrectable            : 3
        Aggregate
            DRAM Uncorrectable            : 9
    Temperature
        GPU Current Temp                  : 61 C
        GPU Shutdown Temp                 : 92 C
    GPU Power Readings
        Average Power Draw                : 398.00 W
        Current Power Limit               : 400.00 W
        Default Power Limit               : 500.00 W
    GPU Memory Power Readings
        Average Power Draw                : 55.00 W
    Clocks
        SM                                : 1275 MHz
        Memory                            : 1593 MHz
    Max Clocks
        SM                                : 1410 MHz
        Memory                            : 1593 MHz
"""


def test_q_as_text(read: Any) -> None:
    got = read(QUERY)
    assert got.kind == "nvidia-smi-q"
    expected = {
        "gpu_busy_ratio": 0.97, "gpu_mem_busy_ratio": 0.55, "gpu_mem_used_bytes": 70000 * 2.0**20,
        "gpu_mem_total_bytes": 81920 * 2.0**20, "gpu_power_w": 398.0, "gpu_power_limit_w": 400.0,
        "gpu_power_limit_default_w": 500.0, "gpu_sm_clock_mhz": 1275.0, "gpu_sm_clock_max_mhz": 1410.0,
        "gpu_mem_clock_mhz": 1593.0, "gpu_mem_clock_max_mhz": 1593.0, "gpu_temperature_celsius": 61.0,
        "gpu_pcie_gen_count": 4.0, "gpu_pcie_gen_max_count": 4.0, "gpu_pcie_width_count": 8.0,
        "gpu_pcie_width_max_count": 16.0,
    }  # fmt: skip
    found = {r["signal"]: r["value"] for r in got.rows["samples"] if not r["reason"]}
    assert found == expected
    assert got.of("gpu_ecc_errors_count", reason="uncorrected") == [5.0]
    assert got.of("gpu_ecc_errors_count", reason="corrected") == [1.0]
    assert got.of("gpu_throttled_ratio", reason="hw_power_brake_slowdown") == [1.0]
    assert got.of("gpu_throttled_ratio", reason="hw_slowdown") == [0.0]
    assert got.settings == {
        "driver_version": "560.35.03", "gpu_count": "1", "gpu_name": "NVIDIA A100-SXM4-80GB",
    }  # fmt: skip
    assert {r["t_ns"] for r in got.rows["samples"]} == {local_ns("2026-02-03 10:00:00")}


OLD_ECC = (
    QUERY[: QUERY.index("    ECC Errors")]
    + """\
    ECC Errors
        Volatile
            Single Bit
                Device Memory             : 4
                Register File             : 0
                Total                     : 4
            Double Bit
                Device Memory             : 1
                Total                     : 1
        Aggregate
            Double Bit
                Total                     : 7
"""
)


def test_old_drivers_counted_bits(read: Any) -> None:
    got = read(OLD_ECC)
    assert got.of("gpu_ecc_errors_count", reason="corrected") == [4.0]
    assert got.of("gpu_ecc_errors_count", reason="uncorrected") == [1.0]


XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log><timestamp>Tue Feb  3 10:00:0{second} 2026</timestamp>
<driver_version>535.54.03</driver_version><attached_gpus>1</attached_gpus>
<gpu id="00000000:01:00.0"><product_name>NVIDIA L4</product_name>
<mig_devices><mig_device><fb_memory_usage><used>12 MiB</used></fb_memory_usage></mig_device></mig_devices>
<clocks_throttle_reasons><clocks_throttle_reason_sw_power_cap>Active</clocks_throttle_reason_sw_power_cap>
<clocks_throttle_reason_gpu_idle>Active</clocks_throttle_reason_gpu_idle></clocks_throttle_reasons>
<fb_memory_usage><total>23034 MiB</total><used>20000 MiB</used></fb_memory_usage>
<utilization><gpu_util>9{second} %</gpu_util></utilization>
<power_readings><power_draw>71.00 W</power_draw><enforced_power_limit>72.00 W</enforced_power_limit>
</power_readings>
</gpu>
</nvidia_smi_log>
"""


def test_xml_again_and_again_in_one_file(read: Any) -> None:
    got = read(XML.replace("{second}", "1") + XML.replace("{second}", "2"))
    assert got.kind == "nvidia-smi-xml"
    assert got.of("gpu_busy_ratio") == [0.91, 0.92]
    assert got.of("gpu_mem_used_bytes") == [20000 * 2.0**20] * 2  # not a MIG device's
    assert got.of("gpu_throttled_ratio", reason="sw_power_cap") == [1.0, 1.0]
    assert {r["reason"] for r in got.rows["samples"]} == {"", "sw_power_cap"}
    assert len({r["t_ns"] for r in got.rows["samples"]}) == 2


def test_an_xml_that_is_cut_off_keeps_what_stood_before(read: Any) -> None:
    got = read(XML.replace("{second}", "1") + XML.replace("{second}", "2")[:300])
    assert got.of("gpu_busy_ratio") == [0.91]
    assert "cut off" in got.refused


def test_xml_s_entities_are_nothing(read: Any) -> None:
    bomb = (
        XML.replace("{second}", "1")
        .replace("NVIDIA L4", "&a;")
        .replace('"nvsmi_device_v12.dtd">', '"x" [<!ENTITY a "aaaa">]>')
    )
    assert "undefined entity" in read(bomb).refused


TOPO = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV4\tSYS\tPIX\t0-23,48-71\t0\t\tN/A\n"
    "GPU1\tNV4\t X \tNODE\tSYS\t0-23,48-71\t0\t\tN/A\n"
    "GPU2\tSYS\tNODE\t X \tSYS\t24-47\t1\t\tN/A\n"
    "NIC0\tPIX\tSYS\tSYS\t X \n\nLegend:\n\n  X    = Self\n"
)


def test_topology(read: Any) -> None:
    got = read(TOPO)
    assert got.kind == "nvidia-smi-topo"
    assert got.settings == {
        "gpu_link_0_1": "NV4", "gpu_link_0_2": "SYS", "gpu_link_1_2": "NODE", "gpu_count": "3",
    }  # fmt: skip


def test_a_topology_with_a_row_missing_is_refused(read: Any) -> None:
    assert "rows of some GPUs are missing" in read(TOPO.replace("GPU1\tNV4", "GPX1\tNV4")).refused


NCCL = """\
# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807
# Collective test starting: all_reduce_perf
# Using devices
#  Rank  0 Group  0 Pid 1 on node-a device  0 [0000:d1:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid 2 on node-b device  0 [0000:1b:00] NVIDIA H100 80GB HBM3
#       size     count    type   redop  root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
           8         2   float     sum    -1    20.50    0.00    0.00       0    21.00    0.00    0.00       0
    33554432   8388608   float     sum    -1   500.00   67.11  117.44       0   510.00   65.79  115.13     N/A
# Avg bus bandwidth    : 58.1
# Collective test starting: sendrecv_perf
#  Rank  0 Group  0 Pid 3 on node-a device  0 [0000:d1:00] NVIDIA H100 80GB HBM3
"""


def test_nccl_tests(read: Any) -> None:
    got = read(NCCL)
    assert got.kind == "nccl-tests"
    scope = "segment=all_reduce"
    assert got.facts == {
        ("nccl_busbw_per_s", scope): pytest.approx(117.44e9),
        ("nccl_latency_s", scope): pytest.approx(20.5e-6),
        ("nccl_latency_message_bytes", scope): 8.0,
        ("nccl_ranks_count", scope): 2.0,
        ("nccl_nodes_count", scope): 2.0,
    }
    assert got.settings == {"gpu_name": "NVIDIA H100 80GB HBM3"}
    assert got.notes == ["some.txt: sendrecv_perf ended before its first result"]


def test_nccl_tests_without_a_result_are_refused(read: Any) -> None:
    got = read("\n".join(NCCL.splitlines()[:6]) + "\n")
    assert (got.kind, got.facts) == ("nccl-tests", {})
    assert "ended before its first result" in got.refused


def test_nccl_inspector(read: Any) -> None:
    line = '{"header":{"rank":0},"coll_perf":{"coll":"AllReduce","coll_msg_size_bytes":%d,"coll_busbw_gbs":%f}}\n'
    got = read(line % (10**9, 10.0) + line % (10**9, 30.0) + "{cut\n")
    assert got.kind == "nccl-inspector"
    assert got.facts == {("nccl_busbw_per_s", "segment=AllReduce"): pytest.approx(15e9)}
    assert "no JSON object" in got.notes[0]


def test_amd(read: Any) -> None:
    got = read(
        '{"gpu_data":[{"gpu":0,"asic":{"market_name":"AMD Instinct MI300X"},'
        '"limit":{"ppt0":{"socket_power_limit":{"value":600,"unit":"W"},"max_power_limit":{"value":750,"unit":"W"}}},'
        '"vram":{"size":{"value":196592,"unit":"MB"}},"driver":{"version":"6.16"},'
        '"clock":{"sys":{"frequency_levels":{"Level 0":"132 MHz","Level 1":"2100 MHz"}}}}]}'
    )
    assert got.kind == "amd-smi-json"
    assert got.of("gpu_power_limit_w") == [600.0]
    assert got.of("gpu_power_limit_default_w") == [750.0]
    assert got.of("gpu_sm_clock_max_mhz") == [2100.0]
    assert got.of("gpu_mem_total_bytes") == [196592 * 2.0**20]
    assert got.settings == {
        "gpu_name": "AMD Instinct MI300X",
        "driver_version": "6.16",
        "gpu_count": "1",
    }


def test_amd_csv(read: Any) -> None:
    got = read(
        "timestamp,gpu,gfx_activity,socket_power,hotspot\n1700000001,0,97,710,N/A\n1700000002,0,98,720,88\n"
    )
    assert got.kind == "amd-smi-csv"
    assert got.of("gpu_busy_ratio") == [0.97, 0.98]
    assert got.of("gpu_temperature_celsius") == [88.0]
    assert got.rows["samples"][0]["t_ns"] == 1_700_000_001 * 10**9


def test_host(read: Any) -> None:
    lscpu = read(
        "Architecture:   x86_64\nCPU(s):   96\nVendor ID:  GenuineIntel\nModel name:  Xeon\n"
        "Socket(s):  2\nNUMA node(s): 2\n"
    )
    assert lscpu.kind == "lscpu"
    assert lscpu.settings == {
        "cpu_count": "96",
        "cpu_name": "Xeon",
        "cpu_sockets": "2",
        "numa_nodes": "2",
    }
    numa = read(
        "available: 2 nodes (0-1)\nnode 0 cpus: 0 1 2 3\nnode 0 size: 515 MB\nnode 1 cpus: 4 5\n"
    )
    assert numa.settings == {"numa_nodes": "2", "numa_0_cpus": "4", "numa_1_cpus": "2"}


@pytest.mark.parametrize("took", ["throttled_usec 5000000", "throttled_time 5000000000"])
def test_cpu_stat_of_both_versions(read: Any, took: str) -> None:
    got = read(f"usage_usec 99\nnr_periods 1000\nnr_throttled 400\n{took}\n")
    assert got.kind == "cpu-stat"
    assert got.of("host_cpu_throttled_periods_count", "") == [400.0]
    assert got.of("host_cpu_throttled_seconds", "") == [5.0]
    assert {r["kind"] for r in got.rows["samples"]} == {"counter"}


def test_cpu_stat_without_a_quota_is_told(read: Any) -> None:
    assert (
        "no quota is set"
        in read("usage_usec 9\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n").refused
    )


@pytest.mark.parametrize(
    "text",
    [
        "", "hello\n", "a,b,c\n1,2,3\n", "# HELP x y\nx 1\n", '{"model": "m", "metrics": {}}',
        "gpu memory usage is 50 %\n",
        "INFO 01-01 00:00:00 [loggers.py:123] Engine 000: Avg prompt throughput: 0.0 tokens/s\n",
        "| table | of | something |\n|---|---|---|\n", "GPU0 X\n",
    ],
)  # fmt: skip
def test_nothing_else_is_taken_for_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.txt").write_text(text or " ")
    assert Read(tmp_path / "x.txt").kind == ""


@pytest.mark.parametrize(
    "text", [CSV, OLD_TABLE, NEW_TABLE, QUERY, TOPO, NCCL, XML.replace("{second}", "1")]
)
def test_any_cut_of_a_file_is_read_or_refused_and_never_raises(tmp_path: Path, text: str) -> None:
    for cut in range(1, len(text), max(1, len(text) // 25)):
        (tmp_path / "x").write_text(text[:cut])
        Read(tmp_path / "x")


CORPUS = os.environ.get("WHYBOUND_CORPUS", "")


def _recorded() -> list[Path]:
    return sorted(p for p in Path(CORPUS).glob("8-*/*/*") if p.is_file()) if CORPUS else []


@pytest.mark.skipif(not CORPUS, reason="WHYBOUND_CORPUS does not name the corpus folder")
@pytest.mark.parametrize("path", _recorded(), ids=lambda p: p.name)
def test_recorded_files(path: Path) -> None:
    got = Read(path)
    assert got.refused == ""
    if path.suffix == ".md":  # a manual of the inspector's, and no output of it
        assert got.kind == ""
    elif path.suffix == ".xml":
        assert got.kind == "nvidia-smi-xml"
        assert len(got.of("gpu_power_w")) == len(got.of("gpu_sm_clock_max_mhz")) == 1
        assert {"gpu_name", "driver_version"} <= got.settings.keys()
    elif path.suffix == ".log":
        assert got.kind == "nccl-tests"
        assert 0.5e9 < got.facts["nccl_busbw_per_s", "segment=alltoall"] < 60e9
        assert got.facts["nccl_nodes_count", "segment=alltoall"] == 2
    else:
        assert got.kind in ("amd-smi-json", "amd-smi-csv")
        assert {r["gpu"] for r in got.rows["samples"]} == {str(i) for i in range(8)}
