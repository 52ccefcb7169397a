"""`StatusStore`: what connectors and tasks do on all workers, and which topics they write to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Sequence
from typing import Final

from ...client.errors import KafkaError
from ..errors import DataError
from . import status_records as records
from .ids import ConnectorTaskId, parse_task_id
from .status_records import Record, Status, TopicStatus
from .topic_log import LogRecord, TopicLog

log = logging.getLogger(__name__)

_QUEUE: Final = 1_000
"""Most writes that wait; more hold up whoever reports."""


FLUSH_S: Final = 5.0
"""Longest wait for writes before a rebalance or at the end, and for reads behind it: a state is not worth more."""


class StatusStore:
    """The status topic in memory. Writes go out in order, in the background, and are visible when they are read.

    A safe write leaves alone what another worker, of the same or a newer generation, has said in the meantime.
    """

    def __init__(self, topic: TopicLog) -> None:
        self._topic = topic
        self._statuses: dict[str | ConnectorTaskId, Status] = {}
        self._topics: dict[str, dict[str, TopicStatus]] = {}
        self._queue: asyncio.Queue[Sequence[Record]] = asyncio.Queue(_QUEUE)
        self._writer: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the topic to its end, and begin to write."""
        await self._topic.start(self._apply)
        self._writer = asyncio.create_task(self._write(), name="write the status topic")

    async def stop(self) -> None:
        """Write what waits, within FLUSH_S, then end."""
        if self._writer is not None:
            await self.flush()
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
        await self._topic.stop()

    async def flush(self) -> None:
        """Wait until everything is written that was reported up to now, FLUSH_S at most."""
        try:
            async with asyncio.timeout(FLUSH_S):
                await self._queue.join()
        except TimeoutError:
            log.warning("the status topic was not written within %g s", FLUSH_S)

    async def refresh(self) -> None:
        """Read what others have written up to now, within FLUSH_S."""
        try:
            await self._topic.read_to_end(FLUSH_S)
        except (TimeoutError, KafkaError) as error:
            log.warning("the status topic was not read to its end: %s", str(error) or f"not within {FLUSH_S:g} s")

    def get(self, what: str | ConnectorTaskId) -> Status | None:
        """Return what is known of a connector or task."""
        return self._statuses.get(what)

    def of_tasks(self, connector: str) -> list[tuple[ConnectorTaskId, Status]]:
        """Return what is known of a connector's tasks, by their numbers."""
        known = [
            (what, status)
            for what, status in self._statuses.items()
            if isinstance(what, ConnectorTaskId) and what.connector == connector
        ]
        return sorted(known, key=lambda pair: pair[0].task)

    def connectors(self) -> set[str]:
        """Return the connectors that something is known of."""
        return {what for what in self._statuses if isinstance(what, str)}

    async def put(self, what: str | ConnectorTaskId, status: Status, *, safe: bool = False) -> None:
        """Report what a connector or task does."""
        if safe and not self._may_write(what, status):
            return
        await self._queue.put([(records.status_key(what), records.status_value(status))])

    def topics(self, connector: str) -> list[TopicStatus]:
        """Return the topics that a connector uses."""
        return list(self._topics.get(connector, {}).values())

    def topics_in_use(self, connector: str) -> Container[str]:
        """Return the names of the topics that a connector uses; what is read later changes them."""
        return self._topics.setdefault(connector, {})

    def connectors_with_topics(self) -> list[str]:
        """Return the connectors that use a topic."""
        return [connector for connector, topics in self._topics.items() if topics]

    async def put_topic(self, status: TopicStatus) -> None:
        """Report that a connector uses a topic; again has no effect."""
        used = self._topics.setdefault(status.connector, {})
        if status.topic not in used:
            used[status.topic] = status
            await self._queue.put([records.topic_status(status)])

    async def delete_topic(self, connector: str, topic: str) -> None:
        """Forget that a connector uses a topic."""
        self._topics.get(connector, {}).pop(topic, None)
        await self._queue.put([(records.topic_key(connector, topic), None)])

    def _may_write(self, what: str | ConnectorTaskId, status: Status) -> bool:
        known = self._statuses.get(what)
        return known is None or known.worker_id == status.worker_id or known.generation <= status.generation

    def _set(self, what: str | ConnectorTaskId, status: Status | None) -> None:
        if status is not None:
            self._statuses[what] = status
        else:
            self._statuses.pop(what, None)

    async def _write(self) -> None:
        while True:
            pairs = await self._queue.get()
            try:
                await self._topic.append(pairs)
            except Exception:
                log.exception("could not write %r to the status topic", pairs[0][0])
            finally:
                self._queue.task_done()

    def _apply(self, record: LogRecord) -> None:
        try:
            self._read(record.key.decode(), record.value)
        except (DataError, UnicodeDecodeError) as error:
            log.error("ignored record %r at offset %d of the status topic: %s", record.key, record.offset, error)

    def _read(self, key: str, value: bytes | None) -> None:
        if key.startswith(records.CONNECTOR):
            connector = key.removeprefix(records.CONNECTOR)
            self._set(connector, None if value is None else records.parse_status(value))
        elif key.startswith(records.TASK):
            task = parse_task_id(key.removeprefix(records.TASK))
            if task is None:
                raise DataError("the key names no task")
            self._set(task, None if value is None else records.parse_status(value))
        elif key.startswith(records.TOPIC):
            connector, topic = records.parse_topic_key(key.removeprefix(records.TOPIC))
            if value is None:
                self._topics.get(connector, {}).pop(topic, None)
            else:
                self._topics.setdefault(connector, {})[topic] = records.parse_topic_status(value)
        else:
            raise DataError("no record of Kafka Connect has such a key")
