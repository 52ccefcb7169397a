"""Long work in slices, so that the event loop answers others in between.

The size of a slice is a count of items, never a time: the same input takes the same turns in every run, which the
simulation relies on. Choose it so that one slice takes a millisecond at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

ItemT = TypeVar("ItemT")


async def in_slices(items: Iterable[ItemT], size: int) -> AsyncIterator[ItemT]:
    """Iterate over `items`; other tasks run after every `size` of them.

    The caller's state may change during each pause: iterate over a copy of a collection that others modify, and check
    again whatever the next item relies on.
    """
    assert size > 0, size
    for count, item in enumerate(items, 1):
        yield item
        if count % size == 0:
            await asyncio.sleep(0)
