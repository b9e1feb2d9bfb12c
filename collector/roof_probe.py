"""What this machine reaches: bandwidth, FLOP/s, the cost of a launch. A script for any Python with torch.

It stands alone, because torch often lives only in the server's environment: it imports nothing but
torch and the standard library, and prints one JSON object as the last line of its output. Every
figure is the best of several tries; what could not be measured is absent and named in
`not_measured`. A roof is what one library reached here: an engine may do better, and where one does,
this is no roof for it.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

CPU_FP32_S, CPU_DTYPE_S = 3.0, 1.5
"""Seconds a dtype on a CPU; what it has no arithmetic for is a hundred times slower."""
CUDA_DTYPE_S = 1.5
TRY_S = 0.35
BUDGET_S = 20.0
"""After these no further dtype is begun."""
SLOW_S = 0.8
"""A product that would take longer is left out."""

CPU_SHAPES = ((512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (256, 2048, 8192))
CUDA_SHAPES = ((4096, 4096, 4096), (8192, 8192, 8192), (4096, 8192, 16384), (16384, 8192, 8192))
"""Rows, inner, columns: multiples of 16, which int8 and fp8 kernels ask for."""

ALL_REDUCE_BYTES = 64 * 1024
"""A decode step's message: a few tokens of a large model."""

Clock = Callable[[Callable[[], Any]], float]


def measure(torch: Any) -> dict[str, Any]:
    """All roofs of the first GPU, or of the CPU's usable cores; SI units."""
    began, busy = time.perf_counter(), _busy_s()
    cuda = torch.cuda.is_available()
    device = "cuda" if cuda else "cpu"
    clock = _cuda_clock(torch) if cuda else _wall_clock
    missing: dict[str, str] = {}
    found: dict[str, Any] = {
        "version": 1,
        "torch": str(torch.__version__),
        "kind": ("rocm" if torch.version.hip else "cuda") if cuda else "cpu",
        "device_name": torch.cuda.get_device_name(0) if cuda else cpu_name(),
        "devices_count": torch.cuda.device_count() if cuda else 1,
        "cores_count": len(os.sched_getaffinity(0)),
        "threads_count": torch.get_num_threads(),
        "measured_ns": time.time_ns(),
        **_bandwidth(torch, device, clock),
    }
    found["flops"], found["flops_from"] = {}, {}
    for dtype in ("fp32", "tf32", "bf16", "fp16", "fp8", "int8"):
        if not cuda and dtype in ("tf32", "fp8"):
            missing[f"{dtype} FLOP/s"] = "not on a CPU"
            continue
        if time.perf_counter() - began > BUDGET_S:
            missing[f"{dtype} FLOP/s"] = "no time left"
            continue
        try:
            rate, shape = _flops(torch, dtype, device, clock)
        except Exception as error:
            missing[f"{dtype} FLOP/s"] = " ".join(str(error).split())[:120] or type(error).__name__
        else:
            found["flops"][dtype], found["flops_from"][dtype] = rate, shape
    found.update(_launches(torch, device))
    if cuda and torch.cuda.device_count() > 1:
        try:
            found["all_reduce_s"], found["all_reduce_bytes"] = _all_reduce(torch), ALL_REDUCE_BYTES
        except Exception as error:
            missing["all-reduce"] = " ".join(str(error).split())[:120] or type(error).__name__
    else:
        missing["all-reduce"] = "needs two GPUs"
    found["not_measured"] = missing
    took_s = time.perf_counter() - began
    found["took_s"] = round(took_s, 2)
    if busy is not None and (after := _busy_s()) is not None:
        found["others_cores"] = round(max(after - busy, 0.0) / took_s, 2)
    return found


