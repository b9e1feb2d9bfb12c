"""The one observation that separates the remaining candidates best, for the least effort, as a line to paste."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..rules.model import NextMeasurement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..rules.model import PrecheckResult, Verdict

INSIDE = frozenset({"memory", "compute", "launch", "latency"})
"""Classes inside the engine's own step."""


@dataclass(frozen=True)
class Observation:
    """Something that can be looked at.

    Attributes:
        separates: classes that it tells apart from one another and from the rest.
        unless: signals any of which say that it was looked at already.
        command: a line; `{url}`, `{model}` and `{run}` stand for the run's own.
        because: what each outcome would mean.
        effort: 1 reads a number, 2 sends load, 3 restarts the server.
    """

    separates: frozenset[str]
    unless: tuple[str, ...]
    command: str
    because: str
    effort: int


OBSERVATIONS = (
    Observation(
        INSIDE | {"network"}, ("gpu_dram_ratio",),
        "dcgmi dmon -e 1001,1002,1004,1005 -d 1000 -c 30",
        "DRAM active high: memory; tensor active high: compute; both low with gaps (graphics engine idle):"
        " launch; without gaps: latency, or collectives where several GPUs serve",
        1,
    ),
    Observation(
        frozenset({"scheduling", "queueing"}), ("waiting_busy_ratio",),
        "curl -s {url}/metrics | grep -E 'num_requests_(running|waiting)|cache_usage'",
        "requests wait while running stays at the batch cap and the KV cache has room: scheduling; with every"
        " slot and block in use: more load than capacity",
        1,
    ),
    Observation(
        frozenset({"network"}), ("network_e2e_s", "network_ttft_s"),
        "profile attach --url {url} --load poisson:rate=1 -d 60s -o RUN2",
        "what the client sees above the server's own time is the path: network",
        2,
    ),
    Observation(
        INSIDE, (),
        "for n in 1 4 16; do profile attach --url {url} --load closed:concurrency=$n -d 30s -o sweep-$n; done",
        "a step that does not grow with the batch reads weights (memory) or waits for the host (launch); one"
        " that grows in proportion is compute",
        2,
    ),
    Observation(
        INSIDE | {"network", "scheduling"}, (),
        "nsys profile -t cuda,nvtx --cuda-graph-trace=graph -d 10 -o decode -- CMD",
        "gaps between kernels: launch; none, and the memory interface full: memory; collectives on the line:"
        " network",
        3,
    ),
)  # fmt: skip


def next_measurement(
    verdict: Verdict,
    prechecks: list[PrecheckResult],
    manifest: Mapping[str, Any],
    facts: Mapping[str, float],
    missing: list[str],
) -> NextMeasurement | None:
    """What would settle what is open; None when nothing is."""
    broken = [p for p in prechecks if p.effect == "invalid"]
    if broken:
        load = shlex.quote(str(manifest.get("load_text") or "closed:concurrency=1,d=30s"))
        return NextMeasurement(
            command=_filled(f"profile attach --url {{url}} --load {load} -o RUN2", manifest),
            decides=[],
            because=broken[0].remedy or "repeat it soundly",
        )
    if not verdict.abstained:
        return None
    if not verdict.candidates:
        return NextMeasurement(
            command=_filled(
                "profile attach --url {url} --load poisson:rate=1 -d 60s -o RUN2", manifest
            ),
            decides=[],
            because="no load with token timing was measured: offer one, or attach longer",
        )
    unknown = [m for m in missing if "the device (" in m or "the model's configuration (" in m]
    if unknown:
        return NextMeasurement(
            command="nvidia-smi -L > gpus.txt; profile diagnose server.log gpus.txt config.json",
            decides=verdict.candidates,
            because="bandwidth and peak of the GPU, parameters and KV bytes of the model are the two numbers that"
            " set the floors: name both",
        )
    open_ = set(verdict.candidates)
    best = min(
        (o for o in OBSERVATIONS if not any(s in facts for s in o.unless)),
        key=lambda o: (-_separated(o, open_), o.effort),
    )
    return NextMeasurement(
        command=_filled(best.command, manifest), decides=verdict.candidates, because=best.because
    )


def _separated(o: Observation, candidates: set[str]) -> int:
    """How many candidates it tells apart: those it speaks for, and the others as one."""
    named = len(o.separates & candidates)
    return named + (1 if candidates - o.separates and named else 0)


def _filled(command: str, manifest: Mapping[str, Any]) -> str:
    """A line to paste; what comes from the run is quoted for the shell."""
    return command.replace("{url}", shlex.quote(str(manifest.get("url") or "URL")))
