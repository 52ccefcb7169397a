"""Reading ahead goes on whenever the application has made room, whichever limit was the one that was reached."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from oncelog.client.values import TopicPartition
from oncelog.protocol.messages.fetch import FetchRequest, FetchResponse
from support.fetching import FetchWorld
from support.group_world import in_virtual_time

FILLED_S = 60.0
"""After so long the fetcher has read ahead as far as it may."""
STALLED_S = 600.0


async def read(world: FetchWorld, count: int, most: int = 10, only: Collection[TopicPartition] = ()) -> list[int]:
    """Take `count` records; returns the partition of each. Deadlock or TimeoutError if they do not come."""
    taken: list[int] = []
    async with asyncio.timeout(STALLED_S):
        while len(taken) < count:
            world.arrived.clear()
            batches = world.fetcher.take(min(most, count - len(taken)), only)
            if not batches:
                await world.arrived.wait()
            taken += [record.partition for records in batches.values() for record in records]
    return taken


async def filled_by_three_of_six() -> FetchWorld:
    """A fetcher whose buffer is full of the first three partitions, while the other three are paused."""
    world = FetchWorld([[900] * 40] * 6, fetch_max_bytes=10_000, max_partition_fetch_bytes=5_000)
    for partition in world.partitions[3:]:
        world.subscription.state(partition).paused = True
    world.fetcher.wake()
    await asyncio.sleep(FILLED_S)
    return world


@in_virtual_time
async def test_room_below_fetch_max_bytes_is_used_again() -> None:
    world = FetchWorld([[900] * 20] * 12, fetch_max_bytes=10_000, max_partition_fetch_bytes=5_000)
    world.fetcher.wake()
    await asyncio.sleep(FILLED_S)
    assert sum(state.buffered_bytes for state in world.subscription.assigned.values()) >= 10_000
    assert sorted(await read(world, 240)) == [partition for partition in range(12) for _ in range(20)]
    await world.fetcher.close()


@in_virtual_time
async def test_room_below_fetch_max_bytes_is_used_again_by_every_broker() -> None:
    world = FetchWorld([[900] * 20] * 12, nodes=3, fetch_max_bytes=10_000, max_partition_fetch_bytes=5_000)
    world.fetcher.wake()
    await asyncio.sleep(FILLED_S)
    assert sorted(await read(world, 240, most=1)) == [partition for partition in range(12) for _ in range(20)]
    await world.fetcher.close()


@in_virtual_time
async def test_room_is_used_again_when_records_are_taken_one_by_one() -> None:
    world = FetchWorld([[900] * 20] * 12, fetch_max_bytes=10_000, max_partition_fetch_bytes=5_000)
    world.fetcher.wake()
    await asyncio.sleep(FILLED_S)
    taken = 0
    while taken < 240:
        if world.fetcher.take_one() is None:
            await read(world, 1)
        taken += 1
    await world.fetcher.close()


@in_virtual_time
async def test_paused_partitions_that_fill_the_buffer_do_not_hold_up_the_others() -> None:
    world = await filled_by_three_of_six()
    states = [world.subscription.state(partition) for partition in world.partitions]
    for state in states:
        state.paused = not state.paused
    world.fetcher.wake()
    assert sorted(await read(world, 120)) == [partition for partition in (3, 4, 5) for _ in range(40)]
    await world.fetcher.close()


@in_virtual_time
async def test_partitions_that_are_passed_over_and_fill_the_buffer_do_not_hold_up_the_others() -> None:
    world = await filled_by_three_of_six()
    states = [world.subscription.state(partition) for partition in world.partitions]
    for state in states:
        state.paused = False
    world.fetcher.wake()
    taken = await read(world, 120, only=world.partitions[3:])
    assert sorted(taken) == [partition for partition in (3, 4, 5) for _ in range(40)]
    await world.fetcher.close()


@in_virtual_time
async def test_no_more_is_read_ahead_than_the_limits_allow() -> None:
    world = FetchWorld([[900] * 200] * 12, fetch_max_bytes=10_000, max_partition_fetch_bytes=5_000)
    world.fetcher.wake()
    await asyncio.sleep(FILLED_S)
    assert world.fetcher.bytes_fetched <= 2 * 10_000
    await read(world, 12 * 200)
    await world.fetcher.close()


@in_virtual_time
async def test_a_rack_does_not_have_the_leader_send_the_consumer_to_another_replica() -> None:
    # As Kafka's leaders do with replica.selector.class: records come from the replica that they name, and only there.
    world = FetchWorld([[900] * 3], client_rack="a")
    answer = world._answer

    async def answer_by_rack(request: FetchRequest, version: int) -> FetchResponse:
        response = await answer(request, version)
        for topic in response.responses if request.rack_id else ():
            for data in topic.partitions:
                data.records, data.preferred_read_replica = None, 7
        return response

    world._answer = answer_by_rack  # type: ignore[method-assign]
    world.fetcher.wake()
    assert await read(world, 3) == [0, 0, 0]
    await world.fetcher.close()
