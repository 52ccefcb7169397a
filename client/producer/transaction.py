"""`Transaction`: a transaction as a block. `transaction_steps.py` does its work."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import TracebackType
from typing import Protocol, Self

from ...protocol.errors import ErrorCode, KafkaError
from ..errors import AbortableError, CommitUnknownError
from ..values import BytesLike, ConsumerAssignment, ConsumerGroupMetadata, HeadersLike, Offsets
from .batch import Delivery
from .transaction_state import State
from .transaction_steps import Transactions


class RecordSink(Protocol):
    """The producer, as far as a transaction needs it."""

    def send(
        self,
        topic: str,
        value: BytesLike | None = None,
        *,
        key: BytesLike | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> Delivery:
        """Take a record at once."""

    async def enqueue(
        self,
        topic: str,
        value: BytesLike | None = None,
        *,
        key: BytesLike | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> Delivery:
        """Take a record, waiting for room."""


class Transaction:
    """A transaction as a block: `async with producer.transaction() as txn`. Only what is sent with `txn` belongs to it;
    using `txn` after the block raises IllegalStateError.

    At the end of the block it commits. On an exception, also on a cancellation, it aborts, and the exception goes on.
    After a cancellation, as by asyncio.timeout, it waits for the abort for cancel.grace.ms at most. If the commit fails
    because the transaction can only be aborted, it is aborted and AbortableError raised: run it again.
    """

    def __init__(
        self, records: RecordSink, transactions: Transactions, partitions: Collection[tuple[str, int]] | None = None
    ) -> None:
        self._records = records
        self._transactions = transactions
        self._partitions = partitions
        self._number = -1

    async def __aenter__(self) -> Self:
        if self._transactions.manager.state is State.UNINITIALIZED and self._transactions.initialises_itself:
            await self._transactions.init()
        try:
            await self._transactions.begin(self._partitions)
        except BaseException as error:
            if self._transactions.manager.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
                await self._abort_after(error)
            raise
        self._number = self._transactions.manager.number
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        manager = self._transactions.manager
        if manager.number != self._number:
            return  # it was ended in the block, and another one begun that is not this one's to end
        if error is None:
            if manager.state is State.READY:
                return  # it was committed or aborted in the block
            try:
                await self._transactions.commit()
            except AbortableError as failure:
                await self._abort_after(failure)
                raise
            except CommitUnknownError:
                raise
            except asyncio.CancelledError as cancelled:
                if manager.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):  # the decision was never sent
                    await self._abort_after(cancelled)
                raise
            except KafkaError as failure:
                if manager.state is State.IN_TRANSACTION:  # the decision was never sent
                    await self._abort_after(failure)
                raise
        elif manager.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
            await self._abort_after(error)

    async def _abort_after(self, error: BaseException) -> None:
        """Abort because of `error`. If that fails, the coordinator aborts when it times out, and `error` gets a note.

        After a cancellation this waits for cancel.grace.ms only. Then the abort goes on in the background, and the
        producer's next transaction waits for it.
        """
        transactions = self._transactions
        aborting = transactions.abort_soon()
        grace_ms = transactions.cancel_grace_ms
        cancelled = isinstance(error, asyncio.CancelledError)
        try:
            await asyncio.wait({aborting}, timeout=grace_ms / 1000 if cancelled else None)
        except asyncio.CancelledError:
            transactions.leave_abort_behind()
            raise
        if not aborting.done():
            transactions.leave_abort_behind()
            error.add_note(f"and the transaction is still being aborted, after cancel.grace.ms = {grace_ms}")
            return
        failure = KafkaError(ErrorCode.NETWORK_EXCEPTION, "the producer was closed")
        if not aborting.cancelled():
            exception = aborting.exception()
            if exception is None:
                return
            if not isinstance(exception, KafkaError):
                raise exception from error
            failure = exception
        error.add_note(f"and the transaction could not be aborted: {failure}")
        if transactions.manager.state is State.FATAL_ERROR and isinstance(error, KafkaError):
            raise failure from error

    def send(
        self,
        topic: str,
        value: BytesLike | None = None,
        *,
        key: BytesLike | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> Delivery:
        """Hand over a record at once, as `Producer.send` does; the commit waits for it and fails with it."""
        self._transactions.manager.check_same(self._number)
        return self._records.send(
            topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )

    async def enqueue(
        self,
        topic: str,
        value: BytesLike | None = None,
        *,
        key: BytesLike | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> Delivery:
        """Hand over a record, waiting only while the buffer is full, as `Producer.enqueue` does."""
        self._transactions.manager.check_same(self._number)
        return await self._records.enqueue(
            topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )

    async def send_offsets(
        self,
        offsets: Offsets,
        group_metadata: ConsumerGroupMetadata | ConsumerAssignment | str | None = None,
    ) -> None:
        """Commit consumed offsets (of the next records to read) in this transaction; see `Producer.send_offsets`."""
        self._transactions.manager.check_same(self._number)
        await self._transactions.send_offsets(offsets, group_metadata)

    async def abort(self) -> None:
        """Abort now; the block then ends without committing."""
        self._transactions.manager.check_same(self._number)
        await self._transactions.abort()
