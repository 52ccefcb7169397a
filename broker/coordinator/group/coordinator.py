"""Coordinates the broker's groups: the methods that request handlers, transaction markers and topic deletion call.

Lifecycle: `start` replays `__consumer_offsets`. `begin_sessions` starts the session timers: each replayed member then
has one session timeout in which it must send a request to stay in its generation. `stop` answers parked requests with
NOT_COORDINATOR, so that clients look for the coordinator again. Everything runs on the event loop's thread.

Every state change is a plain call: it checks, appends and takes effect without an await. A method that changes state
returns its response immediately, and handlers wait for `settled` before they send it. An appended change is not undone
if the client disconnects.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Awaitable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.join_group import JoinGroupResponse
from ....protocol.messages.leave_group import MemberIdentity, MemberResponse
from ....protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ....protocol.schema import NO_UUID
from ...config import BrokerConfig
from ...scheduling.patient_timers import PatientTimer, PatientTimers
from ...scheduling.slices import in_slices
from ...scheduling.steps import Steps
from ...system.ports import Clock, RandomIds
from ..backoff import RetryBackoff
from ..claim import Claim, ClaimKeeper
from ..state_log import StateLog
from .claims import ClaimMap
from .classic_group import ClassicGroup
from .cleanup import GroupCleanup
from .deleted_topics import is_replaced
from .footprint import GroupFootprint
from .group_log import GroupLog
from .membership import GroupMembership, Join
from .offset_rules import check_commit, check_group_delete, check_offset_delete
from .offsets import NO_OFFSETS, OffsetAndMetadata, OffsetStore, TopicPartition
from .prepared_commit import COMMITS_AT_ONCE, ENCODING_UNITS, PreparedCommit
from .rebalance import Rebalance, failed_join
from .timer import DeadlineTimer

if TYPE_CHECKING:
    from ...metadata import Metadata


_DUE_AT_ONCE: Final = 50
"""How many timed actions run before the event loop runs other tasks. Very many sessions may end at the same moment."""

_EARLY_S: Final = 0.002
"""How many seconds too early the event loop's timers may fire, because uvloop rounds times and delays to whole ms."""

_TAKEN_UP_AT_ONCE: Final = 20
"""How many groups that were read from the log are added before the event loop runs other tasks."""

_MAX_PREPARATIONS: Final = 20
"""How many times a group's tombstones are prepared before its deletion fails.

The tombstones must be prepared again if an offset was committed on a partition that has no prepared tombstone.
"""


class Commit(NamedTuple):
    """The offset to commit on one partition, from an OffsetCommit or TxnOffsetCommit request."""

    partition: TopicPartition
    offset: int
    leader_epoch: int
    metadata: str | None
    topic_id: bytes = NO_UUID
    """The id of the topic from which the records were read, or zeros if the client does not send it."""


class Committer(NamedTuple):
    """The sender of a commit: a member of the group, or another client, for which the fields keep their defaults.

    `member_optional` is true for a producer that knows oncelog's wire extension. It may specify a generation without a
    member id.
    """

    member_id: str = ""
    group_instance_id: str | None = None
    generation_id: int = -1
    member_optional: bool = False


class FetchedOffset(NamedTuple):
    """The result of an OffsetFetch for one partition.

    `offset` is None if no offset was committed. `is_pending` says whether an open transaction contains an offset commit
    for the partition.
    """

    partition: TopicPartition
    offset: OffsetAndMetadata | None
    is_pending: bool


