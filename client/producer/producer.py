"""`Producer`: what a program sends records with.

Owns the parts (cluster, accumulator, sender, transaction) and their life; takes records, chooses their partition and
gives a `Delivery` for each. How records travel is `sender.py`'s business, what a transaction is
`transaction_manager.py`'s.

All calls belong to the event loop that `start` was called on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Collection, Coroutine, Mapping
from types import TracebackType
from typing import Any, Self

from ...protocol.batch_builder import record_size
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.init_producer_id import InitProducerIdRequest
from ...protocol.records import Headers
from ..cluster import Cluster
from ..config import INT32_MAX, ProducerConfig
from ..errors import (
    BufferFullError,
    ConfigError,
    IllegalStateError,
    KafkaTimeoutError,
    RetriableError,
    error_for,
)
from ..metadata import ClusterMetadata
from ..values import ConsumerAssignment, ConsumerGroupMetadata, GroupAssignment, Offsets
from .accumulator import RecordAccumulator, TopicQueues, UnplacedRecord
from .batch import Delivery, ProducerBatch
from .partition_queue import PartitionQueue
from .partitioner import partition_for_key
from .sender import Sender
from .transaction import Transaction
from .transaction_state import State
from .transaction_steps import Transactions

log = logging.getLogger(__name__)


class Producer:
    """Sends records to a Kafka cluster: idempotent unless told otherwise, transactional with a `transactional_id`.

    ::

        async with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
            metadata = await producer.send("topic", b"value", key=b"key")      # one record, acknowledged

            for value in values:                                               # many records
                await producer.enqueue("topic", value)                         # waits only while the buffer is full
            await producer.flush()                                             # all acknowledged, or raises

        async with Producer(transactional_id="job-1") as producer:
            async with producer.transaction() as txn:                          # commits, or aborts on an exception
                txn.send("topic", b"value")

    Settings have Kafka's names: in a mapping (`{"linger.ms": 20}`) or as keywords (`linger_ms=20`); see ProducerConfig.
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **settings: object) -> None:
        self.config = ProducerConfig.of(config, **settings)
        self._cluster = Cluster(self.config)
        self._max_block_s = self.config.max_block_ms / 1000
        self._partitioner = self.config.partitioner_class
        self._ignore_keys = self.config.partitioner_ignore_keys
        self._tasks: set[asyncio.Task[None]] = set()
        self._placing: dict[str, asyncio.Task[KafkaError | None]] = {}
        self._transactions: Transactions | None = None
        self._open = False
        self._was_closed = False
        self._accumulator: RecordAccumulator
        self._sender: Sender
        self._topics: dict[str, TopicQueues] = {}

    # -- life

    async def start(self) -> None:
        """Connect, and get a producer id if idempotent; raises KafkaTimeoutError after max.block.ms."""
        if self._open or self._was_closed:
            raise IllegalStateError("a producer is started once: make a new one")
        loop = asyncio.get_running_loop()
        self._accumulator = RecordAccumulator(self.config, loop.time, lambda: self._sender.wake())
        self._topics = self._accumulator.topics
        if self.config.transactional_id is not None or self.config.transactional_group_id is not None:
            self._transactions = Transactions(self.config, self._cluster, self._accumulator, self._spawn)
        manager = self._transactions.manager if self._transactions is not None else None
        self._sender = Sender(self.config, self._cluster, self._accumulator, manager, self._spawn)
        if self._transactions is not None:
            self._transactions.use(self._sender)
        self._sender.on_ids_exhausted = self._renew_producer_id
        try:
            await self._cluster.start(self._max_block_s)
            self._cluster.on_metadata(self._on_metadata)
            if self.config.enable_idempotence and manager is None:
                producer = await self._new_producer_id()
                self._sender.producer_id, self._sender.producer_epoch = producer
        except BaseException:
            self._was_closed = True
            await self._cluster.close()
            raise
        self._open = True

    async def close(self, timeout_s: float | None = None) -> None:
        """Send what is left, then disconnect; an open transaction is aborted.

        Raises the first failure of a delivery that nobody awaited. What is not acknowledged within `timeout_s`
        (default: delivery.timeout.ms) fails. May be called twice.
        """
        if not self._open:
            self._was_closed = True
            return
        self._open = False
        self._was_closed = True
        try:
            if self._transactions is not None:
                await self._transactions.abandon()
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(timeout_s):
                        await self._accumulator.flush()
        finally:
            self._sender.close()
            for task in [*self._tasks, *self._placing.values()]:
                task.cancel()
            self._fail_unsent()
            await asyncio.gather(*self._tasks, *self._placing.values(), return_exceptions=True)
            await self._cluster.close()
        if self._transactions is None:
            self._raise_unobserved()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except KafkaError as failure:
            if error is None:
                raise
            log.error("while closing: %s", failure)  # the exception under way tells more

    # -- records

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
        """Hand over a record at once; await what is returned for its RecordMetadata, or let `flush` tell of failures.

        Without `partition` the key's hash chooses it. `timestamp_ms` is milliseconds since the epoch, by default now.
        `headers` are (name, bytes or None) pairs. The record leaves when the event loop runs: a loop that sends many
        should use `enqueue`, which waits while the buffer is full. Raises BufferFullError where this one would have to
        wait, RecordTooLargeError, IllegalStateError outside of a transaction, TypeError for what is not bytes.
        """
        delivery = self._append(topic, value, key, partition, timestamp_ms, headers)
        if delivery is None:
            delivery = self._hold(topic, value, key, partition, timestamp_ms, headers)
        return delivery

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
        """Hand over a record, waiting only while the buffer is full: the way to send many.

        Arguments are those of `send`. Raises KafkaTimeoutError when there is no room, or no metadata of the topic,
        within max.block.ms.
        """
        delivery = self._append(topic, value, key, partition, timestamp_ms, headers)
        if delivery is None:
            delivery = await self._append_waiting(topic, value, key, partition, timestamp_ms, headers)
        elif self._accumulator.batch_filled:
            self._accumulator.batch_filled = False
            await asyncio.sleep(0)  # a program that never waits would never let the batches go
        return delivery

    async def flush(self) -> None:
        """Send everything now and wait until it is acknowledged.

        Raises the first failure, since the last flush, of a delivery that nobody awaited; within a transaction the
        AbortableError that such a failure leads to.
        """
        self._check_open()
        await self._accumulator.flush()
        if self._transactions is not None and self._transactions.manager.error is not None:
            self._transactions.manager.require(State.IN_TRANSACTION, doing="sending")
        self._raise_unobserved()

    async def partitions_for(self, topic: str) -> int:
        """Return how many partitions a topic has; raises KafkaTimeoutError after max.block.ms."""
        self._check_open()
        known = await self._cluster.topic(topic, self._max_block_s)
        return len(known.partitions)

    # -- transactions

    @property
    def transactional_id(self) -> str | None:
        """The transactional id: the one that is set, or that the broker assigned; None before it has."""
        transactions = self._transactions
        return self.config.transactional_id if transactions is None else transactions.manager.transactional_id

    @property
    def ready(self) -> bool:
        """Whether `begin_transaction` is possible now."""
        return self._open and self._transactions is not None and self._transactions.manager.state is State.READY

    @property
    def group_aware(self) -> bool:
        """Whether the last `init_transactions` claimed the group's partitions at the broker (transaction extension)."""
        return self._transactions is not None and self._transactions.manager.group_aware

    async def init_transactions(
        self, assignment: GroupAssignment | None = None, *, group_id: str | None = None
    ) -> None:
        """Fence older producers of this transactional.id and finish what they left open; before the first transaction.

        With an `assignment`, from `consumer.group_assignment()`, every producer is fenced that works for the group on
        the same partitions since the same or an older generation: call it after each rebalance, and only then read the
        committed offsets. It may be called again at any time between transactions, and after ProducerFencedError or
        ConcurrentProducerCommitError. The group is the assignment's, else `group_id`, else transactional.group.id;
        without a transactional.id the broker assigns one.

        Where the broker does not have the feature, the group coordinator fences by member and generation (KIP-447),
        unless consumer.group.aware.transaction=require: then UnsupportedVersionError is raised. Raises ConfigError
        where that needs a member id or a transactional.id that is not there, IllegalGenerationError for an assignment
        that is out of date; then the producer has to be initialised before it is used.
        """
        if self._transactions is None and (assignment is not None or group_id is not None):
            self._become_transactional()
        await self._transactional("init_transactions").init(assignment, group_id)

    async def begin_transaction(self, partitions: Collection[tuple[str, int]] | None = None) -> None:
        """Begin a transaction: what is sent from now on belongs to it.

        With `partitions` it may write to these only, apart from offsets: they are registered at once, and a send to
        another one raises PartitionNotRegisteredError. Records without a key then go to one of them.
        """
        await self._transactional("begin_transaction").begin(partitions)

    async def send_offsets(
        self,
        offsets: Offsets,
        group_metadata: ConsumerGroupMetadata | ConsumerAssignment | str | None = None,
    ) -> None:
        """Commit consumed offsets (of the next records to read) in the transaction, on behalf of a group.

        Without `group_metadata` it is the group, and assignment, of the last `init_transactions`, or
        transactional.group.id. A group id alone, a string, fences nothing and is deprecated.
        """
        await self._transactional("send_offsets").send_offsets(offsets, group_metadata)

    send_offsets_to_transaction = send_offsets

    async def commit_transaction(self) -> None:
        """Send what is left, then commit.

        Raises AbortableError if the transaction can only be aborted, ProducerFencedError if another producer has taken
        over, CommitUnknownError if the decision was sent and its result cannot be learned now.
        """
        await self._transactional("commit_transaction").commit()

    async def abort_transaction(self) -> None:
        """Abort: nothing of the transaction will be read at read_committed. The producer is usable afterwards."""
        await self._transactional("abort_transaction").abort()

    def transaction(self, partitions: Collection[tuple[str, int]] | None = None) -> Transaction:
        """Return a context manager: begins a transaction, commits it at the end of the block, aborts on an exception.

        The first one initialises the producer if `init_transactions` was not called. `partitions` as in
        `begin_transaction`.
        """
        return Transaction(self, self._transactional("transaction"), partitions)

    # -- inside

    def _become_transactional(self) -> None:
        """The group makes a producer transactional that has no transactional.id: the broker will assign one."""
        self._check_open()
        if not self.config.enable_idempotence:
            raise ConfigError("enable.idempotence", "false cannot be with transactions: leave it out")
        if self._accumulator.incomplete or any(queues.unplaced for queues in self._topics.values()):
            raise IllegalStateError("init_transactions is not possible while records are on their way: flush() first")
        self._transactions = Transactions(self.config, self._cluster, self._accumulator, self._spawn)
        self._sender.use_transaction(self._transactions.manager)
        self._transactions.use(self._sender)

    def _transactional(self, doing: str) -> Transactions:
        self._check_open()
        if self._transactions is None:
            raise IllegalStateError(f"{doing} needs a producer with a transactional.id")
        return self._transactions

    def _check_open(self) -> None:
        if not self._open:
            what = "is closed" if self._was_closed else "is not started: use `async with`, or await start()"
            raise IllegalStateError(f"the producer {what}")

    def _append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
        has_waited: bool = False,
    ) -> Delivery | None:
        """Add a record to its batch; None where that has to wait, for memory or for the topic's metadata."""
        if not self._open:
            self._check_open()
        if self._transactions is not None:
            self._transactions.check_send(topic)
        queues = self._topics.get(topic)
        if queues is None or not queues.queues or queues.unplaced is not None:
            return None
        if timestamp_ms is None:
            timestamp_ms = int(time.time() * 1000)
        elif timestamp_ms < 0:
            raise ValueError(f"timestamp_ms {timestamp_ms} is before 1970")
        if headers and isinstance(headers, Mapping):
            headers = list(headers.items())
        try:
            if partition is None and key is None and self._partitioner is None:
                partition = queues.sticky.partition
            else:
                partition = self._choose(queues, key, partition)
            return self._accumulator.append(queues, partition, timestamp_ms, key, value, headers, has_waited)
        except (TypeError, AttributeError, ValueError) as error:
            raise _wrong_type(key, value, headers) or error from None

    def _choose(self, topic: TopicQueues, key: bytes | None, partition: int | None) -> int:
        count = len(topic.queues)
        if partition is None:
            if self._partitioner is not None:
                partition = self._partitioner(topic.name, key, count)
            elif key is None or self._ignore_keys:
                return topic.sticky.partition
            else:
                return partition_for_key(key, count)
        if not 0 <= partition < count:
            self._cluster.request_refresh()
            raise error_for(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic.name!r} has partitions 0 to {count - 1} as far as is known, not {partition}",
            )
        if self._transactions is not None and self._transactions.manager.allowed is not None:
            self._transactions.manager.check_allowed(topic.name, partition)
        return partition

    def _hold(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
    ) -> Delivery:
        queues = self._accumulator.topic(topic)
        delivery = None
        if not queues.queues or queues.unplaced is not None:
            if (wrong := _wrong_type(key, value, headers)) is not None:
                raise wrong
            if timestamp_ms is None:
                timestamp_ms = int(time.time() * 1000)
            pairs = list(headers.items()) if isinstance(headers, Mapping) else headers
            delivery = self._accumulator.hold(queues, UnplacedRecord(partition, timestamp_ms, key, value, pairs))
        if delivery is None:
            raise BufferFullError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                f"buffer.memory = {self.config.buffer_memory} bytes wait to be acknowledged, there is no room for more",
            )
        self._learn(queues)
        return delivery

    async def _append_waiting(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
    ) -> Delivery:
        try:
            async with asyncio.timeout(self._max_block_s):
                queues = self._accumulator.topic(topic)
                while not queues.queues or queues.unplaced is not None:
                    if (unknown := await asyncio.shield(self._learn(queues))) is not None:
                        raise type(unknown)(unknown.code, unknown.message) from unknown
                delivery = self._append(topic, value, key, partition, timestamp_ms, headers)
                while delivery is None:
                    await self._accumulator.room(record_size(key, value, headers))
                    delivery = self._append(topic, value, key, partition, timestamp_ms, headers, has_waited=True)
                return delivery
        except TimeoutError as late:
            if isinstance(late, KafkaError):
                raise
            raise KafkaTimeoutError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"no room for the record within max.block.ms = {self.config.max_block_ms}: buffer.memory = "
                f"{self.config.buffer_memory} bytes wait to be acknowledged",
            ) from None

    def _learn(self, queues: TopicQueues) -> asyncio.Task[KafkaError | None]:
        """Return the task that learns of a topic's partitions and then places the records that wait for that."""
        task = self._placing.get(queues.name)
        if task is None:
            task = asyncio.create_task(self._place(queues), name=f"metadata of {queues.name}")
            self._placing[queues.name] = task
            task.add_done_callback(lambda _: self._placing.pop(queues.name, None))
        return task

    async def _place(self, queues: TopicQueues) -> KafkaError | None:
        try:
            topic = await self._cluster.topic(queues.name, self._max_block_s)
        except KafkaError as error:
            self._accumulator.drop_unplaced(queues, error)
            if self._transactions is not None:
                self._transactions.manager.batch_failed(error.code, error.message)
            return error
        self._accumulator.use_topic(topic)
        failure = self._accumulator.place(queues, self._choose)
        if failure is not None and self._transactions is not None:
            self._transactions.manager.batch_failed(failure.code, failure.message)
        return None

    def _on_metadata(self, metadata: ClusterMetadata) -> None:
        for name in list(self._topics):
            known = metadata.topics.get(name)
            if known is not None and known.partitions and self._topics[name].queues:
                self._accumulator.use_topic(known)
        self._cluster.untrack(self._accumulator.drop_idle(self.config.metadata_max_idle_ms / 1000))
        self._sender.wake()

    def _fail_unsent(self) -> None:
        """Nothing will be sent any more: whoever waits for a delivery is told so."""
        error = KafkaTimeoutError(ErrorCode.REQUEST_TIMED_OUT, "the producer was closed before the record was sent")
        for queues in list(self._topics.values()):
            self._accumulator.drop_unplaced(queues, error)
        self._sender.abort_unsent(error)

    def _raise_unobserved(self) -> None:
        failures, self._accumulator.unobserved_failures = self._accumulator.unobserved_failures, []
        for outcome in failures:
            records = outcome.record_count if isinstance(outcome, ProducerBatch) else 1
            if outcome.error is not None and outcome.observed < records:
                raise type(outcome.error)(outcome.error.code, outcome.error.message) from outcome.error

    async def _new_producer_id(self) -> tuple[int, int]:
        deadline = asyncio.get_running_loop().time() + self._max_block_s
        attempt = 0
        while True:
            try:
                answer = await self._cluster.call(self._cluster.any_node(), InitProducerIdRequest(None, INT32_MAX))
                if not answer.error_code:
                    return answer.producer_id, answer.producer_epoch
                failure = error_for(answer.error_code, "no producer id for an idempotent producer")
            except RetriableError as error:
                failure = error
            if not failure.retriable or asyncio.get_running_loop().time() >= deadline:
                raise failure
            await asyncio.sleep(self._cluster.retry_backoff(attempt))
            attempt += 1

    def _renew_producer_id(self, queue: PartitionQueue) -> None:
        name = f"producer id for {queue.topic}-{queue.partition}"

        async def renew() -> None:
            try:
                queue.use_producer(*await self._new_producer_id())
            except KafkaError as error:
                log.warning("%s: %s", name, error)
            self._sender.wake()

        if all(task.get_name() != name for task in self._tasks):
            self._spawn(renew(), name)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _wrong_type(key: object, value: object, headers: object) -> TypeError | None:
    """What is wrong with the types of a record, in words that help."""
    for name, given in (("key", key), ("value", value)):
        if given is not None and not isinstance(given, bytes | bytearray | memoryview):
            hint = f"; encode it: {name}.encode()" if isinstance(given, str) else ""
            return TypeError(f"{name} must be bytes or None, not {type(given).__name__}{hint}")
    pairs = list(headers.items()) if isinstance(headers, Mapping) else headers
    try:
        good = all(isinstance(name, str) and (content is None or isinstance(content, bytes)) for name, content in pairs)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        good = False
    return None if good else TypeError("headers must be (str, bytes or None) pairs")
