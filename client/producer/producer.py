"""`Producer`: sends records to a Kafka cluster.

`Producer` connects, starts and closes its parts: cluster, accumulator, placement, sender and transactions.
`placement.py` chooses each record's partition and batch, `sender.py` sends the batches, and `transaction_manager.py`
contains the rules of transactions.

All calls must be made on the event loop on which `start` was called. In other threads they raise IllegalStateError.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Collection, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Generic, NoReturn, Self, TypeVar, Unpack

from ...protocol.errors import ErrorCode, KafkaError
from ..cancellation import grace_s
from ..closing import Closing, close_after
from ..cluster import Cluster
from ..config import ProducerConfig
from ..errors import (
    ConfigError,
    FatalError,
    IllegalStateError,
    KafkaTimeoutError,
    UnknownPartitionError,
    copy_of,
)
from ..keywords import ProducerKeywords
from ..metadata import ClusterMetadata
from ..serialization.protocols import NotReadyError, SentK, SentV, SerializerLike
from ..threads import OwnThread
from ..validation import check_callback, duration_of, without_none
from ..values import ConsumerAssignment, ConsumerGroupMetadata, GroupAssignment, HeadersLike, Offsets
from .accumulator import RecordAccumulator
from .batch import Delivery, DeliveryCallback, Outcome
from .partition_queue import PartitionQueue
from .placement import RecordPlacement
from .producer_ids import new_producer_id
from .record_values import read_once
from .sender import Sender
from .serialization import RecordSerializer
from .transaction import Transaction
from .transaction_lifecycle import Transactions
from .transaction_state import State

T = TypeVar("T")
log = logging.getLogger(__name__)


class Producer(Generic[SentK, SentV]):
    """Sends records to a Kafka cluster. It is idempotent by default, and transactional with a `transactional_id`.

    ::

        async with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
            metadata = await producer.send("topic", b"value", key=b"key")      # one record, acknowledged

            for value in values:                                               # many records
                await producer.enqueue("topic", value)                         # waits only while the buffer is full
            await producer.flush()                                             # all acknowledged, or raises

        async with Producer(transactional_id="job-1") as producer:
            async with producer.transaction() as txn:                          # commits, or aborts on an exception
                txn.send("topic", b"value")

    Settings have Kafka's names. Give them in a mapping (`{"linger.ms": 20}`) or as keywords (`linger_ms=20`); see
    ProducerConfig.

    In `Producer[K, V]`, K and V are the types of keys and values. They follow from `key_serializer` and
    `value_serializer`; without these, keys and values are bytes. None stands for null. A key or value that cannot be
    serialized raises SerializationError in the call, and nothing is sent.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        /,
        *,
        key_serializer: SerializerLike[SentK] | None = None,
        value_serializer: SerializerLike[SentV] | None = None,
        **settings: Unpack[ProducerKeywords],
    ) -> None:
        serdes = without_none(key_serializer=key_serializer, value_serializer=value_serializer)
        self.config = ProducerConfig.of(config, **settings, **serdes)
        self._serialize = RecordSerializer.of(self.config.key_serializer, self.config.value_serializer)
        self._cluster = Cluster(self.config)
        self._max_block_s = self.config.max_block_ms / 1000
        self._tasks: set[asyncio.Task[None]] = set()
        self._transactions: Transactions | None = None
        self._started = False
        self._open = False
        self._closing = Closing("the producer")
        self._was_closed = False
        self._broken: FatalError | None = None
        """The failure of an internal part after which the producer cannot send any more, or None."""
        self._thread: OwnThread
        self._accumulator: RecordAccumulator
        self._sender: Sender
        self._placement: RecordPlacement

    # -- life

    async def start(self) -> None:
        """Connect to the cluster. An idempotent producer also gets its id. Raises KafkaTimeoutError after
        max.block.ms.
        """
        if self._started or self._was_closed:
            raise IllegalStateError("the producer was already started or closed. It starts only once: make a new one")
        self._started = True
        self._thread = OwnThread("a producer")
        loop = asyncio.get_running_loop()
        self._accumulator = RecordAccumulator(self.config, loop.time, lambda: self._sender.wake())
        self._placement = RecordPlacement(self.config, self._cluster, self._accumulator, self._check_open)
        if self.config.transactional_id is not None or self.config.transactional_group_id is not None:
            self._transactions = Transactions(self.config, self._cluster, self._accumulator, self._spawn)
        manager = self._transactions.manager if self._transactions is not None else None
        self._sender = Sender(self.config, self._cluster, self._accumulator, manager, self._spawn, self._crashed)
        if self._transactions is not None:
            self._transactions.use(self._sender)
            self._placement.transactions = self._transactions
        self._sender.on_ids_exhausted = self._renew_producer_id
        try:
            await self._cluster.start(self._max_block_s)
            self._cluster.on_metadata(self._on_metadata)
            if self.config.enable_idempotence and manager is None:
                producer = await new_producer_id(self._cluster, self._max_block_s)
                self._sender.producer_id, self._sender.producer_epoch = producer
            if self._was_closed:
                raise IllegalStateError("the producer was closed while it was starting")
        except BaseException:
            self._was_closed = True
            await self._cluster.close()
            raise
        self._open = self._placement.open = True

    async def close(self, timeout_s: float | None = None) -> None:
        """Send the remaining records, then disconnect. Wait for a commit under way, and abort an open transaction.

        Raises the first failure of a delivery that the program did not await. Records that are not acknowledged within
        `timeout_s` (default: delivery.timeout.ms) fail. A transaction that has not ended by then is left to its
        coordinator, which aborts it after transaction.timeout.ms. If a cancellation ends the `async with` block,
        closing waits for cancel.grace.ms at most.

        Safe to call twice. A call that comes while another one closes the producer waits for it, and raises the same
        failure. Raises KafkaTimeoutError if that takes longer than `timeout_s`.
        """
        if timeout_s is not None:
            timeout_s = duration_of(timeout_s, "timeout_s")
        self._was_closed = True
        if self._open:
            self._open = self._placement.open = False
            self._accumulator.unobserved_failures.wake()
            await self._closing.run(lambda: self._close(timeout_s))
        elif self._closing.is_under_way:
            await self._closing.wait(timeout_s)
            if self._transactions is None:  # a call that was cancelled has raised no failure
                self._raise_failure(self._accumulator.unobserved_failures)

    async def _close(self, timeout_s: float | None) -> None:
        try:
            if self._transactions is not None:
                await self._transactions.abandon(timeout_s)
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(timeout_s):
                        await self._accumulator.flush()
                await asyncio.sleep(0)  # as in flush()
        finally:
            self._sender.close()
            for task in self._tasks:
                task.cancel()
            unsent = KafkaTimeoutError(
                ErrorCode.REQUEST_TIMED_OUT, "the producer was closed before the record was sent"
            )
            self._placement.fail_unplaced(unsent)
            self._sender.abort_unsent(unsent)
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._placement.close()
            await self._cluster.close()
        if self._transactions is None:
            self._raise_failure(self._accumulator.unobserved_failures)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await close_after(error, self.close(grace_s(self.config, error)))

    # -- records

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
        """Hand over a record without waiting, and return its Delivery. To get the RecordMetadata, await the Delivery.
        `flush` raises the failures of deliveries that were not awaited.

        Without `partition` the hash of the key chooses the partition. `timestamp_ms` is in milliseconds since the epoch
        (default: now). `headers` are (name, bytes or None) pairs. Records are sent only while the event loop runs. A
        program that sends many records should use `enqueue`, which waits while the buffer is full.

        `on_delivery(error, metadata)` is called on the event loop when the record is acknowledged or has failed.
        `flush` does not raise a failure that the callback has received.

        Raises BufferFullError if the buffer is full, and RecordTooLargeError if the record is too large. Raises
        UnknownPartitionError for a partition that the client does not know. As the partition may be new, `enqueue`
        refreshes the metadata first. Raises IllegalStateError if the producer is transactional and no transaction is
        open. Raises SerializationError if a serializer fails or, without a serializer, TypeError for values that are
        not bytes. Raises TypeError for a coroutine function as callback.
        """
        if not self._open:
            self._check_open()
        if on_delivery is not None:
            check_callback(on_delivery, "on_delivery")
        if self._serialize is not None:
            key, value = self._serialize.at_once(topic, key, value)
        delivery = self._placement.append(topic, value, key, partition, timestamp_ms, headers)
        if delivery is None:
            delivery = self._placement.hold(topic, value, key, partition, timestamp_ms, headers)
        if on_delivery is not None:
            delivery.report_to(on_delivery)
        return delivery

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
        """Hand over a record without waiting for its delivery. Use this method to send many records.

        The arguments are those of `send`. The method waits while the buffer is full or the topic's metadata is unknown.
        It also waits for a serializer that has to ask a schema registry first. Raises KafkaTimeoutError if the buffer
        stays full, or the topic's metadata stays unknown, for max.block.ms. Raises UnknownPartitionError if the topic
        does not have the partition.
        """
        if not self._open:
            self._check_open()
        if on_delivery is not None:
            check_callback(on_delivery, "on_delivery")
        if type(headers) is not tuple and type(headers) is not list:
            headers = read_once(headers)
        if self._serialize is not None:
            try:
                key, value = self._serialize(topic, key, value)
            except NotReadyError:
                key, value = await self._in_same_transaction(self._serialize.waiting(topic, key, value))
        if self._accumulator.batch_filled:
            # Without this, a program that never waits would keep the sender from running. It comes before the append,
            # because a cancelled call must not have handed over its record. Other tasks must wait, too: their records
            # come later.
            await self._in_same_transaction(asyncio.sleep(0))
            self._accumulator.batch_filled = False
        try:
            delivery = self._placement.append(topic, value, key, partition, timestamp_ms, headers)
        except UnknownPartitionError:
            delivery = None  # partitions may have been added since the last refresh
        if delivery is None:
            delivery = await self._placement.append_waiting(topic, value, key, partition, timestamp_ms, headers)
        if on_delivery is not None:
            delivery.report_to(on_delivery)
        return delivery

    async def flush(self) -> None:
        """Send all buffered records now, and wait until they are acknowledged.

        Raises the first failure of a delivery that the program did not await. This can be the failure of a record that
        this call waits for, or of an earlier record if no flush has raised it. If several tasks flush at the same time,
        each of them raises the failure. Within a transaction, raises the AbortableError that results from the failure.
        When `flush` returns, the `on_delivery` callbacks of these records have run.
        """
        self._check_open()
        outcomes = await self._accumulator.flush()
        await asyncio.sleep(0)  # the callbacks of the batches that the last response completed run now
        if self._transactions is not None and self._transactions.manager.error is not None:
            self._transactions.manager.require(State.IN_TRANSACTION, doing="sending")
        self._raise_failure(outcomes)

    async def failed(self) -> NoReturn:
        """Wait until a record fails, and raise its failure.

        A program that sends records for a long time can await this in a task of its own, and so learn of a failure
        without a flush. Raises the first failure of a delivery that the program did not await. A later flush does not
        raise this failure again. Raises IllegalStateError when the producer is closed.
        """
        while True:
            self._check_open()
            self._raise_failure(self._accumulator.unobserved_failures)
            await self._accumulator.unobserved_failures.wait()

    async def partitions_for(self, topic: str) -> int:
        """Return the number of partitions of a topic. Raises KafkaTimeoutError after max.block.ms."""
        self._check_open()
        known = await self._cluster.topic(topic, self._max_block_s)
        return len(known.partitions)

    # -- transactions

    @property
    def transactional_id(self) -> str | None:
        """The configured transactional id, else the id that the broker has assigned, or None if it has not assigned one
        yet.
        """
        transactions = self._transactions
        return self.config.transactional_id if transactions is None else transactions.manager.transactional_id

    @property
    def is_open(self) -> bool:
        """Whether the producer has been started, and `close` has not been called."""
        return self._open

    @property
    def ready(self) -> bool:
        """Whether `begin_transaction` is possible now."""
        return self._open and self._transactions is not None and self._transactions.manager.state is State.READY

    @property
    def group_aware(self) -> bool:
        """Whether the last `init_transactions` claimed the group's partitions at the broker (transaction extension).

        It becomes False again when the producer finds that the broker was downgraded and no longer has the extension.
        """
        return self._transactions is not None and self._transactions.manager.group_aware

    async def init_transactions(
        self, assignment: GroupAssignment | None = None, *, group_id: str | None = None
    ) -> None:
        """Fence older producers with this transactional.id, and finish their open transactions. Call it before the
        first transaction.

        With an `assignment`, from `consumer.group_assignment()`, this method also fences every producer that works for
        the group on the same partitions with the same or an older generation. Call it after each rebalance, and read
        the committed offsets only afterwards. It may be called again at any time between transactions, and after
        ProducerFencedError or ConcurrentProducerCommitError. The group is that of the assignment, else `group_id`, else
        transactional.group.id. Without a transactional.id the broker assigns an id.

        If the broker does not support this fencing by partitions, the group coordinator fences by member and generation
        instead (KIP-447) or, with consumer.group.aware.transaction=require, UnsupportedVersionError is raised. Raises
        ConfigError if the fallback needs a member id or a transactional.id that is missing. Raises
        IllegalGenerationError for an outdated assignment; initialise the producer again before you use it. Raises the
        failure of a record that was sent before the producer became transactional, if the program did not await its
        delivery.
        """
        if self._transactions is None and (assignment is not None or group_id is not None):
            self._become_transactional()
        await self._transactional("init_transactions").init(assignment, group_id)

    async def begin_transaction(self, partitions: Collection[tuple[str, int]] | None = None) -> None:
        """Begin a transaction. All records that are sent before its commit or abort belong to the transaction.

        With `partitions`, the transaction may write records to these partitions only; offsets are not restricted. If
        the cluster has transaction.version 1 or the transaction extension, the partitions are registered with the
        coordinator before this call returns. Records without a key go to one of these partitions, and a send to another
        partition raises PartitionNotRegisteredError.
        """
        await self._transactional("begin_transaction").begin(partitions)

    async def send_offsets(
        self,
        offsets: Offsets,
        group_metadata: ConsumerGroupMetadata | ConsumerAssignment | str | None = None,
    ) -> None:
        """Commit consumed offsets in the transaction, on behalf of a group. Each offset is the offset of the next
        record to read.

        Without `group_metadata`, the group and assignment are those of the last `init_transactions`. If it was given
        neither, the group is transactional.group.id. A plain group id fences no other producer and is deprecated.
        """
        await self._transactional("send_offsets").send_offsets(offsets, group_metadata)

    send_offsets_to_transaction = send_offsets

    async def commit_transaction(self) -> None:
        """Send the remaining records of the transaction, then commit it.

        Raises AbortableError if the transaction can only be aborted, ProducerFencedError if another producer has taken
        over, and CommitUnknownError if the commit was requested and its result is unknown.
        """
        await self._transactional("commit_transaction").commit()

    async def abort_transaction(self) -> None:
        """Abort the transaction: read_committed consumers see none of its records. The producer stays usable.

        To abort in a block of `transaction()`, call the block's `abort` instead. If this method is called, the block
        ends with AbortableError, because another task may have made the call.
        """
        await self._transactional("abort_transaction").abort()

    def transaction(self, partitions: Collection[tuple[str, int]] | None = None) -> Transaction[SentK, SentV]:
        """Return a context manager that begins a transaction, commits it at the end of the block, and aborts it on an
        exception.

        A producer that is not initialised yet is initialised first, unless `init_transactions` was called with an
        assignment or a group. `partitions` has the same meaning as in `begin_transaction`.
        """
        return Transaction(self, self._transactional("transaction"), partitions)

    # -- inside

    async def _in_same_transaction(self, wait: Awaitable[T]) -> T:
        """Await `wait` for a record that has not been handed over yet, and return the result. Raises IllegalStateError
        if the producer has been closed meanwhile, or if another transaction has begun.
        """
        manager = self._transactions.manager if self._transactions is not None else None
        transaction = manager.current if manager is not None else None
        result = await wait
        if not self._open:
            self._check_open()
        if manager is not None and transaction is not None:
            manager.check_same(transaction)
        return result

    def _become_transactional(self) -> None:
        """Make a producer without a transactional.id transactional. The broker will assign the id."""
        self._check_open()
        if not self.config.enable_idempotence:
            raise ConfigError("enable.idempotence", "false is not possible with transactions: leave the setting out")
        if self._accumulator.incomplete or any(one.unplaced for one in self._accumulator.topics.values()):
            raise IllegalStateError("init_transactions is not possible while records are on their way: flush() first")
        self._raise_failure(self._accumulator.unobserved_failures)  # the initialisation would forget them
        self._transactions = Transactions(self.config, self._cluster, self._accumulator, self._spawn)
        self._sender.use_transaction(self._transactions.manager)
        self._transactions.use(self._sender)
        self._placement.transactions = self._transactions

    def _transactional(self, doing: str) -> Transactions:
        self._check_open()
        if self._transactions is None:
            raise IllegalStateError(f"{doing} needs a producer with a transactional.id: set it")
        return self._transactions

    def _check_open(self) -> None:
        if self._open:
            self._thread.check()
        if self._broken is not None and self._open:
            raise copy_of(self._broken) from self._broken
        if not self._open:
            what = "is closed" if self._was_closed else "is not started: use it as a context manager, or call start()"
            raise IllegalStateError(f"the producer {what}")

    def _on_metadata(self, metadata: ClusterMetadata) -> None:
        self._placement.on_metadata(metadata)
        self._sender.wake()

    def _raise_failure(self, outcomes: Iterable[Outcome]) -> None:
        failure = self._accumulator.take_failure(outcomes)
        if failure is not None:
            raise copy_of(failure) from failure

    def _renew_producer_id(self, queue: PartitionQueue) -> None:
        name = f"producer id for {queue.topic}-{queue.partition}"

        async def renew() -> None:
            try:
                queue.use_producer(*await new_producer_id(self._cluster, self._max_block_s))
            except KafkaError as error:
                log.warning("%s: %s", name, error)
            self._sender.wake()

        if all(task.get_name() != name for task in self._tasks):
            self._spawn(renew(), name)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        failure = None if task.cancelled() else task.exception()
        if isinstance(failure, Exception) and not isinstance(failure, KafkaError):
            self._crashed(f"the task {task.get_name()!r}", failure)

    def _crashed(self, what: str, cause: Exception) -> None:
        """Fail all pending records and refuse new ones, because no record can be sent without the failed part."""
        if self._broken is not None:
            return
        log.error("%s of a producer failed: close the producer and make a new one", what, exc_info=cause)
        self._broken = FatalError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what} of the producer failed: {cause!r}")
        self._broken.__cause__ = cause
        self._placement.open = False
        if self._transactions is not None:
            self._transactions.manager.crashed(self._broken)
        self._placement.fail_unplaced(self._broken)
        self._sender.crashed(self._broken)
        self._accumulator.unobserved_failures.wake()
