"""The records of one partition out of one Fetch answer: `FetchedPartition`. Decodes them when it is asked, a batch or,
of a large batch, a portion at a time.

Owns what a reader must not see: control batches, records below the position that was asked for, and under
read_committed the records of aborted transactions (`aborted.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from ...protocol.errors import KafkaError
from ...protocol.record_walk import DEFAULT_LIMITS, RecordLimits
from ...protocol.records import (
    BatchHeader,
    BatchReader,
    CorruptBatch,
    iter_batches,
    verify_crc,
)
from ...protocol.schema import Buffer
from ..values import TopicPartition
from .aborted import AbortedTransactions
from .errors import RecordCorruptError
from .record import BatchOrigin, ConsumerRecord, records_of

PORTION: Final = 500
"""At most so many records are decoded at a time, as many as one poll returns by default: what is made and dropped again
before 700 objects are there costs the garbage collector nothing."""


class FetchedPartition:
    """Reads `data`, whole batches and perhaps a part of one, from `fetch_offset` on.

    `aborted` is [(producer_id, first_offset)] under read_committed, else None. After any call `next_offset` is the
    position behind what was handed out and skipped. `take` raises RecordCorruptError; then next_offset stands before
    what could not be read. `limits` bound what one batch may hold.
    """

    __slots__ = (
        "_aborted",
        "_at",
        "_batches",
        "_check_crcs",
        "_data",
        "_header",
        "_index",
        "_limits",
        "_reader",
        "_records",
        "incarnation",
        "leader_epoch",
        "next_offset",
        "partition",
        "size",
    )

    def __init__(
        self,
        partition: TopicPartition,
        data: Buffer,
        fetch_offset: int,
        aborted: Sequence[tuple[int, int]] | None = None,
        *,
        check_crcs: bool = True,
        incarnation: int = 0,
        limits: RecordLimits = DEFAULT_LIMITS,
    ) -> None:
        self.partition = partition
        self.next_offset = fetch_offset
        self.leader_epoch = -1
        self.incarnation = incarnation
        self.size = len(data)
        self._data = data
        self._check_crcs = check_crcs
        self._aborted = AbortedTransactions(aborted)
        self._batches = iter_batches(data)
        self._header: BatchHeader | None = None
        self._at = 0
        self._limits = limits
        self._reader: BatchReader | None = None
        self._records: list[ConsumerRecord] = []
        self._index = 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the batches that were not decoded yet."""
        return self.size - self._at

    @property
    def end_offset(self) -> int:
        """The offset behind the last whole batch: where the next fetch begins. Looks at headers only."""
        end = self.next_offset
        try:
            for _, header in iter_batches(self._data):
                end = max(end, header.next_offset)
        except KafkaError:
            pass  # told by `take`, when it comes to that batch
        return end

    def take(self, most: int) -> list[ConsumerRecord]:
        """Return up to `most` next records; an empty list means that there are none left."""
        taken: list[ConsumerRecord] = []
        if self._index >= len(self._records) and not self._load():
            return taken
        while len(taken) < most and (self._index < len(self._records) or self._read_on()):
            first = self._index
            self._index = end = min(first + most - len(taken), len(self._records))
            taken += self._records[first:end]
            self._advance(taken[-1])
        return taken

    def take_one(self) -> ConsumerRecord | None:
        """Return the next record, or None when there are none left."""
        index = self._index
        if index >= len(self._records):
            if not self._load():
                return None
            index = 0
        record = self._records[index]
        self._index = index + 1
        self._advance(record)
        return record

    # -- inside

    def _read_on(self) -> bool:
        """Decode the next portion of a batch that has more; False where it has none, or where it is damaged."""
        if self._reader is not None:
            with contextlib.suppress(KafkaError):  # raised when it is asked for
                return self._load()
        return False

    def _advance(self, last: ConsumerRecord) -> None:
        header = self._header
        assert header is not None
        self.leader_epoch = last.origin.leader_epoch
        if self._index < len(self._records) or self._reader is not None:
            self.next_offset = last.offset + 1
            return
        self.next_offset = header.next_offset
        # Look ahead, so that the position passes what nobody sees (markers, aborted records) with the last record.
        with contextlib.suppress(KafkaError):  # told when it is asked for
            self._load()

    def _load(self) -> bool:
        """Decode the next batch, or portion of one, that has records to hand out; False at the end."""
        while True:
            if self._reader is not None:
                assert self._header is not None
                if self._read(self._reader, self._at - self._header.size, self._header):
                    return True
                continue
            try:
                found = next(self._batches, None)
            except KafkaError as error:
                raise RecordCorruptError(self.partition, self.next_offset, error.message) from error
            if found is None:
                self._at = self.size
                self._records, self._index, self._header = [], 0, None
                return False
            position, header = found
            if header.next_offset <= self.next_offset:
                # Whole batch lies before the position: its transaction state still counts (a marker ends an abort).
                self._aborted.hides(self._data, position, header)
                continue
            try:
                reader = self._visible(position, header)
            except KafkaError as error:
                raise self._corrupt(position, header, error) from error
            self._at = position + header.size
            if reader is None:
                self.next_offset = header.next_offset
            elif self._read(reader, position, header):
                return True

    def _visible(self, position: int, header: BatchHeader) -> BatchReader | None:
        """The reader of a batch, None if its records are not to be handed out."""
        if self._check_crcs and not verify_crc(self._data, position, header):
            raise CorruptBatch("its checksum does not match its content")
        if self._aborted.hides(self._data, position, header):
            return None
        origin = BatchOrigin(self.partition, header.partition_leader_epoch, header.timestamp_type)
        return BatchReader(self._data, position, header, origin, self._limits)

    def _read(self, reader: BatchReader, position: int, header: BatchHeader) -> bool:
        """Decode the next portion of a batch; False when none of its records are to be handed out."""
        try:
            records = records_of(reader.read(PORTION))
        except KafkaError as error:
            raise self._corrupt(position, header, error) from error
        self._reader = reader if reader.left else None
        if header.base_offset < self.next_offset:
            records = [record for record in records if record.offset >= self.next_offset]
        self._header = header
        if records:
            self._records, self._index = records, 0
        elif self._reader is None:
            self.next_offset = header.next_offset
        return bool(records)

    def _corrupt(self, position: int, header: BatchHeader, error: KafkaError) -> RecordCorruptError:
        """What to raise for a batch that cannot be read on; asked again, it says the same again."""
        self._batches = iter_batches(self._data, position)
        self._reader, self._at = None, position
        offset = max(header.base_offset, self.next_offset)
        return RecordCorruptError(self.partition, offset, error.message, header.next_offset)
