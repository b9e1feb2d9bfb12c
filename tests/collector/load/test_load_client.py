"""One request against servers that misbehave on the level of bytes."""

from __future__ import annotations

import asyncio

import pytest

from whybound.collector.load.client import Answer, Client, parse_url
from whybound.errors import UsageError

TOKEN = b'data: {"choices": [{"text": "a"}]}\n\n'
LAST = b'data: {"choices": [{"text": "b", "finish_reason": "length"}]}\n\n'
DONE = b"data: [DONE]\n\n"
SSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = SSE + b"Transfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def ask(
    *parts: bytes, requests: int = 1, keepalive: bool = False, serves: int = 1, pause=0.0
):
    """Send requests one by one to a server that writes `parts`, `serves` times a connection."""
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for _ in range(serves):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.01)
        if keepalive and not pause:  # take one more request, then hang up on it
            await reader.read(1)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = Client(parse_url(f"http://127.0.0.1:{port}", "completions"), 5.0, keepalive)
    answers, sent = [], []
    for i in range(requests):
        answer = Answer()
        await client.request(b"{}", f"r{i}", answer, lambda i=i: sent.append(i))
        answers.append(answer)
        await asyncio.sleep(pause)
    client.close()
    server.close()
    assert sent == list(range(requests))
    return answers, connections


@pytest.mark.parametrize(
    ("parts", "chunks"),
    [
        ((CHUNKED, chunk(TOKEN), chunk(LAST), chunk(DONE), b"0\r\n\r\n"), 2),
        ((CHUNKED, chunk(TOKEN), chunk(LAST), chunk(DONE)), 2),  # closed after [DONE]
        ((CHUNKED, chunk(TOKEN), chunk(LAST) + b"0\r\n\r\n"), 2),  # no [DONE]
        ((SSE + b"\r\n", TOKEN, LAST, DONE), 2),  # until the connection closes
        ((SSE + b"\r\n", TOKEN, LAST[:-2]), 2),  # the last line has no end
        ((CHUNKED, chunk(TOKEN + LAST + DONE)), 2),  # coalesced by a proxy
        ((CHUNKED, chunk(TOKEN[:9]), chunk(TOKEN[9:] + LAST + DONE)), 2),  # cut within an event
    ],
)
def test_complete_answers(parts, chunks):
    (answer,), _ = asyncio.run(ask(*parts))
    assert (answer.status, answer.error, len(answer.chunk_ns)) == ("ok", None, chunks)
    assert answer.begun_ns <= answer.sent_ns < answer.chunk_ns[0] <= answer.end_ns


@pytest.mark.parametrize(
    ("parts", "error"),
    [
        ((), "connection closed before the answer began"),
        ((b"HTTP/1.1 2",), "connection closed before the answer began"),
        ((b"SSH-2.0-x\r\n",), "not an HTTP/1 server"),
        ((CHUNKED, chunk(TOKEN)), "stream cut after 1 chunks"),
        ((CHUNKED, chunk(LAST)), "stream cut after 1 chunks"),  # the body did not end either
        ((SSE + b"\r\n", TOKEN), "stream cut after 1 chunks"),
        ((CHUNKED, chunk(DONE)), "the stream ended without a token"),
        ((b"HTTP/1.1 429 Slow\r\nContent-Length: 4\r\n\r\nwait",), "HTTP 429: wait"),
        ((b"HTTP/1.1 500 Oops\r\n\r\n",), "HTTP 500"),
    ],
)
def test_incomplete_answers(parts, error):
    (answer,), _ = asyncio.run(ask(*parts))
    assert (answer.status, answer.error) == ("error", error)
    assert answer.end_ns is not None


WHOLE = (CHUNKED, chunk(TOKEN) + chunk(LAST), chunk(DONE), b"0\r\n\r\n")


def test_kept_connection_serves_many():
    answers, connections = asyncio.run(ask(*WHOLE, requests=3, keepalive=True, serves=3))
    assert [a.status for a in answers] == ["ok"] * 3
    assert connections == 1


@pytest.mark.parametrize("pause", [0.0, 0.1], ids=["closed on use", "closed while idle"])
def test_stale_connection_is_no_failure(pause):
    answers, connections = asyncio.run(ask(*WHOLE, requests=3, keepalive=True, pause=pause))
    assert [(a.status, a.error, len(a.chunk_ns)) for a in answers] == [("ok", None, 2)] * 3
    assert connections == 3


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "tls"),
    [
        ("http://a:8000", "a", 8000, "/v1/completions", False),
        ("http://a:8000/v1/", "a", 8000, "/v1/completions", False),
        ("https://gw.example/llm", "gw.example", 443, "/llm/v1/completions", True),
        ("localhost:8000", "localhost", 8000, "/v1/completions", False),
    ],
)
def test_urls(url, host, port, path, tls):
    target = parse_url(url, "completions")
    assert (target.host, target.port, target.path, target.tls) == (host, port, path, tls)
    assert parse_url(url, "chat").path == path.replace("completions", "chat/completions")


@pytest.mark.parametrize("url", ["ftp://a", "http://", "http://a:x"])
def test_no_urls(url):
    with pytest.raises(UsageError, match="is no target: write http://host:port"):
        parse_url(url, "chat")
