"""`PartitionQueue`: a partition's queue of batches, and its sequence, which makes retries safe (KIP-98, KIP-360).

It keeps the order: batches are sent and retried by ascending `order`, and their sequence numbers follow each other.
After a failure no new batch is sent until every batch in flight has a response. Then the failed batches are retried in
order, one at a time until the first success. The queue sends nothing itself, and knows neither timeouts nor
transactions.

Why an idempotent producer never duplicates or loses a record:

* A batch that may have been written keeps its producer id, epoch and sequence on every retry, so the broker drops a
  duplicate. The batch is renumbered only after the broker has responded OUT_OF_ORDER_SEQUENCE_NUMBER to it as the
  oldest unacknowledged batch. That response means that neither this batch nor any later batch was written.
* If a batch was given up, `gap` is its order. Later batches that were already sent are still retried unchanged, because
  the lost batch may have been written after all. The first batch that was never sent begins a new epoch with sequence
  0, so that it does not wait for the gap to be filled. Each partition has its own epoch, because brokers keep the state
  of producers per partition.
* A broker that has no state of a producer accepts any sequence number. So a partition begins, and resumes after a
  pause, with only one batch in flight. Otherwise a second batch could be accepted although the first was refused.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ...protocol.errors import ErrorCode
from ...protocol.records import next_sequence
from .batch import ProducerBatch

MAX_EPOCH: Final = 32_766
"""The last epoch of a producer id, because a coordinator fences with 32767. The producer then needs a new id."""

IDLE_S: Final = 60.0
"""Seconds without an acknowledgement after which the broker's state of the producer may have expired."""

SEQUENCE_ERRORS: Final = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH}
)
"""Errors which mean that the batch was not written, because its sequence is not the next one."""


NO_GAP: Final = (-1,)
"""The value of `gap` if there is no gap: an order that comes before those of all batches."""


class PartitionQueue:
    """The batches of a partition, in order. Without `idempotent` they keep their order, but have no sequences."""

    __slots__ = (
        "epoch",
        "failed",
        "gap",
        "idempotent",
        "in_flight",
        "key",
        "last_acknowledged_at",
        "next_sequence",
        "node_id",
        "partition",
        "producer_id",
        "retry_at",
        "solo",
        "topic",
        "waiting",
    )

    def __init__(self, topic: str, partition: int, idempotent: bool) -> None:
        self.topic = topic
        self.partition = partition
        self.key = (topic, partition)
        self.idempotent = idempotent
        self.waiting: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        self.failed: list[ProducerBatch] = []
        self.retry_at = 0.0
        self.node_id = -1
        self.producer_id = -1
        self.epoch = -1
        self.next_sequence = 0
        self.gap: tuple[int, ...] = NO_GAP
        self.solo = idempotent
        self.last_acknowledged_at = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether the queue is empty: no batch waits, is in flight or is to be retried."""
        return not (self.waiting or self.in_flight or self.failed)

    @property
    def needs_new_epoch(self) -> bool:
        """Whether the next batch can only be sent with a new epoch. Meaningful only while no batch is in flight."""
        if not self.idempotent or not self.waiting:
            return False
        head = self.waiting[0]
        if head.was_sent:
            return head.last_error in SEQUENCE_ERRORS
        return self.gap is not NO_GAP

    def may_send(self, now: float) -> bool:
        """Return whether the order allows another batch to be sent now."""
        if self.failed or now < self.retry_at:
            return False
        if not self.in_flight:
            return True
        return not (
            self.idempotent and (self.solo or now - self.last_acknowledged_at > IDLE_S or self.gap is not NO_GAP)
        )

    def use_producer(self, producer_id: int, epoch: int) -> None:
        """Number the batches from 0 on, with this producer id and epoch. No batch may be in flight."""
        assert not self.in_flight, "batches in flight keep their producer epoch"
        if producer_id != self.producer_id:
            self.solo = True  # brokers have no state of a new producer id
        self.producer_id = producer_id
        self.epoch = epoch
        self.next_sequence = 0
        self.gap = NO_GAP
        for batch in self.waiting:
            batch.assign(-1, -1, -1)
            batch.was_sent = False

    def take(self) -> ProducerBatch:
        """Remove the oldest batch from the queue to send it, and return it. Number it if it has no sequence yet."""
        batch = self.waiting.popleft()
        if self.idempotent and batch.base_sequence < 0:
            batch.assign(self.producer_id, self.epoch, self.next_sequence)
            self.next_sequence = next_sequence(self.next_sequence, batch.record_count)
        batch.attempts += 1
        batch.was_sent = batch.in_flight = True
        self.in_flight.append(batch)
        return batch

    def acknowledged(self, batch: ProducerBatch, now: float) -> None:
        """Record that the broker has acknowledged the batch."""
        self._remove_in_flight(batch)
        self.solo = False
        if batch.order > self.gap:
            self.gap = NO_GAP  # earlier batches that were given up have been written after all
        self.last_acknowledged_at = now

    def retry(self, batch: ProducerBatch, error: ErrorCode) -> None:
        """Record that the batch failed and is to be sent again."""
        self._remove_in_flight(batch)
        batch.last_error = error
        self.failed.append(batch)

    def give_up(self, batch: ProducerBatch) -> None:
        """Record that the batch, in flight or waiting, will not be sent again."""
        if batch.in_flight:
            self._remove_in_flight(batch)
        elif batch in self.failed:
            self.failed.remove(batch)
        else:
            self.waiting.remove(batch)
        if batch.was_sent and self.idempotent:
            self.gap = max(self.gap, batch.order)

    def clear(self) -> None:
        """Forget all batches, because none of them will be sent any more."""
        self.waiting.clear()
        self.in_flight.clear()
        self.failed.clear()

    def settle(self, retry_at: float) -> bool:
        """Queue the failed batches for a retry, oldest first. While a batch is in flight, do nothing and return
        False.
        """
        if self.in_flight:
            return False
        if self.failed:
            self.failed.sort(key=lambda batch: batch.order)
            for behind in self.failed[1:]:
                if behind.last_error in SEQUENCE_ERRORS:
                    behind.last_error = ErrorCode.NONE  # it was out of order only because the oldest batch failed
            self.waiting.extendleft(reversed(self.failed))
            self.failed.clear()
            self.retry_at = retry_at
            self.solo = self.idempotent
        return True

    def insert_parts(self, parts: list[ProducerBatch]) -> None:
        """Queue the parts of a split batch for a retry with the sequence numbers of that batch."""
        self.failed.extend(parts)

    def _remove_in_flight(self, batch: ProducerBatch) -> None:
        batch.in_flight = False
        self.in_flight.remove(batch)
