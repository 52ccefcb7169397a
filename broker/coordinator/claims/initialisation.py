"""Implements group-aware initialisation: InitProducerId with a consumer group, a generation and partitions.

Defines the order of the steps at the group's home, the transaction coordinator that stores the group's claims. (A claim
is the exclusive right of a producer to commit the group's offsets on a partition.) The steps follow a draft of KIP-447.
A call

1. is checked; a refused call changes nothing;
2. claims the partitions: the claim is appended to the log and takes effect at the group coordinator, without an await
   in between. From then on, no other producer with an older generation, or without a generation, can commit offsets on
   the partitions. At the same time, the conflicting ids are determined: every other transactional id of the group that
   holds any of the partitions, or has pending offset commits on any of them;
3. fences the conflicting ids when the claim is durable; each of them releases the lost partitions when its transaction
   is complete;
4. initialises the caller's transactional id, and responds.

Calls for a group are executed one after another; groups do not wait for each other. A call waits for earlier calls and
for the transactions of the conflicting ids, for at most `max_wait_ms` in total. Fences continue after that, and the
next call for the same partitions waits for these fences, so that no epoch is bumped twice. If the caller itself is
being fenced, its call waits for that fence first.

Of two calls with the same generation, the later one wins. If two producers keep taking partitions from each other,
their calls are refused (`fence_limiter.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ....protocol.errors import ErrorCode, KafkaError
from ...scheduling.shared_turns import SharedTurns
from ...scheduling.steps import Steps, run_in_slices
from ..claim import NO_GENERATION, ClaimedGroups, TopicPartition
from ..transaction.decisions import ProducerIdentity
from ..transaction.events import Caller
from .events import GroupEvents
from .fence_limiter import MAX_FENCES, WINDOW_S, FenceLimiter
from .homes import TransactionHomes
from .keeper import GroupClaims, OwnedPartition, Topics

REASON: Final = "another producer of the group"
"""The reason for fencing that the log and the metrics show."""

_LONGEST_PREFIX: Final = 32_000

_UNITS_PER_FENCE: Final = 50
"""The cost of beginning to fence a producer, in units of work (`steps.py`)."""


class GroupInitialisation(NamedTuple):
    """A producer's request for a group-aware initialisation.

    If `transactional_id` is None, the transaction coordinator assigns an id. `expected` is the identity that the
    producer currently holds (KIP-360), or None for a new instance.
    """

    group_id: str
    generation_id: int
    partitions: frozenset[TopicPartition]
    transactional_id: str | None
    timeout_ms: int
    expected: ProducerIdentity | None


class _Fence(NamedTuple):
    task: asyncio.Task[None]
    partitions: frozenset[TopicPartition]


@dataclass(slots=True)
class _Turns:
    """The lock that serialises the calls of one group, and the group's unfinished fences by transactional id."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    fences: dict[str, _Fence] = field(default_factory=dict)


