"""Candidates for gates: never a line less than by looking for each, however the log is made."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whybound.collector import log_gates
from whybound.collector.engine_log import LogReader
from whybound.collector.log_gates import MIN_BYTES, GateFinder
from whybound.collector.log_patterns import load_patterns, log_engines


def lines_with(data: bytes, gates: list[bytes]) -> set[int]:
    """Where the lines begin that hold a gate, looked for the plain way."""
    at, found = 0, set()
    for line in data.split(b"\n"):
        if any(gate in line for gate in gates):
            found.add(at)
        at += len(line) + 1
    return found


@given(st.lists(st.text(alphabet="abcE\n", max_size=30), max_size=60), st.integers(0, 3))
@settings(deadline=None)
def test_every_line_with_a_gate_has_a_candidate(parts, shift):
    gates = [b"ab", b"cEc", b"bb"]
    data = ("x" * shift + "".join(parts) + "\n").encode()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(log_gates, "MIN_BYTES", 0)
        patched.setattr(log_gates, "_RELEARN_SHARE", 1.0)
        patched.setattr(log_gates, "_PASS_BYTES", 7)
        found = GateFinder(gates).candidates(data)
    assert found is not None
    assert found == sorted(found)
    begins = {data.rfind(b"\n", 0, at) + 1 for at in found}
    assert lines_with(data, gates) <= begins


def test_small_blocks_full_ones_and_short_gates_are_left_to_the_plain_search():
    finder = GateFinder([b"ab", b"cd"])
    assert finder.candidates(b"x" * (MIN_BYTES - 1)) is None
    assert finder.candidates(b"x" * MIN_BYTES) == []
    assert finder.candidates(b"ab" * MIN_BYTES) is None
    assert finder.candidates(b"x" * MIN_BYTES) is None, "and rests a while"
    assert GateFinder([b"a"]).candidates(b"x" * MIN_BYTES) is None


def test_a_log_that_changes_is_learned_anew():
    finder = GateFinder([b"throughput: "])
    assert finder.candidates(b"quiet line\n" * 10_000) == []
    rest = b"another thing with th in it\n" * 10_000 + b"Avg throughput: 7\n"
    found = finder.candidates(rest)
    assert found is not None
    assert len(found) < 100
    assert any(rest[at - 20 : at + 20].find(b"throughput") >= 0 for at in found)


@pytest.mark.parametrize("engine", log_engines())
def test_the_two_ways_give_the_same_rows(engine, monkeypatch):
    patterns = load_patterns(engine).patterns
    shuffled = random.Random(7)
    lines = []
    for i in range(6000):
        lines.append(f'INFO:     10.0.0.{i % 250}:{i} - "POST /v1/completions HTTP/1.1" 200 OK')
        if i % 40 == 0:
            lines.append(shuffled.choice(patterns).pattern.example)
        if i % 1500 == 0:
            lines += [
                "ERROR 11-29 08:00:00 [x.py:1] Traceback (most recent call last):",
                "  File x",
                "ValueError: no",
            ]
    data = ("\n".join(lines) + "\n").encode()
    assert len(data) > 2 * MIN_BYTES

    def rows(piece):
        reader = LogReader(engine, near_ns=1_700_000_000_000_000_000, utc_offset_s=0)
        found = []
        for at in range(0, len(data), piece):
            found += reader.feed_bytes(data[at : at + piece])
        return found + reader.finish()

    fast = rows(len(data))
    assert fast == rows(200_000)
    monkeypatch.setattr(log_gates, "MIN_BYTES", 1 << 40)
    assert fast == rows(len(data))
    assert len(fast) > 50
