"""One question to a Prometheus server: every way in which it may fail is named, none is raised raw."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from ...errors import WhyboundError

Params = Sequence[tuple[str, str]]

_MAX_REDIRECTS = 5
_MAX_QUERY_CHARS = 2_000
"""A longer query goes as a form, where that is allowed: proxies cap the length of a URL."""
_FORMS = ("query", "query_range", "series")
_TOKEN = "PROMETHEUS_TOKEN"  # noqa: S105 — the name of the variable, not a token
_ASK_FOR_TOKEN = f"a login page? set {_TOKEN} to a bearer token"


class AskError(WhyboundError):
    """A question without a usable answer.

    Attributes:
        kind: what the report counts it as, e.g. `http_503`, `timeout`, `html`.
        smaller: a smaller window may well be answered.
        again: the same question may be answered in a moment.
    """

    def __init__(
        self, message: str, kind: str, *, smaller: bool = False, again: bool = False
    ) -> None:
        super().__init__(message)
        self.kind, self.smaller, self.again = kind, smaller, again


class _Envelope(msgspec.Struct):
    status: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    errorType: str = ""  # noqa: N815 — Prometheus' own name
    error: str = ""
    warnings: list[str] | None = None


@dataclass(frozen=True)
class Answer:
    """`data` of a successful answer, not yet decoded; `byte_count` after decompression."""

    data: msgspec.Raw
    warnings: list[str]
    byte_count: int

    def read(self, kind: Any) -> Any:
        """The data as `kind`.

        Raises:
            AskError: it has another shape.
        """
        try:
            return msgspec.json.decode(self.data, type=kind)
        except msgspec.DecodeError as error:
            raise AskError(f"an answer of another shape: {error}", "not_prometheus") from error


class PrometheusClient:
    """Asks one server under one URL; sends its credentials nowhere else."""

    def __init__(
        self, http: aiohttp.ClientSession, url: str, *, timeout_s: float, max_bytes: int
    ) -> None:
        """Prepare; nothing is sent.

        Args:
            http: the session; its cookies and connections are used.
            url: of the server, with the path it is served under; `user:password@` is taken as basic
                authentication. A bearer token comes from the environment, PROMETHEUS_TOKEN.
            timeout_s: for one whole answer; told to the server too, so that it stops when we do.
            max_bytes: a larger answer is broken off.

        Raises:
            WhyboundError: it is no URL.
        """
        self._http, self._timeout_s, self._max_bytes = http, timeout_s, max_bytes
        given = base_url(url)
        self.base = given.with_user(None)
        self._headers = {"Accept": "application/json", **_credentials(given)}

    async def ask(self, path: str, params: Params = ()) -> Answer:
        """One answer under `api/v1/`.

        Raises:
            AskError: there is none; the message names the address and what happened.
        """
        url = self.base / "api/v1" / path
        params = [*params, ("timeout", f"{self._timeout_s:g}")]
        try:
            body, content_type = await self._exchange(url, params)
        except asyncio.TimeoutError as error:
            text = f"{url} gave no whole answer in {self._timeout_s:g} s"
            raise AskError(text, "timeout", smaller=True) from error
        return _opened(body, content_type, url)

    async def _exchange(self, url: URL, params: Params) -> tuple[bytes, str]:
        long = sum(len(k) + len(v) for k, v in params) > _MAX_QUERY_CHARS
        post = long and url.name in _FORMS
        here = url if post else url.with_query(list(params))
        for _ in range(_MAX_REDIRECTS):
            try:
                async with self._http.request(
                    "POST" if post else "GET",
                    here,
                    data=list(params) if post else None,
                    headers=self._headers,
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=self._timeout_s),
                ) as response:
                    if response.status in (301, 302, 303, 307, 308):
                        here = _redirected(here, response.headers.get("Location", ""))
                        post = post and response.status in (307, 308)
                        continue
                    body = await self._body(response, url)
                    _check(response.status, body, url)
                    return body, response.headers.get("Content-Type", "")
            except aiohttp.ClientPayloadError as error:
                text = f"{url} broke off in the middle of an answer"
                raise AskError(text, "broken", smaller=True, again=True) from error
            except asyncio.TimeoutError:  # some of aiohttp's are client errors too
                raise
            except (aiohttp.ClientError, OSError) as error:
                text = f"{url}: {one_line(error)}"
                raise AskError(text, "unreachable", again=True) from error
        raise AskError(f"{url} redirects in a circle", "redirect")

    async def _body(self, response: aiohttp.ClientResponse, url: URL) -> bytes:
        chunks = bytearray()
        async for chunk in response.content.iter_any():
            chunks += chunk
            if len(chunks) > self._max_bytes:
                size = f"{self._max_bytes / (1 << 20):g} MB"
                raise AskError(f"{url} answered more than {size}", "too_large", smaller=True)
        return bytes(chunks)


def base_url(url: str) -> URL:
    """The server's URL without a trailing slash; a scheme is added where none is.

    Raises:
        WhyboundError: it is no http or https URL.
    """
    try:
        base = URL(url if "://" in url else f"http://{url}")
    except ValueError as error:
        raise WhyboundError(f"--prometheus {url}: not a URL ({error})") from error
    if base.scheme not in ("http", "https") or not base.host:
        raise WhyboundError(f"--prometheus {url}: not a URL of a server; write http://host:9090")
    path = base.path.rstrip("/").removesuffix("/graph").removesuffix("/api/v1")
    return base.with_path(path or "/").with_query(None).with_fragment(None)


def one_line(error: BaseException) -> str:
    """What went wrong, without line breaks."""
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        why = os.strerror(number) if number and number > 0 else str(error.os_error)
        return f"cannot connect ({why})"
    return " ".join(str(error).split()) or type(error).__name__


def _credentials(url: URL) -> dict[str, str]:
    """The header that a token in the environment or a user in the URL asks for; never kept or shown."""
    token = os.environ.get(_TOKEN, "").strip()
    if token:
        return {"Authorization": f"Bearer {token}"}
    if url.user is not None:
        pair = f"{url.user}:{url.password or ''}".encode()
        return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
    return {}


def _redirected(here: URL, location: str) -> URL:
    """Where a redirect leads, if that is the same server or the same host under https.

    Raises:
        AskError: it leads elsewhere; the credentials do not go there.
    """
    try:
        there = here.join(URL(location))
    except ValueError:
        there = URL()
    same = (there.scheme, there.host, there.port) == (here.scheme, here.host, here.port)
    safer = there.host == here.host and (here.scheme, there.scheme) == ("http", "https")
    if not location or not (same or safer):
        host = there.host or "nowhere"
        raise AskError(
            f"{here.with_query(None)} redirects to {host}, not followed; {_ASK_FOR_TOKEN}",
            "redirect",
        )
    return there


def _check(status: int, body: bytes, url: URL) -> None:
    """Raises AskError for every status that is not 200, with the server's own words where it has some."""
    if status == 200:
        return
    said = _error_text(body)
    text = f"{url} answered {status}" + (f": {said}" if said else "")
    kind = f"http_{status}"
    if status in (401, 403):
        raise AskError(f"{text}; set {_TOKEN} to a bearer token that may read", kind)
    # 422: too many samples, too many series, or longer than the server may think
    raise AskError(
        text, kind, smaller=status in (413, 422, 503, 504), again=status in (429, 502, 503, 504)
    )


def _error_text(body: bytes) -> str:
    try:
        envelope = msgspec.json.decode(body, type=_Envelope)
    except msgspec.DecodeError:
        return ""
    return " ".join(envelope.error.split())[:200]


def _opened(body: bytes, content_type: str, url: URL) -> Answer:
    try:
        envelope = msgspec.json.decode(body, type=_Envelope)
    except msgspec.DecodeError as error:
        start = body[:64].lstrip()
        if "html" in content_type or start.startswith(b"<"):
            raise AskError(f"{url} answered HTML, not JSON: {_ASK_FOR_TOKEN}", "html") from error
        if start.startswith(b"{"):
            text = f"{url} broke off in the middle of an answer"
            raise AskError(text, "broken", smaller=True, again=True) from error
        raise AskError(f"{url} answered no JSON of Prometheus", "not_prometheus") from error
    if envelope.status != "success":
        said = " ".join(envelope.error.split())[:200] or envelope.errorType or "no reason given"
        heavy = envelope.errorType in ("timeout", "execution", "too_many_samples")
        raise AskError(f"{url} answered an error: {said}", "status_error", smaller=heavy)
    return Answer(envelope.data, envelope.warnings or [], len(body))
