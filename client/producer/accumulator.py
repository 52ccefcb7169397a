"""`RecordAccumulator`, named as in Kafka: collects records in batches, and queues the batches until they are sent.

It owns the partitions' queues and the memory of all batches together (buffer.memory). It decides when a batch is ready:
when it is full, linger.ms has passed, or a caller flushes or waits for memory. Every record goes through `append`,
which never waits. If `append` returns None, its caller has to wait for memory with `room`.

A batch begins with the memory for INITIAL_SIZE bytes, or for a single larger record. If more memory is needed before
the batch is sent, the batch gets it, up to its full size, as long as memory is free. Kafka's client, in contrast,
reserves batch.size bytes for each batch at its beginning.

The records of a batch are compressed only when it is sent. Until then, its memory is that of the uncompressed records.
A batch is full when its estimated compressed size is batch.size, or when its uncompressed size is the larger of
COMPRESSED_AT_ONCE and batch.size.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Final

from ...protocol.batch_builder import BatchBuilder, record_size
from ...protocol.batch_header import HEADER_SIZE
from ...protocol.compression import Compression
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.record_walk import RecordLimits
from ...protocol.records import Headers, decode_batch, next_sequence, read_batch_header
from ...protocol.schema import NO_UUID
from ..config import ProducerConfig
from ..errors import RecordTooLargeError
from ..metadata import TopicMetadata
from ..threads import OwnThread
from .batch import Delivery, Outcome, ProducerBatch
from .partition_queue import PartitionQueue
from .partitioner import StickyPartitioner
from .record_values import RecordValues
from .unobserved_failures import UnobservedFailures

INITIAL_SIZE: Final = 16_384
"""The memory in bytes that a batch begins with."""

COMPRESSED_AT_ONCE: Final = 524_288
"""The uncompressed bytes at which a compressed batch is full, unless batch.size is larger. The event loop is
blocked while a batch is compressed, which takes a few milliseconds for this size.
"""

RATIO_UP, RATIO_DOWN = 0.05, 0.005
"""How fast a topic's estimated compression ratio rises after a batch that was larger than estimated, or falls after one
that was smaller.
"""


class TopicQueues:
    """A topic's queues by partition index, and statistics of its records.

    `queues` is empty until the topic's metadata is known. `unplaced` contains the records sent before that.
    """

    __slots__ = (
        "available",
        "batch_size",
        "count",
        "last_used",
        "led",
        "name",
        "queues",
        "ratio",
        "sticky",
        "topic_id",
        "unplaced",
    )

    def __init__(self, name: str, batch_size: int) -> None:
        self.name = name
        self.batch_size = batch_size
        """batch.size, or half of the smallest batch that the broker has refused as too large."""
        self.topic_id: bytes | None = NO_UUID
        """The topic's id, all zeros with brokers before Kafka 2.8. None after such a broker has reported the topic as
        missing: the next topic of this name is another one.
        """
        self.count = 0
        """Number of the topic's partitions. Lower than the number of queues if the topic was recreated with fewer
        partitions.
        """
        self.queues: list[PartitionQueue] = []
        self.led: tuple[int, ...] = ()
        self.available: tuple[int, ...] = ()
        """Partitions for records without a key, preferably those that have a leader."""
        self.sticky = StickyPartitioner(max(batch_size, 1))
        self.ratio = 1.0
        self.last_used = 0.0
        self.unplaced: Unplaced | None = None


class Unplaced(Outcome):
    """Records of a topic whose partitions are unknown, in order, each with the arguments for appending it."""

    __slots__ = ("deliveries", "records", "reserved")

    def __init__(self) -> None:
        super().__init__()
        self.deliveries: list[Delivery] = []
        self.records: list[RecordValues] = []
        self.reserved = 0

    @property
    def record_count(self) -> int:
        return len(self.deliveries)

    def finish(self) -> None:
        super().finish()
        self.records.clear()

    def replacements(self) -> Iterable[Outcome]:
        return dict.fromkeys(one._outcome for one in self.deliveries if one._outcome is not self)


class RecordAccumulator:
    """Collects records in batches. `wake` is called when a batch may be sent earlier than expected."""

    def __init__(self, config: ProducerConfig, now: Callable[[], float], wake: Callable[[], None]) -> None:
        self._now = now
        self._wake = wake
        self._idempotent = config.enable_idempotence
        self._compression = Compression.from_name(config.compression_type)
        level = {
            Compression.GZIP: config.compression_gzip_level if config.compression_gzip_level >= 0 else None,
            Compression.LZ4: config.compression_lz4_level if "compression.lz4.level" in config.explicit else None,
            Compression.ZSTD: config.compression_zstd_level,
        }
        self._level = level.get(self._compression)
        self._batch_size = min(config.batch_size, config.max_request_size)
        self._max_request_size = config.max_request_size
        self._linger_s = config.linger_ms / 1000
        self._delivery_timeout_s = config.delivery_timeout_s
        self._memory = self._free = config.buffer_memory
        self._promised = 0
        """Bytes promised to tasks whose turn in `room` has come, and which have not used the bytes yet."""
        self._thread = OwnThread("a producer")
        self._orders = 0
        self._flushes = 0
        self._room_waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.topics: dict[str, TopicQueues] = {}
        self._only: Collection[tuple[str, int]] | None = None
        self.active: dict[PartitionQueue, None] = {}
        self.incomplete: dict[ProducerBatch, None] = {}
        self.unobserved_failures = UnobservedFailures()
        self.batch_filled = False
        """Whether a batch became full. A caller that appends in a loop should then let the event loop send it."""

    # -- topics

    def topic(self, name: str) -> TopicQueues:
        """Return the topic's queues; a new topic has no queues before `use_topic`."""
        known = self.topics.get(name)
        if known is None:
            known = self.topics[name] = TopicQueues(name, self._batch_size)
            known.last_used = self._now()
        return known

    def queue_of(self, batch: ProducerBatch) -> PartitionQueue:
        """Return the queue of a batch's partition."""
        return self.topics[batch.topic].queues[batch.partition]

    def use_topic(self, topic: TopicMetadata) -> TopicQueues:
        """Make a queue for each of the topic's partitions; existing queues stay."""
        known = self.topic(topic.name)
        for partition in range(len(known.queues), len(topic.partitions)):
            known.queues.append(PartitionQueue(topic.name, partition, self._idempotent))
        # A topic never loses a partition. Fewer partitions mean stale metadata, or a recreated topic. A recreated topic
        # has another id or, without ids, was missing in between.
        known.count = max(known.count if topic.topic_id == known.topic_id else 0, len(topic.partitions))
        known.topic_id = topic.topic_id
        led = tuple(partition.index for partition in topic.partitions if partition.leader_id >= 0)
        known.led = led or tuple(range(len(topic.partitions)))
        self._make_available(known)
        return known

    def note_missing(self, name: str) -> None:
        """Record that the topic does not exist now; its queues stay."""
        known = self.topics[name]
        if known.topic_id == NO_UUID:
            known.topic_id = None

    def restrict(self, partitions: Collection[tuple[str, int]] | None) -> None:
        """Restrict records without a key to these partitions of their topics; None removes the restriction."""
        if partitions is self._only is None:
            return
        self._only = partitions
        for topic in self.topics.values():
            self._make_available(topic)

    def _make_available(self, known: TopicQueues) -> None:
        only = self._only
        mine = () if only is None else tuple(sorted(index for name, index in only if name == known.name))
        # An allowed partition without a leader is better than a partition that would be refused.
        known.available = tuple(index for index in known.led if index in mine) or mine or known.led
        if known.sticky.partition not in known.available and known.available:
            known.sticky.switch(known.available)

    def drop_idle(self, idle_s: float) -> list[str]:
        """Return the names of topics that have received no records for `idle_s` seconds. Without idempotence, remove
        these topics, unless a record of any topic is waiting for memory.
        """
        limit = self._now() - idle_s
        idle = [
            name
            for name, topic in self.topics.items()
            if topic.last_used < limit and topic.unplaced is None and all(queue.is_empty for queue in topic.queues)
        ]
        for name in idle:
            # Idempotent queues are kept for their place in the sequence: a new queue would start a new epoch. A record
            # that waits for memory relies on its topic.
            if not (self._idempotent or self._room_waiters or self._promised):
                del self.topics[name]
        return idle

    # -- incoming records

    def append(
        self,
        topic: TopicQueues,
        partition: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        has_waited: bool = False,
        forced: bool = False,
    ) -> Delivery | None:
        """Add a record to its partition's open batch. If a new batch is needed and there is no memory for it, add
        nothing and return None.

        `has_waited`: the caller has awaited `room` for this record. `forced`: add the record even if no memory is free.
        Raises RecordTooLargeError for a record that can never be sent, and TypeError for values that are not bytes.
        """
        waiting = topic.queues[partition].waiting
        if waiting:
            batch = waiting[-1]
            if not batch.closed:
                builder = batch.builder
                index = builder.record_count
                if builder.append(timestamp, key, value, headers):
                    return Delivery(batch, index, timestamp)
        return self._append_reserving(topic, partition, timestamp, key, value, headers, has_waited, forced)

    def hold(self, topic: TopicQueues, record: RecordValues) -> Delivery | None:
        """Keep a record until the topic's partitions are known. If no memory is free, keep nothing and return None."""
        self._thread.check()
        size = HEADER_SIZE + record_size(record.key, record.value, record.headers)
        self._check_size(size)
        if size > self._free:
            return None
        unplaced = topic.unplaced
        if unplaced is None:
            unplaced = topic.unplaced = Unplaced()
        self._free -= size
        unplaced.reserved += size
        delivery = Delivery(unplaced, len(unplaced.deliveries), record.timestamp)
        unplaced.deliveries.append(delivery)
        unplaced.records.append(record)
        return delivery

    def place(
        self,
        topic: TopicQueues,
        choose: Callable[[TopicQueues, bytes | None, int | None], int],
        on_failure: Callable[[KafkaError], None],
    ) -> None:
        """Append the records that waited for the topic's partitions, in order, even if no memory is free.

        If records cannot be appended, call `on_failure` with the failure of the first one. If the program's partitioner
        raises SystemExit or KeyboardInterrupt, its record fails, the others are appended, and then the exception is
        raised.
        """
        unplaced, topic.unplaced = topic.unplaced, None
        if unplaced is None:
            return
        first: KafkaError | None = None
        exit: BaseException | None = None
        self._free += unplaced.reserved
        for delivery, record in zip(unplaced.deliveries, unplaced.records, strict=True):
            try:
                partition = choose(topic, record.key, record.partition)
                placed = self.append(
                    topic, partition, record.timestamp, record.key, record.value, record.headers, forced=True
                )
                assert placed is not None
            except BaseException as error:  # also an error of the program's partitioner
                if not isinstance(error, Exception):
                    exit = error
                failure = error if isinstance(error, KafkaError) else _unplaceable(topic.name, error)
                first = first or failure
                failed = Unplaced()
                failed.deliveries.append(delivery)
                self.fail(failed, failure)
                placed = Delivery(failed, 0, record.timestamp)
            delivery.place(placed)
        unplaced.finish()
        self._free_room()
        if first is not None:
            on_failure(first)
        if exit is not None:
            raise exit

    def drop_unplaced(self, topic: TopicQueues, error: KafkaError) -> bool:
        """Fail the records that wait for the topic's partitions. Return whether there were any."""
        unplaced, topic.unplaced = topic.unplaced, None
        if unplaced is None:
            return False
        self._free += unplaced.reserved
        self.fail(unplaced, error)
        self._free_room()
        return True

    def drop_all_unplaced(self, error: KafkaError) -> bool:
        """Fail the records that wait for the partitions of any topic. Return whether there were any."""
        waiting = [topic for topic in self.topics.values() if topic.unplaced is not None]
        for topic in waiting:
            self.drop_unplaced(topic, error)
        return bool(waiting)

    def fail(self, outcome: Outcome, error: KafkaError) -> None:
        """Fail the records of an outcome, and add the outcome to `unobserved_failures`."""
        self.unobserved_failures.add(outcome, error)
        outcome.fail(error, self.unobserved_failures.discard)

    def _append_reserving(
        self,
        topic: TopicQueues,
        partition: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        has_waited: bool,
        forced: bool,
    ) -> Delivery | None:
        """Append a record that does not fit into the open batch as it is: enlarge the batch, or begin a new one."""
        self._thread.check()  # not for each record, because the check has a cost
        queue = topic.queues[partition]
        size = HEADER_SIZE + record_size(key, value, headers)
        if size > self._batch_size:
            self._check_size(size)
        initial = min(topic.batch_size, INITIAL_SIZE)
        reserved = max(initial, size)
        if queue.waiting and not queue.waiting[-1].closed:
            last = queue.waiting[-1]
            if self._grow(last, size, topic.batch_size):
                return self.append(topic, partition, timestamp, key, value, headers, has_waited, forced)
            self.close_batch(last)
            self.batch_filled = True
            self._wake()
        free = self._free if has_waited else self._free - self._promised
        short = reserved > free and free < self._memory
        if (short or (self._room_waiters and not has_waited)) and not forced:
            return None
        builder = BatchBuilder(self._compression, initial, level=self._level, ratio=topic.ratio)
        now = self._now()
        batch = ProducerBatch(
            queue.key, (self._orders,), builder, now + self._linger_s, now + self._delivery_timeout_s, reserved
        )
        builder.append(timestamp, key, value, headers)
        self._orders += 1
        self._free -= reserved
        topic.last_used = now
        queue.waiting.append(batch)
        self.active[queue] = None
        self.incomplete[batch] = None
        self._wake()
        return Delivery(batch, 0, timestamp)

    def _grow(self, batch: ProducerBatch, size: int, batch_size: int) -> bool:
        """Give an open batch memory for a record of `size` bytes. Return False if the batch is full or no memory is
        free.
        """
        full = min(int(batch_size / batch.builder.ratio), max(batch_size, COMPRESSED_AT_ONCE))
        needed = batch.builder.size + size
        reserved = min(max(2 * batch.reserved, needed), full)
        more = reserved - batch.reserved
        if needed > full or more <= 0 or more > self._free - self._promised or self._room_waiters:
            return False
        batch.reserved = reserved
        self._free -= more
        batch.builder.limit(reserved)
        return True

    def _check_size(self, size: int) -> None:
        for name, limit in (("max.request.size", self._max_request_size), ("buffer.memory", self._memory)):
            if size > limit:
                raise RecordTooLargeError(
                    ErrorCode.MESSAGE_TOO_LARGE, f"a record of about {size} bytes is larger than {name} = {limit}"
                )

    # -- memory

    async def room(self, record_bytes: int) -> int:
        """Wait for memory for a batch that begins with a record of this size. Tasks get memory in the order of their
        calls.

        Returns the number of bytes that are reserved for this task until it calls `end_turn` with that number.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (max(min(self._batch_size, INITIAL_SIZE), HEADER_SIZE + record_bytes), waiter)
        self._room_waiters.append(entry)
        self._wake()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.end_turn(entry[0])
            raise
        finally:
            if entry in self._room_waiters:
                self._room_waiters.remove(entry)
                self._free_room()  # the next task may need less
        return entry[0]

    def end_turn(self, promised: int) -> None:
        """Give up the bytes that `room` reserved, because the task has added its record or failed."""
        self._promised -= promised
        self._free_room()

    def release(self, batch: ProducerBatch) -> None:
        """Free the memory of a batch whose outcome is known and that is not in flight."""
        if batch not in self.incomplete:
            return
        del self.incomplete[batch]
        self._free += batch.reserved
        self._free_room()

    def _free_room(self) -> None:
        while self._room_waiters:
            size, waiter = self._room_waiters[0]
            free = self._free - self._promised
            if free < size and free < self._memory:
                return
            self._room_waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._promised += size

    # -- outgoing batches

    def hurry(self) -> bool:
        """Return whether batches are to be sent before they are full or linger.ms has passed."""
        return self._flushes > 0 or bool(self._room_waiters)

    def is_ready(self, queue: PartitionQueue, now: float) -> bool:
        """Return whether the queue's oldest batch need not wait for more records."""
        head = queue.waiting[0]
        return head.closed or len(queue.waiting) > 1 or now >= head.ready_at or self.hurry()

    def close_batch(self, batch: ProducerBatch) -> None:
        """Close a batch to further records."""
        if not batch.closed:
            batch.closed = True
            topic = self.topics.get(batch.topic)
            if topic is not None and topic.sticky.partition == batch.partition:
                topic.sticky.filled(batch.builder.size, topic.available)

    def compressed(self, batch: ProducerBatch) -> None:
        """Free the memory that the batch no longer needs, because its records are compressed now, and update the
        topic's estimated compression ratio.
        """
        if self._compression is Compression.NONE:
            return
        assert batch.payload is not None, "the batch was encoded"
        less = batch.reserved - len(batch.payload)
        if less > 0:
            batch.reserved -= less
            self._free += less
            self._free_room()
        topic = self.topics.get(batch.topic)
        if topic is None:
            return
        seen = batch.builder.compression_ratio
        if seen > topic.ratio:
            topic.ratio = min(1.0, max(topic.ratio + RATIO_UP, seen))
        else:
            topic.ratio = max(topic.ratio - RATIO_DOWN, seen, 0.01)

    def split(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Split a batch that the broker found too large into two batches, which share its sequence, memory and
        deadline.

        Later batches of the topic have at most half of its size, so that not all of them are refused and split.
        """
        assert batch.record_count > 1, "a single record cannot be split"
        assert batch.payload is not None, "only what was sent can be too large"
        topic = self.topics.get(batch.topic)
        if topic is not None:
            topic.ratio = 1.0
            topic.batch_size = min(topic.batch_size, len(batch.payload) // 2)
        size = batch.builder.size  # each record and each header takes at least a byte
        limits = RecordLimits(size, size, size)
        records = decode_batch(batch.payload, 0, read_batch_header(batch.payload), limits=limits)
        half = len(records) // 2
        parts: list[tuple[int, ProducerBatch]] = []
        for first, chosen in ((0, records[:half]), (half, records[half:])):
            builder = BatchBuilder(self._compression, 2**31, level=self._level)
            for record in chosen:
                builder.append(record.timestamp, record.key, record.value, record.headers)
            reserved = batch.reserved // 2 if first else batch.reserved - batch.reserved // 2
            part = ProducerBatch(
                (batch.topic, batch.partition), (*batch.order, int(first > 0)), builder, 0.0, batch.deadline, reserved
            )
            part.closed = True
            part.doubtful = batch.maybe_written or batch.doubtful
            if batch.base_sequence >= 0:
                sequence = next_sequence(batch.base_sequence, first)
                part.assign(batch.producer_id, batch.producer_epoch, sequence)
                # These sequence numbers were sent. With others, the part would be duplicated if the batch was written.
                part.was_sent = True
            parts.append((first, part))
            self.incomplete[part] = None
        del self.incomplete[batch]
        batch.replace(parts)
        return [part for _, part in parts]

    # -- flushing

    async def flush(self) -> list[Outcome]:
        """Send all batches without lingering, and wait until all outcomes are known. Does not raise errors.

        Returns the earlier outcomes whose failures the program has not received, followed by the outcomes that this
        call waited for. The caller must pass all of them to `take_failure`.
        """
        outcomes: list[Outcome] = list(self.unobserved_failures)
        outcomes += (topic.unplaced for topic in self.topics.values() if topic.unplaced is not None)
        outcomes += (batch for batch in self.incomplete if not batch.done)
        self._flushes += 1
        self._wake()
        try:
            for outcome in outcomes:
                await outcome.wait()
        finally:
            self._flushes -= 1
        return outcomes

    def take_failure(self, outcomes: Iterable[Outcome]) -> KafkaError | None:
        """Return the first failure of these outcomes that the program has not received, or None.

        A later flush does not wait for these outcomes, and so does not return their failures again. But flushes that
        wait for them at the same time all return their failures, because different tasks may have called these flushes.
        """
        failed = [unreceived for outcome in outcomes for unreceived in outcome.unreceived()]
        for outcome in failed:
            self.unobserved_failures.discard(outcome)
        return failed[0].error if failed else None

    def close_open_batches(self) -> None:
        """Close the open batches, so that they are sent now, without waiting for them."""
        for queue in self.active:
            if queue.waiting:
                self.close_batch(queue.waiting[-1])
        self._wake()


def _unplaceable(topic: str, error: BaseException) -> KafkaError:
    try:
        text = repr(error)
    except Exception:  # the exception is the program's, and so may be what it contains
        text = type(error).__name__
    failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"no partition of topic {topic!r} could be chosen: {text}")
    failure.__cause__ = error
    return failure
