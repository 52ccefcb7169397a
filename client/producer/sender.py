"""`Sender`, named as in Kafka: sends the accumulator's ready batches in order, and handles every response.

It owns the Produce requests in flight: at most max.in.flight.requests.per.connection to each broker, each with one
batch per partition. Events drive it: a batch is ready, a response arrived, a connection is open, the metadata changed,
a timer fired. Each event leads to one pass over the partitions that have batches to send. The sender never waits.

`outcomes.py` decides what a response means. `partition_queue.py` explains how retries keep the order of records and do
not duplicate them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
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
from ..errors import AuthenticationError
from .accumulator import RecordAccumulator
from .batch import ProducerBatch
from .outcomes import BatchOutcomes, earliest_deadline
from .partition_queue import MAX_EPOCH, PartitionQueue
from .transaction_manager import TransactionManager

log = logging.getLogger(__name__)

TOPIC_IDS: Final = 13
"""First version of Produce that names topics by id (KIP-516), so that no batch is written to a recreated topic of the
same name.
"""

IMPLICIT: Final = 12
"""First version of Produce that implicitly adds its partitions to the transaction (KIP-890)."""

REQUEST_OVERHEAD: Final = 512
"""Upper bound for the bytes of a request in addition to its batches."""


class Sender:
    """Sends batches to the leaders. `spawn` runs a coroutine as a task that the producer owns.

    If a bug makes a pass or the handling of a response fail, `on_crash` is called with "the sender" and the exception.
    The producer then fails all pending records, and calls `crashed`.
    """

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        accumulator: RecordAccumulator,
        transaction: TransactionManager | None,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        on_crash: Callable[[str, Exception], None],
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._accumulator = accumulator
        self._outcomes = BatchOutcomes(config, cluster, accumulator, self.wake)
        self._transaction: TransactionManager | None = None
        if transaction is not None:
            self.use_transaction(transaction)
        self._spawn = spawn
        self._on_crash = on_crash
        self._loop = asyncio.get_running_loop()
        self._max_in_flight = config.max_in_flight_requests_per_connection
        self._in_flight: dict[int, int] = {}
        self._connecting: set[int] = set()
        self._unreachable: set[int] = set()
        """Nodes to which no connection could be made at the last attempt."""
        self._pass: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._closed = False
        self._drain_waiters: list[asyncio.Future[None]] = []
        self.producer_id = -1
        self.producer_epoch = -1
        self.on_unregistered: Callable[[], None] = lambda: None
        """Called when partitions wait to be added to the transaction."""
        self.on_ids_exhausted: Callable[[PartitionQueue], None] = lambda queue: None
        """Called when a partition needs a new producer id, because its epochs are used up."""

    def use_transaction(self, transaction: TransactionManager) -> None:
        """Make every further batch part of a transaction; no batch may be in flight."""
        self._transaction = self._outcomes.transaction = transaction
        transaction.on_error = self.wake

    def wake(self) -> None:
        """Schedule a pass. Several calls before the pass lead to one pass."""
        if self._pass is None and not self._closed:
            self._pass = self._loop.call_soon(self._run)

    def close(self) -> None:
        """Send nothing more."""
        self._closed = self._outcomes.closed = True
        for handle in (self._pass, self._timer):
            if handle is not None:
                handle.cancel()

    def abort_unsent(self, error: KafkaError) -> None:
        """Give up every batch that is not in flight, because the transaction is being aborted."""
        for queue in list(self._accumulator.active):
            for batch in [*queue.failed, *queue.waiting]:
                self._outcomes.give_up(batch, error)

    def in_flight(self) -> list[ProducerBatch]:
        """Return the batches whose response is awaited."""
        return [batch for queue in self._accumulator.active for batch in queue.in_flight]

    async def drain(self) -> None:
        """Wait until no batch is in flight, not even one that was given up. Takes request.timeout.ms at most."""
        while self.in_flight():
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._drain_waiters.append(waiter)
            await waiter

    # -- a pass

    def _run(self) -> None:
        try:
            self._make_pass()
        except Exception as error:
            self._on_crash("the sender", error)

    def crashed(self, error: KafkaError) -> None:
        """Send nothing more, and make every batch fail with this error."""
        self.close()
        for batch in list(self._accumulator.incomplete):
            if not batch.done:
                self._accumulator.fail(batch, error)
            self._accumulator.release(batch)
        for queue in list(self._accumulator.active):
            queue.clear()
        self._accumulator.active.clear()
        self._land()

    def _land(self) -> None:
        waiters, self._drain_waiters = self._drain_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _make_pass(self) -> None:
        self._pass = None
        now = self._loop.time()
        wake_at = float("inf")
        transaction = self._transaction
        if transaction is not None and transaction.error is not None:
            self.abort_unsent(transaction.error)
        ready: dict[int, list[PartitionQueue]] = {}
        for queue in list(self._accumulator.active):
            deadline = earliest_deadline(queue)
            if deadline <= now:
                self._outcomes.expire(queue, now)
                deadline = earliest_deadline(queue)
            if queue.is_empty:
                del self._accumulator.active[queue]
                continue
            wake_at = min(wake_at, deadline)
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
                continue  # the old leader's responses come first
            queue.node_id = leader
            ready.setdefault(leader, []).append(queue)
        for node_id, queues in ready.items():
            self._send_to(node_id, queues, now)
        if transaction is not None and transaction.unregistered:
            self.on_unregistered()
        if not self._closed:
            self._wake_at(max(wake_at, now + 0.0005))

    def _wake_at(self, at: float) -> None:
        """Schedule a pass at this time (inf: no pass is needed). An earlier timer is kept, because an extra pass does
        no harm.
        """
        if self._timer_at <= at < float("inf"):
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = at
        if at < float("inf"):
            self._timer = self._loop.call_at(at, self._run_on_timer)

    def _run_on_timer(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        if self._pass is not None:
            self._pass.cancel()
        self._run()

    def _may_leave(self, queue: PartitionQueue) -> bool:
        """Return whether the transaction and the sequence allow a batch to be sent. If the sequence needs a new epoch,
        begin it.
        """
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
            log.info("%s-%d: the sequence cannot continue; a new producer epoch begins", queue.topic, queue.partition)
            queue.use_producer(queue.producer_id, queue.epoch + 1)
        return True

    def _send_to(self, node_id: int, queues: list[PartitionQueue], now: float) -> None:
        connection = self._cluster.open_connection(node_id)
        if connection is None:
            if node_id not in self._connecting:
                self._connecting.add(node_id)
                connecting = self._spawn(self._connect(node_id), f"connect to node {node_id}")
                connecting.add_done_callback(lambda _: self._connected(node_id))
            return
        try:
            newest = connection.version_of(ProduceRequest, self._newest_version())
        except KafkaError as error:
            for queue in queues:
                self._outcomes.give_up(queue.waiting[0], error)
            return
        if newest < IMPLICIT and self._transaction is not None and self._transaction.version >= 2:
            # Older versions of Produce do not add the partition to the transaction. Once the coordinator reports the
            # downgrade as well, partitions are added beforehand.
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
                # The estimate may be too low if records compress badly; Kafka's client does not keep to
                # max.request.size exactly either.
                if batches and size + head.builder.estimated_size > limit:
                    still.append(queue)
                    continue
                self._accumulator.close_batch(head)
                first_time = head.payload is None
                batch = queue.take()
                size += len(batch.encode(self._transaction is not None))
                if first_time:
                    self._accumulator.compressed(batch)
                batches.append(batch)
                if queue.waiting and queue.may_send(now) and self._accumulator.is_ready(queue, now):
                    still.append(queue)
                # A queue that was served goes to the end of the order.
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
                posted = connection.post(request, version)
                self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
                if posted.done():
                    self._posted(node_id, batches)
                else:
                    posted.add_done_callback(lambda _: self._guarded(self._posted, node_id, batches))
                return
            answer = connection.send(request, version)
        except KafkaError as error:  # the connection is closed, and nothing was written
            self._outcomes.all_failed(batches, error)
            return
        self._in_flight[node_id] = self._in_flight.get(node_id, 0) + 1
        names = {topic_id: name for name, topic_id in ids.items()} if version >= TOPIC_IDS else {}
        answer.add_done_callback(lambda done: self._guarded(self._answered, node_id, batches, names, done))

    async def _connect(self, node_id: int) -> None:
        try:
            await self._cluster.connection(node_id)
            self._unreachable.discard(node_id)
        except AuthenticationError as error:  # it would fail again, until delivery.timeout.ms
            for queue in list(self._accumulator.active):
                while queue.node_id == node_id and queue.waiting:
                    self._outcomes.give_up(queue.waiting[0], error)
        except KafkaError as error:
            if error.code is ErrorCode.BROKER_NOT_AVAILABLE:  # no attempt was made, so there is no backoff
                await asyncio.sleep(self._cluster.retry_backoff(0))
            else:
                level = logging.DEBUG if node_id in self._unreachable else logging.WARNING
                log.log(level, "records wait for a connection to node %d: %s", node_id, error)
                self._unreachable.add(node_id)

    def _connected(self, node_id: int) -> None:
        """Record that an attempt to connect has ended. This is a done callback of the attempt's task, because a task
        that is cancelled early never runs its own code.
        """
        self._connecting.discard(node_id)
        self.wake()

    # -- responses

    def _guarded(self, handle: Callable[..., None], *arguments: object) -> None:
        try:
            if not self._closed or self._accumulator.incomplete:
                handle(*arguments)
        except Exception as error:
            self._on_crash("the sender", error)

    def _posted(self, node_id: int, batches: list[ProducerBatch]) -> None:
        """Record that a request without a response (acks=0) has been written: its batches count as acknowledged."""
        self._in_flight[node_id] -= 1
        self._land()
        self.wake()
        for batch in batches:
            self._outcomes.acknowledge(batch, -1, -1)

    def _answered(
        self,
        node_id: int,
        batches: list[ProducerBatch],
        names: dict[bytes, str],
        done: asyncio.Future[ProduceResponse],
    ) -> None:
        self._in_flight[node_id] -= 1
        self._land()
        self.wake()
        if done.cancelled():
            return
        failure = done.exception()
        if failure is not None:
            error = (
                failure if isinstance(failure, KafkaError) else KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(failure))
            )
            self._outcomes.all_failed(batches, error)
            return
        results: dict[tuple[str, int], PartitionProduceResponse] = {}
        for topic in done.result().responses:
            name = names.get(topic.topic_id, topic.name) if names else topic.name
            for partition in topic.partition_responses:
                results[name, partition.index] = partition
        outcomes = self._outcomes
        for batch in batches:
            result = results.get((batch.topic, batch.partition))
            if result is None:
                self._outcomes.failed(
                    batch, ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's response leaves this partition out"
                )
            elif result.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._outcomes.acknowledge(
                    batch, result.base_offset if not result.error_code else -1, result.log_append_time_ms
                )
            else:
                outcomes.failed(batch, error_code(result.error_code), result.error_message)
