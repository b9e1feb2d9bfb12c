"""Reads a run out of a Prometheus server: one signal and one window at a time.

Raw samples come by an instant query with a range selector, `name[window]`, so that counters and
histograms keep their scrape times; where the server does not give them, or there are too many, by a range
query at a step. What a server answers only in part is counted and told; the rest is kept.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Any

import aiohttp

from ...errors import WhyboundError
from ..engine_map import EngineMap, engines, load_map
from .exposition import engine_prefixes
from .prometheus_http import AskError, Params, PrometheusClient
from .prometheus_matrix import Fleet, MatrixData, Row, Rows, SignalRows, fleet_of
from .prometheus_query import (
    Unit,
    instance_matcher,
    matchers,
    name_matcher,
    names_of,
    seconds,
    units,
)
from .prometheus_report import some, summary

MAX_POINTS = 10_000
"""Points a series and answer; Prometheus refuses a range query above 11,000."""
RAW_SCRAPES = 20_000
"""Scrapes a series up to which raw samples are read: 5.5 h at one a second, 3.5 days at one in 15 s."""
MAX_ANSWER_BYTES = 4 << 20
FIRST_WINDOW_MS, MIN_WINDOW_MS = 300_000, 5_000
RETRY_AFTER_S = (0.25, 1.0)
"""Pauses before a question that failed by the server's condition is asked again."""
GIVE_UP_AFTER = 3
"""Signals in a row of which no window came: the server is gone, and the rest is not asked for."""
LOST_IN_A_ROW = 2
"""Windows of one signal in a row that may be lost before its rest is left out."""

_EMULATED = "whybound_emulated_slip_seconds_total"
_MAX_LOST = 100


