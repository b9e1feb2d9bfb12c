"""Whole diagnoses as people would meet them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from whybound.rules.model import (
    Amdahl,
    BudgetItem,
    Ceiling,
    Diagnosis,
    Evidence,
    Finding,
    Gain,
    LeverAdvice,
    NextMeasurement,
    PrecheckResult,
    Realised,
    Target,
    Verdict,
)


def evidence(signal: str, value: float | str | None, unit: str, low=None, high=None) -> Evidence:
    return Evidence(
        signal=signal,
        value=value,
        unit=unit,
        low=low,
        high=high,
        source="v_engine, samples",
        sql=f"SELECT value, low, high FROM signals WHERE name = '{signal}'",
    )


def lever(
    name: str, title: str, gain: tuple[float, float, float] | None, **more: Any
) -> LeverAdvice:
    values: dict[str, Any] = {
        "id": name,
        "title": title,
        "ladder_rung": 5,
        "effort": "minutes",
        "flags": {},
        "relieves": "waiting for a slot",
        "burdens": "KV cache capacity",
        "failure_mode": "KV cache fills and requests are preempted",
        "quality_gate": "none needed: the outputs do not change",
        "disable_when": "preemptions per request above 0.05",
        "rollback": "restart with the former value",
        "helps": True,
        "why": "42 requests wait while 16 run and the KV cache is 31 % full",
        "gain": gain
        and Gain(
            low=gain[0],
            mid=gain[1],
            high=gain[2],
            metric="p95 e2e",
            method="fixed_point",
            capped_by="memory bandwidth",
        ),
    }
    return LeverAdvice(**{**values, **more})


def build_scheduling() -> Diagnosis:
    """Bound by the batch cap; the best lever was applied and measured."""
    budget = [
        ("network", "Network", 0.021, 0.011, "network", 0.018, 0.025),
        ("front_end", "Front end", 0.038, 0.020, "launch", 0.031, 0.046),
        ("wait_slot", "Waiting for a slot", 1.012, 0.533, "scheduling", 0.968, 1.06),
        ("wait_busy", "Waiting for a busy engine", 0.114, 0.060, "queueing", 0.088, 0.141),
        ("prefill", "Prefill", 0.183, 0.096, "compute", 0.176, 0.190),
        ("decode", "Decode", 0.499, 0.263, "memory", 0.481, 0.517),
        ("client_lag", "Client lag", 0.0004, 0.0002, None, 0.0001, 0.0009),
        ("unknown", "Unknown", 0.0326, 0.0168, None, None, None),
    ]
    phases = [
        {"phase": "queue_wait", "seconds": 1.126, "class": "scheduling", "source": "v_phases"},
        {"phase": "tokenize", "seconds": 0.022, "class": "launch", "source": "v_phases"},
        {"phase": "prefill", "seconds": 0.183, "class": "compute", "source": "v_phases"},
        {"phase": "decode", "seconds": 0.499, "class": "memory", "source": "v_phases"},
        {"phase": "detokenize", "seconds": 0.016, "class": "launch", "source": "v_phases"},
        {"phase": "network", "seconds": 0.021, "class": "network", "source": "v_phases"},
    ]
    return Diagnosis(
        run={
            "command": "vllm serve Qwen/Qwen3-8B --max-num-seqs 16 --max-num-batched-tokens 2048",
            "engine": "vllm",
            "model": "Qwen/Qwen3-8B",
            "started": "2025-11-29 17:20 UTC",
            "duration_s": 120.4,
            "version": "0.1.0",
            "emulated": True,
        },
        target=Target(
            metric="e2e",
            statistic="p95",
            text="p95 e2e < 2 s",
            unit="s",
            value=3.412,
            low=3.27,
            high=3.58,
            threshold=2.0,
            met=False,
        ),
        prechecks=[
            PrecheckResult(
                id="client",
                state="clear",
                effect="none",
                says="The load generator kept up: p99 lag 0.9 ms",
            ),
            PrecheckResult(
                id="warm_up",
                state="clear",
                effect="none",
                says="No warm-up drift: first quarter 1.01 of the rest",
            ),
            PrecheckResult(
                id="clocks",
                state="cannot_tell",
                effect="none",
                says="GPU clocks were not recorded",
                remedy="run nvidia-smi --query-gpu=clocks.sm beside the load",
            ),
        ],
        verdict=Verdict(
            class_="scheduling",
            sub_cause="batch_cap",
            binding_resource="memory bandwidth",
            confidence=0.86,
            runner_up="queueing",
            says="42 requests wait while 16 run, the cap; the KV cache is only 31 % full. "
            "Raising the cap costs no hardware.",
            method="gain vector and rules",
            gain_vector={"policy_best": 1.62, "load_half": 1.41},
            by_metric={"ttft": {"class": "scheduling"}, "itl": {"class": "memory"}},
        ),
        budget=[
            BudgetItem(
                component=c,
                label=n,
                seconds=s,
                share=p,
                class_=k,
                low=lo,
                high=hi,
                source="v_budget",
            )
            for c, n, s, p, k, lo, hi in budget
        ],
        ceilings=[
            Ceiling(component="wait_slot", share=0.533, gain_if_free=2.14),
            Ceiling(component="decode", share=0.263, gain_if_free=1.36),
            Ceiling(component="prefill", share=0.096, gain_if_free=1.11),
        ],
        findings=[
            Finding(
                rule="kv_cache_full",
                title="KV cache is full",
                scope="",
                state="clear",
                class_="memory",
                sub_cause="capacity",
                says="KV cache at 31 %, no preemption",
                evidence=[evidence("kv_used_max_ratio", 0.31, "ratio", 0.29, 0.33)],
            ),
            Finding(
                rule="offered_above_capacity",
                title="Offered load is near capacity",
                scope="",
                state="fires",
                class_="queueing",
                says="Offered load is 96 % of the measured capacity",
                evidence=[
                    evidence("rho_capped_ratio", 0.96, "ratio", 0.93, 0.99),
                    evidence("offered_rate_per_s", 8.1, "per_s"),
                ],
            ),
            Finding(
                rule="batch_cap",
                title="The batch cap holds requests back",
                scope="replica=127.0.0.1:8000",
                state="fires",
                class_="scheduling",
                sub_cause="batch_cap",
                says="16 of 16 slots are used while 42 requests wait",
                evidence=[
                    evidence("slots_used_ratio", 0.998, "ratio", 0.991, 1.0),
                    evidence("waiting_mean_count", 42.3, "count", 38.8, 45.9),
                    evidence("max_num_seqs_count", 16, "count"),
                    evidence("server_queue_mean_s", 1.126, "s", 1.08, 1.17),
                ],
            ),
            Finding(
                rule="launch_gaps",
                title="Gaps between kernels",
                scope="gpu=0",
                state="cannot_tell",
                class_="launch",
                says="No timeline was recorded",
                evidence=[evidence("gpu_gap_ratio", None, "ratio")],
            ),
        ],
        levers=[
            lever(
                "raise_max_num_seqs",
                "Raise the batch cap",
                (1.44, 1.62, 1.79),
                flags={
                    "sglang": "--max-running-requests 64",
                    "vllm": "--max-num-seqs 64",
                    "tensorrt_llm": "--max_batch_size 64",
                },
                realised=Realised(gain=1.55, low=1.49, high=1.61),
            ),
            lever(
                "kv_cache_fp8",
                "KV cache in FP8",
                (1.02, 1.09, 1.15),
                effort="hours",
                flags={"vllm": "--kv-cache-dtype fp8"},
                quality_gate="exact match on 200 prompts, at most 1 % lower",
            ),
            lever(
                "replicas",
                "Add a replica",
                (1.6, 1.9, 2.1),
                effort="days",
                amdahl=Amdahl(p=0.6, s=2.0, gain=1.43),
            ),
            lever(
                "speculative",
                "Speculative decoding",
                None,
                helps="check_first",
                why="the acceptance rate is not known",
            ),
            lever(
                "chunked",
                "Smaller prefill chunks",
                (0.9, 0.96, 1.01),
                helps=False,
                why="prefill is 10 % of the time",
            ),
        ],
        next_measurement=NextMeasurement(
            command="profile run -d 120s --load 'rate=8' -- "
            "vllm serve Qwen/Qwen3-8B --max-num-seqs 64",
            decides=["scheduling", "queueing"],
            because="With the cap at 64 the wait must fall to 0.3 s if the cap binds.",
        ),
        exhibits={
            "phases_mean": phases,
            "phases_tail": [{**p, "seconds": p["seconds"] * 1.8} for p in phases],
        },
        coverage={
            "levels": {"1": 0.99, "2": None, "3": None},
            "missing": [
                {"what": "kernels", "why": "no nsys on this machine"},
                {"what": "counters", "why": "needs level 2"},
            ],
        },
        scorecard={
            "engine": "vllm 0.11.0",
            "gpu": "H200",
            "workload": "sharegpt, 966 requests",
            "quality": None,
        },
    )


def build_abstained() -> Diagnosis:
    """Only client-side times: three resources remain."""
    d = build_scheduling()
    d.run = {
        "command": ["profile", "attach", "--url", "http://127.0.0.1:8000"],
        "engine": "sglang",
        "model": "meta-llama/Llama-3.1-8B",
    }
    d.target = Target(
        metric="itl",
        statistic="mean",
        text="mean itl",
        unit="s",
        value=0.0213,
        low=0.0209,
        high=0.0218,
    )
    d.verdict = Verdict(
        class_=None,
        confidence=0.34,
        abstained=True,
        candidates=["memory", "compute", "launch"],
        says="Decode takes 91 % of the time; without a timeline nothing tells what fills it.",
        method="rules",
    )
    d.budget = [
        BudgetItem(
            component="decode",
            label="Decode",
            seconds=0.0194,
            share=0.91,
            source="v_budget",
            low=0.0188,
            high=0.0199,
        ),
        BudgetItem(
            component="unknown", label="Unknown", seconds=0.0019, share=0.09, source="v_budget"
        ),
    ]
    d.ceilings, d.exhibits = [], {"phases_mean": None, "phases_tail": None}
    d.levers = [
        lever(
            "cuda_graphs",
            "Turn CUDA graphs on",
            (1.0, 1.06, 1.3),
            flags={"vllm": "drop --enforce-eager"},
        )
    ]
    d.findings = [f for f in d.findings if f.state == "cannot_tell"]
    d.next_measurement = NextMeasurement(
        command="profile attach --url http://127.0.0.1:8000 --timeline -d 20s",
        decides=["memory", "compute", "launch"],
        because="Gaps between kernels separate launch from the other two.",
    )
    return d


def build_withheld() -> Diagnosis:
    """The load generator was the bottleneck."""
    d = build_scheduling()
    d.prechecks.insert(
        0,
        PrecheckResult(
            id="client_bound",
            state="fires",
            effect="invalid",
            says="The load generator was late: p99 lag 310 ms, "
            "2.4 times the mean gap between arrivals",
            remedy="run the load from another machine, or lower the rate",
        ),
    )
    d.verdict = Verdict(
        class_=None, withheld=True, confidence=0.0, method="prechecks", says="The client was late."
    )
    d.run["emulated"] = False
    return d


def build_empty() -> Diagnosis:
    """Nothing at all was measured."""
    return Diagnosis(
        run={},
        target=Target(metric="e2e", statistic="mean", text="mean e2e", unit="s"),
        prechecks=[],
        verdict=Verdict(class_=None),
        budget=[],
        ceilings=[],
        findings=[],
        levers=[],
        next_measurement=None,
        exhibits={},
        coverage={},
        scorecard={},
    )


def build_crowded() -> Diagnosis:
    """Long names and many of everything."""
    d = build_scheduling()
    name = "void cutlass::device_kernel<flash::enable_sm90<FlashFwd, 128, true>>(Params) " * 2
    d.run["command"] = "vllm serve " + name
    d.verdict.says = "A long sentence that goes on about the run. " * 8
    d.verdict.sub_cause = "a_long_sub_cause" * 6
    for item in d.budget:
        item.share = 1 / 16
    d.budget = [b for b in d.budget for _ in range(2)]
    d.findings = d.findings * 10
    for i, finding in enumerate(d.findings):
        d.findings[i] = Finding(
            rule=finding.rule + name,
            title=name,
            scope=f"gpu={i}",
            state="fires",
            says=f"{i}: {name}",
            evidence=finding.evidence,
        )
    for item in d.levers:
        item.flags, item.failure_mode = {"vllm": f"--flag={name[:24]}", "sglang": name}, name
        item.title = f"{item.title} {name}"
    d.levers = d.levers * 3
    d.prechecks = [
        PrecheckResult(id=str(i), state="fires", effect="explains", says=name, remedy=name)
        for i in range(9)
    ]
    d.coverage["missing"] = [name] * 20
    d.scorecard = {f"key_{i}": name for i in range(9)}
    d.exhibits["phases_mean"] = [{"phase": name, "seconds": 1.0}] * 12
    return d


BUILDERS: dict[str, Callable[[], Diagnosis]] = {
    "scheduling": build_scheduling,
    "abstained": build_abstained,
    "withheld": build_withheld,
    "empty": build_empty,
    "crowded": build_crowded,
}


@pytest.fixture
def scheduling() -> Diagnosis:
    return build_scheduling()


@pytest.fixture
def abstained() -> Diagnosis:
    return build_abstained()


@pytest.fixture
def withheld() -> Diagnosis:
    return build_withheld()


@pytest.fixture
def empty() -> Diagnosis:
    return build_empty()


@pytest.fixture
def crowded() -> Diagnosis:
    return build_crowded()


@pytest.fixture(params=BUILDERS)
def any_diagnosis(request: pytest.FixtureRequest) -> Diagnosis:
    return BUILDERS[request.param]()
