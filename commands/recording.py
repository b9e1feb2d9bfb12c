"""`profile run` and `profile attach`: record, diagnose, show."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from .history import history_options, history_plan
from .options import (
    FORMATS,
    GUARDS,
    HELP,
    SECONDS,
    TARGET,
    default_run_dir,
    progress_wanted,
    rendered,
    save,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..collector.history import HistoryPlan
    from ..collector.session import Plan, Recorded


def _common(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that `run` and `attach` share."""
    options = [
        click.option("-o", "--output", type=click.Path(path_type=Path), help="Run directory [whybound-N]."),
        click.option("--force", is_flag=True, help="Replace a run that is already there."),
        click.option("-d", "--duration", type=SECONDS, help="How long to measure, e.g. 90s."),
        click.option("--load", "load_text", metavar="SPEC", help="Send a load, as `profile load -h` says."),
        click.option("--load-url", metavar="URL", help="Send it there instead, e.g. to a gateway in front."),
        click.option("--warmup", type=SECONDS, help="Leave out the load's first seconds."),
        click.option("--seed", type=int, help="Seed of the load's arrivals and lengths."),
        TARGET,
        GUARDS,
        click.option("--model", help="Served model name [the first of /v1/models]."),
        click.option("--interval", type=SECONDS, default=1.0, show_default="1s", help="Between two scrapes."),
        click.option("--format", "form", type=FORMATS, default="text", show_default=True, help="How to show it."),
        click.option("--json", "as_json", is_flag=True, help="The same as --format json."),
        click.option("-q", "--quiet", is_flag=True, help="No progress."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@click.command("run", context_settings=HELP)
@_common
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Where the server listens [found by itself]."
)
@click.option(
    "--ready-timeout",
    type=SECONDS,
    default=600.0,
    show_default="10m",
    help="How long it may take to start.",
)
@click.option("--keep", is_flag=True, help="Leave the server running afterwards.")
@click.option(
    "--instrument",
    is_flag=True,
    help="Add the flags that make the server export a span for each request, and say which.",
)
@click.option(
    "--server-output",
    type=click.Choice(["file", "inherit"]),
    default="file",
    show_default=True,
    help="Where the server writes: RUN/server.log, or our standard error.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def run_command(command: tuple[str, ...], **options: Any) -> int:
    """Start a server, measure it under load, diagnose it.

    The server runs in its own process group and outlives a crash of ours; at the end it is stopped. Its
    command is not changed, except by --instrument. Exit code: the server's if it ended unasked.

    \b
    profile run -o R --load 'poisson:rate=4' -d 30s -- vllm serve Qwen/Qwen3-8B
    """  # noqa: D301
    return _record(options, command=command, urls=())


@click.command("attach", context_settings=HELP)
@_common
@click.option(
    "--url",
    "urls",
    multiple=True,
    help="Address of a server that runs, e.g. http://127.0.0.1:8000; may be repeated.",
)
@history_options
def attach_command(urls: tuple[str, ...], **options: Any) -> int:
    """Measure what already runs; sends no request of its own unless --load says so.

    \b
    profile attach --url http://127.0.0.1:8000 -d 60s
    profile attach --prometheus http://prometheus:9090 --since 30m --match '{job="vllm"}'
    """  # noqa: D301
    from ..collector.session import split_urls

    past = history_plan(options, urls, (lambda line: None) if options["quiet"] else _say)
    if past is not None:
        from ..collector.history import record_history

        return _judge(options, asyncio.run(_interruptible(record_history, past)))
    if options["duration"] is None and options["load_text"] is None:
        click.echo("recording until Ctrl-C; -d sets a duration", err=True)
    return _record(options, command=(), urls=split_urls(urls))


def _record(options: dict[str, Any], *, command: tuple[str, ...], urls: tuple[str, ...]) -> int:
    from ..collector.session import record

    plan = _plan(options, command, urls)
    recorded = asyncio.run(_interruptible(record, plan))
    _tell(plan, recorded)
    return _judge(options, recorded)


def _judge(options: dict[str, Any], recorded: Recorded) -> int:
    """Diagnose what was recorded, keep and show it; the exit code."""
    from ..analyzers.diagnose import diagnose  # only now: DuckDB's memory is no part of watching

    diagnosis = diagnose(recorded.run_dir)
    for problem in save(diagnosis, recorded.run_dir):
        click.echo(f"profile: {problem}", err=True)
    form = "json" if options["as_json"] else options["form"]
    click.echo(rendered(diagnosis, form))
    if not options["quiet"]:
        click.echo(f"page: {recorded.run_dir / 'report.html'}", err=True)
    if recorded.server_exit is not None:
        return recorded.server_exit
    if recorded.interrupted:
        return 130
    return 1 if recorded.error else 0


def _plan(options: dict[str, Any], command: tuple[str, ...], urls: tuple[str, ...]) -> Plan:
    from ..analyzers.target_file import read_target
    from ..collector.session import Plan

    # what cannot be read is refused before anything starts
    target, guards = read_target(options["target"], options["guards"])
    spec, text = _load_spec(options)
    quiet = options["quiet"]
    live = progress_wanted(quiet)
    return Plan(
        run_dir=options["output"] or default_run_dir(),
        force=options["force"],
        interval_s=options["interval"],
        duration_s=options["duration"],
        load=spec,
        load_text=text,
        load_url=options["load_url"],
        target=target,
        guards=guards,
        model=options["model"],
        command=command,
        urls=urls,
        port=options.get("port"),
        ready_s=options.get("ready_timeout") or 600.0,
        keep=bool(options.get("keep")),
        show_output=options.get("server_output") == "inherit",
        instrument=bool(options.get("instrument")),
        say=(lambda line: None) if quiet else _say,
        progress=_live if live else None,
    )


def _load_spec(options: dict[str, Any]) -> tuple[Any, str | None]:
    """The load with -d, --warmup and --seed worked into it."""
    text = options["load_text"]
    if text is None:
        if any(options.get(o) is not None for o in ("warmup", "seed", "load_url")):
            raise UsageError(
                "--warmup, --seed and --load-url belong to a load: give --load as well"
            )
        return None, None
    from ..collector.load.spec import parse_load

    for key, value in (("d", options["duration"]), ("warmup", options["warmup"])):
        if value is not None and f"{key}=" not in text.replace("seed=", ""):
            text += f"{',' if ':' in text else ':'}{key}={value:g}s"
    if options["seed"] is not None:
        text += f",seed={options['seed']}"
    return parse_load(text), text


async def _interruptible(record: Callable[..., Any], plan: Plan | HistoryPlan) -> Recorded:
    """Run with the first Ctrl-C (or SIGTERM) as a request to end and keep; the second one kills."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):

        def asked(number: signal.Signals = number) -> None:
            stop.set()
            loop.remove_signal_handler(number)
            click.echo("stopping; what was measured is kept", err=True)

        loop.add_signal_handler(number, asked)
    recorded: Recorded = await record(plan, stop)
    return recorded


def _say(line: str) -> None:
    click.echo(line[:200], err=True)


def _live(state: dict[str, Any]) -> None:
    total = f"/{state['total_s']:.0f}" if state.get("total_s") else ""
    line = (
        f"{state['elapsed_s']:.0f}{total} s · sent {state['sent']} · done {state['ok']} ·"
        f" in flight {state['in_flight']} · failed {state['failed']}"
    )
    sys.stderr.write(f"\r\x1b[K{line}")
    sys.stderr.flush()


def _tell(plan: Plan, recorded: Recorded) -> None:
    if plan.progress is not None:
        sys.stderr.write("\r\x1b[K")
    if recorded.error:
        click.echo(f"profile: the load ended early: {recorded.error}", err=True)
    if recorded.server_exit is not None:
        log = recorded.run_dir / "server.log"
        click.echo(
            f"profile: the server exited by itself with code {recorded.server_exit};"
            f" what was measured until then is kept (see {log})",
            err=True,
        )
