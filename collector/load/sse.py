"""Server-sent events of the OpenAI APIs: lines, and which of them are tokens."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Lines:
    """Cuts a byte stream into lines that may end in the middle of a read."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The complete lines, without their ends."""
        lines = (self._rest + data if self._rest else data).split(b"\n")
        self._rest = lines.pop()
        return lines

    def rest(self) -> bytes:
        """What came after the last line end."""
        return self._rest


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Timings(msgspec.Struct):
    """llama.cpp's own account; `prompt_n` leaves out what came from its cache."""

    prompt_n: int | None = None
    predicted_n: int | None = None
    cache_n: int | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    role: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Any = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    timings: _Timings | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Chunk).decode


class Stream:
    """What the events of one answer have told so far.

    Attributes:
        input_tokens, output_tokens, cached_tokens: from `usage`, else from llama.cpp's `timings`;
            None when neither came. Chunks are never counted as tokens.
        finished: a finish reason or [DONE] was seen.
        error: one line, when the server reported an error inside the stream.
    """

    __slots__ = ("cached_tokens", "done", "error", "finished", "input_tokens", "output_tokens")

    def __init__(self) -> None:
        self.input_tokens: int | None = None
        self.output_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.finished = False
        self.done = False
        self.error: str | None = None

    def take(self, line: bytes) -> Literal[0, 1]:
        """Read one line; 1 when it is a content chunk, 0 for all else."""
        if not line.startswith(b"data:"):
            return 0  # blank lines, comments sent to keep the connection, event names
        data = line[5:].strip()
        if data == b"[DONE]":
            self.done = self.finished = True
            return 0
        if not data:
            return 0
        try:
            chunk = _decode(data)
        except msgspec.DecodeError as error:
            self.error = f"unreadable event: {error}"
            return 0
        if chunk.error is not None:
            says = chunk.error.get("message") if isinstance(chunk.error, dict) else None
            self.error = one_line(str(says or chunk.error).encode())
            return 0
        self._account(chunk)
        content = 0
        for choice in chunk.choices:
            self.finished = self.finished or choice.finish_reason is not None
            content |= _is_content(choice, chunk.timings is not None)
        return 1 if content else 0

    def _account(self, chunk: _Chunk) -> None:
        usage, timings = chunk.usage, chunk.timings
        if usage is not None:
            self.input_tokens, self.output_tokens = usage.prompt_tokens, usage.completion_tokens
            if usage.prompt_tokens_details is not None:
                self.cached_tokens = usage.prompt_tokens_details.cached_tokens
        if timings is not None:
            if self.output_tokens is None:
                self.output_tokens = timings.predicted_n
            if self.input_tokens is None and timings.prompt_n is not None:
                self.input_tokens = timings.prompt_n + (timings.cache_n or 0)
            if self.cached_tokens is None:
                self.cached_tokens = timings.cache_n


def _is_content(choice: _Choice, has_timings: bool) -> bool:
    """Did a token come with this choice?

    An empty text counts: it is a token whose bytes do not yet make a character. Not so a first
    chunk with the role alone, nor llama.cpp's closing chunk, which brings `timings` and no token.
    """
    delta = choice.delta
    text = choice.text
    if delta is not None:
        if delta.reasoning_content or delta.reasoning or delta.tool_calls is not None:
            return True
        text = delta.content
        if not text and delta.role is not None and choice.finish_reason is None:
            return False
    if text is None:
        return False
    return bool(text) or not (has_timings and choice.finish_reason is not None)


def one_line(text: bytes, limit: int = 200) -> str:
    """Any answer as one short line."""
    line = " ".join(text.decode("utf-8", "replace").split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
