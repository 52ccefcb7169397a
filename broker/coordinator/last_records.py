"""The last record of each key of a state partition, found without decoding a key or a value.

A coordinator's log holds many records of each key, and a start needs the last one. What was replaced is dropped as it
was read: nothing of it is decoded, so that a start costs little more than reading, and what is no longer said cannot
make a key unreadable.

Invariant: taking up what remains gives the state that taking up every record of the log in order would give.
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
"""How the key of a committed offset begins, before 0.9 and since. What follows is the same."""


class LastRecords:
    """Of a log without transactions. `count`: the records that were read; `end_offset`: where the log ends."""

    def __init__(self) -> None:
        self._last: dict[bytes, KeyedRecord] = {}
        self.count = 0
        self.end_offset = 0

    def take(self, batches: bytes) -> None:
        """Read the next batches of the log; markers mean nothing here. Raises CorruptBatch."""
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
        """The last record of each key, tombstones included, in the order of the log."""
        return [StateRecord._make(record) for record in sorted(self._last.values())]


class LastOffsets:
    """Of the groups' log, where a transaction's offsets count from its commit marker on.

    The newest record of a key is the one with the highest offset, not the one that was committed last. A tombstone
    removes what lies before it, pending records included. `count` and `end_offset` are as in `LastRecords`.
    """

    def __init__(self) -> None:
        self._last: dict[bytes, KeyedRecord] = {}
        self._pending: dict[int, dict[bytes, KeyedRecord]] = {}
        self.count = 0
        self.end_offset = 0

    def take(self, batches: bytes) -> None:
        """Read the next batches of the log. Raises CorruptBatch."""
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
                    self._remove(key)
                else:
                    last[key] = record

    def _remove(self, key: bytes) -> None:
        self._last.pop(key, None)
        for pending in self._pending.values():
            pending.pop(key, None)

    def _end(self, producer_id: int, marker: KeyedRecord) -> None:
        control = read_control_record(Record(*marker))
        if control.type is ControlType.UNKNOWN:
            return
        pending = self._pending.pop(producer_id, None)
        if pending is None or not control.is_commit:
            return
        last = self._last
        for key, record in pending.items():
            existing = last.get(key)
            if existing is None or existing[0] < record[0]:
                last[key] = record

    def records(self) -> Iterator[tuple[int | None, StateRecord]]:
        """(None, record) for each key that has a value, and (producer id, record) for those of open transactions."""
        for record in self._last.values():
            yield None, StateRecord._make(record)
        for producer_id, pending in self._pending.items():
            for record in pending.values():
                yield producer_id, StateRecord._make(record)
