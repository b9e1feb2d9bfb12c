"""Dumps of a /metrics page: one, or several over time, plain or pasted into markdown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ...errors import WhyboundError
from ..engine_map import EXPORTERS, engines, load_map
from ..sources.exposition import detect_engine
from ..sources.scrape import Scrape, ScrapeState, scrape_rows
from .fact_sheet import FactSheet
from .importer import Importer, Sample, Sink, Source
from .lifetime import add_lifetime
from .metric_pages import MAX_KEPT_LINES, NAME, Page, epoch_ns, pages
from .request_rows import node_of

_TYPE = re.compile(
    r"#\s+TYPE\s+([a-zA-Z_:][\w:]*)\s+(counter|gauge|histogram|summary|untyped|unknown|info)"
)
_SERIES = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{[^}\n]*\}\s*|\s+)[-+]?(?:\d[\d.eE+-]*|NaN|Inf)(?:\s+\d+)?\s*(?:#.*)?"
)
_FILE_STAMP = re.compile(r"(?<!\d)(1\d{9}(?:\.\d{1,9})?|1\d{12}|1\d{18})(?!\d)")


def recognise_page(sample: Sample) -> float:
    """How sure a text is a page of metrics: declared types, or most lines are series."""
    text = sample.text
    lines = text.splitlines()[:2000]
    all_there = len(text) == sample.size_bytes or len(lines) < 2
    whole = lines if all_there else lines[:-1]  # the last one may be cut
    if "```" in text and re.search(r"^```", text, re.MULTILINE):
        return 0.0
    series = sum(bool(_SERIES.fullmatch(line.strip())) for line in whole if line[:1] != "#")
    body = sum(bool(line.strip()) for line in whole if line[:1] != "#")
    if series and any(_TYPE.match(line) for line in whole) and series >= 0.7 * body:
        return 0.95
    known = detect_engine(m[1] for line in whole if (m := NAME.match(line)))
    return 0.8 if series >= 2 and series >= 0.8 * body and (known or series >= 5) else 0.0


def _read(source: Source, sink: Sink) -> None:
    _read_pages(source, sink, pages(source.lines()), "metrics-text")


def _read_pages(source: Source, sink: Sink, found: Iterator[Page], kind: str) -> None:
    """Rows of every page that has a time; of pages without one only the last counts."""
    named = _FILE_STAMP.search(source.path.name)
    file_ns = epoch_ns(named[1]) if named else sink.epoch_ns
    reading = _Reading(sink)
    timeless: Page | None = None
    skipped = 0
    for page in found:
        if page.t_ns is None:
            skipped += timeless is not None
            timeless = page
        else:
            reading.take(page, page.t_ns)
    if timeless is not None and (not reading.pages or timeless.samples):
        reading.take(timeless, file_ns)
    if skipped:
        sink.note(
            f"{skipped} earlier pages without a time left out: put `# <epoch seconds>` before each"
        )
    reading.close(source, kind)


class _Reading:
    """All pages of one file as they come."""

    def __init__(self, sink: Sink) -> None:
        self.pages = 0
        self._sink = sink
        self._states: dict[str, ScrapeState] = {}
        self._single: list[tuple[Scrape, int]] = []
        self._unmapped: Counter[str] = Counter()
        self._bad = self._not_finite = self._left_out = self._samples = 0
        self._speaker = ""

    def take(self, page: Page, t_ns: int) -> None:
        sink = self._sink
        engine = sink.options.get("engine") or detect_engine(page.names)
        mapping = load_map(engine)
        found = scrape_rows(
            "".join(page.lines),
            t_ns=t_ns,
            node=node_of(sink),
            replica="",
            engine_map=mapping,
            previous=self._states.get(engine),
        )
        self._states[engine] = found.state
        self.pages += 1
        self._speaker = engine or self._speaker
        for table, rows in (
            ("samples", found.samples),
            ("histograms", found.histograms),
            ("settings", found.settings),
        ):
            if rows:
                sink.rows(table, rows)
        for name, many in (found.unmapped | dict(page.others)).items():
            if not mapping.is_ignored(name):
                self._unmapped[name] = max(self._unmapped[name], many)
        self._bad += found.bad_lines
        self._not_finite += found.not_finite_count
        self._left_out += found.left_out_count + page.left_out
        self._samples += page.samples
        self._single = [(found, t_ns)] if self.pages == 1 else []

    def close(self, source: Source, kind: str) -> None:
        name, sink = source.path.name, self._sink
        if not self._samples:
            raise WhyboundError(f"{name}: no metric in it: is it the output of curl …/metrics?")
        if self._speaker and self._speaker not in (*engines(), *EXPORTERS):
            sink.note(f"{name}: speaks {self._speaker}, whose names are not mapped yet")
        for count, what in (
            (self._bad, "lines could not be read"),
            (self._not_finite, "values that are no finite number left out"),
            (self._left_out, "samples above the bound of one page left out"),
        ):
            if count:
                sink.note(f"{name}: {count} {what}")
        if self._unmapped:
            first = ", ".join(sorted(self._unmapped)[:3])
            sink.note(f"{name}: {len(self._unmapped)} unmapped families left out: {first}, …")
        for found, t_ns in self._single:
            sheet = FactSheet(source, sink, kind)
            add_lifetime(sheet, found.samples, found.histograms, sink, t_ns)
            sheet.close()
        if not (sink.counts["samples"] or sink.counts["histograms"]):
            raise WhyboundError(f"{name}: none of its metrics has a known meaning")


def _recognise_pasted(sample: Sample) -> float:
    if not re.search(r"^[ \t]*```", sample.text, re.MULTILINE):
        return 0.0
    return 0.6 if any(block for block in _blocks(iter(sample.text.splitlines()))) else 0.0


def _read_pasted(source: Source, sink: Sink) -> None:
    """The largest block of metrics in a document; others are examples or repeat it."""
    best: list[str] = []
    blocks = 0
    for block in _blocks(source.lines()):
        blocks += 1
        best = max(best, block, key=len)
    if not best:
        raise WhyboundError(f"{source.path.name}: no block of metrics in it")
    if blocks > 1:
        sink.note(f"{source.path.name}: {blocks} blocks of metrics; the longest one is taken")
    _read_pages(source, sink, pages(iter(best)), "metrics-pasted")


def _blocks(lines: Iterator[str]) -> Iterator[list[str]]:
    """The fenced blocks that hold series, without what is none."""
    block: list[str] | None = None
    for line in lines:
        if line.lstrip().startswith("```"):
            if block is not None and _holds_series(block):
                yield block
            block = [] if block is None else None
        elif block is not None and len(block) < MAX_KEPT_LINES:
            text = line.strip()
            if text.startswith("#") or _SERIES.fullmatch(text):
                block.append(text)
    if block and _holds_series(block):  # cut off, or only the beginning was given
        yield block


def _holds_series(block: list[str]) -> bool:
    return any(line[:1] != "#" for line in block) and any(
        _TYPE.match(line) or "{" in line for line in block
    )


IMPORTERS: tuple[Importer, ...] = (
    Importer("metrics-text", "dump of a /metrics page, one or several", recognise_page, _read),
    Importer(
        "metrics-pasted", "a /metrics page pasted into a document", _recognise_pasted, _read_pasted
    ),
)
