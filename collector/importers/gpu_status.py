"""What `nvidia-smi` prints of its own accord, and `nvidia-smi -q` as text and as XML."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping

from ...errors import WhyboundError
from .gpu_rows import GpuRows, local_ns, plain, quantity, reason_of
from .importer import Importer, Sample, Sink, Source

_STAMP = ("%a %b %d %H:%M:%S %Y",)
_WHEN = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}")
MAX_XML_BYTES = 32 << 20

# ---------------------------------------------------------------- the table

_BANNER = re.compile(r"NVIDIA-SMI\s+(\S+).*?(?:Driver|KMD) Version:\s*(\S+)")
_FIRST = re.compile(
    r"^\|\s*(\d+)\s+(\S.*?)\s+(?:On|Off|N/A|WDDM|TCC|MCDM)?\s*\|\s*[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:\S+"
    r"\s+\S+\s*\|\s*(\S+)\s*\|"
)
_SECOND = re.compile(
    r"^\|\s*\S+\s+(\d+)C\s+P\d+\s+(\S+?)W?\s*/\s*(\S+?)W?\s*\|\s*(\d+)MiB\s*/\s*(\d+)MiB\s*\|\s*(\S+?)%?\s"
)


def _table(sample: Sample) -> float:
    return 0.9 if _BANNER.search(sample.text) and "|=====" in sample.text else 0.0


def read_table(source: Source, sink: Sink) -> None:
    """Samples of each GPU; a file may hold the table many times.

    Raises:
        WhyboundError: no GPU is in it.
    """
    rows = GpuRows(sink)
    gpu: str | None = None
    names: dict[str, str] = {}
    for line in map(plain, source.lines()):
        when, banner = _WHEN.search(line), _BANNER.search(line)
        first, second = _FIRST.match(line), _SECOND.match(line)
        if when:
            rows.t_ns = local_ns(when[0], _STAMP) or rows.t_ns
        if banner:
            rows.setting("driver_version", banner[2], "nvidia-smi")
        if first:
            gpu = first[1]
            names[gpu] = first[2].rstrip(" .")
            ecc = quantity(first[3])
            rows.sample(
                "gpu_ecc_errors_count",
                ecc,
                gpu,
                reason="uncorrected",
                raw_name="Volatile Uncorr. ECC",
            )
        elif second and gpu is not None:
            told = (
                ("gpu_temperature_celsius", quantity(second[1]), "Temp"),
                ("gpu_power_w", quantity(second[2]), "Pwr:Usage"),
                ("gpu_power_limit_w", quantity(second[3]), "Pwr:Cap"),
                ("gpu_mem_used_bytes", quantity(second[4], "MiB"), "Memory-Usage"),
                ("gpu_mem_total_bytes", quantity(second[5], "MiB"), "Memory-Usage"),
                ("gpu_busy_ratio", quantity(second[6], "%"), "GPU-Util"),
            )
            for signal, value, raw_name in told:
                rows.sample(signal, value, gpu, raw_name=raw_name)
            gpu = None
    if not names:
        raise WhyboundError(f"{source.path.name}: there is no GPU in the table")
    # Long names are cut with dots: half a name would name another device.
    whole = [n for n in names.values() if not n.endswith("...")]
    if whole:
        rows.setting("gpu_name", whole[0], "nvidia-smi")
    rows.setting("gpu_count", str(len(names)), "nvidia-smi")
    rows.close()


# ---------------------------------------------------------------- -q, text and XML

# path of a value → (signal, reason); the first that matches a signal counts
_POWER = r"^(gpu_)?power_readings/"
_VALUES: tuple[tuple[str, str, str], ...] = (
    (r"^utilization/gpu(_util)?$", "gpu_busy_ratio", ""),
    (r"^utilization/memory(_util)?$", "gpu_mem_busy_ratio", ""),
    (r"^fb_memory_usage/used$", "gpu_mem_used_bytes", ""),
    (r"^fb_memory_usage/total$", "gpu_mem_total_bytes", ""),
    (_POWER + r"power_draw$", "gpu_power_w", ""),
    (_POWER + r"average_power_draw$", "gpu_power_w", ""),
    (_POWER + r"instant(aneous)?_power_draw$", "gpu_power_w", ""),
    (_POWER + r"enforced_power_limit$", "gpu_power_limit_w", ""),
    (_POWER + r"current_power_limit$", "gpu_power_limit_w", ""),
    (_POWER + r"power_limit$", "gpu_power_limit_w", ""),
    (_POWER + r"default_power_limit$", "gpu_power_limit_default_w", ""),
    (r"^clocks/sm(_clock)?$", "gpu_sm_clock_mhz", ""),
    (r"^clocks/(mem_clock|memory)$", "gpu_mem_clock_mhz", ""),
    (r"^max_clocks/sm(_clock)?$", "gpu_sm_clock_max_mhz", ""),
    (r"^max_clocks/(mem_clock|memory)$", "gpu_mem_clock_max_mhz", ""),
    (r"^temperature/gpu_(current_)?temp$", "gpu_temperature_celsius", ""),
    (r"/pcie_gen(eration)?/current(_link_gen)?$", "gpu_pcie_gen_count", ""),
    (r"/pcie_gen(eration)?/max(_link_gen)?$", "gpu_pcie_gen_max_count", ""),
    (r"/link_widths?/current(_link_width)?$", "gpu_pcie_width_count", ""),
    (r"/link_widths?/max(_link_width)?$", "gpu_pcie_width_max_count", ""),
)
_ECC = re.compile(r"^ecc_errors/volatile/(?:[a-z_]+/)*([a-z_]+)$")
_REASON = re.compile(r"^clocks_(throttle|event)_reasons/(?:\w+/)*(\w+)$")


def _gpu(rows: GpuRows, gpu: str, found: Mapping[str, str]) -> None:
    """The rows of one GPU out of its values by path."""
    done: set[str] = set()
    for pattern, signal, reason in _VALUES:
        if signal in done:
            continue
        for path, text in found.items():
            value = quantity(text) if re.search(pattern, path) else None
            if value is not None:
                rows.sample(signal, value, gpu, reason=reason, raw_name=path)
                done.add(signal)
                break
    active, ecc = {}, {"corrected": 0.0, "uncorrected": 0.0}
    seen = set()
    for path, text in found.items():
        held, errors = _REASON.match(path), _ECC.match(path)
        why = reason_of(held[2]) if held else None
        if why is not None and text.lower() in ("active", "not active"):
            active[why] = text.lower() == "active"
        value = quantity(text) if errors else None
        if errors and value is not None:
            old = "single_bit" in path or "double_bit" in path
            if not old or errors[1] == "total":  # its parts stand beside it
                wrong = "uncorr" in errors[1] or "double_bit" in path
                ecc["uncorrected" if wrong else "corrected"] += value
                seen.add("uncorrected" if wrong else "corrected")
    rows.throttled(gpu, active, "clocks_event_reasons")
    for kind in sorted(seen):
        rows.sample(
            "gpu_ecc_errors_count", ecc[kind], gpu, reason=kind, raw_name="ecc_errors/volatile"
        )
    rows.setting("gpu_name", found.get("product_name", ""), "nvidia-smi -q")


def _head(rows: GpuRows, key: str, value: str) -> None:
    if key == "timestamp":
        rows.t_ns = local_ns(" ".join(value.split()), _STAMP) or rows.t_ns
    elif key == "driver_version":
        rows.setting("driver_version", value, "nvidia-smi -q")
    elif key == "attached_gpus":
        rows.setting("gpu_count", value, "nvidia-smi -q")


def _text(sample: Sample) -> float:
    return 0.9 if "=NVSMI LOG=" in sample.text else 0.0


def read_text(source: Source, sink: Sink) -> None:
    """Samples of each GPU from `nvidia-smi -q`, whole or of some sections (`-d`).

    Raises:
        WhyboundError: no GPU is in it.
    """
    rows = GpuRows(sink)
    found: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    index = -1

    def end() -> None:
        if index >= 0:
            _gpu(rows, str(index), found)
        found.clear()

    for line in map(plain, source.lines()):
        if "=NVSMI LOG=" in line:
            end()
            index = -1
        elif re.match(r"^GPU [0-9A-Fa-f]{4,8}:", line):
            end()
            index += 1
            path = []
        elif line.strip():
            indent = len(line) - len(line.lstrip())
            name, colon, value = line.partition(" : ")
            if not colon and line.rstrip().endswith(":"):
                name = line.rstrip()[:-1]
            key = re.sub(r"\W+", "_", name.strip().lower()).strip("_")
            path = [p for p in path if p[0] < indent]
            full = "/".join([*(p[1] for p in path), key])
            if colon and index < 0:
                _head(rows, full, value)
            elif colon:
                found[full] = value.strip()
            path.append((indent, key))
    end()
    if rows.close() == 0:
        raise WhyboundError(f"{source.path.name}: there is no GPU in it")


def _xml(sample: Sample) -> float:
    return 0.95 if "<nvidia_smi_log>" in sample.text[:4096] else 0.0


def _documents(source: Source) -> Iterator[str]:
    """The log's documents, one after the other (`-l` prints many), each bounded."""
    lines: list[str] = []
    size = 0
    for line in source.lines():
        if line.lstrip().startswith(("<?xml", "<!DOCTYPE")):
            continue  # the entities of a document type are nothing that nvidia-smi writes
        lines.append(line)
        size += len(line)
        if size > MAX_XML_BYTES:
            raise WhyboundError(
                f"{source.path.name}: an XML document of more than 32 MiB is no nvidia-smi log"
            )
        if "</nvidia_smi_log>" in line:
            yield "\n".join(lines)
            lines, size = [], 0
    if any(line.strip() for line in lines):
        raise WhyboundError(
            f"{source.path.name}: the XML is cut off; what stands before it was read"
        )


