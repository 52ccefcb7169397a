"""The messages of the Connect protocol: ConnectProtocol v0, IncrementalCooperativeConnectProtocol v1 and v2."""

from __future__ import annotations

from ...protocol.schema import Message, Struct, array, binary, data, int16, int32, int64, string, struct


@struct
class ConnectorAssignment(Struct):
    """Work of one connector; task -1 is the connector itself."""

    connector: str = string("0+")
    tasks: list[int] = array("int32", "0+")


@data(versions="0-2", flexible="none")
class ConnectAssignment(Message):
    """What the leader assigns to one worker. Travels in SyncGroup, and from v1 on inside the worker's own state.

    In v0 it is all that the worker runs. From v1 on it is what the worker starts and what it stops (KIP-415), with the
    milliseconds after which the group rebalances again. v2 equals v1, and says that requests are signed (KIP-507).
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
    """What a worker tells the leader. Travels in JoinGroup; `allocation` is a ConnectAssignment, or None at first."""

    url: str = string("0+")
    config_offset: int = int64("0+")
    allocation: bytes | None = binary("1+", default=None, nullable="1+", ignorable=True)
