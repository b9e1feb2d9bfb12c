"""Sweeps of a report over what is no load: a power limit, the size of a feature of the host, how many tokens are
guessed; two formats of the weights; lanes of a link; steps that passed decodes over."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from case_evidence import Evidence
from case_keys import find, number, ranged, span
from case_sides import Leaf, Sides, leaves_of

_FEATURE = (
    r"(?:top_?|max_?|prompt_?|num_?|n_?)?log_?probs?|grammar\w*|(?:json_)?schema\w*|penalt\w*|logit_?bias\w*"
    r"|stop(?:_?(?:strings?|words?|sequences?))?|bad_?words|logits?_?processors?|guided\w*|constraint\w*"
)
"""What runs on the host for every token, and grows with a size."""
_POWER = (
    r"(?:gpu_?|core_?|sm_?)?(?:power|tdp|watts?|clocks?|mhz|freq\w*)"
    r"(?:_?(?:cap|limit|lock|sweep|w|watts|mhz))*"
)
_DRAFTED = r"(?:num_)?(?:spec\w*_tokens|spec_(?:len\w*|depth|k)|draft_(?:tokens|len\w*|depth)|mtp_depth|guesses)"
_GUESSES = re.compile(
    r"(?:k|n|mtp|nextn|eagle\d?|spec\w*|drafts?(?:_\w+)?|depth|steps|num_spec\w*|guesses)_?(\d{1,2})"
)
_SPECULATES = re.compile(r"speculat|\bmtp\b|eagle|draft|nextn|medusa|dflash|n-?gram|num.spec", re.I)
_FORMAT = re.compile(
    r"gguf\w*|awq\w*|gptq\w*|exl\d\w*|nvfp4|mxfp4|fp8\w*|int[48]\w*|bnb\w*|nf4|hqq|q[2-8](?:_[\dkmsl])*"
)
_LOADS = re.compile(r"concurren|streams|users|clients|batch")
_WIDTH = re.compile(
    r"(link|pcie|lane|bus|slot)s?_?(\w+_)?(width|lanes)|(^|[._])(lanes|lnk(sta|cap))([._]|$)"
)
_LANES = re.compile(r"(?:^|_)x(1|2|4|8|16)(?:_|$)")
_LINKED = re.compile(r"pcie|link|lane|card|slot|riser")
_PASSED = re.compile(
    r"prefill_(steps?|batch\w*)_with_(\w+_)?(ready|running|waiting|active)_decod\w*_(pct|percent|ratio|share)"
)
_PREFILL_ONLY = re.compile(
    r"(prefill|extend)_only_(steps?|batch\w*)_(pct|percent|ratio|share)"
    r"|(steps?|batch\w*)_prefill_only_(pct|percent|ratio|share)"
)
_RATES = ("output_tokens_per_s", "generation_tokens_per_s", "completed_rate_per_s")
_TIMES = ("client_tpot_m", "client_tpot_p50", "client_itl_m", "client_itl_p50", "step_s")
LEAST_POWER, LEAST_DRAW = 1.2, 1.1
"""A power limit has to differ by so much, and the power that was drawn under it, for a sweep to say something."""
LANES = 16

Points = list[tuple[float, Leaf]]


def knobs(case: Mapping[str, Any], told: Sides, found: Evidence) -> None:
    """Fill in what sweeps over something else than load say."""
    workload = case.get("workload") or {}
    ranks = {leaf.path: leaf.rank for leaf in told.before}
    text = " ; ".join(map(str, _words(case)))
    _feature_size(told.swept, workload, ranks, found)
    _power(told.swept, ranks, found)
    if _SPECULATES.search(text):
        _guesses([*told.swept, *told.other], workload, ranks, found)
    _formats(case, text, found)
    _width(case, found)
    _passed_over(told, found)


def lone_prompt(found: Evidence) -> None:
    """Tokens of a prompt over the rate at which a lone one is read: its first token comes after that."""
    rate, size = found.facts.get("prompt_tokens_per_s"), found.facts.get("input_mean_tokens")
    key = found.told.get("prompt_tokens_per_s", "")
    one, two = span(rate), span(size)
    alone = number(found.facts.get("inflight_mean_count")) == 1
    known = any(f.startswith(("client_ttft", "server_prefill")) for f in found.facts)
    of_prompts = re.search(r"prefill|(^|[._])pp_?\d", key.lower())
    if alone and of_prompts and not known and one and two and min(*one, *two) > 0:
        seconds = ranged(two[0] / one[1], two[1] / one[0])
        found.offer("client_ttft_mean_s", f"{seconds} s", key)


def _words(case: Mapping[str, Any]) -> Iterator[Any]:
    yield from case.get("launch_args") or []
    yield from (case.get("model") or {}).values()


def _points(
    leaves: Sequence[Leaf], what: str, workload: Mapping[str, Any], unit: str = ""
) -> Iterator[Points]:
    """Sweeps over `what`: named by the key above (`by_what`), by each point's own key, or by the workload."""
    above = re.compile(rf"(?:.*_)?(?:by|over|per|vs|at)_(?:\w+_)?(?:{what})(?:_\w+)?|(?:{what})")
    own = re.compile(rf"(?:at_|with_)?(?:{what})_?(\d+(?:\.\d+)?)(k?)")
    in_unit = re.compile(rf"(?:\w+_)?(\d+(?:\.\d+)?)(k?)_?(?:{unit or 'unit'})")
    listed = {
        number(x)
        for k, v in workload.items()
        if isinstance(v, list) and re.fullmatch(what, str(k).lower())
        for x in v
    }
    groups: dict[tuple[tuple[str, ...], int], Points] = {}
    for leaf in leaves:
        parts = [p.lower() for p in leaf.path]
        for i, part in enumerate(parts):
            named = own.fullmatch(part) or (in_unit.fullmatch(part) if unit else None)
            plain = re.fullmatch(r"(\d+(?:\.\d+)?)(k?)", part)
            if (
                not named
                and plain
                and (any(above.fullmatch(p) for p in parts[:i]) or number(part) in listed)
            ):
                named = plain
            if named:
                size = float(named[1]) * (1e3 if named[2] else 1)
                key = (*leaf.path[:i], *leaf.path[i + 1 :]), i
                groups.setdefault(key, []).append((size, leaf))
    for points in groups.values():
        if len({n for n, _ in points}) > 1:
            yield sorted(points, key=lambda x: x[0])


