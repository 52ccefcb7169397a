"""Read a range of offsets of one partition as Arrow record batches, up to its exact end, in a Spark task of the source.

The reader copes with leader changes and lost connections, and waits for the last stable offset. It hides control
batches and, under read_committed, records of aborted transactions. It sends the next request before it decodes the
current response, so that the broker works meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from ...client.cluster import Cluster
from ...client.config import ConsumerConfig
from ...client.consumer.aborted import AbortedTransactions
from ...client.errors import KafkaTimeoutError, error_for
from ...client.values import TopicPartition
from ...protocol.errors import ErrorCode, KafkaError, error_code
from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ...protocol.records import BatchHeader, CorruptBatch, iter_batches, verify_crc
from ...protocol.schema import NO_UUID
from ..arrow.decoder import HEADER_TYPE, Columns, decode
from ..blocking import BlockingCluster
from ..python_worker import freeze_gc_once
from .offsets import OffsetFinder, OffsetRange, deleted, lost

CHANNEL: Final = "fetch"
LAST_VERSION_WITH_NAMES: Final = 12

CLIENT_DEFAULTS: Final[dict[str, object]] = {
    "isolation_level": "read_committed",
    "max_partition_fetch_bytes": 2 * 1024 * 1024,
    "receive_buffer_bytes": -1,
    "client_id": "oncelog-pipeline",
}
"""Defaults of the pipeline that differ from the consumer's, for exactly-once reading in bulk."""

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_FIELDS: Final = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", _TIMESTAMP),
    pa.field("timestampType", pa.int32()),
]
SCHEMA: Final = pa.schema(_FIELDS)
SCHEMA_WITH_HEADERS: Final = pa.schema([*_FIELDS, pa.field("headers", HEADER_TYPE)])

_LATEST_MS: Final = 2**63 // 1000 - 1
"""The latest timestamp in ms that fits into Spark's 64-bit microseconds. It replaces later timestamps."""


class RangeReader:
    """An iterable over the Arrow record batches of a range of offsets.

    Each iteration opens a connection, and closes it at the end.
    """

    def __init__(self, wanted: OffsetRange, config: ConsumerConfig, *, headers: bool, fail_on_data_loss: bool) -> None:
        self._wanted = wanted
        self._config = config
        self._headers = headers
        self._fail = fail_on_data_loss
        # These columns have the same value in every row. They have as many rows as the largest batch so far, and
        # smaller batches take a slice.
        self._topic = pa.nulls(0, pa.string())
        self._partition = pa.nulls(0, pa.int32())

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        wanted, config = self._wanted, self._config
        freeze_gc_once()
        with BlockingCluster(config, config.default_api_timeout_ms / 1000) as kafka:
            fetches = _Fetches(kafka.cluster, TopicPartition(wanted.topic, wanted.partition), config)
            position = wanted.start
            kafka.run(fetches.ask(position))
            while position < wanted.end:
                data = kafka.run(fetches.answer(position, wanted.end))
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    position = self._out_of_range(kafka, fetches, position)
                    continue
                part = _Part(data, position, wanted.end)
                if part.end <= position:
                    raise CorruptBatch(f"the response for offset {position} has no complete batch from that offset on")
                if part.end < wanted.end:
                    kafka.run(fetches.ask(part.end))
                for columns in part.columns(self._headers):
                    yield self._batch(columns)
                position = part.end

    def _out_of_range(self, kafka: BlockingCluster, fetches: _Fetches, position: int) -> int:
        """Handle deleted records at the position: raise DataLossError, or return the offset where reading continues."""
        wanted = self._wanted
        begin = kafka.run(fetches.log_start())
        # A position above the log's end means that the log was truncated. Records that are written there later are not
        # the requested ones.
        behind = min(begin, wanted.end) if begin > position else wanted.end
        lost(deleted(TopicPartition(wanted.topic, wanted.partition), position, behind), self._fail)
        if behind < wanted.end:
            kafka.run(fetches.ask(behind))
        return behind

    def _batch(self, columns: Columns) -> pa.RecordBatch:
        """Return decoded columns as an Arrow record batch with the source's schema."""
        count = len(columns)
        microseconds = np.clip(columns.timestamp, -_LATEST_MS, _LATEST_MS) * 1000
        if count > len(self._topic):
            self._topic = pa.repeat(self._wanted.topic, count)
            self._partition = pa.repeat(pa.scalar(self._wanted.partition, pa.int32()), count)
        arrays = [
            columns.key,
            columns.value,
            self._topic.slice(0, count),
            self._partition.slice(0, count),
            pa.array(columns.offset),
            pa.array(microseconds).view(_TIMESTAMP),
            pa.array(columns.timestamp_type),
        ]
        if columns.headers is None:
            return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
        return pa.RecordBatch.from_arrays([*arrays, columns.headers], schema=SCHEMA_WITH_HEADERS)


