"""Who wrote a log line and when: process, ranks, level and time in front of the message."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")

_STAMP = (
    r"(?:(?P<year>\d{4})[-/])?(?P<month>\d\d)[-/](?P<day>\d\d)[ T]"
    r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?(?P<utc>Z)?"
)
_LEVEL = r"(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)"

_OFFSET_S = r"(?P<zone>Z|[+-]\d\d:?\d\d)"
_WRAPPERS = (
    # 2025-10-31T03:45:20.123456789Z stdout F …   a container runtime;   …Z …   kubectl logs --timestamps
    re.compile(
        r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)T(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
        rf"(?:[.,](?P<fraction>\d{{1,9}}))?{_OFFSET_S}\s(?:(?:stdout|stderr)\s[FP]\s)?"
    ),
    # Nov 29 14:56:22 host vllm[123]: …   the system's journal
    re.compile(
        r"(?P<name>[A-Z][a-z]{2})\s{1,2}(?P<day>\d{1,2})\s(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
        r"\s[\w.-]{1,64}\s[\w./@-]{1,64}(?:\[\d{1,10}\])?:\s"
    ),
)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_OUTER_JSON_CHARS = 65_536

_COMPOSE = re.compile(r"[\w.-]{1,64}\s{0,32}\|\s")
_PROCESS = re.compile(
    r"\((?P<process>[A-Za-z][\w.-]{0,63})(?:\spid=(?P<pid>\d{1,10}))?(?:,[^()]{0,80})?\)\s?"
)
_LEADS = (
    # INFO 11-29 14:56:22 [core.py:133] …   INFO 03-12 06:00:56 metrics.py:349] …   INFO:     …
    re.compile(rf"{_LEVEL}(?::\s+|\s+{_STAMP}\s+(?:\[?[^\s:\]]{{1,120}}:\d{{1,6}}\]\s?)?)"),
    # 2026-01-21 09:14:07,983 INFO vllm.platforms: …   … - INFO - autotuner.py:457 - flashinfer.jit: …
    re.compile(rf"{_STAMP}\s(?:-\s)?{_LEVEL}\s(?:-\s[^\s]{{1,120}}\s-\s)?(?:[\w.]{{1,120}}:\s)?"),
    # [2025-10-31 03:45:20 DP6 TP6 EP6] …
    re.compile(rf"\[{_STAMP}(?P<ranks>(?:\s[A-Z]{{1,4}}\d+){{0,6}})\]\s(?:{_LEVEL}:\s+)?"),
    # 0.10.252.333 I srv …   minutes, seconds, milli- and microseconds since the start
    re.compile(
        r"(?P<since_m>\d{1,6})\.(?P<since_s>\d\d)\.(?P<since_ms>\d{3})\.(?P<since_us>\d{3})\s(?P<letter>[DIWE])\s"
    ),
    # [12/20/2025-04:21:10] [TRT-LLM] [I] [_torch][RANK 0] …   0: before it under srun
    re.compile(
        r"(?:\d{1,5}:\s)?(?:\[(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>\d{4})-(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)\]\s)?"
        r"\[TRT-LLM\]\s(?:\[RANK \d{1,5}\]\s)?\[(?P<letter>[A-Z])\]\s(?:\[_torch\])?(?:\[RANK \d{1,5}\]\s)?"
    ),
    re.compile(r"(?:\d{1,5}:\s)?\[TensorRT-LLM\]\[(?P<level>[A-Z]{4,7})\]\s"),
    # what is left of Rust's lines once their time is taken:  INFO text_generation_router: …
    re.compile(rf"\s?{_LEVEL}\s{{1,2}}(?=[a-z])"),
)
_LETTERS = {"D": "DEBUG", "I": "INFO", "W": "WARNING", "E": "ERROR"}
_SAME = {"WARN": "WARNING", "FATAL": "CRITICAL"}
_RANK = re.compile(r"(DP|TP|PP|EP|CP)(\d{1,6})")

Stamp = tuple[int | None, int, int, int, int, int, int, bool]
"""Year or None, month, day, hour, minute, second, nanoseconds, whether it is UTC."""


class Header(NamedTuple):
    """What stands before a message.

    Attributes:
        process: e.g. EngineCore, Worker; empty when the line names none.
        ranks: e.g. {"tp_rank": "0"}, from the process's name or the bracket.
        level: DEBUG, INFO, WARNING, ERROR, CRITICAL, or empty.
        since_start_ns: where the line tells this instead of a time.
    """

    process: str = ""
    pid: str = ""
    ranks: Mapping[str, str] = MappingProxyType({})
    level: str = ""
    stamp: Stamp | None = None
    since_start_ns: int | None = None


def plain(text: str) -> str:
    """Without colours; of a progress bar that redrew itself the last state; line end removed."""
    text = _ANSI.sub("", text) if "\x1b" in text else text
    if "\r" in text:
        text = next((part for part in reversed(text.split("\r")) if part), "")
    return text


def one_line(text: str, limit: int) -> str:
    """Without colours and control characters, spaces trimmed, at most `limit` characters."""
    return _CONTROL.sub(" ", _ANSI.sub("", text[: 4 * limit])).strip()[:limit]


def split_header(line: str) -> tuple[Header, str]:
    """The header of a line and the message behind it; spaces that begin the message stay.

    What a container runtime, Kubernetes or the journal put before the line is taken off, and its time counts:
    it has a year and a zone where the engine's own mostly has neither.
    """
    outer, level, line = _unwrapped(line)
    at = 0
    found = _COMPOSE.match(line)
    if found:
        at = found.end()
        if outer is None:
            outer, _, line = _unwrapped(line[at:])
            at = 0
    process = pid = ""
    while found := _PROCESS.match(line, at):
        process, pid, at = found["process"], found["pid"] or "", found.end()
    name, ranks = _named(process)
    for lead in _LEADS:
        found = lead.match(line, at)
        if not found:
            continue
        parts = found.groupdict()
        if parts.get("ranks"):
            ranks = ranks | _ranks(parts["ranks"])
        level = parts.get("level") or _LETTERS.get(parts.get("letter") or "", "") or level
        stamp = outer or (_stamp(parts) if parts.get("second") else None)
        since = _since_start(parts) if parts.get("since_m") else None
        header = Header(name, pid, ranks, _SAME.get(level, level), stamp, since)
        return header, line[found.end() :]
    return Header(name, pid, ranks, _SAME.get(level, level), outer), line[at:]


def _unwrapped(line: str) -> tuple[Stamp | None, str, str]:
    """The time and level that what carried a line put around it, and the line itself."""
    level, stamp = "", None
    if line.startswith('{"') and len(line) <= _OUTER_JSON_CHARS:
        level, when, line = _from_json(line)
        found = _WRAPPERS[0].match(when + " ") if when else None
        stamp = _zoned(found.groupdict()) if found else None
    for wrapper in _WRAPPERS:
        found = wrapper.match(line)
        if not found:
            continue
        parts = found.groupdict()
        line = line[found.end() :]
        if name := parts.get("name"):
            if name in _MONTHS and stamp is None:
                stamp = _stamp(parts | {"month": str(1 + _MONTHS.index(name))})
        elif stamp is None:
            stamp = _zoned(parts)
        break
    return stamp, level, line


def _from_json(line: str) -> tuple[str, str, str]:
    """Level, time and message of one object a line, as Docker and Rust's tracing write them."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return "", "", line
    fields = told.get("fields")
    inner = fields if isinstance(fields, dict) else told
    message = inner.get("message", told.get("log", told.get("msg")))
    if not isinstance(message, str):
        return "", "", line
    level = str(told.get("level") or "").upper()
    target = told.get("target")
    lead = f"{target}: " if isinstance(target, str) else ""
    when = told.get("timestamp") or told.get("time") or ""
    return level, when if isinstance(when, str) else "", lead + message.rstrip("\r\n")


