"""How GPUs are joined, and what the joints carry: `nvidia-smi topo -m`, nccl-tests, NCCL's inspector."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import combinations

from ...errors import WhyboundError
from .fact_sheet import FactSheet
from .gpu_rows import GpuRows, plain
from .importer import Importer, Sample, Sink, Source
from .json_lines import json_records

# ---------------------------------------------------------------- topo -m

_LINK = re.compile(r"^(NV\d+|PIX|PXB|PHB|NODE|SYS|C2C|PSB|SOC)$")
_TOPO_ROW = re.compile(r"^\s*GPU(\d+)\s+(.*)$")


def _topo(sample: Sample) -> float:
    text = plain(sample.text)
    rows = [
        line
        for line in text.splitlines()
        if _TOPO_ROW.match(line) and re.search(r"\sX\s", line + " ")
    ]
    head = re.search(r"^\s*GPU0\b.*(CPU Affinity|NUMA)", text, re.MULTILINE)
    return 0.9 if rows and head else 0.0


def read_topo(source: Source, sink: Sink) -> None:
    """The link of each pair of GPUs, as settings `gpu_link_<a>_<b>` (a below b).

    Raises:
        WhyboundError: there is no pair: one GPU alone has no link.
    """
    rows = GpuRows(sink)
    links: dict[int, list[str]] = {}
    for line in map(plain, source.lines()):
        match = _TOPO_ROW.match(line)
        words = match[2].split() if match else []
        if match and "X" in words:
            links[int(match[1])] = words
    gpus = sorted(links)
    if gpus != list(range(len(gpus))):
        raise WhyboundError(f"{source.path.name}: the rows of some GPUs are missing")
    for a, b in combinations(gpus, 2):
        told = links[a][b] if b < len(links[a]) else ""
        if not _LINK.match(told):
            raise WhyboundError(
                f"{source.path.name}: GPU{a} to GPU{b} is {told or 'missing'}, no link that is known"
            )
        rows.setting(f"gpu_link_{a}_{b}", told, "nvidia-smi topo -m")
    if gpus:
        rows.setting("gpu_count", str(len(gpus)), "nvidia-smi topo -m")
    if rows.close() == 0:
        raise WhyboundError(f"{source.path.name}: there is no GPU in it")
    if len(gpus) == 1:
        sink.note(f"{source.path.name}: one GPU: there are no links")


# ---------------------------------------------------------------- nccl-tests

_STARTING = re.compile(r"^#\s*Collective test starting:\s*(\w+)")
_COMMAND = re.compile(
    r"\b((?:all_reduce|all_gather|reduce_scatter|broadcast|reduce|alltoall|sendrecv|scatter|gather|hypercube)_perf)\b"
)
_RANK = re.compile(
    r"^#\s+Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+ on\s+(\S+)\s+device\s+\d+\s+\[\S+\]\s+(.+?)\s*$"
)
_RESULT = re.compile(r"^\s*\d+\s+\d+\s+\w+\s")
_NCCL = re.compile(r"^#.*\b(algbw|busbw)\b", re.MULTILINE)


@dataclass
class _Test:
    """One collective's section: (bytes, seconds, bus bandwidth in bytes a second) by size."""

    name: str
    ranks: int = 0
    nodes: set[str] = field(default_factory=set)
    points: list[tuple[int, float, float]] = field(default_factory=list)
    wrong: int = 0


def _nccl_tests(sample: Sample) -> float:
    if _NCCL.search(sample.text):
        return 0.9
    return 0.7 if _STARTING.search(sample.text) or "# nccl-tests version" in sample.text else 0.0


