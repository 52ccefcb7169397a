"""One member of a group: what it offered when it joined, what it was assigned, and which answers it waits for."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from ....protocol.messages.join_group import JoinGroupResponse
from ....protocol.messages.sync_group import SyncGroupResponse
from .footprint import MEMBER_OVERHEAD

JoinAnswer: TypeAlias = Callable[[JoinGroupResponse], None]
SyncAnswer: TypeAlias = Callable[[SyncGroupResponse], None]


class OfferedProtocol(NamedTuple):
    """An assignment strategy that a member can follow, with its metadata for it (for consumers: its subscription)."""

    name: str
    metadata: bytes


def size_of_protocols(protocols: Iterable[OfferedProtocol]) -> int:
    """Bytes that what a member offers takes in memory, about."""
    return sum(len(offered.name) + len(offered.metadata) for offered in protocols)


class ClientIdentity(NamedTuple):
    """Who a request came from, as DescribeGroups shows it."""

    client_id: str
    client_host: str


class ClassicGroupMember:
    """A member; timeouts in ms. `protocols` is in the member's order of preference.

    `awaiting_join` and `awaiting_sync` take the response to the parked JoinGroup or SyncGroup, at most one of each.
    `is_new` holds until its first generation: such a member cannot send heartbeats, so a parked JoinGroup does not keep
    it alive.
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
        self.counted_size = 0  # what the footprint of groups has of it

    @property
    def is_static(self) -> bool:
        """Whether it has a group instance id (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether a parked request shows that it is alive, although no heartbeat came."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    @property
    def size(self) -> int:
        """Bytes that the member takes in memory, about."""
        return (
            MEMBER_OVERHEAD
            + len(self.member_id)
            + len(self.group_instance_id or "")
            + len(self.client.client_id)
            + size_of_protocols(self.protocols)
            + len(self.assignment)
        )

    def metadata(self, protocol: str) -> bytes:
        """What it offered for `protocol`, which it must have offered."""
        return next(offered.metadata for offered in self.protocols if offered.name == protocol)

    def vote(self, candidates: Container[str]) -> str:
        """The first protocol it prefers among those that every member can follow."""
        return next(offered.name for offered in self.protocols if offered.name in candidates)