class GroupAwareInitialiser:
    """The service that initialises producers for a group's partitions.

    `max_wait_ms` is `transaction.pending.wait.max.ms`, and `max_waiting` is `transaction.pending.wait.max.requests`.
    """

    def __init__(
        self,
        claims: GroupClaims,
        groups: ClaimedGroups,
        homes: TransactionHomes,
        topics: Topics,
        events: GroupEvents,
        *,
        max_partitions: int,
        max_wait_ms: int,
        max_waiting: int,
    ) -> None:
        self._claims = claims
        self._claimed = groups
        self._homes = homes
        self._topics = topics
        self._events = events
        self._max_partitions = max_partitions
        self._max_wait_s = max_wait_ms / 1000
        self._max_waiting = max_waiting
        self._turns: dict[str, _Turns] = {}
        self._fencing: dict[asyncio.Task[None], None] = {}
        self._fence_turns = SharedTurns()
        self._fence_limiter = FenceLimiter()
        self._waiting = 0
        self._stopped = False
        events.watch(lambda: claims.claimed_partitions, lambda: self._waiting)

    def start(self) -> None:
        """Begin to enforce the claims. Both coordinators must have replayed their logs."""
        self._claims.start()

    async def stop(self) -> None:
        """Cancel the unfinished fences. After a restart, the next call for the partitions starts them again."""
        self._stopped = True
        self._claims.stop()
        tasks = list(self._fencing)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- requests

    async def initialise(self, request: GroupInitialisation, by: Caller) -> tuple[str, ProducerIdentity]:
        """Claim the partitions for the caller. Return the caller's transactional id and new identity.

        Raise KafkaError INVALID_GROUP_ID, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, ILLEGAL_GENERATION,
        CONCURRENT_TRANSACTIONS (not complete in time, or too many calls wait; retry), or an error code of
        InitProducerId or of either coordinator.
        """
        deadline = asyncio.get_running_loop().time() + self._max_wait_s
        transactional_id = request.transactional_id
        async with AsyncExitStack() as stack:
            try:
                self._check(request)
                turns = await stack.enter_async_context(self._turn(request.group_id, deadline, by))
                if transactional_id is None:
                    transactional_id = await self._homes.unused_transactional_id(assigned_prefix(request.group_id))
                self._check(request)  # other calls may have run while this call waited
                durable, fences = self._claim(turns, request, transactional_id, by.cause)
                if durable is not None:
                    await asyncio.shield(durable)
                await self._until_complete(request.group_id, fences, deadline, by)
            except KafkaError as error:
                self._events.refused(transactional_id, error, request.expected, by)
                raise
            identity = await self._homes.initialise(
                transactional_id, request.timeout_ms, request.expected, cause=by, deadline=deadline
            )
            return transactional_id, identity

    async def unfence(self, group_id: str, by: Caller) -> None:
        """Drop all claims of a group for an operator. Return when the drop is durable.

        Raise KafkaError CONCURRENT_TRANSACTIONS (not complete in time, or too many calls wait; retry), or an error code
        of either coordinator.
        """
        self.check_served(group_id)
        deadline = asyncio.get_running_loop().time() + self._max_wait_s
        async with self._turn(group_id, deadline, by):
            self._events.unfenced(group_id, await run_in_slices(self._claims.owned(group_id)), by)
            durable = self._claims.drop(group_id, None, "unfenced by hand")
            if durable is not None:
                await asyncio.shield(durable)

    def check_served(self, group_id: str) -> None:
        """Raise KafkaError if the group, or the state of its claims, cannot be served."""
        self._claimed.check_served(group_id)
        self._homes.check_home(group_id)

    def owned(self, group_id: str) -> Steps[list[OwnedPartition]]:
        """Return, in steps, the claim on each partition of a group. Raise KafkaError if the group cannot be served."""
        self.check_served(group_id)
        return self._claims.owned(group_id)

    def groups(self) -> Steps[list[str]]:
        """Return, in steps, the sorted ids of the groups in which a partition has an owner."""
        return self._claims.groups()

    # ---- the steps of an initialisation

    def _check(self, request: GroupInitialisation) -> None:
        group_id = request.group_id
        if self._stopped:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The broker is stopping.")
        self.check_served(group_id)
        if len(request.partitions) > self._max_partitions:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"The request has {len(request.partitions)} partitions, more than group.transaction.max.partitions"
                f" = {self._max_partitions}. Send fewer partitions, or raise the setting.",
            )
        for topic, index in request.partitions:
            known = self._topics.topic(topic)
            if known is None or not known.has_partition(index):
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Partition {topic}-{index} does not exist.")
        self._check_generation(group_id, request.generation_id)
        if request.transactional_id is None and request.expected is not None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "The request has a producer id and epoch but no transactional id. Send all three or none of them.",
            )
        self._homes.check_initialise(request.transactional_id, request.timeout_ms, request.expected)

    def _check_generation(self, group_id: str, generation_id: int) -> None:
        newest = self._claims.newest_generation(group_id)
        if generation_id < newest:
            given = "has no generation" if generation_id == NO_GENERATION else f"has generation {generation_id}"
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION,
                f"The request {given}, but producers of group {group_id!r} were already initialised in generation"
                f" {newest}. Send the group's current generation.",
            )
        current = self._claimed.generation_with_members(group_id)
        if current is not None and generation_id > current:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION,
                f"Group {group_id!r} is in generation {current}, but the request has generation {generation_id}. Send"
                " the group's current generation.",
            )

    def _claim(
        self, turns: _Turns, request: GroupInitialisation, transactional_id: str, by: Caller
    ) -> tuple[asyncio.Future[None] | None, list[_Fence]]:
        """Claim the partitions and start to fence conflicting transactional ids.

        Return a future that is done when the claim is durable (None: it already is), and the fences to wait for.
        """
        group_id, partitions = request.group_id, request.partitions
        holders = self._claims.holders(group_id, partitions)
        rivals = {
            name
            for name, generation_id in holders.items()
            if generation_id == request.generation_id and name != transactional_id and name not in turns.fences
        }
        now = asyncio.get_running_loop().time()
        for rival in rivals:
            self._check_fight(request, transactional_id, rival, now, by)
        durable = self._claims.claim(group_id, transactional_id, request.generation_id, partitions)
        victims = set(holders)
        unknown = []
        for producer_id in self._claimed.pending_producers(group_id, partitions):
            name = self._homes.transactional_id_of(producer_id)
            if name is None:
                unknown.append(producer_id)
            else:
                victims.add(name)
        victims.discard(transactional_id)
        for victim in sorted(victims - turns.fences.keys()):
            self._fence(turns, group_id, victim, partitions, durable, by)
        for rival in rivals:
            self._fence_limiter.note(group_id, transactional_id, rival, now)
        self._events.claimed(group_id, request.generation_id, transactional_id, partitions, victims, by)
        if unknown:
            self._events.pending_of_nobody(group_id, unknown, by)
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        return durable, [
            fence
            for name, fence in turns.fences.items()
            if name == transactional_id or name in victims or not fence.partitions.isdisjoint(partitions)
        ]

    def _check_fight(
        self, request: GroupInitialisation, transactional_id: str, rival: str, now: float, by: Caller
    ) -> None:
        if self._fence_limiter.is_over_limit(request.group_id, transactional_id, rival, now):
            self._events.fight(request.group_id, request.generation_id, transactional_id, rival, by)
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION,
                f"Producers {transactional_id!r} and {rival!r} of group {request.group_id!r} have fenced each other"
                f" {MAX_FENCES} times within {WINDOW_S:.0f} s in generation {request.generation_id}. Give each of them"
                " different partitions.",
            )

    def _fence(
        self,
        turns: _Turns,
        group_id: str,
        victim: str,
        partitions: frozenset[TopicPartition],
        durable: asyncio.Future[None] | None,
        by: Caller,
    ) -> None:
        async def fence() -> None:
            if durable is not None:
                await asyncio.shield(durable)
            await self._fence_turns.take(_UNITS_PER_FENCE)
            await self._homes.fence(victim, cause=by, reason=REASON)
            # From here on the victim may be initialised again, so a later claim must fence it again.
            no_longer_joined()
            released = self._claims.release(group_id, victim)
            if released is not None:
                await asyncio.shield(released)

        def no_longer_joined() -> None:
            joined = turns.fences.get(victim)
            if joined is not None and joined.task is task:
                del turns.fences[victim]
                self._forget_idle(group_id)

        def ended(task: asyncio.Task[None]) -> None:
            self._fencing.pop(task, None)
            no_longer_joined()
            if not task.cancelled() and (error := task.exception()) is not None:
                self._events.fence_failed(group_id, victim, error)

        task = _task(fence(), f"fence-{victim}")
        self._fencing[task] = None
        turns.fences[victim] = _Fence(task, partitions)
        task.add_done_callback(ended)

    async def _until_complete(self, group_id: str, fences: list[_Fence], deadline: float, by: Caller) -> None:
        if not fences:
            return
        tasks = [fence.task for fence in fences]
        with self._parked(group_id, "other producers are being fenced", by):
            async with by.while_waiting():
                await asyncio.wait(tasks, timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
            if not all(task.done() and not task.cancelled() for task in tasks):
                raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        for task in tasks:
            error = task.exception()
            if isinstance(error, KafkaError):
                raise KafkaError(error.code, error.message)
            if error is not None:
                raise error

    # ---- one call at a time per group

    @asynccontextmanager
    async def _turn(self, group_id: str, deadline: float, by: Caller) -> AsyncIterator[_Turns]:
        turns = self._turns.setdefault(group_id, _Turns())
        turns.users += 1
        try:
            await self._take(group_id, turns, deadline, by)
            try:
                yield turns
            finally:
                turns.lock.release()
        finally:
            turns.users -= 1
            self._forget_idle(group_id)

    async def _take(self, group_id: str, turns: _Turns, deadline: float, by: Caller) -> None:
        if turns.users == 1:
            await turns.lock.acquire()  # no other call waits or runs
            return
        with self._parked(group_id, "other calls for the group come first", by):
            taken = False
            try:
                async with by.while_waiting(), asyncio.timeout_at(deadline):
                    taken = await turns.lock.acquire()
            except BaseException as error:
                if taken:
                    turns.lock.release()
                if isinstance(error, TimeoutError):
                    raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS) from None
                raise

    @contextmanager
    def _parked(self, group_id: str, reason: str, by: Caller) -> Iterator[None]:
        """Count the request as waiting within this context, and log the wait when it ends.

        Raise KafkaError CONCURRENT_TRANSACTIONS if too many requests wait already.
        """
        if self._waiting >= self._max_waiting:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        loop = asyncio.get_running_loop()
        began, outcome = loop.time(), "closed"
        self._waiting += 1
        try:
            yield
            outcome = "done"
        except KafkaError:
            outcome = "gave_up"
            raise
        finally:
            self._waiting -= 1
            self._events.waited(group_id, by, loop.time() - began, outcome, reason)

    def _forget_idle(self, group_id: str) -> None:
        turns = self._turns.get(group_id)
        if turns is not None and not turns.users and not turns.fences:
            del self._turns[group_id]


def assigned_prefix(group_id: str) -> str:
    """Return the prefix of the transactional ids that the coordinator assigns: the group id and `-group-aware-`.

    A very long group id is truncated, because the complete transactional id must fit into a string of the protocol.
    """
    return f"{group_id.encode()[:_LONGEST_PREFIX].decode(errors='ignore')}-group-aware-"


def _task(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(work, name=name)
