"""A public sweep of one server at 1, 16 and 256 callers, from its log, its metrics and its clients' table.

At 256 the KV cache is full and requests are preempted; at 1 and 16 neither. WHYBOUND_CORPUS names the folder.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import whybound
from whybound.analyzers.given import known_signals
from whybound.collector.importers.run import import_files
from whybound.rules.model import Diagnosis

FOLDER = Path(os.environ.get("WHYBOUND_CORPUS", "")) / "5-bench" / "SemiAnalysisAI__InferenceX"
AGENTIC = {
    1: "*agentic_dsr1*_conc1_b200*",
    16: "*agentic_dsr1*_conc16_b200*",
    256: "*agentic_dsr1*_conc256_b200*",
}
OTHER_METRICS = {256: "b75fb683__metrics_server_metrics.csv"}

pytestmark = pytest.mark.skipif(
    not any(FOLDER.glob(AGENTIC[256])) if FOLDER.is_dir() else True,
    reason="WHYBOUND_CORPUS leads to no such sweep",
)


def diagnosed(callers: int, folder: Path) -> Diagnosis:
    files = sorted(FOLDER.glob(AGENTIC[callers]))
    if callers in OTHER_METRICS:
        files.append(FOLDER / OTHER_METRICS[callers])
    import_files(files, folder, signals=known_signals())
    return whybound.diagnose(folder)


def test_a_full_cache_with_preemptions_is_named(tmp_path: Path) -> None:
    found = diagnosed(256, tmp_path / "run")
    assert (found.verdict.class_, found.verdict.sub_cause) == ("memory", "capacity")
    fired = {f.rule: f for f in found.findings if f.state == "fires"}
    assert "kv_cache_full" in fired
    assert next(e.value for e in fired["preempted"].evidence if e.signal == "preemptions_count") > 0


@pytest.mark.parametrize("callers", [1, 16])
def test_a_cache_with_room_is_not(callers: int, tmp_path: Path) -> None:
    found = diagnosed(callers, tmp_path / "run")
    assert found.verdict.sub_cause != "capacity"
    fired = {f.rule for f in found.findings if f.state == "fires"}
    assert not fired & {"kv_cache_full", "preempted", "kv_full_and_waiting", "kv_nearly_full"}
