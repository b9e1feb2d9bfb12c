"""The history source against a server that is well, partial, slow, gone, or no Prometheus (loopback only)."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import socket
import time
from bisect import bisect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from whybound.collector.history import HistoryPlan, record_history
from whybound.collector.sources import prometheus_api
from whybound.collector.sources.exposition import parse
from whybound.collector.sources.prometheus_api import PrometheusHistory
from whybound.collector.sources.prometheus_query import matchers
from whybound.collector.store import open_run
from whybound.errors import WhyboundError

PAGE = (Path(__file__).parent / "pages" / "vllm_0_33.txt").read_text()
NOW_MS = 1_700_000_600_000
TARGETS: list[dict[str, str]] = [{"job": "vllm", "instance": "h:1"}]
Params = dict[str, str]
Fault = Callable[
    [str, Params, web.Request], "Awaitable[web.StreamResponse] | web.StreamResponse | None"
]


class FakePrometheus:
    """Holds series; answers what the source asks, as Prometheus does; a fault answers first."""

    def __init__(self, targets: list[dict[str, str]] = TARGETS, scrapes: int = 60) -> None:
        self.times = [NOW_MS - 1000 * (scrapes - i) + 123 for i in range(scrapes)]
        self.series: list[tuple[dict[str, str], list[tuple[int, float]]]] = []
        for target in targets:
            for family in parse(PAGE).families:
                for s in family.samples:
                    grows = s.name.endswith(("_total", "_count", "_sum", "_bucket"))
                    values = [(t, s.value + i * grows) for i, t in enumerate(self.times)]
                    self.series.append(({"__name__": s.name, **s.labels, **target}, values))
        self.fault: Fault = lambda path, params, request: None
        self.asked: list[tuple[str, Params]] = []
        self.headers: list[str | None] = []
        self.methods: set[tuple[str, str]] = set()

    def found(self, selector: str) -> list[tuple[dict[str, str], list[tuple[int, float]]]]:
        wanted = [
            (label, op, json.loads(f'"{text}"'))
            for label, op, text in re.findall(
                r'(\w+)(=~|!=|=)"((?:[^"\\]|\\.)*)"', selector[selector.index("{") :]
            )
        ]

        def fits(labels: dict[str, str]) -> bool:
            return all(
                {"=": v == t, "!=": v != t, "=~": re.fullmatch(t, v) is not None}[op]
                for label, op, t in wanted
                for v in [labels.get(label, "")]
            )

        return [s for s in self.series if fits(s[0])]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/api/v1/")
        sent = {**request.query, **(await request.post())}
        params = {k: str(v) for k, v in sent.items()}
        self.asked.append((path, params))
        self.methods.add((request.method, path.split("/")[0]))
        self.headers.append(request.headers.get("Authorization"))
        faulty = self.fault(path, params, request)
        if faulty is not None:
            return faulty if isinstance(faulty, web.StreamResponse) else await faulty
        data = self.data(path, params)
        return web.json_response({"status": "success", "data": data})

    def data(self, path: str, params: Params) -> Any:
        query = params.get("query", "")
        if path == "status/buildinfo":
            return {"version": "2.42.0"}
        if query == "time()":
            return {"resultType": "scalar", "result": [NOW_MS / 1000, str(NOW_MS / 1000)]}
        if path.startswith("label/"):
            label = path.split("/")[1]
            return sorted({s[0][label] for s in self.found(params["match[]"]) if label in s[0]})
        if path == "series":
            return [labels for labels, _ in self.found(params["match[]"])]
        if query.startswith("max(count_over_time("):
            series = self.found(query[len("max(count_over_time(") :])
            most = max((len(values) for _, values in series), default=0)
            return {"resultType": "vector", "result": [{"metric": {}, "value": [0, str(most)]}]}
        if path == "query_range":
            step, start, end = (float(params[k]) for k in ("step", "start", "end"))
            assert (end - start) / step < 11_000
            grid = [
                round((start + k * step) * 1000) for k in range(int((end - start) / step + 1.5))
            ]
            return self.matrix(query, lambda values: [
                (at, values[i - 1][1]) for at in grid
                if (i := bisect(values, at, key=lambda v: v[0])) and values[i - 1][0] > at - 300_000
            ])  # fmt: skip
        found = re.fullmatch(r"(.*)\[(\d+)s\]", query)
        assert found, query
        until = round(float(params["time"]) * 1000)
        after = until - 1000 * int(found[2])
        # Prometheus 2 takes the left edge in, 3 does not: the source must bear both
        return self.matrix(found[1], lambda vs: [(t, v) for t, v in vs if after <= t <= until])

    def matrix(self, selector: str, cut: Callable[[list[tuple[int, float]]], Any]) -> Any:
        result = [
            {"metric": labels, "values": [[t / 1000, str(v)] for t, v in some]}
            for labels, values in self.found(selector)
            if (some := cut(values))
        ]
        return {"resultType": "matrix", "result": result}


def error(status: int, kind: str, text: str) -> web.Response:
    body = {"status": "error", "errorType": kind, "error": text}
    return web.json_response(body, status=status)


def read(
    fake: FakePrometheus, *, expect: type[Exception] | None = None, base: str = "", **options: Any
) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]], str]:
    """Read the fake's last minute: the report, the rows by table, the error."""
    tables: dict[str, list[dict[str, Any]]] = {"samples": [], "histograms": [], "settings": []}

    async def go() -> tuple[dict[str, Any], str]:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", fake.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        given = {"since_s": 120.0, "match": None, "step_s": 5.0, "node": "n"} | options
        history = PrometheusHistory(
            url=(base or "http://127.0.0.1:{port}").format(port=port),
            sink=lambda table, rows: tables[table].extend(rows), **given,
        )  # fmt: skip
        said = ""
        try:
            await history.read()
        except WhyboundError as failure:
            said = str(failure)
        finally:
            await runner.cleanup()
        return history.report(), said

    report, said = asyncio.run(go())
    assert bool(said) == (expect is not None), said
    assert "\n" not in said
    return report, tables, said


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_api, "RETRY_AFTER_S", (0.0, 0.0))
    monkeypatch.delenv("PROMETHEUS_TOKEN", raising=False)


