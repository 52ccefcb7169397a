"""The consumer's side of its group, like Kafka's ConsumerCoordinator: takes part in rebalances, step by step.

A rebalance has three steps. Each is a task that begins only inside `poll()`, so that the records that earlier polls
returned count as processed:

1. prepare: commit (if automatic), call the listener, give up partitions. With the eager protocol these are all
   partitions, with the cooperative protocol only those of topics that are no longer subscribed. If the membership has
   ended, all partitions are lost;
2. join: JoinGroup, then SyncGroup; the leader runs the assignor in between. With the cooperative protocol, records of
   kept partitions are returned meanwhile;
3. complete: take over the assigned partitions. With the cooperative protocol, give up the partitions that move, and
   join again so that they can be assigned.

No record is returned during steps 1 and 3. The end of a poll (timeout, cancellation) does not end a step: the next poll
continues it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextvars import ContextVar
from enum import Enum
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ..cluster import Cluster
from ..config import ConsumerConfig
from ..errors import ConfigError, IllegalStateError
from ..group_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ..metadata import ClusterMetadata
from ..values import ConsumerAssignment, ConsumerGroupMetadata, TopicPartition
from .assignors import Assignor, RebalanceProtocol, assignors_of
from .commits import Commits
from .errors import RebalanceInProgressError
from .listener import RebalanceListener, settle
from .membership import Generation, GroupMembership, Joined, JoinMember, MemberState
from .offsets import CommittedOffsets
from .subscription import SubscriptionState

log = logging.getLogger(__name__)


class Step(Enum):
    """The current step of a rebalance."""

    PREPARE = "prepare"
    JOIN = "join"
    COMPLETE = "complete"


class _ListenerCall:
    """A call to the listener, made by one step of a rebalance."""

    __slots__ = ("coordinator", "is_over")

    def __init__(self, coordinator: ConsumerCoordinator) -> None:
        self.coordinator = coordinator
        self.is_over = False


_listener_call: ContextVar[_ListenerCall | None] = ContextVar("listener call", default=None)
"""The listener's call in which the current code runs, or None. It is a context variable, because a listener may call
the consumer in another task or thread and wait for it.
"""


class ConsumerCoordinator:
    """The consumer's side of its group: it joins the group, and takes over and gives up partitions."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        attention: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._subscription = subscription
        self._loop = asyncio.get_running_loop()
        self._attention = attention
        self.membership = GroupMembership(cluster, config, attention)
        self.offsets = CommittedOffsets(cluster, self.membership)
        self.commits = Commits(cluster, config, subscription, self.offsets)
        self.listener: RebalanceListener | None = None
        self._assignors = assignors_of(config.partition_assignment_strategy)
        self._protocol = max(frozenset.intersection(*(one.protocols for one in self._assignors)), default=None)
        if self._protocol is None:
            raise ConfigError(
                "partition.assignment.strategy",
                "the assignors have no rebalance protocol in common: choose assignors that share one",
            )
        self._steps: set[asyncio.Task[Joined | None]] = set()
        self._timeout_s = config.default_api_timeout_ms / 1000
        self._step: tuple[Step, asyncio.Task[Joined | None]] | None = None
        self._assigned_in: Generation | None = None
        """The generation of the current assignment."""
        self._joined_in = Generation()
        """The generation of the last join. `group_metadata` still returns it after the membership has ended."""
        self._prepared = False
        self._leaving = 0
        self._joined_subscription = -1
        self._watched: dict[str, int] | None = None
        """The number of partitions of each topic, as this member knew them when it made the assignment as leader."""
        cluster.on_metadata(self._metadata_changed)

    @property
    def cooperative(self) -> bool:
        """Whether the member keeps, during a rebalance, the partitions that do not move."""
        return self._protocol is RebalanceProtocol.COOPERATIVE

    @property
    def urgent(self) -> bool:
        """Whether `poll` must run before the next record is taken.

        This is so if a rebalance is due or under way, if a commit is due, or if a failure must be raised.
        """
        return self._step is not None or self.rebalance_due or self.commits.due

    @property
    def rebalance_due(self) -> bool:
        """Whether a rebalance waits for the next `poll`, or the membership has failed.

        The value is False while this member waits for the response to its join, because a poll could not continue the
        rebalance then.
        """
        if self._step is not None:
            step, task = self._step
            return step is not Step.JOIN or task.done()
        return (
            self.membership.rejoin_reason is not None
            or self.membership.failure is not None
            or self._joined_subscription != self._subscription.generation
        )

    @property
    def watched_topics(self) -> Collection[str]:
        """The topics that this member watches for changes: if it is the group's leader, the topics of all members,
        otherwise none.
        """
        return self._watched or ()

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the group, and the member and generation of the last join, to commit offsets in a transaction
        (KIP-447).

        After the membership has ended, the member and generation stay the same, so that the broker refuses the offsets.
        Without a generation the broker would accept them, although the partitions may belong to another member. Before
        the first join, and for partitions that are assigned manually, the generation is -1 and the member id is empty.
        """
        generation = Generation() if self._subscription.manual else self._joined_in
        return ConsumerGroupMetadata(
            self.membership.group_id, generation.generation_id, generation.member_id, self._config.group_instance_id
        )

    def group_assignment(self) -> ConsumerAssignment:
        """Return the partitions and the generation that assigned them. The two always match.

        During a rebalance the last assignment is returned, until the next assignment is complete. Raises
        RebalanceInProgressError for a consumer that subscribes but is not a member of the group now.
        """
        subscription, membership = self._subscription, self.membership
        if not subscription.automatic:
            return ConsumerAssignment(-1, frozenset(subscription.assigned), membership.group_id)
        generation = self._assigned_in
        if generation is None or membership.generation.generation_id < 0:
            raise RebalanceInProgressError(
                ErrorCode.REBALANCE_IN_PROGRESS,
                f"group {membership.group_id}: this consumer is not a member of the group now",
            )
        return ConsumerAssignment(
            generation.generation_id,
            frozenset(one for one, state in subscription.assigned.items() if not state.revoking),
            membership.group_id,
            generation.member_id,
            self._config.group_instance_id,
        )

    # -- polling

    async def poll(self, deadline: float) -> bool:
        """Continue a rebalance, or begin a commit that is due. Wait until `deadline` (in loop time) at most.

        Returns whether the consumer may return records now.
        """
        membership = self.membership
        while True:
            if self._leaving:
                return False  # a poll during close() or unsubscribe() must not join again
            if membership.failure is not None:
                raise membership.failure.anew()
            if self._step is None:
                if not self._subscription.automatic:
                    self.commits.if_due()
                    return True
                if not self._must_join():
                    self.commits.if_due()
                    return True
                self._begin(Step.JOIN if self._prepared else Step.PREPARE)
            assert self._step is not None
            step, task = self._step
            if not task.done():
                if step is Step.JOIN and self._subscription.assigned:
                    return True
                await asyncio.wait({task}, timeout=max(0.0, deadline - self._loop.time()))
                if not task.done():
                    return False
            if self._step is None or self._step[1] is not task:
                continue
            self._step = None
            self._follow(step, task)

    def _must_join(self) -> bool:
        return (
            self.membership.rejoin_reason is not None
            or self.membership.state is not MemberState.STABLE
            or self._joined_subscription != self._subscription.generation
        )

    def _begin(self, step: Step, joined: Joined | None = None) -> None:
        work: Coroutine[Any, Any, Joined | None]
        if step is Step.PREPARE:
            work = self._prepare()
        elif step is Step.JOIN:
            work = self.membership.join(self._protocols, self._assign)
        else:
            assert joined is not None
            work = self._complete(joined)
        task = asyncio.create_task(work, name=f"rebalance: {step.value}")
        self._steps.add(task)
        task.add_done_callback(self._steps.discard)
        task.add_done_callback(lambda _: self._attention())
        self._step = (step, task)

    def _follow(self, step: Step, task: asyncio.Task[Joined | None]) -> None:
        if step is Step.PREPARE:
            self._prepared = True
        if step is Step.COMPLETE:
            self._prepared = False
        if step is Step.JOIN and self.membership.generation.generation_id < 0 and self._subscription.assigned:
            self._prepared = False  # the membership has ended, so the assigned partitions are lost
        if task.cancelled():  # without this, the member could stay without its partitions
            self._prepared = self._prepared and step is Step.JOIN
            self.membership.request_rejoin(f"step {step.value!r} of the rebalance was cancelled")
            if task.cancelling():
                return  # by other code; else the listener has raised CancelledError
        joined = task.result()  # raises the exception of the listener or the error of the coordinator
        if step is Step.JOIN and joined is not None:
            self._begin(Step.COMPLETE, joined)

    # -- the steps

    async def _prepare(self) -> Joined | None:
        subscription = self._subscription
        if subscription.pattern is not None:
            await self._match_pattern()
        await self.commits.settle()
        assigned = set(subscription.assigned)
        if self.membership.generation.generation_id < 0:
            await self._give_up(assigned, lost=True)
            return None
        await self.commits.before("before a rebalance", assigned)
        if self.cooperative:
            await self._give_up({one for one in assigned if not self._wants(one)}, lost=False)
        else:
            await self._give_up(assigned, lost=False)
        return None

    async def _match_pattern(self) -> None:
        self._cluster.track_all()
        try:
            metadata = await self._cluster.refresh()
        except KafkaError as error:
            log.debug("the topics of the pattern could not be refreshed; using the known ones: %s", error)
            metadata = self._cluster.metadata
        self._take_matches(metadata)

    def _wants(self, partition: TopicPartition) -> bool:
        pattern = self._subscription.pattern
        if pattern is not None:
            return pattern.fullmatch(partition.topic) is not None
        return partition.topic in self._subscription.topics

    async def _complete(self, joined: Joined) -> Joined | None:
        subscription = self._subscription
        self._joined_in = joined.generation  # the listener may commit in a transaction before it gives partitions up
        try:
            assignment = decode_assignment(joined.assignment)
        except Exception:
            # Otherwise the group would count this member as the reader of partitions that it does not read.
            self.membership.request_rejoin("the assignment is malformed")
            raise
        assigned = set(assignment.partitions)
        generation = joined.generation
        if not all(self._wants(one) for one in assigned):
            self.membership.request_rejoin("the assignment is for an earlier subscription")
            return None
        if not joined.is_leader:
            self._watched = None
        if subscription.pattern is None:
            self._cluster.track_only({*subscription.topics, *self.watched_topics, *(one.topic for one in assigned)})
        before = set(subscription.assigned)
        assignor = next(one for one in self._assignors if one.name == generation.protocol)
        assignor.assigned(assigned, generation.generation_id)
        revoked = before - assigned
        self.commits.postpone()
        if revoked and self.cooperative:
            await self.commits.before("before partitions are given up", revoked)
            self.membership.request_rejoin("partitions were given up and can go to their new members")
        log.info(
            "group %s: generation %d, assigned %s", self.membership.group_id, generation.generation_id, sorted(assigned)
        )
        try:
            await self._give_up(revoked, lost=False)
        finally:
            subscription.assign(assigned)
            self._assigned_in = generation
            self._attention()
        if self.listener is not None:
            await self._call(self.listener.on_partitions_assigned, assigned - before)
        return None

    async def _give_up(self, partitions: set[TopicPartition], *, lost: bool) -> None:
        subscription = self._subscription
        if not partitions:
            return
        for partition in partitions:
            state = subscription.assigned.get(partition)
            if state is not None:
                state.revoking = True
        try:
            if self.listener is not None:
                method = self.listener.on_partitions_lost if lost else self.listener.on_partitions_revoked
                await self._call(method, set(partitions))
        finally:
            subscription.assign(one for one in subscription.assigned if one not in partitions)

    async def _call(self, method: Callable[[set[TopicPartition]], object], partitions: set[TopicPartition]) -> None:
        """Call a method of the listener. If a step of a rebalance makes this call, let `refuse_in_listener` raise until
        the method has returned.
        """
        if asyncio.current_task() not in self._steps:
            return await settle(method, method(partitions))
        call = _ListenerCall(self)
        token = _listener_call.set(call)
        try:
            await settle(method, method(partitions))
        finally:
            call.is_over = True
            _listener_call.reset(token)

    # -- JoinGroup's metadata and the assignment

    def _protocols(self) -> list[tuple[str, bytes]]:
        subscription = self._subscription
        self._joined_subscription = subscription.generation
        return [
            (
                assignor.name,
                encode_subscription(
                    Subscription(
                        topics=tuple(subscription.topics),
                        user_data=assignor.user_data(),
                        owned=tuple(subscription.assigned),
                        generation_id=self._owned_generation if subscription.assigned else -1,
                        rack_id=self._config.client_rack or None,
                    )
                ),
            )
            for assignor in self._assignors
        ]

    @property
    def _owned_generation(self) -> int:
        return self.membership.generation.generation_id

    async def _assign(self, protocol: str, members: Sequence[JoinMember], stands: bool) -> dict[str, bytes]:
        subscriptions: dict[str, Subscription] = {}
        for member in members:
            subscription = decode_subscription(member.metadata)
            subscription.group_instance_id = member.group_instance_id
            subscriptions[member.member_id] = subscription
        topics = {topic for one in subscriptions.values() for topic in one.topics}
        metadata = await self._cluster.refresh(topics)
        counts = _counts(metadata, topics)
        self._watched = counts
        if stands:
            return {}
        assignor: Assignor = next(one for one in self._assignors if one.name == protocol)
        shares = assignor.assign(subscriptions, {topic: n for topic, n in counts.items() if n})
        return {member: encode_assignment(Assignment(tuple(mine))) for member, mine in shares.items()}

    # -- metadata

    def _metadata_changed(self, metadata: ClusterMetadata) -> None:
        if self._subscription.pattern is not None and self._take_matches(metadata):
            self.membership.request_rejoin("other topics match the pattern now")
        if self._watched is not None and self.membership.state is MemberState.STABLE:
            counts = _counts(metadata, self._watched)
            if counts != self._watched:
                self._watched = None
                self.membership.request_rejoin("topics have changed")

    def _take_matches(self, metadata: ClusterMetadata) -> bool:
        hide = self._config.exclude_internal_topics
        names = [
            name for name, topic in metadata.topics.items() if not topic.error_code and not (hide and topic.is_internal)
        ]
        return self._subscription.matched(names)

    # -- closing

    async def leave(self, reason: str, timeout_s: float | None = None) -> None:
        """Give up all partitions and leave the group. The timeout bounds everything except the listener.

        If the call is cancelled, leaving the group takes cancel.grace.ms at most.
        """
        self._leaving += 1
        try:
            await self._end_step(self._timeout_s if timeout_s is None else timeout_s)
            assigned = set(self._subscription.assigned) if self._subscription.automatic else set()
            lost = self.membership.state is not MemberState.STABLE
            try:
                await self._give_up(assigned, lost=lost)
            except asyncio.CancelledError:
                at_most_s = self._config.cancel_grace_ms / 1000
                timeout_s = at_most_s if timeout_s is None else min(timeout_s, at_most_s)
                raise
            finally:
                self._prepared = False
                self._joined_subscription = -1
                self._watched = None
                await self.membership.leave(reason, timeout_s)
        finally:
            self._leaving -= 1
            self._attention()

    async def close(self, *, commit: bool, timeout_s: float) -> None:
        """Commit (if commits are automatic and `commit` is true), leave the group, and end all tasks. The timeout
        bounds everything except the listener.
        """
        deadline = self._loop.time() + timeout_s

        def left() -> float:
            return max(deadline - self._loop.time(), 0.0)

        self._leaving += 1  # never lowered again
        try:
            await self._end_step(timeout_s)
            await self.commits.settle(left())
            if commit and (self.membership.state is MemberState.STABLE or not self._subscription.automatic):
                await self.commits.last(left())
            await self.leave("the consumer is closed", left())
        finally:
            await self.stop()

    async def stop(self) -> None:
        """End all tasks without a request to the broker. Safe to call twice."""
        for step in self._steps:
            step.cancel()
        await asyncio.gather(*self._steps, return_exceptions=True)
        await self.commits.cancel()
        await self.membership.close()

    def refuse_in_listener(self, what: str) -> None:
        """Raise IllegalStateError if a rebalance step has called the listener that makes this call, because `what`
        would wait for that step to end.
        """
        call = _listener_call.get()
        if call is not None and call.coordinator is self and not call.is_over:
            raise IllegalStateError(
                f"{what} cannot be called in a rebalance listener: it waits for the rebalance, which waits for the "
                "listener. Return from the listener first"
            )

    async def _end_step(self, timeout_s: float) -> None:
        if self._step is None:
            return
        step, task = self._step
        self._step = None
        if step is Step.JOIN:
            task.cancel()
        try:
            await asyncio.wait({task}, timeout=timeout_s)
        except asyncio.CancelledError:
            if step is not Step.JOIN:
                self._step = step, task  # the step continues, because a concurrent second step would undo its changes
            raise
        if not task.done():
            log.warning("a rebalance did not end within %.1f s and is cancelled", timeout_s)
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled() and task.exception() is not None:
            log.warning("a rebalance failed while the consumer left the group: %s", task.exception())


def _counts(metadata: ClusterMetadata, topics: Sequence[str] | set[str] | dict[str, int]) -> dict[str, int]:
    counts = {}
    for name in topics:
        topic = metadata.topics.get(name)
        counts[name] = len(topic.partitions) if topic is not None else 0
    return counts
