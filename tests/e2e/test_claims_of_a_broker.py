"""Claims in a whole broker: shown, listed, gone with what they belong to; restarts and levels change nothing of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from oncelog.broker.node import BrokerNode
from oncelog.protocol.errors import CONCURRENT_PRODUCER_COMMIT, ErrorCode
from oncelog.protocol.messages.delete_groups import DeleteGroupsRequest
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.protocol.messages.init_producer_id import (
    AssignedPartitions,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from oncelog.protocol.messages.list_config_resources import ListConfigResourcesRequest
from oncelog.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from oncelog.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from support.raw_connection import RawConnection

GROUP = 32
SET, DELETE = 0, 1
A_YEAR_MS = 365 * 86_400_000


@pytest.fixture
async def broker() -> AsyncIterator[BrokerNode]:
    async with BrokerNode() as broker:
        yield broker


@pytest.fixture
async def wire(broker: BrokerNode) -> AsyncIterator[RawConnection]:
    async with RawConnection(broker.address) as wire:
        await wire.create_topic("input", 2)
        await wire.create_topic("other", 1)
        yield wire


async def claim(
    wire: RawConnection, name: str = "one", group: str = "g", generation: int = 3, **partitions: list[int]
) -> InitProducerIdResponse:
    request = InitProducerIdRequest(name, 60_000, consumer_group_id=group, consumer_group_generation=generation)
    request.assigned_partitions = [AssignedPartitions(*item) for item in partitions.items()]
    answer = await wire.call(request, 5, extension_version=1)
    assert answer.error_code == 0
    return answer


async def shown(wire: RawConnection, group: str = "g") -> list[tuple[str, int, str, int]]:
    request = DescribeConfigsRequest([DescribeConfigsResource(GROUP, group)])
    (result,) = (await wire.call(request, 4)).results
    assert result.error_code == 0
    (config,) = result.configs
    assert (config.name, config.read_only) == ("transaction.claims", False)
    return [
        (claim["topic"], claim["partition"], claim["transactional_id"], claim["generation"])
        for claim in json.loads(config.value or "")
    ]


async def alter(
    wire: RawConnection, *configs: tuple[str, int, str | None], group: str = "g", validate_only: bool = False
) -> int:
    changes = [AlterableConfig(*config) for config in configs]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(GROUP, group, changes)], validate_only)
    (result,) = (await wire.call(request, 1)).responses
    return result.error_code


async def listed(wire: RawConnection) -> list[str]:
    answer = await wire.call(ListConfigResourcesRequest([GROUP]), 1)
    return [item.resource_name for item in answer.config_resources]


async def commit_without_generation(wire: RawConnection, name: str) -> int:
    """TxnOffsetCommit on input-0 by a producer of its own."""
    identity = await wire.call(InitProducerIdRequest(name, 60_000), 5)
    topics = [TxnOffsetCommitRequestTopic("input", [TxnOffsetCommitRequestPartition(0, 5, -1, "")])]
    request = TxnOffsetCommitRequest(name, "g", identity.producer_id, identity.producer_epoch, topics=topics)
    answer = await wire.call(request, 5, extension_version=1)
    return answer.topics[0].partitions[0].error_code


async def test_claims_are_shown_and_listed(wire: RawConnection) -> None:
    assert await shown(wire) == []
    assert await listed(wire) == []
    await claim(wire, input=[1, 0], other=[0])
    expected = [("input", 0, "one", 3), ("input", 1, "one", 3), ("other", 0, "one", 3)]
    assert await shown(wire) == expected
    assert await shown(wire, "another") == []
    assert await listed(wire) == ["g"]


async def test_claims_can_be_deleted_and_nothing_else_be_done(wire: RawConnection) -> None:
    await claim(wire, input=[0])
    assert await commit_without_generation(wire, "two") == CONCURRENT_PRODUCER_COMMIT
    assert await alter(wire, ("transaction.claims", SET, "[]")) == ErrorCode.INVALID_CONFIG
    assert await alter(wire, ("no.such.config", DELETE, None)) == ErrorCode.INVALID_CONFIG
    assert await alter(wire, ("transaction.claims", DELETE, None), group="") == ErrorCode.INVALID_GROUP_ID
    assert await alter(wire, ("transaction.claims", DELETE, None), validate_only=True) == 0
    assert await shown(wire) == [("input", 0, "one", 3)]
    assert await alter(wire, ("transaction.claims", DELETE, None)) == 0
    assert await shown(wire) == []
    assert await listed(wire) == []
    assert await commit_without_generation(wire, "three") == 0


async def test_claims_go_with_offsets_topics_ids_and_groups(broker: BrokerNode, wire: RawConnection) -> None:
    await claim(wire, input=[0, 1], other=[0])
    topics = [OffsetDeleteRequestTopic("input", [OffsetDeleteRequestPartition(0)])]
    assert (await wire.call(OffsetDeleteRequest("g", topics), 0)).topics[0].partitions[0].error_code == 0
    assert await shown(wire) == [("input", 1, "one", 3), ("other", 0, "one", 3)]
    deleted = await wire.call(DeleteTopicsRequest([DeleteTopicState("other")], timeout_ms=10_000), 6)
    assert deleted.responses[0].error_code == 0
    assert await shown(wire) == [("input", 1, "one", 3)]
    broker.transaction_coordinator.maintenance.remove_expired(broker.clock.now_ms() + A_YEAR_MS)
    assert await shown(wire) == []
    await claim(wire, "two", input=[0], generation=4)
    assert (await wire.call(DeleteGroupsRequest(["g"]), 2)).results[0].error_code == 0
    assert await shown(wire) == []
    await claim(wire, "two", input=[0], generation=1)


async def test_claims_are_there_after_a_restart_and_act_at_their_level(tmp_path: Path) -> None:
    async with BrokerNode(tmp_path) as broker, RawConnection(broker.address) as wire:
        await wire.create_topic("input", 2)
        await claim(wire, input=[0])
    async with (
        BrokerNode(tmp_path, inter_broker_protocol_version="4.0") as broker,
        RawConnection(broker.address) as wire,
    ):
        assert await commit_without_generation(wire, "below") == 0
        (result,) = (await wire.call(DescribeConfigsRequest([DescribeConfigsResource(GROUP, "g")]), 4)).results
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert await listed(wire) == []
    async with BrokerNode(tmp_path) as broker, RawConnection(broker.address) as wire:
        assert await shown(wire) == [("input", 0, "one", 3)]
        assert await commit_without_generation(wire, "two") == CONCURRENT_PRODUCER_COMMIT
