"""What happened on the way through a Prometheus server's history, in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_SHOWN_NAMES = 8


def some(names: Iterable[str]) -> str:
    """The first few names, and how many more."""
    found = sorted(names)
    more = f" and {len(found) - _SHOWN_NAMES} more" if len(found) > _SHOWN_NAMES else ""
    return ", ".join(found[:_SHOWN_NAMES]) + more


def summary(report: dict[str, Any]) -> str | None:
    """What went wrong on the way, in one line; None when nothing did."""
    parts = []
    if report["queries_failed"]:
        kinds = ", ".join(f"{n} × {kind}" for kind, n in sorted(report["failures"].items()))
        asked = report["queries_ok"] + report["queries_failed"]
        parts.append(f"{report['queries_failed']} of {asked} queries failed ({kinds})")
    if report["lost_count"]:
        what = sorted({str(lost[0]) for lost in report["lost"]})
        parts.append(f"{report['lost_count']} windows are missing ({some(what)})")
    if report["gave_up"]:
        parts.append("the server stopped answering and the rest was not asked for")
    if report["warned"]:
        parts.append(f"the server warned {report['warned']} times ({report['warnings'][0]})")
    if report["replicas_vanished"]:
        parts.append(f"{len(report['replicas_vanished'])} replicas ended before the time did")
    if report["doubled"]:
        parts.append(
            f"{len(report['doubled'])} replicas are scraped by several jobs, the first counts (--match)"
        )
    if report["native_histograms_count"]:
        parts.append("native histograms were left out")
    return "; ".join(parts) or None
