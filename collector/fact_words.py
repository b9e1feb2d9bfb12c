"""Words that stand for a figure: what people write in place of a share, yes or no, a topology or a stack."""

from __future__ import annotations

import re
from typing import Any

_SHARES = (
    (r"(nearly|almost|mostly|virtually) (empty|unused|free)|hardly used|(close to|near) (0|zero) ?%?$", "0..0.1"),
    (r"starv|mostly (idle|waiting)|mainly idle|sits idle", "0..0.6"),
    (r"(well|far|much) (below|under) (100|full|its limit|the limit|capacity)|plenty (free|left)", "0..0.8"),
    (r"under-?(utili[sz]|us)ed|not (fully )?(busy|saturated|loaded)|half[- ]idle", "0..0.7"),
    (r"(peg|pinn|maxed|satur|stuck at 100|at 100 ?%|fully (busy|used|loaded)|always 100)", "0.95..1"),
    (r"(near|close to|almost|around|~) ?100 ?%|nearly full|almost full", "0.9..1"),
)  # fmt: skip
"""Wordings of a share; `not high` and its like are read as they are."""
_SPAN = re.compile(r"(\d+(?:\.\d+)?) ?%? ?(?:-|–|to|and) ?(\d+(?:\.\d+)?) ?%")
_PERCENT = re.compile(r"(?<![\d.])(\d+(?:\.\d+)?) ?%")

_STACKS = (
    ("image", r"image|pillow|\bpil\b|pixel|multi_?modal|vision|hf_processor|resize"),
    ("detokenizer", r"detoken|incremental_decode|convert_ids_to_tokens"),
    ("tokenizer", r"tokeni[sz]"),
    ("sampling", r"pad_|_pad|padded|sampl|logit|penalt|top_?[kp]\b|grammar|xgrammar|outlines|guided"),
    ("serialization", r"json|pickle|msgpack|msgspec|zmq|serializ|protobuf|\bencode\(|shm_|broadcast"),
    ("scheduler", r"schedul|prepare_(inputs|model)|build_(batch|metadata)|block_manager|event_loop"),
    ("gil", r"\bgil\b|take_gil|pyeval"),
    ("launch", r"launch|cudagraph|replay|dispatch"),
)  # fmt: skip
"""What the frames of a busy thread do, the more telling first."""

_LINKS = (
    ("{}", r"\b(SYS|NODE|PHB|PXB|PIX)\b"),
    ("NV", r"(?<!no )(?<!without )(?<!not )(\bNV\d+\b|NVLink|NVSwitch)"),
    ("SYS", r"(different|both|two|across|cross|other)[ -](cpu )?(socket|numa)|\b[QU]PI\b|cross-socket"),
    ("IB", r"(?<!no )(?<!without )(InfiniBand|\bIB\b|\b[NHX]DR\b|(?<!no )\bRDMA\b(?! off))"),
    ("ETH", r"RoCE|ethernet|\d ?GbE|\d ?Gb(it)?(/s|ps)?\b|\bTCP\b|\bLAN\b|between (nodes|machines)|two nodes"),
    ("PIX", r"(one|same|single|shared|common)( pcie)? switch|(?<!no )(pcie switch|\bPLX\b)"),
    ("PHB", r"via (the )?(cpu|host|root)|through (the )?(cpu|host|root)|no p2p|host bridge|p2p (off|disabled)"),
    ("PCIE", r"pcie|pci-e"),
)  # fmt: skip
_NO_SWITCH = re.compile(r"no (common|shared|pcie) switch", re.IGNORECASE)

_CORES = (
    r"(?:limit(?:ed)?|quota|capped|restricted|pinned)[^\d,;]{0,20}(\d+(?:\.\d+)?) ?(?:v?cpus?|cpu cores|cores?)",
    r"(?:cpu[ _]?(?:limit|quota)|--cpus)[= :]{1,3}(\d+(?:\.\d+)?)",
    r"(\d+) allocatable",
    r"(\d+(?:\.\d+)?)[- ]?(?:v?cpus?|cpu cores|(?:physical )?cores?)\b",
    r"\b(\d+)C/\d+T\b",
)
_TIMES = re.compile(
    r"(\d+(?:\.\d+)?) ?(?:x|×|times)\s+(?:\w+ ){0,2}?(below|above|slower|off|under|over|from)"
)


