"""What one member of a group may bring along, and how many members a group may have."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from oncelog.broker.node import BrokerNode
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from support.raw_connection import RawConnection

pytestmark = pytest.mark.oncelog_only(reason="Kafka limits no number of protocols")


async def joined(wire: RawConnection, protocols: int, version: int) -> JoinGroupResponse:
    offered = [JoinGroupRequestProtocol(f"p{number}", b"") for number in range(protocols)]
    return await wire.call(JoinGroupRequest("g", 60_000, 60_000, "", None, "consumer", offered), version)


@pytest.mark.parametrize("version", [0, 3, 7, 9])
async def test_member_with_more_protocols_than_the_limit_cannot_join(version: int) -> None:
    async with (
        BrokerNode(durability="os", logging_level="error", group_member_max_protocols=3) as broker,
        RawConnection(broker.address) as wire,
    ):
        refused = await joined(wire, 4, version)
        assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert (refused.generation_id, refused.member_id, refused.members) == (-1, "", [])
        assert broker.group_coordinator.group("g") is None
        accepted = await joined(wire, 3, version)
        assert accepted.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)


async def joined_together(broker: BrokerNode, members: int) -> list[JoinGroupResponse]:
    """Let members join on separate connections at the same time; return their responses."""
    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(RawConnection(broker.address)) for _ in range(members)]
        return list(await asyncio.gather(*[joined(wire, 1, 3) for wire in wires]))


async def test_a_member_too_many_is_refused() -> None:
    async with BrokerNode(durability="os", logging_level="error", group_max_size=2) as broker:
        responses = await joined_together(broker, 3)
        assert sorted(response.error_code for response in responses) == [0, 0, ErrorCode.GROUP_MAX_SIZE_REACHED]


async def test_the_members_that_the_leaders_response_lists_are_rows() -> None:
    async with BrokerNode(durability="os", logging_level="error", response_max_rows=2) as broker:
        assert [response.error_code for response in await joined_together(broker, 2)] == [0, 0]
    async with BrokerNode(durability="os", logging_level="error", response_max_rows=2) as broker:
        responses = await joined_together(broker, 3)
        assert sorted(response.error_code for response in responses) == [0, 0, ErrorCode.INVALID_REQUEST]
