"""Each request's server phases beside what its client saw, joined by id."""

from __future__ import annotations

from typing import Any

import pytest

BY_SERVER = 1_000_000_000
"""The server's clock is a second ahead of the client's: no duration may show it."""


def span(build: Any, request_id: str, at: float = 1.0, **more: Any) -> None:
    arrival_ns = 1_700_000_000_000_000_000 + round(at * 1e9) + BY_SERVER
    row = {
        "request_id": request_id, "source": "span", "arrival_ns": arrival_ns,
        "end_ns": arrival_ns + 900_000_000, "queue_wait_s": 0.1, "prefill_s": 0.2, "decode_s": 0.5,
        "server_ttft_s": 0.35, "server_e2e_s": 0.9, "input_tokens": 11, "output_tokens": 6,
        "status": "ok", "node": "n", "engine": "vllm",
    }  # fmt: skip
    build.add("requests", **{**row, **more})


def read(build: Any, columns: str) -> list[tuple[Any, ...]]:
    query = f"SELECT {columns} FROM request_phases ORDER BY request_id"
    return [
        tuple(round(v, 9) if isinstance(v, float) else v for v in row)
        for row in build.database().execute(query).fetchall()
    ]


def test_a_request_seen_from_both_sides(build: Any) -> None:
    build.request(1.0, 0.5, [0.25, 0.25], request_id="a", workload="chat", send_lag_s=0.01)
    span(build, "a")
    assert read(
        build,
        "request_id, workload, client_status, engine, send_lag_s, client_ttft_s, client_e2e_s,"
        " server_ttft_s, server_e2e_s, queue_wait_s, prefill_s, decode_s",
    ) == [("a", "chat", "ok", "vllm", 0.01, 0.5, 1.0, 0.35, 0.9, 0.1, 0.2, 0.5)]
    assert read(build, "front_end_s, network_s, network_ttft_s, input_tokens, output_tokens") == [
        (0.1, 0.1, 0.15, 10, 3)
    ]
    assert read(build, "arrival_ns") == [(1_700_000_001_000_000_000,)]


def test_warm_up_is_out_and_another_client_s_request_is_in(build: Any) -> None:
    build.request(1.0, 0.5, [0.5], request_id="warm", warmup=True)
    build.request(2.0, 0.5, [0.5], request_id="no span")
    span(build, "warm")
    span(build, "other", at=3.0)
    assert read(build, "request_id, client_status, client_e2e_s, network_s, input_tokens") == [
        ("other", None, None, None, 11)
    ]
    assert read(build, "arrival_ns") == [(1_700_000_004_000_000_000,)]


def test_a_client_that_failed_keeps_the_server_s_side(build: Any) -> None:
    build.request(1.0, None, request_id="a", status="timeout", client_e2e_s=None)
    span(build, "a")
    assert read(build, "client_status, client_e2e_s, network_s, server_e2e_s") == [
        ("timeout", None, None, 0.9)
    ]


@pytest.mark.parametrize(
    ("change", "front_end_s"),
    [
        ({"decode_s": 0.65}, 0.0),  # stamps of two processes: below nothing is nothing
        ({"decode_s": None}, None),
        ({"prefill_s": None}, None),
        ({"queue_wait_s": None}, None),
        ({"server_e2e_s": None}, None),
    ],
)
def test_what_is_left_for_the_front_end(
    build: Any, change: dict[str, float | None], front_end_s: float | None
) -> None:
    span(build, "a", **change)
    assert read(build, "front_end_s") == [(front_end_s,)]


def test_of_a_span_that_came_twice_the_last_counts(build: Any) -> None:
    build.request(1.0, 0.5, [0.5], request_id="a")
    span(build, "a", at=5.0, server_e2e_s=0.8)
    span(build, "a", at=1.0, server_e2e_s=0.9)
    assert read(build, "server_e2e_s") == [(0.8,)]
