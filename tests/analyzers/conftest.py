"""Small runs, written through the recorder as a session would, and opened as a database."""

from __future__ import annotations

import bisect
import random
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest

from whybound.analyzers.database import open_database
from whybound.analyzers.scheduler import Pass, Policy, Request, simulate
from whybound.analyzers.step_cost import StepCost, affine, pass_cost, step_s
from whybound.collector.store import Run, RunWriter, create_run, open_run

START_NS = 1_700_000_000_000_000_000
"""Second 0 of every built run."""

LABELS = {
    "node": "n", "engine": "vllm", "replica": "r", "gpu": "", "phase": "", "reason": "", "labels": "{}",
}  # fmt: skip


def ns(t_s: float) -> int:
    return START_NS + round(t_s * 1e9)


class Build:
    """Rows of a run; times are seconds after its start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, list[dict[str, Any]]] = {}
        self.manifest: dict[str, Any] = {}

    def add(self, table: str, **row: Any) -> None:
        self.rows.setdefault(table, []).append(row)

    def request(
        self, at: float, ttft: float | None = None, gaps: Iterable[float] = (), **more: Any
    ) -> None:
        """A client's request; one without `ttft` got no token. One token a chunk unless told otherwise."""
        gaps = list(gaps)
        e2e = None if ttft is None else ttft + sum(gaps)
        seen = ttft is not None
        row = {
            "request_id": f"q{len(self.rows.get('requests', []))}", "source": "client", "arrival_ns": ns(at),
            "sent_ns": ns(at), "first_token_ns": ns(at + ttft) if seen else None,
            "end_ns": ns(at + e2e) if seen else None, "send_lag_s": 0.0, "client_ttft_s": ttft,
            "client_e2e_s": e2e, "input_tokens": 10, "output_tokens": len(gaps) + 1 if seen else None,
            "chunk_count": len(gaps) + 1 if seen else None, "chunk_gap_s": gaps if seen else None,
            "status": "ok", "warmup": False, "node": "n", "replica": "r",
        }  # fmt: skip
        self.add("requests", **{**row, **more})

    def gauge(self, t: float, **values: float) -> None:
        """One scrape: `engine_running_count=3, engine_waiting_count=0`."""
        for signal, value in values.items():
            self.add("samples", t_ns=ns(t), signal=signal, kind="gauge", value=value, **LABELS)

    def counter(self, signal: str, values: dict[float, float], **labels: str) -> None:
        """A counter by second, e.g. `{0: 5, 1: 9}`."""
        for t, value in values.items():
            self.add(
                "samples",
                t_ns=ns(t),
                signal=signal,
                kind="counter",
                value=value,
                **{**LABELS, **labels},
            )

    def histogram(
        self, signal: str, scrapes: dict[float, tuple[float, float]], **labels: str
    ) -> None:
        """A histogram's (sum, count) by second."""
        for t, (total, count) in scrapes.items():
            self.add(
                "histograms", t_ns=ns(t), signal=signal, unit="s", bounds=[float("inf")], counts=[count],
                sum=total, count=count, **{**LABELS, **labels},
            )  # fmt: skip

    def settings(self, origin: str = "effective", t: float = 0, **values: Any) -> None:
        for key, value in values.items():
            self.add(
                "settings", t_ns=ns(t), engine="vllm", replica="", key=key, value=str(value), origin=origin,
                source="argv", node="n",
            )  # fmt: skip

    def event(self, kind: str, text: str = "", value: float | None = None, t: float = 0) -> None:
        self.add(
            "events", t_ns=ns(t), kind=kind, text=text, value=value, node="n", source="session"
        )

    def run(self, without: str | None = None) -> Run:
        """The run on disk, perhaps without one table."""
        create_run(self.path, force=True)
        with RunWriter(self.path, "n") as writer:
            for table, rows in self.rows.items():
                if table != without:
                    writer.append(table, rows)
            writer.update_manifest(**self.manifest)
        assert not writer.dropped, writer.rejected
        return open_run(self.path)

    def database(self, without: str | None = None) -> duckdb.DuckDBPyConnection:
        return open_database(self.run(without))


