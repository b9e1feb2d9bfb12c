"""Which kind a file is: by its content, the surest importer wins."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from ...errors import UsageError
from .importer import Importer, Sample

SURE_ENOUGH = 0.5


def recognise(sample: Sample, importers: Sequence[Importer]) -> Importer | None:
    """The importer that is surest of a sample, the first of equals; None when none is sure enough."""
    best, most = None, 0.0
    for importer in importers:
        sure = importer.recognise(sample)
        if sure >= SURE_ENOUGH and sure > most:
            best, most = importer, sure
    return best


def by_kind(kind: str, importers: Sequence[Importer]) -> Importer:
    """The importer of a kind, as `--kind` names it.

    Raises:
        UsageError: there is none; the message names what is like it, or all.
    """
    kinds = {importer.kind: importer for importer in importers}
    if kind in kinds:
        return kinds[kind]
    close = difflib.get_close_matches(kind, kinds, n=3)
    known = (
        f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(sorted(kinds))}"
    )
    raise UsageError(f"no kind {kind!r}; {known}")
