"""One metrics page made rows: samples, histograms and settings under canonical names (pure)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..engine_map import EngineMap, Target, load_map
from .exposition import Page, Sample, detect_engine, names, parse

Row = dict[str, Any]
_Key = tuple[str, str, str]


@dataclass(frozen=True)
class ScrapeState:
    """What one scrape tells the next.

    Attributes:
        histograms: (raw name, replica, labels) → count, sum and counts as last seen.
        settings: (replica, key, node) → value as last seen.
        varying: instance labels that have had several values on one page.
    """

    histograms: Mapping[_Key, tuple[float | None, ...]] = field(default_factory=dict)
    settings: Mapping[_Key, str] = field(default_factory=dict)
    varying: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Scrape:
    """What one page said.

    Attributes:
        samples, histograms, settings: rows of those tables; unchanged histograms and settings are
            not repeated.
        engine: engine kind; empty when no known engine speaks here.
        unmapped: families that no map knows, with the number of their samples.
        absent: signals that this engine's version should have and the page lacks.
        sample_count: sample lines that could be read, of whatever name.
        bad_lines: lines that could not be read.
        not_finite_count: NaN and infinite values, dropped.
        incomplete_count: histograms without a count, dropped.
        left_out_count: samples above the cap of one page.
        truncated: the page stops in the middle of a line.
        state: to be given to the next scrape of the same server.
    """

    samples: list[Row]
    histograms: list[Row]
    settings: list[Row]
    engine: str
    unmapped: dict[str, int]
    absent: list[str]
    sample_count: int
    bad_lines: int
    not_finite_count: int
    incomplete_count: int
    left_out_count: int
    truncated: bool
    state: ScrapeState


def scrape_rows(
    text: str | bytes,
    *,
    t_ns: int,
    node: str,
    replica: str,
    engine_map: EngineMap | None = None,
    version: str | None = None,
    previous: ScrapeState | None = None,
) -> Scrape:
    """Turn one page into rows; it never raises on what the page says.

    Counters are stored as they are: a reset is for the reader to see. Where one page speaks for
    several engine instances (data-parallel ranks, Ray replicas), `replica` becomes
    `<replica>/<rank>`; the label itself stays in `labels`.

    Args:
        text: the page.
        t_ns: when it was read, ns since the epoch.
        node: host that recorded it.
        replica: engine instance, e.g. host:port.
        engine_map: None: the map of the engine that the names tell.
        version: of the engine, where known; it sharpens `absent`.
        previous: state of the last scrape of the same server; None: everything is new.
    """
    present = names(text)
    mapping = engine_map or load_map(detect_engine(present))
    page = parse(text, want=mapping.wants)
    wanted = [sample for family in page.families for sample in family.samples]
    place = _Place(t_ns, node, replica)
    rows = _Rows(mapping, wanted, place, previous or ScrapeState())
    for sample in wanted:
        rows.add(sample)
    rows.close_histograms()
    return Scrape(
        samples=rows.samples,
        histograms=rows.histograms,
        settings=rows.settings,
        engine=mapping.engine,
        unmapped={n: c for n, c in page.others.items() if not mapping.is_ignored(n)},
        absent=mapping.absent(present, version) if mapping.engine else [],
        sample_count=_sample_count(page, wanted),
        bad_lines=page.bad_lines,
        not_finite_count=rows.not_finite,
        incomplete_count=rows.incomplete,
        left_out_count=page.left_out,
        truncated=page.truncated,
        state=ScrapeState(rows.fingerprints, rows.known_settings, rows.varying),
    )


@dataclass(frozen=True)
class _Place:
    t_ns: int
    node: str
    replica: str


@dataclass
class _Histogram:
    """One series while its lines come in; `sum` and `count` are null until theirs did."""

    target: Target
    columns: Row
    buckets: dict[float, float] = field(default_factory=dict)
    sum: float | None = None
    count: float | None = None


class _Rows:
    """The rows of one page as its samples come in."""

    def __init__(
        self,
        mapping: EngineMap,
        wanted: list[Sample],
        place: _Place,
        previous: ScrapeState,
    ) -> None:
        self.samples: list[Row] = []
        self.histograms: list[Row] = []
        self.settings: list[Row] = []
        self.not_finite = self.incomplete = 0
        self.fingerprints: dict[_Key, tuple[float | None, ...]] = {}
        self.known_settings: dict[_Key, str] = {}
        self.varying = previous.varying | _varying(wanted, mapping.instance_labels)
        self._mapping, self._place, self._previous = mapping, place, previous
        self._open: dict[_Key, _Histogram] = {}
        self._column_cache: dict[tuple[int, int, bool], Row] = {}
        # Old and new name of a signal may stand side by side: one of them counts.
        self._rank: dict[str, int] = {}
        for target in (t for s in wanted if (t := mapping.target(s.name, s.labels))):
            signal = target.entry.signal
            self._rank[signal] = min(target.rank, self._rank.get(signal, target.rank))

    def add(self, sample: Sample) -> None:
        target = self._mapping.target(sample.name, sample.labels)
        if sample.name in self._mapping.infos:
            self._add_settings(sample)
        elif target is None:
            return  # a series of a name of which others are meant
        elif target.rank == self._rank[target.entry.signal]:
            if target.part != "value":
                self._add_part(target, sample)
            elif math.isfinite(sample.value):
                value = sample.value * target.upstream.scale
                self.samples.append(
                    {
                        "t_ns": self._place.t_ns,
                        "signal": target.entry.signal,
                        "kind": target.entry.kind,
                        "unit": target.entry.unit,
                        "value": value,
                        **self._columns(target, sample),
                        "raw_name": target.raw_name,
                    }
                )
            else:
                self.not_finite += 1

    def close_histograms(self) -> None:
        for key, series in self._open.items():
            if series.count is None:
                series.count = series.buckets.get(math.inf)
            if series.count is None:  # cut off: what lies above the last bound is unknown
                self.incomplete += 1
                continue
            series.buckets.setdefault(math.inf, series.count)
            bounds = sorted(series.buckets)
            counts = [series.buckets[b] for b in bounds]
            mark = (series.count, series.sum, *counts)
            self.fingerprints[key] = mark
            if self._previous.histograms.get(key) == mark:
                continue
            entry, scale = series.target.entry, series.target.upstream.scale
            self.histograms.append(
                {
                    "t_ns": self._place.t_ns,
                    "signal": entry.signal,
                    "unit": entry.unit,
                    "bounds": [b * scale for b in bounds],
                    "counts": counts,
                    "sum": None if series.sum is None else series.sum * scale,
                    "count": series.count,
                    **series.columns,
                    "raw_name": series.target.raw_name,
                }
            )

    def _add_part(self, target: Target, sample: Sample) -> None:
        if not math.isfinite(sample.value):
            self.not_finite += 1
            return
        columns = self._columns(target, sample)
        moved = "|".join((columns["labels"], columns["reason"], columns["phase"]))
        key = (target.raw_name, columns["replica"], moved)
        series = self._open.get(key)
        if series is None:
            series = self._open[key] = _Histogram(target, columns)
        if target.part == "sum":
            series.sum = sample.value
        elif target.part == "count":
            series.count = sample.value
        else:
            bound = _bound(sample.labels.get("le", ""))
            if bound is not None:
                series.buckets[bound] = sample.value

    def _add_settings(self, sample: Sample) -> None:
        info = self._mapping.infos[sample.name]
        replica = self._instance(sample.labels)
        for name, value in sample.labels.items():
            if name in info.skip_labels:
                continue
            key = (replica, name, self._place.node)
            self.known_settings[key] = value
            if self._previous.settings.get(key) != value:
                self.settings.append(
                    {
                        "t_ns": self._place.t_ns,
                        "engine": self._mapping.engine,
                        "replica": replica,
                        "key": name.replace("-", "_"),
                        "value": value,
                        "origin": "effective",
                        "source": "metrics",
                        "node": self._place.node,
                    }
                )

    def _columns(self, target: Target, sample: Sample) -> Row:
        # The parser gives equal label blocks one object: most lines of a page share their columns.
        moved = target.entry.labels
        key = (id(sample.labels), id(moved) if moved else 0, target.part == "bucket")
        columns = self._column_cache.get(key)
        if columns is None:
            columns = self._column_cache[key] = {
                "node": self._place.node,
                "engine": self._mapping.engine if self._mapping.serves else "",
                "replica": self._instance(sample.labels),
                "gpu": "",
                "phase": "",
                "reason": "",
            }
            rest: dict[str, str] = {}
            for name, value in sample.labels.items():
                if name in moved:
                    columns[moved[name]] = value
                elif name != "le" or target.part != "bucket":
                    rest[name] = value
            columns["labels"] = json.dumps(rest, sort_keys=True, separators=(",", ":"))
        return columns

    def _instance(self, labels: Mapping[str, str]) -> str:
        if not self._mapping.serves:
            return ""
        told = [n for n in self._mapping.instance_labels if n in self.varying and n in labels]
        return "/".join([self._place.replica, *(labels[name] for name in told)])


def _varying(samples: list[Sample], instance_labels: list[str]) -> frozenset[str]:
    found = {n: {s.labels[n] for s in samples if n in s.labels} for n in instance_labels}
    return frozenset(name for name, values in found.items() if len(values) > 1)


def _bound(text: str) -> float | None:
    try:
        bound = float(text)
    except ValueError:
        return None
    return None if math.isnan(bound) else bound


def _sample_count(page: Page, wanted: list[Sample]) -> int:
    return len(wanted) + sum(page.others.values()) + page.left_out
