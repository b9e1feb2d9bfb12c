"""What a person can tell (`given.yaml`), and what can be looked at next (`observations.yaml`): data, read once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec

from .strict_yaml import read


class Observation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that a person can look at.

    Attributes:
        gives: signals that it tells.
        command: a line to paste; `{url}` stands for the server's.
        effort: 1 reads a number, 2 sends load, 3 restarts the server.
        sees: how often it shows a symptom of the class that is right, 0..1.
        because: what each outcome would mean.
        unless: signals any of which tell that it was looked at already.
    """

    id: str
    gives: list[str]
    command: str
    effort: int
    sees: float
    because: str
    unless: list[str] = []


@cache
def load_observations() -> tuple[Observation, ...]:
    """All of them, in the file's order."""
    document = read(Path(__file__).with_name("observations.yaml"))
    return tuple(msgspec.convert(document.data, list[Observation]))


@cache
def load_given() -> Mapping[str, str]:
    """Signals that only a person or another tool can tell, with what they mean."""
    document = read(Path(__file__).with_name("given.yaml"))
    return msgspec.convert(document.data, dict[str, str])
