"""The pool's own errors; all other errors are those of the clients."""

from __future__ import annotations

from ..errors import KafkaTimeoutError


class PoolExhaustedError(KafkaTimeoutError):
    """No producer of the pool became free within max_wait_s, or max_waiting tasks are already waiting."""

    remedy = "end transactions sooner, or raise size or max_wait_s"
