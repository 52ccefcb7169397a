"""Encodes the tombstones of a group's offsets in slices. All of them are then appended in a single event-loop turn.

A group is deleted by one batch: a tombstone for each of its offsets, and last, as in Kafka, a tombstone for the group
itself. If the broker is killed, either the whole group or nothing of it remains. With several batches, an interruption
could leave only some of the offsets. In the other partitions, consumers would start where `auto.offset.reset` says.

The group stays usable while the batch is prepared: its members may come back, and offsets may be committed on further
partitions. Before the batch is appended, `is_current` must be called in the same event-loop turn; it checks that the
batch contains a tombstone for each offset.
"""

from __future__ import annotations

from typing import Final

from ....protocol.records import encode_record
from ...scheduling.steps import Steps
from .offsets import OffsetStore
from .records import group_key, offset_key

TOMBSTONES_AT_ONCE: Final = 50
"""How many tombstones are encoded before other tasks may run."""

TOMBSTONE_UNITS: Final = 5
"""The cost of encoding one tombstone, in units of work (`steps.py`)."""


class PreparedDeletion:
    """The encoded batch that deletes a group with all offsets that it had when this object was created.

    `prepare` encodes the batch.
    """

    __slots__ = ("_committed", "_insertions", "_partitions", "_store", "group_id", "records")

    def __init__(self, group_id: str, store: OffsetStore) -> None:
        self.group_id = group_id
        self.records: list[bytes] = []
        self._store = store
        self._committed = store.moved(group_id)
        self._insertions = 0 if self._committed is None else self._committed.insertions
        self._partitions = {} if self._committed is None else self._committed.partitions()
        for partition in store.unmoved(group_id):
            self._partitions.setdefault(partition, -1)

    def prepare(self) -> Steps[None]:
        """Encode the tombstones of the offsets, then the tombstone of the group."""
        partitions = list(self._partitions)
        for start in range(0, len(partitions), TOMBSTONES_AT_ONCE):
            portion = partitions[start : start + TOMBSTONES_AT_ONCE]
            self.records += [
                encode_record(0, delta, offset_key(self.group_id, partition), None)
                for delta, partition in enumerate(portion, start)
            ]
            yield TOMBSTONE_UNITS * len(portion)
        self.records.append(encode_record(0, len(partitions), group_key(self.group_id), None))

    def is_current(self) -> bool:
        """Whether the batch contains a tombstone for every offset that the group has now, committed or pending."""
        committed = self._store.moved(self.group_id)
        if committed is not None and (committed is not self._committed or committed.insertions != self._insertions):
            return False
        return all(partition in self._partitions for partition in self._store.unmoved(self.group_id))
