"""`BatchOutcomes`: acknowledges, retries, splits or fails a batch whose response has arrived or is overdue.

This module decides what each response, or a missed deadline, means for the batch. `transaction_manager.py` decides what
the outcome of the batch means for the transaction. `partition_queue.py` explains how retries keep the order and do not
duplicate records.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ..cluster import Cluster
from ..config import ProducerConfig
from ..errors import KafkaTimeoutError, UnknownTopicError, error_for
from .accumulator import RecordAccumulator
from .batch import ProducerBatch
from .partition_queue import SEQUENCE_ERRORS, PartitionQueue
from .transaction_manager import TransactionManager
from .transaction_state import GOES_ON

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
"""Errors that need new metadata before the retry."""


class BatchOutcomes:
    """Handles the responses to Produce requests. `wake` makes the sender check its batches again."""

    def __init__(
        self, config: ProducerConfig, cluster: Cluster, accumulator: RecordAccumulator, wake: Callable[[], None]
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._accumulator = accumulator
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self.transaction: TransactionManager | None = None
        self.closed = False

    def all_failed(self, batches: Iterable[ProducerBatch], error: KafkaError) -> None:
        """Handle the failure of a request for all of its batches, as `failed` does for one batch."""
        for batch in batches:
            self.failed(batch, error.code, error.message)

    def acknowledge(self, batch: ProducerBatch, base_offset: int, log_append_time: int) -> None:
        """Complete a batch that the broker has written at `base_offset` (-1: unknown)."""
        queue = self._accumulator.queue_of(batch)
        queue.acknowledged(batch, self._loop.time())
        if batch.doubtful:
            for part in _rest_of(batch, queue):
                part.doubtful = False  # the whole batch was not written, or the broker would have refused this part
        if self.transaction is not None:
            self.transaction.wrote(queue.key)
        if not batch.done:
            batch.complete(base_offset, log_append_time)
        self._accumulator.release(batch)
        self._settle(queue)

    def failed(self, batch: ProducerBatch, code: ErrorCode, message: str | None) -> None:
        """Retry, split or give up a batch in flight that was not acknowledged."""
        queue = self._accumulator.queue_of(batch)
        if code in STALE_METADATA:
            self._cluster.request_refresh()
        if code in MAYBE_WRITTEN:
            batch.maybe_written = True
        if self._can_split(batch, code):
            queue.retry(batch, code)
            queue.failed.remove(batch)
            queue.insert_parts(self._accumulator.split(batch))
        elif batch.doubtful and code in SEQUENCE_ERRORS and _is_oldest(batch, queue) and not batch.done:
            # The whole batch was probably written. With other sequence numbers the part would be written twice.
            unknown = KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"records for {queue.topic}-{queue.partition} may or may not be written: the response to their "
                f"batch was lost, the batch was then refused as too large, and now a part of it fails: {code.name}",
            )
            self.give_up(batch, unknown, code)
            return
        elif self._can_retry(queue, batch, code):
            queue.retry(batch, code)
        else:
            self.give_up(batch, error_for(code, message), code)
            return
        self._settle(queue)

    def _can_split(self, batch: ProducerBatch, code: ErrorCode) -> bool:
        return (
            code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
            and batch.record_count > 1
            and not batch.done
            and not self.closed
            and (self.transaction is None or self.transaction.state in GOES_ON)
        )

    def _can_retry(self, queue: PartitionQueue, batch: ProducerBatch, code: ErrorCode) -> bool:
        if batch.done or batch.attempts > self._config.retries or self.closed:
            return False
        if self.transaction is not None:
            if self.transaction.state not in GOES_ON:
                return False
            # If the oldest batch is out of order, only an abort corrects the sequence.
            if code in SEQUENCE_ERRORS:
                return code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not _is_oldest(batch, queue)
            return code.retriable
        return code.retriable or (code in SEQUENCE_ERRORS and queue.idempotent)

    def give_up(self, batch: ProducerBatch, error: KafkaError, code: ErrorCode | None = None) -> None:
        """Fail a batch that will not be sent again, and the transaction that it belongs to."""
        queue = self._accumulator.queue_of(batch)
        if batch.doubtful:
            for part in _rest_of(batch, queue):
                part.doubtful = False
                self.give_up(part, error, code)
        queue.give_up(batch)
        if not batch.done:
            self._accumulator.fail(batch, error)
            if self.transaction is not None:
                if batch.was_sent:
                    self.transaction.sequence_lost()
                self.transaction.batch_failed(error, code)
        self._accumulator.release(batch)
        self._settle(queue)

    def _settle(self, queue: PartitionQueue) -> None:
        if not queue.failed:
            if not queue.in_flight:
                self._wake()
            return
        attempts = max(batch.attempts for batch in queue.failed)
        if attempts == 0:  # they are parts of a batch that was too large
            backoff = 0.0
        elif any(batch.last_error is ErrorCode.CONCURRENT_TRANSACTIONS for batch in queue.failed):
            backoff = 0.005
        else:
            backoff = self._cluster.retry_backoff(attempts - 1)
        if queue.settle(self._loop.time() + backoff):
            self._wake()

    def expire(self, queue: PartitionQueue, now: float) -> None:
        """Give up batches that are older than delivery.timeout.ms. A batch in flight keeps its place in the queue until
        its response arrives.
        """
        topic = self._cluster.metadata.topics.get(queue.topic)
        is_missing = topic is not None and topic.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for batch in [*queue.in_flight, *queue.failed, *queue.waiting]:
            if batch.deadline > now or batch.done:
                continue
            late = (
                f"records for {queue.topic}-{queue.partition} were not acknowledged within delivery.timeout.ms = "
                f"{self._config.delivery_timeout_s * 1000:.0f}"
            )
            error: KafkaTimeoutError
            if is_missing:
                why = f": topic {queue.topic!r} does not exist"
                error = UnknownTopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, late + why)
            else:
                why = f"; the last response was {batch.last_error.name}" if batch.last_error else ""
                error = KafkaTimeoutError(ErrorCode.REQUEST_TIMED_OUT, late + why)
            if batch.in_flight:
                self._accumulator.fail(batch, error)
                if self.transaction is not None:
                    self.transaction.sequence_lost()
                    self.transaction.batch_failed(error)
            else:
                self.give_up(batch, error)


def _is_oldest(batch: ProducerBatch, queue: PartitionQueue) -> bool:
    """Return whether this is the oldest of the batches that are in flight or to be retried."""
    return batch is min([*queue.in_flight, *queue.failed], key=lambda one: one.order)


def _rest_of(part: ProducerBatch, queue: PartitionQueue) -> list[ProducerBatch]:
    """Return the other parts of the batch that `part` was split from, if they still wait to be sent."""
    return [one for one in (*queue.failed, *queue.waiting) if one is not part and one.order[0] == part.order[0]]


def earliest_deadline(queue: PartitionQueue) -> float:
    """Return the loop time at which the next of the queue's batches is to be given up.

    A batch in flight that was already given up does not count; the batches after it have their own deadlines.
    """
    earliest = queue.waiting[0].deadline if queue.waiting else float("inf")
    for batch in queue.in_flight:
        if not batch.done and batch.deadline < earliest:
            earliest = batch.deadline
    for batch in queue.failed:
        if batch.deadline < earliest:
            earliest = batch.deadline
    return earliest
