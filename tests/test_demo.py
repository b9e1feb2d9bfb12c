"""The demo is the loop, closed: measure, name it, change one thing, measure again."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def test_demo_finds_the_batch_cap_and_its_lever_delivers(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "whybound", "demo", "--json", "-o", str(tmp_path / "kept")],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    verdict = document["verdict"]
    assert (verdict["class"], verdict["sub_cause"]) == ("scheduling", "batch cap"), verdict["says"]
    assert document["run"]["emulated"] is True
    (lever,) = [x for x in document["levers"] if x["realised"] is not None]
    assert lever["id"] == "raise_max_num_seqs"
    assert lever["realised"]["gain"] > 1.5
    assert lever["gain"]["low"] > 1.15  # it was promised before it was measured
    print(f"predicted {lever['gain']}, realised {lever['realised']}")
    for name in ("before", "after"):
        assert (tmp_path / "kept" / name / "report.html").is_file()
    assert "emulated" in done.stderr
