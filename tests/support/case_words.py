"""What a line of a log or an event says, where nothing counts it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whybound.collector.fact_figures import figure

_LOG = (
    (
        "custom_all_reduce",
        r"p2p (is )?disabled|nccl_p2p_disable=1|disabling custom all"
        r"|custom[ _-]?all[ _-]?reduce\W{1,3}(is )?(off|disabled)", "off",
    ),
    ("step_host_s", r"sampl\w* time = .*?([\d.]+) ms per token", "{} ms"),
    ("step_device_s", r"(?<!prompt )\beval time = .*?([\d.]+) ms per token", "{} ms"),
    (
        "generation_stall_s",
        r"(?:no|without a(?:ny)?) tokens? (?:at all )?for "
        r"((?:about |~|up to )?[\d.]+ ?(?:ms|s|sec\w*|min\w*)\b|(?:tens|dozens|hundreds) of seconds)", "{}",
    ),
    (
        "kv_demand_ratio",
        r"(?:(?:larger|bigger|more|longer) than|exceeds?) the (?:kv |cache )?(?:pool|cache)\b", ">= 1",
    ),
    ("retractions_count", r"(?<!no )(?<!0 )\bretract", ">= 1"),
    ("preemptions_count", r"(?<!no )(?<!0 )\bpreempt", ">= 1"),
    ("slow_tokenizer", r"\busing a slow tokenizer|slow \(python\) tokenizer", "yes"),
    (
        "proxy_buffering",
        r"(?:no-?_?delay|tcp_?nodelay)\W{1,3}(?:is )?(?:not set|unset|off|disabled|missing)"
        r"|without (?:tcp_?)?no-?_?delay|nagle\W{1,3}(?:is )?(?:left )?(?:on|enabled)\b", "on",
    ),
    (
        "kv_transfer_mean_s",
        r"\b(?:nixl|mooncake|ucx|kv[ _-](?:cache[ _-])?transfer)\b.*\b(?:time|took|total)\b.*?"
        r"(\d[\d.]* ?m?s)\b", "{}",
    ),
    (
        "waiting_mean_count",
        r"(?:deferred|postponed|held back|kept waiting) (?:while|until) (?:an|the)?other \w+ "
        r"(?:is )?(?:decod|generat|finish|run)", ">= 1",
    ),
    (
        "running_mean_count",
        r"(?:deferred|postponed|held back|kept waiting) (?:while|until) (?:an|the)?other \w+ "
        r"(?:is )?(?:decod|generat|finish|run)", ">= 1",
    ),
    ("moe_default_config", r"default (fused )?moe config", "yes"),
    (
        "kv_used_max_ratio",
        r"(kv|cache|pool)[\w ]{0,20} (is )?(full|exhausted)|out of kv|no free (kv )?blocks", "95-100 %",
    ),
    (
        "max_num_seqs_count",
        r"(?:running|seqs|batch|concurren)\w*.{0,30}(?:capped|clamped|reduced|lowered|limited) to (\d+)", "{}",
    ),
    ("kv_room_ratio", r"maximum concurrency for [\d,]+ tokens per request: ([\d.]+) ?x", "{}"),
    ("jit_compiles_count", r"jit[- ]compil|compiling kernel|kernel jit", ">= 1"),
    (
        "graph_replayed_ratio",
        r"(fall(s|ing|en)? ?back|revert\w*) to eager|runn?(ing|s)? eager(ly)?|without cuda ?graph", "0",
    ),
)  # fmt: skip
"""What a line or an event says, where nothing counts it."""


def said(text: str) -> Iterator[tuple[str, str]]:
    """Signals and values that a line of a log or an event tells in words."""
    for signal, pattern, value in _LOG:
        if found := re.search(pattern, text.lower()):
            yield signal, value.format(figure(found[1])) if "{}" in value else value


def slowed(text: str) -> Iterator[tuple[str, str]]:
    """Signals that a reason for slow clocks stands for."""
    if re.search(r"power[ _](cap|limit|brake)", text.lower()):
        yield "gpu_power_capped_ratio", "1"
    if "thermal" in text.lower():
        yield "gpu_thermal_ratio", "1"


def graph_sizes(text: str) -> str | None:
    """The largest batch among the sizes that were captured: `captured 1,2,4,8`, `bs=[1, 2, 4]`."""
    found = re.search(r"(?:captur\w*|graph\w*|bs)[^\d]{0,20}((?:\d+[,\s]+)+\d+)", text.lower())
    return str(max(int(n) for n in re.findall(r"\d+", found[1]))) if found else None
