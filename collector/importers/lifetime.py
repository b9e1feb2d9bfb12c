"""What one page of cumulative metrics tells of an engine's whole life, as facts: means since its start."""

from __future__ import annotations

from collections.abc import Iterable

from .fact_sheet import FactSheet
from .importer import Row, Sink

_MEANS = {
    "queue_s": "server_queue_mean_s",
    "prefill_s": "server_prefill_mean_s",
    "decode_s": "server_decode_mean_s",
    "inference_s": "server_inference_mean_s",
    "ttft_s": "server_ttft_mean_s",
    "itl_s": "server_itl_mean_s",
    "e2e_s": "server_e2e_mean_s",
    "request_prompt_tokens": "engine_input_mean_tokens",
    "request_generation_tokens": "engine_output_mean_tokens",
}


def add_lifetime(
    sheet: FactSheet, samples: Iterable[Row], histograms: Iterable[Row], sink: Sink, t_ns: int
) -> None:
    """Means and ratios since the engine's start, over all its instances on the page.

    A mean is a histogram's sum over its count; the front end's is what end-to-end has above queue and
    inference, where all three count the same requests.
    """
    sums: dict[str, float] = {}
    counts: dict[str, float] = {}
    unknown: set[str] = set()
    for row in histograms:
        signal = row["signal"]
        if row["sum"] is None:
            unknown.add(signal)
        elif row["count"]:
            sums[signal] = sums.get(signal, 0.0) + row["sum"]
            counts[signal] = counts.get(signal, 0.0) + row["count"]
    totals: dict[str, float] = {}
    for row in samples:
        if row["kind"] == "counter":
            totals[row["signal"]] = totals.get(row["signal"], 0.0) + row["value"]
    for signal, fact in _MEANS.items():
        if counts.get(signal) and signal not in unknown:
            sheet.add(fact, sums[signal] / counts[signal], n=int(counts[signal]), t_ns=t_ns)
    _add_shares(sheet, counts, t_ns)
    _add_ratios(sheet, totals, t_ns)
    if len(sheet):
        sink.note(
            "one page of counters: its figures are means since the engine's start, idle and warm-up "
            "included; two pages some minutes apart tell of the load between them"
        )


def _add_shares(sheet: FactSheet, counts: dict[str, float], t_ns: int) -> None:
    e2e, queue, inference = (
        sheet.get(f"server_{name}_mean_s") for name in ("e2e", "queue", "inference")
    )
    if e2e is None or queue is None or counts.get("e2e_s") != counts.get("queue_s"):
        return
    n = int(counts["e2e_s"])
    if e2e > 0 and queue <= e2e:
        sheet.add("wait_share_ratio", queue / e2e, n=n, t_ns=t_ns)
    if inference is not None and counts.get("inference_s") == counts.get("e2e_s"):
        rest = e2e - queue - inference
        if rest >= 0:
            sheet.add("server_front_end_mean_s", rest, n=n, t_ns=t_ns)


def _add_ratios(sheet: FactSheet, totals: dict[str, float], t_ns: int) -> None:
    asked, hit = totals.get("prefix_queries_tokens"), totals.get("prefix_hits_tokens")
    if asked and hit is not None and hit <= asked:
        sheet.add("prefix_hit_ratio", hit / asked, t_ns=t_ns)
    drafted, accepted = totals.get("spec_draft_tokens"), totals.get("spec_accepted_tokens")
    if drafted and accepted is not None and accepted <= drafted:
        sheet.add("speculation_accepted_ratio", accepted / drafted, t_ns=t_ns)
    finished, preempted = totals.get("requests_finished_count"), totals.get("preemptions_count")
    if finished:
        sheet.add("engine_finished_count", finished, t_ns=t_ns)
    if preempted is not None:
        sheet.add("preemptions_count", preempted, t_ns=t_ns)
        if finished:
            sheet.add(
                "preemptions_per_request_ratio", preempted / finished, n=int(finished), t_ns=t_ns
            )
