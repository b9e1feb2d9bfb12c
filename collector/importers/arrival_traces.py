"""Recorded arrivals: what load they are, as facts. To replay one, it goes to the load generator."""

from __future__ import annotations

import csv
import datetime as dt
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import WhyboundError
from .fact_sheet import FactSheet
from .importer import Importer, Sample, Sink, Source
from .json_lines import csv_rows, json_records, number

MAX_ARRIVALS = 20_000_000


@dataclass(frozen=True)
class Layout:
    """The columns of one kind of trace; `scale` makes its times seconds."""

    title: str
    time: str | None
    input: str
    output: str
    scale: float = 1.0


LAYOUTS = (
    Layout("Azure's LLM inference trace", "TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    Layout("Mooncake's trace", "timestamp", "input_length", "output_length", 1e-3),
    Layout("BurstGPT's trace", "Timestamp", "Request tokens", "Response tokens"),
    Layout("Vidur's trace", "arrived_at", "num_prefill_tokens", "num_decode_tokens"),
    Layout("lengths of requests", None, "num_prefill_tokens", "num_decode_tokens"),
    Layout("arrivals for --load", "t", "input_tokens", "output_tokens"),
)


@dataclass
class _Moments:
    """Mean, spread and largest of a stream of numbers, and how many there were of each whole number."""

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0
    most: float = 0.0
    seen: dict[int, int] = field(default_factory=dict)

    def add(self, value: float) -> None:
        self.n += 1
        step = value - self.mean
        self.mean += step / self.n
        self.squares += step * (value - self.mean)
        self.most = max(self.most, value)

    def tally(self, value: float) -> None:
        self.add(value)
        self.seen[int(value)] = self.seen.get(int(value), 0) + 1

    def spread(self) -> float | None:
        """Squared coefficient of variation."""
        return self.squares / self.n / self.mean**2 if self.n > 1 and self.mean > 0 else None

    def quantile(self, q: float) -> float | None:
        rank, below = q * (self.n - 1), 0
        for value in sorted(self.seen):
            below += self.seen[value]
            if below > rank:
                return float(value)
        return None


def _layout(names: set[str]) -> Layout | None:
    for layout in LAYOUTS:
        wanted = {layout.input, layout.output} | ({layout.time} if layout.time else set())
        if wanted <= names:
            return layout
    return None


def _names(sample: Sample) -> set[str]:
    first = sample.text.lstrip("\ufeff \n").partition("\n")[0]
    if first.startswith("{"):
        return set(re.findall(r'"([A-Za-z_ ]{1,40})"\s*:', first[:4096]))
    try:
        return {name.strip() for name in next(csv.reader([first[:4096]]), [])}
    except csv.Error:
        return set()


def _is_trace(sample: Sample) -> float:
    return 0.8 if _layout(_names(sample)) else 0.0


def _read(source: Source, sink: Sink) -> None:
    layout = _layout(_names(source.sample))
    if layout is None:
        raise WhyboundError(f"{source.path.name}: no columns of an arrival trace in it")
    asked, answered, gaps = _Moments(), _Moments(), _Moments()
    first = last = before = None
    odd = 0
    for record in _records(source, sink):
        tokens = number(record.get(layout.input)), number(record.get(layout.output))
        t_s = _seconds(record.get(layout.time), layout.scale) if layout.time else None
        if tokens[0] is None or tokens[1] is None or min(tokens[0], tokens[1]) < 0:
            odd += 1
            continue
        if layout.time and t_s is None:
            odd += 1
            continue
        if asked.n == MAX_ARRIVALS:
            sink.note(f"{source.path.name}: only its first {MAX_ARRIVALS} requests are counted")
            break
        asked.tally(tokens[0])
        answered.tally(tokens[1])
        if t_s is not None:
            first, last = min(t_s, first if first is not None else t_s), max(t_s, last or t_s)
            if before is not None:
                gaps.add(max(0.0, t_s - before))
            before = t_s
    if not asked.n:
        raise WhyboundError(f"{source.path.name}: no request of {layout.title} in it")
    sheet = FactSheet(source, sink, "arrival-trace")
    n = asked.n

    def add(signal: str, value: float | None) -> None:
        sheet.add(signal, value, n=n)

    add("requests_count", n)
    for moments, name in ((asked, "input"), (answered, "output")):
        add(f"{name}_mean_tokens", moments.mean)
        add(f"{name}_spread_ratio", moments.spread())
    add("input_p95_tokens", asked.quantile(0.95))
    add("input_max_tokens", asked.most)
    if first is not None and last is not None and last > first:
        add("sending_s", last - first)
        add("offered_rate_per_s", (n - 1) / (last - first))
        add("arrival_spread_ratio", gaps.spread())
        sheet.add_text("load_mode", "open")
    if odd:
        sink.note(f"{source.path.name}: {odd} lines without two token counts and a time left out")
    sink.note(
        f"{layout.title}: a load, not a measurement of a server; its rate and lengths are taken. To replay "
        "it, give --load a file with t (seconds), input_tokens and output_tokens"
    )
    sheet.close()


def _records(source: Source, sink: Sink) -> Iterator[Mapping[str, Any]]:
    if source.sample.text.lstrip("\ufeff \n").startswith("{"):
        return json_records(source, sink)
    return csv_rows(source, sink)


def _seconds(value: Any, scale: float) -> float | None:
    found = number(value)
    if found is not None:
        return found * scale
    if not isinstance(value, str) or len(value) > 40:
        return None
    whole, _, fraction = value.strip().partition(".")  # Azure writes seven digits
    try:
        moment = dt.datetime.fromisoformat(whole).replace(tzinfo=dt.timezone.utc)
        return moment.timestamp() + (float(f"0.{fraction[:9]}") if fraction else 0.0)
    except ValueError:
        return None


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        "arrival-trace", "recorded arrivals: Azure, Mooncake, BurstGPT, Vidur", _is_trace, _read
    ),
)
