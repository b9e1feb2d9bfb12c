"""Facts typed by hand: what is understood, and what is said of the rest."""

from __future__ import annotations

import pytest
from import_files import imported

FACTS = """\
facts:
  gpu_sm_ratio: 60-75 %
  gpu_dram_ratio: not high
  client_itl_p95_s: {before: 40 ms, after: 24 ms}
  kv_used_max_ratio: {value: 97 %, scope: "replica=a, gpu=0", n: 12}
  max_num_seqs_count: 64
  offered_rate_per_s: [2, 3]
  load_mode: open
  graphs_enabled: yes
settings:
  max-num-seqs: 64
  enforce_eager: true
  api_key: s3cret
engine: vllm
"""


def put(path, text):
    path.write_text(text)
    return path


def facts_of(tmp_path, text, **options):
    outcomes, rows = imported(tmp_path, put(tmp_path / "my facts.yaml", text), **options)
    return outcomes[0], {(r["signal"], r["when"]): r for r in rows("facts")}, rows


def test_facts_and_settings(tmp_path):
    outcome, found, rows = facts_of(tmp_path, FACTS)
    assert (outcome.kind, outcome.refused) == ("facts", None)
    sm = found["gpu_sm_ratio", ""]
    assert (sm["low"], sm["high"], sm["n"], sm["source"], sm["file"]) == (
        0.6,
        0.75,
        0,
        "hand",
        "my facts.yaml",
    )
    assert (found["gpu_dram_ratio", ""]["value"], found["gpu_dram_ratio", ""]["high"]) == (
        None,
        0.7,
    )
    assert found["client_itl_p95_s", "before"]["value"] == pytest.approx(0.04)
    assert found["client_itl_p95_s", "after"]["value"] == pytest.approx(0.024)
    assert found["kv_used_max_ratio", ""]["scope"] == "gpu=0,replica=a"
    assert found["kv_used_max_ratio", ""]["n"] == 12
    assert found["offered_rate_per_s", ""]["high"] == 3
    assert (found["load_mode", ""]["text"], found["graphs_enabled", ""]["text"]) == ("open", "yes")
    settings = {r["key"]: r for r in rows("settings")}
    assert settings["max_num_seqs"]["value"] == "64"
    assert settings["enforce_eager"]["value"] == "true"
    assert settings["api_key"]["value"] == "<redacted>"
    assert {r["engine"] for r in settings.values()} == {"vllm"}


def test_a_bare_mapping_of_signals_will_do(tmp_path):
    outcome, found, _ = facts_of(
        tmp_path, "gpu_sm_ratio: 60-75 %\nclient_itl_p95_s: 30 ms\n", when="after"
    )
    assert outcome.kind == "facts"
    assert set(found) == {("gpu_sm_ratio", "after"), ("client_itl_p95_s", "after")}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("facts:\n  gpu_sm_rati: 1 %\n  gpu_dram_ratio: 5 %\n", "did you mean gpu_sm_ratio"),
        ("facts:\n  gpu_sm_ratio: {vlaue: 1}\n  gpu_dram_ratio: 5 %\n", "unknown key 'vlaue'"),
        ("facts:\n  gpu_sm_ratio: {}\n  gpu_dram_ratio: 5 %\n", "no value, before or after"),
        ("facts:\n  gpu_sm_ratio: [1, 2, 3]\n  gpu_dram_ratio: 5 %\n", "is no value"),
        ("facts:\n  gpu_sm_ratio: {value: 1 %, scope: a}\n  gpu_dram_ratio: 5 %\n", "no key=value"),
        ("facts:\n  gpu_sm_ratio: {value: 1 %, n: -1}\n  gpu_dram_ratio: 5 %\n", "n is a count"),
        (
            "facts:\n  gpu_sm_ratio: a\n  kv_used_max_ratio: b\n  gpu_dram_ratio: 5 %\n",
            "and 1 more",
        ),
    ],
)
def test_what_is_wrong_is_said_and_the_rest_is_kept(tmp_path, text, said):
    known = ["gpu_sm_ratio", "gpu_dram_ratio", "kv_used_max_ratio"]
    outcome, found, _ = facts_of(tmp_path, text, signals=known)
    assert said in outcome.refused
    assert set(found) == {("gpu_dram_ratio", "")}


@pytest.mark.parametrize(
    "text", ["facts: [1]\n", "facts: 3\n", "facts:\n  a_s: 1 s\n---\nfacts:\n  a_s: 1 s\n"]
)
def test_what_is_no_mapping_is_refused(tmp_path, text):
    outcome, _, _ = facts_of(tmp_path, text)
    assert "mapping" in outcome.refused


def test_facts_on_the_command_line_go_in_beside(tmp_path):
    from whybound.collector.importers.facts_file import fact_row

    rows = [fact_row("gpu_sm_ratio", "60 %", t_ns=5)]
    outcomes, read = imported(tmp_path, facts=rows)
    assert outcomes == []
    assert [(r["signal"], r["value"], r["t_ns"]) for r in read("facts")] == [
        ("gpu_sm_ratio", 0.6, 5)
    ]
