"""Two systems beside one another: what the one reaches over the other, where the other is no cure.

A pair is a diagnosis where its reference is a system that was there all along: the direct path beside the one
through a proxy, a request alone beside the same one with a peer, one GPU beside several, another load
generator on the same server, the unquantized weights beside the quantized ones. The person had both before any
cure, so such a pair counts even where one of its sides is a figure of the stated gain. What was measured after
a change of a setting or a fix of the code (`before_after`, `after_…`, `fixed`) is the cure, and none of it is
fed. Switching speculation or a feature of the host on or off is both, and counts: the person held both. Giving
more CPU counts unless the two figures are those of the stated gain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from case_keys import VERSUS, find, number, ranged, span, table, tokens
from case_sides import Leaf, Sides, leaves_of, levels_of, sides
from case_values import relative

_CURED = re.compile(
    r"before_after|(^|_)(fixed|patched|with_fix|example|counterexample|expected|published|readme)(_|$)"
    r"|(^|_)after(?!_(move|moving|upgrade|update|migration|switch|downgrade|reboot|driver))"
)
_VICTIM = re.compile(r"victim|bystander|(^|_)decode_lane|innocent|neighbou?r")
_SHARDS = re.compile(
    r"(?:^|_)tp_?(\d+)(?:_|$)|(?:^|_)(\d+)_?x?_?gpus?(?:_|$)|(?:^|_)gpus_(\d+)(?:_|$)"
)
_WORDED = {"single_gpu": 1, "one_gpu": 1, "two_gpu": 2, "dual_gpu": 2, "both_gpu": 2, "four_gpu": 4}
_CACHE_TYPE = re.compile(
    r"kv_(?:cache_)?(?:dtype_)?(?:fp8\w*?|int8|bf16|fp16)(?=_|$)|(?:fp8|int8|bf16|fp16|q8)_kv(?=_|$)"
)
"""The precision of the cache, which is none of the weights."""
_CPUS = re.compile(r"(?:^|_)v?cpus?_?(\d+)(?:_|$)|(?:^|_)(\d+)_?v?(?:cpus?|cores?)(?:_|$)")
_RATES = ("output_tokens_per_s", "completed_rate_per_s", "generation_tokens_per_s", "client_tpot")
_COMPARED = re.compile(
    r"(output_tokens|completed_rate|generation_tokens|prompt_tokens)_per_s$|client_\w+_(mean|p50)_s$|step_s$"
)
_OUTPUT = ("output_tokens_per_s", "completed_rate_per_s", "generation_tokens_per_s")
UNFED = 9
"""The rank of what is no figure of the slow side."""


@dataclass(frozen=True)
class Point:
    """A figure that has a signal: its words, whether more is better, and at which points of sweeps."""

    path: tuple[str, ...]
    words: str
    signal: str
    low: float
    high: float
    larger_is_better: bool
    levels: frozenset[str]
    chosen: bool
    rank: int


def references(case: Mapping[str, Any], told: Sides) -> Iterator[tuple[str, str, Point, Point]]:
    """Signal, value, and the two figures that it is of."""
    points = list(_points(case, told))
    rows = _rows_of(case)
    for row in rows:
        if pair := _pair(row, points):
            yield row["signal"], _ratio(row, *pair), *pair
    yield from _relatives(case, told, rows)
    if pair := _victims(case, told):
        yield "decode_slowdown_by_prefill_ratio", *pair
    if pair := _shards(points, case):
        yield "tensor_parallel_speedup_ratio", _ratio({}, *pair), *pair
    if pair := _cpus(points, case):
        yield "cpu_gain_ratio", _ratio({}, *pair), *pair


def reference_paths(case: Mapping[str, Any]) -> set[tuple[str, ...]]:
    """Paths of figures that are those of a reference, and so not of the server that is slow."""
    found: set[tuple[str, ...]] = set()
    points = list(_points(case, sides(case)))
    rows = _rows_of(case)
    for row in rows:
        for point in points:
            theirs = (x for x in points if x.signal == point.signal and x.levels == point.levels)
            if _side(row, point.words) == "reference" and any(
                _side(row, x.words) == "this"
                or (row.get("bare") and _bare(row["reference"], point) == x.words)
                for x in theirs
            ):
                found.add(point.path)
    found |= _whole_variants(case, rows)
    both = {p.path for row in rows for p in points if _side(row, p.words) == "this"}
    found -= {p.path for p in points if p.path in both and "_vs_" in ".".join(p.path).lower()}
    if n := _asked_shards(case):
        counts = {p.path: s for p in points if (s := _shard(p.words))}
        if n in counts.values():
            found |= {path for path, s in counts.items() if s != n}
    return found


def cpu_of(path: Sequence[str]) -> int | None:
    """The CPUs that a variant's name tells: `cpu_2`, `4_cores`."""
    found = _CPUS.search(_joined(path))
    return int(found[1] or found[2]) if found else None


