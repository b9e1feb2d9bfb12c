"""Scrapes one /metrics endpoint at an interval; what is slow, gone or odd is told, not raised."""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from ...errors import WhyboundError
from .scrape import Row, Scrape, ScrapeState, scrape_rows

__all__ = ["PrometheusSource", "Scrape", "ScrapeState", "scrape_rows"]

_PATHS = ("/metrics", "/prometheus/metrics")
_THREAD_BYTES = 1 << 20
"""A larger page is parsed in a thread, so that the event loop goes on."""
_MAX_GAPS = 100
_COUNTS = (
    *("ok", "failed", "truncated", "skipped"),
    *("bad_lines", "not_finite", "incomplete", "left_out"),
)
_HEADERS = {
    "Accept": "text/plain;version=0.0.4;q=0.9,*/*;q=0.1",
    # Compressing every page would cost the server CPU that we came to measure.
    "Accept-Encoding": "identity",
}


class _ScrapeError(WhyboundError):
    """One scrape that failed; `try_next` when another path may be the right one."""

    def __init__(self, message: str, *, try_next: bool = False, timed_out: bool = False) -> None:
        super().__init__(message)
        self.try_next = try_next
        self.timed_out = timed_out


@dataclass(frozen=True)
class _Answer:
    body: bytes
    t_ns: int
    cut: bool
    content_type: str


