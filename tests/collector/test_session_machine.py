"""A recording names the machine under a local server."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from whybound.analyzers.database import open_database
from whybound.collector.session import Plan, free_port, record
from whybound.collector.store import open_run


def test_a_recording_names_its_machine_and_an_emulated_one_no_roofs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    port = free_port()
    command = (sys.executable, "-m", "whybound.fixtures.engine", "--port", str(port))
    plan = Plan(run_dir=tmp_path / "R", command=command, port=port, duration_s=0.3)
    asyncio.run(record(plan, asyncio.Event()))
    con = open_database(open_run(tmp_path / "R"))
    found = {
        key: (value, origin, engine)
        for key, value, origin, engine in con.execute(
            "SELECT key, value, origin, engine FROM setting_latest"
        ).fetchall()
    }
    assert int(found["cpu_count"][0]) >= 1
    assert found["omp_num_threads"][:2] == ("3", "requested")
    assert found["cpu_name"][1:] == ("effective", "")
    assert not any(key.startswith("roof_") for key in found)
