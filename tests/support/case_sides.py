"""Which of a report's figures are those of the slow side: the tree of its evidence, cut to the before."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from case_keys import VERSUS, number, table, tokens

_LEVEL = re.compile(
    r"(?:at_|with_|for_)?(?:c|x|bs|conc|concurrency|concurrent|batch(?:_size)?(?:_[lg][et])?"
    r"|ctx|context|depth|rate|qps|n|users|clients|streams|in|input|prompt|isl)?[_ ]?(\d+(?:\.\d+)?)[ _]?([km]?)"
    r"(?:[ _]?(?:tokens?|tok|threads?|users|clients|streams|requests|concurrent"
    r"|reqs?|rps|qps|req_s|i?b|[gkm]i?b|ctx|context))?$",
    re.IGNORECASE,
)
_SIZED = re.compile(r"\.|[gk]?i?b$", re.IGNORECASE)
_COLLECTIVE = re.compile(r"all_?reduce|all_?gather|all_?to_?all|collective|nccl", re.IGNORECASE)
_FIXED_PART = re.compile(
    r"(?<![a-z])fixed_(?!tok_|tokens?_(per_)?s|gen|out|ttft|itl|tpot|req|thr|lat|m?s$)"
)
DECODE_BYTES = 8000
"""A collective of at least so many bytes is one of decode."""
NO_EVIDENCE = ("log_lines_rebuilt", "log_fields_not_reported")


@dataclass(frozen=True)
class Leaf:
    """One figure: where it stands, what it is, and how sure it is that it belongs to the slow side."""

    path: tuple[str, ...]
    value: Any
    rank: int = 0


@dataclass
class Sides:
    """The leaves of the slow side, those of the other, and the point of a sweep that was chosen.

    Attributes:
        before: leaves of the slow side.
        other: leaves of a healthy system, of a reference, or of what was measured after a cure.
        levels: points of sweeps that count.
        swept: leaves of the slow side at every point of a sweep.
        chosen: keys that hold the points of a sweep, and the point that counts.
    """

    before: list[Leaf] = field(default_factory=list)
    other: list[Leaf] = field(default_factory=list)
    levels: list[float] = field(default_factory=list)
    swept: list[Leaf] = field(default_factory=list)
    chosen: dict[tuple[str, ...], str] = field(default_factory=dict)


def sides(case: Mapping[str, Any], beside: Collection[tuple[str, ...]] = ()) -> Sides:
    """Tell a case's figures apart.

    What bears a word of the healthy side is none of it. Where the report states what was gained, the variant
    that holds the figure before is the slow one, and the one that holds the figure after is not. Of pairs
    without a word, the first is before; of `A_vs_B`, the one that is the engine's; of an A/B pair whose sides
    nothing names, the worse one is left to who reads it. Of a sweep, the point of the stated gain counts, else
    the highest; of sizes that an argument names, that one; of collectives, the smallest of decode. Of versions,
    the one that the report is about.

    Args:
        case: the report.
        beside: paths of figures of a reference that was measured beside; see case_pairs.
    """
    leaves = list(leaves_of(case.get("evidence") or {}))
    apart = set(beside)
    gain = case.get("gain") or {}
    before, after = number(gain.get("before")), number(gain.get("after"))
    held = next((leaf for leaf in leaves if _holds(leaf.value, before)), None)
    freed = next((leaf for leaf in leaves if _holds(leaf.value, after)), None)
    slow, fast = _differ(held.path, freed.path) if held and freed else ((), ())
    words = table()
    chosen = _chosen_levels(leaves, held, slow, " ".join(map(str, case.get("launch_args") or [])))
    found = Sides(chosen=chosen)
    strangers = _strange_versions(case, leaves) | _strange_engines(case, leaves)
    variants = _other_variants(case, leaves) | _switched_arms(case, leaves)
    for leaf in leaves:
        parts = tokens(leaf.path)
        is_slow = bool(slow) and _has(parts, slow)
        wrong_level = any(
            parent in chosen and name != chosen[parent]
            for parent, name in levels_of(leaf.path, chosen)
        )
        if not (leaf is held or is_slow) and (
            (fast and _has(parts, fast))
            or (_is_after(_own_side(leaf), words["after"]) and "before" not in parts)
            or any(leaf.path[: len(v)] == v for v in variants)
            or set(tokens(_own_side(leaf))) & strangers
            or leaf.path in apart
        ):
            found.other.append(leaf)
            continue
        value = _side_of_pair(leaf, case, before, after)
        found.swept.append(Leaf(leaf.path, value, 0 if is_slow or leaf is held else 1))
        if wrong_level:
            continue
        rank = (0 if leaf is held else 1) + (0 if is_slow else 2)
        rank += 0 if set(parts) & set(words["before"]) else 1
        rank += 0 if any(levels_of(leaf.path, chosen)) else 1
        found.before.append(Leaf(leaf.path, value, rank))
    surest = min((leaf.rank for leaf in found.before), default=0)
    alone = any("single" in tokens(leaf.path) for leaf in found.before if leaf.rank == surest)
    found.levels = [1.0] * alone + [x for name in chosen.values() if (x := level(name)) is not None]
    return found


_ENGINES = (
    "vllm",
    "sglang",
    "trtllm",
    "tensorrt",
    "tgi",
    "lmdeploy",
    "llamacpp",
    "ollama",
    "mlx",
    "exllama",
)
"""Names of engines as words of keys."""


def _strange_engines(case: Mapping[str, Any], leaves: list[Leaf]) -> set[str]:
    """Words of paths that name another engine than the one that the report is about."""
    about = str((case.get("engine") or {}).get("name", "")).lower()
    own = re.sub(r"[^a-z]+", "", about.replace("tensorrt-llm", "trtllm tensorrt"))
    if not any(e in own for e in _ENGINES):
        return set()
    strange = "|".join(e for e in _ENGINES if e not in own)
    words = {t for leaf in leaves for t in tokens(_own_side(leaf))}
    found = {t for t in words if re.fullmatch(rf"({strange})(v?\d+\..*)?", t)}
    two_words = any(re.search(r"llama[_.-]cpp", p.lower()) for leaf in leaves for p in leaf.path)
    return found | ({"cpp"} if two_words and "llamacpp" not in own else set())


def _other_variants(case: Mapping[str, Any], leaves: list[Leaf]) -> set[tuple[str, ...]]:
    """Prefixes of variants beside the one that the server was started with: `--attention-backend triton`."""
    values = {
        t for a in case.get("launch_args") or []
        for t in re.findall(r"^--[\w-]+[ =]([a-z][a-z0-9_]{3,})$", str(a).lower())
    }  # fmt: skip
    siblings: dict[tuple[str, ...], list[str]] = {}
    for leaf in leaves:
        for i, name in enumerate(leaf.path):
            names = siblings.setdefault(leaf.path[:i], [])
            if name not in names:
                names.append(name)
    return {
        (*parent, n) for parent, names in siblings.items()
        if 1 < len(names) < 5 and sum(m.lower() in values for m in names) == 1 and parent
        for n in names if n.lower() not in values and level(n) is None
    }  # fmt: skip


def _switched_arms(case: Mapping[str, Any], leaves: list[Leaf]) -> set[tuple[str, ...]]:
    """Prefixes of the arm that the server was not started with: `graph_on` beside `--disable-cuda-graph`."""
    started = re.sub(
        r"[^a-z0-9;]+", "_", " ; ".join(map(str, case.get("launch_args") or [])).lower()
    )
    names = {leaf.path[: i + 1] for leaf in leaves for i in range(len(leaf.path))}
    found = set()
    for path in names:
        arm = re.fullmatch(r"(\w+)_(on|off)", path[-1].lower())
        if (
            not arm
            or (*path[:-1], f"{path[-1][: len(arm[1])]}_{ {'on': 'off', 'off': 'on'}[arm[2]] }")
            not in names
        ):
            continue
        what = re.escape(arm[1])
        off = re.search(
            rf"(disable|no|without)_(\w{{0,12}}_)?{what}|{what}\w{{0,8}}_(off|disabled|false|0)\b",
            started,
        )
        on = re.search(
            rf"enable_(\w{{0,12}}_)?{what}|{what}\w{{0,8}}_(on|enabled|true|1)\b", started
        )
        if bool(off) != bool(on) and (arm[2] == "on") == bool(off):
            found.add(path)
    return found


def leaves_of(node: Any, path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            if str(key) not in NO_EVIDENCE:
                name = (
                    {True: "on", False: "off"}.get(key, str(key))
                    if isinstance(key, bool)
                    else str(key)
                )
                yield from leaves_of(value, (*path, name))
    elif isinstance(node, list) and any(isinstance(x, Mapping) for x in node):
        for value in node:
            yield from leaves_of(value, path)
    elif node is not None:
        yield Leaf(path, node)


def _holds(value: Any, wanted: float | None) -> bool:
    """Is it this figure, or a pair with it in, or a range around it?"""
    if wanted is None:
        return False
    if isinstance(value, list):
        plain = [v for v in map(number, value) if v is not None]
        return wanted in plain or (len(plain) == 2 and abs(sum(plain) / 2 - wanted) < 1e-9)
    return number(value) == wanted


def _differ(
    one: tuple[str, ...], other: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words by which two paths first differ, without those that they share at both ends."""
    for a, b in zip(one, other, strict=False):
        if a == b:
            continue
        x, y = tokens([a]), tokens([b])
        while x and y and x[0] == y[0]:
            x, y = x[1:], y[1:]
        while x and y and x[-1] == y[-1]:
            x, y = x[:-1], y[:-1]
        return tuple(x), tuple(y)
    return (), ()


