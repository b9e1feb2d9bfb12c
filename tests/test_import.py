"""`profile import`, and `profile diagnose` of loose files and of facts: what is shown, kept and refused."""
# ruff: noqa: E501 — cases read best one a line

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from whybound.cli import cli, run
from whybound.collector.store import open_run

LOG = "INFO 11-29 08:00:{s:02} [loggers.py:123] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 99.0 tokens/s, Running: 64 reqs, Waiting: 3 reqs, GPU KV cache usage: 6.7%, Prefix cache hit rate: 17.1%\n"


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "server.log"
    path.write_text("".join(LOG.format(s=i) for i in range(30)))
    return path


def profile(capsys, *args):
    code = run([str(a) for a in args])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_import_tells_each_file_on_stderr_and_the_next_command(capsys, tmp_path, log):
    (tmp_path / "x.txt").write_text("nothing")
    code, out, err = profile(capsys, "import", log, tmp_path / "x.txt", "-o", tmp_path / "R 1")
    assert (code, out) == (0, "")
    lines = err.splitlines()
    assert lines[0].startswith(f"{log}: vllm-log; 180 samples")
    assert "x.txt: not recognised; left out: of no known kind (text)" in lines[1]
    assert lines[-1] == f"next: profile diagnose '{tmp_path}/R 1'"
    assert open_run(tmp_path / "R 1").manifest["imported"][0]["kind"] == "vllm-log"


def test_import_as_json(capsys, tmp_path, log):
    code, out, _ = profile(capsys, "import", log, "-o", tmp_path / "R", "--json")
    (outcome,) = json.loads(out)
    assert (code, outcome["kind"], outcome["rows"]["samples"]) == (0, "vllm-log", 180)


def test_nothing_imported_fails_and_leaves_nothing(capsys, tmp_path):
    (tmp_path / "x").write_text("nothing")
    code, _, err = profile(capsys, "import", tmp_path / "x", "-o", tmp_path / "R")
    assert code == 1
    assert err.splitlines()[-1] == "profile: nothing was imported; the lines above say why"
    assert not (tmp_path / "R").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["import", "-o", "R"], "no files"), (["import", "x", "-o", "R", "--kind", "vlm-log"], "did you mean vllm-log"),
        (["diagnose"], "nothing to diagnose"), (["diagnose", "--fact", "gpu_sm_ratio"], "is not NAME=VALUE"),
        (["diagnose", "--fact", "gpu_sm=1"], "did you mean gpu_sm_ratio"), (["diagnose", "--fact", "gpu_sm_ratio=60"], "write 60 %"),
        (["import", "x", "-o", "R", "--when", "then"], "before"),
    ],
)  # fmt: skip
def test_usage(capsys, tmp_path, monkeypatch, args, said):
    monkeypatch.chdir(tmp_path)
    code, out, err = profile(capsys, *args)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "R").exists()


def test_diagnose_takes_loose_files_and_leaves_nothing(capsys, tmp_path, monkeypatch, log):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    code, out, err = profile(capsys, "diagnose", log, "--json")
    assert code == 0
    diagnosis = json.loads(out)
    assert diagnosis["run"]["path"] == str(log)
    assert diagnosis["run"]["engine"] == "vllm"
    assert err.startswith(f"{log}: vllm-log; 180 samples")
    assert list((tmp_path / "tmp").iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir()) == ["server.log", "tmp"]


def test_diagnose_takes_a_folder_of_files(capsys, tmp_path, log):
    code, out, _ = profile(capsys, "diagnose", tmp_path)
    assert code == 0
    assert str(tmp_path) in out


def test_facts_alone_give_a_verdict_or_an_abstention_with_its_next_measurement(capsys):
    code, out, err = profile(
        capsys, "diagnose", "--fact", "gpu_sm_ratio=0.6..0.75", "--fact", "gpu_dram_ratio=not high"
    )
    assert (code, err) == (0, "")
    assert "facts by hand" in out
    assert "Next measurement" in out


