"""Sends what the accumulator has ready, in order, and deals with every answer: `Sender`, Kafka's name for it.

Owns the Produce requests in flight: at most max.in.flight.requests.per.connection to each broker, one batch of a
partition in each. It is driven by events (a batch is ready, an answer came, a connection is open, the metadata
changed, a timer), and each ends in one pass over the partitions that have something to send; nothing here waits.

What an answer means is decided here: acknowledge, retry, split, begin a new epoch, or give up. How that keeps the
order, and records from being doubled, is told in `partition_queue.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from ...protocol.errors import ErrorCode, KafkaError, error_code
from ...protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ...protocol.schema import NO_UUID
from ..cluster import Cluster
from ..config import ProducerConfig
from ..connection import Connection
from ..errors import KafkaTimeoutError, error_for
from .accumulator import RecordAccumulator
from .batch import ProducerBatch
from .partition_queue import MAX_EPOCH, SEQUENCE_ERRORS, PartitionQueue
from .transaction_manager import TransactionManager
from .transaction_state import State

log = logging.getLogger(__name__)

TOPIC_IDS: Final = 13
"""First version of Produce that names topics by id (KIP-516): a topic made anew is not written to by mistake."""

IMPLICIT: Final = 12
"""First version of Produce that adds the partition to the transaction by itself (KIP-890)."""

REQUEST_OVERHEAD: Final = 512
"""Bytes of a request besides its batches, generously."""

MAYBE_WRITTEN: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors after which the batch may be in the log."""

STALE_METADATA: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors that ask for new metadata before the retry."""


_GOES_ON: Final = (State.IN_TRANSACTION, State.COMMITTING_TRANSACTION)
"""The states in which a transaction's batches may still leave."""


