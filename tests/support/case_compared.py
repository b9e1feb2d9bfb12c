"""Facts that two figures of a report make together: a pair, a sweep, a distance from a floor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from case_evidence import Evidence
from case_keys import find, is_time, number, ranged, span, written
from case_knobs import knobs
from case_pairs import cpu_of, references
from case_sides import Leaf, Sides
from case_steps import DECODE_ONLY, steps
from case_sweeps import by_load

from whybound.collector.fact_values import read_fact

_FLOOR = re.compile(r"floor|roof|speed_of_light|(^|[._])sol|ideal|theoretical|ceiling|bound")
_NOT_THIS = re.compile(r"example|sibling|published|readme")
_SERVES_MANY = re.compile(
    r"vllm|sglang|tensorrt|trt-?llm|tgi|text-generation-inference|lmdeploy|triton"
)
_OUTPUT = ("output_tokens_per_s", "generation_tokens_per_s", "completed_rate_per_s")
_TTFT = ("client_ttft_mean_s", "client_ttft_p50_s")
_LOW = re.compile(
    r"(?:at_)?(?:lowest|low|light|idle|min)(?:est)?(?:_(?:load|concurrency|rate|traffic))?"
)
_HIGH = re.compile(
    r"(?:at_)?(?:highest|high|heavy|peak|max|full)(?:_(?:load|concurrency|rate|traffic))?"
)
_GAINS = (
    (r"client_ttft", "sweep_ttft_gain_ratio"),
    (r"client_(tpot|itl)", "sweep_itl_gain_ratio"),
    (r"(output_tokens|generation_tokens|completed_rate)_per_s", "sweep_output_gain_ratio"),
)
_LINK = re.compile(r"(^|[._])(nics?|hcas?|mlx5|ib|rdma|roce|eth|links?|rails?|ports?)([._\d]|$)")
_TIMED = (
    (r"ttft|first_token", "ttft"),
    (r"e2e|latency|duration", "e2e"),
    (r"itl|inter_token", "itl"),
)
_WHOLE = re.compile(r"(total_?)?(requests?|count|n|total|all)")
_OVER = re.compile(r"(?:over|above|more_than|gt|longer_than)_?(\d+(?:\.\d+)?)_?(ms|s|min)")
_SINGLE = re.compile(r"concurren|stream|users|batch", re.IGNORECASE)


def compared(case: Mapping[str, Any], told: Sides, found: Evidence) -> None:
    """Fill in what pairs, sweeps and floors say."""
    for signal, value, this, other in references(case, told):
        keys = " / ".join(dict.fromkeys((".".join(this.path), ".".join(other.path))))
        found.offer(signal, value, keys)
        if this is other:
            found.unmapped.pop(keys, None)
    _sweeps(case, told, found)
    _itl_sweep(case, told, found)
    knobs(case, told, found)
    _worded_loads(told, found)
    _links(told, found)
    steps(case, told, found)
    _histograms(told, found)
    _contexts(case, told, found)
    _floors(told, found)
    _cpu_given(told, found)


def _sweeps(case: Mapping[str, Any], told: Sides, found: Evidence) -> None:
    """Output and TTFT at the highest load over those at the lowest."""
    sweeps = by_load(told, case.get("workload") or {}, "load")
    output = next((sweeps[s] for s in _OUTPUT if s in sweeps), None)
    streams = (s for s in sweeps if s.startswith("client_tpot") and s.endswith("/"))
    each = next((sweeps[s] for s in streams), None)
    if output is None and each is not None:  # of one stream, times the streams
        output = [(n, Leaf(x.path, n * one)) for n, x in each if (one := _one(x.value))]
    for signal, points in (
        ("sweep_output_gain_ratio", output),
        ("sweep_ttft_gain_ratio", next((sweeps[s] for s in _TTFT if s in sweeps), None)),
    ):
        if points and len(points) > 1:
            (low, first), (high, last) = points[0], points[-1]
            one, two = _one(first.value), _one(last.value)
            if one and two and low:
                key = f"{'.'.join(last.path)} / {'.'.join(first.path)}"
                found.offer(signal, f"{two / one:.4g}", key)
                found.offer("sweep_load_gain_ratio", f"{high / low:.4g}", key)


def _itl_sweep(case: Mapping[str, Any], told: Sides, found: Evidence) -> None:
    """Time a token at the highest load over that at the lowest."""
    for signal, points in by_load(told, case.get("workload") or {}, "load").items():
        if not signal.startswith(
            ("client_tpot_m", "client_tpot_p50", "client_itl_m", "client_itl_p50")
        ):
            continue
        (low, first), (high, last) = points[0], points[-1]
        one, two = _one(first.value), _one(last.value)
        if one and two and low:
            key = f"{'.'.join(last.path)} / {'.'.join(first.path)}"
            ratio = one / two if signal.endswith("/") else two / one
            found.offer("sweep_itl_gain_ratio", f"{ratio:.4g}", key)
            found.offer("sweep_load_gain_ratio", f"{high / low:.4g}", key)


def _worded_loads(told: Sides, found: Evidence) -> None:
    """A figure at the lowest and at the highest load, where words tell which is which."""
    sides_: dict[tuple[str, ...], dict[str, Leaf]] = {}
    for leaf in (*told.before, *told.other):
        for i, part in enumerate(leaf.path):
            for name, pattern in (("low", _LOW), ("high", _HIGH)):
                if pattern.fullmatch(part.lower()):
                    sides_.setdefault((*leaf.path[:i], *leaf.path[i + 1 :]), {})[name] = leaf
    for pair in sides_.values():
        if len(pair) < 2:
            continue
        row = find(pair["high"].path, "evidence", value=pair["high"].value)
        one, two = _one(pair["low"].value), _one(pair["high"].value)
        signal = next((s for p, s in _GAINS if row and re.match(p, row.signal)), None)
        if signal and one and two:
            key = f"{'.'.join(pair['high'].path)} / {'.'.join(pair['low'].path)}"
            inverse = row is not None and row.as_ == "inverse"
            found.offer(signal, f"{(one / two if inverse else two / one):.4g}", key)


def _links(told: Sides, found: Evidence) -> None:
    """Bytes over the busiest of several links over the mean of them all: `nic0: 200`, `nic1..7 each: 28`."""
    groups: dict[tuple[str, ...], list[tuple[float, int, Leaf]]] = {}
    for leaf in told.before:
        name = leaf.path[-1].lower()
        if _LINK.search(".".join(leaf.path).lower()) and re.search(r"\d", name):
            several = re.search(r"(\d+) ?(?:\.\.|-|–|to) ?(?:[a-z_]*)(\d+)", name)
            count = int(several[2]) - int(several[1]) + 1 if several else 1
            if count > 0 and (value := _one(leaf.value)) is not None:
                groups.setdefault(leaf.path[:-1], []).append((value, count, leaf))
    for parent, links in groups.items():
        total, count = sum(v * n for v, n, _ in links), sum(n for _, n, _ in links)
        if len(links) > 1 and total > 0:
            most = max(v for v, _, _ in links)
            found.offer("link_use_spread_ratio", f"{most * count / total:.4g}", ".".join(parent))
            for _, _, leaf in links:
                found.unmapped.pop(".".join(leaf.path), None)


def _histograms(told: Sides, found: Evidence) -> None:
    """Quantiles from counts above thresholds: `requests: 900, over_5s: 40, over_20s: 3`."""
    groups: dict[tuple[str, ...], dict[str, Leaf]] = {}
    for leaf in told.before:
        groups.setdefault(leaf.path[:-1], {})[leaf.path[-1].lower()] = leaf
    for parent, by_name in groups.items():
        words = ".".join(parent).lower()
        what = next((s for p, s in _TIMED if re.search(p, words)), None)
        whole = next((number(x.value) for n, x in by_name.items() if _WHOLE.fullmatch(n)), None)
        over = {
            float(m[1]) * {"ms": 1e-3, "min": 60.0}.get(m[2], 1.0): (number(x.value), x)
            for n, x in by_name.items() if (m := _OVER.fullmatch(n))
        }  # fmt: skip
        if not what or not whole or len(over) < 2:
            continue
        for quantile, share in (("p95", 0.05), ("p99", 0.01)):
            below = [t for t, (n, _) in over.items() if n is not None and n / whole > share]
            above = [t for t, (n, _) in over.items() if n is not None and n / whole <= share]
            if below and above:
                text = f"{max(below):g}..{min(above):g} s"
            elif above:
                text = f"< {min(above):g} s"
            else:
                text = f"> {max(below):g} s"
            found.offer(f"client_{what}_{quantile}_s", text, words)
        found.offer("requests_count", f"{whole:g}", words)
        for leaf in by_name.values():
            found.unmapped.pop(".".join(leaf.path), None)


def _contexts(case: Mapping[str, Any], told: Sides, found: Evidence) -> None:
    """TPOT of one stream at the shortest and the longest context, each with its scope."""
    workload = case.get("workload") or {}
    loads = [number(v) for k, v in workload.items() if _SINGLE.search(str(k))]
    engine = str((case.get("engine") or {}).get("name", "")).lower()
    alone = 1 in loads or (not loads and not _SERVES_MANY.search(engine))
    for signal, points in by_load(told, workload, "context").items():
        rate = signal in _OUTPUT[:2]
        if (rate and not alone) or not (
            rate or signal.startswith(("client_tpot_m", "client_itl_m"))
        ):
            continue
        for depth, leaf in (points[0], points[-1]):
            row = find(leaf.path, "evidence")
            plain = _one(leaf.value)
            text = (
                f"{1 / plain:.6g} s" if rate and plain
                else written(row, leaf.path, plain) if row and plain else None
            )  # fmt: skip
            if text:
                name = f"client_tpot_mean_s@segment=context_{depth:g}"
                found.offer(name, text, ".".join(leaf.path))


def _floors(told: Sides, found: Evidence) -> None:
    """A decode step over the time that the person reckoned it needs at least."""
    for leaf in (*told.before, *told.other):
        key = ".".join(leaf.path)
        ends = span(leaf.value)
        if DECODE_ONLY.search(key.lower()):  # no floor, but a step of the same server
            continue
        if not _FLOOR.search(key.lower()) or _NOT_THIS.search(key.lower()) or not ends:
            continue
        if min(ends) <= 0:
            continue
        if is_time(key):
            step = found.facts.get("step_s") or found.facts.get("client_tpot_mean_s")
            unit = next((u for u in ("ns", "us", "ms") if re.search(rf"_{u}(_|\.|$)", key)), "s")
            if step and (told_ := read_fact("step_s", str(step))):
                low, high = told_.low or told_.value, told_.high or told_.value
                floor = [read_fact("step_s", f"{e} {unit}").value for e in ends]
                if low and high and floor[0] and floor[1]:
                    # the least over the least: the ends of both spans belong together
                    ratio = sorted((low / floor[0], high / floor[1]))
                    found.offer("step_over_floor_ratio", ranged(*ratio), key)
                    found.unmapped.pop(key, None)
        elif re.search(r"tok(en)?s?_(per_)?s", key.lower()):
            rate = found.facts.get("output_tokens_per_s")
            measured = rate and read_fact("output_tokens_per_s", str(rate)).value
            if measured:
                found.offer(
                    "step_over_floor_ratio", ranged(ends[0] / measured, ends[1] / measured), key
                )
                found.unmapped.pop(key, None)


def _cpu_given(told: Sides, found: Evidence) -> None:
    """The CPU that the slow one of several variants was given, where their names tell it."""
    variants = {n for leaf in (*told.before, *told.other) if (n := cpu_of(leaf.path))}
    key = next((k for s in _OUTPUT if (k := found.told.get(s))), "")
    if len(variants) > 1 and (n := cpu_of(key.split("."))):
        found.offer("cpu_limit_cores_count", str(n), key)


def _one(value: Any) -> float | None:
    """A figure, or the middle of its range; of a pair whose sides nothing names, the lower."""
    ends = span(value["either"]) if isinstance(value, dict) else span(value)
    return None if ends is None else ends[0] if isinstance(value, dict) else sum(ends) / 2