def read_nccl_tests(source: Source, sink: Sink) -> None:
    """Facts a collective: `nccl_busbw_per_s` at the largest size, `nccl_latency_s` of the smallest,
    `nccl_ranks_count` and `nccl_nodes_count`, each in the scope `segment=<collective>`.

    Raises:
        WhyboundError: it ended before any collective had a result.
    """  # noqa: D205 — one sentence with its list
    rows, sheet = GpuRows(sink), FactSheet(source, sink, "nccl-tests")
    tests: list[_Test] = []
    ahead = ""
    for line in source.lines():
        starting, rank = _STARTING.match(line), _RANK.match(line)
        command = None if line.startswith("#") else _COMMAND.search(line)
        if command:
            ahead = command[1]
        if starting or (not tests and (rank or _RESULT.match(line))):
            tests.append(_Test(starting[1] if starting else ahead or "collective"))
        if rank:
            tests[-1].ranks += 1
            tests[-1].nodes.add(rank[2])
            rows.setting("gpu_name", rank[3], "nccl-tests")
        elif _RESULT.match(line) and tests:
            _point(tests[-1], line.split())
    for test in tests:
        if not test.points:
            sink.note(f"{source.path.name}: {test.name} ended before its first result")
            continue
        scope = f"segment={test.name.removesuffix('_perf')}"
        largest, smallest = max(test.points), min(test.points)
        sheet.add("nccl_busbw_per_s", largest[2], scope=scope, n=len(test.points))
        sheet.add("nccl_latency_s", smallest[1], scope=scope, n=1)
        sheet.add("nccl_latency_message_bytes", smallest[0], scope=scope, n=1)
        if test.ranks:
            sheet.add("nccl_ranks_count", test.ranks, scope=scope)
            sheet.add("nccl_nodes_count", len(test.nodes), scope=scope)
        if test.wrong:
            sink.note(
                f"{source.path.name}: {test.name} had {test.wrong} wrong values: a link or a driver is faulty"
            )
    rows.close()
    if sheet.close() == 0:
        raise WhyboundError(f"{source.path.name}: the test ended before its first result")


def _point(test: _Test, words: list[str]) -> None:
    """A line of results: size, count, type, [redop, root,] time, algbw, busbw, #wrong, the same in place."""
    # From the right: the two halves have four columns each, whatever stands before them.
    times = words[-8:] if len(words) >= 11 else words[-4:]
    try:
        size, us, busbw = int(words[0]), float(times[0]), float(times[2])
    except (ValueError, IndexError):
        return
    if us > 0:
        test.points.append((size, us * 1e-6, busbw * 1e9))
    test.wrong += sum(int(w) for w in (times[3], times[-1]) if w.isdigit())


# ---------------------------------------------------------------- NCCL's inspector


def _inspector(sample: Sample) -> float:
    text = sample.text.lstrip()
    return (
        0.9
        if text.startswith("{") and '"coll_perf"' in text and '"coll_busbw_gbs"' in text
        else 0.0
    )


def read_inspector(source: Source, sink: Sink) -> None:
    """Facts a collective: the mean of its bus bandwidth over calls, weighted by bytes, and their number.

    Raises:
        WhyboundError: no record tells a collective's bandwidth.
    """
    sheet = FactSheet(source, sink, "nccl-inspector")
    totals: dict[str, tuple[float, float, int]] = {}
    for record in json_records(source, sink):
        call = record.get("coll_perf")
        if not isinstance(call, dict):
            continue
        size, busbw = call.get("coll_msg_size_bytes"), call.get("coll_busbw_gbs")
        if not isinstance(size, (int, float)) or not isinstance(busbw, (int, float)) or busbw <= 0:
            continue
        name = str(call.get("coll", "collective"))
        moved, seconds, n = totals.get(name, (0.0, 0.0, 0))
        totals[name] = (moved + size, seconds + size / (busbw * 1e9), n + 1)
    for name, (moved, seconds, n) in sorted(totals.items()):
        if seconds > 0:
            sheet.add("nccl_busbw_per_s", moved / seconds, scope=f"segment={name}", n=n)
    if sheet.close() == 0:
        raise WhyboundError(f"{source.path.name}: no record tells the bandwidth of a collective")


IMPORTERS = (
    Importer("nvidia-smi-topo", "`nvidia-smi topo -m`", _topo, read_topo),
    Importer(
        "nccl-tests", "nccl-tests (all_reduce_perf and its like)", _nccl_tests, read_nccl_tests
    ),
    Importer("nccl-inspector", "logs of NCCL's inspector plugin", _inspector, read_inspector),
)