def of(tables: dict[str, list[dict[str, Any]]], signal: str) -> list[dict[str, Any]]:
    return [
        r
        for rows in (tables["samples"], tables["histograms"])
        for r in rows
        if r["signal"] == signal
    ]


def is_raw(params: Params) -> bool:
    return params.get("query", "").endswith("s]")


# ---------------------------------------------------------------- a well server


def test_raw_samples_come_with_their_own_times() -> None:
    fake = FakePrometheus()
    report, tables, _ = read(fake)
    running = of(tables, "engine_running_count")
    assert [r["t_ns"] // 10**6 for r in running] == fake.times
    assert {r["replica"] for r in running} == {"h:1"}
    finished = of(tables, "ttft_s")
    assert [r["t_ns"] // 10**6 for r in finished] == fake.times
    assert finished[-1]["count"] - finished[0]["count"] == len(fake.times) - 1
    assert {r["key"] for r in tables["settings"]} >= {"block_size"}
    assert (report["mode"], report["engine"], report["engines"]) == ("raw", "vllm", ["vllm"])
    assert (report["replicas"], report["models"]) == (["h:1"], ["tiny"])
    assert report["scrape_interval_s"] == 1.0
    assert (report["samples"], report["histograms"]) == (
        len(tables["samples"]), len(tables["histograms"]),
    )  # fmt: skip
    assert (report["absent"], report["unmapped"], report["warning"]) == ([], [], None)
    assert (report["failures"], report["lost"], report["gave_up"]) == ({}, [], False)


def test_windows_do_not_overlap_and_leave_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_api, "FIRST_WINDOW_MS", 7_000)
    monkeypatch.setattr(prometheus_api, "MAX_ANSWER_BYTES", 1 << 19)
    fake = FakePrometheus()
    _, tables, _ = read(fake)
    assert [r["t_ns"] // 10**6 for r in of(tables, "engine_running_count")] == fake.times
    assert [r["t_ns"] // 10**6 for r in of(tables, "e2e_s")] == fake.times


def test_a_matcher_narrows_every_question() -> None:
    fake = FakePrometheus([{"job": "vllm", "instance": "h:1"}, {"job": "x", "instance": "h:2"}])
    report, tables, _ = read(fake, match='{job="vllm"}')
    assert report["replicas"] == ["h:1"]
    assert {r["replica"] for r in tables["samples"]} == {"h:1"}
    selecting = [
        p.get("match[]", p.get("query", "")) for path, p in fake.asked if path != "status/buildinfo"
    ]
    assert all('job="vllm"' in s for s in selecting if s != "time()")


def test_only_mapped_names_are_asked_for_one_signal_at_a_time() -> None:
    fake = FakePrometheus()
    read(fake)
    raw = [p["query"] for _, p in fake.asked if is_raw(p)]
    names = [set(re.findall(r"vllm:\w+", q)) for q in raw]
    assert all(len({re.sub("_(bucket|sum|count)$", "", n) for n in some}) <= 1 for some in names)
    assert not any("python_gc" in q for q in raw)


def test_too_many_scrapes_are_read_at_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_api, "RAW_SCRAPES", 50)
    fake = FakePrometheus()
    report, tables, _ = read(fake)
    assert report["mode"] == "step"
    times = sorted({r["t_ns"] for r in tables["samples"]})
    assert {b - a for a, b in itertools.pairwise(times)} == {5 * 10**9}
    assert not any(is_raw(p) for _, p in fake.asked)


def test_a_step_keeps_every_answer_below_the_servers_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_api, "RAW_SCRAPES", 50)
    monkeypatch.setattr(prometheus_api, "MAX_ANSWER_BYTES", 1 << 24)
    monkeypatch.setattr(prometheus_api, "FIRST_WINDOW_MS", 10**9)
    fake = FakePrometheus()
    fake.series = [s for s in fake.series if s[0]["__name__"] == "vllm:num_requests_running"]
    read(fake, since_s=1300, step_s=0.1)  # 13,000 points: the fake refuses them as Prometheus does
    ranges = [
        (float(p["end"]) - float(p["start"])) / 0.1
        for path, p in fake.asked
        if path == "query_range"
    ]
    assert 9_000 < max(ranges) <= prometheus_api.MAX_POINTS


def test_a_long_question_goes_as_a_form_where_that_is_allowed() -> None:
    fake = FakePrometheus()
    jobs = "|".join(f"job-{i}" for i in range(400))
    _, tables, _ = read(fake, match=f'{{job=~"vllm|{jobs}"}}')
    assert len(of(tables, "engine_running_count")) == len(fake.times)
    assert {("GET", "label"), ("POST", "query"), ("POST", "series")} <= fake.methods
    assert ("POST", "label") not in fake.methods


# ---------------------------------------------------------------- partial answers


def test_too_many_samples_halve_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(path: str, params: Params, _: web.Request) -> web.Response | None:
        if is_raw(params) and int(re.findall(r"\[(\d+)s\]", params["query"])[0]) > 31:
            return error(422, "execution", "query processing would load too many samples")
        return None

    fake = FakePrometheus()
    fake.fault = fault
    report, tables, _ = read(fake)
    assert [r["t_ns"] // 10**6 for r in of(tables, "engine_running_count")] == fake.times
    assert report["halved"] > 0
    assert report["failures"] == {"http_422": report["queries_failed"]}
    assert (report["lost"], report["mode"]) == ([], "raw")
    assert "× http_422" in report["warning"]


def test_an_answer_above_the_bound_halves_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_api, "MAX_ANSWER_BYTES", 6_000)
    fake = FakePrometheus()
    report, tables, _ = read(fake)
    assert report["failures"]["too_large"] == report["halved"] > 0
    assert report["bytes_max"] <= 6_000
    assert [r["t_ns"] // 10**6 for r in of(tables, "e2e_s")] == fake.times
    assert report["lost"] == []


def test_no_raw_samples_falls_back_to_the_step_for_all_that_follows() -> None:
    fake = FakePrometheus()
    fake.fault = lambda path, params, _: (
        error(400, "bad_data", "no range selectors here") if is_raw(params) else None
    )
    report, tables, _ = read(fake)
    assert (report["mode"], report["fallbacks"], report["failures"]) == ("step", 1, {"http_400": 1})
    assert of(tables, "engine_running_count")
    assert of(tables, "ttft_s")


def test_a_busy_server_is_asked_again() -> None:
    answers = iter([503, 502, 429])

    def fault(path: str, params: Params, _: web.Request) -> web.Response | None:
        status = next(answers, None) if is_raw(params) and "running" in params["query"] else None
        return web.Response(status=status, text="busy") if status else None

    fake = FakePrometheus()
    fake.fault = fault
    report, tables, _ = read(fake)
    assert report["failures"] == {"http_503": 1, "http_502": 1, "http_429": 1}
    assert report["retried"] == 2  # then, still failing, the window is halved or the step tried
    assert of(tables, "engine_running_count")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (lambda: error(503, "unavailable", "no store"), "http_503"),
        (lambda: error(200, "internal", "shard 3 is gone"), "status_error"),
        (lambda: web.Response(text="<html>Sign in</html>", content_type="text/html"), "html"),
        (lambda: web.Response(text="no", status=500), "http_500"),
        (lambda: web.json_response({"status": "success", "data": {"resultType": "matrix"}}), "not_prometheus"),
        (lambda: web.json_response([1]), "not_prometheus"),
    ],
)  # fmt: skip
def test_one_signal_that_fails_is_lost_and_the_rest_is_kept(
    answer: Callable[[], web.Response], kind: str
) -> None:
    fake = FakePrometheus()
    fake.fault = lambda path, params, _: (
        answer() if "generation_tokens_total" in params.get("query", "") else None
    )
    report, tables, _ = read(fake)
    assert report["failures"].keys() == {kind}
    assert of(tables, "generation_tokens") == []
    assert len(of(tables, "engine_running_count")) == len(fake.times)
    assert len(of(tables, "e2e_s")) == len(fake.times)
    assert {lost[0] for lost in report["lost"]} == {"generation_tokens"}
    assert max(lost[2] for lost in report["lost"]) == report["end_ns"]
    assert "generation_tokens" in report["warning"]
    assert not report["gave_up"]


