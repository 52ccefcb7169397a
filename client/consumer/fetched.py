"""`FetchedPartition`: the records of one partition in one Fetch response, decoded on demand, up to PORTION at a time.

It hides what an application must not see: control batches, records below the requested position, and under
read_committed the records of aborted transactions (`aborted.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Final

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
from .deserialization import RecordDeserializer
from .errors import RecordCorruptError
from .record import BatchOrigin, ConsumerRecord, records_of

PORTION: Final = 500
"""Maximum number of records decoded at a time, as many as a poll returns by default. Python's garbage collector runs
after 700 new objects, and has less work if earlier records have been dropped by then.
"""


class FetchedPartition:
    """Reads the records in `data` from `fetch_offset` on. `data` contains whole batches, and possibly a part of one
    more.

    `aborted` is [(producer_id, first_offset)] under read_committed, else None. After each call `next_offset` is the
    position after the returned and skipped records. If `take` raises RecordCorruptError, the batch cannot be read from
    `next_offset` on. `limits` bound the contents of a batch. If `deserialize` fails for a record, the records before it
    are returned, and the next `take` raises the error.
    """

    __slots__ = (
        "_aborted",
        "_at",
        "_batches",
        "_check_crcs",
        "_data",
        "_deserialize",
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
        deserialize: RecordDeserializer | None = None,
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
        self._deserialize = deserialize
        self._reader: BatchReader | None = None
        self._records: list[ConsumerRecord[Any, Any]] = []
        self._index = 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the batches that have not been decoded yet."""
        return self.size - self._at

    @property
    def end_offset(self) -> int:
        """The offset after the last whole batch, at which the next fetch begins. To find it, only batch headers are
        read.
        """
        end = self.next_offset
        try:
            for _, header in iter_batches(self._data):
                end = max(end, header.next_offset)
        except KafkaError:
            pass  # `take` raises it when it reaches the batch
        return end

    def take(self, most: int) -> list[ConsumerRecord[Any, Any]]:
        """Return the next records, at most `most`; an empty list means that no records are left."""
        taken: list[ConsumerRecord[Any, Any]] = []
        if self._index >= len(self._records) and not self._load():
            return taken
        while len(taken) < most and (self._index < len(self._records) or self._read_on()):
            first = self._index
            self._index = end = min(first + most - len(taken), len(self._records))
            records = self._records[first:end]
            if self._deserialize is not None:
                try:
                    records = self._deserialize.several(records)
                except Exception:
                    self._index = first
                    if taken:
                        return taken
                    raise
                self._index = first + len(records)
            taken += records
            self._advance(taken[-1])
        return taken

    def take_one(self) -> ConsumerRecord[Any, Any] | None:
        """Return the next record, or None if no records are left."""
        index = self._index
        if index >= len(self._records):
            if not self._load():
                return None
            index = 0
        record = self._records[index]
        if self._deserialize is not None:
            record = self._deserialize(record)
        self._index = index + 1
        self._advance(record)
        return record

    # -- inside

    def _read_on(self) -> bool:
        """Decode more records of a partly read batch. Return False if there is no such batch, or if it is damaged."""
        if self._reader is not None:
            with contextlib.suppress(KafkaError):  # raised again by the next call of `take`
                return self._load()
        return False

    def _advance(self, last: ConsumerRecord[Any, Any]) -> None:
        header = self._header
        assert header is not None
        self.leader_epoch = last.origin.leader_epoch
        if self._index < len(self._records) or self._reader is not None:
            self.next_offset = last.offset + 1
            return
        self.next_offset = header.next_offset
        # Look ahead, so that the position passes hidden batches (markers, aborted records) together with the last
        # record.
        with contextlib.suppress(KafkaError):  # raised again by the next call of `take`
            self._load()

    def _load(self) -> bool:
        """Decode the next visible records, up to PORTION of one batch. Return False if no visible record is left."""
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
                # The whole batch lies before the position, but it may have a marker, which ends an aborted
                # transaction.
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
        """Return the reader of a batch, or None if the application must not see its records."""
        if self._check_crcs and not verify_crc(self._data, position, header):
            raise CorruptBatch("its checksum does not match its content")
        if self._aborted.hides(self._data, position, header):
            return None
        origin = BatchOrigin(self.partition, header.partition_leader_epoch, header.timestamp_type)
        return BatchReader(self._data, position, header, origin, self._limits)

    def _read(self, reader: BatchReader, position: int, header: BatchHeader) -> bool:
        """Decode up to PORTION more records of a batch. Return False if none of them is visible."""
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
        """Return the error for a batch that cannot be read. The next `take` reads the batch again and raises the error
        again.
        """
        self._batches = iter_batches(self._data, position)
        self._reader, self._at = None, position
        offset = max(header.base_offset, self.next_offset)
        return RecordCorruptError(self.partition, offset, error.message, header.next_offset)
