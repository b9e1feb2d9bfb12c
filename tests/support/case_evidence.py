"""What a case holds before its cure, in the words of this project."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from whybound.analyzers.given import known_signals


@dataclass
class Evidence:
    """What a case holds before its cure.

    Attributes:
        facts: signal → value as a file of facts has it.
        settings: of the engine and the machine.
        command: that started the engine; "" where it is none that is known.
        log: lines, without the fields that were not reported.
        told: signal or setting → the key that it came from.
        unmapped: key → why it is not used.
        known: signals that there are.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    command: str = ""
    log: list[str] = field(default_factory=list)
    told: dict[str, str] = field(default_factory=dict)
    unmapped: dict[str, str] = field(default_factory=dict)
    known: Collection[str] = field(default_factory=known_signals)

    def offer(self, name: str, value: str, key: str) -> None:
        """A fact, unless its signal is told already, or there is none; `name` may bear a scope."""
        signal = name.partition("@")[0]
        if signal not in self.known:
            self.unmapped.setdefault(key, f"no signal {signal}")
        elif name not in self.facts:
            self.facts[name] = value
            self.told[name] = key
