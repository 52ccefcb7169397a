"""Work in steps: generators that say how much they have done, run at once where that is little, else in slices.

A step of work is a plain generator. It yields the units of work done since its last yield, one unit being about a
microsecond or one row of an answer, and returns its result::

    def described(names: list[str]) -> Steps[list[Row]]:
        rows = []
        for name in names:
            rows.append(describe(name))
            yield 10
        return rows

Whoever runs it decides where others come in between; so the same code is a plain call for a small request and yields
to the event loop in a large one. Slices are counted, never timed: the simulation relies on that. Between two slices
the broker's state may change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Hashable, Iterable
from typing import Final, Generic, TypeAlias, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
ResultT = TypeVar("ResultT")

Steps: TypeAlias = Generator[int, None, ResultT]

SLICE: Final = 500
"""Units of work between two turns of the event loop: about half a millisecond, seldom more than two."""


class Finished(Generic[ResultT]):
    """What steps returned."""

    __slots__ = ("result",)

    def __init__(self, result: ResultT) -> None:
        self.result = result


def repeated(keys: Iterable[KeyT]) -> Steps[set[KeyT]]:
    """Find the keys that come more than once."""
    seen: set[KeyT] = set()
    twice: set[KeyT] = set()
    for key in keys:
        (twice if key in seen else seen).add(key)
        yield 1
    return twice


def run_slice(steps: Steps[ResultT]) -> Finished[ResultT] | None:
    """Run one slice; the result if the steps ended with it, else None."""
    left = SLICE
    try:
        while left > 0:
            left -= next(steps)
    except StopIteration as end:
        return Finished(end.value)
    return None


async def run_in_slices(steps: Steps[ResultT]) -> ResultT:
    """Run steps to their end; others run after each slice."""
    try:
        while True:
            finished = run_slice(steps)
            if finished is not None:
                return finished.result
            await asyncio.sleep(0)
    finally:
        steps.close()


def run_at_once(steps: Steps[ResultT]) -> ResultT:
    """Run steps to their end without a pause, where there is no event loop to give way to."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: ResultT = end.value
        return result
