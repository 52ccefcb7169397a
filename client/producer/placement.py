"""`RecordPlacement`: chooses a record's partition and puts the record into a batch, or makes it wait.

It stands between `send` or `enqueue` and the accumulator. It checks the record (with `record_values.py`), chooses its
partition, and looks up topics that are not known yet. Records of an unknown topic are held in order and placed later.
If the buffer is full, `enqueue` waits and `send` raises BufferFullError.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from ...protocol.batch_builder import record_size
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.records import Headers
from ..cluster import Cluster
from ..config import ProducerConfig
from ..errors import BufferFullError, FatalError, KafkaTimeoutError, RetriableError, UnknownPartitionError, copy_of
from ..metadata import ClusterMetadata
from ..shared_task import BEGIN_AGAIN_S, SharedTaskCancelledError, outcome_of, was_interrupted
from ..validation import MAX_INT32, topic_of, whole_number
from ..values import HeadersLike
from .accumulator import RecordAccumulator, TopicQueues
from .batch import Delivery
from .partitioner import partition_for_key
from .record_values import are_plain_headers, bytes_of, headers_of, record_of, timestamp_of
from .transaction_lifecycle import Transactions
from .transaction_manager import BegunTransaction
from .transaction_state import State

log = logging.getLogger(__name__)


class _LookUp(NamedTuple):
    """The look-up of a topic, and the transaction that began the look-up, or None without transactions."""

    task: asyncio.Task[KafkaError | None]
    transaction: BegunTransaction | None


class RecordPlacement:
    """Chooses each record's partition. While `open` is False, `refuse` raises the error that says why nothing can be
    sent.
    """

    def __init__(
        self, config: ProducerConfig, cluster: Cluster, accumulator: RecordAccumulator, refuse: Callable[[], None]
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._accumulator = accumulator
        self._refuse = refuse
        self._max_block_s = config.max_block_ms / 1000
        self._partitioner = config.partitioner_class
        self._ignore_keys = config.partitioner_ignore_keys
        self._learning: dict[str, _LookUp] = {}
        self.open = False
        self.transactions: Transactions | None = None
        """The transactions whose rules the records follow, if the producer is transactional."""

    def append(
        self,
        topic: str,
        value: object,
        key: object,
        partition: int | None,
        timestamp_ms: int | None,
        headers: HeadersLike,
        has_waited: bool = False,
    ) -> Delivery | None:
        """Add a record to its batch. Return None if the record has to wait for memory or for the topic's metadata.

        Raises TypeError for a key or value that is not bytes, and UnknownPartitionError for a partition that the client
        does not know.
        """
        if not self.open:
            self._refuse()
        if self.transactions is not None:
            self.transactions.check_send(topic)
        queues = self._accumulator.topics.get(topic)
        if queues is None or not queues.queues or queues.unplaced is not None:
            return None
        if value is not None and type(value) is not bytes:
            value = bytes_of("value", value)
        if key is not None and type(key) is not bytes:
            key = bytes_of("key", key)
        timestamp = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_of(timestamp_ms)
        plain: Headers = ()
        if headers:
            plain = headers if are_plain_headers(headers) else headers_of(headers)
        if partition is None and key is None and self._partitioner is None:
            partition = queues.sticky.partition
        else:
            partition = self._choose(queues, key, partition)
        return self._accumulator.append(queues, partition, timestamp, key, value, plain, has_waited)

    def _choose(self, topic: TopicQueues, key: bytes | None, partition: int | None) -> int:
        count = topic.count
        if partition is None:
            if self._partitioner is not None:
                partition = self._chosen_by_program(topic.name, key, count)
            elif key is None or self._ignore_keys:
                return topic.sticky.partition
            else:
                return partition_for_key(key, count)
        elif type(partition) is not int:
            partition = whole_number(partition, "partition", MAX_INT32)
        if not 0 <= partition < count:
            whole_number(partition, "partition", MAX_INT32)
            self._cluster.request_refresh()
            raise UnknownPartitionError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic.name!r} has no partition {partition}: its known partitions are 0 to {count - 1}",
            )
        if self.transactions is not None and self.transactions.manager.allowed is not None:
            self.transactions.manager.check_allowed(topic.name, partition)
        return partition

    def _chosen_by_program(self, topic: str, key: bytes | None, count: int) -> int:
        assert self._partitioner is not None
        partition = self._partitioner(topic, key, count)
        if type(partition) is not int:
            return whole_number(partition, "the result of partitioner.class", MAX_INT32)
        return partition

    def hold(
        self,
        topic: str,
        value: object,
        key: object,
        partition: int | None,
        timestamp_ms: int | None,
        headers: HeadersLike,
    ) -> Delivery:
        """Keep a record, without waiting, until the topic is known. Raises BufferFullError if the buffer is full."""
        known = self._accumulator.topics.get(topic)
        if known is not None and known.queues and known.unplaced is None:
            raise self._buffer_full()
        record = record_of(value, key, partition, timestamp_ms, headers)
        queues = self._accumulator.topic(topic_of(topic))
        delivery = self._accumulator.hold(queues, record)
        if delivery is None:
            raise self._buffer_full()
        self._learn(topic)
        return delivery

    def _buffer_full(self) -> BufferFullError:
        return BufferFullError(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            f"the buffer is full: unacknowledged records fill buffer.memory = {self._config.buffer_memory} bytes",
        )

    async def append_waiting(
        self,
        topic: str,
        value: object,
        key: object,
        partition: int | None,
        timestamp_ms: int | None,
        headers: HeadersLike,
    ) -> Delivery:
        """Add a record, waiting for the topic's metadata and for memory, for max.block.ms at most.

        If the client does not know the record's partition, refresh the metadata once, because the partition may be new.

        Raises UnknownTopicError or KafkaTimeoutError if the metadata does not arrive in time, and KafkaTimeoutError if
        no memory becomes free in time. Raises UnknownPartitionError if the topic has no such partition. Raises
        IllegalStateError if the record's transaction ends meanwhile, so that the record does not go into the next
        transaction.
        """
        manager = self.transactions.manager if self.transactions is not None else None
        transaction = manager.current if manager is not None else None
        record = record_of(value, key, partition, timestamp_ms, headers)
        topic = topic_of(topic)

        def check() -> None:
            if manager is not None and transaction is not None:
                manager.check_same(transaction)

        def add(has_waited: bool = False) -> Delivery | None:
            check()
            return self.append(
                topic, record.value, record.key, record.partition, record.timestamp, record.headers, has_waited
            )

        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._max_block_s

        async def know_topic() -> None:
            # The look-up task bounds its own time, and its error names the cause. During a look-up, an idle topic may
            # be forgotten and added again.
            while not (queues := self._accumulator.topic(topic)).queues or queues.unplaced is not None:
                try:
                    unknown = await outcome_of(self._learn(topic))
                except SharedTaskCancelledError:  # by another transaction, by other code, or by closing the producer
                    if not self.open:
                        raise
                    check()
                    if loop.time() >= deadline:
                        raise KafkaTimeoutError(
                            ErrorCode.REQUEST_TIMED_OUT,
                            f"topic {topic!r} is still unknown after max.block.ms = {self._config.max_block_ms}",
                        ) from None
                    continue
                if unknown is not None:
                    if manager is not None and manager.current is transaction and manager.state is State.IN_TRANSACTION:
                        self._failed(unknown)  # a commit does not wait for a record that was not handed over
                    raise copy_of(unknown) from unknown

        await know_topic()
        try:
            delivery = add()
        except UnknownPartitionError:
            with contextlib.suppress(RetriableError, TimeoutError):  # then the known metadata decides
                async with asyncio.timeout_at(deadline):
                    await self._cluster.refresh([topic])  # partitions may have been added
            await know_topic()  # the refresh may have forgotten an idle topic
            delivery = add()
        if delivery is not None:
            return delivery
        try:
            async with asyncio.timeout_at(deadline):
                while delivery is None:
                    promised = await self._accumulator.room(record_size(record.key, record.value, record.headers))
                    try:
                        delivery = add(has_waited=True)
                    finally:
                        self._accumulator.end_turn(promised)
                return delivery
        except TimeoutError as late:
            if isinstance(late, KafkaError):
                raise
            raise KafkaTimeoutError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"no room for the record within max.block.ms = {self._config.max_block_ms}: unacknowledged records "
                f"fill buffer.memory = {self._config.buffer_memory} bytes",
            ) from None

    def _learn(self, topic: str) -> asyncio.Task[KafkaError | None]:
        """Return the task that looks up a topic's partitions and then places the records that wait for them."""
        current = self.transactions.manager.current if self.transactions is not None else None
        known = self._learning.get(topic)
        if known is not None and not known.task.done():  # a task that is done has placed its records
            if known.transaction is current:
                return known.task
            known.task.cancel()  # it has less than max.block.ms left for the records of this transaction
        task = asyncio.create_task(self._place(topic), name=f"metadata of {topic}")
        self._learning[topic] = _LookUp(task, current)
        task.add_done_callback(lambda done: self._learned(topic, done))
        return task

    def _learned(self, topic: str, task: asyncio.Task[KafkaError | None]) -> None:
        look_up = self._learning.get(topic)
        if look_up is None or look_up.task is not task:
            return  # another look-up has taken its place
        del self._learning[topic]
        if was_interrupted(task):
            asyncio.get_running_loop().call_later(BEGIN_AGAIN_S, self._learn_again, topic)

    def _learn_again(self, topic: str) -> None:
        """Look a topic up again if records still wait for it. After the producer has been closed, no records wait,
        because closing makes them fail.
        """
        known = self._accumulator.topics.get(topic)
        if known is not None and known.unplaced is not None and topic not in self._learning:
            self._learn(topic)

    async def _place(self, topic: str) -> KafkaError | None:
        try:
            self._accumulator.use_topic(await self._cluster.topic(topic, self._max_block_s))
            failure = None
        except KafkaError as error:
            failure = error
        except Exception as error:  # after a bug, records must not wait forever
            log.exception("the partitions of topic %s could not be looked up", topic)
            failure = FatalError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"the partitions of topic {topic!r} could not be looked up: {error!r}",
            )
            failure.__cause__ = error
        queues = self._accumulator.topic(topic)
        if failure is not None:
            if self._accumulator.drop_unplaced(queues, failure):  # not after an abort, which has dropped the records
                self._failed(failure)
            return failure
        self._accumulator.place(queues, self._choose, self._failed)
        return None

    def _failed(self, failure: KafkaError) -> None:
        if self.transactions is not None:
            self.transactions.manager.batch_failed(failure)

    def on_metadata(self, metadata: ClusterMetadata) -> None:
        """Make queues for new partitions, and forget topics that have received no records for metadata.max.idle.ms."""
        for name in list(self._accumulator.topics):
            known = metadata.topics.get(name)
            if known is None or not self._accumulator.topics[name].queues:
                continue
            if known.partitions:
                self._accumulator.use_topic(known)
            elif known.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._accumulator.note_missing(name)
        self._cluster.untrack(self._accumulator.drop_idle(self._config.metadata_max_idle_ms / 1000))

    def fail_unplaced(self, error: KafkaError) -> None:
        """Fail the records that have no batch yet, because nothing will be sent any more."""
        if self._accumulator.drop_all_unplaced(error):
            self._failed(error)  # a transaction must not be committed without them

    async def close(self) -> None:
        """Cancel the look-ups of topics."""
        tasks = [look_up.task for look_up in self._learning.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
