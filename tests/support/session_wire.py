"""Send the requests of a producer with a transaction session, in the versions of a newer or an older client."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnTopic
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from support.raw_connection import RawConnection, batch

Partition = tuple[str, int]


@dataclass(frozen=True)
class Speech:
    """The request versions of a client."""

    name: str
    produce: int
    end: int
    offsets: int

    @property
    def bumps(self) -> bool:
        """Whether each of its transactions has a new epoch."""
        return self.end >= 5

    def __str__(self) -> str:
        return self.name


NEWER = Speech("newer", produce=12, end=5, offsets=5)
OLDER = Speech("older", produce=9, end=3, offsets=3)
MIXED = Speech("older produce, newer end", produce=11, end=5, offsets=4)


@dataclass
class SessionProducer:
    """One transactional id. Requests use the connection `wire` unless a call names another one."""

    wire: RawConnection
    tid: str
    speech: Speech
    extension_version: int = 1
    who: tuple[int, int] = (-1, -1)
    sequences: dict[Partition, int] = field(default_factory=dict)

    async def init(self, timeout_ms: int = 60_000) -> None:
        answer = await self.wire.call(InitProducerIdRequest(self.tid, timeout_ms), 5, self.extension_version)
        assert answer.error_code == 0
        self.who = answer.producer_id, answer.producer_epoch
        self.sequences.clear()

    async def add(self, *partitions: Partition, session: bool = True) -> set[ErrorCode]:
        """Send AddPartitionsToTxn v3. Return the error codes."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.tid,
            v3_and_below_producer_id=self.who[0],
            v3_and_below_producer_epoch=self.who[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic, [index]) for topic, index in partitions],
            session=session,
        )
        answer = await self.wire.call(request, 3, self.extension_version)
        return {
            ErrorCode(result.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        }

    async def add_batched(self, *partitions: Partition, session: bool, verify_only: bool) -> set[ErrorCode]:
        """Send AddPartitionsToTxn v4 or later. Return the error codes."""
        topics = [AddPartitionsToTxnTopic(topic, [index]) for topic, index in partitions]
        transaction = AddPartitionsToTxnTransaction(self.tid, *self.who, verify_only, topics, session)
        answer = await self.wire.call(AddPartitionsToTxnRequest([transaction]), 5, self.extension_version)
        if answer.error_code:
            return {ErrorCode(answer.error_code)}
        return {
            ErrorCode(result.partition_error_code)
            for topic in answer.results_by_transaction[0].topic_results
            for result in topic.results_by_partition
        }

    def produce_request(self, *partitions: Partition, sequence: int | None = None) -> ProduceRequest:
        """Return a request that writes one record to each partition."""
        topics: dict[str, list[PartitionProduceData]] = {}
        for topic, index in partitions:
            base = self.sequences.get((topic, index), 0) if sequence is None else sequence
            records = batch(
                f"{topic}-{index}/{self.who[1]}/{base}".encode(),
                producer_id=self.who[0],
                producer_epoch=self.who[1],
                base_sequence=base,
                transactional=True,
            )
            topics.setdefault(topic, []).append(PartitionProduceData(index, records))
        data = [TopicProduceData(name=name, partition_data=partitions) for name, partitions in topics.items()]
        return ProduceRequest(self.tid, -1, 30_000, data)

    async def produce(
        self, *partitions: Partition, sequence: int | None = None, wire: RawConnection | None = None
    ) -> set[ErrorCode]:
        """Write one record to each partition. With `sequence`, the batch is not the producer's next one."""
        request = self.produce_request(*partitions, sequence=sequence)
        answer = await (wire or self.wire).call(request, self.speech.produce, self.extension_version)
        codes = {ErrorCode(p.error_code) for topic in answer.responses for p in topic.partition_responses}
        if sequence is None and codes == {ErrorCode.NONE}:
            for partition in partitions:
                self.sequences[partition] = self.sequences.get(partition, 0) + 1
        return codes

    async def commit_offsets(self, group: str, topic: str, offset: int) -> ErrorCode:
        offsets = [TxnOffsetCommitRequestTopic(topic, [TxnOffsetCommitRequestPartition(0, offset)])]
        request = TxnOffsetCommitRequest(self.tid, group, *self.who, topics=offsets)
        answer = await self.wire.call(request, self.speech.offsets, self.extension_version)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def end_request(self, commit: bool, written: Collection[Partition] | None) -> EndTxnRequest:
        topics = None if written is None else [EndTxnTopic(topic, [index]) for topic, index in written]
        return EndTxnRequest(self.tid, *self.who, commit, topics)

    async def end(self, *written: Partition, commit: bool = True, stock: bool = False) -> ErrorCode:
        """Send EndTxn, which names the written partitions. With `stock`, it names none."""
        request = self.end_request(commit, None if stock else written)
        answer = await self.wire.call(request, self.speech.end, self.extension_version)
        if answer.error_code == 0 and self.speech.bumps:
            self.who = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return ErrorCode(answer.error_code)
