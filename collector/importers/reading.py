"""Files as importers see them: unpacked, decoded and bounded, one source a file or a member of an archive."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa

from ...errors import WhyboundError
from .bounds import BoundedReader, check_inflation, read_json
from .encodings import encoding_of, text_of
from .importer import HEAD_BYTES, Sample

MAX_LINE_CHARS = 1 << 20
"""The rest of a longer line is left out."""
MAX_MEMBERS = 2000
"""Of one archive."""
_PIECE = 1 << 20

_UNPACK: tuple[tuple[bytes, Callable[[BinaryIO], Any]], ...] = (
    (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file, mode="rb")),
    (b"BZh", bz2.BZ2File),
    (b"\xfd7zXZ\0", lzma.LZMAFile),
    (b"\x28\xb5\x2f\xfd", lambda file: pa.CompressedInputStream(pa.PythonFile(file), "zstd")),
)
"""What a compressed file begins with, and what opens it."""


LINK = "a link or a device; those are not followed inside archives"


@dataclass(frozen=True)
class Skipped:
    """What an archive holds and is not read, and why."""

    name: str
    why: str


class FileSource:
    """A `Source`: a file, or a member of an archive.

    Attributes:
        path: of the file; of a member, that of the archive with its name behind it.
        sample: its beginning.
        encoding: of its text; None when it is binary.
        long_lines: lines that `lines` has cut so far.
    """

    def __init__(self, path: Path, size_bytes: int, open_it: Callable[[], BinaryIO]) -> None:
        """`open_it` opens its bytes anew, from the start, bounded."""
        self.path = path
        self._open = open_it
        with open_it() as file:
            head = file.read(HEAD_BYTES)
        self.encoding = encoding_of(head)
        self.sample = Sample(path.name, head, text_of(head), size_bytes)
        self.long_lines = 0

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        with self._open() as file:
            yield file
            raw = getattr(file, "raw", None)
            if isinstance(raw, BoundedReader):
                raw.settle()  # who reads all at once has not been told of its end

    def open(self) -> AbstractContextManager[BinaryIO]:
        """Its bytes, unpacked."""
        return self._opened()

    def lines(self) -> Iterator[str]:
        """Its lines; see `Source`.

        Raises:
            WhyboundError: over a bound, or broken; the lines before that were given.
        """
        decoder = codecs.getincrementaldecoder(self.encoding or "utf-8")("replace")
        rest, cut, first = "", False, True
        with self.open() as file:
            while True:
                data = file.read(_PIECE)
                text = decoder.decode(data, final=not data)
                if first:
                    text, first = text.removeprefix("\ufeff"), False
                lines = text.split("\n")
                if cut and len(lines) > 1:  # the rest of an overlong line ends here
                    lines[0], cut = "", False
                if not cut:
                    lines[0] = rest + lines[0]
                    rest = lines.pop()
                    for line in lines:
                        yield self._cut(line)
                    if len(rest) > MAX_LINE_CHARS:
                        rest, cut = rest[: MAX_LINE_CHARS + 1], True
                if not data:
                    break
        if rest:
            yield self._cut(rest)

    def _cut(self, line: str) -> str:
        if len(line) > MAX_LINE_CHARS:
            self.long_lines += 1
            return line[:MAX_LINE_CHARS]
        return line.removesuffix("\r")

    def json(self) -> Any:
        """All of it as JSON; see `Source`."""
        with self.open() as file:
            return read_json(file, self.path.name, self.encoding or "utf-8")


@contextmanager
def open_sources(
    path: Path, seen: Callable[[int], None] = lambda _: None
) -> Iterator[Iterator[FileSource | Skipped]]:
    """The sources of one file: itself, or the members of the archive that it is.

    Args:
        path: a file; a link is followed, as the person named it.
        seen: is told how many more bytes were read.

    Raises:
        WhyboundError: it cannot be opened, is no file, or is broken; on the way too.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise WhyboundError(f"{path} is no file; write it to one first")
        if status.st_size == 0:
            raise WhyboundError(f"{path} is empty")
        with ExitStack() as stack:
            yield _sources(path, status.st_size, seen, stack)
    except OSError as error:
        raise WhyboundError(f"cannot read {path}: {error.strerror or error}") from error


def _sources(
    path: Path, size: int, seen: Callable[[int], None], stack: ExitStack
) -> Iterator[FileSource | Skipped]:
    def opened() -> BinaryIO:
        return _unpacked(path.open("rb"), path.name, size, seen)

    with opened() as file:
        head = file.read(512)
    if not head:
        raise WhyboundError(f"{path} is empty")
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        yield from _zip_members(path, stack.enter_context(_seekable(path, opened)), seen)
    elif _is_tar(head):
        yield from _tar_members(path, stack.enter_context(_seekable(path, opened)), seen)
    else:
        yield FileSource(path, size, opened)


