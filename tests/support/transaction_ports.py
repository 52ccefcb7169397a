"""The ports of the transaction coordinator in memory: a state log, partition logs and a clock, which tests drive.

`SimulatedStateLog` and `SimulatedPartitions` know what is durable, so that a test can crash them. Without
`flush_on_ask`, an append becomes durable only when the test calls `flush()`, and `crash()` removes the rest. Both keep
the contracts of StateLog and PartitionGateway, and nothing more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import structlog
from oncelog.broker.config import BrokerConfig
from oncelog.broker.coordinator.state_log import partition_for_key
from oncelog.broker.coordinator.transaction.coordinator import TransactionCoordinator
from oncelog.broker.coordinator.transaction.gateway import OpenTransaction, ProducerInLog
from oncelog.broker.coordinator.transaction.state import TopicPartition
from oncelog.broker.observability.metrics import Metrics
from oncelog.broker.partitions.markers import Marker
from oncelog.broker.scheduling.patient_timers import PatientTimers
from oncelog.broker.system.ports import Clock
from oncelog.protocol.control_records import control_batch
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.records import Record, encode_batch
from structlog.testing import LogCapture


class FakeClock:
    """A clock that stands still until the test moves it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.time_ms = now_ms

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic(self) -> float:
        return self.time_ms / 1000

    def advance(self, ms: int) -> None:
        self.time_ms += ms


class Flushing:
    """Appends that become durable in order: when durability is requested, or only when the test calls `flush`."""

    def __init__(self, flush_on_ask: bool) -> None:
        self.flush_on_ask = flush_on_ask
        self.end = 0
        self.durable_end = 0
        self.waiting: list[tuple[int, asyncio.Future[None]]] = []

    def ask(self, end: int) -> asyncio.Future[None] | None:
        if self.flush_on_ask or end <= self.durable_end:
            self.durable_end = max(self.durable_end, end) if not self.flush_on_ask else self.end
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append((end, future))
        return future

    def flush(self) -> None:
        self.durable_end = self.end
        waiting, self.waiting = self.waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_result(None)

    def fail(self) -> None:
        waiting, self.waiting = self.waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))


@dataclass(slots=True)
class WrittenRecord:
    """A record of a simulated state log. `commit` is set for a marker, whose key and value have no meaning."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    producer_id: int = -1
    is_transactional: bool = False
    commit: bool | None = None

    def batch(self) -> bytes:
        """Return a batch with this record alone, as a real log stores it."""
        if self.commit is not None:
            return control_batch(self.commit, 0, self.producer_id, 0, self.timestamp_ms, self.offset)
        return encode_batch(
            [Record(self.offset, self.timestamp_ms, self.key, self.value)],
            base_offset=self.offset,
            producer_id=self.producer_id,
            producer_epoch=0 if self.producer_id >= 0 else -1,
            transactional=self.is_transactional,
        )


class SimulatedStateLog:
    """A StateLog in memory, whose records have one order over all partitions."""

    def __init__(self, partitions: int = 4, flush_on_ask: bool = True) -> None:
        self.partitions = partitions
        self.records: list[tuple[int, WrittenRecord]] = []
        self.disk = Flushing(flush_on_ask)
        self.refuse: ErrorCode | None = None

    def partition_for(self, key: str) -> int:
        return partition_for_key(key, self.partitions)

    def existing(self) -> list[int]:
        return sorted({partition for partition, _ in self.records})

    def keep_room(self, partition: int, size: int) -> Callable[[], None]:
        return lambda: None

    def largest_batch(self) -> int:
        return 1 << 40

    def replay(self, partition: int) -> Iterator[bytes]:
        return iter([record.batch() for where, record in self.records if where == partition])

    def append(
        self,
        partition: int,
        records: Iterable[tuple[bytes, bytes | None]],
        *,
        timestamp_ms: int,
        essential: bool = False,
    ) -> SimpleNamespace:
        if self.refuse is not None:
            raise KafkaError(self.refuse)
        base = self.disk.end
        for key, value in records:
            self.records.append((partition, WrittenRecord(self.disk.end, timestamp_ms, key, value)))
            self.disk.end += 1
        return SimpleNamespace(base_offset=base, last_offset=self.disk.end - 1)

    def pending_flush(self, partition: int, end_offset: int) -> asyncio.Future[None] | None:
        return self.disk.ask(end_offset)

    def crash(self, kept: int) -> None:
        """Lose the records that are not durable, except for the first `kept` of them."""
        survivors = min(self.disk.end, self.disk.durable_end + kept)
        self.records = [entry for entry in self.records if entry[1].offset < survivors]
        self.disk.end = self.disk.durable_end = survivors
        self.disk.waiting = []


@dataclass
class LogEvent:
    """A batch (`decision` is None) or a marker in a simulated partition."""

    producer_id: int
    producer_epoch: int
    transaction: object
    decision: bool | None = None


@dataclass
class SimulatedPartition:
    """The content of one partition's log, and how much of it is durable."""

    events: list[LogEvent] = field(default_factory=list)
    durable: int = 0

    def open_by_producer(self) -> dict[int, list[LogEvent]]:
        """Return the batches that have no marker yet, by producer id."""
        opened: dict[int, list[LogEvent]] = {}
        for event in self.events:
            if event.decision is None:
                opened.setdefault(event.producer_id, []).append(event)
            else:
                opened.pop(event.producer_id, None)
        return opened

    def decisions(self) -> dict[object, set[bool]]:
        """Return all decisions about each transaction that was ended here."""
        opened: dict[int, list[LogEvent]] = {}
        decided: dict[object, set[bool]] = {}
        for event in self.events:
            if event.decision is None:
                opened.setdefault(event.producer_id, []).append(event)
            else:
                for batch in opened.pop(event.producer_id, []):
                    decided.setdefault(batch.transaction, set()).add(event.decision)
        return decided


