"""Divide long work into slices, so that the event loop runs other tasks in between.

The size of a slice is a number of items and never a time: the same input takes the same number of turns in every run,
and the simulation relies on that. Choose a size for which one slice takes at most a millisecond.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

ItemT = TypeVar("ItemT")


async def in_slices(items: Iterable[ItemT], size: int) -> AsyncIterator[ItemT]:
    """Iterate over `items`; other tasks run after every `size` items.

    The caller's state may change during each pause. Iterate over a copy of a collection that other tasks modify, and
    after each pause check again the state on which the next item depends.
    """
    assert size > 0, size
    for count, item in enumerate(items, 1):
        yield item
        if count % size == 0:
            await asyncio.sleep(0)
