"""What requests carry: lengths from the seed alone, contents from the seed and the run's salt."""

from __future__ import annotations

import array
import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from .lengths import WorkClass
from .spec import LoadSpec
from .traces import Arrival, Messages

BLOCK = 10
"""Requests in a block within which the shares of a mix are exact."""

_FIRST_ID = 3  # ids below are special tokens in nearly every vocabulary

_TEXT = (
    "time year people way day man thing woman life child world school state family student group"
    " country problem hand part place case week company system program question work government"
    " number night point home water room mother area money story fact month lot right study book"
    " eye job word business issue side kind head house service friend father power hour game line"
)
_WORDS = _TEXT.split()


class Shape(NamedTuple):
    """One request without its contents; `prompt_index` is its place in a file of prompts."""

    number: int
    workload: str
    input_tokens: int
    output_tokens: int
    prefix: str | None
    prompt_index: int | None = None


def shapes(
    spec: LoadSpec, trace: Sequence[Arrival] | None = None, prompts_count: int = 0
) -> Iterator[Shape]:
    """Shapes in the order of the run; endless but for a file of arrivals."""
    rng = random.Random(f"{spec.seed}:shapes")
    if spec.process == "file":
        for i, row in enumerate(trace or ()):
            prefix = row.prefix if spec.prefix_tokens else None
            yield Shape(i, "file", row.input_tokens, row.output_tokens, prefix)
        return
    deck: list[int] = []
    for i, work in enumerate(_stratified(spec.classes, rng)):
        lengths = work.input.draw(rng), work.output.draw(rng)
        prefix = str(rng.randrange(spec.prefixes_count)) if spec.prefix_tokens else None
        if prompts_count and not deck:
            deck = rng.sample(range(prompts_count), prompts_count)
        yield Shape(i, work.name, *lengths, prefix, deck.pop() if deck else None)


def _stratified(classes: Sequence[WorkClass], rng: random.Random) -> Iterator[WorkClass]:
    """Classes with exact shares in each block, shuffled within it.

    Random draws would do for means, not for tails: with a 20 % class of long prompts the share in a
    short run varies enough to move a p99 twentyfold. Shares that are no multiple of 1/BLOCK are
    carried over, so that the running count never strays from its due by a whole request.
    """
    counts = [0] * len(classes)
    for block in range(1, 1 << 62):
        due = [block * BLOCK * c.share_ratio for c in classes]
        take = [max(0, int(d + 1e-6) - n) for d, n in zip(due, counts, strict=True)]
        order = sorted(range(len(classes)), key=lambda j: counts[j] + take[j] - due[j])
        for j in order[: BLOCK - sum(take)]:
            take[j] += 1
        counts = [n + t for n, t in zip(counts, take, strict=True)]
        hand = [c for c, t in zip(classes, take, strict=True) for _ in range(t)]
        rng.shuffle(hand)
        yield from hand


class Contents:
    """Makes request bodies. Shared prefixes are made once."""

    def __init__(
        self, spec: LoadSpec, salt: str, model: str, prompts: Sequence[str | Messages] = ()
    ) -> None:
        self._spec, self._salt, self._prompts = spec, salt, prompts
        self._prefixes: dict[str, list[int]] = {}
        self._base: dict[str, Any] = {
            "model": model, "stream": True, "stream_options": {"include_usage": True},
        }  # fmt: skip
        if spec.ignore_eos:
            self._base["ignore_eos"] = True
        if spec.temperature is not None:
            self._base["temperature"] = spec.temperature

    def ids(self, shape: Shape) -> list[int]:
        """The prompt as random numbers: token ids, or places in the list of words.

        In a file of arrivals the input length is the whole prompt's, shared prefix included;
        elsewhere the prefix comes on top.
        """
        prefix = self._prefix(shape.prefix) if shape.prefix is not None else []
        own = shape.input_tokens
        if self._spec.process == "file" and prefix:
            prefix = prefix[: own - 1]  # one token of its own, or equal requests would be one
            own -= len(prefix)
        return prefix + self._random(f"{shape.number}", own)

    def body(self, shape: Shape) -> bytes:
        """The JSON body for the API that the spec names."""
        body = {**self._base, "max_tokens": shape.output_tokens}
        content: Any
        if shape.prompt_index is not None:
            content = self._prompts[shape.prompt_index]
        elif self._spec.prompt == "ids":
            content = self.ids(shape)
        else:
            content = " ".join([_WORDS[i] for i in self.ids(shape)])
        if self._spec.api == "chat":
            whole = isinstance(content, list)
            body["messages"] = content if whole else [{"role": "user", "content": content}]
        else:
            body["prompt"] = content
        return msgspec.json.encode(body)

    def _prefix(self, name: str) -> list[int]:
        if name not in self._prefixes:
            self._prefixes[name] = self._random(f"prefix {name}", self._spec.prefix_tokens or 0)
        return self._prefixes[name]

    def _random(self, what: str, count: int) -> list[int]:
        low, high = (_FIRST_ID, self._spec.vocab_size_count)
        if self._spec.prompt == "words":
            low, high = 0, len(_WORDS)
        rng = random.Random(f"{self._spec.seed}:{self._salt}:{what}")
        span = high - low
        # One bulk draw: a prompt of 32k tokens must not hold up the sending of others. The modulo
        # bias is below 1e-4 for any vocabulary, and no one samples from these.
        draws = array.array("I", rng.randbytes(4 * count))
        return [low + draw % span for draw in draws]
