"""One line of an engine's log into rows: its time, its tracebacks, and what the patterns take."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from .argv import redact_text
from .log_arguments import largest, pairs, setting
from .log_events import EventMerger
from .log_gates import GateFinder
from .log_header import Clock, Header, one_line, plain, split_header
from .log_patterns import (
    TRACEBACK,
    ArgumentsTake,
    Compiled,
    EventTake,
    Pattern,
    PatternSet,
)

MAX_TEXT = 300
"""Characters of an event's text."""
MATCHED_CHARS = 4096
"""Characters of a message that patterns see, unless they take arguments from it."""
MAX_SKEW_NS = 600 * 1_000_000_000
"""A stamp further from the time of reading is of another time zone, or wrong."""
TRACEBACK_LINES = 400
MAX_TRACEBACKS = 64
"""Processes whose tracebacks are followed at a time."""
MAX_SETTINGS = 2000

Row = dict[str, Any]
Rows = list[tuple[str, Row]]

_FROM_TRACEBACK = EventTake(kind="engine_error", once=True)
_ERRORS = ("ERROR", "CRITICAL")


class _Line(NamedTuple):
    """One line, ready for patterns; `is_error` for those that `in_errors` patterns see."""

    raw: bytes
    header: Header
    message: str
    t_ns: int | None
    is_error: bool


