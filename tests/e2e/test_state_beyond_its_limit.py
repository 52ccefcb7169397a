"""What fitted into max.message.bytes of an internal topic once can be ended and removed, whatever the limit is now."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from oncelog.broker.node import BrokerNode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from oncelog.protocol.messages.delete_groups import DeleteGroupsRequest
from oncelog.protocol.messages.describe_transactions import DescribeTransactionsRequest
from oncelog.protocol.messages.end_txn import EndTxnRequest
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.protocol.messages.init_producer_id import InitProducerIdRequest
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from oncelog.protocol.records import iter_batches
from support.logs import at_once
from support.raw_connection import RawConnection, batch

pytestmark = pytest.mark.oncelog_only(reason="limits the internal topics of brokers of its own")
E = ErrorCode
STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
SETTINGS = {"logging_level": "error", "transaction_state_log_num_partitions": 1, "offsets_topic_num_partitions": 1}
PARTITIONS = 50


async def limit(wire: RawConnection, topic: str, max_message_bytes: int) -> None:
    change = AlterableConfig("max.message.bytes", 0, str(max_message_bytes))
    answer = await wire.call(IncrementalAlterConfigsRequest([AlterConfigsResource(2, topic, [change])]), 1)
    assert answer.responses[0].error_code == E.NONE, answer


async def begin(
    wire: RawConnection, name: str, timeout_ms: int = 60_000, partitions: int = PARTITIONS
) -> tuple[int, int]:
    made = await wire.call(InitProducerIdRequest(name, timeout_ms), 4)
    assert made.error_code == E.NONE
    who = made.producer_id, made.producer_epoch
    assert await add(wire, name, who, partitions) == {E.NONE}
    return who


async def add(wire: RawConnection, name: str, who: tuple[int, int], partitions: int) -> set[int]:
    rows = [AddPartitionsToTxnTopic("t", list(range(partitions)))]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=who[0],
        v3_and_below_producer_epoch=who[1],
        v3_and_below_topics=rows,
    )
    answer = await wire.call(request, 3)
    return {row.partition_error_code for row in answer.results_by_topic_v3_and_below[0].results_by_partition}


async def until_state(wire: RawConnection, name: str, state: str) -> None:
    async with asyncio.timeout(60):
        while True:
            (row,) = (await wire.call(DescribeTransactionsRequest([name]), 0)).transaction_states
            if row.transaction_state == state:
                return
            await asyncio.sleep(0)


def largest_batch(broker: BrokerNode, topic: str) -> int:
    read = broker.replica_manager.partition(topic, 0).log.read(0, 1 << 24)
    return max(header.size for _, header in iter_batches(at_once(read).records))


@pytest.mark.parametrize("version", [3, 5])
async def test_a_transaction_whose_record_only_just_fits_can_be_ended(tmp_path: Path, version: int) -> None:
    async with BrokerNode(tmp_path, config=SETTINGS) as broker, RawConnection(broker.address) as wire:
        await wire.create_topic("t", PARTITIONS + 1)
        await begin(wire, "first")
        await limit(wire, STATE, largest_batch(broker, STATE))
        who = await begin(wire, "other")
        assert await add(wire, "other", who, PARTITIONS + 1) == {E.UNKNOWN_SERVER_ERROR}, "this does not fit"
        answer = await wire.call(EndTxnRequest("other", *who, True), version)
        assert answer.error_code == E.NONE
        await until_state(wire, "other", "CompleteCommit")


async def test_a_transaction_times_out_after_the_limit_was_lowered(tmp_path: Path) -> None:
    settings = {**SETTINGS, "transaction_abort_timed_out_transaction_cleanup_interval_ms": 10}
    async with BrokerNode(tmp_path, config=settings) as broker, RawConnection(broker.address) as wire:
        await wire.create_topic("t", 1)
        producer_id, epoch = await begin(wire, "gone", timeout_ms=300, partitions=1)
        fields = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0, "transactional": True}
        assert (await wire.produce("t", batch(b"a", **fields), transactional_id="gone")).error_code == E.NONE
        await limit(wire, STATE, 0)
        await until_state(wire, "gone", "CompleteAbort")
        assert broker.replica_manager.partition("t", 0).log.last_stable_offset == 2


async def test_a_group_and_its_offsets_are_removed_after_the_limit_was_lowered(tmp_path: Path) -> None:
    async with BrokerNode(tmp_path, config=SETTINGS) as broker, RawConnection(broker.address) as wire:
        await wire.create_topic("t", PARTITIONS)
        rows = [OffsetCommitRequestPartition(index, 1) for index in range(PARTITIONS)]
        request = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", partitions=rows)])
        answer = await wire.call(request, 8)
        assert {row.error_code for row in answer.topics[0].partitions} == {E.NONE}
        await limit(wire, OFFSETS, 0)
        assert (await wire.call(DeleteGroupsRequest(["g"]), 2)).results[0].error_code == E.NONE
