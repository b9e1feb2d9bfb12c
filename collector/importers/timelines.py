"""Timelines and kernel profiles: recognised, so that nobody wonders, and not read yet."""

from __future__ import annotations

import re

from .importer import Importer, Sample, Sink, Source

NOT_YET = "not read yet: timelines and kernel profiles are for a later version"

_KINETO = re.compile(r'"(traceEvents|deviceProperties|distributedInfo|trace_id)"\s*:')
_NSYS_STATS = (
    "Total Time (ns),",
    "Total Proj Time (ns),",
    "Start (ns),Duration (ns),",
    "Count,QCount,",
    "Total (MB),Count,",
)
_NSYS_TEXT = re.compile(
    r"\bnsys (?:nvprof|stats|profile)\b|Processing \[[^\]\n]*\.sqlite\]"
    r"|\*\* (?:CUDA|OS Runtime|NVTX|GPU)[^\n]{0,80}\(\w+_\w+\):"
)
_TRACE_TABLES = (
    "op category,",
    "type,time ms,percent",
    "kernel_id,classification",
    "kernel_id,section,metric_name",
    "total_direct_kernel_time",
)
"""What tools make of traces and kernel profiles."""
_NCU = re.compile(r'^"?ID"?,"?Process ID"?,"?Process Name"?,', re.MULTILINE)
_NCU_DERIVED = re.compile(
    r"(sm__|dram__|gpu__time_duration|Section Name,Metric Name|Roofline|lts__t)[^\n]*",
    re.IGNORECASE,
)


def _sqlite(sample: Sample) -> float:
    if not sample.head.startswith(b"SQLite format 3\0"):
        return 0.0
    return 0.9 if b"CUPTI_" in sample.head or b"NSYS" in sample.head.upper() else 0.6


def _nsys_rep(sample: Sample) -> float:
    named = sample.name.endswith((".nsys-rep", ".qdrep"))
    if sample.head.startswith(b"NVIDIA Tegra Profiler Report") or b"QuadD" in sample.head[:4096]:
        return 0.9
    return 0.6 if named and not sample.text else 0.0


def _ncu_rep(sample: Sample) -> float:
    return 0.9 if sample.head.startswith(b"NVR\0") else 0.0


def _kineto(sample: Sample) -> float:
    text = sample.text.lstrip()
    if not text.startswith(("{", "[")):
        return 0.0
    found = {m[1] for m in _KINETO.finditer(text)}
    if found & {"traceEvents", "deviceProperties"} or (
        "trace_id" in found and '"schemaVersion"' in text
    ):
        return 0.85
    if '"profiler"' in text[:4096] and '"warmups"' in text[:4096]:
        return 0.7
    if '"schema"' in text[:4096] and "execution_trace" in text:
        return 0.7
    return 0.85 if text.startswith("[") and '"ph"' in text and '"ts"' in text else 0.0


def _nsys_stats(sample: Sample) -> float:
    head = sample.text
    if _NSYS_TEXT.search(head):
        return 0.8
    first = head.lstrip().partition("\n")[0]
    return 0.85 if any(columns in first for columns in _NSYS_STATS) else 0.0


def _trace_table(sample: Sample) -> float:
    first = sample.text.lstrip().partition("\n")[0]
    return 0.75 if any(columns in first for columns in _TRACE_TABLES) else 0.0


def _ncu_csv(sample: Sample) -> float:
    head = sample.text
    if _NCU.search(head):
        return 0.9
    first = head.lstrip().partition("\n")[0]
    return 0.7 if "," in first and _NCU_DERIVED.search(first) else 0.0


def _nothing(source: Source, sink: Sink) -> None:
    """Never called: each of these kinds refuses."""


IMPORTERS = tuple(
    Importer(kind, title, recognise, _nothing, refuses=NOT_YET)
    for kind, title, recognise in (
        ("nsys-sqlite", "Nsight Systems export (SQLite)", _sqlite),
        ("nsys-rep", "Nsight Systems report", _nsys_rep),
        ("nsys-stats", "`nsys stats` tables", _nsys_stats),
        ("kineto", "PyTorch profiler trace", _kineto),
        ("ncu-csv", "Nsight Compute CSV", _ncu_csv),
        ("trace-table", "table made of a trace or kernel profile", _trace_table),
        ("ncu-rep", "Nsight Compute report", _ncu_rep),
    )
)
