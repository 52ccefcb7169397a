"""Runs the rebalances of groups: members join, then sync, and the assignment is stored.

The cycle is EMPTY or STABLE → PREPARING_REBALANCE → COMPLETING_REBALANCE → STABLE. PREPARING_REBALANCE lasts until all
members have joined or the rebalance timeout has expired; the first rebalance of an empty group also waits
`group.initial.rebalance.delay.ms` for more members. COMPLETING_REBALANCE lasts until the leader's assignment is
durable. A member is removed if it does not sync in time, or if its session ends. A dynamic member is also removed if it
does not join in time.

When a generation begins, its JoinGroups are answered. When its assignment is durable, its SyncGroups are answered. In a
group with many members, only some requests are answered in one turn of the event loop, and the others stay parked. If
the next rebalance begins meanwhile, a JoinGroup that is still parked joins the next generation, and a SyncGroup that is
still parked gets REBALANCE_IN_PROGRESS.

This module keeps the timers of groups. It never decides whether a request is acceptable; `membership` does. Responses
go through the members' callbacks `awaiting_join` and `awaiting_sync`, each called at most once. All methods are plain
calls. They get the time from the clock and the timer, and reach the log through `GroupStore`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Protocol

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.join_group import JoinGroupResponse
from ....protocol.messages.sync_group import SyncGroupResponse
from ...system.ports import Clock
from .classic_group import ClassicGroup
from .member import ClassicGroupMember
from .state import GroupState
from .timer import DeadlineTimer

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""How long, in ms, a parked JoinGroup keeps a new member in the group. A new member cannot send heartbeats yet."""

SHORTEST_SYNC_MS: Final = 1000
"""The minimum time in ms that members have for their SyncGroup. A member's rebalance timeout may be 0."""

_ANSWERED_AT_ONCE: Final = 50
"""How many members are answered before the event loop runs other tasks."""

_NAMED: Final = 10
"""How many of the members that did not join or sync in time are named in the log."""

Stored = Callable[[KafkaError | None], None]


class GroupStore(Protocol):
    """The storage of a group's metadata."""

    def store_group(self, group: ClassicGroup, assignments: Mapping[str, bytes], stored: Stored) -> None:
        """Append the group with these assignments by member id.

        `stored` is called once, with None when the record is durable, or with the error if its append or flush failed.
        """


def failed_join(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """Return a JoinGroup response with only an error."""
    return JoinGroupResponse(error_code=int(code), member_id=member_id, protocol_name=None)


def failed_sync(code: ErrorCode) -> SyncGroupResponse:
    """Return a SyncGroup response with only an error."""
    return SyncGroupResponse(error_code=int(code))


def joined(group: ClassicGroup, member_id: str, *, leader_id: str | None = None) -> JoinGroupResponse:
    """Return a member's JoinGroup response for the current generation. The leader's response also lists all members.

    If given, `leader_id` replaces the group's leader in the response.
    """
    leader_id = leader_id or group.leader_id or ""
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader_id,
        member_id=member_id,
        members=group.joined_members() if leader_id == member_id else [],
    )


def assigned(group: ClassicGroup, member: ClassicGroupMember) -> SyncGroupResponse:
    """Return a member's SyncGroup response, with its assignment."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )


def answer_join(member: ClassicGroupMember, response: JoinGroupResponse) -> None:
    """Answer the member's parked JoinGroup, if it has one."""
    answer, member.awaiting_join = member.awaiting_join, None
    if answer is not None:
        answer(response)


def answer_sync(member: ClassicGroupMember, response: SyncGroupResponse) -> bool:
    """Answer the member's parked SyncGroup. Return False if it has none."""
    answer, member.awaiting_sync = member.awaiting_sync, None
    if answer is not None:
        answer(response)
    return answer is not None


