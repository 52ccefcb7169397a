"""`ConnectionRate`: a limit on new connections per second, for the broker or for one listener (KIP-612)."""

from __future__ import annotations

from ...settings import INT32_MAX
from ..quotas.rates import WindowedRate


class ConnectionRate:
    """One limit, and the recent connections that count towards it. Times are in seconds of a monotonic clock.

    `quota` is the number of connections per second, and may change; the largest int32 means no limit.

    As in Kafka, a connection above the limit is not refused: the listener waits before it serves this connection and
    accepts the next one. The rate is measured like the use of a quota, over `windows` windows of `window_s` seconds.
    """

    def __init__(self, quota: int, *, windows: int, window_s: float) -> None:
        self.quota = quota
        self._window_s = window_s
        self._rate = WindowedRate(windows, window_s)

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return self.quota != INT32_MAX

    def record(self, now: float) -> float:
        """Count a new connection; return for how many seconds its listener must wait, at most one window."""
        self._rate.record(now, 1)
        return min(self._rate.wait_s(now, self.quota), self._window_s)

    def take_back(self, now: float) -> None:
        """Stop counting a connection that is refused because of its address's limit (`connection_creation_rate`)."""
        self._rate.record(now, -1)
