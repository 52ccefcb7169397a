"""Builds the records of the config topic: keys and values byte for byte as Kafka Connect 4.1 writes them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from ..data import json_text
from ..errors import ConnectError
from .ids import ConnectorTaskId

Record = tuple[bytes, bytes | None]

CONNECTOR: Final = "connector-"
TASK: Final = "task-"
COMMIT: Final = "commit-"
TARGET_STATE: Final = "target-state-"
TASK_COUNT: Final = "tasks-fencing-"
RESTART: Final = "restart-connector-"
LOGGER_LEVEL: Final = "logger-cluster-"
SESSION_KEY: Final = "session-key"


class TargetState(Enum):
    """The state that a user wants a connector to be in."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"

    @classmethod
    def initial(cls, state: object) -> TargetState | None:
        """Return the state for a new connector's initial_state: RUNNING, PAUSED or STOPPED, ignoring case (KIP-980).

        None stays None. Raises ConnectError for any other value.
        """
        if state is None:
            return None
        wanted = {"RUNNING": cls.STARTED, "PAUSED": cls.PAUSED, "STOPPED": cls.STOPPED}.get(str(state).upper())
        if wanted is None:
            raise ConnectError(f"initial_state must be RUNNING, PAUSED or STOPPED, not {state!r}")
        return wanted


@dataclass(frozen=True)
class SessionKey:
    """The key that signs requests between workers; `created_ms` is in milliseconds since the epoch."""

    key: bytes
    algorithm: str
    created_ms: int


class RestartRequest(NamedTuple):
    """A user's request to restart a connector.

    `include_tasks` restarts its tasks too; `only_failed` restarts only the connector or tasks that have failed.
    """

    connector: str
    only_failed: bool
    include_tasks: bool


def connector_config(connector: str, config: Mapping[str, str | None] | None) -> Record:
    """Return the record of a connector's settings, or of the connector's removal if `config` is None."""
    return f"{CONNECTOR}{connector}".encode(), None if config is None else _properties(config)


def task_config(task: ConnectorTaskId, config: Mapping[str, str | None]) -> Record:
    """Return the record of a task's settings. They take effect with the next commit record."""
    return f"{TASK}{task}".encode(), _properties(config)


def commit(connector: str, tasks: int) -> Record:
    """Return the record that puts the settings of the connector's `tasks` tasks into effect."""
    return f"{COMMIT}{connector}".encode(), json_text.dumps({"tasks": tasks})


def target_state(connector: str, state: TargetState | None) -> Record:
    """Return the record of a target state, or of its removal. Workers before Kafka 3.5 read STOPPED as PAUSED."""
    if state is None:
        return f"{TARGET_STATE}{connector}".encode(), None
    old = TargetState.PAUSED if state is TargetState.STOPPED else state
    return f"{TARGET_STATE}{connector}".encode(), json_text.dumps({"state": old.value, "state.v2": state.value})


def task_count(connector: str, tasks: int) -> Record:
    """Return the task count record, which says how many tasks to fence, at most, before new tasks start (KIP-618)."""
    return f"{TASK_COUNT}{connector}".encode(), json_text.dumps({"task-count": tasks})


def restart(request: RestartRequest) -> Record:
    """Return the record of a restart request (KIP-745)."""
    value = {"include-tasks": request.include_tasks, "only-failed": request.only_failed}
    return f"{RESTART}{request.connector}".encode(), json_text.dumps(value)


def logger_level(namespace: str, level: str) -> Record:
    """Return the record that sets a log level on all workers (KIP-976)."""
    return f"{LOGGER_LEVEL}{namespace}".encode(), json_text.dumps({"level": level})


def session_key(key: SessionKey) -> Record:
    """Return the record of the key that signs internal requests (KIP-507)."""
    text = base64.b64encode(key.key).decode()
    value = {"key": text, "algorithm": key.algorithm, "creation-timestamp": key.created_ms}
    return SESSION_KEY.encode(), json_text.dumps(value)


def _properties(config: Mapping[str, str | None]) -> bytes:
    return json_text.dumps({"properties": dict(config)})
