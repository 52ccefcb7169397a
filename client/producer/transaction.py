"""Transactions as a program sees them: `Transactions` carries out begin to commit or abort, `Transaction` is the block.

Owns the order of things: everything is sent and acknowledged before the decision is, nothing new leaves while a
transaction is being decided, and an abort waits for what is in flight. States are `TransactionManager`'s, requests
`TransactionCalls`'.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Protocol, Self

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records import Headers
from ..cluster import Cluster
from ..config import ProducerConfig
from ..errors import AbortableError, CommitUnknownError
from ..values import ConsumerGroupMetadata, OffsetAndMetadata, Offsets
from .accumulator import RecordAccumulator
from .batch import Delivery
from .sender import Sender
from .transaction_calls import TransactionCalls
from .transaction_manager import TransactionManager
from .transaction_state import State

log = logging.getLogger(__name__)


class Transactions:
    """See the module's docstring. One at a time; a call that does not fit the state raises IllegalStateError."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        accumulator: RecordAccumulator,
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
    ) -> None:
        assert config.transactional_id is not None
        self.manager = TransactionManager(config.transactional_id)
        self._calls = TransactionCalls(cluster, self.manager, config.transaction_timeout_ms, config.max_block_ms / 1000)
        self._accumulator = accumulator
        self._spawn = spawn
        self._sender: Sender
        self._registering: asyncio.Future[None] | None = None
        self._sending_offsets: set[asyncio.Future[None]] = set()

    def use(self, sender: Sender) -> None:
        """Work with this sender."""
        self._sender = sender
        sender.on_unregistered = self._register

    def check_send(self) -> None:
        """Raise unless a record may be sent now."""
        if self.manager.state is not State.IN_TRANSACTION:
            self.manager.require(State.IN_TRANSACTION, doing="sending")

    async def init(self) -> None:
        """See Producer.init_transactions."""
        manager = self.manager
        manager.require(State.UNINITIALIZED, doing="init_transactions")
        manager.become(State.INITIALIZING)
        try:
            await self._calls.init_producer_id()
            manager.become(State.READY)
        finally:
            if manager.state is State.INITIALIZING:
                manager.become(State.UNINITIALIZED)

    async def send_offsets(
        self,
        offsets: Offsets,
        group: ConsumerGroupMetadata | str,
    ) -> None:
        """See Producer.send_offsets_to_transaction."""
        manager = self.manager
        manager.require(State.IN_TRANSACTION, doing="send_offsets_to_transaction")
        if not offsets:
            return
        if isinstance(group, str):
            group = ConsumerGroupMetadata(group)
        positions: dict[tuple[str, int], OffsetAndMetadata] = {
            partition: position if isinstance(position, OffsetAndMetadata) else OffsetAndMetadata(position)
            for partition, position in offsets.items()
        }
        self._accumulator.close_open_batches()  # the records can travel while the offsets do
        under_way: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sending_offsets.add(under_way)
        try:
            if manager.version < 2:
                await self._calls.add_offsets(group.group_id)
            await self._calls.commit_offsets(positions, group)
        except KafkaError as error:
            # Also after a time-out nobody knows what was written: the transaction can only be aborted.
            if manager.state in (State.IN_TRANSACTION, State.COMMITTING_TRANSACTION):
                manager.offsets_in_doubt()
                raise manager.fail_abortable(error.code, error.message) from error
            raise
        except asyncio.CancelledError:
            manager.offsets_in_doubt()
            manager.fail_abortable(ErrorCode.REQUEST_TIMED_OUT, "sending offsets was cancelled; they may be written")
            raise
        finally:
            self._sending_offsets.discard(under_way)
            under_way.set_result(None)

    async def commit(self) -> None:
        """See Producer.commit_transaction."""
        manager = self.manager
        manager.require(State.IN_TRANSACTION, State.COMMIT_UNKNOWN, doing="commit_transaction")
        before = manager.state
        manager.become(State.COMMITTING_TRANSACTION)
        try:
            await self._accumulator.flush()
            await self._offsets_sent()
        except asyncio.CancelledError:
            if manager.state is State.COMMITTING_TRANSACTION:
                manager.become(before)
            raise
        manager.require(State.COMMITTING_TRANSACTION, doing="commit_transaction")
        if manager.started:
            await self._calls.end(committed=True, asked_before=before is State.COMMIT_UNKNOWN)
        self._finish()

    async def abort(self) -> None:
        """See Producer.abort_transaction."""
        manager = self.manager
        manager.require(State.IN_TRANSACTION, State.ABORTABLE_ERROR, doing="abort_transaction")
        manager.become(State.ABORTING_TRANSACTION)
        try:
            self._give_up_records()
            await self._accumulator.flush()
            await self._sender.landed()  # also what was given up: written later, it would outlive the transaction
            if self._registering is not None:
                await asyncio.shield(self._registering)
            await self._offsets_sent()
            if manager.started and manager.state is State.ABORTING_TRANSACTION:
                await self._calls.end(committed=False)
                manager.started = False  # a second abort goes on from here: the old epoch may be fenced by then
            if manager.epoch_bump_needed and manager.state is State.ABORTING_TRANSACTION:
                await self._calls.init_producer_id(bump_epoch=True)
        except BaseException:
            if manager.state is State.ABORTING_TRANSACTION:
                manager.become(State.ABORTABLE_ERROR)
            raise
        manager.require(State.ABORTING_TRANSACTION, doing="abort_transaction")
        self._finish()

    async def abandon(self) -> None:
        """The producer is closed: abort what is open, as well as that is possible; never raises."""
        try:
            if self.manager.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
                await self.abort()
        except KafkaError as error:
            log.warning("the open transaction could not be aborted, its timeout will: %s", error)
        self._give_up_records()

    async def _offsets_sent(self) -> None:
        """Wait for offsets that another task sends: the decision counts for them as well."""
        while self._sending_offsets:
            await asyncio.wait(set(self._sending_offsets))

    def _finish(self) -> None:
        self.manager.finished()
        self._accumulator.unobserved_failures.clear()  # their transaction was aborted, and that was said

    def _give_up_records(self) -> None:
        error = AbortableError(
            ErrorCode.TRANSACTION_ABORTABLE, "the transaction was aborted before the record was sent"
        )
        for topic in list(self._accumulator.topics.values()):
            self._accumulator.drop_unplaced(topic, error)
        self._sender.abort_unsent(error)

    # -- adding partitions (transaction.version 1)

    def _register(self) -> None:
        if self._registering is None:
            self._registering = asyncio.get_running_loop().create_future()
            self._spawn(self._add_partitions(), "add partitions to the transaction")

    async def _add_partitions(self) -> None:
        manager, done = self.manager, self._registering
        assert done is not None
        try:
            while manager.unregistered and manager.state in (State.IN_TRANSACTION, State.COMMITTING_TRANSACTION):
                await self._calls.add_partitions(set(manager.unregistered))
                self._sender.wake()
        except KafkaError as error:
            if manager.state in (State.IN_TRANSACTION, State.COMMITTING_TRANSACTION):
                manager.fail_abortable(error.code, error.message)
        finally:
            self._registering = None
            if not done.done():
                done.set_result(None)
            self._sender.wake()


