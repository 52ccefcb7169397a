"""What a partition remembers of one producer id (KIP-98), and the rules by which its next batch is judged.

Owns: epoch and sequence checks, the cache of the last five batches, which recognises repetitions, and the coordinator
epoch of markers. Never writes anything: `check_*` only judges, `add_*` only takes up what is in the log. The rules are
those of Kafka 4.1's ProducerAppendInfo, with the marker rule of KIP-1228 where the transaction version is known.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ...protocol.batch_header import MAX_SEQUENCE, BatchHeader
from ...protocol.control_records import ControlRecord
from ...protocol.errors import ErrorCode, KafkaError

BATCHES_TO_RETAIN: Final = 5
"""As many as a producer may have in flight, so that each can be repeated."""

_STILL_RETAINED: Final = slice(1 - BATCHES_TO_RETAIN, None)
"""Of the last batches, when one more is added."""

NO_EPOCH: Final = -1
TRANSACTION_V2: Final = 2


class BatchMetadata(NamedTuple):
    """One batch that a producer wrote; `offset_delta` is last minus first offset (and sequence)."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE if self.last_sequence >= 0 else -1

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerStateEntry:
    """The state of one producer id. `producer_epoch` is -1 until something was written; offsets are -1 for none.

    `last_timestamp` is the producer's own. `last_seen` is when its last batch came, or when the broker started if that
    was later, in seconds of the monotonic clock.
    The last batches are those of the current epoch only: an epoch begins with sequence 0. A tuple of a few takes a
    tenth of a deque's memory, and there is one for each producer in each partition.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_seen",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NO_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = -1,
        current_txn_first_offset: int = -1,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.current_txn_first_offset = current_txn_first_offset
        self.last_seen = 0.0
        self.batches: tuple[BatchMetadata, ...] = ()

    def copy(self) -> ProducerStateEntry:
        twin = ProducerStateEntry(
            self.producer_id,
            self.producer_epoch,
            self.coordinator_epoch,
            self.last_timestamp,
            self.current_txn_first_offset,
        )
        twin.last_seen = self.last_seen
        twin.batches = self.batches
        return twin

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        """Offset of the last record written in this epoch; -1 for none."""
        return self.batches[-1].last_offset if self.batches else -1

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The remembered batch with the epoch and sequences of `header`, if there is one."""
        if header.producer_epoch != self.producer_epoch:
            return None
        last_sequence = header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
                return batch
        return None

    # --- judging -----------------------------------------------------------------------------------------------------

    def check_data(self, header: BatchHeader, *, sequenced: bool, transaction_version: int, where: str) -> None:
        """Raise INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE if the batch can't follow.

        `sequenced` is False for what a coordinator writes on a producer's behalf: its batches carry no sequence.
        """
        epoch = header.producer_epoch
        if epoch < self.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"{where}: producer {self.producer_id} has epoch {epoch}, but epoch {self.producer_epoch} has written"
                " already: a newer instance fenced it, or its transaction was ended",
            )
        if sequenced:
            self._check_sequence(header, transaction_version, where)
        if self.current_txn_first_offset >= 0 and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"{where}: producer {self.producer_id} wrote outside of its transaction, open since offset"
                f" {self.current_txn_first_offset}",
            )

    def _check_sequence(self, header: BatchHeader, transaction_version: int, where: str) -> None:
        epoch, first = header.producer_epoch, header.base_sequence
        if self.producer_epoch == NO_EPOCH:
            # Nothing is known of the producer: retention may have taken it (KIP-360), so any sequence may come. With
            # transaction version 2 each transaction has an epoch of its own, so a first batch has to be the first.
            if first and transaction_version >= TRANSACTION_V2:
                raise self._out_of_order(first, 0, where)
        elif epoch != self.producer_epoch:
            if first:
                raise self._out_of_order(first, 0, where)
        else:
            expected = (self.last_sequence + 1) & MAX_SEQUENCE
            if first != expected:
                raise self._out_of_order(first, expected, where)

    def _out_of_order(self, sequence: int, expected: int, where: str) -> KafkaError:
        return KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"{where}: producer {self.producer_id} sent sequence {sequence} where {expected} is next (last epoch"
            f" {self.producer_epoch})",
        )

    def check_marker(self, epoch: int, marker: ControlRecord, transaction_version: int, where: str) -> None:
        """Raise INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if the marker comes from the past.

        With transaction version 2 a marker's epoch is one above its transaction's. So a marker of the open
        transaction's own epoch is a late one of the transaction before. A commit that is further above belongs to a
        later transaction: the open one's own marker is lost (durability=os, and a power failure), and nobody knows
        whether it was to be committed. Neither must end the open transaction.
        """
        expected = epoch >= self.producer_epoch
        if transaction_version >= TRANSACTION_V2 and self.current_txn_first_offset >= 0:
            above = epoch - self.producer_epoch
            expected = above == 1 or (above > 1 and not marker.is_commit)
        if not expected:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"{where}: the transaction marker of producer {self.producer_id} has epoch {epoch}, its last epoch"
                f" here is {self.producer_epoch}",
            )
        if marker.coordinator_epoch < self.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"{where}: the transaction marker of producer {self.producer_id} has coordinator epoch"
                f" {marker.coordinator_epoch}, {self.coordinator_epoch} has written already",
            )

    # --- taking up ---------------------------------------------------------------------------------------------------

    def add_data(self, header: BatchHeader, base_offset: int) -> bool:
        """Take up a batch that is in the log at `base_offset`; True when it opened a transaction."""
        delta = header.last_offset_delta
        if header.producer_epoch != self.producer_epoch:
            self.batches = ()
            self.producer_epoch = header.producer_epoch
        sequence = header.base_sequence
        last_sequence = (sequence + delta) & MAX_SEQUENCE if sequence >= 0 else -1
        batch = BatchMetadata(last_sequence, base_offset + delta, delta, header.max_timestamp)
        self.batches = self.batches[_STILL_RETAINED] + (batch,)
        self.last_timestamp = header.max_timestamp
        if header.is_transactional and self.current_txn_first_offset < 0:
            self.current_txn_first_offset = base_offset
            return True
        return False

    def add_marker(self, epoch: int, marker: ControlRecord, timestamp: int) -> int:
        """Take up a marker that is in the log; returns the first offset of the transaction it ended, -1 for none."""
        first_offset, self.current_txn_first_offset = self.current_txn_first_offset, -1
        if epoch != self.producer_epoch:
            self.batches = ()
            self.producer_epoch = epoch
        self.coordinator_epoch = max(self.coordinator_epoch, marker.coordinator_epoch)
        self.last_timestamp = timestamp
        return first_offset
