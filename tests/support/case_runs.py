"""Diagnose a case as `profile diagnose` does its files."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from case_files import log_kind, write_files
from case_scores import Scored, scored

import whybound
from whybound.analyzers.given import known_signals
from whybound.collector.importers.run import import_files


def judged(case: Mapping[str, Any]) -> Scored:
    """Write the files of a case, import them, diagnose, and score.

    A file that is not read is told among what was not used.
    """
    with tempfile.TemporaryDirectory(prefix="case-") as folder:
        paths, found = write_files(case, Path(folder))
        started = time.process_time()
        run = Path(folder) / "run"
        outcomes = import_files(paths, run, signals=known_signals())
        short = [Path(o.file) for o in outcomes if o.kind is None and o.file.endswith(".log")]
        if short and (kind := log_kind(found)):
            outcomes = [o for o in outcomes if o.kind is not None]
            outcomes += import_files(short, run, kind=kind, add=True)
        for outcome in outcomes:
            if outcome.refused:
                name = Path(outcome.file).name
                none = not outcome.rows and outcome.kind is not None and name.endswith(".log")
                why = "log lines without a meaning" if none else "a file not read"
                found.unmapped[f"{name}: {outcome.refused}"] = why
        diagnosis = whybound.diagnose(run)
        return scored(case, diagnosis, found, round(time.process_time() - started, 2))
