"""A real Prometheus that scraped an emulated engine: what it kept is what was there, and it is enough."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from whybound.analyzers.database import open_database
from whybound.collector.sources.exposition import parse
from whybound.collector.store import open_run

pytestmark = [pytest.mark.prometheus, pytest.mark.slow]

LOAD = "poisson:rate=3.2,in=64,out=48,d=15s,seed=7"
"""Above what two slots serve (about 1.9 requests/s in the toy world), below what sixteen do."""
CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 900ms}}
scrape_configs:
  - job_name: vllm
    static_configs: [{{targets: ["127.0.0.1:{engine}"], labels: {{pod: vllm-0, engine: fast}}}}]
  - job_name: prometheus
    static_configs: [{{targets: ["127.0.0.1:{prometheus}"]}}]
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(150):
        assert process.poll() is None, f"{process.args} ended"
        try:
            get(url)
        except OSError:
            time.sleep(0.2)
        else:
            return
    pytest.fail(f"{url} never answered")


def profile(*arguments: Any, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "whybound", *map(str, arguments)],
        capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **(env or {})},
    )  # fmt: skip


@dataclass(frozen=True)
class World:
    """An engine that was loaded, the Prometheus that watched it, its page before and after."""

    engine: str
    prometheus: str
    before: str
    after: str
    live: Path
    live_diagnosis: dict[str, Any]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    binary = shutil.which("prometheus")
    if binary is None:
        pytest.skip("no `prometheus` on the PATH: tests against a real server left out")
    folder = tmp_path_factory.mktemp("prometheus")
    ports = {"engine": free_port(), "prometheus": free_port()}
    (folder / "prometheus.yml").write_text(CONFIG.format(**ports))
    engine = subprocess.Popen(
        [sys.executable, "-m", "whybound.fixtures.engine", "--port", str(ports["engine"]), "--max-num-seqs", "2"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    server = subprocess.Popen(
        [
            binary, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{ports['prometheus']}", "--log.level=error",
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    urls = {name: f"http://127.0.0.1:{port}" for name, port in ports.items()}
    try:
        wait_for(urls["engine"] + "/v1/models", engine)
        wait_for(urls["prometheus"] + "/-/ready", server)
        yield watched(urls, folder / "live")
    finally:
        for process in (engine, server):
            process.terminate()
            process.wait(20)


def watched(urls: dict[str, str], live: Path) -> World:
    """Load the engine while `profile attach --url` looks on too."""
    time.sleep(3)  # some idle scrapes
    before = get(urls["engine"] + "/metrics")
    attached = subprocess.Popen(
        [sys.executable, "-m", "whybound", "attach", "--url", urls["engine"], "-o", str(live), "--json",
         "-q"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    time.sleep(2)
    loaded = profile("load", urls["engine"], "--load", LOAD, "-q")
    assert loaded.returncode == 0, loaded.stderr
    time.sleep(2.5)  # the last scrape after the last token
    attached.send_signal(signal.SIGINT)
    out, err = attached.communicate(timeout=60)
    assert attached.returncode == 130, err
    after = get(urls["engine"] + "/metrics")
    return World(urls["engine"], urls["prometheus"], before, after, live, json.loads(out))


@pytest.fixture(scope="module")
def attached(world: World, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    run_dir = tmp_path_factory.mktemp("attached") / "R"
    done = profile(
        "attach", "--prometheus", world.prometheus, "--since", "90s", "-o", run_dir, "--json"
    )
    assert done.returncode == 0, done.stderr
    return run_dir, json.loads(done.stdout)


def totals(page: str) -> dict[tuple[str, str], float]:
    """(name, finished_reason or source) → value of each counter, and of each histogram's sum and count."""
    return {
        (sample.name, sample.labels.get("finished_reason", sample.labels.get("source", ""))): sample.value
        for family in parse(page).families
        for sample in family.samples
        if sample.name.startswith("vllm:") and sample.name.endswith(("_total", "_sum", "_count"))
    }  # fmt: skip


