"""The requests in the tail of a target, and where they spent their time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .measures import PER_REQUEST

if TYPE_CHECKING:
    import duckdb

    from .target import TargetSpec

NO_SPANS = "no server spans: add --instrument"
NO_TAIL = "the target is not of the tail: p90 or above of a latency is"

_BEFORE_FIRST = {
    "client_lag": ("load generator's own delay", None, "send_lag_s"),
    "network": ("network, proxy and client", "network", "network_ttft_s - coalesce(send_lag_s, 0)"),
    "front_end": (
        "front end, and the pass in flight", "launch", "server_ttft_s - queue_wait_s - prefill_s",
    ),
    "wait": ("waiting in the engine's queue", None, "queue_wait_s"),
    "prefill": ("prefill", None, "prefill_s"),
}  # fmt: skip
_WHOLE = {
    **_BEFORE_FIRST,
    "network": ("network, proxy and client", "network", "network_s - coalesce(send_lag_s, 0)"),
    "front_end": ("front end, and the pass in flight", "launch", "front_end_s"),
    "decode": ("decode", None, "decode_s"),
}
"""Phase → label, class, and its seconds in `request_phases`: parts of client TTFT, of client end-to-end."""


def tail_requests(con: duckdb.DuckDBPyConnection, spec: TargetSpec) -> list[str]:
    """The requests at or above the target's quantile, the worst first.

    For itl those that hold a gap above it. Empty when the target is a mean or a rate, or nothing was
    measured.
    """
    if spec.quantile is None:
        return []
    if spec.metric == "itl":
        query = (
            "SELECT request_id FROM token_gaps GROUP BY request_id"
            " HAVING max(gap_s) > (SELECT quantile_cont(gap_s, ?) FROM token_gaps)"
            " ORDER BY max(gap_s) DESC, request_id"
        )
    else:
        column = PER_REQUEST[spec.metric]
        query = (
            f"WITH ok AS (SELECT request_id, {column} AS v FROM measured_requests WHERE status = 'ok')"  # noqa: S608
            " SELECT request_id FROM ok WHERE v >= (SELECT quantile_cont(v, ?) FROM ok)"
            " ORDER BY v DESC, request_id"
        )
    return [r for (r,) in con.execute(query, [spec.quantile]).fetchall()]


def tail_phases(con: duckdb.DuckDBPyConnection, spec: TargetSpec) -> dict[str, Any]:
    """`phases_tail` and `phases_tail_why` of the exhibits.

    Mean seconds of each phase over the tail's requests that a server span tells of: parts of the time to first
    token for ttft, of end-to-end otherwise, with what they do not explain as `unknown`. A phase that one
    of these spans lacks is not shown, its time is in `unknown`.
    """
    if not spec.is_tail:
        return {"phases_tail": None, "phases_tail_why": NO_TAIL}
    ids = tail_requests(con, spec)
    total, parts = (
        ("client_ttft_s", _BEFORE_FIRST) if spec.metric == "ttft" else ("client_e2e_s", _WHOLE)
    )
    sums = ", ".join(
        f"CASE WHEN count({sql}) = count(*) THEN avg({sql}) END" for _, _, sql in parts.values()
    )
    row = con.execute(
        f"SELECT count(*), avg({total}), {sums} FROM request_phases"  # noqa: S608 — names are ours
        f" WHERE request_id IN (SELECT unnest(?::VARCHAR[])) AND {total} IS NOT NULL",
        [ids],
    ).fetchone()
    assert row is not None
    seen, whole = row[:2]
    if not ids or not seen:
        why = NO_SPANS if ids else "no request is in the tail"
        return {"phases_tail": None, "phases_tail_why": why}
    source = f"request_phases, {seen} of the {len(ids)} requests at {spec.statistic} {spec.metric}"
    seconds = {n: max(0.0, s) for n, s in zip(parts, row[2:], strict=True) if s is not None}
    rows = [
        {"phase": n, "label": parts[n][0], "seconds": s, "class": parts[n][1], "source": source}
        for n, s in seconds.items()
        if s > 0
    ]
    rest = whole - sum(seconds.values())
    if rest > 1e-3 * whole:
        rows.append(
            {"phase": "unknown", "label": "not explained", "seconds": rest, "class": None, "source": source}
        )  # fmt: skip
    return {"phases_tail": rows, "phases_tail_why": None}
