"""Bottlenecks to inject in front of, or into, a real server: a proxy, a stop-and-go process, a starved client.

python traps.py proxy PORT UPSTREAM [--delay-ms 200] [--buffer-bytes 16384]
python traps.py duty PID STOP_MS RUN_MS
python traps.py burn
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time


async def _proxy(port: int, upstream: int, delay_s: float, buffer_bytes: int) -> None:
    """One connection a request; the request is held back, the answer sent in blocks."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held = b""
        streams = False
        while data := await reader.read(65536):
            streams = streams or b"text/event-stream" in data[:2000]
            if not (buffer_bytes and streams):
                writer.write(data)
            else:
                held += data
                while len(held) >= buffer_bytes:
                    writer.write(held[:buffer_bytes])
                    held = held[buffer_bytes:]
                if held.endswith(b"0\r\n\r\n"):  # the end of a chunked body
                    writer.write(held)
                    held = b""
            await writer.drain()
        writer.write(held)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", upstream)
        first = await reader.read(65536)
        await asyncio.sleep(delay_s)
        up_writer.write(first)

        async def rest() -> None:
            while data := await reader.read(65536):
                up_writer.write(data)

        pump = asyncio.create_task(rest())
        try:
            await answer(up_reader, writer)
        except ConnectionError:
            pass
        finally:
            pump.cancel()
            up_writer.close()
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port)
    print("ready", flush=True)
    await server.serve_forever()


def _duty(pid: int, stop_s: float, run_s: float) -> None:
    """Stop and continue one process until we are ended; it is left running."""
    going = True

    def end(*_: object) -> None:
        nonlocal going
        going = False

    signal.signal(signal.SIGTERM, end)
    print("ready", flush=True)
    try:
        while going:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(stop_s)
            os.kill(pid, signal.SIGCONT)
            time.sleep(run_s)
    finally:
        os.kill(pid, signal.SIGCONT)


def _burn() -> None:
    """Keep one core busy."""
    print("ready", flush=True)
    while True:
        pass


def main() -> None:
    """Pick the trap."""
    parser = argparse.ArgumentParser()
    traps = parser.add_subparsers(dest="trap", required=True)
    proxy = traps.add_parser("proxy")
    proxy.add_argument("port", type=int)
    proxy.add_argument("upstream", type=int)
    proxy.add_argument("--delay-ms", type=float, default=0.0)
    proxy.add_argument("--buffer-bytes", type=int, default=0)
    duty = traps.add_parser("duty")
    duty.add_argument("pid", type=int)
    duty.add_argument("stop_ms", type=float)
    duty.add_argument("run_ms", type=float)
    traps.add_parser("burn")
    args = parser.parse_args()
    if args.trap != "burn" and hasattr(os, "sched_setscheduler"):
        try:  # beside a spinning engine a trap starves as a client does
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        except PermissionError:
            print("no real-time priority: the trap may starve", file=sys.stderr)
    if args.trap == "proxy":
        asyncio.run(_proxy(args.port, args.upstream, args.delay_ms / 1e3, args.buffer_bytes))
    elif args.trap == "duty":
        _duty(args.pid, args.stop_ms / 1e3, args.run_ms / 1e3)
    else:
        _burn()


if __name__ == "__main__":
    main()
