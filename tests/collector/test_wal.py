"""The log: what is read back is a true prefix of what was written, whatever became of the bytes."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from whybound.collector import frames, wal
from whybound.collector.frames import build_batch, decode_batch, encode_frame
from whybound.collector.schema import TABLES, arrow_schema
from whybound.collector.store import create_run, open_run
from whybound.collector.wal import LogWriter, Losses, read_log, read_segment

_INT64 = st.integers(-(2**63), 2**63 - 1)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_FLOAT = st.floats(allow_nan=True, allow_infinity=True)
_VALUES = {
    "string": _TEXT,
    "dictionary": _TEXT,
    "int64": _INT64,
    "float64": _FLOAT,
    "bool": st.booleans(),
    "list<float64>": st.lists(st.none() | _FLOAT, max_size=4),
}


def rows_of(table: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    columns = {c.name: st.none() | _VALUES[c.type] for c in TABLES[table].columns}
    return st.lists(st.fixed_dictionaries({}, optional=columns), min_size=1, max_size=5)


def same(expected: list[dict[str, Any]], actual: list[dict[str, Any]], table: str) -> bool:
    """Equality by repr: NaN equals NaN, −0.0 is not 0.0, 1 is not 1.0; a missing key is None."""
    names = TABLES[table].column_names()
    return [[repr(r.get(n)) for n in names] for r in expected] == [
        [repr(r[n]) for n in names] for r in actual
    ]


def event(n: int) -> dict[str, Any]:
    return {"t_ns": n, "kind": "tick", "text": f"event {n} é", "value": n / 3, "node": "a"}


def write_segment(folder: Path, count: int = 4) -> Path:
    log = LogWriter(folder, 1, rotate_bytes=1 << 20, rotate_s=60)
    for n in range(count):
        log.write("events", build_batch("events", [event(n)]))
    log.close()
    return folder / f"{1:012d}"


def read_rows(path: Path) -> tuple[list[dict[str, Any]], Losses]:
    losses: Losses = {}
    rows = [r for f in read_segment(path, losses) for r in decode_batch(f).to_pylist()]
    return rows, losses


@settings(max_examples=25, deadline=None)
@given(data=st.data(), table=st.sampled_from(sorted(TABLES)), sequence=st.integers(0, 2**64 - 1))
def test_rows_round_trip_through_a_frame(data: st.DataObject, table: str, sequence: int) -> None:
    rows = data.draw(rows_of(table))
    raw = encode_frame(sequence, table, build_batch(table, rows))
    frame = frames.parse_frame(raw[: frames.HEAD.size], raw[frames.HEAD.size :])
    batch = decode_batch(frame)
    assert (frame.sequence, frame.table) == (sequence, table)
    assert batch.schema == arrow_schema(table)
    assert same(rows, batch.to_pylist(), table)


def test_truncation_at_every_byte_leaves_the_whole_frames_before_it(tmp_path: Path) -> None:
    whole = write_segment(tmp_path, 2).read_bytes()
    ends = [0]
    while ends[-1] < len(whole):
        ends.append(ends[-1] + 8 + int.from_bytes(whole[ends[-1] : ends[-1] + 4], "little"))
    cut = tmp_path / "1"
    for size in range(len(whole) + 1):
        cut.write_bytes(whole[:size])
        rows, losses = read_rows(cut)
        kept = max(i for i, end in enumerate(ends) if end <= size)
        assert same([event(n) for n in range(kept)], rows, "events")
        if size in ends:
            assert not losses
        else:
            assert losses["1"] == wal.SegmentLoss(1, 0, size - ends[kept])


def test_every_flipped_byte_is_detected(tmp_path: Path) -> None:
    whole = write_segment(tmp_path, 2).read_bytes()
    bad = tmp_path / "1"
    rng = random.Random(7)
    for position in range(len(whole)):
        flipped = bytearray(whole)
        flipped[position] ^= rng.choice([1, 0x80, rng.randrange(1, 256)])
        bad.write_bytes(flipped)
        rows, losses = read_rows(bad)
        kept = len(rows)
        assert kept < 2, f"a flip at {position} went unseen"
        assert same([event(n) for n in range(kept)], rows, "events")
        loss = losses["1"]
        assert loss.torn_frames + loss.corrupt_frames == 1
        assert loss.skipped_bytes > 0


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(junk=st.binary(max_size=200))
def test_junk_never_raises(tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "5"
    path.write_bytes(junk)
    rows, losses = read_rows(path)
    assert rows == []
    assert ("5" in losses) == bool(junk)


@pytest.mark.parametrize("length", [0, 1, frames.MAX_FRAME_BYTES + 1, 2**32 - 1])
def test_an_impossible_length_is_refused_before_it_is_read(tmp_path: Path, length: int) -> None:
    path = tmp_path / "1"
    path.write_bytes(frames.HEAD.pack(length, 0) + bytes(64))
    rows, losses = read_rows(path)
    assert rows == []
    assert losses["1"] == wal.SegmentLoss(0, 1, 72)


def test_what_the_checksum_covers_but_arrow_refuses_is_an_error_not_a_crash() -> None:
    good = encode_frame(1, "events", build_batch("events", [event(1)]))
    frame = frames.parse_frame(good[:8], good[8:])
    for broken in (
        frames.Frame(1, "events", frame.raw_bytes, memoryview(b"not zstd")),
        frames.Frame(1, "events", frame.raw_bytes - 1, frame.payload),
        frames.Frame(1, "samples!", frame.raw_bytes, frame.payload),
    ):
        with pytest.raises(frames.FrameError):
            decode_batch(broken)


def test_a_bad_segment_does_not_hide_the_next(tmp_path: Path) -> None:
    log = LogWriter(tmp_path, 1, rotate_bytes=1, rotate_s=60)  # a segment a frame
    for n in range(3):
        log.write("events", build_batch("events", [event(n)]))
    log.close()
    segments = wal.list_segments(tmp_path)
    assert [int(p.name) for p in segments] == [1, 2, 3]
    segments[1].write_bytes(segments[1].read_bytes()[:-1])
    losses: Losses = {}
    assert [f.sequence for f in read_log(segments, losses)] == [1, 3]
    assert list(losses) == [segments[1].name]


def test_a_copied_segment_does_not_count_twice(tmp_path: Path) -> None:
    path = write_segment(tmp_path)
    (tmp_path / "9").write_bytes(path.read_bytes())
    losses: Losses = {}
    assert [f.sequence for f in read_log(wal.list_segments(tmp_path), losses)] == [1, 2, 3, 4]
    assert losses["9"].corrupt_frames == 4


def test_rotation_by_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(wal.time, "monotonic", lambda: now[0])
    log = LogWriter(tmp_path, 1, rotate_bytes=1 << 20, rotate_s=60)
    for step in (0, 59, 1, 10):
        now[0] += step
        log.write("events", build_batch("events", [event(0)]))
    log.close()
    assert [int(p.name) for p in wal.list_segments(tmp_path)] == [1, 3]


def test_a_batch_too_large_for_a_frame_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_FRAME_BYTES", 4096)
    with pytest.raises(frames.FrameError, match="1 rows of events"):
        encode_frame(1, "events", build_batch("events", [{"text": "x" * 5000}]))


CHILD = """
import sys, time
from pathlib import Path
from whybound.collector.store import RunWriter
writer = RunWriter(Path(sys.argv[1]), "a", rotate_bytes=40_000)
n = 0
while True:
    rows = [{"t_ns": n + i, "signal": f"s{i}", "value": (n + i) / 7} for i in range(10)]
    writer.append("samples", rows)
    writer.append("events", [{"t_ns": n, "kind": "k"}])
    n += 10
    sys.stdout.write(f"{n} {time.time_ns()}\\n")
    sys.stdout.flush()
    time.sleep(0.002)
