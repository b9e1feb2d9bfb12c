"""Runs that make no sense: a diagnosis all the same, in bounded time, without a number that is none."""

import copy
import json
import math
import time
import warnings

import msgspec
import pytest
from passes import H100, HEALTHY

from whybound.analyzers.diagnose import analyse, diagnose
from whybound.errors import WhyboundError
from whybound.rules.model import from_json, to_json

pytestmark = pytest.mark.slow

SECONDS = 5.0
"""Of the processor, at most."""


def numbers(value, path=""):
    """Every number of a document, by where it is."""
    if isinstance(value, dict):
        for k, v in value.items():
            yield from numbers(v, f"{path}.{k}")
    elif isinstance(value, list):
        for i, v in enumerate(value):
            yield from numbers(v, f"{path}[{i}]")
    elif isinstance(value, float):
        yield path, value


def refuse(text):
    raise AssertionError(f"{text} is no JSON")


def judged(run, target=None):
    """A diagnosis that is whole: finite, readable again, said in one line, in time."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = diagnose(run.path, target)
    assert time.process_time() - began < SECONDS
    bad = {p: v for p, v in numbers(msgspec.to_builtins(found)) if not math.isfinite(v)}
    assert bad == {}
    text = to_json(found)
    json.loads(text, parse_constant=refuse)
    assert from_json(text) == found
    assert found.verdict.says
    for word in ("nan", "inf ", "None"):
        assert word not in found.verdict.says
    if found.budget:
        assert sum(b.share for b in found.budget) == pytest.approx(1.0)
    for lever in found.levers:
        assert lever.gain is None or 0 < lever.gain.low <= lever.gain.mid <= lever.gain.high
    return found


@pytest.fixture(scope="module")
def rows(tmp_path_factory, emulated_at):
    """A healthy run's rows, its four settings first."""
    build = emulated_at(
        tmp_path_factory.mktemp("bad") / "run",
        step=HEALTHY,
        rate=10,
        n=80,
        tokens=(128, 24),
        told=H100,
    )
    return build.rows


SANE = {
    "max_num_seqs": 64,
    "max_num_batched_tokens": 2048,
    "num_gpu_blocks": 4096,
    "block_size": 16,
}


@pytest.fixture
def told(rows, build):
    """The run with other settings."""

    def tell(**settings):
        build.rows = copy.copy(rows)
        build.rows["settings"] = []
        build.settings(**{**H100, **SANE, **settings})
        return build.run()

    return tell


# ---------------------------------------------------------------- settings

ODD = ("0", "-1", "x", "", "nan", "inf", "-inf", "1e400", "1e12")


def test_the_healthy_run_is_one(told):
    found = judged(told())
    assert not found.verdict.withheld
    assert found.verdict.gain_vector


LIMITS = (
    "tensor_parallel_size", "max_num_seqs", "max_num_batched_tokens", "num_gpu_blocks", "block_size"
)  # fmt: skip


@pytest.mark.parametrize("value", ODD)
def test_limits_that_cannot_be(told, value):
    judged(told(**dict.fromkeys(LIMITS, value)))


@pytest.mark.parametrize("value", ["0", "-1"])
@pytest.mark.parametrize("key", LIMITS)
def test_one_limit_that_cannot_be(told, key, value):
    judged(told(**{key: value}))


@pytest.mark.parametrize("value", ODD)
def test_memory_that_cannot_be(told, value):
    """Without a named device: it is then looked for by what it holds."""
    judged(told(gpu_name="", kv_cache_tokens="400000", gpu_memory_utilization=value))
    judged(told(gpu_name="", kv_cache_tokens=value))


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0", "1e12", "1e-300", "1e300"])
@pytest.mark.parametrize("roof", ["roof_read_bytes_per_s", "roof_bf16_flops"])
def test_roofs_that_cannot_be(told, roof, value):
    judged(told(**{"roof_read_bytes_per_s": "2e12", "roof_bf16_flops": "5e14", roof: value}))


@pytest.mark.parametrize(
    "name", ["", "Voodoo 2", "H100", "x" * 10000, "'; DROP TABLE requests; --", "🐎"]
)
def test_names_that_nobody_knows(told, name):
    found = judged(told(model=name, gpu_name=name))
    assert any("model" in m for m in found.coverage["missing"])


SHAPE = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "model_type": "llama",
    "torch_dtype": "bfloat16",
}  # fmt: skip


@pytest.mark.parametrize(
    "config",
    [
        "not json",
        "[]",
        "null",
        "{}",
        "3",
        '{"a": NaN}',
        "[" * 5000,
        "{" * 100000,
        *(
            json.dumps({**SHAPE, **change})
            for change in (
                {},
                {"num_hidden_layers": 10**6},
                {"num_hidden_layers": 0},
                {"num_hidden_layers": -3},
                {"num_hidden_layers": "many"},
                {"hidden_size": 10**12},
                {"hidden_size": None},
                {"vocab_size": 0},
                {"num_attention_heads": 0},
                {"num_key_value_heads": 0},
                {"torch_dtype": "float7"},
                {"model_type": "nobodys"},
                {"quantization_config": "four bits"},
                {"quantization_config": {"quant_method": 7}},
                {"quantization_config": {"bits": -1}},
            )
        ),
    ],
    ids=lambda c: c[-40:] if "architectures" in c else c[:12],
)
def test_configurations_that_are_none(told, config):
    """A configuration that cannot be is a line that says so; one that is odd is left out."""
    run = told(model_config=config)
    try:
        judged(run)
    except WhyboundError as error:
        assert "\n" not in str(error)  # noqa: PT017
        assert "model_config" in str(error) or "config" in str(error)  # noqa: PT017


