"""The command line: `profile` (and `whybound`, the same program). Commands load when they are called."""

from __future__ import annotations

import sys
import traceback
from importlib import import_module
from typing import Any

import click

from . import __version__
from .errors import WhyboundError

COMMANDS = {
    "run": ("recording", "Start a server, measure it under load, diagnose it."),
    "attach": ("recording", "Measure what already runs."),
    "load": ("loading", "Send an open-loop load to a server."),
    "import": ("importing", "Files into a run: logs, metrics, bench results, arguments, facts."),
    "diagnose": ("reading", "The verdict and the ranked levers of a run, or of loose files."),
    "report": ("reading", "The one page, or the text, of a run."),
    "estimate": ("estimating", "What a change will give, before the work."),
    "sql": ("reading", "Query a run's views in DuckDB."),
    "rules": ("catalogue", "Show, explain and test the rule table."),
    "levers": ("catalogue", "Show and explain the levers."),
    "check": ("checking", "Is this machine, or this run, fit for measuring?"),
    "demo": ("demo", "The whole loop on the emulated engine: no GPU, no download."),
}
"""Command → the module of `commands` that holds it, and its one-line help."""


class _Lazy(click.Group):
    """Loads a command's module only when it is called: `--help` stays as fast as click itself."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f".commands.{COMMANDS[cmd_name][0]}", __package__)
        command = getattr(module, f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "PROFILE"},
)
@click.version_option(__version__, "-V", "--version", prog_name="profile")
@click.option("--traceback", "show_traceback", is_flag=True, help="Show where an error came from.")
@click.pass_context
def cli(ctx: click.Context, show_traceback: bool) -> None:
    """Why is this LLM server slow, what to change first, and how much will it give?

    \b
    profile demo                                  see the whole loop, emulated
    profile run --load 'poisson:rate=4' -d 30s -- vllm serve MODEL
    profile attach --url http://127.0.0.1:8000 -d 60s
    profile diagnose RUN
    """  # noqa: D301 — \b is click's mark for text that is not to be wrapped
    ctx.obj = {"traceback": show_traceback}


def main(argv: list[str] | None = None) -> None:
    """Run the command line and exit: 0 finished, 1 could not, 2 usage, 130 after Ctrl-C."""
    sys.exit(run(argv))


def run(argv: list[str] | None = None) -> int:
    """As `main`, but returns the exit code."""
    shown = "--traceback" in (argv if argv is not None else sys.argv)
    try:
        result: Any = cli.main(args=argv, prog_name="profile", standalone_mode=False)
    except click.exceptions.Abort:
        return 130
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context else "profile"
        click.echo(f"{path}: {' '.join(error.format_message().split())} (see {path} -h)", err=True)
        return error.exit_code
    except WhyboundError as error:
        if shown:
            traceback.print_exc()
        click.echo(f"profile: {error}", err=True)
        return error.exit_code
    except BrokenPipeError:
        return 0
    return result if isinstance(result, int) else 0
