"""Send the requests of a group-aware producer: one transactional id that claims partitions of a consumer group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.init_producer_id import (
    AssignedPartitions,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from support.group_wire import Partition, txn_commit
from support.transaction_wire import TransactionWire
from support.wire import retry


class GroupAwareWire(TransactionWire):
    """One transactional id. It retries what the client retries, unless a method says otherwise."""

    def ask(
        self,
        group: str | None,
        generation: int,
        partitions: Iterable[Partition],
        *,
        version: int = 5,
        named: bool = True,
        timeout_ms: int = 60_000,
        believed: tuple[int, int] = (-1, -1),
    ) -> InitProducerIdResponse:
        """Send InitProducerId for the group once. Without `named`, the broker assigns the transactional id."""
        request = InitProducerIdRequest(
            self.tid if named else None,
            timeout_ms,
            *believed,
            consumer_group_id=group,
            consumer_group_generation=generation,
            assigned_partitions=[AssignedPartitions(topic, [index]) for topic, index in partitions],
        )
        return self.wire.call(request, version)

    def claim(self, group: str, generation: int, *partitions: Partition, **options: Any) -> ErrorCode:
        """Send InitProducerId for the group until it is not CONCURRENT_TRANSACTIONS; use the identity on success."""
        answer = retry(
            lambda: self.ask(group, generation, partitions, **options),
            lambda got: got.error_code,
            ErrorCode.CONCURRENT_TRANSACTIONS,
        )
        if answer.error_code == 0:
            self.take_over(answer)
        return ErrorCode(answer.error_code)

    def take_over(self, answer: InitProducerIdResponse) -> None:
        """Use the producer id, epoch and transactional id in the broker's response."""
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.tid = answer.transactional_id or self.tid
        self.sequences.clear()

    def commit_offset(
        self, group: str, partition: Partition, offset: int, generation: int = -1, version: int = 5, **fields: Any
    ) -> ErrorCode:
        """Send TxnOffsetCommit with one offset. From v5 on, no other request has to come first."""
        if version >= 3:
            fields.setdefault("generation_id", generation)
        return txn_commit(self, group, {partition: offset}, version, **fields)[partition]

    def finish(self, commit: bool = True) -> ErrorCode:
        """Send EndTxn v5, once."""
        answer = self.wire.call(EndTxnRequest(self.tid, self.producer_id, self.epoch, commit), 5)
        if answer.error_code == 0:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return ErrorCode(answer.error_code)
