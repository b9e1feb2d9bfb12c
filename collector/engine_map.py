"""What an engine's metric names mean: the strict loader of `engines/*.yaml`, and look-ups in them.

A map is data: each canonical signal with the upstream names that carry it and the versions that
have them; and the names that are known and left aside, with the reason. What is in neither is
unmapped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from .map_file import read_map
from .schema import UNIT_SUFFIXES

Version = tuple[int, ...]
Kind = Literal["gauge", "counter", "histogram"]
Part = Literal["value", "bucket", "sum", "count"]

_FOLDER = Path(__file__).parent / "engines"
EXPORTERS = ("dcgm", "lmcache")
"""Maps of what speaks for a machine beside its engines: their rows name neither engine nor replica."""
COMPANIONS = dict.fromkeys(("vllm", "sglang", "tensorrt_llm"), ("lmcache", "dynamo"))
"""Maps of what may stand on an engine's own page: theirs count where the engine's map has nothing."""
_COMPANION_RANK = 1000

_LATEST: Version = (1_000_000,)
_HISTOGRAM_PARTS: tuple[tuple[str, Part], ...] = (
    ("_bucket", "bucket"),
    ("_sum", "sum"),
    ("_count", "count"),
)
_SUFFIXES = ("_total", "_bucket", "_sum", "_count", "_info")


class Upstream(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One upstream name, as declared in the engine's code: a counter without its `_total`.

    Attributes:
        since: first version that has it; null: the oldest of the map.
        until: last version that has it; null: still there.
        scale: factor from the upstream unit to the signal's, for values, bounds and sums.
        where: label → value: of a name that carries several facts, the series that are meant. A series
            without the label counts too: older releases had none.
    """

    name: str
    since: str | None = None
    until: str | None = None
    scale: float = 1.0
    where: dict[str, str] = {}


