"""`profile attach --prometheus`: what goes together, and what is refused before anything is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from whybound.commands.recording import attach_command
from whybound.errors import UsageError

URL = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--prometheus URL --since 30m"),
        (("--url", URL, "--prometheus", URL), "exclude each other"),
        (("--url", URL, "--since", "5m"), "--since belongs to --prometheus"),
        (("--url", URL, "--match", "{}"), "--match belongs to --prometheus"),
        (("--prometheus", URL, "--load", "poisson:rate=1"), "--load measures a running server"),
        (("--prometheus", URL, "-d", "5s"), "-d measures a running server"),
        (("--prometheus", URL, "--target", "fast"), "fast"),
    ],
)
def test_what_does_not_go_together(
    arguments: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(attach_command, arguments, standalone_mode=False)
    assert isinstance(result.exception, UsageError), result.exception
    assert says in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_help_names_the_token() -> None:
    assert "PROMETHEUS_TOKEN" in CliRunner().invoke(attach_command, ["--help"]).output
