"""The load as the engines' own metrics tell it, and the verdict that rests on it, without a client."""

from collections.abc import Callable
from typing import Any

import pytest

from whybound.analyzers.diagnose import diagnose_open
from whybound.analyzers.fit import load_mode, offered
from whybound.analyzers.signals import read_signals


def facts_of(con: Any) -> dict[str, float]:
    return {s.name: s.value for s in read_signals(con) if s.value is not None}


def by_hand(build: Any) -> Any:
    """Idle until second 10, 12 requests in 10 s, 3 of them still there at the end, of two engines one busy."""
    build.gauge(0, engine_running_count=0, engine_waiting_count=0)
    build.gauge(10, engine_running_count=0, engine_waiting_count=0)
    build.gauge(15, engine_running_count=2, engine_waiting_count=4)
    build.gauge(20, engine_running_count=2, engine_waiting_count=1)
    for t in (0, 10, 15, 20):
        for signal in ("engine_running_count", "engine_waiting_count"):
            build.add(
                "samples", t_ns=1_700_000_000_000_000_000 + t * 10**9, signal=signal, kind="gauge",
                value=0.0, node="n", engine="vllm", replica="idle", gpu="", phase="", reason="", labels="{}",
            )  # fmt: skip
    build.counter("requests_finished_count", {0: 100, 10: 100, 15: 103, 20: 107}, reason="stop")
    build.counter("requests_finished_count", {0: 9, 10: 9, 15: 10, 20: 11}, reason="length")
    build.counter("prompt_tokens", {0: 0, 10: 0, 15: 300, 20: 900})
    build.counter("generation_tokens", {0: 50, 10: 50, 15: 200, 20: 500})
    return build


def test_rates_are_by_flow_balance_over_the_busy_span(build: Any) -> None:
    facts = facts_of(by_hand(build).database())
    assert facts["engine_duration_s"] == 10.0
    assert facts["engine_observed_s"] == 20.0
    assert facts["engine_finished_count"] == 9
    assert facts["engine_completed_rate_per_s"] == pytest.approx(0.9)
    assert facts["engine_offered_rate_per_s"] == pytest.approx(1.2)  # and 3 that are not through
    assert facts["engine_replicas_count"] == 1  # the idle one serves nobody
    assert facts["engine_input_mean_tokens"] == pytest.approx(100)
    assert facts["engine_output_mean_tokens"] == pytest.approx(50)
    assert facts["engine_running_mean_count"] == pytest.approx(4 / 3)


def test_the_busiest_engine_is_told_from_the_mean_one(build: Any) -> None:
    """Means inside: 2.25 of the one, 0.75 of the other."""
    for t, one, other in ((0, 0, 0), (10, 5, 1), (20, 3, 1), (30, 1, 1)):
        for replica, value in (("a", one), ("b", other)):
            build.add(
                "samples", t_ns=1_700_000_000_000_000_000 + t * 10**9, signal="engine_running_count",
                kind="gauge", value=float(value), node="n", engine="vllm", replica=replica, gpu="", phase="",
                reason="", labels="{}",
            )  # fmt: skip
    build.counter("requests_finished_count", {0: 0, 30: 9}, replica="a")
    build.counter("requests_finished_count", {0: 0, 30: 3}, replica="b")
    facts = facts_of(build.database())
    assert facts["engine_replicas_count"] == 2
    assert facts["replica_load_ratio"] == pytest.approx(1.5)


def test_one_engine_alone_has_no_skew(build: Any) -> None:
    assert "replica_load_ratio" not in facts_of(by_hand(build).database())


@pytest.mark.parametrize(
    ("told", "inside", "dispersion", "expected"),
    [
        (None, 8.0, 0.01, "closed"),
        (None, 8.0, 1.0, "open"),
        ("open", 8.0, 0.01, "open"),
        ("closed", 8.0, 1.0, "closed"),
        (None, 1.0, 0.01, None),
        (None, 8.0, None, None),
    ],
)
def test_the_mode_of_the_load(
    told: str | None, inside: float, dispersion: float | None, expected: str | None
) -> None:
    """As the generator tells; else callers who wait hold their number, and few inside tell nothing."""
    facts = {"engine_inflight_mean_count": inside}
    if dispersion is not None:
        facts["engine_inflight_dispersion_ratio"] = dispersion
    assert load_mode(facts, told) == expected


def test_histograms_are_preferred_to_counters(build: Any) -> None:
    by_hand(build)
    build.histogram("request_prompt_tokens", {0: (0, 0), 20: (640, 8)})
    build.histogram("request_generation_tokens", {0: (0, 0), 20: (240, 8)})
    build.histogram("inference_s", {0: (0, 0), 20: (15, 8)})
    facts = facts_of(build.database())
    assert facts["engine_input_mean_tokens"] == 80
    assert facts["engine_output_mean_tokens"] == 30
    assert facts["engine_running_mean_count"] == 1.5


