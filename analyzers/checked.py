"""Arguments of formulas, checked: a wrong number must not come out as a plausible one."""

from __future__ import annotations

import math

from ..errors import WhyboundError


def number(what: str, value: float) -> float:
    """`value`, a finite number.

    Raises:
        WhyboundError: it is not; names `what`.
    """
    if not math.isfinite(value):
        raise WhyboundError(f"{what} is {value:g}: give a finite number")
    return value


def positive(what: str, value: float, *, infinite: bool = False) -> float:
    """`value` above 0; `infinite`: that may also be infinity.

    Raises:
        WhyboundError: it is not; names `what`.
    """
    if math.isnan(value) or value <= 0 or (math.isinf(value) and not infinite):
        raise WhyboundError(f"{what} is {value:g}: give a number above 0")
    return value


def at_least(what: str, value: float, least: float) -> float:
    """`value`, finite and not below `least`.

    Raises:
        WhyboundError: it is not; names `what`.
    """
    if not math.isfinite(value) or value < least:
        raise WhyboundError(f"{what} is {value:g}: give a number of at least {least:g}")
    return value


def share(what: str, value: float) -> float:
    """`value` in 0..1.

    Raises:
        WhyboundError: it is not; names `what`.
    """
    if math.isnan(value) or not 0 <= value <= 1:
        hint = f" ({value:g} % is {value / 100:g})" if 1 < value <= 100 else ""
        raise WhyboundError(f"{what} is {value:g}: give a share between 0 and 1{hint}")
    return value
