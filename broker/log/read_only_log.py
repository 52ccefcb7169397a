"""The sound part of a damaged log: what precedes the damage, to be read only.

Made by `load_sound_part`. Owns what is said at the end of that part: the records behind it exist, or existed, and are
not known. So a question whose answer could lie there is answered with KAFKA_STORAGE_ERROR. It is never answered with
"out of range", "not found" or "cut off", by which a client would skip or repeat records, nor with an empty read, by
which a consumer would wait for ever.

Invariants, at every moment:

* `failure` is set, so nothing is appended, deleted, rolled, compacted or saved. The log has a `ReadOnlyFileSystem`, so
  that nothing is written whatever is forgotten.
* log_end_offset, high_watermark and flushed_offset are the offset of the damage. A transaction that is open there is
  undecided: the last stable offset stays in front of it.
"""

from __future__ import annotations

from typing import Any

import structlog

from ...protocol.errors import KafkaError
from ..steps import Steps
from .indexes import CorruptIndex
from .partition_log import LATEST, MAX_TIMESTAMP, PartitionLog
from .results import READ_COMMITTED, READ_UNCOMMITTED, CorruptLog, IsolationLevel, LogRead, storage_error

logger = structlog.get_logger(__name__)


class ReadOnlyLog(PartitionLog):
    """A partition's log up to `damage`.

    `known_end`: an offset below which there were records for certain; it is behind the damage. Readers are told it as
    the high watermark, so that none takes the damage for the end of the log. `stored_bytes`: of all segments,
    those behind the damage included.
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
        self._failure = storage_error(
            f"{damage.place}. The partition is read-only and ends at offset {self.log_end_offset}; {damage.remedy}"
        )

    @property
    def size(self) -> int:
        return self._stored_bytes

    def _sound_end(self, isolation: IsolationLevel) -> int:
        """Return the offset at which readers of this isolation level get KAFKA_STORAGE_ERROR."""
        return self.last_stable_offset if isolation is READ_COMMITTED else self.high_watermark

    def _unknown(self) -> KafkaError:
        assert self._failure is not None
        return self._failure

    def _read_at_hand(self, offset: int, max_bytes: int, isolation: IsolationLevel, min_one: bool) -> LogRead:
        if offset >= self._sound_end(isolation):
            raise self._unknown()
        return super()._read_at_hand(offset, max_bytes, isolation, min_one)._replace(high_watermark=self._known_end)

    def readable_bytes(self, offset: int, wanted: int, isolation: IsolationLevel = READ_UNCOMMITTED) -> int:
        """As `Log.readable_bytes`; 0 at the damage and behind it.

        So a Fetch waits there before it gets the error. Readers that get it at once ask again at once, and again.
        """
        if self.closed or offset < self._sound_end(isolation):
            return super().readable_bytes(offset, wanted, isolation)
        return 0

    def find_offset_for_timestamp(
        self, timestamp: int, isolation: IsolationLevel = READ_UNCOMMITTED
    ) -> Steps[tuple[int, int, int]]:
        if timestamp in (LATEST, MAX_TIMESTAMP):
            raise self._unknown()
        answer = yield from super().find_offset_for_timestamp(timestamp, isolation)
        if timestamp >= 0 and answer[1] < 0:
            raise self._unknown()
        return answer

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """As `Log.end_offset_for_epoch`. Raises KAFKA_STORAGE_ERROR for epochs that may end behind the damage."""
        known, end_offset = super().end_offset_for_epoch(epoch)
        if known != epoch or known == self.leader_epochs.latest:
            raise self._unknown()
        return known, end_offset

    def delete_records_before(self, offset: int) -> int:
        raise self._unknown()

    def _read_failed(self, error: CorruptLog | CorruptIndex | OSError) -> KafkaError:
        failure = super()._read_failed(error)
        if not isinstance(error, OSError) and not self._refusing_reads:
            self._refusing_reads = True
            logger.error("read failed", partition=self.name, error=failure.message, remedy="see `partition read-only`")
        return failure
