"""An engine's log, read as data: pieces of the file in, rows of the tables out.

Pure: it opens nothing and asks no clock. Most lines of a log say nothing of interest, so a block of
bytes is searched for a few substrings first, and only lines that contain one are looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .log_header import Clock
from .log_lines import LineReader, Rows
from .log_patterns import engine_marks, load_patterns

MAX_LINE_BYTES = 65_536
HELD_BYTES = 1 << 20
"""What is kept of a log whose engine is not known yet."""


class LogReader:
    """Rows from one log; how it is cut into pieces makes no difference.

    Tables: `settings`, `samples` (gauges with the label `from: log`), `steps` and `events`. The time
    of a row is its line's stamp; without one the time of reading, else that of the last stamp.
    """

    def __init__(
        self,
        engine: str | None = None,
        *,
        node: str = "",
        replica: str = "",
        near_ns: int | None = None,
        utc_offset_s: int | None = None,
    ) -> None:
        """Prepare.

        Args:
            engine: kind of the engine; None or "" lets the log tell.
            node: host that rows name.
            replica: engine instance that rows name.
            near_ns: when the file was last written to; gives the year where stamps have none.
            utc_offset_s: zone of the stamps, seconds east of UTC; None for this machine's.
        """
        self._node, self._replica, self._near_ns = node, replica, near_ns
        self._clock = Clock(utc_offset_s)
        self._lines: LineReader | None = self._reader(engine) if engine else None
        self._counts: Counter[str] = Counter()
        self._held = bytearray()
        self._partial = bytearray()
        self._cut = self._mid_line = False

    @property
    def engine(self) -> str | None:
        """Kind of the engine; None until it is given or detected."""
        return self._lines.wanted.engine if self._lines else None

    @property
    def replica(self) -> str:
        """Engine instance that rows name; may be set when it becomes known."""
        return self._replica

    @replica.setter
    def replica(self, replica: str) -> None:
        self._replica = replica
        if self._lines:
            self._lines.replica = replica

    def counts(self) -> dict[str, int]:
        """What was read and what was left out.

        Keys: `lines`; `long_lines` (cut at 64 KiB); `foreign_lines` (another engine's);
        `held_out_lines` (more than 1 MiB before the engine was detected, not read);
        `clock_mismatches` (stamps ten minutes and more from the time of reading, not used);
        `repeated_events` (counted in another event); `suppressed_events` (over the bounds).
        """
        names = ("lines", "long_lines", "held_out_lines")
        found = {name: self._counts[name] for name in names}
        lines = self._lines
        for name in ("foreign_lines", "clock_mismatches"):
            found[name] = lines.counts[name] if lines else 0
        found["repeated_events"] = lines.events.repeats if lines else 0
        found["suppressed_events"] = lines.events.suppressed if lines else 0
        return found

    def feed(self, line: str, *, t_ns: int | None = None) -> Rows:
        """Take one whole line, with or without its end.

        Args:
            line: the text.
            t_ns: when it was read, if it is being written now; None for a log of the past.

        Returns:
            (table, row) of what is complete: an event comes when its second is over.
        """
        raw = line.encode("utf-8", "replace").rstrip(b"\n").replace(b"\n", b" ")
        return self.feed_bytes(raw + b"\n", t_ns=t_ns)

    def feed_bytes(self, data: bytes, *, t_ns: int | None = None) -> Rows:
        """As `feed`, for any piece of the file; a line that is not complete is kept."""
        rows: Rows = []
        start = 0
        if self._mid_line:
            start = data.find(b"\n") + 1
            if start == 0:
                return rows
            self._mid_line = False
        elif self._partial or self._cut:
            end = data.find(b"\n")
            self._keep(data[: end if end >= 0 else len(data)])
            if end < 0:
                return rows
            start = end + 1
            rows += self._end_line(t_ns)
        end = data.rfind(b"\n") + 1
        if end > start:
            rows += self._whole_lines(data[start:end], t_ns)
        self._keep(data[max(end, start) :])
        return rows

    def gap(self, *, mid_line: bool = False) -> None:
        """The next bytes do not continue the last: what is kept of an open line is dropped.

        Args:
            mid_line: the next bytes begin within a line, whose rest is dropped too.
        """
        self._partial.clear()
        self._cut = False
        self._mid_line = mid_line

    def finish(self, *, t_ns: int | None = None) -> Rows:
        """The last line, if it has no end, and every event that is held back."""
        rows = self._end_line(t_ns) if self._partial else []
        self.gap()
        if self._lines:
            rows += [("events", row) for row in self._lines.events.flush()]
        return rows

    def expire(self, now_ns: int) -> Rows:
        """The events whose second has passed; for a log that is being written."""
        events = self._lines.events.expire(now_ns, back=False) if self._lines else []
        return [("events", row) for row in events]

    def _reader(self, engine: str) -> LineReader:
        return LineReader(
            load_patterns(engine),
            node=self._node,
            replica=self._replica,
            near_ns=self._near_ns,
            clock=self._clock,
        )

    def _keep(self, rest: bytes) -> None:
        room = MAX_LINE_BYTES - len(self._partial)
        self._cut = self._cut or len(rest) > room
        self._partial += rest[:room]

    def _end_line(self, t_ns: int | None) -> Rows:
        line = bytes(self._partial) + b"\n"
        self._counts["long_lines"] += self._cut
        self.gap()
        return self._whole_lines(line, t_ns)

    def _whole_lines(self, data: bytes, t_ns: int | None) -> Rows:
        """All lines of `data`, which ends with one."""
        self._counts["lines"] += data.count(b"\n")
        self._counts["long_lines"] += sum(1 for _ in _long_lines(data))
        rows: Rows = []
        if self._lines is not None:
            _read_block(data, t_ns, self._lines, rows)
        elif (found := self._detect(data)) is not None:
            self._lines, held = found
            _read_block(held, t_ns, self._lines, rows)
        return rows

    def _detect(self, data: bytes) -> tuple[LineReader, bytes] | None:
        """None before the engine is known; then its reader and all that was held for it."""
        marked = [(at, e) for mark, e in engine_marks() if (at := data.find(mark)) >= 0]
        before = len(self._held)
        self._held += data
        if not marked:
            if len(self._held) > 2 * HELD_BYTES:
                del self._held[: self._held.find(b"\n", len(self._held) - HELD_BYTES - 1) + 1]
            return None
        at, engine = min(marked)
        held, self._held = bytes(self._held), bytearray()
        # counted back from the line with the mark, however the pieces were cut
        until = held.rfind(b"\n", 0, before + at) + 1
        if until > HELD_BYTES:
            held = held[held.find(b"\n", until - HELD_BYTES - 1) + 1 :]
        self._counts["held_out_lines"] += self._counts["lines"] - held.count(b"\n")
        return self._reader(engine), held


def _read_block(data: bytes, t_ns: int | None, reader: LineReader, rows: Rows) -> None:
    """Hand over the lines that hold a gate, and those of open tracebacks."""
    candidates = reader.finder.candidates(data)
    if candidates is None:
        _search(data, t_ns, reader, rows)
        return
    gates = reader.wanted.gates
    at, end, place = 0, len(data), 0
    while at < end:
        if reader.in_traceback:
            begin, hit = at, at
        else:
            while place < len(candidates) and candidates[place] < at:
                place += 1
            if place == len(candidates):
                return
            hit = candidates[place]
            begin = data.rfind(b"\n", at, hit) + 1 or at
        stop = data.find(b"\n", hit)
        raw = data[begin : min(stop, begin + MAX_LINE_BYTES)]
        if reader.in_traceback or any(gate in raw for gate in gates):
            reader.read(raw, t_ns, rows)
        at = stop + 1


def _search(data: bytes, t_ns: int | None, reader: LineReader, rows: Rows) -> None:
    """As `_read_block`, for blocks too small, or too full of gates, for candidates to pay.

    Each gate is searched for on its own, as bytes.find passes over gigabytes a second where an
    alternation of them in one regex does some megabytes.
    """
    gates = reader.wanted.gates
    nexts = [data.find(gate) for gate in gates]
    at, end = 0, len(data)
    while at < end:
        hit = at
        if not reader.in_traceback:
            hit = min((n for n in nexts if n >= 0), default=end)
            if hit >= end:
                return
        begin = data.rfind(b"\n", at, hit) + 1 or at
        stop = data.find(b"\n", hit)
        raw = data[begin : min(stop, begin + MAX_LINE_BYTES)]
        # of a line that is cut, what was found may stand in the part that is gone
        cut = stop - begin > MAX_LINE_BYTES
        if reader.in_traceback or not cut or any(gate in raw for gate in gates):
            reader.read(raw, t_ns, rows)
        at = stop + 1
        for i, n in enumerate(nexts):
            if 0 <= n < at:
                nexts[i] = data.find(gates[i], at)


def _long_lines(data: bytes) -> Iterator[int]:
    """Where lines of more than `MAX_LINE_BYTES` begin."""
    at = 0
    while at < len(data):
        end = data.rfind(b"\n", at, at + MAX_LINE_BYTES + 1)
        if end < 0:
            yield at
            end = data.find(b"\n", at)
        at = end + 1
