"""Which files are meant: what a person names, and what lies in the folders named."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..manifest import MANIFEST
from .reading import Skipped

MAX_FILES = 10_000
MAX_FOLDERS_DEEP = 20


def files_of(paths: Sequence[Path]) -> Iterator[Path | Skipped]:
    """Every file once, in the order given, folders in the order of their names.

    A link that is named is followed; one inside a folder is not: it may point anywhere. Hidden files are
    passed over.
    """
    seen: set[tuple[int, int]] = set()
    count = 0
    for path in paths:
        for found in _walk(path) if path.is_dir() else [path]:
            if isinstance(found, Path) and not _is_new(found, seen):
                yield Skipped(str(found), "the same file was given already")
                continue
            count += 1
            if count > MAX_FILES:
                yield Skipped(str(path), f"only the first {MAX_FILES} files were looked at")
                return
            yield found


def _walk(folder: Path) -> Iterator[Path | Skipped]:
    if (folder / MANIFEST).is_file() and (
        (folder / "tables").is_dir() or (folder / "wal").is_dir()
    ):
        yield Skipped(str(folder), "it is a run already; diagnose it by itself")
        return
    for at, folders, names in os.walk(folder):
        here = Path(at)
        folders[:] = sorted(f for f in folders if not f.startswith("."))
        deep = len(here.relative_to(folder).parts) >= MAX_FOLDERS_DEEP
        if deep and folders:
            yield Skipped(str(here), f"folders over {MAX_FOLDERS_DEEP} deep are not looked into")
            folders.clear()
        for name in sorted(names):
            if name.startswith("."):
                continue
            path = here / name
            if path.is_symlink():
                yield Skipped(str(path), "a link inside a folder; name it itself to follow it")
            else:
                yield path


def _is_new(path: Path, seen: set[tuple[int, int]]) -> bool:
    try:
        status = path.stat()
    except OSError:
        return True  # said when it is opened
    key = (status.st_dev, status.st_ino)
    if key in seen:
        return False
    seen.add(key)
    return True