class _Part:
    """One Fetch response: the offset where the next fetch begins, and the records before the range's end."""

    def __init__(self, data: PartitionData, start: int, end: int) -> None:
        self._data = data
        self._start = start
        self._last = end
        self._batches: list[tuple[int, BatchHeader]] = []
        self.end = start
        for position, header in iter_batches(data.records or b""):
            if header.base_offset >= end:
                self.end = end
                break
            self._batches.append((position, header))
            self.end = max(self.end, header.next_offset)

    def columns(self, headers: bool) -> Iterator[Columns]:
        """Yield the visible records. Raises CorruptBatch."""
        data = self._data
        records = data.records or b""
        aborted = data.aborted_transactions
        transactions = AbortedTransactions(
            None if aborted is None else [(one.producer_id, one.first_offset) for one in aborted]
        )
        visible = []
        for position, header in self._batches:
            if not verify_crc(records, position, header):
                raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} does not match")
            if not transactions.hides(records, position, header) and header.next_offset > self._start:
                visible.append((position, header))
        return decode(records, visible, self._start, self._last, headers=headers)


class _Asked(NamedTuple):
    """A Fetch request in flight: the requested offset and the future of the response."""

    position: int
    answer: asyncio.Future[FetchResponse]


class _Fetches:
    """The Fetch requests to a partition's leader. The next request is in flight while a response is decoded."""

    def __init__(self, cluster: Cluster, partition: TopicPartition, config: ConsumerConfig) -> None:
        self._cluster = cluster
        self._partition = partition
        self._config = config
        self._asked: _Asked | None = None

    async def ask(self, position: int) -> None:
        """Send the Fetch request for a position if the leader can be reached now. Otherwise `answer` sends it."""
        try:
            self._asked = _Asked(position, await self._send(position))
            await asyncio.sleep(0)  # lets the event loop send the request
        except KafkaError as error:
            if not _passes(error):
                raise
            self._asked = None

    async def answer(self, position: int, end: int) -> PartitionData:
        """Return the first response with records, or with OFFSET_OUT_OF_RANGE.

        Raises KafkaTimeoutError if neither arrives within default.api.timeout.ms, and permanent errors at once.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._config.default_api_timeout_ms / 1000
        attempt, why = 0, "the broker sent no records"
        while True:
            try:
                asked, self._asked = self._asked, None
                if asked is None or asked.position != position:
                    asked = _Asked(position, await self._send(position))
                data = self._of_partition(await asked.answer)
                if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or data.records:
                    return data
                why = (
                    f"high watermark {data.high_watermark}, last stable offset {data.last_stable_offset}: a "
                    "transaction is open, or the log was truncated"
                )
            except KafkaError as error:
                if not _passes(error):
                    raise
                why = error.message
                self._cluster.request_refresh()
                await asyncio.sleep(self._cluster.retry_backoff(attempt))
                attempt += 1
            if loop.time() > deadline:
                raise KafkaTimeoutError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"offsets {position} to {end - 1} of {self._partition} could not be read within "
                    f"kafka.default.api.timeout.ms = {self._config.default_api_timeout_ms}: {why}",
                )

    async def log_start(self) -> int:
        """Return the partition's current log start offset."""
        finder = OffsetFinder(self._cluster, read_committed=False, timeout_s=self._config.default_api_timeout_ms / 1000)
        return (await finder.earliest([self._partition]))[self._partition]

    async def _send(self, position: int) -> asyncio.Future[FetchResponse]:
        """Send a Fetch request to the partition's leader and return the future of the response. Raises KafkaError."""
        cluster, config = self._cluster, self._config
        topic, index = self._partition
        leader = cluster.leader_of(self._partition)
        if leader is None:
            await cluster.refresh([topic])
            leader = cluster.leader_of(self._partition)
            if leader is None:
                raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{self._partition} has no leader")
        connection = await cluster.connection(leader, CHANNEL)
        known = cluster.metadata.topics[topic]
        epoch = next((one.leader_epoch for one in known.partitions if one.index == index), -1)
        version = connection.version_of(FetchRequest, 32767 if known.topic_id != NO_UUID else LAST_VERSION_WITH_NAMES)
        request = FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            isolation_level=1 if config.isolation_level == "read_committed" else 0,
        )
        partition = FetchPartition(
            partition=index,
            current_leader_epoch=epoch,
            fetch_offset=position,
            partition_max_bytes=config.max_partition_fetch_bytes,
        )
        request.topics = [FetchTopic(topic=topic, topic_id=known.topic_id, partitions=[partition])]
        return connection.send(request, version)

    def _of_partition(self, answer: FetchResponse) -> PartitionData:
        """Return the partition's part of a Fetch response. Raises KafkaError, but not for OFFSET_OUT_OF_RANGE."""
        if answer.error_code:
            raise error_for(answer.error_code, f"Fetch of {self._partition}: {error_code(answer.error_code).text}")
        for topic in answer.responses:
            for data in topic.partitions:
                if data.error_code and data.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise error_for(data.error_code, f"{self._partition}: {error_code(data.error_code).text}")
                return data
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the broker's response lacks {self._partition}")


def _passes(error: KafkaError) -> bool:
    """Return whether an error is temporary, so that the request can be repeated."""
    return error.retriable or error.code in (ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR)
