"""Send the requests of a transactional producer and of a reader, in every version, and also in a wrong order."""

from __future__ import annotations

import time
from dataclasses import dataclass

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.records import Record, decode_batch, encode_batch, iter_batches
from support.wire import Wire, eventually, retry

RETRIED = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)
"""Temporary errors of Apache Kafka, in situations in which oncelog waits or need not wait."""


@dataclass
class Seen:
    """The content of a partition, as a reader sees it from the start."""

    values: list[bytes]
    last_stable_offset: int
    high_watermark: int


class TransactionWire:
    """One transactional id on one connection. It retries only the errors that Apache Kafka wants retried."""

    def __init__(self, wire: Wire, transactional_id: str) -> None:
        self.wire = wire
        self.tid = transactional_id
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def init(
        self, version: int = 5, timeout_ms: int = 60_000, believed: tuple[int, int] = (-1, -1)
    ) -> InitProducerIdResponse:
        """Send InitProducerId. On success, use the producer id and epoch of the response."""
        self.wire.find_coordinator(self.tid, 1)
        request = InitProducerIdRequest(self.tid, timeout_ms, *believed)
        answer = retry(lambda: self.wire.call(request, version), lambda got: got.error_code, *RETRIED)
        if answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return answer

    def add(self, topic: str, *partitions: int, version: int = 3, epoch: int | None = None) -> dict[int, int]:
        """Send AddPartitionsToTxn, up to v3. Return the error code of each partition."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.tid,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch if epoch is None else epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic, list(partitions))],
        )

        def call() -> dict[int, int]:
            (answer,) = self.wire.call(request, version).results_by_topic_v3_and_below
            return {result.partition_index: result.partition_error_code for result in answer.results_by_partition}

        return retry(call, lambda codes: next(iter(codes.values())), *RETRIED)

    def produce(
        self, topic: str, *values: bytes, partition: int = 0, version: int = 9, epoch: int | None = None
    ) -> int:
        """Send one transactional batch. Return the partition's error code."""
        where = topic, partition
        sequence = self.sequences.get(where, 0)
        now_ms = int(time.time() * 1000)
        batch = encode_batch(
            [Record(number, now_ms, None, value, []) for number, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(partition, batch)])
        request = ProduceRequest(self.tid, -1, 30_000, [data])

        def call() -> int:
            return int(self.wire.call(request, version).responses[0].partition_responses[0].error_code)

        code = retry(call, lambda code: code, *RETRIED)
        if code == 0:
            self.sequences[where] = sequence + len(values)
        return code

    def end(self, commit: bool, version: int = 3, epoch: int | None = None) -> EndTxnResponse:
        """Send EndTxn. On success of v5, use the producer id and epoch of the response."""
        request = EndTxnRequest(self.tid, self.producer_id, self.epoch if epoch is None else epoch, commit)
        answer = retry(lambda: self.wire.call(request, version), lambda got: got.error_code, *RETRIED)
        if version >= 5 and answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return answer


def read(wire: Wire, topic: str, partition: int = 0, committed: bool = True, max_bytes: int = 1 << 20) -> Seen:
    """Return everything in a partition that a reader with this isolation level sees, without aborted transactions.

    A response has at most `max_bytes` of records, but at least one batch.
    """
    values: list[bytes] = []
    offset, seen_to = 0, -1
    while offset != seen_to:
        where = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=int(committed),
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, partitions=[where])],
        )
        got = wire.call(request, 12).responses[0].partitions[0]
        assert got.error_code == 0, got.error_code
        aborted = sorted((entry.first_offset, entry.producer_id) for entry in got.aborted_transactions or ())
        seen_to, ended = offset, set()
        for position, header in iter_batches(got.records or b""):
            offset = header.next_offset
            while aborted and aborted[0][0] <= header.base_offset:  # before the marker, which may be the first batch
                ended.add(aborted.pop(0)[1])
            if header.is_control:
                ended.discard(header.producer_id)
                continue
            if header.is_transactional and header.producer_id in ended:
                continue
            values += [record.value or b"" for record in decode_batch(got.records or b"", position, header)]
    return Seen(values, got.last_stable_offset, got.high_watermark)


def read_decided(wire: Wire, topic: str, partition: int = 0) -> list[bytes]:
    """Return the committed values as soon as all transactions have markers, which are written after the response."""
    eventually(lambda: (seen := read(wire, topic, partition)).last_stable_offset == seen.high_watermark)
    return read(wire, topic, partition).values
