"""`Transaction`: a transaction as an `async with` block. `transaction_lifecycle.py` implements its steps."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from types import TracebackType
from typing import Generic, Protocol, Self

from ...protocol.errors import ErrorCode, KafkaError
from ..cancellation import is_cancellation
from ..errors import AbortableError, CommitUnknownError
from ..serialization.protocols import SentK, SentV
from ..values import ConsumerAssignment, ConsumerGroupMetadata, HeadersLike, Offsets
from .batch import Delivery, DeliveryCallback
from .transaction_lifecycle import Transactions
from .transaction_manager import BegunTransaction
from .transaction_state import State


class RecordSender(Protocol):
    """The methods of a producer with which a transaction sends its records."""

    @property
    def send(self) -> Callable[..., Delivery]:
        """See `Producer.send`."""

    @property
    def enqueue(self) -> Callable[..., Awaitable[Delivery]]:
        """See `Producer.enqueue`."""


class Transaction(Generic[SentK, SentV]):
    """A transaction as a block: `async with producer.transaction() as txn`. Send its records with `txn`; using `txn`
    after the block raises IllegalStateError.

    The transaction is committed at the end of the block. An exception in the block, including a cancellation, aborts
    the transaction and is raised again. After a cancellation, for example by asyncio.timeout, the block waits for the
    abort for cancel.grace.ms at most. If the commit fails because the transaction can only be aborted, it is aborted
    and AbortableError is raised: run the transaction again. AbortableError is also raised at the end of the block if
    the transaction was aborted by something other than `abort`, for example because another task closed the producer.
    CommitUnknownError is raised at the end of the block if a commit had no response before the producer was initialised
    again or closed.
    """

    def __init__(
        self,
        producer: RecordSender,
        transactions: Transactions,
        partitions: Collection[tuple[str, int]] | None = None,
    ) -> None:
        self._producer = producer
        self._transactions = transactions
        self._partitions = partitions
        self._begun = BegunTransaction()
        self._aborted = False

    async def __aenter__(self) -> Self:
        if self._transactions.manager.state is State.UNINITIALIZED and self._transactions.initialises_itself:
            await self._transactions.init()
        manager, begun = self._transactions.manager, BegunTransaction()
        try:
            await self._transactions.begin(self._partitions, begun)
        except BaseException as error:
            if manager.is_open(begun):
                await self._abort_after(error)
            raise
        self._begun, self._aborted = begun, False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        manager = self._transactions.manager
        if manager.current is not self._begun or manager.state in (State.READY, State.ABORTING_TRANSACTION):
            if error is None and not (self._aborted or self._begun.is_committed):
                if self._begun.may_be_committed:
                    raise CommitUnknownError(
                        ErrorCode.REQUEST_TIMED_OUT,
                        "the response to the commit was not received, and the producer was closed or initialised again",
                        False,
                    )
                raise AbortableError(
                    ErrorCode.TRANSACTION_ABORTABLE,
                    "the transaction was aborted before the end of its block, by close(), abort_transaction() or "
                    "init_transactions() of the producer. To abort it without this error, call abort() of the "
                    "transaction",
                )
            return  # the transaction has ended, and the current one is not that of this block
        if error is None:
            try:
                await self._transactions.commit()
            except AbortableError as failure:
                await self._abort_after(failure)
                raise
            except CommitUnknownError:
                raise
            except asyncio.CancelledError as cancelled:
                if manager.is_open(self._begun):  # the commit was never requested
                    await self._abort_after(cancelled)
                raise
            except KafkaError as failure:
                if manager.is_open(self._begun) and manager.state is State.IN_TRANSACTION:
                    await self._abort_after(failure)  # the commit was never requested
                raise
        elif manager.is_open(self._begun):
            await self._abort_after(error)

    async def _abort_after(self, error: BaseException) -> None:
        """Abort the transaction because of `error`. If that fails, add a note to `error`; the coordinator then aborts
        the transaction after its timeout.

        After a cancellation or KeyboardInterrupt, wait for cancel.grace.ms only. The abort then continues in the
        background, and the producer's next transaction waits for it.
        """
        transactions = self._transactions
        aborting = transactions.abort_soon()
        grace_ms = transactions.cancel_grace_ms
        try:
            await asyncio.wait({aborting}, timeout=grace_ms / 1000 if is_cancellation(error) else None)
        except asyncio.CancelledError:
            transactions.leave_abort_behind()
            raise
        if not aborting.done():
            transactions.leave_abort_behind()
            error.add_note(f"and the transaction is still being aborted after cancel.grace.ms = {grace_ms}")
            return
        if aborting.cancelled():  # by closing the producer, or by other code
            error.add_note(
                "and the abort of the transaction was cancelled; the producer aborts it before its next transaction, or"
                " the transaction times out"
            )
            return
        failure = aborting.exception()
        if failure is None:
            return
        if not isinstance(failure, KafkaError):
            raise failure from error
        error.add_note(f"and the transaction could not be aborted: {failure}")
        if transactions.manager.state is State.FATAL_ERROR and isinstance(error, KafkaError):
            raise failure from error

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
        self._transactions.manager.check_same(self._begun)
        return self._producer.send(
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
        self._transactions.manager.check_same(self._begun)
        return await self._producer.enqueue(
            topic,
            value,
            key=key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
            on_delivery=on_delivery,
        )

    async def send_offsets(
        self,
        offsets: Offsets,
        group_metadata: ConsumerGroupMetadata | ConsumerAssignment | str | None = None,
    ) -> None:
        """Commit a group's offsets in this transaction; see `Producer.send_offsets`."""
        self._transactions.manager.check_same(self._begun)
        await self._transactions.send_offsets(offsets, group_metadata)

    async def abort(self) -> None:
        """Abort the transaction now; the end of the block then commits nothing."""
        self._transactions.manager.check_same(self._begun)
        await self._transactions.abort()
        self._aborted = True
