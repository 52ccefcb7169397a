"""Fetch: batches as they lie in the log, at once or when enough of them are there (long poll).

What is fetched comes from the request or from an incremental session (fetch_session.py), waiting is fetch_wait.py's.
The answer is read from the logs at the moment it can leave, so only one is in memory per connection.
"""

from __future__ import annotations

from typing import Final

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ..fetch_session import FIRST_TOPIC_ID_VERSION, FetchPlan, FetchTarget
from ..handling import Deferred, Reply, RequestContext, handles
from ..log import IsolationLevel, PartitionLog
from ..partition import Partition

FIRST_VERSION_DIVERGING: Final = 12


@handles(FetchRequest)
def handle(context: RequestContext, request: FetchRequest) -> Reply:
    broker = context.broker
    plan = broker.fetch_sessions.plan(request, context.api_version, broker.clock.monotonic())
    fetch = _Fetch(context, request, plan)
    if request.max_wait_ms <= 0 or not plan.targets or fetch.enough():
        return Deferred(None, fetch.answer)
    wait = broker.fetch_purgatory.wait(fetch.logs, fetch.enough, request.max_wait_ms / 1000, context.connection)
    return Deferred(wait, fetch.answer)


class _Fetch:
    """One Fetch request being answered."""

    __slots__ = ("by_id", "committed", "context", "isolation", "logs", "max_bytes", "plan", "request")

    def __init__(self, context: RequestContext, request: FetchRequest, plan: FetchPlan) -> None:
        self.context = context
        self.request = request
        self.plan = plan
        self.by_id = context.api_version >= FIRST_TOPIC_ID_VERSION
        self.committed = request.isolation_level == 1
        self.isolation = IsolationLevel.READ_COMMITTED if self.committed else IsolationLevel.READ_UNCOMMITTED
        self.max_bytes = min(request.max_bytes, context.broker.config.fetch_max_bytes)
        self.logs: list[PartitionLog] = []

    def _partition(self, target: FetchTarget) -> Partition:
        manager = self.context.broker.replica_manager
        topic = target.topic
        if isinstance(topic, str):
            partition = manager.partition(topic, target.partition)
        else:
            partition = manager.partition_by_id(topic, target.partition)
        partition.check_leader_epoch(target.current_leader_epoch)
        return partition

    def enough(self) -> bool:
        """Whether the answer should not wait: `min_bytes` are there, or an error or a divergence is to be told."""
        logs: list[PartitionLog] = []
        min_bytes = self.request.min_bytes
        found = 0
        for target in self.plan.targets:
            try:
                log = self._partition(target).log
            except KafkaError:
                return True
            offset = target.fetch_offset
            if log.closed or not log.log_start_offset <= offset <= log.log_end_offset:
                return True
            if target.last_fetched_epoch >= 0 and self._divergence(target, log) is not None:
                return True
            visible = log.last_stable_offset if self.committed else log.high_watermark
            if offset < visible:
                if min_bytes <= 1:
                    return True
                # How many bytes lie between two offsets only the log knows: read them, but not more than count.
                wanted = min(target.max_bytes, min_bytes - found)
                try:
                    read = log.read(offset, wanted, self.isolation)
                except KafkaError:
                    return True
                more = read.next_offset < visible  # then the next batch went past what was wanted
                found += max(len(read.records), wanted) if more else len(read.records)
                if found >= min_bytes:
                    return True
            logs.append(log)
        self.logs = logs
        return min_bytes <= 0

    def answer(self, _: None = None) -> FetchResponse:
        """Read what is there now."""
        response = FetchResponse(session_id=self.plan.session_id)
        topics: dict[str | bytes, FetchableTopicResponse] = {}
        left = self.max_bytes
        nothing_yet = True
        session = self.plan.session
        for target in self.plan.targets:
            data = self._read(target, left, nothing_yet)
            if data.records:
                left -= len(data.records)
                nothing_yet = False
                if session is not None:
                    session.served(target)
            if session is not None and not target.worth_telling(data) and self.plan.incremental:
                continue
            topic = topics.get(target.topic)
            if topic is None:
                topic = FetchableTopicResponse()
                if isinstance(target.topic, str):
                    topic.topic = target.topic
                else:
                    topic.topic_id = target.topic
                topics[target.topic] = topic
                response.responses.append(topic)
            topic.partitions.append(data)
        return response

    def _read(self, target: FetchTarget, left: int, nothing_yet: bool) -> PartitionData:
        try:
            log = self._partition(target).log
            divergence = self._divergence(target, log) if target.last_fetched_epoch >= 0 else None
            max_bytes = 0 if divergence is not None else max(0, min(target.max_bytes, left))
            read = log.read(target.fetch_offset, max_bytes, self.isolation, min_one=nothing_yet and divergence is None)
        except KafkaError as error:
            return PartitionData(target.partition, int(error.code), -1, aborted_transactions=None, records=b"")
        aborted = None
        if read.aborted is not None:
            aborted = [AbortedTransaction(producer_id, first_offset) for producer_id, first_offset in read.aborted]
        data = PartitionData(
            target.partition,
            int(ErrorCode.NONE),
            read.high_watermark,
            read.last_stable_offset,
            read.log_start_offset,
            aborted_transactions=aborted,
            records=read.records,
        )
        if divergence is not None:
            data.diverging_epoch = divergence
        return data

    def _divergence(self, target: FetchTarget, log: PartitionLog) -> EpochEndOffset | None:
        """Where the reader's log and ours parted, if they did (KIP-595: truncation detection in Fetch)."""
        epoch, end_offset = log.end_offset_for_epoch(target.last_fetched_epoch)
        if epoch < 0 or (epoch == target.last_fetched_epoch and end_offset >= target.fetch_offset):
            return None
        return EpochEndOffset(epoch, end_offset)