def test_a_connection_that_breaks_in_the_middle_is_told() -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(b'{"status":"success","data":{"resultType":"matrix","result":[{"met')
        assert request.transport is not None
        request.transport.abort()
        return response

    fake = FakePrometheus()
    fake.fault = lambda path, params, request: (
        broken(request) if "prompt_tokens_total" in params.get("query", "") else None
    )
    report, tables, _ = read(fake)
    assert report["failures"].keys() == {"broken"}
    assert {lost[0] for lost in report["lost"]} == {"prompt_tokens"}
    assert of(tables, "e2e_s")


def test_a_slow_server_is_not_waited_for() -> None:
    async def slow() -> web.Response:
        await asyncio.sleep(30)
        raise AssertionError

    fake = FakePrometheus()
    fake.fault = lambda path, params, _: (
        slow() if "num_preemptions_total" in params.get("query", "") else None
    )
    began = time.monotonic()
    report, tables, _ = read(fake, timeout_s=0.15)
    assert time.monotonic() - began < 8
    assert report["failures"].keys() == {"timeout"}
    assert {lost[0] for lost in report["lost"]} == {"preemptions_count"}
    assert of(tables, "e2e_s")


def test_a_server_that_goes_away_is_left_alone() -> None:
    fake = FakePrometheus()
    fake.fault = lambda path, params, _: web.Response(status=503) if len(fake.asked) > 20 else None
    report, tables, _ = read(fake)
    assert report["gave_up"]
    assert of(tables, "engine_running_count")
    assert len(fake.asked) < 200
    assert "stopped answering" in report["warning"]


