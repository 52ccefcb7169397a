"""Python's garbage collector in a broker: it must never walk what lives on.

CPython looks for garbage in everything that it tracks whenever that has grown by a quarter, on the event loop's thread:
0.4 s of silence with 10,000 partitions. Here whatever survives the collections of young objects is frozen, which takes
it out of all later ones. Reference counts still free nearly all of it when its time has come; what only a full
collection can free is bounded, because one is made when the frozen objects have doubled without the logs' doing.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from typing import Any, Final

OBJECTS_PER_LOG: Final = 40
"""Tracked objects that an open log consists of, about."""

SLACK: Final = 200_000
"""Objects that may be frozen beyond twice the expected number before everything is looked through."""

LOOK_EVERY: Final = 1_000
"""Collections of the second generation between two counts of the frozen objects (some milliseconds per million)."""


class Garbage:
    """The collector of this process from `start` on.

    `logs` says how many logs are open; `soon` calls a function when no collection is under way, and is called from any
    thread (`loop.call_soon_threadsafe`).
    """

    def __init__(self, logs: Callable[[], int], soon: Callable[[Callable[[], None]], object]) -> None:
        self._logs = logs
        self._soon = soon
        self._kept = 0
        self._kept_logs = 0
        self._collections = 0

    def start(self) -> None:
        """Freeze what is there, after a full collection, and collect young garbage from now on."""
        gc.collect()
        self._freeze_all()
        gc.callbacks.append(self._collected)
        gc.enable()

    def _collected(self, phase: str, info: Mapping[str, Any]) -> None:
        if phase != "stop" or info["generation"] != 1:
            return
        gc.freeze()
        self._collections += 1
        if self._collections % LOOK_EVERY == 0 and gc.get_freeze_count() > self._limit():
            self._soon(self._look_through_all)

    def _look_through_all(self) -> None:
        gc.unfreeze()
        gc.collect()
        self._freeze_all()

    def _limit(self) -> int:
        opened = max(0, self._logs() - self._kept_logs)
        return 2 * (self._kept + OBJECTS_PER_LOG * opened) + SLACK

    def _freeze_all(self) -> None:
        gc.freeze()
        self._kept = gc.get_freeze_count()
        self._kept_logs = self._logs()
