"""A load-generating process: `python -m whybound.collector.load.worker`, driven over its pipes.

It is a process of its own so that nothing the parent does (scraping, writing) delays a send or the
stamp of a chunk. It takes every k-th request of the plan, and ends when its stdin closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from . import rows, wire
from .arrivals import plan, share_of
from .client import Answer, Client, parse_url
from .health import LoopLag, cpu_s, run_wait_s, take_realtime
from .spec import LoadSpec, from_dict
from .traces import read_arrivals, read_prompts
from .workload import Contents, Shape, shapes

_FLUSH_S = 0.08
_HEALTH_S = 1.0
_EARLY_S = 0.0002  # some event loops wake up to half a millisecond early
_BACK_OFF_S = (0.05, 1.0)


class Outbox:
    """Rows on their way to the parent, sent in batches."""

    def __init__(self, pipe: asyncio.WriteTransport) -> None:
        self._pipe = pipe
        self._waiting: dict[str, list[dict[str, Any]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, table: str, row: dict[str, Any]) -> None:
        """Put one row in; it leaves within a tenth of a second."""
        self._waiting.setdefault(table, []).append(row)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_S, self.flush)

    def flush(self) -> None:
        """Send what waits."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        waiting, self._waiting = self._waiting, {}
        for table, batch in waiting.items():
            self._pipe.write(wire.frame(wire.Rows(table, batch)))

    def send(self, message: wire.Message) -> None:
        """Send a message, after all rows before it."""
        self.flush()
        self._pipe.write(wire.frame(message))


class Worker:
    """Sends this process's part of the load."""

    def __init__(self, job: wire.Job, outbox: Outbox) -> None:
        self.job, self.outbox = job, outbox
        self.spec: LoadSpec = from_dict(job.spec)
        spec = self.spec
        self.stop = asyncio.Event()
        self._trace = read_arrivals(spec.arrivals_path) if spec.arrivals_path else None
        prompts = read_prompts(spec.prompts_path, spec.api == "chat") if spec.prompts_path else ()
        self._prompts_count = len(prompts)
        self._contents = Contents(spec, job.salt, job.model, prompts)
        self._target = parse_url(job.url, spec.api, job.address)
        key = os.environ.get(spec.key_env) if spec.key_env else None
        self._client = Client(self._target, spec.timeout_s, spec.keepalive, key)
        self._lag = LoopLag()
        self._start_ns = 0
        self._measured = 0

    async def run(self, start_ns: int) -> None:
        """Send, drain, and report health meanwhile."""
        self._start_ns = start_ns
        side = [asyncio.create_task(self._lag.watch()), asyncio.create_task(self._report_health())]
        flying: set[asyncio.Task[None]] = set()
        sending = asyncio.create_task(
            self._open(flying) if self.spec.is_open else self._closed(flying)
        )
        stopped = asyncio.create_task(self.stop.wait())
        await asyncio.wait({sending, stopped}, return_when=asyncio.FIRST_COMPLETED)
        self.stop.set()
        if sending.done():
            sending.result()  # a bug in the sender must not pass for a short load
        sending.cancel()
        if flying:
            await asyncio.wait(flying, timeout=self.spec.drain_s)
        left = [task for task in flying if not task.done()]
        for task in (*left, *side):
            task.cancel()
        ends = await asyncio.gather(*flying, *side, sending, return_exceptions=True)
        for end in ends:
            if isinstance(end, Exception):
                raise end
        self._health()
        self._client.close()

    def _shapes(self) -> Iterator[Shape]:
        """This worker's shapes. All workers draw the whole plan: it is cheap, and they agree."""
        every = shapes(self.spec, self._trace, self._prompts_count)
        return islice(every, self.job.worker, None, self.job.workers)

    async def _open(self, flying: set[asyncio.Task[None]]) -> None:
        mine = islice(plan(self.spec, self._trace), self.job.worker, None, self.job.workers)
        for planned, shape in zip(mine, self._shapes(), strict=False):
            body = self._contents.body(shape)  # before it is due, not when it is
            due_ns = self._start_ns + round(planned.offset_s * 1e9)
            await sleep_until(due_ns)
            task = asyncio.create_task(self._one(shape, body, due_ns, planned.warmup))
            flying.add(task)
            task.add_done_callback(flying.discard)

    async def _closed(self, flying: set[asyncio.Task[None]]) -> None:
        count = share_of(self.spec.concurrency_count or 0, self.job.worker, self.job.workers)
        mine = self._shapes()
        await sleep_until(self._start_ns)
        flying.update([asyncio.create_task(self._slot(mine)) for _ in range(count)])
        end_s = (
            self.spec.warmup_s + self.spec.duration_s if self.spec.duration_s is not None else None
        )
        timeout_s = None if end_s is None else end_s - self._elapsed_s()
        if flying:  # fewer slots than workers leave one without
            await asyncio.wait(flying, timeout=timeout_s)

    async def _slot(self, mine: Iterator[Shape]) -> None:
        """One of the callers of a closed loop: the next request when the last has ended."""
        spec, pause_s = self.spec, 0.0
        quota = None if spec.n is None else share_of(spec.n, self.job.worker, self.job.workers)
        while not self.stop.is_set():
            warmup = self._elapsed_s() < spec.warmup_s
            if not warmup and quota is not None and self._measured >= quota:
                return
            self._measured += not warmup
            shape = next(mine)
            answer = Answer()
            await self._one(shape, self._contents.body(shape), None, warmup, answer)
            # A server that refuses at once must not be hammered by N callers.
            low, high = _BACK_OFF_S
            pause_s = 0.0 if answer.status == "ok" else min(high, max(low, 2 * pause_s))
            if pause_s:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self.stop.wait(), pause_s)

    async def _one(
        self,
        shape: Shape,
        body: bytes,
        due_ns: int | None,
        warmup: bool,
        answer: Answer | None = None,
    ) -> None:
        answer = answer or Answer()
        request_id = f"wb-{self.job.run_id}-{shape.number}"

        def report() -> None:
            row = rows.request_row(
                answer, shape, request_id=request_id, due_ns=due_ns, warmup=warmup,
                epoch_offset_ns=self.job.epoch_offset_ns, node=self.job.node,
                replica=self._target.name,
            )  # fmt: skip
            self.outbox.add("requests", row)

        try:
            await self._client.request(body, request_id, answer, report)
        except asyncio.CancelledError:
            answer.error = "not finished when the load ended"
            raise
        except Exception as error:  # one bad request is a row, not the end of the load
            answer.status, answer.error = "error", f"client: {type(error).__name__}: {error}"
            answer.end_ns = time.monotonic_ns()
        finally:
            report()

    def _elapsed_s(self) -> float:
        return (time.monotonic_ns() - self._start_ns) / 1e9

    async def _report_health(self) -> None:
        while True:
            self._health()
            await asyncio.sleep(_HEALTH_S)

    def _health(self) -> None:
        t_ns = time.monotonic_ns() + self.job.epoch_offset_ns
        values = (
            ("client_cpu_s", "counter", cpu_s()),
            ("client_run_wait_s", "counter", run_wait_s()),
            ("client_loop_lag_s", "gauge", self._lag.take_s()),
        )
        for signal, kind, value in values:
            if value is not None:
                row = rows.sample_row(
                    signal, kind, value, t_ns=t_ns, node=self.job.node, worker=self.job.worker
                )
                self.outbox.add("samples", row)


