"""Define what every simulated client does: connect, send requests, and repeat them after disconnects and errors.

A call ends with a response, with `Fenced` (the producer cannot continue) or with `Abortable` (the transaction cannot be
committed). Any other error code fails the test. A client whose process has ended or halted sends nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

from oncelog.protocol.errors import CONCURRENT_PRODUCER_COMMIT, ErrorCode
from oncelog.protocol.schema import Request, Response

from .levels import without_extension
from .network import Disconnected, Link

if TYPE_CHECKING:
    from .world import World

R = TypeVar("R", bound=Response)

RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.FENCED_INSTANCE_ID,
        CONCURRENT_PRODUCER_COMMIT,
    }
)
ABORTABLE = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_TXN_STATE,
    }
)
LOST = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_REQUEST})
"""Errors for a producer whose last batches, or whose registered partitions, were lost in a power failure."""


class Fenced(Exception):
    """Another client has taken over the transactional id or the claim."""


class Abortable(Exception):
    """The transaction cannot be committed, but the producer can continue."""


class Unexpected(AssertionError):
    """The response has an error code that this request must never get."""


class Process:
    """A client's process. It can halt for a while without noticing, and it can end."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self._going: asyncio.Future[None] | None = None

    def halt(self) -> None:
        """Stop everything in the process from now on."""
        if self._going is None:
            self._going = asyncio.get_running_loop().create_future()

    def go_on(self) -> None:
        """Let a halted process continue."""
        going, self._going = self._going, None
        if going is not None and not going.done():
            going.set_result(None)

    async def awake(self) -> None:
        """Return as soon as the process is not halted."""
        while self._going is not None:
            await self._going

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.awake()


class Caller:
    """A client in a process, with one connection at a time."""

    def __init__(self, process: Process, *, late: bool, extension: bool, in_order: bool = False) -> None:
        self.process = process
        self._in_order = in_order
        self._late = late
        self._extension = 1 if extension else -1
        self._link: Link | None = None

    def close(self, *, late: bool = False) -> None:
        """Close the connection, as `Link.close` does."""
        if self._link is not None:
            self._link.close(late=late)

    def _connected(self) -> Link:
        if self._link is None or self._link.broken:
            process = self.process
            self._link = Link(
                process.world.network,
                process.name,
                late=self._late,
                extension=self._extension,
                in_order=self._in_order,
            )
        return self._link

    async def once(self, request: Request[R], version: int) -> R:
        """Send the request once, and return the response. Raises Disconnected."""
        await self.process.awake()
        try:
            link = self._connected()
            if not self.process.world.broker.has_extension:
                request = without_extension(request)
            answer = await link.send(request, version)
        finally:
            await self.process.awake()
        return answer

    async def ask(
        self,
        make: Callable[[], Request[R]],
        version: int,
        codes: Callable[[R], Iterable[int]],
        *,
        attempts: int = 200,
    ) -> R:
        """Send the request until the response has no retriable code. Raises Fenced, Abortable, Unexpected."""
        process = self.process
        for _ in range(attempts):
            try:
                answer = await self.once(make(), version)
            except Disconnected:
                await process.sleep(0.05 + process.world.rng.random() * 0.1)
                continue
            bad = {ErrorCode(code) for code in codes(answer)} - {ErrorCode.NONE}
            if process.world.tracing:
                process.world.note(f"{process.name} {type(answer).__name__} {sorted(code.name for code in bad)}")
            if not bad:
                return answer
            if bad & LOST and process.world.scenario.may_lose:
                raise Abortable(bad)
            if bad & (FENCED | ABORTABLE):
                process.world.refused(process.name, type(answer).__name__, bad)
                raise Fenced(bad) if bad & FENCED else Abortable(bad)
            if bad - RETRIABLE:
                raise Unexpected(f"{process.name}: {type(answer).__name__} with {bad}")
            await process.sleep(0.1)
        process.world.refused(process.name, "an endless request", set())
        raise Abortable("no end of retries")