class LineReader:
    """Rows from the lines of one engine's log that hold something of interest.

    Attributes:
        wanted: the patterns.
        replica: engine instance that rows name.
        finder: finds the lines that may be of interest.
        events: holds events until their second is over.
        counts: `foreign_lines` and `clock_mismatches`, see `LogReader`.
    """

    def __init__(
        self, wanted: PatternSet, *, node: str, replica: str, near_ns: int | None, clock: Clock
    ) -> None:
        """Prepare; the arguments are those of `LogReader`."""
        self.wanted = wanted
        self.finder = GateFinder(wanted.gates)
        self.node, self.replica = node, replica
        self.counts: Counter[str] = Counter()
        self.events = EventMerger()
        self._near_ns = near_ns
        self._clock = clock
        self._last_ns: int | None = None
        self._open: dict[tuple[str, str], int] = {}
        self._known: dict[tuple[str, str], str] = {}
        self._setting_ns = 0
        self._same: dict[str, tuple[int, int]] = {}
        self._ranks = 1

    @property
    def in_traceback(self) -> bool:
        """Is a traceback open, so that every line counts?"""
        return bool(self._open)

    def read(self, raw: bytes, t_ns: int | None, rows: Rows) -> None:
        """Take one line.

        Args:
            raw: the line without its end, at most 64 KiB of it.
            t_ns: when it was read, if it is being written now.
            rows: takes what comes of it.
        """
        wanted = self.wanted
        header, message = split_header(plain(raw.decode("utf-8", "replace")))
        line = _Line(raw, header, message, self._time(header, t_ns), header.level in _ERRORS)
        if closed := self.events.expire(line.t_ns):
            rows += [("events", row) for row in closed]
        if self._open and self._in_traceback(line, rows):
            return
        if message.endswith(TRACEBACK):
            if len(self._open) >= MAX_TRACEBACKS:
                self._open.clear()
            self._open[header.process, header.pid] = TRACEBACK_LINES
        elif not self._patterns(line, rows) and any(m in raw for m in wanted.foreign):
            self.counts["foreign_lines"] += 1

    def _in_traceback(self, line: _Line, rows: Rows) -> bool:
        """Is the line part of an open traceback? Its exception ends it, and is an event."""
        source = (line.header.process, line.header.pid)
        if source not in self._open:
            return False
        self._open[source] -= 1
        message = line.message
        if message[:1] in (" ", "\t", "|", "+", "") or message.endswith(TRACEBACK):
            over, part = self._open[source] <= 0, True
        else:
            # a line of another thread may come between
            part = line.header.level in ("", *_ERRORS) and _is_exception(message)
            over = part or self._open[source] <= 0
        if over:
            del self._open[source]
        if part and not message.startswith((" ", "\t", "|", "+")) and _is_exception(message):
            found = _Line(line.raw, line.header, message, line.t_ns, True)
            if not self._patterns(found, rows, bare=True):
                self._event(_FROM_TRACEBACK, None, found, self._replica(line.header, None), rows)
        return part

    def _patterns(self, line: _Line, rows: Rows, *, bare: bool = False) -> bool:
        """Take what the patterns find; of those that make an event the first. Was there any?

        Args:
            line: the line.
            rows: takes what is found.
            bare: only patterns that are for the text of errors; not those for lines of a level.
        """
        wanted = self.wanted
        if line.is_error and line.message.startswith(wanted.ignore_errors):
            return True
        matched = told = False
        raw = line.raw
        for place in sorted(i for gate, places in wanted.by_gate if gate in raw for i in places):
            compiled = wanted.patterns[place]
            pattern = compiled.pattern
            if pattern.event and told:
                continue
            if pattern.in_errors and not line.is_error:
                continue
            if pattern.level and (bare or line.header.level not in pattern.level):
                continue
            if self._take(compiled, line, rows):
                matched = True
                told = told or pattern.event is not None
        return matched

    def _take(self, compiled: Compiled, line: _Line, rows: Rows) -> bool:
        pattern = compiled.pattern
        text = line.message if pattern.arguments else line.message[:MATCHED_CHARS]
        found = compiled.regex.match(text)
        if not found:
            return False
        groups = found.groupdict()
        replica = self._replica(line.header, groups.get("rank"))
        if pattern.settings or pattern.arguments or pattern.implies or pattern.largest:
            self._settings(pattern, groups, line, replica, rows)
        if pattern.samples:
            self._samples(pattern, groups, line, replica, rows)
        if pattern.step:
            self._step(pattern, groups, line, replica, rows)
        if pattern.event and _counts(pattern.event, line.header):
            number = _number(groups.get(pattern.event.value or ""))
            self._event(pattern.event, number, line, replica, rows)
        return True

    # ------------------------------------------------------------------ rows

    def _settings(
        self, pattern: Pattern, groups: dict[str, Any], line: _Line, replica: str, rows: Rows
    ) -> None:
        raw = {key: groups[key] for key in pattern.settings if groups[key] is not None}
        raw |= {k: groups[g] for k, g in pattern.copies.items() if groups[g] is not None}
        found = {key: setting(key, pattern.words.get(text, text)) for key, text in raw.items()}
        found.update(pattern.implies)
        found |= {key: largest(groups[g]) for key, g in pattern.largest.items() if groups[g]}
        take = pattern.arguments
        if take and groups.get(take.group):
            found.update(_arguments(take, groups[take.group]))
        for key, value in found.items():
            if value is None or self._known.get((replica, key)) == value:
                continue
            if len(self._known) >= MAX_SETTINGS and (replica, key) not in self._known:
                continue
            self._known[replica, key] = value
            if key == "data_parallel_size" and value.isdecimal():
                self._ranks = max(self._ranks, int(value))
            rows.append(("settings", self._setting_row(key, value, line.t_ns, replica)))

    def _setting_row(self, key: str, value: str, t_ns: int | None, replica: str) -> Row:
        if t_ns is not None:
            # stamps are whole seconds: of two lines within one the later must stay the later
            self._setting_ns = t_ns = max(t_ns, self._setting_ns + 1)
        return {
            "t_ns": t_ns, "engine": self.wanted.engine, "replica": replica, "key": key, "value": value,
            "origin": "effective", "source": "log", "node": self.node,
        }  # fmt: skip

    def _samples(
        self, pattern: Pattern, groups: dict[str, Any], line: _Line, replica: str, rows: Rows
    ) -> None:
        header = line.header
        t_ns: int | None = None
        told = _labels(header.process, header.pid, tuple(header.ranks.items()), groups.get("rank"))
        for take in pattern.samples:
            text = groups[take.group]
            value = take.words.get(text) if take.words else _number(text)
            if value is not None:
                t_ns = t_ns or self._apart(line.t_ns, replica)
                rows.append((
                    "samples",
                    {
                        "t_ns": t_ns, "signal": take.signal, "kind": "gauge",
                        "unit": take.unit, "value": value * take.scale, "node": self.node,
                        "engine": self.wanted.engine, "replica": replica, "gpu": "", "phase": "",
                        "reason": "", "labels": told, "raw_name": pattern.id,
                    },
                ))  # fmt: skip

    def _apart(self, t_ns: int | None, replica: str) -> int | None:
        """The time of a line's figures: of an instance's lines within one stamp each is a nanosecond later."""
        if t_ns is None:
            return None
        last, count = self._same.get(replica, (t_ns, -1))
        count = count + 1 if last == t_ns else 0
        self._same[replica] = (t_ns, count)
        return t_ns + count

    def _step(
        self, pattern: Pattern, groups: dict[str, Any], line: _Line, replica: str, rows: Rows
    ) -> None:
        row: Row = {}
        for take in pattern.step:
            number = _number(groups[take.group])
            if number is not None:
                whole = take.scale == 1.0 and number.is_integer()
                row[take.column] = int(number) if whole else number * take.scale
        prefill = row.get("prefill_requests_count")
        decode = row.get("decode_requests_count") or row.get("decode_tokens")
        if not prefill and not decode:
            return
        row["kind"] = "mixed" if prefill and decode else "prefill" if prefill else "decode"
        t_ns = line.t_ns
        if t_ns is not None:  # the line is written at the end
            t_ns -= round(row.get("elapsed_s", 0.0) * 1e9)
        row |= {
            "t_ns": t_ns, "engine": self.wanted.engine, "node": self.node, "replica": replica,
            "source": "log",
        }  # fmt: skip
        rows.append(("steps", row))

    def _event(
        self, take: EventTake, number: float | None, line: _Line, replica: str, rows: Rows
    ) -> None:
        row = {
            "t_ns": line.t_ns, "kind": take.kind, "node": self.node, "engine": self.wanted.engine,
            "replica": replica, "source": "log",
        }  # fmt: skip
        # redacted before it is cut: half a secret is no longer recognised as one
        text = line.message[: 2 * MAX_TEXT]
        closed = self.events.add(
            row, take, number, text[:MAX_TEXT], lambda: one_line(redact_text(text), MAX_TEXT)
        )
        rows += [("events", done) for done in closed]

    def _replica(self, header: Header, rank: str | None) -> str:
        """The instance, with its data-parallel rank once it is known that there are several."""
        rank = rank if rank is not None else header.ranks.get("dp_rank")
        if rank is None:
            return self.replica
        self._ranks = max(self._ranks, int(rank) + 1)
        return f"{self.replica}/{int(rank)}" if self._ranks > 1 else self.replica

    def _time(self, header: Header, t_ns: int | None) -> int | None:
        stamped = None
        if header.stamp is not None:
            near_ns = t_ns if t_ns is not None else self._near_ns
            near_ns = near_ns if near_ns is not None else self._last_ns
            stamped = self._clock.resolve(header.stamp, near_ns)
        elif header.since_start_ns is not None and t_ns is None and self._near_ns is not None:
            # when it began nobody tells: times apart are right, and all are late by its length
            stamped = self._near_ns + header.since_start_ns
        if stamped is not None and t_ns is not None and abs(stamped - t_ns) > MAX_SKEW_NS:
            self.counts["clock_mismatches"] += 1
            stamped = None
        if stamped is not None:
            self._last_ns = stamped
            return stamped
        if t_ns is not None:
            return t_ns
        return self._last_ns if self._last_ns is not None else self._near_ns


