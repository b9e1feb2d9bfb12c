"""How late does the load generator send? `python benchmarks/load_send_lag.py --server bare`.

Two loads on this machine: 500 streams of 10 tokens a second, and 200 short requests a second.
Beside each stands a reference, taken just before it: the same arrivals with nothing to send, which
is what this machine's timers and its other processes cost. Goal: p99 below 5 ms on 2 cores.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import multiprocessing
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import psutil

from whybound.collector.load.arrivals import plan
from whybound.collector.load.health import take_realtime
from whybound.collector.load.run import run_load
from whybound.collector.load.spec import LoadSpec, parse_load
from whybound.collector.load.worker import sleep_until

GOAL_S = 0.005
# name → load, gap between tokens of the bare server, options of the emulated engine for that pace
LOADS = {
    "500 streams x 10 tokens/s": (
        "poisson:rate=50,in=32,out=100,warmup=10s,d=10s,seed=1",
        0.1,
        ["--max-num-seqs", "1024", "--max-num-batched-tokens", "8192", "--gpu-preset", "h100",
         "--model-preset", "llama-8b", "--speed", "0.16"],
    ),
    "200 requests/s x 16 tokens": (
        "poisson:rate=200,in=32,out=16,warmup=2s,d=10s,seed=1",
        0.02,
        ["--max-num-seqs", "1024", "--max-num-batched-tokens", "8192", "--gpu-preset", "h100",
         "--model-preset", "llama-8b", "--front-end-ms", "0.1"],
    ),
}  # fmt: skip

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
_TOKEN = b'data: {"id":"x","choices":[{"index":0,"text":" ab","logprobs":null}]}\n\n'


class BareStream(asyncio.Protocol):
    """Streams `max_tokens` events `gap_s` apart and costs as little as it can."""

    gap_s = 0.1

    def __init__(self) -> None:
        self._got = b""
        self._left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way to answer."""
        self._transport: Any = transport

    def data_received(self, data: bytes) -> None:
        """Begin to stream once the request says how much."""
        self._got += data
        found = re.search(rb'"max_tokens":\s*(\d+)', self._got)
        if found and not self._left:
            self._left = self._k = int(found[1])
            self._loop = asyncio.get_running_loop()
            self._due = self._loop.time()
            self._transport.write(_HEAD)
            self._tick()

    def _tick(self) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(_TOKEN)
        self._left -= 1
        if self._left:
            self._due += self.gap_s
            self._loop.call_at(self._due, self._tick)
            return
        usage = {"prompt_tokens": 32, "completion_tokens": self._k}
        last = json.dumps({"choices": [], "usage": usage})
        self._transport.write(f"data: {last}\n\ndata: [DONE]\n\n".encode())
        self._transport.close()


def serve_bare(port: int, gap_s: float) -> None:
    """Run the bare server until killed."""

    async def serve() -> None:
        BareStream.gap_s = gap_s
        loop = asyncio.get_running_loop()
        server = await loop.create_server(BareStream, "127.0.0.1", port, backlog=1024)
        await server.serve_forever()

    asyncio.run(serve())


