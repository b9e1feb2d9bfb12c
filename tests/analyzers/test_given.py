"""Signals that were given: beside measured ones, never over them, and nothing is hidden."""

from __future__ import annotations

import re

import pytest

from whybound.analyzers.database import open_database, view_sources
from whybound.analyzers.diagnose import diagnose
from whybound.analyzers.given import (
    DERIVED,
    described,
    disagreements,
    given_signals,
    known_signals,
    with_derived,
    with_given,
)
from whybound.analyzers.signals import read_signals, signal_views
from whybound.collector.importers.facts_file import fact_row
from whybound.collector.store import RunWriter, create_run, open_run
from whybound.rules.load import load_prechecks, load_rules
from whybound.rules.model import MODELLED, Signal
from whybound.rules.observations import load_given


def run_with(tmp_path, *facts, settings=()):
    create_run(tmp_path / "R", force=True)
    with RunWriter(tmp_path / "R", "n") as writer:
        writer.append("facts", facts)
        writer.append(
            "settings",
            [
                {"t_ns": 1, "engine": "vllm", "key": k, "value": v, "origin": "effective"}
                for k, v in settings
            ],
        )
    return tmp_path / "R"


def read(path):
    con = open_database(open_run(path))
    return {(s.name, s.scope): s for s in read_signals(con)}, con


def hand(name, written, **more):
    return fact_row(name, written, **{"t_ns": 100, **more})


def tool(name, value, t_ns=50, **more):
    return {
        "signal": name,
        "value": value,
        "n": 9,
        "source": "vllm-bench",
        "file": "b.json",
        "t_ns": t_ns,
        **more,
    }


def test_given_signals_arrive_with_their_bounds(tmp_path):
    found, _ = read(
        run_with(
            tmp_path,
            hand("gpu_sm_ratio", "60-75 %"),
            hand("gpu_dram_ratio", "not high"),
            hand("load_mode", "open"),
        )
    )
    sm = found["gpu_sm_ratio", ""]
    assert (sm.value, sm.low, sm.high, sm.unit, sm.n, sm.level, sm.source) == (
        0.675,
        0.6,
        0.75,
        "ratio",
        0,
        3,
        "facts by hand",
    )
    dram = found["gpu_dram_ratio", ""]
    assert (dram.value, dram.low, dram.high) == (None, 0.0, 0.7)
    assert found["load_mode", ""].text == "open"


def test_what_was_measured_counts_before_what_was_given_and_that_is_said(tmp_path):
    path = run_with(
        tmp_path,
        hand("max_num_seqs_count", "256"),
        hand("token_budget_tokens", "2048"),
        settings=[("max_num_seqs", "64"), ("max_num_batched_tokens", "2050")],
    )
    found, con = read(path)
    assert (found["max_num_seqs_count", ""].value, found["max_num_seqs_count", ""].source) == (
        64,
        "engine_limits",
    )
    said = disagreements(found.values(), con)
    assert said == ["max_num_seqs_count was given by hand as 256; 64 counts, from engine_limits"]
    assert said[0] in diagnose(path).coverage["missing"]


def test_a_tools_figure_counts_before_a_typed_one_and_the_later_of_two(tmp_path):
    path = run_with(
        tmp_path,
        hand("client_e2e_mean_s", "9 s", t_ns=900),
        tool("client_e2e_mean_s", 2.0, t_ns=50),
        tool("client_e2e_mean_s", 3.0, t_ns=60),
        hand("kv_used_max_ratio", "50 %", t_ns=1),
        hand("kv_used_max_ratio", "70 %", t_ns=2),
    )
    found, con = read(path)
    assert found["client_e2e_mean_s", ""].value == 3.0
    assert found["client_e2e_mean_s", ""].n == 9
    assert found["kv_used_max_ratio", ""].value == pytest.approx(0.7)
    said = disagreements(found.values(), con)
    assert len(said) == 3
    assert "given in b.json as 2; 3 counts" in " ".join(said)


def test_what_holds_after_a_change_is_no_fact_of_the_run(tmp_path):
    found, con = read(
        run_with(
            tmp_path,
            hand("client_itl_p95_s", "40 ms", when="before"),
            hand("client_itl_p95_s", "24 ms", when="after"),
        )
    )
    assert found["client_itl_p95_s", ""].value == pytest.approx(0.04)
    assert disagreements(found.values(), con) == []


def test_unknown_names_give_no_signal_and_are_said(tmp_path):
    found, con = read(run_with(tmp_path, tool("gpu_smartness_ratio", 0.5)))
    assert found == {}
    assert disagreements([], con) == [
        "gpu_smartness_ratio was given in b.json, and is no signal that is known"
    ]


def test_numbers_that_are_none_give_no_signal(tmp_path):
    found, _ = read(
        run_with(
            tmp_path,
            tool("gpu_sm_ratio", float("nan")),
            tool("gpu_dram_ratio", 0.5, low=float("inf"), high=None),
        )
    )
    assert ("gpu_sm_ratio", "") not in found
    assert found["gpu_dram_ratio", ""].low is None


def test_a_scoped_fact_does_not_stand_for_the_run(tmp_path):
    path = run_with(
        tmp_path,
        hand("kv_used_max_ratio", "97 %", scope="replica=a"),
        hand("kv_used_max_ratio", "50 %"),
    )
    found, _ = read(path)
    assert found["kv_used_max_ratio", "replica=a"].value == pytest.approx(0.97)
    assert found["kv_used_max_ratio", ""].value == 0.5
    diagnose(path)


def test_of_a_name_that_is_given_and_derived_the_derived_one_counts():
    given = Signal(name="rho_uncapped_ratio", value=2.0, source="facts")
    derived = Signal(name="rho_uncapped_ratio", value=0.5, source="fit")
    other = Signal(name="gpu_sm_ratio", value=0.6, source="facts")
    assert with_derived([given, other], [derived]) == [other, derived]


def test_an_empty_run_has_no_given_signals(tmp_path):
    _, con = read(run_with(tmp_path))
    assert given_signals(con) == []
    assert with_given([], con) == []
    assert disagreements([], con) == []


def test_known_signals_are_those_of_the_views_and_what_rules_ask_for(tmp_path):
    _, con = read(run_with(tmp_path))
    known = known_signals()
    for view in signal_views():
        columns = {d[0] for d in con.execute(f"SELECT * FROM {view}").description}
        assert {c for c in columns if c != "n" and not c.startswith(("low_", "high_"))} <= set(
            known
        ), view
    assert "shared_prefix_ratio" in known


def test_a_diagnosis_of_facts_alone_names_its_next_measurement(tmp_path):
    diagnosis = diagnose(run_with(tmp_path, hand("gpu_sm_ratio", "60-75 %")))
    assert diagnosis.verdict.class_ is not None or diagnosis.verdict.abstained
    assert diagnosis.next_measurement.command


def test_a_signal_that_a_view_measures_is_not_listed_as_told():
    columns = {
        name for sql in view_sources().values() for name in re.findall(r"COLUMN \w+\.(\w+) IS", sql)
    }
    assert not columns & set(load_given())


def test_every_signal_that_a_rule_needs_has_a_meaning():
    rules = load_rules() | load_prechecks()
    needed = {name for rule in rules.values() for name in rule.needs}
    assert needed <= {*described(), *DERIVED, *MODELLED}
