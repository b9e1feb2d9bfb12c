"""The first real bottleneck: one slot, arrivals above what one slot serves and below what sixteen do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.vllm


def _load(rate: float) -> tuple[str, ...]:
    """Twice what one slot serves, for about fifty requests."""
    return (
        "--load",
        f"poisson:rate={rate:.3g},in=64,out=32,seed=1",
        "-d",
        f"{min(60, max(12, 50 / rate)):.0f}s",
    )


def _show(name: str, d: dict[str, Any]) -> None:
    v = d["verdict"]
    print(f"{name}: {v['class']} / {v['sub_cause']}, confidence {v['confidence']}; {v['says']}")
    print({k: round(g["mid"], 2) for k, g in v["gain_vector"].items()})


def test_one_slot_is_named_a_batch_cap(
    profile_run: Callable[..., Any], one_at_a_time_per_s: float
) -> None:
    result = profile_run(_load(2 * one_at_a_time_per_s), ("--max-num-seqs", "1"))
    d = result.diagnosis
    _show("--max-num-seqs 1", d)
    assert (d["verdict"]["class"], d["verdict"]["sub_cause"]) == ("scheduling", "batch cap")
    assert {p["id"]: p["state"] for p in d["prechecks"]}["client_bound"] == "clear"
    assert "batch_cap" in {f["rule"] for f in d["findings"] if f["state"] == "fires"}
    best = d["levers"][0]
    assert best["id"] == "raise_max_num_seqs"
    assert best["gain"]["low"] > 1.3
    assert json.loads((result.run_dir / "diagnosis.json").read_text())["verdict"] == d["verdict"]
    page = (result.run_dir / "report.html").read_text()
    assert "batch cap" in page
    assert "<script" not in page


def test_many_slots_are_not(profile_run: Callable[..., Any], one_at_a_time_per_s: float) -> None:
    d = profile_run(_load(2 * one_at_a_time_per_s), ("--max-num-seqs", "64")).diagnosis
    _show("--max-num-seqs 64", d)
    assert d["verdict"]["class"] not in ("scheduling", "queueing", "network")


def test_the_gain_of_a_larger_cap_is_predicted_from_the_capped_run(
    profile_run: Callable[..., Any],
) -> None:
    """Sixteen callers, one slot: the estimate is made before the cap is raised to the value that it names."""
    load = ("--load", "closed:concurrency=16,in=64,out=32,n=64,seed=3")
    before = profile_run(load, ("--max-num-seqs", "1")).diagnosis
    lever = next(x for x in before["levers"] if x["id"] == "raise_max_num_seqs")
    gain, cap = lever["gain"], lever["value"]
    after = profile_run(load, ("--max-num-seqs", f"{cap:.0f}")).diagnosis
    measured = after["target"]["value"] / before["target"]["value"]
    print(
        f"cap 1 → {cap:.0f}, {before['target']['text']}: predicted ×{gain['mid']:.2f} ({gain['low']:.2f} to"
        f" {gain['high']:.2f}) by {gain['method']}, measured ×{measured:.2f}"
    )
    assert before["target"]["metric"] == "throughput"
    assert measured > 1.5
    assert 0.5 < gain["mid"] / measured < 2.0
