"""What goes wrong becomes a row, a count, or one line; never a hang."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from whybound.errors import WhyboundError


@pytest.mark.parametrize(
    ("fault", "status", "http", "error"),
    [
        ("503", "error", 503, "HTTP 503: no room"),
        ("html", "error", 200, "the answer is not an event stream: <p>hello"),
        ("cut", "error", 200, "stream cut after 2 chunks"),
        ("inband", "error", 200, "engine died"),
        ("hang", "timeout", None, "not finished in time, 0 chunks had come"),
    ],
)
def test_failures_are_rows(sse_server, send_load, fault, status, http, error):
    async def main():
        async with sse_server(fault=fault, gap_s=0.01) as server:
            return await send_load("constant:rate=50,n=3,out=4,timeout=0.4", server.url)

    got = asyncio.run(main())
    for row in got.final():
        assert (row["status"], row["http_status_count"]) == (status, http)
        assert row["error"].startswith(error)
        assert row["client_e2e_s"] is None
        assert row["output_tokens"] is None
    assert (got.summary.ok, got.summary.failed) == (0, 3)
    assert got.summary.first_error.startswith(error)
    assert got.summary.e2e_s == {}


def test_refused_while_running_is_a_row(send_load, sse_server):
    async def main():
        async with sse_server() as server:
            load = asyncio.create_task(send_load("constant:rate=10,n=10,out=1", server.url))
            while not server.bodies:
                await asyncio.sleep(0.01)
            await server.close()
            return await load

    got = asyncio.run(main())
    last = got.final()[-1]
    assert last["status"] == "refused"
    assert last["sent_ns"] is None
    assert last["error"].startswith("connection refused by 127.0.0.1:")


def test_refused_at_the_start_is_one_line(send_load):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(WhyboundError, match=f"no server answers at 127.0.0.1:{port}: "):
        asyncio.run(send_load("closed:concurrency=1,n=1", f"http://127.0.0.1:{port}"))


def test_drain_ends_and_leaves_unfinished(sse_server, send_load):
    async def main():
        async with sse_server(gap_s=0.2) as server:
            return await send_load("constant:rate=20,n=4,out=40,drain=500ms", server.url)

    begun = time.monotonic()
    got = asyncio.run(main())
    assert time.monotonic() - begun < 6
    for row in got.final():
        assert row["status"] == "unfinished"
        assert row["error"] == "not finished when the load ended"
        assert row["chunk_count"] >= 2
        assert row["first_token_ns"] < row["end_ns"]
        assert row["client_e2e_s"] is None
    assert (got.summary.unfinished, got.summary.ok, got.summary.duration_s) == (4, 0, 0.0)


def test_stop_ends_early_and_drains(sse_server, send_load):
    async def main():
        stop = asyncio.Event()
        async with sse_server(gap_s=0.1) as server:
            load = asyncio.create_task(send_load("poisson:rate=20,d=60,out=3", server.url, stop))
            while len(server.bodies) < 5:
                await asyncio.sleep(0.02)
            stop.set()
            return await load

    got = asyncio.run(main())
    assert 5 <= got.summary.sent < 40
    assert got.summary.ok == got.summary.sent


def test_a_file_that_names_prefixes_needs_their_length(tmp_path, send_load):
    path = tmp_path / "a.csv"
    path.write_text("t,input_tokens,output_tokens,prefix\n0,10,5,x\n")
    with pytest.raises(WhyboundError, match="add prefix=TOKENS"):
        asyncio.run(send_load(f"file:{path}", "http://127.0.0.1:9"))