def _zoned(parts: dict[str, Any]) -> Stamp | None:
    """A stamp with a zone, as one in UTC; None when it is no date."""
    zone = parts["zone"]
    if zone in ("Z", "+00:00", "+0000"):
        return _stamp(parts | {"utc": True})
    try:
        told = datetime(*(int(parts[p]) for p in ("year", "month", "day", "hour", "minute")))  # type: ignore[arg-type]  # five numbers
        minutes = int(zone[1:3]) * 60 + int(zone[-2:])
        told -= timedelta(minutes=minutes if zone[0] == "+" else -minutes)
    except (ValueError, OverflowError):
        return None
    return _stamp(
        parts
        | {p: str(getattr(told, p)) for p in ("year", "month", "day", "hour", "minute")}
        | {"utc": True}
    )


def _since_start(parts: dict[str, Any]) -> int:
    seconds = int(parts["since_m"]) * 60 + int(parts["since_s"])
    return seconds * 1_000_000_000 + (int(parts["since_ms"]) * 1000 + int(parts["since_us"])) * 1000


@lru_cache(maxsize=256)
def _named(process: str) -> tuple[str, dict[str, str]]:
    """`Worker_TP0_EP0` as its name without ranks, and the ranks."""
    return re.split(r"[_-](?=[A-Z]{2}\d|\d)", process, maxsplit=1)[0], _ranks(process)


