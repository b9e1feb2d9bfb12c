"""Variants of a load: the chat API, kept connections, another salt."""

from __future__ import annotations

import asyncio


def test_chat_role_chunk_is_no_token(sse_server, send_load):
    async def main():
        async with sse_server(ttft_s=0.1) as server:
            return server, await send_load("closed:concurrency=1,n=2,api=chat,in=5", server.url)

    server, got = asyncio.run(main())
    content = server.bodies[0]["messages"][0]["content"]
    assert len(content.split()) == 5
    for row in got.final():
        assert row["status"] == "ok"
        assert row["chunk_count"] == 64
        assert row["client_ttft_s"] > 0.09  # the role chunk came at once


def test_connections_are_reused_only_on_request(sse_server, send_load):
    async def main(extra):
        async with sse_server() as server:
            got = await send_load(f"closed:concurrency=1,n=8,out=2{extra}", server.url)
            assert got.summary.ok == 8
            return len(server.peers)

    assert asyncio.run(main("")) == 8
    assert asyncio.run(main(",keepalive=true")) == 1


def test_salt_changes_contents_and_nothing_else(sse_server, send_load):
    async def main(text):
        async with sse_server() as server:
            got = await send_load(f"poisson:rate=60,n=12,in=uniform(4:9),out=1,{text}", server.url)
            rows = got.final()
            prompts = {server.ids[i]: body["prompt"] for i, body in enumerate(server.bodies)}
            return (
                [prompts[r["request_id"]] for r in rows],
                [r["arrival_ns"] - rows[0]["arrival_ns"] for r in rows],
                [r["input_tokens"] for r in rows],
            )

    one, two = asyncio.run(main("seed=1")), asyncio.run(main("seed=1,processes=2"))
    assert one[0] != two[0]
    assert one[1:] == two[1:]