class SimulatedPartitions:
    """A PartitionGateway in memory. Markers for the partitions in `fail` get the error given there."""

    def __init__(self, clock: Clock, flush_on_ask: bool = True) -> None:
        self.clock = clock
        self.logs: dict[TopicPartition, SimulatedPartition] = {}
        self.flush_on_ask = flush_on_ask
        self.waiting: list[asyncio.Future[None]] = []
        self.fail: dict[TopicPartition, ErrorCode] = {}
        self.deleted: set[TopicPartition] = set()
        self.written: list[Marker] = []

    def produce(self, partition: TopicPartition, producer_id: int, producer_epoch: int, transaction: object) -> None:
        """Append a batch. Raises INVALID_PRODUCER_EPOCH if the log knows a newer epoch, as a real log does."""
        log = self.logs.setdefault(partition, SimulatedPartition())
        if any(event.producer_id == producer_id and event.producer_epoch > producer_epoch for event in log.events):
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        log.events.append(LogEvent(producer_id, producer_epoch, transaction))
        if self.flush_on_ask:
            log.durable = len(log.events)

    async def write_markers(self, markers: list[Marker]) -> list[dict[TopicPartition, ErrorCode]]:
        results = []
        for marker in markers:
            self.written.append(marker)
            codes = {}
            for partition in marker.partitions:
                codes[partition] = self._append(partition, marker)
            results.append(codes)
        if self.flush_on_ask:
            await asyncio.sleep(0)
            self.flush()
        else:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.waiting.append(future)
            await future
        return results

    def _append(self, partition: TopicPartition, marker: Marker) -> ErrorCode:
        if partition in self.fail:
            return self.fail[partition]
        if partition in self.deleted:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        log = self.logs.setdefault(partition, SimulatedPartition())
        opened = log.open_by_producer().get(marker.producer_id)
        if opened:
            epoch = opened[-1].producer_epoch
            if marker.producer_epoch < epoch or (marker.transaction_version >= 2 and marker.producer_epoch == epoch):
                return ErrorCode.INVALID_PRODUCER_EPOCH
        log.events.append(LogEvent(marker.producer_id, marker.producer_epoch, None, marker.commit))
        return ErrorCode.NONE

    def flush(self) -> None:
        for log in self.logs.values():
            log.durable = len(log.events)
        waiting, self.waiting = self.waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def crash(self, kept: int) -> None:
        """Lose the events that are not durable, except for the first `kept` of them in each partition."""
        for log in self.logs.values():
            del log.events[log.durable + kept :]
            log.durable = len(log.events)
        self.waiting = []

    def is_deleted(self, partition: TopicPartition) -> bool:
        return partition in self.deleted

    def deleted_of(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        return frozenset(filter(self.is_deleted, partitions))

    def unflushed(self, partition: TopicPartition, producer_id: int) -> None:
        return None

    def is_ready(self, partition: TopicPartition, *, has_waited: bool = False) -> bool:
        return True

    async def until_ready(self, partition: TopicPartition) -> None:
        pass

    def producer(self, partition: TopicPartition, producer_id: int) -> ProducerInLog | None:
        if partition in self.deleted:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        log = self.logs.get(partition)
        epochs = [event.producer_epoch for event in log.events if event.producer_id == producer_id] if log else []
        if log is None or not epochs:
            return None
        return ProducerInLog(max(epochs), 0, producer_id in log.open_by_producer())

    def producer_epochs(self) -> Iterator[tuple[int, int]]:
        for log in self.logs.values():
            for event in log.events:
                yield event.producer_id, event.producer_epoch

    def open_transactions(self) -> Iterator[OpenTransaction]:
        for partition, log in self.logs.items():
            for producer_id, events in log.open_by_producer().items():
                yield OpenTransaction(partition, producer_id, events[-1].producer_epoch, 0, self.clock.now_ms())


class SimulatedMetadata:
    """The part of the metadata store that allocates producer ids and knows the feature level."""

    def __init__(self, transaction_version: int = 2, first_producer_id: int = 1000, block: int = 1000) -> None:
        self.features = {"transaction.version": transaction_version}
        self.next_producer_id = first_producer_id
        self.block = block
        self.refuse: ErrorCode | None = None
        self.blocks = 0

    def skip_producer_ids(self, producer_id: int) -> None:
        self.next_producer_id = max(self.next_producer_id, producer_id + 1)

    async def allocate_producer_ids(self) -> range:
        await asyncio.sleep(0)
        if self.refuse is not None:
            raise KafkaError(self.refuse)
        self.blocks += 1
        block = range(self.next_producer_id, self.next_producer_id + self.block)
        self.next_producer_id = block.stop
        return block


class CoordinatorWorld:
    """One coordinator on simulated ports. `restart` creates a new one from what the old one left."""

    def __init__(
        self, *, transaction_version: int = 2, flush_on_ask: bool = True, clock: Clock | None = None, **config: Any
    ) -> None:
        self.clock: Any = clock or FakeClock()
        self.log = SimulatedStateLog(flush_on_ask=flush_on_ask)
        self.partitions = SimulatedPartitions(self.clock, flush_on_ask)
        self.metadata = SimulatedMetadata(transaction_version)
        self.config = BrokerConfig(config)
        self.group_aware = True
        capture = LogCapture()
        self.logs = capture.entries
        self.logger = structlog.wrap_logger(
            None, processors=[capture], wrapper_class=structlog.make_filtering_bound_logger(logging.INFO)
        )
        self.metrics = Metrics()
        self.coordinator = self._make()

    def _make(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            config=self.config,
            state_log=self.log,  # type: ignore[arg-type]
            gateway=self.partitions,
            metadata=self.metadata,  # type: ignore[arg-type]
            clock=self.clock,
            timers=PatientTimers(self.logger),
            logger=self.logger,
            metrics=self.metrics,
            group_aware=self.group_aware,
        )

    async def __aenter__(self) -> CoordinatorWorld:
        await self.coordinator.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.coordinator.stop()

    async def crash(self, kept_records: int = 0, kept_events: int = 0) -> None:
        """Lose what is not durable, except for a prefix, and start again from the rest."""
        crashed = self.coordinator
        self.log.crash(kept_records)
        self.partitions.crash(kept_events)
        self.log.refuse = ErrorCode.KAFKA_STORAGE_ERROR  # for tasks of the old coordinator that still run
        await crashed.stop()
        self.log.refuse = None
        self.coordinator = self._make()
        await self.coordinator.start()

    async def restart(self) -> None:
        await self.coordinator.stop()
        self.coordinator = self._make()
        await self.coordinator.start()
        await settle()


async def settle() -> None:
    """Run everything that can run without a disk or a timer."""
    for _ in range(20):
        await asyncio.sleep(0)
