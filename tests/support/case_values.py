"""Figures of reports that compare: `50% of FP16`, `2x slower`, `1000 times more`."""

from __future__ import annotations

import re

from whybound.collector.fact_figures import ABOUT, DIGITS

_PARTS = {"half": 0.5, "a third": 1 / 3, "two thirds": 2 / 3, "a quarter": 0.25, "three quarters": 0.75,
          "a fifth": 0.2, "a tenth": 0.1}  # fmt: skip
_SLOWER = r"slower|lower|worse|less|behind|fewer"
_FASTER = r"faster|higher|better|more|ahead"


def relative(text: str) -> float | None:
    """How many times as fast as another system: `50% of FP16`, `2x slower`; None without a figure."""
    plain = text.lower().strip()
    if re.match(r"(the )?same|equal|no (difference|change)|unchanged", plain):
        return 1.0
    for words, value in _PARTS.items():
        if re.match(rf"(?:{ABOUT})?\s*{words} (of|as|the)", plain):
            return value
    share = re.match(
        rf"(?:{ABOUT})?\s*({DIGITS}) ?(%|x|×|times)?(?: as (?:fast|much))? ?(.*)", plain
    )
    if not share:
        return None
    n, how, rest = float(share[1].replace(",", "")), share[2], share[3]
    if n <= 0:
        return None
    if re.match(_SLOWER, rest):
        return 1 - n / 100 if how == "%" and n < 100 else 1 / n if how and how != "%" else None
    if re.match(_FASTER, rest):
        return 1 + n / 100 if how == "%" else n if how else None
    if how == "%":
        return n / 100 if rest.startswith("of ") else None
    return n if how and not rest.startswith("as long") else None


def times_more(text: str) -> float | None:
    """`almost 1000 times more` is 1000."""
    more = r"as (?:long|much|many|high)|more|longer|slower|higher|that|the"
    found = re.match(
        rf"(?:{ABOUT})?\s*({DIGITS}) ?(?:x|×|times)\s*(?:{more})",
        text.lower().strip(),
    )
    return float(found[1].replace(",", "")) if found else None
