"""Limits how often two producers may take partitions from each other in the same generation.

Of two claims of the same generation, the later one wins, so two instances with the same assignment would fence each
other forever. To stop them, this module counts such fences. Times are event loop times in seconds.
"""

from __future__ import annotations

from collections import deque
from typing import Final

MAX_FENCES: Final = 5
WINDOW_S: Final = 60.0

_Pair = tuple[str, str, str]


class FenceLimiter:
    """The recent fences between producers of the same generation, by group and pair of producers."""

    def __init__(self) -> None:
        self._fences: dict[_Pair, deque[float]] = {}

    def is_over_limit(self, group_id: str, claimant: str, rival: str, now: float) -> bool:
        """Whether the two producers have fenced each other MAX_FENCES times within WINDOW_S."""
        fences = self._fences.get(_pair(group_id, claimant, rival), ())
        return sum(at > now - WINDOW_S for at in fences) >= MAX_FENCES

    def note(self, group_id: str, claimant: str, rival: str, now: float) -> None:
        """Record that the claimant fences the rival."""
        key = _pair(group_id, claimant, rival)
        fences = self._fences.pop(key, None) or deque(maxlen=MAX_FENCES)
        fences.append(now)
        self._fences[key] = fences  # added last, so that the pairs stay ordered by their latest fence
        while (oldest := next(iter(self._fences))) != key and self._fences[oldest][-1] <= now - WINDOW_S:
            del self._fences[oldest]


def _pair(group_id: str, claimant: str, rival: str) -> _Pair:
    return group_id, min(claimant, rival), max(claimant, rival)
