"""Keep Python's garbage collector from pausing a broker.

CPython runs a full collection of all tracked objects whenever their number has grown by a quarter. Such a collection
runs on the event loop's thread, and with 10,000 partitions it stops the loop for 0.4 s. `Garbage` therefore freezes the
objects that survive the collections of young objects. A frozen object is excluded from all later collections, but
nearly all frozen objects are still freed by their reference counts. The amount of garbage that only a full collection
can free is bounded: `Garbage` runs a full collection when the number of frozen objects exceeds twice the expected
number by `SLACK`. The expected number is the number after the previous full collection, plus the objects of the logs
that were opened since then.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

OBJECTS_PER_LOG: Final = 40
"""Approximate number of tracked objects of an open log."""

SLACK: Final = 200_000
"""The number of objects by which the frozen ones may exceed twice the expected number before a full collection."""

LOOK_EVERY: Final = 1_000
"""The number of collections of the second generation between two checks of the number of frozen objects.

Python counts them by walking through all of them, which takes up to 0.2 s for 3 million objects that are not in the
processor's cache. A check therefore first reads the number of allocated memory blocks, which takes less than 1 ms. It
counts the objects only if more blocks were added since the last count than objects may still be frozen.
"""


class Garbage:
    """A controller of this process's garbage collection. It takes effect when `start` is called.

    `logs` returns the number of open logs. `soon` schedules a function that must not run during a collection. Like
    `loop.call_soon_threadsafe`, `soon` must be safe to call from any thread.
    """

    def __init__(self, logs: Callable[[], int], soon: Callable[[Callable[[], None]], object]) -> None:
        self._logs = logs
        self._soon = soon
        self._kept = 0
        self._kept_logs = 0
        self._counted = 0
        self._blocks = 0
        self._collections = 0

    def start(self) -> None:
        """Run a full collection, freeze all remaining objects, and enable the collector."""
        gc.collect()
        self._freeze_all()
        gc.callbacks.append(self._collected)
        gc.enable()

    def _collected(self, phase: str, info: Mapping[str, Any]) -> None:
        if phase != "stop" or info["generation"] != 1:
            return
        gc.freeze()
        self._collections += 1
        if self._collections % LOOK_EVERY == 0 and self._are_too_many():
            self._soon(self._look_through_all)

    def _are_too_many(self) -> bool:
        """Return whether a full collection is due.

        `_counted` and `_blocks` are the numbers of frozen objects and of memory blocks at the last count.
        """
        limit, blocks = self._limit(), sys.getallocatedblocks()
        if blocks - self._blocks <= limit - self._counted:
            return False
        count = gc.get_freeze_count()
        if count > limit:
            return True
        self._counted, self._blocks = count, blocks
        return False

    def _look_through_all(self) -> None:
        gc.unfreeze()
        gc.collect()
        self._freeze_all()

    def _limit(self) -> int:
        opened = max(0, self._logs() - self._kept_logs)
        return 2 * (self._kept + OBJECTS_PER_LOG * opened) + SLACK

    def _freeze_all(self) -> None:
        gc.freeze()
        self._kept = self._counted = gc.get_freeze_count()
        self._blocks = sys.getallocatedblocks()
        self._kept_logs = self._logs()