@cache
def _rows() -> tuple[dict[str, Any], ...]:
    rows = table()["references"]
    return tuple(
        row | {k: re.sub(r"\s+", "", row[k]) for k in ("this", "reference") if k in row}
        for row in rows
    )


def _rows_of(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows, with the words that count only where the report tells what they need."""
    parts = (case.get("evidence"), case.get("workload"))
    text = re.sub(r"['\"]", "", str(parts)).lower()
    return [
        row | {"reference": f"{row['reference']}|{row['loose']}"}
        if "loose" in row and re.search(row["needs"], text) else row
        for row in _rows()
    ]  # fmt: skip


def _whole_variants(
    case: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> set[tuple[str, ...]]:
    """All figures under a key of a reference, beside a key of the other side that holds the like."""
    leaves = list(leaves_of(case.get("evidence") or {}))
    siblings: dict[tuple[str, ...], dict[str, set[str]]] = {}
    for leaf in leaves:
        for i, name in enumerate(leaf.path):
            below = siblings.setdefault(leaf.path[:i], {}).setdefault(name, set())
            below.add(leaf.path[i + 1] if len(leaf.path) > i + 1 else "")
    apart = set()
    for parent, names in siblings.items():
        for row in rows:
            if row.get("first") or row.get("between"):
                continue
            named = {n: _side(row, _joined([n])) for n in names}
            these = [names[n] for n, side in named.items() if side == "this"]
            apart |= {
                (*parent, n) for n, side in named.items()
                if side == "reference" and any(names[n] & below for below in these)
            }  # fmt: skip
    return {leaf.path for leaf in leaves for p in apart if leaf.path[: len(p)] == p}


def _relatives(
    case: Mapping[str, Any], told: Sides, rows: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, str, Point, Point]]:
    """What a value tells of another system: `awq_vs_fp16: 50% of FP16`, `mtp: 20 % slower than without`."""
    found: list[tuple[bool, str, str, Point]] = []
    for leaf in leaves_of(case.get("evidence") or {}):
        ratio = relative(leaf.value) if isinstance(leaf.value, str) else None
        one = next((m for part in leaf.path if (m := VERSUS.search(part))), None)
        if ratio is None and one and re.search(r"ratio|speedup|(^|_)x$", leaf.path[-1].lower()):
            ratio = number(leaf.value)
        if not ratio:
            continue
        words = _joined(leaf.path)
        this, other = (one[1], one[2]) if one else (words, str(leaf.value))
        this, other = _joined([this]), _joined([other])
        at = list(levels_of(leaf.path, told.chosen))
        point = Point(
            leaf.path, words, "", ratio, ratio, True, frozenset(n for _, n in at),
            all(told.chosen[p] == n for p, n in at), 0,
        )  # fmt: skip
        for row in rows:
            if row.get("between") or ("ttft" in row["signal"]) != ("ttft" in words):
                continue
            if _side(row, this) == "this" and _side(row, other) == "reference":
                value = 1 / ratio if row.get("turn") else ratio
                found.append((not point.chosen, row["signal"], f"{value:.4g}", point))
    for _, signal, value, point in sorted(found, key=lambda f: f[:3]):
        yield signal, value, point, point


def _joined(path: Sequence[str]) -> str:
    return "_".join(tokens(path))


def _points(case: Mapping[str, Any], told: Sides) -> Iterator[Point]:
    ranks = {leaf.path: leaf.rank for leaf in told.before}
    for leaf in leaves_of(case.get("evidence") or {}):
        row = find(leaf.path, "evidence", value=leaf.value)
        if row is None or row.over or not _COMPARED.match(row.signal):
            continue
        at = list(levels_of(leaf.path, told.chosen))
        better = row.as_ == "inverse" or row.signal.endswith("_per_s")
        for words, value in _sided(leaf):
            if (ends := span(value)) and min(ends) > 0:
                yield Point(
                    leaf.path, words, row.signal, *ends, better, frozenset(n for _, n in at),
                    all(told.chosen[p] == n for p, n in at), ranks.get(leaf.path, UNFED),
                )  # fmt: skip


def _sided(leaf: Leaf) -> Iterator[tuple[str, Any]]:
    """The words of a figure; of `A_vs_B` with two figures, each with its own."""
    at = next((i for i, part in enumerate(leaf.path) if VERSUS.search(part)), None)
    if at is None or not isinstance(leaf.value, list) or len(leaf.value) != 2:
        yield _joined(leaf.path), leaf.value
        return
    found = VERSUS.search(leaf.path[at])
    assert found is not None
    for name, value in zip((found[1], found[2]), leaf.value, strict=True):
        yield _joined((*leaf.path[:at], name, *leaf.path[at + 1 :])), value


def _holds_word(pattern: str, words: str) -> bool:
    return bool(re.search(rf"(?:^|_)(?:{pattern})(?:_|$)", words))


def _side(row: Mapping[str, Any], words: str) -> str:
    """`this`, `reference` or neither; where both names occur, the first decides if the row says so."""
    if "not" in row and re.search(row["not"], words):
        return ""
    reference = row.get("reference")
    if row.get("first"):
        words = _CACHE_TYPE.sub("", words)
        found = {x: re.search(rf"(^|_)({row[x]})(?=_|$)", words) for x in ("this", "reference")}
        both = [(m.start(2), x) for x, m in found.items() if m]
        return min(both)[1] if both else ""
    if reference and _holds_word(reference, words):
        return "reference"
    return "this" if _holds_word(row["this"], words) else ""


def _pair(row: Mapping[str, Any], points: Sequence[Point]) -> tuple[Point, Point] | None:
    """This and its reference: of one signal, at one point of a sweep, with the most words in common."""
    able = [p for p in points if not _CURED.search(p.words)]
    best: tuple[tuple[float, ...], Point, Point] | None = None
    for order, signal in enumerate(row["of"]):
        of = [p for p in able if p.signal.startswith(signal)]
        for this in of:
            if _side(row, this.words) not in (("this", "") if row.get("bare") else ("this",)):
                continue
            if not this.chosen:
                continue
            if this.rank == UNFED and not row.get("between"):
                continue
            for other in of:
                if not _beside(row, this, other):
                    continue
                common = len(set(this.words.split("_")) & set(other.words.split("_")))
                rank = (
                    -order, this.signal == other.signal, -this.rank,
                    other.words.split("_")[-1] == this.words.split("_")[-1], common,
                    -this.high if this.larger_is_better else this.high,
                )  # fmt: skip
                if best is None or rank > best[0]:
                    best = rank, this, other
    return best and (best[1], best[2])


def _beside(row: Mapping[str, Any], this: Point, other: Point) -> bool:
    if other is this or this.larger_is_better != other.larger_is_better:
        return False
    if this.levels and other.levels and this.levels != other.levels:
        return False
    if row.get("between"):  # two load generators: the other one reaches more
        alike = set(this.words.split("_")) & set(other.words.split("_"))
        if this.path != other.path and not _both_named(row, this.path, other.path):
            return False
        return bool(alike) and this.low > other.high
    side = _side(row, other.words)
    if side == "reference":
        return _side(row, this.words) == "this" or _bare(row["reference"], other) == this.words
    return bool(row.get("unmarked")) and not side and _bare(row["this"], this) == other.words


def _bare(pattern: str, point: Point) -> str:
    """The words of a figure without those that say which side it is of."""
    return re.sub(rf"(^|_)(?:{pattern})(?=_|$)", "", point.words).strip("_")


def _both_named(row: Mapping[str, Any], one: Sequence[str], two: Sequence[str]) -> bool:
    """Do the keys in which two paths differ name a tool each?"""
    apart = [(a, b) for a, b in zip(one, two, strict=False) if a != b]
    return len(apart) == 1 and all(_side(row, _joined([x])) == "this" for x in apart[0])


def _ratio(row: Mapping[str, Any], this: Point, other: Point) -> str:
    """This over its reference, so that more is faster; turned where the signal is a slowdown or a TTFT."""
    low, high = this.low / other.high, this.high / other.low
    waits = this.signal.startswith("client_ttft")
    upward = this.larger_is_better or (waits and not row.get("turn"))
    if bool(row.get("turn")) == upward:
        low, high = 1 / high, 1 / low
    return ranged(low, high)


def _victims(case: Mapping[str, Any], told: Sides) -> tuple[str, Point, Point] | None:
    """Two figures of the request that suffers, alone and beside what another one does."""
    if "ab_pair" not in (case.get("evidence_kinds") or []):
        return None
    for point in sorted(_points(case, told), key=lambda p: not p.larger_is_better):
        suffers = point.signal.startswith((*_RATES, "client_itl")) and _VICTIM.search(point.words)
        if suffers and point.low < point.high and not _CURED.search(point.words):
            return f"{point.high / point.low:.4g}", point, point
    return None


def _shard(words: str) -> int | None:
    if re.search(r"replica|(^|_)dp\d", words):
        return None
    if found := _SHARDS.search(words):
        return int(next(g for g in found.groups() if g))
    return next((n for word, n in _WORDED.items() if word in words), None)


def _asked_shards(case: Mapping[str, Any]) -> int | None:
    text = " ; ".join(map(str, case.get("launch_args") or []))
    found = re.search(r"(?:\btp|tensor.parallel(?:.size)?|tp.size)[ =]*(\d+)", text, re.IGNORECASE)
    return int(found[1]) if found else None


def _shards(points: Sequence[Point], case: Mapping[str, Any]) -> tuple[Point, Point] | None:
    """The output on several GPUs beside that on one, or on fewer."""
    asked = _asked_shards(case)
    able = [p for p in points if p.chosen and p.signal.startswith(_RATES)]
    able = [p for p in able if not _CURED.search(p.words)]
    for signal in _RATES:
        of = {p: n for p in able if p.signal.startswith(signal) and (n := _shard(p.words))}
        more = {n for n in of.values() if n > 1}
        if not of or (min(of.values()) == max(of.values()) and min(of.values()) > 1):
            continue
        few = min(of.values())
        other = min((p for p, n in of.items() if n == few), key=lambda p: len(p.words))
        if more - {few}:
            n = asked if asked in more - {few} else max(more)
            this = [p for p, k in of.items() if k == n and p.levels == other.levels]
            plain = [p for p in this if _SHARDS.sub("", p.words) == _SHARDS.sub("", other.words)]
            if this:
                return (plain or this)[0], other
        elif asked and asked > few:
            this = [p for p in able if p.signal.startswith(signal) and p.rank < UNFED]
            this = [p for p in this if not _shard(p.words)]
            if this:
                return min(this, key=lambda p: p.high), other
    return None


def _cpus(points: Sequence[Point], case: Mapping[str, Any]) -> tuple[Point, Point] | None:
    """The output with the most CPU beside that with the least, unless that is the cure."""
    able = [p for p in points if p.signal.startswith(_OUTPUT) and not _CURED.search(p.words)]
    of = [(n, p) for p in able if (n := cpu_of(p.path)) and "worst" not in p.words]
    if len({n for n, _ in of}) < 2:
        return None
    most, least = max(of, key=lambda x: x[0])[1], min(of, key=lambda x: x[0])[1]
    gain = case.get("gain") or {}
    before = number(gain.get("before"))
    cure = before is not None and least.low <= before <= least.high
    return None if cure or most.signal != least.signal else (most, least)
