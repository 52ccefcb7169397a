"""`Closing`: the first call of `close` closes a client; calls that come meanwhile wait for it and share its outcome.

If they returned at once, the program could end before the first call has sent the last records. `close_after` closes a
client at the end of its `async with` block.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ..protocol.errors import ErrorCode, KafkaError
from .errors import KafkaTimeoutError, copy_of

log = logging.getLogger(__name__)


class Closing:
    """Lets one call close a client while other calls wait for it. `what` names the client in messages."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._under_way: asyncio.Future[KafkaError | None] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a call is closing the client now."""
        return self._under_way is not None

    async def run(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Close the client by awaiting `close()`. Only the first call of the client's own `close` may use this method.

        Later calls can `wait`.
        """
        self._under_way = under_way = asyncio.get_running_loop().create_future()
        outcome: KafkaError | None = None
        try:
            await close()
        except KafkaError as error:
            outcome = error
            raise
        finally:
            self._under_way = None
            under_way.set_result(outcome)

    async def wait(self, timeout_s: float | None) -> None:
        """Wait for the call that is closing the client. If that call raises a KafkaError, raise a copy of the error.

        Raises KafkaTimeoutError after `timeout_s` seconds; None means no limit.
        """
        under_way = self._under_way
        if under_way is None:
            return
        await asyncio.wait({under_way}, timeout=timeout_s)
        if not under_way.done():
            raise KafkaTimeoutError(
                ErrorCode.REQUEST_TIMED_OUT, f"{self._what} is still being closed by another call after {timeout_s} s"
            )
        if (error := under_way.result()) is not None:
            raise copy_of(error) from error


async def close_after(error: BaseException | None, closing: Awaitable[None]) -> None:
    """Await `closing` at the end of an `async with` block. `error` is the exception that ends the block, or None.

    If there is an `error`, a KafkaError of `closing` is only logged, so that the block raises `error`.
    """
    try:
        await closing
    except KafkaError as failure:
        if error is None:
            raise
        log.error("while closing: %s", failure)
