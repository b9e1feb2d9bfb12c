"""Targets and guards as text and as files: what is read, what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from whybound.analyzers.target import default_target, parse_guard, parse_target
from whybound.analyzers.target_file import read_target
from whybound.errors import UsageError


@pytest.mark.parametrize(
    ("text", "metric", "statistic", "threshold", "unit"),
    [
        ("p95 itl < 30ms", "itl", "p95", 0.030, "s"),
        ("P95 ITL <= 30 MS", "itl", "p95", 0.030, "s"),
        ("p99.9 ttft ≤ 1.5s", "ttft", "p99.9", 1.5, "s"),
        ("median tpot < 900us", "tpot", "p50", 900e-6, "s"),
        ("p50 tpot < 900µs", "tpot", "p50", 900e-6, "s"),
        ("p7 e2e < 1s", "e2e", "p7", 1.0, "s"),
        ("e2e < 2s", "e2e", "mean", 2.0, "s"),
        ("mean e2e", "e2e", "mean", None, "s"),
        ("throughput > 1200 tok/s", "throughput", "rate", 1200.0, "tokens_per_s"),
        ("throughput >= 1.2e3", "throughput", "rate", 1200.0, "tokens_per_s"),
        ("request_rate > 5/s", "request_rate", "rate", 5.0, "requests_per_s"),
        ("goodput > 3 req/s", "goodput", "rate", 3.0, "requests_per_s"),
        ("error_rate < 1%", "error_rate", "rate", 0.01, "ratio"),
        ("rate error_rate < 0.01", "error_rate", "rate", 0.01, "ratio"),
        ("energy < 0.5 J/token", "energy", "rate", 0.5, "joules_per_token"),
        ("cost < $0.80/Mtok", "cost", "rate", 0.8, "usd_per_mtok"),
    ],
)
def test_what_is_read(
    text: str, metric: str, statistic: str, threshold: float | None, unit: str
) -> None:
    spec = parse_target(text)
    assert (spec.metric, spec.statistic, spec.unit) == (metric, statistic, unit)
    assert spec.threshold == pytest.approx(threshold)
    assert spec.text == text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "does not say what can be measured"),
        ("   ", "does not say what can be measured"),
        ("make it faster", "does not say what can be measured"),
        ("lower latency", "'latency' is nothing that can be measured, did you mean 'e2e'?"),
        ("faster", "'faster' is nothing that can be measured"),
        ("p95 tttft < 1s", "did you mean 'ttft'?"),
        ("p95", "'p95' is nothing that can be measured"),
        ("< 30ms", "does not say what can be measured"),
        ("p100 ttft < 1s", "unknown statistic 'p100': use mean, median or p1 to p99.9"),
        ("p0 ttft < 1s", "unknown statistic 'p0'"),
        ("p99.95 ttft < 1s", "unknown statistic 'p99.95'"),
        ("worst ttft < 1s", "unknown statistic 'worst'"),
        ("rate ttft < 1s", "ttft has no rate"),
        ("p95 throughput > 5 tok/s", "throughput is one number a run and has no p95"),
        ("p95 itl > 30ms", "it contradicts itself, itl is better when it is lower"),
        ("throughput < 100 tok/s", "throughput is better when it is higher"),
        ("error_rate ≥ 1%", "error_rate is better when it is lower"),
        ("p95 itl = 30ms", "= is no direction: write <"),
        ("p95 itl < 30", "30 what? a time needs a unit, 30ms or 30s"),
        ("p95 itl < 30%", "unit '%' does not fit itl, use ns, us, µs, ms, s"),
        ("throughput > 3 req/s", "unit 'req/s' does not fit throughput"),
        ("error_rate < 5ms", "unit 'ms' does not fit error_rate"),
        ("error_rate < 1", "a share is below 1: write 1%"),
        ("p95 itl < 0ms", "write a threshold above 0"),
        ("p95 itl < -3ms", "'-3ms' is no number with a unit"),
        ("p95 itl < 1.2.3ms", "'1.2.3ms' is no number with a unit"),
        ("p95 itl <", "'' is no number with a unit"),
        ("p95 itl < nan", "'nan' is no number"),
        ("p95 itl < 30ms < 40ms", "is no number with a unit"),
        ("p95 itl < 30ms @", "'' is no load"),
        ("p95 itl < 30ms @ concurency=3", "did you mean 'concurrency'?"),
        ("p95 itl < 30ms @ concurrency=2.5", "'2.5' is no load"),
        ("p95 itl < 30ms @ rate=4ms", "'4ms' is no load"),
        ("mmlu score > 0.7", "a quality score is kept, not aimed at"),
    ],
)
def test_what_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_target(text)
    assert says in str(error.value)
    assert 'e.g. "' in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.exit_code == 2


def test_a_target_holds_at_a_load() -> None:
    assert parse_target("p95 itl < 30ms @ concurrency=32").load == "concurrency=32"
    assert parse_target("p95 itl < 30ms @rate = 4/s").load == "rate=4"
    assert parse_target("p95 itl < 30ms").load is None


def test_quantile_and_tail() -> None:
    assert parse_target("p99.9 ttft").quantile == pytest.approx(0.999)
    assert parse_target("mean ttft").quantile is None
    assert parse_target("throughput").quantile is None
    tails = [parse_target(f"{s} ttft").is_tail for s in ("mean", "median", "p89.9", "p90", "p99")]
    assert tails == [False, False, False, True, True]


def test_guards() -> None:
    drop = parse_guard("mmlu drop < 0.5")
    assert (drop.metric, drop.threshold, drop.is_quality, drop.higher_is_better) == (
        "mmlu drop", 0.5, True, False,
    )  # fmt: skip
    assert parse_guard("gsm8k score >= 0.7").higher_is_better
    assert parse_guard("p95 ttft < 500ms").threshold == 0.5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("p95 ttft", "a guard needs a threshold"),
        ("p95 ttft < 500ms @ rate=4", "leave the @ part out"),
        ("mmlu drop > 0.5", "mmlu drop is better when it is lower"),
        ("mmlu score < 0.5", "mmlu score is better when it is higher"),
        ("mmlu drop < 3ms", "does not fit a quality score"),
        ("ttft drop < 5%", "'ttft' is no quality score"),
        ("keep it good", "does not say what can be measured"),
    ],
)
def test_guards_that_are_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=r"^--guard ") as error:
        parse_guard(text)
    assert says in str(error.value)


def test_the_default_follows_the_load() -> None:
    assert default_target("closed").metric == "throughput"
    assert default_target("open").text == "mean e2e"
    assert default_target(None).text == "mean e2e"


def test_texts_stay_as_they_are() -> None:
    assert read_target("p95 itl < 30ms", ["p95 ttft < 500ms"]) == (
        "p95 itl < 30ms",
        ("p95 ttft < 500ms",),
    )
    assert read_target(None) == (None, ())


def test_goodput_needs_a_limit() -> None:
    with pytest.raises(UsageError, match="goodput counts requests within limits"):
        read_target("goodput > 3/s", ["error_rate < 1%"])
    assert read_target("goodput > 3/s", ["p95 ttft < 1s"])[0] == "goodput > 3/s"


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "target.yaml"
    path.write_text(
        "target: p95 itl < 30ms\nguards:\n  - p95 ttft < 500ms\n  - mmlu drop < 0.5\nload: concurrency=32\n"
    )
    text, guards = read_target(str(path))
    assert text == "p95 itl < 30ms @ concurrency=32"
    assert guards == ("p95 ttft < 500ms", "mmlu drop < 0.5")
    assert read_target(str(path), ["p99 e2e < 9s"])[1] == ("p99 e2e < 9s",)


def test_a_file_with_its_load_as_a_map(tmp_path: Path) -> None:
    path = tmp_path / "target.yaml"
    path.write_text("target: mean e2e\nload: {rate: 4}\n")
    assert read_target(str(path)) == ("mean e2e @ rate=4", ())


def test_guards_of_the_run_are_kept_where_none_are_given(tmp_path: Path) -> None:
    path = tmp_path / "target.yaml"
    path.write_text("target: mean e2e\n")
    assert read_target(str(path), (), ["error_rate < 1%"])[1] == ("error_rate < 1%",)
    assert read_target("goodput > 1/s", (), ["p95 ttft < 1s"])[1] == ("p95 ttft < 1s",)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (
            "target: mean e2e\nguard: [mean ttft < 1s]\n",
            2,
            "unknown key 'guard', did you mean 'guards'?",
        ),
        ("guards: []\n", 1, "write `target: p95 itl < 30ms`"),
        ("target: 30\n", 1, "write `target: p95 itl < 30ms`"),
        ("- target\n", 1, "write `target: p95 itl < 30ms`"),
        ("target: mean e2e\nguards: mean ttft < 1s\n", 2, "guards is a list"),
        (
            "target: mean e2e\nguards:\n  - mean ttft < 1s\n  - be fast please\n",
            4,
            "does not say what can be measured",
        ),
        ("guards:\n  - mean ttft < 1s\ntarget: p95 itl > 3ms\n", 3, "it contradicts itself"),
        ("target: mean e2e @ rate=4\nload: rate=4\n", 2, "leave one out"),
        ("target: mean e2e\nload: rat=4\n", 2, "did you mean 'rate'?"),
        ("target: mean e2e\nload: [4]\n", 2, "write `load: concurrency=32`"),
        ("target: mean e2e\ntarget: mean ttft\n", 2, "given twice"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, line: int, says: str) -> None:
    path = tmp_path / "target.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        read_target(str(path))
    assert str(error.value).startswith(f"{path}:{line}:")
    assert says in str(error.value)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_target("nowhere/target.yaml")
