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
"""The longest time, in seconds, for a write and the reading after it; Kafka Connect's value."""


class ConfigStore:
    """The configuration of the Connect cluster: its connectors, task settings and target states.

    A write by the leader returns once it has been read back, so that the next snapshot contains it. Writes raise
    TimeoutError if the topic cannot be written and read within READ_WRITE_TIMEOUT_S. Writes that are reserved for the
    leader raise ProducerFencedError if another leader has taken over; call `claim` before the next write.

    `on_change` is called for each change that is read after `start`.
    """

    def __init__(self, topic: TopicLog, on_change: Callable[[Change], None]) -> None:
        self._topic = topic
        self._on_change = on_change
        self._state = ConfigTopicState()
        self._live = False

    async def start(self) -> None:
        """Read the config topic to its end."""
        await self._topic.start(self._apply)
        self._live = True

    async def stop(self) -> None:
        """Stop reading the config topic."""
        await self._topic.stop()

    def snapshot(self) -> ClusterConfigState:
        """Return the state as of the last record that was read."""
        return self._state.snapshot()

    @property
    def offset(self) -> int:
        """The offset after the last record that was read."""
        return self._state.offset

    @property
    def session_key(self) -> SessionKey | None:
        """The key that signs requests between workers; None until a leader has written the first key."""
        return self._state.session_key

    async def refresh(self, timeout_s: float | None = READ_WRITE_TIMEOUT_S) -> None:
        """Read the config topic to its end. Raise TimeoutError after `timeout_s` seconds; None means no limit."""
        await self._topic.read_to_end(timeout_s)

    async def claim(self) -> None:
        """Fence the previous leader; required before any write that is reserved for the leader."""
        await self._topic.claim()

    async def put_connector(self, connector: str, config: Config, state: TargetState | None = None) -> None:
        """Write a connector's settings, and its target state if one is given."""
        pairs = [] if state is None else [records.target_state(connector, state)]
        await self._write_as_leader([*pairs, records.connector_config(connector, config)])

    async def remove_connector(self, connector: str) -> None:
        """Delete a connector and its target state."""
        await self._write_as_leader([records.connector_config(connector, None), records.target_state(connector, None)])

    async def put_task_configs(self, connector: str, configs: Sequence[Mapping[str, str | None]]) -> None:
        """Write the settings of all tasks of a connector, then the commit record that puts them into effect.

        Readers ignore task settings that no commit record follows, so this order is enough even if the write is not
        atomic.
        """
        await self.refresh()
        tasks = [records.task_config(ConnectorTaskId(connector, index), each) for index, each in enumerate(configs)]
        await self._write_as_leader([*tasks, records.commit(connector, len(configs))])

    async def put_task_count(self, connector: str, tasks: int) -> None:
        """Write the number of tasks to fence before the connector's next set of tasks may start (KIP-618)."""
        await self._write_as_leader([records.task_count(connector, tasks)])

    async def put_session_key(self, key: SessionKey) -> None:
        """Write the key that signs requests between workers."""
        await self._write_as_leader([records.session_key(key)])

    async def put_restart(self, request: RestartRequest) -> None:
        """Write a restart request."""
        await self._write_as_leader([records.restart(request)])

    async def put_target_state(self, connector: str, state: TargetState) -> None:
        """Write a connector's target state. Any worker may do this."""
        await self._write([records.target_state(connector, state)])

    async def put_logger_level(self, namespace: str, level: str) -> None:
        """Write a log level for all workers. Any worker may do this."""
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
