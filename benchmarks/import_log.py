"""How fast a vLLM log is imported, and in how much memory, beside `wc -l` on the same file.

    python benchmarks/import_log.py [--mb 200] [--stats-every 300] [--keep FILE]

Writes a log as a server under load does: an access line a request, a third of the requests logged in full, and
a line of statistics after every `--stats-every` requests. Imports it in a process of its own, and prints MB/s of
processor and of wall time, peak memory, and the ratio to `wc -l`.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ACCESS = '(APIServer pid=7) INFO:     10.2.{a}.{b}:{port} - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
REQUEST = (
    "(APIServer pid=7) INFO 11-29 {at} [logger.py:41] Received request chatcmpl-{id:032x}: prompt: "
    "'<|user|>\\nWhat is {x}?', params: SamplingParams(n=1, presence_penalty=0.0, temperature=0.7, top_p=1.0, "
    "max_tokens=512), prompt_token_ids: None, lora_request: None.\n"
)
STATISTICS = (
    "(APIServer pid=7) INFO 11-29 {at} [loggers.py:123] Engine 000: Avg prompt throughput: {p:.1f} tokens/s, "
    "Avg generation throughput: {g:.1f} tokens/s, Running: 64 reqs, Waiting: {w} reqs, "
    "GPU KV cache usage: {kv:.1f}%, Prefix cache hit rate: 17.1%\n"
)
BOOT = (
    "(APIServer pid=7) INFO 11-29 00:00:00 [utils.py:233] non-default args: "
    "{'model': 'm', 'max_num_seqs': 64}\n"
)

CHILD = """
import json, resource, sys, time
from pathlib import Path
from whybound.collector.importers.run import import_files
before = resource.getrusage(resource.RUSAGE_SELF)
wall = time.perf_counter()
outcomes = import_files([Path(sys.argv[1])], Path(sys.argv[2]))
wall = time.perf_counter() - wall
after = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({
    "wall_s": wall,
    "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    "peak_mb": after.ru_maxrss / 1024, "start_mb": before.ru_maxrss / 1024,
    "rows": outcomes[0].rows, "refused": outcomes[0].refused,
}))
"""


def write_log(path: Path, size_bytes: int, stats_every: int) -> None:
    """Write a log of about `size_bytes`."""
    draw = random.Random(1)
    written, second = 0, 0
    with path.open("w", encoding="utf-8") as file:
        file.write(BOOT)
        while written < size_bytes:
            second = (second + 10) % 86_400
            at = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
            block = []
            for i in range(stats_every):
                a, b, port = (
                    draw.randrange(256),
                    draw.randrange(256),
                    draw.randrange(30_000, 60_000),
                )
                block.append(ACCESS.format(a=a, b=b, port=port))
                if i % 3 == 0:
                    block.append(REQUEST.format(at=at, id=draw.getrandbits(128), x=draw.random()))
            figures = {"p": draw.random() * 1e4, "g": draw.random() * 1e4, "w": draw.randrange(30)}
            block.append(STATISTICS.format(at=at, kv=draw.random() * 100, **figures))
            text = "".join(block)
            file.write(text)
            written += len(text)


def main() -> None:
    """Measure and print."""
    import json

    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--mb", type=int, default=200, help="size of the log [200]")
    options.add_argument(
        "--stats-every", type=int, default=300, help="requests a line of statistics [300]"
    )
    options.add_argument("--keep", type=Path, help="write the log here and leave it")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = asked.keep or Path(folder) / "server.log"
        if not path.exists():
            write_log(path, asked.mb << 20, asked.stats_every)
        size_mb = path.stat().st_size / 1e6
        began = time.perf_counter()
        counted = subprocess.run(["wc", "-l", path], check=True, capture_output=True, text=True)
        wc_s = time.perf_counter() - began
        done = subprocess.run(
            [sys.executable, "-c", CHILD, path, Path(folder) / "run"],
            check=True,
            capture_output=True,
            text=True,
        )
    found = json.loads(done.stdout)
    lines, cpu, wall = counted.stdout.split()[0], found["cpu_s"], found["wall_s"]
    print(f"{size_mb:.0f} MB, {lines} lines; {found['rows']}; {found['refused'] or 'all read'}")
    print(f"import  {size_mb / cpu:7.0f} MB/s of processor time, {size_mb / wall:.0f} of wall time")
    print(
        f"memory  {found['peak_mb']:7.0f} MB at most, {found['start_mb']:.0f} of them before it began"
    )
    print(
        f"wc -l   {size_mb / wc_s:7.0f} MB/s of wall time; the import takes {wall / wc_s:.0f} times as long"
    )


if __name__ == "__main__":
    main()
