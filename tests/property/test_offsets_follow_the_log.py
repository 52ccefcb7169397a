"""Committed and pending offsets, whatever the order of commits, transactions, tombstones, slow flushes and crashes:
always what a plain reading of the log says."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from support.group_world import GroupWorld
from support.virtual_time import VirtualTimeLoop

Partition = tuple[str, int]
PARTITIONS: list[Partition] = [("orders", 0), ("orders", 1), ("payments", 0)]
GROUPS = ["g", "h"]
PRODUCERS = [1, 2]


class Event(NamedTuple):
    """One record, as the test knows it: a commit (pending with a producer), a tombstone (offset None), a marker."""

    at: int
    group: str
    partition: Partition | None
    offset: int | None
    producer: int | None
    commit: bool | None = None


def read(events: list[Event], group: str) -> tuple[dict[Partition, int], set[Partition]]:
    """(committed, pending) of a group: the newest record that counts wins."""
    mine = [event for event in events if event.group == group]
    committed: dict[Partition, int] = {}
    pending: set[Partition] = set()
    for partition in PARTITIONS:
        found: int | None = None
        for event in mine:
            if event.partition != partition:
                continue
            if event.producer is None:
                found = event.offset
                continue
            ends = (e for e in mine if e.commit is not None and e.producer == event.producer and e.at > event.at)
            end = next(ends, None)
            tombstoned = any(
                e.partition == partition and e.offset is None and e.at > event.at and (end is None or e.at < end.at)
                for e in mine
                if e.commit is None
            )
            replaced = any(
                e.partition == partition
                and e.producer == event.producer
                and event.at < e.at < (end.at if end else 1 << 60)
                for e in mine
            )
            if tombstoned or replaced:
                continue
            if end is None:
                pending.add(partition)
            elif end.commit:
                found = event.offset
        if found is not None:
            committed[partition] = found
    return committed, pending


steps = st.tuples(
    st.sampled_from(["commit", "commit", "txn", "txn", "end", "end", "delete", "flush", "restart", "crash"]),
    st.sampled_from(GROUPS),
    st.sampled_from(PARTITIONS),
    st.sampled_from(PRODUCERS),
    st.booleans(),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(steps, max_size=40))
def test_offsets_are_what_the_log_says(history: list[tuple[str, str, Partition, int, bool]]) -> None:
    async def live() -> None:
        world = GroupWorld(flush_on_ask=False)
        events: list[Event] = []
        async with world:
            homes = {group: world.coordinator.partition_for(group) for group in GROUPS}
            assert len(set(homes.values())) == len(GROUPS)
            for number, (what, group, partition, producer, commits) in enumerate(history):
                at = world.log.disk.end
                if what == "commit":
                    world.commit({partition: number}, group=group)
                    events.append(Event(at, group, partition, number, None))
                elif what == "txn":
                    world.commit({partition: number}, group=group, producer=producer)
                    events.append(Event(at, group, partition, number, producer))
                elif what == "end":
                    world.end(producer, commit=commits, group=group)
                    events.append(Event(at, group, None, None, producer, commits))
                elif what == "delete" and world.state(group) is not None:
                    world.coordinator.delete_offsets(group, [partition])
                    if world.log.disk.end > at:
                        events.append(Event(at, group, partition, None, None))
                elif what == "flush":
                    world.log.disk.flush()
                elif what in ("restart", "crash"):
                    await world.restart(lost=what == "crash")
                    events = [event for event in events if event.at < world.log.disk.end]
                for name in GROUPS:
                    committed, pending = read(events, name)
                    assert world.committed(group=name) == committed
                    assert world.pending(*PARTITIONS, group=name) == pending

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(live())
