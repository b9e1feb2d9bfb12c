"""One recording: a server or a URL, the sources that watch it, perhaps a load, one run directory."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from ..errors import WhyboundError
from .argv import engine_of, redact, requested_settings
from .instrument import instrument, why_not
from .launch import Server
from .load.run import run_load
from .load.spec import LoadSpec, describe, to_dict
from .load.summary import LoadSummary
from .local_server import LocalServer, find_local_server
from .machine import is_local, machine_rows
from .model_config import model_config_rows
from .sources.host import HostSource
from .sources.log import LogSource
from .sources.nvml import NvmlSource
from .sources.otlp import OtlpSource
from .sources.prometheus import PrometheusSource
from .store import RunWriter, create_run

Say = Callable[[str], None]
Row = dict[str, Any]

WAITING_EVERY_S = 5.0

LAST_SPANS_S = 5.5
"""OpenTelemetry's exporters send every five seconds; a server that lives on still has some by then."""

EMULATED_OWNER = "whybound-emulated"
"""`owned_by` in /v1/models of the emulated engine: its runs are marked, and no page can hide it."""


@dataclass(frozen=True)
class Plan:
    """What to record.

    `duration_s` None: as long as the load, the server or the person lasts. `instrument`: add the
    flags that make the server export spans, and take them; `otlp`: take the spans of a server that
    is told our address in another way. `load_url`: where the load goes, when it is not the server
    itself but a gateway in front of it.
    """

    run_dir: Path
    force: bool = False
    interval_s: float = 1.0
    duration_s: float | None = None
    load: LoadSpec | None = None
    load_text: str | None = None
    load_url: str | None = None
    target: str | None = None
    guards: tuple[str, ...] = ()
    model: str | None = None
    command: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    port: int | None = None
    ready_s: float = 600.0
    grace_s: float = 15.0
    keep: bool = False
    show_output: bool = False
    instrument: bool = False
    otlp: bool = False
    say: Say = field(default=lambda _: None)
    progress: Callable[[dict[str, Any]], None] | None = None


@dataclass(frozen=True)
class Recorded:
    """How it ended: `server_exit` is the server's code if it ended unasked, else None."""

    run_dir: Path
    url: str
    server_exit: int | None
    interrupted: bool
    load: LoadSummary | None
    error: str | None


async def record(plan: Plan, stop: asyncio.Event) -> Recorded:
    """Record one run; `stop` ends it early and keeps what was measured.

    Raises:
        WhyboundError: nothing could be recorded: the folder, the command, or a server that never was ready.
    """
    create_run(plan.run_dir, force=plan.force)
    with RunWriter(plan.run_dir, node_name()) as writer:
        session = _Session(plan, writer, stop)
        try:
            return await session.run()
        except WhyboundError as error:
            writer.update_manifest(failed=str(error))
            raise


