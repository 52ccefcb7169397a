"""Run work in steps: generators report how much work they have done, so that large work is divided into slices.

A function that works in steps is a plain generator. It yields the units of work done since its last yield. One unit is
about a microsecond, or one row of a response. The generator returns its result::

    def described(names: list[str]) -> Steps[list[Row]]:
        rows = []
        for name in names:
            rows.append(describe(name))
            yield 10
        return rows

If steps need a result that is not available yet, they wait for its future: `piece = yield from waited(future)`.

The caller that runs the steps decides where other work runs in between. The same code therefore runs like a plain call
for a small request, and yields to the event loop for a large one. The broker's state may change between two slices.

Slices are measured in units of work and never in time, so that tests in simulated time divide the work in the same way
in every run.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Coroutine, Generator, Hashable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, Generic, TypeAlias, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
OrderedT = TypeVar("OrderedT", str, tuple[str, int])
ResultT = TypeVar("ResultT")

Steps: TypeAlias = Generator["int | asyncio.Future[Any]", None, ResultT]

SLICE: Final = 500
"""The units of work in one turn of the event loop: about half a millisecond, seldom more than two milliseconds."""


class Finished(Generic[ResultT]):
    """The result of steps that have ended."""

    __slots__ = ("result",)

    def __init__(self, result: ResultT) -> None:
        self.result = result


def repeated(keys: Iterable[KeyT]) -> Steps[set[KeyT]]:
    """Return the keys that occur more than once."""
    seen: set[KeyT] = set()
    twice: set[KeyT] = set()
    for key in keys:
        (twice if key in seen else seen).add(key)
        yield 1
    return twice


def distinct(keys: Iterable[KeyT]) -> Steps[dict[KeyT, None]]:
    """Return the distinct keys in the order of their first occurrence."""
    remaining = iter(keys)
    found: dict[KeyT, None] = {}
    while piece := list(islice(remaining, SLICE)):
        found.update(dict.fromkeys(piece))
        yield len(piece) // 4
    return found


def ordered(keys: Iterable[OrderedT]) -> Steps[Iterator[OrderedT]]:
    """Return an iterator over the distinct keys in ascending order.

    Each key that the iterator returns takes one or two microseconds, so the caller must count the keys as work.
    """
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
    """Wait for `future` and return its result or raise its exception. The steps never cancel the future."""
    while not future.done():
        yield future
    return future.result()


def run_slice(steps: Steps[ResultT]) -> Finished[ResultT] | None:
    """Run steps for one slice, or until they wait or end. Return their result if they have ended, else None."""
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


def _next_turn() -> Coroutine[Any, Any, None]:
    return asyncio.sleep(0)


async def run_in_slices(steps: Steps[ResultT], pause: Callable[[], Coroutine[Any, Any, None]] = _next_turn) -> ResultT:
    """Run steps to their end and return their result. Other tasks run after each slice and while the steps wait.

    `pause` is awaited after each slice; by default, it lets all other tasks that are ready run once.
    """
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
                await pause()
            else:
                await asyncio.wait([done])
            left = SLICE
    finally:
        steps.close()


def run_at_once(steps: Steps[ResultT]) -> ResultT:
    """Run steps to their end without a pause and return their result; the steps must not wait for a future."""
    try:
        while True:
            done = next(steps)
            assert isinstance(done, int), "these steps wait for a future and need the event loop"
    except StopIteration as end:
        result: ResultT = end.value
        return result
