"""Wait until readers see the records that were appended before a request.

With `durability=flush`, readers see only the records that are on disk (below the high watermark). A producer with
acks=0 or acks=1 does not wait for the disk, so readers may see its record only a few milliseconds after the
acknowledgement. In Kafka with one replica, readers see a record before it is acknowledged. To give the same guarantee,
requests for the end of a log wait for the flush under way. Their responses then cover all records that were
acknowledged before the request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from ..log import Log
from ..scheduling.slices import in_slices

LONGEST_WAIT_S: Final = 1.0
"""The longest wait in seconds. If the disk is full or hangs, the request then sees only the records on disk."""

_AWAITED_AT_ONCE: Final = 100


def unflushed(log: Log) -> asyncio.Future[None] | None:
    """Return a future that is done when readers see all current records of the log, or None if they already do.

    The caller must not cancel the future. Raises KafkaError KAFKA_STORAGE_ERROR if the log is offline.
    """
    return log.flushed(log.log_end_offset)


async def all_ended(flushes: Iterable[asyncio.Future[None]]) -> None:
    """Wait until all flushes have ended, successfully or not. There may be many flushes."""
    async for flush in in_slices(flushes, _AWAITED_AT_ONCE):
        if not flush.done():
            await asyncio.wait([flush])


async def until_flushed(flushes: Iterable[asyncio.Future[None]]) -> None:
    """Wait until all flushes have ended, successfully or not, but at most `LONGEST_WAIT_S` seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LONGEST_WAIT_S):
            await all_ended(flushes)
