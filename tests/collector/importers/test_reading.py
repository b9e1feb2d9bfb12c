"""Files as importers see them: every packing and encoding, and what is meant to hurt."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import tarfile
import time
import tracemalloc
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whybound.collector.importers import bounds
from whybound.collector.importers.bounds import json_depth, parse_json
from whybound.collector.importers.encodings import encoding_of
from whybound.collector.importers.reading import (
    MAX_LINE_CHARS,
    MAX_MEMBERS,
    FileSource,
    Skipped,
    open_sources,
)
from whybound.collector.importers.walk import files_of
from whybound.errors import WhyboundError

LINES = ["first", "zweite Zeile äöü", "", "last"]
TEXT = "\n".join(LINES) + "\n"


def only(path: Path) -> FileSource:
    with open_sources(path) as sources:
        (found,) = list(sources)
    assert isinstance(found, FileSource)
    return found


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@contextmanager
def within(seconds: float, peak_bytes: int):
    tracemalloc.start()
    began = time.process_time()
    try:
        yield
    finally:
        took, peak = time.process_time() - began, tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert took < seconds, took
    assert peak < peak_bytes, peak


PACKED = {
    "plain": lambda d: d,
    "gzip": gzip.compress,
    "two gzips": lambda d: gzip.compress(d[:7]) + gzip.compress(d[7:]),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda d: pa.compress(d, codec="zstd", asbytes=True),
}


@pytest.mark.parametrize("pack", PACKED)
def test_packed_files_are_told_by_their_bytes_not_their_name(tmp_path, pack):
    source = only(put(tmp_path / "server.log", PACKED[pack](TEXT.encode())))
    assert list(source.lines()) == LINES
    assert list(source.lines()) == LINES, "and again"
    assert source.sample.text == TEXT
    with source.open() as file:
        assert file.read() == TEXT.encode()


@pytest.mark.parametrize(
    "encode",
    [
        lambda t: t.encode(), lambda t: b"\xef\xbb\xbf" + t.encode(), lambda t: t.encode("utf-16"),
        lambda t: b"\xfe\xff" + t.encode("utf-16-be"), lambda t: t.encode("latin-1"),
        lambda t: t.encode("utf-16-le"), lambda t: t.replace("\n", "\r\n").encode(),
    ],
    ids=["utf-8", "utf-8 mark", "utf-16", "utf-16 big", "latin-1", "utf-16 bare", "windows"],
)  # fmt: skip
def test_encodings(tmp_path, encode):
    text = "x" * 50 + "\n" + TEXT
    assert list(only(put(tmp_path / "f", encode(text))).lines()) == ["x" * 50, *LINES]


def test_one_broken_character_does_not_make_utf_8_something_else():
    assert encoding_of("█ ▄ äöü".encode() + b"\xff rest") == "utf-8"


@pytest.mark.parametrize("data", [bytes(range(256)) * 40, b"\x7fELF\0\0\0", os.urandom(4096)])
def test_binary_is_no_text(tmp_path, data):
    source = only(put(tmp_path / "server.log", data))
    assert (source.sample.text, source.encoding) == ("", None)


@given(st.text(alphabet="ab\n\r€", max_size=60), st.integers(1, 9))
@settings(deadline=None, max_examples=60)
def test_lines_do_not_depend_on_how_they_are_read(tmp_path_factory, text, piece):
    from whybound.collector.importers import reading

    path = put(tmp_path_factory.mktemp("lines") / "f", b"_" + text.encode())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reading, "_PIECE", piece)
        found = list(only(path).lines())
    expected = ("_" + text).split("\n")
    if expected[-1] == "":
        expected.pop()
    assert found == [line.removesuffix("\r") for line in expected]


def test_an_endless_line_is_cut_and_the_next_one_read(tmp_path):
    path = put(tmp_path / "f", b"a\n" + b"x" * (20 << 20) + b"\nb\n")
    with within(3.0, 12 << 20):
        source = only(path)
        assert [len(line) for line in source.lines()] == [1, MAX_LINE_CHARS, 1]
    assert source.long_lines == 1


# ---------------------------------------------------------------- archives


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def tarred(path: Path, members: dict[str, bytes | str], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(data, str):
                info.type, info.linkname = tarfile.SYMTYPE, data
                archive.addfile(info)
            else:
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return path


def members(path: Path) -> dict[str, list[str] | str]:
    found: dict[str, list[str] | str] = {}
    with open_sources(path) as sources:
        for s in sources:
            if isinstance(s, Skipped):
                found[s.name] = s.why
            else:
                found[str(s.path.relative_to(path))] = list(s.lines())
    return found


def test_a_zip_is_its_members(tmp_path):
    path = zipped(
        tmp_path / "logs.zip", {"a.log": b"1\n2\n", "d/b.gz": gzip.compress(b"3\n"), "empty": b""}
    )
    assert members(path) == {"a.log": ["1", "2"], "d/b.gz": ["3"]}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2"])
def test_a_tar_is_its_members_and_links_in_it_are_not_followed(tmp_path, mode):
    path = tarred(tmp_path / "f", {"a": b"1\n", "passwd": "/etc/passwd", "../up": b"2\n"}, mode)
    found = members(path)
    assert "not followed" in str(found.pop("f!passwd"))
    assert found == {"a": ["1"], "../up": ["2"]}


def test_a_link_in_a_zip_is_not_followed(tmp_path):
    info = zipfile.ZipInfo("passwd")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "f.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
        archive.writestr("a", "1\n")
    found = members(tmp_path / "f.zip")
    assert "not followed" in str(found.pop("f.zip!passwd"))
    assert found == {"a": ["1"]}


def test_an_archive_of_very_many_files_is_read_in_part(tmp_path):
    path = zipped(tmp_path / "f.zip", {f"{i}": b"x\n" for i in range(MAX_MEMBERS + 5)})
    found = members(path)
    assert len(found) == MAX_MEMBERS + 1
    assert "only" in str(found["f.zip"])


def test_one_broken_member_does_not_take_the_others(tmp_path):
    path = zipped(tmp_path / "f.zip", {"a": os.urandom(3000), "b": b"ok\n"})
    data = bytearray(path.read_bytes())
    data[200:260] = bytes(60)
    path.write_bytes(data)
    found = members(path)
    assert "broken" in str(found["f.zip!a"])
    assert found["b"] == ["ok"]


@pytest.mark.parametrize(
    "data", [b"PK\x03\x04" + b"\0" * 99, b"PK\x05\x06", b"\x1f\x8b\x08" + b"x" * 50]
)
def test_broken_archives_say_so(tmp_path, data):
    with pytest.raises(WhyboundError, match=r"f (is|cannot)"):
        members(put(tmp_path / "f", data))


# ---------------------------------------------------------------- what is meant to hurt


def bomb(path: Path, inflated: int) -> Path:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    with path.open("wb") as file:
        for _ in range(inflated >> 20):
            file.write(
                packer.compress(
                    b"\0" * (1 << 20) if path.suffix == ".0" else (b"a" * 1023 + b"\n") * (1 << 10)
                )
            )
        file.write(packer.flush())
    return path


def test_a_gzip_bomb_ends_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "FREE_INFLATED_BYTES", 4 << 20)
    path = bomb(tmp_path / "server.log", 80 << 20)
    assert path.stat().st_size < 1 << 20
    with within(5.0, 32 << 20), pytest.raises(WhyboundError, match="inflates over 200 times"):
        for _ in only(path).lines():
            pass


def test_a_zip_bomb_is_refused_before_it_is_opened(tmp_path):
    inner = zipped(tmp_path / "in.zip", {"a": b"\0" * (150 << 20)})
    with within(1.0, 32 << 20), pytest.raises(WhyboundError, match="inflates over"):
        members(inner)


def test_what_inflates_beyond_the_cap_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "MAX_INFLATED_BYTES", 3 << 20)
    path = put(tmp_path / "f", gzip.compress(os.urandom(100) * 50_000))
    with pytest.raises(WhyboundError, match="inflates to over"):
        list(only(path).lines())


def test_a_cut_off_gzip_gives_what_is_there_and_then_says_so(tmp_path):
    whole = gzip.compress(b"".join(b"%d\n" % i for i in range(300_000)))
    source = only(put(tmp_path / "f.gz", whole[: len(whole) // 2]))
    read = []
    with pytest.raises(WhyboundError, match="cut off"):
        read.extend(source.lines())
    assert read[:3] == ["0", "1", "2"]
    assert len(read) > 50_000


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"[" * 100_000, "nested deeper"), (b'{"a":' * 100_000, "nested deeper"),
        (b'[' * 300 + b"]" * 300, "nested deeper"), (b'{"a": [1, 2', "cut off"), (b'{"a": "unte', "cut off"),
        (b'{"a" 1}', "line 1"), (b"", "not JSON"), (b"9" * 10_000, "not JSON"), (b"hello", "not JSON"),
    ],
)  # fmt: skip
def test_json_that_is_none_or_too_deep_ends_in_one_line(tmp_path, data, said):
    with within(1.0, 16 << 20), pytest.raises(WhyboundError, match=said) as caught:
        parse_json(data, "f.json")
    assert "\n" not in str(caught.value)
    assert "f.json" in str(caught.value)


def test_json_takes_what_python_writes():
    read = parse_json(b'{"a": NaN, "b": -Infinity, "c": [1e999], "d": "\xff"}', "f")
    assert read["a"] != read["a"]
    assert read["d"] == "\ufffd"


def test_json_over_the_bound_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(bounds, "MAX_JSON_BYTES", 1000)
    with pytest.raises(WhyboundError, match="give a smaller part"):
        only(put(tmp_path / "f", b"[" + b"1," * 600 + b"1]")).json()
    assert only(put(tmp_path / "g", '{"ä": 1}'.encode("utf-16"))).json() == {"ä": 1}


@given(
    st.recursive(
        st.text(alphabet='a"\\[]{}', max_size=6),
        lambda c: (
            st.lists(c, max_size=3) | st.dictionaries(st.text('b"[', max_size=2), c, max_size=3)
        ),
        max_leaves=20,
    )
)
def test_depth_counts_brackets_outside_strings(value):
    def depth(v):
        if isinstance(v, dict):
            return 1 + max(map(depth, v.values()), default=0)
        return 1 + max(map(depth, v), default=0) if isinstance(v, list) else 0

    assert json_depth(json.dumps(value).encode()) == depth(value)


@pytest.mark.parametrize("what", ["missing", "folder", "fifo", "empty"])
def test_what_is_no_file_is_said(tmp_path, what):
    path = tmp_path / "f"
    if what == "folder":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "empty":
        path.touch()
    with within(1.0, 1 << 20), pytest.raises(WhyboundError, match=str(path)):
        members(path)


# ---------------------------------------------------------------- folders and links


def test_a_link_that_is_named_is_followed_and_one_in_a_folder_is_not(tmp_path):
    put(tmp_path / "target.log", b"x\n")
    folder = tmp_path / "logs"
    (folder / ".git").mkdir(parents=True)
    put(folder / ".git" / "config", b"x")
    put(folder / "b.log", b"1")
    put(folder / "a 'quoted;name.log", b"2")
    (folder / "out").symlink_to(tmp_path / "target.log")
    (tmp_path / "named").symlink_to(tmp_path / "target.log")
    found = list(files_of([folder, tmp_path / "named", tmp_path / "target.log", folder / "b.log"]))
    names = [f.name for f in found if isinstance(f, Path)]
    assert names == ["a 'quoted;name.log", "b.log", "named"]
    why = {Path(f.name).name: f.why for f in found if isinstance(f, Skipped)}
    assert "a link inside a folder" in why["out"]
    assert "already" in why["target.log"]
    assert "already" in why["b.log"]


def test_a_folder_that_leads_into_itself_ends(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path)
    put(tmp_path / "a", b"1")
    assert [f for f in files_of([tmp_path]) if isinstance(f, Path)] == [tmp_path / "a"]