def test_facts_alone_take_less_than_a_second_of_processor_time_after_start_up(capsys):
    profile(capsys, "diagnose", "--fact", "gpu_sm_ratio=0.6..0.75")
    began = time.process_time()
    profile(capsys, "diagnose", "--fact", "gpu_sm_ratio=0.6..0.75")
    assert time.process_time() - began < 1.0


SLOW = """
facts: {output_tokens_per_s: 43, inflight_mean_count: 32, input_mean_tokens: 1000, output_mean_tokens: 256}
settings: {max_num_seqs: 2, model: m}
engine: vllm
"""


def test_a_variant_beside_tells_what_was_in_the_way(capsys, tmp_path):
    (tmp_path / "slow.yaml").write_text(SLOW)
    (tmp_path / "fast.yaml").write_text(SLOW.replace("43", "400").replace("seqs: 2", "seqs: 64"))
    code, out, _ = profile(
        capsys, "diagnose", tmp_path / "slow.yaml", "--beside", tmp_path / "fast.yaml", "--json"
    )
    assert code == 0
    diagnosis = json.loads(out)
    assert (diagnosis["verdict"]["class"], diagnosis["verdict"]["sub_cause"]) == (
        "scheduling",
        "batch cap",
    )
    assert diagnosis["verdict"]["confidence"] >= 0.7
    assert "max_num_seqs 2 → 64" in diagnosis["verdict"]["says"]


def test_another_model_beside_is_no_variant(capsys, tmp_path):
    (tmp_path / "slow.yaml").write_text(SLOW)
    (tmp_path / "other.yaml").write_text(SLOW.replace("43", "400").replace("model: m", "model: n"))
    code, out, _ = profile(
        capsys, "diagnose", tmp_path / "slow.yaml", "--beside", tmp_path / "other.yaml", "--json"
    )
    assert code == 0
    says = json.loads(out)["verdict"]["says"]
    assert "The two variants cannot be compared: model is m here and n there." in says


def test_facts_beside_a_run_leave_it_as_it_is(capsys, tmp_path, log):
    profile(capsys, "import", log, "-o", tmp_path / "R")
    before = {p: p.read_bytes() for p in sorted((tmp_path / "R").rglob("*")) if p.is_file()}
    facts = tmp_path / "facts.yaml"
    facts.write_text("facts:\n  gpu_sm_ratio: 60-75 %\n")
    code, out, _ = profile(
        capsys,
        "diagnose",
        tmp_path / "R",
        "--facts",
        facts,
        "--fact",
        "gpu_busy_ratio=90 %",
        "--json",
    )
    assert code == 0
    assert json.loads(out)["run"]["path"].startswith(f"{tmp_path}/R, {facts}")
    assert {p: p.read_bytes() for p in sorted((tmp_path / "R").rglob("*")) if p.is_file()} == before


def test_a_run_is_diagnosed_in_place_as_ever(capsys, tmp_path, log):
    profile(capsys, "import", log, "-o", tmp_path / "R")
    code, _, _ = profile(capsys, "diagnose", tmp_path / "R")
    assert code == 0
    assert (tmp_path / "R" / "diagnosis.json").exists()
    code, _, err = profile(capsys, "diagnose", tmp_path / "missing")
    assert (code, err.count("\n")) == (1, 1)
    assert "does not exist" in err


def test_control_characters_in_names_do_not_reach_the_terminal(capsys, tmp_path):
    path = Path(tmp_path / "a\x1b[31m\nb")
    path.write_text("x")
    _, _, err = profile(capsys, "import", path, "-o", tmp_path / "R")
    assert "\x1b" not in err


def test_help_shows_examples():
    told = CliRunner().invoke(cli, ["diagnose", "-h"]).output
    assert "profile diagnose --fact gpu_sm_ratio=0.6..0.75" in told
