"""`PooledProducer`: a producer on loan from a pool, bound to the task that took it, until `close` gives it back.

If another task uses the producer, or if it is used after it was given back, IllegalStateError is raised. Otherwise a
late task could write into the transaction of the producer's next user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, Self

from ..cancellation import is_cancellation
from ..errors import CommitUnknownError, IllegalStateError
from ..producer import Delivery, DeliveryCallback, Producer, Transaction
from ..serialization.protocols import SentK, SentV
from ..values import ConsumerAssignment, ConsumerGroupMetadata, HeadersLike, Offsets


class Loan(Generic[SentK, SentV]):
    """The loan of a producer to a task. All objects made for the loan share it."""

    __slots__ = ("__weakref__", "_forgotten", "over", "producer", "suffix", "task")

    def __init__(self, suffix: int, task: asyncio.Task[Any]) -> None:
        self.suffix = suffix
        self.task = task
        self.producer: Producer[SentK, SentV] | None = None
        self.over = False
        self._forgotten: Callable[[asyncio.Task[Any]], None] | None = None

    def on_task_end(self, forgotten: Callable[[Loan[SentK, SentV]], None]) -> None:
        """Call `forgotten` if the task ends before the loan does."""
        self._forgotten = lambda _: forgotten(self)
        self.task.add_done_callback(self._forgotten)

    def end(self) -> None:
        """End the loan. Remove its callback from the task, so that a long-lived task does not collect callbacks."""
        self.over = True
        if self._forgotten is not None:
            self.task.remove_done_callback(self._forgotten)
            self._forgotten = None

    def check(self) -> Producer[SentK, SentV]:
        """Return the producer. Raise IllegalStateError if the loan is over or the calling task did not take the
        producer.
        """
        if self.over or self.producer is None:
            raise IllegalStateError("the producer was given back to its pool: take another producer")
        try:
            current = asyncio.current_task()
        except RuntimeError:
            current = None  # called in another thread
        if current is not self.task:
            raise IllegalStateError(
                f"the producer belongs to task {self.task.get_name()!r}, which took it from the pool: "
                "use it there, or take a producer for this task"
            )
        return self.producer


class PooledTransaction(Generic[SentK, SentV]):
    """A transaction of a pooled producer. Like `Transaction`, but only the task that took the producer may use it."""

    def __init__(self, loan: Loan[SentK, SentV], transaction: Transaction[SentK, SentV]) -> None:
        self._loan = loan
        self._transaction = transaction

    @property
    def transactional_id(self) -> str:
        """The transactional id of the transaction's producer."""
        return str(self._loan.check().config.transactional_id)

    def send(
        self,
        topic: str,
        value: SentV | None = None,
        *,
        key: SentK | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
        on_delivery: DeliveryCallback | None = None,
    ) -> Delivery:
        """Hand over a record without waiting, as `Producer.send` does.

        The commit waits for the record, and fails if the record's delivery fails.
        """
        self._loan.check()
        return self._transaction.send(
            topic,
            value,
            key=key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
            on_delivery=on_delivery,
        )

    async def enqueue(
        self,
        topic: str,
        value: SentV | None = None,
        *,
        key: SentK | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
        on_delivery: DeliveryCallback | None = None,
    ) -> Delivery:
        """Hand over a record without waiting for its delivery, as `Producer.enqueue` does."""
        self._loan.check()
        return await self._transaction.enqueue(
            topic,
            value,
            key=key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
            on_delivery=on_delivery,
        )

    async def send_offsets(
        self, offsets: Offsets, group_metadata: ConsumerGroupMetadata | ConsumerAssignment | None = None
    ) -> None:
        """Commit a group's offsets in this transaction. Each offset is the offset of the next record to read."""
        self._loan.check()
        await self._transaction.send_offsets(offsets, group_metadata)

    async def abort(self) -> None:
        """Abort the transaction now; the end of the block then commits nothing."""
        self._loan.check()
        await self._transaction.abort()


class _Block(AbstractAsyncContextManager[PooledTransaction[SentK, SentV]]):
    """The context manager of a pooled producer's transaction."""

    def __init__(self, loan: Loan[SentK, SentV], transaction: Transaction[SentK, SentV]) -> None:
        self._loan = loan
        self._transaction = transaction

    async def __aenter__(self) -> PooledTransaction[SentK, SentV]:
        self._loan.check()
        await self._transaction.__aenter__()
        return PooledTransaction(self._loan, self._transaction)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._loan.check()
        elif self._loan.over:
            return  # the pool aborts the transaction, and the exception under way is more important
        try:
            await self._transaction.__aexit__(kind, error, trace)
        except CommitUnknownError as unknown:
            # The pool replaces this producer, so nothing can ask for the result any more.
            raise CommitUnknownError(unknown.code, unknown.message, can_ask_again=False) from unknown


class PooledProducer(Generic[SentK, SentV]):
    """A transactional producer from the pool. `close` gives it back, and aborts an open transaction."""

    def __init__(
        self, loan: Loan[SentK, SentV], take_back: Callable[[Loan[SentK, SentV]], asyncio.Future[None] | None]
    ) -> None:
        self._loan = loan
        self._take_back = take_back

    @property
    def transactional_id(self) -> str:
        """The producer's transactional.id, made of prefix and suffix."""
        return str(self._loan.check().config.transactional_id)

    def transaction(
        self, partitions: Collection[tuple[str, int]] | None = None
    ) -> AbstractAsyncContextManager[PooledTransaction[SentK, SentV]]:
        """Return a context manager for a transaction: `async with producer.transaction() as txn`."""
        return _Block(self._loan, self._loan.check().transaction(partitions))

    def give_back(self) -> None:
        """Give the producer back without waiting. The pool aborts an open transaction in the background, before it
        lends the producer again.
        """
        self._take_back(self._loan)

    async def close(self) -> None:
        """Give the producer back, and wait until an open transaction is aborted. Any task may call it, even twice."""
        settling = self._take_back(self._loan)
        if settling is not None:
            await asyncio.wait({settling})  # the abort continues if this wait is cancelled

    async def __aenter__(self) -> Self:
        self._loan.check()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if is_cancellation(error):
            self.give_back()
        else:
            await self.close()
