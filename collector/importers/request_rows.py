"""Rows of `requests` from what a tool kept of each request: checked value by value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..schema import TABLES
from .importer import Row, Sink
from .json_lines import count, number

DAY_S = 86_400.0
MAX_GAPS = 1_000_000
_COLUMNS = TABLES["requests"].column_names()
_BATCH = 2_000


def node_of(sink: Sink) -> str:
    """The host to name in rows: as the person said, else `import`."""
    return sink.options.get("node", "import")


class RequestSheet:
    """The requests of one file, handed over in batches; `close` tells what was left out."""

    def __init__(self, sink: Sink, name: str, engine: str = "") -> None:
        self._sink, self._name = sink, name
        self._engine = sink.options.get("engine", engine)
        self._rows: list[Row] = []
        self._nulled: Counter[str] = Counter()
        self.count = 0
        self.first_ns: int | None = None

    def add(
        self,
        *,
        request_id: str,
        source: str = "client",
        start_s: Any = None,
        first_token_s: Any = None,
        end_s: Any = None,
        ttft_s: Any = None,
        e2e_s: Any = None,
        gaps_s: Any = None,
        input_tokens: Any = None,
        output_tokens: Any = None,
        cached_tokens: Any = None,
        error: str | None = None,
        server: dict[str, Any] | None = None,
    ) -> None:
        """Take one request.

        Args:
            request_id: unique in the file.
            source: client, or span for what the server kept.
            start_s: epoch seconds of its sending; None: unknown.
            first_token_s: epoch seconds; None: from `ttft_s`.
            end_s: epoch seconds; None: from `e2e_s`.
            ttft_s: from the sending; None: from the times.
            e2e_s: the same, of the whole.
            gaps_s: between its chunks, in order.
            input_tokens: of the prompt.
            output_tokens: of the answer.
            cached_tokens: of the prompt, from the cache.
            error: one line; None: it went well.
            server: phases, by column.
        """
        row: Row = dict.fromkeys(_COLUMNS)
        begun = self._time(start_s, "arrival")
        ttft = self._span(ttft_s, "ttft")
        e2e = self._span(e2e_s, "e2e")
        first, end = self._time(first_token_s, "first token"), self._time(end_s, "end")
        if begun is not None:
            first = begun + round(ttft * 1e9) if first is None and ttft is not None else first
            end = begun + round(e2e * 1e9) if end is None and e2e is not None else end
            if ttft is None and first is not None and first >= begun:
                ttft = (first - begun) / 1e9
            if e2e is None and end is not None and end >= begun:
                e2e = (end - begun) / 1e9
            self.first_ns = begun if self.first_ns is None else min(begun, self.first_ns)
        gaps = self._gaps(gaps_s)
        client = source == "client"
        row.update(
            request_id=request_id[:200],
            source=source,
            arrival_ns=begun,
            sent_ns=begun if client else None,
            first_token_ns=first,
            end_ns=end,
            client_ttft_s=ttft if client else None,
            client_e2e_s=e2e if client and error is None else None,
            server_e2e_s=None if client else e2e,
            server_ttft_s=None if client else ttft,
            input_tokens=self._tokens(input_tokens),
            output_tokens=self._tokens(output_tokens),
            cached_tokens=self._tokens(cached_tokens),
            chunk_gap_s=gaps,
            chunk_count=None if gaps is None else len(gaps) + 1,
            status="ok" if error is None else "error",
            error=None if error is None else " ".join(error.split())[:200],
            warmup=False,
            workload="",
            node=node_of(self._sink),
            replica="",
            engine=self._engine or None,
        )
        for column, value in (server or {}).items():
            row[column] = self._span(value, column)
        self._rows.append(row)
        self.count += 1
        if len(self._rows) >= _BATCH:
            self._flush()

    def close(self) -> int:
        """Hand over what is left; how many requests there were."""
        self._flush()
        for what in sorted(self._nulled):
            self._sink.note(
                f"{self._name}: {what} out of range {self._nulled[what]} times: left out"
            )
        return self.count

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            self._sink.rows("requests", rows)

    def _time(self, value: Any, what: str) -> int | None:
        found = number(value)
        if value is None or (found is not None and 1e9 <= found < 1e10):
            return None if found is None else int(found * 1e9)
        self._nulled[f"time of {what}"] += 1
        return None

    def _span(self, value: Any, what: str) -> float | None:
        found = number(value)
        if value is None or (found is not None and 0 <= found <= DAY_S):
            return found
        self._nulled[what] += 1
        return None

    def _tokens(self, value: Any) -> int | None:
        found = count(value)
        if value is None or (found is not None and found <= 1_000_000_000):
            return found
        self._nulled["tokens"] += 1
        return None

    def _gaps(self, values: Any) -> list[float] | None:
        if not isinstance(values, Sequence) or isinstance(values, str):
            return None
        gaps = [number(value) for value in values[:MAX_GAPS]]
        if any(gap is None or not 0 <= gap <= DAY_S for gap in gaps) or len(values) > MAX_GAPS:
            self._nulled["gaps between chunks"] += (
                1  # without one, the others say nothing of the whole
            )
            return None
        return [gap for gap in gaps if gap is not None]


def load_mode_event(sink: Sink, mode: str, t_ns: int) -> None:
    """What made the load wait or not, as the load generator of this tool would have written it."""
    sink.rows(
        "events",
        [
            {
                "t_ns": t_ns,
                "kind": "load_mode",
                "text": mode,
                "value": None,
                "node": node_of(sink),
                "engine": "",
                "replica": "",
                "source": "load",
            }
        ],
    )
