"""The benchmark from end to end on a few labelled scenarios, one of each class: the whole of it runs at night."""

import json
import subprocess
import sys

import pytest

IDS = (
    "weights-8b-l4-few-1", "rag-8b-a100-light-1", "eager-1b-h100-alone-1", "cap-8b-h100-ttft-2",
    "overload-8b-h100-1", "pcie-70b-a100-tp8-1", "demand-8b-h100-1", "slow-hop-1b-l40s-1",
)  # fmt: skip


@pytest.fixture(scope="module")
def report():
    only = [arg for name in IDS for arg in ("--only", name)]
    command = [sys.executable, "-m", "whybound.fixtures.benchmark", "--json", "--cases", *only]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_every_class_is_named_on_its_plainest_scenario(report):
    said = {case["id"]: (case["label"], case["verdict"]) for case in report["cases"]}
    assert set(said) == set(IDS)
    assert all(label == verdict for label, verdict in said.values()), said


def test_the_report_has_the_figures_that_are_published(report):
    keys = (
        "top1", "top2", "macro_f1", "ece", "abstained", "regret_mean", "harm_rate", "gain_mape", "coverage80",
        "ab_false_alarms", "confusion", "strawmen",
    )  # fmt: skip
    assert set(keys) <= set(report)
    assert set(keys) <= set(report["development"])
    assert {"thresholds", "share_amdahl"} <= set(report["strawmen"])


def test_levers_are_predicted_within_a_factor_and_do_no_harm(report):
    assert report["harm_rate"] <= 0.02
    assert report["development"]["harm_rate"] <= 0.02
    assert report["development"]["gain_mape"] < 0.6
