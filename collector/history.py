"""One run out of a Prometheus server's past: nothing is started, watched or sent to an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import WhyboundError
from .session import Recorded, node_name
from .sources.prometheus_api import PrometheusHistory
from .store import RunWriter, create_run

FLUSH_EVERY_ROWS = 50_000
"""Rows after which the reader waits for the disk: history comes faster than it can be written, and what
the recorder cannot hold it drops."""


@dataclass(frozen=True)
class HistoryPlan:
    """What to read: from `since_s` before now to `until_s` before now, at `step_s` where raw cannot be had."""

    run_dir: Path
    url: str
    since_s: float
    until_s: float = 0.0
    match: str | None = None
    step_s: float = 5.0
    force: bool = False
    target: str | None = None
    guards: tuple[str, ...] = ()
    model: str | None = None
    say: Callable[[str], None] = field(default=lambda _: None)


async def record_history(plan: HistoryPlan, stop: asyncio.Event) -> Recorded:
    """Read one run; `stop` ends it early and keeps what was read.

    Raises:
        WhyboundError: the folder, the address or the matchers cannot be used, or nothing was there.
    """
    into = _Sink()
    node = node_name()
    history = PrometheusHistory(
        url=plan.url, since_s=plan.since_s, until_s=plan.until_s, match=plan.match, step_s=plan.step_s,
        node=node, sink=into.take,
    )  # fmt: skip
    create_run(plan.run_dir, force=plan.force)
    with RunWriter(plan.run_dir, node) as writer:
        into.writer = writer
        writer.update_manifest(
            target=plan.target,
            guards=list(plan.guards),
            # of the engines' machine nothing is known: the one that reads is another
            identity={"source": "prometheus", "read_on": node},
        )
        try:
            await _read(history, stop)
        except WhyboundError as error:
            writer.update_manifest(failed=str(error))
            raise
        finally:
            _told(plan, writer, history.report())
    report = history.report()
    if report["warning"]:
        plan.say(report["warning"])
    return Recorded(plan.run_dir, report["url"], None, stop.is_set(), None, None)


class _Sink:
    """Hands rows to the recorder no faster than it writes them."""

    def __init__(self) -> None:
        self.writer: RunWriter | None = None
        self._waiting_rows = 0

    def take(self, table: str, rows: list[dict[str, Any]]) -> None:
        assert self.writer is not None
        self.writer.append(table, rows)
        self._waiting_rows += len(rows)
        if self._waiting_rows >= FLUSH_EVERY_ROWS:
            self._waiting_rows = 0
            self.writer.flush()


async def _read(history: PrometheusHistory, stop: asyncio.Event) -> None:
    reading = asyncio.create_task(history.read())
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({reading, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if reading.done():
        await reading
        return
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


def _told(plan: HistoryPlan, writer: RunWriter, report: Mapping[str, Any]) -> None:
    """The report into the manifest, and what could not be read into `not_collected`."""
    not_collected = {
        "client": "a Prometheus server holds no client's view",
        "host and gpu": "read from Prometheus, which was asked for the engines only",
    }
    name = f"prometheus {report['url']}"
    if report["warning"]:
        not_collected[name] = report["warning"]
    if report["absent"]:
        not_collected[f"{name} expected signals"] = ", ".join(report["absent"])
    if report["unmapped_engines"]:
        not_collected[f"{name} engines"] = (
            f"{', '.join(report['unmapped_engines'])}: there, but not read from Prometheus yet"
        )
    models = report["models"]
    writer.update_manifest(
        url=report["url"],
        engine=report["engine"] or None,
        model=plan.model or (models[0] if len(models) == 1 else None),
        emulated=report["emulated"],
        sources={name: dict(report)},
        not_collected=not_collected,
    )
