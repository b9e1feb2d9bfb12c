"""A recorded run with and without spans: what the session starts, says and writes down."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from whybound.analyzers.database import open_database
from whybound.collector.load.spec import parse_load
from whybound.collector.session import Plan, free_port, record
from whybound.collector.store import open_run
from whybound.errors import WhyboundError

LOAD = "poisson:rate=25,in=40,out=4,seed=1,warmup=0.4s,d=1.6s"


def recorded(run_dir: Path, command: list[str], **options: Any) -> tuple[dict[str, Any], list[str]]:
    """Record one run; its manifest, and what was said meanwhile."""
    said: list[str] = []
    plan = Plan(run_dir=run_dir, command=tuple(command), say=said.append, **options)
    try:
        asyncio.run(record(plan, asyncio.Event()))
    finally:
        manifest = json.loads((run_dir / "manifest.json").read_text())
    return manifest, said


def engine(port: int) -> list[str]:
    flags = ["--port", str(port), "--speed", "8", "--noise", "0"]
    return [sys.executable, "-m", "whybound.fixtures.engine", *flags]


def test_an_instrumented_run_joins_every_request_with_its_span(tmp_path: Path) -> None:
    port = free_port()
    manifest, said = recorded(
        tmp_path / "R", engine(port), port=port, load=parse_load(LOAD), instrument=True
    )
    flag, address = manifest["instrumented"]
    assert flag == "--otlp-traces-endpoint"
    assert address.startswith("http://127.0.0.1:")
    assert f"added {flag} {address}" in said
    assert flag not in manifest["command"]  # what the person asked for stays what it was
    assert "spans" not in manifest["not_collected"]
    con = open_database(open_run(tmp_path / "R"))
    sent, warm = con.execute(
        "SELECT count(*), count_if(warmup) FROM request_latest WHERE source = 'client'"
    ).fetchone()  # type: ignore[misc]
    assert manifest["sources"]["spans"]["rows_count"] == sent > warm > 0
    worst = con.execute("""
        SELECT count(*), count(client_e2e_s), min(front_end_s), min(network_s), max(network_s)
        FROM request_phases
    """).fetchone()
    assert worst is not None
    joined, answered, front_end_s, network_low_s, network_high_s = worst
    assert joined == answered == sent - warm
    assert front_end_s >= 0
    assert -0.001 < network_low_s <= network_high_s < 0.5


def test_a_run_without_says_how_to_get_them(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    with pytest.raises(WhyboundError):
        recorded(tmp_path / "R", command, port=free_port())
    manifest = json.loads((tmp_path / "R" / "manifest.json").read_text())
    assert manifest["not_collected"]["spans"] == "not asked for; add --instrument"
    assert "instrumented" not in manifest


def test_an_engine_that_cannot_is_run_all_the_same_and_it_is_said(tmp_path: Path) -> None:
    said: list[str] = []
    command = (sys.executable, "-c", "raise SystemExit(3)")
    plan = Plan(
        run_dir=tmp_path / "R", command=command, port=free_port(), instrument=True, say=said.append
    )
    with pytest.raises(WhyboundError, match="3"):
        asyncio.run(record(plan, asyncio.Event()))
    manifest = json.loads((tmp_path / "R" / "manifest.json").read_text())
    assert "no engine" in manifest["not_collected"]["spans"]
    assert any(line.startswith("no spans: ") for line in said)