def test_settings_that_contradict_each_other(told):
    judged(told(device="cpu", tensor_parallel_size="8", quantization="fp8", dtype="float32"))
    judged(told(max_num_seqs="1", max_num_batched_tokens="1", num_gpu_blocks="1"))
    judged(told(max_num_seqs="100000", num_gpu_blocks="2"))
    judged(told(tensor_parallel_size="1000000"))


# ---------------------------------------------------------------- loads


@pytest.mark.parametrize("target", ["mean e2e", "p99 itl"])
@pytest.mark.parametrize(
    "world",
    [
        {"rate": 500, "n": 300},
        {"rate": 0.01, "n": 60},
        {"rate": 10, "n": 1},
        {"rate": 10, "n": 2},
        {"rate": 10, "n": 80, "tokens": (1, 2)},
        {"rate": 10, "n": 60, "policy": {"max_num_seqs": 1}},
        {"rate": 10, "n": 60, "policy": {"token_budget": 1, "max_num_seqs": 1}, "tokens": (20, 4)},
    ],
    ids=[
        "far above capacity",
        "idle",
        "one request",
        "two",
        "one token in",
        "one slot",
        "one token a pass",
    ],
)
def test_loads_at_the_edge(emulated, world, target):
    judged(emulated(step=HEALTHY, told=H100, **{"tokens": (128, 24), **world}).run(), target)


@pytest.mark.parametrize("target", ["mean ttft", "mean itl", "throughput"])
def test_every_target_of_an_overload(emulated, target):
    build = emulated(step=HEALTHY, told=H100, rate=2000, n=500, tokens=(128, 24))
    run = build.run()
    judged(run, target)
    assert analyse(run, build.database(), target, ()).facts["rho_capped_ratio"] > 1


@pytest.mark.parametrize(
    ("name", "gaps", "more"),
    [
        ("no output at all", [], {"output_tokens": 0, "chunk_count": 0, "chunk_gap_s": []}),
        ("one token", [], {"output_tokens": 1}),
        ("gaps of nothing", [0.0] * 9, {}),
        ("one gap of all", [0.0] * 8 + [5.0], {}),
        ("no prompt", [0.1] * 9, {"input_tokens": 0}),
        ("more tokens than chunks", [0.1] * 2, {"output_tokens": 4000}),
        ("an instant", [1e-9] * 9, {}),
    ],
)
@pytest.mark.parametrize("target", ["mean ttft", "p99 itl"])
def test_requests_that_cannot_be(build, name, gaps, more, target):
    for i in range(60):
        build.request(i * 0.1, 0.0 if name == "an instant" else 0.2, gaps, **more)
    build.event("load_mode", "open")
    build.settings(**H100, max_num_seqs=8)
    judged(build.run(), target)


def test_all_at_once(build):
    for _ in range(60):
        build.request(0, 0.2, [0.1] * 5)
    build.event("load_mode", "closed")
    judged(build.run())


def test_every_request_failed(build):
    for i in range(60):
        build.request(i * 0.1, status="error")
    build.event("load_mode", "open")
    found = judged(build.run())
    assert found.verdict.class_ is None


def test_histograms_of_nothing(build):
    for i in range(60):
        build.request(i * 0.1, 0.2, [0.1] * 5)
    for name in ("queue_s", "prefill_s", "decode_s", "inference_s", "ttft_s", "e2e_s", "itl_s"):
        build.histogram(name, {0: (0.0, 0), 3: (0.0, 60), 7: (0.0, 60)})
    build.event("load_mode", "open")
    judged(build.run())


@pytest.mark.parametrize("n", [1, 5, 40])
def test_a_log_of_few_passes(build, n):
    for i in range(60):
        build.request(i * 0.1, 0.2, [0.01] * 5)
    for i in range(n):
        build.add(
            "steps", t_ns=1_700_000_000_000_000_000 + i * 10**7, engine="vllm", node="n", replica="r",
            prefill_tokens=0, decode_requests_count=4, decode_tokens=4, context_tokens=0, elapsed_s=0.01,
            host_s=0.0, device_s=0.0,
        )  # fmt: skip
    build.event("load_mode", "open")
    judged(build.run())


@pytest.mark.parametrize("busy", [0.0, 1.0, 1.5])
def test_counters_of_idle_and_impossible_gpus(told, build, busy):
    told()
    build.rows["samples"] = list(build.rows["samples"])
    for t in range(1, 8):
        for name in ("gpu_busy_ratio", "gpu_dram_active_ratio", "gpu_tensor_active_ratio"):
            build.gauge(t, **{name: busy})
            build.rows["samples"][-1].update(gpu="0", engine="", replica="")
    judged(build.run())