def test_warnings_of_the_server_are_kept_with_the_data() -> None:
    fake = FakePrometheus()

    def fault(path: str, params: Params, _: web.Request) -> web.Response | None:
        if "num_requests_waiting" not in params.get("query", ""):
            return None
        data = fake.data(path, params)
        return web.json_response(
            {"status": "success", "data": data, "warnings": ["store s3 is gone"]}
        )

    fake.fault = fault
    report, tables, _ = read(fake)
    assert report["warnings"] == ["store s3 is gone"]
    assert report["warned"] >= 1
    assert "store s3 is gone" in report["warning"]
    assert len(of(tables, "engine_waiting_count")) == len(fake.times)


def test_a_replica_that_vanishes_is_named() -> None:
    fake = FakePrometheus([{"instance": "h:1", "job": "v"}, {"instance": "h:2", "job": "v"}])
    gone = fake.times[20]
    fake.series = [
        (labels, [v for v in values if labels["instance"] == "h:1" or v[0] <= gone])
        for labels, values in fake.series
    ]
    report, tables, _ = read(fake)
    assert report["replicas_vanished"] == {"h:2": gone * 10**6}
    assert report["series_vanished_count"] * 2 == report["series_count"]
    assert len([r for r in of(tables, "engine_running_count") if r["replica"] == "h:2"]) == 21