@contextmanager
def server(kind: str, gap_s: float, options: list[str]) -> Iterator[tuple[str, psutil.Process]]:
    """A server of that kind in its own process: its URL, and the process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, __file__, "--serve", str(port), str(gap_s)]
    if kind == "engine":
        command = [sys.executable, "-m", "whybound.fixtures.engine", "--port", str(port), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}", psutil.Process(process.pid)
    finally:
        process.kill()
        process.wait()


def reference_lags_s(spec: LoadSpec, count: int) -> list[float]:
    """Lags of the first `count` arrivals when there is nothing to do at each."""

    async def wait() -> list[float]:
        start_ns, lags = time.monotonic_ns() + 100_000_000, []
        for planned in islice(plan(spec), count):
            due_ns = start_ns + round(planned.offset_s * 1e9)
            await sleep_until(due_ns)
            lags.append((time.monotonic_ns() - due_ns) / 1e9)
        return lags

    if spec.realtime != "no":
        take_realtime()
    return asyncio.run(wait())


def measure(name: str, kind: str, extra: str) -> bool:
    """Run one load, print its line; True when the goal was met."""
    text, gap_s, options = LOADS[name]
    spec = parse_load(text + extra)
    count = min(1000, round((spec.rate_per_s or 1) * 8))
    # In a process of its own: the generator's workers have theirs.
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        reference = pool.apply(reference_lags_s, (spec, count))
    lags: list[float] = []
    cpu: dict[str, list[tuple[int, float]]] = {}

    def sink(table: str, batch: list[dict[str, Any]]) -> None:
        for row in batch:
            if table == "requests" and row["status"] != "unfinished" and not row["warmup"]:
                lags.append(row["send_lag_s"])
            elif table == "samples" and row["signal"] == "client_cpu_s":
                cpu.setdefault(row["labels"], []).append((row["t_ns"], row["value"]))

    with server(kind, gap_s, options) as (url, process):
        begun, before = time.monotonic(), sum(process.cpu_times()[:2])
        summary = asyncio.run(
            run_load(
                spec, url=url, model="m" if kind == "bare" else None, run_id="bench", sink=sink,
                node="", stop=asyncio.Event(),
            )
        )  # fmt: skip
        took_s = time.monotonic() - begun
        server_cpu = (sum(process.cpu_times()[:2]) - before) / took_s
    p50, p99 = np.quantile(lags, [0.5, 0.99])
    ref50, ref99 = np.quantile(reference, [0.5, 0.99])
    worker_cpu = ", ".join(
        f"{(rows[-1][1] - rows[0][1]) / ((rows[-1][0] - rows[0][0]) / 1e9):.0%}"
        for rows in cpu.values()
    )
    print(f"{name} on the {kind} server: {summary.ok} ok, {summary.failed} failed,"
          f" {summary.unfinished} unfinished, realtime {summary.realtime}")  # fmt: skip
    print(f"  send lag     p50 {p50 * 1e3:6.2f} ms   p99 {p99 * 1e3:6.2f} ms")
    print(f"  nothing sent p50 {ref50 * 1e3:6.2f} ms   p99 {ref99 * 1e3:6.2f} ms"
          f"   ratio of p99 {p99 / ref99:.1f}")  # fmt: skip
    print(f"  TTFT p50 {summary.ttft_s.get('p50', float('nan')) * 1e3:.1f} ms,"
          f" ITL p50 {summary.itl_s.get('p50', float('nan')) * 1e3:.1f} ms"
          f" p99 {summary.itl_s.get('p99', float('nan')) * 1e3:.1f} ms,"
          f" {summary.output_tokens_per_s or float('nan'):.0f} tokens/s")  # fmt: skip
    print(f"  CPU of a core: workers {worker_cpu}; server {server_cpu:.0%}")
    return bool(p99 < GOAL_S)


def main() -> int:
    """Run both loads; exit 1 when the goal was missed."""
    if sys.argv[1:2] == ["--serve"]:
        serve_bare(int(sys.argv[2]), float(sys.argv[3]))
    parser = argparse.ArgumentParser(description=__doc__)
    has_engine = importlib.util.find_spec("whybound.fixtures.engine") is not None
    parser.add_argument("--server", choices=["bare", "engine"],
                        default="engine" if has_engine else "bare")  # fmt: skip
    parser.add_argument("--extra", default="", help="more keys for both loads, e.g. realtime=no")
    options = parser.parse_args()
    extra = f",{options.extra}" if options.extra else ""
    met = [measure(name, options.server, extra) for name in LOADS]
    print(f"goal, p99 below {GOAL_S * 1e3:.0f} ms: {'met' if all(met) else 'MISSED'}")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