def one_of_everything(build: Build) -> Build:
    """One request, one scrape, one setting, one event; counters and histograms cannot grow yet."""
    build.request(0, 0.2, [0.1, 0.1])
    build.gauge(0.1, engine_running_count=1, engine_waiting_count=1, kv_used_ratio=0.1)
    build.counter("generation_tokens", {0.1: 5})
    build.histogram("e2e_s", {0.1: (1.0, 1)})
    build.settings(max_num_seqs=4)
    build.event("load_mode", "open")
    return build


def emulate(
    build: Build,
    *,
    rate: float,
    n: int = 200,
    tokens: tuple[int, int] = (64, 48),
    policy: dict[str, int] | None = None,
    step: tuple[float, float, float] | StepCost = (0.02, 0.0005, 0.00005),
    path_s: float = 0.001,
    front_end_s: float = 0.002,
    run_wait_ratio: float = 0.0,
    seed: int = 3,
    log_steps: bool = False,
    prompt_spread: float = 0.0,
    told: Mapping[str, object] | None = None,
) -> Build:
    """A run of Poisson arrivals through the pass-level scheduler, seen by a client and by scrapes.

    Args:
        build: where its rows go.
        rate: requests a second.
        n: requests.
        tokens: prompt and answer of each, the answers spread by a third, the prompts by `prompt_spread`.
        policy: what differs from 64 slots, a budget of 2048 tokens and 4096 blocks.
        step: seconds of a pass: base, more a decoded sequence, more a prefilled token; or all of its parts.
        path_s: seconds between client and server, all of them before the first token.
        front_end_s: seconds of the server outside of its engine, likewise.
        run_wait_ratio: seconds a second that the client was runnable and did not run.
        seed: of arrivals and lengths.
        log_steps: the engine keeps an account of every pass.
        told: settings beside the limits: model, gpu_name…
    """
    rng = random.Random(seed)
    limits = Policy(
        **{"max_num_seqs": 64, "token_budget": 2048, "num_blocks": 4096, **(policy or {})}
    )
    requests, now = [], 0.0
    for i in range(n):
        now += rng.expovariate(rate)
        answer = max(2, round(tokens[1] * rng.uniform(0.67, 1.33)))
        prompt = tokens[0]
        if prompt_spread:
            prompt = max(1, round(prompt * rng.uniform(1 - prompt_spread, 1 + prompt_spread)))
        requests.append(Request(i, prompt, answer, arrival_s=now))
    emissions: dict[int, list[float]] = {r.id: [] for r in requests}
    passes: list[tuple[float, float, Pass]] = []

    cost_of = step if isinstance(step, StepCost) else affine(*step)

    def cost(p: Pass) -> float:
        return float(step_s(cost_of, p.decode_count, p.prefill_tokens, p.decode_context_tokens))

    def observe(start: float, end: float, p: Pass, outcome: Any) -> None:
        passes.append((start, end, p))
        for r in outcome.emitted:
            emissions[r.id].append(end)

    timings = simulate(requests, limits, cost, observe)
    done: dict[str, list[tuple[float, float]]] = {}
    for request, timing in zip(requests, timings, strict=True):
        at, first, end = timing.arrival_s, timing.first_token_s, timing.end_s
        out, gaps = emissions[request.id], [b - a for a, b in pairwise(emissions[request.id])]
        build.request(
            at, first - at + path_s + front_end_s, gaps, input_tokens=request.prompt_tokens
        )
        # vLLM stamps a request as queued when the pass in flight at its arrival has ended
        queue_s = timing.scheduled_s - at - timing.wait_busy_s
        phases = {
            "queue_s": queue_s, "prefill_s": first - timing.scheduled_s,
            "decode_s": end - first, "inference_s": end - timing.scheduled_s,
            "ttft_s": first - at + front_end_s, "e2e_s": end - at + front_end_s,
        }  # fmt: skip
        for signal, value in phases.items():
            done.setdefault(signal, []).append((end, value))
        done.setdefault("itl_s", []).extend(zip(out[1:], gaps, strict=True))
    last = max(t.end_s for t in timings)
    scrapes = [0.5 * i for i in range(-1, int(2 * last) + 3)]
    for signal, values in done.items():
        values.sort()
        build.histogram(signal, _cumulative(values, scrapes))
    _gauges(build, passes, scrapes, limits)
    if log_steps:
        _log(build, passes, cost_of)
    build.settings(
        max_num_seqs=limits.max_num_seqs, max_num_batched_tokens=limits.token_budget,
        num_gpu_blocks=limits.num_blocks, block_size=limits.block_size, **(told or {}),
    )  # fmt: skip
    build.event("load_mode", "open")
    tokens_out = sorted(at for ends in emissions.values() for at in ends)
    build.counter("generation_tokens", {t: bisect.bisect_right(tokens_out, t) for t in scrapes})
    build.counter("preemptions_count", dict.fromkeys(scrapes, 0))
    for signal, ratio in (("client_cpu_s", 0.1), ("client_run_wait_s", run_wait_ratio)):
        build.counter(signal, {t: max(0.0, t) * ratio for t in scrapes}, engine="")
    return build


