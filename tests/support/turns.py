"""Counts the turns of the event loop that long work leaves to others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any


async def turns_during(work: Callable[[], Awaitable[Any]]) -> int:
    """Return how many turns of the event loop `work` leaves to others."""
    running = asyncio.ensure_future(work())
    turns = 0
    while not running.done():
        turns += 1
        await asyncio.sleep(0)
    await running
    return turns
