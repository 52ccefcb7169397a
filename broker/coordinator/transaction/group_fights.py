"""Producers that take partitions from each other at the same generation, over and over: when that has to end.

At equal generation the later claim wins, so two instances that are both told to own a partition would fence each
other for ever. Owns the count; time is the event loop's, in seconds.
"""

from __future__ import annotations

from collections import deque
from typing import Final

MAX_FENCES: Final = 5
WINDOW_S: Final = 60.0

_Pair = tuple[str, str, str]


class GroupFights:
    """Who has fenced whom lately, at equal generation."""

    def __init__(self) -> None:
        self._fences: dict[_Pair, deque[float]] = {}

    def is_over_limit(self, group_id: str, one: str, other: str, now: float) -> bool:
        """Whether the two have fenced each other as often as they may."""
        fences = self._fences.get(_pair(group_id, one, other), ())
        return sum(at > now - WINDOW_S for at in fences) >= MAX_FENCES

    def note(self, group_id: str, one: str, other: str, now: float) -> None:
        """One fences the other."""
        key = _pair(group_id, one, other)
        fences = self._fences.pop(key, None) or deque(maxlen=MAX_FENCES)
        fences.append(now)
        self._fences[key] = fences  # at the end: the pairs are ordered by their latest fence
        while (oldest := next(iter(self._fences))) != key and self._fences[oldest][-1] <= now - WINDOW_S:
            del self._fences[oldest]


def _pair(group_id: str, one: str, other: str) -> _Pair:
    return group_id, min(one, other), max(one, other)
