"""Receives OTLP spans on loopback, over gRPC and HTTP, and hands request rows on.

A server's exporter must never be held up or harmed by us: what comes too fast, too big or broken is
refused or dropped, and counted.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec
from aiohttp import web

from ...errors import WhyboundError
from ..spans import SpanRows, span_rows

Row = dict[str, Any]

SERVICE = "opentelemetry.proto.collector.trace.v1.TraceService"
MAX_RATIO = 200
"""A body that inflates to more than this many times its size is refused."""

_FLUSH_S = 0.2
_GRACE_S = 1.0
_AT_ONCE = 8  # exports in memory at a time
_THREAD_BYTES = 1 << 18  # a larger export is read in a thread, so that the event loop goes on
_REMEMBERED_IDS = 20_000
_REMEMBERED_TRACES = 10_000


@dataclass(frozen=True)
class OtlpAddress:
    """Where spans are taken: `grpc` is host:port, `http` a URL to which /v1/traces belongs."""

    grpc: str
    http: str


class _BadExportError(Exception):
    """An export that is refused: `kind` counts it, `status` is HTTP's."""

    def __init__(self, kind: str, status: int, text: str) -> None:
        super().__init__(text)
        self.kind, self.status = kind, status


class OtlpSource:
    """One receiver, for as long as a run lasts."""

    def __init__(
        self,
        *,
        node: str,
        sink: Callable[[str, list[Row]], None],
        grpc_port: int = 0,
        http_port: int = 0,
        max_rows_per_s: int = 20_000,
        max_message_bytes: int = 16 << 20,
    ) -> None:
        """Prepare; nothing listens before `start`.

        Args:
            node: host that records.
            sink: takes the name of a table and rows for it, some five times a second.
            grpc_port: port on 127.0.0.1; 0 takes a free one.
            http_port: the same for HTTP.
            max_rows_per_s: rows above this, after a second's burst, are dropped and counted.
            max_message_bytes: of one export, inflated; a larger one is refused.
        """
        self._node, self._sink = node, sink
        self._ports = (grpc_port, http_port)
        self._max_rows, self._max_bytes = max_rows_per_s, max_message_bytes
        self._allowance, self._allowed_at = float(max_rows_per_s), time.monotonic()
        self._waiting: list[Row] = []
        self._slices: dict[str, dict[str, float]] = {}
        self._ids: dict[str, None] = {}
        self._counts: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._nulled: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._last_error: str | None = None
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._one_at_a_time = asyncio.Lock()  # or each would have the whole allowance
        self._grpc: Any = None
        self._http: web.AppRunner | None = None
        self._message: Any = None

    async def start(self) -> OtlpAddress:
        """Listen on loopback.

        Raises:
            WhyboundError: a port is taken, or grpcio or opentelemetry-proto is not installed.
        """
        try:
            import grpc
            from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
        except ImportError as error:
            raise WhyboundError(
                f"spans cannot be received: {error}; pip install grpcio opentelemetry-proto"
            ) from error
        self._message = trace_service_pb2
        handler = grpc.unary_unary_rpc_method_handler(self._export_grpc)  # bytes in, bytes out
        self._grpc = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", self._max_bytes),
                ("grpc.so_reuseport", 0),  # a port that is taken must be an error
            ],
            maximum_concurrent_rpcs=4 * _AT_ONCE,
        )
        self._grpc.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"Export": handler}),)
        )
        try:
            port = self._grpc.add_insecure_port(f"127.0.0.1:{self._ports[0]}")
        except RuntimeError as error:
            raise _taken(self._ports[0]) from error
        await self._grpc.start()
        # Bodies are inflated by us: aiohttp has no limit on the ratio.
        app = web.Application(client_max_size=self._max_bytes)
        app.router.add_post("/v1/traces", self._export_http)
        self._http = web.AppRunner(
            app, access_log=None, auto_decompress=False, shutdown_timeout=_GRACE_S
        )
        await self._http.setup()
        try:
            await web.TCPSite(self._http, "127.0.0.1", self._ports[1]).start()
        except OSError as error:
            await self._close()
            raise _taken(self._ports[1]) from error
        return OtlpAddress(f"127.0.0.1:{port}", f"http://127.0.0.1:{self._http.addresses[0][1]}")

    async def run(self, stop: asyncio.Event) -> None:
        """Hand rows on until `stop` is set, then stop listening; never raises.

        Servers export in batches, a few seconds late: set `stop` after the server has ended.
        """
        while not stop.is_set():
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stop.wait(), _FLUSH_S)
            self._flush()
        await self._close()
        self._flush()

    def report(self) -> dict[str, Any]:
        """What came and what became of it.

        Keys: `exports_count`, `spans_count` (all spans), `rows_count` (requests handed on),
        `duplicates_count` (of them with an id that came before; the reader takes the last),
        `bytes_count` (exports, inflated), `dropped` and `nulled` (by reason, see `SpanRows`),
        `errors` (exports refused, by kind: malformed, too_large, unsupported; and sink), `last_error`.
        An export over the size limit that comes by gRPC is refused before it can be counted.
        """
        counts = ("exports", "spans", "rows", "duplicates", "bytes")
        return {
            **{f"{name}_count": self._counts[name] for name in counts},
            "dropped": dict(self._dropped),
            "nulled": dict(self._nulled),
            "errors": dict(self._errors),
            "last_error": self._last_error,
        }

    async def _export_grpc(self, body: bytes, context: Any) -> bytes:
        import grpc

        async with self._slots:
            try:
                return await self._take(body, self._message.ExportTraceServiceRequest.FromString)
            except _BadExportError as error:
                self._refused(error)
                refusal = str(error)
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, refusal)
        raise AssertionError  # abort has raised

    async def _export_http(self, request: web.Request) -> web.Response:
        async with self._slots:
            try:
                json = request.content_type == "application/json"
                if not json and request.content_type != "application/x-protobuf":
                    raise _BadExportError(
                        "unsupported", 415, f"content type {request.content_type[:80]!r}"
                    )
                body = self._inflated(await self._body(request), request)
                read = _json if json else self._message.ExportTraceServiceRequest.FromString
                answer = await self._take(body, read)
            except _BadExportError as error:
                self._refused(error)
                return web.Response(status=error.status, text=str(error))
        if json:  # a partial success has few words, and no exporter needs them
            return web.json_response({})
        return web.Response(body=answer, content_type="application/x-protobuf")

    async def _body(self, request: web.Request) -> bytes:
        try:
            return await request.read()
        except web.HTTPRequestEntityTooLarge as error:
            raise _BadExportError("too_large", 413, f"over {self._max_bytes} bytes") from error

    def _inflated(self, body: bytes, request: web.Request) -> bytes:
        encoding = request.headers.get("Content-Encoding", "identity").lower()
        if encoding == "identity":
            return body
        if encoding != "gzip":
            raise _BadExportError("unsupported", 415, f"content encoding {encoding[:80]!r}")
        most = min(self._max_bytes, MAX_RATIO * len(body))
        inflater = zlib.decompressobj(wbits=31)
        try:
            plain = inflater.decompress(body, most + 1)
        except zlib.error as error:
            raise _BadExportError("malformed", 400, f"not gzip: {error}") from error
        if len(plain) > most:
            raise _BadExportError("too_large", 413, f"inflates to over {most} bytes")
        if not inflater.eof or inflater.unused_data:
            raise _BadExportError("malformed", 400, "not one whole gzip")
        return plain

    async def _take(self, body: bytes, read: Callable[[bytes], Any]) -> bytes:
        """Read one export and keep its rows; the protobuf answer."""
        async with self._one_at_a_time:
            return await self._take_alone(body, read)

    async def _take_alone(self, body: bytes, read: Callable[[bytes], Any]) -> bytes:
        allowed = self._allowed_rows()
        received_ns = time.time_ns()

        def rows() -> SpanRows:
            try:
                export = read(body)
            except Exception as error:  # protobuf, JSON and recursion errors have no common root
                text = " ".join(str(error).split()) or type(error).__name__
                raise _BadExportError("malformed", 400, f"not an export: {text[:200]}") from error
            return span_rows(
                export,
                node=self._node,
                received_ns=received_ns,
                slices=self._slices,
                max_rows=allowed,
            )

        big = len(body) >= _THREAD_BYTES
        found = await asyncio.to_thread(rows) if big else rows()
        self._keep(found, len(body))
        answer = self._message.ExportTraceServiceResponse()
        if found.dropped.get("rate"):
            answer.partial_success.rejected_spans = found.dropped["rate"]
        return bytes(answer.SerializeToString())

    def _keep(self, found: SpanRows, size: int) -> None:
        self._allowance -= len(found.requests)
        self._waiting += found.requests
        self._counts.update(
            exports=1, spans=found.spans_count, rows=len(found.requests), bytes=size
        )
        self._dropped.update(found.dropped)
        self._nulled.update(found.nulled)
        for row in found.requests:
            self._counts["duplicates"] += row["request_id"] in self._ids
            self._ids[row["request_id"]] = None
        for trace, told in found.slices.items():
            self._slices[trace] = {**self._slices.get(trace, {}), **told}
        _forget(self._ids, _REMEMBERED_IDS)
        _forget(self._slices, _REMEMBERED_TRACES)

    def _allowed_rows(self) -> int:
        now = time.monotonic()
        grown = self._allowance + (now - self._allowed_at) * self._max_rows
        self._allowance, self._allowed_at = min(float(self._max_rows), grown), now
        return max(0, int(self._allowance))

    def _refused(self, error: _BadExportError) -> None:
        self._errors[error.kind] += 1
        self._last_error = str(error)

    def _flush(self) -> None:
        rows, self._waiting = self._waiting, []
        if not rows:
            return
        try:
            self._sink("requests", rows)
        except Exception as error:  # a receiver must not take the run down with it
            self._errors["sink"] += 1
            self._last_error = f"{len(rows)} rows lost: {error}"

    async def _close(self) -> None:
        if self._grpc is not None:
            await self._grpc.stop(_GRACE_S)
        if self._http is not None:
            await self._http.cleanup()


def _json(body: bytes) -> Any:
    export = msgspec.json.decode(body)
    if not isinstance(export, dict) or not isinstance(export.get("resourceSpans", []), list):
        raise TypeError("no object with resourceSpans")
    return export


def _forget(remembered: dict[str, Any], most: int) -> None:
    """Drop the oldest entries above `most`."""
    for key in list(islice(remembered, max(0, len(remembered) - most))):
        del remembered[key]


def _taken(port: int) -> WhyboundError:
    return WhyboundError(f"spans: port {port} on 127.0.0.1 is taken; use another, or 0")
