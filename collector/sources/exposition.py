"""Prometheus and OpenMetrics text, read line by line: one bad line loses only itself.

`prometheus_client`'s parser is the reference (the tests compare the two). It takes about 20 ms for
the page of one vLLM server, too much for a scrape a second beside a load generator, and it gives up
a page at its first odd line.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

MAX_LINE_BYTES = 65_536
MAX_LABELS = 256
MAX_LABEL_CHARS = 8_192
MAX_SAMPLES = 100_000
"""Caps that no engine comes near: longer is a bad line, a further sample is left out."""
MAX_CACHED_CHARS = 512

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_NAMES = re.compile(rb"^(?:#[ \t]+TYPE[ \t]+)?([a-zA-Z_:][a-zA-Z0-9_:]*)(?=[ \t{])", re.MULTILINE)
_LABEL = re.compile(
    r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"([^"\\]*(?:\\.[^"\\]*)*)"[ \t]*([,}])'
)
_CLOSE = re.compile(r"[ \t]*}")
_ESCAPE = re.compile(r'\\([\\n"])')
_UNESCAPED = {"\\": "\\", "n": "\n", '"': '"'}
_NO_LABELS: Mapping[str, str] = MappingProxyType({})

_PARTS: dict[str, tuple[str, ...]] = {
    "counter": ("", "_total", "_created"),
    "histogram": ("_bucket", "_sum", "_count", "_created"),
    "gaugehistogram": ("_bucket", "_gsum", "_gcount"),
    "summary": ("", "_sum", "_count", "_created"),
    "info": ("_info",),
}
"""Suffixes that samples of a declared family may carry; any other kind has none."""

# Ordered: a server's own metrics win over those of what it embeds or is fronted by.
_ENGINE_PREFIXES = (
    ("vllm", ("vllm:", "ray_vllm_")),
    ("sglang", ("sglang:", "sglang_")),
    ("tensorrt_llm", ("trtllm:", "trtllm_", "nv_trt_llm_")),
    ("llamacpp", ("llamacpp:",)),
    ("tgi", ("tgi_",)),
    ("dynamo", ("dynamo_",)),
    ("lmcache", ("lmcache:", "lmcache_")),
    ("dcgm", ("DCGM_FI_",)),
)


class Sample(NamedTuple):
    """One series' value, under the exact name of its line; a timestamp or exemplar is not kept."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass
class Family:
    """One metric: `name` has no counter's `_total`; `kind` as TYPE says, else untyped."""

    name: str
    kind: str
    samples: list[Sample] = field(default_factory=list)


@dataclass
class Page:
    """One scraped page.

    Attributes:
        families: in order of appearance; those declared and without samples are there too.
        others: samples that were not wanted, counted by their family's name.
        bad_lines: lines that could not be read, a last line without its newline among them.
        left_out: wanted samples above `MAX_SAMPLES`.
        truncated: the text stops in the middle of a line.
        bytes: length of the text.
    """

    families: list[Family]
    others: dict[str, int]
    bad_lines: int
    left_out: int
    truncated: bool
    bytes: int


def parse(text: str | bytes, *, want: Callable[[str], bool] | None = None) -> Page:
    """Read one page; it never raises.

    Args:
        text: Prometheus text (0.0.4) or OpenMetrics text; bytes that are no UTF-8 become U+FFFD.
        want: keeps only samples whose exact name it accepts; None keeps all.
    """
    raw = text.encode("utf-8", "replace") if isinstance(text, str) else text
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    page = Page([], {}, 0, 0, False, len(raw))
    families: dict[str, Family] = {}
    members: dict[str, Family] = {}  # sample name → its family
    kept = 0
    for line in io.BytesIO(raw):
        if not line.endswith(b"\n") and line.strip() != b"# EOF":
            # The number on it may be cut: 12 of 123 would look like a value.
            page.truncated = True
            page.bad_lines += 1
            break
        if len(line) > MAX_LINE_BYTES:
            page.bad_lines += 1
            continue
        content = line.decode("utf-8", "replace").strip()
        if not content:
            continue
        if content[0] == "#":
            _declare(content, families, members)
            continue
        sample = _sample(content)
        if sample is None:
            page.bad_lines += 1
            continue
        family = members.get(sample.name)
        if want is not None and not want(sample.name):
            name = family.name if family else sample.name
            page.others[name] = page.others.get(name, 0) + 1
        elif kept == MAX_SAMPLES:
            page.left_out += 1
        else:
            if family is None:
                family = Family(sample.name, "untyped")
                families[sample.name] = members[sample.name] = family
            family.samples.append(sample)
            kept += 1
    page.families = list(families.values())
    return page


