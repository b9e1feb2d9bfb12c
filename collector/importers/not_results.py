"""What lies beside results and is none: recognised, and refused with the reason."""

from __future__ import annotations

import re

from .importer import Importer, Sample, Sink, Source


def _json_keys(sample: Sample, *names: str) -> bool:
    text = sample.text.lstrip("\ufeff \n")
    return text.startswith(("{", "[")) and all(
        re.search(rf'"{name}"\s*:', sample.text) for name in names
    )


def _is_agent_trace(sample: Sample) -> float:
    return 0.85 if _json_keys(sample, "trace_id", "span_count", "spans", "start_time") else 0.0


def _is_verdict(sample: Sample) -> float:
    return 0.8 if _json_keys(sample, "claim_status", "confidence", "metric_values") else 0.0


def _is_chunks(sample: Sample) -> float:
    first = sample.text.partition("\n")[0]
    hit = '"choices"' in first and '"delta"' in first and '"chat' in first
    return 0.8 if hit else 0.0


def _is_conversations(sample: Sample) -> float:
    return 0.7 if _json_keys(sample, "conversations", "from", "value") else 0.0


def _is_load_config(sample: Sample) -> float:
    keys = set(re.findall(r"^([\w-]+):", sample.text[:4096], re.MULTILINE))
    return 0.6 if {"target", "rate-type"} <= keys or {"target", "rate_type"} <= keys else 0.0


def _is_rules(sample: Sample) -> float:
    """A document about metrics, with queries and no values."""
    text = sample.text
    said = re.search(r"DCGM_FI_|vllm:|sglang:|trtllm[:_]", text)
    return 0.5 if said and re.search(r"^[ \t]*```", text, re.MULTILINE) else 0.0


def _nothing(source: Source, sink: Sink) -> None:
    """Never called: each of these kinds refuses."""


IMPORTERS: tuple[Importer, ...] = tuple(
    Importer(kind, title, recognise, _nothing, refuses)
    for kind, title, recognise, refuses in (
        (
            "agent-trace",
            "spans of an agent's calls",
            _is_agent_trace,
            "spans of an agent's calls, a workload to replay: they say nothing of a server's phases",
        ),
        (
            "other-verdict",
            "another tool's diagnosis",
            _is_verdict,
            "another tool's diagnosis: give the metrics and logs it was made of",
        ),
        (
            "answer-chunks",
            "chunks of one answer",
            _is_chunks,
            "the chunks of one recorded answer, without times",
        ),
        (
            "conversations",
            "conversations (ShareGPT)",
            _is_conversations,
            "prompts, not measurements: give them to --load as prompts",
        ),
        (
            "load-config",
            "a load generator's configuration",
            _is_load_config,
            "a load generator's configuration: give the result that it wrote",
        ),
        (
            "metrics-document",
            "a document about metrics",
            _is_rules,
            "a document about metrics, without a page of them: give the output of curl …/metrics",
        ),
    )
)
