"""`profile load`: the load generator alone."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import click
import msgspec

from .options import HELP, SECONDS, progress_wanted


@click.command("load", context_settings=HELP)
@click.argument("url")
@click.option(
    "--load", "text", required=True, metavar="SPEC", help="e.g. 'poisson:rate=4,in=64,out=64'."
)
@click.option("-d", "--duration", type=SECONDS, help="How long, e.g. 30s; or d= in SPEC.")
@click.option("--warmup", type=SECONDS, help="Left out of the statistics; or warmup= in SPEC.")
@click.option("--seed", type=int, help="Of arrivals and lengths; or seed= in SPEC.")
@click.option("--model", help="Served model name [the first of /v1/models].")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Keep the requests in a run directory."
)
@click.option("--force", is_flag=True, help="Replace a run that is already there.")
@click.option("--json", "as_json", is_flag=True, help="The summary as JSON.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def load_command(url: str, **options: Any) -> int:
    """Send an open-loop (or closed-loop) load to an OpenAI-compatible server.

    \b
    SPEC is PROCESS:key=value,…
      poisson:rate=4        exponential gaps        gamma:rate=4,cv=2    bursts
      constant:rate=4       even gaps               closed:concurrency=16
      file:arrivals.jsonl   replay recorded arrivals
      in=64  in=uniform(32:128)  in=lognormal(500:1.2)  out=64
      mix=0.8*32/32+0.2*1000/16   exact shares of input/output classes
      n=200  d=30s  warmup=5s  seed=1  api=chat  prefix=256  prompts=FILE
      slo=ttft:0.5;itl:0.05       goodput under these limits, in seconds

    Latency counts from the intended send time, so a slow server cannot hide its queue.
    """  # noqa: D301
    from .recording import _live, _load_spec

    spec, _ = _load_spec({**options, "load_text": options["text"]})
    progress = _live if progress_wanted(options["quiet"]) else None
    summary = asyncio.run(_send(url, spec, options, progress))
    data = msgspec.to_builtins(summary)
    if options["as_json"]:
        click.echo(msgspec.json.format(msgspec.json.encode(data)).decode())
    else:
        for key, value in data.items():
            click.echo(f"{key:<22} {value}")
    return 0 if data.get("ok") else 1


async def _send(url: str, spec: Any, options: dict[str, Any], progress: Any) -> Any:
    from ..collector.load.run import run_load
    from ..collector.session import node_name
    from ..collector.store import RunWriter, create_run

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    common: dict[str, Any] = {
        "url": url, "model": options["model"], "node": node_name(), "stop": stop, "on_progress": progress,
    }  # fmt: skip
    if options["output"] is None:
        return await run_load(spec, run_id="load", sink=lambda table, rows: None, **common)
    create_run(options["output"], force=options["force"])
    with RunWriter(options["output"], node_name()) as writer:
        return await run_load(spec, run_id=options["output"].name, sink=writer.append, **common)
