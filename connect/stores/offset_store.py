"""`OffsetStore`: what is committed of the source, by connector and source partition."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from ..api.records import SourceOffset, SourcePartition
from ..errors import DataError
from .offset_records import offset_key, offset_value, parse_key, parse_value
from .topic_log import LogRecord, TopicLog

log = logging.getLogger(__name__)


class OffsetStore:
    """The offsets topic in memory. A read waits until all that is committed at the call is applied."""

    def __init__(self, topic: TopicLog) -> None:
        self._topic = topic
        self._values: dict[bytes, bytes] = {}
        self._keys: dict[str, dict[bytes, None]] = {}
        """The keys of each connector's source partitions."""

    async def start(self) -> None:
        """Read the topic to its end."""
        await self._topic.start(self._apply)

    async def stop(self) -> None:
        """End the reading."""
        await self._topic.stop()

    async def read(self, connector: str, partitions: Iterable[SourcePartition]) -> list[dict[str, Any] | None]:
        """Return the offset of each source partition, or None; raises DataError, TimeoutError."""
        keys = [offset_key(connector, partition) for partition in partitions]
        await self._topic.read_to_end()
        return [parse_value(self._values.get(key)) for key in keys]

    async def of_connector(self, connector: str) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
        """Return all source partitions of a connector with their offsets."""
        await self._topic.read_to_end()
        pairs = []
        for key in self._keys.get(connector, {}):
            parsed = parse_key(key)
            assert parsed is not None
            pairs.append((parsed[1], parse_value(self._values[key])))
        return pairs

    async def write(self, connector: str, offsets: Iterable[tuple[SourcePartition, SourceOffset | None]]) -> None:
        """Write offsets, None forgets one; they are applied when this returns."""
        await self._topic.append([(offset_key(connector, where), offset_value(offset)) for where, offset in offsets])
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
        keys = self._keys.setdefault(parsed[0], {})
        if record.value is None:
            self._values.pop(record.key, None)
            keys.pop(record.key, None)
            return
        try:
            parse_value(record.value)
        except DataError as error:
            log.error("ignored the offset under %r: %s", record.key, error)
            return
        self._values[record.key] = record.value
        keys[record.key] = None
