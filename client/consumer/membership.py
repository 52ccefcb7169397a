"""`GroupMembership`: joins a classic group, sends heartbeats, and leaves the group.

It owns member id and generation, and applies the coordinator's errors to them. It knows no topics, assignors or
offsets: metadata and assignments are bytes. It never joins by itself: the consumer calls `join`, inside `poll()`.

Invariants: `generation_id` is -1 unless the coordinator has this member in the group. A generation ends only when the
next one begins, when the coordinator responds with an error that ends it, or when the member leaves. Heartbeats are
sent only while the member is STABLE and the application polls. If there is no poll for max.poll.interval.ms, the member
leaves (KIP-62), and the next poll reports its partitions as lost.

Joins have their own connection, because their responses may take minutes and responses come in order.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple, TypeVar

from ...protocol.errors import ErrorCode, KafkaError, error_code
from ...protocol.messages.heartbeat import HeartbeatRequest
from ...protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ...protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ...protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ...protocol.schema import Request, Response
from ..cluster import Cluster, KeyType
from ..config import ConsumerConfig
from ..errors import FatalError, error_for
from ..group_protocol import PROTOCOL_TYPE
from ..kept_task import KeptTask
from .errors import FencedInstanceError

R = TypeVar("R", bound=Response)
log = logging.getLogger(__name__)

CHANNEL: Final = "coordinator"
JOIN_CHANNEL: Final = "join"
JOIN_GRACE_S: Final = 5.0
"""Seconds that a member waits for the response to a join after the rebalance timeout, at which the broker responds at
the latest. This is also the maximum number of seconds for leaving the group.
"""

LAST_JOIN_WITHOUT_STATIC: Final = 4
LAST_LEAVE_OF_ONE: Final = 2

_COORDINATOR_GONE: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION}
)

_REJOIN: Final = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID})
"""Errors after which the member joins again."""


class MemberState(Enum):
    """The member's state, with Kafka's names. A member is UNJOINED before and between memberships, JOINING until its
    assignment arrives, and then STABLE.
    """

    UNJOINED = "unjoined"
    JOINING = "joining"
    STABLE = "stable"


class Generation(NamedTuple):
    """The generation, member id and protocol that the coordinator has assigned to a member."""

    generation_id: int = -1
    member_id: str = ""
    protocol: str = ""


class JoinMember(NamedTuple):
    """A member as the coordinator describes it to the group's leader."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class Joined(NamedTuple):
    """The outcome of a join; `assignment` is the encoded assignment."""

    generation: Generation
    is_leader: bool
    assignment: bytes


Assign = Callable[[str, Sequence[JoinMember], bool], Awaitable[dict[str, bytes]]]
"""Assigns partitions: (protocol, members, whether the assignment stays unchanged) → {member id: assignment}."""


