"""Read the log of a partition that has never been used and has no files."""

from __future__ import annotations

from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ..log import LogRead
from ..log.results import READ_COMMITTED, READ_UNCOMMITTED, IsolationLevel


class UnusedLog:
    """An empty log with one leader epoch. Its methods return what those of a new `Log` return."""

    __slots__ = ("_leader_epoch",)

    high_watermark: Final = 0

    def __init__(self, leader_epoch: int) -> None:
        self._leader_epoch = leader_epoch

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: IsolationLevel = READ_UNCOMMITTED,
        *,
        min_one: bool = True,
    ) -> LogRead:
        """Return no batches. Raises KafkaError OFFSET_OUT_OF_RANGE unless `offset` is 0."""
        if offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is outside of the log, which is empty")
        return LogRead(b"", 0, 0, 0, [] if isolation is READ_COMMITTED else None, 0)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (`epoch`, 0) if `epoch` is the log's leader epoch, else (-1, -1) (KIP-101)."""
        return (epoch, 0) if epoch == self._leader_epoch else (-1, -1)
