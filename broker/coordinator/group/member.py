"""Represents one member of a group: its offered protocols, its assignment, and its parked requests."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, KeysView
from typing import NamedTuple, TypeAlias

from ....protocol.messages.join_group import JoinGroupResponse
from ....protocol.messages.sync_group import SyncGroupResponse
from .footprint import MEMBER_OVERHEAD, PROTOCOL_OVERHEAD

JoinAnswer: TypeAlias = Callable[[JoinGroupResponse], None]
SyncAnswer: TypeAlias = Callable[[SyncGroupResponse], None]


class OfferedProtocol(NamedTuple):
    """An assignment strategy that a member supports, with the member's metadata for it (a consumer's subscription)."""

    name: str
    metadata: bytes


class OfferedProtocols:
    """The protocols that a member offers, in its order of preference. They never change.

    If a name occurs more than once, only its first occurrence counts. `size` is the approximate memory of the
    protocols, in bytes.
    """

    __slots__ = ("_metadata", "size")

    def __init__(self, protocols: Iterable[OfferedProtocol]) -> None:
        self._metadata: dict[str, bytes] = {}
        self.size = 0
        for name, metadata in protocols:
            if name not in self._metadata:
                self._metadata[name] = metadata
                self.size += PROTOCOL_OVERHEAD + len(name) + len(metadata)

    @property
    def names(self) -> KeysView[str]:
        """The names, in the member's order of preference."""
        return self._metadata.keys()

    def metadata(self, name: str) -> bytes:
        """Return the metadata for the protocol `name`, which must be among the offered protocols."""
        return self._metadata[name]

    def first_of(self, names: Container[str]) -> str:
        """Return the protocol among `names` that the member prefers. The member must offer at least one of them."""
        return next(filter(names.__contains__, self._metadata))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OfferedProtocols) and [*self._metadata.items()] == [*other._metadata.items()]

    def __hash__(self) -> int:
        return hash(tuple(self._metadata))


class ClientIdentity(NamedTuple):
    """The client id and host of a member, as DescribeGroups returns them."""

    client_id: str
    client_host: str


class ClassicGroupMember:
    """A member of a classic group. Timeouts are in ms.

    `awaiting_join` and `awaiting_sync` are the callbacks that answer the member's parked JoinGroup or SyncGroup
    request. They are None if no such request is parked. `is_new` is True until the member's first generation begins. A
    new member cannot send heartbeats yet. Its parked JoinGroup keeps it in the group for a limited time only.
    """

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client",
        "counted_size",
        "group_instance_id",
        "is_new",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client: ClientIdentity,
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: OfferedProtocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client = client
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.awaiting_join: JoinAnswer | None = None
        self.awaiting_sync: SyncAnswer | None = None
        self.is_new = False
        self.counted_size = 0  # the bytes that the group's footprint has counted for this member

    @property
    def is_static(self) -> bool:
        """Whether the member has a group instance id (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether a parked request keeps the member's session alive without heartbeats."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    @property
    def size(self) -> int:
        """The approximate memory of the member, in bytes, without the group's id."""
        return (
            MEMBER_OVERHEAD
            + len(self.protocol_type)
            + len(self.member_id)
            + len(self.group_instance_id or "")
            + len(self.client.client_id)
            + self.protocols.size
            + len(self.assignment)
        )

    def metadata(self, protocol: str) -> bytes:
        """Return the member's metadata for `protocol`, which the member must have offered."""
        return self.protocols.metadata(protocol)

    def vote(self, candidates: Container[str]) -> str:
        """Return the candidate that the member prefers. `candidates` are the protocols that every member supports."""
        return self.protocols.first_of(candidates)
