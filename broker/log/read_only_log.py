"""Serve the sound part of a damaged log (the records before the damage) for reading only.

`load_sound_part` creates the log. This module decides how requests are answered at the end of the sound part. The
records after this end exist or existed, but cannot be read. So a request whose response could depend on them gets
KAFKA_STORAGE_ERROR. It never gets "out of range", "not found" or "truncated", because the client would then skip or
repeat records. It never gets an empty read either, because a consumer would then wait forever.

Invariants, at every moment:

* `failure` is set, so nothing is appended, deleted, rolled, compacted or saved. The log uses a `ReadOnlyFileSystem`,
  which refuses writes even if this code forgets a check.
* log_end_offset, high_watermark and flushed_offset are the offset of the damage. The outcome of a transaction that is
  open there is unknown, so the last stable offset stays at the first offset of this transaction.
"""

from __future__ import annotations

from typing import Any

from ...protocol.errors import KafkaError
from ..scheduling.steps import Steps
from .partition_log import LATEST, MAX_TIMESTAMP, PartitionLog
from .results import READ_COMMITTED, READ_UNCOMMITTED, CorruptLog, IsolationLevel, LogRead, storage_error


class ReadOnlyLog(PartitionLog):
    """A partition's log up to `damage`.

    `known_end`: an offset after the damage up to which records certainly existed. Reads return it as the high
    watermark, so that no consumer takes the damage for the end of the log. `stored_bytes`: the size of all segments,
    including those after the damage.
    """

    __slots__ = ("_known_end", "_stored_bytes")

    def __init__(
        self,
        topic: str,
        partition: int,
        directory: str,
        *,
        damage: CorruptLog,
        known_end: int,
        stored_bytes: int,
        **parts: Any,
    ) -> None:
        super().__init__(topic, partition, directory, **parts)
        self._known_end = known_end
        self._stored_bytes = stored_bytes
        self.fail(
            storage_error(
                f"{damage.place}. The partition is read-only and ends at offset {self.log_end_offset}; {damage.remedy}"
            )
        )

    @property
    def size(self) -> int:
        """The size of all segments in bytes, including those after the damage."""
        return self._stored_bytes

    def _sound_end(self, isolation: IsolationLevel) -> int:
        """Return the offset at which readers of this isolation level get KAFKA_STORAGE_ERROR."""
        return self.last_stable_offset if isolation is READ_COMMITTED else self.high_watermark

    def _damage_error(self) -> KafkaError:
        """Return the KAFKA_STORAGE_ERROR for a request whose response could depend on records after the damage."""
        assert self.failure is not None
        return self.failure

    def _read_at_hand(self, offset: int, max_bytes: int, isolation: IsolationLevel, min_one: bool) -> LogRead:
        """Read batches before the damage, and return `known_end` as the high watermark.

        Raises KAFKA_STORAGE_ERROR if `offset` is at or after the damage. For read_committed readers, the limit is the
        last stable offset.
        """
        if offset >= self._sound_end(isolation):
            raise self._damage_error()
        return super()._read_at_hand(offset, max_bytes, isolation, min_one)._replace(high_watermark=self._known_end)

    def readable_bytes(self, offset: int, wanted: int, isolation: IsolationLevel = READ_UNCOMMITTED) -> int:
        """Return about how many bytes `read` could return from `offset` on, at most `wanted`; 0 at or after the damage.

        So a Fetch at the damage waits for its maximum time before it gets the error. Without this wait, consumers would
        repeat the request without a pause.
        """
        if self.files.closed or offset < self._sound_end(isolation):
            return super().readable_bytes(offset, wanted, isolation)
        return 0

    def find_offset_for_timestamp(
        self, timestamp: int, isolation: IsolationLevel = READ_UNCOMMITTED
    ) -> Steps[tuple[int, int, int]]:
        """Find the first record not older than `timestamp` (ms); return its (timestamp, offset, leader epoch).

        Raises KAFKA_STORAGE_ERROR if the record may lie after the damage. This is the case if no record before the
        damage matches, and always for the latest offset (-1) and the largest timestamp (-3).
        """
        if timestamp in (LATEST, MAX_TIMESTAMP):
            raise self._damage_error()
        answer = yield from super().find_offset_for_timestamp(timestamp, isolation)
        if timestamp >= 0 and answer[1] < 0:
            raise self._damage_error()
        return answer

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the leader epoch `epoch` and its end offset (KIP-101).

        Raises KAFKA_STORAGE_ERROR if the epoch is not known, or may end after the damage.
        """
        known, end_offset = super().end_offset_for_epoch(epoch)
        if known != epoch or known == self.leader_epochs.latest:
            raise self._damage_error()
        return known, end_offset

    def delete_records_before(self, offset: int) -> int:
        """Raise KAFKA_STORAGE_ERROR, because nothing in this log may change."""
        raise self._damage_error()
