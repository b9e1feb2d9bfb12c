"""What a lever's effect makes of a parameter: the meaning of seam 3, in one place."""

from __future__ import annotations

from .model import Effect


def applied(effect: Effect, before: float, efficiency: float) -> float:
    """The parameter after the change, of which the part `efficiency` (0..1) arrives.

    Linear in `efficiency`: 0 leaves `before`, 1 gives `before × times`, `before + add` or `set`.
    """
    if effect.times is not None:
        wanted = before * effect.times
    elif effect.add is not None:
        wanted = before + effect.add
    else:
        wanted = before if effect.set is None else effect.set
    return before + efficiency * (wanted - before)


def applied_range(effect: Effect, before: float) -> tuple[float, float]:
    """The parameter with the least and with the most of the effect, in that order."""
    least, most = effect.efficiency
    return applied(effect, before, least), applied(effect, before, most)
