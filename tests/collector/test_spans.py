"""Spans of every engine to request rows, and what is odd in them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from whybound.collector.schema import TABLES
from whybound.collector.span_map import parse_spans, request_spans
from whybound.collector.spans import SpanRows, client_request_id, span_rows
from whybound.errors import WhyboundError

S = 10**9
T0 = 1_795_964_212 * S
NOW = T0 + 60 * S
DURATIONS = ("queue_wait_s", "tokenize_s", "prefill_s", "decode_s", "server_ttft_s", "server_e2e_s")

VLLM = {
    "gen_ai.latency.time_to_first_token": 0.25,
    "gen_ai.latency.e2e": 1.0,
    "gen_ai.latency.time_in_queue": 0.1,
    "gen_ai.latency.time_in_model_prefill": 0.125,
    "gen_ai.latency.time_in_model_decode": 0.75,
    "gen_ai.latency.time_in_model_inference": 0.875,
    "gen_ai.usage.prompt_tokens": 7,
    "gen_ai.usage.completion_tokens": 5,
    "gen_ai.request.id": "cmpl-wb-run-3-0",
}


def value_of(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": value}


def span(
    name: str,
    attributes: dict[str, Any],
    *,
    start_ns: int | None = T0,
    end_ns: int | None = T0 + S,
    trace: str = "aa" * 16,
    span_id: str = "bb" * 8,
    **more: Any,
) -> dict[str, Any]:
    made: dict[str, Any] = {
        "traceId": trace, "spanId": span_id, "name": name, "status": {},
        "attributes": [{"key": k, "value": value_of(v)} for k, v in attributes.items()], **more,
    }  # fmt: skip
    if start_ns is not None:
        made["startTimeUnixNano"] = str(start_ns)
    if end_ns is not None:
        made["endTimeUnixNano"] = str(end_ns)
    return made


def export(*spans: Any, scope: str = "vllm.tracing.otel") -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"scope": {"name": scope}, "spans": [*spans]}]}]}


def rows(*spans: Any, scope: str = "vllm.tracing.otel", **options: Any) -> SpanRows:
    return span_rows(export(*spans, scope=scope), node="n", received_ns=NOW, **options)


def the_row(found: SpanRows) -> dict[str, Any]:
    (row,) = found.requests
    assert set(row) == set(TABLES["requests"].column_names())
    return row


def durations(row: dict[str, Any]) -> dict[str, float]:
    return {c: pytest.approx(row[c]) for c in DURATIONS if row[c] is not None}


def as_message(document: dict[str, Any]) -> Any:
    message = ExportTraceServiceRequest()
    for resource in document["resourceSpans"]:
        to_resource = message.resource_spans.add()
        for group in resource["scopeSpans"]:
            to_group = to_resource.scope_spans.add()
            to_group.scope.name = group["scope"]["name"]
            for one in group["spans"]:
                to = to_group.spans.add(
                    name=one["name"],
                    trace_id=bytes.fromhex(one["traceId"]),
                    span_id=bytes.fromhex(one["spanId"]),
                    start_time_unix_nano=int(one["startTimeUnixNano"]),
                    end_time_unix_nano=int(one["endTimeUnixNano"]),
                )
                for attribute in one["attributes"]:
                    ((kind, value),) = attribute["value"].items()
                    content = to.attributes.add(key=attribute["key"]).value
                    if kind == "intValue":
                        content.int_value = int(value)
                    elif kind == "doubleValue":
                        content.double_value = value
                    else:
                        content.string_value = value
    return message


# ---------------------------------------------------------------- the engines


def test_vllm_from_json_and_from_protobuf_alike() -> None:
    document = export(span("llm_request", VLLM))
    row = the_row(span_rows(document, node="n", received_ns=NOW))
    assert durations(row) == {
        "queue_wait_s": 0.1,
        "prefill_s": 0.125,
        "decode_s": 0.75,
        "server_ttft_s": 0.25,
        "server_e2e_s": 1.0,
    }
    assert (row["arrival_ns"], row["end_ns"]) == (T0, T0 + S)
    assert row["first_token_ns"] == T0 + S // 4
    assert (row["input_tokens"], row["output_tokens"], row["cached_tokens"]) == (7, 5, None)
    assert (row["request_id"], row["source"], row["engine"]) == ("wb-run-3", "span", "vllm")
    assert (row["status"], row["node"], row["client_e2e_s"]) == ("ok", "n", None)
    message = span_rows(as_message(document), node="n", received_ns=NOW)
    assert message.requests == [row]
    assert (message.dropped, message.nulled, message.spans_count) == ({}, {}, 1)


def test_tensorrt_llm_counts_queue_and_ttft_from_arrival() -> None:
    told = {k: v for k, v in VLLM.items() if "in_model" not in k}
    row = the_row(rows(span("llm_request", told), scope="tensorrt_llm.llmapi.tracing"))
    assert row["engine"] == "tensorrt_llm"
    assert durations(row) == {
        "queue_wait_s": 0.1,
        "prefill_s": 0.15,
        "decode_s": 0.75,
        "server_ttft_s": 0.25,
        "server_e2e_s": 1.0,
    }


SGLANG = {
    "rid": "wb-run-4",
    "module": "request",
    "gen_ai.latency.time_to_first_token": 0.25,
    "gen_ai.latency.e2e": 1.0,
    "gen_ai.latency.time_in_model_prefill": 0.24,
    "gen_ai.latency.time_in_model_decode": 0.75,
    "gen_ai.usage.prompt_tokens": 7,
    "gen_ai.usage.completion_tokens": 5,
    "gen_ai.usage.cached_tokens": 3,
}


def test_sglang_prefill_that_includes_the_queue_is_never_taken_for_prefill() -> None:
    found = rows(span("null Req wb-run-4", SGLANG))
    row = the_row(found)
    assert durations(row) == {
        "tokenize_s": 0.01,
        "decode_s": 0.75,
        "server_ttft_s": 0.25,
        "server_e2e_s": 1.0,
    }
    assert (row["request_id"], row["engine"], row["cached_tokens"]) == ("wb-run-4", "sglang", 3)
    assert found.nulled == {"queue_wait_s missing": 1, "prefill_s missing": 1}


def test_sglang_queue_and_prefill_come_from_the_scheduler_s_slices() -> None:
    root = span("Req wb-run-4", SGLANG, trace="c1" * 16)
    waited = span("prefill_waiting", {}, end_ns=T0 + S // 10, trace="c1" * 16)
    forward = span("prefill_forward", {}, end_ns=T0 + S // 8, trace="c1" * 16)
    on_rank_1 = span("prefill_waiting", {}, end_ns=T0 + S // 20, trace="c1" * 16)
    alien = span("prefill_waiting", {}, end_ns=T0 + S, trace="d2" * 16)
    row = the_row(rows(alien, root, waited, on_rank_1, forward))
    assert (row["queue_wait_s"], row["prefill_s"]) == (0.1, 0.125)
    # The scheduler process exports by itself, so they may have come before.
    earlier = rows(waited, forward)
    assert (earlier.requests, earlier.dropped) == ([], {})
    assert the_row(rows(root, slices=earlier.slices)) == row


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1.2ms", 0.0012),
        ("350.1µs", 350.1e-6),
        ("350.1μs", 350.1e-6),
        ("12ns", 12e-9),
        ("2.5s", 2.5),
        ("0ns", 0.0),
        ("61s", 61.0),
        ("1.2", None),
        ("-1ms", None),
        ("1m", None),
        ("1.2ms ", None),
        ("", None),
        (0.5, None),
    ],
)
def test_tgi_durations_are_rust_s(text: str | float, seconds: float | None) -> None:
    told = {"parameters": "GenerateParameters {}", "total_time": "3s", "queue_time": text}
    found = rows(span("generate_stream", {**told, "validation_time": "2ms"}), scope="")
    row = the_row(found)
    assert row["queue_wait_s"] == (None if seconds is None else pytest.approx(seconds))
    assert (row["tokenize_s"], row["server_e2e_s"]) == (0.002, 3.0)
    assert (row["prefill_s"], row["decode_s"], row["server_ttft_s"]) == (None, None, None)
    assert found.nulled == ({} if seconds is not None else {"queue_wait_s not a duration": 1})
    assert row["request_id"] == f"span-{'aa' * 16}-{'bb' * 8}"


def test_tgi_s_inner_span_of_the_same_name_is_no_request() -> None:
    found = rows(span("generate", {"request": "1"}), span("queued", {}), scope="")
    assert (found.requests, found.dropped) == ([], {"other": 2})


def test_dynamo_speaks_in_milliseconds_and_the_span_is_the_whole() -> None:
    told = {"ttft_ms": 250.0, "avg_itl_ms": 12.5, "x_request_id": "wb-run-5", "input_tokens": 9}
    row = the_row(rows(span("http-request", {**told, "output_tokens": 4}), scope="x"))
    assert durations(row) == {"server_ttft_s": 0.25, "server_e2e_s": 1.0}
    assert (row["request_id"], row["engine"]) == ("wb-run-5", "dynamo")
    assert (row["input_tokens"], row["output_tokens"]) == (9, 4)
    health = rows(span("http-request", {"uri": "/health"}), scope="x")
    assert (health.requests, health.dropped) == ([], {"other": 1})
    closed_early = rows(
        span("http-request", {**told, "output_tokens": 4}, end_ns=T0 + 1), scope="x"
    )
    assert the_row(closed_early)["server_e2e_s"] is None
    assert closed_early.nulled == {"server_e2e_s below the TTFT": 1}


# ---------------------------------------------------------------- what is odd


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (-0.001, "negative"),
        (float("nan"), "not finite"),
        (float("inf"), "not finite"),
        ("NaN", "not finite"),
        (86_400.5, "above a day"),
        ("soon", "not a number"),
        (True, "not a number"),
        (None, "missing"),
    ],
)
def test_a_time_that_makes_no_sense_is_null_and_counted(value: Any, reason: str) -> None:
    told = {**VLLM, "gen_ai.latency.time_in_queue": value}
    if value is None:
        del told["gen_ai.latency.time_in_queue"]
    found = rows(span("llm_request", told))
    row = the_row(found)
    assert row["queue_wait_s"] is None
    assert (row["prefill_s"], row["server_e2e_s"]) == (0.125, 1.0)
    assert found.nulled == {f"queue_wait_s {reason}": 1}


def test_zero_is_a_measurement() -> None:
    row = the_row(rows(span("llm_request", {**VLLM, "gen_ai.latency.time_in_queue": 0.0})))
    assert row["queue_wait_s"] == 0.0


def test_a_request_that_gave_no_token_has_no_first_one() -> None:
    told = {**VLLM, "gen_ai.usage.completion_tokens": 0, "gen_ai.latency.time_to_first_token": 0.0}
    row = the_row(rows(span("llm_request", {**told, "gen_ai.latency.time_in_model_decode": 0.0})))
    assert [row[c] for c in ("server_ttft_s", "prefill_s", "decode_s", "first_token_ns")] == [
        None
    ] * 4
    assert (row["output_tokens"], row["server_e2e_s"]) == (0, 1.0)


def test_spans_that_are_left_out_are_counted_by_reason() -> None:
    found = rows(
        span("llm_request", VLLM, end_ns=T0 - 1),
        span("llm_request", {"gen_ai.request.id": "cmpl-x-0", "gen_ai.usage.prompt_tokens": 7}),
        span("Worker init", {}),
        span("llm_request_batch", VLLM),
        {"name": 7},
        "no span",
    )
    assert found.requests == []
    assert found.dropped == {"end before start": 1, "no latency": 1, "other": 2, "malformed": 2}
    assert found.spans_count == 6


def test_a_clock_that_is_days_ahead_gives_no_instants() -> None:
    far = 2**63 + 5  # would not fit into the table's int64
    found = rows(span("llm_request", VLLM, start_ns=far, end_ns=far + S))
    row = the_row(found)
    assert (row["arrival_ns"], row["end_ns"], row["first_token_ns"]) == (None, None, None)
    assert row["server_e2e_s"] == 1.0
    assert found.nulled == {"arrival_ns in the future": 1, "end_ns in the future": 1}
    late = rows(span("llm_request", VLLM, start_ns=None, end_ns=None))
    assert late.nulled == {"arrival_ns missing": 1, "end_ns missing": 1}


def test_more_rows_than_allowed_are_counted_not_built() -> None:
    found = rows(*[span("llm_request", VLLM)] * 5, span("other", {}), max_rows=2)
    assert (len(found.requests), found.dropped) == (2, {"rate": 3, "other": 1})


def test_duplicates_and_disorder_stay_for_the_reader() -> None:
    late, early = span("llm_request", VLLM), span("llm_request", VLLM, start_ns=T0 - S)
    assert [r["arrival_ns"] for r in rows(late, early, late).requests] == [T0, T0 - S, T0]


def test_spans_without_any_id_are_never_one_request() -> None:
    bare = {k: v for k, v in VLLM.items() if k != "gen_ai.request.id"}
    one = span("llm_request", bare, span_id="", trace="")
    assert len({r["request_id"] for r in rows(one, one).requests}) == 2


def test_half_a_character_in_an_id_can_be_stored() -> None:
    row = the_row(rows(span("llm_request", {**VLLM, "gen_ai.request.id": "a\ud800b"})))
    assert row["request_id"] == "a?b"


def test_a_failed_span_is_a_failed_request() -> None:
    made = span("llm_request", VLLM)
    assert the_row(rows({**made, "status": {"code": 2}}))["status"] == "error"
    assert the_row(rows({**made, "status": {"code": "STATUS_CODE_ERROR"}}))["status"] == "error"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from([
            "resourceSpans", "scopeSpans", "scope", "spans", "name", "attributes", "key", "value",
            "status", "code", "doubleValue", "intValue", "stringValue", "startTimeUnixNano",
        ]),
        inner, max_size=4,
    ),
    max_leaves=25,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.just("resourceSpans"), JSON), JSON, JSON)
def test_no_json_breaks_it(document: dict[str, Any], value: Any, when: Any) -> None:
    span_rows(document, node="n", received_ns=NOW)
    made = span("llm_request", VLLM)
    odd = {**made, "startTimeUnixNano": when, "status": value, "traceId": value}
    odd["attributes"] = [*made["attributes"][1:], {"key": "gen_ai.latency.e2e", "value": value}]
    for row in rows(odd).requests:
        for column in DURATIONS:
            assert row[column] is None or 0 <= row[column] <= 86_400


# ---------------------------------------------------------------- ids and the map


@pytest.mark.parametrize(
    ("raw", "ours"),
    [
        ("cmpl-wb-run-12-0", "wb-run-12"),
        ("cmpl-wb-whybound-3-12-0", "wb-whybound-3-12"),
        ("cmpl-wb-run-12-0-1a2b3c4d", "wb-run-12"),
        ("cmpl-wb-run-12-0-12345678", "wb-run-12"),
        ("cmpl-wb-run-12345678-0", "wb-run-12345678"),
        ("chatcmpl-wb-run-12", "wb-run-12"),
        ("chatcmpl-wb-whybound-3-12", "wb-whybound-3-12"),
        ("chatcmpl-wb-run-12-1a2b3c4d", "wb-run-12"),
        ("chatcmpl-wb-run-12-12345678", "wb-run-12"),
        ("wb-run-12", "wb-run-12"),
        ("cmpl-bench-f3428b76-0-0", "cmpl-bench-f3428b76-0-0"),
        ("cmpl-wb-run-12", "cmpl-wb-run-12"),
        ("chatcmpl-e8a164d6e8844f5bb1e1530fd72d3c66", "chatcmpl-e8a164d6e8844f5bb1e1530fd72d3c66"),
        ("", ""),
    ],
)
def test_the_client_s_id_inside_the_engine_s(raw: str, ours: str) -> None:
    assert client_request_id(raw) == ours


@given(st.text("abcXYZ019_.-", min_size=1, max_size=20), st.integers(0, 10**7 - 1), st.booleans())
def test_the_id_survives_whatever_the_run_is_called(run: str, number: int, chat: bool) -> None:
    sent = f"wb-{run}-{number}"
    if (
        chat
    ):  # a chat's id has no number after it, so a run named like "a-1-12ab34cd" could not be told
        run = run.replace("-", "_")
        sent = f"wb-{run}-{number}"
    made = f"chatcmpl-{sent}" if chat else f"cmpl-{sent}-0"
    assert client_request_id(made) == sent
    assert client_request_id(f"{made}-deadbeef") == sent


def test_every_engine_s_entry_says_where_it_is_from() -> None:
    assert {e.engine for e in request_spans()} == {
        "vllm", "sglang", "tensorrt_llm", "tgi", "dynamo",
    }  # fmt: skip
    assert all(e.doc and e.source for e in request_spans())


ENTRY = {
    "engine": "e", "doc": "d", "source": "s", "span": "x", "request_id": [], "unit": "s",
    "seconds": {"queue_wait_s": "q"}, "tokens": {},
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"seconds": {"wait_s": "q"}}, "requests has no column wait_s"),
        ({"minus": {"prefill_s": ["queue_wait_s", "nothing"]}}, "nothing"),
        ({"span": "("}, "no regular expression"),
        ({"unit": "us"}, "us"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_a_broken_map_is_refused(change: dict[str, Any], says: str) -> None:
    assert len(parse_spans(json.dumps([ENTRY]), "spans.yaml")) == 1
    with pytest.raises(WhyboundError, match=r"^spans\.yaml: ") as refused:
        parse_spans(json.dumps([{**ENTRY, **change}]), "spans.yaml")
    assert says in str(refused.value)


# ---------------------------------------------------------------- real spans

SIM = "6-otlp/inference-sim__inference-sim"


def _real(path: str) -> list[dict[str, Any]]:
    corpus = os.environ.get("WHYBOUND_CORPUS")
    if not corpus:
        pytest.skip("WHYBOUND_CORPUS names no corpus: tests on real spans left out")
    lines = (Path(corpus) / path).read_text().splitlines()
    return [document.get("req", document) for document in map(json.loads, lines)]


@pytest.mark.parametrize(
    ("path", "count", "others"),
    [
        ("../samples/vllm-cpu/otlp.jsonl", 126, 22),
        (f"{SIM}/20fe3e61__ground_truth__jan21-llama7b-train-1__traces.json", 282, 0),
        (f"{SIM}/e4e0f030__ground_truth__jan20-codellama-prefill-1__traces.json", 200, 0),
    ],
)
def test_real_vllm_spans(path: str, count: int, others: int) -> None:
    found = [span_rows(d, node="n", received_ns=2 * 10**18) for d in _real(path)]
    made = [row for f in found for row in f.requests]
    assert len(made) == len({r["request_id"] for r in made}) == count
    assert sum(f.dropped.get("other", 0) for f in found) == others
    assert all(f.nulled == {} and set(f.dropped) <= {"other"} for f in found)
    for row in made:
        phases = row["queue_wait_s"] + row["prefill_s"] + row["decode_s"]
        # Phases are stamped in the engine core, the whole in the front end.
        assert 0 <= row["server_e2e_s"] - phases < 0.2
        assert row["queue_wait_s"] + row["prefill_s"] <= row["server_ttft_s"] + 1e-3
        assert row["arrival_ns"] < row["first_token_ns"] <= row["end_ns"]


def test_traces_of_other_kinds_give_nothing() -> None:
    corpus = os.environ.get("WHYBOUND_CORPUS")
    if not corpus:
        pytest.skip("WHYBOUND_CORPUS names no corpus: tests on real spans left out")
    files = sorted(Path(corpus).glob("6-otlp/kubernetes-sigs__inference-perf/*.json"))
    assert files
    for file in files:
        found = span_rows(json.loads(file.read_text()), node="n", received_ns=NOW)
        assert (found.requests, found.spans_count) == ([], 0)  # agents' spans, not OTLP