def test_counters_and_histograms_are_those_of_the_engines_own_page(
    world: World, attached: tuple[Path, dict[str, Any]]
) -> None:
    con = open_database(open_run(attached[0]))
    grown = {key: value - totals(world.before)[key] for key, value in totals(world.after).items()}
    counters = con.execute(
        "SELECT raw_name, reason, max(value) - min(value) FROM samples WHERE kind = 'counter'"
        " AND raw_name LIKE 'vllm:%' GROUP BY ALL"
    ).fetchall()
    assert len(counters) >= 12
    for name, reason, delta in counters:
        assert delta == grown[name, reason], name
    histograms = con.execute(
        "SELECT raw_name, max(count) - min(count), max(sum) - min(sum) FROM histograms GROUP BY ALL"
    ).fetchall()
    assert len(histograms) >= 10
    for name, count, total in histograms:
        assert count == grown[name + "_count", ""], name
        assert total == pytest.approx(grown[name + "_sum", ""]), name


def test_the_views_say_what_they_say_of_direct_scrapes(
    world: World, attached: tuple[Path, dict[str, Any]]
) -> None:
    query = (
        "SELECT engine_finished_count, engine_input_mean_tokens, engine_output_mean_tokens,"
        " server_queue_mean_s, server_prefill_mean_s, server_decode_mean_s, server_e2e_mean_s, server_itl_mean_s"
        " FROM engine_load, server_phases"
    )
    past, live = (
        open_database(open_run(run)).execute(query).fetchone() for run in (attached[0], world.live)
    )
    assert past is not None
    assert past == pytest.approx(live)


def test_scrapes_keep_their_own_times(attached: tuple[Path, dict[str, Any]]) -> None:
    con = open_database(open_run(attached[0]))
    times = con.execute(
        "SELECT count(DISTINCT t_ns) FROM samples WHERE engine <> '' GROUP BY signal, reason"
    ).fetchall()
    assert len({n for (n,) in times}) == 1  # one page, one time
    manifest = json.loads((attached[0] / "manifest.json").read_text())
    (report,) = manifest["sources"].values()
    assert (report["mode"], report["fallbacks"], report["queries_failed"]) == ("raw", 0, 0)
    assert report["replicas"] == [f"vllm-0/{report['replicas'][0].split('/')[1]}"]
    assert (report["lost"], report["unmapped"], report["warning"]) == ([], [], None)
    assert manifest["emulated"] is True


def test_settings_are_the_engines_and_no_target_label_is_one(
    world: World, attached: tuple[Path, dict[str, Any]]
) -> None:
    query = "SELECT DISTINCT key, value FROM settings WHERE source = 'metrics' ORDER BY key"
    past, live = (
        open_database(open_run(run)).execute(query).fetchall() for run in (attached[0], world.live)
    )
    assert past == live
    assert "block_size" in dict(past)


def test_the_verdict_needs_no_client(world: World, attached: tuple[Path, dict[str, Any]]) -> None:
    diagnosis = attached[1]
    verdict = diagnosis["verdict"]
    assert verdict["class"] == world.live_diagnosis["verdict"]["class"] == "scheduling", verdict
    assert verdict["sub_cause"] == "batch cap"
    assert diagnosis["target"]["text"] == "mean e2e"
    assert diagnosis["target"]["value"] > 1
    missing = "\n".join(diagnosis["coverage"]["missing"])
    assert "load mode: not recorded, taken for an open loop of Poisson arrivals" in missing
    assert "idle time:" in missing


def test_a_long_step_loses_no_total(world: World, tmp_path: Path) -> None:
    """The range query that stands in for raw samples gives the same growth."""
    import asyncio

    from whybound.collector.sources.prometheus_api import PrometheusHistory

    tables: dict[str, list[dict[str, Any]]] = {}
    history = PrometheusHistory(
        url=world.prometheus, since_s=120, match='{job="vllm"}', step_s=2.0, node="n",
        sink=lambda table, rows: tables.setdefault(table, []).extend(rows),
    )  # fmt: skip
    history._raw = False  # as where there are too many scrapes
    asyncio.run(history.read())
    values = [r["value"] for r in tables["samples"] if r["signal"] == "generation_tokens"]
    name = ("vllm:generation_tokens_total", "")
    assert max(values) - min(values) == totals(world.after)[name] - totals(world.before)[name]
    times = sorted({r["t_ns"] for r in tables["samples"]})
    assert {b - a for a, b in itertools.pairwise(times)} == {2_000_000_000}


def test_what_is_not_there_is_told_with_what_is(world: World, tmp_path: Path) -> None:
    done = profile(
        "attach", "--prometheus", world.prometheus, "--since", "60s", "--match", '{job="prometheus"}',
        "-o", tmp_path / "R",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert "no metrics of a known engine" in line
    assert "jobs: prometheus" in line
    assert "--match" in line
