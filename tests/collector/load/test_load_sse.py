"""Events: which of them are tokens, and where the counts come from."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whybound.collector.load.sse import Lines, Stream, one_line


def take(*events: object) -> tuple[Stream, list[int]]:
    stream = Stream()
    lines = [e if isinstance(e, bytes) else b"data: " + json.dumps(e).encode() for e in events]
    return stream, [stream.take(line) for line in lines]


def text(t: str | None, **more: object) -> dict:
    return {"choices": [{"index": 0, "text": t, "logprobs": None, **more}], **{}}


def delta(**content: object) -> dict:
    return {"choices": [{"index": 0, "delta": content, "finish_reason": None}]}


@given(st.binary(max_size=80), st.lists(st.integers(0, 80), max_size=6))
def test_lines_survive_any_cut(data, cuts):
    lines, got, last = Lines(), [], 0
    for cut in [*sorted(cuts), len(data)]:
        got += lines.feed(data[last:cut]) if cut > last else []
        last = max(last, cut)
    assert [*got, lines.rest()] == data.split(b"\n")


def test_completions_of_vllm():
    usage = {"prompt_tokens": 16, "completion_tokens": 3, "prompt_tokens_details": None}
    stream, tokens = take(
        text("a"), text(""), text("b", finish_reason="length"),
        {"choices": [], "usage": usage}, b"data: [DONE]\r",
    )  # fmt: skip
    assert tokens == [1, 1, 1, 0, 0]  # the empty text is half of a character
    assert (stream.input_tokens, stream.output_tokens, stream.cached_tokens) == (16, 3, None)
    assert stream.finished
    assert stream.done


def test_chat_leaves_out_role_and_end():
    stream, tokens = take(
        delta(role="assistant", content=""), delta(role="assistant", content=None),
        delta(content="a"), delta(content=""), delta(reasoning_content="r"),
        delta(tool_calls=[{"index": 0}]), delta(role="assistant", content="b"),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    )  # fmt: skip
    assert tokens == [0, 0, 1, 1, 1, 1, 1, 0]
    assert (stream.finished, stream.done, stream.output_tokens) == (True, False, None)


def test_timings_of_llamacpp_stand_in_for_usage():
    timings = {"cache_n": 5, "prompt_n": 11, "predicted_n": 32, "predicted_ms": 9.5}
    end = {**text("", finish_reason="length"), "timings": timings}
    stream, tokens = take(text("a"), end)
    assert tokens == [1, 0]
    assert (stream.input_tokens, stream.output_tokens, stream.cached_tokens) == (16, 32, 5)
    usage = {"prompt_tokens": 99, "completion_tokens": 98}
    stream, _ = take({**end, "usage": usage})
    assert (stream.input_tokens, stream.output_tokens, stream.cached_tokens) == (99, 98, 5)


def test_nothing_said_is_nothing_known():
    stream, tokens = take(text("a"), text("b"), b"data: [DONE]")
    assert tokens == [1, 1, 0]
    assert (stream.input_tokens, stream.output_tokens, stream.cached_tokens) == (None, None, None)


@pytest.mark.parametrize("line", [b"", b"\r", b": ping", b"event: message", b"id: 7", b"data:"])
def test_other_lines_are_nothing(line):
    stream, tokens = take(line)
    assert tokens == [0]
    assert stream.error is None


@pytest.mark.parametrize(
    ("event", "says"),
    [
        ({"error": {"message": "engine\n died", "code": 500}}, "engine died"),
        ({"error": "no room"}, "no room"),
        (b"data: {nonsense", "unreadable event: "),
        (b'data: {"choices": 3}', "unreadable event: "),
    ],
)
def test_errors_in_the_stream(event, says):
    stream, tokens = take(event)
    assert tokens == [0]
    assert stream.error is not None
    assert stream.error.startswith(says)


def test_an_error_of_null_is_none():
    stream, tokens = take({**text("a"), "error": None})
    assert (tokens, stream.error) == ([1], None)


def test_one_line_is_short():
    assert one_line(b"a\n\n  b\xff") == "a b\N{REPLACEMENT CHARACTER}"
    assert len(one_line(b"x" * 5000)) == 200
