"""Run a load: start the workers, hand on their rows, end them, sum up."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import aiohttp

from ...errors import WhyboundError
from . import rows, wire
from .client import Target, parse_url
from .spec import LoadSpec, describe, to_dict
from .summary import LoadSummary, Tally
from .traces import Arrival, read_arrivals, read_prompts

Sink = Callable[[str, list[dict[str, Any]]], None]
"""Takes rows of one table."""

CHUNKS_PER_WORKER_PER_S = 4000
"""What one process is trusted with, with room to spare; more work gets more processes."""

_REQUEST_CHUNKS = 30  # connecting, sending and two rows cost about as much as this many chunks
_START_IN_S = 0.3  # from the last worker's being ready to the start that all share
_READY_S = 30.0
_END_S = 10.0


def workers_for(
    spec: LoadSpec, trace: Sequence[Arrival] | None = None, cores: int | None = None
) -> int:
    """How many processes a load needs: one, unless it would saturate it; at most one a core."""
    cores = cores or len(os.sched_getaffinity(0))
    if spec.concurrency_count is not None:  # a worker without a caller would do nothing
        cores = min(cores, spec.concurrency_count)
    if spec.processes is not None:
        return min(spec.processes, spec.concurrency_count or spec.processes)
    output = sum(c.share_ratio * c.output.mean_tokens for c in spec.classes)
    if spec.process == "file" and trace:
        span_s = max(trace[-1].t_s, 1.0)
        chunks = sum(a.output_tokens + _REQUEST_CHUNKS for a in trace) / span_s
    elif spec.rate_per_s is not None:
        chunks = spec.rate_per_s * (output + _REQUEST_CHUNKS)
    else:
        # Nobody knows yet how fast a closed loop turns; 50 tokens/s a stream is a fast server.
        chunks = (spec.concurrency_count or 1) * 50.0
    return max(1, min(cores, -int(-chunks // CHUNKS_PER_WORKER_PER_S)))


async def run_load(
    spec: LoadSpec,
    *,
    url: str,
    model: str | None,
    run_id: str,
    sink: Sink,
    node: str,
    stop: asyncio.Event,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
) -> LoadSummary:
    """Send a load and hand every row to `sink`.

    Args:
        spec: the load.
        url: the API's address, with or without `/v1`.
        model: name to ask for; None asks /v1/models and takes the first.
        run_id: goes into each request's id, `wb-<run>-<i>`.
        sink: gets rows of `requests`, `samples` and `events`, in batches.
        node: name of this host, for the rows.
        stop: set it to end early: no more requests, those in flight get `drain_s`. Cancelling this
            coroutine ends the workers at once; what was in flight stays `unfinished`.
        on_progress: called about once a second with sent, ok, failed, in_flight,
            elapsed_s and total_s (None when the end is not a matter of time).

    Raises:
        WhyboundError: nobody answers at `url`, no model, no real-time priority though
            `realtime=yes`, or a worker failed; one line.
    """
    trace = read_arrivals(spec.arrivals_path) if spec.arrivals_path else None
    if spec.prompts_path:
        read_prompts(spec.prompts_path, spec.api == "chat")
    if trace and spec.prefix_tokens is None and any(a.prefix is not None for a in trace):
        raise WhyboundError(
            f"{spec.arrivals_path} names shared prefixes: add prefix=TOKENS for their length,"
            " or prefix=0 to ignore them"
        )
    if spec.key_env and not os.environ.get(spec.key_env):
        raise WhyboundError(f"key_env={spec.key_env}: no such environment variable: set it")
    target = await _reach(parse_url(url, spec.api))
    model = model or await _first_model(target, spec)
    if spec.salt is None:
        spec = dataclasses.replace(spec, salt=secrets.token_hex(4))
    count = workers_for(spec, trace)
    crew = _Crew(
        spec, target=target, url=url, sink=sink, node=node, on_progress=on_progress, trace=trace
    )
    try:
        await crew.start(count, model, run_id)
        return await crew.finish(stop, model)
    finally:
        await crew.end()


class _Crew:
    """The worker processes of one load."""

    def __init__(
        self, spec: LoadSpec, *, target: Target, url: str, sink: Sink, node: str,
        on_progress: Callable[[dict[str, Any]], None] | None, trace: Sequence[Arrival] | None,
    ) -> None:  # fmt: skip
        self._spec, self._target, self._url, self._sink, self._node = spec, target, url, sink, node
        self._on_progress = on_progress
        self._tally = Tally(spec.slo)
        self._workers: list[asyncio.subprocess.Process] = []
        self._complaints: list[asyncio.Task[bytes]] = []
        self._realtime = True
        self._epoch_offset_ns = time.time_ns() - time.monotonic_ns()
        self._start_ns = 0
        end_s = trace[-1].t_s if trace else None
        if spec.duration_s is not None:
            end_s = min(end_s or 1e18, spec.warmup_s + spec.duration_s)
        self._total_s = end_s

    async def start(self, count: int, model: str, run_id: str) -> None:
        """Start the processes, wait until all are ready, give them one start time."""
        spec = self._spec
        for worker in range(count):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "whybound.collector.load.worker",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is the parent's to handle: it drains
            )  # fmt: skip
            self._workers.append(process)
            assert process.stderr is not None
            self._complaints.append(asyncio.create_task(process.stderr.read()))
            job = wire.Job(
                to_dict(spec), self._url, self._target.address, model, run_id, spec.salt or "",
                self._node, worker, count, self._epoch_offset_ns,
            )  # fmt: skip
            self._tell(process, job)
        hellos = await asyncio.gather(*(self._hello(i) for i in range(count)))
        failed = [h.realtime_error for h in hellos if h.realtime_error]
        self._realtime = not failed
        if failed and spec.realtime == "yes":
            raise WhyboundError(
                f"realtime=yes: {failed[0]}: grant CAP_SYS_NICE or say realtime=auto"
            )
        self._start_ns = time.monotonic_ns() + int(_START_IN_S * 1e9)
        for process in self._workers:
            self._tell(process, wire.Go(self._start_ns))
        mode = "open" if spec.is_open else "closed"
        self._event("load_mode", mode, None)
        self._event("client_realtime", failed[0] if failed else "SCHED_RR 1", float(self._realtime))
        await asyncio.sleep(max(0.0, (self._start_ns - time.monotonic_ns()) / 1e9))
        self._event("load_started", f"{describe(spec)}, salt {spec.salt}, {count} worker(s)", None)

    async def finish(self, stop: asyncio.Event, model: str) -> LoadSummary:
        """Collect until all workers are done."""
        side = [
            asyncio.create_task(self._pass_on_stop(stop)),
            asyncio.create_task(self._announce_warmup_end()),
            asyncio.create_task(self._report_progress()),
        ]
        reading = [asyncio.create_task(self._collect(i)) for i in range(len(self._workers))]
        try:
            await asyncio.gather(*reading)
        finally:
            for task in (*side, *reading):
                task.cancel()
            await asyncio.gather(*side, *reading, return_exceptions=True)
            self._event("load_ended", f"{self._tally.sent} requests sent", float(self._tally.sent))
        warm_ns = self._start_ns + int(self._spec.warmup_s * 1e9)
        return self._tally.summary(
            start_ns=warm_ns + self._epoch_offset_ns, model=model, salt=self._spec.salt or "",
            workers=len(self._workers), realtime=self._realtime,
        )  # fmt: skip

    async def end(self) -> None:
        """Leave no process behind."""
        for process in self._workers:
            with contextlib.suppress(ProcessLookupError):
                if process.returncode is None:
                    process.kill()
        await asyncio.gather(*(process.wait() for process in self._workers))
        for task in self._complaints:
            task.cancel()
        await asyncio.gather(*self._complaints, return_exceptions=True)
        for process in self._workers:
            if process.stdin is not None:
                process.stdin.close()

    async def _hello(self, worker: int) -> wire.Hello:
        stdout = self._workers[worker].stdout
        assert stdout is not None
        try:
            message = await asyncio.wait_for(wire.read_message(stdout), _READY_S)
        except asyncio.TimeoutError:
            raise WhyboundError(f"load worker {worker} was not ready in {_READY_S:g} s") from None
        if not isinstance(message, wire.Hello):
            raise await self._failure(worker)
        return message

    async def _collect(self, worker: int) -> None:
        process = self._workers[worker]
        assert process.stdout is not None
        while not isinstance(message := await wire.read_message(process.stdout), wire.Done):
            if not isinstance(message, wire.Rows):
                raise await self._failure(worker)
            if message.table == "requests":
                for row in message.rows:
                    self._tally.add(row)
            self._sink(message.table, message.rows)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), _END_S)

    async def _failure(self, worker: int) -> WhyboundError:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._workers[worker].wait(), 1.0)
        code = self._workers[worker].returncode
        last = "no message"
        with contextlib.suppress(asyncio.TimeoutError):
            said = await asyncio.wait_for(asyncio.shield(self._complaints[worker]), 1.0)
            last = (said.decode("utf-8", "replace").strip().splitlines() or [last])[-1]
        return WhyboundError(f"load worker {worker} ended early (exit code {code}): {last}")

    async def _pass_on_stop(self, stop: asyncio.Event) -> None:
        await stop.wait()
        for process in self._workers:
            self._tell(process, wire.Stop())

    async def _announce_warmup_end(self) -> None:
        if self._spec.warmup_s:
            end_ns = self._start_ns + int(self._spec.warmup_s * 1e9)
            await asyncio.sleep(max(0.0, (end_ns - time.monotonic_ns()) / 1e9))
            self._event("warmup_ended", f"after {self._spec.warmup_s:g} s", None)

    async def _report_progress(self) -> None:
        while self._on_progress is not None:
            await asyncio.sleep(1.0)
            tally = self._tally
            self._on_progress({
                "sent": tally.sent, "ok": tally.ok, "failed": tally.failed,
                "in_flight": tally.in_flight, "total_s": self._total_s,
                "elapsed_s": (time.monotonic_ns() - self._start_ns) / 1e9,
            })  # fmt: skip

    def _tell(self, process: asyncio.subprocess.Process, message: wire.Message) -> None:
        assert process.stdin is not None
        process.stdin.write(wire.frame(message))

    def _event(self, kind: str, text: str, value: float | None) -> None:
        t_ns = time.monotonic_ns() + self._epoch_offset_ns
        row = rows.event_row(
            kind, text, value, t_ns=t_ns, node=self._node, replica=self._target.name
        )
        self._sink("events", [row])


async def _reach(target: Target) -> Target:
    """The target with the address that answered, or an error that says that nobody did."""
    where = f"no server answers at {target.name}"
    try:
        connecting = asyncio.open_connection(target.host, target.port)
        _, writer = await asyncio.wait_for(connecting, 10.0)
    except asyncio.TimeoutError:
        raise WhyboundError(f"{where}: no connection in 10 s: check address and firewall") from None
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise WhyboundError(f"{where}: {reason}: start it, or check the URL") from None
    address = str(writer.get_extra_info("peername")[0])
    writer.close()
    return dataclasses.replace(target, address=address)


async def _first_model(target: Target, spec: LoadSpec) -> str:
    base = target.path.rsplit("/v1/", 1)[0]
    url = f"{'https' if target.tls else 'http'}://{target.name}{base}/v1/models"
    key = os.environ.get(spec.key_env) if spec.key_env else None
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        timeout = aiohttp.ClientTimeout(total=10)
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=headers) as session,
            session.get(url) as response,
        ):
            text, status = await response.text(), response.status
        return str(json.loads(text)["data"][0]["id"])
    except (aiohttp.ClientError, asyncio.TimeoutError) as error:
        raise WhyboundError(f"{url}: {error or 'no answer in 10 s'}: name the model") from None
    except (ValueError, LookupError, TypeError):
        raise WhyboundError(f"{url}: HTTP {status}, no model in it: name the model") from None
