"""A figure as people write it, in words that `read_fact` takes: `~100`, `30+`, `3-6k`, `36.1 +- 1.2`, `1 min 5 s`.

Texts come here cut: a few of the patterns take time with the square of a text's length.
"""

from __future__ import annotations

import re
from typing import Any

DIGITS = r"\d[\d,_]*(?:\.\d+)?(?:[eE][+-]?\d{1,3})?"
ABOUT = (
    r"about|roughly|around|approx(?:imately|\.)?|circa|ca\.?|near(?:ly)?|almost|mostly|mainly"
    r"|typically|usually|~|≈"
)
_OP = r"<=?|>=?|≤|≥|under|below|less than|fewer than|at most|up to|over|above|more than|at least"
_UNITS = (
    r"(?:ns|us|µs|μs|ms|s|secs?|seconds?|mins?|minutes?|h|hours?|%|percent|pct|[kmgt]i?b(?:/s)?|bytes|x|×|times"
    r"|(?:tok(?:en)?s?|req(?:uest)?s?)(?:/s(?:ec)?| per second| a second)|t/s|/s|rps|qps|tps"
    r"|mhz|ghz|w|kw|°?c|tokens?)(?![\w/])"
)
_FIGURE = re.compile(
    rf"(?:(?P<about>{ABOUT})\s*)?(?:(?P<op>{_OP})\s*)?(?P<a>{DIGITS})(?:\s?(?P<ka>[kKM](?![a-zA-Z])))?(?:\s?(?P<ua>{_UNITS}))?"
    rf"(?:\s*(?P<join>\+-|\+/-|±|\.\.|–|—|-|to|and)\s*(?:(?:{ABOUT})\s*)?"
    rf"(?P<b>{DIGITS})(?:\s?(?P<kb>[kKM](?![a-zA-Z])))?(?:\s?(?P<ub>{_UNITS}))?)?"
    r"(?P<plus>\s?\+(?!\s?\d))?(?P<rest>.*)$",
    re.IGNORECASE,
)
_SAID_UNIT = {
    "secs": "s", "second": "s", "seconds": "s", "sec": "s", "mins": "min", "minute": "min", "minutes": "min",
    "hour": "h", "hours": "h", "percent": "%", "pct": "%", "×": "x",
}  # fmt: skip
_CLOCK = re.compile(
    r"(?:~|about )?(?:(\d+) ?h(?:ours?)?)? ?(?:(\d+) ?m(?:in(?:utes?)?)?)? ?"
    r"(?:(\d+(?:\.\d+)?) ?s(?:ec(?:onds?)?)?)?$"
)
_SOME = (
    (r"dozens", (12, 100)), (r"tens", (10, 100)), (r"hundreds", (100, 1000)), (r"thousands", (1000, 10000)),
    (r"(?:a )?(?:few|several)", (2, 9)), (r"(?:a )?couple", (2, 3)),
)  # fmt: skip
_SOME_OF = re.compile(
    rf"(?P<much>{'|'.join(p for p, _ in _SOME)})(?: of)?(?: (?P<unit>milliseconds|ms|seconds|minutes|hours))?"
)
_MOVES = re.compile(
    r"(?:(?:it )?(?:drops?|falls?|dropped|fell|collapses?|sinks?|rises?|rose|grows?|grew|goes|went|climbs?|jumps?"
    r"|slows?)(?: (?:down|up))?(?: from [^,;]*?)? to|only|just|stuck at|hovers (?:at|around)|settles at"
    r"|stays (?:at|around)|holds(?: at)?|steady(?: at)?|flat at|constant) "
    r"(?=[~<>\d]|about|around|roughly|under|over|below|above)",
    re.IGNORECASE,
)
"""Words before the figure that something has in the slow state."""
_CUT = re.compile(r"\s*(?:->|→|;|, | vs\.? ).*$")
_NUMBER = re.compile(
    r"(?:(?:about|~|near(?:ly)?|≈|almost|around|roughly|mostly|approx\.?|ca\.?|over|under"
    r"|up to|at least|[<>]=?)\s*)?"
    r"(-?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d{1,3})?)\s*([kK](?![a-zA-Z])|%)?"
)