def cpu_name() -> str:
    """The processor as /proc/cpuinfo names it; the architecture where it names none."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, _, value = line.partition(":")
                if key.strip() == "model name" and value.strip():
                    return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "unknown CPU"


def _busy_s() -> float | None:
    """CPU seconds that other programs of this machine used since it started; None where none are told."""
    try:
        with open("/proc/stat", encoding="ascii") as lines:
            ticks = [int(n) for n in lines.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    idle = ticks[3] + ticks[4]
    per_s = os.sysconf("SC_CLK_TCK")
    return (sum(ticks) - idle) / per_s - time.process_time()


def _wall_clock(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _cuda_clock(torch: Any) -> Clock:
    def clock(work: Callable[[], Any]) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    return clock


def _best(work: Callable[[], Any], clock: Clock, for_s: float = TRY_S) -> float:
    """Seconds of the fastest try of several within `for_s`, after one that counts for nothing."""
    clock(work)
    until = time.perf_counter() + for_s
    best = clock(work)
    while time.perf_counter() < until:
        best = min(best, clock(work))
    return best


def _bandwidth(torch: Any, device: str, clock: Clock) -> dict[str, float]:
    """Bytes a second, read (a sum, a matrix times a vector) and copied (read and written)."""
    size = 256 << 20
    if device == "cuda":
        size = max(size, min(4 << 30, torch.cuda.mem_get_info()[0] // 4))
    width = 8192
    rows = torch.ones(size // 4 // width, width, device=device)
    column, other = torch.ones(width, device=device), torch.empty_like(rows)
    read_bytes = float(rows.numel() * 4)
    works = {"sum": rows.sum, "mv": lambda: torch.mv(rows, column)}

    def read() -> float:
        return read_bytes / min(_best(work, clock, 2 * TRY_S) for work in works.values())

    found = {
        "read_bytes_per_s": read(),
        "copy_bytes_per_s": 2 * read_bytes / _best(lambda: other.copy_(rows), clock, 2 * TRY_S),
    }
    if device == "cpu":
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        found["read_1_core_bytes_per_s"] = read()
        torch.set_num_threads(threads)
        # All cores read at least what one reads; less only says that another program ran meanwhile.
        found["read_bytes_per_s"] = max(found["read_bytes_per_s"], found["read_1_core_bytes_per_s"])
    return found


def _flops(torch: Any, dtype: str, device: str, clock: Clock) -> tuple[float, str]:
    """The best FLOP/s of several shapes and ways to multiply, and which it was."""
    shapes, for_s = (CUDA_SHAPES, CUDA_DTYPE_S) if device == "cuda" else (CPU_SHAPES, CPU_DTYPE_S)
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    best, best_from, error = 0.0, "", None
    until = time.perf_counter() + for_s
    for shape in shapes:
        flops = 2.0 * shape[0] * shape[1] * shape[2]
        if best and (flops / best > SLOW_S or time.perf_counter() > until):
            continue
        for name, work in _products(torch, dtype, device, shape):
            try:
                rate = flops / _best(work, clock)
            except Exception as failure:
                error = failure
                continue
            if rate > best:
                best, best_from = rate, f"{name} {'x'.join(map(str, shape))}"
    if not best:
        raise error or RuntimeError("no way to multiply it")
    return best, best_from


def _products(
    torch: Any, dtype: str, device: str, shape: tuple[int, int, int]
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Ways to multiply rows × inner by inner × columns in `dtype`, the weights as a layer holds them."""
    rows, inner, columns = shape
    if dtype == "int8":
        a, w = (
            torch.randint(-8, 8, (n, inner), dtype=torch.int8, device=device)
            for n in (rows, columns)
        )
        yield "int_mm", lambda: torch._int_mm(a, w.t())
        return
    a, w = (torch.randn(n, inner, device=device) for n in (rows, columns))
    if dtype == "fp8":
        a, w = a.to(torch.float8_e4m3fn), w.to(torch.float8_e4m3fn)
        one = torch.ones((), device=device)
        yield (
            "scaled_mm",
            lambda: torch._scaled_mm(a, w.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16),
        )
        return
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(dtype, torch.float32)
    a, w = a.to(kind), w.to(kind)
    b = w.t().contiguous()
    yield "matmul", lambda: a @ b
    yield "linear", lambda: torch.nn.functional.linear(a, w)
    if device == "cpu":
        yield from _packed(torch, a, w)


def _packed(torch: Any, a: Any, w: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Products with weights reordered once, as engines do; a plain one reorders at every call."""
    ways: dict[str, Callable[[], Callable[[], Any]]] = {
        "oneDNN packed": lambda: partial(
            torch.ops.mkldnn._linear_pointwise, a,
            torch.ops.mkldnn._reorder_linear_weight(w, a.shape[0]), None, "none", [], "",
        ),
        "MKL packed": lambda: partial(
            torch.ops.mkl._mkl_linear, a,
            torch.ops.mkl._mkl_reorder_linear_weight(w, a.shape[0]), w, None, a.shape[0],
        ),
    }  # fmt: skip
    ready: dict[str, Callable[[], Any]] = {}
    for name, way in ways.items():
        # Private operators of inductor's: absent in some builds, for some dtypes, on some processors.
        with suppress(Exception):
            work = way()
            work()
            ready[name] = work
    yield from ready.items()


def _launches(torch: Any, device: str) -> dict[str, float]:
    """Seconds of an operation on one number: the host's cost of an eager call, and in a graph."""
    one, calls = torch.zeros(1, device=device), 1000

    def eager() -> None:
        for _ in range(calls):
            one.add_(1)

    sync = torch.cuda.synchronize if device == "cuda" else lambda: None

    def issue() -> float:
        sync()
        return _wall_clock(eager) / calls

    issue()
    found = {"launch_s": min(issue() for _ in range(10))}
    if device == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            eager()
        found["graph_launch_s"] = _best(graph.replay, _cuda_clock(torch)) / calls
    return found


def _all_reduce(torch: Any) -> float:
    """Seconds of an all-reduce of `ALL_REDUCE_BYTES` over all GPUs, the median of the slowest rank."""
    socket = importlib.import_module("socket")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    importlib.import_module("torch.multiprocessing")
    results = torch.multiprocessing.get_context("spawn").SimpleQueue()
    count = torch.cuda.device_count()
    torch.multiprocessing.spawn(_rank, args=(count, port, results), nprocs=count)
    return max(float(results.get()) for _ in range(count))


def _rank(rank: int, count: int, port: int, results: Any) -> None:
    torch = importlib.import_module("torch")
    distributed = importlib.import_module("torch.distributed")
    torch.cuda.set_device(rank)
    address = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("nccl", init_method=address, rank=rank, world_size=count)
    values = torch.zeros(ALL_REDUCE_BYTES // 2, dtype=torch.bfloat16, device="cuda")
    clock = _cuda_clock(torch)
    times = sorted(clock(lambda: distributed.all_reduce(values)) for _ in range(220))[:200]
    results.put(times[len(times) // 2])
    distributed.destroy_process_group()


def main() -> None:
    """Measure and print; exit 3 without torch."""
    here = os.path.dirname(os.path.abspath(__file__))
    # A script's own folder comes first on the path: its files must not hide modules of torch's.
    sys.path[:] = [p for p in sys.path if os.path.abspath(p or ".") != here]
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        print(f"no torch in {sys.executable}: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(3)
    with torch.no_grad():
        print(json.dumps(measure(torch)), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
