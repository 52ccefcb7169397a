"""Handle Fetch: return batches as they are stored in the log, at once or when enough bytes are available (long poll).

The partitions come from the request or from an incremental session (fetch_session.py). fetch_wait.py implements
waiting. The response is read from the logs only when it can be sent, so that a connection has at most one response in
memory. A request or session with many partitions is checked in slices. While the request waits, a partition is checked
only when its log has advanced.

If the client sends another request on the same connection, the waiting Fetch is answered early. Otherwise the other
response would have to wait, because responses are sent in order. If the other request is a Fetch that also has to wait,
both wait. Apache Kafka reads the other request only after it has answered the first one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Final

from ...protocol.access_rules import AclOperation, AclResourceType
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ..api.fetch_session import FIRST_TOPIC_ID_VERSION, FetchPlan, FetchTarget
from ..api.fetch_wait import FetchWait
from ..api.handling import Answer, Deferred, RequestContext, handles
from ..log import Log, LogRead
from ..log.results import READ_COMMITTED, READ_UNCOMMITTED
from ..partitions.partition import Partition
from ..partitions.unused_log import UnusedLog
from ..scheduling.steps import SLICE, Steps

FIRST_VERSION_DIVERGING: Final = 12

_AT_ONCE_BYTES: Final = 1 << 20
"""After this many bytes of a response, the rest is read in steps, and the response is encoded in steps."""

_WORTH_OF_ABORTED: Final = 2048
"""The cost of an aborted transaction in the response, as a number of bytes of records."""

_NONE: Final = int(ErrorCode.NONE)

_READ: Final = 10
"""The cost of reading a partition in units of work, in addition to the cost of its bytes."""

_BYTES_PER_UNIT: Final = 4096


@handles(FetchRequest)
def handle(context: RequestContext, request: FetchRequest) -> Steps[Answer]:
    broker = context.broker
    plan = yield from broker.fetch_sessions.plan(request, context.api_version, broker.clock.monotonic())
    if context.usage is not None and context.usage.wait_s:
        yield from broker.fetch_sessions.drop_new(plan)
        return FetchResponse(session_id=plan.session_id if plan.incremental else 0)  # empty, as in Kafka (KIP-219)
    if len(plan.targets) > SLICE:
        context.rows(len(plan.targets))
    fetch = _Fetch(context, request, plan)
    if request.max_wait_ms <= 0 or request.min_bytes <= 0 or not plan.targets or (yield from fetch.is_enough()):
        return Deferred(None, fetch.answer)
    wait_s, login = request.max_wait_ms / 1000, context.connection.login
    if login is not None:
        wait_s = min(wait_s, max(login.left_s, 0))  # a client gets no record that is written after its session ends
    wait = broker.fetch_purgatory.wait(fetch.is_enough_with, wait_s, context.connection)
    yield from fetch.watch(wait)
    return Deferred(wait.done, fetch.answer, hurry=partial(broker.fetch_purgatory.end, wait))


class _Waiting:
    """A partition for which a Fetch waits.

    `available` is the number of bytes that the Fetch can read from the partition. `visible` is the end offset for
    readers at the time when these bytes were counted.
    """

    __slots__ = ("available", "target", "visible")

    def __init__(self, target: FetchTarget, visible: int, available: int) -> None:
        self.target = target
        self.visible = visible
        self.available = available


class _Fetch:
    """One Fetch request in progress.

    `missing` is the number of bytes by which the available data falls short of `min_bytes`. `uncreated` is the error if
    the log of a never-used partition could not be created. In this case the Fetch cannot wait for the partition's first
    record.
    """

    __slots__ = (
        "access",
        "by_id",
        "committed",
        "context",
        "isolation",
        "max_bytes",
        "missing",
        "plan",
        "request",
        "uncreated",
        "waiting",
    )

    def __init__(self, context: RequestContext, request: FetchRequest, plan: FetchPlan) -> None:
        self.context = context
        self.access = context.access if context.broker.access_control is not None else None
        self.request = request
        self.plan = plan
        self.by_id = context.api_version >= FIRST_TOPIC_ID_VERSION
        self.committed = request.isolation_level == 1
        self.isolation = READ_COMMITTED if self.committed else READ_UNCOMMITTED
        self.max_bytes = min(request.max_bytes, context.broker.config.fetch_max_bytes)
        self.missing = request.min_bytes
        self.uncreated: KafkaError | None = None
        self.waiting: dict[Log, _Waiting] = {}

    def _partition(self, target: FetchTarget) -> Partition:
        manager = self.context.broker.replica_manager
        topic = target.topic
        if self.access is not None:  # even in a session, because the client may have lost its rights since
            name = topic if isinstance(topic, str) else _name(self.context, topic)
            if name is not None:  # an unknown id gets its own error below
                self.access.require(AclOperation.READ, AclResourceType.TOPIC, name)
        if isinstance(topic, str):
            partition = manager.partition(topic, target.partition)
        else:
            partition = manager.partition_by_id(topic, target.partition)
        partition.check_leader_epoch(target.current_leader_epoch)
        return partition

    def is_enough(self) -> Steps[bool]:
        """Return whether to answer now, because `min_bytes` are available or a partition has an error or diverges."""
        for target in self.plan.targets:
            try:
                partition = self._partition(target)
                log = partition.readable
            except KafkaError:
                return True  # `read` raises the same error
            if isinstance(log, UnusedLog):
                try:
                    log = yield from partition.open()
                except KafkaError as error:
                    if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                        self.uncreated = error.anew()
                    return True
            visible = self._visible(log)
            available = self._available(target, log, visible)
            self.missing -= available
            if self.missing <= 0:
                return True
            self.waiting[log] = _Waiting(target, visible, available)
            yield 3
        return False

    def watch(self, wait: FetchWait) -> Steps[None]:
        """Let `wait` watch the logs. End the wait if a log has advanced meanwhile and there are enough bytes now."""
        for log, waiting in self.waiting.items():
            wait.watch(log)
            if self._visible(log) != waiting.visible and self.is_enough_with(log):
                wait.release()
                return
            yield 1

    def is_enough_with(self, log: Log) -> bool:
        """Return whether there are enough bytes to answer, now that this log has advanced."""
        waiting = self.waiting[log]
        self.missing += waiting.available
        waiting.visible = self._visible(log)
        waiting.available = self._available(waiting.target, log, waiting.visible)
        self.missing -= waiting.available
        return self.missing <= 0

    def _visible(self, log: Log) -> int:
        return log.last_stable_offset if self.committed else log.high_watermark

    def _available(self, target: FetchTarget, log: Log, visible: int) -> int:
        """Return how many bytes the partition has available, at most `missing`.

        If the partition has an error or its log diverges, return `missing`, so that the Fetch is answered at once.
        """
        offset = target.fetch_offset
        failed = log.failure is not None
        if offset < log.log_start_offset or (offset > log.log_end_offset and not failed):
            return self.missing
        if target.last_fetched_epoch >= 0 and self._divergence(target, log) is not None:
            return self.missing
        if not failed:
            if offset >= visible:
                return 0
            if self.missing <= 1:
                return self.missing
        try:
            readable = log.readable_bytes(offset, min(target.max_bytes, self.missing), self.isolation)
        except KafkaError:
            return self.missing
        # A failed log gets no more bytes, so a reader must not wait for more than its readable rest.
        return self.missing if failed and readable else readable

    def answer(self, _: None = None) -> FetchResponse | Steps[FetchResponse]:
        """Read the response from the logs. Return steps if it is large or needs data that is not in memory."""
        answer = _Answer(self)
        targets = iter(self.plan.targets)
        if len(self.plan.targets) > SLICE:
            return answer.in_steps(targets)
        for target in targets:
            reading = answer.add(target)
            if reading is not None:
                return answer.in_steps(chain((target,), targets))
            if answer.work > _AT_ONCE_BYTES:
                return answer.in_steps(targets)
        return answer.response

    def read(self, target: FetchTarget, left: int, nothing_yet: bool) -> PartitionData | Steps[PartitionData]:
        """Read at most `left` bytes of a partition, in steps if they are not in memory.

        If the response is still empty (`nothing_yet`), the first batch is read even if it is larger than `left`.
        """
        try:
            log = self._partition(target).readable
            if self.uncreated is not None and isinstance(log, UnusedLog):
                return _failed(target, self.uncreated)  # after an empty response, the client would not back off
            divergence = self._divergence(target, log) if target.last_fetched_epoch >= 0 else None
            if divergence is None:
                max_bytes = max(0, min(target.max_bytes, left))
                read = log.read(target.fetch_offset, max_bytes, self.isolation, min_one=nothing_yet)
            else:  # a reader whose log diverges may even be beyond the end of the partition's log
                read = log.read(log.high_watermark, 0, self.isolation, min_one=False)
        except KafkaError as error:
            return _failed(target, error)
        if isinstance(read, LogRead):
            return _data(target, read, divergence)
        return self._read_in_steps(target, read)

    def _read_in_steps(self, target: FetchTarget, reading: Steps[LogRead]) -> Steps[PartitionData]:
        try:
            return _data(target, (yield from reading), None)
        except KafkaError as error:
            return _failed(target, error)

    def _divergence(self, target: FetchTarget, log: Log | UnusedLog) -> EpochEndOffset | None:
        """Return where the reader's log diverges from the partition's log, or None (KIP-595)."""
        try:
            epoch, end_offset = log.end_offset_for_epoch(target.last_fetched_epoch)
        except KafkaError:
            return None  # the epoch may end after damage in the log; `read` raises if the offset does, too
        if epoch < 0 or (epoch == target.last_fetched_epoch and end_offset >= target.fetch_offset):
            return None
        return EpochEndOffset(epoch, end_offset)


def _name(context: RequestContext, topic_id: bytes) -> str | None:
    topic = context.broker.metadata.topic_by_id(topic_id)
    return None if topic is None else topic.name


def _failed(target: FetchTarget, error: KafkaError) -> PartitionData:
    return PartitionData(target.partition, int(error.code), -1, aborted_transactions=None, records=b"")


def _data(target: FetchTarget, read: LogRead, divergence: EpochEndOffset | None) -> PartitionData:
    aborted = None
    if read.aborted is not None:
        aborted = [AbortedTransaction(producer_id, first_offset) for producer_id, first_offset in read.aborted]
    data = PartitionData(
        target.partition,
        _NONE,
        read.high_watermark,
        read.last_stable_offset,
        read.log_start_offset,
        aborted_transactions=aborted,
        records=read.records,
    )
    if divergence is not None:
        data.diverging_epoch = divergence
    return data


class _Answer:
    """An unfinished response to a Fetch: it has `taken` bytes of records and may take `left` more bytes.

    `work` is the cost of what has been read, as a number of bytes of records.
    """

    __slots__ = ("fetch", "left", "nothing_yet", "response", "taken", "topics", "work")

    def __init__(self, fetch: _Fetch) -> None:
        self.fetch = fetch
        self.left = min(fetch.max_bytes, fetch.context.connection.answer_allowance)
        if fetch.context.usage is not None:
            self.left = fetch.context.usage.bytes_left(self.left)
        self.taken = 0
        self.work = 0
        self.nothing_yet = True
        self.response = FetchResponse(session_id=fetch.plan.session_id)
        self.topics: dict[str | bytes, FetchableTopicResponse] = {}

    def in_steps(self, targets: Iterator[FetchTarget]) -> Steps[FetchResponse]:
        """Read the remaining partitions, after this response has been admitted as a large one (large_requests.py)."""
        yield SLICE
        # Other responses may have used memory meanwhile, so the remaining memory is determined again.
        allowance = self.fetch.context.connection.answer_allowance
        self.left = max(0, min(self.left, allowance - self.taken))
        for target in targets:
            before = self.work
            reading = self.add(target)
            if reading is not None:
                yield from reading
            yield _READ + (self.work - before) // _BYTES_PER_UNIT
        return self.response

    def add(self, target: FetchTarget) -> Steps[None] | None:
        """Read one partition; return the steps that read it if its data is not in memory, else None."""
        data = self.fetch.read(target, self.left, self.nothing_yet)
        if isinstance(data, PartitionData):
            self._put(target, data)
            return None
        return self._add_in_steps(target, data)

    def _add_in_steps(self, target: FetchTarget, reading: Steps[PartitionData]) -> Steps[None]:
        self._put(target, (yield from reading))

    def _put(self, target: FetchTarget, data: PartitionData) -> None:
        plan = self.fetch.plan
        session = plan.session
        if data.records:
            self.left -= len(data.records)
            self.taken += len(data.records)
            self.work += len(data.records)
            if data.aborted_transactions:
                self.work += _WORTH_OF_ABORTED * len(data.aborted_transactions)
            self.nothing_yet = False
            if session is not None:
                session.served(target)
        if session is not None and not target.worth_telling(data) and plan.incremental:
            return
        topic = self.topics.get(target.topic)
        if topic is None:
            topic = FetchableTopicResponse()
            if isinstance(target.topic, str):
                topic.topic = target.topic
            else:
                topic.topic_id = target.topic
            self.topics[target.topic] = topic
            self.response.responses.append(topic)
        topic.partitions.append(data)
