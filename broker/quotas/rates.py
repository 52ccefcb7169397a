"""Measure rates as Kafka's quotas do. Times are in seconds of a monotonic clock."""

from __future__ import annotations

import sys
from collections import deque
from typing import Final

LEAST_S: Final = 0.001
"""The shortest throttle time in seconds, because responses state the time in whole milliseconds."""

MOST_S: Final = ((1 << 31) - 1) / 1000
"""The longest throttle time in seconds, about 25 days, because responses state the time in milliseconds as an int32."""

_LEAST_QUOTA: Final = sys.float_info.min
"""The smallest divisor, because an earlier version may have stored a quota that is almost 0."""


def _wait_s(missing: float, quota: float) -> float:
    """Return the time in seconds after which a `quota` per second adds up to the amount `missing`."""
    return min(max(missing / max(quota, _LEAST_QUOTA), LEAST_S), MOST_S)


class WindowedRate:
    """The sum of what was recorded in the last `windows` windows of `window_s` seconds.

    Like Kafka's Rate, the rate is the sum divided by the time of at least `windows - 1` windows. So an idle client may
    use the quota of that time at once.
    """

    __slots__ = ("__weakref__", "_samples", "_total", "_window_s", "_windows")

    def __init__(self, windows: int, window_s: float) -> None:
        self._windows, self._window_s = windows, window_s
        self._samples: deque[list[float]] = deque()  # the start and the sum of each window
        self._total = 0.0

    def record(self, now: float, amount: float) -> None:
        """Add what was used at `now`."""
        samples = self._samples
        if not samples or now - samples[-1][0] >= self._window_s:
            self._purge(now)
            samples.append([now, 0.0])
        samples[-1][1] += amount
        self._total += amount

    def _purge(self, now: float) -> None:
        samples, expired = self._samples, now - self._windows * self._window_s
        while samples and samples[0][0] <= expired:
            self._total -= samples.popleft()[1]
        if not samples:
            self._total = 0.0  # no rounding errors are left over

    def _measured_s(self, now: float) -> float:
        """Return the time by which the sum is divided."""
        self._purge(now)
        elapsed = now - self._samples[0][0] if self._samples else 0.0
        missing = self._windows - 1 - elapsed // self._window_s
        return elapsed + max(missing, 0) * self._window_s

    def left(self, now: float, quota: float) -> float:
        """Return how much may be used before `quota` (per second) is exceeded; negative if it is exceeded already."""
        measured_s = self._measured_s(now)
        return quota * measured_s - self._total

    def wait_s(self, now: float, quota: float) -> float:
        """Return how long the client has to wait, or 0 if it has used no more than `quota` per second."""
        left = self.left(now, quota)
        return _wait_s(-left, quota) if left < 0 else 0.0


class TokenBucket:
    """Tokens that arrive at the quota's rate. At most the tokens of `windows * window_s` seconds are kept (KIP-599).

    Work is admitted while there are tokens. It may use more tokens than there are.
    """

    __slots__ = ("__weakref__", "_at", "_burst_s", "_tokens")

    def __init__(self, windows: int, window_s: float) -> None:
        self._burst_s = windows * window_s
        self._tokens: float | None = None  # None: as many as the bucket can hold
        self._at = 0.0

    def _refill(self, now: float, quota: float) -> float:
        full = self._burst_s * quota
        self._tokens = full if self._tokens is None else min(full, self._tokens + (now - self._at) * quota)
        self._at = now
        return self._tokens

    def take(self, now: float, quota: float, amount: float) -> None:
        """Use `amount` tokens."""
        self._tokens = self._refill(now, quota) - amount

    def wait_s(self, now: float, quota: float) -> float:
        """Return how long the client has to wait for tokens, or 0 if it need not wait."""
        tokens = self._refill(now, quota)
        return _wait_s(-tokens, quota) if tokens < 0 else 0.0