def _log(build: Build, passes: list[tuple[float, float, Pass]], cost: StepCost) -> None:
    for start, end, p in passes:
        terms = pass_cost(cost, p.decode_count, p.prefill_tokens, p.decode_context_tokens)
        build.add(
            "steps", t_ns=ns(start), engine="vllm", node="n", replica="r", prefill_tokens=p.prefill_tokens,
            decode_requests_count=p.decode_count, decode_tokens=p.decode_count,
            context_tokens=p.decode_context_tokens, elapsed_s=end - start, host_s=float(terms.host),
            device_s=float(max(terms.gpu, terms.launch)),
        )  # fmt: skip


def _cumulative(
    values: list[tuple[float, float]], scrapes: list[float]
) -> dict[float, tuple[float, float]]:
    found, total, count, i = {}, 0.0, 0, 0
    for t in scrapes:
        while i < len(values) and values[i][0] <= t:
            total, count, i = total + values[i][1], count + 1, i + 1
        found[t] = (total, float(count))
    return found


def _gauges(
    build: Build, passes: list[tuple[float, float, Pass]], scrapes: list[float], limits: Policy
) -> None:
    starts = [start for start, _, _ in passes]
    for t in scrapes:
        at = bisect.bisect_right(starts, t) - 1
        inside = at >= 0 and t <= passes[at][1]
        p = passes[at][2] if inside else None
        build.gauge(
            t,
            engine_running_count=p.running_count if p else 0,
            engine_waiting_count=p.waiting_count if p else 0,
            kv_used_ratio=1 - p.free_blocks / limits.num_blocks if p else 0.0,
        )


@pytest.fixture
def build(tmp_path: Path) -> Build:
    return Build(tmp_path / "run")


@pytest.fixture(scope="module")
def module_build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """One for all tests of a file; they only read it."""
    return Build(tmp_path_factory.mktemp("module") / "run")


@pytest.fixture
def new_build(tmp_path: Path) -> Callable[[str], Build]:
    return lambda name: Build(tmp_path / name)


@pytest.fixture
def one_row(build: Build) -> Build:
    return one_of_everything(build)


@pytest.fixture
def emulated(build: Build) -> Callable[..., Build]:
    return lambda **world: emulate(build, **world)


@pytest.fixture(scope="session")
def emulated_at() -> Callable[..., Build]:
    """As `emulated`, for a run that several tests share."""
    return lambda path, **world: emulate(Build(path), **world)
