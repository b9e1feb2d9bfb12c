"""The response parser: the same body, however the bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whybound.collector.load.http1 import BadResponseError, ResponseParser

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def feed(data: bytes, cuts: list[int]) -> tuple[ResponseParser, bytes]:
    parser, body, last = ResponseParser(), b"", 0
    for cut in [*sorted(cuts), len(data)]:
        body += parser.feed(data[last:cut]) if cut > last else b""
        last = max(last, cut)
    return parser, body


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=8),
    st.lists(st.integers(0, 500), max_size=12),
    st.sampled_from([b"", b"X-Trailer: 1\r\n"]),
    st.sampled_from([b"", b";name=value"]),
)
def test_chunked_body_survives_any_cut(chunks, cuts, trailer, extension):
    data = b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    data += b"".join(b"%x%b\r\n%b\r\n" % (len(c), extension, c) for c in chunks)
    data += b"0\r\n" + trailer + b"\r\n"
    parser, body = feed(data, [c for c in cuts if c < len(data)])
    assert body == b"".join(chunks)
    assert parser.complete
    assert parser.status == 200
    assert parser.headers["content-type"] == "text/event-stream"
    short, _ = feed(data[:-1], [c for c in cuts if c < len(data) - 1])
    assert not short.complete


@given(st.binary(max_size=60), st.lists(st.integers(0, 120), max_size=5))
def test_body_with_a_length(content, cuts):
    data = HEAD + b"Content-Length: %d\r\n\r\n" % len(content) + content
    parser, body = feed(data, [c for c in cuts if c < len(data)])
    assert (body, parser.complete) == (content, True)


def test_body_until_close():
    parser, body = feed(HEAD + b"\r\nabc", [3, 60])
    assert (body, parser.complete, parser.until_close) == (b"abc", False, True)


def test_no_content_is_complete():
    parser, _ = feed(b"HTTP/1.1 204 No Content\r\n\r\n", [])
    assert (parser.status, parser.complete) == (204, True)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not an HTTP/1 server"),
        (b"HTTP/1.1 OK\r\n\r\n", "not an HTTP/1 server"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", "a chunk without a size"),
        (b"HTTP/1.1 200 OK\r\n" + b"a" * 70_000, "longer than 64 kB"),
    ],
)
def test_what_is_no_response(data, says):
    with pytest.raises(BadResponseError, match=says):
        feed(data, [])
