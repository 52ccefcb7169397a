"""Builds and parses the records of the status topic, byte for byte as Kafka Connect 4.1 writes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from ..data import json_text
from ..errors import DataError
from .ids import ConnectorTaskId

Record = tuple[bytes, bytes | None]

CONNECTOR: Final = "status-connector-"
TASK: Final = "status-task-"
TOPIC: Final = "status-topic-"
_TOPIC_SEPARATOR: Final = ":connector-"


class State(Enum):
    """The state of a connector or a task, under Kafka Connect's name."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    DESTROYED = "DESTROYED"
    RESTARTING = "RESTARTING"
    STOPPED = "STOPPED"


@dataclass(frozen=True)
class Status:
    """A worker's report on a connector or task.

    `generation` is the group's; `trace` is the stack trace of a failure.
    """

    state: State
    worker_id: str
    generation: int
    trace: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class TopicStatus:
    """A topic that a connector has written to, and the task that reported the topic first."""

    topic: str
    connector: str
    task: int
    discovered_ms: int


def status_key(what: str | ConnectorTaskId) -> bytes:
    """Return the key of a connector's or a task's status."""
    return f"{CONNECTOR}{what}".encode() if isinstance(what, str) else f"{TASK}{what}".encode()


def status_value(status: Status) -> bytes | None:
    """Return the record value of a status, or None (a tombstone) for DESTROYED."""
    if status.state is State.DESTROYED:
        return None
    return json_text.dumps(
        {
            "state": status.state.value,
            "trace": status.trace,
            "worker_id": status.worker_id,
            "generation": status.generation,
            "version": status.version,
        }
    )


def parse_status(value: bytes) -> Status:
    """Parse the value of a status record; raise DataError if it is malformed."""
    match json_text.loads(value):
        case {"state": str(state), "worker_id": str(worker_id), "generation": int(generation), **rest}:
            if state in State.__members__:
                return Status(State[state], worker_id, generation, _text(rest, "trace"), _text(rest, "version"))
    raise DataError("the value is not a status in Kafka Connect's format")


def topic_status(status: TopicStatus) -> Record:
    """Return the record that says that a connector uses a topic."""
    value = {
        "name": status.topic,
        "connector": status.connector,
        "task": status.task,
        "discoverTimestamp": status.discovered_ms,
    }
    return topic_key(status.connector, status.topic), json_text.dumps({"topic": value})


def topic_key(connector: str, topic: str) -> bytes:
    """Return the key of the record that says that a connector uses a topic."""
    return f"{TOPIC}{topic}{_TOPIC_SEPARATOR}{connector}".encode()


def parse_topic_key(key: str) -> tuple[str, str]:
    """Return (connector, topic) for the key of a topic status; `key` is the key without its prefix.

    Raises DataError if the key is malformed.
    """
    topic, separator, connector = key.partition(_TOPIC_SEPARATOR)
    if not separator or not topic or not connector:
        raise DataError("the key does not name a topic and a connector")
    return connector, topic


def parse_topic_status(value: bytes) -> TopicStatus:
    """Parse the value of a topic status record; raise DataError if it is malformed."""
    match json_text.loads(value):
        case {
            "topic": {"name": str(name), "connector": str(connector), "task": int(task), "discoverTimestamp": int(at)}
        }:
            return TopicStatus(name, connector, task, at)
    raise DataError("the value is not a topic status in Kafka Connect's format")


def _text(given: Mapping[Any, Any], name: str) -> str | None:
    value = given.get(name)
    return value if isinstance(value, str) else None
