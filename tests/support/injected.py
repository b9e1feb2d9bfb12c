"""Bottlenecks injected into a server, judged through the command line: rows, traps, and their table."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

PROFILE = (sys.executable, "-m", "whybound")


@dataclass(frozen=True)
class Row:
    """One injected bottleneck: on which server, under which load and target, and what must come out.

    An open load's rate is `rate[0]` times what the same server does of the same `work` in a closed loop of
    `rate[1]`: machines differ by a factor of five. A closed load has `closed` = (concurrency, requests).
    `expected` is a class, `withheld`, or `engine step`: a class inside the engine's own step, or an abstention
    between such; `never` names classes that it may not be nor lean to.
    """

    name: str
    server: str
    work: str
    expected: str
    rate: tuple[float, int] | None = None
    closed: tuple[int, int] | None = None
    requests: int = 45
    more: str = ""
    target: str | None = None
    trap: tuple[str, ...] = ()
    sub_cause: str | None = None
    never: tuple[str, ...] = ()


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class Server:
    """One vLLM, alive for all of its rows."""

    def __init__(self, command: Sequence[str], env: dict[str, str] | None, log: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                [*command, "--port", str(self.port)],
                env=env,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._wait(log)

    def _wait(self, log: Path) -> None:
        for _ in range(600):
            assert self.process.poll() is None, log.read_text()[-2000:]
            try:
                urllib.request.urlopen(self.url + "/health", timeout=2).read()
            except (urllib.error.URLError, OSError):
                time.sleep(0.3)
            else:
                return
        raise AssertionError("vLLM was not ready after 3 minutes")

    def stop(self) -> None:
        """End the whole tree: a killed API server leaves its engine behind."""
        tree = [
            psutil.Process(self.process.pid),
            *psutil.Process(self.process.pid).children(recursive=True),
        ]
        self.process.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs(tree, timeout=10)
        for process in alive:
            process.kill()
        self.process.wait()


@contextmanager
def trapped(trap: Sequence[str], server: Server) -> Iterator[str | None]:
    """Runs a trap beside the load; gives the address that the load must use, if another."""
    if not trap:
        yield None
        return
    kind, *options = trap
    port = free_port()
    arguments = {
        "proxy": [str(port), str(server.port), *options],
        "duty": [str(server.process.pid), "50", "50"],
        "burn": [],
    }[kind]
    copies = 2 if kind == "burn" else 1
    running = [
        subprocess.Popen(
            [sys.executable, Path(__file__).with_name("traps.py"), kind, *arguments],
            stdout=subprocess.PIPE,
        )
        for _ in range(copies)
    ]
    try:
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        yield f"http://127.0.0.1:{port}" if kind == "proxy" else None
    finally:
        for process in running:
            process.terminate()
            process.wait()
        os.kill(server.process.pid, signal.SIGCONT)


def attach(
    server: Server, row: Row, load: str, load_url: str | None, run_dir: Path
) -> dict[str, Any]:
    command: list[Any] = [
        *PROFILE,
        "attach",
        "--url",
        server.url,
        "--load",
        load,
        "-o",
        run_dir,
        "--json",
        "-q",
    ]
    if load_url:
        command += ["--load-url", load_url]
    if row.target:
        command += ["--target", row.target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def _outcome(d: dict[str, Any]) -> str:
    v = d["verdict"]
    if v["withheld"]:
        return "withheld"
    return "abstains" if v["abstained"] else str(v["class"] or "no action")


def capacity(url: str, work: str, concurrency: int) -> float:
    """Requests a second of a closed loop."""
    load = f"closed:concurrency={concurrency},{work},n={max(8, 3 * concurrency)}"
    command = [*PROFILE, "load", url, "--load", load, "--json", "-q"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return float(json.loads(done.stdout)["requests_per_s"])


def load_of(row: Row, url: str) -> str:
    """The row's load for this machine: long enough for its requests, and for some scrapes."""
    more = f",{row.more}" if row.more else ""
    if row.closed:
        return f"closed:concurrency={row.closed[0]},{row.work},n={row.closed[1]}{more}"
    assert row.rate is not None
    rate = row.rate[0] * capacity(url, row.work, row.rate[1])
    seconds = min(120.0, max(12.0, row.requests / rate))
    return f"poisson:rate={rate:.3g},{row.work},d={seconds:.0f}s{more}"


HEADER = f"{'injected':<32} {'expected':<12} {'verdict':<34} conf  evidence"


def line(row: Row, d: dict[str, Any]) -> str:
    v = d["verdict"]
    found = _outcome(d) + (f" / {v['sub_cause']}" if v["sub_cause"] else "")
    fired = ", ".join(f["rule"] for f in d["findings"] if f["state"] == "fires")
    broken = ", ".join(p["id"] for p in d["prechecks"] if p["state"] == "fires")
    gains = " ".join(f"{k}={g['mid']:.2f}" for k, g in v["gain_vector"].items() if g["mid"] >= 1.1)
    said = " ".join(x for x in (fired, broken) if x) or "-"
    return f"{row.name:<32} {row.expected:<12} {found:<34} {v['confidence']:<5} {said} | {gains}"


INSIDE = {"memory", "compute", "launch", "latency"}
"""Classes inside the engine's own step."""


def as_expected(row: Row, d: dict[str, Any]) -> bool:
    v = d["verdict"]
    if row.expected == "engine step":
        leans = {v["class"], *(v["candidates"] if v["abstained"] else ())}
        settled = v["class"] is not None or d["next_measurement"] is not None
        return bool(leans & INSIDE) and v["class"] not in row.never and settled
    if row.expected == "withheld":
        return v["withheld"] and any(
            p["id"] == "client_bound" and p["state"] == "fires" for p in d["prechecks"]
        )
    return _outcome(d) == row.expected and (
        row.sub_cause is None or v["sub_cause"] == row.sub_cause
    )


def run_table(
    command: Sequence[str],
    servers: dict[str, tuple[str, ...]],
    rows: Sequence[Row],
    *,
    env: dict[str, str] | None,
    folder: Path,
    warm: str,
) -> list[str]:
    """Judge every row on its server, print the table, and name the rows that came out otherwise twice.

    Machines are shared: a row that comes out otherwise is measured once more, and both lines are shown.
    """
    lines, wrong = [], []
    for name, flags in servers.items():
        server = Server((*command, *flags), env, folder / f"{name}.log")
        try:
            subprocess.run(
                [*PROFILE, "load", server.url, "--load", warm, "-q"],
                capture_output=True,
                check=False,
            )
            for row in (r for r in rows if r.server == name):
                for attempt in (1, 2):
                    load = load_of(row, server.url)  # measured before the trap is set
                    there = folder / f"{row.name.replace(' ', '-')}-{attempt}"
                    with trapped(row.trap, server) as load_url:
                        d = attach(server, row, load, load_url, there)
                    lines.append(line(row, d) + (" (again)" if attempt == 2 else ""))
                    print(lines[-1], flush=True)
                    if as_expected(row, d):
                        break
                else:
                    wrong.append(row.name)
        finally:
            server.stop()
    print("\n".join(["", HEADER, *lines]))
    return wrong
