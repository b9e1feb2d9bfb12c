"""The whole generator against a server with known times."""

from __future__ import annotations

import asyncio
import time

import pytest

from whybound.collector.schema import TABLES


def test_times_counts_and_rows(sse_server, send_load):
    async def main():
        async with sse_server(gap_s=0.05, ttft_s=0.1) as server:
            text = "constant:rate=20,n=10,in=7,out=5,seed=3"
            return server, await send_load(text, server.url, model=None)

    server, got = asyncio.run(main())
    rows = got.final()
    assert [r["status"] for r in rows] == ["ok"] * 10
    assert sorted(server.ids) == sorted(r["request_id"] for r in rows)
    assert server.ids[0] == "wb-t-0"
    for row in rows:
        assert set(row) == set(TABLES["requests"].column_names())
        assert row["client_ttft_s"] == pytest.approx(0.1, abs=0.06)
        assert row["client_e2e_s"] == pytest.approx(0.3, abs=0.12)
        assert len(row["chunk_gap_s"]) == 4
        assert sum(row["chunk_gap_s"]) == pytest.approx(0.2, abs=0.06)
        assert (row["input_tokens"], row["output_tokens"], row["cached_tokens"]) == (7, 5, 3)
        assert (row["chunk_count"], row["http_status_count"], row["workload"]) == (5, 200, "7/5")
        assert row["source"] == "client"
        assert (row["node"], row["replica"]) == ("here", server.url.removeprefix("http://"))
        assert row["send_lag_s"] * 1e9 <= row["sent_ns"] - row["arrival_ns"] + 1
        assert row["sent_ns"] < row["first_token_ns"] < row["end_ns"]
    arrivals = [r["arrival_ns"] for r in rows]
    assert (arrivals[-1] - arrivals[0]) / 1e9 == pytest.approx(9 / 20, abs=1e-6)
    assert abs(arrivals[0] / 1e9 - time.time()) < 60
    # Each request is there twice: when it was sent, and when it ended.
    assert [r["status"] for r in got.tables["requests"]].count("unfinished") == 10
    events = got.events()
    assert events["load_mode"]["text"] == "open"
    assert events["client_realtime"]["value"] == 0.0
    assert events["load_started"]["t_ns"] <= arrivals[0] + 50e6
    assert set(events["load_ended"]) == set(TABLES["events"].column_names())
    summary = got.summary
    assert (summary.sent, summary.ok, summary.failed, summary.unfinished) == (10, 10, 0, 0)
    assert (summary.model, summary.output_tokens, summary.input_tokens) == ("m0", 50, 70)
    assert summary.ttft_s["p50"] == pytest.approx(0.1, abs=0.06)
    assert summary.output_tokens_per_s == pytest.approx(50 / summary.duration_s)


def test_stalled_server_is_charged_for_arrivals_it_kept_waiting(sse_server, send_load):
    """No coordinated omission: arrivals go on during the stall, and count it."""

    async def main():
        stall = asyncio.Event()
        stall.set()

        async def one_stall():
            await asyncio.sleep(1.0)
            stall.clear()
            await asyncio.sleep(1.0)
            stall.set()

        async with sse_server(stall=stall) as server:
            task = asyncio.create_task(one_stall())
            got = await send_load("constant:rate=20,n=50,out=1", server.url)
            await task
            return got

    rows = asyncio.run(main()).final()
    assert all(r["send_lag_s"] < 0.3 for r in rows)
    late = [r["client_ttft_s"] for r in rows if r["client_ttft_s"] > 0.2]
    # 20 arrivals fall into the second; their waits run evenly from 1 s down to 0.
    assert 12 <= len(late) <= 20
    assert max(late) == pytest.approx(1.0, abs=0.25)
    assert sum(late) / len(late) == pytest.approx(0.6, abs=0.15)


def test_closed_loop_keeps_n_in_flight(sse_server, send_load):
    async def main():
        async with sse_server(gap_s=0.02) as server:
            text = "closed:concurrency=5,n=23,out=4,processes=2"
            return server, await send_load(text, server.url)

    server, got = asyncio.run(main())
    rows = got.final()
    assert server.active_max == 5
    assert len(rows) == 23
    assert got.events()["load_mode"]["text"] == "closed"
    assert all(r["send_lag_s"] is None for r in rows)
    # 23 requests of about 0.06 s, 5 at once: Little's law within the slack of a busy machine.
    span_s = (max(r["end_ns"] for r in rows) - min(r["arrival_ns"] for r in rows)) / 1e9
    assert sum(r["client_e2e_s"] for r in rows) / span_s > 3


def test_warmup_is_flagged_and_left_out(sse_server, send_load):
    async def main():
        async with sse_server() as server:
            return await send_load("constant:rate=20,warmup=500ms,n=10,out=1", server.url)

    got = asyncio.run(main())
    assert [r["warmup"] for r in got.final()] == [True] * 10 + [False] * 10
    assert (got.summary.sent, got.summary.warmup) == (10, 10)
    started, ended = got.events()["load_started"], got.events()["warmup_ended"]
    assert (ended["t_ns"] - started["t_ns"]) / 1e9 == pytest.approx(0.5, abs=0.2)
