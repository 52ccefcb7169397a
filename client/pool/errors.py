"""Errors of a pool, besides the client's common ones."""

from __future__ import annotations

from ..errors import KafkaTimeoutError


class PoolExhaustedError(KafkaTimeoutError):
    """No producer of the pool became free within max_wait_s, or max_waiting tasks wait already."""

    remedy = "end transactions sooner, or raise size or max_wait_s"
