"""Derives the state of the Connect cluster from the records of the config topic.

`ConfigTopicState.apply` turns one record into a change, without input or output. Task settings take effect only with
the commit record that follows them. A malformed record is logged and ignored, because another worker may have written
it.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..data import json_text
from ..errors import DataError
from ..logging_levels import LEVELS
from . import config_records as records
from .config_records import RestartRequest, SessionKey, TargetState
from .ids import ConnectorTaskId, parse_task_id
from .topic_log import LogRecord

log = logging.getLogger(__name__)

Config = Mapping[str, str | None]


@dataclass(frozen=True)
class ConnectorConfigUpdated:
    """A connector was created or has new settings."""

    connector: str


@dataclass(frozen=True)
class ConnectorRemoved:
    """A connector was deleted."""

    connector: str


@dataclass(frozen=True)
class TaskConfigsUpdated:
    """A connector has a new set of tasks."""

    connector: str


@dataclass(frozen=True)
class TargetStateChanged:
    """A connector has a new target state: started, paused or stopped."""

    connector: str


@dataclass(frozen=True)
class SessionKeyUpdated:
    """Internal requests have a new signing key."""

    key: SessionKey


@dataclass(frozen=True)
class RestartRequested:
    """A user requested a restart of a connector. A worker ignores the requests that it reads when it starts."""

    request: RestartRequest


@dataclass(frozen=True)
class LoggerLevelChanged:
    """A logger has a new level. A worker ignores the changes that it reads when it starts."""

    namespace: str
    level: str


Change = (
    ConnectorConfigUpdated
    | ConnectorRemoved
    | TaskConfigsUpdated
    | TargetStateChanged
    | SessionKeyUpdated
    | RestartRequested
    | LoggerLevelChanged
)


@dataclass(frozen=True)
class ClusterConfigState:
    """An immutable snapshot of the config topic's state: connectors, their tasks and target states.

    `offset` is the offset after the last record that the snapshot includes. `outdated` contains the connectors whose
    last settings record follows the last commit record of their tasks. Once compaction has removed the earlier settings
    record, a worker that starts mistakes such tasks for tasks of a deleted connector (KAFKA-16838, KAFKA-17719).
    """

    offset: int = -1
    session_key: SessionKey | None = None
    connector_configs: Mapping[str, Config] = field(default_factory=dict)
    target_states: Mapping[str, TargetState] = field(default_factory=dict)
    task_counts: Mapping[str, int] = field(default_factory=dict)
    task_configs: Mapping[ConnectorTaskId, Config] = field(default_factory=dict)
    task_count_records: Mapping[str, int] = field(default_factory=dict)
    task_config_generations: Mapping[str, int] = field(default_factory=dict)
    outdated: frozenset[str] = frozenset()
    pending_fencing: frozenset[str] = frozenset()
    inconsistent: frozenset[str] = frozenset()

    def tasks(self, connector: str) -> list[ConnectorTaskId]:
        """Return the tasks of a connector; none if compaction has left its task settings incomplete."""
        if connector in self.inconsistent:
            return []
        return [ConnectorTaskId(connector, number) for number in range(self.task_counts.get(connector, 0))]

    def target_state(self, connector: str) -> TargetState | None:
        """Return the target state of a connector; None if the connector does not exist."""
        return self.target_states.get(connector)


class ConfigTopicState:
    """The state of the config topic, updated record by record."""

    def __init__(self) -> None:
        self.offset = -1
        self.session_key: SessionKey | None = None
        self._connectors: dict[str, Config] = {}
        self._target_states: dict[str, TargetState] = {}
        self._task_counts: dict[str, int] = {}
        self._task_configs: dict[ConnectorTaskId, Config] = {}
        self._uncommitted: dict[str, dict[ConnectorTaskId, Config]] = {}
        self._task_count_records: dict[str, int] = {}
        self._generations: dict[str, int] = {}
        self._outdated: set[str] = set()
        self._pending_fencing: set[str] = set()
        self._inconsistent: set[str] = set()

    def snapshot(self) -> ClusterConfigState:
        """Return an immutable copy of the state."""
        return ClusterConfigState(
            self.offset,
            self.session_key,
            dict(self._connectors),
            dict(self._target_states),
            dict(self._task_counts),
            dict(self._task_configs),
            dict(self._task_count_records),
            dict(self._generations),
            frozenset(self._outdated),
            frozenset(self._pending_fencing),
            frozenset(self._inconsistent),
        )

    def apply(self, record: LogRecord) -> Change | None:
        """Apply one record to the state. Return the change that it makes, or None."""
        try:
            key = record.key.decode()
            value = None if record.value is None else json_text.loads(record.value)
            self.offset = record.offset + 1
            return self._apply(key, value)
        except (DataError, UnicodeDecodeError, _MalformedError) as error:
            log.error("ignored record %r at offset %d of the config topic: %s", record.key, record.offset, error)
            return None

    def _apply(self, key: str, value: Any) -> Change | None:
        if key == records.SESSION_KEY:
            return self._session_key(value)
        for prefix, step in (
            (records.TARGET_STATE, self._target_state),
            (records.CONNECTOR, self._connector),
            (records.TASK_COUNT, self._task_count),
            (records.TASK, self._task),
            (records.COMMIT, self._commit),
            (records.RESTART, self._restart),
            (records.LOGGER_LEVEL, self._logger_level),
        ):
            if key.startswith(prefix):
                return step(key.removeprefix(prefix), value)
        raise _MalformedError("Kafka Connect does not use such a key")

    def _connector(self, connector: str, value: Any) -> Change | None:
        if value is None:
            self._remove(connector)
            return ConnectorRemoved(connector)
        config = _member(value, "properties", dict)
        if connector not in self._connectors and self._task_count_records.get(connector):
            self._pending_fencing.add(connector)  # a deleted connector of this name had tasks, which may still run
        self._connectors[connector] = config
        self._target_states.setdefault(connector, TargetState.STARTED)
        self._outdated.add(connector)
        return ConnectorConfigUpdated(connector)

    def _target_state(self, connector: str, value: Any) -> Change | None:
        before = self._target_states.get(connector)
        if value is None:
            self._target_states.pop(connector, None)
            if connector in self._connectors:
                self._target_states[connector] = TargetState.STARTED
            return None
        name = _object(value).get("state.v2")
        if not isinstance(name, str):
            name = _member(value, "state", str)
        if name not in TargetState.__members__:
            raise _MalformedError(f"{name!r} is not a target state")
        state = self._target_states[connector] = TargetState[name]
        return TargetStateChanged(connector) if state is not before and connector in self._connectors else None

    def _task(self, name: str, value: Any) -> Change | None:
        task = parse_task_id(name)
        if task is None:
            raise _MalformedError("the key does not name a task")
        self._uncommitted.setdefault(task.connector, {})[task] = _member(value, "properties", dict)
        return None

    def _commit(self, connector: str, value: Any) -> Change | None:
        if connector not in self._connectors:  # a deleted connector, whose settings compaction has removed
            self._remove(connector)
            return None
        count = _member(value, "tasks", int)
        fresh = self._uncommitted.pop(connector, {})
        if all(ConnectorTaskId(connector, number) in fresh for number in range(count)):
            if fresh:
                self._task_configs.update(fresh)
                self._generations[connector] = self._generations.get(connector, -1) + 1
            self._inconsistent.discard(connector)
            self._outdated.discard(connector)
        else:
            self._inconsistent.add(connector)
        self._task_counts[connector] = count
        self._pending_fencing.add(connector)
        return TaskConfigsUpdated(connector)

    def _task_count(self, connector: str, value: Any) -> Change | None:
        self._task_count_records[connector] = _member(value, "task-count", int)
        self._pending_fencing.discard(connector)
        return None

    def _session_key(self, value: Any) -> Change | None:
        try:
            key = base64.b64decode(_member(value, "key", str), validate=True)
        except ValueError as error:  # also raised for a character that is not ASCII
            raise _MalformedError(f"the key is not valid base64: {error}") from None
        algorithm, created_ms = _member(value, "algorithm", str), _member(value, "creation-timestamp", int)
        self.session_key = SessionKey(key, algorithm, created_ms)
        return SessionKeyUpdated(self.session_key)

    def _restart(self, connector: str, value: Any) -> Change | None:
        given = _object(value)
        only_failed, include_tasks = given.get("only-failed") is True, given.get("include-tasks") is True
        return RestartRequested(RestartRequest(connector, only_failed, include_tasks))

    def _logger_level(self, namespace: str, value: Any) -> Change | None:
        level = _member(value, "level", str)
        if level.upper() not in LEVELS:  # such as a Java worker's custom level
            raise _MalformedError(f"{level!r} is not a log level")
        return LoggerLevelChanged(namespace, level)

    def _remove(self, connector: str) -> None:
        for table in (self._connectors, self._task_counts, self._uncommitted):
            table.pop(connector, None)
        self._outdated.discard(connector)
        for task in [task for task in self._task_configs if task.connector == connector]:
            del self._task_configs[task]


class _MalformedError(Exception):
    """Raised if a record does not have the format that its key requires."""


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _MalformedError(f"the value is not a JSON object but {type(value).__name__}")
    return value


def _member(value: Any, name: str, kind: type) -> Any:
    member = _object(value).get(name)
    if not isinstance(member, kind) or isinstance(member, bool):
        raise _MalformedError(f"the field {name!r} is not {kind.__name__} but {type(member).__name__}")
    return member
