"""A run directory: nothing is lost or there twice, whatever fails; and what is lost is counted."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whybound import __version__
from whybound.collector import compaction, writer
from whybound.collector.schema import SCHEMA_VERSION, TABLES, arrow_schema
from whybound.collector.store import Run, RunWriter, compact, create_run, open_run
from whybound.errors import WhyboundError

Rows = list[dict[str, Any]]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    create_run(path, force=False)
    return path


def all_rows(run: Run, table: str) -> Rows:
    sealed = [r for part in run.parts(table) for r in pq.read_table(part).to_pylist()]
    return sealed + run.log_table(table).to_pylist()


def manifest_of(path: Path) -> dict[str, Any]:
    return dict(json.loads((path / "manifest.json").read_text()))


def events(first: int, last: int) -> Rows:
    return [{"t_ns": n, "kind": "k"} for n in range(first, last)]


def times(run: Run, table: str = "events") -> list[int]:
    return [r["t_ns"] for r in all_rows(run, table)]


def stop_as_if_killed(recorder: RunWriter) -> None:
    """Leave the log as it is, and let go of the lock, as the kernel would."""
    recorder.flush()
    recorder.error = "killed"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunWriter, "_record_end", lambda _: None)
        recorder.close()


# ------------------------------------------------------------------ round trip

_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    "dictionary": st.sampled_from(["", "a", "b", "ü\x00", "日本"]),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(),
    "bool": st.booleans(),
    "list<float64>": st.lists(st.none() | st.floats(), max_size=3),
}
_ROWS = {
    name: st.lists(
        st.fixed_dictionaries(
            {}, optional={c.name: st.none() | _VALUES[c.type] for c in table.columns}
        ),
        max_size=6,
    )
    for name, table in TABLES.items()
}


def as_text(rows: Rows, table: str) -> list[str]:
    """Rows that compare: NaN equals NaN, a missing key is None."""
    return [repr([r.get(name) for name in TABLES[table].column_names()]) for r in rows]


@settings(max_examples=15, deadline=None)
@given(first=st.fixed_dictionaries(_ROWS), second=st.fixed_dictionaries(_ROWS))
def test_rows_round_trip_through_log_and_compaction(
    first: dict[str, Rows], second: dict[str, Rows]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        create_run(path, force=False)
        recorder = RunWriter(path, "a")
        for batch in (first, second):
            for table, rows in batch.items():
                recorder.append(table, rows)
            recorder.flush()
        assert recorder.dropped == {}
        for when in ("in the log", "sealed"):
            run = open_run(path)
            for table in TABLES:
                expected = as_text(first[table] + second[table], table)
                actual = as_text(all_rows(run, table), table)
                if when == "sealed" and table in compaction.SORTED_TABLES:
                    expected, actual = sorted(expected), sorted(actual)
                assert actual == expected, (when, table)
                assert run.log_table(table).schema == arrow_schema(table)
                assert all(pq.read_schema(p).equals(arrow_schema(table)) for p in run.parts(table))
            recorder.close()
        assert open_run(path).manifest["state"] == "finished"
        assert not (path / "wal").exists()


def test_samples_are_sorted_and_others_keep_their_order(run_dir: Path) -> None:
    with RunWriter(run_dir, "a") as recorder:
        for signal, t in [("z", 3), ("a", 2), (None, 0), ("z", 1), ("a", 1), ("a", 1)]:
            recorder.append("samples", [{"signal": signal, "t_ns": t}])
            recorder.append("requests", [{"request_id": signal, "arrival_ns": t}])
            recorder.flush()
    run = open_run(run_dir)
    assert [(r["signal"], r["t_ns"]) for r in all_rows(run, "samples")] == [
        ("a", 1), ("a", 1), ("a", 2), ("z", 1), ("z", 3), (None, 0),
    ]  # fmt: skip
    assert [r["arrival_ns"] for r in all_rows(run, "requests")] == [3, 2, 0, 1, 1, 1]


def test_the_last_row_of_a_request_is_its_final_one(run_dir: Path) -> None:
    recorder = RunWriter(run_dir, "a")
    recorder.append("requests", [{"request_id": "r", "status": "unfinished"}])
    recorder.append("requests", [{"request_id": "q", "status": "unfinished"}])
    recorder.close()
    resumed = RunWriter(run_dir, "a")  # the sequence goes on after the sealed part
    resumed.append("requests", [{"request_id": "r", "status": "ok"}])
    resumed.flush()
    run = open_run(run_dir)
    last = {r["request_id"]: r["status"] for r in all_rows(run, "requests")}
    assert last == {"r": "ok", "q": "unfinished"}
    resumed.close()
    run = open_run(run_dir)
    assert len(run.parts("requests")) == 2
    assert {r["request_id"]: r["status"] for r in all_rows(run, "requests")} == last


def test_large_tables_become_several_parts_that_duckdb_reads(run_dir: Path) -> None:
    recorder = RunWriter(run_dir, "a-b.example-1", rotate_bytes=2000)
    for n in range(0, 100, 10):
        recorder.append("events", events(n, n + 10))
        recorder.flush()
    stop_as_if_killed(recorder)
    compact(run_dir, "a-b.example-1", part_bytes=1, buffer_bytes=600)
    run = open_run(run_dir)
    assert len(run.parts("events")) > 2
    assert times(run) == list(range(100))
    pattern = str(run_dir / "tables/events/*.parquet")
    count = duckdb.sql(f"SELECT count(DISTINCT t_ns), sum(t_ns) FROM '{pattern}'").fetchall()[0]
    assert count == (100, 4950)
    listed = run.manifest["parts"]
    assert [run_dir / name for name in listed] == run.parts("events")
    assert sum(part["rows"] for part in listed.values()) == 100


def test_two_nodes_share_a_run(run_dir: Path) -> None:
    with RunWriter(run_dir, "b") as b:
        with RunWriter(run_dir, "a") as a:
            a.append("events", events(0, 2))
            b.append("events", events(10, 12))
            b.flush()
        assert open_run(run_dir).manifest["state"] == "recording"
        assert open_run(run_dir).log_nodes == ["b"]
        assert times(open_run(run_dir)) == [0, 1, 10, 11]
    assert open_run(run_dir).manifest["state"] == "finished"
    assert times(open_run(run_dir)) == [0, 1, 10, 11]


def test_appends_from_many_threads_all_arrive(run_dir: Path) -> None:
    with RunWriter(run_dir, "a") as recorder:
        threads = [
            threading.Thread(
                target=lambda k=k: [
                    recorder.append("events", [{"t_ns": n}]) for n in range(k, 2000, 4)
                ]
            )
            for k in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(times(open_run(run_dir))) == list(range(2000))


# ------------------------------------------------------------------ refused and dropped rows


def test_unknown_tables_and_columns_are_named(run_dir: Path) -> None:
    with RunWriter(run_dir, "a") as recorder:
        with pytest.raises(ValueError, match="unknown table 'sample'"):
            recorder.append("sample", [{}])
        with pytest.raises(ValueError, match="unknown column 'wert' in table 'samples'"):
            recorder.append("samples", [{"value": 1.0}, {"value": 1.0, "wert": 2.0}])
    assert times(open_run(run_dir), "samples") == []
    with pytest.raises(ValueError, match="unknown table 'sample'"):
        open_run(run_dir).parts("sample")


def test_rows_over_the_bound_are_dropped_and_counted(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled = threading.Event()
    write = os.write

    def slow_write(fd: int, data: bytes) -> int:
        stalled.wait()
        return write(fd, data)

    monkeypatch.setattr(os, "write", slow_write)
    recorder = RunWriter(run_dir, "a", max_pending_rows=10)
    started = time.monotonic()
    recorder.append("events", events(0, 8))
    recorder.append("events", events(8, 15))
    recorder.append("samples", [{"t_ns": 1}] * 3)
    assert time.monotonic() - started < 1
    assert recorder.dropped == {"events": 5, "samples": 3}
    stalled.set()
    recorder.flush()
    recorder.append("events", events(20, 22))
    recorder.close()
    run = open_run(run_dir)
    assert times(run) == [*range(10), 20, 21]
    assert run.losses["dropped"] == {"events": 5, "samples": 3}
    recorder.append("events", events(0, 1))
    assert recorder.dropped["events"] == 6


def test_drops_of_an_earlier_recorder_still_count(run_dir: Path) -> None:
    for _ in range(2):
        with RunWriter(run_dir, "a", max_pending_rows=1) as recorder:
            recorder.append("events", events(0, 3))
    assert open_run(run_dir).losses["dropped"] == {"events": 4}


def test_drops_are_recorded_while_recording(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_DROPS_RECORDED_EVERY_S", 0.0)
    recorder = RunWriter(run_dir, "a", max_pending_rows=1)
    recorder.append("events", events(0, 3))
    recorder.flush()
    assert open_run(run_dir).losses["dropped"] == {"events": 2}
    recorder.close()


@pytest.mark.parametrize(
    "bad",
    [
        {"t_ns": "noon"},
        {"t_ns": 2**70},
        {"t_ns": 1.5},
        {"t_ns": float("nan")},
        {"text": "\ud800"},
        {"text": b"\xff"},
        {"kind": 7},
        {"value": [1]},
    ],
)
def test_a_row_that_does_not_fit_costs_only_itself(run_dir: Path, bad: dict[str, Any]) -> None:
    with RunWriter(run_dir, "a") as recorder:
        recorder.append("events", [*events(0, 3), bad, *events(3, 6)])
    run = open_run(run_dir)
    assert times(run) == list(range(6))
    assert run.losses["dropped"] == {"events": 1}
    assert run.losses["rejected"]["a"].startswith("a row of events: ")


# ------------------------------------------------------------------ a full or broken disk


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_stops_the_writer_and_keeps_what_it_had(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    recorder = RunWriter(run_dir, "a")
    recorder.append("events", events(0, 5))
    recorder.flush()
    write = os.write

    def full(fd: int, data: bytes) -> int:
        if len(data) > 20:
            return write(fd, data[:20])  # a part of the frame still fits
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "write", full)
    recorder.append("events", events(5, 8))
    recorder.flush()
    assert recorder.error is not None
    assert os.strerror(code) in recorder.error
    recorder.append("events", events(8, 9))
    recorder.flush()
    assert recorder.dropped == {"events": 4}
    recorder.close()
    run = open_run(run_dir)
    assert times(run) == list(range(5))
    assert run.parts("events") == []
    assert run.losses["torn_frames"] == 0  # the torn frame was cut off again
    assert run.losses["dropped"] == {"events": 4}
    assert run.losses["errors"] == {"a": recorder.error}
    assert run.manifest["state"] == "incomplete"


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command")
    if done.returncode:
        pytest.skip("mounting a tmpfs needs root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_truly_full_disk(tiny_disk: Path) -> None:
    path = tiny_disk / "run"
    create_run(path, force=False)
    recorder = RunWriter(path, "a")
    written = 0
    for _ in range(200):
        rows = [{"t_ns": written + i, "text": os.urandom(500).hex()} for i in range(20)]
        recorder.append("events", rows)
        recorder.flush()
        written += 20
        if recorder.error:
            break
    assert recorder.error is not None
    assert "No space left" in recorder.error
    recorder.update_manifest(note="x" * 100_000)  # does not raise either
    recorder.close()
    run = open_run(path)
    kept = times(run)
    assert 0 < len(kept) < written
    assert kept == list(range(len(kept)))
    assert len(kept) + recorder.dropped["events"] == written


def test_no_room_to_compact_keeps_the_log(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = RunWriter(run_dir, "a")
    recorder.append("events", events(0, 5))
    recorder.flush()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", full)
        recorder.close()
        assert "No space left" in (recorder.error or "")
    assert times(open_run(run_dir)) == list(range(5))
    assert not list(run_dir.rglob("*.tmp"))
    compact(run_dir, "a")
    assert times(open_run(run_dir)) == list(range(5))
    assert open_run(run_dir).log_nodes == []


# ------------------------------------------------------------------ a crash while compacting


class Crash(BaseException):
    """Raised by every later call too: no clean-up code may do what a dead process cannot."""


def crash_at(patch: pytest.MonkeyPatch, step: int) -> Callable[[], int]:
    calls = 0

    def guarded(call: Callable[..., Any]) -> Callable[..., Any]:
        def stand_in(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > step:
                raise Crash
            return call(*args, **kwargs)

        return stand_in

    for name in ("fsync", "rename", "unlink", "rmdir", "mkdir"):
        patch.setattr(os, name, guarded(getattr(os, name)))
    return lambda: calls


def test_a_crash_at_any_step_of_compaction_loses_and_doubles_nothing(tmp_path: Path) -> None:
    step = 0
    while True:
        path = tmp_path / f"run{step}"
        create_run(path, force=False)
        recorder = RunWriter(path, "a", rotate_bytes=1)
        for n in range(4):
            recorder.append("events", events(2 * n, 2 * n + 2))
            recorder.append("samples", [{"t_ns": n, "signal": "s"}])
            recorder.flush()
        stop_as_if_killed(recorder)
        torn = sorted((path / "wal/node=a").iterdir())[-1]
        torn.write_bytes(torn.read_bytes() + b"torn")

        crashed = False
        with pytest.MonkeyPatch.context() as patch:
            calls = crash_at(patch, step)
            try:
                compact(path, "a", part_bytes=1, buffer_bytes=400)
            except Crash:
                crashed = True
        for _ in range(2):  # after the crash, and after compacting again
            run = open_run(path)
            assert times(run) == list(range(8)), f"crash at step {step}"
            assert sorted(times(run, "samples")) == [0, 1, 2, 3], f"crash at step {step}"
            assert (run.losses["torn_frames"], run.losses["skipped_bytes"]) == (1, 4)
            compact(path, "a", part_bytes=1, buffer_bytes=400)
        assert run.log_nodes == []
        assert not list((path / "tables").rglob(".*"))
        if not crashed:
            break
        step += 1
    assert calls() == step
    assert step > 15  # parts, folders, manifest and segments were all interrupted


def test_compacting_is_refused_while_another_records(run_dir: Path) -> None:
    with RunWriter(run_dir, "a") as recorder:
        recorder.append("events", events(0, 1))
        with pytest.raises(WhyboundError, match="a recorder still writes to"):
            compact(run_dir, "a")
        with pytest.raises(WhyboundError, match="another recorder writes to"):
            RunWriter(run_dir, "a")
        with pytest.raises(WhyboundError, match="being recorded to"):
            create_run(run_dir, force=True)
    compact(run_dir, "a")  # nothing left to do
    assert times(open_run(run_dir)) == [0]


def test_a_part_whose_bytes_rotted_is_reported(run_dir: Path) -> None:
    with RunWriter(run_dir, "a") as recorder:
        recorder.append("events", events(0, 3))
    part = open_run(run_dir).parts("events")[0]
    part.write_bytes(part.read_bytes()[:-9])
    run = open_run(run_dir)
    assert run.parts("events") == []
    assert run.losses["unreadable_parts"] == [str(part.relative_to(run_dir))]


def test_a_run_compacted_while_it_is_read_says_so(run_dir: Path) -> None:
    recorder = RunWriter(run_dir, "a")
    recorder.append("events", events(0, 3))
    recorder.flush()
    run = open_run(run_dir)
    recorder.close()
    with pytest.raises(WhyboundError, match="compacted while it was read"):
        run.log_table("events")


# ------------------------------------------------------------------ making and opening a folder


def test_a_new_run_says_what_it_is(run_dir: Path) -> None:
    manifest = manifest_of(run_dir)
    assert list(manifest) == [
        "schema_version", "run_id", "created_ns", "whybound_version", "state",
    ]  # fmt: skip
    assert manifest["schema_version"] == SCHEMA_VERSION
    assert len(bytes.fromhex(manifest["run_id"])) == 16
    assert abs(manifest["created_ns"] - time.time_ns()) < 60e9
    assert manifest["whybound_version"] == __version__
    assert manifest["state"] == "recording"
    run = open_run(run_dir)
    assert run.parts("samples") == []
    assert run.log_table("samples").num_rows == 0
    assert run.losses == {
        "torn_frames": 0, "corrupt_frames": 0, "skipped_bytes": 0,
        "dropped": {}, "errors": {}, "rejected": {}, "unreadable_parts": [],
    }  # fmt: skip


def test_the_manifest_merges_and_refuses_what_is_not_json(run_dir: Path) -> None:
    with RunWriter(run_dir, "a") as recorder:
        recorder.update_manifest(clock={"a": {"offset_s": 0.1}}, hosts=["a"])
        recorder.update_manifest(clock={"b": None}, hosts=["b"])
        manifest = manifest_of(run_dir)
        assert manifest["clock"] == {"a": {"offset_s": 0.1}, "b": None}
        assert manifest["hosts"] == ["b"]
        with pytest.raises(ValueError, match="not JSON compliant"):
            recorder.update_manifest(clock=float("nan"))
        assert manifest_of(run_dir) == manifest
    assert not list(run_dir.glob(".*"))


def test_force_replaces_our_files_and_no_others(run_dir: Path) -> None:
    with RunWriter(run_dir, "a") as recorder:
        recorder.append("events", events(0, 3))
    old = manifest_of(run_dir)
    for name in ("diagnosis.json", "report.html", "notes.txt"):
        (run_dir / name).write_text("x")
    with pytest.raises(WhyboundError, match=r"exists and is not empty; use --force"):
        create_run(run_dir, force=False)
    assert manifest_of(run_dir) == old
    create_run(run_dir, force=True)
    assert sorted(p.name for p in run_dir.iterdir()) == ["manifest.json", "notes.txt"]
    assert manifest_of(run_dir)["run_id"] != old["run_id"]


def test_force_does_not_follow_links_out_of_the_run(run_dir: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    (run_dir / "tables").symlink_to(outside)
    create_run(run_dir, force=True)
    assert (outside / "kept").read_text() == "x"
    assert not (run_dir / "tables").exists()


@pytest.mark.parametrize("name", ["notes.txt", "manifest.json"])
def test_force_leaves_a_folder_alone_that_is_not_a_run(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"name": "a web page"}')
    (tmp_path / "tables").mkdir()
    with pytest.raises(WhyboundError, match="is not a run"):
        create_run(tmp_path, force=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([name, "tables"])


def test_a_run_cannot_be_made_where_it_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(WhyboundError, match="is a file"):
        create_run(file, force=True)
    with pytest.raises(WhyboundError, match="cannot make the run folder") as caught:
        create_run(file / "below" / "it", force=False)
    assert "\n" not in str(caught.value)

    def read_only(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "mkdir", read_only)
    with pytest.raises(WhyboundError, match="Read-only file system; name a writable one"):
        create_run(tmp_path / "new", force=False)


@pytest.mark.parametrize("node", ["", "a/b", "../a", ".hidden", "a\n"])
def test_a_node_must_be_a_file_name(run_dir: Path, node: str) -> None:
    with pytest.raises(ValueError, match="cannot be part of a file name"):
        RunWriter(run_dir, node)


def test_recording_needs_a_run(tmp_path: Path) -> None:
    with pytest.raises(WhyboundError, match="create the run first"):
        RunWriter(tmp_path / "absent", "a")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ("\xff", "is not JSON"),
        ("[]", "has no schema_version"),
        ('{"name": "a web page"}', "has no schema_version"),
        (f'{{"schema_version": {SCHEMA_VERSION + 1}}}', "by a newer whybound .* upgrade whybound"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "manifest.json").write_bytes(text.encode("latin-1"))
    (tmp_path / "wal" / "node=a").mkdir(parents=True)
    for opening in (open_run, lambda path: RunWriter(path, "a"), lambda path: compact(path, "a")):
        with pytest.raises(WhyboundError, match=says) as caught:
            opening(tmp_path)
        assert "\n" not in str(caught.value)


def test_what_is_not_a_run_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(WhyboundError, match="does not exist"):
        open_run(tmp_path / "absent")
    with pytest.raises(WhyboundError, match=r"not a run: it has neither manifest\.json nor wal/"):
        open_run(tmp_path)
    file = tmp_path / "run.txt"
    file.write_text("x")
    with pytest.raises(WhyboundError, match="is a file, not a run"):
        open_run(file)
