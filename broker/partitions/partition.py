"""Represent one partition that this broker leads, and open its log when the log is first needed.

A new partition has no log until it is used, so a topic with many unused partitions needs no files. A read that does not
wait for records creates no log: `readable` then returns an empty log that is not stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import GeneratorType
from typing import Final, cast

from ...protocol.errors import ErrorCode, KafkaError
from ..log import Log
from ..metadata import Topic
from ..scheduling.steps import Steps, run_at_once, waited
from .unused_log import UnusedLog

FIRST_LEADER_EPOCH: Final = 0
"""The leader epoch of a new partition. The epoch never changes, because one broker always leads all partitions."""

UNUSED: Final = UnusedLog(FIRST_LEADER_EPOCH)
"""The log of all partitions that were never used."""

OPENING_WORK: Final = 250
"""The cost of creating the files of a new log, in units of work (`steps.py`)."""


class Partition:
    """A partition of a topic in the metadata. If the partition is offline, `log` raises KAFKA_STORAGE_ERROR.

    `find_log` returns the partition's log, or None if it has never been used. `open_log` returns the log, or steps that
    return the log. It creates the log if the partition has never been used. `leader_epoch` is at least that of the
    newest batch in the log: a log that Apache Kafka has written may contain epochs above `FIRST_LEADER_EPOCH`.
    """

    __slots__ = ("_find", "_log", "_open", "_opening", "index", "leader_epoch", "topic", "topic_id")

    def __init__(
        self,
        topic: Topic,
        index: int,
        find_log: Callable[[Partition], Log | None],
        open_log: Callable[[Partition], Log | Steps[Log]],
        leader_epoch: int = FIRST_LEADER_EPOCH,
    ) -> None:
        self.topic = topic.name
        self.topic_id = topic.topic_id
        self.index = index
        self.leader_epoch = leader_epoch
        self._find = find_log
        self._open = open_log
        self._opening: asyncio.Future[None] | None = None
        self._log: Log | None = None

    @property
    def log(self) -> Log:
        """The partition's log, which is opened on first use. If opening it may have to wait, call `open` first.

        Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION if the topic has been deleted, or KAFKA_STORAGE_ERROR.
        """
        log = self._log
        if log is None:
            log = run_at_once(self.open())
        return log

    @property
    def readable(self) -> Log | UnusedLog:
        """The partition's log or, if the partition has never been used, an empty log that is not stored.

        Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION if the topic has been deleted. Raises KAFKA_STORAGE_ERROR if the
        partition is offline, or if it has never been used and the data directory has failed.
        """
        log = self._log
        if log is None:
            log = self._find(self)
            if log is None:
                return UNUSED
            self._own(log)
        return log

    @property
    def is_open(self) -> bool:
        """Whether the log is open, so that `log` returns it without opening it first."""
        return self._log is not None

    def open(self) -> Steps[Log]:
        """Open the log if it is not open yet, give it the partition's leader epoch, and return it.

        Raises KafkaError UNKNOWN_TOPIC_OR_PARTITION if the topic has been deleted, or KAFKA_STORAGE_ERROR.
        """
        while self._log is None:
            if self._opening is not None:
                yield from waited(self._opening)
                continue
            opening = self._open(self)
            if not isinstance(opening, GeneratorType):
                self._own(cast(Log, opening))
                yield OPENING_WORK
                continue
            self._opening = asyncio.get_running_loop().create_future()
            try:
                self._own((yield from opening))
            finally:
                ended, self._opening = self._opening, None
                ended.set_result(None)
        return self._log

    def _own(self, log: Log) -> None:
        """Make `log` the partition's log, and let it refuse appends with older leader epochs."""
        log.take_over(self.leader_epoch)
        self._log = log

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Compare the leader epoch in a client's request (-1: none) with the partition's leader epoch (KIP-320).

        Raises KafkaError FENCED_LEADER_EPOCH if the client's epoch is older, UNKNOWN_LEADER_EPOCH if it is newer.
        """
        if current_leader_epoch in (-1, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
