"""One load point of a benchmark as facts: totals made means, the load's mode, its place in a sweep."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from .fact_sheet import FactSheet, segment
from .importer import Sink
from .json_lines import count, number

_OPEN = ("constant", "poisson", "async")
_KEPT_UP = 0.9
"""Share of a configured rate that must have been completed for a capped load to count as open."""


def point_scope(told: Mapping[str, Any]) -> str:
    """Where a point stands in a sweep: by its concurrency, else its rate, else what was in flight."""
    strategy = told.get(".strategy")
    rate = number(told.get(".rate"))
    if strategy in _OPEN or (rate and number(told.get(".concurrency")) is None):
        return segment(rate=rate)
    if strategy == "synchronous":
        return segment(concurrency=1)
    if strategy == "throughput":  # unlimited: what was in flight tells more than the limit
        return segment(concurrency=round(number(told.get("inflight_mean_count")) or 0))
    return segment(told.get(".concurrency")) or segment(
        concurrency=round(number(told.get("inflight_mean_count")) or 0)
    )


def started_ns(told: Mapping[str, Any], sink: Sink) -> int | None:
    """When the point began, as the file tells: epoch seconds, or a date; None when it does not."""
    start = told.get(".start")
    found = number(start)
    if found is not None and 1e9 < found < 1e10:
        return int(found * 1e9)
    if isinstance(start, str):
        at = _iso_ns(start, sink)
        if at is not None:
            return at
    ended = told.get(".date")  # vLLM writes it when the run is over
    if isinstance(ended, str):
        try:
            moment = dt.datetime.strptime(ended, "%Y%m%d-%H%M%S")
        except ValueError:
            return None
        sink.note("its date names no time zone: taken as UTC")
        lasted = number(told.get("duration_s")) or 0.0
        return int((moment.replace(tzinfo=dt.timezone.utc).timestamp() - lasted) * 1e9)
    return None


def add_point(
    sheet: FactSheet, told: Mapping[str, Any], sink: Sink, *, scope: str, t_ns: int | None
) -> str:
    """The facts of one point; the load's mode: open, closed, or empty where it is neither.

    Means come from totals over completed requests; what is in flight from Little's law, completed rate
    times mean end-to-end latency, where the tool does not tell it.
    """
    n = count(told.get(".completed"))

    def add(signal: str, value: Any, observed: int | None = n) -> float | None:
        return sheet.add(signal, value, scope=scope, n=observed, t_ns=t_ns)

    for signal, value in told.items():
        if not signal.startswith("."):
            add(signal, value)
    failed = count(told.get(".failed"))
    if n is not None:
        add("requests_count", n + (failed or 0))
        if failed is not None and n + failed:
            add("failed_ratio", failed / (n + failed), n + failed)
        for total, signal in ((".input", "input_mean_tokens"), (".output", "output_mean_tokens")):
            tokens = number(told.get(total))
            if tokens is not None and n:
                add(signal, tokens / n)
    per_gpu, gpus = number(told.get(".per_gpu")), number(told.get(".gpus"))
    if per_gpu is not None and gpus:
        add("output_tokens_per_s", per_gpu * gpus)
    mode = _add_load(sheet, told, sink, scope, add)
    _add_tpot(sheet, sink, scope, add)
    return mode


def _add_load(sheet: FactSheet, told: Mapping[str, Any], sink: Sink, scope: str, add: Any) -> str:
    rate, cap = number(told.get(".rate")), number(told.get(".concurrency"))
    done = sheet.get("completed_rate_per_s", scope)
    strategy = told.get(".strategy")
    mode = ""
    if strategy in _OPEN:
        mode = "open"
    elif strategy in ("synchronous", "concurrent", "throughput"):
        mode, rate = "closed", None
    elif rate:
        held_back = cap is not None and done is not None and done < _KEPT_UP * rate
        mode = "closed" if held_back else "open"
        if held_back:
            sink.note(
                f"the cap of {cap:g} requests in flight held {rate:g} requests/s back to "
                f"{done:.3g}: the load counts as closed"
            )
    elif cap:
        mode = "closed"
    elif told.get(".rate") is not None:
        sink.note("all requests were sent at once: the load is neither open nor closed")
    if mode:
        sheet.add_text("load_mode", mode, scope=scope)
    if rate and mode == "open":
        add("offered_rate_per_s", rate)
    e2e = sheet.get("client_e2e_mean_s", scope)
    if done is not None and e2e is not None:
        add("inflight_mean_count", done * e2e)
    elif mode == "closed" and cap and strategy != "throughput":
        add("inflight_mean_count", cap)
    return mode


def _add_tpot(sheet: FactSheet, sink: Sink, scope: str, add: Any) -> None:
    ttft, e2e, tokens = (
        sheet.get(s, scope)
        for s in ("client_ttft_mean_s", "client_e2e_mean_s", "output_mean_tokens")
    )
    if sheet.get("client_tpot_mean_s", scope) is not None:
        return
    if ttft is None or e2e is None or tokens is None:
        return
    if tokens > 1 and e2e > ttft:
        add("client_tpot_mean_s", (e2e - ttft) / (tokens - 1))
        sink.note("mean time per output token is made of the means of TTFT, end-to-end and tokens")


def _iso_ns(text: str, sink: Sink) -> int | None:
    try:
        moment = dt.datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    except ValueError:
        return None
    if moment.tzinfo is None:
        sink.note("its date names no time zone: taken as UTC")
        moment = moment.replace(tzinfo=dt.timezone.utc)
    return int(moment.timestamp() * 1e9)
