"""The value of a figure in the form that `read_fact` takes, as the row of the table says that it is read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from .fact_figures import figure, number, ranged, span
from .fact_table import Row, is_time, tokens, unit_of
from .fact_values import first_readable, unit_suffix
from .fact_words import (
    cores,
    exceeds,
    flag,
    found_none,
    link_path,
    on_host,
    rate,
    share,
    stack_kind,
    times,
)  # fmt: skip

_OF = re.compile(r"([\d.]+)(?:\s*-\s*([\d.]+))? of ([\d.]+)(?:\s*-\s*([\d.]+))?(?:\s+samples)?$")
_OF_ALL = re.compile(r"\d+ ?(?:of|/|out of) ?\d+")
_ALMOST = re.compile(r"(?:near|about|~|≈|almost)\s*(\d+(?:\.\d+)?)\s*(%?)$")
_SHARES = re.compile(
    r"gpu_\w+_ratio|kv_used|prefix_hit|speculation_accepted|failed|cpu_periods|collective_share|host_cpu|graph_replayed"
)
"""Signals that are no more than 1: a larger number without a unit is percent."""
_BANDWIDTH = re.compile(
    r"(?<![a-zA-Z])(?P<size>[GMTgmt])i?(?P<b>[Bb])(?P<bit>its?)?(?P<per>ps|_per_s|_s|/s)(?![a-zA-Z])"
)


def written(row: Row, path: Sequence[str], value: Any) -> str | None:
    """A value as a file of facts has it, in the unit of its signal; None when it cannot be told."""
    if row.as_:
        return FORMS[row.as_](row, path, value)
    kind = unit_suffix(row.signal)
    text = _plain(value) if kind else _uncommented(value)
    if not text:
        return None
    if kind == "ratio" and (found := _OF.match(_uncommented(value))):
        shares = [
            float(a) / float(b) for a, b in ((found[1], found[3]), (found[2], found[4])) if a and b
        ]
        return "..".join(f"{min(1.0, s):.4g}" for s in sorted(shares))
    unit = row.unit if row.unit.startswith("/") else unit_of(path) or row.unit
    if not unit and _SHARES.match(row.signal) and (ends := span(value)) and max(ends) > 1:
        unit = "%"
    if kind == "ratio" and (found := _ALMOST.match(text)) and float(found[1]) > 90:
        return f"{0.9 * float(found[1]):g}-100 %"
    with_unit = [f"{text} {unit}"] if unit and re.search(r"\d$", text) else []
    in_words = [w] if kind == "ratio" and (w := share(text) or share(str(value))) else []
    return first_readable(row.signal, (*with_unit, text, *in_words))


def _zero(row: Row, path: Sequence[str], value: Any) -> str | None:
    """Of nothing the share is 0; of yes or no, and of shares, it is what is said."""
    if number(value) == 0:
        return "0"
    if isinstance(value, bool) or not re.search(r"\d", str(value)):
        told = flag(value)
        return None if told is None else str(int(told))
    is_share = "%" in str(value) or _OF.match(str(value)) or {"pct", "ratio"} & set(tokens(path))
    return written(row._replace(as_=""), path, value) if is_share else None


def _turned(row: Row, path: Sequence[str], value: Any) -> str | None:
    ends = span(value)
    if not ends or min(ends) <= 0:
        return None
    scale = {"ms": 1e3, "us": 1e6}.get(unit_of(path), 1.0) if is_time(".".join(path)) else 1.0
    low, high = (scale / ends[1], scale / ends[0])
    text = f"{low:.6g}" if low == high else f"{low:.6g}..{high:.6g}"
    return f"{text} {row.unit}".strip()


def _rest(row: Row, path: Sequence[str], value: Any) -> str | None:
    plain = number(value)
    if plain is None:
        return None
    percent = "%" in str(value) or {"pct", "percent"} & set(tokens(path))
    return f"{1 - plain / (100 if percent else 1):.4g}"


def _inverse_share(row: Row, path: Sequence[str], value: Any) -> str | None:
    """A share of what is possible → how many times as long it takes."""
    if isinstance(value, str) and (found := times(value)):
        return found
    ends = span(value)
    if not ends or min(ends) <= 0:
        return None
    percent = max(ends) > 1.5
    low, high = ((100 if percent else 1) / x for x in reversed(ends))
    return ranged(low, high)


def _count(row: Row, path: Sequence[str], value: Any) -> str | None:
    """A number, or how many there are in a list of names; what was seen at all is at least one."""
    if isinstance(value, list) and value and not all(number(v) is not None for v in value):
        return str(len(value))
    if (text := _plain(value)) and re.fullmatch(r"[\d.,<>=~ ]+", text):
        return text
    if value is False or (
        isinstance(value, str) and re.match(r"(no|none|never|zero)\b", value.lower())
    ):
        return "0"
    if isinstance(value, str) and (plain := number(value)) is not None:
        return f"{plain:g}"
    return ">= 1" if flag(value) or (isinstance(value, str) and value.strip()) else None


def _largest(row: Row, path: Sequence[str], value: Any) -> str | None:
    found = re.findall(r"\d+", str(value))
    return str(max(map(int, found))) if found else None


def _grid(row: Row, path: Sequence[str], value: Any) -> str | None:
    """Blocks of a grid of up to three dimensions: `(8, 32, 1)`."""
    sizes = [int(n) for n in re.findall(r"\d+", str(value))]
    return str(math.prod(sizes)) if 0 < len(sizes) < 4 and math.prod(sizes) > 0 else None


def _bandwidth(row: Row, path: Sequence[str], value: Any) -> str | None:
    """Bytes a second; a small b in a key or a value is a bit."""
    text = _plain(value)
    unit = _BANDWIDTH.search(str(value)) or next(
        (m for part in reversed(path) if (m := _BANDWIDTH.search(part.replace("/", "_")))), None
    )
    low_high = re.findall(r"\d+(?:\.\d+)?", str(value if isinstance(value, list) else text))
    if unit is None or not low_high:
        return None
    bits = unit["bit"] or (unit["b"] == "b" and (unit["size"].isupper() or unit["per"] == "ps"))
    scale = {"g": 1.0, "m": 1e-3, "t": 1e3}[unit["size"].lower()] / (8 if bits else 1)
    ends = [float(n) * scale for n in low_high]
    return f"{ranged(min(ends), max(ends))} GB/s"


def _process(row: Row, path: Sequence[str], value: Any) -> str | None:
    """Of one process, where 100 % is a core: a number above 8 without a unit is percent."""
    if isinstance(value, str) and (number(value) is None or re.search(r"[a-z]{2}", value)):
        return share(value)
    text, ends = _plain(value), span(value)
    if not text or ends is None:
        return None
    percent = "%" in text or {"pct", "percent"} & set(tokens(path)) or max(ends) > 8
    return f"{text.replace('%', '').strip()} {'%' if percent else ''}".strip()


def _images(row: Row, path: Sequence[str], value: Any) -> str | None:
    """How many images a request has: a count, or one where the words tell none."""
    if isinstance(value, list):
        return str(len(value)) if value else None
    if isinstance(value, str) and not (found := re.match(r"(\d+)(?: (?!x)[a-z]|$)", value)):
        return "1" if value.strip().lower() not in ("none", "no", "0") else "0"
    plain = number(found[1] if isinstance(value, str) and found else value)
    return None if plain is None else f"{plain:g}"


def _below_all(path: Sequence[str], value: Any) -> str | None:
    ends = span(value)
    if not ends or min(ends) < 0:
        return None
    whole = 100 if "%" in str(value) or {"pct", "percent"} & set(tokens(path)) else 1
    return "yes" if max(ends) < whole else "no" if min(ends) == whole else None


def _lanes(value: Any) -> str | None:
    sizes = [int(n) for n in re.findall(r"(?<![\w.])x? ?(\d+)(?![\w.])", str(value).lower())]
    widths = [n for n in sizes if n in (1, 2, 4, 8, 16)]
    if not widths or len(widths) > 2:
        return None
    return f"{min(widths) / (max(widths) if len(widths) > 1 else 16):.4g}"


def _least(row: Row, path: Sequence[str], value: Any) -> str | None:
    plain = number(value)
    return f">= {plain:g}" if plain and plain > 1 else None


def _plain(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return ""
    if isinstance(value, list):
        plain = [v for v in map(number, value) if v is not None]
        if len(plain) < len(value) or not plain:
            return ""
        return (
            f"{min(plain):.10g}..{max(plain):.10g}"
            if min(plain) < max(plain)
            else f"{plain[0]:.10g}"
        )
    return figure(str(value))


def _uncommented(value: Any) -> str:
    """A text without what stands in brackets, and without what comes after."""
    text = re.sub(r"\s*\([^)]*\)", "", str(value)).split("->")[0].strip()
    return "" if isinstance(value, bool) or value is None else text


FORMS: dict[str, Callable[[Row, Sequence[str], Any], str | None]] = {
    "zero": _zero,
    "inverse": _turned,
    "complement": _rest,
    "inverse_share": _inverse_share,
    "count": _count,
    "largest": _largest,
    "bandwidth": _bandwidth,
    "stack": lambda _row, _path, value: stack_kind(value),
    "link": lambda _row, _path, value: link_path(str(value)),
    "times": lambda _row, _path, value: times(str(value)),
    "process": _process,
    "images": _images,
    "grid": _grid,
    "least": _least,
    "words": lambda _row, _path, value: found_none(value),
    "on_host": lambda _row, _path, value: on_host(value),
    "part": lambda _row, _path, value: on_host(value) if _OF_ALL.match(str(value)) else None,
    "lanes": lambda _row, _path, value: _lanes(value),
    "below_all": lambda _row, path, value: _below_all(path, value),
    "exceeds": lambda _row, _path, value: exceeds(str(value)),
    "cores": lambda _row, _path, value: cores(str(value)),
    "rate": lambda _row, _path, value: rate(str(value)),
    "plain_ratio": lambda _row, _path, value: ranged(*ends) if (ends := span(value)) else None,
    "not_flag": lambda _row, _path, value: {True: "0", False: "1"}.get(flag(value)),  # type: ignore[arg-type]
    "on_off": lambda _row, _path, value: {True: "on", False: "off"}.get(flag(value)),  # type: ignore[arg-type]
    "share": lambda _row, _path, value: share(str(value)),
}
"""How a row's value is read → its text; None where it cannot be.

inverse        the signal is 1 / number, as tokens a second of one stream are 1 / TPOT
complement     the signal is 1 − number
inverse_share  a share of what is possible, or `6x below` it: how many times as long
zero           of nothing the share is 0, of yes or no 1 or 0; another number says something as a share alone
count          a number, the length of a list of names, or at least one of what was seen
largest        the largest number
bandwidth      bytes a second; a small b is a bit
process        CPU of one process, where 100 is a core
lanes          `x4 of x16`: lanes of a link over those that it may have, 16 where nothing tells these
below_all      a share of the weights that is on the GPU: below all of them the rest is in host memory
part           `30 of 48` layers on the GPU: the rest of the weights is in host memory
grid           blocks of a grid, the product of its dimensions
least          at least so many; images: how many a request; rate: requests a second among words
exceeds        what is needed over what there is; on_host: weights in host memory
not_flag, on_off, share, times, stack, link, cores, words   what words say, see fact_words
"""