def figure(text: str) -> str:
    """The first figure of a text, in words that `read_fact` knows; the text itself where it begins with none.

    What follows a figure is a comment: `~5000 (range ratio 0.2)`, `105-127 us, 0.5 GB/s`.
    """
    plain = _MOVES.sub("", _CUT.sub("", re.sub(r"\s*\([^)]*\)", "", text)).strip(), count=1)
    if plain in ("", "-"):
        return plain
    if (clock := _CLOCK.match(plain)) and sum(g is not None for g in clock.groups()) > 1:
        hours, minutes, seconds = (float(g or 0) for g in clock.groups())
        return f"{hours * 3600 + minutes * 60 + seconds:g} s"
    if some := _SOME_OF.match(plain.lower()):
        least, most = next(ends for pattern, ends in _SOME if re.fullmatch(pattern, some["much"]))
        unit = {"milliseconds": "ms", "ms": "ms"}.get(some["unit"] or "", (some["unit"] or "")[:1])
        return f"{least}..{most} {'min' if unit == 'm' else unit}".strip()
    found = _FIGURE.match(plain)
    if not found or re.match(r"[-.\w]", found["rest"]) or re.match(r"\s*/\s*\d", found["rest"]):
        return plain
    a, unit = _float(found["a"], found["ka"]), found["ub"] or found["ua"] or ""
    unit = re.sub(r" (per|a) second$|/sec$", "/s", unit.lower()).replace("t/s", "tok/s")
    unit = _SAID_UNIT.get(unit, unit)
    if found["b"]:
        b = _float(found["b"], found["kb"])
        if found["kb"] and not found["ka"] and a < b / 1000:
            a = _float(found["a"], found["kb"])
        own = _SAID_UNIT.get((found["ua"] or "").lower(), (found["ua"] or "").lower())
        if found["ua"] and found["ub"] and own != unit:
            return f"{a:.10g} {own}..{b:.10g} {unit}"
        low, high = (a - b, a + b) if "+" in found["join"] or found["join"] == "±" else (a, b)
        return f"{min(low, high):.10g}..{max(low, high):.10g} {unit}".strip()
    if found["op"]:
        head = {"fewer than": "<"}.get(found["op"].lower(), found["op"]) + " "
    else:
        head = ">= " if found["plus"] else "~" if found["about"] else ""
    digits = f"{a:.10g}" if found["ka"] or re.search("[,_]", found["a"]) else found["a"]
    return f"{head}{digits} {unit}".strip()


def ends_of(text: str) -> tuple[float, float] | None:
    """The least and the greatest number of a figure, without its unit; a bound is both."""
    found = re.fullmatch(
        rf"(?:(?:{ABOUT}|{_OP})\s*)?(-?{DIGITS})(?:\s?[^\d\s.]+)?(?:\.\.(-?{DIGITS}))?(?:\s?[^\d\s].*)?",
        figure(text),
        re.IGNORECASE,
    )
    if not found:
        return None
    low = _float(found[1], None)
    high = _float(found[2], None) if found[2] else low
    return min(low, high), max(low, high)


def unit_word(text: str) -> str:
    """The unit of a value as keys have it: `22 tok/s` tells `tok_s`, `350 W` tells `w`; "" without one."""
    found = re.search(r"\d ?([a-z%µ][a-z/%]*)$", figure(re.sub(r"\bt/s", "tok/s", text)).lower())
    word = (
        {"%": "pct", "tps": "tok_s", "rps": "req_s", "qps": "req_s"}.get(found[1], found[1])
        if found
        else ""
    )
    word = re.sub(r"^tok(en)?s?/s$", "tok_s", re.sub(r"^req(uest)?s?/s$", "req_s", word))
    return word.replace("/", "_") if re.fullmatch(r"[a-z]+(/s|_s)?", word) and len(word) < 7 else ""


def has_time(text: str) -> bool:
    """Does a value begin with a time: `41 us`?"""
    plain = text.lower().strip()
    unit = r"(?:ns|us|µs|ms|s|secs?|seconds?|mins?|minutes?|h|hours?)"
    join = r"\s*(?:-|–|to|\.\.|\+-|±)\s*"
    if re.match(rf"(?:(?:{ABOUT}|{_OP})\s*)?{DIGITS}(?:{join}{DIGITS})? ?{unit}\b(?!/)", plain):
        return True
    some = r"(dozens|tens|hundreds|a few|several)( of)? (milliseconds|ms|seconds|minutes)"
    return bool(re.match(some, plain))


def number(value: Any) -> float | None:
    """The number that a value begins with: `about 2`, `~40`, `4K`."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    found = _NUMBER.match(str(value).strip())
    if not found:
        return None
    return float(found[1].replace(",", "")) * (
        1000 if (found[2] or "") in ("k", "K") and found[2] else 1
    )


def span(value: Any) -> tuple[float, float] | None:
    """The least and the greatest of a figure, a pair or a list; None unless all are numbers."""
    if isinstance(value, str):
        one = number(value)
        return ends_of(value) or (None if one is None else (one, one))
    each = [span(v) if isinstance(v, str) else (number(v),) * 2 for v in _listed(value)]
    known = [e for ends in each if ends for e in ends if e is not None]
    return (min(known), max(known)) if known and len(known) == 2 * len(each) else None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def ranged(low: float, high: float) -> str:
    """A range as a file of facts has it; one figure where the ends are one."""
    return f"{low:.4g}" if low == high else f"{low:.4g}..{high:.4g}"


def _float(digits: str, scale: str | None) -> float:
    return float(digits.replace(",", "").replace("_", "")) * (
        {"k": 1e3, "m": 1e6}[scale.lower()] if scale else 1.0
    )
