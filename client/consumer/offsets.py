"""`CommittedOffsets`: writes and reads a group's committed offsets at the coordinator.

Requests are retried while the coordinator moves or loads. A read also waits for open transactions that commit offsets.
Otherwise, a reader could start at an offset that such a transaction is about to replace. As in Kafka's consumer, a read
requests stable offsets whatever isolation.level is (KIP-447; OffsetFetch v7 and newer). While a transaction is open, a
broker responds with UNSTABLE_OFFSET_COMMIT or, if it has the transaction extension, with PENDING_TRANSACTION. If that
lasts until the timeout, the read raises PendingTransactionError.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection, Mapping

from ...protocol.errors import ErrorCode, KafkaError, error_code
from ...protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ...protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ..cluster import MISSING_TOPIC_ATTEMPTS, Cluster
from ..errors import InvalidTopicError, KafkaTimeoutError, PendingTransactionError, error_for
from ..group_protocol import group_by_topic
from ..offset_fetch import ASK_AGAIN, LAST_FETCH_OF_ONE_GROUP, Found, passes, read_offset_fetch
from ..values import OffsetAndMetadata, TopicPartition
from .errors import CommitFailedError, RebalanceInProgressError
from .membership import CHANNEL, Generation, GroupMembership, MemberState

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
"""Offsets to commit, by partition."""


class CommittedOffsets:
    """Writes and reads the committed offsets of a group."""

    def __init__(self, cluster: Cluster, membership: GroupMembership) -> None:
        self._cluster = cluster
        self._membership = membership
        self._turn = asyncio.Lock()
        """Held until a commit is sent. Commits are sent in the order of the calls, even while the coordinator is looked
        up, so that an older commit cannot overwrite a newer one.
        """
        self._numbers = itertools.count()
        """Numbers the calls of `commit`."""
        self._sent: dict[int, asyncio.Future[OffsetCommitResponse]] = {}
        """The commits whose response is awaited, by number."""
        self._newest: dict[TopicPartition, int] = {}
        """The number of the newest durable commit of each partition. A retry of an older commit leaves the partition
        out.
        """

    # -- writing

    def generation(self, *, in_group: bool) -> Generation:
        """Return the generation with which offsets are committed. Raises RebalanceInProgressError or CommitFailedError
        if this consumer is not a stable member.
        """
        membership = self._membership
        if not in_group:
            return Generation()
        if membership.state is MemberState.STABLE:
            return membership.generation
        if membership.state is MemberState.JOINING:
            raise RebalanceInProgressError(
                ErrorCode.REBALANCE_IN_PROGRESS, f"group {membership.group_id}: the consumer is joining the group"
            )
        raise CommitFailedError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"group {membership.group_id}: this consumer is not a member; its partitions may belong to another member",
        )

    async def commit(self, offsets: Offsets, *, in_group: bool, timeout_s: float, retry: bool = True) -> None:
        """Commit offsets, and wait until they are durable.

        Raises CommitFailedError, RebalanceInProgressError, FencedInstanceError and AuthorizationError. With `retry`,
        also raises InvalidTopicError for a topic that does not exist, and KafkaTimeoutError after the timeout. Without
        `retry`, raises the first failure.
        """
        if not offsets:
            return
        generation = self.generation(in_group=in_group)
        number = next(self._numbers)
        async with _Retrying(self._cluster, timeout_s, f"commit offsets of group {self._membership.group_id}") as again:
            missing = 0
            while True:
                try:
                    return await self._commit(offsets, generation, number)
                except KafkaError as error:
                    if not retry or not _passes(error):
                        raise
                    missing += error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    if missing >= MISSING_TOPIC_ATTEMPTS:
                        raise InvalidTopicError(error.code, error.message) from None
                    await again.wait(error)

    async def _commit(self, offsets: Offsets, generation: Generation, number: int) -> None:
        membership = self._membership
        try:
            async with self._turn:
                while later := [sent for other, sent in self._sent.items() if other > number]:
                    await asyncio.wait(later)  # what this retry may write depends on their outcome
                    await asyncio.sleep(0)
                offsets = {one: at for one, at in offsets.items() if self._newest.get(one, -1) < number}
                if not offsets:
                    return
                node_id = await membership.coordinator(self._cluster.config.request_timeout_ms / 1000)
                connection = await self._cluster.connection(node_id, CHANNEL)
                self._sent[number] = sent = connection.send(self._request(offsets, generation))
            try:
                answer = await sent
            finally:
                del self._sent[number]
        except KafkaError:
            membership.forget_coordinator()
            raise
        left_out = set(offsets)
        for answered in answer.topics:
            for data in answered.partitions:
                left_out.discard(TopicPartition(answered.name, data.partition_index))
                if data.error_code:
                    code = error_code(data.error_code)
                    raise self._refused(code, f"{answered.name}-{data.partition_index}", generation)
        if left_out:
            raise error_for(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"group {membership.group_id}: the broker's response does not name {min(left_out)}, so it is unknown "
                "whether its offset was committed",
            )
        self._newest.update({one: max(number, self._newest.get(one, -1)) for one in offsets})

    def _request(self, offsets: Offsets, generation: Generation) -> OffsetCommitRequest:
        membership = self._membership
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offsets[TopicPartition(topic, index)].offset,
                        committed_leader_epoch=offsets[TopicPartition(topic, index)].leader_epoch,
                        committed_metadata=offsets[TopicPartition(topic, index)].metadata,
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in group_by_topic(offsets).items()
        ]
        return OffsetCommitRequest(
            group_id=membership.group_id,
            generation_id_or_member_epoch=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=membership.group_instance_id if generation.generation_id >= 0 else None,
            topics=topics,
        )

    def _refused(self, code: ErrorCode, where: str, generation: Generation) -> KafkaError:
        membership = self._membership
        current = generation == membership.generation and generation.generation_id >= 0
        error = (
            membership.rejected(code, "OffsetCommit")
            if current or code in ASK_AGAIN
            else error_for(code, f"group {membership.group_id}, {where}: {code.text}")
        )
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return error_for(
                code, f"group {membership.group_id}: nothing was committed, because {where} does not exist"
            )
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            return RebalanceInProgressError(code, f"group {membership.group_id}: the offsets were not committed")
        if code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID):
            return CommitFailedError(code, f"group {membership.group_id}: the offsets were not committed: {code.text}")
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            membership.forget_coordinator()
        return error

    # -- reading

    async def fetch(
        self,
        partitions: Collection[TopicPartition],
        *,
        timeout_s: float,
        on_found: Callable[[Found], None] = lambda found: None,
    ) -> Found:
        """Return the committed offset of each partition, or None. Waits for transactions that have not ended.

        `on_found` is called with the partitions of each response, so that no partition has to wait for another. After
        the timeout, this call raises KafkaTimeoutError or its subclass PendingTransactionError. Errors that are not
        retriable are raised at once.
        """
        found: Found = {}
        async with _Retrying(self._cluster, timeout_s, f"read offsets of group {self._membership.group_id}") as again:
            while missing := [one for one in partitions if one not in found]:
                try:
                    answer, problem = await self._fetch(missing)
                    found |= answer
                    if answer:
                        on_found(answer)
                    if problem is not None:
                        raise problem
                except KafkaError as error:
                    if not _passes(error):
                        raise
                    if error.code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                        self._membership.forget_coordinator()
                    await again.wait(error)
        return found

    async def _fetch(self, partitions: Collection[TopicPartition]) -> tuple[Found, KafkaError | None]:
        membership = self._membership
        node_id = await membership.coordinator(self._cluster.config.request_timeout_ms / 1000)
        connection = await self._cluster.connection(node_id, CHANNEL)
        version = connection.version_of(OffsetFetchRequest)
        grouped = group_by_topic(partitions)
        request = OffsetFetchRequest()
        if version >= LAST_FETCH_OF_ONE_GROUP:
            request.require_stable = True
        if version <= LAST_FETCH_OF_ONE_GROUP:
            request.group_id = membership.group_id
            request.topics = [OffsetFetchRequestTopic(name=name, partition_indexes=p) for name, p in grouped.items()]
        else:
            topics = [OffsetFetchRequestTopics(name=name, partition_indexes=p) for name, p in grouped.items()]
            request.groups = [OffsetFetchRequestGroup(group_id=membership.group_id, topics=topics)]
        try:
            answer = await connection.send(request, version)
        except KafkaError:
            membership.forget_coordinator()
            raise
        found, problem = read_offset_fetch(answer, version, membership.group_id)
        # Without an error, a partition that is missing in the response has no committed offset.
        return {one: found.get(one) for one in partitions if one in found or problem is None}, problem


def _passes(error: KafkaError) -> bool:
    return passes(error) and not isinstance(error, RebalanceInProgressError)


class _Retrying:
    """An `async with` block of retries within a timeout. `wait` backs off. After the timeout, the block raises
    KafkaTimeoutError, which names the last failure.
    """

    def __init__(self, cluster: Cluster, timeout_s: float, what: str) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._timeout = asyncio.timeout(timeout_s)
        self._what = what
        self._attempt = 0
        self._last: KafkaError | None = None

    async def __aenter__(self) -> _Retrying:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(self, kind, error, trace) -> None:  # type: ignore[no-untyped-def]
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError as late:
            last = self._last
            text = f"could not {self._what} within {self._timeout_s * 1000:.0f} ms"
            if isinstance(last, PendingTransactionError):
                raise PendingTransactionError(last.code, f"{text}: {last.message}") from late
            why = f": {last.message}" if last is not None else ""
            raise KafkaTimeoutError(ErrorCode.REQUEST_TIMED_OUT, text + why) from late

    async def wait(self, error: KafkaError) -> None:
        self._last = error
        await asyncio.sleep(self._cluster.retry_backoff(self._attempt))
        self._attempt += 1