class PrometheusSource:
    """Rows from one endpoint, for as long as a run lasts."""

    def __init__(
        self,
        *,
        url: str,
        node: str,
        replica: str,
        interval_s: float,
        sink: Callable[[str, list[Row]], None],
        timeout_s: float = 5.0,
        max_bytes: int = 32 << 20,
    ) -> None:
        """Prepare; nothing is sent before `run`.

        Args:
            url: http or https; without a path /metrics is tried, then /prometheus/metrics.
            node: host that records.
            replica: engine instance, e.g. host:port.
            interval_s: seconds from one scrape to the next.
            sink: takes the name of a table and rows for it.
            timeout_s: for one whole answer.
            max_bytes: a larger page is left out.

        Raises:
            WhyboundError: the URL is none, or the interval or the timeout is not above 0.
        """
        if not (interval_s > 0 and timeout_s > 0):
            raise WhyboundError(f"{url}: interval and timeout must be above 0 s")
        self._urls = _candidates(url)
        self._node, self._replica = node, replica
        self._interval_s, self._timeout_s = interval_s, timeout_s
        self._sink, self._max_bytes = sink, max_bytes
        self._asked = asyncio.Event()
        self._state: ScrapeState | None = None
        self._absent: set[str] | None = None
        self._engine = ""
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._unmapped: dict[str, int] = {}
        self._gaps: list[list[int | None]] = []
        self._last_error: str | None = None
        self._warning: str | None = None
        self._bytes: list[int] = [0, 0]  # sum, largest
        self._fetch_s: list[float] = [0.0, 0.0]
        self._parse_s: list[float] = [0.0, 0.0]

    def scrape_now(self) -> None:
        """Ask for one scrape between two ticks, e.g. where the warm-up ends and counting begins."""
        self._asked.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Scrape at once, then at the interval, and once more when `stop` is set; never raises.

        Times do not drift: the n-th scrape is due n intervals after the first, and one that would
        overlap the one before is skipped and counted.
        """
        loop = asyncio.get_running_loop()
        timeout = aiohttp.ClientTimeout(total=self._timeout_s)
        async with aiohttp.ClientSession(timeout=timeout, headers=_HEADERS) as session:
            start = loop.time()
            tick = 0
            while True:
                timed_out = await self._scrape(session)
                passed = math.floor((loop.time() - start) / self._interval_s)
                self._counts["skipped"] += max(0, passed - tick)
                tick = max(tick, passed) + 1
                due = start + tick * self._interval_s
                while await _any_within(due - loop.time(), stop, self._asked):
                    if stop.is_set():
                        break
                    self._asked.clear()
                    timed_out = await self._scrape(session)
                if stop.is_set():
                    break
            if not timed_out:  # a server that hangs would only hold up the end
                await self._scrape(session)

    def report(self) -> dict[str, Any]:
        """What was scraped and what was not.

        Keys: `url` (without credentials), `engine`, `scrapes_ok`, `scrapes_failed`,
        `scrapes_truncated` (of those ok), `scrapes_skipped`, `unmapped` (family → samples on one
        page), `absent` (expected signals that no whole page had), `bad_lines`, `not_finite_count`,
        `incomplete_count`, `left_out_count`, `gaps` ([from, to] ns of failures in a row, `to` null
        at the end; at most 100), `last_error`, `warning` (one line or null), `bytes_mean`,
        `bytes_max`, `fetch_mean_s`, `fetch_max_s`, `parse_mean_s`, `parse_max_s` (null before the
        first page).
        """
        counts = self._counts
        pages = counts["ok"]

        def mean(total: float) -> float | None:
            return total / pages if pages else None

        return {
            "url": _shown(self._urls[0]),
            "engine": self._engine,
            "scrapes_ok": counts["ok"],
            "scrapes_failed": counts["failed"],
            "scrapes_truncated": counts["truncated"],
            "scrapes_skipped": counts["skipped"],
            "unmapped": dict(self._unmapped),
            "absent": sorted(self._absent or ()),
            "bad_lines": counts["bad_lines"],
            "not_finite_count": counts["not_finite"],
            "incomplete_count": counts["incomplete"],
            "left_out_count": counts["left_out"],
            "gaps": [list(gap) for gap in self._gaps],
            "last_error": self._last_error,
            "warning": self._warning,
            "bytes_mean": mean(self._bytes[0]),
            "bytes_max": self._bytes[1] if pages else None,
            "fetch_mean_s": mean(self._fetch_s[0]),
            "fetch_max_s": self._fetch_s[1] if pages else None,
            "parse_mean_s": mean(self._parse_s[0]),
            "parse_max_s": self._parse_s[1] if pages else None,
        }

    async def _scrape(self, session: aiohttp.ClientSession) -> bool:
        """One scrape; did it time out?"""
        began_ns = time.time_ns()
        try:
            await self._scrape_candidates(session)
        except Exception as error:
            # The end of the line on purpose: a collector must not take the run down with it.
            self._last_error = str(error) or type(error).__name__
            self._counts["failed"] += 1
            if not (self._gaps and self._gaps[-1][1] is None) and len(self._gaps) < _MAX_GAPS:
                self._gaps.append([began_ns, None])
            return isinstance(error, _ScrapeError) and error.timed_out
        if self._gaps and self._gaps[-1][1] is None:
            self._gaps[-1][1] = began_ns
        return False

    async def _scrape_candidates(self, session: aiohttp.ClientSession) -> None:
        first_error: _ScrapeError | None = None
        for url in self._urls:
            try:
                await self._scrape_url(session, url)
            except _ScrapeError as error:
                first_error = first_error or error
                if not error.try_next:
                    break
            else:
                self._urls = [url]
                return
        assert first_error is not None
        raise first_error

    async def _scrape_url(self, session: aiohttp.ClientSession, url: URL) -> None:
        before = time.perf_counter()
        answer = await self._fetch(session, url)
        fetched = time.perf_counter()

        def rows() -> Scrape:
            return scrape_rows(
                answer.body,
                t_ns=answer.t_ns,
                node=self._node,
                replica=self._replica,
                previous=self._state,
            )

        small = len(answer.body) < _THREAD_BYTES
        scrape = rows() if small else await asyncio.to_thread(rows)
        parsed = time.perf_counter()
        if not scrape.sample_count:
            raise _ScrapeError(f"GET {_shown(url)} {_what(answer)}", try_next=True)
        self._take(scrape, answer, url)
        for sums, value in (
            (self._fetch_s, fetched - before),
            (self._parse_s, parsed - fetched),
        ):
            sums[0] += value
            sums[1] = max(sums[1], value)

    def _take(self, scrape: Scrape, answer: _Answer, url: URL) -> None:
        for table in ("samples", "histograms", "settings"):
            rows = getattr(scrape, table)
            if rows:
                self._sink(table, rows)
        self._state = scrape.state
        self._engine = scrape.engine or self._engine
        self._counts["ok"] += 1
        self._counts["bad_lines"] += scrape.bad_lines
        self._counts["not_finite"] += scrape.not_finite_count
        self._counts["incomplete"] += scrape.incomplete_count
        self._counts["left_out"] += scrape.left_out_count
        self._bytes[0] += len(answer.body)
        self._bytes[1] = max(self._bytes[1], len(answer.body))
        for name, count in scrape.unmapped.items():
            self._unmapped[name] = max(count, self._unmapped.get(name, 0))
        if scrape.truncated or answer.cut:
            self._counts["truncated"] += 1
            self._last_error = f"GET {_shown(url)} truncated at byte {len(answer.body)}"
        elif scrape.engine:
            absent = set(scrape.absent)
            self._absent = absent if self._absent is None else self._absent & absent
        if not self._engine:
            self._warning = (
                f"GET {_shown(url)} has no metrics of a known engine; "
                "are its statistics switched off (vLLM: --disable-log-stats)?"
            )
        else:
            self._warning = None

    async def _fetch(self, session: aiohttp.ClientSession, url: URL) -> _Answer:
        began_ns, began = time.time_ns(), time.perf_counter()
        shown = f"GET {_shown(url)}"
        chunks = bytearray()
        cut = False
        try:
            async with session.get(url) as response:
                # The server makes the page between the request and its first byte.
                t_ns = began_ns + int((time.perf_counter() - began) / 2 * 1e9)
                if response.status != 200:
                    hint = _HINTS.get(response.status, "")
                    wrong_place = response.status in (404, 405)
                    raise _ScrapeError(f"{shown} {response.status}{hint}", try_next=wrong_place)
                try:
                    async for chunk in response.content.iter_any():
                        chunks += chunk
                        if len(chunks) > self._max_bytes:
                            size = f"{self._max_bytes / (1 << 20):g} MB"
                            raise _ScrapeError(f"{shown} larger than {size}, left out")
                except aiohttp.ClientPayloadError:
                    cut = True
                content_type = response.headers.get("Content-Type", "")
        except asyncio.TimeoutError as error:
            text = f"{shown} no whole answer in {self._timeout_s:g} s"
            raise _ScrapeError(text, timed_out=True) from error
        except (aiohttp.ClientError, OSError) as error:
            raise _ScrapeError(f"{shown} {_one_line(error)}") from error
        return _Answer(bytes(chunks), t_ns, cut, content_type)


_HINTS = {501: " (llama.cpp: start it with --metrics)"}


def _candidates(url: str) -> list[URL]:
    """The URLs to try in turn, with a scheme and a path."""
    try:
        base = URL(url if "://" in url else f"http://{url}")
    except ValueError as error:
        raise WhyboundError(f"{url}: not a URL ({error})") from error
    if base.scheme not in ("http", "https") or not base.host:
        raise WhyboundError(f"{url}: not a URL of a metrics page; write http://host:port")
    if base.path not in ("", "/"):
        return [base]
    return [base.with_path(path).with_query(base.query) for path in _PATHS]


def _shown(url: URL) -> str:
    return str(url.with_user(None))


def _what(answer: _Answer) -> str:
    """What a page without a single sample is instead."""
    start = answer.body[:64].lstrip()
    if answer.cut:
        return f"truncated at byte {len(answer.body)}"
    if not start:
        return "is empty"
    if start.startswith(b"#"):
        return "has no samples yet"
    if "html" in answer.content_type or start.startswith(b"<"):
        return "is HTML, not metrics"
    if "json" in answer.content_type or start.startswith((b"{", b"[")):
        return "is JSON, not metrics"
    return "is not metrics: no line of it could be read"


def _one_line(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return (
            f"cannot connect ({os.strerror(number) if number and number > 0 else error.os_error})"
        )
    return " ".join(str(error).split()) or type(error).__name__


async def _any_within(seconds: float, *events: asyncio.Event) -> bool:
    """Was one of the events set before the time was up?"""
    waiters = [asyncio.ensure_future(e.wait()) for e in events]
    try:
        await asyncio.wait(waiters, timeout=max(0.0, seconds), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiter in waiters:
            waiter.cancel()
    return any(e.is_set() for e in events)
