"""The source against servers that are well, slow, gone, odd or huge (loopback only)."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from whybound.collector.sources.prometheus import PrometheusSource
from whybound.errors import WhyboundError

PAGE = (Path(__file__).parent / "pages" / "vllm_0_33.txt").read_text()
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def text_page(body: str | bytes, content_type: str = "text/plain", status: int = 200) -> Handler:
    async def handler(_: web.Request) -> web.Response:
        raw = body.encode() if isinstance(body, str) else body
        return web.Response(body=raw, content_type=content_type, status=status)

    return handler


async def with_server(
    routes: dict[str, Handler], use: Callable[[str], Awaitable[dict[str, Any]]]
) -> dict[str, Any]:
    app = web.Application()
    for path, handler in routes.items():
        app.router.add_get(path, handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        return await use(f"http://127.0.0.1:{port}")
    finally:
        await runner.cleanup()


def measure(
    routes: dict[str, Handler], *, path: str = "", run_s: float = 0.0, **options: Any
) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """Run a source against a server for `run_s` seconds: its report, and its rows by table."""
    tables: dict[str, list[dict[str, Any]]] = {"samples": [], "histograms": [], "settings": []}

    async def use(url: str) -> dict[str, Any]:
        given = {"node": "n1", "replica": "h:1", "interval_s": 10.0} | options
        source = PrometheusSource(
            url=url + path, sink=lambda table, rows: tables[table].extend(rows), **given
        )
        stop = asyncio.Event()
        task = asyncio.create_task(source.run(stop))
        await asyncio.sleep(run_s)
        stop.set()
        await asyncio.wait_for(task, 20)
        return source.report()

    return asyncio.run(with_server(routes, use)), tables


def signals(rows: list[dict[str, Any]]) -> set[str]:
    return {row["signal"] for row in rows}


def test_a_well_server_is_scraped_at_once_and_at_the_end() -> None:
    before = time.time_ns()
    report, tables = measure({"/metrics": text_page(PAGE)})
    running = [r for r in tables["samples"] if r["signal"] == "engine_running_count"]
    assert [r["value"] for r in running] == [8.0, 8.0]
    assert before < running[0]["t_ns"] < running[1]["t_ns"] < time.time_ns()
    assert len([r for r in tables["histograms"] if r["signal"] == "ttft_s"]) == 1  # unchanged
    assert len([r for r in tables["settings"] if r["key"] == "block_size"]) == 1
    assert (report["scrapes_ok"], report["scrapes_failed"]) == (2, 0)
    assert (report["engine"], report["unmapped"], report["absent"]) == ("vllm", {}, [])
    assert (report["last_error"], report["warning"], report["gaps"]) == (None, None, [])
    assert report["bytes_max"] == report["bytes_mean"] == len(PAGE)
    assert 0 < report["parse_mean_s"] <= report["parse_max_s"]
    assert 0 < report["fetch_mean_s"] <= report["fetch_max_s"]


def test_the_schedule_does_not_drift_and_overruns_are_skipped() -> None:
    asked: list[float] = []

    async def slow_once(_: web.Request) -> web.Response:
        asked.append(time.monotonic())
        await asyncio.sleep(0.25 if len(asked) == 1 else 0.03)
        return web.Response(text=PAGE)

    report, _ = measure({"/metrics": slow_once}, run_s=0.95, interval_s=0.1)
    assert report["scrapes_skipped"] >= 2
    # Every scrape but the last (at the stop) stands on the grid of the first, late at most.
    late = [((t - asked[0]) / 0.1) % 1 for t in asked[:-1]]
    assert all(x < 0.7 or x > 0.99 for x in late), late
    assert 6 <= report["scrapes_ok"] <= 10


def test_a_scrape_can_be_asked_for_between_two_ticks() -> None:
    async def use(url: str) -> dict[str, Any]:
        source = PrometheusSource(
            url=url, node="n", replica="r", interval_s=60, sink=lambda *_: None
        )
        stop = asyncio.Event()
        task = asyncio.create_task(source.run(stop))
        for expected in (1, 2):
            while source.report()["scrapes_ok"] < expected:
                await asyncio.sleep(0.01)
            source.scrape_now()
        while source.report()["scrapes_ok"] < 3:
            await asyncio.sleep(0.01)
        stop.set()
        await task
        return source.report()

    report = asyncio.run(asyncio.wait_for(with_server({"/metrics": text_page(PAGE)}, use), 10))
    assert (report["scrapes_ok"], report["scrapes_skipped"]) == (4, 0)


def test_the_time_is_the_middle_of_the_request() -> None:
    async def slow(_: web.Request) -> web.Response:
        await asyncio.sleep(0.2)
        return web.Response(text=PAGE)

    before = time.time_ns()
    _, tables = measure({"/metrics": slow})
    assert 0.09e9 <= tables["samples"][0]["t_ns"] - before <= 0.19e9


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (text_page("gone", status=404), " 404"),
        (text_page("broken", status=500), " 500"),
        (text_page("{}", status=501), " 501 (llama.cpp: start it with --metrics)"),
        (text_page("<html><body>hi 1</body></html>", "text/html"), " is HTML, not metrics"),
        (text_page("<!doctype html>"), " is HTML, not metrics"),
        (text_page('[{"iter": 1}]', "application/json"), " is JSON, not metrics"),
        (text_page(""), " is empty"),
        (text_page("# TYPE vllm:num_requests_running gauge\n"), " has no samples yet"),
        (text_page(b"\x1f\x8b\x08\x00\xff\xfe"), " is not metrics: no line of it could be read"),
    ],
)
def test_what_is_no_metrics_page_is_told_in_one_line(handler: Handler, says: str) -> None:
    report, tables = measure({"/metrics": handler})
    assert report["last_error"].startswith("GET http://127.0.0.1:")
    assert report["last_error"].endswith("/metrics" + says)
    assert (report["scrapes_ok"], report["scrapes_failed"]) == (0, 2)
    assert not any(tables.values())
    [[begin, end]] = report["gaps"]
    assert begin > 0
    assert end is None
    assert report["parse_mean_s"] is None


def test_the_second_path_is_tried_and_then_kept() -> None:
    asked: list[str] = []

    async def json_here(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.json_response([{"iter": 1}])

    async def metrics_there(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(text=PAGE)

    report, _ = measure({"/metrics": json_here, "/prometheus/metrics": metrics_there}, path="/")
    assert asked == ["/metrics", "/prometheus/metrics", "/prometheus/metrics"]
    assert (report["scrapes_ok"], report["scrapes_failed"]) == (2, 0)
    assert report["url"].endswith("/prometheus/metrics")


def test_a_given_path_is_the_only_one() -> None:
    report, _ = measure({"/metrics": text_page(PAGE)}, path="/stats")
    assert report["last_error"].endswith("/stats 404")


def test_a_page_cut_by_its_server_keeps_its_whole_lines() -> None:
    half = PAGE.encode()[: PAGE.index("vllm:num_requests_waiting_by_reason{") + 30]

    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(PAGE))})
        await response.prepare(request)
        await response.write(half)
        assert request.transport is not None
        request.transport.close()
        return response

    report, tables = measure({"/metrics": cut})
    assert {"engine_running_count", "engine_waiting_count"} <= signals(tables["samples"])
    assert report["scrapes_truncated"] == report["scrapes_ok"] == 2
    assert report["last_error"].endswith(f" truncated at byte {len(half)}")
    assert report["absent"] == []  # what was cut off is not absent


def test_a_page_that_ends_in_a_line_is_truncated() -> None:
    report, tables = measure({"/metrics": text_page(PAGE[:-300])})
    assert report["last_error"].endswith(f" truncated at byte {len(PAGE) - 300}")
    assert report["bad_lines"] == 2
    assert "ttft_s" in signals(tables["histograms"])


def test_fifty_megabytes_go_through_without_holding_up_the_loop() -> None:
    filler = b'other:thing_bucket{instance="%s",le="0.123456789"} 12345\n' % (b"x" * 250)
    huge = PAGE.encode() + filler * (50 * 1024 * 1024 // len(filler))
    beats: list[float] = []

    async def beat() -> None:
        while True:
            beats.append(time.monotonic())
            await asyncio.sleep(0.02)

    async def use(url: str) -> dict[str, Any]:
        heart = asyncio.create_task(beat())
        source = PrometheusSource(
            url=url,
            node="n",
            replica="r",
            interval_s=60,
            sink=lambda *_: None,
            timeout_s=30,
            max_bytes=64 << 20,
        )
        stop = asyncio.Event()
        task = asyncio.create_task(source.run(stop))
        while not (source.report()["scrapes_ok"] or source.report()["scrapes_failed"]):
            await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        heart.cancel()
        return source.report()

    report = asyncio.run(with_server({"/metrics": text_page(huge)}, use))
    assert (report["scrapes_ok"], report["last_error"]) == (1, None)
    assert report["unmapped"] == {"other:thing_bucket": huge.count(filler)}
    assert report["engine"] == "vllm"
    assert max(b - a for a, b in itertools.pairwise(beats)) < 1.0


def test_a_page_above_the_cap_is_left_out() -> None:
    report, tables = measure({"/metrics": text_page(PAGE)}, max_bytes=1 << 14)
    assert report["last_error"].endswith(" larger than 0.015625 MB, left out")
    assert not any(tables.values())


def test_bytes_that_are_no_utf8_do_not_cost_the_page() -> None:
    raw = PAGE.replace('model_name="tiny"', 'model_name="caf\xe9"').encode("latin-1")
    report, tables = measure({"/metrics": text_page(raw)})
    assert "engine_running_count" in signals(tables["samples"])
    assert (report["bad_lines"], report["absent"]) == (0, [])


def test_a_server_that_hangs_costs_one_timeout() -> None:
    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    began = time.monotonic()
    report, _ = measure({"/metrics": hang}, timeout_s=0.3)
    assert time.monotonic() - began < 3  # no second wait for the scrape at the end
    assert report["last_error"].endswith("/metrics no whole answer in 0.3 s")
    assert report["scrapes_failed"] == 1


def test_a_body_that_never_ends_times_out_too() -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(100):
            await response.write(b"vllm:num_requests_running 1\n")
            await asyncio.sleep(0.1)
        return response

    report, tables = measure({"/metrics": drip}, timeout_s=0.3)
    assert report["last_error"].endswith("no whole answer in 0.3 s")
    assert tables["samples"] == []


def test_a_server_that_dies_and_comes_back_leaves_a_gap() -> None:
    asked = 0

    async def flaky(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        if 3 <= asked <= 5:
            return web.Response(status=503)
        # The restart begins its counters anew; they are stored as they are.
        return web.Response(text=f"vllm:prompt_tokens_total {1000 if asked < 3 else 5}\n")

    report, tables = measure({"/metrics": flaky}, run_s=0.6, interval_s=0.05)
    assert report["scrapes_failed"] == 3
    assert report["scrapes_ok"] >= 4
    [[begin, end]] = report["gaps"]
    assert 0.05e9 < end - begin < 0.5e9
    values = [r["value"] for r in tables["samples"]]
    assert values[:3] == [1000.0, 1000.0, 5.0]
    assert report["last_error"].endswith("503")


def test_nobody_listens() -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    source = PrometheusSource(
        url=f"127.0.0.1:{port}", node="n", replica="r", interval_s=1, sink=lambda *_: None
    )

    async def go() -> None:
        stop = asyncio.Event()
        stop.set()
        await source.run(stop)

    asyncio.run(go())
    assert source.report()["last_error"] == (
        f"GET http://127.0.0.1:{port}/metrics cannot connect (Connection refused)"
    )


def test_a_sink_that_fails_is_reported_not_raised() -> None:
    def full(table: str, rows: list[dict[str, Any]]) -> None:
        raise OSError("No space left on device")

    async def use(url: str) -> dict[str, Any]:
        source = PrometheusSource(url=url, node="n", replica="r", interval_s=9, sink=full)
        stop = asyncio.Event()
        stop.set()
        await source.run(stop)
        return source.report()

    report = asyncio.run(with_server({"/metrics": text_page(PAGE)}, use))
    assert (report["last_error"], report["scrapes_failed"]) == ("No space left on device", 2)


def test_unmapped_and_absent_are_reported() -> None:
    text = PAGE.replace("vllm:kv_cache_usage_perc", "vllm:kv_usage")
    report, _ = measure({"/metrics": text_page(text)})
    assert report["unmapped"] == {"vllm:kv_usage": 1}
    assert report["absent"] == ["kv_used_ratio"]


def test_a_page_of_no_known_engine_is_warned_of() -> None:
    report, tables = measure({"/metrics": text_page("process_cpu_seconds_total 3\n")})
    assert "has no metrics of a known engine" in report["warning"]
    assert signals(tables["samples"]) == {"engine_process_cpu_s"}
    assert report["scrapes_ok"] == 2


def test_the_server_is_not_asked_to_compress_and_credentials_are_not_shown() -> None:
    headers: list[Any] = []

    async def keep(request: web.Request) -> web.Response:
        headers.append(request.headers)
        return web.Response(status=403)

    async def use(url: str) -> dict[str, Any]:
        source = PrometheusSource(
            url=url.replace("//", "//me:secret@"),
            node="n",
            replica="r",
            interval_s=9,
            sink=lambda *_: None,
        )
        stop = asyncio.Event()
        stop.set()
        await source.run(stop)
        return source.report()

    report = asyncio.run(with_server({"/metrics": keep}, use))
    assert headers[0]["Accept-Encoding"] == "identity"
    assert headers[0]["Authorization"].startswith("Basic ")
    assert "secret" not in str(report)
    assert report["last_error"].endswith("/metrics 403")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"url": "ftp://h/metrics"}, "write http://host:port"),
        ({"url": "http://"}, "write http://host:port"),
        ({"url": "http://h:port"}, "not a URL"),
        ({"interval_s": 0}, "must be above 0 s"),
        ({"timeout_s": -1}, "must be above 0 s"),
    ],
)
def test_what_can_be_mended_is_said_before_the_run(options: dict[str, Any], says: str) -> None:
    given = {"url": "http://h:1", "node": "n", "replica": "r", "interval_s": 1.0} | options
    with pytest.raises(WhyboundError, match=says):
        PrometheusSource(sink=lambda *_: None, **given)
