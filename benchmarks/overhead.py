"""What the profiler costs the server: throughput and TTFT with and without it, in ABBA order.

    python benchmarks/overhead.py [--pairs 5] [--hz 1] [--seconds 10] [-- vllm serve MODEL …]

Closed loop at saturation; the server is restarted for every arm, and the load generator runs in both, so
that only the profiler differs. Without a command the emulated engine is the server. Prints the ratio
with / without as a geometric mean over pairs with its 95 % interval (t), the minimum detectable effect
of this many pairs, the agent's CPU seconds a second and a server CPU second, and its memory above a bare
Python's.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import psutil

PROFILE = (sys.executable, "-m", "whybound")
EMULATED = (
    sys.executable,
    "-m",
    "whybound.fixtures.engine",
    "--gpu-preset",
    "toy",
    "--max-num-seqs",
    "16",
)
T95 = {
    1: 12.71,
    2: 4.30,
    3: 3.18,
    4: 2.78,
    5: 2.57,
    6: 2.45,
    7: 2.36,
    8: 2.31,
    9: 2.26,
    14: 2.14,
    19: 2.09,
}
"""Two-sided 95 % quantiles of Student's t by degrees of freedom."""


@dataclass(frozen=True)
class Arm:
    """One measured window. Times in seconds, memory in bytes; the agent's are 0 without it."""

    tokens_per_s: float
    ttft_p50_s: float
    agent_cpu_s: float = 0.0
    agent_rss_bytes: int = 0
    server_cpu_s: float = 0.0
    window_s: float = 0.0


def main() -> None:
    """Run the pairs and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--hz", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--load", default="closed:concurrency=16,in=64,out=64,warmup=2s")
    parser.add_argument("command", nargs="*", default=EMULATED)
    args = parser.parse_args()
    load = f"{args.load},d={args.seconds:g}s"
    pairs = []
    for i in range(args.pairs):
        order = (False, True) if i % 2 == 0 else (True, False)
        arms = {
            profiled: measure(args.command, load, args.hz if profiled else None)
            for profiled in order
        }
        pairs.append((arms[False], arms[True]))
        base, with_it = pairs[-1]
        print(
            f"pair {i + 1}: {base.tokens_per_s:.1f} -> {with_it.tokens_per_s:.1f} tokens/s,"
            f" TTFT p50 {base.ttft_p50_s * 1e3:.1f} -> {with_it.ttft_p50_s * 1e3:.1f} ms",
            flush=True,
        )
    show(pairs, args.hz)


def measure(command: tuple[str, ...] | list[str], load: str, hz: float | None) -> Arm:
    """One arm on a fresh server; `hz` None leaves the profiler out."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [*command, "--port", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    tree: list[psutil.Process] = []
    agent = None
    with tempfile.TemporaryDirectory() as folder:
        try:
            wait_ready(url, server)
            tree = [
                psutil.Process(server.pid),
                *psutil.Process(server.pid).children(recursive=True),
            ]
            run(
                [
                    *PROFILE,
                    "load",
                    url,
                    "--load",
                    "closed:concurrency=16,in=64,out=8,n=32",
                    "-q",
                    "--json",
                ]
            )
            if hz is not None:
                agent = subprocess.Popen(
                    [*PROFILE, "attach", "--url", url, "--interval", f"{1000 / hz:.0f}ms",
                     "-o", Path(folder) / "R", "-q", "--json"],
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                )  # fmt: skip
                time.sleep(3)  # its start is not part of watching
            watched = psutil.Process(agent.pid) if agent else None
            before, server_before, t0 = (
                cpu([watched] if watched else []),
                cpu(tree),
                time.monotonic(),
            )
            summary = json.loads(run([*PROFILE, "load", url, "--load", load, "-q", "--json"]))
            window = time.monotonic() - t0
            return Arm(
                tokens_per_s=summary["output_tokens_per_s"],
                ttft_p50_s=summary["ttft_s"]["p50"],
                agent_cpu_s=cpu([watched]) - before if watched else 0.0,
                agent_rss_bytes=watched.memory_info().rss if watched else 0,
                server_cpu_s=cpu(tree) - server_before,
                window_s=window,
            )
        finally:
            if agent is not None:
                agent.send_signal(signal.SIGINT)
                agent.wait(timeout=60)
            server.terminate()
            _, alive = psutil.wait_procs(tree, timeout=10)
            for process in alive:
                process.kill()
            server.wait()


def run(command: list[str] | list[object]) -> str:
    """Standard output of a command that must succeed."""
    return subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, check=True
    ).stdout


def cpu(processes: list[psutil.Process]) -> float:
    """CPU seconds of processes so far."""
    return sum(sum(p.cpu_times()[:2]) for p in processes)


def wait_ready(url: str, server: subprocess.Popen[bytes]) -> None:
    """Until /health answers."""
    for _ in range(1200):
        if server.poll() is not None:
            raise SystemExit(f"the server ended with code {server.returncode}")
        try:
            urllib.request.urlopen(url + "/health", timeout=2).read()  # noqa: S310 — loopback
        except (urllib.error.URLError, OSError):
            time.sleep(0.25)
        else:
            return
    raise SystemExit("the server was not ready after 5 minutes")


def ratio(pairs: list[tuple[float, float]]) -> tuple[float, float, float, float]:
    """Geometric mean of with / without, its 95 % interval, and the smallest effect this could show."""
    logs = [math.log(b / a) for a, b in pairs]
    mean = statistics.fmean(logs)
    if len(logs) < 2:
        return math.exp(mean), math.nan, math.nan, math.nan
    half = T95.get(len(logs) - 1, 2.0) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half), math.expm1(half)


def show(pairs: list[tuple[Arm, Arm]], hz: float) -> None:
    """The table."""
    print(f"\n{len(pairs)} pairs in ABBA order, server restarted for each arm, {hz:g} Hz")
    for name, pick in (
        ("throughput", lambda a: a.tokens_per_s),
        ("TTFT p50", lambda a: a.ttft_p50_s),
    ):
        r, low, high, smallest = ratio([(pick(a), pick(b)) for a, b in pairs])
        print(
            f"{name:<12} with/without {r:.4f} (95 % {low:.4f} to {high:.4f}; detectable from {smallest:.1%})"
        )
    arms = [b for _, b in pairs]
    agent = sum(a.agent_cpu_s for a in arms)
    print(f"agent CPU    {agent / sum(a.window_s for a in arms):.2%} of a core, "
          f"{agent / max(sum(a.server_cpu_s for a in arms), 1e-9):.3%} of the server's CPU time")  # fmt: skip
    bare = psutil.Process(
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3)"]).pid
    )
    time.sleep(1)
    above = max(a.agent_rss_bytes for a in arms) - bare.memory_info().rss
    print(f"agent memory {above / 1e6:.0f} MB above a bare Python")


if __name__ == "__main__":
    main()