"""


@pytest.mark.parametrize("after_s", [0.05, 0.9, random.Random().uniform(0.5, 1.6)])
def test_a_killed_writer_loses_at_most_the_last_half_second(tmp_path: Path, after_s: float) -> None:
    run_dir = tmp_path / "run"
    create_run(run_dir, force=False)
    appended = tmp_path / "appended"
    with appended.open("wb") as out:
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(run_dir)], stdout=out)
        try:
            deadline = time.monotonic() + 30
            while not appended.stat().st_size and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(after_s)
            killed_ns = time.time_ns()
        finally:
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
    lines = [
        line.split() for line in appended.read_text().splitlines(keepends=True) if "\n" in line
    ]
    due = max((int(n) for n, at_ns in lines if int(at_ns) < killed_ns - 500_000_000), default=0)
    assert lines

    (run_dir / "manifest.json").unlink()
    run = open_run(run_dir)
    rows = run.log_table("samples").to_pylist()
    assert len(rows) >= due, f"{due} rows were older than half a second, {len(rows)} were read"
    assert [r["t_ns"] for r in rows] == list(range(len(rows)))
    assert all(math.isclose(r["value"], r["t_ns"] / 7) for r in rows)
    assert len(run.log_table("events")) >= due // 10
    assert run.losses["torn_frames"] <= 1
    assert run.losses["corrupt_frames"] == 0
    assert json.dumps(run.manifest) == '{"state": "recording"}'
