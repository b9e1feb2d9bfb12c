"""Signals that need the fit: utilisation, what binds each phase, floors, number formats."""

from dataclasses import replace

import pytest
from fits import LOAD, fit_of, model_of
from passes import H100, HEALTHY, LAUNCHES

from whybound.analyzers.derived import derived_signals, work_signals
from whybound.analyzers.step_cost import StepCost, affine
from whybound.analyzers.whatif import capacity
from whybound.analyzers.work import work_of
from whybound.collector.schema import UNIT_SUFFIXES
from whybound.rules.model import Signal

LIMITS = {"max_num_seqs": 4.0, "kv_tokens": 4e5, "token_budget": 8192.0}
SEEN = {"requests_count": Signal(name="requests_count", value=70.0, n=70)}


def derived(*steps, signals=SEEN, **world):
    found = derived_signals(model_of(*steps, **{**LIMITS, **world}), signals)
    assert len({s.name for s in found}) == len(found)
    return {s.name: s for s in found}


def value(found, name):
    return found[name].value


def test_every_signal_has_its_unit_and_the_fit_as_its_source():
    for s in derived(HEALTHY, LAUNCHES, work=work_of(H100, 256, 288)).values():
        assert s.text is not None or s.unit in UNIT_SUFFIXES, s
        assert s.source in ("fit", "hardware", "model_config")
        if s.source == "fit":
            assert s.low <= s.value <= s.high
            assert s.n == 70


def test_utilisation_now_and_without_the_cap():
    step = affine(0.02, 0.0005, 0.00005)
    top = float(capacity(fit_of(step, **LIMITS).engine, LOAD)[0])
    found = derived(step, load=replace(LOAD, rate=1.5 * top))
    assert value(found, "rho_capped_ratio") == pytest.approx(1.5)
    gain = value(found, "capacity_gain_uncapped_ratio")
    assert gain > 5  # four of a thousand slots
    assert value(found, "rho_uncapped_ratio") == pytest.approx(1.5 / gain)


def test_callers_who_wait_offer_no_rate():
    found = derived(HEALTHY, load=replace(LOAD, open_loop=False))
    assert "rho_capped_ratio" not in found
    assert "capacity_gain_uncapped_ratio" in found


@pytest.mark.parametrize(("step", "part"), [(HEALTHY, "weights"), (LAUNCHES, "launch")])
def test_what_binds_a_decode_step(step, part):
    found = derived(step, load=replace(LOAD, rate=0.5))
    shares = {
        k: s.value
        for k, s in found.items()
        if k.startswith("decode_") and k.endswith("_share_ratio")
    }
    assert max(shares, key=lambda k: shares[k]) == f"decode_{part}_share_ratio"
    assert sum(shares.values()) <= 1 + 1e-9


def test_links_are_told_of_where_gpus_share_a_layer():
    assert "decode_link_share_ratio" not in derived(HEALTHY)
    two = work_of({**H100, "tensor_parallel_size": "2"}, 256, 288)
    found = derived(replace(HEALTHY, link_s=0.03), work=two)
    assert value(found, "decode_link_share_ratio") > 0.5


def test_doubt_is_the_spread_of_the_hypotheses():
    sure = derived(HEALTHY, HEALTHY)["decode_weights_share_ratio"]
    torn = derived(HEALTHY, LAUNCHES)["decode_weights_share_ratio"]
    assert sure.high - sure.low < 1e-9
    assert torn.high - torn.low > 0.5


def test_the_ridge_is_where_arithmetic_takes_as_long_as_the_weights():
    found = derived(StepCost(weights_s=0.006, expert_s=0.004, expert_touch=0.1, token_s=1e-4))
    assert value(found, "ridge_batch_count") == pytest.approx(100)


def test_a_share_of_prefill_is_of_the_engines_time():
    long = derived(HEALTHY, load=replace(LOAD, rate=0.5, input_tokens=4000.0, output_tokens=4.0))
    short = derived(HEALTHY, load=replace(LOAD, rate=0.5, input_tokens=16.0, output_tokens=400.0))
    assert value(long, "prefill_share_ratio") > 0.7
    assert value(short, "prefill_share_ratio") < 0.05


# ---------------------------------------------------------------- floors


def test_floors_need_model_and_device():
    nothing = derived(HEALTHY)
    assert not {"decode_floor_ratio", "prefill_floor_ratio"} & set(nothing)
    model = derived(HEALTHY, work=work_of({"model": H100["model"]}, 256, 288))
    assert "decode_floor_ratio" not in model


def test_a_healthy_step_is_near_its_floor_and_a_held_up_one_is_not():
    """4.5 ms at the peak: of 5.4 ms four fifths, of 14 ms a third."""
    work, load = work_of(H100, 256, 288), replace(LOAD, rate=0.5)
    near = value(derived(HEALTHY, work=work, load=load), "decode_floor_ratio")
    far = value(derived(LAUNCHES, work=work, load=load), "decode_floor_ratio")
    assert near == pytest.approx(4.52 / 5.35, abs=0.05)
    assert far == pytest.approx(4.52 / 14.08, abs=0.05)
    assert 0 < value(derived(HEALTHY, work=work, load=load), "prefill_floor_ratio") < 1


# ---------------------------------------------------------------- number formats


def formats(**settings):
    return {
        s.name: s.text or s.value for s in work_signals(work_of({**H100, **settings}, 256, 288))
    }


def test_number_formats_of_model_and_device():
    assert formats() == {
        "weight_bits_count": 16.0, "kv_bits_count": 16.0, "gpu_fp8_supported": "yes", "gpu_fp4_supported": "no",
    }  # fmt: skip
    assert formats(quantization="fp8", kv_cache_dtype="fp8")["weight_bits_count"] == 8.0
    assert formats(kv_cache_dtype="fp8")["kv_bits_count"] == 8.0
    assert formats(gpu_name="NVIDIA A100-SXM4-80GB")["gpu_fp8_supported"] == "no"
    assert formats(gpu_name="NVIDIA B200")["gpu_fp4_supported"] == "yes"


def test_what_is_not_known_has_no_format():
    assert work_signals(work_of({}, 256, 288)) == []
