"""The device table: its figures agree with themselves, and names find their part or nothing."""

import math
from pathlib import Path

import pytest

from whybound.rules.hardware import cpu_device, find_device, load_devices
from whybound.rules.hardware_file import DTYPES
from whybound.rules.strict_yaml import RuleError

DEVICES = load_devices()
TABLE = Path(__file__).parents[2] / "rules" / "hardware.yaml"
PEAKS = [(d, dtype) for d in DEVICES.values() for dtype in d.dense_flops]


@pytest.mark.parametrize(("device", "dtype"), PEAKS, ids=[f"{d.id}-{t}" for d, t in PEAKS])
def test_a_peak_is_units_times_rate_times_clock_and_so_not_sparse(device, dtype):
    formula = device.units * device.flops_per_unit_clock[dtype] * device.boost_hz
    off = max(device.dense_flops[dtype] / formula, formula / device.dense_flops[dtype])
    assert off <= device.flops_doubt
    # Only where nothing but one figure is published may the doubt reach that of a sparse figure.
    assert device.flops_doubt < 1.5 or "only" in device.doubts


@pytest.mark.parametrize("device", DEVICES.values(), ids=lambda d: d.id)
def test_a_device_is_whole(device):
    assert device.source
    assert "fp32" in device.dense_flops
    assert set(device.dense_flops) <= set(DTYPES)
    assert "fp16" in device.dense_flops or device.id == "p40"  # there software computes in fp32
    assert set(device.achievable_flops) == set(device.dense_flops)
    assert device.link is not None
    assert device.host_bytes_per_s
    assert 8e9 < device.memory_bytes < 4e11
    half = device.dense_flops.get("fp16", device.dense_flops["fp32"])
    assert (
        30 < half / device.bandwidth_bytes_per_s < 1000
    )  # a slip of 1000 in a unit would show here
    for low, middle, high in (device.achievable_bandwidth, *device.achievable_flops.values()):
        assert 0 < low < middle < high <= 1
    for low, high in (device.launch_eager_s, device.launch_graph_s, device.kernel_floor_s):
        assert 1e-7 < low < high < 1e-4
    assert device.launch_graph_s[1] < device.launch_eager_s[1]


@pytest.mark.parametrize(
    ("device", "gib"),
    [("h100_sxm", 79.6), ("h200", 140.4), ("l4", 22.5), ("mi300x", 192.0), ("gh200_96", 95.0)],
)
def test_memory_is_what_a_driver_reports_within_seven_percent(device, gib):
    assert DEVICES[device].memory_bytes / 2**30 == pytest.approx(gib, rel=0.07)


