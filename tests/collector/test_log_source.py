"""The tail: growth, half lines, truncation, rotation, floods, odd bytes, and what idling costs."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from whybound.collector.session import Plan, record
from whybound.collector.sources.log import LogSource
from whybound.collector.store import open_run


class Tail:
    """A source on `path` with what it handed over."""

    def __init__(self, path: Path, **more) -> None:
        self.rows: list[tuple[str, dict]] = []
        self.path = path
        self.source = LogSource(
            path=path, node="n", replica="", **{"engine": "vllm", "interval_s": 0.01, **more},
            sink=lambda table, rows: self.rows.extend((table, row) for row in rows),
        )  # fmt: skip

    def write(self, data: bytes) -> None:
        with self.path.open("ab") as log:
            log.write(data)

    @property
    def blocks(self) -> list[str]:
        return [row["value"] for table, row in self.rows if table == "settings"]

    def events(self) -> list[tuple[str, float]]:
        return [(row["kind"], row["value"]) for table, row in self.rows if table == "events"]

    async def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 5
        while not done():
            assert time.monotonic() < deadline, (self.rows, self.source.report())
            await asyncio.sleep(0.005)

    @asynccontextmanager
    async def running(self):
        stop = asyncio.Event()
        task = asyncio.create_task(self.source.run(stop))
        yield self
        stop.set()
        await asyncio.wait_for(task, 5)


def line(n: int | str) -> bytes:
    return f"# GPU blocks: {n}\n".encode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


async def grows(tail: Tail) -> None:
    async with tail.running():
        await asyncio.sleep(0.03)  # the file is not there yet
        tail.write(line(1))
        await tail.until(lambda: tail.blocks == ["1"])
        tail.write(b"# GPU blocks: 2")
        await asyncio.sleep(0.05)
        assert tail.blocks == ["1"]
        tail.write(b"34\n\xff\xfe\x00 not text\n")
        await tail.until(lambda: len(tail.blocks) == 2)
        tail.write(line(5)[:-1])
    assert tail.blocks == ["1", "234", "5"]


def test_follows_a_file_that_grows_and_keeps_half_lines(path):
    tail = Tail(path)
    asyncio.run(grows(tail))
    report = tail.source.report()
    assert report["lines_count"] == 4
    assert report["bytes_count"] == path.stat().st_size
    assert report["rows"] == {"settings": 3}
    assert report["last_error"] is None
    assert (report["skipped_bytes"], report["truncations_count"], report["rotations_count"]) == (
        0,
        0,
        0,
    )


def test_begins_where_this_run_began(path):
    path.write_bytes(line(1))
    tail = Tail(path, start=path.stat().st_size)
    tail.write(line(2))

    async def go() -> None:
        async with tail.running():
            pass

    asyncio.run(go())
    assert tail.blocks == ["2"]


def test_survives_truncation(path):
    tail = Tail(path)

    async def go() -> None:
        async with tail.running():
            tail.write(b"x" * 100 + b"\n" + line(1) + b"half a l")
            await tail.until(lambda: tail.blocks == ["1"])
            path.write_bytes(line(2))
            await tail.until(lambda: tail.blocks == ["1", "2"])

    asyncio.run(go())
    assert tail.source.report()["truncations_count"] == 1


@pytest.mark.parametrize("last", [b"", line(2)[:-1]], ids=["whole", "half"])
def test_follows_a_rotation_and_reads_what_the_old_file_still_got(path, last):
    tail = Tail(path)

    async def go() -> None:
        async with tail.running():
            tail.write(line(1))
            await tail.until(lambda: tail.blocks == ["1"])
            with path.open("ab") as old:
                path.rename(path.with_suffix(".1"))
                await asyncio.sleep(0.03)
                old.write(last)
                old.flush()
                tail.write(line(3))
                await tail.until(lambda: tail.blocks[-1:] == ["3"])

    asyncio.run(go())
    assert tail.blocks == (["1", "2", "3"] if last else ["1", "3"])
    assert tail.source.report()["rotations_count"] == 1


def test_a_flood_is_skipped_to_its_newest_and_counted(path):
    tail = Tail(path, max_bytes_per_s=100_000)

    async def go() -> None:
        async with tail.running():
            tail.write(line(1))
            await tail.until(lambda: tail.blocks == ["1"])
            tail.write(b"WARNING nothing\n" * 100_000 + line(2))
            await tail.until(lambda: tail.blocks == ["1", "2"])

    asyncio.run(go())
    report = tail.source.report()
    size = path.stat().st_size
    assert report["skipped_bytes"] + report["bytes_count"] == size
    assert 100_000 < report["bytes_count"] <= 300_000


def test_a_flood_that_is_costly_to_read_is_bounded_by_time(path):
    tail = Tail(path, max_bytes_per_s=1 << 30)
    for i in range(40):  # each line different, so that each is looked at in full
        tail.write(
            b"".join(
                b"ERROR: number %d of all that fails here\n" % (i * 9000 + j) for j in range(9000)
            )
        )

    async def go() -> None:
        async with tail.running():
            pass

    asyncio.run(go())
    report = tail.source.report()
    assert report["skipped_bytes"] > 0
    assert report["skipped_bytes"] + report["bytes_count"] == path.stat().st_size
    assert report["cost_s"] < 1.5


def test_events_come_when_their_second_is_over_and_once(path):
    tail = Tail(path)

    async def go() -> None:
        async with tail.running():
            for _ in range(20):
                tail.write(b"No available shared memory broadcast block found in 60 seconds\n")
                await asyncio.sleep(0.01)
            assert tail.events() == []
            tail.write(b"Graph capturing finished in 3 secs\n")

    asyncio.run(go())
    assert tail.events() == [("engine_warning", 20.0), ("graph_capture", 3.0)]


def test_a_log_that_cannot_be_read_is_told(path):
    path.mkdir()
    tail = Tail(path)

    async def go() -> None:
        async with tail.running():
            await asyncio.sleep(0.03)

    asyncio.run(go())
    assert "IsADirectoryError" in tail.source.report()["last_error"]


def test_the_replica_may_become_known_later(path):
    tail = Tail(path)

    async def go() -> None:
        async with tail.running():
            tail.write(line(1))
            await tail.until(lambda: tail.blocks == ["1"])
            tail.source.replica = "h:1"
            tail.write(line(2))

    asyncio.run(go())
    assert [row["replica"] for _, row in tail.rows] == ["", "h:1"]


def test_idling_costs_less_than_one_percent(path):
    tail = Tail(path, interval_s=0.5)
    path.write_bytes(line(1))

    async def go() -> float:
        async with tail.running():
            await asyncio.sleep(0.2)
            began = time.process_time()
            await asyncio.sleep(2.0)
            return time.process_time() - began

    assert asyncio.run(go()) < 0.02


SERVER = r"""
import http.server, sys, time
def say(text):
    print("(EngineCore pid=2) INFO " + time.strftime("%m-%d %H:%M:%S") + " [k.py:1] " + text, flush=True)
