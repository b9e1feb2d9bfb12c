"""Prometheus' matrix results made rows: as a scrape of the engine itself would have given (pure)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any, Literal

import msgspec

from ..engine_map import EngineMap, Target

Row = dict[str, Any]
Rows = dict[str, list[Row]]

_Part = tuple[Target, dict[str, str], dict[int, float]]
"""What a series carries, its labels, and its values by ms."""

ENOUGH_FOR_INTERVAL = 5
"""Samples of a series from which the time between two scrapes is read."""

_REPLICA_LABELS = ("pod", "instance")
_IDENTITY = frozenset(
    {
        *("__name__", "job", "instance", "pod", "namespace", "node", "cluster", "container"),
        *("endpoint", "service", "region", "zone", "replica", "prometheus", "prometheus_replica"),
        "model_name",
    }
)
"""Labels that a scrape configuration or an operator adds, whatever the exporter: never settings."""
_EXPORTED = "exported_"
_TARGET = "target_"


class Series(msgspec.Struct):
    """One series of a matrix: labels, and (seconds, value as text) pairs; native histograms apart."""

    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    histograms: msgspec.Raw = msgspec.Raw(b"")


class MatrixData(msgspec.Struct):
    """`data` of an answer; one of another `resultType` is refused."""

    resultType: Literal["matrix"]  # noqa: N815 — Prometheus' own name
    result: list[Series]


@dataclass(frozen=True)
class Fleet:
    """Who the replicas are, from the label sets of one gauge that every engine has.

    Attributes:
        job: replica → the scrape job that counts for it.
        doubled: replica → the jobs that scrape it, where there are several.
        varying: replica → labels that tell engine instances behind it apart.
        models: values of `model_name`, sorted.
        identity: label names that say who, not how: no settings.
    """

    job: Mapping[str, str] = field(default_factory=dict)
    doubled: Mapping[str, list[str]] = field(default_factory=dict)
    varying: Mapping[str, frozenset[str]] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    identity: frozenset[str] = _IDENTITY


def own_labels(metric: Mapping[str, str]) -> dict[str, str]:
    """The exporter's labels under their own names.

    Where a target has a label of the same name, Prometheus renames the exporter's to `exported_…`
    (honor_labels: false); the target's then becomes `target_…`.
    """
    labels = dict(metric)
    for name in metric:
        plain = name.removeprefix(_EXPORTED)
        if name != plain and plain in metric:
            labels[_TARGET + plain] = metric[plain]
            labels[plain] = labels.pop(name)
    return labels


def replica_of(labels: Mapping[str, str]) -> str:
    """`pod/instance`, or the one of them that is there; empty when neither is.

    Both: a pod may serve on several ports, and an address may belong to several pods in turn.
    """
    return "/".join(labels[name] for name in _REPLICA_LABELS if labels.get(name))


def fleet_of(metrics: Iterable[Mapping[str, str]], instance_labels: Iterable[str]) -> Fleet:
    """Read the replicas off label sets; of several jobs on one replica the first by name counts."""
    jobs: dict[str, set[str]] = {}
    values: dict[str, dict[str, set[str]]] = {}
    models: set[str] = set()
    identity = set(_IDENTITY)
    wanted = tuple(instance_labels)
    for metric in metrics:
        labels = own_labels(metric)
        replica = replica_of(labels)
        jobs.setdefault(replica, set()).add(labels.get("job", ""))
        seen = values.setdefault(replica, {})
        for name in wanted:
            if name in labels:
                seen.setdefault(name, set()).add(labels[name])
        models |= {labels["model_name"]} if labels.get("model_name") else set()
        identity |= labels.keys()
    return Fleet(
        job={replica: min(found) for replica, found in jobs.items()},
        doubled={replica: sorted(found) for replica, found in jobs.items() if len(found) > 1},
        varying={
            replica: frozenset(name for name, found in by_name.items() if len(found) > 1)
            for replica, by_name in values.items()
        },
        models=tuple(sorted(models)),
        identity=frozenset(identity),
    )


class SignalRows:
    """The rows of one signal, or of one metric that carries settings, window after window.

    Attributes:
        last_ms: (replica, labels) → time of its last sample.
        interval_ms: median gap between the samples of the first series with enough of them; else None.
        not_finite_count: NaN and infinite values, dropped.
        incomplete_count: histograms without a count, dropped.
        native_count: native histograms, which no map has: dropped.
        other_job_count: series of a replica that another job scrapes too, dropped.
    """

    def __init__(self, mapping: EngineMap, fleet: Fleet, node: str, *, known_only: bool) -> None:
        """Start without a past.

        Args:
            mapping: of the engine whose names are asked for.
            fleet: its replicas.
            node: host that records.
            known_only: leave out what the fleet has not: for names that any server may have.
        """
        self.last_ms: dict[tuple[str, str], int] = {}
        self.interval_ms: float | None = None
        self.not_finite_count = self.incomplete_count = 0
        self.native_count = self.other_job_count = 0
        self._mapping, self._fleet, self._node = mapping, fleet, node
        self._known_only = known_only
        self._marks: dict[tuple[str, str, str], tuple[float | None, ...]] = {}
        self._settings: dict[tuple[str, str], str] = {}

    def rows(self, matrix: Iterable[Series], *, after_ms: int, until_ms: int) -> Rows:
        """Rows of the tables for the samples in (after_ms, until_ms]; empty tables are left out.

        Of several names of the signal in one scrape the preferred one counts. The parts of a
        histogram are joined where their times are equal: those of one scrape are.
        """
        found: Rows = {"samples": [], "histograms": [], "settings": []}
        parts: list[_Part] = []
        infos: list[tuple[int, str, dict[str, str]]] = []
        for series in matrix:
            self.native_count += bool(series.histograms)
            labels = own_labels(series.metric)
            name = labels.pop("__name__", "")
            replica = replica_of(labels)
            if not self._counts(replica, labels):
                continue
            times = {
                at: _number(value)
                for t, value in series.values
                if after_ms < (at := round(t * 1000)) <= until_ms
            }
            target = self._mapping.target(name, labels)
            if target is not None and times:
                parts.append((target, labels, times))
            elif times and name in self._mapping.infos:
                infos.append((min(times), name, labels))
        for at_ms, name, labels in sorted(infos, key=lambda info: info[0]):
            found["settings"] += self._settings_rows(name, labels, at_ms)
        parts = _preferred(parts)
        for target, labels, times in parts:
            if target.part == "value":
                found["samples"] += self._samples(target, labels, times)
        found["histograms"] = self._histograms([p for p in parts if p[0].part != "value"])
        return {table: rows for table, rows in found.items() if rows}

    def _counts(self, replica: str, labels: Mapping[str, str]) -> bool:
        job = self._fleet.job.get(replica)
        if job is None:
            return not self._known_only
        if job != labels.get("job", ""):
            self.other_job_count += 1
            return False
        return True

    def _samples(
        self, target: Target, labels: Mapping[str, str], times: Mapping[int, float]
    ) -> list[Row]:
        columns = self._columns(target, labels)
        self._saw(columns, max(times))
        if self.interval_ms is None and len(times) >= ENOUGH_FOR_INTERVAL:
            self.interval_ms = median(b - a for a, b in pairwise(sorted(times)))
        scale = target.upstream.scale
        fixed = {
            "signal": target.entry.signal,
            "kind": target.entry.kind,
            "unit": target.entry.unit,
            **columns,
            "raw_name": target.raw_name,
        }
        rows = [
            {"t_ns": at * 1_000_000, "value": value * scale, **fixed}
            for at, value in times.items()
            if math.isfinite(value)
        ]
        self.not_finite_count += len(times) - len(rows)
        return rows

    def _histograms(self, parts: list[_Part]) -> list[Row]:
        joined: dict[tuple[str, str, str], _Joined] = {}
        for target, labels, times in parts:
            columns = self._columns(target, labels)
            moved = "|".join((columns["labels"], columns["reason"], columns["phase"]))
            key = (target.raw_name, columns["replica"], moved)
            series = joined.get(key)
            if series is None:
                series = joined[key] = _Joined(target, columns)
            finite = {at: value for at, value in times.items() if math.isfinite(value)}
            self.not_finite_count += len(times) - len(finite)
            if target.part == "bucket":
                series.add_bucket(labels.get("le", ""), finite)
            else:
                (series.sums if target.part == "sum" else series.counts).update(finite)
        rows: list[Row] = []
        for key, series in joined.items():
            rows += self._histogram_rows(key, series)
        return rows

    def _histogram_rows(self, key: tuple[str, str, str], series: _Joined) -> list[Row]:
        rows = []
        entry, scale = series.target.entry, series.target.upstream.scale
        for at, buckets in series.by_time():
            count = series.counts.get(at, buckets.get(math.inf))
            if count is None:  # what lies above the last bound is unknown
                self.incomplete_count += 1
                continue
            buckets.setdefault(math.inf, count)
            bounds = sorted(buckets)
            counts = [buckets[bound] for bound in bounds]
            total = series.sums.get(at)
            self._saw(series.columns, at)
            mark = (count, total, *counts)
            if self._marks.get(key) == mark:
                continue
            self._marks[key] = mark
            rows.append(
                {
                    "t_ns": at * 1_000_000,
                    "signal": entry.signal,
                    "unit": entry.unit,
                    "bounds": [bound * scale for bound in bounds],
                    "counts": counts,
                    "sum": None if total is None else total * scale,
                    "count": count,
                    **series.columns,
                    "raw_name": series.target.raw_name,
                }
            )
        return rows

    def _settings_rows(self, name: str, labels: Mapping[str, str], at_ms: int) -> list[Row]:
        skip = {*self._mapping.infos[name].skip_labels, *self._fleet.identity}
        replica = self._instance(labels)
        rows = []
        for label, value in labels.items():
            if label in skip or label.startswith(_TARGET):
                continue
            if self._settings.get((replica, label)) == value:
                continue
            self._settings[replica, label] = value
            rows.append(
                {
                    "t_ns": at_ms * 1_000_000,
                    "engine": self._mapping.engine,
                    "replica": replica,
                    "key": label.replace("-", "_"),
                    "value": value,
                    "origin": "effective",
                    "source": "metrics",
                    "node": self._node,
                }
            )
        return rows

    def _columns(self, target: Target, labels: Mapping[str, str]) -> Row:
        moved = target.entry.labels
        columns = {
            "node": self._node,
            "engine": self._mapping.engine,
            "replica": self._instance(labels),
            "gpu": "",
            "phase": "",
            "reason": "",
        }
        rest: dict[str, str] = {}
        for name, value in labels.items():
            if name in moved:
                columns[moved[name]] = value
            elif name not in _REPLICA_LABELS and (name != "le" or target.part != "bucket"):
                rest[name] = value
        columns["labels"] = json.dumps(rest, sort_keys=True, separators=(",", ":"))
        return columns

    def _instance(self, labels: Mapping[str, str]) -> str:
        replica = replica_of(labels)
        varying = self._fleet.varying.get(replica, frozenset())
        told = [n for n in self._mapping.instance_labels if n in varying and n in labels]
        return "/".join([replica, *(labels[name] for name in told)])

    def _saw(self, columns: Row, at_ms: int) -> None:
        key = (columns["replica"], columns["labels"] + columns["reason"] + columns["phase"])
        self.last_ms[key] = max(at_ms, self.last_ms.get(key, 0))


class _Joined:
    """One histogram while its parts come in."""

    def __init__(self, target: Target, columns: Row) -> None:
        self.target, self.columns = target, columns
        self.buckets: dict[float, dict[int, float]] = {}
        self.sums: dict[int, float] = {}
        self.counts: dict[int, float] = {}

    def add_bucket(self, le: str, times: Mapping[int, float]) -> None:
        try:
            bound = float(le)
        except ValueError:
            return
        if not math.isnan(bound):
            self.buckets.setdefault(bound, {}).update(times)

    def by_time(self) -> Iterable[tuple[int, dict[float, float]]]:
        """Each time at which any part was seen, with the buckets seen then; ascending."""
        seen = set(self.sums) | set(self.counts)
        for times in self.buckets.values():
            seen |= times.keys()
        for at in sorted(seen):
            yield at, {b: times[at] for b, times in self.buckets.items() if at in times}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan  # counted with what is not finite


def _preferred(parts: list[_Part]) -> list[_Part]:
    """Without the samples for which the same replica had a preferred name at the same time."""
    if len({target.rank for target, _, _ in parts}) < 2:
        return parts
    best: dict[str, dict[int, int]] = {}
    for target, labels, times in parts:
        ranks = best.setdefault(replica_of(labels), {})
        for at in times:
            ranks[at] = min(target.rank, ranks.get(at, target.rank))
    kept = []
    for target, labels, times in parts:
        ranks = best[replica_of(labels)]
        left = {at: value for at, value in times.items() if ranks[at] == target.rank}
        if left:
            kept.append((target, labels, left))
    return kept
