"""A log in memory: the second implementation of the broker's `Log`, which passes the same tests as the log in files.

A `MemoryStore` has what several brokers would share: the records, and the leader epoch of their owner. A `MemoryLog` is
the log of one broker over a store. In a `remote` log, every read waits for the store, as with an object store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from oncelog.broker.log import AppendOrigin, AppendResult, Inspection, IsolationLevel, LogConfig, LogRead
from oncelog.broker.log.leader_epochs import LeaderEpochs
from oncelog.broker.log.log_validator import CLIENT_ATTRIBUTES, check_client_batch, client_header, read_and_check
from oncelog.broker.log.partition_log import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from oncelog.broker.log.producer_state_manager import ProducerStateManager
from oncelog.broker.log.results import AbortedTxn
from oncelog.broker.scheduling.steps import Steps, waited
from oncelog.broker.system.ports import Buffer, Clock
from oncelog.protocol.batch_header import (
    LENGTH_END,
    BatchHeader,
    clear_attributes,
    read_batch_header,
    set_max_timestamp,
    stamp,
)
from oncelog.protocol.control_records import ControlRecord, read_control_record
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.records import decode_batch

from .faulty_filesystem import FaultyFileSystem

NOWHERE = FaultyFileSystem()
"""The file system for parts that could write files but never do here."""


class MemoryStore:
    """The records of one partition, and the leader epoch of their owner."""

    def __init__(self, topic: str = "t", partition: int = 0) -> None:
        self.topic = topic
        self.partition = partition
        self.name = f"{topic}-{partition}"
        self.owner_epoch = -1
        self.batches: list[tuple[BatchHeader, bytes]] = []
        self.aborted: list[AbortedTxn] = []
        self.producers = ProducerStateManager(NOWHERE, "", self.name)
        self.epochs = LeaderEpochs(NOWHERE, "")
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0


class MemoryLog:
    """The log of one broker over a store."""

    def __init__(self, store: MemoryStore, config: LogConfig, clock: Clock, *, remote: bool = False) -> None:
        self.store = store
        self.config = config
        self.failure: KafkaError | None = None
        self.reads_that_waited = 0
        self._clock = clock
        self._remote = remote
        self._listeners: dict[Callable[[Any], None], None] = {}

    # --- what is in the store

    @property
    def topic(self) -> str:
        return self.store.topic

    @property
    def partition(self) -> int:
        return self.store.partition

    @property
    def name(self) -> str:
        return self.store.name

    @property
    def log_start_offset(self) -> int:
        return self.store.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.store.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.store.high_watermark

    @property
    def last_stable_offset(self) -> int:
        unstable = self.producers.first_unstable_offset
        stable = self.high_watermark if unstable is None else min(unstable, self.high_watermark)
        return max(stable, self.log_start_offset)

    @property
    def leader_epoch(self) -> int:
        return self.store.epochs.latest

    @property
    def size(self) -> int:
        return sum(len(batch) for _, batch in self.store.batches)

    @property
    def producers(self) -> ProducerStateManager:
        return self.store.producers

    # --- owner

    def take_over(self, leader_epoch: int) -> None:
        if leader_epoch < self.store.owner_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH, f"{self.name}: leader epoch {self.store.owner_epoch} has begun"
            )
        self.store.owner_epoch = leader_epoch
        self.store.epochs.assign(leader_epoch, self.log_end_offset)

    def update_config(self, config: LogConfig) -> None:
        self.config = config

    # --- append

    def inspection_of(self, batch: Buffer) -> Inspection:
        return Inspection(batch, client_header(batch, self.config, self.name), self.config.record_limits, self.name)

    def check_room(self, size: int) -> None: ...

    def keep_room(self, size: int) -> Callable[[], None]:
        return lambda: None

    def append(
        self,
        batch: Buffer,
        *,
        inspection: Inspection | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        leader_epoch: int = 0,
        transaction_version: int = 0,
        essential: bool = False,
    ) -> AppendResult:
        store = self.store
        if leader_epoch < store.owner_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name}: leader epoch {store.owner_epoch} has begun"
            )
        if origin is AppendOrigin.CLIENT:
            if inspection is None:
                inspection = self.inspection_of(batch)
                inspection.inspect_whole()
            header, content = inspection.header, inspection.content
            check_client_batch(header, content, self.config, self._clock.now_ms(), self.name)
            duplicate = self.producers.find_duplicate(header) if header.producer_id >= 0 else None
            if duplicate is not None:
                return AppendResult(duplicate.first_offset, duplicate.last_offset, -1, store.log_start_offset, True)
            batch = bytearray(batch)
            clear_attributes(batch, 0, CLIENT_ATTRIBUTES)
            set_max_timestamp(batch, 0, max(content[1], -1))
        data, base_offset = bytearray(batch), store.log_end_offset
        header = read_and_check(data, AppendOrigin.COORDINATOR, self.config, self.name, essential=essential)
        assert len(data) == header[1] + LENGTH_END
        append_time = self._append_one(data, header, origin, leader_epoch, transaction_version)
        if self.config.durability == "os":
            self.flush()
        return AppendResult(base_offset, store.log_end_offset - 1, append_time, store.log_start_offset, False)

    def _append_one(
        self, piece: bytearray, header: BatchHeader, origin: AppendOrigin, leader_epoch: int, transaction_version: int
    ) -> int:
        store = self.store
        marker: ControlRecord | None = None
        if header.is_control:
            marker = read_control_record(decode_batch(piece, 0, header)[0])
        if header.producer_id >= 0:
            self.producers.check(header, marker, origin, transaction_version)
        append_time = -1
        if self.config.log_append_time and not header.is_control:
            append_time = self._clock.now_ms()
            stamp(piece, 0, base_offset=store.log_end_offset, leader_epoch=leader_epoch, log_append_time=append_time)
        else:
            stamp(piece, 0, base_offset=store.log_end_offset, leader_epoch=leader_epoch)
        header = read_batch_header(piece)
        aborted = self.producers.update(header, marker, store.log_end_offset, self._clock.monotonic())
        if aborted is not None:
            store.aborted.append(aborted)
        store.epochs.assign(leader_epoch, store.log_end_offset)
        store.batches.append((header, bytes(piece)))
        store.log_end_offset = header.next_offset
        return append_time

    def flush(self) -> None:
        """Make all records durable and visible."""
        self.store.high_watermark = self.store.log_end_offset
        self.producers.on_high_watermark(self.store.high_watermark)
        for listener in list(self._listeners):
            listener(self)

    def flushed(self, end_offset: int) -> asyncio.Future[None] | None:
        if end_offset > self.high_watermark:
            self.flush()
        return None

    # --- read

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        *,
        min_one: bool = True,
    ) -> LogRead | Steps[LogRead]:
        if self._remote:
            return self._read_remotely(offset, max_bytes, isolation, min_one)
        return self._read(offset, max_bytes, isolation, min_one)

    def _read_remotely(self, offset: int, max_bytes: int, isolation: IsolationLevel, min_one: bool) -> Steps[LogRead]:
        yield from self._wait()
        self.reads_that_waited += 1
        return self._read(offset, max_bytes, isolation, min_one)

    def _wait(self) -> Steps[None]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[None] = loop.create_future()
        loop.call_soon(answer.set_result, None)
        yield from waited(answer)

    def _limit(self, isolation: IsolationLevel) -> int:
        return self.last_stable_offset if isolation is IsolationLevel.READ_COMMITTED else self.high_watermark

    def _read(self, offset: int, max_bytes: int, isolation: IsolationLevel, min_one: bool) -> LogRead:
        store = self.store
        if not store.log_start_offset <= offset <= store.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.name}: there is no offset {offset}")
        records, next_offset = b"", offset
        for header, batch in self._visible(offset, isolation):
            if len(records) + len(batch) > max_bytes and (records or not min_one):
                break
            records, next_offset = records + batch, header.next_offset
        aborted = None
        if isolation is IsolationLevel.READ_COMMITTED:
            aborted = [
                (entry.producer_id, entry.first_offset)
                for entry in store.aborted
                if entry.last_offset >= offset and entry.first_offset < next_offset
            ]
        return LogRead(
            records, store.high_watermark, self.last_stable_offset, store.log_start_offset, aborted, next_offset
        )

    def _visible(self, offset: int, isolation: IsolationLevel) -> Iterator[tuple[BatchHeader, bytes]]:
        limit = self._limit(isolation)
        for header, batch in self.store.batches:
            if header.last_offset >= offset and header.last_offset < limit:
                yield header, batch

    def readable_bytes(
        self, offset: int, wanted: int, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> int:
        return min(wanted, sum(len(batch) for _, batch in self._visible(offset, isolation)))

    def find_offset_for_timestamp(
        self, timestamp: int, isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    ) -> Steps[tuple[int, int, int]]:
        if self._remote:
            yield from self._wait()
        if timestamp == LATEST:
            return -1, self._limit(isolation), self.leader_epoch
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return -1, self.log_start_offset, self.store.epochs.epoch_of(self.log_start_offset)
        if timestamp == LATEST_TIERED:
            return -1, -1, -1
        if timestamp < 0 and timestamp != MAX_TIMESTAMP:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"timestamp {timestamp} has no meaning")
        best = (-1, -1, -1)
        for header, batch in self._visible(self.log_start_offset, isolation):
            yield 10
            for record in decode_batch(batch, 0, header):
                if record.offset < self.log_start_offset:
                    continue
                candidate = (record.timestamp, record.offset, header.partition_leader_epoch)
                if timestamp == MAX_TIMESTAMP:
                    best = candidate if record.timestamp > best[0] else best
                elif record.timestamp >= timestamp:
                    return candidate
        return best

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.store.epochs.end_offset(epoch, self.log_end_offset)

    def batches(self, offset: int | None = None, end: int | None = None) -> Iterator[tuple[BatchHeader, memoryview]]:
        first = self.log_start_offset if offset is None else offset
        last = self.log_end_offset if end is None else end
        for header, batch in list(self.store.batches):
            if header.last_offset >= first and header.base_offset < last:
                yield header, memoryview(batch)

    def windows(self) -> Iterator[bytes]:
        for _, batch in self.batches():
            yield bytes(batch)

    def delete_records_before(self, offset: int) -> int:
        store = self.store
        if offset == -1:
            offset = store.high_watermark
        if not 0 <= offset <= store.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.name}: {offset} is beyond the high watermark")
        store.log_start_offset = max(offset, store.log_start_offset)
        store.batches = [entry for entry in store.batches if entry[0].last_offset >= store.log_start_offset]
        return store.log_start_offset

    def add_listener(self, listener: Callable[[Any], None]) -> None:
        self._listeners[listener] = None

    def remove_listener(self, listener: Callable[[Any], None]) -> None:
        self._listeners.pop(listener, None)
