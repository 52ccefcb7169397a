"""`HeartbeatSourceConnector` and its task, which produces numbered records.

The source partition is {"task": number}, and the offset is {"count": next count}. A record's value is its count as
int64, and its key is the task's number. A restarted task continues after the last committed count, so that a gap or a
repetition is visible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ...api.connector import ConnectorTransactionBoundaries, ExactlyOnceSupport, SourceConnector
from ...api.records import SourceRecord
from ...api.task import SourceTask
from ...config import REQUIRED, ConfigDef, ConfigKey, Importance, NonEmptyString, Type, at_least
from ...data.schema import INT32, INT64
from ...errors import ConnectError

SETTINGS = ConfigDef(
    ConfigKey("topic", Type.STRING, REQUIRED, Importance.HIGH, "The topic to write to.", NonEmptyString()),
    ConfigKey("interval.ms", Type.LONG, 1000, Importance.MEDIUM, "Time between two batches, in ms.", at_least(0)),
    ConfigKey("batch.size", Type.INT, 1, Importance.LOW, "Records per batch.", at_least(1)),
    ConfigKey("limit", Type.LONG, -1, Importance.LOW, "Maximum records of each task; -1: no limit.", at_least(-1)),
    ConfigKey(
        "transaction.size",
        Type.INT,
        0,
        Importance.LOW,
        "With transaction.boundary=connector: records per transaction; 0: one batch per transaction.",
        at_least(0),
    ),
)


class HeartbeatSourceTask(SourceTask):
    """Produces numbered records at an interval."""

    async def start(self, config: Mapping[str, str]) -> None:
        """Read the settings, and continue after the last committed count. Raises ConnectError."""
        values = SETTINGS.parse(config)
        self._number = int(config["task.number"])
        self._topic, self._batch_size = values["topic"], values["batch.size"]
        self._interval_s, self._limit = values["interval.ms"] / 1000, values["limit"]
        self._transaction_size = values["transaction.size"]
        self._partition = {"task": self._number}
        offset = await self.context.offsets.offset(self._partition)
        count = 0 if offset is None else offset.get("count")
        if type(count) is not int:
            raise ConnectError(f"the offset of task {self._number} has no count: {offset}. Delete or alter the offset")
        self._count = count

    async def poll(self) -> list[SourceRecord] | None:
        """Wait for the interval, then return the next batch."""
        await asyncio.sleep(self._interval_s)
        end = self._count + self._batch_size
        if self._limit >= 0:
            end = min(end, self._limit)
        if end <= self._count:
            await asyncio.sleep(max(0.1, self._interval_s))
            return None
        records = [self._record(count) for count in range(self._count, end)]
        self._count = end
        self._bound(records)
        return records

    def _record(self, count: int) -> SourceRecord:
        return SourceRecord(
            source_partition=self._partition,
            source_offset={"count": count + 1},
            topic=self._topic,
            key_schema=INT32,
            key=self._number,
            value_schema=INT64,
            value=count,
        )

    def _bound(self, records: list[SourceRecord]) -> None:
        transactions = self.context.transactions
        if transactions is None:
            return
        if self._transaction_size == 0:
            transactions.commit_transaction()
            return
        for record in records:
            count = record.value + 1
            if count % self._transaction_size == 0 or count == self._limit:  # no batch follows the last record
                transactions.commit_transaction(record)


class HeartbeatSourceConnector(SourceConnector):
    """Runs as many tasks as tasks.max allows."""

    settings = SETTINGS
    task_class = HeartbeatSourceTask

    async def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """Return, for each task, the connector's settings and the task's number."""
        return [{**self.config, "task.number": str(number)} for number in range(max_tasks)]

    def exactly_once_support(self, config: Mapping[str, str]) -> ExactlyOnceSupport:
        """Return SUPPORTED, because an offset is the exact count of a task's records."""
        return ExactlyOnceSupport.SUPPORTED

    def can_define_transaction_boundaries(self, config: Mapping[str, str]) -> ConnectorTransactionBoundaries:
        """Return SUPPORTED, because tasks end transactions as the setting transaction.size says."""
        return ConnectorTransactionBoundaries.SUPPORTED
