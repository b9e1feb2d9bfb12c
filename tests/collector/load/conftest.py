"""A small streaming server whose behaviour each test sets."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from whybound.collector.load.run import run_load
from whybound.collector.load.spec import parse_load


@dataclass
class SseServer:
    """Streams `k` tokens `gap_s` apart, `ttft_s` after the request, then usage and [DONE]."""

    k: int | None = None  # None: as many as max_tokens says
    gap_s: float = 0.0
    ttft_s: float = 0.0
    fault: str = ""  # a status code, cut, inband, hang, html
    usage: bool = True
    stall: asyncio.Event | None = None  # answers wait while it is cleared
    bodies: list[dict[str, Any]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    peers: set[Any] = field(default_factory=set)
    active: int = 0
    active_max: int = 0
    url: str = ""
    _runner: web.AppRunner | None = None

    async def __aenter__(self) -> SseServer:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/completions", self._answer)
        app.router.add_post("/v1/chat/completions", self._answer)
        app.router.add_get("/v1/models", self._models)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = site._server.sockets[0].getsockname()[:2]
        self.url = f"http://{host}:{port}"
        return self

    async def close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        self._runner = None

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m0"}, {"id": "m1"}]})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.ids.append(request.headers["X-Request-Id"])
        self.peers.add(request.transport.get_extra_info("peername"))
        if self.fault.isdigit():
            return web.Response(status=int(self.fault), text="no\n  room")
        if self.fault == "html":
            return web.Response(text="<p>hello", content_type="text/html")
        self.active += 1
        self.active_max = max(self.active_max, self.active)
        try:
            return await self._stream(request, body)
        finally:
            self.active -= 1

    async def _stream(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if self.stall is not None:
            await self.stall.wait()
        if self.fault == "hang":
            await asyncio.sleep(30)
        chat = "messages" in body
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)

        async def event(data: object) -> None:
            text = data if isinstance(data, str) else json.dumps(data)
            await response.write(f"data: {text}\n\n".encode())

        if chat:
            await event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        await asyncio.sleep(self.ttft_s)
        k = self.k if self.k is not None else body["max_tokens"]
        for i in range(k):
            if i and self.gap_s:
                await asyncio.sleep(self.gap_s)
            last = "length" if i == k - 1 else None
            text = {"delta": {"content": "ab"}} if chat else {"text": "ab"}
            await event({"choices": [{**text, "finish_reason": last}]})
            if self.fault == "cut" and i == 1:
                request.transport.abort()
                return response
            if self.fault == "inband" and i == 1:
                await event({"error": {"message": "engine died", "code": 500}})
                return response
        if self.usage:
            prompt = body.get("prompt") or []
            details = {"cached_tokens": 3}
            usage = {"prompt_tokens": len(prompt), "completion_tokens": k}
            await event({"choices": [], "usage": {**usage, "prompt_tokens_details": details}})
        await event("[DONE]")
        return response


@dataclass
class Collected:
    """Everything that went to the sink."""

    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    summary: Any = None

    def sink(self, table: str, rows: list[dict[str, Any]]) -> None:
        self.tables.setdefault(table, []).extend(rows)

    def final(self) -> list[dict[str, Any]]:
        """Each request in its last state, by number."""
        last = {row["request_id"]: row for row in self.tables.get("requests", [])}
        return sorted(last.values(), key=lambda r: int(r["request_id"].rsplit("-", 1)[1]))

    def events(self) -> dict[str, dict[str, Any]]:
        return {row["kind"]: row for row in self.tables["events"]}


async def send(text: str, url: str, stop: asyncio.Event | None = None, **kwargs: Any) -> Collected:
    """Run a load and collect what it hands on; `realtime=no` unless the text says otherwise."""
    got = Collected()
    # At real-time priority a test's client would take the CPU from other tests.
    text = text if "realtime" in text else f"{text},realtime=no"
    got.summary = await run_load(
        parse_load(text), url=url, model=kwargs.pop("model", "m"), run_id="t", sink=got.sink,
        node="here", stop=stop or asyncio.Event(), **kwargs,
    )  # fmt: skip
    return got


@pytest.fixture
def sse_server() -> type[SseServer]:
    return SseServer


@pytest.fixture
def send_load():
    return send
