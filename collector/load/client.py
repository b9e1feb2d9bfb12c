"""One streaming request: sent, and every chunk of its answer stamped as it leaves the socket."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from ...errors import UsageError
from .http1 import BadResponseError, ResponseParser
from .sse import Lines, Stream, one_line

Status = Literal["ok", "error", "timeout", "refused", "unfinished"]
_ERROR_BODY_BYTES = 2000


@dataclass(frozen=True)
class Target:
    """Where requests go. `address` is what to connect to: resolved once, not for every request."""

    host: str
    port: int
    path: str
    tls: bool
    address: str

    @property
    def name(self) -> str:
        """host:port, as in the table's `replica`."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_url(url: str, api: str, address: str | None = None) -> Target:
    """The target of an API at `http://host:port`, with or without a path and `/v1`.

    Raises:
        UsageError: it is no http or https URL.
    """
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
        raise UsageError(f"{url!r} is no target: write http://host:port")
    base = parts.path.rstrip("/").removesuffix("/v1")
    path = f"{base}/v1/{'chat/completions' if api == 'chat' else 'completions'}"
    tls = parts.scheme == "https"
    return Target(
        parts.hostname, port or (443 if tls else 80), path, tls, address or parts.hostname
    )


@dataclass
class Answer:
    """What became of one request; times in monotonic ns, None when it did not come to that."""

    begun_ns: int = 0
    sent_ns: int | None = None
    end_ns: int | None = None
    http_status: int | None = None
    chunk_ns: list[int] = field(default_factory=list)
    status: Status = "unfinished"
    error: str | None = None
    stream: Stream = field(default_factory=Stream)


class _Exchange:
    """The answer as its bytes arrive; knows HTTP and events, not sockets."""

    def __init__(self, answer: Answer, whole_body: bool) -> None:
        self.answer = answer
        self.http = ResponseParser()
        self.got_bytes = False
        # [DONE] ends the answer; only a connection that will be reused must read on to the end.
        self._whole_body = whole_body
        self._done_ns: int | None = None
        self._lines = Lines()
        self._plain = b""

    def feed(self, data: bytes, now_ns: int) -> bool:
        """Take bytes; True when the answer is complete, well or badly."""
        self.got_bytes = True
        answer, stream = self.answer, self.answer.stream
        try:
            body = self.http.feed(data)
        except BadResponseError as error:
            return self._end("error", str(error), now_ns)
        if self.http.status is None:
            return False
        answer.http_status = self.http.status
        if self.http.status != 200 or "event-stream" not in self.http.headers.get(
            "content-type", ""
        ):
            self._plain = (self._plain + body)[:_ERROR_BODY_BYTES]
            return self._plain_end(now_ns) if self.http.complete else False
        for line in self._lines.feed(body):
            if stream.take(line):
                answer.chunk_ns.append(now_ns)
        if stream.error is not None:
            return self._end("error", stream.error, now_ns)
        if stream.done and self._done_ns is None:
            self._done_ns = now_ns
        if self.http.complete or (stream.done and not self._whole_body):
            return self.closed(None, now_ns)
        return False

    def closed(self, error: Exception | None, now_ns: int) -> bool:
        """No more bytes will come."""
        answer, stream = self.answer, self.answer.stream
        if answer.http_status is None:
            return self._end("error", "connection closed before the answer began", now_ns)
        if answer.http_status != 200 or self._plain:
            return self._plain_end(now_ns)
        if not stream.done and stream.take(self._lines.rest()):
            answer.chunk_ns.append(now_ns)
        whole = stream.done or (stream.finished and (self.http.complete or self.http.until_close))
        if whole and not answer.chunk_ns and stream.output_tokens is None:
            return self._end("error", "the stream ended without a token", now_ns)
        if whole:
            return self._end("ok", None, self._done_ns or now_ns)
        why = f": {error}" if error else ""
        return self._end("error", f"stream cut after {len(answer.chunk_ns)} chunks{why}", now_ns)

    def _plain_end(self, now_ns: int) -> bool:
        status, text = self.answer.http_status, one_line(self._plain)
        what = "the answer is not an event stream" if status == 200 else f"HTTP {status}"
        return self._end("error", f"{what}: {text}" if text else what, now_ns)

    def _end(self, status: Status, error: str | None, now_ns: int) -> bool:
        self.answer.status, self.answer.error, self.answer.end_ns = status, error, now_ns
        return True


