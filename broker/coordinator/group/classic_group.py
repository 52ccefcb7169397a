"""Represents a group of the classic protocol: its members, generation and protocol. Contains data and pure rules only.

A group never waits, appends to the log, answers requests or sets a timer; `rebalance.py` and `membership.py` do this.
Callers pass the current time.

Invariants:

* All members have the group's protocol type and share at least one protocol.
* A static instance id belongs to one member.
* The leader is a member.
* A member id is either pending or a member, never both.
* A group in state EMPTY has no members. A group in state COMPLETING_REBALANCE or STABLE has at least one.
* The generation never decreases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Final

from ....protocol.codec import decode_versioned
from ....protocol.errors import DecodeError, ErrorCode, KafkaError
from ....protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from ....protocol.messages.join_group import JoinGroupResponseMember
from .footprint import GroupFootprint
from .member import ClassicGroupMember, OfferedProtocols
from .state import GroupState, may_follow

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

MAX_SUBSCRIBED: Final = 100_000
"""The maximum number of topics in all subscriptions of a group. Beyond it, the subscriptions are not decoded.

The limit is needed because all of them are decoded in one turn of the event loop, when a generation begins.
"""

_COST_OF_SUBSCRIPTION: Final = 10
"""Each subscription counts as this many topics towards `MAX_SUBSCRIBED`, in addition to its topics."""

_MAX_SUBSCRIPTIONS_BYTES: Final = 16 << 20


class ClassicGroup:
    """One group of the classic protocol.

    `state_timestamp_ms` is the time when the group entered its state, in ms since the epoch, or None if the log does
    not contain that time. `emptied_ms` is the time when the group last became empty, in ms since the epoch. It is -1 if
    the group never became empty, or if it had members when it was read from the log. `protocol_type` is None for a
    group that only has committed offsets (of "simple" consumers). `subscribed_topics` is None if the topics are
    unknown: the members do not send consumer subscriptions, or they subscribe to too many topics. `storing_generation`
    is the generation whose assignment is being written to the log, or -1.
    """

    __slots__ = (
        "_offers",
        "emptied_ms",
        "footprint",
        "generation_id",
        "group_id",
        "leader_id",
        "members",
        "new_member_added",
        "pending_join",
        "pending_sync",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_members",
        "storing_generation",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, state_timestamp_ms: int | None, footprint: GroupFootprint | None = None) -> None:
        self.group_id = group_id
        self.footprint = footprint
        self.state = GroupState.EMPTY
        self.previous_state = GroupState.EMPTY
        self.state_timestamp_ms = state_timestamp_ms
        self.emptied_ms = -1
        self.generation_id = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_join: set[str] = set()
        self.pending_sync: set[str] = set()
        self.new_member_added = False
        self.subscribed_topics: frozenset[str] | None = None
        self.storing_generation = -1
        self._offers: Counter[str] = Counter()

    # ---- state

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        """Enter `state`, which must be a valid successor of the current state."""
        assert may_follow(state, self.state), f"{self.group_id}: {self.state} -> {state}"
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = now_ms
        if state is GroupState.EMPTY:
            self.emptied_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin; False while the group is in PREPARING_REBALANCE or DEAD."""
        return may_follow(GroupState.PREPARING_REBALANCE, self.state)

    def next_generation(self, now_ms: int) -> None:
        """Begin the next generation, with the protocol that wins the members' votes. All members must have joined.

        A group without members becomes EMPTY.
        """
        self.generation_id += 1
        self.pending_sync.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self.compute_subscribed_topics()
        self.transition_to(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_ms)

    @property
    def was_never_stored(self) -> bool:
        """Whether the group has no members and the log has no metadata record of the group."""
        return self.state is GroupState.EMPTY and self.generation_id == 0 and self.protocol_type is None

    # ---- members

    def count_in(self, footprint: GroupFootprint) -> None:
        """Add the memory of a replayed group's members to the totals of `footprint`."""
        assert self.footprint is None
        self.footprint = footprint
        for member in self.members.values():
            self._count(member)

    def size_of(self, member: ClassicGroupMember) -> int:
        """Return the approximate memory of a member in bytes, including the group's id.

        The id is counted once for each member, because most groups have few members.
        """
        return len(self.group_id) + member.size

    def _count(self, member: ClassicGroupMember) -> None:
        """Add the member's memory to the footprint's total, or correct the total if the member has changed."""
        if self.footprint is not None:
            size = self.size_of(member)
            self.footprint.member_bytes += size - member.counted_size
            member.counted_size = size

    def _discount(self, member: ClassicGroupMember) -> None:
        if self.footprint is not None:
            self.footprint.member_bytes -= member.counted_size
            member.counted_size = 0

    def expect(self, member_id: str) -> None:
        """Add a pending member id: an id assigned to a client that has not joined with it yet."""
        self.pending_join.add(member_id)
        if self.footprint is not None:
            self.footprint.add_pending(self.group_id, member_id)

    def _no_longer_pending(self, member_id: str) -> None:
        if member_id in self.pending_join:
            self.pending_join.remove(member_id)
            if self.footprint is not None:
                self.footprint.remove_pending(self.group_id, member_id)

    def assign(self, member: ClassicGroupMember, assignment: bytes) -> None:
        """Set a member's assignment."""
        member.assignment = assignment
        self._count(member)

    def add(self, member: ClassicGroupMember) -> None:
        """Add a member. The first member determines the group's protocol type and becomes its leader."""
        assert self.supports_protocols(member.protocol_type, member.protocols.names)
        assert member.member_id not in self.members
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._offer(member)
        self._no_longer_pending(member.member_id)
        self._count(member)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending member id. If the leader is removed, another member becomes the leader."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._discount(member)
            self._withdraw(member)
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self._no_longer_pending(member_id)
        self.pending_sync.discard(member_id)

    def replace_static_member(self, group_instance_id: str, new_member_id: str) -> ClassicGroupMember:
        """Give a static member a new member id.

        Return the new member, with the previous member's settings and assignment.
        """
        old = self.members.pop(self.static_members[group_instance_id])
        new = ClassicGroupMember(
            new_member_id,
            group_instance_id,
            old.client,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocol_type=old.protocol_type,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        self._discount(old)
        self._count(new)
        self.members[new_member_id] = new
        self.static_members[group_instance_id] = new_member_id
        if self.leader_id == old.member_id:
            self.leader_id = new_member_id
        if old.member_id in self.pending_sync:
            self.pending_sync.remove(old.member_id)
            self.pending_sync.add(new_member_id)
        return new

    def update_protocols(self, member: ClassicGroupMember, protocols: OfferedProtocols) -> None:
        """Replace the offered protocols of a member that joins again."""
        if member.protocols.names == protocols.names:
            member.protocols = protocols
        else:
            self._withdraw(member)
            member.protocols = protocols
            self._offer(member)
        self._count(member)

    def _offer(self, member: ClassicGroupMember) -> None:
        self._offers.update(member.protocols.names)

    def _withdraw(self, member: ClassicGroupMember) -> None:
        """Stop counting the member's protocols. Protocols that no member offers any more are removed."""
        for name in member.protocols.names:
            self._offers[name] -= 1
            if not self._offers[name]:
                del self._offers[name]

    def is_leader(self, member_id: str) -> bool:
        """Whether the member is the leader, which computes the assignment."""
        return self.leader_id == member_id

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader has joined. If it has not, elect a joined member.

        Return False if no member has joined.
        """
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaiting_join is None:
            joined = next((m.member_id for m in self.members.values() if m.awaiting_join is not None), None)
            if joined is None:
                return False
            self.leader_id = joined
        return True

    @property
    def awaiting_join_count(self) -> int:
        """The number of members that have joined the next generation."""
        return sum(member.awaiting_join is not None for member in self.members.values())

    @property
    def has_all_members_joined(self) -> bool:
        """Whether all members have joined and no member id is pending."""
        return not self.pending_join and all(member.awaiting_join is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members, or 0 without members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def check_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Raise KafkaError unless the ids belong to a current member.

        The code is FENCED_INSTANCE_ID if the instance id now belongs to another member, else UNKNOWN_MEMBER_ID.
        """
        if group_instance_id is not None:
            holder = self.static_members.get(group_instance_id)
            if holder is not None and holder != member_id:
                raise KafkaError(
                    ErrorCode.FENCED_INSTANCE_ID,
                    f"Group {self.group_id!r}: instance {group_instance_id!r} now belongs to member {holder!r}."
                    " Give each consumer its own group.instance.id.",
                )
            if holder is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    # ---- protocols

    def supports_protocols(self, protocol_type: str, names: Collection[str]) -> bool:
        """Whether a member with these protocols can join.

        An empty group accepts any protocol type with at least one protocol.
        """
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        if protocol_type != self.protocol_type:
            return False
        return any(self._offers[name] == len(self.members) for name in names)

    def select_protocol(self) -> str:
        """Return the protocol with the most votes among those that all members offer.

        On a tie, the earliest vote decides. The group must have a member.
        """
        size = len(self.members)
        first = next(iter(self.members.values()))
        candidates = {name for name in first.protocols.names if self._offers[name] == size}
        if len(candidates) == 1:
            return candidates.pop()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def joined_members(self) -> list[JoinGroupResponseMember]:
        """Return all members with their metadata, for the leader's JoinGroup response."""
        assert self.protocol_name is not None
        return [
            JoinGroupResponseMember(member.member_id, member.group_instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        ]

    @property
    def is_consumer_group(self) -> bool:
        """Whether the members' metadata are consumer subscriptions."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic.

        If the subscriptions are unknown, the result is True for a consumer group, and False for other groups.
        """
        if self.subscribed_topics is None:
            return self.is_consumer_group
        return topic in self.subscribed_topics

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics to which this generation's members subscribe, or None if these are unknown."""
        if not self.is_consumer_group:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        try:
            return _subscribed(member.metadata(self.protocol_name) for member in self.members.values())
        except DecodeError:
            return None  # not an error: a member may send any metadata, even with the protocol type of a consumer


def _subscribed(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of the subscriptions.

    Return None if there are too many topics (`MAX_SUBSCRIBED`), or if the subscriptions are too large in total.

    Most members of a group send the same subscription, which is decoded once. As in Kafka, only the fields of version
    0, with which every version begins, are read: kafkajs claims version 1, but omits its additional fields. Raise
    DecodeError if a subscription is malformed.
    """
    topics: set[str] = set()
    known: set[bytes] = set()
    size, left = 0, MAX_SUBSCRIBED
    for subscription in subscriptions:
        size += len(subscription)
        if size > _MAX_SUBSCRIPTIONS_BYTES:
            return None
        if subscription in known:
            continue
        known.add(subscription)
        left -= _COST_OF_SUBSCRIPTION
        if left <= 0:
            return None
        decoded = decode_versioned(ConsumerProtocolSubscription, subscription, left, newest=0)
        topics.update(decoded.topics)
        left -= len(decoded.topics)
    return frozenset(topics)
