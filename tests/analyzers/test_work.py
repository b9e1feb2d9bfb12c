"""What a pass costs at the device's peaks: from names, from memory, from measured roofs, or not at all."""

import json
import math

import pytest

from whybound.analyzers.work import work_of
from whybound.rules.hardware import load_devices
from whybound.rules.models import find_model

DENSE, MIXTURE, H100 = "Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "NVIDIA H100 80GB HBM3"
READ_PER_S, FLOPS = 3.35e12, 989e12
"""The H100's data sheet: bytes a second, and dense bf16 FLOP/s."""


def work(model=DENSE, gpu=H100, **settings):
    named = {"model": model, "gpu_name": gpu}
    return work_of({k: v for k, v in {**named, **settings}.items() if v is not None}, 500, 600)


def middle(pair):
    return math.sqrt(pair[0] * pair[1])


# ---------------------------------------------------------------- what is named


def test_a_known_model_on_a_known_device():
    got = work()
    assert got.known
    assert got.devices == ("h100_sxm",)
    assert got.missing == ()
    assert got.gpus == 1
    # 8.19 G parameters in bf16; the input embedding (151936 × 4096) is looked up and not read
    read = 2 * (8.19e9 - 151936 * 4096)
    assert got.read_peak_s == pytest.approx(read / READ_PER_S, rel=0.01)
    assert got.token_peak_s == pytest.approx(read / FLOPS, rel=0.02)  # 2 FLOPs for 2 bytes
    # 36 layers × 8 heads × 128 × keys and values × 2 bytes
    assert got.kv_bytes_per_token == 147456
    assert got.kv_per_read * got.read_peak_s == pytest.approx(147456 / READ_PER_S, rel=0.01)
    assert 36 < got.kernels[0] < got.kernels[1]
    assert (got.expert_per_read, got.link_s, got.link_token_s) == (0.0, None, None)


def test_a_peak_lies_within_its_range():
    got = work()
    assert got.read_s[0] < got.read_peak_s < got.read_s[1]
    assert got.ridge_tokens[0] < got.ridge_tokens[1]
    for low, mid, high in (got.bandwidth_fraction, got.flops_fraction):
        assert 0 < low < mid < high <= 1


def test_longer_prompts_attend_to_more():
    named = {"model": DENSE, "gpu_name": H100}
    short, long = (work_of(named, n, 600).attention_ratio for n in (100, 10000))
    assert -1 < short < long


def test_a_mixture_reads_the_experts_that_its_tokens_touch():
    got = work(MIXTURE)
    assert got.expert_touch == pytest.approx(8 / 128)
    whole = got.read_peak_s * (1 + got.expert_per_read)
    assert whole == pytest.approx(2 * (30.5e9 - 151936 * 2048) / READ_PER_S, rel=0.02)
    one = got.read_peak_s * (1 + got.expert_per_read * got.expert_touch)
    assert one < 0.15 * whole  # 3 of 30 billion
    assert got.token_peak_s == pytest.approx(2 * 3.0e9 / FLOPS, rel=0.1)


def test_gpus_that_share_each_layer_each_read_and_compute_a_part():
    alone, four = work(), work(tensor_parallel_size="4")
    assert four.gpus == 4
    for name in ("read_peak_s", "token_peak_s", "weight_bytes", "kv_bytes_per_token"):
        assert getattr(four, name) == pytest.approx(getattr(alone, name) / 4), name
    assert four.kv_per_read == pytest.approx(alone.kv_per_read)
    assert 0 < four.link_s[0] < four.link_s[1]
    # ring: 2 · 3/4 of hidden · 2 bytes, twice in each of 36 layers, at 450 GB/s
    assert four.link_token_s == pytest.approx(72 * 1.5 * 4096 * 2 / 450e9)
    assert work(tensor_parallel_size="2").link_token_s < four.link_token_s


@pytest.mark.parametrize("key", ["tensor_parallel_size", "tp_size", "tp"])
def test_every_engines_name_of_tensor_parallelism(key):
    assert work(**{key: "2"}).gpus == 2


@pytest.mark.parametrize("value", ["0", "-1", "x", "", "nan", "inf", "1e400"])
def test_a_size_that_is_none_counts_as_one_gpu(value):
    assert work(tensor_parallel_size=value).gpus == 1


def test_eight_bits_are_half_the_bytes_at_twice_the_arithmetic():
    wide, narrow = work(), work(quantization="fp8")
    assert 0.5 <= narrow.read_peak_s / wide.read_peak_s < 0.56  # the head stays wide
    assert 0.48 < narrow.token_peak_s / wide.token_peak_s < 0.56
    assert narrow.kv_bytes_per_token == wide.kv_bytes_per_token
    assert work(kv_cache_dtype="fp8").kv_bytes_per_token == wide.kv_bytes_per_token / 2


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}


