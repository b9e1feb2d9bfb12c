"""Files of spans: the requests of each engine as a live receiver would have taken them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from imported import imported
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from whybound.errors import WhyboundError

T1 = 1_769_021_450 * 10**9


def span(name: str, attributes: dict[str, Any], **more: Any) -> dict[str, Any]:
    def value(v: Any) -> dict[str, Any]:
        kind = {float: "doubleValue", int: "intValue", bool: "boolValue"}.get(
            type(v), "stringValue"
        )
        return {kind: str(v) if kind == "intValue" else v}

    return {
        "traceId": "t1",
        "spanId": "s1",
        "name": name,
        "startTimeUnixNano": str(T1),
        "endTimeUnixNano": str(T1 + 3 * 10**9),
        "attributes": [{"key": k, "value": value(v)} for k, v in attributes.items()],
        **more,
    }


def export(*spans: dict[str, Any], scope: str = "vllm.llm_engine") -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"scope": {"name": scope}, "spans": list(spans)}]}]}


LATENCIES = {
    "gen_ai.latency.time_in_queue": 0.5,
    "gen_ai.latency.time_to_first_token": 1.0,
    "gen_ai.latency.e2e": 3.0,
    "gen_ai.usage.prompt_tokens": 100,
    "gen_ai.usage.completion_tokens": 20,
}
VLLM = span(
    "llm_request",
    {
        **LATENCIES,
        "gen_ai.latency.time_in_model_prefill": 0.4,
        "gen_ai.latency.time_in_model_decode": 2.0,
    },
)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(export(VLLM)),
        json.dumps(export(VLLM), indent=2),
        json.dumps([export(VLLM)]),
        json.dumps(export(VLLM)).replace("resourceSpans", "batches"),
        json.dumps(export(VLLM)).replace("scopeSpans", "instrumentationLibrarySpans"),
        json.dumps(export(VLLM)) + "\n" + json.dumps(export(VLLM))[:80] + "\n",
    ],
)
def test_vllm_in_every_form_of_otlp_json(text: str) -> None:
    found = imported(text)
    assert found.kind == "otlp-json"
    (row,) = found.rows("requests")
    assert (row["source"], row["engine"]) == ("span", "vllm")
    assert (row["queue_wait_s"], row["prefill_s"], row["decode_s"]) == (0.5, 0.4, 2.0)
    assert (row["input_tokens"], row["output_tokens"]) == (100, 20)
    assert row["first_token_ns"] == T1 + 10**9


def test_tensorrt_llm_has_its_prefill_between_queue_and_first_token() -> None:
    spans = export(span("llm_request", LATENCIES), scope="tensorrt_llm.otel")
    (row,) = imported(json.dumps(spans)).rows("requests")
    assert (row["engine"], row["prefill_s"], row["decode_s"]) == ("tensorrt_llm", 0.5, 2.0)


def test_sglangs_prefill_is_its_slice_even_where_that_is_told_later() -> None:
    whole = span(
        "Req 1",
        {**LATENCIES, "rid": "r1", "gen_ai.latency.time_in_model_prefill": 0.9},
    )
    forward = span("prefill_forward", {}, spanId="s2", endTimeUnixNano=str(T1 + 3 * 10**8))
    waiting = span("prefill_waiting", {}, spanId="s3", endTimeUnixNano=str(T1 + 6 * 10**8))
    lines = [export(one, scope="sglang") for one in (whole, forward, waiting)]
    (row,) = imported("\n".join(json.dumps(line) for line in lines)).rows("requests")
    assert row["engine"] == "sglang"
    assert row["prefill_s"] == pytest.approx(0.3)  # not the 0.9 s that hold the queue
    assert row["queue_wait_s"] == pytest.approx(0.6)
    assert row["tokenize_s"] == pytest.approx(0.1)


def test_tgi_writes_its_times_as_rust_does() -> None:
    told = {
        "parameters": "{}",
        "queue_time": "350.5µs",
        "total_time": "1.5s",
        "validation_time": "2ms",
    }
    (row,) = imported(json.dumps(export(span("generate", told), scope="tgi"))).rows("requests")
    assert row["queue_wait_s"] == pytest.approx(350.5e-6)
    assert (row["server_e2e_s"], row["tokenize_s"]) == (1.5, 0.002)


def test_jaeger_counts_in_microseconds_and_calls_attributes_tags() -> None:
    kinds = {float: "float64", int: "int64"}
    tags = [{"key": k, "type": kinds[type(v)], "value": v} for k, v in LATENCIES.items()]
    one = {
        "traceID": "t1", "spanID": "s1", "operationName": "llm_request", "startTime": T1 // 1000,
        "duration": 3_000_000,
        "tags": [*tags, {"key": "otel.scope.name", "type": "string", "value": "tensorrt_llm"}],
    }  # fmt: skip
    broken = {**one, "startTime": "soon", "tags": None}
    found = imported(json.dumps({"data": [{"traceID": "t1", "spans": [one, broken, 7]}]}))
    (row,) = found.rows("requests")
    assert (row["engine"], row["prefill_s"]) == ("tensorrt_llm", 0.5)
    assert row["end_ns"] - row["arrival_ns"] == 3 * 10**9


def message(*names: str, padding: int = 0) -> bytes:
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = "v" * (1 + padding)
    spans = group.scope_spans.add()
    spans.scope.name = "vllm.llm_engine"
    for name in names:
        one = spans.spans.add(
            name="llm_request", start_time_unix_nano=T1, end_time_unix_nano=T1 + 10**9
        )
        one.attributes.add(key="gen_ai.request.id").value.string_value = name
        one.attributes.add(key="gen_ai.latency.e2e").value.double_value = 1.0
    return request.SerializeToString()


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


@pytest.mark.parametrize("padding", [0, 100, 20_000, 40_000])
def test_protobuf_plain_or_behind_lengths(padding: int) -> None:
    one, two = message("a", padding=padding), message("b", "c", padding=padding)
    files = {
        "plain": (one, ["a"]),
        "varint": (varint(len(one)) + one + varint(len(two)) + two, ["a", "b", "c"]),
        "fixed": (
            len(one).to_bytes(4, "big") + one + len(two).to_bytes(4, "big") + two,
            ["a", "b", "c"],
        ),
    }
    for form, (data, ids) in files.items():
        found = imported(data)
        assert found.kind == "otlp-protobuf"
        assert [row["request_id"] for row in found.rows("requests")] == ids, form


def test_a_protobuf_file_that_was_cut_gives_what_is_whole() -> None:
    one, two = message("a"), message("b")
    found = imported(varint(len(one)) + one + varint(len(two)) + two[:-9])
    assert [row["request_id"] for row in found.rows("requests")] == ["a"]
    assert found.told("cut off")
    with pytest.raises(WhyboundError, match="cut off"):
        imported(one[:-9])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (json.dumps(export(span("GET /health", {}))), "none of its 1 spans"),
        (json.dumps(export(VLLM))[:-200], "JSON"),
        ('{"resourceSpans": [3, {"scopeSpans": [null]}]}', "none of its 0 spans"),
        ('{"resourceSpans": [' + "[" * 5000, "JSON|deep"),
    ],
)
def test_files_without_a_request_end_in_one_line(text: str, why: str) -> None:
    with pytest.raises(WhyboundError, match=why) as refused:
        imported(text)
    assert "\n" not in str(refused.value)


def test_times_that_are_none_are_left_out_and_told() -> None:
    bad = {**LATENCIES, "gen_ai.latency.time_in_queue": float("nan"), "gen_ai.latency.e2e": -1.0}
    found = imported(json.dumps(export(span("llm_request", bad))))
    (row,) = found.rows("requests")
    assert row["queue_wait_s"] is None
    assert row["server_e2e_s"] is None
    assert found.told("queue_wait_s not finite")
