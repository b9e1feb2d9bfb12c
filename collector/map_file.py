"""How every map of the collector is read: YAML as plain data, then strictly into its type."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec
import yaml

from ..errors import WhyboundError

T = TypeVar("T")


def read_map(text: str, kind: type[T], faults: Callable[[T], Iterable[str]], where: str) -> T:
    """Read a map; `faults` says what its type cannot: the first one is raised.

    Raises:
        WhyboundError: it is no YAML, has an unknown or missing key, a wrong type, or a fault; the
            message names `where` and what.
    """
    try:
        read = msgspec.convert(yaml.safe_load(text), kind)
    except yaml.YAMLError as e:
        raise WhyboundError(f"{where}: not YAML: {' '.join(str(e).split())}") from e
    except msgspec.ValidationError as e:
        raise WhyboundError(f"{where}: {e}") from e
    fault = next(iter(faults(read)), None)
    if fault:
        raise WhyboundError(f"{where}: {fault}")
    return read
