"""Counts the lines of Python that a turn of the event loop, or a slice of work, executes.

A line counts each time it runs, even in a comprehension.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from oncelog.broker.node import BrokerNode
from oncelog.broker.scheduling.steps import Finished, Steps, run_slice
from oncelog.protocol.schema import Request, Struct
from support.raw_connection import RawConnection

ResultT = TypeVar("ResultT")


def counter() -> tuple[Callable[[], int], Any]:
    """Return a function that returns the number of lines since its last call, and the trace function that counts.

    The trace function is as simple as possible, because most of a test's time is spent in it.
    """
    lines = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += 1
        return trace

    def taken() -> int:
        nonlocal lines
        counted, lines = lines, 0
        return counted

    return taken, trace


class CountedLines:
    """Counts the lines of Python that each turn of the event loop executes, from `begin` until the block ends."""

    def __init__(self) -> None:
        self.longest = 0
        self._lines, self._trace = counter()
        self._ended = False
        self._former = sys.gettrace()

    def __enter__(self) -> CountedLines:
        return self

    def begin(self) -> None:
        """Begin to count: the caller's own lines are not counted."""
        sys.settrace(self._trace)
        asyncio.get_running_loop().call_soon(self._next_turn)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._former)
        self._ended = True
        assert self.longest

    def _next_turn(self) -> None:
        self.longest = max(self.longest, self._lines())
        if not self._ended:
            asyncio.get_running_loop().call_soon(self._next_turn)


LONG = 1000
"""Items that one turn may go through in C."""


class CountedList(list[Any]):
    """A list whose items count as lines, also where C code goes through them (`sorted`, `set`, `Counter`, ...)."""

    def __iter__(self) -> Any:
        for index in range(len(self)):
            yield self[index]


def count_items(message: Any) -> Any:
    """Replace the long lists of a message, and of the messages in them, by lists whose items count."""
    for field in message.fields:
        value = getattr(message, field.name)
        if isinstance(value, list):
            items = [count_items(item) if isinstance(item, Struct) else item for item in value]
            if len(items) > LONG:
                setattr(message, field.name, CountedList(items))
    return message


async def lines_of_longest_turn(broker: BrokerNode, request: Request[Any], version: int) -> int:
    """The most lines of Python that one turn executes, from the request's execution to the first byte of its answer."""
    execute = broker.dispatcher.execute

    def traced(exchange: Any) -> Any:
        if exchange.context.client_id == "large":
            counted.begin()
        return execute(exchange)

    (api,) = [api for api in broker.dispatcher.apis() if isinstance(request, api.request)]

    def handle(context: Any, request: Any) -> Any:
        tracing = sys.gettrace()
        sys.settrace(None)  # the lines of `count_items` are not the broker's
        count_items(request)
        sys.settrace(tracing)
        return api.handle(context, request)

    broker.dispatcher._apis[api.key] = replace(api, handle=handle)

    broker.dispatcher.execute = traced  # type: ignore[method-assign]
    try:
        async with RawConnection(broker.address, "large") as wire:
            with CountedLines() as counted:
                wire.send(request, version)
                await wire._reader.readexactly(4)
    finally:
        broker.dispatcher.execute = execute  # type: ignore[method-assign]
        broker.dispatcher._apis[api.key] = api
    return counted.longest


class Lines:
    """Counts the lines of Python that are executed, in total and in the longest turn of the event loop."""

    def __init__(self) -> None:
        self.all = 0
        self.longest = 0
        self._lines, self._trace = counter()

    async def of(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Count the lines until the awaitable that `work` returns is done."""
        former = sys.gettrace()
        sys.settrace(self._trace)
        try:
            working = asyncio.ensure_future(work())
            while not working.done():
                self._count()
                await asyncio.sleep(0)
            self._count()
            await working
        finally:
            sys.settrace(former)

    def _count(self) -> None:
        lines = self._lines()
        self.all += lines
        self.longest = max(self.longest, lines)


def lines_of(work: Callable[[], ResultT]) -> tuple[int, ResultT]:
    """Return how many lines of Python a call executes, and its result."""
    lines = 0

    def line(_frame: Any, event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return line

    former = sys.gettrace()
    sys.settrace(line)
    try:
        result = work()
    finally:
        sys.settrace(former)
    return lines, result


def lines_of_longest_slice(steps: Steps[ResultT]) -> tuple[int, ResultT]:
    """Run steps, which wait for no future, in slices. Return the most lines that a slice executes, and the result."""
    longest = 0
    while True:
        lines, finished = lines_of(lambda: run_slice(steps))
        longest = max(longest, lines)
        if isinstance(finished, Finished):
            return longest, finished.result
