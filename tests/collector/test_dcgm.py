"""dcgm-exporter's page as rows: the signals that NVML gives too, and the hardware counters beside them."""

import pytest

from whybound.collector.engine_map import EXPORTERS, engines, load_map
from whybound.collector.schema import UNIT_SUFFIXES
from whybound.collector.sources.scrape import scrape_rows

LABELS = 'gpu="1",UUID="GPU-1",device="nvidia1",modelName="NVIDIA H200",Hostname="n1"'
OLD = {
    "DCGM_FI_DEV_GPU_UTIL": ("gpu_busy_ratio", 97, 0.97),
    "DCGM_FI_DEV_FB_USED": ("gpu_mem_used_bytes", 1024, 1024 * 2**20),
    "DCGM_FI_DEV_POWER_USAGE": ("gpu_power_w", 412.5, 412.5),
    "DCGM_FI_DEV_SM_CLOCK": ("gpu_sm_clock_mhz", 1980, 1980),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("gpu_energy_joules", 5000, 5.0),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("gpu_graphics_active_ratio", 0.9, 0.9),
    "DCGM_FI_PROF_SM_ACTIVE": ("gpu_sm_active_ratio", 0.8, 0.8),
    "DCGM_FI_PROF_SM_OCCUPANCY": ("gpu_occupancy_ratio", 0.2, 0.2),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("gpu_tensor_active_ratio", 0.1, 0.1),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("gpu_dram_active_ratio", 0.7, 0.7),
}
NEW = {
    "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": ("gpu_graphics_active_ratio", 0.9, 0.9),
    "DCGM_FI_PROF_SM_UTIL_RATIO": ("gpu_sm_active_ratio", 0.8, 0.8),
    "DCGM_FI_PROF_SM_OCCUPANCY_RATIO": ("gpu_occupancy_ratio", 0.2, 0.2),
    "DCGM_FI_PROF_TENSOR_UTIL_RATIO": ("gpu_tensor_active_ratio", 0.1, 0.1),
    "DCGM_FI_PROF_DRAM_UTIL_RATIO": ("gpu_dram_active_ratio", 0.7, 0.7),
}


def scrape(names):
    text = "".join(f"{name}{{{LABELS}}} {value}\n" for name, (_, value, _) in names.items())
    return scrape_rows(text + 'DCGM_FI_DEV_XID_ERRORS{gpu="1"} 0\n', t_ns=1, node="n", replica="r")


@pytest.mark.parametrize("names", [OLD, NEW], ids=["old", "4.6"])
def test_a_page_becomes_rows_of_the_gpu(names):
    found = scrape(names)
    assert {r["signal"]: r["value"] for r in found.samples} == pytest.approx(
        {signal: expected for signal, _, expected in names.values()}
    )
    places = {(r["gpu"], r["engine"], r["replica"], r["node"]) for r in found.samples}
    assert places == {("1", "", "", "n")}
    assert found.unmapped == {}
    assert found.engine == "dcgm"


def test_both_names_on_one_page_count_once():
    found = scrape(OLD | NEW)
    signals = [r["signal"] for r in found.samples]
    assert len(signals) == len(set(signals)) == len(OLD)


def test_an_exporter_is_no_engine():
    assert not set(EXPORTERS) & set(engines())
    for name in EXPORTERS:
        mapping = load_map(name)
        assert (mapping.engine, mapping.serves) == (name, False)
        assert {s.unit for s in mapping.signals} <= UNIT_SUFFIXES
    assert load_map("vllm").serves