class Sender:
    """See the module's docstring. `spawn` runs a coroutine as a task that the producer owns."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        accumulator: RecordAccumulator,
        transaction: TransactionManager | None,
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._accumulator = accumulator
        self._transaction: TransactionManager | None = None
        if transaction is not None:
            self.use_transaction(transaction)
        self._spawn = spawn
        self._loop = asyncio.get_running_loop()
        self._max_in_flight = config.max_in_flight_requests_per_connection
        self._in_flight: dict[int, int] = {}
        self._connecting: set[int] = set()
        self._pass: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._landing: list[asyncio.Future[None]] = []
        self.producer_id = -1
        self.producer_epoch = -1
        self.on_unregistered: Callable[[], None] = lambda: None
        """Called when partitions wait to be added to the transaction."""
        self.on_ids_exhausted: Callable[[PartitionQueue], None] = lambda queue: None
        """Called when a partition needs a new producer id, its epochs being used up."""

    def use_transaction(self, transaction: TransactionManager) -> None:
        """From now on every batch belongs to a transaction; nothing may be on its way."""
        self._transaction = transaction
        transaction.on_error = self.wake

    def wake(self) -> None:
        """Make a pass soon; calls before it count as one."""
        if self._pass is None and not self._closed:
            self._pass = self._loop.call_soon(self._run)

    def close(self) -> None:
        """Send nothing more."""
        self._closed = True
        for handle in (self._pass, self._timer):
            if handle is not None:
                handle.cancel()

    def abort_unsent(self, error: KafkaError) -> None:
        """Give up every batch that is not in flight (the transaction is being aborted)."""
        for queue in list(self._accumulator.active):
            for batch in [*queue.failed, *queue.waiting]:
                self._give_up(batch, error)

    def in_flight(self) -> list[ProducerBatch]:
        """Return the batches whose answer is awaited."""
        return [batch for queue in self._accumulator.active for batch in queue.in_flight]

    async def landed(self) -> None:
        """Wait until no batch is in flight, given up or not: at most request.timeout.ms."""
        while self.in_flight():
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._landing.append(waiter)
            await waiter

    # -- a pass

    def _run(self) -> None:
        self._pass = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._loop.time()
        wake_at = float("inf")
        transaction = self._transaction
        if transaction is not None and transaction.error is not None:
            self.abort_unsent(transaction.error)
        ready: dict[int, list[PartitionQueue]] = {}
        for queue in list(self._accumulator.active):
            self._expire(queue, now)
            if queue.is_empty:
                del self._accumulator.active[queue]
                continue
            wake_at = min(wake_at, self._earliest_deadline(queue))
            if not queue.waiting or not queue.may_send(now):
                if queue.retry_at > now:
                    wake_at = min(wake_at, queue.retry_at)
                continue
            if not self._accumulator.is_ready(queue, now):
                wake_at = min(wake_at, queue.waiting[0].ready_at)
                continue
            if not self._may_leave(queue):
                continue
            leader = self._cluster.leader_of(queue.key)
            if leader is None:
                self._cluster.track((queue.topic,))
                self._cluster.request_refresh()
                wake_at = min(wake_at, now + self._config.retry_backoff_ms / 1000)
                continue
            if queue.in_flight and queue.node_id != leader:
                continue  # the old leader's answers come first
            queue.node_id = leader
            ready.setdefault(leader, []).append(queue)
        for node_id, queues in ready.items():
            self._send_to(node_id, queues, now)
        if transaction is not None and transaction.unregistered:
            self.on_unregistered()
        if wake_at != float("inf") and not self._closed:
            self._timer = self._loop.call_at(max(wake_at, now + 0.0005), self._run_on_timer)

    def _run_on_timer(self) -> None:
        self._timer = None
        if self._pass is not None:
            self._pass.cancel()
        self._run()

    def _may_leave(self, queue: PartitionQueue) -> bool:
        """Whether the transaction allows it and the sequence can go on; begins a new epoch where it can't."""
        transaction = self._transaction
        if transaction is not None:
            if not transaction.may_send(queue.key):
                return False
            if (queue.producer_id, queue.epoch) != (transaction.producer_id, transaction.producer_epoch):
                if queue.in_flight:
                    return False
                queue.use_producer(transaction.producer_id, transaction.producer_epoch)
            return True
        if not queue.idempotent:
            return True
        if queue.producer_id < 0:
            queue.use_producer(self.producer_id, self.producer_epoch)
        elif not queue.in_flight and queue.needs_new_epoch:
            if queue.epoch >= MAX_EPOCH:
                self.on_ids_exhausted(queue)
                return False
            log.info("%s-%d: a sequence cannot go on, a new producer epoch begins", queue.topic, queue.partition)
            queue.use_producer(queue.producer_id, queue.epoch + 1)
        return True

    def _send_to(self, node_id: int, queues: list[PartitionQueue], now: float) -> None:
        connection = self._cluster.open_connection(node_id)
        if connection is None:
            if node_id not in self._connecting:
                self._connecting.add(node_id)
                self._spawn(self._connect(node_id), f"connect to node {node_id}")
            return
        try:
            newest = connection.version_of(ProduceRequest, self._newest_version())
        except KafkaError as error:
            for queue in queues:
                self._give_up(queue.waiting[0], error)
            return
        if newest < IMPLICIT and self._transaction is not None and self._transaction.version >= 2:
            # Older versions do not add the partition. Once the coordinator says so as well, it is added beforehand.
            self._transaction.fail_abortable(
                ErrorCode.TRANSACTION_ABORTABLE,
                f"broker {connection.address} was downgraded: it knows Produce up to v{newest}, and the transaction "
                f"began with v{IMPLICIT}",
            )
            return
        limit = self._config.max_request_size - REQUEST_OVERHEAD
        while queues and self._in_flight.get(node_id, 0) < self._max_in_flight:
            batches: list[ProducerBatch] = []
            size = 0
            still: list[PartitionQueue] = []
            for queue in queues:
                head = queue.waiting[0]
                # The estimate may be too low where the records compress badly; max.request.size is not exact in Kafka.
                if batches and size + head.builder.estimated_size > limit:
                    still.append(queue)
                    continue
                self._accumulator.close_batch(head)
                first_time = head.payload is None
                batch = queue.take()
                size += len(batch.encode(self._transaction is not None))
                if first_time:
                    self._accumulator.note_size(batch)
                batches.append(batch)
                if queue.waiting and queue.may_send(now) and self._accumulator.is_ready(queue, now):
                    still.append(queue)
                # Whoever was served goes to the end of the line.
                self._accumulator.active.pop(queue, None)
                self._accumulator.active[queue] = None
            self._send(node_id, connection, batches, newest)
            if connection.is_closed:
                return
            queues = [queue for queue in still if queue.waiting and queue.may_send(now)]

    def _newest_version(self) -> int:
        if self._transaction is not None and self._transaction.version < 2:
            return IMPLICIT - 1
        return TOPIC_IDS

    def _send(self, node_id: int, connection: Connection, batches: list[ProducerBatch], version: int) -> None:
        topics: dict[str, TopicProduceData] = {}
        known = self._cluster.metadata.topics
        ids = {name: known[name].topic_id for name in {batch.topic for batch in batches} if name in known}
        if version >= TOPIC_IDS and (len(ids) < 1 or any(topic_id == NO_UUID for topic_id in ids.values())):
            version = TOPIC_IDS - 1
        for batch in batches:
            topic = topics.get(batch.topic)
            if topic is None:
                topic = topics[batch.topic] = TopicProduceData(
                    name=batch.topic, topic_id=ids.get(batch.topic, NO_UUID) if version >= TOPIC_IDS else NO_UUID
                )
            topic.partition_data.append(PartitionProduceData(batch.partition, batch.payload))
        request = ProduceRequest(
            transactional_id=None if self._transaction is None else self._transaction.transactional_id,
            acks=self._config.acks,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        try:
            if self._config.acks == 0:
                connection.post(request, version)
                for batch in batches:
                    self._acknowledge(batch, -1, -1)
                return
            answer = connection.send(request, version)
        except KafkaError as error:  # the connection has closed: nothing was written
            self._all_failed(batches, error)
            return
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
        names = {topic_id: name for name, topic_id in ids.items()} if version >= TOPIC_IDS else {}
        answer.add_done_callback(lambda done: self._answered(node_id, batches, names, done))

    async def _connect(self, node_id: int) -> None:
        try:
            await self._cluster.connection(node_id)
        except KafkaError as error:
            log.debug("node %d: %s", node_id, error)
            if error.code is ErrorCode.BROKER_NOT_AVAILABLE:  # not a failed attempt, after which the link backs off
                await asyncio.sleep(self._cluster.retry_backoff(0))
        finally:
            self._connecting.discard(node_id)
            self.wake()

    # -- answers

    def _answered(
        self,
        node_id: int,
        batches: list[ProducerBatch],
        names: dict[bytes, str],
        done: asyncio.Future[ProduceResponse],
    ) -> None:
        self._in_flight[node_id] -= 1
        waiters, self._landing = self._landing, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.wake()
        if done.cancelled():
            return
        failure = done.exception()
        if failure is not None:
            error = (
                failure if isinstance(failure, KafkaError) else KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(failure))
            )
            self._all_failed(batches, error)
            return
        results: dict[tuple[str, int], PartitionProduceResponse] = {}
        for topic in done.result().responses:
            name = names.get(topic.topic_id, topic.name) if names else topic.name
            for partition in topic.partition_responses:
                results[name, partition.index] = partition
        for batch in batches:
            result = results.get((batch.topic, batch.partition))
            if result is None:
                self._failed(batch, ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's answer leaves this partition out")
            elif result.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._acknowledge(batch, result.base_offset if not result.error_code else -1, result.log_append_time_ms)
            else:
                self._failed(batch, error_code(result.error_code), result.error_message)

    def _all_failed(self, batches: Iterable[ProducerBatch], error: KafkaError) -> None:
        for batch in batches:
            self._failed(batch, error.code, error.message)

    def _acknowledge(self, batch: ProducerBatch, base_offset: int, log_append_time: int) -> None:
        queue = self._accumulator.queue_of(batch)
        queue.acknowledged(batch, self._loop.time())
        if self._transaction is not None:
            self._transaction.wrote(queue.key)
        if not batch.done:
            batch.complete(base_offset, log_append_time)
        self._accumulator.release(batch)
        self._settle(queue)

    def _failed(self, batch: ProducerBatch, code: ErrorCode, message: str | None) -> None:
        """A batch in flight was not acknowledged: retry it, split it or give it up."""
        queue = self._accumulator.queue_of(batch)
        if code in STALE_METADATA:
            self._cluster.request_refresh()
        if code in MAYBE_WRITTEN:
            batch.maybe_written = True
        if self._can_split(batch, code):
            queue.retry(batch, code)
            queue.failed.remove(batch)
            queue.insert_parts(self._accumulator.split(batch))
        elif self._can_retry(queue, batch, code):
            queue.retry(batch, code)
        else:
            self._give_up(batch, error_for(code, message), code)
            return
        self._settle(queue)

    def _can_split(self, batch: ProducerBatch, code: ErrorCode) -> bool:
        return (
            code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
            and batch.record_count > 1
            and not batch.done
            and not self._closed
            and (self._transaction is None or self._transaction.state in _GOES_ON)
            # A batch that is perhaps written must only ever be repeated as it was.
            and not batch.maybe_written
        )

    def _can_retry(self, queue: PartitionQueue, batch: ProducerBatch, code: ErrorCode) -> bool:
        if batch.done or batch.attempts > self._config.retries or self._closed:
            return False
        if self._transaction is not None:
            if self._transaction.state not in _GOES_ON:
                return False
            # The oldest batch is out of order: a sequence that only an abort can mend.
            if code in SEQUENCE_ERRORS:
                oldest = min([*queue.in_flight, *queue.failed], key=lambda one: one.order)
                return code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and oldest is not batch
            return code.retriable
        return code.retriable or (code in SEQUENCE_ERRORS and queue.idempotent)

    def _give_up(self, batch: ProducerBatch, error: KafkaError, code: ErrorCode | None = None) -> None:
        queue = self._accumulator.queue_of(batch)
        queue.give_up(batch)
        if not batch.done:
            batch.fail(error)
            self._accumulator.unobserved_failures.append(batch)
            if self._transaction is not None:
                if batch.was_sent:
                    self._transaction.sequence_lost()
                self._transaction.batch_failed(code or error.code, error.message)
        self._accumulator.release(batch)
        self._settle(queue)

    def _settle(self, queue: PartitionQueue) -> None:
        attempts = max((batch.attempts for batch in queue.failed), default=1)
        soon = any(batch.last_error is ErrorCode.CONCURRENT_TRANSACTIONS for batch in queue.failed)
        backoff = 0.005 if soon else self._cluster.retry_backoff(attempts - 1)
        if queue.settle(self._loop.time() + backoff):
            self.wake()

    # -- time

    def _earliest_deadline(self, queue: PartitionQueue) -> float:
        heads = [*queue.in_flight[:1], *queue.failed[:1]]
        if queue.waiting:
            heads.append(queue.waiting[0])
        return min((batch.deadline for batch in heads if not batch.done), default=float("inf"))

    def _expire(self, queue: PartitionQueue, now: float) -> None:
        """Give up what is older than delivery.timeout.ms; what is in flight keeps its place until it is answered."""
        if self._earliest_deadline(queue) > now:
            return
        for batch in [*queue.in_flight, *queue.failed, *queue.waiting]:
            if batch.deadline > now or batch.done:
                continue
            why = f"; the last answer was {batch.last_error.name}" if batch.last_error else ""
            error = KafkaTimeoutError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"records for {queue.topic}-{queue.partition} were not acknowledged within delivery.timeout.ms = "
                f"{self._config.delivery_timeout_s * 1000:.0f}{why}",
            )
            if batch.in_flight:
                batch.fail(error)
                self._accumulator.unobserved_failures.append(batch)
                if self._transaction is not None:
                    self._transaction.sequence_lost()
                    self._transaction.batch_failed(error.code, error.message)
            else:
                self._give_up(batch, error)