def names(text: str | bytes) -> set[str]:
    """Every name that a sample or a TYPE line of the page carries; much cheaper than `parse`."""
    raw = text.encode("utf-8", "replace") if isinstance(text, str) else text
    return {match[1].decode() for match in _NAMES.finditer(raw)}


def detect_engine(names: Iterable[str]) -> str:
    """The engine kind (vllm, llamacpp, sglang, …) that speaks these names; empty when none does."""
    present = set(names)
    for engine, prefixes in _ENGINE_PREFIXES:
        if any(name.startswith(prefixes) for name in present):
            return engine
    return ""


def engine_prefixes() -> dict[str, tuple[str, ...]]:
    """Engine kind → what its own metric names begin with, in the order of `detect_engine`."""
    return dict(_ENGINE_PREFIXES)


def _declare(line: str, families: dict[str, Family], members: dict[str, Family]) -> None:
    """Take note of a TYPE line; every other comment says nothing that is kept."""
    words = line.split()
    if len(words) < 4 or words[0] != "#" or words[1] != "TYPE":
        return
    declared, kind = words[2], words[3]
    name = declared.removesuffix("_total") if kind == "counter" else declared
    if name in families:
        return
    family = families[name] = Family(name, kind)
    for part in _PARTS.get(kind, ("",)):
        members[name + part] = family


def _sample(line: str) -> Sample | None:
    """One sample line (stripped); None when it is not one."""
    match = _NAME.match(line)
    if match is None:
        return None
    rest = line[match.end() :].lstrip(" \t")
    labels: Mapping[str, str] | None = _NO_LABELS
    if rest[:1] == "{":
        end = rest.find("}") + 1
        # Only quotes can hide a brace, and they come in pairs up to the true end.
        if 0 < end <= MAX_CACHED_CHARS and "\\" not in rest and rest.count('"', 0, end) % 2 == 0:
            labels = _cached_labels(rest[:end])
        else:
            labels, end = _labels(rest)
        rest = rest[end:]
    elif len(rest) == len(line) - match.end():
        return None  # nothing between name and value
    words = rest.split()
    number = _number(words[0]) if words else None
    if labels is None or number is None:
        return None
    if len(words) > 1 and words[1] != "#":  # a timestamp; `#` begins an exemplar
        tail = words[2] if len(words) > 2 else "#"
        if tail != "#" or _number(words[1]) is None:
            return None
    return Sample(match.group(), labels, number)


@lru_cache(maxsize=4096)
def _cached_labels(block: str) -> Mapping[str, str] | None:
    """The labels of one block; buckets of a page and pages of a run repeat theirs."""
    return _labels(block)[0]


def _labels(text: str) -> tuple[Mapping[str, str] | None, int]:
    """The labels of the block that `text` begins with, and where it ends; None when it is none."""
    labels: dict[str, str] = {}
    at = 1
    while (label := _LABEL.match(text, at)) is not None:
        key, value, end = label.groups()
        if key in labels or len(labels) >= MAX_LABELS or len(value) > MAX_LABEL_CHARS:
            return None, 0
        if "\\" in value:
            value = _ESCAPE.sub(lambda found: _UNESCAPED[found[1]], value)
        labels[key] = value
        at = label.end()
        if end == "}":
            return MappingProxyType(labels), at
    close = _CLOSE.match(text, at)  # an empty list, or a comma before the end
    return (MappingProxyType(labels), close.end()) if close else (None, 0)


def _number(word: str) -> float | None:
    # Python would also read 1_000 and the digits of other scripts.
    if "_" in word or not word.isascii():
        return None
    try:
        return float(word)
    except ValueError:
        return None
