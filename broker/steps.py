"""Work in steps: generators that say how much they have done, run at once where that is little, else in slices.

A step of work is a plain generator. It yields the units of work done since its last yield, one unit being about a
microsecond or one row of an answer, and returns its result::

    def described(names: list[str]) -> Steps[list[Row]]:
        rows = []
        for name in names:
            rows.append(describe(name))
            yield 10
        return rows

A step that needs what is not at hand waits for a future: `piece = yield from waited(future)`.

Whoever runs it decides where others come in between; so the same code is a plain call for a small request and yields
to the event loop in a large one. Slices are counted, never timed: the simulation relies on that. Between two slices
the broker's state may change.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Generator, Hashable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, Generic, TypeAlias, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
OrderedT = TypeVar("OrderedT", str, tuple[str, int])
ResultT = TypeVar("ResultT")

Steps: TypeAlias = Generator["int | asyncio.Future[Any]", None, ResultT]

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


def distinct(keys: Iterable[KeyT]) -> Steps[dict[KeyT, None]]:
    """Find the keys, each once, in their order."""
    remaining = iter(keys)
    found: dict[KeyT, None] = {}
    while piece := list(islice(remaining, SLICE)):
        found.update(dict.fromkeys(piece))
        yield len(piece) // 4
    return found


def ordered(keys: Iterable[OrderedT]) -> Steps[Iterator[OrderedT]]:
    """Sort the keys, each once; every item of the result costs a microsecond or two, so count it."""
    remaining = iter(keys)
    runs: list[list[OrderedT]] = []
    while run := sorted(set(islice(remaining, SLICE))):
        runs.append(run)
        yield len(run)
    return _without_repetitions(heapq.merge(*runs))


def _without_repetitions(keys: Iterable[OrderedT]) -> Iterator[OrderedT]:
    last = None
    for key in keys:
        if key != last:
            yield key
        last = key


def waited(future: asyncio.Future[ResultT]) -> Steps[ResultT]:
    """Wait for `future`, which is never cancelled by the steps; returns its result, or raises its exception."""
    while not future.done():
        yield future
    return future.result()


def run_slice(steps: Steps[ResultT]) -> Finished[ResultT] | None:
    """Run one slice, or up to where the steps wait; the result if they ended with it, else None."""
    left = SLICE
    try:
        while left > 0:
            done = next(steps)
            if not isinstance(done, int):
                return None
            left -= done
    except StopIteration as end:
        return Finished(end.value)
    return None


async def run_in_slices(steps: Steps[ResultT]) -> ResultT:
    """Run steps to their end; others run after each slice, and while the steps wait."""
    left = SLICE
    try:
        while True:
            try:
                done = next(steps)
            except StopIteration as end:
                result: ResultT = end.value
                return result
            if isinstance(done, int):
                left -= done
                if left > 0:
                    continue
                await asyncio.sleep(0)
            else:
                await asyncio.wait([done])
            left = SLICE
    finally:
        steps.close()


def run_at_once(steps: Steps[ResultT]) -> ResultT:
    """Run steps that wait for nothing to their end without a pause, where there is no event loop to give way to."""
    try:
        while True:
            done = next(steps)
            assert isinstance(done, int), "these steps wait for what is not at hand, and need the event loop"
    except StopIteration as end:
        result: ResultT = end.value
        return result
