"""Numbers as people read them: units, three significant figures, and the interval always beside."""

from __future__ import annotations

import math
import re
import unicodedata
from typing import Any

NOT_MEASURED = "not measured"
NO_INTERVAL = "no interval"

_SYMBOLS = {
    "per_s": "/s",
    "tokens_per_s": "tokens/s",
    "requests_per_s": "requests/s",
    "joules_per_token": "J/token",
    "usd_per_mtok": "USD/Mtok",
    "bytes_per_s": "B/s",
    "bytes": "B",
    "count": "",
    "ratio": "ratio",
    "w": "W",
    "joules": "J",
    "mhz": "MHz",
    "celsius": "°C",
    "flops": "FLOP",
    "usd": "USD",
}
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_EXACT_UNITS = frozenset({"count", "tokens"})
# Direction marks can make a name read as another one; control codes can drive a terminal.
_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")


def clean(text: object) -> str:
    """One line of printable text: line breaks and tabs become a space, control codes U+FFFD.

    Runs of plain spaces stay, for a command may hold them; for SQL use `clean_lines`.
    """
    one_line = re.sub(r"\s*[^\S ]\s*", " ", str(text)).strip()
    return "".join(map(_printable, one_line))


def clean_lines(text: object) -> str:
    """As `clean`, but keeps line breaks and indentation."""
    kept = (c if c == "\n" else " " if c.isspace() else _printable(c) for c in str(text))
    return "".join(kept).strip("\n")


def _printable(c: str) -> str:
    hidden = c in _BIDI or unicodedata.category(c) in {"Cc", "Cs"}
    return "\ufffd" if hidden else c


def words(name: object) -> str:
    """An identifier as words: `batch_cap` is `batch cap`."""
    return clean(name).replace("_", " ")


_SUFFIXES = ("_tokens_per_s", "_per_s", "_ratio", "_count", "_tokens", "_bytes", "_s", "_ns")


def signal_words(name: object) -> str:
    """A signal's name as words, without its unit: that stands beside the value."""
    text = str(name)
    suffix = next((s for s in _SUFFIXES if text.endswith(s) and text != s), "")
    return words(text.removesuffix(suffix))


def number(value: float, figures: int = 3) -> str:
    """A number with `figures` significant figures, without an exponent where that is short.

    A value that is not finite is `unbounded`.
    """
    if not math.isfinite(value):
        return "unbounded"
    if value == 0:
        return "0"
    rounded = float(f"{value:.{figures - 1}e}")
    magnitude = math.floor(math.log10(abs(rounded)))
    if magnitude < -4:
        return f"{rounded:.{figures}g}"
    return f"{rounded:,.{max(0, figures - 1 - magnitude)}f}".replace("-", "−")


def _exact(value: float, unit: str) -> str:
    whole = unit in _EXACT_UNITS and math.isfinite(value) and value == int(value)
    return f"{int(value):,}".replace("-", "−") if whole else number(value)


def _scale(value: float, unit: str) -> tuple[float, str]:
    """The factor and the symbol under which a value of this unit is shown."""
    if unit in {"s", "ns"}:
        to_s = 1e-9 if unit == "ns" else 1.0
        seconds = abs(value) * to_s
        # 999.6 ms would round to "1000 ms"
        return (to_s, "s") if not seconds < 0.9995 else (1e3 * to_s, "ms")
    if unit in {"bytes", "bytes_per_s", "flops"}:
        for size, prefix in _PREFIXES:
            if abs(value) >= 0.9995 * size:
                return 1 / size, prefix + _SYMBOLS[unit]
    return 1.0, _SYMBOLS.get(unit, words(unit))


def parts(
    value: float | str | None, unit: str, low: float | None = None, high: float | None = None
) -> tuple[str, str, str]:
    """A measured value as (value, interval, unit), all three on the scale of the value.

    A missing value is `not measured`, a missing bound `?`; a text has no unit and no interval.
    """
    if value is None:
        return NOT_MEASURED, NO_INTERVAL, ""
    if isinstance(value, str):
        return clean(value), "", ""
    factor, symbol = _scale(value, unit)
    if low is None and high is None:
        return _exact(value * factor, unit), NO_INTERVAL, symbol
    ends = ["?" if end is None else _exact(end * factor, unit) for end in (low, high)]
    return _exact(value * factor, unit), f"{ends[0]} to {ends[1]}", symbol


def join(value: str, symbol: str) -> str:
    """A value beside its unit: `412 ms`, `3.20/s`."""
    return value + symbol if symbol.startswith("/") else f"{value} {symbol}".rstrip()


def quantity(value: float | str | None, unit: str) -> str:
    """A value with its unit: `412 ms`, `3.20/s`, `1,024 tokens`."""
    text, _, symbol = parts(value, unit)
    return join(text, symbol)


def measured(
    value: float | str | None, unit: str, low: float | None = None, high: float | None = None
) -> str:
    """A value with its unit and its interval: `412 ms (390 to 437)`."""
    text, interval, symbol = parts(value, unit, low, high)
    shown = join(text, symbol)
    return f"{shown} ({interval})" if interval and value is not None else shown


def seconds(value: float | None) -> str:
    """Seconds as ms or s with three significant figures."""
    return quantity(value, "s")


def share(value: float) -> str:
    """A 0..1 share as a percentage; below one percent it keeps a digit."""
    percent = 100 * value
    if not math.isfinite(percent):
        return "?"
    if 0 < percent < 0.05:
        return "<0.1 %"
    return f"{percent:.1f} %" if 0 < percent < 0.95 else f"{percent:.0f} %"


MANY_TIMES = 3.0
"""From this gain on people are told times, not percent."""


def gain(ratio: float) -> str:
    """A gain, before/after, as people are shown it: 1.25 is `+25 %`, 0.9 is `−10 %`, 15 is `×15`."""
    percent = 100 * (ratio - 1)
    if not math.isfinite(percent):
        return "unbounded"
    if ratio >= MANY_TIMES:
        return f"×{number(ratio)}"
    text = f"{percent:.0f}" if abs(percent) >= 9.95 else f"{percent:.1f}".removesuffix(".0")
    if text in {"0", "-0"}:
        return "0 %"
    return ("+" + text if percent > 0 else text.replace("-", "−")) + " %"


def gain_interval(low: float, high: float) -> str:
    """The two ends of a gain: `+18 to +33 %`."""
    ends = gain(low), gain(high)
    return f"{ends[0].removesuffix(' %') if ends[1].endswith(' %') else ends[0]} to {ends[1]}"


def flat(value: Any) -> str:
    """Anything of a free-form document as one line: `key value · key value`."""
    if isinstance(value, dict):
        pairs = ((words(k), flat(v)) for k, v in value.items())
        return " · ".join(f"{k} {v}" for k, v in pairs)
    if isinstance(value, list | tuple):
        return ", ".join(flat(v) for v in value)
    if value is None:
        return NOT_MEASURED
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value, 4)
    return clean(value)
