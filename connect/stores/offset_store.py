"""`OffsetStore`: the committed offsets, by connector and source partition.

The keys of the records are bytes, and the names of a source partition can be written in several orders: a task writes
them in the order of its mapping, and a Java worker writes a user's partition in HashMap order. A task's read uses the
exact key, or else another key of the same partition. Writes and deletions by a user apply to all keys of the partition.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any

from ..api.records import SourceOffset, SourcePartition
from ..errors import DataError
from .offset_records import hashed, offset_key, offset_value, parse_key, parse_value, sorted_key
from .topic_log import LogRecord, TopicLog

log = logging.getLogger(__name__)


class OffsetStore:
    """The offsets topic in memory.

    A read first waits until all records committed at the time of the call are applied.
    """

    def __init__(self, topic: TopicLog) -> None:
        self._topic = topic
        self._values: dict[bytes, bytes] = {}
        self._keys: dict[str, dict[bytes, dict[bytes, None]]] = {}
        """The stored keys of each source partition, by connector and the partition's sorted key.

        Keys with offsets come first, newest first, and then keys whose offsets were deleted by the value `null`.
        """

    async def start(self) -> None:
        """Read the offsets topic to its end."""
        await self._topic.start(self._apply)

    async def stop(self) -> None:
        """Stop reading the offsets topic."""
        await self._topic.stop()

    async def read(
        self,
        connector: str,
        partitions: Iterable[SourcePartition],
        otherwise: Iterable[dict[str, Any] | None] = (),
    ) -> list[dict[str, Any] | None]:
        """Return the offset of each source partition, or None if it was deleted.

        For a partition that has no record in the topic, return the offset at the same place in `otherwise`, or None.
        Raises DataError, KafkaError and ConnectError.
        """
        wanted = [(offset_key(connector, partition), sorted_key(connector, partition)) for partition in partitions]
        await self._topic.read_to_end()
        known = self._keys.get(connector, {})
        return [
            self._offset(key, known[name]) if name in known else other
            for (key, name), other in zip_longest(wanted, otherwise)
        ]

    async def of_connector(self, connector: str) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
        """Return all source partitions of a connector with their offsets; None stands for a deleted offset."""
        await self._topic.read_to_end()
        pairs = []
        for keys in self._keys.get(connector, {}).values():
            key = next(iter(keys))
            pairs.append((parse_key(key)[1], parse_value(self._values[key])))
        return pairs

    def records(
        self, connector: str, offsets: Iterable[tuple[SourcePartition, SourceOffset | None]]
    ) -> list[tuple[bytes, bytes | None]]:
        """Return the records that set these offsets, under all stored keys of each source partition.

        None deletes an offset. A source partition without a stored key gets the key that Kafka Connect would write.
        """
        known, pairs = self._keys.get(connector, {}), []
        for partition, offset in offsets:
            keys = known.get(sorted_key(connector, partition)) or [offset_key(connector, hashed(partition))]
            value = offset_value(None if offset is None else hashed(offset))
            pairs += [(key, value) for key in keys]
        return pairs

    async def write(self, connector: str, offsets: Iterable[tuple[SourcePartition, SourceOffset | None]]) -> None:
        """Write offsets and wait until they are applied; None deletes an offset.

        Raises DataError, KafkaError, ConnectError.
        """
        await self._topic.append(self.records(connector, offsets))
        await self.refresh()

    async def refresh(self) -> None:
        """Wait until all records that the topic holds now are applied."""
        await self._topic.read_to_end()

    def places(self, key: bytes) -> Mapping[int, int]:
        """Return the partitions of the topic that have had records of a key, as `TopicLog.places` does."""
        return self._topic.places(key)

    async def write_raw(self, pairs: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Write records that were built with `offset_key` and `offset_value`."""
        await self._topic.append(list(pairs))

    def _offset(self, key: bytes, keys: Iterable[bytes]) -> dict[str, Any] | None:
        """Return the offset under `key`, or else the newest under its partition's `keys`; None if it was deleted."""
        offset = parse_value(self._values.get(key))
        return parse_value(self._values[next(iter(keys))]) if offset is None else offset

    def _apply(self, record: LogRecord) -> None:
        try:
            connector, partition = parse_key(record.key)
            name = sorted_key(connector, partition)
        except DataError as error:
            log.error("ignored record %r at offset %d of the offsets topic: %s", record.key, record.offset, error)
            return
        partitions = self._keys.setdefault(connector, {})
        keys = partitions.setdefault(name, {})
        try:
            offset = parse_value(record.value)
        except DataError as error:
            log.error("ignored the offset under %r: %s", record.key, error)
        else:
            keys.pop(record.key, None)
            self._values.pop(record.key, None)
            if record.value is not None:
                self._values[record.key] = record.value
                partitions[name] = {**keys, record.key: None} if offset is None else {record.key: None, **keys}
        if not partitions[name]:
            del partitions[name]
