"""`Processor`: consume, transform, produce, with the offsets in the same transaction: every input counts exactly once.

Owns one consumer (read_committed, no automatic commits) and one transactional producer, and the order of things:

* The producer is initialised before the consumer joins: what a dead predecessor left open is decided before the
committed
  offsets are read, and they are read (waiting for undecided transactions) before the first fetch.
* A batch is gathered first, its transaction begins afterwards. Rebalances happen only while gathering, so no
transaction is
  ever open when partitions are given up; what was gathered of them is dropped.
* The group metadata (member, generation) is taken when the batch is complete, and without a generation nothing is
  committed: an outdated member's offsets are refused by the coordinator, and with them its records (KIP-447).
* After anything but a known commit the positions go back to the committed offsets and what is buffered is dropped.
Where
  the state of the producer is not known to be clean, it is replaced, which decides what was open.

Failures that pass (brokers restarting, rebalances, aborts) are retried without end; a function that raises ends
`run()`.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from ...protocol.errors import ErrorCode, KafkaError
from ..backoff import ExponentialBackoff
from ..consumer import Consumer, ConsumerRecord, RebalanceListener
from ..errors import (
    AbortableError,
    AuthorizationError,
    CommitUnknownError,
    ConfigError,
    FatalError,
    IllegalStateError,
    InvalidTopicError,
    ProducerFencedError,
    RecordTooLargeError,
    UnsupportedVersionError,
)
from ..producer import Producer
from ..values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from .transaction import OutputRecord, ProcessorTransaction

log = logging.getLogger(__name__)

Process = Callable[[list[ConsumerRecord], ProcessorTransaction], Awaitable[None] | None]
Transform = Callable[[ConsumerRecord], Iterable[OutputRecord] | Awaitable[Iterable[OutputRecord]]]

IDLE_POLL_MS: Final = 1000
MAX_FENCES: Final = 5
FENCE_WINDOW_S: Final = 60.0
"""A transaction that timed out fences its producer, too. So a fenced producer is replaced, but two processors with one
transactional.id would go on fencing each other: beyond so many fences in this time ProducerFencedError is raised."""
MAX_HOPELESS: Final = 3
"""Aborts in a row for a reason that does not pass by itself (a record too large); then the error is raised."""

_OF_THE_GROUP: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)


@dataclass(slots=True)
class Metrics:
    """Counters since the processor was made."""

    records_in: int = 0
    """Input records of committed transactions."""
    records_out: int = 0
    """Output records of committed transactions."""
    commits: int = 0
    aborts: int = 0
    reinitialisations: int = 0
    """How often the producer was replaced."""
    rebalances: int = 0


class _Batch:
    """Gathered records, and what their offsets are committed as."""

    __slots__ = ("offsets", "records")

    def __init__(self) -> None:
        self.records: list[ConsumerRecord] = []
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = {}

    def drop(self, partitions: set[TopicPartition]) -> None:
        self.records = [record for record in self.records if record.topic_partition not in partitions]
        for partition in partitions:
            self.offsets.pop(partition, None)


class Processor(RebalanceListener):
    """`async with Processor(bootstrap_servers=…, topics=…, group_id=…, transactional_id=…, process=f) as p: await
    p.run()`

    `process(records, transaction)` is called once per batch and sends with `transaction.send`; or `transform(record)`
    returns the output records of one record. Both may be plain or async; they may be called again with the same records
    after an abort, so their effects belong into the transaction only. `transactional_id` names this worker: each worker
    has its own, and keeps it over restarts. A batch ends with `max_batch_records`, or `max_batch_ms` after its first
    record. `settings` are for both clients, `consumer_settings` and `producer_settings` for one of them. Without
    committed offsets it begins with the earliest record, unless auto.offset.reset says otherwise.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        /,
        *,
        group_id: str,
        transactional_id: str,
        topics: Iterable[str] = (),
        pattern: str | None = None,
        process: Process | None = None,
        transform: Transform | None = None,
        max_batch_records: int = 1000,
        max_batch_ms: int = 100,
        consumer_settings: Mapping[str, object] | None = None,
        producer_settings: Mapping[str, object] | None = None,
        on_progress: Callable[[Metrics], None] | None = None,
        **settings: object,
    ) -> None:
        if (process is None) == (transform is None):
            raise ConfigError("process", "give either process or transform", "transform")
        if max_batch_records < 1:
            raise ConfigError("max_batch_records", f"{max_batch_records} is below 1")
        self._process = process if process is not None else _each(transform)
        self._max_records = max_batch_records
        self._max_s = max_batch_ms / 1000
        self._on_progress = on_progress
        both = {**(config or {}), **settings}
        fixed = {"isolation_level": "read_committed", "enable_auto_commit": False, "group_id": group_id}
        reading = both | _without(consumer_settings, fixed) | fixed
        if not {"auto.offset.reset", "auto_offset_reset"} & reading.keys():
            reading["auto_offset_reset"] = "earliest"  # every input counts
        self._consumer = Consumer(reading, topics=topics, pattern=pattern, listener=self)
        self._begins_at_end = self._consumer.config.auto_offset_reset == "latest"
        self._begun: set[TopicPartition] = set()
        self._beginnings: dict[TopicPartition, int] = {}
        own = {"transactional_id": transactional_id}
        self._producer_settings = both | _without(producer_settings, own) | own
        self._producer = Producer(self._producer_settings)
        self._producer_ready = False
        self._batch = _Batch()
        self._backoff = ExponentialBackoff(self._consumer.config.retry_backoff_ms, 1000)
        self._fences: deque[float] = deque()
        self._hopeless = 0
        self._stopping = asyncio.Event()
        self._dirty = False
        self._running = False
        self.metrics = Metrics()

    # -- life

    async def __aenter__(self) -> Self:
        """Reach the cluster, and initialise the producer: raises KafkaTimeoutError when that takes too long."""
        try:
            await self._producer.start()
            await self._producer.init_transactions()
            self._producer_ready = True
            await self._consumer.start()
        except BaseException:
            await self._producer.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._producer.close()  # aborts what is open, before the partitions are given up
        except KafkaError as failure:
            log.warning("while closing the producer: %s", failure)
        finally:
            await self._consumer.close(commit=False)

    def stop(self) -> None:
        """Let the transaction under way end and `run()` return. May be a signal handler of the event loop."""
        self._stopping.set()
        self._consumer.wakeup()

    async def run(self) -> None:
        """Process until `stop()` is called.

        Raises what the function raised, ProducerFencedError, FencedInstanceError, AuthorizationError and so on; then,
        and when it is cancelled, the transaction under way is aborted.
        """
        if self._running:
            raise IllegalStateError("run() is running already")
        self._running = True
        failures = 0
        try:
            while not self._stopping.is_set():
                try:
                    if self._dirty and not await self._unless_stopped(self._recover()):
                        break
                    await self._gather()
                    if self._batch.records:
                        await self._transact()
                    failures = 0
                except KafkaError as error:
                    self._judge(error)
                    await self._unless_stopped(asyncio.sleep(self._backoff(failures)))
                    failures += 1
        except BaseException:
            # Another run() begins where the group is: what was taken out, and what is open, may be anything.
            self._batch, self._dirty = _Batch(), True
            raise
        finally:
            self._running = False

    # -- gathering

    async def _gather(self) -> None:
        """Fill the batch; returns with an empty one after a while without records."""
        consumer, batch = self._consumer, self._batch
        loop = asyncio.get_running_loop()
        end: float | None = None
        while not self._stopping.is_set() and len(batch.records) < self._max_records:
            wait_ms = IDLE_POLL_MS if end is None else (end - loop.time()) * 1000
            if wait_ms < 0:
                break
            arrived = await consumer.getmany(wait_ms, self._max_records - len(batch.records))
            for partition, records in arrived.items():
                batch.records += records
                batch.offsets[partition] = consumer.consumed_offset(partition)
            if self._begins_at_end:
                await self._begin(arrived)
            if end is None:
                if not arrived:
                    break
                end = loop.time() + self._max_s

    async def _begin(self, arrived: Mapping[TopicPartition, list[ConsumerRecord]]) -> None:
        """Commit where a partition begins that the group has no offset of (auto.offset.reset=latest).

        Otherwise going back to the committed offsets after an abort would mean the end again, behind its records.
        """
        consumer = self._consumer
        for partition in consumer.assignment() - self._begun:
            if partition in arrived:
                self._beginnings.setdefault(partition, arrived[partition][0].offset)
            else:
                with contextlib.suppress(IllegalStateError):  # its position is not known yet
                    self._beginnings.setdefault(partition, consumer.consumed_offset(partition).offset)
        if not self._beginnings:
            return
        committed = await consumer.committed(*self._beginnings)
        await consumer.commit({one: at for one, at in self._beginnings.items() if committed[one] is None})
        self._begun |= self._beginnings.keys()
        self._beginnings.clear()

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        self.metrics.rebalances += 1

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        self._batch.drop(partitions)
        self._begun -= partitions
        for partition in partitions:
            self._beginnings.pop(partition, None)

    # -- the transaction

    async def _transact(self) -> None:
        """One transaction: the function's records and the batch's offsets, committed together."""
        batch, producer = self._batch, self._producer
        group = self._consumer.group_metadata()
        if group.generation_id < 0:
            raise AbortableError(ErrorCode.UNKNOWN_MEMBER_ID, "the membership is over: what was gathered is dropped")
        await producer.begin_transaction()
        self._producer_ready = False
        transaction = ProcessorTransaction(producer)
        try:
            result = self._process(batch.records, transaction)
            if inspect.isawaitable(result):
                await result
            await transaction.finish()
        except KafkaError:
            raise
        except BaseException:
            await self._abort()
            raise
        await self._commit(producer, batch, group)
        self._producer_ready = True
        self._batch = _Batch()
        self._hopeless = 0
        metrics = self.metrics
        metrics.commits += 1
        metrics.records_in += len(batch.records)
        metrics.records_out += transaction.records
        if self._on_progress is not None:
            self._on_progress(metrics)

    async def _commit(self, producer: Producer, batch: _Batch, group: ConsumerGroupMetadata) -> None:
        try:
            await producer.send_offsets_to_transaction(dict(batch.offsets.items()), group)
            attempt = 0
            while True:
                try:
                    return await producer.commit_transaction()
                except CommitUnknownError as error:
                    # Only the coordinator knows; a new producer's initialisation would decide it as well.
                    if attempt >= MAX_HOPELESS:
                        raise
                    log.warning("whether a transaction is committed is not known yet, asking again: %s", error.message)
                    await asyncio.sleep(self._backoff(attempt))
                    attempt += 1
        except asyncio.CancelledError:
            await self._abort()
            raise

    async def _abort(self) -> None:
        """Abort on the way out (an exception of the function, a cancellation); failures are left to the timeout."""
        with contextlib.suppress(KafkaError):
            await self._producer.abort_transaction()  # cancelled again, closing the producer aborts
            self.metrics.aborts += 1
            self._producer_ready = True

    # -- after a failure

    def _judge(self, error: KafkaError) -> None:
        """Raise what does not pass by itself; else note it, `_recover` does the rest."""
        if isinstance(error, ProducerFencedError):
            now = asyncio.get_running_loop().time()
            self._fences.append(now)
            while self._fences[0] < now - FENCE_WINDOW_S:
                self._fences.popleft()
            if len(self._fences) > MAX_FENCES:
                raise error
        elif isinstance(
            error,
            AuthorizationError
            | InvalidTopicError
            | UnsupportedVersionError
            | ConfigError
            | IllegalStateError
            | RecordTooLargeError,
        ) or (isinstance(error, FatalError) and self._producer_ready):
            raise error
        elif not (error.retriable or isinstance(error, CommitUnknownError) or error.code in _OF_THE_GROUP):
            self._hopeless += 1
            if self._hopeless > MAX_HOPELESS:
                raise error
        log.warning("transaction under way is given up, going back to the committed offsets: %s", error)
        self._batch = _Batch()
        self._dirty = True

    async def _recover(self) -> None:
        """Have a clean producer, and positions at the committed offsets, after a failure."""
        if not self._producer_ready:
            await self._clean_producer()
        self._batch = _Batch()
        self._consumer.forget_positions()
        for partition, offset in self._beginnings.items():
            self._consumer.seek(partition, offset)  # nothing of it is committed yet
        self._dirty = False

    async def _unless_stopped(self, work: Coroutine[None, None, None]) -> bool:
        """Do what may take long while brokers are away; False when `stop` ended it."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                return False
            task.result()
            return True
        finally:
            task.cancel()
            stopped.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)

    async def _clean_producer(self) -> None:
        try:
            await self._producer.abort_transaction()
            self._producer_ready = True
            self.metrics.aborts += 1
        except (KafkaError, IllegalStateError) as error:
            log.info("the producer is replaced: %s", error)
            await self._replace_producer()

    async def _replace_producer(self) -> None:
        """Make a new producer with the same transactional.id: its initialisation decides what the old one left open."""
        self.metrics.reinitialisations += 1
        with contextlib.suppress(KafkaError):
            await self._producer.close()
        self._producer = Producer(self._producer_settings)
        await self._producer.start()
        await self._producer.init_transactions()
        self._producer_ready = True


def _without(settings: Mapping[str, object] | None, fixed: Mapping[str, object]) -> dict[str, object]:
    given = dict(settings or {})
    for name in given:
        if name.replace(".", "_") in fixed:
            raise ConfigError(name.replace("_", "."), "is set by the processor itself: leave it out")
    return given


def _each(transform: Transform | None) -> Process:
    assert transform is not None

    async def process(records: list[ConsumerRecord], transaction: ProcessorTransaction) -> None:
        for record in records:
            made = transform(record)
            outputs = await made if inspect.isawaitable(made) else made
            for output in outputs:
                transaction.send(*output)

    return process
