"""Keep the state of one producer id in one partition (KIP-98), and check whether the producer's next batch is valid.

This module checks epochs and sequences. It keeps the last five batches, by which repeated batches are recognised, and
the coordinator epoch of markers. It never writes anything: `check_*` methods only check a batch, and `add_*` methods
only record a batch that is in the log. The rules are those of Kafka 4.1's ProducerAppendInfo, plus the marker rule of
KIP-1228 if the transaction version is known.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ...protocol.batch_header import MAX_SEQUENCE, BatchHeader
from ...protocol.control_records import ControlRecord
from ...protocol.errors import ErrorCode, KafkaError

BATCHES_TO_RETAIN: Final = 5
"""The number of batches remembered per producer: as many as may be in flight, so that any repetition is recognised."""

_STILL_RETAINED: Final = slice(1 - BATCHES_TO_RETAIN, None)
"""The part of the remembered batches that is kept when another batch is added."""

NO_EPOCH: Final = -1
TRANSACTION_V2: Final = 2


class BatchMetadata(NamedTuple):
    """A batch that a producer wrote. `offset_delta`: the last offset minus the first, and also the last sequence minus
    the first."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence of the batch's first record; -1 if the batch has no sequence."""
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE if self.last_sequence >= 0 else -1

    @property
    def first_offset(self) -> int:
        """The offset of the batch's first record."""
        return self.last_offset - self.offset_delta


