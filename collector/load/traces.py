"""Files that a load may bring along: recorded arrivals and prompts."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ...errors import WhyboundError

Messages = list[dict[str, Any]]
"""Chat messages, as the API takes them."""


@dataclass(frozen=True)
class Arrival:
    """One recorded request: `t_s` seconds after the first one; `prefix` names a shared prefix."""

    t_s: float
    input_tokens: int
    output_tokens: int
    prefix: str | None = None


def read_arrivals(path: str) -> Sequence[Arrival]:
    """Read recorded arrivals, sorted by time and counted from the first.

    JSON lines, or CSV with a header: t (seconds), input_tokens, output_tokens, optionally prefix.

    Raises:
        WhyboundError: the file is missing or empty, or a line is malformed; names file and line.
    """
    rows = []
    for line, record in _records(path):
        try:
            t = float(record["t"])
            tokens = int(record["input_tokens"]), int(record["output_tokens"])
        except KeyError as error:
            raise WhyboundError(f"{path}, line {line}: no {error}: write t, input_tokens,"
                                " output_tokens and optionally prefix") from None  # fmt: skip
        except (TypeError, ValueError) as error:
            raise WhyboundError(f"{path}, line {line}: not a number: {error}") from None
        if not math.isfinite(t) or min(tokens) < 1:
            raise WhyboundError(f"{path}, line {line}: t must be finite, token counts at least 1")
        prefix = record.get("prefix")
        rows.append(Arrival(t, *tokens, None if prefix in (None, "") else str(prefix)))
    if not rows:
        raise WhyboundError(f"{path}: no arrivals in it: write one request a line")
    rows.sort(key=lambda row: row.t_s)
    # Recorded times are often epoch seconds: the run starts at the first one.
    first = rows[0].t_s
    return [Arrival(r.t_s - first, r.input_tokens, r.output_tokens, r.prefix) for r in rows]


def read_prompts(path: str, chat: bool) -> Sequence[str | Messages]:
    """Read prompts: plain lines, or JSON lines with `prompt` or (chat only) `messages`.

    Raises:
        WhyboundError: the file is missing or empty, or a line has neither; names file and line.
    """
    prompts: list[str | Messages] = []
    for number, text in _lines(path):
        if not text.startswith("{"):
            prompts.append(text)
            continue
        record = _json(path, number, text)
        if isinstance(record.get("messages"), list):
            if not chat:
                raise WhyboundError(f"{path}, line {number}: messages need api=chat")
            prompts.append(record["messages"])
        elif isinstance(record.get("prompt"), str):
            prompts.append(record["prompt"])
        else:
            raise WhyboundError(f"{path}, line {number}: neither prompt nor messages in it")
    if not prompts:
        raise WhyboundError(f"{path}: no prompts in it: write one a line")
    return prompts


def _records(path: str) -> Iterator[tuple[int, dict[str, Any]]]:
    lines = _lines(path)
    first = next(lines, None)
    if first is None:
        return
    if first[1].startswith("{"):
        yield first[0], _json(path, *first)
        for number, text in lines:
            yield number, _json(path, number, text)
        return
    header = [name.strip() for name in next(csv.reader([first[1]]))]
    for number, text in lines:
        yield number, dict(zip(header, next(csv.reader([text])), strict=False))


def _lines(path: str) -> Iterator[tuple[int, str]]:
    try:
        with Path(path).open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line.strip()
    except FileNotFoundError:
        raise WhyboundError(f"{path}: no such file: check the path in --load") from None
    except (OSError, UnicodeDecodeError) as error:
        raise WhyboundError(f"{path}: cannot be read: {error}") from None


def _json(path: str, number: int, text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise WhyboundError(f"{path}, line {number}: not a JSON object: {error}") from None
