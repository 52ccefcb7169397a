"""What can go wrong in a pool beyond the client's common errors."""

from __future__ import annotations

from ..errors import KafkaTimeoutError


class PoolExhaustedError(KafkaTimeoutError):
    """No producer of the pool became free within max_wait_s, or too many wait for one already."""

    remedy = "end transactions sooner, or raise size or max_wait_s"
