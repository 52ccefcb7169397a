"""One partition that this broker leads: where it belongs, and its log.

The log is made when it is first needed, so a topic of many partitions costs nothing until they are used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ..protocol.errors import ErrorCode, KafkaError
from .log import PartitionLog
from .metadata_store import Topic

LEADER_EPOCH = 0
"""The leader epoch of every partition: one broker leads all of them from the first day on."""


OPENING_WORK: Final = 250
"""Units of work (`steps.py`) that making the files of a new log takes."""


class Partition:
    """A partition of a topic in metadata; `log` raises KAFKA_STORAGE_ERROR if it is offline."""

    __slots__ = ("_log", "_open", "index", "leader_epoch", "topic", "topic_id")

    def __init__(self, topic: Topic, index: int, open_log: Callable[[Partition], PartitionLog]) -> None:
        self.topic = topic.name
        self.topic_id = topic.topic_id
        self.index = index
        self.leader_epoch = LEADER_EPOCH
        self._open = open_log
        self._log: PartitionLog | None = None

    @property
    def log(self) -> PartitionLog:
        """The partition's log."""
        log = self._log
        if log is None:
            log = self._log = self._open(self)
        return log

    def open(self) -> int:
        """Open the log if that was not done; returns the units of work that it took. Raises as `log` does."""
        if self._log is not None:
            return 0
        self._log = self._open(self)
        return OPENING_WORK

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Compare the epoch that a client believes in (-1: none) with ours (KIP-320).

        Raises FENCED_LEADER_EPOCH where the client's is older, UNKNOWN_LEADER_EPOCH where it is newer.
        """
        if current_leader_epoch in (-1, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
