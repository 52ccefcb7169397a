"""`Fetcher`: reads ahead with one long poll per broker, and buffers the responses until the application takes them.

It owns the fetch tasks, the sessions and the buffer. It never assigns or commits, and moves positions only by returning
records.

Bounds: a broker gets the next request only while each of its readable partitions has at most max.partition.fetch.bytes
buffered, and all partitions together have less than fetch.max.bytes. So the next response is on its way while the
previous one is read. A response has at most fetch.max.bytes, unless a single batch is larger. These bounds ignore
partitions that are paused, or left out by a call that names other partitions, because their buffered records must not
hold up other partitions.

Records of a partition are returned in the order of their offsets. Chunks (the records of one partition in one response)
are kept in order of arrival. A chunk is dropped if its partition has since been revoked, or has got another position by
a seek or a reset: the partition then has another `incarnation`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, Final

from ...protocol.errors import ErrorCode, KafkaError, error_code
from ...protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from ...protocol.record_walk import RecordLimits
from ...protocol.schema import NO_UUID
from ..cluster import Cluster
from ..config import ConsumerConfig
from ..errors import RetriableError, error_for
from ..kept_task import KeptTask
from ..metadata import ClusterMetadata
from ..serialization.protocols import NotReadyError
from ..values import TopicPartition
from .deserialization import RecordDeserializer
from .errors import OffsetOutOfRangeError
from .fetch_session import FetchSession, Wanted
from .fetched import FetchedPartition
from .record import ConsumerRecord
from .subscription import EARLIEST, LATEST, PartitionState, SubscriptionState

log = logging.getLogger(__name__)

CHANNEL: Final = "fetch"
"""The channel of fetches. They have their own connection, because a long poll must not hold up other responses."""

LAST_VERSION_WITH_NAMES: Final = 12

_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors of a partition that has moved or is unavailable. The metadata is refreshed, and the fetch is repeated after a
backoff.
"""

