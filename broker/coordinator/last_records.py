"""Finds the last record of each key of a state partition, without decoding keys or values.

A coordinator's log has many records per key, and a replay needs only the last record. Superseded records are dropped
undecoded. A replay therefore costs little more than reading the log, and a damaged superseded record cannot make its
key unreadable.

Invariant: replaying the remaining records gives the same state as replaying every record of the log in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ...protocol.batch_header import CONTROL, TRANSACTIONAL
from ...protocol.control_records import ControlType, read_control_record
from ...protocol.keyed_records import KeyedRecord, keyed_batches
from ...protocol.records import Record
from .state_log import StateRecord

_LEGACY_OFFSET: Final = b"\x00\x00"
_OFFSET: Final = b"\x00\x01"
"""The first bytes of an offset's key: `_LEGACY_OFFSET` before Kafka 0.9, `_OFFSET` since.

The rest of the key is the same.
"""


class LastRecords:
    """The last record of each key of a log without transactions.

    `count` is the number of records read. `end_offset` is the end offset of the log.
    """

    def __init__(self) -> None:
        self._last: dict[bytes, KeyedRecord] = {}
        self.count = 0
        self.end_offset = 0

    def take(self, batches: bytes) -> None:
        """Read the next batches of the log, ignoring markers. Raise CorruptBatch if a batch is malformed."""
        last = self._last
        for last_offset, attributes, _, records in keyed_batches(batches):
            self.end_offset = last_offset + 1
            if attributes & CONTROL:
                continue
            self.count += len(records)
            for record in records:
                key = record[2]
                if key is not None:
                    last[key] = record

    def records(self) -> list[StateRecord]:
        """Return the last record of each key, tombstones included, in log order."""
        return [StateRecord._make(record) for record in sorted(self._last.values())]


class LastOffsets:
    """The last record of each key of `__consumer_offsets`.

    The offsets of a transaction become valid with its commit marker. The last record of a key is the record with the
    highest offset, even if another record was committed later. A tombstone removes all earlier records of its key,
    including those of open transactions. `count` is the number of records read. `end_offset` is the end offset of the
    log.
    """

    def __init__(self) -> None:
        self._last: dict[bytes, KeyedRecord] = {}
        self._pending: dict[int, dict[bytes, KeyedRecord]] = {}
        self._removed: dict[bytes, int] = {}
        """The offset of each key's last tombstone among the tombstones that were read while any transaction was open.

        There may be very many open transactions. Therefore a tombstone is not applied to them immediately: a record of
        an open transaction is compared with the tombstone's offset when the record is used.
        """
        self.count = 0
        self.end_offset = 0

    def take(self, batches: bytes) -> None:
        """Read the next batches of the log, and apply their markers. Raise CorruptBatch if a batch is malformed."""
        for last_offset, attributes, producer_id, records in keyed_batches(batches):
            self.end_offset = last_offset + 1
            self.count += len(records)
            if attributes & CONTROL:
                for record in records:
                    self._end(producer_id, record)
                continue
            last = self._pending.setdefault(producer_id, {}) if attributes & TRANSACTIONAL else self._last
            for record in records:
                key = record[2]
                if key is None:
                    continue
                if key[:2] == _LEGACY_OFFSET:
                    key = _OFFSET + key[2:]
                if record[3] is None:
                    self._remove(key, record[0])
                else:
                    last[key] = record

    def _remove(self, key: bytes, offset: int) -> None:
        self._last.pop(key, None)
        if self._pending:
            self._removed[key] = offset

    def _is_removed(self, key: bytes, record: KeyedRecord) -> bool:
        return record[0] < self._removed.get(key, -1)

    def _end(self, producer_id: int, marker: KeyedRecord) -> None:
        control = read_control_record(Record(*marker))
        if control.type is ControlType.UNKNOWN:
            return
        pending = self._pending.pop(producer_id, None)
        if pending is not None and control.is_commit:
            last = self._last
            for key, record in pending.items():
                existing = last.get(key)
                if (existing is None or existing[0] < record[0]) and not self._is_removed(key, record):
                    last[key] = record
        if not self._pending:
            self._removed.clear()

    def records(self) -> Iterator[tuple[int | None, StateRecord]]:
        """Yield (None, record) for each key that has a value.

        Also yield (producer id, record) for each record of an open transaction.
        """
        for record in self._last.values():
            yield None, StateRecord._make(record)
        for producer_id, pending in self._pending.items():
            for key, record in pending.items():
                if not self._is_removed(key, record):
                    yield producer_id, StateRecord._make(record)
