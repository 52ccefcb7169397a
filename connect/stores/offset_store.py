"""`OffsetStore`: what is committed of the source, by connector and source partition.

Keys of records are bytes, and a source partition with several names can be written in several orders: a task writes the
one in which it has them, a Java worker writes what a user sets in the order of a HashMap. A task reads its own key, and
where there is none another one that names the same partition. What a user sets or deletes changes all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from ..api.records import SourceOffset, SourcePartition
from ..errors import DataError
from .offset_records import hashed, offset_key, offset_value, parse_key, parse_value, sorted_key
from .topic_log import LogRecord, TopicLog

log = logging.getLogger(__name__)


class OffsetStore:
    """The offsets topic in memory. A read waits until all that is committed at the call is applied."""

    def __init__(self, topic: TopicLog) -> None:
        self._topic = topic
        self._values: dict[bytes, bytes] = {}
        self._keys: dict[str, dict[bytes, dict[bytes, None]]] = {}
        """Of each connector by source partition, whatever the order of its names: the keys that are stored."""

    async def start(self) -> None:
        """Read the topic to its end."""
        await self._topic.start(self._apply)

    async def stop(self) -> None:
        """End the reading."""
        await self._topic.stop()

    async def read(self, connector: str, partitions: Iterable[SourcePartition]) -> list[dict[str, Any] | None]:
        """Return the offset of each source partition, or None; raises DataError, TimeoutError."""
        wanted = [(offset_key(connector, partition), sorted_key(connector, partition)) for partition in partitions]
        await self._topic.read_to_end()
        known = self._keys.get(connector, {})
        return [
            parse_value(self._values.get(key, self._values.get(next(iter(known.get(name, ())), key))))
            for key, name in wanted
        ]

    async def of_connector(self, connector: str) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
        """Return all source partitions of a connector with their offsets."""
        await self._topic.read_to_end()
        pairs = []
        for keys in self._keys.get(connector, {}).values():
            key = next(iter(keys))
            parsed = parse_key(key)
            assert parsed is not None
            pairs.append((parsed[1], parse_value(self._values[key])))
        return pairs

    def records(
        self, connector: str, offsets: Iterable[tuple[SourcePartition, SourceOffset | None]]
    ) -> list[tuple[bytes, bytes | None]]:
        """Return the records that set offsets, None forgets one: under all keys that name the source partition.

        Where there is none yet, it is the one that Kafka Connect would write.
        """
        known, pairs = self._keys.get(connector, {}), []
        for partition, offset in offsets:
            keys = known.get(sorted_key(connector, partition)) or [offset_key(connector, hashed(partition))]
            value = offset_value(None if offset is None else hashed(offset))
            pairs += [(key, value) for key in keys]
        return pairs

    async def write(self, connector: str, offsets: Iterable[tuple[SourcePartition, SourceOffset | None]]) -> None:
        """Write offsets, None forgets one; they are applied when this returns. Raises DataError, TimeoutError."""
        await self._topic.append(self.records(connector, offsets))
        await self.refresh()

    async def refresh(self) -> None:
        """Wait until everything is applied that is in the topic now."""
        await self._topic.read_to_end()

    async def write_raw(self, pairs: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Write records that were made with `offset_key` and `offset_value`."""
        await self._topic.append(list(pairs))

    def _apply(self, record: LogRecord) -> None:
        parsed = parse_key(record.key)
        if parsed is None:
            log.error("ignored record %r at offset %d of the offsets topic", record.key, record.offset)
            return
        partitions = self._keys.setdefault(parsed[0], {})
        name = sorted_key(*parsed)
        keys = partitions.setdefault(name, {})
        try:
            offset = parse_value(record.value)
        except DataError as error:
            log.error("ignored the offset under %r: %s", record.key, error)
        else:
            keys.pop(record.key, None)
            self._values.pop(record.key, None)
            if record.value is not None and offset is not None:
                self._values[record.key] = record.value
                partitions[name] = {record.key: None, **keys}  # the newest one first
        if not partitions[name]:
            del partitions[name]
