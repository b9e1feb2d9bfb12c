"""Every file of a corpus of real files: read, or left out with a reason, and within bounds.

The corpus is no part of the project: `WHYBOUND_CORPUS` names its folder, which holds a MANIFEST.tsv with the
columns `path` and `kind`. `WHYBOUND_ARTIFACTS` names a folder that takes the table of what became of each.
"""

from __future__ import annotations

import csv
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from whybound.collector.importers.run import Outcome, import_files
from whybound.collector.store import open_run

CORPUS = Path(os.environ.get("WHYBOUND_CORPUS", ""))
MANIFEST = CORPUS / "MANIFEST.tsv"
pytestmark = [
    pytest.mark.skipif(
        not MANIFEST.is_file(), reason="WHYBOUND_CORPUS names no folder with a MANIFEST.tsv"
    ),
    pytest.mark.slow,
]

READ = {"6-log": ("settings", "samples"), "4-prometheus-extracted": ("samples",)}
"""Kinds of which every file has to give rows, and of which tables at least one."""
TIMELINES = (
    "1-nsys-rep",
    "1-nsys-stats-csv-derived",
    "3-ncu-csv",
    "3-ncu-csv-derived",
    "3-ncu-rep",
)
MAX_SECONDS = 30.0
"""Processor seconds for one file; the largest are some megabytes."""


@pytest.fixture(scope="module")
def became(tmp_path_factory):
    """Path → (kind in the manifest, outcomes, processor seconds)."""
    folder = tmp_path_factory.mktemp("corpus")
    found = {}
    with MANIFEST.open(encoding="utf-8", newline="") as file:
        for i, row in enumerate(csv.DictReader(file, delimiter="\t")):
            path = CORPUS / row["path"]
            began = time.process_time()
            outcomes = import_files([path], folder / str(i))
            found[row["path"]] = (row["kind"], outcomes, time.process_time() - began)
            assert open_run(folder / str(i)).manifest["state"] == "finished"
    _write(found)
    return found


def _write(found) -> None:
    folder = os.environ.get("WHYBOUND_ARTIFACTS")
    if not folder:
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    with (Path(folder) / "corpus_import.tsv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, delimiter="\t")
        table.writerow(["file", "kind", "recognised", "rows", "outcome", "seconds"])
        for path, (kind, outcomes, seconds) in found.items():
            for o in outcomes[:20]:
                rows = " ".join(f"{t}={n}" for t, n in o.rows.items())
                inside = o.file.partition("!")[2]
                table.writerow(
                    [
                        f"{path}!{inside}" if inside else path,
                        kind,
                        o.kind or "",
                        rows,
                        o.refused or "read",
                        f"{seconds:.2f}",
                    ]
                )


def of(became, kind) -> list[tuple[str, Outcome]]:
    return [(path, outcomes[0]) for path, (k, outcomes, _) in became.items() if k == kind]


def test_every_file_is_read_or_left_out_with_one_line(became):
    assert len(became) > 100
    for path, (_, outcomes, _) in became.items():
        assert outcomes, path
        for o in outcomes:
            assert o.rows or o.refused, path
            assert "\n" not in (o.refused or ""), path
            assert not (o.refused or "").startswith("not read as"), (path, o.refused)


def test_no_file_takes_long(became):
    slow = {path: seconds for path, (_, _, seconds) in became.items() if seconds > MAX_SECONDS}
    assert slow == {}


@pytest.mark.parametrize("kind", READ)
def test_files_that_have_to_be_read(became, kind):
    assert of(became, kind)
    for path, o in of(became, kind):
        assert o.refused is None, (path, o.refused)
        assert any(o.rows.get(table) for table in READ[kind]), path


@pytest.mark.parametrize("kind", TIMELINES)
def test_timelines_are_recognised_and_refused_honestly(became, kind):
    assert of(became, kind)
    for path, o in of(became, kind):
        assert o.kind, path
        assert "not read yet" in (o.refused or ""), path


def test_most_of_the_corpus_is_recognised(became):
    named = Counter(bool(outcomes[0].kind) for _, outcomes, _ in became.values())
    assert named[True] >= 0.9 * len(became), named
