"""The four seams, held by goldens: what others build on does not change without saying so."""

import json
import os
from difflib import unified_diff
from pathlib import Path

import msgspec
import pytest

from whybound.analyzers.database import open_database
from whybound.analyzers.signals import signal_views, unit_of
from whybound.collector.schema import SCHEMA_VERSION, TABLES
from whybound.collector.store import create_run, open_run
from whybound.rules.model import DIAGNOSIS_SCHEMA_VERSION, PARAMS, Diagnosis

GOLDENS = Path(__file__).parent / "goldens"
AGAIN = "WHYBOUND_GOLDENS=write pytest tests/test_seams.py"


def tables(_tmp_path):
    """Every table with its columns in file order: type and unit."""
    return {
        "version": SCHEMA_VERSION,
        "tables": {
            t.name: {c.name: f"{c.type} [{c.unit}]" if c.unit else c.type for c in t.columns}
            for t in TABLES.values()
        },
    }


def signals(tmp_path):
    """Every signal that a view gives: unit (a text has none), level and view."""
    create_run(tmp_path / "run", force=False)
    con = open_database(open_run(tmp_path / "run"))
    found = {}
    for view, level in signal_views().items():
        for name, *_ in con.execute(f"SELECT * FROM {view}").description:
            if name != "n" and not name.startswith(("low_", "high_")):
                found[name] = f"{view}, level {level} [{unit_of(name)}]"
    return dict(sorted(found.items()))


def params(_tmp_path):
    """Every parameter of the cost model: unit, the parts of the budget that it governs, their law."""
    return {name: f"{', '.join(p.components)}; {p.law} [{p.unit}]" for name, p in PARAMS.items()}


def diagnosis(_tmp_path):
    """The JSON schema of the diagnosis, without its words."""
    return {
        "version": DIAGNOSIS_SCHEMA_VERSION,
        "schema": without_words(msgspec.json.schema(Diagnosis)),
    }


def without_words(node):
    if isinstance(node, dict):
        return {
            k: without_words(v)
            for k, v in node.items()
            if not (k == "description" and isinstance(v, str))
        }
    return [without_words(v) for v in node] if isinstance(node, list) else node


@pytest.mark.parametrize("seam", [tables, signals, params, diagnosis], ids=lambda f: f.__name__)
def test_seam(seam, tmp_path):
    path = GOLDENS / f"{seam.__name__}.json"
    text = json.dumps(seam(tmp_path), indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("WHYBOUND_GOLDENS") == "write":
        path.write_text(text, encoding="utf-8")
    golden = path.read_text(encoding="utf-8") if path.exists() else ""
    changes = [
        line
        for line in unified_diff(golden.splitlines(), text.splitlines(), lineterm="", n=0)
        if not line.startswith(("---", "+++", "@@"))
    ]
    if changes:
        pytest.fail(
            f"a seam changed: {seam.__name__}. If it is meant to, name the reason in the commit (and raise the"
            f" version where an old reader would misread it), and regenerate with\n    {AGAIN}\n"
            + "\n".join(changes),
            pytrace=False,
        )