def _has(parts: list[str], run: tuple[str, ...]) -> bool:
    return any(tuple(parts[i : i + len(run)]) == run for i in range(len(parts) - len(run) + 1))


def level(name: str) -> float | None:
    """The number of a sweep's point: `32`, `c64`, `8K`."""
    found = _LEVEL.match(name)
    if not found:
        return None
    return float(found[1]) * {"k": 1e3, "m": 1e6}.get(found[2].lower(), 1.0)


def _chosen_levels(
    leaves: list[Leaf], held: Leaf | None, slow: tuple[str, ...], arguments: str
) -> dict[tuple[str, ...], str]:
    """Of each mapping whose keys are all points of a sweep, the key that counts."""
    children: dict[tuple[str, ...], list[str]] = {}
    for leaf in leaves:
        for i, name in enumerate(leaf.path):
            seen = children.setdefault(leaf.path[:i], [])
            if name not in seen:
                seen.append(name)
    chosen = {}
    for parent, names in children.items():
        if len(names) < 2 or any(level(n) is None for n in names):
            continue
        at = len(parent)
        own = held.path[at] if held and held.path[:at] == parent and len(held.path) > at else None
        if own is None and held:  # the same sweep under another figure
            own = next((p for p in held.path if p in names), None)
        if own is None and slow:
            own = next((n for n in names if _has(tokens([n]), slow)), None)
        if own is None and all(map(_SIZED.search, names)):
            at_word = {n: re.search(rf"(?<![\d.]){re.escape(n)}(?!\d)", arguments) for n in names}
            told = [(m.start(), n) for n, m in at_word.items() if m]
            own = min(told)[1] if told else None
        if own is None and _COLLECTIVE.search(".".join(parent)):
            of_decode = [n for n in names if (level(n) or 0.0) >= DECODE_BYTES]
            own = min(of_decode or names, key=lambda n: level(n) or 0.0)
        own = own or _told_elsewhere(leaves, parent)
        chosen[parent] = own or max(names, key=lambda n: level(n) or 0.0)
    return chosen