class GroupCoordinator:
    """The coordinator of this broker's classic groups and their committed offsets."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        state_log: StateLog,
        metadata: Metadata,
        clock: Clock,
        ids: RandomIds,
        timers: PatientTimers,
        logger: Any = None,
        group_aware: bool = True,
    ) -> None:
        """Create the coordinator.

        `timers` end a session only after the heartbeats that have already arrived in the sockets have been executed.

        `group_aware` says whether the feature group.aware.transaction is enabled. If it is not, claims are neither
        checked nor written.
        """
        self._logger = logger if logger is not None else structlog.get_logger(__name__)
        self._config = config
        self._metadata = metadata
        self._clock = clock
        self._group_aware = group_aware
        self._offsets = OffsetStore()
        self._claims = ClaimMap(lambda group_id, claim: self._cleanup.is_in_force(group_id, claim))
        self._log = GroupLog(state_log, self._offsets, clock, config.offsets_commit_timeout_ms, self._logger)
        self._timers = timers
        self._timer = DeadlineTimer(clock, self._rearm)
        self._rebalance = Rebalance(
            self._timer, clock, self._log, config.group_initial_rebalance_delay_ms, self._logger
        )
        self._membership = GroupMembership(
            self._rebalance,
            self._log,
            clock,
            lambda: str(uuid.UUID(bytes=ids.uuid())),
            config.group_max_size,
            self._logger,
            max_groups=config.group_max_groups,
            max_id_bytes=config.group_id_max_bytes,
            footprint=GroupFootprint(config.group_members_max_bytes, config.group_pending_members_max_bytes),
        )
        self._cleanup = GroupCleanup(
            self._log,
            self._offsets,
            self._membership,
            self._claims,
            metadata,
            clock,
            self._logger,
            retention_ms=config.offsets_retention_minutes * 60_000,
            clock_settle_ms=config.expiry_clock_settle_ms,
        )
        self._rebalance.on_emptied = self._cleanup.group_emptied
        self._rebalance.on_generation = self._cleanup.generation_began
        self._rebalance.on_pending_gone = self._cleanup.forget_if_unused
        self._log.take_up = self._take_up
        self._expiry: asyncio.Task[None] | None = None
        self._loading: asyncio.Task[None] | None = None
        self._wake_up: asyncio.Handle | PatientTimer | None = None
        self._due_by = -math.inf
        """The time when the group timer last woke up. The requests that had arrived by then have been executed."""
        self._loaded = False
        self._stopped = False

    # ---- lifecycle

    async def start(self) -> None:
        """Replay `__consumer_offsets` and restore the groups, without starting a timer."""
        await self._log.load()
        self._loaded = True
        self._cleanup.deleted_topics.remove_lost()

    def begin_sessions(self) -> None:
        """Start the session timers, and begin to retry the partitions that could not be read.

        Call this method when clients can reach the broker. If the timers started earlier and the broker took a long
        time to start, all sessions would time out, and all groups would lose their members.
        """
        self._membership.begin_sessions(self._membership.groups.values())
        self._schedule_expiry()
        self._rearm()
        if self._log.is_incomplete:
            self._loading = asyncio.get_running_loop().create_task(self._load_again(), name="read-groups-again")

    async def _load_again(self) -> None:
        config = self._config
        backoff = RetryBackoff(config.transaction_retry_backoff_ms, config.transaction_retry_backoff_max_ms)
        while self._log.is_incomplete:
            await backoff.pause()
            try:
                await self._log.load_again()
            except Exception:
                self._logger.exception("groups_not_read")

    async def _take_up(self, found: dict[str, ClassicGroup | None]) -> None:
        """Add the groups that were read from one partition, before they are served.

        During the broker's start, this method leaves two things for later: `start` removes the offsets of deleted
        topics, and `begin_sessions` starts the session timers.
        """
        if self._loaded:
            await self._cleanup.deleted_topics.remove_lost_in_slices(found)
        async for group_id, group in in_slices(found.items(), _TAKEN_UP_AT_ONCE):
            if group is not None:
                self._membership.resume(group)
            else:
                self._membership.get_or_create(group_id)
            claims = self._claims_in_offsets(group_id)
            if not self._loaded:
                if claims and self._group_aware:
                    self._claims.install(group_id, claims)
                continue
            if self.claim_keeper is not None:
                self.claim_keeper.restore(group_id, claims)
            self._membership.begin_sessions([self._membership.get_or_create(group_id)])

    async def stop(self) -> None:
        """Answer parked requests and stop the timers. All acknowledged changes are in the log already."""
        self._stopped = True
        self._timer.clear()
        for task in (self._expiry, self._loading):
            if task is not None:
                task.cancel()
        if self._wake_up is not None:
            self._wake_up.cancel()
        self._membership.release_all(ErrorCode.NOT_COORDINATOR)

    def _check(self, group_id: str, *, may_be_empty: bool = False) -> None:
        """Raise KafkaError if the group cannot be served, or if its id is empty and `may_be_empty` is False.

        A group cannot be served while the broker loads or stops, or if the group's records are unreadable.
        """
        self._check_serving()
        if not group_id and not may_be_empty:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "The group id is empty. Set group.id.")
        if self._log.unreadable or self._log.unreadable_groups:
            reason = self._log.unreadable.get(self._log.partition_for(group_id))
            reason = reason or self._log.unreadable_groups.get(group_id)
            if reason is not None:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)

    def _check_serving(self) -> None:
        """Raise KafkaError if no group can be served, because the broker loads the groups or is stopping."""
        if self._stopped:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The broker is stopping.")
        if not self._loaded:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def _rearm(self) -> None:
        if not self._loaded or self._stopped:
            return
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        deadline = self._timer.next_deadline()
        if deadline is None:
            return
        loop = asyncio.get_running_loop()
        if deadline <= self._due_by:  # the next portion of the same work
            self._wake_up = loop.call_soon(self._run_due)
        else:
            delay = deadline - self._clock.monotonic()
            at = loop.time() + (delay + _EARLY_S if delay > 0 else delay)
            self._wake_up = self._timers.call_at(at, self._clock.monotonic, self._on_wake_up)

    def _on_wake_up(self, due_by: float) -> None:
        self._due_by = due_by
        self._run_due()

    def _run_due(self) -> None:
        """Run at most `_DUE_AT_ONCE` of the timed actions that were due at the last wake-up.

        Actions that have become due since then wait for the next wake-up. A heartbeat that arrived before their
        deadline may still be in a socket, and is executed before that wake-up.
        """
        self._wake_up = None
        try:
            self._timer.run_due(_DUE_AT_ONCE, self._due_by)
        except Exception:
            self._logger.exception("group_timer_failed")
        self._rearm()

    def settled(self, group_id: str) -> asyncio.Future[None] | None:
        """Return None if all records appended for the group are durable, else a future that resolves when they are.

        Each caller gets a new future. The call, or the future, raises KafkaError with a coordinator error code.
        """
        settled = self._log.settled(self._log.partition_for(group_id))
        dropping = self._cleanup.unsettled(group_id)
        return settled if dropping is None else _both(settled, dropping)

    def partition_for(self, group_id: str) -> int:
        """Return the index of the partition of `__consumer_offsets` that holds the group."""
        return self._log.partition_for(group_id)

    # ---- membership

    def join(self, request: Join) -> asyncio.Future[JoinGroupResponse]:
        """Handle a JoinGroup request. Return a future of the response, which contains any error.

        The future resolves when the next generation begins, or earlier if the request need not wait for that.
        """
        future: asyncio.Future[JoinGroupResponse] = asyncio.get_running_loop().create_future()
        try:
            self._check(request.group_id)
        except KafkaError as error:
            future.set_result(failed_join(error.code, request.member_id))
            return future
        config = self._config
        timeout_ms = request.session_timeout_ms
        if not config.group_min_session_timeout_ms <= timeout_ms <= config.group_max_session_timeout_ms:
            future.set_result(failed_join(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id))
            return future
        self._membership.join(request, future.set_result)
        return future

    def sync(
        self, request: SyncGroupRequest, assignments: Mapping[str, bytes] | None = None
    ) -> asyncio.Future[SyncGroupResponse]:
        """Handle a SyncGroup request. Return a future of the response.

        The future resolves when the assignment is durable, or immediately if the request need not wait for that.
        `assignments` contains the request's assignments by member id if the caller has decoded them already. Raise
        KafkaError if the group cannot be served; other errors are in the response.
        """
        self._check(request.group_id)
        future: asyncio.Future[SyncGroupResponse] = asyncio.get_running_loop().create_future()
        if assignments is None:
            assignments = {item.member_id: bytes(item.assignment) for item in request.assignments}
        self._membership.sync(request, assignments, future.set_result)
        return future

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """Handle a Heartbeat request; return NONE or REBALANCE_IN_PROGRESS.

        Raise KafkaError if the group cannot be served, or if the sender is not a member of the current generation.
        """
        self._check(group_id)
        return self._membership.heartbeat(group_id, member_id, group_instance_id, generation_id)

    def leave(self, group_id: str, leaving: Iterable[MemberIdentity]) -> list[MemberResponse]:
        """Handle a LeaveGroup request; return a response for each leaving member.

        Raise KafkaError if the group cannot be served.
        """
        self._check(group_id)
        return self._membership.leave(group_id, leaving)

    # ---- groups

    def group(self, group_id: str) -> ClassicGroup | None:
        """Return the group, or None if it does not exist. Callers must not change the group.

        Raise KafkaError if the group cannot be served.
        """
        self._check(group_id, may_be_empty=True)
        return self._membership.groups.get(group_id)

    def groups(self) -> list[ClassicGroup]:
        """Return all groups except those in unreadable partitions, as Kafka does. Callers must not change the groups.

        Raise KafkaError while the broker loads the groups, and while it is stopping.
        """
        self._check_serving()
        return list(self._membership.groups.values())

    def delete_group(self, group_id: str) -> None:
        """Handle a DeleteGroups request for one group: delete the group and its offsets.

        Raise KafkaError GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP, or a coordinator error code.
        """
        self._check(group_id, may_be_empty=True)
        self._cleanup.delete_group(check_group_delete(self._membership.groups.get(group_id), group_id))

    def delete_group_in_steps(self, group_id: str) -> Steps[None]:
        """Delete a group like `delete_group`, but prepare the tombstones in steps, between which other tasks run.

        The deletion itself takes place in the last step. Offsets committed before this step are deleted, too. If
        members have joined before this step, the deletion is refused. Raise KafkaError COORDINATOR_LOAD_IN_PROGRESS if
        clients keep committing on partitions that have no prepared tombstone.
        """
        for _ in range(_MAX_PREPARATIONS):
            self._check(group_id, may_be_empty=True)
            check_group_delete(self._membership.groups.get(group_id), group_id)
            prepared = yield from self._cleanup.prepare_deletion(group_id)
            self._check(group_id, may_be_empty=True)
            group = check_group_delete(self._membership.groups.get(group_id), group_id)
            if prepared.is_current():
                self._cleanup.delete_group(group, prepared)
                return
        raise KafkaError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            f"Group {group_id!r} cannot be deleted, because clients keep committing offsets of new partitions."
            " Stop these clients, then try again.",
        )

    # ---- offsets

    def commit_offsets(
        self,
        group_id: str,
        committer: Committer,
        commits: Iterable[Commit],
        *,
        retention_ms: int = -1,
        knows_missing_groups: bool = True,
    ) -> list[ErrorCode]:
        """Handle an OffsetCommit request; return an error code for each commit, in order.

        `knows_missing_groups` is true if the client knows GROUP_ID_NOT_FOUND (v9+). Other clients get
        ILLEGAL_GENERATION for an unknown group. Raise KafkaError if the request as a whole is refused.
        """
        self._check(group_id, may_be_empty=True)
        codes, valid = self._sort_out(commits)
        if not valid:
            return codes
        self._membership.check_room(group_id)
        missing = ErrorCode.GROUP_ID_NOT_FOUND if knows_missing_groups else ErrorCode.ILLEGAL_GENERATION
        group = self._check_committer(group_id, committer, missing, transactional=False)
        now_ms = self._clock.now_ms()
        expire_ms = -1 if retention_ms == -1 else now_ms + retention_ms
        self._log.put_offsets(
            group_id, [(commit.partition, self._value(group_id, commit, now_ms, expire_ms)) for commit in valid]
        )
        group = group or self._membership.get_or_create(group_id)
        self._membership.offsets_committed(group, committer.member_id)
        return codes

    def check_txn_commit(
        self,
        group_id: str,
        committer: Committer,
        transactional_id: str = "",
        partitions: Iterable[TopicPartition] = (),
    ) -> None:
        """Raise KafkaError if `commit_txn_offsets` would refuse the request as a whole.

        The caller must call this method before it adds the group's partition of `__consumer_offsets` to the
        transaction.
        """
        self._check(group_id)
        self._membership.check_room(group_id)
        self._check_committer(group_id, committer, ErrorCode.ILLEGAL_GENERATION, transactional=True)
        self._claims.check(group_id, partitions, transactional_id, committer.generation_id)

    def commit_txn_offsets(
        self,
        group_id: str,
        committer: Committer,
        producer_id: int,
        producer_epoch: int,
        commits: Iterable[Commit],
        transactional_id: str = "",
    ) -> list[ErrorCode]:
        """Handle a TxnOffsetCommit request: append offsets that stay pending until the producer's marker is written.

        Return an error code for each commit, in order. The caller must have made sure that the group's partition of
        `__consumer_offsets` is part of the producer's ongoing transaction. Raise KafkaError if the request as a whole
        is refused. The code is CONCURRENT_PRODUCER_COMMIT if a claim on any of the partitions fences the producer.
        """
        self._check(group_id)
        self._membership.check_room(group_id)
        codes, valid = self._sort_out(commits)
        if not valid:
            return codes
        self._check_committer(group_id, committer, ErrorCode.ILLEGAL_GENERATION, transactional=True)
        partitions = [commit.partition for commit in valid]
        self._claims.check(group_id, partitions, transactional_id, committer.generation_id)
        now_ms = self._clock.now_ms()
        owner = (transactional_id, producer_id)
        self._log.put_offsets(
            group_id,
            [(commit.partition, self._value(group_id, commit, now_ms, owner=owner)) for commit in valid],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        self._membership.get_or_create(group_id)
        return codes

    def prepare_commit(
        self,
        group_id: str,
        commits: Sequence[Commit],
        *,
        retention_ms: int = -1,
        owner: tuple[str, int] = ("", -1),
    ) -> Steps[PreparedCommit]:
        """Check and encode many commits in steps, before `commit_prepared` or `commit_txn_prepared` appends them.

        `owner` contains the transactional id and producer id of a TxnOffsetCommit.
        """
        prepared = PreparedCommit(group_id, self._log.largest_batch())
        now_ms = self._clock.now_ms()
        expire_ms = -1 if retention_ms == -1 else now_ms + retention_ms
        for start in range(0, len(commits), COMMITS_AT_ONCE):
            portion = commits[start : start + COMMITS_AT_ONCE]
            codes, valid = self._sort_out(portion)
            prepared.codes += codes
            prepared.partitions.update(dict.fromkeys(commit.partition for commit in portion))
            # Appending an offset settles its partition. Settle the partitions now, so that the append takes less time.
            self._offsets.settle_some(group_id, (commit.partition for commit in valid))
            for commit in valid:
                value = self._value(group_id, commit, now_ms, expire_ms, owner)
                prepared.add(commit.partition, value, self._claims.get(group_id, commit.partition))
            if prepared.is_too_large:
                break
            yield len(portion) + ENCODING_UNITS * len(valid)
        return prepared

    def is_current(self, prepared: PreparedCommit) -> bool:
        """Whether the prepared commits may be appended in this event-loop turn. If not, they must be prepared again."""
        return prepared.is_current(self._metadata, self._claims.of_group(prepared.group_id))

    def commit_prepared(
        self, prepared: PreparedCommit, committer: Committer, *, knows_missing_groups: bool = True
    ) -> list[ErrorCode]:
        """Handle an OffsetCommit request like `commit_offsets`, but append commits that are already prepared.

        `is_current` must have returned True in the same event-loop turn.
        """
        group_id = prepared.group_id
        self._check(group_id, may_be_empty=True)
        if not prepared.offsets:
            return prepared.codes
        self._membership.check_room(group_id)
        missing = ErrorCode.GROUP_ID_NOT_FOUND if knows_missing_groups else ErrorCode.ILLEGAL_GENERATION
        group = self._check_committer(group_id, committer, missing, transactional=False)
        self._log.put_prepared(prepared)
        group = group or self._membership.get_or_create(group_id)
        self._membership.offsets_committed(group, committer.member_id)
        return prepared.codes

    def commit_txn_prepared(
        self,
        prepared: PreparedCommit,
        committer: Committer,
        producer_id: int,
        producer_epoch: int,
        transactional_id: str,
    ) -> list[ErrorCode]:
        """Handle a TxnOffsetCommit request like `commit_txn_offsets`, but append commits that are already prepared.

        `is_current` must have returned True in the same event-loop turn.
        """
        group_id = prepared.group_id
        self._check(group_id)
        self._membership.check_room(group_id)
        if not prepared.offsets:
            return prepared.codes
        self._check_committer(group_id, committer, ErrorCode.ILLEGAL_GENERATION, transactional=True)
        partitions = (partition for partition, _ in prepared.offsets)
        self._claims.check(group_id, partitions, transactional_id, committer.generation_id)
        self._log.put_prepared(prepared, producer_id=producer_id, producer_epoch=producer_epoch)
        self._membership.get_or_create(group_id)
        return prepared.codes

    def complete_transaction(
        self, partition: int, producer_id: int, producer_epoch: int, commit: bool, marker_offset: int
    ) -> None:
        """Commit or drop the producer's pending offsets after its marker has been appended to their partition.

        `partition` is an index in `__consumer_offsets`. Like every record, the marker takes effect when it is appended.
        Responses that depend on it wait until it is durable.
        """
        self._log.marker_appended(partition, producer_id, commit, marker_offset)

    def _sort_out(self, commits: Iterable[Commit]) -> tuple[list[ErrorCode], list[Commit]]:
        """Check the commits. Return an error code for each commit, and a list of the valid commits.

        A commit is valid if its partition exists, the topic has not been replaced by another topic with the same name,
        and the metadata is not too large.
        """
        codes = []
        valid = []
        largest = self._config.offset_metadata_max_bytes
        for commit in commits:
            topic = self._metadata.topic(commit.partition[0])
            if topic is None or not topic.has_partition(commit.partition[1]):
                codes.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif commit.topic_id != NO_UUID and commit.topic_id != topic.topic_id:
                codes.append(ErrorCode.UNKNOWN_TOPIC_ID)
            elif commit.metadata is not None and len(commit.metadata) > largest:
                codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            else:
                codes.append(ErrorCode.NONE)
                valid.append(commit)
        return codes, valid

    def _check_committer(
        self, group_id: str, committer: Committer, missing: ErrorCode, *, transactional: bool
    ) -> ClassicGroup | None:
        group = self._membership.groups.get(group_id)
        if group is None:
            if committer.generation_id >= 0 and (committer.member_id or not committer.member_optional):
                raise KafkaError(missing, f"There is no group {group_id!r}. Check the group id.")
        else:
            member_id, instance_id, generation_id, optional = committer
            check_commit(
                group, member_id, instance_id, generation_id, transactional=transactional, member_optional=optional
            )
        return group

    def _value(
        self,
        group_id: str,
        commit: Commit,
        now_ms: int,
        expire_ms: int = -1,
        owner: tuple[str, int] = ("", -1),
    ) -> OffsetAndMetadata:
        """Return the value to store: the commit and the claim on its partition.

        If the commit is from the owner of the claim, the stored claim gets the owner's current producer id.
        """
        topic = self._metadata.topic(commit.partition[0])
        assert topic is not None
        claim = self._claims.get(group_id, commit.partition)
        if claim is not None and claim.transactional_id == owner[0]:
            claim = claim._replace(producer_id=owner[1])
        return OffsetAndMetadata(
            commit.offset,
            commit.leader_epoch,
            commit.metadata or "",
            now_ms,
            expire_ms,
            topic.topic_id,
            claim,
        )

    def fetch_offsets(self, group_id: str, wanted: Iterable[TopicPartition] | None) -> list[FetchedOffset]:
        """Handle an OffsetFetch request for the `wanted` partitions. None means all partitions with offsets.

        An unknown group has no offsets. A topic does not inherit the offsets of an earlier topic with the same name.
        Raise KafkaError if the group cannot be served.
        """
        if wanted is None:
            return list(self.offset_snapshot(group_id, None))
        self._check(group_id, may_be_empty=True)
        partitions = list(wanted)
        self._offsets.settle_some(group_id, partitions)
        known, pending = self._offsets.moved(group_id) or NO_OFFSETS, self._offsets.unmoved(group_id)
        return list(self._fetched(known, pending, partitions))

    def settle_offsets(self, group_id: str) -> Steps[None]:
        """Apply, in steps, the markers of ended transactions to the group's pending offsets.

        Afterwards `offset_snapshot` is fast, even after a large transaction.
        """
        return self._offsets.settle(group_id)

    def offset_snapshot(self, group_id: str, wanted: Iterable[TopicPartition] | None) -> Iterator[FetchedOffset]:
        """Return the same offsets as `fetch_offsets`, as an iterator over the state at the time of this call.

        Raise KafkaError if the group cannot be served.
        """
        self._check(group_id, may_be_empty=True)
        known, pending = self._offsets.snapshot(group_id)
        partitions = chain(known, (p for p in pending if p not in known)) if wanted is None else wanted
        return self._fetched(known, pending, partitions)

    def _fetched(
        self,
        known: Mapping[TopicPartition, OffsetAndMetadata],
        pending: Container[TopicPartition],
        wanted: Iterable[TopicPartition],
    ) -> Iterator[FetchedOffset]:
        """Yield the offsets of the `wanted` partitions, without those of earlier topics with the same names."""
        topic = self._metadata.topic
        for partition in wanted:
            offset = known.get(partition)
            if offset is not None and is_replaced(topic(partition[0]), offset.topic_id):
                offset = None
            yield FetchedOffset(partition, offset, partition in pending)

    def _claims_in_offsets(self, group_id: str) -> dict[TopicPartition, Claim]:
        """Return the claims that the group's committed offsets contain, without those of earlier topics."""
        topic, offsets = self._metadata.topic, self._offsets
        return {
            partition: claim
            for partition, claim in offsets.claims(group_id).items()
            if not is_replaced(topic(partition[0]), offsets.topic_id(group_id, partition))
        }

    def delete_offsets(self, group_id: str, wanted: Iterable[TopicPartition]) -> list[ErrorCode]:
        """Handle an OffsetDelete request (KIP-496); return an error code for each partition.

        Raise KafkaError GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP, or a coordinator error code.
        """
        self._check(group_id)
        group = check_offset_delete(self._membership.groups.get(group_id), group_id)
        codes = []
        doomed: list[TopicPartition] = []
        for partition in wanted:
            topic = self._metadata.topic(partition[0])
            if topic is None or not topic.has_partition(partition[1]):
                codes.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif group.is_subscribed_to(partition[0]):
                codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
            else:
                codes.append(ErrorCode.NONE)
                doomed.append(partition)
        self._cleanup.remove_offsets(group_id, doomed, "the offset was deleted")
        return codes

    # ---- claims

    @property
    def claim_keeper(self) -> ClaimKeeper | None:
        """The transaction coordinator that stores the groups' claims; None if claims are disabled."""
        return self._cleanup.claim_keeper

    @claim_keeper.setter
    def claim_keeper(self, keeper: ClaimKeeper) -> None:
        self._cleanup.claim_keeper = keeper

    def check_served(self, group_id: str) -> None:
        """Raise KafkaError if the group cannot be served, or if its id is empty.

        Also raise INVALID_GROUP_ID or GROUP_MAX_SIZE_REACHED if the group is new and may not be created
        (`group.id.max.bytes`, `group.max.groups`).
        """
        self._check(group_id)
        self._membership.check_room(group_id)

    def generation_with_members(self, group_id: str) -> int | None:
        """Return the group's generation, or None if the group has no members."""
        group = self._membership.groups.get(group_id)
        return group.generation_id if group is not None and group.members else None

    def pending_producers(self, group_id: str, partitions: Collection[TopicPartition]) -> set[int]:
        """Return the ids of the producers whose open transactions contain offset commits for any of the partitions."""
        return set().union(*(self._offsets.pending_producers(group_id, partition) for partition in partitions))

    def install_claims(self, group_id: str, claims: Mapping[TopicPartition, Claim]) -> None:
        """Replace all claims of the group, creating the group if needed."""
        self._claims.install(group_id, claims)
        if claims:
            self._membership.get_or_create(group_id)

    def change_claims(self, group_id: str, claims: Mapping[TopicPartition, Claim | None]) -> None:
        """Replace the group's claims on these partitions; None removes a claim.

        The claims on other partitions are kept.
        """
        self._claims.change(group_id, claims)
        if any(claim is not None for claim in claims.values()):
            self._membership.get_or_create(group_id)

    def may_have_offsets(self, group_id: str) -> bool:
        """Whether the log may contain offsets of the group, pending or committed.

        Also True if the log is not loaded yet or cannot be read.
        """
        if self._log.is_unreadable(group_id):
            return True
        return not self._loaded or self._offsets.may_have_any(group_id)

    def claims_in_offsets(self) -> dict[str, dict[TopicPartition, Claim]]:
        """Return the claims that the records of committed offsets contain, by group id and partition."""
        return {group_id: found for group_id in self._offsets.groups() if (found := self._claims_in_offsets(group_id))}

    def is_outlived(self, group_id: str, claim: Claim) -> bool:
        """Whether the group has become empty since the claim was made. Such a claim no longer applies."""
        return self._cleanup.is_outlived(self._membership.groups.get(group_id), claim)

    def emptied_ms(self, group_id: str) -> int:
        """Return the time when the group last became empty, in ms since the epoch.

        Return -1 if that time is unknown, if the group never became empty, or if the group does not exist.
        """
        group = self._membership.groups.get(group_id)
        return -1 if group is None else group.emptied_ms

    # ---- deletion and expiry

    def on_topics_deleted(self, topics: Iterable[str]) -> Awaitable[None] | None:
        """Remove the offsets of deleted topics. If an awaitable is returned, it must be awaited to remove the rest.

        The call, or the await, raises KafkaError if offsets cannot be removed. In that case, the caller must call this
        method again.
        """
        return self._cleanup.topics_deleted(topics)

    def _schedule_expiry(self) -> None:
        self._timer.schedule("expiry", self._config.offsets_retention_check_interval_ms, self._expire_and_reschedule)

    def _expire_and_reschedule(self) -> None:
        self._schedule_expiry()
        if self._expiry is None or self._expiry.done():
            self._expiry = asyncio.get_running_loop().create_task(self._expire(), name="expire-groups")

    async def _expire(self) -> None:
        try:
            await self._cleanup.expire()
        except Exception:
            self._logger.exception("group_expiry_failed")


def _both(settled: asyncio.Future[None] | None, dropping: asyncio.Future[None]) -> asyncio.Future[None]:
    """Return a new future that resolves when both futures have resolved.

    `dropping` is shared by several callers, so it is shielded.
    """
    both: asyncio.Future[Any] = asyncio.gather(asyncio.shield(dropping), *([] if settled is None else [settled]))
    both.add_done_callback(lambda done: done.cancelled() or done.exception())  # the caller may be gone
    return both
