"""Logs of engines: settings as they hold, statistics, iterations, preemptions, errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from ...errors import WhyboundError
from ..engine_log import LogReader
from ..log_patterns import load_file, log_engines
from .importer import Importer, Row, Sample, Sink, Source

_PIECE = 1 << 20
_BATCH_ROWS = 5_000
_ROTATION = re.compile(
    r"(\.(\d{1,4}|gz|bz2|xz|zst|log|txt|out|old)|[-_.]\d{4}-?\d\d-?\d\d([T_-]?\d{2,6})?)$"
)
_LINE = re.compile(
    r"[^,;\t\"]{0,100}?"
    r"(?:\b(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL)\b|\[[DIWE]\]|\d\.\d\d\.\d{3}\.\d{3} [DIWE] )"
)
"""A level near a line's beginning."""
_TITLES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "llamacpp": "llama.cpp",
    "tensorrt_llm": "TensorRT-LLM",
    "tgi": "TGI",
}
_LEFT_OUT = {
    "long_lines": "lines cut at 64 KiB",
    "foreign_lines": "lines of another engine",
    "held_out_lines": "lines before the engine was known left out",
    "suppressed_events": "events over the bounds left out",
}


def _recognise(engine: str, sample: Sample) -> float:
    """By what only this engine writes; the first of its marks says the most."""
    marks = load_file(engine).marks
    found = [mark in sample.text for mark in marks]
    if _is_data(sample.text):
        return 0.0
    if not any(found):
        # one line out of a log; what quotes it beside a command that starts the engine is that command
        return 0.55 if any(mark in sample.text for mark in load_file(engine).typical) else 0.0
    return min(0.9, 0.6 + 0.1 * sum(found) + (0.1 if found[0] else 0.0))


def _is_data(text: str) -> bool:
    """Is it JSON or a table, in which a log's line may be quoted?"""
    return text.lstrip("\ufeff \t\r\n")[:2] in ("{\n", "{ ", "[{", "[\n") or text.startswith(
        "# HELP"
    )


def _looks_like_a_log(sample: Sample) -> float:
    """Lines with a level: whose they are, the rest of the file may tell."""
    lines = [line for line in sample.text.splitlines()[:200] if line.strip()]
    stamped = sum(1 for line in lines if _LINE.match(line))
    return 0.5 if len(lines) >= 3 and stamped >= 0.6 * len(lines) else 0.0


def _read(engine: str | None, source: Source, sink: Sink) -> None:
    reader = LogReader(
        engine or sink.options.get("engine") or None,
        node=sink.options.get("node", ""),
        replica=_replica(source.sample.name),
        near_ns=sink.epoch_ns,
    )
    held: dict[str, list[Row]] = {}

    def hand_over(rows: list[tuple[str, Row]], at_least: int) -> None:
        for table, row in rows:
            held.setdefault(table, []).append(row)
        for table, batch in held.items():
            if len(batch) >= at_least:
                sink.rows(table, batch)
                held[table] = []

    try:
        for piece in _pieces(source):
            hand_over(reader.feed_bytes(piece), _BATCH_ROWS)
    finally:
        hand_over(reader.finish(), 1)
    counts = reader.counts()
    for name, what in _LEFT_OUT.items():
        if counts[name]:
            sink.note(f"{counts[name]} {what}")
    if reader.engine is None:
        raise WhyboundError("a log, but no line of an engine that is known")
    sink.note(f"{_TITLES.get(reader.engine, reader.engine)}, {counts['lines']} lines")


def _pieces(source: Source) -> Iterator[bytes]:
    """The log in UTF-8: as it lies on disk, unless every second byte is 0."""
    if b"\0" in source.sample.head[:1024]:
        for line in source.lines():
            yield line.encode("utf-8", "replace") + b"\n"
        return
    with source.open() as file:
        while piece := file.read(_PIECE):
            yield piece


def _replica(name: str) -> str:
    """The instance that wrote a log: its name without what rotation adds, so that the parts are one."""
    while (found := _ROTATION.search(name)) and found.start() > 0:
        name = name[: found.start()]
    return name


def _importer(engine: str) -> Importer:
    return Importer(
        kind=f"{engine.replace('_', '-')}-log",
        title=f"{_TITLES.get(engine, engine)} log",
        recognise=partial(_recognise, engine),
        read=partial(_read, engine),
    )


IMPORTERS = (
    *(_importer(engine) for engine in log_engines()),
    Importer("engine-log", "log of an engine", _looks_like_a_log, partial(_read, None)),
)