def _told_elsewhere(leaves: list[Leaf], parent: tuple[str, ...]) -> str | None:
    """The point of a sweep whose figures, to the digit, are told outside of it too."""
    at = len(parent)
    inside = [x for x in leaves if x.path[:at] == parent and len(x.path) > at]
    outside = {n for x in leaves if x.path[:at] != parent and (n := number(x.value)) and n % 1}
    hits = [x.path[at] for x in inside if number(x.value) in outside]
    names = set(hits)
    return hits[0] if len(names) == 1 else None


def _is_after(path: tuple[str, ...], words: Collection[str]) -> bool:
    """Does a word say that it is of the healthy side? A `fixed cost` is none."""
    dotted = _FIXED_PART.sub("", ".".join(path).lower())
    return bool(
        set(tokens(dotted.split("."))) & set(words) | set(tokens(path)) & set(words) - {"fixed"}
    )


def _own_side(leaf: Leaf) -> tuple[str, ...]:
    """The path of a figure; of `A_vs_B` with both figures without these names: one side is the slow one."""
    if not (isinstance(leaf.value, list) and len(leaf.value) == 2):
        return leaf.path
    return tuple(p for p in leaf.path if not VERSUS.search(p))


def _strange_versions(case: Mapping[str, Any], leaves: list[Leaf]) -> set[str]:
    """Words of paths that are versions other than the one that the report is about."""
    version = str((case.get("engine") or {}).get("version", ""))
    own = re.sub(r"\([^)]*\)", "", version)
    keys = {
        t for leaf in leaves for t in tokens(leaf.path) if re.fullmatch(r"v?\d+\.\d+\.\d+\w*", t)
    }
    named = {t for t in keys if re.search(rf"(?<![\d.]){re.escape(t.lstrip('v'))}(?![\d.])", own)}
    return keys - named if named else set()


def levels_of(
    path: tuple[str, ...], chosen: Mapping[tuple[str, ...], str]
) -> Iterator[tuple[tuple[str, ...], str]]:
    for i, name in enumerate(path):
        if path[:i] in chosen:
            yield path[:i], name


def _side_of_pair(
    leaf: Leaf, case: Mapping[str, Any], before: float | None, after: float | None
) -> Any:
    """Of a pair of two sides the slow one's figure; a range stays a range."""
    value = leaf.value
    if not (isinstance(value, list) and len(value) == 2):
        return value
    written = ".".join(leaf.path).lower()
    if "before_after" in written:
        return value[0]
    if found := re.search(r"(\w+?)_vs_(\w+)", written.split(".")[-1]) or re.search(
        r"(\w+)_vs_(\w+)", written
    ):
        engine = str((case.get("engine") or {}).get("name", "")).lower()
        second = [t for t in tokens([found[2]]) if t in tokens([engine])]
        first = [t for t in tokens([found[1]]) if t in tokens([engine])]
        after = set(table()["after"])
        if bool(set(tokens([found[1]])) & after) != bool(set(tokens([found[2]])) & after):
            return value[1] if set(tokens([found[1]])) & after else value[0]
        return value[1] if second and not first else value[0]
    named = set(tokens(leaf.path)) & {*table()["before"], "before"}
    if "ab_pair" not in (case.get("evidence_kinds") or []) or named:
        return value
    pairs = [x for x in leaves_of(case.get("evidence") or {}) if isinstance(x.value, list)]
    for index in (0, 1):
        whole = any(
            len(x.value) == 2
            and _holds(x.value[index], before)
            and _holds(x.value[1 - index], after)
            for x in pairs
        )
        if whole:
            return value[index]
    return {"either": value}
