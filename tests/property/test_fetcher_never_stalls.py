"""Whatever the limits, and whatever the application pauses and passes over: a reader that goes on gets every record."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from support.fetching import FetchWorld
from support.group_world import in_virtual_time

STALLED_S = 600.0

sizes = st.lists(st.lists(st.integers(0, 2000), max_size=12), min_size=1, max_size=8)
steps = st.lists(
    st.tuples(
        st.sampled_from(["wait", "take", "take one", "take of it", "pause", "resume"]),
        st.integers(0, 7),
        st.integers(1, 20),
    ),
    max_size=30,
)


@settings(max_examples=300, deadline=None)
@given(
    sizes,
    steps,
    st.integers(1, 3),
    st.sampled_from([1, 1000, 5000, 20_000]),
    st.sampled_from([1, 1000, 5000, 20_000]),
)
def test_every_record_is_read_once_and_in_order(
    sizes: list[list[int]],
    steps: list[tuple[str, int, int]],
    nodes: int,
    fetch_max_bytes: int,
    max_partition_fetch_bytes: int,
) -> None:
    @in_virtual_time
    async def run() -> None:
        world = FetchWorld(
            sizes, nodes, fetch_max_bytes=fetch_max_bytes, max_partition_fetch_bytes=max_partition_fetch_bytes
        )
        fetcher, read = world.fetcher, [[] for _ in sizes]  # type: ignore[var-annotated]

        def take(most: int, *only: int) -> None:
            for partition, records in fetcher.take(most, [world.partitions[one] for one in only]).items():
                read[partition.partition] += [record.offset for record in records]

        fetcher.wake()
        for step, index, count in steps:
            state = world.subscription.state(world.partitions[index % len(sizes)])
            if step == "wait":
                await asyncio.sleep(count)
            elif step == "take":
                take(count)
            elif step == "take of it":
                take(count, index % len(sizes))
            elif step == "take one":
                record = fetcher.take_one()
                if record is not None:
                    read[record.partition].append(record.offset)
            else:
                state.paused = step == "pause"
                fetcher.wake()  # as Consumer.pause and Consumer.resume do
            await asyncio.sleep(0)

        # Partitions that stay paused hold up none of the others; and these go on when they are resumed.
        active = [world.subscription.state(partition).fetchable for partition in world.partitions]
        for wanted in (active, [True] * len(sizes)):
            for partition, on in zip(world.partitions, wanted, strict=True):
                world.subscription.state(partition).paused = not on
            fetcher.wake()
            async with asyncio.timeout(STALLED_S):
                while any(on and len(read[n]) < len(sizes[n]) for n, on in enumerate(wanted)):
                    world.arrived.clear()
                    before = sum(map(len, read))
                    take(10)
                    if sum(map(len, read)) == before:
                        await world.arrived.wait()
        assert read == [list(range(len(partition))) for partition in sizes]
        await fetcher.close()

    run()
