"""Where in a block of a log one of many substrings may stand, at several times the speed of looking for each.

A line is of interest only when it holds one of some twenty gates. Looking for each in turn passes over the
block twenty times; here it is passed over once, two bytes at a time, for the rarest pair of bytes of each gate.
What is rare is learned from the log itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MIN_BYTES = 1 << 16
"""Below this a plain search costs less than the arrays."""
_RELEARN_SHARE = 1 / 256
"""Candidates a byte above which the pairs are chosen anew, and a block left to the plain search."""
_LEARN_BYTES = 1 << 20
_PASS_BYTES = 1 << 17
"""What is looked at in one go: its index arrays stay in the cache."""
_REST_BLOCKS = 16
"""Blocks that a failed choice is not repeated for."""


class GateFinder:
    """Finds candidates for the gates of one log."""

    def __init__(self, gates: Sequence[bytes]) -> None:
        """`gates`: substrings, each of two bytes or more; with a shorter one `candidates` is always None."""
        self._gates = tuple(gates)
        self._usable = all(len(gate) > 1 for gate in gates)
        self._wanted: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None
        self._rest = 0

    def candidates(self, data: bytes) -> list[int] | None:
        """Offsets of which at least one lies within each occurrence of a gate, ascending.

        Args:
            data: whole lines.

        Returns:
            None when the plain search is the better way for this block.
        """
        if not self._usable or len(data) < MIN_BYTES:
            return None
        if self._rest > 0:
            self._rest -= 1
            return None
        for attempt in range(2):
            if self._wanted is None:
                self._wanted = self._learn(data)
            found = self._scan(data, self._wanted)
            if len(found) <= len(data) * _RELEARN_SHARE:
                return found
            self._wanted = None
            if attempt:
                self._rest = _REST_BLOCKS
        return None

    def _learn(self, data: bytes) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which pairs to stop at: of each gate the one that is rarest in the block."""
        part = np.frombuffer(data[:_LEARN_BYTES], dtype=np.uint8)
        counts = np.bincount(_pairs(part), minlength=65_536)
        wanted = np.zeros(65_536, dtype=np.bool_)
        for gate in self._gates:
            pairs = _pairs(np.frombuffer(gate, dtype=np.uint8))
            if not wanted[pairs].any():
                wanted[pairs[np.argmin(counts[pairs])]] = True
        return wanted

    @staticmethod
    def _scan(data: bytes, wanted: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> list[int]:
        places = []
        for at in range(0, len(data), _PASS_BYTES):
            # one byte over, so that a pair across two passes is seen
            size = min(_PASS_BYTES + 1, len(data) - at)
            for begin in (0, 1):
                count = (size - begin) // 2
                words = np.frombuffer(data, dtype="<u2", count=count, offset=at + begin)
                found = np.flatnonzero(wanted.take(words))
                if found.size:
                    places.append(2 * found + (at + begin))
        return [int(at) for at in np.unique(np.concatenate(places))] if places else []


def _pairs(
    data: np.ndarray[tuple[int], np.dtype[np.uint8]],
) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
    """Each two neighbouring bytes as one number, the first one the lower: as `<u2` reads them."""
    low, high = data[:-1].astype(np.uint16), data[1:].astype(np.uint16)
    pairs: np.ndarray[tuple[int], np.dtype[np.uint16]] = low + high * np.uint16(256)
    return pairs