def _arguments(take: ArgumentsTake, text: str) -> Iterator[tuple[str, str | None]]:
    """The settings among the pairs of a text, under the engine's names for them."""
    most: dict[str, list[str]] = {}
    for key, value in pairs(text):
        if key in take.largest:
            most.setdefault(take.largest[key], []).append(value)
        if key in take.inside:
            for inner, inner_value in pairs(value):
                if inner in take.largest:
                    most.setdefault(take.largest[inner], []).append(inner_value)
                if inner in take.inside[key]:
                    name = take.inside[key][inner]
                    yield name, setting(name, inner_value)
        elif key not in take.skip and (not take.keep or key in take.keep):
            name = take.rename.get(key, key)
            yield name, setting(name, value, none=key in take.none)
    for name, values in most.items():
        yield name, largest(" ".join(values))


def _counts(take: EventTake, header: Header) -> bool:
    return not take.first_rank or header.ranks.get("tp_rank", "0") == "0"


@lru_cache(maxsize=512)
def _labels(process: str, pid: str, ranks: tuple[tuple[str, str], ...], rank: str | None) -> str:
    """Where a line comes from, as the column `labels` holds it."""
    labels = {"from": "log", "process": process, "pid": pid, **dict(ranks)}
    if rank:
        labels["engine"] = str(int(rank))
    told = {key: value for key, value in labels.items() if value}
    return json.dumps(told, sort_keys=True, separators=(",", ":"))


def _is_exception(message: str) -> bool:
    """`ValueError: …` or `package.Error`: what ends a traceback."""
    name = message[:200].partition(":")[0].strip()
    return bool(name) and name.replace(".", "").isidentifier()


def _number(text: str | None) -> float | None:
    """Of a text in digits; None for none, for nonsense, and for what no engine counts to."""
    try:
        number = float(text.replace(",", "")) if text else None
    except ValueError:
        return None
    return number if number is not None and number <= 1e12 else None
