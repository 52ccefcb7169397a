"""`TransactionalProducerPool`: concurrent transactions, each with its own producer and transactional id.

A transactional id has one transaction at a time. Random ids would defeat fencing: a transaction that a dead process
left open would stay open until its timeout. So the ids are few and fixed, `{prefix}0` to `{prefix}{size - 1}`, and the
pool keeps the producers and lends them. `leases.py` decides which process uses which suffix.

Invariants: only one task uses a suffix at a time, and only while the process holds the suffix. A returned producer is
lent again only if it is ready for a transaction. Producers are bounded by `size`, waiting tasks by `max_waiting`, and
their wait by `max_wait_s`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, Self, Unpack

from ...protocol.errors import ErrorCode, KafkaError
from ..cancellation import ClosingBound, grace_s
from ..closing import Closing, close_after
from ..config import ConsumerConfig
from ..errors import ConfigError, IllegalStateError
from ..kept_task import KeptTask
from ..keywords import PoolKeywords
from ..producer import Producer
from ..serialization.protocols import SentK, SentV, SerializerLike
from ..settings import mapping_of
from ..shared_task import BEGIN_AGAIN_S
from ..validation import count_setting, duration_of, duration_setting, without_none
from .division import MAX_SIZE
from .errors import PoolExhaustedError
from .leases import GroupLeases, LeaseHolder, Leases, OwnSuffixes
from .pooled_producer import Loan, PooledProducer, PooledTransaction
from .waiting import TooManyWaitingError, WaitingLine

log = logging.getLogger(__name__)

RENEW_AFTER_S: Final = 86_400.0
"""Seconds of idleness after which a producer is initialised again. Brokers forget a transactional id that is unused for
transactional.id.expiration.ms, by default seven days.
"""


class PoolStatus(NamedTuple):
    """The state of a pool, in numbers of producers and tasks."""

    held: int
    """Number of suffixes that this process may use."""
    in_use: int
    """Number of producers that are lent, or whose last transaction is still being aborted."""
    idle: int
    """Number of connected producers that are ready to be lent."""
    waiting: int
    """Number of tasks that wait for a producer."""


class _Idle(NamedTuple, Generic[SentK, SentV]):
    producer: Producer[SentK, SentV]
    since: float


@dataclass(slots=True, eq=False)
class _Work(Generic[SentK, SentV]):
    """Background work on one producer, such as an abort. At its end the producer is idle or closed."""

    run: Callable[[], Coroutine[Any, Any, None]]
    name: str
    producer: Producer[SentK, SentV]
    ended: asyncio.Future[None]
    """Done when the work has ended, or the pool is closed."""


class TransactionalProducerPool(Generic[SentK, SentV]):
    """Lends transactional producers to the tasks of a program, for concurrent transactions.

    ::

        async with TransactionalProducerPool(bootstrap_servers="127.0.0.1:9092", prefix="orders-") as pool:
            ...
            async with pool.transaction() as txn:  # in any task
                txn.send("topic", b"value")

    A transaction commits at the end of its block, and aborts on an exception. `async with pool.producer() as producer`
    lends a producer for several transactions. Both raise PoolExhaustedError if no producer is free within `max_wait_s`,
    or if `max_waiting` tasks are already waiting. If the pool has to make a producer, they also raise the errors of
    `Producer.start` and `init_transactions`.

    `size` is the number of transactional ids (`{prefix}0` and so on) of all processes with this prefix together. The
    processes divide the ids among themselves through the consumer group `{prefix}producer-pool`. With `exclusive=True`
    no group is used, and no other process may use the prefix. An idle producer is initialised again after
    `renew_after_s`, which must be below the brokers' transactional.id.expiration.ms. `settings` are those of
    `Producer`. They determine the types of keys and values.

    All calls must be made on the event loop on which the pool was started. Only the task that took a producer may use
    it.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        /,
        *,
        prefix: str,
        size: int = 10,
        max_wait_s: float = 10.0,
        max_waiting: int = 1000,
        renew_after_s: float = RENEW_AFTER_S,
        exclusive: bool = False,
        session_timeout_ms: int = 10_000,
        key_serializer: SerializerLike[SentK] | None = None,
        value_serializer: SerializerLike[SentV] | None = None,
        **settings: Unpack[PoolKeywords],
    ) -> None:
        if not prefix:
            raise ConfigError("prefix", "is empty: give a prefix for the transactional ids of this application")
        size = count_setting(size, "size", at_most=MAX_SIZE)
        max_wait_s = duration_setting(max_wait_s, "max_wait_s")
        max_waiting = count_setting(max_waiting, "max_waiting", at_least=0)
        session_timeout_ms = count_setting(session_timeout_ms, "session_timeout_ms")
        if duration_setting(renew_after_s, "renew_after_s") == 0:
            raise ConfigError("renew_after_s", f"is {renew_after_s}: give a number of seconds above 0")
        serdes = without_none(key_serializer=key_serializer, value_serializer=value_serializer)
        both = {**mapping_of(config, "TransactionalProducerPool"), **settings, **serdes}
        if {"transactional.id", "transactional_id"} & both.keys():
            raise ConfigError("transactional.id", "is set by the pool itself: leave it out", "prefix")
        self._prefix = prefix
        self._size = size
        self._max_wait_s = max_wait_s
        self._renew_after_s = renew_after_s
        self._settings = both
        first: Producer[SentK, SentV] = Producer(
            {**both, "transactional_id": f"{prefix}0"}
        )  # wrong settings raise here, not in a task
        common = {name: first.config.get(name) for name in first.config.explicit & ConsumerConfig.rows.keys()}
        self._leases: Leases
        holder = LeaseHolder(lambda: self._busy, self._gained, self._withdraw, self._lose)
        if exclusive:
            self._leases = OwnSuffixes(size, holder)
        else:
            lease_config = ConsumerConfig.of(
                common,
                group_id=f"{prefix}producer-pool",
                enable_auto_commit=False,
                session_timeout_ms=session_timeout_ms,
                heartbeat_interval_ms=max(1, session_timeout_ms // 10),
                max_poll_interval_ms=session_timeout_ms,
            )
            self._leases = GroupLeases(lease_config, size, holder)
        self._max_block_s = first.config.max_block_ms / 1000
        self._loans: dict[int, Loan[SentK, SentV]] = {}
        self._idle: dict[int, _Idle[SentK, SentV]] = {}
        self._busy: set[int] = set()
        """Suffixes in use: lent, or with a producer that is being aborted, renewed or closed."""
        self._settling: set[int] = set()
        """Suffixes that were given back while their transaction is still to be aborted."""
        self._not_begun: set[_Work[SentK, SentV]] = set()
        """Work whose task has not had its first step, or was cancelled before it."""
        self._producer_config = first.config
        self._withdrawn: set[int] = set()
        self._lost: set[int] = set()
        """Suffixes that the process lost while they were in use. Their producers are closed when they are given back.
        """
        self._waiting = WaitingLine(max_waiting, max_wait_s)
        self._tasks: set[asyncio.Task[None]] = set()
        self._started = self._open = self._was_closed = False
        self._closing = Closing("the pool")

    # -- life

    async def start(self) -> None:
        """Connect to the cluster and begin to acquire suffixes. Raises KafkaTimeoutError after max.block.ms."""
        if self._started or self._was_closed:
            raise IllegalStateError("the pool was already started or closed. It starts only once: make a new one")
        self._started = True
        self._loop = asyncio.get_running_loop()
        await self._leases.start(self._max_block_s)
        if self._was_closed:
            await self._leases.close(0.0)
            raise IllegalStateError("the pool was closed while it was starting")
        self._open = True
        self._renewing = KeptTask(self._renew_idle, f"renew idle producers of {self._prefix}")

    async def close(self, timeout_s: float | None = None) -> None:
        """Abort open transactions, close all producers, and give the suffixes back.

        If the brokers do not respond within `timeout_s` (default: max.block.ms), open transactions end with their own
        timeout, and the suffixes become free with the session timeout. If the call is cancelled, it waits for
        cancel.grace.ms more at most. A call that comes while another one closes the pool waits for it, and raises
        KafkaTimeoutError if that takes longer than `timeout_s`.
        """
        if timeout_s is not None:
            timeout_s = duration_of(timeout_s, "timeout_s")
        was_open, self._open, self._was_closed = self._open, False, True
        if was_open:
            await self._closing.run(lambda: self._close(timeout_s))
        else:
            await self._closing.wait(timeout_s)

    async def _close(self, timeout_s: float | None) -> None:
        self._waiting.close(IllegalStateError("the pool is closed"))
        bound = ClosingBound(self._producer_config, self._max_block_s if timeout_s is None else timeout_s)
        renewing = self._renewing.cancel()
        try:
            with bound:
                await asyncio.wait({renewing, *self._tasks}, timeout=bound.left_s())
                await asyncio.gather(*(_close(producer, bound.left_s()) for producer in self._producers()))
                # Tasks gave producers back during the first wait. After it, no loan is left.
                await asyncio.wait({renewing, *self._tasks}, timeout=bound.left_s())
        finally:  # even a cancelled close must leave the group, or its member would keep the suffixes forever
            tasks = {renewing, *self._tasks}
            try:
                for task in tasks:
                    task.cancel()
                closing = (_close(producer, 0.0) for producer in self._producers())
                with bound:
                    await asyncio.gather(*tasks, *closing, return_exceptions=True)
            finally:
                self._idle.clear()
                self._loans.clear()
                while self._not_begun:
                    self._not_begun.pop().ended.set_result(None)
                await self._leases.close(bound.left_s())

    def _producers(self) -> list[Producer[SentK, SentV]]:
        """End all loans, so that lent producers cannot be used any more. Return the lent and the idle producers, and
        those whose background work has not begun.
        """
        producers = [work.producer for work in self._not_begun]
        producers += [idle.producer for idle in self._idle.values()]
        for loan in self._loans.values():
            loan.end()
            if loan.producer is not None:
                producers.append(loan.producer)
        return producers

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await close_after(error, self.close(grace_s(self._producer_config, error)))

    @property
    def status(self) -> PoolStatus:
        """The pool's current state."""
        in_use = len(self._loans) + len(self._settling)
        return PoolStatus(len(self._leases.held), in_use, len(self._idle), len(self._waiting))

    # -- lending

    @contextlib.asynccontextmanager
    async def transaction(
        self, partitions: Collection[tuple[str, int]] | None = None
    ) -> AsyncIterator[PooledTransaction[SentK, SentV]]:
        """Return a context manager for a transaction with a producer that only this transaction uses.

        The transaction commits at the end of the block and aborts on an exception. `partitions` has the same meaning as
        in `Producer.begin_transaction`. Raises PoolExhaustedError if no producer becomes free.
        """
        producer = await self.take()
        try:
            async with producer.transaction(partitions) as transaction:
                yield transaction
        finally:
            producer.give_back()  # does not wait for a transaction that is still being aborted

    @contextlib.asynccontextmanager
    async def producer(self) -> AsyncIterator[PooledProducer[SentK, SentV]]:
        """Return a context manager that lends a producer to this task for any number of transactions.

        Raises PoolExhaustedError if no producer becomes free.
        """
        async with await self.take() as producer:
            yield producer

    async def take(self) -> PooledProducer[SentK, SentV]:
        """Lend a producer to this task, until the producer's `close` is called. If the task ends without that call, the
        pool takes the producer back.

        Raises PoolExhaustedError if no producer becomes free. Raises IllegalStateError in a task that already has a
        producer of this pool, because the task could wait forever for the producer that it has itself.
        """
        self._check()
        task = asyncio.current_task()
        assert task is not None
        if any(loan.task is task for loan in self._loans.values()):
            raise IllegalStateError(
                f"task {task.get_name()!r} has a producer of this pool already: use it, or give it back first"
            )
        loan: Loan[SentK, SentV] = Loan(await self._free_suffix(), task)
        self._loans[loan.suffix] = loan
        try:
            loan.producer = await self._ready_producer(loan.suffix)
        except BaseException:
            self._loans.pop(loan.suffix, None)
            self._done_with(loan.suffix)
            raise
        if not self._open:  # the pool was closed meanwhile
            await _close(loan.producer, 0.0)
            self._check()
        loan.on_task_end(self._forgotten)
        return PooledProducer(loan, self._take_back)

    async def _free_suffix(self) -> int:
        """Wait until it is this task's turn, then mark a free suffix as in use and return it."""
        try:
            return await self._waiting.wait(self._choose)
        except TooManyWaitingError:
            raise self._exhausted(f"{len(self._waiting)} tasks are already waiting for a producer") from None
        except TimeoutError:
            raise self._exhausted(f"no producer became free within max_wait_s = {self._max_wait_s:g}") from None

    def _choose(self) -> int | None:
        """Mark a free suffix as in use and return it, or return None. The suffix of the most recently used idle
        producer comes first, then the lowest suffix without a producer.
        """
        free = [suffix for suffix in self._leases.held if suffix not in self._busy]
        if not free:
            return None
        ready = [suffix for suffix in free if suffix in self._idle]
        suffix = max(ready, key=lambda one: self._idle[one].since) if ready else min(free)
        self._busy.add(suffix)
        return suffix

    async def _ready_producer(self, suffix: int) -> Producer[SentK, SentV]:
        idle = self._idle.pop(suffix, None)
        if idle is not None:
            return idle.producer
        producer: Producer[SentK, SentV] = Producer({**self._settings, "transactional_id": f"{self._prefix}{suffix}"})
        try:
            await producer.start()
            await producer.init_transactions()
        except BaseException:
            await _close(producer, 0.0)
            raise
        return producer

    def _exhausted(self, why: str) -> PoolExhaustedError:
        status = self.status
        failure = getattr(self._leases, "failure", None)
        reason = f"; no suffixes arrive: {failure}" if failure is not None and not status.held else ""
        return PoolExhaustedError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"pool {self._prefix!r}: {why}; of {self._size} producers this process has {status.held}, "
            f"of which {status.in_use} are in use{reason}",
        )

    # -- giving back

    def _forgotten(self, loan: Loan[SentK, SentV]) -> None:
        if loan.over or not self._open:
            return
        log.warning("task %r ended without giving back producer %s%d", loan.task.get_name(), self._prefix, loan.suffix)
        self._take_back(loan)

    def _take_back(self, loan: Loan[SentK, SentV]) -> asyncio.Future[None] | None:
        """End a loan at once. Return None if the producer can be lent again now.

        Otherwise, return a future that is done when an open transaction is aborted, and the producer is kept or closed.
        """
        if loan.over:
            return None
        loan.end()
        suffix, producer = loan.suffix, loan.producer
        assert producer is not None
        self._loans.pop(suffix, None)
        if self._can_be_lent(suffix, producer):
            self._keep(suffix, producer)
            self._done_with(suffix)
            return None
        self._settling.add(suffix)
        return self._spawn(lambda: self._settle(suffix, producer), f"settle {self._prefix}{suffix}", producer)

    def _can_be_lent(self, suffix: int, producer: Producer[SentK, SentV]) -> bool:
        return producer.ready and suffix in self._leases.held and suffix not in self._lost and self._open

    def _keep(self, suffix: int, producer: Producer[SentK, SentV]) -> None:
        self._idle[suffix] = _Idle(producer, self._loop.time())

    async def _settle(self, suffix: int, producer: Producer[SentK, SentV]) -> None:
        """Abort the open transaction within max.block.ms. Then the producer is kept if it is ready, else closed."""
        kept = False
        try:
            if not producer.ready:
                with contextlib.suppress(KafkaError, TimeoutError):
                    async with asyncio.timeout(self._max_block_s):
                        await producer.abort_transaction()
            kept = self._can_be_lent(suffix, producer)
            if kept:
                self._keep(suffix, producer)
        finally:
            try:
                if not kept:  # the suffix's next producer, or the transaction's timeout, ends an open transaction
                    await _close(producer, 0.0)
            finally:
                self._settling.discard(suffix)
                self._done_with(suffix)

    def _done_with(self, suffix: int) -> None:
        """Mark a suffix as not in use; its producer may be idle."""
        self._busy.discard(suffix)
        self._lost.discard(suffix)
        if suffix in self._withdrawn:
            self._withdrawn.discard(suffix)
            self._leases.release(suffix)
        self._waiting.wake()

    # -- callbacks of the leases

    def _gained(self) -> None:
        self._waiting.wake()

    def _withdraw(self, suffixes: Collection[int]) -> None:
        self._withdrawn.update(suffixes)
        for suffix in suffixes:
            if suffix not in self._busy:
                self._drop(suffix)

    def _lose(self, suffixes: Collection[int]) -> None:
        self._withdrawn.difference_update(suffixes)
        for suffix in suffixes:
            if suffix in self._busy:
                self._lost.add(suffix)
            else:
                self._drop(suffix)

    def _drop(self, suffix: int) -> None:
        """Close the idle producer of a suffix, if any, in the background."""
        idle = self._idle.pop(suffix, None)
        if idle is None:
            self._done_with(suffix)
            return
        self._busy.add(suffix)
        self._spawn(lambda: self._close_unused(suffix, idle.producer), f"close {self._prefix}{suffix}", idle.producer)

    async def _close_unused(self, suffix: int, producer: Producer[SentK, SentV]) -> None:
        try:
            await _close(producer, 0.0)
        finally:
            self._done_with(suffix)

    # -- renewal

    async def _renew_idle(self) -> None:
        """Initialise again the producers that have been idle for `renew_after_s`, so that brokers do not forget their
        ids.
        """
        while True:
            now = self._loop.time()
            due = [suffix for suffix, idle in self._idle.items() if idle.since <= now - self._renew_after_s]
            for suffix in due:
                if suffix not in self._busy and suffix in self._idle:
                    self._busy.add(suffix)
                    await self._renew(suffix)
            oldest = min((idle.since for idle in self._idle.values()), default=self._loop.time())
            await asyncio.sleep(max(oldest + self._renew_after_s - self._loop.time(), self._renew_after_s / 100))

    async def _renew(self, suffix: int) -> None:
        idle = self._idle.pop(suffix)
        try:
            await idle.producer.init_transactions()
        except KafkaError as error:
            log.warning("%s%d could not be renewed; its next use makes a new producer: %s", self._prefix, suffix, error)
            await self._close_unused(suffix, idle.producer)
        except BaseException:
            await self._close_unused(suffix, idle.producer)
            raise
        else:
            await self._settle(suffix, idle.producer)

    # -- inside

    def _check(self) -> None:
        if not self._open:
            what = "is closed" if self._was_closed else "is not started: use it as a context manager, or call start()"
            raise IllegalStateError(f"the pool {what}")
        if asyncio.get_running_loop() is not self._loop:
            raise IllegalStateError("the pool belongs to another event loop: make a pool for each event loop")

    def _spawn(
        self, run: Callable[[], Coroutine[Any, Any, None]], name: str, producer: Producer[SentK, SentV]
    ) -> asyncio.Future[None]:
        """Begin a task that works on a producer. Return a future that is done when the work has ended."""
        work = _Work(run, name, producer, self._loop.create_future())
        self._begin(work)
        return work.ended

    def _begin(self, work: _Work[SentK, SentV]) -> None:
        """Begin a task that does the work.

        If other code cancels the task before its first step, its `finally` blocks do not run. A new task then begins
        the work after BEGIN_AGAIN_S. If the pool is closed before that, `close` closes the producer.
        """
        self._not_begun.add(work)

        async def run() -> None:
            self._not_begun.discard(work)
            await work.run()

        def ended(task: asyncio.Task[None]) -> None:
            self._task_done(task)
            if work in self._not_begun:
                self._loop.call_later(BEGIN_AGAIN_S, again)
            elif not work.ended.done():
                work.ended.set_result(None)

        def again() -> None:
            if self._open:
                self._begin(work)

        task = self._loop.create_task(run(), name=work.name)
        self._tasks.add(task)
        task.add_done_callback(ended)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.error("pool %r: %s failed", self._prefix, task.get_name(), exc_info=failure)


async def _close(producer: Producer[Any, Any], timeout_s: float | None) -> None:
    """Close a producer. A transaction that is not aborted in time ends when it times out, or when the next producer
    with the id is initialised.
    """
    try:
        await producer.close(timeout_s)
    except KafkaError as error:
        log.warning("while closing a producer of the pool: %s", error)
