"""Reads a model's configuration strictly: what is there must be possible, what is absent is None."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import WhyboundError

NESTED = ("text_config", "language_config", "llm_config")
"""Where a multimodal model keeps its decoder."""

_INHERITED = ("quantization_config", "torch_dtype", "dtype", "tie_word_embeddings")
"""Keys that hold for the decoder too when only the outer level has them."""

MOST = {
    "num_hidden_layers": 2_000,
    "num_attention_heads": 4_096,
    "num_key_value_heads": 4_096,
    "vocab_size": 100_000_000,
}
"""Upper bounds; any other size is at most `MOST_ANYTHING`."""

MOST_ANYTHING = 16_777_216


class Fields:
    """The decoder's part of a `config.json`; remembers what was needed and is absent, or differs by layer."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config: dict[str, Any] = dict(decoder_of(config))
        self.missing: list[str] = []
        self.varying: list[str] = []

    def whole(self, *names: str, low: int = 1, default: int | None = None) -> int | None:
        """The first of `names` that is there and not null: a whole number from `low` to its bound.

        A list, one number a layer, is put on `varying` and counts as absent.

        Raises:
            WhyboundError: it is no whole number (text, a truth value and NaN are none), or out of bounds.
        """
        for name in names:
            value = self._config.get(name)
            if value is None:
                continue
            if isinstance(value, list):
                self.varying.append(name)
                return default
            most = MOST.get(name, MOST_ANYTHING)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= most:
                raise WhyboundError(
                    f"model configuration: {name} is {value!r:.40}, not a whole number from {low} to {most};"
                    " check its config.json"
                )
            return value
        return default

    def needed(self, *names: str) -> int:
        """As `whole`; what is absent is put on `missing`, and 0 stands for it until the end."""
        value = self.whole(*names)
        if value is None:
            self.missing.append(names[0])
        return value or 0

    def default(self, name: str, value: int) -> None:
        """What holds where the configuration leaves `name` out."""
        if self._config.get(name) is None:
            self._config[name] = value

    def flag(self, name: str, default: bool = False) -> bool:
        """A truth value.

        Raises:
            WhyboundError: it is something else.
        """
        value = self._config.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise WhyboundError(
                f"model configuration: {name} is {value!r:.40}, not true or false; check its config.json"
            )
        return value

    def text(self, *names: str) -> str:
        """The first of `names` that is text; "" when none is."""
        found = (self._config.get(name) for name in names)
        return next((v for v in found if isinstance(v, str)), "")

    def items(self, name: str) -> tuple[Any, ...]:
        """A list of at most 4096 plain values; () when there is none."""
        value = self._config.get(name)
        return tuple(value) if isinstance(value, list) and len(value) <= 4_096 else ()

    def table(self, name: str) -> Mapping[str, Any]:
        """A map; empty when there is none."""
        value = self._config.get(name)
        return value if isinstance(value, Mapping) else {}

    def has(self, name: str) -> bool:
        """Is it there, neither null, nor false, nor 0, nor empty?"""
        return bool(self._config.get(name))

    def names(self) -> list[str]:
        """Every key that is not null."""
        return [str(k) for k, v in self._config.items() if v is not None]


def decoder_of(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The text decoder's configuration: the nested one of a multimodal model, else the whole."""
    for name in NESTED:
        inner = config.get(name)
        if isinstance(inner, Mapping):
            outer = {k: config[k] for k in _INHERITED if config.get(k) is not None}
            return {**outer, **{k: v for k, v in inner.items() if v is not None}}
    return config
