"""Is a target met? Values, intervals and reasons, from runs written by hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from whybound.analyzers import measures
from whybound.analyzers.diagnose import diagnose
from whybound.analyzers.goal import measured_target, other_load
from whybound.analyzers.signals import read_signals
from whybound.analyzers.tail import NO_SPANS, NO_TAIL, tail_phases, tail_requests
from whybound.analyzers.target import parse_guard, parse_target
from whybound.cli import run as cli
from whybound.reports.text import render
from whybound.rules.model import Signal, Target, to_json

POWER = {"node": "n", "engine": "", "replica": "", "phase": "", "reason": "", "labels": "{}"}


def judge(build: Any, text: str, *guards: str, **more: Any) -> tuple[Target, list[str]]:
    """As `measured_target`; the database of a build is opened once."""
    if not hasattr(build, "opened"):
        con = build.database()
        build.opened = con, {s.name: s for s in read_signals(con)}
    specs = [parse_guard(g) for g in guards]
    return measured_target(parse_target(text), specs, *build.opened, build.manifest, **more)


def steady(
    build: Any,
    n: int = 400,
    ttft: Callable[[int], float] = lambda i: 0.1,
    gap: float = 0.02,
    **more: Any,
) -> Any:
    """One request a second, each with five gaps."""
    for i in range(n):
        build.request(float(i), ttft(i), [gap] * 5, **more)
    build.event("load_mode", "open")
    return build


def noisy(i: int) -> float:
    return 0.1 + 0.02 * random.Random(i).random()


@pytest.fixture(scope="module")
def plain(module_build: Any) -> Any:
    """400 requests whose TTFT is 100 to 120 ms."""
    return steady(module_build, ttft=noisy)


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("mean ttft < 100ms", False),
        ("mean ttft < 120ms", True),
        ("mean ttft < 110.1ms", None),
        ("p95 ttft < 110ms", False),
        ("p95 ttft < 120ms", True),
        ("p95 ttft < 119ms", None),
        ("median e2e < 190ms", False),
        ("median e2e < 250ms", True),
        ("throughput > 5 tok/s", True),
        ("throughput > 7 tok/s", False),
        ("request_rate > 0.5/s", True),
        ("request_rate > 2/s", False),
    ],
)
def test_met_only_where_the_interval_shows_it(plain: Any, text: str, met: bool | None) -> None:
    target, missing = judge(plain, text)
    assert target.value is not None
    assert target.low is not None
    assert target.high is not None
    assert target.low <= target.value <= target.high
    assert target.met is met
    assert missing == []
    said = "cannot tell yet: the interval holds the threshold"
    assert target.why == (said if met is None else None)


def test_a_quantile_has_the_ranks_of_the_binomial(build: Any) -> None:
    order = list(range(1, 101))
    random.Random(1).shuffle(order)
    target, _ = judge(steady(build, 100, lambda i: order[i] / 100), "p50 ttft")
    assert (target.value, target.low, target.high) == (pytest.approx(0.505), 0.40, 0.61)
    assert target.met is None
    assert target.why is None


def test_too_few_samples_for_a_tail(build: Any) -> None:
    target, missing = judge(steady(build, 50, noisy), "p99 ttft < 1s")
    assert missing == ["p99 ttft: 50 samples give no two-sided 95 % interval (368 needed)"]
    assert target.value is not None
    assert (target.low, target.high, target.met) == (None, None, None)
    assert target.why == "cannot tell yet: 50 samples give no two-sided 95 % interval (368 needed)"


def test_few_samples_can_still_miss(build: Any) -> None:
    """No upper bound is needed to see that half of the requests are above the limit."""
    target, _ = judge(steady(build, 50, lambda i: 0.1 + i % 2), "p99 ttft < 200ms")
    assert (target.low, target.high) == (None, None)
    assert target.met is False


def test_too_few_gaps(build: Any) -> None:
    _, missing = judge(steady(build, 10), "p99 itl < 30ms")
    assert missing == ["p99 itl: 50 samples give no two-sided 95 % interval (368 needed)"]


def test_many_gaps_of_few_requests(build: Any) -> None:
    for i in range(10):
        build.request(float(i), 0.1, [0.02] * 100)
    target, missing = judge(build, "p99 itl < 30ms")
    assert target.met is None
    assert missing == ["p99 itl: gaps of 10 requests give no 95 % interval (20 needed)"]


def test_too_few_requests_for_a_mean(build: Any) -> None:
    target, missing = judge(steady(build, 12), "mean ttft < 1s")
    assert target.met is None
    assert missing == ["mean ttft: 12 requests give no 95 % interval (20 needed)"]


def paced(build: Any, n: int = 200, gaps: int = 40) -> Any:
    """Each request has its own pace between 10 and 30 ms."""
    for i in range(n):
        build.request(float(i), 0.1, [0.01 + 0.02 * random.Random(i).random()] * gaps)
    return build


def test_gaps_are_worth_their_requests(build: Any) -> None:
    target, missing = judge(paced(build), "p90 itl")
    pace = np.sort([0.01 + 0.02 * random.Random(i).random() for i in range(200)])
    assert missing == []
    assert target.value == pytest.approx(np.quantile(np.repeat(pace, 40), 0.9))
    assert target.low is not None
    assert target.high is not None
    # 200 independent values would give ranks 171 to 189, 8000 would give a fifteenth of that width
    assert pace[165] <= target.low <= pace[175]
    assert pace[183] <= target.high <= pace[194]


def test_a_long_run_is_thinned(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = judge(paced(build), "p90 itl")
    monkeypatch.setattr(measures, "MAX_GAPS", 2000)
    thinned, _ = judge(build, "p90 itl")
    assert None not in (whole.low, whole.high, thinned.low, thinned.high)
    assert thinned.value == whole.value
    assert thinned.high - thinned.low > 1.3 * (whole.high - whole.low)  # type: ignore[operator]


def test_goodput_counts_what_keeps_every_limit(build: Any) -> None:
    for i in range(100):
        slow, stalled = i % 4 == 0, i % 5 == 0
        build.request(float(i), 0.9 if slow else 0.1, [0.02] * 9 + [0.3 if stalled else 0.02])
    target, _ = judge(build, "goodput > 0.1/s", "p95 ttft < 500ms", "p95 itl < 100ms")
    good = sum(1 for i in range(100) if i % 4 and i % 5)
    duration = 99 + 0.1 + 0.2
    assert target.value == pytest.approx(good / duration, rel=1e-6)
    assert target.low is not None
    assert target.low > 0.1
    # a quarter of the requests is above the guard's own limit, so the guard is broken
    assert target.met is False
    assert target.guards[0].met is False


def test_goodput_alone_is_not_measured(build: Any) -> None:
    target, missing = judge(steady(build), "goodput > 0.1/s", "error_rate < 5%")
    assert target.value is None
    assert missing == [
        "goodput: cannot be measured with this load: goodput counts requests within limits, and no guard is one"
    ]


def test_error_rate(build: Any) -> None:
    for i in range(400):
        build.request(float(i), 0.1, [0.02], status="error" if i % 40 == 20 else "ok")
    target, _ = judge(build, "error_rate < 10%")
    assert target.value == pytest.approx(0.025)
    assert target.low == pytest.approx(0.0136, abs=1e-3)
    assert target.high == pytest.approx(0.0455, abs=1e-3)
    assert target.met is True
    assert judge(build, "error_rate < 3%")[0].met is None
    assert judge(build, "error_rate < 0.5%")[0].met is False


def test_energy_is_power_over_output_tokens(build: Any) -> None:
    steady(build, 100)
    for t in range(-1, 103):
        for gpu in ("0", "1"):
            build.add(
                "samples", t_ns=1_700_000_000_000_000_000 + t * 10**9, signal="gpu_power_w", kind="gauge",
                unit="w", value=300.0, gpu=gpu, **POWER,
            )  # fmt: skip
    target, missing = judge(build, "energy < 200 J/token")
    assert missing == []
    assert target.value == pytest.approx(600 * 99.2 / 600)
    assert target.met is True


def test_energy_of_half_a_run_is_none(build: Any) -> None:
    steady(build, 100)
    for t in range(50):
        build.add(
            "samples", t_ns=1_700_000_000_000_000_000 + t * 10**9, signal="gpu_power_w", kind="gauge",
            unit="w", value=300.0, gpu="0", **POWER,
        )  # fmt: skip
    target, missing = judge(build, "energy < 200 J/token")
    assert target.value is None
    assert "sampled for 49% of the run" in missing[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("cost < $1/Mtok", "the price of the hardware is not known"),
        ("energy < 1 J/token", "no GPU power was sampled"),
    ],
)
def test_what_cannot_be_measured(plain: Any, text: str, why: str) -> None:
    target, missing = judge(plain, text)
    assert (target.value, target.met) == (None, None)
    assert target.why is not None
    assert target.why.startswith("cannot be measured with this load: ")
    assert why in target.why
    assert why in missing[0]


def test_an_empty_run_meets_nothing(build: Any) -> None:
    limits = ("p95 ttft < 1s", "mean e2e < 1s", "p99 itl < 1s", "error_rate < 5%")
    for text in (*limits, "throughput > 1", "request_rate > 1", "goodput > 1", "energy < 9"):
        target, missing = judge(build, text, *limits)
        assert (target.value, target.met) == (None, None)
        assert [g.met for g in target.guards] == [None] * 4
        assert len(missing) == 5


def test_without_a_load_generator_the_engine_s_own_means_count(build: Any) -> None:
    rng = random.Random(2)
    sums = {0.0: (0.0, 0.0)}
    for t in range(1, 101):
        total, count = sums[t - 1.0]
        sums[float(t)] = (total + sum(rng.uniform(0.1, 0.3) for _ in range(4)), count + 4)
    build.histogram("ttft_s", sums)
    build.counter("generation_tokens", {float(t): 50.0 * t for t in range(101)})
    for t in range(101):
        build.gauge(float(t), engine_running_count=1)
    target, missing = judge(build, "mean ttft < 250ms")
    assert missing == []
    assert target.value == pytest.approx(0.2, abs=0.01)
    assert target.met is True
    assert judge(build, "throughput > 49 tok/s")[0].met is True
    assert judge(build, "p95 ttft < 1s")[0].value is None


def test_guards_decide_with_the_target(plain: Any) -> None:
    build = plain
    met, _ = judge(build, "p95 ttft < 1s", "mean e2e < 1s", "error_rate < 5%")
    assert (met.met, met.why) == (True, None)
    assert [g.met for g in met.guards] == [True, True]
    broken, _ = judge(build, "p95 ttft < 1s", "mmlu drop < 0.5", "mean e2e < 50ms")
    assert broken.met is False
    assert broken.why == "met, but the guard mean e2e < 50ms is broken"
    assert broken.guards[1].value == pytest.approx(0.21, abs=0.005)
    unknown, missing = judge(build, "p95 ttft < 1s", "mmlu drop < 0.5")
    assert unknown.met is None
    assert unknown.guards[0].met is None
    assert unknown.guards[0].why == "not measured"
    assert "mmlu drop < 0.5 is not shown to hold: not measured" in str(unknown.why)
    assert missing == []
    missed, _ = judge(build, "p95 ttft < 50ms", "mmlu drop < 0.5")
    assert missed.met is False


def test_a_latency_of_a_run_that_was_cut_off_is_a_lower_bound(build: Any) -> None:
    steady(build, ttft=noisy)
    for i in range(40):
        build.request(400.0 + i, status="unfinished")
    target, _ = judge(build, "p95 ttft < 1s")
    assert target.met is None
    assert "9% of the requests did not end" in str(target.why)
    assert judge(build, "p95 ttft < 50ms")[0].met is False


def test_an_unsound_measurement_shows_nothing(plain: Any) -> None:
    for text in ("p95 ttft < 1s", "p95 ttft < 1ms"):
        target, _ = judge(plain, text, "mean e2e < 1s", unsound="the client was late")
        assert target.met is None
        assert target.why == "the measurement is not sound: the client was late"
        assert target.guards[0].met is None


CLOSED = {"load_spec": {"process": "closed", "concurrency_count": 8}}
OPEN = {"load_spec": {"process": "poisson", "rate_per_s": 4.0}}
FILE = {"load_spec": {"process": "file", "rate_per_s": None}}


@pytest.mark.parametrize(
    ("stated", "manifest", "other"),
    [
        ("concurrency=8", CLOSED, None),
        ("concurrency=32", CLOSED, "stated at concurrency=32, measured at concurrency=8"),
        ("concurrency=8", OPEN, "stated at concurrency=8, measured at rate=4"),
        ("rate=4", OPEN, None),
        ("rate=4.1", OPEN, None),
        ("rate=5", OPEN, "stated at rate=5, measured at rate=4"),
        ("rate=4", CLOSED, "stated at rate=4, measured at concurrency=8"),
        ("rate=4", FILE, "stated at rate=4, measured at a load of the kind file"),
        ("rate=4", {}, "the load of this run is not known"),
        ("rate=4", {"load_spec": "poisson"}, "the load of this run is not known"),
    ],
)
def test_the_load_it_is_stated_at(stated: str, manifest: dict[str, Any], other: str | None) -> None:
    said = other_load(stated, manifest, {})
    assert said is None if other is None else other in str(said)


def test_a_file_of_arrivals_has_the_rate_that_was_offered() -> None:
    offered = {"offered_rate_per_s": Signal(name="offered_rate_per_s", value=3.9)}
    assert other_load("rate=4", FILE, offered) is None
    assert other_load("rate=8", FILE, offered) is not None


def test_at_another_load_nothing_can_be_told(build: Any) -> None:
    build.manifest = CLOSED
    steady(build)
    assert judge(build, "mean ttft < 1s @ concurrency=8", "mean e2e < 1s")[0].met is True
    target, _ = judge(build, "mean ttft < 1s @ concurrency=32", "mean e2e < 1s")
    assert target.value == pytest.approx(0.1)
    assert (target.met, target.guards[0].met) == (None, None)
    assert str(target.why).startswith("stated at concurrency=32")


def test_the_requests_of_the_tail(build: Any) -> None:
    for i in range(100):
        build.request(float(i), 0.1 + i / 1000, [0.02, 0.5 if i == 7 else 0.02])
    con = build.database()
    assert tail_requests(con, parse_target("p95 ttft")) == ["q99", "q98", "q97", "q96", "q95"]
    assert tail_requests(con, parse_target("p99 e2e")) == ["q7"]
    assert tail_requests(con, parse_target("p90 itl")) == ["q7"]
    assert tail_requests(con, parse_target("mean ttft")) == []
    assert tail_requests(con, parse_target("throughput")) == []


def spans(build: Any, *, without: str = "") -> None:
    for i in range(100):
        wait = 2.0 if i >= 90 else 0.0
        build.request(float(i), 0.2 + wait, [0.02] * 5, send_lag_s=0.01)
        row = {"queue_wait_s": wait, "prefill_s": 0.1, "decode_s": 0.1}
        row.pop(without, None)
        build.add(
            "requests", request_id=f"q{2 * i}", source="span", arrival_ns=1, status="ok", node="n",
            server_ttft_s=0.15 + wait, server_e2e_s=0.25 + wait, engine="vllm", **row,
        )  # fmt: skip


def test_the_phases_of_the_tail(build: Any) -> None:
    spans(build)
    con = build.database()
    found = tail_phases(con, parse_target("p95 ttft < 1s"))
    times = {r["phase"]: r["seconds"] for r in found["phases_tail"]}
    assert times == pytest.approx(
        {"client_lag": 0.01, "network": 0.04, "front_end": 0.05, "wait": 2.0, "prefill": 0.1}
    )
    assert found["phases_tail_why"] is None
    assert found["phases_tail"][0]["source"].startswith("request_phases, 10 of the 10 requests")
    whole = tail_phases(con, parse_target("p95 e2e"))["phases_tail"]
    assert sum(r["seconds"] for r in whole) == pytest.approx(2.3)
    assert tail_phases(con, parse_target("mean e2e")) == {
        "phases_tail": None, "phases_tail_why": NO_TAIL,
    }  # fmt: skip


def test_a_phase_that_a_span_lacks_is_unknown(build: Any) -> None:
    spans(build, without="prefill_s")
    found = tail_phases(build.database(), parse_target("p95 e2e"))["phases_tail"]
    times = {r["phase"]: r["seconds"] for r in found}
    assert "prefill" not in times
    assert times["unknown"] == pytest.approx(0.15)


def test_without_spans_the_tail_says_what_to_add(plain: Any) -> None:
    judge(plain, "p95 ttft")
    found = tail_phases(plain.opened[0], parse_target("p95 ttft"))
    assert found == {"phases_tail": None, "phases_tail_why": NO_SPANS}


@pytest.fixture
def served(emulated: Callable[..., Any]) -> Any:
    """A run with one request at a time in the batch, so that levers apply."""
    return emulated(rate=1.2, n=60, policy={"max_num_seqs": 1})


def test_a_run_keeps_its_target_and_guards(served: Any) -> None:
    served.manifest = {"target": "p95 e2e < 30ms", "guards": ["error_rate < 5%", "mmlu drop < 1"]}
    path = served.run().path
    own = diagnose(path)
    assert own.target.text == "p95 e2e < 30ms"
    assert own.target.met is False
    assert [g.text for g in own.target.guards] == ["error_rate < 5%", "mmlu drop < 1"]
    assert own.levers
    other = diagnose(path, "mean ttft < 9999s", ["mean e2e < 9999s"])
    assert other.target.text == "mean ttft < 9999s"
    assert [g.text for g in other.target.guards] == ["mean e2e < 9999s"]
    assert other.target.met is True
    assert other.levers == []
    assert "stop here" in other.verdict.says
    broken = diagnose(path, "mean ttft < 9999s", ["p95 e2e < 1ms"])
    assert broken.target.met is False
    assert broken.levers
    assert "stop here" not in broken.verdict.says


def test_a_manifest_with_nonsense_is_one_line(
    served: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    served.manifest = {"target": {"metric": 3}}
    assert cli(["diagnose", str(served.run().path)]) == 1
    assert "the target or guards in its manifest are no text" in capsys.readouterr().err


def test_guards_on_the_command_line(served: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(served.run().path)
    guards = ["--guard", "p95 ttft < 1ms", "--guard", "mmlu drop < 0.5"]
    assert cli(["diagnose", path, "--target", "mean e2e < 9999s", *guards]) == 0
    out = capsys.readouterr().out
    assert "Guard p95 ttft < 1ms: " in out
    assert ", broken" in out
    assert "Guard mmlu drop < 0.5: not measured" in out
    assert "but the guard p95 ttft < 1ms is broken" in " ".join(out.split())
    assert cli(["diagnose", path, "--guard", "p95 ttft"]) == 2
    assert "a guard needs a threshold" in capsys.readouterr().err


def test_several_guards_in_the_environment(
    served: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROFILE_DIAGNOSE_GUARDS", "p95 ttft < 1ms;error_rate < 5%")
    assert cli(["diagnose", str(served.run().path), "--no-save"]) == 0
    out = capsys.readouterr().out
    assert "Guard p95 ttft < 1ms: " in out
    assert "Guard error_rate < 5%: " in out


def test_a_missing_interval_is_in_the_coverage(build: Any) -> None:
    path = steady(build, 50, noisy).run().path
    diagnosis = diagnose(path, "p99 ttft < 1s")
    assert (
        "p99 ttft: 50 samples give no two-sided 95 % interval (368 needed)"
        in diagnosis.coverage["missing"]
    )
    assert "cannot tell yet: 50 samples give" in render(diagnosis, width=200, color=False)
    assert to_json(diagnosis)
