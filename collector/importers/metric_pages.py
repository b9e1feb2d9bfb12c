"""The pages of a file of /metrics dumps, told apart and thinned to what some map knows."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..engine_map import EXPORTERS, EngineMap, engines, load_map
from ..sources.exposition import MAX_SAMPLES

MAX_KEPT_LINES = MAX_SAMPLES + 20_000
MAX_KEPT_CHARS = 64 << 20
"""Of one page, after what no map knows was left out."""
MAX_NAMES = 20_000

NAME = re.compile(r"(?:#\s+(?:TYPE|HELP)\s+)?([a-zA-Z_:][a-zA-Z0-9_:]*)")
_STAMP = re.compile(
    r"[#=\-\s]*(?:(?:timestamp|time|scrape[d_]*(?: ?at)?|ts|date)\b\W*)?"
    r"(?:(?P<epoch>1\d{9}(?:\.\d{1,9})?|1\d{12}|1\d{18})|"
    r"(?P<iso>20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?))[\s=\-#]*",
    re.IGNORECASE,
)


@dataclass
class Page:
    """One page while it comes in.

    Attributes:
        t_ns: when it was read, where the file tells.
        lines: those of names that some map knows, and their types.
        others: samples of other names, counted.
        left_out: lines above the bounds.
        samples: all of them.
    """

    t_ns: int | None = None
    lines: list[str] = field(default_factory=list)
    chars: int = 0
    names: set[str] = field(default_factory=set)
    typed: set[str] = field(default_factory=set)
    others: Counter[str] = field(default_factory=Counter)
    left_out: int = 0
    samples: int = 0


class _Known:
    """Which names some map wants or knows, over all engines: the page's own is known at its end only."""

    def __init__(self) -> None:
        self._maps: list[EngineMap] = [load_map(e) for e in (*engines(), *EXPORTERS, "")]
        self._kept: dict[str, bool] = {}

    def keeps(self, name: str) -> bool:
        """Does any map want samples of this name?"""
        kept = self._kept.get(name)
        if kept is None:
            kept = any(m.wants(name) for m in self._maps)
            if len(self._kept) < MAX_NAMES:
                self._kept[name] = kept
        return kept


def pages(lines: Iterator[str]) -> Iterator[Page]:
    """The pages of a file: a comment with a time, `# EOF`, or a type declared again begins a new one."""
    known, page = _Known(), Page()
    for line in lines:
        match = NAME.match(line)
        begun = _begun(page, line, match[1] if match else "")
        if begun is not None:
            if page.samples:
                yield page
            page = begun
        if match is None:
            continue
        if line[0] == "#":
            if line.split(None, 2)[1:2] == ["TYPE"] and len(page.typed) < MAX_NAMES:
                page.typed.add(match[1])
                _keep(page, line)
        else:
            _add(page, line, match[1], known)
    if page.samples:
        yield page


def _begun(page: Page, line: str, name: str) -> Page | None:
    """The page that a line begins; None for most."""
    if line[:1] and line[0] in "#=-0123456789":
        t_ns = _stamp_ns(line)
        if t_ns is not None:
            return Page(t_ns)
        if line.startswith("# EOF"):
            return Page()
        again = name in page.typed and line.split(None, 2)[1:2] == ["TYPE"]
        if again and page.samples:
            return Page()
    return None


def _add(page: Page, line: str, name: str, known: _Known) -> None:
    page.samples += 1
    if len(page.names) < MAX_NAMES:
        page.names.add(name)
    if known.keeps(name):
        _keep(page, line)
    elif name in page.others or len(page.others) < MAX_NAMES:
        page.others[name] += 1


def _keep(page: Page, line: str) -> None:
    if len(page.lines) >= MAX_KEPT_LINES or page.chars + len(line) > MAX_KEPT_CHARS:
        page.left_out += line[0] != "#"
        return
    page.lines.append(line + "\n")
    page.chars += len(line) + 1


def _stamp_ns(line: str) -> int | None:
    match = _STAMP.fullmatch(line) if len(line) < 120 else None
    if match is None:
        return None
    if match["epoch"]:
        return epoch_ns(match["epoch"])
    try:
        moment = dt.datetime.fromisoformat(match["iso"].replace("Z", "+00:00"))
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.timezone.utc)
    return int(moment.timestamp() * 1e9)


def epoch_ns(text: str) -> int:
    """Seconds, milliseconds or nanoseconds since the epoch, by the number of digits."""
    digits = len(text.partition(".")[0])
    if digits <= 10:
        return int(float(text) * 1e9)
    return int(text) * (1_000_000 if digits <= 13 else 1)