@lru_cache(maxsize=256)
def _ranks(text: str) -> dict[str, str]:
    return {f"{kind.lower()}_rank": n for kind, n in _RANK.findall(text)}


def _stamp(parts: dict[str, Any]) -> Stamp:
    return (
        int(parts.get("year") or 0) or None, int(parts["month"]), int(parts["day"]),
        int(parts["hour"]), int(parts["minute"]), int(parts["second"]),
        int((parts.get("fraction") or "0").ljust(9, "0")), bool(parts.get("utc")),
    )  # fmt: skip


class Clock:
    """Turns stamps into nanoseconds since the epoch; a year that is missing is inferred."""

    def __init__(self, utc_offset_s: int | None = None) -> None:
        """`utc_offset_s`: the zone of the stamps, seconds east of UTC; None for this machine's."""
        self._zone = None if utc_offset_s is None else timezone(timedelta(seconds=utc_offset_s))
        self._minutes: dict[tuple[int | None, ...], int | None] = {}

    def resolve(self, stamp: Stamp, near_ns: int | None) -> int | None:
        """The time of a stamp.

        Args:
            stamp: as in a header.
            near_ns: a time that the line was written before, or at most a day after; without a year
                in the stamp, the latest year that fits it counts.

        Returns:
            None when the stamp is no date, or has no year and `near_ns` is None.
        """
        year, month, day, hour, minute, second, fraction, utc = stamp
        near_day = None if near_ns is None or year else near_ns // 86_400_000_000_000
        key = (year, month, day, hour, minute, int(utc), near_day)
        if key not in self._minutes:
            if len(self._minutes) > 4096:
                self._minutes.clear()
            self._minutes[key] = self._minute_s(year, (month, day, hour, minute), utc, near_ns)
        base_s = self._minutes[key]
        if base_s is None or second > 60:
            return None
        return (base_s + second) * 1_000_000_000 + fraction

    def _minute_s(
        self, year: int | None, rest: tuple[int, int, int, int], utc: bool, near_ns: int | None
    ) -> int | None:
        if year is not None:
            return self._epoch_s(year, rest, utc)
        if near_ns is None:
            return None
        near_s = near_ns // 1_000_000_000
        this_year = datetime.fromtimestamp(near_s, timezone.utc).year
        for candidate in range(this_year + 1, this_year - 9, -1):  # a leap day may need eight
            found = self._epoch_s(candidate, rest, utc)
            if found is not None and found <= near_s + 86_400:
                return found
        return None

    def _epoch_s(self, year: int, rest: tuple[int, int, int, int], utc: bool) -> int | None:
        try:
            zone = timezone.utc if utc else self._zone
            found = int(datetime(year, *rest, tzinfo=zone).timestamp())
            return found if 0 <= found < 2**33 else None  # nanoseconds have to fit 64 bits
        except (ValueError, OverflowError, OSError):
            return None