class GroupMembership:
    """A consumer's membership in its group. `attention` is called when the next poll has something to do."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        attention: Callable[[], None],
        protocol_type: str = PROTOCOL_TYPE,
    ) -> None:
        assert config.group_id is not None
        self._protocol_type = protocol_type
        self._cluster = cluster
        self._config = config
        self._attention = attention
        self._loop = asyncio.get_running_loop()
        self.group_id = config.group_id
        self.group_instance_id = config.group_instance_id
        self.state = MemberState.UNJOINED
        self.generation = Generation()
        self.rejoin_reason: str | None = None
        """The reason to join at the next poll; None if there is no need to join."""
        self.failure: KafkaError | None = None
        """The error that ended this membership permanently, or None."""
        self.coordinator_lost_at: float | None = None
        """Loop time when a heartbeat found the coordinator unreachable; None while the coordinator responds."""
        self._heartbeats: KeptTask | None = None
        self._kick = asyncio.Event()
        self._last_poll = self._loop.time()
        self._in_poll = False
        self._max_poll_interval_s = config.max_poll_interval_ms / 1000

    # -- changes of state

    def polled(self, *, still: bool = False) -> None:
        """Record that the application polls. With `still`, the poll counts as running until the next call of this
        method.
        """
        self._last_poll = self._loop.time()
        self._in_poll = still

    def request_rejoin(self, reason: str) -> None:
        """Let the next poll join the group, for the first time or again. `reason` is logged."""
        if self.rejoin_reason is None:
            log.info("group %s: joining: %s", self.group_id, reason)
            self.rejoin_reason = reason
        self._attention()

    def lost(self, reason: str, *, keep_member_id: bool = False) -> None:
        """End the generation; this member's partitions may belong to another member."""
        self.state = MemberState.UNJOINED
        self.generation = Generation(member_id=self.generation.member_id if keep_member_id else "")
        self.request_rejoin(reason)

    def fail(self, error: KafkaError) -> None:
        """End the membership permanently. The next poll raises the error."""
        self.state = MemberState.UNJOINED
        self.generation = Generation()
        self.failure = error
        self._attention()

    def rejected(self, code: ErrorCode, what: str) -> KafkaError:
        """Apply an error of the coordinator to this membership, and return the exception for it."""
        error = error_for(code, f"group {self.group_id}: {what}: {code.text}")
        if code in _COORDINATOR_GONE:
            self.forget_coordinator()
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.request_rejoin("the group rebalances")
        elif code is ErrorCode.ILLEGAL_GENERATION:
            self.lost(f"{what}: the generation has ended", keep_member_id=True)
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.lost(f"{what}: the coordinator does not know this member")
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            error = FencedInstanceError(code, f"group.instance.id {self._config.group_instance_id!r}: {code.text}")
            self.fail(error)
        return error

    # -- the coordinator's address

    async def coordinator(self, timeout_s: float) -> int:
        """Return the id of the node that coordinates the group. Raises the errors of `Cluster.coordinator`."""
        return await self._cluster.coordinator(KeyType.GROUP, self.group_id, timeout_s)

    def forget_coordinator(self) -> None:
        """Forget the coordinator. It is looked up again when it is next needed."""
        self._cluster.forget_coordinator(KeyType.GROUP, self.group_id)

    # -- joining

    async def join(self, protocols: Callable[[], list[tuple[str, bytes]]], assign: Assign) -> Joined | None:
        """Join once: JoinGroup, `assign` if this member is the leader, SyncGroup. Return None if the caller must join
        again.

        If the next join needs a backoff, this call waits for the backoff before it returns None. Raises errors that are
        not retriable; the membership has then ended.
        """
        config = self._config
        try:
            node_id = await self.coordinator(config.default_api_timeout_ms / 1000)
            connection = await self._cluster.connection(node_id, JOIN_CHANNEL)
            static = config.group_instance_id is not None
            version = connection.version_of(JoinGroupRequest)
            if static and version <= LAST_JOIN_WITHOUT_STATIC:
                raise error_for(ErrorCode.UNSUPPORTED_VERSION, "the broker does not support group.instance.id")
            reason, self.rejoin_reason = self.rejoin_reason, None
            self.state = MemberState.JOINING
            request = JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=config.session_timeout_ms,
                rebalance_timeout_ms=config.max_poll_interval_ms,
                member_id=self.generation.member_id,
                group_instance_id=config.group_instance_id,
                protocol_type=self._protocol_type,
                protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols()],
                reason=(reason or "")[:255],
            )
            timeout_s = max(config.request_timeout_ms / 1000, self._max_poll_interval_s + JOIN_GRACE_S)
            answer = await connection.send(request, version, timeout_s)
            code = error_code(answer.error_code)
            if code is ErrorCode.MEMBER_ID_REQUIRED:
                self.state = MemberState.UNJOINED
                self.generation = Generation(member_id=answer.member_id)
                self.rejoin_reason = reason or "the coordinator has assigned a member id"
                return None
            if code:
                await self._join_refused(code, "JoinGroup")
                return None
            return await self._sync(answer, assign, timeout_s)
        except Exception as error:
            self.state = MemberState.UNJOINED
            if not isinstance(error, KafkaError) or not (
                error.retriable or error.code is ErrorCode.BROKER_NOT_AVAILABLE
            ):
                # The coordinator may still know the member. A join under another member id would have to wait for that
                # member.
                self.generation = Generation(member_id=self.generation.member_id)
                self.rejoin_reason = self.rejoin_reason or f"the last join failed: {error}"
                raise
            log.info("group %s: could not join; trying again: %s", self.group_id, error.message)
            self.forget_coordinator()
            self.rejoin_reason = self.rejoin_reason or error.message
            await asyncio.sleep(self._cluster.retry_backoff(0))
            return None

    async def _sync(self, joined: JoinGroupResponse, assign: Assign, timeout_s: float) -> Joined | None:
        generation = Generation(joined.generation_id, joined.member_id, joined.protocol_name or "")
        self.generation = generation
        is_leader = joined.leader == joined.member_id
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=self._protocol_type,
            protocol_name=generation.protocol,
        )
        if is_leader:
            members = [JoinMember(one.member_id, one.group_instance_id, bytes(one.metadata)) for one in joined.members]
            shares = await assign(generation.protocol, members, joined.skip_assignment)
            if not joined.skip_assignment:
                request.assignments = [
                    SyncGroupRequestAssignment(member_id=member, assignment=share) for member, share in shares.items()
                ]
        node_id = await self.coordinator(self._config.default_api_timeout_ms / 1000)
        answer = await self._cluster.call(node_id, request, JOIN_CHANNEL, timeout_s)
        code = error_code(answer.error_code)
        if self.generation != generation:
            return None  # the member has left, or lost its membership, meanwhile
        if code:
            await self._join_refused(code, "SyncGroup")
            return None
        self.state = MemberState.STABLE
        self.coordinator_lost_at = None
        self._start_heartbeats()
        return Joined(generation, is_leader, bytes(answer.assignment))

    async def _join_refused(self, code: ErrorCode, what: str) -> None:
        self.state = MemberState.UNJOINED
        error = self.rejected(code, what)
        if code not in (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            *_REJOIN,
            *_COORDINATOR_GONE,
        ):
            raise error
        self.rejoin_reason = self.rejoin_reason or f"{what}: {code.name}"
        if code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, *_COORDINATOR_GONE):
            await asyncio.sleep(self._cluster.retry_backoff(0))

    # -- heartbeats

    def _start_heartbeats(self) -> None:
        self._kick.set()
        if self._heartbeats is None:
            self._heartbeats = KeptTask(self._beat, f"heartbeats of group {self.group_id}")

    async def _beat(self) -> None:
        try:
            await self._keep_session()
        except Exception as error:  # after a bug, the group must not lose this member silently
            log.exception("the heartbeats of group %s failed", self.group_id)
            failure = FatalError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the heartbeats failed: {error!r}")
            failure.__cause__ = error
            self.fail(failure)

    async def _keep_session(self) -> None:
        interval = self._config.heartbeat_interval_ms / 1000
        due = self._loop.time() + interval
        while True:
            self._kick.clear()
            if self.state is not MemberState.STABLE:
                await self._kick.wait()
                due = self._loop.time() + interval
                continue
            now = self._loop.time()
            poll_deadline = self._last_poll + self._max_poll_interval_s
            if self._in_poll:
                poll_deadline = math.inf
            if now >= poll_deadline:
                await self._give_up_polling()
            elif now >= due:
                generation = self.generation
                failed = await self._heartbeat(generation)
                due = self._loop.time() + (min(interval, self._cluster.retry_backoff(0)) if failed else interval)
            else:
                await asyncio.sleep(min(due, poll_deadline) - now)

    async def _heartbeat(self, generation: Generation) -> bool:
        """Send a heartbeat. Return True if it failed and the next one must be sent soon."""
        timeout_s = self._config.session_timeout_ms / 1000
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=self._config.group_instance_id,
        )
        try:
            answer = await self._to_coordinator(request, timeout_s)
        except KafkaError as error:
            log.debug("group %s: a heartbeat failed: %s", self.group_id, error)
            self._coordinator_lost()
            return True
        code = error_code(answer.error_code)
        if code in _COORDINATOR_GONE:
            self._coordinator_lost()
        else:
            self.coordinator_lost_at = None
        if code and self.generation == generation and self.state is MemberState.STABLE:
            refused = self.rejected(code, "Heartbeat")
            if not refused.retriable and code not in _REJOIN:
                self.fail(refused)
            return code in _COORDINATOR_GONE or code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return False

    def _coordinator_lost(self) -> None:
        if self.coordinator_lost_at is None:
            self.coordinator_lost_at = self._loop.time()
            self._attention()

    async def confirm(self) -> bool:
        """Return whether the coordinator has this member in the group. Raises KafkaError if the coordinator does not
        respond.

        The response does not change the membership; only regular heartbeats do.
        """
        generation = self.generation
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=self._config.group_instance_id,
        )
        answer = await self._to_coordinator(request, self._config.session_timeout_ms / 1000)
        return error_code(answer.error_code) in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)

    async def _to_coordinator(self, request: Request[R], timeout_s: float) -> R:
        try:
            node_id = await self.coordinator(timeout_s)
            return await self._cluster.call(node_id, request, CHANNEL, timeout_s)
        except KafkaError:
            self.forget_coordinator()
            raise

    async def _give_up_polling(self) -> None:
        log.warning(
            "group %s: leaving, because poll() was not called for max.poll.interval.ms = %d; the partitions go to "
            "other members. Poll more often, read fewer records at once (max.poll.records), or raise the interval",
            self.group_id,
            self._config.max_poll_interval_ms,
        )
        generation = self.generation
        self.lost("max.poll.interval.ms had passed without a poll")
        await self._leave(generation, "the application did not poll for max.poll.interval.ms")

    # -- leaving

    async def leave(self, reason: str, timeout_s: float | None = None) -> None:
        """Leave the group at once, so that the group need not wait for the session timeout. A static member stays
        registered.

        Failures, including a missing response within `timeout_s`, are only logged; the session then times out.
        """
        generation, self.generation = self.generation, Generation()
        self.state = MemberState.UNJOINED
        self.rejoin_reason = None
        await self._leave(generation, reason, timeout_s)

    async def _leave(self, generation: Generation, reason: str, at_most_s: float | None = None) -> None:
        if not generation.member_id or self._config.group_instance_id is not None:
            return
        timeout_s = min(self._config.request_timeout_ms / 1000, JOIN_GRACE_S)
        if at_most_s is not None:
            timeout_s = min(timeout_s, at_most_s)
        try:
            async with asyncio.timeout(timeout_s):
                node_id = await self.coordinator(timeout_s)
                connection = await self._cluster.connection(node_id, CHANNEL)
                version = connection.version_of(LeaveGroupRequest)
                request = LeaveGroupRequest(group_id=self.group_id)
                if version <= LAST_LEAVE_OF_ONE:
                    request.member_id = generation.member_id
                else:
                    request.members = [MemberIdentity(member_id=generation.member_id, reason=reason)]
                await connection.send(request, version)
        except (KafkaError, TimeoutError) as error:
            log.info("group %s: could not leave; the session will time out: %s", self.group_id, error)

    async def close(self) -> None:
        """Stop sending heartbeats."""
        if self._heartbeats is not None:
            await asyncio.gather(self._heartbeats.cancel(), return_exceptions=True)
            self._heartbeats = None