def test_an_empty_matrix_is_counted() -> None:
    fake = FakePrometheus()
    fake.series = [
        (labels, [] if "prefix_cache" in labels["__name__"] else values)
        for labels, values in fake.series
    ]
    report, _, _ = read(fake)
    assert report["empty"] == 4  # queries and hits, local and external
    assert report["lost"] == []


# ---------------------------------------------------------------- nothing at all


def test_nobody_there() -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    _, _, said = read(FakePrometheus(), expect=WhyboundError, base=f"http://127.0.0.1:{port}")
    assert "cannot connect (Connection refused)" in said


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda: web.Response(text="<!doctype html>", content_type="text/html"), ["HTML", "PROMETHEUS_TOKEN"]),
        (lambda: web.Response(status=401), ["401", "PROMETHEUS_TOKEN"]),
        (lambda: web.Response(status=302, headers={"Location": "https://login.example.com/x"}),
         ["redirects to login.example.com", "not followed", "PROMETHEUS_TOKEN"]),
        (lambda: web.Response(status=404, text="nope"), ["does not answer as a Prometheus"]),
        (lambda: web.Response(text="vllm:x 1\n"), ["no JSON of Prometheus"]),
    ],
)  # fmt: skip
def test_what_is_no_prometheus_is_named(
    answer: Callable[[], web.Response], words: list[str]
) -> None:
    fake = FakePrometheus()
    fake.fault = lambda path, params, _: answer()
    report, tables, said = read(fake, expect=WhyboundError)
    assert [w for w in words if w not in said] == []
    assert tables["samples"] == []
    assert report["queries_failed"] >= 1


def test_an_old_server_without_build_information_is_read() -> None:
    fake = FakePrometheus()
    fake.fault = lambda path, params, _: (
        web.Response(status=404, text="404 page not found") if path == "status/buildinfo" else
        web.json_response({"status": "success", "data": ["job"]}) if path == "labels" else None
    )  # fmt: skip
    _, tables, _ = read(fake)
    assert of(tables, "e2e_s")


def test_no_engine_names_the_names_and_jobs_that_are_there() -> None:
    fake = FakePrometheus()
    fake.series = [({"__name__": "node_load1", "job": "node"}, [(fake.times[0], 1.0)])]
    _, _, said = read(fake, expect=WhyboundError)
    assert "no metrics of a known engine" in said
    assert "names there: node_load1" in said
    assert "jobs: node" in said
    assert "--match" in said
    _, _, said = read(fake, expect=WhyboundError, match='{job="vllm"}')
    assert "no series at all" in said
    assert '--match (without {job="vllm"}?)' in said