class Rebalance:
    """The rebalances and session timers of all groups."""

    def __init__(
        self, timer: DeadlineTimer, clock: Clock, store: GroupStore, initial_delay_ms: int, logger: Any
    ) -> None:
        self._timer = timer
        self._clock = clock
        self._store = store
        self._initial_delay_ms = initial_delay_ms
        self._logger = logger
        self.on_emptied: Callable[[ClassicGroup], None] = lambda group: None
        """The function to call when the last member has left."""
        self.on_generation: Callable[[ClassicGroup], None] = lambda group: None
        """The function to call when a generation with members begins, before the members get their responses."""
        self.on_pending_gone: Callable[[ClassicGroup], None] = lambda group: None
        """The function to call when a pending member id is removed."""

    # ---- sessions

    def keep_alive(self, group: ClassicGroup, member: ClassicGroupMember, timeout_ms: int | None = None) -> None:
        """Extend the member's session by `timeout_ms`, or by the member's session timeout if `timeout_ms` is None."""
        delay_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self._timer.schedule(_session_key(group, member.member_id), delay_ms, lambda: self._session_over(group, member))

    def expect_join(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """Add a pending member id (KIP-394), and remove it again unless the client joins within `timeout_ms`."""
        group.expect(member_id)
        self._timer.schedule(
            _session_key(group, member_id), timeout_ms, lambda: self._pending_member_over(group, member_id)
        )

    def forget_session(self, group: ClassicGroup, member_id: str) -> None:
        """Cancel the session timer of the member id."""
        self._timer.cancel(_session_key(group, member_id))

    def _session_over(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        if group.members.get(member.member_id) is not member or member.has_satisfied_heartbeat:
            return
        self._logger.info("member_session_over", group=group.group_id, member=member.member_id)
        self.remove_member(group, member)
        self.after_removal(group, f"the session of member {member.member_id} has expired")

    def give_up_pending(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a pending member id."""
        self._pending_member_over(group, member_id)

    def _pending_member_over(self, group: ClassicGroup, member_id: str) -> None:
        if member_id in group.pending_join:
            self.remove_pending(group, member_id)
            self.after_removal(group, "")
            self.on_pending_gone(group)

    def remove_pending(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a pending member id. The caller must then call `after_removal`, and after that `on_pending_gone`."""
        group.remove(member_id)
        self.forget_session(group, member_id)

    def remove_member(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        """Remove a member. Its parked requests get UNKNOWN_MEMBER_ID. The caller must then call `after_removal`."""
        self.forget_session(group, member.member_id)
        answer_join(member, failed_join(ErrorCode.UNKNOWN_MEMBER_ID))
        answer_sync(member, failed_sync(ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)

    def _remove_missing(self, group: ClassicGroup, missing: Sequence[ClassicGroupMember], event: str) -> None:
        """Remove members that did not join or sync in time, and log one line that names a few of them."""
        if missing:
            named = [member.member_id for member in missing[:_NAMED]]
            self._logger.info(event, group=group.group_id, count=len(missing), members=named)
        for member in missing:
            self.remove_member(group, member)

    def after_removal(self, group: ClassicGroup, reason: str) -> None:
        """Continue or begin a rebalance after a removal.

        An empty `reason` means that only pending member ids were removed, which does not begin a rebalance.
        """
        if group.state is GroupState.PREPARING_REBALANCE:
            self.complete_if_all_joined(group)
        elif reason and group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare(group, reason)

    # ---- joining

    def prepare_or_complete(self, group: ClassicGroup, reason: str) -> None:
        """Begin a rebalance or, if one has begun already and all members have joined, complete its join phase."""
        if group.can_rebalance:
            self.prepare(group, reason)
        else:
            self.complete_if_all_joined(group)

    def prepare(self, group: ClassicGroup, reason: str) -> None:
        """Begin a rebalance.

        Until its join phase is complete, Heartbeat responses contain REBALANCE_IN_PROGRESS, so that members join again.
        """
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS)
        elif self._timer.is_scheduled(_answers_key(group)):
            self._refuse_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
        self._timer.cancel(_answers_key(group))
        group.pending_sync.clear()
        self._timer.cancel(_sync_key(group))
        is_initial = group.state is GroupState.EMPTY
        group.transition_to(GroupState.PREPARING_REBALANCE, self._clock.now_ms())
        self._logger.info(
            "rebalance_begins",
            group=group.group_id,
            generation=group.generation_id,
            members=len(group.members),
            reason=reason,
        )
        if is_initial:
            delay_ms = self._initial_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._schedule_initial(group, delay_ms, remaining_ms)
        elif group.has_all_members_joined:
            self.complete_join(group)
        else:
            self._await_joins(group)

    def complete_if_all_joined(self, group: ClassicGroup) -> None:
        """Complete the join phase if all members have joined.

        The first rebalance of an empty group also waits for `group.initial.rebalance.delay.ms`.
        """
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        if group.previous_state is not GroupState.EMPTY and group.has_all_members_joined:
            self.complete_join(group)
        elif not group.members and not group.pending_join:
            self.complete_join(group)  # all members left before the first generation
        elif not self._timer.is_scheduled(_join_key(group)):
            self._await_joins(group)  # only static members that had not joined were left, and now one joins

    def _schedule_initial(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        def over() -> None:
            if group.state is not GroupState.PREPARING_REBALANCE:
                return
            if group.new_member_added and remaining_ms:
                group.new_member_added = False
                self._schedule_initial(
                    group, min(self._initial_delay_ms, remaining_ms), max(remaining_ms - delay_ms, 0)
                )
            else:
                self.complete_join(group)

        self._timer.schedule(_join_key(group), delay_ms, over)

    def _await_joins(self, group: ClassicGroup) -> None:
        """Schedule the end of the join phase after the group's rebalance timeout."""
        self._timer.schedule(_join_key(group), group.rebalance_timeout_ms, lambda: self._join_over(group))

    def _join_over(self, group: ClassicGroup) -> None:
        if group.state is GroupState.PREPARING_REBALANCE:
            self.complete_join(group)

    def complete_join(self, group: ClassicGroup) -> None:
        """Complete the join phase: remove dynamic members that have not joined, and begin the next generation."""
        self._timer.cancel(_join_key(group))
        missing = [m for m in group.members.values() if m.awaiting_join is None and not m.is_static]
        self._remove_missing(group, missing, "members_missed_rebalance")
        if group.members and not group.elect_joined_leader():
            # Only static members are left and none has joined: wait until one joins, or their sessions end. Apache
            # Kafka checks again after each rebalance timeout, which may be 0.
            return
        group.new_member_added = False
        group.next_generation(self._clock.now_ms())
        if group.state is GroupState.EMPTY:
            self.on_emptied(group)
            self._store.store_group(group, {}, lambda error: self._stored_empty(group, error))
            return
        self.on_generation(group)
        group.pending_sync.update(group.members)
        self._answer_members(group)

    def _answer_members(self, group: ClassicGroup) -> None:
        """Answer the parked requests of all members. If there are many, this takes several turns of the event loop."""
        self._answer_next(group, iter(list(group.members.values())))

    def _answer_next(self, group: ClassicGroup, members: Iterator[ClassicGroupMember]) -> None:
        answered = 0
        for member in islice(members, _ANSWERED_AT_ONCE):
            answered += 1
            if member.awaiting_join is not None:
                answer_join(member, joined(group, member.member_id))
                self.keep_alive(group, member)
                member.is_new = False
            elif group.state is GroupState.COMPLETING_REBALANCE:
                self.keep_alive(group, member)  # a static member that has not joined: its place is kept, as in Kafka
            if group.state is GroupState.STABLE and answer_sync(member, assigned(group, member)):
                self.keep_alive(group, member)
        if answered == _ANSWERED_AT_ONCE:
            self._timer.schedule_soon(_answers_key(group), lambda: self._answer_next(group, members))
        elif group.pending_sync and not self._timer.is_scheduled(_sync_key(group)):
            self._await_syncs(group)

    def _await_syncs(self, group: ClassicGroup) -> None:
        """Schedule the end of the sync phase: after the group's rebalance timeout, but not before SHORTEST_SYNC_MS."""
        generation_id = group.generation_id
        self._timer.schedule(
            _sync_key(group),
            max(group.rebalance_timeout_ms, SHORTEST_SYNC_MS),
            lambda: self._sync_over(group, generation_id),
        )

    def _stored_empty(self, group: ClassicGroup, error: KafkaError | None) -> None:
        if error is not None:
            # This is harmless: after a restart the members of the previous generation reappear and time out.
            self._logger.warning("empty_group_not_stored", group=group.group_id, error=str(error))

    # ---- syncing

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        """Record that the member has sent its SyncGroup."""
        group.pending_sync.discard(member_id)
        if not group.pending_sync:
            self._timer.cancel(_sync_key(group))

    def _sync_over(self, group: ClassicGroup, generation_id: int) -> None:
        """Remove the members that have not sent a SyncGroup by the end of the sync phase."""
        if (
            group.generation_id != generation_id
            or group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
            or not group.pending_sync
        ):
            return
        missing = [group.members[member_id] for member_id in sorted(group.pending_sync)]
        self._remove_missing(group, missing, "members_missed_sync")
        self.prepare(group, f"{len(missing)} members sent no SyncGroup in time")

    def store_assignment(self, group: ClassicGroup, assignments: Mapping[str, bytes]) -> None:
        """Store the leader's assignment. When it is durable, the group becomes STABLE and its members are answered.

        If the leader repeats its SyncGroup meanwhile, the first assignment is kept: a generation has only one
        assignment.
        """
        generation_id = group.generation_id
        if group.storing_generation == generation_id:
            return
        group.storing_generation = generation_id
        complete = {member_id: assignments.get(member_id, b"") for member_id in group.members}

        def stored(error: KafkaError | None) -> None:
            if group.storing_generation == generation_id:
                group.storing_generation = -1
            if group.state is not GroupState.COMPLETING_REBALANCE or group.generation_id != generation_id:
                return  # a new rebalance has begun meanwhile
            if error is not None:
                self._logger.warning("assignment_not_stored", group=group.group_id, error=str(error))
                self._reset_assignments(group, error.code)
                self.prepare(group, "the assignment could not be stored")
                return
            group.transition_to(GroupState.STABLE, self._clock.now_ms())
            for member in group.members.values():
                group.assign(member, complete.get(member.member_id, b""))
            self._answer_members(group)
            self._logger.info(
                "group_stable", group=group.group_id, generation=generation_id, members=len(group.members)
            )

        self._store.store_group(group, complete, stored)

    def _reset_assignments(self, group: ClassicGroup, code: ErrorCode) -> None:
        for member in group.members.values():
            group.assign(member, b"")
        self._refuse_syncs(group, code)

    def _refuse_syncs(self, group: ClassicGroup, code: ErrorCode) -> None:
        """Answer every parked SyncGroup with `code`."""
        for member in group.members.values():
            if answer_sync(member, failed_sync(code)):
                self.keep_alive(group, member)


def _session_key(group: ClassicGroup, member_id: str) -> tuple[str, str, str]:
    return "session", group.group_id, member_id


def _answers_key(group: ClassicGroup) -> tuple[str, str]:
    return "answers", group.group_id


def _join_key(group: ClassicGroup) -> tuple[str, str]:
    return "join", group.group_id


def _sync_key(group: ClassicGroup) -> tuple[str, str]:
    return "sync", group.group_id