def test_without_state_gauges_no_rate_is_claimed(build: Any) -> None:
    build.counter("requests_finished_count", {0: 0, 10: 30})
    build.counter("generation_tokens", {0: 0, 10: 300})
    assert not [n for n in facts_of(build.database()) if n.startswith("engine_offered")]


def test_without_anything_finished_there_is_no_row(build: Any) -> None:
    build.gauge(0, engine_running_count=1, engine_waiting_count=0)
    build.gauge(9, engine_running_count=1, engine_waiting_count=0)
    con = build.database()
    assert con.execute("SELECT count(*) FROM engine_load").fetchone() == (0,)


def test_a_client_is_believed_first_and_engines_share_the_rest() -> None:
    engines = {
        "engine_offered_rate_per_s": 8.0, "engine_output_mean_tokens": 50.0, "engine_input_mean_tokens": 9.0,
        "engine_replicas_count": 4.0, "engine_duration_s": 30.0, "engine_running_mean_count": 3.0,
        "running_mean_count": 12.0,
    }  # fmt: skip
    seen = offered(engines)
    assert seen["offered_rate_per_s"] == 2.0
    assert (seen["output_mean_tokens"], seen["input_mean_tokens"]) == (50.0, 9.0)
    assert (seen["sending_s"], seen["running_mean_count"]) == (30.0, 3.0)
    client = {**engines, "offered_rate_per_s": 1.0, "output_mean_tokens": 7.0}
    assert offered(client) == client
    assert "offered_rate_per_s" not in offered({"engine_duration_s": 1.0})


def without_client(emulated: Callable[..., Any], **world: Any) -> Any:
    """The emulated run as only its engine saw it, with the counters of finished requests."""
    build = emulated(**world)
    ends = build.rows["requests"]
    times = sorted({r["t_ns"] for r in build.rows["samples"]})
    for t in times:
        done = [r for r in ends if r["end_ns"] <= t]
        common = {
            k: v
            for k, v in build.rows["samples"][0].items()
            if k not in ("signal", "value", "kind")
        }
        for signal, value in (
            ("requests_finished_count", len(done)),
            ("prompt_tokens", sum(r["input_tokens"] for r in done)),
            ("generation_tokens", sum(r["output_tokens"] for r in done)),
        ):
            build.add(
                "samples",
                **{**common, "t_ns": t},
                signal=signal,
                kind="counter",
                value=float(value),
            )
    del build.rows["requests"], build.rows["events"]
    return build


@pytest.mark.parametrize(
    ("rate", "policy"), [(2.6, {"max_num_seqs": 2}), (1.0, {"max_num_seqs": 64})]
)
def test_the_verdict_is_that_of_the_same_run_with_its_client(
    emulated: Callable[..., Any], rate: float, policy: dict[str, int]
) -> None:
    """What the client saw adds evidence; where neither can tell, neither is sure, and both name the same."""
    # on a processor nothing is known of what kernels and launches cost
    world = {"rate": rate, "policy": policy, "n": 120, "told": {"device": "cpu"}}
    build = emulated(**world)
    with_client = diagnose_open(build.run(), build.database()).verdict
    build = without_client(emulated, **world)
    alone = diagnose_open(build.run(), build.database()).verdict
    if policy["max_num_seqs"] == 2:
        assert alone.class_ == with_client.class_ == "scheduling"
    else:
        assert max(alone.confidence, with_client.confidence) < 0.7
        assert possible(alone) & possible(with_client)


def possible(verdict: Any) -> set[str]:
    """The classes that a verdict leaves open."""
    return {verdict.class_, verdict.runner_up, *verdict.candidates} - {None}


def test_the_diagnosis_says_what_it_assumed(emulated: Callable[..., Any]) -> None:
    build = without_client(emulated, rate=2.6, policy={"max_num_seqs": 2}, n=120)
    run = build.run()
    diagnosis = diagnose_open(run, build.database())
    assert diagnosis.verdict.class_ == "scheduling"
    assert diagnosis.target.text == "mean e2e"
    assert diagnosis.target.value is not None
    missing = "\n".join(diagnosis.coverage["missing"])
    assert "load mode: not recorded, taken for an open loop of Poisson arrivals" in missing
    assert "client latencies: no load generator ran" in missing


def test_too_few_finished_requests_withhold_the_verdict(emulated: Callable[..., Any]) -> None:
    build = without_client(emulated, rate=2.6, policy={"max_num_seqs": 2}, n=12)
    diagnosis = diagnose_open(build.run(), build.database())
    assert diagnosis.verdict.withheld
    assert "The engines finished 12 requests" in diagnosis.verdict.says
