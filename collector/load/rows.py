"""Rows of the tables, as a worker writes them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from .client import Answer
from .workload import Shape


def request_row(
    answer: Answer,
    shape: Shape,
    *,
    request_id: str,
    due_ns: int | None,
    warmup: bool,
    epoch_offset_ns: int,
    node: str,
    replica: str,
) -> dict[str, Any]:
    """One row of `requests`.

    Args:
        answer: the request so far; one without an end gives the row of a request in flight.
        shape: its class.
        request_id: its X-Request-Id.
        due_ns: intended send time of an open loop, monotonic. Latencies count from it, so that a
            stalled server is charged for the requests that it kept waiting, sent or not. None in a
            closed loop: they count from the actual sending.
        warmup: sent during the warm-up.
        epoch_offset_ns: wall minus monotonic time.
        node: name of this host.
        replica: host:port of the target.
    """  # fmt: skip
    arrival_ns = due_ns if due_ns is not None else answer.begun_ns
    chunks, stream = answer.chunk_ns, answer.stream
    over = answer.status != "unfinished"
    end_ns = answer.end_ns if over else (chunks[-1] if chunks else None)

    def epoch(t_ns: int | None) -> int | None:
        return None if t_ns is None else t_ns + epoch_offset_ns

    return {
        "request_id": request_id,
        "source": "client",
        "arrival_ns": arrival_ns + epoch_offset_ns,
        "sent_ns": epoch(answer.sent_ns),
        "first_token_ns": epoch(chunks[0]) if chunks else None,
        "end_ns": epoch(end_ns),
        # Up to the start of connecting: how long a server takes to accept is not our delay.
        "send_lag_s": None if due_ns is None else (answer.begun_ns - due_ns) / 1e9,
        "queue_wait_s": None,
        "tokenize_s": None,
        "prefill_s": None,
        "decode_s": None,
        "detokenize_s": None,
        "network_s": None,
        "client_ttft_s": (chunks[0] - arrival_ns) / 1e9 if chunks else None,
        "client_e2e_s": (
            (answer.end_ns - arrival_ns) / 1e9
            if answer.status == "ok" and answer.end_ns is not None
            else None
        ),
        "server_ttft_s": None,
        "server_e2e_s": None,
        "input_tokens": stream.input_tokens,
        "output_tokens": stream.output_tokens,
        "cached_tokens": stream.cached_tokens,
        "chunk_count": len(chunks) if over or chunks else None,
        "chunk_gap_s": [(b - a) / 1e9 for a, b in pairwise(chunks)] if chunks else None,
        "status": answer.status,
        "error": answer.error,
        "http_status_count": answer.http_status,
        "warmup": warmup,
        "workload": shape.workload,
        "node": node,
        "replica": replica,
        "engine": None,
    }


def sample_row(
    signal: str, kind: str, value: float, *, t_ns: int, node: str, worker: int
) -> dict[str, Any]:
    """One row of `samples` about a worker, in seconds."""
    return {
        "t_ns": t_ns, "signal": signal, "kind": kind, "unit": "s", "value": value, "node": node,
        "engine": "", "replica": "", "gpu": "", "phase": "", "reason": "",
        "labels": f'{{"worker":"{worker}"}}', "raw_name": "",
    }  # fmt: skip


def event_row(
    kind: str, text: str, value: float | None, *, t_ns: int, node: str, replica: str
) -> dict[str, Any]:
    """One row of `events` about the load."""
    return {
        "t_ns": t_ns, "kind": kind, "text": text, "value": value, "node": node, "engine": "",
        "replica": replica, "source": "load",
    }  # fmt: skip
