"""`Closing`: one call closes a client. Calls that come while it runs wait for it, and return or raise the same.

If these calls returned at once, the program could end before the first call has sent the last records. `close_after`
closes a client at the end of its `async with` block.
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
    """The call that closes a client. `what` names the client in messages."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._under_way: asyncio.Future[KafkaError | None] | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a call is closing the client now."""
        return self._under_way is not None

    async def run(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Close the client by awaiting `close()`. Only the first call does this; later calls use `wait`."""
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
        """Wait until the call under way has closed the client, and raise its KafkaError, if any.

        Raises KafkaTimeoutError after `timeout_s` seconds (None: waits without a limit).
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
    """Await `closing` at the end of a block. `error` is the exception that ends the block, or None.

    If there is an `error`, a KafkaError of `closing` is only logged, because the block raises `error`, which is more
    important.
    """
    try:
        await closing
    except KafkaError as failure:
        if error is None:
            raise
        log.error("while closing: %s", failure)