def test_weights_of_four_bits_are_computed_in_sixteen():
    config = {**find_model(DENSE).config, "quantization_config": AWQ}
    wide, narrow = work(), work(model_config=json.dumps(config))
    assert narrow.read_peak_s < 0.5 * wide.read_peak_s
    assert narrow.token_peak_s == pytest.approx(wide.token_peak_s, rel=0.05)


def test_weights_of_a_size_that_is_not_told_are_missing_and_not_sixteen_bits():
    """A method named on the command line, of a checkpoint whose groups nobody recorded."""
    got = work(quantization="awq")
    assert got.read_s is None
    assert got.read_peak_s is None
    assert got.token_peak_s is None
    assert "model" in " ".join(got.missing)


# ---------------------------------------------------------------- what is found


def test_a_device_that_is_not_named_is_found_by_what_it_holds():
    """16.4 GB of weights and 384 000 tokens of 147 kB fill 0.9 of 80 GB."""
    got = work(gpu=None, kv_cache_tokens="384000", gpu_memory_utilization="0.9")
    assert "h100_sxm" in got.devices
    assert not got.known
    assert got.read_peak_s is None
    devices = load_devices()
    for name in got.devices:
        assert devices[name].memory_bytes == pytest.approx(80e9, rel=0.25)
    fastest = max(devices[d].bandwidth_bytes_per_s for d in got.devices)
    assert got.read_s[0] < 1.02 * work().read_peak_s
    assert got.read_s[0] == pytest.approx(work().read_peak_s * READ_PER_S / fastest, rel=0.06)
    assert "device" in " ".join(got.missing)


def test_without_what_it_holds_it_may_be_any_gpu():
    any_gpu = work(gpu=None)
    assert set(any_gpu.devices) == {d.id for d in load_devices().values() if d.assumed}
    assert "rtx_5080" not in any_gpu.devices  # named, it is found
    assert work(gpu="NVIDIA GeForce RTX 5080").devices == ("rtx_5080",)
    assert any_gpu.read_s[0] < work().read_s[0] < work().read_s[1] < any_gpu.read_s[1]


def test_a_processor_is_no_gpu():
    got = work(gpu=None, device="cpu")
    assert got.devices == ()
    assert got.read_s is None
    assert got.missing


def test_a_name_that_nobody_knows_is_no_name():
    assert work(gpu="Voodoo 2").devices == work(gpu=None).devices
    got = work("nobody/knows-this")
    assert got.shape is None
    assert "model" in " ".join(got.missing)


def test_measured_roofs_win_over_the_data_sheet():
    got = work(roof_read_bytes_per_s="2e12", roof_bf16_flops="5e14")
    assert got.devices == ("measured roofs",)
    assert got.known
    assert got.missing == ()
    assert got.read_peak_s == pytest.approx(work().read_peak_s * READ_PER_S / 2e12, rel=0.01)
    assert got.token_peak_s == pytest.approx(work().token_peak_s * FLOPS / 5e14, rel=0.01)


@pytest.mark.parametrize("bad", ["nan", "inf", "-inf", "-1", "0", "fast", "1e400"])
@pytest.mark.parametrize("roof", ["roof_read_bytes_per_s", "roof_bf16_flops"])
def test_a_roof_that_is_no_number_was_not_measured(roof, bad):
    roofs = {"roof_read_bytes_per_s": "2e12", "roof_bf16_flops": "5e14", roof: bad}
    assert work(**roofs) == work()


def test_one_roof_alone_is_none():
    assert work(roof_read_bytes_per_s="2e12") == work()


# ---------------------------------------------------------------- what is not there


def test_nothing_known_names_both():
    got = work_of({}, 500, 600)
    assert got.shape is None
    assert got.device is None
    assert got.read_s is None
    assert not got.known
    first, second = got.missing
    assert "model" in first
    assert "device" in second


def test_a_device_alone_still_tells_the_ridge():
    got = work(model=None)
    assert got.devices == ("h100_sxm",)
    assert got.read_s is None
    assert middle(got.ridge_tokens) == pytest.approx(FLOPS / READ_PER_S, rel=0.02)
    (missing,) = got.missing
    assert "model" in missing


@pytest.mark.parametrize(
    ("settings", "assumed"),
    [
        pytest.param({}, False, id="nothing"),
        pytest.param({"max_num_seqs": "8"}, False, id="a setting of any engine"),
        pytest.param({"device": "cpu", "gpus_seen": "1"}, False, id="a CPU beside a GPU"),
        pytest.param({"device": "cuda"}, True, id="cuda"),
        pytest.param({"gpus_seen": "2"}, True, id="GPUs were sampled"),
        pytest.param({"model": "Qwen/Qwen3-8B"}, True, id="a model that wants one"),
    ],
)
def test_a_gpu_is_assumed_only_where_something_speaks_of_one(settings, assumed):
    assert work_of(settings, 100, 200).on_gpu is assumed
