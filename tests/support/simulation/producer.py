"""Simulate a transactional producer of any kind: InitProducerId, then transactions of records and offsets."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oncelog.broker.topic_names import OFFSETS_TOPIC
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse, EndTxnTopic
from oncelog.protocol.messages.init_producer_id import AssignedPartitions, InitProducerIdRequest
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from oncelog.protocol.records import Record, encode_batch

from .client import Abortable, Caller, Fenced
from .keyed import KEYED, KeyedWrite, new_write
from .kinds import Kind

if TYPE_CHECKING:
    from .worker import Worker

INPUT = "in"
OUTPUT = "out"
EXTRA = "extra"
GROUPS = ("g", "h")
"""The consumer groups. All workers are in the first one, unless the history has two groups."""


@dataclass(eq=False)
class Transaction:
    """One transaction. `inputs` maps each consumed partition to (first offset, next offset).

    `wish` is what EndTxn requested (True: commit), or None if it was never sent. `told` is the outcome in its response.
    `whole` says that everything in the transaction was acknowledged before. `refused` says that a batch was refused.
    """

    number: int
    worker: str
    kind: str
    transactional_id: str
    generation: int
    group: str
    inputs: dict[int, tuple[int, int]]
    outputs: dict[int, list[str]] = field(default_factory=dict)
    wish: bool | None = None
    told: bool | None = None
    identity: tuple[int, int] = (-1, -1)
    whole: bool = False
    refused: bool = False
    wrote_extra: bool = False
    keyed: KeyedWrite | None = None

    @property
    def keyed_offset(self) -> int:
        """The offset of its write to the compacted topic, or -1 if it wrote nothing or did not learn the offset."""
        return -1 if self.keyed is None else self.keyed.offset


class Producer:
    """One transactional id, as one process uses it."""

    def __init__(self, worker: Worker, transactional_id: str) -> None:
        self.worker = worker
        self.kind: Kind = worker.kind
        self.transactional_id = transactional_id
        self.caller = Caller(worker.process, late=self.kind.late, extension=self.kind.extension)
        self.producer_id = -1
        self.epoch = -1
        self._is_initialised = False
        self._sequences: dict[int, int] = {}
        self._extra_sequence = 0
        self._keyed_sequence = 0
        self._session: set[int] = set()
        """Output partitions that are registered beyond the transaction, as far as this producer knows."""
        self._session_has_offsets = False
        self._uncertain = False

    async def init(self) -> None:
        """Fence the earlier owner of the id, and end the transaction that it left open."""
        await self._init(-1, -1)

    async def _init(self, producer_id: int, epoch: int) -> None:
        worker = self.worker
        request = InitProducerIdRequest(
            transactional_id=None if self.kind.assigned_id and not self._is_initialised else self.transactional_id,
            transaction_timeout_ms=worker.plan.timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        if self.kind.group_aware and producer_id < 0:
            request.consumer_group_id = worker.group
            request.consumer_group_generation = worker.generation
            request.assigned_partitions = [AssignedPartitions(INPUT, worker.assigned)] if worker.assigned else []
        answer = await self.caller.ask(lambda: request, self.kind.init, lambda answer: [answer.error_code])
        if request.transactional_id is None:
            assert answer.transactional_id, "an id is assigned"
            self.transactional_id = answer.transactional_id
        self._is_initialised = True
        self._become(answer.producer_id, answer.producer_epoch)
        self._uncertain = False
        self._end_session()

    def _end_session(self) -> None:
        self._session.clear()
        self._session_has_offsets = False

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self._sequences.clear()
            self._extra_sequence = 0
            self._keyed_sequence = 0
        self.producer_id, self.epoch = producer_id, epoch

    # ---- a transaction

    async def send(self, transaction: Transaction) -> None:
        """Send everything of the transaction except its end."""
        kind = self.kind
        transaction.identity = self.producer_id, self.epoch
        if kind.session and self.worker.world.broker.has_extension:
            # Sometimes register all partitions, which are more than will be written.
            whole = self.worker.rng.random() < 0.3
            wanted = set(range(self.worker.world.outputs)) if whole else set(transaction.outputs)
            if (not kind.tv2 and not self._session.issuperset(wanted)) or (kind.tv2 and self.worker.rng.random() < 0.5):
                await self._register(sorted(wanted))
                self._session |= wanted
        elif not kind.tv2:
            await self._register(sorted(transaction.outputs))
        if self.worker.world.scenario.small and self.worker.world.further_rng.random() < 0.7:
            transaction.keyed = new_write(self.worker.world.further_rng)
            if not kind.tv2:
                await self._register([0], KEYED)
        await self.worker.maybe_stall()
        sends: list[object] = [
            self._produce(transaction, partition, values) for partition, values in sorted(transaction.outputs.items())
        ]
        if kind.tv2 and self.worker.world.scenario.extra and self.worker.rng.random() < 0.5:
            sends.append(self._produce_extra(transaction))
        if transaction.keyed is not None:
            sends.append(self._produce_keyed(transaction, transaction.keyed))
        if kind.tv2 and self.worker.rng.random() < 0.5:
            # These requests are in flight together, on one connection.
            await _all([*sends, self._commit_offsets(transaction)])
        else:
            await _all(sends)
            await self.worker.maybe_stall()
            if not kind.tv2 and not (self._session_has_offsets and self.worker.world.broker.has_extension):
                await self._add_offsets()
            await self._commit_offsets(transaction)

    async def _register(self, partitions: list[int], topic: str = OUTPUT) -> None:
        await self.caller.ask(
            lambda: AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(topic, partitions)],
                session=self.kind.session,
            ),
            3 if self.kind.init >= 4 else 0,
            lambda answer: [
                p.partition_error_code for t in answer.results_by_topic_v3_and_below for p in t.results_by_partition
            ],
        )

    async def _produce(self, transaction: Transaction, partition: int, values: list[str]) -> None:
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(values)
        batch = encode_batch(
            [Record(i, 1_700_000_000_000, None, value.encode(), []) for i, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )

        try:
            await self.caller.ask(
                lambda: self._request(OUTPUT, partition, batch),
                self.kind.produce,
                lambda answer: [p.error_code for t in answer.responses for p in t.partition_responses],
            )
            self.worker.world.acknowledged("records")
        except (Abortable, Fenced):
            transaction.refused = self._uncertain = True
            raise

    async def _produce_extra(self, transaction: Transaction) -> None:
        """Write to the extra topic, if it exists. Its records are not checked, but must not disturb anything."""
        sequence = self._extra_sequence
        self._extra_sequence += 1
        batch = encode_batch(
            [Record(0, 1_700_000_000_000, None, str(transaction.number).encode(), [])],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # A recreated topic does not know the producer, and expects the first sequence number of its epoch.
        passed_over = {int(missing), int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)}

        def codes(answer: ProduceResponse) -> list[int]:
            found = [p.error_code for t in answer.responses for p in t.partition_responses]
            if not any(found):
                transaction.wrote_extra = True
            return [code for code in found if code not in passed_over]

        await self.caller.ask(lambda: self._request(EXTRA, 0, batch), 12, codes)

    async def _produce_keyed(self, transaction: Transaction, write: KeyedWrite) -> None:
        """Write a value, or a tombstone, to the compacted topic."""
        sequence = self._keyed_sequence
        self._keyed_sequence += 1
        batch = encode_batch(
            [write.record(transaction.number)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        try:
            answer = await self.caller.ask(
                lambda: self._request(KEYED, 0, batch),
                self.kind.produce,
                lambda answer: [p.error_code for t in answer.responses for p in t.partition_responses],
            )
        except (Abortable, Fenced):
            self._uncertain = True
            raise
        write.offset = answer.responses[0].partition_responses[0].base_offset

    def _request(self, topic: str, partition: int, batch: bytes | bytearray) -> ProduceRequest:
        data = PartitionProduceData(partition, bytearray(batch))
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )

    async def _add_offsets(self) -> None:
        await self.caller.ask(
            lambda: AddOffsetsToTxnRequest(self.transactional_id, self.producer_id, self.epoch, self.worker.group),
            3 if self.kind.init >= 4 else 0,
            lambda answer: [answer.error_code],
        )

    async def _commit_offsets(self, transaction: Transaction) -> None:
        kind = self.kind
        worker = self.worker
        member = kind.generation

        def make() -> TxnOffsetCommitRequest:
            return TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=worker.group,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                generation_id=transaction.generation if member else -1,
                member_id=worker.member_id if member and kind.member_id else "",
                group_instance_id=worker.instance_id if member and kind.member_id else None,
                topics=[
                    TxnOffsetCommitRequestTopic(
                        INPUT,
                        [
                            TxnOffsetCommitRequestPartition(partition, end, -1, str(transaction.number))
                            for partition, (_, end) in sorted(transaction.inputs.items())
                        ],
                    )
                ],
            )

        await self.caller.ask(
            make, kind.offsets, lambda answer: [p.error_code for t in answer.topics for p in t.partitions]
        )
        worker.world.acknowledged("offsets")

    async def end(self, transaction: Transaction, commit: bool, *, knows_what_is_written: bool = True) -> None:
        """Commit or abort. The request is repeated until it is answered."""
        transaction.wish, transaction.whole = commit, knows_what_is_written
        topics = None
        if self.kind.extension and knows_what_is_written:
            topics = [
                EndTxnTopic(OUTPUT, sorted(transaction.outputs)),
                *([EndTxnTopic(EXTRA, [0])] if transaction.wrote_extra else []),
                *([EndTxnTopic(KEYED, [0])] if transaction.keyed else []),
                EndTxnTopic(OFFSETS_TOPIC, [self.worker.world.home_of(self.worker.group)]),
            ]
            if self.worker.world.scenario.misnames:
                topics = await self._named(topics, commit)
        answer = await self.caller.ask(
            lambda: EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, commit, topics),
            self.kind.end,
            lambda answer: [answer.error_code],
        )
        transaction.told = commit
        if commit and topics is not None and self.worker.world.broker.has_extension:
            self._session |= set(transaction.outputs)
            self._session_has_offsets = True
        else:
            self._end_session()
        if self.kind.end >= 5:
            self._become(answer.producer_id, answer.producer_epoch)
        elif not commit and self._uncertain:
            # A batch whose outcome is unknown may still arrive: a new epoch fences it (KIP-360).
            await self._init(self.producer_id, self.epoch)

    async def _named(self, topics: list[EndTxnTopic], commit: bool) -> list[EndTxnTopic]:
        """Return the partitions that EndTxn names as written.

        Sometimes these are too few, which changes nothing. Sometimes too many are named first, which is refused.
        """
        world = self.worker.world
        luck = world.naming.random()
        if luck < 0.15 and world.broker.has_extension:
            await self._name_too_much(topics, commit)
        if luck < 0.7:
            return topics
        kept = [
            EndTxnTopic(topic.name, [i for i in topic.partitions if world.naming.random() < 0.5]) for topic in topics
        ]
        return [topic for topic in kept if topic.partitions]

    async def _name_too_much(self, topics: list[EndTxnTopic], commit: bool) -> None:
        """Name a partition that is neither in the transaction nor in the session."""
        refused = False

        def codes(answer: EndTxnResponse) -> list[int]:
            nonlocal refused
            refused = answer.error_code == ErrorCode.INVALID_REQUEST
            return [] if refused else [answer.error_code]

        named = [*topics, EndTxnTopic(INPUT, [0])]
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch, commit, named)
        await self.caller.ask(lambda: request, self.kind.end, codes)
        # A transaction that has timed out is already aborted. After a restart without the extension, no partition is
        # named. If the disk has lost that the transaction was begun, a client without KIP-890 seems to repeat the end
        # of the previous one.
        scenario = self.worker.world.scenario
        assert refused or not commit or scenario.leveled or scenario.may_lose, f"{request} was not refused"


async def _all(calls: list[object]) -> None:
    """Run calls concurrently to their ends, then raise the first failure."""
    results = await asyncio.gather(*calls, return_exceptions=True)  # type: ignore[call-overload]
    for result in results:
        if isinstance(result, BaseException):
            raise result
