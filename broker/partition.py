"""One partition that this broker leads: where it belongs, and its log.

The log is made when it is first needed, so a topic of many partitions costs nothing until they are used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import GeneratorType
from typing import Final, cast

from ..protocol.errors import ErrorCode, KafkaError
from .log import Log
from .metadata import Topic
from .steps import Steps, run_at_once, waited

LEADER_EPOCH = 0
"""The leader epoch of every partition: one broker leads all of them from the first day on."""


OPENING_WORK: Final = 250
"""Units of work (`steps.py`) that making the files of a new log takes."""


class Partition:
    """A partition of a topic in metadata; `log` raises KAFKA_STORAGE_ERROR if it is offline."""

    __slots__ = ("_log", "_open", "_opening", "index", "leader_epoch", "topic", "topic_id")

    def __init__(self, topic: Topic, index: int, open_log: Callable[[Partition], Log | Steps[Log]]) -> None:
        self.topic = topic.name
        self.topic_id = topic.topic_id
        self.index = index
        self.leader_epoch = LEADER_EPOCH
        self._open = open_log
        self._opening: asyncio.Future[None] | None = None
        self._log: Log | None = None

    @property
    def log(self) -> Log:
        """The partition's log. One whose opening may have to wait must have been opened with `open`."""
        log = self._log
        if log is None:
            log = run_at_once(self.open())
        return log

    @property
    def is_open(self) -> bool:
        """Whether `log` is there."""
        return self._log is not None

    def open(self) -> Steps[Log]:
        """Open the log if that was not done, as its owner from now on. Raises as `log` does."""
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
        log.take_over(self.leader_epoch)
        self._log = log

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Compare the epoch that a client believes in (-1: none) with ours (KIP-320).

        Raises FENCED_LEADER_EPOCH where the client's is older, UNKNOWN_LEADER_EPOCH where it is newer.
        """
        if current_leader_epoch in (-1, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
