"""The records of the status topic, byte for byte as Kafka Connect 4.1 writes them."""

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
    """What a worker said of a connector or task. `generation` is that of the group; `trace` says why it failed."""

    state: State
    worker_id: str
    generation: int
    trace: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class TopicStatus:
    """A topic that a connector has written to, and the task that was the first to say so."""

    topic: str
    connector: str
    task: int
    discovered_ms: int


def status_key(what: str | ConnectorTaskId) -> bytes:
    """Return the key of a connector's or a task's status."""
    return f"{CONNECTOR}{what}".encode() if isinstance(what, str) else f"{TASK}{what}".encode()


def status_value(status: Status) -> bytes | None:
    """Return the value of a status; a destroyed one is deleted."""
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
    """Return a status; raises DataError."""
    match json_text.loads(value):
        case {"state": str(state), "worker_id": str(worker_id), "generation": int(generation), **rest}:
            if state in State.__members__:
                return Status(State[state], worker_id, generation, _text(rest, "trace"), _text(rest, "version"))
    raise DataError("the value is no status of Kafka Connect")


def topic_status(status: TopicStatus) -> Record:
    """Return the record of a topic that a connector uses."""
    value = {
        "name": status.topic,
        "connector": status.connector,
        "task": status.task,
        "discoverTimestamp": status.discovered_ms,
    }
    return topic_key(status.connector, status.topic), json_text.dumps({"topic": value})


def topic_key(connector: str, topic: str) -> bytes:
    """Return the key of a topic that a connector uses."""
    return f"{TOPIC}{topic}{_TOPIC_SEPARATOR}{connector}".encode()


def parse_topic_key(key: str) -> tuple[str, str]:
    """Return (connector, topic) for the key of a topic status without its prefix; raises DataError."""
    topic, separator, connector = key.partition(_TOPIC_SEPARATOR)
    if not separator or not topic or not connector:
        raise DataError("the key names no topic of a connector")
    return connector, topic


def parse_topic_status(value: bytes) -> TopicStatus:
    """Return a topic status; raises DataError."""
    match json_text.loads(value):
        case {
            "topic": {"name": str(name), "connector": str(connector), "task": int(task), "discoverTimestamp": int(at)}
        }:
            return TopicStatus(name, connector, task, at)
    raise DataError("the value is no topic status of Kafka Connect")


def _text(given: Mapping[Any, Any], name: str) -> str | None:
    value = given.get(name)
    return value if isinstance(value, str) else None
