"""whybound: why an LLM inference server is slow, what to change first, and how much it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .analyzers.diagnose import diagnose as diagnose

__all__ = ["__version__", "diagnose"]


def __getattr__(name: str) -> Any:
    """Load `diagnose` on first use, so that importing whybound costs nothing."""
    if name == "diagnose":
        from .analyzers.diagnose import diagnose

        return diagnose
    raise AttributeError(f"module 'whybound' has no attribute {name!r}")
