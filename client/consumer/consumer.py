"""`Consumer`: reads records of topics, alone or as a member of a group.

`Consumer` connects the parts that do the work: subscription, coordinator (group membership), fetcher (records),
committed offsets and offset look-ups. Only one task may poll at a time; other tasks may make other calls meanwhile.

Delivery: records that `poll`, `getmany` or the iteration returned count as processed at the next of these calls. Only
then are their offsets committed automatically, or their partitions given up in a rebalance. The iteration moves the
position with each record that it returns. `close` counts as the next call if it is called by the task that received the
records, or if that task has ended without an exception. Otherwise that task may still be processing the records, so
they are read again later. If a call does not come from a task, as with `oncelog.sync`, its thread takes the place of
the task. Records before a position that the program itself has committed count as processed, too.

The consumer notes its caller when a method is called, and not when the method's coroutine runs. The coroutine may run
in another task, for example in one that `asyncio.wait_for` has made. So the methods that return records, and `close`,
are plain functions that return a coroutine.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Generic, Self, Unpack

from ..cancellation import grace_s
from ..closing import Closing, close_after
from ..cluster import Cluster
from ..config import ConsumerConfig
from ..errors import IllegalStateError
from ..keywords import ConsumerKeywords
from ..metadata import ClusterMetadata, PartitionMetadata
from ..offset_lookup import list_offsets
from ..serialization.protocols import DeserializerLike, K, NotReadyError, V
from ..threads import Caller, OwnThread, current_caller, has_succeeded
from ..validation import (
    MAX_INT32,
    MAX_INT64,
    check_callback,
    duration_of,
    partition_of,
    partitions_of,
    positions_of,
    topics_of,
    whole_number,
    without_none,
)
from ..values import ByPartition, ConsumerAssignment, ConsumerGroupMetadata, OffsetAndMetadata, Offsets, TopicPartition
from .coordinator import ConsumerCoordinator
from .deserialization import RecordDeserializer
from .fetcher import Fetcher
from .listener import RebalanceListener, check_listener
from .missing_topics import MissingTopics
from .positions import Positions
from .record import ConsumerRecord, OffsetAndTimestamp
from .repeated_refresh import RepeatedRefresh
from .subscription import EARLIEST, LATEST, SubscriptionState

log = logging.getLogger(__name__)

OffsetLike = int | OffsetAndMetadata
"""An offset, with or without metadata and leader epoch."""

YIELD_EVERY: Final = 128
"""Number of records after which the iteration lets other tasks of the event loop run."""

CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], BaseException | None], None]
"""Called by `commit_async` with the offsets, and with the failure of the commit or None."""


class Consumer(Generic[K, V]):
    """Reads records of topics, alone or as a member of a group.

    ::

        async with Consumer(bootstrap_servers="127.0.0.1:9092", group_id="packing", topics=["orders"]) as consumer:
            async for record in consumer:
                print(record.value)

    Settings are those of `ConsumerConfig`, by dotted name in `config` or as keywords. When the consumer starts, it
    subscribes to `topics`, or to the topics whose whole name matches `pattern`. Raises ConfigError for invalid
    settings, and IllegalStateError for a listener without the methods of RebalanceListener. With enable.auto.commit the
    end of the block commits the offsets, unless an exception ends the block.

    In `Consumer[K, V]`, K and V are the types of keys and values. They follow from `key_deserializer` and
    `value_deserializer`; without these, keys and values are bytes. A key or value that is null is returned as None. At
    a record that cannot be deserialized, the consumer first returns the records before it. Then each call raises
    DeserializationError, until the program seeks past the record.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        /,
        *,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
        key_deserializer: DeserializerLike[K] | None = None,
        value_deserializer: DeserializerLike[V] | None = None,
        **settings: Unpack[ConsumerKeywords],
    ) -> None:
        serdes = without_none(key_deserializer=key_deserializer, value_deserializer=value_deserializer)
        self.config = ConsumerConfig.of(config, **settings, **serdes)
        self._deserialize = RecordDeserializer.of(self.config.key_deserializer, self.config.value_deserializer)
        self._pending: tuple[ConsumerRecord, asyncio.Task[ConsumerRecord[Any, Any]]] | None = None
        """A record whose deserializer has to wait, and the task in which it waits."""
        check_listener(listener)
        self._wish = (topics_of(topics), pattern if pattern is None else re.compile(pattern), listener)
        if self._wish[0] or pattern is not None:
            _check_subscription(self.config, self._wish[0] or None, pattern)
        self._subscription = SubscriptionState()
        self._read_committed = self.config.isolation_level == "read_committed"
        self._api_timeout_s = self.config.default_api_timeout_ms / 1000
        self._started = False
        self._open = False
        self._closed = False
        self._closing = Closing("the consumer")
        self._polling = False
        self._holder: Caller | None = None
        """The task or thread that received the last records and has not called again: it may still be processing them.
        """
        self._last_offsets: dict[TopicPartition, int] = {}
        """For each partition, the first offset of the records that were returned last."""
        self._last_record: ConsumerRecord[Any, Any] | None = None
        """The last record that the iteration has returned since `_last_offsets` was set."""
        self._handed_out = 0
        self._woken = False
        self._missing = MissingTopics(self.config.allow_auto_create_topics)
        self._positions: Positions
        self._thread: OwnThread

    # -- life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Coroutine[Any, Any, None]:
        # After an exception it is unknown which records were processed: a commit could skip unprocessed ones.
        return close_after(error, self.close(commit=kind is None, timeout_s=grace_s(self.config, error)))

    async def start(self) -> None:
        """Connect to the cluster. Raises KafkaTimeoutError if no broker responds within default.api.timeout.ms."""
        if self._started or self._closed:
            raise IllegalStateError("the consumer was already started or closed. It starts only once: make a new one")
        self._started = True
        self._thread = OwnThread("a consumer")
        self._loop = asyncio.get_running_loop()
        self._awake = asyncio.Event()
        cluster = Cluster(self.config, allow_auto_topic_creation=self.config.allow_auto_create_topics)
        self._cluster = cluster
        try:
            await cluster.start(self._api_timeout_s)
            if self._closed:
                raise IllegalStateError("the consumer was closed while it was starting")
        except BaseException:
            self._closed = True
            await cluster.close()
            raise
        self._fetcher = Fetcher(cluster, self.config, self._subscription, self._awake.set, self._deserialize)
        self._coordinator = None
        if self.config.group_id is not None:
            self._coordinator = ConsumerCoordinator(cluster, self.config, self._subscription, self._look_again)
        committed = self._coordinator.offsets if self._coordinator is not None else None
        self._positions = Positions(cluster, self.config, self._subscription, committed, self._look_again)
        self._repeated_refresh = RepeatedRefresh(cluster)
        cluster.on_metadata(self._metadata_changed)
        self._open = True
        topics, pattern, listener = self._wish
        if topics or pattern is not None:
            self.subscribe(topics or None, pattern=pattern, listener=listener)

    def close(self, *, commit: bool = True, timeout_s: float | None = None) -> Coroutine[Any, Any, None]:
        """Commit (if enable.auto.commit and `commit` are both true), leave the group, and close the connections.

        Safe to call twice. A call that comes while another one closes the consumer waits for it, and raises
        KafkaTimeoutError if that takes longer than `timeout_s`. If the consumer has a rebalance listener, such a call
        returns at once, because the listener may wait for the caller.

        If another task received the last returned records, they are committed only if that task has since asked for
        more or has ended without an exception. Otherwise, the task may still be processing them, or may have failed. A
        position that the program itself has committed stays committed.

        Waits for the broker for `timeout_s` at most (default: the shorter of request.timeout.ms and
        default.api.timeout.ms). If the broker does not answer in time, uncommitted records are read again later, and
        the group keeps this member until the session timeout. A rebalance listener that is still running after this
        time is cancelled. Without `timeout_s`, the listener gets max.poll.interval.ms more. Raises IllegalStateError if
        a rebalance listener makes this call while a poll waits for the listener.
        """
        return self._close(current_caller(), commit, timeout_s)

    async def _close(self, closer: Caller, commit: bool, timeout_s: float | None) -> None:
        if timeout_s is not None:
            timeout_s = duration_of(timeout_s, "timeout_s")
        if self._open and self._coordinator is not None:
            self._coordinator.refuse_in_listener("close()")
        was_open, self._closed = self._open and not self._closed, True
        if was_open:
            await self._closing.run(lambda: self._close_parts(closer, commit, timeout_s))
        elif self._closing.is_under_way and (self._coordinator is None or self._coordinator.listener is None):
            await self._closing.wait(timeout_s)

    async def _close_parts(self, closer: Caller, commit: bool, timeout_s: float | None) -> None:
        self._awake.set()
        self._take_back_unprocessed(closer)
        usual_s = min(self._api_timeout_s, self.config.request_timeout_ms / 1000)
        # A listener that runs longer than max.poll.interval.ms is expected never to return.
        scope = asyncio.timeout(usual_s + self.config.max_poll_interval_ms / 1000 if timeout_s is None else timeout_s)
        try:
            async with scope:
                await self._positions.close()
                if self._coordinator is not None:
                    bound_s = usual_s if timeout_s is None else min(usual_s, timeout_s)
                    await self._coordinator.close(commit=commit, timeout_s=bound_s)
        except TimeoutError:
            if not scope.expired():
                raise
            log.warning(
                "the consumer was closed before its rebalance listener returned or its group coordinator responded"
            )
        finally:
            self._open = False
            self._repeated_refresh.close()
            if self._pending is not None:
                self._pending[1].cancel()
            if self._coordinator is not None:
                await self._coordinator.stop()  # the timeout may have ended the block before close() was called
            await self._fetcher.close()
            await self._cluster.close()

    @property
    def is_open(self) -> bool:
        """Whether the consumer has been started, and `close` has not been called."""
        return self._open and not self._closed

    # -- what to read

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to these topics, or to the topics that match the pattern. Replaces the former subscription.

        The members of the group share the partitions of the topics. Raises IllegalStateError for a listener that lacks
        a method of RebalanceListener, or implements one as a generator.
        """
        self._check_open()
        check_listener(listener)
        _check_subscription(self.config, topics, pattern)
        names = [] if topics is None else topics_of(topics)
        assert self._coordinator is not None
        self._coordinator.listener = listener
        if topics is not None:
            self._subscription.subscribe(names)
            self._cluster.track_only({*names, *(one.topic for one in self._subscription.assigned)})
        else:
            assert pattern is not None
            self._subscription.subscribe_pattern(re.compile(pattern))
            self._cluster.track_all()
        self._look_again()

    async def unsubscribe(self) -> None:
        """Give up all partitions and leave the group. Raises IllegalStateError if a rebalance listener makes this call
        while a poll waits for the listener.
        """
        self._check_open()
        if self._coordinator is not None and self._subscription.automatic:
            self._coordinator.refuse_in_listener("unsubscribe()")
            await self._coordinator.leave("unsubscribed")
        self._subscription.unsubscribe()
        self._cluster.track_only(())

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions, without an assignment by the group."""
        self._check_open()
        wanted = partitions_of(partitions)
        self._subscription.assign_manually(wanted)
        self._cluster.track_only({one.topic for one in wanted})
        self._look_again()

    def subscription(self) -> set[str]:
        """Return the subscribed topics. With a pattern, return the topics that match it now."""
        return set(self._subscription.topics)

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that are assigned to this consumer now."""
        return set(self._subscription.assigned)

    # -- reading

    def poll(
        self, timeout_ms: float = 0, max_records: int | None = None
    ) -> Coroutine[Any, Any, list[ConsumerRecord[K, V]]]:
        """Return the next records, at most `max_records` (default: max.poll.records), or [] after the timeout.

        The records of each partition are in order. With a timeout of 0, the call does not wait for records. Raises
        ValueError for a timeout that is negative, infinite or NaN. Raises IllegalStateError if `max_records` is below
        1, if there is nothing to read, or if another task is polling. Also raises NoOffsetForPartitionError,
        OffsetOutOfRangeError, RecordCorruptError, DeserializationError, FencedInstanceError, InvalidTopicError,
        AuthorizationError, and the exceptions of a rebalance listener.
        """
        return self._read_list(current_caller(), timeout_ms, max_records)

    def getmany(
        self, timeout_ms: float = 0, max_records: int | None = None, partitions: Collection[tuple[str, int]] = ()
    ) -> Coroutine[Any, Any, dict[TopicPartition, list[ConsumerRecord[K, V]]]]:
        """Return the next records by partition, like `poll`. With `partitions`, return records of these partitions
        only.
        """
        return self._read(current_caller(), timeout_ms, max_records, partitions)

    async def _read_list(
        self, reader: Caller, timeout_ms: float, max_records: int | None
    ) -> list[ConsumerRecord[K, V]]:
        batches = await self._read(reader, timeout_ms, max_records)
        if len(batches) == 1:
            return next(iter(batches.values()))
        return [record for records in batches.values() for record in records]

    async def _read(
        self,
        reader: Caller,
        timeout_ms: float,
        max_records: int | None,
        partitions: Collection[tuple[str, int]] = (),
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        self._check_open()
        if self._polling:
            raise IllegalStateError("another task polls this consumer: only one task may poll at a time")
        if self._coordinator is not None:
            self._coordinator.refuse_in_listener("poll()")
        if not (self._subscription.automatic or self._subscription.assigned):
            raise IllegalStateError(
                "the consumer has nothing to read: subscribe() to topics, or assign() partitions, before it polls"
            )
        self._missing.raise_failure(self._subscription.wanted_topics())
        timeout_s = duration_of(timeout_ms, "timeout_ms") / 1000
        most = self.config.max_poll_records
        if max_records is not None:
            most = whole_number(max_records, "max_records", MAX_INT32, at_least=-MAX_INT32)
        if most < 1:
            raise IllegalStateError(f"max_records must be at least 1, not {most}")
        only = partitions_of(partitions)
        membership = self._coordinator.membership if self._coordinator is not None else None
        self._polling = True
        self._holder = None
        if membership is not None:
            membership.polled(still=True)
        try:
            batches = await self._poll(self._loop.time() + timeout_s, most, only)
            if batches:
                self._holder, self._last_record = reader, None
                self._last_offsets = {one: records[0].offset for one, records in batches.items()}
            return batches
        finally:
            self._polling = False
            if membership is not None:
                membership.polled()

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        return _Iteration(self)

    def __anext__(self) -> Coroutine[Any, Any, ConsumerRecord[K, V]]:
        """Wait for the next record, without a time limit, and return it. The iteration ends when the consumer is
        closed.
        """
        return self._next(current_caller())

    async def _next(self, reader: Caller) -> ConsumerRecord[K, V]:
        if self._closed:
            raise StopAsyncIteration
        if not self._open:
            self._check_open()
        self._handed_out += 1
        if self._handed_out % YIELD_EVERY == 0:
            await asyncio.sleep(0)
        coordinator = self._coordinator
        if not self._polling and (coordinator is None or not coordinator.urgent):
            record = self._fetcher.take_one()
            if record is not None:
                if coordinator is not None:
                    coordinator.membership.polled()
                self._holder, self._last_record = reader, record
                return record
        while True:
            try:
                records = await self._read_list(reader, self.config.request_timeout_ms, 1)
            except IllegalStateError:
                if self._closed:
                    raise StopAsyncIteration from None
                raise
            if records:
                return records[0]
            if self._closed:
                raise StopAsyncIteration

    async def _poll(
        self, deadline: float, most: int, only: frozenset[TopicPartition]
    ) -> dict[TopicPartition, list[ConsumerRecord[K, V]]]:
        coordinator = self._coordinator
        await asyncio.sleep(0)  # a loop of polls must not starve the tasks that fetch records and send heartbeats
        while True:
            self._awake.clear()
            may = coordinator is None or await coordinator.poll(deadline)
            self._check_open()
            if may:
                self._positions.find()
                try:
                    records = self._fetcher.take(most, only)
                except NotReadyError as pending:
                    records = {}
                    self._make_ready(pending.record)
                if records:
                    return records
            remaining = deadline - self._loop.time()
            if remaining <= 0 or self._woken:
                self._woken = False
                return {}
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(remaining, self._next_commit())):
                    await self._awake.wait()
            if self._closed:
                return {}

    def _make_ready(self, record: ConsumerRecord) -> None:
        """Start a task that deserializes the record, because a deserializer must first wait for a service such as a
        schema registry. The end of the task wakes the poll.

        If a task for the same record has already failed, raise its failure. If it is still running, do nothing.
        """
        assert self._deserialize is not None
        if self._pending is not None:
            known, task = self._pending
            if known is record and not task.done():
                return
            self._pending = None
            task.cancel()
            if known is record and not task.cancelled():  # else closing the consumer or other code has cancelled it
                task.result()
        task = asyncio.create_task(self._deserialize.waiting(record), name="deserialize a record")
        task.add_done_callback(self._made_ready)
        self._pending = record, task

    def _made_ready(self, task: asyncio.Task[ConsumerRecord[Any, Any]]) -> None:
        if not task.cancelled():
            task.exception()  # the next poll raises it
        self._awake.set()

    def _next_commit(self) -> float:
        config = self.config
        return config.auto_commit_interval_ms / 1000 + 0.001 if config.enable_auto_commit else 3600.0

    # -- positions

    async def position(self, partition: tuple[str, int], timeout_ms: float | None = None) -> int:
        """Return the offset of the next record that the consumer will return. Waits until the offset is known.

        Raises KafkaTimeoutError after the timeout (default: default.api.timeout.ms), or its subclass
        PendingTransactionError if the cause is a transaction that has not ended.
        """
        self._check_open()
        timeout_s = self._api_timeout_s if timeout_ms is None else duration_of(timeout_ms, "timeout_ms") / 1000
        return await self._positions.of(partition_of(partition), timeout_s)

    def seek(self, partition: tuple[str, int], offset: int | OffsetAndMetadata) -> None:
        """Continue at `offset`. The next fetch checks whether the offset is in the log.

        Raises IllegalStateError for a partition that is not assigned, and for a negative offset.
        """
        self._check_open()
        at, epoch = (offset.offset, offset.leader_epoch) if isinstance(offset, OffsetAndMetadata) else (offset, -1)
        if isinstance(at, int) and at < 0:
            raise IllegalStateError(f"offset {at} is negative: give an offset of at least 0")
        self._subscription.state(partition_of(partition)).seek(whole_number(at, "offset", MAX_INT64), epoch)
        self._look_again()

    async def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Continue at the first record of these partitions; without arguments, of all assigned partitions."""
        await self._seek_to(partitions, EARLIEST)

    async def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Continue at the end of these partitions (with read_committed: at the last stable offset); without arguments,
        of all assigned partitions.
        """
        await self._seek_to(partitions, LATEST)

    async def _seek_to(self, partitions: Collection[tuple[str, int]], timestamp: int) -> None:
        self._check_open()
        states = [self._subscription.state(one) for one in partitions or list(self._subscription.assigned)]
        for state in states:
            state.reset(timestamp)
        await self._positions.look_up_resets(states)
        self._look_again()

    def consumed_offset(self, partition: tuple[str, int]) -> OffsetAndMetadata:
        """Return the position in a partition, for a commit: the offset after the last returned record. Before the first
        record, it is the offset at which the consumer starts.

        Raises IllegalStateError if the partition is not assigned, or if its position is not known yet.
        """
        self._check_open()
        state = self._subscription.state(partition)
        if state.position is None:
            raise IllegalStateError(
                f"{TopicPartition(*partition)} has no consumed offset yet: call position() first, which waits for it"
            )
        return OffsetAndMetadata(state.position, "", state.leader_epoch, state.topic_id)

    def is_recreated(self, topic: str, topic_id: bytes) -> bool:
        """Return whether the consumer knows that the topic with this id was deleted and created again.

        An offset of the deleted topic must not be committed: it would skip records of the new topic.
        """
        self._check_open()
        return self._cluster.metadata.is_recreated(topic, topic_id)

    def wakeup(self) -> None:
        """Make a waiting poll return without records. If no poll is waiting, make the next one do so."""
        if self._started:
            self._thread.check()
        self._woken = True
        if self._open:
            self._awake.set()

    def forget_positions(self) -> None:
        """Drop the buffered records and continue from the committed offsets. Call this method after a transaction has
        been aborted.
        """
        self._check_open()
        for state in self._subscription.assigned.values():
            state.forget_position()
        self._positions.start_over()
        self._look_again()

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Stop returning records of these partitions, which stay assigned."""
        self._check_open()
        for state in [self._subscription.state(one) for one in partitions]:
            state.paused = True
        self._look_again()

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Undo `pause`: from now on, records of these partitions are returned again."""
        self._check_open()
        for state in [self._subscription.state(one) for one in partitions]:
            state.paused = False
        self._look_again()

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return {one for one, state in self._subscription.assigned.items() if state.paused}

    async def lag(self, partition: tuple[str, int]) -> int:
        """Return the number of offsets from a partition's position to the partition's end (with read_committed: to the
        last stable offset).
        """
        partition = partition_of(partition)
        position = await self.position(partition)
        state = self._subscription.state(partition)
        end = state.last_stable_offset if self._read_committed else state.high_watermark
        if end is None:
            end = (await self.end_offsets([partition]))[partition]
        return max(0, end - position)

    # -- offsets

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit these offsets, by default the current positions, and wait until they are durable.

        First waits for earlier commits in the background, so that none of them takes effect after this commit. Raises
        CommitFailedError if the partitions may belong to another member now, RebalanceInProgressError if the group
        rebalances, and KafkaTimeoutError after default.api.timeout.ms.
        """
        coordinator = self._with_group("commit()")
        values = coordinator.commits.consumed() if offsets is None else positions_of(offsets)
        self._count_as_processed(values)
        deadline = self._loop.time() + self._api_timeout_s
        await coordinator.commits.settle()
        left_s = max(deadline - self._loop.time(), 0.0)
        await coordinator.offsets.commit(values, in_group=self._subscription.automatic, timeout_s=left_s)

    def commit_async(
        self, offsets: Offsets | None = None, callback: CommitCallback | None = None
    ) -> asyncio.Future[None]:
        """Commit in the background without retries. The returned future and the callback receive the outcome.

        Without a callback, the event loop reports the failure of a future that is not awaited.
        """
        coordinator = self._with_group("commit_async()")
        if callback is not None:
            check_callback(callback, "callback")
        values = coordinator.commits.consumed() if offsets is None else positions_of(offsets)
        self._count_as_processed(values)
        task = coordinator.commits.in_background(values)

        if callback is not None:
            notify = callback

            def done(task: asyncio.Task[None]) -> None:
                notify(values, asyncio.CancelledError() if task.cancelled() else task.exception())

            task.add_done_callback(done)
        return task

    async def committed(self, *partitions: tuple[str, int]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offset of each partition, or None. Without arguments, do this for all assigned
        partitions.
        """
        coordinator = self._with_group("committed()")
        wanted = partitions_of(partitions) or list(self._subscription.assigned)
        return await coordinator.offsets.fetch(wanted, timeout_s=self._api_timeout_s)

    async def beginning_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition."""
        return await self._offsets_at(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return each partition's end offset: the high watermark or, with read_committed, the last stable offset."""
        return await self._offsets_at(partitions, LATEST)

    async def _offsets_at(self, partitions: Iterable[tuple[str, int]], at: int) -> dict[TopicPartition, int]:
        self._check_open()
        wanted = dict.fromkeys(partitions_of(partitions), at)
        found = await list_offsets(
            self._cluster, wanted, read_committed=self._read_committed, timeout_s=self._api_timeout_s
        )
        return {one: listed.offset for one, listed in found.items()}

    async def offsets_for_times(self, timestamps: ByPartition[int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the offset and the timestamp of each partition's first record at or after a time (in ms since the
        epoch), or None if there is no such record.
        """
        self._check_open()
        wanted = {partition_of(one): whole_number(at, "timestamp", MAX_INT64) for one, at in timestamps.items()}
        found = await list_offsets(
            self._cluster, wanted, read_committed=self._read_committed, timeout_s=self._api_timeout_s
        )
        return {
            one: OffsetAndTimestamp(listed.offset, listed.timestamp, listed.leader_epoch)
            if listed.offset >= 0
            else None
            for one, listed in found.items()
        }

    # -- group membership and metadata

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the group, member and generation of this consumer, for `Producer.send_offsets` (KIP-447).

        After the membership has ended, this method returns the same values, and the broker refuses the offsets. The
        generation is -1 before the consumer has joined the group, and for partitions from `assign`. The broker does not
        check the membership of a commit with generation -1.
        """
        return self._with_group("group_metadata()").group_metadata()

    def group_assignment(self) -> ConsumerAssignment:
        """Return this member's partitions and the generation that assigned them, for `Producer.init_transactions`.

        Call it in `RebalanceListener.on_partitions_assigned`, before you read the committed offsets. Raises
        RebalanceInProgressError if this consumer is not a member of its group now: poll first.
        """
        return self._with_group("group_assignment()").group_assignment()

    def enforce_rebalance(self, reason: str = "requested by the application") -> None:
        """Make the group rebalance at this member's next poll."""
        self._with_group("enforce_rebalance()").membership.request_rejoin(reason)

    async def until_rebalance(self) -> None:
        """Wait until the group rebalances or this consumer's membership has ended.

        The next poll then takes part in the rebalance, or raises the failure of the membership. Use it to interrupt
        long processing between two polls, so that the processing does not delay the group's rebalance. Do not call it
        while a poll is running.
        """
        coordinator = self._with_group("until_rebalance()")
        while not coordinator.rebalance_due:
            self._awake.clear()
            await self._awake.wait()
            self._check_open()

    async def partitions_for(self, topic: str) -> tuple[PartitionMetadata, ...]:
        """Return the partitions of a topic.

        Raises UnknownTopicError, without waiting for a timeout, if the topic does not exist and is not created. Raises
        KafkaTimeoutError after default.api.timeout.ms if the cluster does not respond.
        """
        self._check_open()
        return (await self._cluster.topic(topic, self._api_timeout_s, patient=False)).partitions

    # -- inside

    def _count_as_processed(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Count the records before these positions as processed, because the program itself commits the positions.

        `close` then does not go back before these positions.
        """
        if self._last_record is not None:
            self._last_offsets = {self._last_record.topic_partition: self._last_record.offset}
            self._last_record = None
        for partition in self._last_offsets.keys() & positions.keys():
            self._last_offsets[partition] = max(self._last_offsets[partition], positions[partition].offset)

    def _take_back_unprocessed(self, closer: Caller) -> None:
        """Move the positions back to before the last returned records, if a task or thread other than `closer` may
        still be processing those records.
        """
        holder, record = self._holder, self._last_record
        if holder is None or holder is closer or has_succeeded(holder):
            return
        offsets = self._last_offsets if record is None else {record.topic_partition: record.offset}
        for partition, offset in offsets.items():
            state = self._subscription.assigned.get(partition)
            if state is not None and state.position is not None and state.position > offset:
                state.seek(offset)

    def _with_group(self, what: str) -> ConsumerCoordinator:
        if not self._open:  # while closing, `_open` is still true: a rebalance listener may commit then
            self._check_open()
        self._thread.check()
        if self._coordinator is None:
            raise IllegalStateError(f"{what} needs a group: set group.id")
        return self._coordinator

    def _check_open(self) -> None:
        if not self._open or self._closed:
            what = "is closed" if self._closed else "is not started: use it as a context manager, or call start()"
            raise IllegalStateError(f"the consumer {what}")
        self._thread.check()

    def _metadata_changed(self, metadata: ClusterMetadata) -> None:
        self._missing.look(metadata, self._subscription.wanted_topics(), self._loop.time())
        self._look_again()

    def _look_again(self) -> None:
        if self._open and not self._closed:
            watched = () if self._coordinator is None else self._coordinator.watched_topics
            self._repeated_refresh.look({*self._subscription.wanted_topics(), *watched}, self._subscription.assigned)
            self._fetcher.wake()
            self._awake.set()


class _Iteration(Generic[K, V]):
    """An iteration over a consumer's records by one task.

    It notes its caller only once, because finding the current task takes about as long as taking a record.
    """

    __slots__ = ("_consumer", "_reader")

    def __init__(self, consumer: Consumer[K, V]) -> None:
        self._consumer = consumer
        self._reader = current_caller()

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[K, V]]:
        return _Iteration(self._consumer)

    def __anext__(self) -> Coroutine[Any, Any, ConsumerRecord[K, V]]:
        return self._consumer._next(self._reader)


def _check_subscription(
    config: ConsumerConfig, topics: Iterable[str] | None, pattern: str | re.Pattern[str] | None
) -> None:
    if (topics is None) == (pattern is None):
        raise IllegalStateError("subscribe() takes either topics or a pattern")
    if config.group_id is None:
        raise IllegalStateError("a subscription needs a group: set group.id, or use assign() instead")
