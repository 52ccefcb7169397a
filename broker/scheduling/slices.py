"""Divide long work into slices, so that the event loop runs other tasks in between.

The size of a slice is a number of items and never a time. The same input therefore takes the same number of turns in
every run, which tests in simulated time rely on. The caller should choose a size for which one slice takes at most a
millisecond.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

ItemT = TypeVar("ItemT")


async def in_slices(items: Iterable[ItemT], size: int) -> AsyncIterator[ItemT]:
    """Iterate over `items`; other tasks run after every `size` items.

    The caller's state may change during each pause. If other tasks modify a collection, the caller must iterate over a
    copy of it, and must check again after each pause whether the next item is still valid.
    """
    assert size > 0, size
    for count, item in enumerate(items, 1):
        yield item
        if count % size == 0:
            await asyncio.sleep(0)
