"""`ConfigStore`: reads and writes the config topic."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from . import config_records as records
from .cluster_config import Change, ClusterConfigState, Config, ConfigTopicState
from .config_records import RestartRequest, SessionKey, TargetState
from .ids import ConnectorTaskId
from .topic_log import LogRecord, TopicLog

READ_WRITE_TIMEOUT_S: Final = 30.0
"""Kafka Connect's bound of a write, with the reading that follows it."""


class ConfigStore:
    """What the cluster is to run. Each write of a leader is read back before it returns, so that a snapshot has it.

    Writes raise TimeoutError where the topic cannot be written and read within READ_WRITE_TIMEOUT_S.

    `on_change` hears of changes that are read after `start`. What only a leader may write raises ProducerFencedError
    where another leader has taken over; a new `claim` is needed then.
    """

    def __init__(self, topic: TopicLog, on_change: Callable[[Change], None]) -> None:
        self._topic = topic
        self._on_change = on_change
        self._state = ConfigTopicState()
        self._live = False

    async def start(self) -> None:
        """Read the topic to its end."""
        await self._topic.start(self._apply)
        self._live = True

    async def stop(self) -> None:
        """End the reading."""
        await self._topic.stop()

    def snapshot(self) -> ClusterConfigState:
        """Return what was read up to now."""
        return self._state.snapshot()

    @property
    def offset(self) -> int:
        """The offset behind the last record that was read."""
        return self._state.offset

    @property
    def session_key(self) -> SessionKey | None:
        """The key that signs requests between workers; None before a leader has written one."""
        return self._state.session_key

    async def refresh(self, timeout_s: float | None = READ_WRITE_TIMEOUT_S) -> None:
        """Read to the end; raises TimeoutError, with None never."""
        await self._topic.read_to_end(timeout_s)

    async def claim(self) -> None:
        """Fence the leader before; needed before anything that only a leader may write."""
        await self._topic.claim()

    async def put_connector(self, connector: str, config: Config, state: TargetState | None = None) -> None:
        """Write a connector's settings, and its target state where one is given."""
        pairs = [] if state is None else [records.target_state(connector, state)]
        await self._write_as_leader([*pairs, records.connector_config(connector, config)])

    async def remove_connector(self, connector: str) -> None:
        """Delete a connector with its target state."""
        await self._write_as_leader([records.connector_config(connector, None), records.target_state(connector, None)])

    async def put_task_configs(self, connector: str, configs: Sequence[Mapping[str, str | None]]) -> None:
        """Write the settings of all tasks of a connector, then the record that makes them count."""
        await self.refresh()
        tasks = [records.task_config(ConnectorTaskId(connector, index), each) for index, each in enumerate(configs)]
        if tasks:
            await self._write_as_leader(tasks)
        await self._write_as_leader([records.commit(connector, len(configs))])

    async def put_task_count(self, connector: str, tasks: int) -> None:
        """Write how many tasks have to be fenced before the next set of them may start (KIP-618)."""
        await self._write_as_leader([records.task_count(connector, tasks)])

    async def put_session_key(self, key: SessionKey) -> None:
        """Write the key that signs requests between workers."""
        await self._write_as_leader([records.session_key(key)])

    async def put_restart(self, request: RestartRequest) -> None:
        """Write a request to restart."""
        await self._write_as_leader([records.restart(request)])

    async def put_target_state(self, connector: str, state: TargetState) -> None:
        """Write a connector's target state; any worker may."""
        await self._write([records.target_state(connector, state)])

    async def put_logger_level(self, namespace: str, level: str) -> None:
        """Write a log level for all workers; any worker may."""
        await self._write([records.logger_level(namespace, level)])

    async def _write(self, pairs: Sequence[records.Record]) -> None:
        async with asyncio.timeout(READ_WRITE_TIMEOUT_S):
            await self._topic.append(pairs)

    async def _write_as_leader(self, pairs: Sequence[records.Record]) -> None:
        async with asyncio.timeout(READ_WRITE_TIMEOUT_S):
            await self._topic.append_fenced(pairs)
            await self._topic.read_to_end()

    def _apply(self, record: LogRecord) -> None:
        change = self._state.apply(record)
        if change is not None and self._live:
            self._on_change(change)
