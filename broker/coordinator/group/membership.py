"""Handles the requests of group members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Decides whether a request is acceptable in the group's state, and what the request changes. The rebalances themselves
are in `rebalance`. This module keeps the map of groups. Every method is a plain call without an await.

KIP-394: a member without an id gets one and must join again with it (v4+). KIP-345: a static member that rejoins
without its member id gets a new one, and the previous one is fenced. In a stable group this causes no rebalance if the
protocol stays the same. KIP-814: if a leader rejoins this way, the response says that the leader must skip the
assignment (v9+).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.leave_group import MemberIdentity, MemberResponse
from ....protocol.messages.sync_group import SyncGroupRequest
from ....settings import INT32_MAX
from ...system.ports import Clock
from .classic_group import ClassicGroup
from .footprint import MEMBER_OVERHEAD, GroupFootprint
from .member import ClassicGroupMember, ClientIdentity, JoinAnswer, OfferedProtocols, SyncAnswer
from .rebalance import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    GroupStore,
    Rebalance,
    answer_join,
    answer_sync,
    assigned,
    failed_join,
    failed_sync,
    joined,
)
from .state import GroupState

_LONGEST_PREFIX: Final = 32_000
"""The maximum size in bytes of the client id or instance id with which a member id begins.

The whole member id then fits into a string of the protocol.
"""


class Join(NamedTuple):
    """A JoinGroup request of any version. Timeouts are in ms.

    For v0, `rebalance_timeout_ms` is the session timeout.
    """

    group_id: str
    member_id: str
    group_instance_id: str | None
    client: ClientIdentity
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: OfferedProtocols
    reason: str = "not provided"
    requires_known_member_id: bool = True
    supports_skipping_assignment: bool = True


class GroupMembership:
    """The groups of this coordinator by id, and the requests of their members."""

    def __init__(
        self,
        rebalance: Rebalance,
        store: GroupStore,
        clock: Clock,
        new_member_id: Callable[[], str],
        max_size: int,
        logger: Any,
        *,
        max_groups: int = INT32_MAX,
        max_id_bytes: int = INT32_MAX,
        footprint: GroupFootprint | None = None,
    ) -> None:
        """Create an empty map of groups. `new_member_id` is called for the unique part of a new member id."""
        self._max_groups = max_groups
        self._max_id_bytes = max_id_bytes
        self._footprint = footprint or GroupFootprint(INT32_MAX, INT32_MAX)
        self._footprint.on_given_up = self._give_up_pending
        self.groups: dict[str, ClassicGroup] = {}
        self._rebalance = rebalance
        self._store = store
        self._clock = clock
        self._new_member_id = new_member_id
        self._max_size = max_size
        self._logger = logger

    def get_or_create(self, group_id: str) -> ClassicGroup:
        """Return the group, creating it if it does not exist."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = self._new(group_id)
        return group

    def check_room(self, group_id: str) -> None:
        """Raise KafkaError if the group is new and may not be created.

        INVALID_GROUP_ID: its id is longer than `group.id.max.bytes`. GROUP_MAX_SIZE_REACHED: `group.max.groups` groups
        exist already. A data directory from Kafka may contain longer ids, which stay usable.
        """
        if group_id in self.groups:
            return
        size = len(group_id.encode())
        if size > self._max_id_bytes:
            raise KafkaError(
                ErrorCode.INVALID_GROUP_ID,
                f"The group id has {size} bytes, but a new one may have at most group.id.max.bytes ="
                f" {self._max_id_bytes}. Shorten group.id.",
            )
        if len(self.groups) >= self._max_groups:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"There are {self._max_groups} groups already, the limit set by group.max.groups. Delete unused groups,"
                " or raise the setting.",
            )

    def _new(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, self._clock.now_ms(), self._footprint)

    def _give_up_pending(self, group_id: str, member_id: str) -> None:
        group = self.groups.get(group_id)
        if group is not None:
            self._rebalance.give_up_pending(group, member_id)

    def resume(self, group: ClassicGroup) -> None:
        """Add a group that was replayed from the log, and count its members' memory."""
        group.count_in(self._footprint)
        self.groups[group.group_id] = group

    def begin_sessions(self, groups: Iterable[ClassicGroup]) -> None:
        """Start the session timer of every member of these replayed groups, with a full session timeout.

        A group that exceeds `group.max.size` begins a rebalance.
        """
        for group in list(groups):
            for member in group.members.values():
                self._rebalance.keep_alive(group, member)
            if len(group.members) > self._max_size:
                self._rebalance.prepare(group, f"{len(group.members)} members exceed group.max.size")

    # ---- JoinGroup

    def join(self, request: Join, answer: JoinAnswer) -> None:
        """Handle a JoinGroup request.

        `answer` is called exactly once: immediately, when the next generation begins or, for a static member that gets
        a new id, when this id is durable. If the member is removed or replaced before then, `answer` gets an error.
        """
        group = self.groups.get(request.group_id)
        if group is None and request.member_id:
            answer(failed_join(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
            return
        if group is None:
            try:
                self.check_room(request.group_id)
            except KafkaError as error:
                answer(failed_join(error.code))
                return
            group = self._new(request.group_id)  # added to the map only if a member is accepted
        if not self._has_room(group, request):
            if request.member_id in group.members:
                self._rebalance.remove_member(group, group.members[request.member_id])
            group.remove(request.member_id)
            answer(failed_join(ErrorCode.GROUP_MAX_SIZE_REACHED))
            self._rebalance.after_removal(group, "")
        elif not group.supports_protocols(request.protocol_type, request.protocols.names):
            answer(failed_join(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
        elif not self._has_memory(group, request):
            answer(failed_join(ErrorCode.GROUP_MAX_SIZE_REACHED, request.member_id))
        elif not request.member_id:
            self.groups[group.group_id] = group
            self._join_new(group, request, answer)
        elif request.member_id in group.pending_join and request.group_instance_id is None:
            self._add(group, request, request.member_id, answer)
        else:
            self._join_again(group, request, answer)

    def _has_room(self, group: ClassicGroup, request: Join) -> bool:
        if group.state is GroupState.EMPTY or request.group_instance_id in group.static_members:
            return True
        member = group.members.get(request.member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            # Count only the members that have joined: a group that became too large must be able to shrink.
            return (
                len(group.members) < self._max_size
                or (member is not None and member.awaiting_join is not None)
                or group.awaiting_join_count < self._max_size
            )
        return member is not None or len(group.members) < self._max_size

    def _has_memory(self, group: ClassicGroup, request: Join) -> bool:
        """Whether the member's data fits into `group.members.max.bytes`.

        An existing member may always reduce its data.
        """
        size = request.protocols.size
        member = group.members.get(request.member_id)
        if member is not None:
            more = size - member.protocols.size
            return more <= 0 or self._footprint.has_room(more)
        return self._footprint.has_room(
            MEMBER_OVERHEAD
            + 2 * len(request.client.client_id)
            + 2 * len(request.group_instance_id or "")
            + len(request.group_id)
            + len(request.protocol_type)
            + size
        )

    def _join_new(self, group: ClassicGroup, request: Join, answer: JoinAnswer) -> None:
        instance = request.group_instance_id
        name = request.client.client_id if instance is None else instance
        prefix = name.encode()[:_LONGEST_PREFIX].decode(errors="ignore")
        member_id = f"{prefix}-{self._new_member_id()}"
        if instance is not None and instance in group.static_members:
            self._take_over(group, request, member_id, answer)
        elif instance is None and request.requires_known_member_id:
            self._rebalance.expect_join(group, member_id, request.session_timeout_ms)
            answer(failed_join(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(group, request, member_id, answer)

    def _add(self, group: ClassicGroup, request: Join, member_id: str, answer: JoinAnswer) -> None:
        member = ClassicGroupMember(
            member_id,
            request.group_instance_id,
            request.client,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=request.protocols,
        )
        member.is_new = True
        member.awaiting_join = answer
        if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        group.add(member)
        self._rebalance.keep_alive(group, member, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance.prepare_or_complete(group, f"member {member_id} joins: {request.reason}")

    def _join_again(self, group: ClassicGroup, request: Join, answer: JoinAnswer) -> None:
        member_id = request.member_id
        try:
            group.check_member(member_id, request.group_instance_id)
        except KafkaError as error:
            answer(failed_join(error.code, member_id))
            return
        member = group.members[member_id]
        unchanged = member.protocols == request.protocols
        if group.state is GroupState.COMPLETING_REBALANCE and unchanged:
            # The response to the member's first JoinGroup may have been lost.
            answer(joined(group, member_id))
        elif group.state is GroupState.STABLE and unchanged and not group.is_leader(member_id):
            answer(joined(group, member_id))
        else:
            # In a stable group the leader may trigger a new assignment at any time.
            self._update(group, member, request, answer)
            self._rebalance.prepare_or_complete(group, f"member {member_id} joins again: {request.reason}")

    def _update(self, group: ClassicGroup, member: ClassicGroupMember, request: Join, answer: JoinAnswer) -> None:
        # A member that sends a second JoinGroup has abandoned the first one, as Kafka's clients do when their
        # connection breaks.
        answer_join(member, failed_join(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        group.update_protocols(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.awaiting_join = answer

    # ---- static members

    def _take_over(self, group: ClassicGroup, request: Join, member_id: str, answer: JoinAnswer) -> None:
        instance = request.group_instance_id
        assert instance is not None
        old = group.members[group.static_members[instance]]
        old_leader = group.leader_id
        self._logger.info(
            "static_member_replaced",
            group=group.group_id,
            instance=instance,
            old_member=old.member_id,
            new_member=member_id,
        )
        answer_join(old, failed_join(ErrorCode.FENCED_INSTANCE_ID, old.member_id))
        answer_sync(old, failed_sync(ErrorCode.FENCED_INSTANCE_ID))
        self._rebalance.forget_session(group, old.member_id)
        member = group.replace_static_member(instance, member_id)
        member.client = request.client
        self._update(group, member, request, answer)
        self._rebalance.keep_alive(group, member)
        if group.state is GroupState.STABLE:
            # A stable group has the protocol for which its members vote.
            if old.protocols == member.protocols or group.select_protocol() == group.protocol_name:
                self._store_take_over(group, old, member, old_leader, request)
            else:
                self._rebalance.prepare_or_complete(group, f"static member {instance} rejoined with another protocol")
        elif group.state is GroupState.COMPLETING_REBALANCE:
            # The leader may be assigning partitions to the old member id at this moment.
            self._rebalance.prepare(group, f"static member {instance} rejoined as {member_id}")
        else:
            self._rebalance.complete_if_all_joined(group)

    def _store_take_over(
        self,
        group: ClassicGroup,
        old: ClassicGroupMember,
        member: ClassicGroupMember,
        old_leader: str | None,
        request: Join,
    ) -> None:
        """Store the new id of a static member without a rebalance, and answer its JoinGroup when the id is durable."""
        generation_id = group.generation_id

        def stored(error: KafkaError | None) -> None:
            if group.members.get(member.member_id) is not member:
                return  # the member was replaced or removed meanwhile, and its JoinGroup was answered then
            if group.state is not GroupState.STABLE or group.generation_id != generation_id:
                return  # a rebalance has begun meanwhile, and will answer the JoinGroup
            if error is not None:
                self._put_back(group, old, member, error)
                return
            # The member's session timer may have expired during the flush; the parked JoinGroup kept the member in the
            # group.
            self._rebalance.keep_alive(group, member)
            if request.supports_skipping_assignment:
                response = joined(group, member.member_id)
                response.skip_assignment = group.is_leader(member.member_id)
                answer_join(member, response)
            else:
                # Name another leader, so that the client computes no assignment. A new assignment would force a
                # rebalance.
                leader_id = old_leader if old_leader == old.member_id else group.leader_id
                answer_join(member, joined(group, member.member_id, leader_id=leader_id))

        assignments = {other.member_id: other.assignment for other in group.members.values()}
        self._store.store_group(group, assignments, stored)

    def _put_back(
        self, group: ClassicGroup, old: ClassicGroupMember, member: ClassicGroupMember, error: KafkaError
    ) -> None:
        assert member.group_instance_id is not None
        answer_join(member, failed_join(error.code))
        restored = group.replace_static_member(member.group_instance_id, old.member_id)
        group.update_protocols(restored, old.protocols)
        restored.rebalance_timeout_ms = old.rebalance_timeout_ms
        restored.session_timeout_ms = old.session_timeout_ms
        self._rebalance.forget_session(group, member.member_id)
        self._rebalance.keep_alive(group, restored)

    # ---- SyncGroup

    def sync(self, request: SyncGroupRequest, assignments: Mapping[str, bytes], answer: SyncAnswer) -> None:
        """Handle a SyncGroup request. `assignments` contains the request's assignments by member id.

        `answer` is called exactly once, either immediately or when the assignments are durable.
        """
        group = self.groups.get(request.group_id)
        if group is None:
            answer(failed_sync(ErrorCode.UNKNOWN_MEMBER_ID))
            return
        try:
            group.check_member(request.member_id, request.group_instance_id)
            _check_generation(group, request.generation_id)
        except KafkaError as error:
            answer(failed_sync(error.code))
            return
        member = group.members[request.member_id]
        if _contradicts(request.protocol_type, group.protocol_type) or _contradicts(
            request.protocol_name, group.protocol_name
        ):
            answer(failed_sync(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif group.state is GroupState.PREPARING_REBALANCE:
            answer(failed_sync(ErrorCode.REBALANCE_IN_PROGRESS))
        elif group.state is GroupState.STABLE:
            self._rebalance.synced(group, member.member_id)
            answer(assigned(group, member))
        elif group.is_leader(member.member_id) and not self._footprint.has_room(sum(map(len, assignments.values()))):
            # The leader still counts as not synced, so it may send a smaller assignment until the sync phase ends.
            answer(failed_sync(ErrorCode.GROUP_MAX_SIZE_REACHED))
        else:
            answer_sync(member, failed_sync(ErrorCode.REBALANCE_IN_PROGRESS))  # a second SyncGroup replaces the first
            member.awaiting_sync = answer
            self._rebalance.synced(group, member.member_id)
            if group.is_leader(member.member_id):
                self._rebalance.store_assignment(group, assignments)

    # ---- Heartbeat

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """Handle a Heartbeat request; return NONE or REBALANCE_IN_PROGRESS.

        Raise KafkaError if the sender is not a member of the current generation.
        """
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        group.check_member(member_id, group_instance_id)
        _check_generation(group, generation_id)
        self._rebalance.keep_alive(group, group.members[member_id])
        return ErrorCode.REBALANCE_IN_PROGRESS if group.state is GroupState.PREPARING_REBALANCE else ErrorCode.NONE

    def offsets_committed(self, group: ClassicGroup, member_id: str) -> None:
        """Extend the member's session: an OffsetCommit counts as a heartbeat."""
        member = group.members.get(member_id)
        if member is not None and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self._rebalance.keep_alive(group, member)

    # ---- LeaveGroup

    def leave(self, group_id: str, leaving: Iterable[MemberIdentity]) -> list[MemberResponse]:
        """Handle a LeaveGroup request: remove members immediately and rebalance the remaining ones.

        Return a response for each leaving member. A pending member id has no part in the generation, so its removal
        does not begin a rebalance.
        """
        group = self.groups.get(group_id)
        responses = []
        gone = []
        pending_gone = False
        for identity in leaving:
            code = ErrorCode.NONE
            try:
                member_id = self._leave_one(group, identity)
                if member_id is None:
                    pending_gone = True
                else:
                    gone.append(member_id)
            except KafkaError as error:
                code = error.code
            responses.append(MemberResponse(identity.member_id, identity.group_instance_id, int(code)))
        if group is not None and (gone or pending_gone):
            self._rebalance.after_removal(group, f"{', '.join(gone)} left" if gone else "")
            if pending_gone:
                self._rebalance.on_pending_gone(group)
        return responses

    def _leave_one(self, group: ClassicGroup | None, identity: MemberIdentity) -> str | None:
        """Remove one member and return its id, or remove a pending member id and return None."""
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        member_id = identity.member_id
        if not member_id and identity.group_instance_id is not None:
            # An administrator removes a static member by its instance id alone.
            member_id = group.static_members.get(identity.group_instance_id, "")
        elif member_id in group.pending_join:
            self._rebalance.remove_pending(group, member_id)
            return None
        group.check_member(member_id, identity.group_instance_id)
        self._rebalance.remove_member(group, group.members[member_id])
        self._logger.info(
            "member_left", group=group.group_id, member=member_id, reason=identity.reason or "not provided"
        )
        return member_id

    # ---- shutdown

    def release_all(self, code: ErrorCode) -> None:
        """Answer every parked request with `code`, because the broker is stopping."""
        for group in self.groups.values():
            for member in group.members.values():
                answer_join(member, failed_join(code, member.member_id))
                answer_sync(member, failed_sync(code))


def _check_generation(group: ClassicGroup, generation_id: int) -> None:
    if generation_id != group.generation_id:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"Group {group.group_id!r} is in generation {group.generation_id}, not {generation_id}."
            " Join the group again.",
        )


def _contradicts(asked: str | None, agreed: str | None) -> bool:
    return asked is not None and agreed is not None and asked != agreed