def test_names_without_samples_ask_for_another_time() -> None:
    fake = FakePrometheus()
    fake.series = [(labels, []) for labels, _ in fake.series]
    _, _, said = read(fake, expect=WhyboundError)
    assert "try a longer --since" in said


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (None, ""), ("{}", ""), ('{job="vllm"}', 'job="vllm"'), ('job="a",pod=~"x.*"', 'job="a",pod=~"x.*"'),
        ('{ job != "a\\"b", }', 'job != "a\\"b"'),
    ],
)  # fmt: skip
def test_matchers(text: str | None, inside: str) -> None:
    assert matchers(text) == inside


@pytest.mark.parametrize(
    "text", ["vllm", 'up{job="x"}', '{job="x"}[5m]', '{job="x"} or up', "{job=x}"]
)
def test_what_is_no_matcher_is_refused_before_anything_is_sent(text: str) -> None:
    with pytest.raises(WhyboundError, match="no list of label matchers"):
        matchers(text)


# ---------------------------------------------------------------- credentials


def test_the_token_goes_to_the_server_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PROMETHEUS_TOKEN", "s3cret\n")
    fake = FakePrometheus()
    report, _, _ = read(fake)
    assert set(fake.headers) == {"Bearer s3cret"}
    assert "s3cret" not in json.dumps(report)


def test_a_user_in_the_url_is_basic_authentication_and_never_shown() -> None:
    fake = FakePrometheus()
    report, _, _ = read(fake, base="http://me:pa55@127.0.0.1:{port}/")
    assert {h.split()[0] for h in fake.headers if h} == {"Basic"}
    assert "pa55" not in json.dumps(report)
    assert report["url"].startswith("http://127.0.0.1:")


def test_redirects_are_followed_on_the_same_server_only() -> None:
    fake = FakePrometheus()

    def moved(path: str, params: Params, request: web.Request) -> web.Response | None:
        if request.path.startswith("/api/"):
            where = "/prom" + request.path_qs
            return web.Response(status=307, headers={"Location": where})
        return None

    fake.fault = moved
    stripped = fake.data
    fake.data = lambda path, params: stripped(  # type: ignore[method-assign]
        path.removeprefix("/prom/api/v1/"), params
    )
    _, tables, _ = read(fake)
    assert of(tables, "e2e_s")


# ---------------------------------------------------------------- into a run


def test_a_run_is_recorded_with_its_report(tmp_path: Path) -> None:
    fake = FakePrometheus()

    async def go() -> None:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", fake.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        plan = HistoryPlan(
            run_dir=tmp_path / "R", url=f"http://127.0.0.1:{runner.addresses[0][1]}", since_s=120
        )
        recorded = await record_history(plan, asyncio.Event())
        assert (recorded.error, recorded.interrupted, recorded.server_exit) == (None, False, None)
        await runner.cleanup()

    asyncio.run(go())
    run = open_run(tmp_path / "R")
    (report,) = run.manifest["sources"].values()
    assert report["samples"] > 100
    assert run.losses["dropped"] == {} or not any(run.losses["dropped"].values())
    assert run.manifest["model"] == "tiny"
    assert run.manifest["engine"] == "vllm"
    assert "client" in run.manifest["not_collected"]


def test_a_run_that_could_not_be_read_says_why(tmp_path: Path) -> None:
    plan = HistoryPlan(run_dir=tmp_path / "R", url="http://127.0.0.1:1", since_s=60)
    with pytest.raises(WhyboundError, match="cannot connect"):
        asyncio.run(record_history(plan, asyncio.Event()))
    assert "cannot connect" in open_run(tmp_path / "R").manifest["failed"]


def test_an_interrupt_keeps_what_was_read(tmp_path: Path) -> None:
    fake = FakePrometheus()

    async def go() -> bool:
        stop = asyncio.Event()
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", fake.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()

        async def hang() -> web.Response:
            stop.set()
            await asyncio.sleep(30)
            raise AssertionError

        fake.fault = lambda path, params, _: (
            hang() if "_bucket" in params.get("query", "") else None
        )
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        recorded = await record_history(HistoryPlan(tmp_path / "R", url, 120), stop)
        await runner.cleanup()
        return recorded.interrupted

    assert asyncio.run(go())
    run = open_run(tmp_path / "R")
    assert run.parts("samples")
    assert not run.parts("histograms")