class PrometheusHistory:
    """Rows of one stretch of time, read once."""

    def __init__(
        self,
        *,
        url: str,
        since_s: float,
        until_s: float = 0.0,
        match: str | None,
        step_s: float,
        node: str,
        sink: Callable[[str, list[Row]], None],
        timeout_s: float = 30.0,
    ) -> None:
        """Prepare; nothing is sent before `read`.

        Args:
            url: of the server, with the path that it is served under. A bearer token is taken from the
                environment, PROMETHEUS_TOKEN, and kept nowhere.
            since_s: begin, seconds before now (by the server's clock).
            until_s: end, seconds before now.
            match: label matchers that every series has to fit, e.g. `{job="vllm"}`; None: all.
            step_s: between two points where raw samples cannot be had.
            node: host that records.
            sink: takes the name of a table and rows for it; called between two questions.
            timeout_s: for one whole answer.

        Raises:
            WhyboundError: the matchers are none, or the times make no sense.
        """
        if not (since_s > until_s >= 0 and step_s > 0 and timeout_s > 0):
            raise WhyboundError(
                f"--since {since_s:g} s, --step {step_s:g} s: both must be above 0, and since before until"
            )
        self._url, self._node, self._sink = url, node, sink
        self._match = matchers(match)
        self._since_s, self._until_s = since_s, until_s
        self._step_ms = max(1, round(step_s * 1000))
        self._timeout_s = timeout_s
        self._start_ms = self._end_ms = 0
        self._raw = True
        self._gone = 0
        self._interval_ms: float | None = None
        self._report: dict[str, Any] = {
            "url": url, "engine": "", "engines": [], "replicas": [], "models": [], "emulated": False,
            "mode": "raw", "step_s": step_s, "start_ns": None, "end_ns": None,
            "scrape_interval_s": None, "queries_ok": 0, "queries_failed": 0, "failures": {},
            "retried": 0, "halved": 0, "fallbacks": 0, "empty": 0, "warnings": [], "warned": 0,
            "samples": 0, "histograms": 0, "settings": 0, "series_count": 0,
            "series_vanished_count": 0, "replicas_vanished": {}, "not_finite_count": 0,
            "incomplete_count": 0, "native_histograms_count": 0, "other_job_count": 0,
            "doubled": {}, "unmapped": [], "unmapped_engines": [], "absent": [], "lost": [],
            "lost_count": 0, "gave_up": False, "last_error": None, "bytes_total": 0, "bytes_max": 0,
        }  # fmt: skip

    async def read(self) -> None:
        """Read everything into the sink.

        Raises:
            WhyboundError: nothing came: no Prometheus, no names of a known engine, or no samples; the
                message says what to try.
        """
        # one question at a time, so one connection; a new one each hour costs nothing
        connector = aiohttp.TCPConnector(limit=1)
        async with aiohttp.ClientSession(connector=connector) as http:
            client = PrometheusClient(
                http, self._url, timeout_s=self._timeout_s, max_bytes=MAX_ANSWER_BYTES
            )
            self._report["url"] = str(client.base).rstrip("/")
            self._client = client
            await self._is_prometheus()
            now_ms = await self._now_ms()
            self._start_ms = now_ms - round(self._since_s * 1000)
            self._end_ms = now_ms - round(self._until_s * 1000)
            self._report["start_ns"] = self._start_ms * 1_000_000
            self._report["end_ns"] = self._end_ms * 1_000_000
            present = await self._engine_names()
            for engine, names in present.items():
                await self._read_engine(load_map(engine), names)
            if not self._report["samples"] + self._report["histograms"]:
                raise WhyboundError(await self._nothing_came(present))

    def report(self) -> dict[str, Any]:
        """What was read and what was not; JSON, without credentials.

        Keys: `url`, `engine` (the first of `engines`), `replicas`, `models`, `emulated`, `mode` (raw
        or step), `step_s`, `start_ns`, `end_ns`, `scrape_interval_s` (null where unknown);
        `queries_ok`, `queries_failed` and `failures` (kind → count), `retried`, `halved` (windows),
        `fallbacks` (windows read at the step instead of raw), `empty` (answers without a series),
        `warnings` (the server's, each once, at most 10) and `warned`; rows by table: `samples`,
        `histograms`, `settings`; `series_count`, `series_vanished_count` (ended before the stretch
        did), `replicas_vanished` (replica → ns last seen), `not_finite_count`, `incomplete_count`,
        `native_histograms_count`, `other_job_count` and `doubled` (replica → jobs; the first counts);
        `unmapped` (names), `unmapped_engines`, `absent` (expected signals); `lost` ([signal, from ns,
        to ns, why], at most 100) and `lost_count`, `gave_up`, `last_error`, `warning` (one line or
        null), `bytes_total`, `bytes_max`.
        """
        return {**self._report, "warning": summary(self._report)}

    # ------------------------------------------------------------ what is there

    async def _is_prometheus(self) -> None:
        try:
            await self._ask("status/buildinfo")
        except AskError as error:
            # Cortex and old releases have no build information; then a question must do
            if error.kind not in ("http_404", "http_405", "status_error"):
                raise WhyboundError(f"cannot read {error}") from error
            try:
                await self._ask("labels", kind=list[str])
            except AskError as other:
                raise WhyboundError(
                    f"{self._report['url']} does not answer as a Prometheus server: {other}; give the address"
                    " that its API is served under"
                ) from other

    async def _now_ms(self) -> int:
        """The server's time: what it stored bears its clock, not ours."""
        try:
            data, _ = await self._ask("query", [("query", "time()")], kind=dict[str, Any])
            return round(float(data["result"][0]) * 1000)
        except (AskError, KeyError, IndexError, TypeError, ValueError):
            return time.time_ns() // 1_000_000

    async def _engine_names(self) -> dict[str, set[str]]:
        """Engines that have a map → their names on the server; the others are noted."""
        prefixes = engine_prefixes()
        mapped = {e: prefixes[e] for e in engines() if e in prefixes}
        found = {}
        for engine, begin in mapped.items():
            names = await self._names(begin)
            if names:
                found[engine] = names
        others = {e: begin for e, begin in prefixes.items() if e not in mapped}
        rest = await self._names(tuple(b for begin in others.values() for b in begin))
        self._report["unmapped_engines"] = [
            e for e, begin in others.items() if any(n.startswith(begin) for n in rest)
        ]
        self._report["engines"] = list(found)
        self._report["engine"] = next(iter(found), "")
        self._report["emulated"] = bool(found) and bool(await self._names((_EMULATED,)))
        return found

    async def _names(self, begin: tuple[str, ...]) -> set[str]:
        pattern = "|".join(f"{b}.*" for b in begin)
        selector = self._selector(f'__name__=~"{pattern}"')
        names = await self._label_values("__name__", selector)
        return {n for n in names if n.startswith(begin)}

    async def _label_values(self, label: str, selector: str) -> list[str]:
        params = [("match[]", selector), *self._range()]
        try:
            names: list[str]
            names, _ = await self._ask(f"label/{label}/values", params, kind=list[str])
        except AskError as error:
            self._lose(f"names of {label}", self._start_ms, self._end_ms, error)
            return []
        return names

    async def _fleet(self, mapping: EngineMap, names: set[str]) -> Fleet:
        """The replicas, from the label sets of a gauge that every engine has."""
        state = names_of(mapping, names, "engine_running_count") or sorted(names)[:1]
        params = [("match[]", self._selector(name_matcher(state))), *self._range()]
        try:
            sets, _ = await self._ask("series", params, kind=list[dict[str, str]])
        except AskError as error:
            self._lose("the list of replicas", self._start_ms, self._end_ms, error)
            return Fleet()
        return fleet_of(sets, mapping.instance_labels)

    # ------------------------------------------------------------ reading

    async def _read_engine(self, mapping: EngineMap, names: set[str]) -> None:
        report = self._report
        fleet = await self._fleet(mapping, names)
        report["replicas"] = sorted({*report["replicas"], *fleet.job})
        report["models"] = sorted({*report["models"], *fleet.models})
        report["doubled"] |= fleet.doubled
        report["absent"] += mapping.absent(names)
        report["unmapped"] += sorted(
            n for n in names if not mapping.wants(n) and not mapping.is_ignored(n)
        )
        if self._raw:
            await self._choose_mode(names_of(mapping, names, "engine_running_count"))
        for unit in units(mapping, names):
            if self._gone >= GIVE_UP_AFTER:
                report["gave_up"] = True
                break
            rows = SignalRows(mapping, fleet, self._node, known_only=unit.known_only)
            await self._read_unit(unit, rows, fleet)
            self._close(unit, rows)

    async def _choose_mode(self, state: list[str]) -> None:
        """Raw samples, unless there are too many of them."""
        if not state:
            return
        selector = self._selector(name_matcher(state))
        length = math.ceil((self._end_ms - self._start_ms) / 1000)
        query = f"max(count_over_time({selector}[{length}s]))"
        params = [("query", query), ("time", seconds(self._end_ms))]
        try:
            data, _ = await self._ask("query", params, kind=dict[str, Any])
            count = float(data["result"][0]["value"][1])
        except (AskError, KeyError, IndexError, TypeError, ValueError):
            return  # the windows will show
        if count > RAW_SCRAPES:
            self._raw = False
            self._report["mode"] = "step"

    async def _read_unit(self, unit: Unit, rows: SignalRows, fleet: Fleet) -> None:
        """One signal over the whole stretch; the window follows what the server can take."""
        selector = self._selector(
            name_matcher(unit.names), *([instance_matcher(fleet)] if unit.known_only else [])
        )
        at, window = self._start_ms, FIRST_WINDOW_MS
        lost_in_a_row, came = 0, False
        while at < self._end_ms:
            most = MAX_POINTS * (1000 if self._raw else self._step_ms)
            window = min(window, most)
            until = min(self._end_ms, at + window)
            try:
                size = await self._read_window(unit, selector, rows, at, until)
            except AskError as error:
                if error.smaller and until - at > MIN_WINDOW_MS:
                    window = max(MIN_WINDOW_MS, (until - at) // 2)
                    self._report["halved"] += 1
                    continue
                lost_in_a_row += 1
                if lost_in_a_row >= LOST_IN_A_ROW:
                    until = self._end_ms
                self._lose(unit.signal, at, until, error)
            else:
                came, lost_in_a_row = True, 0
                if size < MAX_ANSWER_BYTES // 4:
                    window *= 2
            at = until
        self._gone = 0 if came else self._gone + 1

    async def _read_window(
        self, unit: Unit, selector: str, rows: SignalRows, after_ms: int, until_ms: int
    ) -> int:
        """Rows of one window into the sink; bytes of the answer."""
        if not self._raw:
            return await self._read_stepped(selector, rows, after_ms, until_ms)
        length = math.ceil((until_ms - after_ms) / 1000)
        params = [("query", f"{selector}[{length}s]"), ("time", seconds(until_ms))]
        try:
            matrix, size = await self._ask("query", params, kind=MatrixData)
        except AskError as error:
            if error.smaller and until_ms - after_ms > MIN_WINDOW_MS:
                raise
            if error.kind in ("unreachable", "timeout", "redirect", "html"):
                raise  # another question to a server that is gone
            size = await self._read_stepped(selector, rows, after_ms, until_ms)
            self._report["fallbacks"] += 1
            if not error.smaller:  # not for its size: the server gives no raw samples
                self._raw = False
                self._report["mode"] = "step"
            return size
        self._keep(matrix, rows, after_ms, until_ms)
        return size

    async def _read_stepped(
        self, selector: str, rows: SignalRows, after_ms: int, until_ms: int
    ) -> int:
        # all signals on one grid, so that what was read at the same time meets again
        step = self._step_ms
        first = self._start_ms + ((after_ms - self._start_ms) // step + 1) * step
        last = self._start_ms + ((until_ms - self._start_ms) // step) * step
        if first > last:
            return 0
        params = [
            ("query", selector), ("start", seconds(first)), ("end", seconds(last)),
            ("step", f"{step / 1000:g}"),
        ]  # fmt: skip
        matrix, size = await self._ask("query_range", params, kind=MatrixData)
        self._keep(matrix, rows, after_ms, until_ms)
        return size

    def _keep(self, matrix: MatrixData, rows: SignalRows, after_ms: int, until_ms: int) -> None:
        self._report["empty"] += not matrix.result
        found: Rows = rows.rows(matrix.result, after_ms=after_ms, until_ms=until_ms)
        for table, of_table in found.items():
            self._report[table] += len(of_table)
            self._sink(table, of_table)

    def _close(self, unit: Unit, rows: SignalRows) -> None:
        report = self._report
        if self._raw and self._interval_ms is None and rows.interval_ms is not None:
            self._interval_ms = rows.interval_ms
            report["scrape_interval_s"] = rows.interval_ms / 1000
        report["series_count"] += len(rows.last_ms)
        report["not_finite_count"] += rows.not_finite_count
        report["incomplete_count"] += rows.incomplete_count
        report["native_histograms_count"] += rows.native_count
        report["other_job_count"] += rows.other_job_count
        slack = max(10_000.0, 4 * (self._interval_ms or 0.0), 2.0 * self._step_ms)
        for (replica, _), last in rows.last_ms.items():
            if last < self._end_ms - slack:
                report["series_vanished_count"] += 1
                if unit.signal == "engine_running_count":
                    report["replicas_vanished"][replica] = last * 1_000_000

    # ------------------------------------------------------------ asking

    async def _ask(self, path: str, params: Params = (), *, kind: Any = Any) -> tuple[Any, int]:
        """One answer as `kind` and its bytes, asked for again where the server may only be busy."""
        report = self._report
        for pause_s in (*RETRY_AFTER_S, None):
            try:
                answer = await self._client.ask(path, params)
                data = answer.read(kind)
            except AskError as error:
                report["queries_failed"] += 1
                report["failures"][error.kind] = report["failures"].get(error.kind, 0) + 1
                report["last_error"] = str(error)
                if not error.again or pause_s is None:
                    raise
                report["retried"] += 1
                await asyncio.sleep(pause_s)
            else:
                break
        report["queries_ok"] += 1
        report["bytes_total"] += answer.byte_count
        report["bytes_max"] = max(report["bytes_max"], answer.byte_count)
        report["warned"] += bool(answer.warnings)
        for line in answer.warnings:
            if line not in report["warnings"] and len(report["warnings"]) < 10:
                report["warnings"].append(line[:200])
        return data, answer.byte_count

    def _lose(self, what: str, from_ms: int, to_ms: int, error: AskError) -> None:
        self._report["lost_count"] += 1
        if len(self._report["lost"]) < _MAX_LOST:
            self._report["lost"].append([what, from_ms * 10**6, to_ms * 10**6, str(error)])

    def _selector(self, *own: str) -> str:
        return (
            "{" + ",".join([*(o for o in own if o), *([self._match] if self._match else [])]) + "}"
        )

    def _range(self) -> list[tuple[str, str]]:
        return [("start", seconds(self._start_ms)), ("end", seconds(self._end_ms))]

    async def _nothing_came(self, present: dict[str, set[str]]) -> str:
        """Why there is nothing, and what to try: one line."""
        report = self._report
        shown = "{" + self._match + "}" if self._match else ""
        where = f"{report['url']}, {self._since_s:g} s back" + (f", {shown}" if shown else "")
        if report["lost_count"]:
            return f"{where}: nothing could be read: {report['lost'][0][3]}"
        if present:
            first = next(iter(present.values()))
            return (
                f"{where}: names of {', '.join(present)} are known there ({some(first)}), but there is no sample"
                " in this time; try a longer --since"
            )
        if report["unmapped_engines"]:
            kinds = ", ".join(report["unmapped_engines"])
            return f"{where}: only metrics of {kinds}, which cannot be read from Prometheus yet"
        names = await self._label_values("__name__", self._selector('__name__!=""'))
        jobs = await self._label_values("job", self._selector('job!=""'))
        if not names:
            longer = f"another --match (without {shown}?)" if shown else "a longer --since"
            return f"{where}: no series at all; try {longer}"
        return (
            f"{where}: no metrics of a known engine ({', '.join(engines())}); names there: {some(names)};"
            f" jobs: {some(jobs) or 'none'}; try --match '{{job=\"…\"}}' or a longer --since"
        )
