"""Write one task's part of a transaction: send record batches to the partitions' leaders, in order, each exactly once.

Sequence numbers begin at 0 in each partition, because each attempt has a new epoch. Up to five batches of a partition
are in flight. If one fails, the producer awaits all of them and sends them again in order. The leader recognises the
batches that it already has.

Only one task may write each Kafka partition. Records of another task are detected in two ways: the leader refuses a
sequence number, or the first batch in the log is not this task's. Therefore no second batch is sent before the first
one has been compared (`first_batch.py`). A partition with another task's records is in conflict. The conflict is
reported as a result instead of an exception, so that the commit can name both tasks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from ...client.cluster import Cluster
from ...client.config import ProducerConfig
from ...client.errors import KafkaTimeoutError, RecordTooLargeError, error_for
from ...client.offset_lookup import LATEST_TIMESTAMP, list_offsets
from ...client.producer.transaction_calls import TransactionCalls
from ...client.values import TopicPartition
from ...protocol.batch_header import HEADER_SIZE, TRANSACTIONAL, assemble_batch, next_sequence, read_batch_header
from ...protocol.compression import Compression, compress
from ...protocol.errors import ErrorCode, KafkaError, error_code
from ...protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ..arrow.encoder import Payload
from .first_batch import is_mine
from .transaction import Attempt, resumed

MAX_IN_FLIGHT: Final = 5
"""The number of a producer's last batches that the leader recognises as duplicates."""

_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

BEFORE_IMPLICIT: Final = 11
WITH_NAMES: Final = 12
"""`BEFORE_IMPLICIT` is the newest Produce version that needs AddPartitionsToTxn.

`WITH_NAMES` is the newest version that has topic names instead of topic ids.
"""

CLIENT_DEFAULTS: Final[dict[str, object]] = {
    "batch_size": 512 * 1024,
    "transaction_timeout_ms": 300_000,
    "send_buffer_bytes": -1,
    "client_id": "oncelog-pipeline",
}
"""Defaults of the pipeline that differ from the producer's, because rows come in bulk and micro-batches take long."""


class Written(NamedTuple):
    """The result of a task's writes to a partition."""

    records: int
    conflict: bool
    """Whether another task has written to the partition as well."""


class _Batch(NamedTuple):
    """An encoded batch, and its first sequence number."""

    base_sequence: int
    data: bytes


