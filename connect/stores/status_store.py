"""`StatusStore`: the states of connectors and tasks on all workers, and the topics that connectors write to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container
from typing import Final, NamedTuple

from ...client.errors import KafkaError
from ..errors import DataError
from . import status_records as records
from .ids import ConnectorTaskId, parse_task_id
from .status_records import Record, Status, TopicStatus
from .topic_log import LogRecord, TopicLog

log = logging.getLogger(__name__)

_QUEUE: Final = 1_000
"""The largest number of queued statuses; at this number, `put` waits."""


FLUSH_S: Final = 5.0
"""The longest wait, in seconds, for queued writes and for reads of the topic. No status is worth a longer delay."""


class _Write(NamedTuple):
    """A record to write.

    `safe` is the connector or task and its status if the write is safe, otherwise None. A safe write is dropped if
    another worker of a newer generation has reported a status.

    `counted` says whether the write counts towards _QUEUE. Writes of topics in use do not count, because topics are
    reported from callbacks, which cannot wait. Each topic is queued once.
    """

    record: Record
    safe: tuple[str | ConnectorTaskId, Status] | None = None
    counted: bool = True


class StatusStore:
    """The status topic in memory.

    Writes are queued, go out in order in the background, and take effect once they are read back. Before a safe write,
    the topic is read to its end, and the write is dropped if another worker of a newer generation has reported a
    status. Therefore, a worker that was cut off or suspended does not replace the status of its successor.
    """

    def __init__(self, topic: TopicLog) -> None:
        self._topic = topic
        self._statuses: dict[str | ConnectorTaskId, Status] = {}
        self._topics: dict[str, dict[str, TopicStatus]] = {}
        self._queue: asyncio.Queue[_Write] = asyncio.Queue()
        self._room = asyncio.Semaphore(_QUEUE)
        self._writer: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the status topic to its end, and start to write queued statuses in the background."""
        await self._topic.start(self._apply)
        self._writer = asyncio.create_task(self._write(), name="write the status topic")

    async def stop(self) -> None:
        """Write the queued statuses, within FLUSH_S, then stop."""
        if self._writer is not None:
            await self.flush()
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
        await self._topic.stop()

    async def flush(self) -> None:
        """Wait until all statuses that were reported so far are written, for FLUSH_S at most."""
        try:
            async with asyncio.timeout(FLUSH_S):
                await self._queue.join()
        except TimeoutError:
            log.warning("the status topic was not written within %g s", FLUSH_S)

    async def refresh(self) -> None:
        """Read the statuses that other workers have written so far, within FLUSH_S."""
        try:
            await self._topic.read_to_end(FLUSH_S)
        except (TimeoutError, KafkaError) as error:
            log.warning("the status topic was not read to its end: %s", str(error) or f"not within {FLUSH_S:g} s")

    def get(self, what: str | ConnectorTaskId) -> Status | None:
        """Return the last known status of a connector or task, or None."""
        return self._statuses.get(what)

    def of_tasks(self, connector: str) -> list[tuple[ConnectorTaskId, Status]]:
        """Return the last known statuses of a connector's tasks, sorted by task number."""
        known = [
            (what, status)
            for what, status in self._statuses.items()
            if isinstance(what, ConnectorTaskId) and what.connector == connector
        ]
        return sorted(known, key=lambda pair: pair[0].task)

    def connectors(self) -> set[str]:
        """Return the names of all connectors with a known status."""
        return {what for what in self._statuses if isinstance(what, str)}

    async def put(self, what: str | ConnectorTaskId, status: Status, *, safe: bool = False) -> None:
        """Queue the status of a connector or task.

        With `safe`, the status is dropped if a newer generation has reported one before the write.
        """
        record = records.status_key(what), records.status_value(status)
        await self._room.acquire()
        self._queue.put_nowait(_Write(record, (what, status) if safe else None))

    def topics(self, connector: str) -> list[TopicStatus]:
        """Return the topics that a connector uses."""
        return list(self._topics.get(connector, {}).values())

    def topics_in_use(self, connector: str) -> Container[str]:
        """Return a live view of the names of the topics that a connector uses."""
        return self._topics.setdefault(connector, {})

    def connectors_with_topics(self) -> list[str]:
        """Return the names of the connectors that use at least one topic."""
        return [connector for connector, topics in self._topics.items() if topics]

    def put_topic(self, status: TopicStatus) -> None:
        """Queue the record that a connector uses a topic, unless that is known already."""
        used = self._topics.setdefault(status.connector, {})
        if status.topic not in used:
            used[status.topic] = status
            self._queue.put_nowait(_Write(records.topic_status(status), counted=False))

    def delete_topic(self, connector: str, topic: str) -> None:
        """Forget that a connector uses a topic, and queue the deletion of its record.

        The deletion is queued immediately, like the records of `put_topic`, so that all are written in the order of the
        calls.
        """
        self._topics.get(connector, {}).pop(topic, None)
        self._queue.put_nowait(_Write((records.topic_key(connector, topic), None), counted=False))

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
            record, safe, counted = await self._queue.get()
            try:
                if safe is not None:
                    await self.refresh()
                    if not self._may_write(*safe):
                        log.info("a newer generation reported %s, so %s is not written", safe[0], safe[1].state.value)
                        continue
                await self._topic.append([record])
            except Exception:
                log.exception("could not write %r to the status topic", record[0])
            finally:
                self._queue.task_done()
                if counted:
                    self._room.release()

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
                raise DataError("the key does not name a task")
            self._set(task, None if value is None else records.parse_status(value))
        elif key.startswith(records.TOPIC):
            connector, topic = records.parse_topic_key(key.removeprefix(records.TOPIC))
            if value is None:
                self._topics.get(connector, {}).pop(topic, None)
            else:
                self._topics.setdefault(connector, {})[topic] = records.parse_topic_status(value)
        else:
            raise DataError("Kafka Connect does not use such a key")