def _is_tar(head: bytes) -> bool:
    """By its header's checksum: the oldest tars have no magic."""
    field = head[148:156].strip(b" \0")
    if len(head) < 512 or not field or field.strip(b"01234567"):
        return False
    return int(field, 8) == sum(head[:148]) + 8 * ord(" ") + sum(head[156:512])


def _unpacked(file: BinaryIO, where: str, size: int, seen: Callable[[int], None]) -> BinaryIO:
    """A file's bytes, decompressed if it is compressed."""
    magic = file.read(6)
    file.seek(0)
    unpack = next((u for begin, u in _UNPACK if magic.startswith(begin)), None)
    stream = unpack(file) if unpack else file
    bounded = BoundedReader(stream, where, size if unpack else None, seen)
    return io.BufferedReader(bounded, _PIECE if unpack else 1 << 16)


@contextmanager
def _seekable(path: Path, opened: Callable[[], BinaryIO]) -> Iterator[BinaryIO]:
    """The archive in a file that can be read at any place: itself, or unpacked into a temporary one."""
    with path.open("rb") as file:
        magic = file.read(6)
        file.seek(0)
        if not any(magic.startswith(begin) for begin, _ in _UNPACK):
            yield file
            return
    with tempfile.TemporaryFile() as unpacked, opened() as stream:
        while data := stream.read(_PIECE):
            unpacked.write(data)
        unpacked.seek(0)
        yield cast(BinaryIO, unpacked)


def _zip_members(
    path: Path, file: BinaryIO, seen: Callable[[int], None]
) -> Iterator[FileSource | Skipped]:
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise WhyboundError(f"{path} is a broken zip: {error}") from error
    infos = [i for i in archive.infolist() if not i.is_dir() and i.file_size]
    # members may overlap, so that each is harmless and all together are a bomb
    check_inflation(sum(i.file_size for i in infos), path.stat().st_size, path.name)
    for info in infos[:MAX_MEMBERS]:
        where = f"{path.name}!{info.filename}"
        if stat.S_ISLNK(info.external_attr >> 16):
            yield Skipped(where, LINK)
            continue

        def opened(info: zipfile.ZipInfo = info, where: str = where) -> BinaryIO:
            try:
                member = archive.open(info)
            except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
                raise WhyboundError(f"{where} cannot be unpacked: {error}") from error
            return _member(cast(BinaryIO, member), where, info.compress_size, seen)

        yield from _tried(path / info.filename, info.file_size, opened)
    if len(infos) > MAX_MEMBERS:
        yield Skipped(path.name, f"of its {len(infos)} files only {MAX_MEMBERS} were looked at")


def _tar_members(
    path: Path, file: BinaryIO, seen: Callable[[int], None]
) -> Iterator[FileSource | Skipped]:
    kept = 0
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            for info in archive:
                where = f"{path.name}!{info.name}"
                if info.isdir() or (info.isreg() and not info.size):
                    continue
                if not info.isreg():
                    yield Skipped(where, LINK)
                    continue
                if kept == MAX_MEMBERS:
                    yield Skipped(path.name, f"only its first {MAX_MEMBERS} files were looked at")
                    return
                kept += 1

                def opened(info: tarfile.TarInfo = info, where: str = where) -> BinaryIO:
                    member = archive.extractfile(info)
                    assert member is not None  # it is only for what is no regular file
                    return _member(cast(BinaryIO, member), where, info.size, seen)

                yield from _tried(path / info.name, info.size, opened)
    except tarfile.TarError as error:
        raise WhyboundError(f"{path} is a broken tar: {error}") from error


def _tried(path: Path, size: int, opened: Callable[[], BinaryIO]) -> Iterator[FileSource | Skipped]:
    """A member, or why it cannot be read: the others go on."""
    try:
        yield FileSource(path, size, opened)
    except WhyboundError as error:
        yield Skipped(f"{path.parent.name}!{path.name}", str(error))


def _member(file: BinaryIO, where: str, packed: int, seen: Callable[[int], None]) -> BinaryIO:
    """A member: bounded by its size in the archive, and unpacked once more if it is compressed itself."""
    outer = io.BufferedReader(BoundedReader(file, where, packed, seen), _PIECE)
    magic = outer.peek(6)[:6]
    unpack = next((u for begin, u in _UNPACK if magic.startswith(begin)), None)
    if unpack is None:
        return outer
    inner = BoundedReader(unpack(outer), where, packed, lambda _: None)
    return io.BufferedReader(inner, _PIECE)
