"""Encodes and decodes the data that workers exchange through the group coordinator.

The bytes are those of Kafka Connect 4.1, so that a group may contain both Java workers and oncelog's. The coordinator
chooses a protocol that all members support: `sessioned` (v2), `compatible` (v1) or `default` (v0, eager).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from ...protocol.codec import DecodeError, decode_versioned, encode_versioned
from ..stores.ids import ConnectorTaskId
from .messages import ConnectAssignment, ConnectorAssignment, ConnectWorkerState
from .work import Work

PROTOCOL_TYPE: Final = "connect"
NO_ERROR: Final = 0
CONFIG_MISMATCH: Final = 1
"""The error code for a leader that has not read the config topic as far as another worker has. All members rejoin."""

_CONNECTOR: Final = -1


class ConnectProtocol(Enum):
    """A protocol of the group. The value is its name in JoinGroup; the encoded messages begin with its `version`."""

    EAGER = "default"
    COMPATIBLE = "compatible"
    SESSIONED = "sessioned"

    @property
    def version(self) -> int:
        """The version number of the protocol's messages."""
        return list(ConnectProtocol).index(self)

    @property
    def cooperative(self) -> bool:
        """Whether workers keep running their work during a rebalance (KIP-415)."""
        return self is not ConnectProtocol.EAGER

    @property
    def signed(self) -> bool:
        """Whether workers sign internal requests with the session key (KIP-507)."""
        return self is ConnectProtocol.SESSIONED

    def offered(self) -> list[ConnectProtocol]:
        """Return the protocols that a worker with this connect.protocol offers, the preferred protocol first."""
        return list(ConnectProtocol)[self.version :: -1]


class Change(NamedTuple):
    """Connectors and tasks in the order in which they are encoded."""

    connectors: tuple[str, ...] = ()
    tasks: tuple[ConnectorTaskId, ...] = ()

    @classmethod
    def of(cls, work: Work) -> Change:
        """Return the connectors and tasks of `work`, sorted."""
        return cls(tuple(sorted(work.connectors)), tuple(sorted(work.tasks)))

    @property
    def work(self) -> Work:
        """These connectors and tasks as a `Work`, which has no order."""
        return Work.of(self.connectors, self.tasks)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The leader's assignment to one worker.

    With the eager protocol, `assigned` is all the work that the worker then runs. With the other protocols, `assigned`
    is the work to start in addition to the running work, and `revoked` is the work to stop. All members rejoin after
    `delay_ms` milliseconds, unless it is 0.
    """

    leader: str
    leader_url: str
    config_offset: int
    assigned: Change = Change()
    revoked: Change = Change()
    delay_ms: int = 0
    error: int = NO_ERROR


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker's state for the leader: its REST address, its position in the config topic, and its running work."""

    url: str
    config_offset: int
    assignment: Assignment | None = None

    @property
    def running(self) -> Work:
        """The connectors and tasks that the worker runs; empty with the eager protocol."""
        return self.assignment.assigned.work if self.assignment else Work()


def running(before: Assignment | None, received: Assignment, protocol: ConnectProtocol) -> Assignment:
    """Return the work that a worker runs after an assignment, in the form that it sends to the leader (KIP-415)."""
    work = received.assigned.work
    if protocol.cooperative and before is not None:
        work |= before.assigned.work - received.revoked.work
    return Assignment(
        received.leader,
        received.leader_url,
        received.config_offset,
        Change.of(work),
        received.revoked,
        received.delay_ms,
        received.error,
    )


def encode_assignment(assignment: Assignment, protocol: ConnectProtocol) -> bytes:
    """Encode an assignment for SyncGroup."""
    message = ConnectAssignment(
        error=assignment.error,
        leader=assignment.leader,
        leader_url=assignment.leader_url,
        config_offset=assignment.config_offset,
        assigned=_grouped(assignment.assigned),
        revoked=_grouped(assignment.revoked),
        delay_ms=assignment.delay_ms,
    )
    return encode_versioned(message, protocol.version)


def decode_assignment(data: bytes) -> Assignment:
    """Decode an assignment of any version. Raises DecodeError."""
    message = decode_versioned(ConnectAssignment, data)
    return Assignment(
        message.leader,
        message.leader_url,
        message.config_offset,
        _change(message.assigned),
        _change(message.revoked),
        message.delay_ms,
        message.error,
    )


def encode_worker_state(state: WorkerState, protocol: ConnectProtocol) -> bytes:
    """Encode a worker's state as its metadata for JoinGroup."""
    allocation = None if state.assignment is None else encode_assignment(state.assignment, protocol)
    message = ConnectWorkerState(url=state.url, config_offset=state.config_offset, allocation=allocation)
    return encode_versioned(message, protocol.version)


def decode_worker_state(data: bytes) -> WorkerState:
    """Decode a worker's metadata of any version. Raises DecodeError."""
    message = decode_versioned(ConnectWorkerState, data)
    assignment = None if message.allocation is None else decode_assignment(bytes(message.allocation))
    return WorkerState(message.url, message.config_offset, assignment)


def protocol_named(name: str) -> ConnectProtocol:
    """Return the protocol that the coordinator chose. Raises DecodeError for an unknown name."""
    try:
        return ConnectProtocol(name)
    except ValueError:
        known = ", ".join(protocol.value for protocol in ConnectProtocol)
        raise DecodeError(f"the group uses the protocol {name!r}; workers support {known}") from None


def _grouped(change: Change) -> list[ConnectorAssignment]:
    tasks: dict[str, list[int]] = {connector: [_CONNECTOR] for connector in change.connectors}
    for task in change.tasks:
        tasks.setdefault(task.connector, []).append(task.task)
    return [ConnectorAssignment(connector, numbers) for connector, numbers in tasks.items()]


def _change(assignments: Iterable[ConnectorAssignment] | None) -> Change:
    connectors: list[str] = []
    tasks: list[ConnectorTaskId] = []
    for assignment in assignments or ():
        for number in assignment.tasks:
            if number == _CONNECTOR:
                connectors.append(assignment.connector)
            else:
                tasks.append(ConnectorTaskId(assignment.connector, number))
    return Change(tuple(connectors), tuple(tasks))