class _Connection(asyncio.Protocol):
    """One TCP connection, one request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.exchange: _Exchange | None = None
        self.done: asyncio.Future[None] | None = None
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def send(self, exchange: _Exchange, data: bytes) -> asyncio.Future[None]:
        assert self.transport is not None
        self.exchange = exchange
        self.done = asyncio.get_running_loop().create_future()
        self.transport.write(data)
        exchange.answer.sent_ns = time.monotonic_ns()
        return self.done

    def data_received(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()  # first of all: parsing must not count as the server's time
        if self.exchange is not None and self.exchange.feed(data, now_ns):
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        if self.exchange is not None:
            self.exchange.closed(exc, time.monotonic_ns())
            self._finish()

    def _finish(self) -> None:
        self.exchange = None
        if self.done is not None and not self.done.done():
            self.done.set_result(None)

    def close(self) -> None:
        self.exchange = None
        if self.transport is not None:
            self.transport.abort()


class Client:
    """Sends requests to one target; with `keepalive` it reuses connections."""

    def __init__(
        self, target: Target, timeout_s: float, keepalive: bool = False, api_key: str | None = None
    ) -> None:
        self._target, self._timeout_s, self._keepalive = target, timeout_s, keepalive
        self._idle: list[_Connection] = []
        self._tls = ssl.create_default_context() if target.tls else None
        lines = [
            f"POST {target.path} HTTP/1.1", f"Host: {target.name}", "Accept: text/event-stream",
            "Content-Type: application/json",
            f"Connection: {'keep-alive' if keepalive else 'close'}",
        ]  # fmt: skip
        if api_key:
            lines.append(f"Authorization: Bearer {api_key}")
        self._head = "\r\n".join(lines) + "\r\n"

    async def request(
        self, body: bytes, request_id: str, answer: Answer, on_sent: Callable[[], None]
    ) -> None:
        """Send one request and fill `answer`; failures are its status, never an exception.

        Cancelling leaves `answer` unfinished, with what had come until then.

        Args:
            body: the JSON body.
            request_id: goes out as X-Request-Id.
            answer: filled as things happen.
            on_sent: called when the bytes were handed to the socket.
        """
        loop = asyncio.get_running_loop()
        head = f"{self._head}X-Request-Id: {request_id}\r\nContent-Length: {len(body)}\r\n\r\n"
        answer.begun_ns = time.monotonic_ns()
        deadline = loop.time() + self._timeout_s
        connection: _Connection | None = None
        announced = False
        try:
            while True:
                reused = bool(self._idle)
                connection = self._idle.pop() if reused else await self._connect()
                if connection.lost:
                    continue
                exchange = _Exchange(answer, self._keepalive)
                done = connection.send(exchange, head.encode() + body)
                if not announced:
                    on_sent()
                announced = True
                expiry = loop.call_at(deadline, _expire, answer, done)
                try:
                    await done
                finally:
                    expiry.cancel()
                # A server may close an idle connection just as it is used again: not its failure.
                if reused and connection.lost and not exchange.got_bytes:
                    answer.status, answer.error, answer.end_ns = "unfinished", None, None
                    continue
                break
            self._put_back(connection, exchange)
        except asyncio.TimeoutError:
            _fail(answer, "timeout", f"no connection within {self._timeout_s:g} s")
        except ConnectionRefusedError:
            _fail(answer, "refused", f"connection refused by {self._target.name}")
        except OSError as error:
            _fail(answer, "error", f"cannot connect to {self._target.name}: {error}")
        finally:
            if connection is not None and connection not in self._idle:
                connection.close()

    async def _connect(self) -> _Connection:
        target = self._target
        _, connection = await asyncio.wait_for(
            asyncio.get_running_loop().create_connection(
                _Connection, target.address, target.port, ssl=self._tls,
                server_hostname=target.host if target.tls else None,
            ),
            self._timeout_s,
        )  # fmt: skip
        return connection

    def _put_back(self, connection: _Connection, exchange: _Exchange) -> None:
        closing = exchange.http.headers.get("connection", "").lower() == "close"
        if self._keepalive and exchange.http.complete and not closing and not connection.lost:
            self._idle.append(connection)

    def close(self) -> None:
        """Close what is idle."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()


def _expire(answer: Answer, done: asyncio.Future[Any]) -> None:
    if not done.done():
        _fail(answer, "timeout", f"not finished in time, {len(answer.chunk_ns)} chunks had come")
        done.set_result(None)


def _fail(answer: Answer, status: Status, error: str) -> None:
    answer.status, answer.error, answer.end_ns = status, error, time.monotonic_ns()
