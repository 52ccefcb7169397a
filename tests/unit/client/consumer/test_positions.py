"""Look-ups of positions, and what the program does while they are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from oncelog.client.config import ConsumerConfig
from oncelog.client.consumer.positions import Positions
from oncelog.client.consumer.subscription import EARLIEST, PartitionState, SubscriptionState
from oncelog.client.values import TopicPartition
from oncelog.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from support.scripted_cluster import TOPIC, ScriptedCluster

PARTITION = TopicPartition(TOPIC, 0)
END = 30


async def looked_up_while(act: Callable[[SubscriptionState], None]) -> PartitionState:
    """Return a partition's state after `act` while its end is looked up, and after the response, which is `END`."""
    cluster: Any = ScriptedCluster(transaction_version=2)
    subscription = SubscriptionState()
    subscription.assign_manually([PARTITION])
    positions = Positions(cluster, ConsumerConfig.of(auto_offset_reset="latest"), subscription, None, lambda: None)
    positions.find()  # without a group, auto.offset.reset determines the position
    positions.find()
    _, response = await cluster.next(ListOffsetsRequest)
    act(subscription)
    row = ListOffsetsPartitionResponse(partition_index=PARTITION.partition, offset=END)
    response.set_result(ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[row])]))
    while positions._under_way:
        await asyncio.sleep(0)
    return subscription.state(PARTITION)


async def test_a_position_is_the_offset_that_was_looked_up() -> None:
    assert (await looked_up_while(lambda subscription: None)).position == END


@pytest.mark.parametrize("offset", [0, 7, END + 1])
async def test_a_seek_during_a_look_up_is_kept(offset: int) -> None:
    assert (await looked_up_while(lambda subscription: subscription.state(PARTITION).seek(offset))).position == offset


async def test_a_later_reset_is_not_answered_by_an_earlier_look_up() -> None:
    state = await looked_up_while(lambda subscription: subscription.state(PARTITION).reset(EARLIEST))
    assert (state.position, state.reset_to) == (None, EARLIEST)


async def test_a_partition_that_was_given_up_and_assigned_again_keeps_its_new_position() -> None:
    def assign_again(subscription: SubscriptionState) -> None:
        subscription.assign_manually([])
        subscription.assign_manually([PARTITION])
        subscription.state(PARTITION).seek(3)

    assert (await looked_up_while(assign_again)).position == 3