say("non-default args: {'max_num_seqs': 3}")
say("GPU KV cache size: 1,600 tokens")
if sys.argv[2] == "die":
    raise ValueError("No available memory for the cache blocks.")
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"{}")
    def log_message(self, *a):
        print("INFO:     Application startup complete.", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), H).serve_forever()
"""


def _rows(run, table):
    found = run.log_table(table).to_pylist()
    for part in run.parts(table):
        found += pq.read_table(part).to_pylist()
    return found


def _record(tmp_path: Path, mode: str):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    run = tmp_path / "run"
    plan = Plan(
        run_dir=run, duration_s=0.3, port=port, ready_s=20, grace_s=2,
        command=(sys.executable, "-c", SERVER, str(port), mode),
    )  # fmt: skip
    try:
        asyncio.run(record(plan, asyncio.Event()))
    except Exception as error:
        failed = error
    else:
        failed = None
    return open_run(run), failed


def test_a_recorded_server_is_tailed(tmp_path):
    run, failed = _record(tmp_path, "live")
    assert failed is None
    settings = {r["key"]: r for r in _rows(run, "settings")}
    assert settings["kv_cache_tokens"]["value"] == "1600"
    assert settings["max_num_seqs"]["source"] == "log"
    kinds = [r["kind"] for r in _rows(run, "events")]
    assert "engine_started" in kinds
    report = run.manifest["sources"]["log"]
    assert report["engine"] == "vllm"
    assert report["bytes_count"] == os.stat(run.path / "server.log").st_size


def test_a_server_that_dies_at_the_start_leaves_its_reason(tmp_path):
    run, failed = _record(tmp_path, "die")
    assert failed is not None
    errors = [r["text"] for r in _rows(run, "events") if r["kind"] == "engine_error"]
    assert errors == ["ValueError: No available memory for the cache blocks."]
    assert run.manifest["sources"]["log"]["rows"]["settings"] == 2
