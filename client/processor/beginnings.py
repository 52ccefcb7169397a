"""Where partitions begin that the group has no offset of, with auto.offset.reset=latest: `Beginnings`.

Going back to the committed offsets after an abort would mean the end again, behind the records that came meanwhile. So
the position that a partition begins at is committed once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping

from ..consumer import Consumer, ConsumerRecord
from ..errors import IllegalStateError
from ..values import TopicPartition


class Beginnings:
    """See the module's docstring. Does nothing with another auto.offset.reset."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._needed = consumer.config.auto_offset_reset == "latest"
        self._begun: set[TopicPartition] = set()
        self._found: dict[TopicPartition, int] = {}

    async def commit(self, arrived: Mapping[TopicPartition, list[ConsumerRecord]]) -> None:
        """Commit where partitions began, by the records that a poll has brought, or by their positions."""
        if not self._needed:
            return
        consumer = self._consumer
        for partition in consumer.assignment() - self._begun:
            if partition in arrived:
                self._found.setdefault(partition, arrived[partition][0].offset)
            else:
                with contextlib.suppress(IllegalStateError):  # its position is not known yet
                    self._found.setdefault(partition, consumer.consumed_offset(partition).offset)
        if not self._found:
            return
        committed = await consumer.committed(*self._found)
        await consumer.commit({one: at for one, at in self._found.items() if committed[one] is None})
        self._begun |= self._found.keys()
        self._found.clear()

    def restore(self) -> None:
        """The positions were forgotten: go back to the beginnings that are not committed yet."""
        for partition, offset in self._found.items():
            self._consumer.seek(partition, offset)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Partitions are given up."""
        self._begun.difference_update(partitions)
        for partition in partitions:
            self._found.pop(partition, None)