def _speedup(points: Points) -> float | None:
    """How many times as fast it is at the last point as at the first; None where that is no rate of decode."""
    (_, first), (_, last) = points[0], points[-1]
    row = find(first.path, "evidence", value=first.value)
    one, two = _middle(first.value), _middle(last.value)
    if row is None or not one or not two or not row.signal.startswith((*_RATES, *_TIMES)):
        return None
    faster = row.as_ == "inverse" or row.signal.startswith(_RATES)
    return two / one if faster else one / two


def _best(
    sweeps: Iterable[Points], ranks: Mapping[tuple[str, ...], int]
) -> tuple[float, str, Points] | None:
    """Of several sweeps that of the surest figure, then the one that is slowed most at its last point."""
    able = [
        (min(ranks.get(leaf.path, 9) for _, leaf in points), ratio, points)
        for points in sweeps
        if (ratio := _speedup(points))
    ]
    if not able:
        return None
    _, ratio, points = min(able, key=lambda x: x[:2])
    key = f"{'.'.join(points[-1][1].path)} / {'.'.join(points[0][1].path)}"
    return ratio, key, points


def _feature_size(
    leaves: Sequence[Leaf],
    workload: Mapping[str, Any],
    ranks: Mapping[tuple[str, ...], int],
    found: Evidence,
) -> None:
    if best := _best(_points(leaves, _FEATURE, workload), ranks):
        ratio, key, _ = best
        found.offer("host_feature_slowdown_ratio", f"{1 / ratio:.4g}", key)


def _power(leaves: Sequence[Leaf], ranks: Mapping[tuple[str, ...], int], found: Evidence) -> None:
    """Decode at the highest power limit or clock over that at the lowest, where the limit was felt at all."""
    decode = [x for x in leaves if not re.search(r"prefill|prompt|(^|[._])pp_?(\d|t)", _key(x))]
    wide = (
        p
        for p in _points(decode, _POWER, {}, "w|watts|mhz")
        if p[0][0] > 0 and p[-1][0] / p[0][0] >= LEAST_POWER
    )
    draws = [
        p
        for p in _points(leaves, rf"(?:{_POWER})", {}, "w|watts|mhz")
        if re.search(r"draw|(^|_)power(_w)?$|watts$", p[0][1].path[-1].lower())
    ]
    for points in draws:
        one, two = _middle(points[0][1].value), _middle(points[-1][1].value)
        if one and two and two / one < LEAST_DRAW:  # a limit that nothing reaches
            return
    if best := _best(wide, ranks):
        ratio, key, _ = best
        found.offer("decode_clock_gain_ratio", f"{ratio:.4g}", key)


