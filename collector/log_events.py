"""Equal events within a second become one, so that a flood is a number and not a thousand rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .log_patterns import EventTake

WINDOW_NS = 1_000_000_000
MAX_OPEN = 64
"""Different events within one second that are kept; more are only counted."""
MAX_ONCE = 2048
"""Different texts that are remembered as told already; more are only counted."""

Row = dict[str, Any]
_DIGITS = re.compile(r"\d+")


class EventMerger:
    """Holds each event for a second of its own time, and adds up those that are equal to it.

    Events are equal when kind, replica and text are, whatever numbers stand in the text.

    Attributes:
        repeats: events that went into another row or had been told already.
        suppressed: events that were lost to the bounds.
    """

    def __init__(self) -> None:
        self.repeats = 0
        self.suppressed = 0
        self._open: dict[tuple[str, str, str], Row] = {}
        self._told: set[tuple[str, str, str]] = set()

    def add(
        self, row: Row, take: EventTake, number: float | None, message: str, tell: Callable[[], str]
    ) -> list[Row]:
        """Take an event.

        Args:
            row: all of it but `value` and `text`.
            take: what its pattern says.
            number: what the pattern's group holds, if anything.
            message: what is compared with other events.
            tell: makes the text; asked only when a row comes of it.

        Returns:
            Events whose second has passed.
        """
        closed = self.expire(row["t_ns"])
        key = (row["kind"], row["replica"], _DIGITS.sub("#", message))
        counts = take.value is None and take.repeated == "count"
        value = 1.0 if counts or (number is None and take.repeated == "sum") else number
        known = self._open.get(key)
        if known is not None:
            self.repeats += 1
            known["value"] = _merged(take.repeated, known["value"], value)
        elif take.once and key in self._told:
            self.repeats += 1
        elif len(self._open) >= MAX_OPEN or (take.once and len(self._told) >= MAX_ONCE):
            self.suppressed += 1
        else:
            self._open[key] = row | {"text": tell(), "value": value}
            if take.once:
                self._told.add(key)
        return closed

    def expire(self, now_ns: int | None, *, back: bool = True) -> list[Row]:
        """The events whose second has passed at `now_ns`; None tells nothing.

        Args:
            now_ns: the time of a line, or that of the clock.
            back: so have those that are more than a second ahead, as after a clock was set back.
        """
        if now_ns is None or not self._open:
            return []
        over = [
            key
            for key, row in self._open.items()
            if row["t_ns"] is None
            or now_ns - row["t_ns"] >= WINDOW_NS
            or (back and row["t_ns"] - now_ns >= WINDOW_NS)
        ]
        return [self._open.pop(key) for key in over]

    def flush(self) -> list[Row]:
        """All that is held."""
        rows = list(self._open.values())
        self._open.clear()
        return rows


def _merged(how: str, old: float | None, new: float | None) -> float | None:
    if how == "first" or new is None:
        return old
    if old is None:
        return new
    return max(old, new) if how == "max" else old + new