class SignalMap(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One canonical signal.

    Attributes:
        names: in order of preference: of several on one page only the first counts.
        labels: upstream labels that become the column `phase`, `reason` or `gpu`.
        expected: its absence from a page of a version that has it must be told.
        expected_since: a later start of that than the names' own `since`.
    """

    signal: str
    kind: Kind
    unit: str
    names: list[Upstream]
    doc: str
    labels: dict[str, Literal["phase", "reason", "gpu"]] = {}
    expected: bool = False
    expected_since: str | None = None


class InfoMetric(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A metric whose labels are settings; `skip_labels` are those that only identify the series."""

    name: str
    doc: str
    skip_labels: list[str] = []


class Ignored(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Names that are known and not mapped, and why; a trailing `*` makes one a prefix."""

    reason: str
    names: list[str]


class Variant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Another spelling of every name: `prefix` before it, `colon` in place of each colon.

    Attributes:
        lazy: the exporter leaves out what never changed, so only gauges can be expected.
    """

    prefix: str
    colon: str
    doc: str
    lazy: bool = False


class MapFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `engines/*.yaml`.

    Attributes:
        prefix: what all of the engine's own names begin with; none of them is ignored by a `*`.
        since: the oldest version that the map is for; null where versions are not numbers.
        instance_labels: labels that tell engine instances behind one page apart, outermost first.
    """

    engine: str
    doc: str
    source: str
    prefix: str = ""
    since: str | None = None
    variants: list[Variant] = []
    instance_labels: list[str] = []
    signals: list[SignalMap]
    settings: list[InfoMetric] = []
    ignored: list[Ignored] = []


@dataclass(frozen=True)
class Target:
    """What one exact sample name carries; of several for a signal the lowest `rank` counts."""

    entry: SignalMap
    upstream: Upstream
    part: Part
    raw_name: str
    rank: int


class EngineMap:
    """Look-ups by the exact names that stand on a page.

    Attributes:
        serves: it is an engine's, not an exporter's.
        of_any_server: signals whose names any server may have, whatever it serves.
    """

    def __init__(self, engine: str, files: list[MapFile]) -> None:
        self.engine = engine
        self.serves = engine not in EXPORTERS
        self.signals: list[SignalMap] = [s for f in files for s in f.signals]
        self.of_any_server = {s.signal for f in files if f.engine == "generic" for s in f.signals}
        self.instance_labels: list[str] = [n for f in files for n in f.instance_labels]
        self.targets: dict[str, Target] = {}
        self._choices: dict[str, list[Target]] = {}
        self.infos: dict[str, InfoMetric] = {}
        self._declared: dict[str, tuple[str, Upstream]] = {}
        self._own: tuple[str, ...] = ()
        self._lazy: tuple[str, ...] = ()
        self._ignored: set[str] = set()
        self._prefixes: tuple[str, ...] = ()
        self._floor: Version = (0,)
        for file in files:
            self._add(file, 0 if file.engine == engine else _COMPANION_RANK)

    def wants(self, name: str) -> bool:
        """Is a sample of this exact name mapped, or does it carry settings?"""
        return name in self.targets or name in self.infos

    def target(self, name: str, labels: Mapping[str, str]) -> Target | None:
        """What one series carries; None for one that no signal means."""
        choices = self._choices.get(name)
        if choices is None:
            return self.targets.get(name)
        for choice in choices:
            if all(labels.get(k, v) == v for k, v in choice.upstream.where.items()):
                return choice
        return None

    def signals_of(self, name: str) -> list[str]:
        """The signals that series of this exact name may carry; empty when no map has it."""
        first = self.targets.get(name)
        choices = self._choices.get(name, [first] if first else [])
        return [choice.entry.signal for choice in choices]

    def is_ignored(self, name: str) -> bool:
        """Is this family or sample known and left aside? `_created` series always are."""
        if name.endswith("_created"):
            return True
        bare = next((name.removesuffix(s) for s in _SUFFIXES if name.endswith(s)), name)
        if not self._ignored.isdisjoint((name, bare)):
            return True
        own = bool(self._own) and name.startswith(self._own)
        return not own and bool(self._prefixes) and name.startswith(self._prefixes)

    def absent(self, present: Iterable[str], version: str | None = None) -> list[str]:
        """The expected signals that a page lacks, though its engine's version has them.

        A signal counts as there if any of its names is, be it only declared. Where the version is
        unknown, the names on the page bound it, and only what every version within these bounds has
        is missed.

        Args:
            present: every sample and declared name of the page.
            version: of the engine, e.g. `0.10.2`.
        """
        seen = [hit for name in set(present) if (hit := self._declared.get(name))]
        signals = {signal for signal, _ in seen}
        lazy = bool(self._lazy) and any(n.startswith(self._lazy) for n in present)
        if version is not None:
            low = high = parse_version(version)
        else:
            low = max((_since(u, self._floor) for _, u in seen), default=self._floor)
            high = min((_until(u) for _, u in seen), default=_LATEST)
            if low > high:  # a patched build: nothing is known but that it is one of the map's
                low, high = self._floor, _LATEST
        return [
            entry.signal
            for entry in self.signals
            if entry.expected
            and entry.signal not in signals
            and not (lazy and entry.kind != "gauge")
            and _always_there(entry, low, high, self._floor)
        ]

    def _add(self, file: MapFile, rank: int) -> None:
        if file.since and not rank:
            self._floor = parse_version(file.since)
        spellings: list[Callable[[str], str]] = [lambda name: name]
        spellings += [_speller(v) for v in file.variants]
        if file.prefix:
            self._own += tuple(spell(file.prefix) for spell in spellings)
        self._lazy += tuple(_speller(v)(file.prefix) for v in file.variants if v.lazy)
        for spell in spellings:
            for entry in file.signals:
                for place, upstream in enumerate(entry.names):
                    self._add_name(entry, upstream, spell(upstream.name), rank + 2 * place)
            for info in file.settings:
                self.infos[spell(info.name)] = info
            for name in (spell(n) for group in file.ignored for n in group.names):
                if name.endswith("*"):
                    self._prefixes += (name[:-1],)
                else:
                    self._ignored |= {name, name.removesuffix("_total")}

    def _add_name(self, entry: SignalMap, upstream: Upstream, name: str, rank: int) -> None:
        self._declared[name] = (entry.signal, upstream)
        if entry.kind == "histogram":
            for suffix, part in _HISTOGRAM_PARTS:
                self._put(name + suffix, Target(entry, upstream, part, name, rank))
        else:
            self._put(name, Target(entry, upstream, "value", name, rank + 1))
            if entry.kind == "counter":
                # Ray exports a counter under both forms; the proper one wins, so none counts twice.
                total = name + "_total"
                self._put(total, Target(entry, upstream, "value", total, rank))
        for exposed in (name + s for s in ("_total", "_bucket", "_sum", "_count")):
            if exposed in self.targets:
                self._declared[exposed] = (entry.signal, upstream)

    def _put(self, exposed: str, target: Target) -> None:
        self.targets.setdefault(exposed, target)
        if target.upstream.where:
            choices = self._choices.setdefault(exposed, [])
            if target not in choices:  # a spelling may leave a name as it is
                choices.append(target)


def parse_version(text: str) -> Version:
    """`0.10.2` or `v0.10.2rc1.dev5+cu129` as (0, 10, 2); what follows the numbers is left out.

    Raises:
        ValueError: it does not begin with a number.
    """
    parts: list[int] = []
    for part in text.removeprefix("v").split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        parts.append(int(digits))
        if digits != part:
            break
    if not parts:
        raise ValueError(f"{text!r} is not a version")
    return tuple(parts)


def parse_map(text: str, where: str) -> MapFile:
    """Read one map, strictly.

    Raises:
        WhyboundError: it is no YAML, has an unknown or missing key, a wrong type, an unknown unit,
            a signal or a name twice, or versions that make no sense; the message names `where` and
            what.
    """
    return read_map(text, MapFile, _faults, where)


def engines() -> list[str]:
    """The engine kinds that have a map, sorted."""
    others = ("generic", "defaults", *EXPORTERS)
    return sorted(p.stem for p in _FOLDER.glob("*.yaml") if p.stem not in others)


@cache
def load_map(engine: str) -> EngineMap:
    """The map of an engine or exporter with the generic one; for one without a map the generic alone.

    Raises:
        WhyboundError: a map is broken; see `parse_map`.
    """
    known = engine in (*engines(), *EXPORTERS)
    stems = [engine, *COMPANIONS.get(engine, ()), "generic"] if known else ["generic"]
    files = []
    for stem in stems:
        path = _FOLDER / f"{stem}.yaml"
        files.append(parse_map(path.read_text(encoding="utf-8"), f"engines/{path.name}"))
    return EngineMap(engine, files)


def _faults(file: MapFile) -> Iterator[str]:
    signals: set[str] = set()
    for entry in file.signals:
        if entry.signal in signals:
            yield f"signal {entry.signal} is there twice"
        signals.add(entry.signal)
        if entry.unit not in UNIT_SUFFIXES:
            yield f"signal {entry.signal}: {entry.unit} is not a unit of the tables"
        if not entry.names:
            yield f"signal {entry.signal} has no names"
        for upstream in entry.names:
            if not upstream.scale > 0:
                yield f"{upstream.name}: scale must be above 0"
            try:
                if _since(upstream, (0,)) > _until(upstream):
                    yield f"{upstream.name}: since {upstream.since} is after until {upstream.until}"
            except ValueError as e:
                yield f"{upstream.name}: {e}"
    yield from _name_faults(file)


def _name_faults(file: MapFile) -> Iterator[str]:
    names: set[str] = set()
    chosen: dict[str, list[dict[str, str]]] = {}
    for upstream in (u for s in file.signals for u in s.names if u.where):
        if upstream.where in chosen.setdefault(upstream.name, []):
            yield f"{upstream.name} where {upstream.where} is there twice"
        chosen[upstream.name].append(upstream.where)
    exposed = [u.name for s in file.signals for u in s.names if not u.where]
    exposed += [*chosen, *(i.name for i in file.settings)]
    for name in exposed + [n for group in file.ignored for n in group.names]:
        bare = name.removesuffix("_total")
        if bare in names:
            yield f"{name} is there twice"
        if not name.startswith(file.prefix):
            yield f"{name} does not begin with {file.prefix}"
        names.add(bare)


def _speller(variant: Variant) -> Callable[[str], str]:
    return lambda name: variant.prefix + name.replace(":", variant.colon)


def _since(upstream: Upstream, floor: Version) -> Version:
    return parse_version(upstream.since) if upstream.since else floor


def _until(upstream: Upstream) -> Version:
    return parse_version(upstream.until) if upstream.until else _LATEST


def _always_there(entry: SignalMap, low: Version, high: Version, floor: Version) -> bool:
    """Does every version from `low` to `high` have the signal under one of its names?"""
    if entry.expected_since and low < parse_version(entry.expected_since):
        return False
    windows = [(_since(u, floor), _until(u)) for u in entry.names]
    edges = {edge for window in windows for edge in window if low < edge < high}
    return all(any(a <= v <= b for a, b in windows) for v in edges | {low, high})
