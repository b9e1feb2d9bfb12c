"""JSON forms in which spans are kept: OTLP's, Tempo's and Jaeger's, all made OTLP's. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def otlp_form(record: Any) -> dict[str, Any]:
    """The JSON form of an export, of whatever holds it: Tempo's answer, Jaeger's, older scopes."""
    if not isinstance(record, Mapping):
        return {}
    if isinstance(record.get("trace"), Mapping):
        record = record["trace"]
    if isinstance(record.get("data"), list):
        return {"resourceSpans": [{"scopeSpans": list(_jaeger(record["data"]))}]}
    groups = next(
        (record[k] for k in ("resourceSpans", "batches", "resource_spans") if k in record), None
    )
    resources = []
    for group in groups if isinstance(groups, list) else []:
        if isinstance(group, Mapping):
            scopes = group.get("scopeSpans") or group.get("instrumentationLibrarySpans") or []
            if isinstance(scopes, list):
                resources.append({"scopeSpans": [_scope(s) for s in scopes]})
    return {"resourceSpans": resources}


def _scope(group: Any) -> Any:
    if isinstance(group, Mapping) and "scope" not in group and "instrumentationLibrary" in group:
        return {**group, "scope": group["instrumentationLibrary"]}
    return group


def _jaeger(traces: list[Any]) -> Iterator[dict[str, Any]]:
    """Jaeger's spans in OTLP's form: microseconds, and tags instead of attributes."""
    for trace in traces:
        spans = trace.get("spans") if isinstance(trace, Mapping) else None
        for span in spans if isinstance(spans, list) else []:
            if not isinstance(span, Mapping):
                continue
            tags = [t for t in span.get("tags") or [] if isinstance(t, Mapping)]
            start, lasted = span.get("startTime"), span.get("duration")
            timed = isinstance(start, int) and isinstance(lasted, int)
            named = {t.get("key"): t.get("value") for t in tags if isinstance(t.get("key"), str)}
            scope = named.get("otel.scope.name") or named.get("otel.library.name")
            yield {
                "scope": {"name": scope},
                "spans": [
                    {
                        "name": span.get("operationName"),
                        "traceId": span.get("traceID"),
                        "spanId": span.get("spanID"),
                        "startTimeUnixNano": start * 1000 if timed else None,  # type: ignore[operator]
                        "endTimeUnixNano": (start + lasted) * 1000 if timed else None,  # type: ignore[operator]
                        "status": {"code": 2 if named.get("error") is True else 0},
                        "attributes": [_tag(t) for t in tags],
                    }
                ],
            }


def _tag(tag: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {"int64": "intValue", "float64": "doubleValue", "bool": "boolValue"}
    kind = kinds.get(str(tag.get("type")), "stringValue")
    return {"key": tag.get("key"), "value": {kind: tag.get("value")}}