def _leaves(element: ET.Element, path: str = "") -> Iterator[tuple[str, str]]:
    for child in element:
        here = f"{path}/{child.tag}" if path else child.tag
        if child.tag in ("mig_devices", "processes", "supported_clocks", "accounted_processes"):
            continue
        if len(child):
            yield from _leaves(child, here)
        else:
            # clocks_event_reason_x inside clocks_event_reasons
            yield (
                re.sub(r"clocks_(throttle|event)_reason_(\w+)$", r"\2", here),
                (child.text or "").strip(),
            )


def read_xml(source: Source, sink: Sink) -> None:
    """Samples of each GPU from `nvidia-smi -q -x`.

    Raises:
        WhyboundError: it is no XML, is cut off, or has no GPU.
    """
    rows = GpuRows(sink)
    try:
        for text in _documents(source):
            try:
                root = ET.fromstring(text)  # noqa: S314 — without a document type there are no entities
            except ET.ParseError as error:
                raise WhyboundError(f"{source.path.name}: {error}") from error
            for key in ("timestamp", "driver_version", "attached_gpus"):
                _head(rows, key, root.findtext(key) or "")
            for index, gpu in enumerate(root.findall("gpu")):
                _gpu(rows, str(index), dict(_leaves(gpu)))
    finally:
        count = rows.close()
    if count == 0:
        raise WhyboundError(f"{source.path.name}: there is no GPU in it")


IMPORTERS = (
    Importer("nvidia-smi", "the table that `nvidia-smi` prints", _table, read_table),
    Importer("nvidia-smi-q", "`nvidia-smi -q`", _text, read_text),
    Importer("nvidia-smi-xml", "`nvidia-smi -q -x`", _xml, read_xml),
)
