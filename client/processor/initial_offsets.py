"""`InitialOffsets`: commits initial offsets for partitions without a committed offset, if auto.offset.reset=latest.

After an abort the worker goes back to the committed offsets. Without a committed offset it would start at the end
again, and skip records that have arrived in the meantime. To prevent this, the initial position of each partition is
committed once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping

from ..consumer import Consumer, ConsumerRecord
from ..errors import IllegalStateError
from ..values import TopicPartition


class InitialOffsets:
    """Commits initial positions, and restores those that are not committed yet. Does nothing unless
    auto.offset.reset=latest.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._needed = consumer.config.auto_offset_reset == "latest"
        self._begun: set[TopicPartition] = set()
        self._found: dict[TopicPartition, int] = {}

    async def commit(self, arrived: Mapping[TopicPartition, list[ConsumerRecord]]) -> None:
        """Commit the initial position of each new partition: the offset of its first polled record or, if none has
        arrived, the consumer's position.
        """
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
        """Seek to the initial positions that are not committed yet, after the consumer has forgotten its positions."""
        for partition, offset in self._found.items():
            self._consumer.seek(partition, offset)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget partitions that are given up."""
        self._begun.difference_update(partitions)
        for partition in partitions:
            self._found.pop(partition, None)
