"""What came of a load, in one record, from the rows as they pass by."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Quantiles = dict[str, float]
"""p50, p95, p99 in seconds; empty when nothing was measured."""


@dataclass(frozen=True)
class LoadSummary:
    """Counts leave the warm-up out; latencies are those of requests that ended well.

    Attributes:
        duration_s: from the end of the warm-up to the last end of a request.
        send_lag_p99_s: how late requests were sent; None in a closed loop.
        ttft_s, itl_s, e2e_s: from the intended send time (open loop); quantiles within 0.5 %.
        output_tokens_per_s: None when the server never reported usage.
        goodput_per_s: requests a second within all limits of the spec's `slo`; None without one.
        salt: repeats the contents when given in a spec.
        realtime: all workers ran at real-time priority.
    """

    sent: int
    ok: int
    failed: int
    unfinished: int
    warmup: int
    duration_s: float
    requests_per_s: float
    send_lag_p99_s: float | None
    ttft_s: Quantiles
    itl_s: Quantiles
    e2e_s: Quantiles
    input_tokens: int | None
    output_tokens: int | None
    output_tokens_per_s: float | None
    goodput_per_s: float | None
    first_error: str | None
    model: str
    salt: str
    workers: int
    realtime: bool


class Sketch:
    """Quantiles of non-negative numbers in little memory, within 0.5 % of the value.

    An hour of a busy server has tens of millions of gaps between tokens. Values are counted in
    buckets of equal ratio (DDSketch, Masson et al., VLDB 2019).
    """

    _LOG_RATIO = math.log(1.01)

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self._count = 0

    def add(self, value: float) -> None:
        """Count one value; what is below a nanosecond counts as 0."""
        key = math.ceil(math.log(value) / self._LOG_RATIO) if value > 1e-9 else -(1 << 31)
        self._buckets[key] = self._buckets.get(key, 0) + 1
        self._count += 1

    def quantile(self, q: float) -> float | None:
        """The value at rank q (0..1); None when nothing was counted."""
        rank, seen = q * (self._count - 1), 0
        for key in sorted(self._buckets):
            seen += self._buckets[key]
            if seen > rank:
                if key == -(1 << 31):
                    return 0.0
                return 2 * math.exp(key * self._LOG_RATIO) / 2.01
        return None

    def quantiles(self) -> Quantiles:
        """p50, p95 and p99."""
        found = {f"p{p}": self.quantile(p / 100) for p in (50, 95, 99)}
        return {name: value for name, value in found.items() if value is not None}


class Tally:
    """Counts rows of `requests` as they come: the row of the sending, then that of the end."""

    def __init__(self, slo: Sequence[tuple[str, float]] = ()) -> None:
        self._slo = slo
        self._open: dict[str, bool] = {}  # request id → warm-up
        self._lag, self._ttft, self._itl, self._e2e = Sketch(), Sketch(), Sketch(), Sketch()
        self._last_end_ns = 0
        self._tokens: dict[str, int | None] = {"input_tokens": None, "output_tokens": None}
        self._good = 0
        self._warmup = 0
        self.sent = self.ok = self.failed = 0
        self.first_error: str | None = None

    @property
    def in_flight(self) -> int:
        """Sent and not ended, warm-up included."""
        return len(self._open)

    def add(self, row: Mapping[str, Any]) -> None:
        """Take one row."""
        known = row["request_id"] in self._open
        if not known:
            self.sent += not row["warmup"]
            self._warmup += row["warmup"]
            if row["status"] == "unfinished":
                self._open[row["request_id"]] = row["warmup"]
                return
        elif row["status"] == "unfinished":
            return
        self._open.pop(row["request_id"], None)
        if row["error"] and self.first_error is None:
            self.first_error = row["error"]
        if not row["warmup"]:
            self._ended(row)

    def _ended(self, row: Mapping[str, Any]) -> None:
        if row["send_lag_s"] is not None:
            self._lag.add(row["send_lag_s"])
        if row["status"] != "ok":
            self.failed += 1
            return
        self.ok += 1
        self._last_end_ns = max(self._last_end_ns, row["end_ns"])
        self._e2e.add(row["client_e2e_s"])
        if row["client_ttft_s"] is not None:
            self._ttft.add(row["client_ttft_s"])
        for gap in row["chunk_gap_s"] or ():
            self._itl.add(gap)
        for name, so_far in self._tokens.items():
            if row[name] is not None:
                self._tokens[name] = (so_far or 0) + row[name]
        self._good += is_good(row, self._slo)

    def summary(
        self, *, start_ns: int, model: str, salt: str, workers: int, realtime: bool
    ) -> LoadSummary:
        """The record; `start_ns` is the end of the warm-up, epoch."""
        duration_s = max(0.0, (self._last_end_ns - start_ns) / 1e9)
        tokens = self._tokens["output_tokens"]

        def rate(count: float) -> float:
            return count / duration_s if duration_s else 0.0

        return LoadSummary(
            sent=self.sent, ok=self.ok, failed=self.failed,
            unfinished=sum(not warmup for warmup in self._open.values()), warmup=self._warmup,
            duration_s=duration_s, requests_per_s=rate(self.ok),
            send_lag_p99_s=self._lag.quantile(0.99), ttft_s=self._ttft.quantiles(),
            itl_s=self._itl.quantiles(), e2e_s=self._e2e.quantiles(),
            input_tokens=self._tokens["input_tokens"], output_tokens=tokens,
            output_tokens_per_s=None if tokens is None else rate(tokens),
            goodput_per_s=rate(self._good) if self._slo else None,
            first_error=self.first_error, model=model, salt=salt, workers=workers,
            realtime=realtime,
        )  # fmt: skip


def is_good(row: Mapping[str, Any], slo: Sequence[tuple[str, float]]) -> bool:
    """Did a finished request keep all limits? One that lacks a metric did not.

    ttft and e2e as in the row; tpot is (e2e − ttft)/(output tokens − 1); itl is the 95th percentile
    of the request's own gaps, so that one late chunk in a long answer does not condemn it.
    """
    return all(
        value is not None and value <= limit
        for value, limit in ((_metric(row, metric), limit) for metric, limit in slo)
    )


def _metric(row: Mapping[str, Any], metric: str) -> float | None:
    ttft, e2e, tokens = row["client_ttft_s"], row["client_e2e_s"], row["output_tokens"]
    if metric == "itl":
        gaps = sorted(row["chunk_gap_s"] or ())
        return gaps[math.ceil(0.95 * len(gaps)) - 1] if gaps else 0.0  # one chunk keeps any pace
    if metric == "tpot":
        if ttft is None or e2e is None or tokens is None:
            return None
        return 0.0 if tokens < 2 else (e2e - ttft) / (tokens - 1)
    value: float | None = ttft if metric == "ttft" else e2e
    return value
