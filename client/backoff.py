"""Exponential backoff for retries: bounded, and with jitter, so that clients do not all retry at the same time."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

JITTER: Final = 0.2
"""Maximum share by which a wait is randomly lengthened or shortened (KIP-580)."""


class ExponentialBackoff:
    """Computes waits before retries, in seconds.

    `backoff(0)` is the wait before the first retry, about `base_ms`. Each further wait is about twice the wait before
    it, up to about `max_ms`. The jitter is applied last, so a wait can be up to 20 % (JITTER) longer than `max_ms`.
    `uniform` returns random numbers in [0, 1); tests pass their own function.
    """

    __slots__ = ("_base", "_max", "_uniform")

    def __init__(self, base_ms: int, max_ms: int, uniform: Callable[[], float] = random.random) -> None:
        self._base = min(base_ms, max_ms) / 1000
        self._max = max_ms / 1000
        self._uniform = uniform

    def __call__(self, attempt: int) -> float:
        wait: float = min(self._base * 2.0 ** min(attempt, 30), self._max)
        return wait * (1 - JITTER + 2 * JITTER * self._uniform())
