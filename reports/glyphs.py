"""What a terminal draws with: a fill for every class, keys, ASCII stand-ins, whole cells."""

from __future__ import annotations

import math
from collections.abc import Iterator

# (glyph, ASCII glyph, colour) by class: parts can be told apart without colour
FILLS = {
    "memory": ("█", "#", "blue"),
    "compute": ("▓", "=", "yellow"),
    "launch": ("▒", "+", "magenta"),
    "latency": ("░", "-", "cyan"),
    "scheduling": ("▚", "%", "red"),
    "queueing": ("▞", "~", "bright_yellow"),
    "network": ("▌", "@", "green"),
}
NO_FILL = ("·", ".", "bright_black")
KEYS = "123456789abcdefghijklmnopqrstuvwxyz"
_STAND_INS = str.maketrans(
    {
        "−": "-",
        "–": "-",
        "—": "-",
        "≤": "<=",
        "≥": ">=",
        "×": "x",
        "·": "|",
        "…": "...",
        "→": "->",
        "°": "deg ",
        "µ": "u",
        "’": "'",
        "“": '"',
        "”": '"',
        "\ufffd": "?",
    }
)


def fill(class_: str | None, ascii_only: bool) -> tuple[str, str]:
    """The character and the colour of a class; an unknown one is neutral."""
    glyph, plain, colour = FILLS.get(class_ or "", NO_FILL)
    return (plain if ascii_only else glyph), colour


def to_ascii(text: str) -> str:
    r"""Signs by what they mean, any other character as `\uXXXX`."""
    return text.translate(_STAND_INS).encode("ascii", "backslashreplace").decode()


def allot(shares: list[float], cells: int) -> Iterator[int]:
    """Whole cells for shares, in order: `cells` in all when they sum to 1, 0 where unusable."""
    usable = [share if math.isfinite(share) and share > 0 else 0.0 for share in shares]
    total, used, seen = max(1.0, sum(usable)), 0, 0.0
    for share in usable:
        seen += share
        end = round(cells * seen / total)
        yield end - used
        used = end