async def sleep_until(due_ns: int) -> None:
    """Sleep until a monotonic time; never early, and late by what the event loop is late."""
    await asyncio.sleep(0)  # when several are overdue, each must get away before the next is made
    while (left_s := (due_ns - time.monotonic_ns()) / 1e9) > _EARLY_S:
        await asyncio.sleep(left_s)


async def _listen(stdin: asyncio.StreamReader, worker: Worker) -> None:
    """Obey the parent; without one there is nobody to measure for."""
    while (message := await wire.read_message(stdin)) is not None:
        if isinstance(message, wire.Stop):
            worker.stop.set()
    os._exit(1)


async def _main() -> None:
    loop = asyncio.get_running_loop()
    stdin = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    pipe, flow = await loop.connect_write_pipe(_Flow, sys.stdout)
    outbox = Outbox(pipe)
    job = await wire.read_message(stdin)
    if not isinstance(job, wire.Job):
        return
    worker = Worker(job, outbox)
    error = "realtime=no" if worker.spec.realtime == "no" else take_realtime()
    # What exists now stays: the collector need not look at it again, in the middle of a send.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    outbox.send(wire.Hello(error))
    go = await wire.read_message(stdin)
    if not isinstance(go, wire.Go):
        return
    listening = asyncio.create_task(_listen(stdin, worker))
    await worker.run(go.start_ns)
    listening.cancel()
    outbox.send(wire.Done())
    pipe.close()
    await flow.closed.wait()


class _Flow(asyncio.BaseProtocol):
    """Tells when everything written has left."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()


def main() -> None:
    """Entry of the process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:  # one socket a request in flight
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        import uvloop
    except ImportError:
        asyncio.run(_main())
    else:
        uvloop.run(_main())


if __name__ == "__main__":
    main()
