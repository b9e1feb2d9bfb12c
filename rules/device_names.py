"""Which device a name means: drivers, exporters and people all write it differently."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_NOISE = frozenset((
    "nvidia", "amd", "geforce", "instinct", "tesla", "quadro", "rtx", "gpu", "gpus", "tensor", "core",
    "corporation", "generation", "edition", "graphics", "accelerator", "card", "ac", "hgx", "dgx",
    "radeon", "rx", "jetson",
    "hbm2", "hbm2e", "hbm3", "hbm3e", "gddr6", "gddr6x", "gddr7", "vf",
))  # fmt: skip
"""Words that tell no part from another, unless a device of the table lists them."""


@dataclass(frozen=True)
class Candidate:
    """What a device is known by.

    Attributes:
        id: what is given back.
        models: each one or more words, all of which must stand in the name.
        words: those that tell it from other devices of the same model, such as its form and memory.
        memory_gib: a size in the name must be this one, or stand in `words`.
    """

    id: str
    models: tuple[str, ...]
    words: tuple[str, ...]
    memory_gib: float


def named(name: str, candidates: Sequence[Candidate]) -> list[str]:
    """The ids that a name may mean, the likeliest (the first in the table) first; [] for none.

    A word that nothing accounts for means some other part, so nothing is returned.
    """
    words = _words(name)
    found = []
    for candidate in candidates:
        model = next((m for m in candidate.models if set(m.split()) <= words), None)
        if model is None:
            continue
        siblings = [c for c in candidates if set(c.models) & set(candidate.models)]
        telling = {w for c in siblings for w in c.words}
        own = {*candidate.words, f"{candidate.memory_gib:g}gb"}
        rest = words - {w for m in candidate.models for w in m.split()} - own
        if not (rest & telling) and rest <= _NOISE:
            found.append(candidate.id)
    return found


def _words(name: str) -> set[str]:
    text = re.sub(r"[^a-z0-9]+", " ", name.lower()).strip()
    text = re.sub(r"\brtx(?=[a-z0-9])", "rtx ", text)
    text = re.sub(r"^\d+ ?x (?=\w)", "", text)
    text = re.sub(r"\b(\d+) ?(?:gib|gb|g)\b", r"\1gb", text)
    text = re.sub(r"\bsxm\d\b", "sxm", text)
    text = re.sub(r"\b(sm|gfx|cc) ?\d{2,4}\w?\b", "", text)  # an architecture, which tells no part
    return set(text.split())