@pytest.mark.parametrize(
    ("device", "bytes_per_s"),
    [
        ("h100_sxm", 450e9),
        ("a100_sxm_40", 300e9),
        ("b200", 900e9),
        ("mi300x", 448e9),
        ("h800_sxm", 200e9),
    ],
)
def test_links_are_per_direction(device, bytes_per_s):
    assert DEVICES[device].link[1] == bytes_per_s


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", "h100_sxm"),
        ("H100-SXM5-80GB", "h100_sxm"),
        ("NVIDIA H100 PCIe", "h100_pcie"),
        ("NVIDIA H100 NVL", "h100_nvl"),
        ("Tesla V100-SXM2-32GB", "v100_sxm_32"),
        ("Tesla V100-PCIE-16GB", "v100_pcie_16"),
        ("NVIDIA A100-SXM4-40GB", "a100_sxm_40"),
        ("NVIDIA A100-SXM4-80GB", "a100_sxm_80"),
        ("NVIDIA A100 80GB PCIe", "a100_pcie_80"),
        ("A100-PCIE-40GB", "a100_pcie_40"),
        ("Tesla T4", "t4"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA H20-3e", "h20_3e"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA B300 SXM6 AC", "b300"),
        ("NVIDIA L4", "l4"),
        ("nvidia l40s", "l40s"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA GeForce RTX 4090", "rtx_4090"),
        ("rtx4090", "rtx_4090"),
        ("2x RTX 3090", "rtx_3090"),
        ("NVIDIA GeForce RTX 5090", "rtx_5090"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx_pro_6000_blackwell"),
        ("NVIDIA GB10", "gb10"),
        ("DGX Spark", "gb10"),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD_Instinct_MI355X_OAM", "mi355x"),
        ("Tesla P40", "p40"),
        ("NVIDIA GeForce RTX 2080 Ti", "rtx_2080_ti"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA A2", "a2"),
        ("NVIDIA A30", "a30"),
        ("NVIDIA A40", "a40"),
        ("NVIDIA L20", "l20"),
        ("NVIDIA L40", "l40"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx_6000_ada"),
        ("RTX 6000 Ada 48GB", "rtx_6000_ada"),
        ("NVIDIA H800", "h800_sxm"),
        ("NVIDIA H200 NVL", "h200_nvl"),
        ("NVIDIA GH200 480GB", "gh200_96"),
        ("NVIDIA GH200 120GB", "gh200_96"),
        ("NVIDIA GH200 144G HBM3e", "gh200_144"),
        ("NVIDIA GeForce RTX 3060", "rtx_3060"),
        ("GeForce RTX 3080 10GB", "rtx_3080_10"),
        ("RTX 3080 12GB", "rtx_3080_12"),
        ("NVIDIA GeForce RTX 3090", "rtx_3090"),
        ("NVIDIA GeForce RTX 3090 Ti", "rtx_3090_ti"),
        ("NVIDIA GeForce RTX 4060 Ti", "rtx_4060_ti"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "rtx_4070_ti_super"),
        ("NVIDIA GeForce RTX 4080", "rtx_4080"),
        ("NVIDIA GeForce RTX 4080 SUPER", "rtx_4080_super"),
        ("NVIDIA GeForce RTX 5060 Ti", "rtx_5060_ti"),
        ("NVIDIA GeForce RTX 5070 Ti", "rtx_5070_ti"),
        ("NVIDIA GeForce RTX 5080", "rtx_5080"),
        ("NVIDIA Thor", "jetson_thor"),
        ("NVIDIA Jetson AGX Thor Developer Kit", "jetson_thor"),
        ("NVIDIA Jetson AGX Orin Developer Kit", "jetson_agx_orin_64"),
        ("AMD Instinct MI210", "mi210"),
        ("AMD Instinct MI250X", "mi250x"),
        ("AMD Instinct MI250X / MI250", "mi250x"),
        ("AMD INSTINCT MI250 (MCM) OAM AC MBA", "mi250x"),
        ("AMD Radeon RX 7900 XTX", "rx_7900_xtx"),
        ("AMD Radeon PRO W7900", "w7900"),
        ("AMD RYZEN AI MAX+ 395 w/ Radeon 8060S", "strix_halo"),
        ("Radeon 8060S Graphics", "strix_halo"),
        ("Strix Halo", "strix_halo"),
    ],
)
def test_a_name_finds_its_part(name, expected):
    found = find_device(name)
    assert found is not None
    assert (found.id, found.ambiguous) == (expected, ())


@pytest.mark.parametrize(
    ("name", "expected", "others"),
    [
        ("h100", "h100_sxm", ("h100_pcie", "h100_nvl")),
        ("H100 80GB", "h100_sxm", ("h100_pcie",)),
        ("NVIDIA A100", "a100_sxm_80", ("a100_sxm_40", "a100_pcie_80", "a100_pcie_40")),
        ("a100 40g", "a100_sxm_40", ("a100_pcie_40",)),
        ("V100", "v100_sxm_32", ("v100_sxm_16", "v100_pcie_32", "v100_pcie_16")),
        ("H20", "h20", ("h20_3e",)),
        ("NVIDIA GeForce RTX 3080", "rtx_3080_10", ("rtx_3080_12",)),
        ("GH200", "gh200_96", ("gh200_144",)),
    ],
)
def test_a_name_that_fits_several_says_so(name, expected, others):
    found = find_device(name)
    assert found is not None
    assert (found.id, found.ambiguous) == (expected, others)


@pytest.mark.parametrize(
    "name",
    [
        "", "NVIDIA", "GPU", "NVIDIA Graphics Device", "NVIDIA A10M", "Tesla V100S-PCIE-32GB",
        "NVIDIA GeForce RTX 3080 Ti", "NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "GRID A100-10C", "NVIDIA H100 64GB", "NVIDIA GH200 72GB",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "AMD Instinct MI300A", "H1000",
        "Quadro RTX 6000", "RTX 6000", "NVIDIA RTX 5000 Ada Generation", "NVIDIA H800 PCIe", "NVIDIA A40-48Q",
        "NVIDIA GeForce RTX 4070 Ti", "NVIDIA GeForce RTX 4080 Laptop GPU", "NVIDIA GeForce RTX 3060 Ti",
        "NVIDIA GeForce RTX 2080 SUPER", "NVIDIA GeForce RTX 5070", "NVIDIA Jetson Orin NX", "Orin (nvgpu)",
        "AMD Radeon RX 7900 XT", "AMD Radeon Graphics", "AMD Ryzen AI Max 385", "AMD Instinct MI100",
    ],
)  # fmt: skip
def test_another_part_is_not_taken_for_it(name):
    assert find_device(name) is None


def test_a_part_of_a_rare_size_is_not_assumed():
    assert DEVICES["h100_sxm"].assumed
    assert not any(DEVICES[d].assumed for d in ("rtx_3080_10", "jetson_thor", "mi250x", "p40"))


def test_a_processor_is_cores_times_clock_times_rate():
    cpu = cpu_device({"avx2", "fma", "sse2"}, cores=2, clock_hz=2.5e9, memory_bytes=16e9)
    assert cpu is not None
    assert cpu.dense_flops["fp32"] == 2 * 2.5e9 * 32
    assert "bf16" not in cpu.dense_flops
    assert cpu.bandwidth_doubt >= 3
    wide = {"avx2", "fma", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"}
    amx = cpu_device(wide, cores=2, clock_hz=2.5e9, memory_bytes=16e9)
    assert amx is not None
    assert amx.id == "amx"
    assert amx.dense_flops["bf16"] == pytest.approx(2 * 2.5e9 * 2048)
    assert cpu_device({"sse2"}, cores=2, clock_hz=2.5e9, memory_bytes=16e9) is None


def test_bandwidth_of_a_processor_stops_growing_with_cores():
    many = [
        cpu_device({"avx2", "fma"}, cores=n, clock_hz=2e9, memory_bytes=1e12)
        for n in (1, 8, 64, 128)
    ]
    widths = [d.bandwidth_bytes_per_s for d in many if d]
    assert widths == sorted(widths)
    assert widths[-1] == widths[-2]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("fp8: 1979, int8: 1979}\n    memory_gib: 80", "fp8: 3958, int8: 1979}\n    memory_gib: 80", "sparse"),
        ("family: turing", "family: turning", "unknown family 'turning'"),
        ("    tdp_w: 70\n", "", "tdp_w"),
        ("boost_mhz: 1590", "boost_mhz: 1590\n    bost: 3", "bost"),
        ("bandwidth: [0.7, 0.8, 0.9], other: [0.35", "bandwidth: [0.9, 0.8, 0.9], other: [0.35", "low <= middle"),
        ("- id: t4", "- id: a10", "given twice"),
        ("fp16: 65, int8: 130", "fp16: 65, fp8: 130", "no flops_per_unit_clock"),
        ("memory_gib: 24", "memory_gib: -24", ">"),
    ],
)  # fmt: skip
def test_a_malformed_table_is_refused_with_its_line(tmp_path, old, new, says):
    text = TABLE.read_text()
    assert old in text
    path = tmp_path / "hardware.yaml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(RuleError, match=r"hardware\.yaml:\d+: ") as raised:
        load_devices(path)
    assert says in str(raised.value)


def test_the_ridge_of_known_parts():
    for device, ridge in {"h100_sxm": 295, "a100_sxm_80": 153, "h20": 37, "mi300x": 247}.items():
        d = DEVICES[device]
        assert math.isclose(d.dense_flops["bf16"] / d.bandwidth_bytes_per_s, ridge, rel_tol=0.01)
