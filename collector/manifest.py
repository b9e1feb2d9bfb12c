"""The run folder and its manifest: created, locked, merged and replaced without a torn state."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ..errors import WhyboundError
from ..version import __version__
from .schema import SCHEMA_VERSION

MANIFEST = "manifest.json"
_OURS = ("tables", "wal", "diagnosis.json", "report.html")


def fsync_folder(folder: Path) -> None:
    """Make the names in a folder (new, renamed, deleted) safe from a power loss."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(folder: Path) -> None:
    """Create a folder and those above it, each durably; an existing one is left as it is."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        fsync_folder(folder.parent)


def write_durably(path: Path, data: bytes) -> None:
    """Replace a file so that a crash leaves the old one or the new one, never part of either.

    Raises:
        OSError: the disk refused; the old file is untouched.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    fsync_folder(path.parent)


def try_lock(folder: Path, *, wait: bool = False) -> int | None:
    """A descriptor that holds the lock of a folder until it is closed; None when another holds it.

    The lock goes with its process. A file system without locks grants it.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except OSError:
        pass
    return fd


@contextmanager
def _manifest_lock(run_dir: Path) -> Iterator[None]:
    fd = try_lock(run_dir, wait=True)
    try:
        yield
    finally:
        if fd is not None:
            os.close(fd)


def read_manifest(run_dir: Path) -> dict[str, Any] | None:
    """The manifest of a run; None when there is none.

    Raises:
        WhyboundError: it cannot be read, is not JSON, not a run's, or of a newer whybound.
    """
    path = run_dir / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WhyboundError(f"cannot read {path}: {error.strerror}; check it and retry") from error
    except ValueError as error:  # also what is not UTF-8
        raise WhyboundError(
            f"{path} is not JSON ({error}); restore it, or move it away to read a log without it"
        ) from error
    version = manifest.get("schema_version") if isinstance(manifest, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise WhyboundError(f"{path} has no schema_version: not a run; name a folder made by -o")
    if version > SCHEMA_VERSION:
        raise WhyboundError(
            f"{run_dir} was written by a newer whybound (schema {version}, this one reads up to "
            f"{SCHEMA_VERSION}); upgrade whybound"
        )
    return dict(manifest)


def merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """`new` over `old`: objects merge key by key, at every depth; all else is replaced."""
    merged = dict(old)
    for key, value in new.items():
        before = merged.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        merged[key] = merge(before, value) if both else value  # type: ignore[arg-type]  # both maps
    return merged


def update_manifest(run_dir: Path, fields: Mapping[str, Any]) -> None:
    """Merge fields into the manifest; safe beside other processes and nodes that do the same.

    Raises:
        TypeError, ValueError: a field is not JSON (NaN is not).
        WhyboundError: the manifest that is there cannot be read.
        OSError: the disk refused; the old manifest stays.
    """
    with _manifest_lock(run_dir):
        old = read_manifest(run_dir) or {"schema_version": SCHEMA_VERSION}
        text = json.dumps(merge(old, fields), indent=1, allow_nan=False)
        write_durably(run_dir / MANIFEST, text.encode() + b"\n")


def create_run(path: Path, *, force: bool) -> None:
    """Make an empty run folder whose manifest says `state: recording`.

    With `force`, a run that is already there loses what whybound wrote (manifest, tables, log,
    diagnosis, report) and nothing else.

    Raises:
        WhyboundError: the folder is not empty (without `force`), not a run, or being recorded to;
            the path is a file; the folder cannot be made.
    """
    try:
        if path.exists() and not path.is_dir():
            raise WhyboundError(f"{path} is a file; name a new folder for the run")
        if path.is_dir() and any(path.iterdir()):
            if not force:
                raise WhyboundError(
                    f"{path} exists and is not empty; use --force to replace the run in it, "
                    "or name a new folder"
                )
            _clear(path)
        make_folder(path)
        fresh = {
            "schema_version": SCHEMA_VERSION,
            "run_id": uuid.uuid4().hex,
            "created_ns": time.time_ns(),
            "whybound_version": __version__,
            "state": "recording",
        }
        write_durably(path / MANIFEST, json.dumps(fresh, indent=1).encode() + b"\n")
    except OSError as error:
        raise WhyboundError(
            f"cannot make the run folder {path}: {error.strerror}; name a writable one"
        ) from error


def _is_run(path: Path) -> bool:
    if any(path.glob("wal/node=*")):
        return True
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and {"schema_version", "run_id"} <= manifest.keys()


def _clear(path: Path) -> None:
    """Delete our own; the manifest stays until it is replaced, so that a crash leaves a run."""
    if not _is_run(path):
        raise WhyboundError(f"{path} is not a run, --force leaves it alone; name a new folder")
    for folder in path.glob("wal/node=*"):
        fd = try_lock(folder)
        if fd is None:
            raise WhyboundError(
                f"{path} is being recorded to; stop that first, or name a new folder"
            )
        os.close(fd)
    for name in _OURS:
        target = path / name
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