class _Session:
    """The state of one recording."""

    def __init__(self, plan: Plan, writer: RunWriter, stop: asyncio.Event) -> None:
        self.plan, self.writer, self.stop = plan, writer, stop
        self.done = asyncio.Event()
        self.server: Server | None = None
        self.found: LocalServer | None = None
        self.scrapers: list[PrometheusSource] = []
        self.command = plan.command
        self.spans: OtlpSource | None = None
        self.spans_task: asyncio.Task[None] | None = None
        self.spans_over = asyncio.Event()
        self.log: LogSource | None = None
        self.log_task: asyncio.Task[None] | None = None
        self.log_over = asyncio.Event()

    async def run(self) -> Recorded:
        plan = self.plan
        command = plan.command
        if not command and plan.urls and (found := find_local_server(plan.urls[0])):
            self.found, command = found, found.command
        engine = engine_of(command)
        self.writer.update_manifest(
            command=redact(command) or None,
            engine=engine or None,
            load=describe(plan.load) if plan.load else None,
            load_spec=to_dict(plan.load) if plan.load else None,
            load_text=plan.load_text,
            target=plan.target,
            guards=list(plan.guards),
            identity={
                "host": platform.node(),
                "os": platform.platform(),
                "python": platform.python_version(),
            },
        )
        self._settings(engine, command)
        try:
            await self._start_spans(engine)
            urls = await self._urls()
            return await self._watch(urls)
        finally:
            try:
                await self._end_server()
            finally:
                await self._end_log()
                await self._end_spans()

    async def _urls(self) -> list[str]:
        """The addresses to watch; starts the server when there is a command."""
        plan = self.plan
        if not plan.command:
            return list(plan.urls)
        log = None if plan.show_output else plan.run_dir / "server.log"
        self.server = Server.start(self.command, log_path=log)
        self._event("server_started", " ".join(redact(self.command)), float(self.server.pid))
        if log is not None:
            self._tail(log)
        ready = asyncio.create_task(
            self.server.wait_ready(
                port=plan.port, deadline_s=plan.ready_s, on_progress=self._waiting()
            )
        )
        stopped = asyncio.create_task(self.stop.wait())
        await asyncio.wait({ready, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not ready.done():
            ready.cancel()
            with suppress(asyncio.CancelledError):
                await ready
            raise WhyboundError("interrupted before the server was ready")
        url = ready.result()
        if self.log is not None:
            self.log.replica = _replica(url)
        self._event("server_ready", url, None)
        return [url]

    def _tail(self, path: Path) -> None:
        """Read the server's log from its start on: why one never gets ready stands only there."""
        self.log = LogSource(
            path=path, node=self.writer.node, replica="", engine=engine_of(self.command),
            sink=self._sink,
        )  # fmt: skip
        self.log_task = asyncio.create_task(self.log.run(self.log_over))

    async def _end_log(self) -> None:
        """Read the log to its end: after the server, whose last lines may be the telling ones."""
        if self.log is None or self.log_task is None:
            return
        self.log_over.set()
        await self.log_task
        report = self.log.report()
        self.writer.update_manifest(sources={"log": report})
        lost = report["last_error"] or (
            f"{report['skipped_bytes']} bytes came too fast" if report["skipped_bytes"] else None
        )
        if lost:
            self.writer.update_manifest(not_collected={"log": lost})

    async def _start_spans(self, engine: str) -> None:
        """Take spans where they are asked for, and have the server send them; else say why not."""
        plan = self.plan
        reason: str | None = "not asked for; add --instrument"
        if plan.instrument:
            reason = why_not(plan.command, engine)
        elif not plan.command:
            reason = "not asked for; `profile run --instrument` has a server export them"
        if reason and not plan.otlp:
            self.writer.update_manifest(not_collected={"spans": reason})
            if plan.instrument:
                plan.say(f"no spans: {reason}")
            return
        self.spans = OtlpSource(node=self.writer.node, sink=self._sink)
        address = await self.spans.start()
        self.spans_task = asyncio.create_task(self.spans.run(self.spans_over))
        command, added = instrument(plan.command, engine, address.grpc)
        if plan.instrument and added:
            self.command = tuple(command)
            self.writer.update_manifest(instrumented=added)
            plan.say(f"added {' '.join(added)}")
        else:
            plan.say(f"taking spans at {address.grpc} (gRPC) and {address.http}/v1/traces")

    async def _end_spans(self) -> None:
        """Stop taking spans: after the server, which sends its last ones when it ends."""
        if self.spans is None or self.spans_task is None:
            return
        lives_on = self.server is not None and self.server.returncode() is None
        if not self.stop.is_set() and (lives_on or not self.command):
            await asyncio.sleep(LAST_SPANS_S)
        self.spans_over.set()
        await self.spans_task
        report = self.spans.report()
        self.writer.update_manifest(sources={"spans": report})
        if not report["rows_count"]:
            self.writer.update_manifest(not_collected={"spans": "asked for, but no request's came"})

    async def _watch(self, urls: list[str]) -> Recorded:
        plan = self.plan
        node = self.writer.node
        models, emulated = await _models(urls[0])
        self.writer.update_manifest(
            url=urls[0], urls=urls, model=plan.model or models, emulated=emulated
        )
        if plan.command or is_local(urls):
            rows = await asyncio.to_thread(machine_rows, node=node, emulated=emulated)
            self.writer.append("settings", rows)
        await self._model_config()
        pid = self.server.pid if self.server else self.found.pid if self.found else None
        self.scrapers = [
            PrometheusSource(
                url=url, node=node, replica=_replica(url),
                interval_s=plan.interval_s, sink=self._sink,
            )
            for url in urls
        ]  # fmt: skip
        host = HostSource(pid=pid, node=node, interval_s=plan.interval_s, sink=self._sink)
        gpu = NvmlSource(node=node, interval_s=plan.interval_s, sink=self._sink)
        watchers: list[PrometheusSource | HostSource | NvmlSource] = [*self.scrapers, host, gpu]
        sources = [asyncio.create_task(w.run(self.done)) for w in watchers]
        lost = asyncio.create_task(self._server_ends())
        summary, error = None, None
        try:
            summary, error = await self._until_over(urls[0], lost)
        finally:
            self.done.set()
            lost.cancel()
            await asyncio.gather(*sources, return_exceptions=True)
            self._report(host, gpu)
        code = self.server.returncode() if self.server else None
        if code is not None:
            self._event("server_exited", f"with code {code}, unasked", float(code))
        return Recorded(plan.run_dir, urls[0], code, self.stop.is_set(), summary, error)

    async def _model_config(self) -> None:
        """What the served model is: read once the server has it, wherever it came from."""
        command = self.found.command if self.found else self.command
        rows = await asyncio.to_thread(
            model_config_rows, requested_settings(command), engine=engine_of(command), node=self.writer.node
        )  # fmt: skip
        self.writer.append("settings", rows)

    async def _until_over(
        self, url: str, lost: asyncio.Task[None]
    ) -> tuple[LoadSummary | None, str | None]:
        """Wait for the load, the duration, the person, or the server's end, whichever is first."""
        plan = self.plan
        over = asyncio.Event()
        ends = [asyncio.create_task(self.stop.wait()), lost]
        if plan.load is None and plan.duration_s is not None:
            ends.append(asyncio.create_task(asyncio.sleep(plan.duration_s)))
        load = None
        if plan.load is not None:
            self._event("load_mode", "open" if plan.load.is_open else "closed", None)
            load = asyncio.create_task(
                run_load(
                    plan.load, url=plan.load_url or url, model=plan.model, run_id=self.plan.run_dir.name,
                    sink=self._sink, node=self.writer.node, stop=over, on_progress=plan.progress,
                )
            )  # fmt: skip
        waited: set[asyncio.Task[Any]] = {*ends, load} if load else {*ends}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        over.set()
        summary, error = None, None
        if load is not None:
            try:
                summary = await load
            except WhyboundError as failure:
                error = str(failure)
        for task in ends:
            task.cancel()
        return summary, error

    def _waiting(self) -> Say:
        """Says what the start waits for, at most every five seconds."""
        began = time.monotonic()
        said = -WAITING_EVERY_S

        def say(line: str) -> None:
            nonlocal said
            waited = time.monotonic() - began
            if waited - said >= WAITING_EVERY_S:
                said = waited
                self.plan.say(f"waiting for the server, {waited:.0f} s: {line}")

        return say

    async def _server_ends(self) -> None:
        """Returns when the server has ended unasked; never without a server."""
        while self.server is None or self.server.returncode() is None:
            await asyncio.sleep(0.2)

    async def _end_server(self) -> None:
        if self.server is None:
            return
        if self.plan.keep and self.server.returncode() is None:
            self.server.detach()
            self.plan.say(f"server left running, pid {self.server.pid}")
            return
        await self.server.stop(self.plan.grace_s)

    def _settings(self, engine: str, command: Sequence[str]) -> None:
        if not engine:
            return
        now = time.time_ns()
        self.writer.append(
            "settings",
            [
                {
                    "t_ns": now, "engine": engine, "replica": "", "key": key, "value": value,
                    "origin": "requested", "source": "argv", "node": self.writer.node,
                }
                for key, value in (_surroundings(command) | requested_settings(command)).items()
            ],
        )  # fmt: skip

    def _sink(self, table: str, rows: list[Row]) -> None:
        self.writer.append(table, rows)
        if table == "events" and any(r["kind"] == "warmup_ended" for r in rows):
            for scraper in self.scrapers:
                scraper.scrape_now()

    def _event(self, kind: str, text: str, value: float | None) -> None:
        self.writer.append(
            "events",
            [
                {
                    "t_ns": time.time_ns(), "kind": kind, "text": text, "value": value,
                    "node": self.writer.node, "engine": "", "replica": "", "source": "session",
                }
            ],
        )  # fmt: skip

    def _report(self, host: HostSource, gpu: NvmlSource) -> None:
        """What each source did goes into the manifest; what it could not do, into `not_collected`."""
        not_collected: dict[str, str] = {}
        reports = {f"metrics {s.report()['url']}": s.report() for s in self.scrapers}
        for name, report in reports.items():
            if not report["scrapes_ok"]:
                not_collected[name] = report["last_error"] or "never answered"
            elif report["absent"]:
                not_collected[f"{name} expected signals"] = ", ".join(report["absent"])
            if unmapped := report["unmapped"]:
                first = ", ".join(sorted(unmapped)[:5])
                not_collected[f"{name} unknown names"] = f"{len(unmapped)} left out: {first}, …"
        gpu_report = gpu.report()
        if str(gpu_report["state"]).startswith("not available"):
            not_collected["gpu"] = str(gpu_report["state"])
        self.writer.update_manifest(
            sources={**reports, "host": host.report(), "gpu": gpu_report},
            not_collected=not_collected,
        )


def _replica(url: str) -> str:
    """The name of the instance at an address: its host and port."""
    return url.rpartition("//")[2].partition("/")[0]


async def _models(url: str) -> tuple[str | None, bool]:
    """The first served model, and whether the engine says that its world is emulated."""
    with suppress(
        aiohttp.ClientError, TimeoutError, json.JSONDecodeError, KeyError, IndexError, TypeError
    ):
        timeout = aiohttp.ClientTimeout(total=5)
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.get(f"{url}/v1/models") as r,
        ):
            model = (await r.json(content_type=None))["data"][0]
            return str(model["id"]), model.get("owned_by") == EMULATED_OWNER
    return None, False


def node_name() -> str:
    """The name under which this machine records."""
    return socket.gethostname()


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def split_urls(urls: Sequence[str]) -> tuple[str, ...]:
    """URLs as given, several in one option separated by commas."""
    return tuple(u.strip().rstrip("/") for text in urls for u in text.split(",") if u.strip())


def _surroundings(command: Sequence[str]) -> dict[str, str]:
    """Threads of a compute pool and peer-to-peer, where the environment of a server sets them."""
    found = {}
    for name in ("OMP_NUM_THREADS", "NCCL_P2P_DISABLE"):
        told = [word.partition("=")[2] for word in command if word.startswith(f"{name}=")]
        value = told[-1] if told else os.environ.get(name, "")
        if value.isdecimal():
            found[name.lower()] = value
    return found
