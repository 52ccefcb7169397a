"""Reads the partitions of a coordinator's state log, and remembers which of them could not be read.

Requests for the groups or transactional ids in an unreadable partition are refused. If reading a partition failed
because of a disk error, or because no file descriptor was free, the partition is read again later. A partition with
malformed records is not read again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ...protocol.batch_header import CorruptBatch
from ...protocol.errors import DecodeError, KafkaError


class StateLoader:
    """The unreadable partitions of one internal topic.

    `unreadable` contains the reason for each partition that could not be read. `read_later` contains the partitions
    that must be read again. Both objects are changed only in place, never replaced.
    """

    def __init__(self, read: Callable[[int], Awaitable[None]], logger: Any, event: str, keys: str) -> None:
        """Create a loader that has read nothing.

        `read` replays one partition, and makes its state ready to be served. It may be called again for a partition for
        which it raised KafkaError. `event` is the name of the log event for an unreadable partition, and `keys` is the
        word for its keys in this event, such as "groups".
        """
        self.unreadable: dict[int, str] = {}
        self.read_later: set[int] = set()
        self._read = read
        self._logger = logger
        self._event = event
        self._keys = keys

    async def load(self, partition: int) -> bool:
        """Read one partition. Return whether it could be read.

        There is no await between the end of `read` and the return, so no request uses the state before the caller
        continues. If reading fails repeatedly for the same reason, the reason is logged only once.
        """
        try:
            await self._read(partition)
        except (KafkaError, DecodeError, ValueError) as error:
            reason = str(error)
            if self.unreadable.get(partition) != reason:
                self._logger.error(
                    self._event,
                    partition=partition,
                    error=reason,
                    remedy=f"its {self._keys} are not served; if this persists, stop the broker, run oncelog log repair"
                    " and start the broker again",
                )
            self.unreadable[partition] = reason
            may_pass = isinstance(error, KafkaError) and not isinstance(error, CorruptBatch)
            (self.read_later.add if may_pass else self.read_later.discard)(partition)
            return False
        self.unreadable.pop(partition, None)
        self.read_later.discard(partition)
        return True