class ProducerStateEntry:
    """The state of one producer id in one partition.

    `producer_epoch` is -1 until the producer has written a batch; an offset is -1 if there is none. `last_timestamp` is
    the timestamp in the producer's last batch (ms). `last_seen` is the time of the producer's last append, or of the
    broker's start if that was later, in seconds of the monotonic clock. `batches` has the last batches of the current
    epoch only, because each epoch begins with sequence 0. `batches` is a tuple, because each producer has one in each
    partition, and a tuple needs a tenth of a deque's memory. `generation` shows the partition's state manager whether a
    captured state contains the entry; if so, the entry must not change.
    """

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "generation",
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
        self.generation = 0
        self.last_seen = 0.0
        self.batches: tuple[BatchMetadata, ...] = ()

    def copy(self) -> ProducerStateEntry:
        """Return an independent copy of this entry."""
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
        """The sequence of the last record of the producer's current epoch; -1 if there is none."""
        return self.batches[-1].last_sequence if self.batches else -1

    @property
    def last_offset(self) -> int:
        """The offset of the last record that the producer wrote in its current epoch; -1 if there is none."""
        return self.batches[-1].last_offset if self.batches else -1

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the remembered batch with the same epoch and sequences as `header`, else None.

        If `header` is transactional, only batches of the open transaction count. The reason is that below EndTxn v5,
        transactions share an epoch, and a producer may use the sequences of an aborted batch again for other records.
        """
        batch = self._with_sequences_of(header)
        if batch is not None and header.is_transactional:
            return batch if 0 <= self.current_txn_first_offset <= batch.first_offset else None
        return batch

    def _with_sequences_of(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the remembered batch with the epoch and sequences of `header`, whatever its transaction, else None."""
        if header.producer_epoch != self.producer_epoch:
            return None
        last_sequence = header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
                return batch
        return None

    # --- judging -----------------------------------------------------------------------------------------------------

    def check_data(self, header: BatchHeader, *, sequenced: bool, transaction_version: int, where: str) -> None:
        """Raise KafkaError unless the producer may append this data batch next.

        The codes are INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, TRANSACTION_ABORTABLE and INVALID_TXN_STATE.
        `sequenced` is False for batches that a coordinator writes on behalf of a producer, because they have no
        sequence. `where` names the partition in errors.
        """
        epoch = header.producer_epoch
        if epoch < self.producer_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"{where}: producer {self.producer_id} sent epoch {epoch}, but its last epoch here is"
                f" {self.producer_epoch}: a newer instance has fenced this producer, or its transaction was ended;"
                " start a new producer",
            )
        if sequenced:
            self._check_sequence(header, transaction_version, where)
        if self.current_txn_first_offset >= 0 and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"{where}: producer {self.producer_id} sent a non-transactional batch, but has an open transaction that"
                f" began at offset {self.current_txn_first_offset}; end the transaction first",
            )

    def _check_sequence(self, header: BatchHeader, transaction_version: int, where: str) -> None:
        """Raise OUT_OF_ORDER_SEQUENCE_NUMBER unless the batch continues the producer's sequence.

        Raise TRANSACTION_ABORTABLE if the producer uses the sequences of an ended transaction again, as librdkafka and
        kafkajs do after a batch whose response was lost. OUT_OF_ORDER_SEQUENCE_NUMBER would be fatal for librdkafka.
        """
        epoch, first = header.producer_epoch, header.base_sequence
        if self.producer_epoch == NO_EPOCH:
            # The producer is unknown here. Retention may have removed its state (KIP-360), so any sequence is accepted.
            # With transaction version 2 each transaction has its own epoch, so its first batch must have sequence 0.
            if first and transaction_version >= TRANSACTION_V2:
                raise self._out_of_order(first, 0, where)
        elif epoch != self.producer_epoch:
            if first:
                raise self._out_of_order(first, 0, where)
        else:
            expected = (self.last_sequence + 1) & MAX_SEQUENCE
            if first != expected:
                if header.is_transactional and self._with_sequences_of(header) is not None:
                    raise KafkaError(
                        ErrorCode.TRANSACTION_ABORTABLE,
                        f"{where}: producer {self.producer_id} sent sequence {first}, which it has used in an earlier"
                        " transaction; abort the transaction, and begin it again with a new epoch",
                    )
                raise self._out_of_order(first, expected, where)

    def _out_of_order(self, sequence: int, expected: int, where: str) -> KafkaError:
        """Return an OUT_OF_ORDER_SEQUENCE_NUMBER error."""
        return KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"{where}: producer {self.producer_id} sent sequence {sequence}, but sequence {expected} is next (the last"
            f" epoch here is {self.producer_epoch})",
        )

    def check_marker(self, epoch: int, marker: ControlRecord, transaction_version: int, where: str) -> None:
        """Raise KafkaError INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if the marker is outdated.

        With transaction version 2 the epoch of a marker is one above the epoch of its transaction. So a marker with the
        epoch of the open transaction is a late marker of the previous transaction. A commit marker whose epoch is more
        than one above that epoch belongs to a later transaction. In this case a power failure with durability=os has
        lost the marker of the open transaction, so the outcome of the open transaction is unknown. Neither marker may
        end the open transaction.
        """
        expected = epoch >= self.producer_epoch
        if transaction_version >= TRANSACTION_V2 and self.current_txn_first_offset >= 0:
            above = epoch - self.producer_epoch
            expected = above == 1 or (above > 1 and not marker.is_commit)
        if not expected:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"{where}: the transaction marker of producer {self.producer_id} has epoch {epoch}, but the producer's"
                f" last epoch here is {self.producer_epoch}",
            )
        if marker.coordinator_epoch < self.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"{where}: the transaction marker of producer {self.producer_id} has coordinator epoch"
                f" {marker.coordinator_epoch}, but the last coordinator epoch here is {self.coordinator_epoch}",
            )

    # --- taking up ---------------------------------------------------------------------------------------------------

    def add_data(self, header: BatchHeader, base_offset: int) -> bool:
        """Record a data batch that is in the log at `base_offset`; return whether it began a transaction."""
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
        """Record a marker that is in the log; return the first offset of the transaction that it ended, or -1."""
        first_offset, self.current_txn_first_offset = self.current_txn_first_offset, -1
        if epoch != self.producer_epoch:
            self.batches = ()
            self.producer_epoch = epoch
        self.coordinator_epoch = max(self.coordinator_epoch, marker.coordinator_epoch)
        self.last_timestamp = timestamp
        return first_offset