class TransactionProducer:
    """The producer of one task: `open` partitions, `write` batches, then `finish`, which waits for all of them.

    Opening several partitions in one call takes fewer requests. All methods raise KafkaError.
    """

    def __init__(self, cluster: Cluster, attempt: Attempt, config: ProducerConfig, now_ms: Callable[[], int]) -> None:
        self.cluster = cluster
        self.attempt = attempt
        self.config = config
        self.failure: BaseException | None = None
        self._now_ms = now_ms
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._buffered = 0
        self._changed = asyncio.Event()
        self._calls = TransactionCalls(
            cluster, resumed(attempt), config.transaction_timeout_ms, config.max_block_ms / 1000
        )
        self._codec = Compression.from_name(config.compression_type)
        self._level = {
            Compression.GZIP: config.compression_gzip_level if config.compression_gzip_level >= 0 else None,
            Compression.LZ4: config.compression_lz4_level if "compression_lz4_level" in config.explicit else None,
            Compression.ZSTD: config.compression_zstd_level,
        }.get(self._codec)

    async def open(self, partitions: Iterable[TopicPartition]) -> None:
        """Prepare these partitions for batches. Partitions that are already open are not changed."""
        partitions = set(partitions) - self._lanes.keys()
        if not partitions:
            return
        if self.attempt.version < 2:
            await self._calls.add_partitions(partitions)
        timeout_s = self.config.max_block_ms / 1000
        times = dict.fromkeys(partitions, LATEST_TIMESTAMP)
        ends = await list_offsets(self.cluster, times, read_committed=False, timeout_s=timeout_s)
        for partition in sorted(partitions):
            lane = self._lanes[partition] = _Lane(self, partition, ends[partition].offset)
            task = asyncio.create_task(lane.run(), name=f"write to {partition}")
            self._tasks.add(task)
            task.add_done_callback(self._lane_done)

    async def write(self, payloads: Iterable[tuple[TopicPartition, Payload]]) -> None:
        """Send these batches after earlier ones, each as soon as it is encoded. Wait while buffer.memory is used up."""
        for partition, payload in payloads:
            await self.open([partition])
            while self._buffered > self.config.buffer_memory and self.failure is None:
                self._changed.clear()
                await self._changed.wait()
            self._raise_failure()
            lane = self._lanes[partition]
            batch = self._batch(payload, lane.next_sequence)
            lane.add(batch, payload.record_count)
            self._buffered += len(batch.data)
            await asyncio.sleep(0)  # lets the request leave, so that the broker works meanwhile
            await asyncio.sleep(0)
        self._raise_failure()

    async def finish(self) -> dict[TopicPartition, Written]:
        """Wait until all batches are acknowledged. Return what was written to each partition."""
        for lane in self._lanes.values():
            lane.close()
        if self._tasks:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        self._raise_failure()
        return {partition: Written(lane.records, lane.conflict) for partition, lane in self._lanes.items()}

    async def close(self) -> None:
        """Cancel all batches that are not acknowledged."""
        under_way = [*self._tasks, *(send for lane in self._lanes.values() for send in lane.sends)]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    def acknowledged(self, batch: _Batch) -> None:
        """Release the memory of a batch that is acknowledged or dropped."""
        self._buffered -= len(batch.data)
        self._changed.set()

    def _lane_done(self, task: asyncio.Task[None]) -> None:
        """Store the error of a partition's task (`_Lane.run`) that has ended, and wake up `write`."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failure = self.failure or error
        self._changed.set()

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure

    def _batch(self, payload: Payload, base_sequence: int) -> _Batch:
        """Return a payload as an encoded batch. Raises RecordTooLargeError for a row above max.request.size."""
        now = self._now_ms()
        records = payload.records
        data = assemble_batch(
            compress(self._codec, bytes(records), self._level) if self._codec else records,
            base_offset=0,
            leader_epoch=-1,
            attributes=self._codec | TRANSACTIONAL,
            last_offset_delta=payload.record_count - 1,
            base_timestamp=now,
            max_timestamp=now,
            producer_id=self.attempt.producer_id,
            producer_epoch=self.attempt.producer_epoch,
            base_sequence=base_sequence,
            record_count=payload.record_count,
        )
        if payload.record_count == 1 and len(data) > max(self.config.max_request_size, HEADER_SIZE):
            raise RecordTooLargeError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"a row takes {len(data)} bytes, more than kafka.max.request.size = {self.config.max_request_size}",
            )
        return _Batch(base_sequence, data)


class _Lane:
    """The batches of one partition: a queue, and the Produce requests in flight."""

    def __init__(self, producer: TransactionProducer, partition: TopicPartition, log_end: int) -> None:
        self._producer = producer
        self._partition = partition
        self._log_end = log_end
        self._waiting: deque[_Batch] = deque()
        self._in_flight: deque[tuple[_Batch, asyncio.Task[tuple[ErrorCode, int, str]]]] = deque()
        self._more = asyncio.Event()
        self._closed = False
        self._claimed = False
        self.next_sequence = 0
        self.records = 0
        self.conflict = False

    @property
    def sends(self) -> list[asyncio.Task[tuple[ErrorCode, int, str]]]:
        """The Produce requests in flight."""
        return [send for _, send in self._in_flight]

    def add(self, batch: _Batch, count: int) -> None:
        """Queue the next batch, which has `count` records. After a conflict, drop it."""
        self.next_sequence = next_sequence(self.next_sequence, count)
        self.records += count
        if self.conflict:
            self._producer.acknowledged(batch)
            return
        self._waiting.append(batch)
        self._more.set()

    def close(self) -> None:
        """Mark the queue as complete: no more batches will be added."""
        self._closed = True
        self._more.set()

    async def run(self) -> None:
        """Send batches until the queue is closed and empty. Raises permanent errors, and KafkaTimeoutError."""
        loop = asyncio.get_running_loop()
        failing_since: float | None = None
        attempt = 0
        refused: _Batch | None = None
        while True:
            self._fill()
            if not self._in_flight:
                if self._closed and not self._waiting:
                    return
                self._more.clear()
                await self._more.wait()
                continue
            batch, answer = self._in_flight[0]
            code, base_offset, message = await answer
            if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                if not self._claimed:
                    if 0 <= base_offset < self._log_end or not await self._claims(base_offset, batch):
                        await self._give_way()
                        continue
                    self._claimed = True
                self._in_flight.popleft()
                self._producer.acknowledged(batch)
                failing_since, attempt = None, 0
                continue
            if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                # All batches before this one are acknowledged. If it is sent again and refused again, another task's
                # records have its place.
                if refused is batch:
                    await self._give_way()
                else:
                    refused = batch
                    await self._take_back()
                continue
            if code in _TOO_LARGE and (count := read_batch_header(batch.data).record_count) > 1:
                raise RecordTooLargeError(
                    code,
                    f"{self._partition}: a batch of {count} rows has {len(batch.data)} bytes, more than the topic's "
                    "max.message.bytes: set kafka.batch.size below that limit",
                )
            if not code.retriable:
                raise error_for(code, f"{self._partition}: {message or code.text}")
            failing_since = failing_since or loop.time()
            if loop.time() - failing_since > self._producer.config.delivery_timeout_s:
                raise KafkaTimeoutError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"rows for {self._partition} were not acknowledged within kafka.delivery.timeout.ms: {code.name}",
                )
            await self._take_back()
            if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                self._producer.cluster.request_refresh()
                await asyncio.sleep(self._producer.cluster.retry_backoff(attempt))
            else:
                await asyncio.sleep(0.005)
            attempt += 1

    async def _claims(self, base_offset: int, batch: _Batch) -> bool:
        """Return whether the batch in the log at `base_offset` is `batch`, the first one that this task sent."""
        cluster = self._producer.cluster
        what = f"look at the first batch of {self._partition}"

        async def look() -> bool:
            try:
                return await is_mine(cluster, self._partition, base_offset, batch.data)
            except KafkaError:
                cluster.request_refresh()
                raise

        return await cluster.retrying(look, self._producer.config.delivery_timeout_s, what)

    def _fill(self) -> None:
        """Send waiting batches: only one until the first batch is known to be this task's, then up to MAX_IN_FLIGHT."""
        while self._waiting and len(self._in_flight) < (MAX_IN_FLIGHT if self._claimed else 1):
            batch = self._waiting.popleft()
            self._in_flight.append((batch, asyncio.create_task(self._send(batch))))

    async def _take_back(self) -> None:
        """Wait for all batches in flight, and queue them again in order."""
        await asyncio.gather(*(answer for _, answer in self._in_flight), return_exceptions=True)
        self._waiting.extendleft(batch for batch, _ in reversed(self._in_flight))
        self._in_flight.clear()

    async def _give_way(self) -> None:
        """Mark the partition as in conflict and drop its batches, because another task writes there."""
        self.conflict = True
        await self._take_back()
        while self._waiting:
            self._producer.acknowledged(self._waiting.popleft())

    async def _send(self, batch: _Batch) -> tuple[ErrorCode, int, str]:
        """Send one Produce request. Return (error, base offset, message), even if the connection fails."""
        cluster, attempt = self._producer.cluster, self._producer.attempt
        topic, index = self._partition
        try:
            leader = cluster.leader_of(self._partition)
            if leader is None:
                return ErrorCode.LEADER_NOT_AVAILABLE, -1, ""
            connection = await cluster.connection(leader)
            version = connection.version_of(ProduceRequest, BEFORE_IMPLICIT if attempt.version < 2 else WITH_NAMES)
            request = ProduceRequest(
                transactional_id=attempt.transactional_id,
                acks=-1,
                timeout_ms=self._producer.config.request_timeout_ms,
                topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index, batch.data)])],
            )
            answer = await connection.send(request, version)
        except KafkaError as error:
            if error.code is ErrorCode.BROKER_NOT_AVAILABLE:
                return ErrorCode.NETWORK_EXCEPTION, -1, error.message
            return error.code, -1, error.message
        rows = (row for one in answer.responses if one.name == topic for row in one.partition_responses)
        result = next((row for row in rows if row.index == index), None)
        if result is None:
            return ErrorCode.UNKNOWN_SERVER_ERROR, -1, "the broker's response leaves this partition out"
        return error_code(result.error_code), result.base_offset, result.error_message or ""