_SESSION_GONE: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class Fetcher:
    """Fetches records ahead of the application. `arrived` is called when records or a failure may have arrived."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        arrived: Callable[[], None],
        deserialize: RecordDeserializer | None = None,
    ) -> None:
        self._cluster = cluster
        self._config = config
        self._limits = RecordLimits(config.max_batch_objects, decompressed_bytes=config.max_decompressed_bytes)
        self._subscription = subscription
        self._arrived = arrived
        self._deserialize = deserialize
        self._read_committed = config.isolation_level == "read_committed"
        self._enough = config.max_partition_fetch_bytes
        self._most_bytes = max(config.fetch_max_bytes, 1)
        self._full = False
        """Whether some broker gets no request at present because `_most_bytes` are buffered. Then the removal of any
        record from the buffer may make enough room.
        """
        self._ready: deque[FetchedPartition] = deque()
        self._failure: KafkaError | None = None
        self._tasks: dict[int, KeptTask] = {}
        self._changed: dict[int, asyncio.Event] = {}
        self._closed = False
        self.bytes_fetched = 0

    # -- calls of the application

    def wake(self) -> None:
        """Check again which partitions to fetch, because positions, the assignment, the buffer or the leaders have
        changed.
        """
        if self._closed:
            return
        for partition in self._subscription.assigned:
            leader = self._cluster.leader_of(partition)
            if leader is not None and leader not in self._tasks:
                self._changed[leader] = asyncio.Event()
                self._tasks[leader] = KeptTask(functools.partial(self._serve, leader), f"fetch from node {leader}")
        for changed in self._changed.values():
            changed.set()

    def take(
        self, most: int, only: Collection[TopicPartition] = ()
    ) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Return up to `most` records by partition, and advance the positions.

        With `only`, records of these partitions only are returned. A failure is raised when no records before it are
        left: the error of a fetch, RecordCorruptError or DeserializationError. Raises NotReadyError if a deserializer
        has to wait.
        """
        taken: dict[TopicPartition, list[ConsumerRecord[Any, Any]]] = {}
        passed: list[FetchedPartition] = []
        left = most
        try:
            while left > 0 and self._ready:
                chunk = self._ready[0]
                state = self._current(chunk)
                if state is None:
                    self._ready.popleft()
                    continue
                if not state.fetchable or (only and chunk.partition not in only):
                    passed.append(self._ready.popleft())
                    if state.fetchable and not state.passed_over:
                        state.passed_over = True
                        self.wake()
                    continue
                state.passed_over = False
                records = self._from_chunk(state, chunk, left, bool(taken))
                if records is None:
                    break
                if records:
                    left -= len(records)
                    known = taken.get(chunk.partition)
                    if known is None:
                        taken[chunk.partition] = records
                    else:
                        known += records
        finally:
            self._ready.extendleft(reversed(passed))
        if not taken:
            self.raise_failure()
        return taken

    def take_one(self) -> ConsumerRecord[Any, Any] | None:
        """Return the next record, or None. Checks only the first chunk, which makes the call cheap."""
        if not self._ready:
            return None
        chunk = self._ready[0]
        state = self._subscription.assigned.get(chunk.partition)
        if state is None or state.incarnation != chunk.incarnation or not state.fetchable:
            return None
        before = chunk.waiting_bytes
        try:
            record = chunk.take_one()
        except (KafkaError, NotReadyError):
            return None  # `take` raises it
        if chunk.waiting_bytes != before:
            self._used(state, before - chunk.waiting_bytes)
        if record is None:
            return None  # `take` moves on to the next chunk
        state.position = chunk.next_offset
        state.leader_epoch = chunk.leader_epoch
        return record

    def raise_failure(self) -> None:
        """If a fetch has failed with an error that a retry cannot correct, raise this error, but only once."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _current(self, chunk: FetchedPartition) -> PartitionState | None:
        state = self._subscription.assigned.get(chunk.partition)
        return state if state is not None and state.incarnation == chunk.incarnation else None

    def _from_chunk(
        self, state: PartitionState, chunk: FetchedPartition, most: int, have_some: bool
    ) -> list[ConsumerRecord[Any, Any]] | None:
        """Take records from the first chunk. Return [] if the chunk was used up and removed, or None if the next `take`
        will raise a failure.
        """
        before = chunk.waiting_bytes
        try:
            records = chunk.take(most)
        except (NotReadyError, RetriableError):  # of a deserializer: the records are kept
            if have_some:
                return None
            raise
        except KafkaError:
            state.position = max(state.position or 0, chunk.next_offset)
            if have_some:
                return None  # the next call raises the failure
            self._ready.popleft()
            state.refetch()
            self.wake()
            raise
        state.position = chunk.next_offset
        if chunk.leader_epoch >= 0:
            state.leader_epoch = chunk.leader_epoch
        if not records:
            self._ready.popleft()
        if chunk.waiting_bytes != before:
            self._used(state, before - chunk.waiting_bytes)
        return records

    def _used(self, state: PartitionState, size: int) -> None:
        """Count `size` bytes as no longer buffered. This may leave room for the next fetch."""
        had, state.buffered_bytes = state.buffered_bytes, state.buffered_bytes - size
        if self._full or had > self._enough >= state.buffered_bytes:
            self.wake()

    # -- the fetch tasks

    async def close(self) -> None:
        """End the fetch tasks."""
        self._closed = True
        await asyncio.gather(*(task.cancel() for task in self._tasks.values()), return_exceptions=True)
        self._tasks.clear()
        self._ready.clear()

    async def _serve(self, node_id: int) -> None:
        """Keep sending Fetch requests to one broker, for the partitions that it leads."""
        session = FetchSession()
        changed = self._changed[node_id]
        failures = 0
        while True:
            changed.clear()
            try:
                if not self._wanted(node_id):
                    await changed.wait()
                    continue
                failed = await self._fetch(node_id, session)
                failures = failures + 1 if failed else 0
            except KafkaError as error:
                session.reset()
                if error.retriable or error.code is ErrorCode.BROKER_NOT_AVAILABLE:
                    log.debug("fetch from node %d failed; trying again: %s", node_id, error)
                else:
                    self._fail(error)
                self._cluster.request_refresh()
                failures += 1
            except Exception as error:  # after a bug, the consumer must not wait forever
                log.exception("fetch from node %d failed", node_id)
                failure = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the fetcher failed: {error!r}")
                failure.__cause__ = error
                self._fail(failure)
                session.reset()
                failures += 1
            if failures:
                await asyncio.sleep(self._cluster.retry_backoff(failures - 1))

    def _wanted(self, node_id: int) -> dict[TopicPartition, Wanted]:
        """Return the partitions to fetch from a broker now: none while enough of the broker's records are buffered."""
        wanted: dict[TopicPartition, Wanted] = {}
        metadata = self._cluster.metadata
        most = self._config.max_partition_fetch_bytes
        buffered = 0
        for partition, state in self._subscription.assigned.items():
            if not state.fetchable:
                continue
            if not state.passed_over:
                buffered += state.buffered_bytes
            if state.blocked or metadata.leader_of(partition) != node_id:
                continue
            if state.buffered_bytes > self._enough:
                if state.passed_over:
                    continue
                return {}
            wanted[partition] = Wanted(
                metadata.topics[partition.topic].topic_id, state.fetch_offset, most, _epoch(metadata, partition)
            )
        self._full = buffered >= self._most_bytes
        return {} if self._full else wanted

    async def _fetch(self, node_id: int, session: FetchSession) -> bool:
        """Send a Fetch request and handle its response. Return whether to back off before the next request."""
        config = self._config
        connection = await self._cluster.connection(node_id, CHANNEL)
        wanted = self._wanted(node_id)  # from here until the request is sent, no other task may run
        if not wanted:
            return False
        by_id = all(want.topic_id != NO_UUID for want in wanted.values())
        version = connection.version_of(FetchRequest, 32767 if by_id else LAST_VERSION_WITH_NAMES)
        request = FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            isolation_level=1 if self._read_committed else 0,
        )
        session.fill(request, wanted)
        asked = {one: self._subscription.assigned[one].incarnation for one in wanted}
        answer = await connection.send(request, version)
        code = error_code(answer.error_code)
        if code:
            session.failed(known_there=code is not ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            if code in _SESSION_GONE:
                if code not in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH):
                    self._cluster.request_refresh()
                    return True
                return False
            raise error_for(code, f"node {node_id} refused the Fetch request")
        session.succeeded(answer.session_id)
        self._take_answer(answer, wanted, asked)
        return False

    def _take_answer(
        self, answer: FetchResponse, wanted: dict[TopicPartition, Wanted], asked: dict[TopicPartition, int]
    ) -> None:
        names = {want.topic_id: one.topic for one, want in wanted.items()}
        for topic in answer.responses:
            name = topic.topic or names.get(topic.topic_id)
            if name is None:
                continue
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                state = self._subscription.assigned.get(partition)
                if state is None or state.incarnation != asked.get(partition):
                    continue
                topic_id = wanted[partition].topic_id
                if data.error_code:
                    self._partition_failed(state, error_code(data.error_code))
                elif topic_id != state.topic_id and NO_UUID not in (topic_id, state.topic_id):
                    self._out_of_range(state, f"topic {name} was deleted and created again")
                else:
                    if topic_id != NO_UUID:  # brokers before Kafka 2.8 have no topic ids
                        state.topic_id = topic_id
                    state.failures = 0
                    self._partition_arrived(state, data)
        self._arrived()

    def _partition_arrived(self, state: PartitionState, data: PartitionData) -> None:
        state.high_watermark = data.high_watermark
        state.last_stable_offset = data.last_stable_offset if data.last_stable_offset >= 0 else None
        state.log_start_offset = data.log_start_offset if data.log_start_offset >= 0 else None
        if not data.records:
            return
        aborted = None
        if self._read_committed:
            aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
        chunk = FetchedPartition(
            state.partition,
            data.records,
            state.fetch_offset,
            aborted,
            check_crcs=self._config.check_crcs,
            limits=self._limits,
            incarnation=state.incarnation,
            deserialize=self._deserialize,
        )
        end = chunk.end_offset
        self.bytes_fetched += chunk.size
        state.fetch_offset = end
        state.buffered_bytes += chunk.size
        self._ready.append(chunk)

    def _partition_failed(self, state: PartitionState, code: ErrorCode) -> None:
        partition = state.partition
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(state, "out of range")
        elif code in _MOVED:
            log.debug("%s cannot be fetched now: %s", partition, code.text)
            self._cluster.request_refresh()
            self._block(state)
        else:
            self._block(state)
            self._fail(error_for(code, f"{partition} cannot be fetched: {code.text}"))

    def _out_of_range(self, state: PartitionState, why: str) -> None:
        """Continue at the offset that auto.offset.reset selects, but only after the buffered records have been taken.
        With auto.offset.reset=none, let the next poll raise OffsetOutOfRangeError instead.
        """
        if state.position is not None and state.fetch_offset != state.position:
            self._block(state)  # fetched again after the backoff
            return
        policy = self._config.auto_offset_reset
        if policy == "none":
            self._block(state)
            self._fail(OffsetOutOfRangeError(state.partition, state.fetch_offset, why))
            return
        log.warning(
            "offset %d of %s: %s; continuing at the %s offset", state.fetch_offset, state.partition, why, policy
        )
        state.reset(EARLIEST if policy == "earliest" else LATEST)

    def _block(self, state: PartitionState) -> None:
        """Leave a partition out until its backoff ends, so that it does not slow down the others."""
        wait = self._cluster.retry_backoff(state.failures)
        state.failures += 1
        state.blocked = True
        asyncio.get_running_loop().call_later(wait, self._unblock, state)

    def _unblock(self, state: PartitionState) -> None:
        state.blocked = False
        self.wake()

    def _fail(self, error: KafkaError) -> None:
        self._failure = error
        self._arrived()


def _epoch(metadata: ClusterMetadata, partition: TopicPartition) -> int:
    for one in metadata.topics[partition.topic].partitions:
        if one.index == partition.partition:
            return one.leader_epoch
    return -1
