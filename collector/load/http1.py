"""Reading one HTTP/1.1 response as its bytes come in.

A general client hands each read through several queues and tasks before anyone sees it; with
thousands of chunks a second that costs CPU, and the time stamp of a chunk would include it. Here
the socket's callback parses at once.
"""

from __future__ import annotations

_HEAD_LIMIT_BYTES = 64 * 1024


class BadResponseError(Exception):
    """What came is no HTTP/1 response; the message says why."""


class ResponseParser:
    """Feed it bytes, it gives the body without its transfer encoding.

    Attributes:
        status: HTTP status code; None until the head is complete.
        headers: names in lower case; the last of equal names counts.
        complete: the body ended as it announced.
        until_close: the body's end is the connection's end.
    """

    __slots__ = (
        "_chunked",
        "_left",
        "_pending",
        "_state",
        "complete",
        "headers",
        "status",
        "until_close",
    )

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.complete = False
        self.until_close = False
        self._chunked = False
        self._left = 0  # bytes left of the body, or of the present chunk
        self._pending = b""
        self._state = "head"  # then size → data → after …, or trailer; plain without chunks

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes; return what body they hold, possibly nothing.

        Raises:
            BadResponseError: malformed head or chunk.
        """
        if self._state == "head":
            data = self._head(self._pending + data)
            if self._state == "head":
                return b""
        if self.complete:
            return b""
        if self._chunked:
            return self._dechunk(self._pending + data if self._pending else data)
        if self.until_close:
            return data
        body = data[: self._left]
        self._left -= len(body)
        self.complete = self._left == 0
        return body

    def _head(self, data: bytes) -> bytes:
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if len(data) > _HEAD_LIMIT_BYTES:
                raise BadResponseError("the response's head is longer than 64 kB")
            if not b"HTTP/1.".startswith(data[:7]):
                raise BadResponseError("not an HTTP/1 server")
            self._pending = data
            return b""
        lines = data[:end].decode("latin-1").split("\r\n")
        words = lines[0].split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
            raise BadResponseError("not an HTTP/1 server")
        rest, self._pending = data[end + 4 :], b""
        if words[1].startswith("1"):  # 100 Continue and its like: the real head follows
            return self._head(rest)
        self.status = int(words[1])
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        length = self.headers.get("content-length", "")
        self._state = "size" if self._chunked else "plain"
        if not self._chunked:
            self.until_close = not length.isdigit()
            self._left = int(length) if length.isdigit() else 0
            self.complete = self.status in (204, 304) or (not self.until_close and self._left == 0)
        return rest

    def _dechunk(self, data: bytes) -> bytes:
        parts: list[bytes] = []
        at, end = 0, len(data)
        self._pending = b""
        while at < end and not self.complete:
            if self._state == "data":
                part = data[at : at + self._left]
                parts.append(part)
                at += len(part)
                self._left -= len(part)
                if self._left == 0:
                    self._state = "after"
                continue
            line_end = data.find(b"\r\n", at)
            if line_end < 0:
                if end - at > _HEAD_LIMIT_BYTES:
                    raise BadResponseError("a chunk without a size")
                self._pending = data[at:]
                break
            line, at = data[at:line_end], line_end + 2
            if self._state == "after":  # the CRLF that ends a chunk's data
                self._state = "size"
            elif self._state == "size":
                try:
                    self._left = int(line.split(b";", 1)[0], 16)
                except ValueError:
                    raise BadResponseError("a chunk without a size") from None
                self._state = "data" if self._left else "trailer"
            elif not line:  # the empty line after the last chunk and its trailers
                self.complete = True
        return parts[0] if len(parts) == 1 else b"".join(parts)