def share(text: str) -> str | None:
    """A share in words, or with its figure inside a sentence; None where it tells none."""
    plain = text.strip().lower()
    if re.search(r"spik|burst|oscillat|alternat|fluctuat|swing", plain):  # no level of its own
        return None
    for pattern, value in _SHARES:
        if re.search(pattern, plain):
            return value
    if found := _SPAN.search(plain):
        low, high = sorted((float(found[1]), float(found[2])))
        return f"{low:g}-{high:g} %"
    shares = _PERCENT.findall(plain)
    return f"{shares[0]} %" if len(set(shares)) == 1 else None


def found_none(value: Any) -> str | None:
    """Yes where a thing looked for is missing, or where a warning says that a default stands in for it."""
    text = str(value).lower()
    if re.search(
        r"not found|missing|no (tuned|such|match)|absent|default|not (tuned|available)|none for",
        text,
    ):
        return "yes"
    return None if flag(value) is False or re.search(r"\bfound\b|\btuned\b", text) else "yes"


def on_host(value: Any) -> str | None:
    """Yes where part of the weights is said to be in host memory; a number of layers or bytes above 0 is such."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "yes" if value > 0 else "no"
    text = str(value)
    if part := re.match(r"(\d+) ?(?:of|/|out of) ?(\d+)", text):  # layers on one side, of all
        return "yes" if 0 < int(part[1]) < int(part[2]) else None
    if re.search(r"\b(all|every)\b.{0,20}\b(gpu|vram)\b|^(none|no|off|0)\b", text, re.IGNORECASE):
        return "no"
    return (
        "yes"
        if re.search(r"\b(cpu|host|(system )?ram)\b|^\W*[1-9]\d*\b", text, re.IGNORECASE)
        else None
    )


def exceeds(text: str) -> str | None:
    """What is needed over what there is: `larger than the pool`, `1.4x the pool`."""
    plain = text.lower()
    if found := re.search(
        r"(\d+(?:\.\d+)?) ?(?:x|×|times) (?:the |of the )?(?:kv |cache )?(?:pool|capacity|cache|budget)",
        plain,
    ):
        return found[1]
    if re.search(
        r"(larger|bigger|greater|more|longer) than|exceed|beyond|does(n't| not) fit|over(sub|comm)|above",
        plain,
    ):
        return ">= 1"
    if re.search(r"(smaller|less|lower) than|fits|below|within", plain):
        return "<= 1"
    return None


def flag(value: Any) -> bool | None:
    """Yes or no, however it is written; None where it is neither."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if re.search(r"\b(false|no|off|disabled|never|none|eager|inactive|not active|0)\b", word):
        return False
    return True if re.search(r"\b(true|yes|on|enabled|always|active|1)\b", word) else None


def stack_kind(value: Any) -> str | None:
    """What a stack sampler shows of the busy thread."""
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return next((kind for kind, pattern in _STACKS if re.search(pattern, text.lower())), None)


def link_path(text: str) -> str | None:
    """How GPUs reach one another, as `nvidia-smi topo` calls it; None where the words do not say."""
    text = _NO_SWITCH.sub("", text.split("->", maxsplit=1)[0])
    for path, pattern in _LINKS:
        exact = path == "{}"
        if found := re.search(pattern, text, 0 if exact else re.IGNORECASE):
            return path.format(found[1]) if exact else path
    return None


def cores(text: str) -> str | None:
    """The cores that words about a host give a server: a limit before what is there."""
    for pattern in _CORES:
        if found := re.search(pattern, text, re.IGNORECASE):
            return found[1]
    return None


def times(text: str) -> str | None:
    """`about 6x below the roof` is 6."""
    found = _TIMES.search(text.lower())
    return found[1] if found else None


def rate(text: str) -> str | None:
    """Requests a second among words about arrival."""
    found = re.search(
        r"(\d+(?:\.\d+)?) ?(?:req(?:uest)?s?(?:/s(?:ec)?| per second| a second)|rps\b|qps\b)", text.lower()
    )  # fmt: skip
    return found[1] if found else None
