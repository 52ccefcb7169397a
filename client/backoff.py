"""How long to wait before a retry: exponential, bounded, and with jitter, so that clients do not return in step."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

JITTER: Final = 0.2
"""Share by which a wait is lengthened or shortened at random (KIP-580)."""


class ExponentialBackoff:
    """`backoff(0)` is the wait before the first retry, about `base_ms`; each further wait doubles, up to `max_ms`.

    Waits are in seconds. `uniform` returns numbers in [0, 1); tests pass their own.
    """

    __slots__ = ("_base", "_max", "_uniform")

    def __init__(self, base_ms: int, max_ms: int, uniform: Callable[[], float] = random.random) -> None:
        self._base = min(base_ms, max_ms) / 1000
        self._max = max_ms / 1000
        self._uniform = uniform

    def __call__(self, attempt: int) -> float:
        wait: float = min(self._base * 2.0 ** min(attempt, 30), self._max)
        return wait * (1 - JITTER + 2 * JITTER * self._uniform())
