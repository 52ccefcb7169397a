"""Defines the messages of the Connect protocol: ConnectProtocol v0, IncrementalCooperativeConnectProtocol v1 and v2."""

from __future__ import annotations

from ...protocol.schema import Message, Struct, array, binary, data, int16, int32, int64, string, struct


@struct
class ConnectorAssignment(Struct):
    """The assigned parts of one connector: task numbers, with -1 for the connector itself."""

    connector: str = string("0+")
    tasks: list[int] = array("int32", "0+")


@data(versions="0-2", flexible="none")
class ConnectAssignment(Message):
    """The leader's assignment to one worker. It is sent in SyncGroup, and from v1 on also inside the worker's state.

    In v0, `assigned` is all the work of the worker. From v1 on, `assigned` is the work to start, `revoked` the work to
    stop (KIP-415), and `delay_ms` the milliseconds after which the group rebalances again. v2 has the fields of v1, and
    means that requests are signed (KIP-507).
    """

    error: int = int16("0+")
    leader: str = string("0+")
    leader_url: str = string("0+")
    config_offset: int = int64("0+")
    assigned: list[ConnectorAssignment] | None = array(ConnectorAssignment, "0+", nullable="1+")
    revoked: list[ConnectorAssignment] | None = array(ConnectorAssignment, "1+", nullable="1+", ignorable=True)
    delay_ms: int = int32("1+", ignorable=True)


@data(versions="0-2", flexible="none")
class ConnectWorkerState(Message):
    """A worker's state, sent to the leader in JoinGroup.

    `allocation` is an encoded ConnectAssignment, or None at first.
    """

    url: str = string("0+")
    config_offset: int = int64("0+")
    allocation: bytes | None = binary("1+", default=None, nullable="1+", ignorable=True)
