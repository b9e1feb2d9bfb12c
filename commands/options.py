"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..rules.model import Diagnosis

HELP = {"help_option_names": ["-h", "--help"]}
"""Context settings of every command, so that `-h` works however it is called."""

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "": 1.0}


class Seconds(click.ParamType[float]):
    """A duration such as `90s`, `1.5m`, `2h`; a bare number is seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds, above 0."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", str(value))
        if match is None or match[2] not in _UNITS or float(match[1]) <= 0:
            self.fail(f"{value!r} is no duration; write e.g. 90s, 2m or 500ms", param, ctx)
        return float(match[1]) * _UNITS[match[2]]


class GuardText(click.ParamType[str]):
    """A guard as written; in an environment variable several are separated by semicolons."""

    name = "text"
    envvar_list_splitter = ";"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text itself: it is read together with the target."""
        return str(value)


SECONDS = Seconds()

TARGET = click.option(
    "--target",
    metavar="TEXT|FILE",
    help="What faster means, e.g. 'p95 itl < 30ms', or a YAML file of target, guards and load.",
)
GUARDS = click.option(
    "--guard",
    "guards",
    type=GuardText(),
    multiple=True,
    metavar="TEXT",
    help="What must still hold, e.g. 'p95 ttft < 500ms' or 'mmlu drop < 0.5'; may be repeated.",
)

FORMATS = click.Choice(["text", "json", "html"])


def default_run_dir() -> Path:
    """`whybound-<n>`, the first number that is free here."""
    n = 1
    while Path(f"whybound-{n}").exists():
        n += 1
    return Path(f"whybound-{n}")


def color_wanted() -> bool:
    """Colours only on a terminal, and never with NO_COLOR."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def progress_wanted(quiet: bool) -> bool:
    """Progress only on a terminal, and never with -q."""
    return sys.stderr.isatty() and not quiet


def rendered(diagnosis: Diagnosis, form: str) -> str:
    """The diagnosis as text, json or html."""
    if form == "json":
        from ..rules.model import to_json

        return to_json(diagnosis)
    if form == "html":
        from ..reports.page import render as page

        return page(diagnosis)
    from ..reports.text import render as text

    encoding = (sys.stdout.encoding or "ascii").lower()
    return text(
        diagnosis,
        width=None if sys.stdout.isatty() else 100,
        color=color_wanted(),
        ascii_only="utf" not in encoding,
    )


def save(diagnosis: Diagnosis, run_dir: Path) -> list[str]:
    """Write diagnosis.json and report.html into the run; a folder that cannot be written is said, not raised."""
    from ..reports.page import render
    from ..rules.model import to_json

    problems = []
    for name, content in (
        ("diagnosis.json", to_json(diagnosis)),
        ("report.html", render(diagnosis)),
    ):
        try:
            (run_dir / name).write_text(content, encoding="utf-8")
        except OSError as error:
            problems.append(f"{run_dir / name} was not written: {error.strerror}")
    return problems
