"""Reading OTLP: the spans of an export, from its protobuf message or its JSON form. Pure.

Attributes are read when asked for: most spans are decided by their name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

_ERROR = 2  # opentelemetry.proto.trace.v1.Status.STATUS_CODE_ERROR


class Span(NamedTuple):
    """One span. `start_ns` and `end_ns` are 0 when not given; ids are texts, perhaps empty."""

    name: str
    scope: str
    trace_id: str
    span_id: str
    start_ns: int
    end_ns: int
    failed: bool
    attributes: Callable[[], dict[str, Any]]


def read_spans(export: Any) -> Iterator[Span | None]:
    """Every span of an ExportTraceServiceRequest or of the dict its JSON is; None for a malformed one.

    Ids of the JSON form are left as they are written, be it hexadecimal or base64.
    """
    return _from_dict(export) if isinstance(export, Mapping) else _from_proto(export)


def integer(value: Any) -> int | None:
    """An integer of up to 64 bits as the JSON form writes one, a number or a text; else None."""
    number: int | None = None
    if isinstance(value, str):
        number = int(value) if len(value) < 25 and re.fullmatch(r"-?\d+", value, re.A) else None
    elif isinstance(value, float):
        number = int(value) if value.is_integer() else None
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    return number if number is not None and abs(number) < 2**64 else None


def _from_proto(export: Any) -> Iterator[Span | None]:
    for resource in export.resource_spans:
        for group in resource.scope_spans:
            for span in group.spans:
                yield Span(
                    name=span.name,
                    scope=group.scope.name,
                    trace_id=span.trace_id.hex(),
                    span_id=span.span_id.hex(),
                    start_ns=span.start_time_unix_nano,
                    end_ns=span.end_time_unix_nano,
                    failed=span.status.code == _ERROR,
                    attributes=partial(_proto_attributes, span),
                )


def _from_dict(export: Mapping[str, Any]) -> Iterator[Span | None]:
    for resource in _list(export, "resourceSpans"):
        for group in _list(resource, "scopeSpans"):
            scope = group.get("scope") if isinstance(group, Mapping) else None
            for span in _list(group, "spans"):
                yield _span_of(span, scope)


def _span_of(span: Any, scope: Any) -> Span | None:
    if not isinstance(span, Mapping) or not isinstance(span.get("name"), str):
        return None
    status = span.get("status")
    return Span(
        name=span["name"],
        scope=_text(scope.get("name")) if isinstance(scope, Mapping) else "",
        trace_id=_text(span.get("traceId")),
        span_id=_text(span.get("spanId")),
        start_ns=integer(span.get("startTimeUnixNano")) or 0,
        end_ns=integer(span.get("endTimeUnixNano")) or 0,
        failed=isinstance(status, Mapping) and status.get("code") in (_ERROR, "STATUS_CODE_ERROR"),
        attributes=partial(_json_attributes, span),
    )


def _proto_attributes(span: Any) -> dict[str, Any]:
    return {
        a.key: getattr(a.value, kind)
        for a in span.attributes
        if (kind := a.value.WhichOneof("value"))
    }


def _json_attributes(span: Mapping[str, Any]) -> dict[str, Any]:
    return {
        a["key"]: value
        for a in _list(span, "attributes")
        if isinstance(a, Mapping)
        and isinstance(a.get("key"), str)
        and (value := _json_value(a.get("value"))) is not None
    }


def _json_value(value: Any) -> Any:
    """The content of an AnyValue in JSON, where 64-bit integers are texts."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return None
    kind, content = next(iter(value.items()))
    return integer(content) if kind == "intValue" else content


def _list(holder: Any, key: str) -> list[Any]:
    found = holder.get(key) if isinstance(holder, Mapping) else None
    return found if isinstance(found, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
