"""What load to send, as one line of text: `poisson:rate=4,in=64,out=64,d=60s`."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

import msgspec

from ...errors import UsageError
from . import values
from .lengths import Lengths, WorkClass, parse_lengths, parse_mix, parse_one_sided

Process = Literal["poisson", "gamma", "constant", "closed", "file"]
_T = TypeVar("_T")

PROCESSES: tuple[Process, ...] = ("poisson", "gamma", "constant", "closed", "file")
DEFAULT_DURATION_S = 60.0


@dataclass(frozen=True)
class LoadSpec:
    """A validated load. `n` and `duration_s` count from the end of the warm-up.

    Attributes:
        process: how requests arrive; `closed` keeps `concurrency_count` in flight, all others are
            open loop: they never wait for an answer.
        n: requests after the warm-up; None: until `duration_s` is over, or the file is.
        duration_s: sending time after the warm-up; with `n` too, whichever comes first.
        drain_s: how long to wait, after the last request was sent, for those in flight.
        timeout_s: limit for one request, from the moment that it was sent.
        seed: fixes arrivals, lengths and the order of classes and prompts.
        salt: with `seed`, fixes the contents; None: fresh in every run, so that a second run finds
            nothing of the first in the prefix cache.
        classes: lengths with their shares, exact in each block of ten requests.
        prefix_tokens: shared tokens in front of each prompt, in addition to the input length;
            None when the key was not given.
        prefixes_count: number of distinct shared prefixes.
        slo: limits for goodput, (metric, seconds) with a metric of `values.SLO_METRICS`.
        key_env: name of the environment variable that holds the API key, if one is needed.
    """

    process: Process
    rate_per_s: float | None = None
    cv_ratio: float | None = None
    concurrency_count: int | None = None
    arrivals_path: str | None = None
    n: int | None = None
    duration_s: float | None = None
    warmup_s: float = 0.0
    drain_s: float = 30.0
    timeout_s: float = 300.0
    seed: int = 0
    salt: str | None = None
    api: Literal["completions", "chat"] = "completions"
    classes: tuple[WorkClass, ...] = ()
    prompt: Literal["ids", "words", "file"] = "ids"
    vocab_size_count: int = 300
    prefix_tokens: int | None = None
    prefixes_count: int = 1
    prompts_path: str | None = None
    ignore_eos: bool = True
    temperature: float | None = None
    keepalive: bool = False
    realtime: Literal["auto", "yes", "no"] = "auto"
    processes: int | None = None
    slo: tuple[tuple[str, float], ...] = ()
    key_env: str | None = None

    @property
    def is_open(self) -> bool:
        """Open loop: arrivals do not wait for answers."""
        return self.process != "closed"


def to_dict(spec: LoadSpec) -> dict[str, Any]:
    """The load as plain JSON types; `from_dict` reads it back."""
    plain: dict[str, Any] = msgspec.to_builtins(spec)
    return plain


def from_dict(data: dict[str, Any]) -> LoadSpec:
    """A load from `to_dict`.

    Raises:
        msgspec.ValidationError: a key has the wrong type; the message names it.
    """
    return msgspec.convert(data, LoadSpec)


def describe(spec: LoadSpec) -> str:
    """One line for people: how requests arrive, how long they are, for how long."""
    rate = f"{spec.rate_per_s or 0:g} requests/s"
    arrivals = {
        "poisson": f"Poisson arrivals, {rate}",
        "gamma": f"bursty arrivals (cv {spec.cv_ratio or 0:g}), {rate}",
        "constant": f"evenly spaced arrivals, {rate}",
        "closed": f"closed loop, {spec.concurrency_count} in flight",
        "file": f"arrivals of {spec.arrivals_path}",
    }[spec.process]
    lengths = "lengths of the file"
    if len(spec.classes) == 1:
        lengths = f"{spec.classes[0].name} tokens in/out"
    elif spec.classes:
        lengths = (
            " + ".join(f"{c.share_ratio:.0%} {c.name}" for c in spec.classes) + " tokens in/out"
        )
    if spec.prompts_path:
        # Said because a second run repeats them, and may find them in the prefix cache.
        lengths = f"prompts of {spec.prompts_path} as they are, {spec.classes[0].output} tokens out"
    parts = [arrivals, lengths]
    if spec.prefix_tokens:
        parts.append(f"{spec.prefixes_count} shared prefix(es) of {spec.prefix_tokens} tokens")
    if spec.n is not None:
        parts.append(f"{spec.n} requests")
    if spec.duration_s is not None:
        parts.append(f"{spec.duration_s:g} s")
    if spec.warmup_s:
        parts.append(f"after {spec.warmup_s:g} s of warm-up")
    return ", ".join([*parts, f"seed {spec.seed}"])


_KEYS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "rate": ("rate_per_s", values.positive),
    "cv": ("cv_ratio", values.positive),
    "concurrency": ("concurrency_count", values.count),
    "n": ("n", values.count),
    "d": ("duration_s", values.some_seconds),
    "warmup": ("warmup_s", values.seconds),
    "drain": ("drain_s", values.seconds),
    "timeout": ("timeout_s", values.some_seconds),
    "seed": ("seed", values.whole),
    "salt": ("salt", str),
    "api": ("api", values.one_of("completions", "chat")),
    "prompt": ("prompt", values.one_of("ids", "words")),
    "vocab": ("vocab_size_count", values.vocab),
    "prefix": ("prefix_tokens", values.whole),
    "prefixes": ("prefixes_count", values.count),
    "prompts": ("prompts_path", str),
    "ignore_eos": ("ignore_eos", values.flag),
    "temperature": ("temperature", lambda text: values.number(text, 0.0, False)),
    "keepalive": ("keepalive", values.flag),
    "realtime": ("realtime", values.one_of("auto", "yes", "no")),
    "processes": ("processes", values.count),
    "slo": ("slo", values.slo_limits),
    "key_env": ("key_env", str),
}
_LENGTH_KEYS = ("in", "out", "mix")
_NEEDS = {
    "poisson": ("rate",),
    "gamma": ("rate", "cv"),
    "constant": ("rate",),
    "closed": ("concurrency",),
    "file": (),
}
_CONFLICTS = (("mix", "in"), ("mix", "out"), ("prompts", "in"), ("prompts", "mix"),
              ("prompts", "prompt"), ("prompts", "prefix"))  # fmt: skip


def parse_load(text: str) -> LoadSpec:
    """Read and validate a load written as `process:key=value,…`.

    Without `n` and `d` an open or closed load lasts `DEFAULT_DURATION_S`; a file, its own length.

    Raises:
        UsageError: names the key, its position in the text (from 1) and the nearest valid key.
    """
    process, colon, rest = text.partition(":")
    if process not in PROCESSES:
        raise _error(text, 0, f"unknown arrival process {process!r}", _near(process, PROCESSES))
    given: dict[str, tuple[int, str]] = {}
    path: str | None = None
    for position, item in _items(rest, len(process) + len(colon)):
        key, equals, value = item.partition("=")
        if process == "file" and path is None and not equals:
            path = item
            continue
        names = [*_KEYS, *_LENGTH_KEYS]
        if key not in names:
            raise _error(text, position, f"unknown key {key!r}", _near(key, names))
        if key in given:
            raise _error(text, position, f"key {key!r} is given twice", "leave one out")
        if not equals or not value:
            raise _error(text, position, f"key {key!r} has no value", f"write {key}=…")
        given[key] = (position, value)
    if process == "file" and path is None:
        raise _error(text, len(process), "no file of arrivals", "write file:arrivals.jsonl")
    _check_together(text, process, given)
    fields: dict[str, Any] = {"process": process, "arrivals_path": path}
    for key, (position, value) in given.items():
        if key in _KEYS:
            name, parse = _KEYS[key]
            fields[name] = _value(text, position, key, partial(parse, value))
    fields["classes"] = _classes(text, process, given)
    return _completed(text, fields, given)


def _completed(text: str, fields: dict[str, Any], given: dict[str, tuple[int, str]]) -> LoadSpec:
    """Defaults that depend on other keys."""
    chat = fields.get("api") == "chat"
    if chat and fields.get("prompt") == "ids":
        raise _error(text, given["prompt"][0], "prompt=ids cannot be sent to the chat API",
                     "write prompt=words or api=completions")  # fmt: skip
    if "prompts_path" in fields:
        # Real prompts end by themselves; forcing them on would measure nonsense.
        fields = {"ignore_eos": False, **fields, "prompt": "file"}
    elif chat:
        fields["prompt"] = "words"
    if fields["process"] != "file" and "n" not in fields and "duration_s" not in fields:
        fields["duration_s"] = DEFAULT_DURATION_S
    return LoadSpec(**fields)


def _classes(text: str, process: str, given: dict[str, tuple[int, str]]) -> tuple[WorkClass, ...]:
    if process == "file":
        return ()
    if "mix" in given:
        position, value = given["mix"]
        return _value(text, position, "mix", lambda: parse_mix(value))
    at, (out_at, out) = given.get("in", (0, "64")), given.get("out", (0, "64"))
    if at[1].startswith("mix(") and out.startswith("mix("):
        raise _error(
            text, out_at, "in and out are both a mix", "pair them: mix=0.8*32/32+0.2*1000/16"
        )
    if out.startswith("mix("):
        own = _value(text, at[0], "in", lambda: parse_lengths(at[1]))
        return _value(text, out_at, "out", lambda: parse_one_sided(out, own, "out"))
    other = _value(text, out_at, "out", lambda: parse_lengths(out))
    if "prompts" in given:
        return (WorkClass(f"prompts/{other}", 1.0, Lengths("fixed", 1), other),)
    return _value(text, at[0], "in", lambda: parse_one_sided(at[1], other, "in"))


def _check_together(text: str, process: str, given: dict[str, tuple[int, str]]) -> None:
    for need in _NEEDS[process]:
        if need not in given:
            raise _error(text, len(process), f"{process} needs {need}", f"write {need}=…")
    for key in ("rate", "cv", "concurrency"):
        if key in given and key not in _NEEDS[process]:
            where = " and ".join(p for p in PROCESSES if key in _NEEDS[p])
            raise _error(text, given[key][0], f"{process} has no {key}", f"it belongs to {where}")
    if process == "file":
        for key in (*_LENGTH_KEYS, "prompts"):
            if key in given:
                what = f"a file of arrivals brings its own lengths, so no {key}"
                raise _error(text, given[key][0], what, "leave it out")
    for first, second in _CONFLICTS:
        if first in given and second in given:
            raise _error(text, given[second][0], f"{second} and {first} exclude each other",
                         "leave one out")  # fmt: skip


def _items(rest: str, offset: int) -> list[tuple[int, str]]:
    """The parts between commas that are not in brackets, with their positions."""
    items, depth, start = [], 0, 0
    for i, char in enumerate(rest + ","):
        depth += (char == "(") - (char == ")")
        if char == "," and (depth <= 0 or i == len(rest)):
            part = rest[start:i]
            if part.strip():
                items.append((offset + start + len(part) - len(part.lstrip()), part.strip()))
            start = i + 1
    return items


def _value(text: str, position: int, key: str, parse: Callable[[], _T]) -> _T:
    try:
        return parse()
    except ValueError as error:
        reason = str(error)
        if reason.startswith("could not convert"):
            reason = "must be a number"
        raise _error(text, position, f"key {key!r}", reason) from None


def _near(word: str, valid: tuple[str, ...] | list[str]) -> str:
    close = difflib.get_close_matches(word, valid, n=1, cutoff=0.4)
    return f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(valid)}"


def _error(text: str, position: int, what: str, remedy: str) -> UsageError:
    return UsageError(f"load {text!r}, character {position + 1}: {what}: {remedy}")
