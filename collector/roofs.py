"""Roofs measured on this machine: runs the probe in a Python that has torch, and remembers the result."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import WhyboundError
from .manifest import make_folder, write_durably

PROBE = Path(__file__).with_name("roof_probe.py")
TIMEOUT_S = 180.0
VERSION = 1

DISTURBED_SHARE = 0.1
"""Of the machine's cores: what other programs may use before a CPU's roofs count as disturbed."""

Roofs = dict[str, Any]
"""What the probe prints: see `roof_probe.measure`."""


def default_python() -> str:
    """This interpreter, if it has torch.

    Raises:
        WhyboundError: it has none; says which one to name.
    """
    if importlib.util.find_spec("torch") is None:
        raise WhyboundError(
            f"{sys.executable} has no torch, which measures the roofs: name the server's Python,"
            " --python /path/to/the/server's/venv/bin/python"
        )
    return sys.executable


def measure_roofs(python: str, *, timeout_s: float = TIMEOUT_S, probe: Path | None = None) -> Roofs:
    """Run the probe.

    Args:
        python: an interpreter with torch.
        timeout_s: seconds after which it is ended.
        probe: the script, for tests.

    Returns:
        The roofs, every figure of them finite and above 0.

    Raises:
        WhyboundError: the interpreter cannot be started, has no torch, took too long, or what it
            printed are no roofs.
    """
    try:
        done = subprocess.run(  # noqa: PLW1510 — the exit code is read below
            [python, str(probe or PROBE)], capture_output=True, text=True, timeout=timeout_s,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise WhyboundError(
            f"measuring with {python} took more than {timeout_s:g} s: stop what else runs on this"
            " machine and try again"
        ) from None
    except OSError as error:
        raise WhyboundError(
            f"{python} cannot be started ({error.strerror}): give --python a Python that has torch"
        ) from None
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise WhyboundError(
            f"measuring with {python} failed ({said[0][:200]}): give --python a Python whose torch works"
        )
    return _checked(done.stdout, python)


def _checked(output: str, python: str) -> Roofs:
    try:
        found = json.loads((output.strip().splitlines() or [""])[-1])
    except json.JSONDecodeError:
        found = None
    problem = _problem(found)
    if problem:
        raise WhyboundError(
            f"{python} printed no roofs ({problem}): give --python a Python whose torch works"
        )
    assert isinstance(found, dict)
    return found


def _problem(found: Any) -> str | None:
    if not isinstance(found, dict) or not isinstance(found.get("device_name"), str):
        return "no JSON object with a device_name on its last line"
    if found.get("version") != VERSION:
        return f"version {found.get('version')!r} is not {VERSION}"
    flops = found.get("flops")
    if not isinstance(flops, dict) or not flops:
        return "no flops"
    figures = {k: v for k, v in found.items() if k.endswith(("_per_s", "launch_s", "reduce_s"))}
    for need in ("read_bytes_per_s", "launch_s"):
        if need not in figures:
            return f"no {need}"
    for key, value in {**figures, **flops}.items():
        if type(value) not in (int, float) or not math.isfinite(value) or value <= 0:
            return f"{key} is {value!r}"
    return None


def disturbed(roofs: Roofs) -> str | None:
    """Why these roofs are too low to keep: other programs took the cores meanwhile; None when sound."""
    others, cores = roofs.get("others_cores"), os.cpu_count() or 1
    if roofs.get("kind") == "cpu" and others is not None and others > DISTURBED_SHARE * cores:
        return f"other programs used {others:.1f} of {cores} cores meanwhile"
    return None


# ---------------------------------------------------------------- the cache


def cache_file() -> Path:
    """`whybound/roofs.json` in $XDG_CACHE_HOME, or in ~/.cache."""
    home = os.environ.get("XDG_CACHE_HOME", "")
    # The specification says that a relative path there is to be ignored.
    root = Path(home) if home and Path(home).is_absolute() else Path.home() / ".cache"
    return root / "whybound" / "roofs.json"


def save_roofs(roofs: Roofs) -> Path:
    """Remember roofs under this host's and their device's name; the file is replaced as a whole.

    Raises:
        WhyboundError: it cannot be written.
    """
    path = cache_file()
    machines = _machines()
    machines.setdefault(socket.gethostname(), {})[roofs["device_name"]] = roofs
    text = json.dumps({"version": VERSION, "machines": machines}, indent=1)
    try:
        make_folder(path.parent)
        write_durably(path, text.encode() + b"\n")
    except OSError as error:
        raise WhyboundError(
            f"{path} cannot be written ({error.strerror}): set XDG_CACHE_HOME, or add --no-save"
        ) from None
    return path


def load_roofs(device_name: str) -> Roofs | None:
    """What was measured on this host for a device; None when nothing was, or it cannot be read."""
    found = _machines().get(socket.gethostname(), {}).get(device_name)
    return None if _problem(found) else found


def _machines() -> dict[str, dict[str, Any]]:
    with suppress(OSError, ValueError):
        data = json.loads(cache_file().read_text(encoding="utf-8"))
        if isinstance(data, dict) and data.get("version") == VERSION:
            machines = data.get("machines")
            if isinstance(machines, dict):
                return {h: d for h, d in machines.items() if isinstance(d, dict)}
    return {}
