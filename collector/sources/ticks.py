"""The beat of a source that samples: at fixed instants, until it is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator


async def ticks(stop: asyncio.Event, interval_s: float) -> AsyncIterator[int]:
    """Beat at once, then every `interval_s` seconds, and a last time when `stop` is set.

    The instants do not drift. Those that passed while the caller was busy are skipped.

    Yields:
        How many instants were skipped since the beat before.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    beat = 0
    skipped = 0
    while True:
        yield skipped
        if stop.is_set():
            return
        behind = int((loop.time() - began) / interval_s)
        skipped = max(0, behind - beat)
        beat += skipped + 1
        wait_s = began + beat * interval_s - loop.time()
        try:
            await asyncio.wait_for(stop.wait(), max(0.0, wait_s))
        except asyncio.TimeoutError:
            continue