def _guesses(
    leaves: Sequence[Leaf],
    workload: Mapping[str, Any],
    ranks: Mapping[tuple[str, ...], int],
    found: Evidence,
) -> None:
    """The rate with the most guesses over that with the fewest; with none at all it is a pair like others."""
    loads = {
        number(x)
        for k, v in workload.items()
        if isinstance(v, list) and _LOADS.search(str(k).lower())
        for x in v
    }
    groups: dict[tuple[str, ...], Points] = {}
    for leaf in leaves:
        for i, part in enumerate(leaf.path):
            if told := _GUESSES.fullmatch(part.lower()):
                key = (*leaf.path[:i], *leaf.path[i + 1 :])
                groups.setdefault(key, []).append((float(told[1]), leaf))
    sweeps = (
        sorted(points, key=lambda x: x[0])
        for points in groups.values()
        if len(sizes := {n for n, _ in points}) > 1
        and min(sizes) > 0
        and not (sizes <= loads and any(x.path[-1].lower().startswith("n") for _, x in points))
    )
    named = _points(leaves, _DRAFTED, workload)
    if best := _best((*sweeps, *named), ranks):
        ratio, key, _ = best
        found.offer("speculation_speedup_ratio", f"{ratio:.4g}", key)


def _formats(case: Mapping[str, Any], text: str, found: Evidence) -> None:
    """The TTFT with the format of the weights that is in use over that with another narrow one."""
    groups: dict[tuple[str, ...], dict[str, Leaf]] = {}
    for leaf in leaves_of(case.get("evidence") or {}):
        for i, part in enumerate(leaf.path):
            if _FORMAT.fullmatch(part.lower()) and "kv" not in part.lower():
                key = (*leaf.path[:i], *leaf.path[i + 1 :])
                groups.setdefault(key, {})[part.lower()] = leaf
    for by_format in groups.values():
        at = {f: text.lower().find(f.replace("_", "-")) for f in by_format}
        at = {f: text.lower().find(f) if n < 0 else n for f, n in at.items()}
        named = [f for f, n in at.items() if n >= 0]
        if len(by_format) < 2 or not named:
            continue
        used = min(named, key=lambda f: at[f])
        this = by_format[used]
        row = find(this.path, "evidence", value=this.value)
        one = _middle(this.value)
        others = [m for f, x in by_format.items() if f != used and (m := _middle(x.value))]
        if row is None or not one or not others:
            continue
        if row.signal.startswith(("client_ttft_m", "client_ttft_p50")):
            ratio = one / min(others)
        elif row.signal == "prompt_tokens_per_s":
            ratio = max(others) / one
        else:
            continue
        found.offer("quantized_ttft_ratio", f"{ratio:.4g}", ".".join(this.path))


def _width(case: Mapping[str, Any], found: Evidence) -> None:
    """Lanes of the narrowest link over those that it has when it is well; over 16 where nothing tells these."""
    told: list[tuple[int, str]] = []
    named: list[tuple[int, str]] = []
    for leaf in leaves_of(case.get("evidence") or {}):
        key = ".".join(leaf.path)
        if _WIDTH.search(key.lower()):
            sizes = re.findall(r"\bx ?(\d+)\b|^(\d+)$", str(leaf.value).lower())
            told += [(int(a or b), key) for a, b in sizes if int(a or b) in (1, 2, 4, 8, 16)]
        for part in leaf.path:
            if (lanes := _LANES.search(part.lower())) and _LINKED.search(part.lower()):
                named.append((int(lanes[1]), key))
    lanes = told or named
    if not lanes or (not told and len({n for n, _ in named}) < 2):
        return
    fewest, key = min(lanes)
    most = max(n for n, _ in (*told, *named))
    value = fewest / (most if len({n for n, _ in (*told, *named)}) > 1 else LANES)
    found.offer("gpu_pcie_width_ratio", f"{value:.4g}", key)
    for _, path in told:
        found.unmapped.pop(path, None)


def _passed_over(told: Sides, found: Evidence) -> None:
    """Steps of prefill alone that passed over requests ready to decode.

    A step of prefill takes at least as long as one of decode, as it reads the weights too: the share of steps
    that are left to decode is the most that is left of its rate.
    """
    only = next((x for x in told.before if _PREFILL_ONLY.search(_key(x))), None)
    passed = next((x for x in told.before if _PASSED.search(_key(x))), None)
    one, two = _share(only), _share(passed)
    if only and passed and one and two and one * two < 1:
        key = ".".join(passed.path)
        found.offer("decode_slowdown_by_prefill_ratio", f">= {1 / (1 - one * two):.3g}", key)
        for leaf in (only, passed):
            found.unmapped.pop(".".join(leaf.path), None)


def _share(leaf: Leaf | None) -> float | None:
    """The least share that a figure tells."""
    value = leaf.value["either"] if leaf and isinstance(leaf.value, dict) else leaf and leaf.value
    ends = None if value is None else span(value)
    if leaf is None or ends is None:
        return None
    percent = max(ends) > 1 or re.search(r"pct|percent", _key(leaf))
    return min(ends) / (100 if percent else 1)


def _key(leaf: Leaf) -> str:
    return ".".join(leaf.path).lower()


def _middle(value: Any) -> float | None:
    """A positive figure, or the middle of its range."""
    ends = None if isinstance(value, dict) else span(value)
    return None if ends is None or min(ends) <= 0 else sum(ends) / 2
