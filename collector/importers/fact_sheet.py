"""Rows of `facts` from what a tool printed: checked value by value."""

from __future__ import annotations

from typing import Any

from .importer import Row, Sink, Source
from .json_lines import number

_SHARES = frozenset({"failed_ratio", "prefix_hit_ratio", "wait_share_ratio", "kv_used_mean_ratio"})
_PARTS = ("mean", "p50", "p95", "p99")


class FactSheet:
    """The facts of one file; `close` hands them over.

    A value that is missing gives no fact; one that is no finite number, negative, or a share above 1
    gives none either, and a note.
    """

    def __init__(self, source: Source, sink: Sink, kind: str) -> None:
        self._file, self._sink, self._kind = source.path.name, sink, kind
        self._rows: dict[tuple[str, str], Row] = {}
        self._refused: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, signal: str, scope: str = "") -> float | None:
        """The value given so far; None when there is none."""
        row = self._rows.get((signal, scope))
        return row["value"] if row else None

    def add(
        self,
        signal: str,
        value: Any,
        *,
        scale: float = 1.0,
        scope: str = "",
        n: int | None = None,
        t_ns: int | None = None,
    ) -> float | None:
        """Give a number; of several for one signal and scope the first counts.

        Args:
            signal: canonical name; its suffix is the unit.
            value: as the file has it.
            scale: from the file's unit to the signal's.
            scope: sorted key=value pairs; empty for the run.
            n: observations behind it.
            t_ns: when it was true; None: the file's time.

        Returns:
            What was kept, in the signal's unit.
        """
        if value is None or value == "":
            return None
        found = number(value)
        if found is None or found < 0 or (signal in _SHARES and found * scale > 1 + 1e-9):
            self._refused[signal] = self._refused.get(signal, 0) + 1
            return None
        self._put(signal, scope, found * scale, None, n, t_ns)
        return found * scale

    def add_text(self, signal: str, text: str, *, scope: str = "", t_ns: int | None = None) -> None:
        """Give what is categorical."""
        self._put(signal, scope, None, text, None, t_ns)

    def close(self) -> int:
        """Hand the facts over; how many they are."""
        for signal in sorted(self._refused):
            self._sink.note(
                f"{self._file}: {signal} left out {self._refused[signal]} times: "
                "no finite number, or out of range"
            )
        rows = list(self._rows.values())
        if rows:
            self._sink.rows("facts", rows)
        self._rows, self._refused = {}, {}
        return len(rows)

    def _put(
        self,
        signal: str,
        scope: str,
        value: float | None,
        text: str | None,
        n: int | None,
        t_ns: int | None,
    ) -> None:
        self._rows.setdefault(
            (signal, scope),
            {
                "signal": signal,
                "scope": scope,
                "value": value,
                "text": text,
                "low": None,
                "high": None,
                "n": n,
                "when": self._sink.options.get("when", ""),
                "source": self._kind,
                "file": self._file,
                "t_ns": self._sink.epoch_ns if t_ns is None else t_ns,
            },
        )


def segment(concurrency: Any = None, rate: Any = None) -> str:
    """The scope of one point of a sweep: `segment=concurrency:8` or `segment=rate:0.5`."""
    for name, value in (("concurrency", concurrency), ("rate", rate)):
        found = number(value)
        if found is not None and found > 0:
            return f"segment={name}:{found:g}"
    return ""


def latency_signal(metric: str, stat: str) -> str | None:
    """`client_<metric>_<stat>_s` where that is a signal: ttft, itl, tpot, e2e by mean, p50, p95, p99."""
    known = metric in ("ttft", "itl", "tpot", "e2e") and stat in _PARTS
    return f"client_{metric}_{stat}_s" if known else None
