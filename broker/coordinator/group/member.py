"""Represents one member of a group: its offered protocols, its assignment, and its parked requests."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
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


def size_of_protocols(protocols: Iterable[OfferedProtocol]) -> int:
    """Return the approximate memory of the offered protocols, in bytes."""
    return sum(PROTOCOL_OVERHEAD + len(offered.name) + len(offered.metadata) for offered in protocols)


def metadata_for(protocol: str, protocols: Iterable[OfferedProtocol]) -> bytes:
    """Return the metadata for `protocol`, which must be among the offered protocols."""
    return next(offered.metadata for offered in protocols if offered.name == protocol)


class ClientIdentity(NamedTuple):
    """The client id and host of a member, as DescribeGroups returns them."""

    client_id: str
    client_host: str


class ClassicGroupMember:
    """A member of a classic group. Timeouts are in ms, and `protocols` is in the member's order of preference.

    `awaiting_join` and `awaiting_sync` are the callbacks that answer the parked JoinGroup and SyncGroup, or None.
    `is_new` is True until the member's first generation begins. A new member cannot send heartbeats yet. Its parked
    JoinGroup keeps it in the group for a limited time only.
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
        protocols: Sequence[OfferedProtocol],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client = client
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = tuple(protocols)
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
        """Whether a parked request keeps the member alive without heartbeats."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    @property
    def size(self) -> int:
        """The approximate memory of the member, in bytes."""
        return (
            MEMBER_OVERHEAD
            + len(self.member_id)
            + len(self.group_instance_id or "")
            + len(self.client.client_id)
            + size_of_protocols(self.protocols)
            + len(self.assignment)
        )

    def metadata(self, protocol: str) -> bytes:
        """Return the member's metadata for `protocol`, which the member must have offered."""
        return metadata_for(protocol, self.protocols)

    def vote(self, candidates: Container[str]) -> str:
        """Return the candidate that the member prefers. `candidates` are the protocols that every member supports."""
        return next(offered.name for offered in self.protocols if offered.name in candidates)
