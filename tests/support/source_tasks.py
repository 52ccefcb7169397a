"""Run source tasks without a worker. The offsets that a worker would commit are stored, and tasks can start again.

`Source(connector_class, config)` holds the committed offsets. `await source.read(n)` starts a new instance of the task,
and polls until it has returned n records. Records after the first `keep` are not committed, as after a crash.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping

from oncelog.connect import SourceConnector, SourceOffset, SourcePartition, SourceRecord, SourceTask
from oncelog.connect.calls import Calls
from oncelog.connect.stores.offset_records import offset_key, offset_value
from oncelog.connect.worker.task_context import TaskContext


class Offsets:
    """Committed offsets as JSON, as in the offsets topic."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def commit(self, records: Iterable[SourceRecord]) -> None:
        for record in records:
            if record.source_partition is not None:
                offset_key(
                    "connector", record.source_partition
                )  # raises for a partition that the offsets topic cannot hold
                offset_value(record.source_offset)
                key = json.dumps(dict(record.source_partition), sort_keys=True)
                self.known[key] = json.dumps(record.source_offset)

    def reset(self, partitions: Iterable[SourcePartition]) -> None:
        for partition in partitions:
            del self.known[json.dumps(dict(partition), sort_keys=True)]

    async def partitions(self) -> list[SourcePartition]:
        return [json.loads(key) for key in self.known]

    def offset_blocking(self, partition: SourcePartition) -> SourceOffset | None:
        text = self.known.get(json.dumps(dict(partition), sort_keys=True))
        return None if text is None else json.loads(text)

    async def offset(self, partition: SourcePartition) -> SourceOffset | None:
        return self.offset_blocking(partition)

    async def offsets(self, partitions: Iterable[SourcePartition]) -> list[SourceOffset | None]:
        return [self.offset_blocking(partition) for partition in partitions]


class ConnectorContext:
    """A context that counts the requests for reconfiguration."""

    def __init__(self, offsets: Offsets) -> None:
        self.offsets = offsets
        self.reconfigured = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def request_task_reconfiguration(self) -> None:
        self._loop.call_soon_threadsafe(self.reconfigured.set)

    def raise_error(self, error: BaseException) -> None:
        raise error


class RunningTask:
    """A task that was started. Its methods are called as a worker calls them."""

    def __init__(
        self, task: SourceTask, offsets: Offsets, config: Mapping[str, str], *, exactly_once: bool = False
    ) -> None:
        self.task, self.config = task, config
        task.context = TaskContext(dict(config), offsets, None, exactly_once)
        self._calls = Calls("task")

    async def __aenter__(self) -> RunningTask:
        try:
            await self._calls.call(self.task.start, self.config)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._calls.call(self.task.stop)
        self._calls.close()

    async def poll(self) -> list[SourceRecord]:
        return list(await self._calls.call(self.task.poll) or ())

    async def commit(self, records: Iterable[SourceRecord]) -> None:
        """Tell the task that these records are committed."""
        for record in records:
            await self._calls.call(self.task.commit_record, record, None)
        await self._calls.call(self.task.commit)


class Source:
    """A connector with its committed offsets, on a worker with or without exactly-once."""

    def __init__(self, connector: type[SourceConnector], config: Mapping[str, str]) -> None:
        self.connector_class, self.config, self.offsets = connector, dict(config), Offsets()
        self.exactly_once = False

    async def task_configs(self, max_tasks: int = 1) -> list[dict[str, str]]:
        connector = self.connector_class()
        connector.context = ConnectorContext(self.offsets)
        calls = Calls("connector")
        await calls.call(connector.start, self.config)
        configs = await calls.call(connector.task_configs, max_tasks)
        await calls.call(connector.stop)
        calls.close()
        return [dict(config) for config in configs]

    async def task(self) -> RunningTask:
        (config,) = await self.task_configs()
        task = self.connector_class().task_class()
        return RunningTask(task, self.offsets, config, exactly_once=self.exactly_once)

    async def read(self, count: int, *, keep: int | None = None) -> list[SourceRecord]:
        """Return the next `count` records of a new task instance. Only the first `keep` are committed (None: all)."""
        records: list[SourceRecord] = []
        async with await self.task() as task, asyncio.timeout(60):
            while len(records) < count:
                batch = await task.poll()
                records += batch
                if batch and keep is None:
                    self.offsets.commit(batch)
                    await task.commit(batch)
            if keep is not None:
                records = records[:keep]
                self.offsets.commit(records)
                await task.commit(records)
        return records

    async def nothing(self, polls: int = 3) -> None:
        """Check that a new instance of the task returns no records."""
        async with await self.task() as task:
            for _ in range(polls):
                assert await task.poll() == []
