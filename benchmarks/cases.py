"""Diagnose public reports of slow servers from what the person had before the cure, and score the class.

WHYBOUND_CASES=FOLDER python benchmarks/cases.py [--only ID] [--json]

The folder holds one YAML file a report; without it nothing runs. What was measured after the cure, on a
healthy system, or filled in, is not fed. Of a reference that was there before any cure (the direct path, one
GPU, a request alone, another load generator, other weights) only the ratio to it is.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))

from case_files import cases_folder, read_cases  # type: ignore[import-not-found]
from case_runs import judged  # type: ignore[import-not-found]
from case_scores import as_json, table_text  # type: ignore[import-not-found]


def main() -> int:
    """Judge the cases and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", metavar="ID", help="cases whose id begins with this")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    folder = cases_folder()
    if folder is None:
        print(
            "no cases: WHYBOUND_CASES names no folder of them, nor are there any beside WHYBOUND_CORPUS",
            file=sys.stderr,
        )
        return 1
    cases = [c for c in read_cases(folder) if c["id"].startswith(args.only or "")]
    if not cases:
        print(f"no case in {folder} begins with {args.only}", file=sys.stderr)
        return 1
    results = [judged(case) for case in cases]
    print(json.dumps(as_json(results), indent=1) if args.json else table_text(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
