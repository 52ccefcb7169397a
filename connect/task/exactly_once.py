"""`ExactlyOnceDelivery`: produces records and their offsets in the same transactions (KIP-618).

The next instance of the task reads the offsets only after it has fenced this instance, so it continues exactly after
the last committed record. If the task requests an abort, the records are aborted, but their offsets are committed: the
task does not read the records again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from ...client.errors import CommitUnknownError, KafkaError
from ...client.producer import Producer
from ...client.producer.batch import Delivery as RecordDelivery
from ...protocol.errors import ErrorCode
from ..api.records import SourceRecord
from ..errors import ConnectError, FencedError, UnknownCommitError
from ..stores.ids import ConnectorTaskId
from ..stores.internal_topics import enqueue
from .boundaries import Boundary, End
from .delivery import Acknowledged, Copies, PendingOffsets
from .pipeline import ProducerRecord
from .topic_tracker import TopicTracker

log = logging.getLogger(__name__)

_ENDED_BY_OTHERS: Final = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
)
"""The errors of a producer whose transaction another client or the cluster has ended."""

_FENCED: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
"""The errors of a producer that was fenced. They have this meaning even if the result of its commit is unknown."""

_ASK_AGAIN_S: Final = 1.0
"""The wait, in seconds, before the task asks again for the result of a commit."""


def transactional_id(group_id: str, task: ConnectorTaskId) -> str:
    """Return the transactional id of a task; it is the same on every worker of the group."""
    return f"{group_id}-{task.connector}-{task.task}"


class StartChecks(Protocol):
    """The checks before a task starts."""

    async def fence_others(self) -> None:
        """Fence the tasks of earlier sets of task settings; called before the task fences its own predecessor."""

    async def still_wanted(self) -> None:
        """Raise SupersededError unless this worker must still run the task with these settings."""


class _Losses:
    """A context manager that raises ProducerLostError for errors after which only a new producer can continue.

    It raises FencedError if another client or the cluster has ended the transaction or fenced the producer. It raises
    UnknownCommitError if the result of a commit is unknown for any other reason. It is a class because it is entered
    for each record: a generator would take six times as long.
    """

    def __init__(self, task: ConnectorTaskId) -> None:
        self._task = task

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        if isinstance(error, CommitUnknownError) and error.code not in _FENCED:
            raise UnknownCommitError(
                f"task {self._task} does not know whether its last transaction was committed: "
                f"{error.message.rstrip('.')}. Restart the task: it continues after the last committed record"
            ) from error
        if isinstance(error, KafkaError) and error.code in _ENDED_BY_OTHERS:
            raise FencedError(
                f"task {self._task} was fenced: another instance has taken over, or its transaction was open longer "
                "than transaction.timeout.ms. In the second case, raise producer.override.transaction.timeout.ms, "
                "lower transaction.boundary.interval.ms, or use transaction.boundary=poll"
            ) from error


class ExactlyOnceDelivery:
    """The transactions of one task.

    `prepare` ensures that a topic exists. `committed` is called after each commit. If `keep_records` is set,
    `acknowledged` is called before `committed`, with the records of the transaction. `copies` copies the offsets to the
    worker's topic, if the connector has its own topic. `places` is `OffsetStore.places` for the offsets topic.
    `tracker` reports the topics that are written to; None if topics are not tracked.
    """

    def __init__(
        self,
        task: ConnectorTaskId,
        client: Mapping[str, Any],
        offsets_topic: str,
        boundary: Boundary,
        prepare: Callable[[str], Awaitable[None] | None],
        acknowledged: Callable[[Acknowledged], Awaitable[None]],
        committed: Callable[[], Awaitable[None]],
        *,
        keep_records: bool,
        copies: Copies | None = None,
        checks: StartChecks | None = None,
        places: Callable[[bytes], Mapping[int, int]] = lambda key: {},
        tracker: TopicTracker | None = None,
    ) -> None:
        self._task, self._boundary, self._checks, self._places = task, boundary, checks, places
        self._producer = Producer(dict(client))
        self._offsets_topic = offsets_topic
        self._prepare, self._acknowledged, self._committed = prepare, acknowledged, committed
        self._copies, self._tracker = copies, tracker
        self._offsets = PendingOffsets(task.connector)
        self._losses = _Losses(task)
        self._open = False
        self._keep = keep_records
        self._kept: list[tuple[SourceRecord, RecordDelivery | None]] = []

    async def start(self) -> None:
        """Fence earlier instances of the task, and abort the transactions that they left open.

        Then check that this worker must still run the task with these settings (`StartChecks.still_wanted`). If a
        worker changes the tasks in the meantime, either this check detects the change, or that worker fences this
        producer (KIP-618).
        """
        if self._checks is not None:
            await self._checks.fence_others()
        await self._producer.start()
        await self._producer.init_transactions()
        if self._checks is not None:
            await self._checks.still_wanted()

    async def send(self, record: SourceRecord, converted: ProducerRecord | None) -> None:
        """Produce the record in the open transaction; begin a transaction if none is open."""
        delivery = None
        if converted is not None:
            topic, partition, key, value, timestamp_ms, headers = converted
            if topic == self._offsets_topic:
                raise ConnectError(
                    "Source tasks may not produce to their own offsets topics when exactly-once support is enabled"
                )
            if (preparing := self._prepare(topic)) is not None:
                await preparing
            with self._losses:
                if not self._open:
                    await self._producer.begin_transaction()
                    self._open = True
                delivery = await self._producer.enqueue(
                    topic, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
                )
            if self._tracker is not None:
                self._tracker.sent(topic, delivery)
        if self._keep:
            self._kept.append((record, delivery))
        self._offsets.add(record.source_partition, record.source_offset)
        end = self._boundary.after_record(record)
        if end is not None:
            await self._end(end)

    async def batch_done(self) -> None:
        """End the transaction if the boundary requires it."""
        end = self._boundary.after_batch()
        if end is not None:
            await self._end(end)

    async def finish(self) -> None:
        """End the transaction if the boundary allows it."""
        end = self._boundary.at_end()
        if end is not None:
            await self._end(end)

    async def finish_failed(self, unsent: Iterable[SourceRecord]) -> None:
        """Commit nothing: the open transaction will be aborted."""

    def due_in_s(self) -> float | None:
        """Return the boundary's remaining seconds, or None if nothing waits for a commit."""
        return self._boundary.due_in_s() if self._open or self._offsets else None

    async def close(self) -> None:
        """Close the producer; an open transaction is aborted."""
        try:
            await self._producer.close()
        except KafkaError as error:
            log.warning("task %s: error while closing the producer: %s", self._task, error)

    async def _end(self, end: End) -> None:
        with self._losses:
            if end is End.ABORT and self._open:
                await self._producer.abort_transaction()
                self._open = False
                self._kept = [(record, None) for record, _ in self._kept]
            await self._commit()

    async def _commit(self) -> None:
        pairs: Sequence[tuple[bytes, bytes | None]] = self._offsets.take()
        if self._open or pairs:
            if not self._open:
                await self._producer.begin_transaction()
                self._open = True
            if self._copies is not None:
                pairs = await self._copies.before_commit(pairs)
            for key, value in pairs:
                await enqueue(self._producer, self._offsets_topic, key, value, self._places(key))
            await self._commit_known()
            self._open = False
            if self._copies is not None:
                self._copies.after_commit(pairs)
        kept, self._kept = self._kept, []
        if kept:
            await self._acknowledged([(record, None if sent is None else await sent) for record, sent in kept])
        await self._committed()

    async def _commit_known(self) -> None:
        """Commit the transaction. If the result is unknown, ask again until it is known or can no longer be learned.

        A new producer could not learn the result. If another worker has taken over the task, a new producer would also
        fence that worker's producer.
        """
        while True:
            try:
                return await self._producer.commit_transaction()
            except CommitUnknownError as error:
                if not error.can_ask_again:
                    raise
                log.warning(
                    "task %s does not know yet whether its last transaction was committed, and asks again: %s",
                    self._task,
                    error.message,
                )
            await asyncio.sleep(_ASK_AGAIN_S)
