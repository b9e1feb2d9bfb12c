"""Settings as an engine prints them: `key=value` or `'key': value` pairs in Python's notation.

Nothing is evaluated. A text that is cut off or broken gives what stands before the break.
"""

from __future__ import annotations

import re

from .argv import REDACTED, is_secret, redact_text

MAX_TEXT = 32_768
MAX_PAIRS = 400
MAX_VALUE = 300

_MARK = re.compile(r"\\.|['\"\[\](){}<>,:=]", re.DOTALL)
_KEY = re.compile(r"""\s*(['"]?)([A-Za-z_][\w.-]{0,99})\1\s*$""")
_QUOTED = re.compile(r"""(?:'([^'\\]*)'|"([^"\\]*)")\Z""")
_ENUM = re.compile(r"<\w+\.(\w+): .*>\Z", re.DOTALL)
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+\Z")
_OPEN, _CLOSE = "[({<", "])}>"


def pairs(text: str) -> list[tuple[str, str]]:
    """The top-level pairs of a text, values as written.

    Args:
        text: `a=1, b=[2, 3]`, `{'a': 1, 'b': [2, 3]}` or `Name(a=1, b=[2, 3])`; of more than
            `MAX_TEXT` characters the rest is not read, and of an open list or name its end may
            be missing.

    Returns:
        At most `MAX_PAIRS`, in order; none when there are none.
    """
    text = _inner(text[:MAX_TEXT])
    found: list[tuple[str, str]] = []
    begin, split = 0, -1
    for at, mark in _top_level(text):
        if mark == ",":
            _add(found, text, begin, split, at)
            begin, split = at + 1, -1
            if len(found) >= MAX_PAIRS:
                return found
        elif mark in ":=" and split < 0:
            split = at
        elif mark in _CLOSE:  # one more than were opened: the end of what the pairs stand in
            _add(found, text, begin, split, at)
            return found
        elif mark == "":
            _add(found, text, begin, split, at)
    return found


def setting(key: str, raw: str, *, none: bool = False) -> str | None:
    """One value as settings hold it; secrets are redacted.

    Truths are "true" and "false", strings lose their quotes, dtypes their `torch.`, enumerations
    all but the name; lists of plain values are joined by a space; anything else stays as written,
    up to `MAX_VALUE` characters.

    Args:
        key: its name; a value under a secret's name is redacted whole.
        raw: the value as written.
        none: whether None is "none" rather than no setting.

    Returns:
        None when there is no setting.
    """
    value = _plain(raw.strip())
    if value is None:
        return "none" if none else None
    if is_secret(key):
        return REDACTED
    # redacted before it is cut: half a secret is no longer recognised as one
    return redact_text(value[: 2 * MAX_VALUE])[:MAX_VALUE]


def largest(text: str) -> str | None:
    """The largest whole number in a text, such as a list of sizes; None where there is none above 0."""
    most = max((int(n) for n in re.findall(r"\d{1,9}", text)), default=0)
    return str(most) if most else None


def _plain(raw: str) -> str | None:
    if raw == "None":
        return None
    if raw in ("True", "False"):
        return raw.lower()
    if _THOUSANDS.match(raw):
        return raw.replace(",", "")
    if quoted := _QUOTED.match(raw):
        return quoted[1] if quoted[1] is not None else quoted[2]
    if enum := _ENUM.match(raw):
        return enum[1]
    if raw[:1] in ("[", "(") and raw[-1:] in ("]", ")") and not re.search(r"[\[({<=]", raw[1:-1]):
        items = [item.strip() for item in raw[1:-1].split(",")]
        if all(_QUOTED.match(item) for item in items if item[:1] in ("'", '"')):
            return " ".join(_plain(item) or "None" for item in items if item)
    return raw.removeprefix("torch.")


def _inner(text: str) -> str:
    """Behind the bracket that opens the text, where one does; its end is found while reading."""
    opened = re.match(r"\s*(?:[A-Za-z_][\w.]*)?[{(]", text)
    return text[opened.end() :] if opened else text


def _top_level(text: str) -> list[tuple[int, str]]:
    """Where pairs begin, split and end: outside of brackets and quotes.

    Commas, colons and equal signs; then the first bracket that closes more than was opened, or ""
    at the end of a text whose brackets and quotes are all closed.
    """
    found: list[tuple[int, str]] = []
    depth = 0
    quote = ""
    for match in _MARK.finditer(text):
        mark = match[0]
        if quote:
            quote = "" if mark == quote else quote
        elif mark in ("'", '"'):
            quote = mark
        elif mark in _OPEN:
            depth += 1
        elif mark in _CLOSE:
            if depth == 0:
                if mark != ">":
                    return [*found, (match.start(), mark)]
            else:
                depth -= 1
        elif depth == 0 and len(mark) == 1:
            found.append((match.start(), mark))
    if depth == 0 and not quote:
        found.append((len(text), ""))
    return found


def _add(found: list[tuple[str, str]], text: str, begin: int, split: int, end: int) -> None:
    if split < 0:
        return
    key = _KEY.match(text[begin:split])
    if key:
        found.append((key[2], text[split + 1 : end].strip()))
