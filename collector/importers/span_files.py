"""Files of spans: OTLP as JSON or protobuf, Tempo's and Jaeger's JSON; rows as a live receiver would give."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ...errors import WhyboundError
from ..span_map import slice_columns
from ..spans import SpanRows, span_rows
from .importer import Importer, Sample, Sink, Source
from .json_lines import json_records, loads, whole_lines
from .request_rows import node_of
from .span_forms import otlp_form
from .span_frames import MAX_MESSAGE_BYTES, delimited, messages

MAX_TRACES = 1_000_000
"""Of which a child span's slice is remembered."""
_BATCH = 5_000

_OTLP = re.compile(r'"(resourceSpans|batches|resource_spans)"\s*:\s*\[')
_JAEGER = re.compile(r'"traceID"\s*:')
_PROTO_MARKS = (b"gen_ai.", b"service.name", b"telemetry.sdk", b"llm_request", b"otel.")


class _Reading:
    """The spans of one file as they come."""

    def __init__(self, source: Source, sink: Sink) -> None:
        self._name, self._sink = source.path.name, sink
        self._dropped: Counter[str] = Counter()
        self._nulled: Counter[str] = Counter()
        self._now_ns = time.time_ns()
        self._spans = self._rows = 0
        self.slices: dict[str, dict[str, float]] = {}

    def learn(self, export: Any) -> None:
        """Take only what child spans tell: their request's own span may come before them."""
        self._remember(self._read(export, max_rows=0))

    def take(self, export: Any) -> None:
        """Rows of one export."""
        found = self._read(export, max_rows=None)
        self._remember(found)
        self._spans += found.spans_count
        self._rows += len(found.requests)
        self._dropped.update(found.dropped)
        self._nulled.update(found.nulled)
        for at in range(0, len(found.requests), _BATCH):
            self._sink.rows("requests", found.requests[at : at + _BATCH])

    def close(self) -> None:
        """Tell what was left out.

        Raises:
            WhyboundError: no span was a whole request.
        """
        if not self._rows:
            why = ", ".join(f"{n} {what}" for what, n in self._dropped.most_common(3))
            raise WhyboundError(
                f"{self._name}: none of its {self._spans} spans is a request of a known engine"
                + (f" ({why})" if why else "")
            )
        for what, n in sorted(self._dropped.items()):
            self._sink.note(f"{self._name}: {n} spans without a row: {what}")
        for what, n in sorted(self._nulled.items()):
            self._sink.note(f"{self._name}: {n} values left out: {what}")

    def _read(self, export: Any, max_rows: int | None) -> SpanRows:
        return span_rows(
            export,
            node=node_of(self._sink),
            received_ns=self._now_ns,
            slices=self.slices,
            max_rows=max_rows,
        )

    def _remember(self, found: SpanRows) -> None:
        for trace, told in found.slices.items():
            if trace in self.slices or len(self.slices) < MAX_TRACES:
                self.slices[trace] = {**self.slices.get(trace, {}), **told}


def _is_json(sample: Sample) -> float:
    text = sample.text.lstrip("\ufeff \t\r\n")
    if not text.startswith(("{", "[")):
        return 0.0
    if _OTLP.search(text[:4096]):
        return 0.95
    jaeger = _JAEGER.search(text) and '"operationName"' in text
    return 0.9 if jaeger else 0.0


def _read_json(source: Source, sink: Sink) -> None:
    reading = _Reading(source, sink)
    first = source.sample.text.lstrip("\ufeff \t\r\n")
    line = first.partition("\n")[0]
    if _whole(line) and "\n" in first:
        if _needs_slices(source, sink):
            for record in json_records(source, Sink(sink.put, 0)):
                reading.learn(otlp_form(record))
        for record in json_records(source, sink):
            reading.take(otlp_form(record))
    else:
        try:
            documents = [source.json()]
        except WhyboundError as error:
            # One object a line whose first line is longer than the sample.
            documents = list(json_records(source, Sink(sink.put, 0)))
            if not documents:
                raise error
        for document in documents:
            for export in document if isinstance(document, list) else [document]:
                reading.take(otlp_form(export))
    reading.close()


def _whole(line: str) -> bool:
    return isinstance(loads(line), Mapping)


def _needs_slices(source: Source, sink: Sink) -> bool:
    names = tuple(f'"{name}"' for name in slice_columns())
    lines = whole_lines(source, Sink(sink.put, 0))
    return any(name in line for line in lines for name in names)


def _is_protobuf(sample: Sample) -> float:
    head = sample.head
    if sample.text and b"\0" not in head[:4096] and not head.startswith(b"\n"):
        return 0.0
    if not any(mark in head for mark in _PROTO_MARKS):
        return 0.0
    plain = head[:1] == b"\n"  # field 1, a message: resource_spans
    return 0.7 if plain or delimited(head) is not None else 0.0


def _read_protobuf(source: Source, sink: Sink) -> None:
    try:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )
    except ImportError as error:
        raise WhyboundError(
            f"{source.path.name}: spans as protobuf need opentelemetry-proto: pip install it"
        ) from error
    with source.open() as file:
        data = file.read(MAX_MESSAGE_BYTES + 1)
    name = source.path.name
    if len(data) > MAX_MESSAGE_BYTES:
        raise WhyboundError(f"{name}: spans of over {MAX_MESSAGE_BYTES >> 20} MB; give a part")
    reading = _Reading(source, sink)
    exports = []
    for message in messages(data):
        try:
            exports.append(ExportTraceServiceRequest.FromString(message))
        except Exception:  # protobuf has no public root of its errors without its stubs
            sink.note(f"{name}: a message that is no export left out: was the file cut off?")
    if not exports:
        raise WhyboundError(f"{name}: no whole export of spans in it: was it cut off?")
    if len(exports) > 1:
        for export in exports:
            reading.learn(export)
    for export in exports:
        reading.take(export)
    reading.close()


IMPORTERS: tuple[Importer, ...] = (
    Importer("otlp-json", "spans as JSON: OTLP, Tempo or Jaeger", _is_json, _read_json),
    Importer("otlp-protobuf", "spans as protobuf: OTLP", _is_protobuf, _read_protobuf),
)
