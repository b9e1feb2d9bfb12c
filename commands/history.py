"""`profile attach --prometheus`: what a run out of a Prometheus server's past is asked for with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from .options import SECONDS, default_run_dir

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..collector.history import HistoryPlan

_LIVE = (
    ("duration", "-d"), ("load_text", "--load"), ("load_url", "--load-url"), ("warmup", "--warmup"),
    ("seed", "--seed"), ("otlp", "--otlp"),
)  # fmt: skip
"""Options of a live measurement: parameter and flag."""

_PAST = ("since", "match", "step")


def history_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say what to read."""
    options = [
        click.option(
            "--prometheus",
            metavar="URL",
            help="Read the past out of this Prometheus server instead (bearer token: PROMETHEUS_TOKEN).",
        ),
        click.option("--since", type=SECONDS, help="How far back, e.g. 2h [30m]."),
        click.option("--match", metavar="MATCHERS", help="Which series, e.g. '{job=\"vllm\"}' [all]."),
        click.option(
            "--step", type=SECONDS, help="Between points where raw samples cannot be had [5s]."
        ),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def history_plan(
    options: dict[str, Any], urls: tuple[str, ...], say: Callable[[str], None]
) -> HistoryPlan | None:
    """What to read; None when a running server is to be measured.

    Raises:
        UsageError: options of both, or an address of neither.
    """
    past = {name: options.pop(name) for name in ("prometheus", *_PAST)}
    url = past.pop("prometheus")
    if url is None:
        given = [f"--{name}" for name in _PAST if past[name] is not None]
        if given:
            raise UsageError(f"{given[0]} belongs to --prometheus URL, which is not given")
        if not urls:
            raise UsageError(
                "attach to what? give --url http://host:port, or --prometheus URL --since 30m"
            )
        return None
    if urls:
        raise UsageError(
            "--url and --prometheus exclude each other: one watches a server, one reads its past"
        )
    for name, flag in _LIVE:
        if options.get(name):
            raise UsageError(f"{flag} measures a running server; it does not go with --prometheus")
    from ..analyzers.target_file import read_target
    from ..collector.history import HistoryPlan

    # what cannot be read is refused before anything is asked for
    target, guards = read_target(options["target"], options["guards"])
    return HistoryPlan(
        run_dir=options["output"] or default_run_dir(),
        url=url,
        since_s=past["since"] or 1800.0,
        match=past["match"],
        step_s=past["step"] or 5.0,
        force=options["force"],
        target=target,
        guards=guards,
        model=options["model"],
        say=say,
    )