class RecordSink(Protocol):
    """What takes a transaction's records: the producer."""

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Take a record at once."""

    async def enqueue(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Take a record, waiting for room."""


class Transaction:
    """One transaction as a block: `async with producer.transaction() as txn`. What is sent with `txn` belongs to it.

    At the end of the block it commits. On an exception, also a cancellation, it aborts and the exception goes on. When
    the commit fails because the transaction can only be aborted, it is aborted and AbortableError raised: run it again.
    """

    def __init__(self, records: RecordSink, transactions: Transactions) -> None:
        self._records = records
        self._transactions = transactions

    async def __aenter__(self) -> Self:
        if self._transactions.manager.state is State.UNINITIALIZED:
            await self._transactions.init()
        self._transactions.manager.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        manager = self._transactions.manager
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
        """Abort because of `error`; if that fails, the coordinator aborts it at its timeout, and `error` notes why."""
        try:
            await self._transactions.abort()
        except KafkaError as failure:
            error.add_note(f"and the transaction could not be aborted: {failure}")
            if self._transactions.manager.state is State.FATAL_ERROR and isinstance(error, KafkaError):
                raise failure from error

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Hand over a record at once, as `Producer.send` does; the commit waits for it and fails with it."""
        return self._records.send(
            topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )

    async def enqueue(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Hand over a record, waiting only while the buffer is full, as `Producer.enqueue` does."""
        return await self._records.enqueue(
            topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )

    async def send_offsets(
        self,
        offsets: Offsets,
        group_metadata: ConsumerGroupMetadata | str,
    ) -> None:
        """Commit consumed offsets (of the next records to read) in this transaction, on behalf of a group."""
        await self._transactions.send_offsets(offsets, group_metadata)

    async def abort(self) -> None:
        """Abort now; the block then ends without committing."""
        await self._transactions.abort()
