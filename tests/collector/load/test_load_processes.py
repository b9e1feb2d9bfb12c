"""The worker processes: how many, how fit, and how they end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import psutil
import pytest

from whybound.collector.load.run import workers_for
from whybound.collector.load.spec import parse_load
from whybound.collector.schema import TABLES
from whybound.errors import WhyboundError


def test_own_health_is_reported(sse_server, send_load):
    async def main():
        async with sse_server() as server:
            return await send_load("constant:rate=20,d=1.2,out=2,processes=2", server.url)

    samples = asyncio.run(main()).tables["samples"]
    assert all(set(row) == set(TABLES["samples"].column_names()) for row in samples)
    assert {row["labels"] for row in samples} == {'{"worker":"0"}', '{"worker":"1"}'}
    for signal_name in ("client_cpu_s", "client_run_wait_s"):
        own = [r for r in samples if r["signal"] == signal_name and '"0"' in r["labels"]]
        assert len(own) >= 3
        assert all(r["kind"] == "counter" and r["unit"] == "s" for r in own)
        assert own[-1]["value"] >= own[0]["value"] > 0
    lags = [r["value"] for r in samples if r["signal"] == "client_loop_lag_s"]
    assert 0 < max(lags) < 1


def test_workers_end_when_the_parent_is_killed(sse_server):
    code = (
        "import asyncio, sys\n"
        "from whybound.collector.load.run import run_load\n"
        "from whybound.collector.load.spec import parse_load\n"
        "spec = parse_load('closed:concurrency=4,d=60,processes=2,realtime=no')\n"
        "asyncio.run(run_load(spec, url=sys.argv[1], model='m', run_id='k', node='n',"
        " sink=lambda *_: None, stop=asyncio.Event()))\n"
    )

    async def main():
        async with sse_server(gap_s=0.05) as server:
            parent = subprocess.Popen([sys.executable, "-c", code, server.url])
            while server.active < 4:
                await asyncio.sleep(0.02)
            workers = psutil.Process(parent.pid).children()
            assert len(workers) == 2
            os.kill(parent.pid, signal.SIGKILL)
            parent.wait()
            _, alive = await asyncio.to_thread(psutil.wait_procs, workers, 3)
            return alive

    assert asyncio.run(main()) == []


def test_a_dead_worker_is_an_error(sse_server, send_load):
    async def main():
        async with sse_server(gap_s=0.05) as server:
            load = asyncio.create_task(send_load("closed:concurrency=1,d=60", server.url))
            while not server.active:
                await asyncio.sleep(0.02)
            psutil.Process().children()[-1].kill()
            await load

    with pytest.raises(WhyboundError, match="load worker 0 ended early"):
        asyncio.run(main())


def test_cancelling_leaves_no_process(sse_server, send_load):
    async def main():
        async with sse_server(gap_s=0.05) as server:
            load = asyncio.create_task(send_load("closed:concurrency=1,d=60", server.url))
            while not server.active:
                await asyncio.sleep(0.02)
            load.cancel()
            with pytest.raises(asyncio.CancelledError):
                await load
            return psutil.Process().children()

    assert asyncio.run(main()) == []


@pytest.mark.parametrize(
    ("text", "cores", "want"),
    [
        ("poisson:rate=4", 8, 1),
        ("poisson:rate=100,out=10", 8, 1),
        ("poisson:rate=100,out=64", 8, 3),
        ("poisson:rate=1000,out=64", 4, 4),
        ("closed:concurrency=500", 8, 7),
        ("closed:concurrency=2,processes=8", 8, 2),
        ("poisson:rate=1,processes=3", 2, 3),
    ],
)
def test_number_of_processes(text, cores, want):
    assert workers_for(parse_load(text), cores=cores) == want


def test_progress_is_told(sse_server, send_load):
    async def main(seen):
        async with sse_server() as server:
            await send_load("constant:rate=10,d=1.5,out=1", server.url, on_progress=seen.append)

    seen = []
    asyncio.run(main(seen))
    assert seen
    assert seen[0]["total_s"] == 1.5
    assert 5 <= seen[0]["sent"] <= 15
