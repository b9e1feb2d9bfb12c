"""The span receiver against exporters that are well, broken, too big or too fast (loopback only)."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from whybound.collector.sources.otlp import OtlpAddress, OtlpSource
from whybound.errors import WhyboundError

S = 10**9
T0 = 1_700_000_000 * S
METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
PROTOBUF = {"Content-Type": "application/x-protobuf"}
JSON = {"Content-Type": "application/json"}
Row = dict[str, Any]


def message(ids: list[str], *, start_ns: int = T0) -> bytes:
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add().scope_spans.add()
    group.scope.name = "vllm.tracing.otel"
    for one in ids:
        span = group.spans.add(
            name="llm_request", start_time_unix_nano=start_ns, end_time_unix_nano=start_ns + S
        )
        span.attributes.add(key="gen_ai.request.id").value.string_value = one
        span.attributes.add(key="gen_ai.latency.e2e").value.double_value = 1.0
    return request.SerializeToString()


def document(ids: list[str]) -> bytes:
    spans = [
        {
            "name": "llm_request",
            "startTimeUnixNano": str(T0),
            "endTimeUnixNano": str(T0 + S),
            "attributes": [
                {"key": "gen_ai.request.id", "value": {"stringValue": one}},
                {"key": "gen_ai.latency.e2e", "value": {"doubleValue": 1.0}},
            ],
        }
        for one in ids
    ]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


def received(
    use: Callable[[OtlpAddress, OtlpSource], Awaitable[Any]], **options: Any
) -> tuple[list[Row], dict[str, Any]]:
    """Run a receiver while `use` talks to it; the rows it handed on, and its report."""
    rows: list[Row] = []

    def sink(table: str, batch: list[Row]) -> None:
        assert table == "requests"
        assert batch
        rows.extend(batch)

    async def session() -> dict[str, Any]:
        source = OtlpSource(node="n", sink=sink, **options)
        address = await source.start()
        stop = asyncio.Event()
        task = asyncio.create_task(source.run(stop))
        try:
            await asyncio.wait_for(use(address, source), 20)
        finally:
            stop.set()
            await asyncio.wait_for(task, 20)
        return source.report()

    return rows, asyncio.run(session())


async def send(address: OtlpAddress, body: bytes) -> ExportTraceServiceResponse:
    async with grpc.aio.insecure_channel(address.grpc) as channel:
        answer = await channel.unary_unary(METHOD)(body, timeout=10)
    return ExportTraceServiceResponse.FromString(answer)


async def post(
    address: OtlpAddress, body: bytes, headers: dict[str, str], path: str = "/v1/traces"
) -> tuple[int, bytes]:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
        session.post(address.http + path, data=body, headers=headers) as answer,
    ):
        return answer.status, await answer.read()


# ---------------------------------------------------------------- what is well


def test_grpc_and_http_give_the_same_rows() -> None:
    async def use(address: OtlpAddress, _: OtlpSource) -> None:
        for url in (address.grpc, address.http.removeprefix("http://")):
            host, port = url.split(":")
            assert (host, int(port) > 0) == ("127.0.0.1", True)
        answer = await send(address, message(["cmpl-wb-r-0-0"]))
        assert answer == ExportTraceServiceResponse()
        assert await post(address, message(["cmpl-wb-r-1-0"]), PROTOBUF) == (200, b"")
        status, body = await post(address, document(["cmpl-wb-r-2-0"]), JSON)
        assert (status, json.loads(body)) == (200, {})
        packed = gzip.compress(document(["cmpl-wb-r-3-0"]))
        zipped = {**JSON, "Content-Encoding": "gzip"}
        assert (await post(address, packed, zipped))[0] == 200

    rows, report = received(use)
    assert [r["request_id"] for r in rows] == ["wb-r-0", "wb-r-1", "wb-r-2", "wb-r-3"]
    assert {(r["node"], r["source"], r["server_e2e_s"], r["arrival_ns"]) for r in rows} == {
        ("n", "span", 1.0, T0)
    }
    assert report["exports_count"] == report["spans_count"] == report["rows_count"] == 4
    assert report["bytes_count"] == 2 * len(message(["cmpl-wb-r-0-0"])) + 2 * len(
        document(["cmpl-wb-r-0-0"])
    )
    assert (report["dropped"], report["errors"], report["last_error"]) == ({}, {}, None)
    assert report["nulled"]["queue_wait_s missing"] == 4
    json.dumps(report)


def test_nothing_sent_is_nothing_received() -> None:
    async def use(_: OtlpAddress, __: OtlpSource) -> None:
        await asyncio.sleep(0)

    rows, report = received(use)
    assert (rows, report["spans_count"]) == ([], 0)


def test_rows_come_while_it_runs_and_what_is_left_at_the_end() -> None:
    seen: list[int] = []

    async def use(address: OtlpAddress, source: OtlpSource) -> None:
        await send(address, message(["a"]))
        await asyncio.sleep(0.5)
        seen.append(source.report()["rows_count"])
        await send(address, message(["b"]))

    rows, _ = received(use)
    assert seen == [1]
    assert [r["request_id"] for r in rows] == ["a", "b"]


def test_slices_of_one_process_reach_the_root_of_another() -> None:
    def sglang(*spans: tuple[str, float, dict[str, str | float]]) -> bytes:
        request = ExportTraceServiceRequest()
        group = request.resource_spans.add().scope_spans.add()
        for name, seconds, told in spans:
            span = group.spans.add(
                name=name, trace_id=b"t" * 16, start_time_unix_nano=T0,
                end_time_unix_nano=T0 + int(seconds * S),
            )  # fmt: skip
            for key, value in told.items():
                content = span.attributes.add(key=key).value
                if isinstance(value, str):
                    content.string_value = value
                else:
                    content.double_value = value
        return request.SerializeToString()

    async def use(address: OtlpAddress, _: OtlpSource) -> None:
        await send(address, sglang(("prefill_waiting", 0.25, {}), ("prefill_forward", 0.5, {})))
        await send(address, sglang(("Req a", 2.0, {"rid": "a", "gen_ai.latency.e2e": 2.0})))

    rows, report = received(use)
    assert [(r["queue_wait_s"], r["prefill_s"]) for r in rows] == [(0.25, 0.5)]
    assert report["dropped"] == {}


# ---------------------------------------------------------------- what is broken


@pytest.mark.parametrize(
    ("body", "headers", "status", "kind"),
    [
        (b"\xff\xff\xff", PROTOBUF, 400, "malformed"),
        (message(["a"])[:-3], PROTOBUF, 400, "malformed"),
        (b"{", JSON, 400, "malformed"),
        (b"[]", JSON, 400, "malformed"),
        (b'{"resourceSpans": 7}', JSON, 400, "malformed"),
        (b"\xff", JSON, 400, "malformed"),
        (b"[" * 100_000, JSON, 400, "malformed"),
        (b"no gzip", {**JSON, "Content-Encoding": "gzip"}, 400, "malformed"),
        (gzip.compress(b"{}")[:-4], {**JSON, "Content-Encoding": "gzip"}, 400, "malformed"),
        (b"{}", {**JSON, "Content-Encoding": "br"}, 415, "unsupported"),
        (b"{}", {"Content-Type": "text/plain"}, 415, "unsupported"),
        (b" " * 100_001, JSON, 413, "too_large"),
        (gzip.compress(b" " * 100_001), {**JSON, "Content-Encoding": "gzip"}, 413, "too_large"),
    ],
)
def test_what_is_broken_is_refused_and_counted(
    body: bytes, headers: dict[str, str], status: int, kind: str
) -> None:
    async def use(address: OtlpAddress, _: OtlpSource) -> None:
        assert (await post(address, body, headers))[0] == status
        assert (await post(address, document(["after"]), JSON))[0] == 200

    rows, report = received(use, max_message_bytes=100_000)
    assert [r["request_id"] for r in rows] == ["after"]
    assert report["errors"] == {kind: 1}
    assert report["last_error"]
    assert "\n" not in report["last_error"]


def test_a_small_bomb_is_refused_by_its_ratio() -> None:
    body = gzip.compress(b" " * 2_000_000)  # far below the size limit
    assert 2_000_000 / len(body) > 200

    async def use(address: OtlpAddress, _: OtlpSource) -> None:
        status, text = await post(address, body, {**JSON, "Content-Encoding": "gzip"})
        assert (status, b"inflates" in text) == (413, True)

    assert received(use)[1]["errors"] == {"too_large": 1}


def test_other_paths_and_methods_are_not_there() -> None:
    async def use(address: OtlpAddress, _: OtlpSource) -> None:
        assert (await post(address, document(["a"]), JSON, path="/v1/metrics"))[0] == 404
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{address.http}/v1/traces") as answer,
        ):
            assert answer.status == 405

    assert received(use)[0] == []


def test_grpc_refuses_what_is_broken_or_too_big_and_goes_on() -> None:
    async def use(address: OtlpAddress, _: OtlpSource) -> None:
        for body, code in (
            (b"\xff\xff\xff", grpc.StatusCode.INVALID_ARGUMENT),
            (b"x" * 100_001, grpc.StatusCode.RESOURCE_EXHAUSTED),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await send(address, body)
            assert refused.value.code() == code
        await send(address, message(["after"]))

    rows, report = received(use, max_message_bytes=100_000)
    assert [r["request_id"] for r in rows] == ["after"]
    assert report["errors"] == {"malformed": 1}  # gRPC itself refuses the other


def test_a_taken_port_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        async def start(**ports: int) -> None:
            await OtlpSource(node="n", sink=lambda *_: None, **ports).start()

        for ports in ({"grpc_port": port}, {"http_port": port}):
            with pytest.raises(WhyboundError, match=f"port {port} .* taken"):
                asyncio.run(start(**ports))


def test_a_sink_that_fails_costs_its_rows_and_nothing_else() -> None:
    calls: list[int] = []

    def sink(_: str, batch: list[Row]) -> None:
        calls.append(len(batch))
        if len(calls) == 1:
            raise OSError("disk full")

    async def session() -> dict[str, Any]:
        source = OtlpSource(node="n", sink=sink)
        address = await source.start()
        stop = asyncio.Event()
        task = asyncio.create_task(source.run(stop))
        await send(address, message(["a", "b"]))
        await asyncio.sleep(0.4)
        await send(address, message(["c"]))
        stop.set()
        await task
        return source.report()

    report = asyncio.run(session())
    assert calls == [2, 1]
    assert report["errors"] == {"sink": 1}
    assert report["last_error"] == "2 rows lost: disk full"


# ---------------------------------------------------------------- what is too much


def test_a_flood_is_bounded_and_what_is_lost_is_counted() -> None:
    rejected: list[int] = []

    async def use(address: OtlpAddress, _: OtlpSource) -> None:
        async with grpc.aio.insecure_channel(address.grpc) as channel:
            call = channel.unary_unary(METHOD)
            bodies = [message([f"{i}-{j}" for j in range(100)]) for i in range(50)]
            answers = await asyncio.gather(*[call(body, timeout=15) for body in bodies])
        for answer in answers:
            response = ExportTraceServiceResponse.FromString(answer)
            rejected.append(response.partial_success.rejected_spans)

    rows, report = received(use, max_rows_per_s=200)
    assert 200 <= len(rows) < 2_000  # a second's burst, and 200 for each second it took
    assert report["spans_count"] == 5_000
    assert report["rows_count"] == len(rows)
    assert report["dropped"] == {"rate": 5_000 - len(rows)}
    assert sum(rejected) == 5_000 - len(rows)


def test_a_flood_of_big_exports_at_once_has_one_allowance() -> None:
    big = message([f"{'x' * 150}-{i}" for i in range(6_000)])
    assert len(big) > 1 << 18  # these are read in a thread

    async def use(address: OtlpAddress, _: OtlpSource) -> None:
        await asyncio.gather(*[send(address, big) for _ in range(4)])

    rows, report = received(use, max_rows_per_s=1_000)
    assert 1_000 <= len(rows) < 6_000
    assert len(rows) + report["dropped"]["rate"] == 24_000


def test_duplicates_are_kept_and_counted_whatever_their_order() -> None:
    async def use(address: OtlpAddress, _: OtlpSource) -> None:
        await send(address, message(["a", "b"], start_ns=T0 + S))
        await send(address, message(["a"], start_ns=T0))
        await send(address, message(["c", "c"], start_ns=T0 - S))

    rows, report = received(use)
    assert [(r["request_id"], (r["arrival_ns"] - T0) // S) for r in rows] == [
        ("a", 1), ("b", 1), ("a", 0), ("c", -1), ("c", -1),
    ]  # fmt: skip
    assert (report["rows_count"], report["duplicates_count"]) == (5, 2)


# ---------------------------------------------------------------- the emulated engine


def test_the_emulated_engine_s_spans_carry_the_client_s_ids() -> None:
    async def use(address: OtlpAddress, _: OtlpSource) -> None:
        engine = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "whybound.fixtures.engine", "--port", "0", "--speed", "8",
            "--otlp-traces-endpoint", f"grpc://{address.grpc}", stdout=subprocess.PIPE,
        )  # fmt: skip
        assert engine.stdout
        log = ""
        while "startup complete" not in log:
            log += (await engine.stdout.readline()).decode()
        found = re.search(r"http://\S+", log)
        assert found
        try:
            async with aiohttp.ClientSession(found[0]) as session:
                for i, path in enumerate(("completions", "chat/completions")):
                    prompt = (
                        {"messages": [{"role": "user", "content": "x"}]} if i else {"prompt": "x"}
                    )
                    async with session.post(
                        f"/v1/{path}",
                        json={**prompt, "max_tokens": 4},
                        headers={"X-Request-Id": f"wb-r-{i}"},
                    ) as answer:
                        assert answer.status == 200
        finally:
            engine.terminate()  # it sends what is left when it ends
            await engine.communicate()

    rows, report = received(use)
    assert {r["request_id"] for r in rows} == {"wb-r-0", "wb-r-1"}
    assert (report["nulled"], report["dropped"]) == ({}, {})
    for row in rows:
        phases = row["queue_wait_s"] + row["prefill_s"] + row["decode_s"]
        assert 0 < phases <= row["server_e2e_s"] + 1e-6
        assert row["prefill_s"] < row["server_ttft_s"] <= row["server_e2e_s"]
        assert row["output_tokens"] == 4
        # Its span covers its end-to-end time, on the wall clock.
        assert (row["end_ns"] - row["arrival_ns"]) / S == pytest.approx(
            row["server_e2e_s"], abs=1e-5
        )


def test_the_emulated_engine_lives_without_a_collector() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        closed = other.getsockname()[1]
    engine = subprocess.Popen(
        [
            sys.executable, "-m", "whybound.fixtures.engine", "--port", "0", "--speed", "8",
            "--otlp-traces-endpoint", f"127.0.0.1:{closed}",
        ],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert engine.stdout
    try:
        log = ""
        while "startup complete" not in log:
            log += engine.stdout.readline()
        found = re.search(r"http://\S+", log)
        assert found

        async def ask() -> int:
            async with (
                aiohttp.ClientSession(found[0]) as session,
                session.post("/v1/completions", json={"prompt": "x", "max_tokens": 3}) as answer,
            ):
                return answer.status

        assert asyncio.run(ask()) == 200
        engine.terminate()
        assert engine.wait(10) == 0
    finally:
        engine.kill()
        engine.wait()
        engine.stdout.close()
