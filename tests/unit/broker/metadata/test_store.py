"""The metadata store: what its maps show is on disk, whatever the disk does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from oncelog.broker.acls.acl import Acl
from oncelog.broker.log import LogManager
from oncelog.broker.metadata import Topic
from oncelog.broker.metadata.store import MetadataStore
from oncelog.broker.observability.logging import make_logger
from oncelog.broker.system.ports import RealFileSystem, SystemClock, SystemRandomIds
from oncelog.protocol.errors import ErrorCode, KafkaError


class House:
    """A store on a data directory."""

    def __init__(self, directory: Path) -> None:
        clock, ids = SystemClock(), SystemRandomIds()
        self.logs = LogManager(str(directory), fs=RealFileSystem(), clock=clock, ids=ids)
        self.store = MetadataStore(self.logs, 1, clock, ids, make_logger("error"))

    async def start(self) -> MetadataStore:
        await self.logs.start()
        self.store.start()
        return self.store


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path)
    await made.start()
    yield made
    await made.logs.stop()


async def test_a_topic_is_not_visible_before_it_is_on_disk(house: House) -> None:
    creation = house.store.create_topic("t", 2, {"retention.ms": "5"})
    assert house.store.topic("t") is None
    with pytest.raises(KafkaError) as caught:
        house.store.create_topic("t", 1, {})
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    topic = await creation
    assert house.store.topic("t") is topic is house.store.topic_by_id(topic.topic_id)


async def test_a_change_goes_through_when_nobody_waits_for_it_any_more(house: House) -> None:
    async def create() -> None:
        await house.store.create_topic("t", 2, {})

    task = asyncio.create_task(create())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _until(lambda: house.store.topic("t") is not None)


async def test_changes_on_their_way_build_on_each_other(house: House) -> None:
    topic = await house.store.create_topic("t", 1, {"a": "1"})
    first = house.store.change_topic(topic, configs={**house.store.newest(topic).configs, "b": "2"})
    second = house.store.change_topic(topic, partitions=3)
    third = house.store.change_topic(topic, configs={**house.store.newest(topic).configs, "c": "3"})
    assert (topic.partitions, topic.configs) == (1, {"a": "1"})
    await asyncio.gather(first, second, third)
    assert (topic.partitions, topic.configs) == (3, {"a": "1", "b": "2", "c": "3"})
    assert house.store.newest(topic) is topic


async def test_a_change_is_in_effect_only_when_it_has_been_applied_even_if_a_later_one_has_been(house: House) -> None:
    store = house.store
    topic = await store.create_topic("t", 1, {})
    gates = [asyncio.Event(), asyncio.Event()]
    begun: list[asyncio.Event] = []

    async def apply(gate: asyncio.Event) -> None:
        begun.append(gate)
        await gate.wait()

    store.on_topic_changed.append(lambda _: apply(gates[int(topic.configs["change"])]))
    first = store.change_topic(topic, configs={"change": "0"})
    await _until(lambda: begun == gates[:1])
    second = store.change_topic(topic, configs={"change": "1"})
    await _until(lambda: begun == gates)
    gates[1].set()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not store.is_settled
    assert not second.done(), "the first change may still overwrite it"
    gates[0].set()
    async with asyncio.timeout(60):
        await store.settled()
        await asyncio.gather(first, second)
    assert store.is_settled


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def test_two_deletions_of_one_topic_are_one(house: House) -> None:
    dropped: list[str] = []
    house.store.on_topic_deleted.append(lambda topic: dropped.append(topic.name))
    topic = await house.store.create_topic("t", 1, {})
    await asyncio.gather(house.store.delete_topic(topic), house.store.delete_topic(topic))
    assert dropped == ["t"]
    assert house.store.topic("t") is None


async def test_a_change_that_races_with_a_deletion_does_not_bring_the_topic_back(tmp_path: Path) -> None:
    house = House(tmp_path)
    store = await house.start()
    topic = await store.create_topic("t", 1, {})
    change = store.change_topic(topic, partitions=5)
    deletion = store.delete_topic(topic)
    with pytest.raises(KafkaError, match="being deleted"):
        store.change_topic(topic, partitions=9)
    await asyncio.gather(change, deletion)
    await store.allocate_producer_ids()
    assert store.topic("t") is None
    await house.logs.stop()
    again = House(tmp_path)
    store = await again.start()
    assert store.topic("t") is None
    await again.logs.stop()


async def test_the_record_of_a_deletion_counts_the_partitions_that_are_being_added(tmp_path: Path) -> None:
    """The next start finishes the deletion by the record, and the added partitions may have data already."""
    house = House(tmp_path)
    store = await house.start()
    topic = await store.create_topic("t", 1, {})
    store.on_topic_deleted.append(_fail)
    change = store.change_topic(topic, partitions=5)
    await asyncio.gather(change, store.delete_topic(topic))
    await house.logs.stop()
    again = House(tmp_path)
    store = await again.start()
    assert [(left.name, left.partitions) for left in store.deleting()] == [("t", 5)]
    await again.logs.stop()


def _fail(_: Topic) -> None:
    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full")


async def test_replay_gives_what_was_there(tmp_path: Path) -> None:
    house = House(tmp_path)
    store = await house.start()
    kept = await store.create_topic("kept", 3, {"x": "1"})
    gone = await store.create_topic("gone", 3, {})
    await store.delete_topic(gone)
    await store.change_topic(kept, partitions=5)
    await store.set_feature("transaction.version", 2)
    block = await store.allocate_producer_ids()
    await house.logs.stop()
    again = House(tmp_path)
    store = await again.start()
    topic = store.topic("kept")
    assert topic is not None
    assert (topic.topic_id, topic.partitions, topic.configs) == (kept.topic_id, 5, {"x": "1"})
    assert set(store.topics) == {"kept"}
    assert store.features == {"transaction.version": 2}
    assert (await store.allocate_producer_ids()).start >= block.stop
    await again.logs.stop()


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("error", [KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full"), OSError(5, "no")])
async def test_a_name_is_not_used_again_before_the_deletion_that_failed_is_finished(
    tmp_path: Path, error: Exception, at_once: bool
) -> None:
    """The next start goes on with the deletion, by name: it would delete the data of the topic made anew."""
    house = House(tmp_path)
    store = await house.start()
    topic = await store.create_topic("t", 1, {})
    dropped: list[bytes] = []
    failure: Exception | None = OSError(5, "the first reason")

    def drop(doomed: Topic) -> None:
        if failure is not None:
            raise failure
        dropped.append(doomed.topic_id)

    async def drop_later(doomed: Topic) -> None:
        drop(doomed)

    store.on_topic_deleted.append(drop if at_once else drop_later)
    await store.delete_topic(topic)
    failure = error
    with pytest.raises(KafkaError, match="deletion") as caught:
        store.create_topic("t", 1, {})
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    known = "the first reason" if not at_once else "the disk is full" if isinstance(error, KafkaError) else "no"
    assert known in caught.value.message
    failure = None
    await store.settled()  # that attempt has resumed the deletion
    anew = await store.create_topic("t", 1, {})
    assert dropped == [topic.topic_id]
    await house.logs.stop()
    again = House(tmp_path)
    store = await again.start()
    assert store.deleting() == []
    assert store.topic("t") == anew
    await again.logs.stop()


async def test_access_rules_are_in_effect_when_they_are_on_disk_and_survive(tmp_path: Path) -> None:
    kept, deleted = Acl(2, 3, "t", "User:a", "*", 3, 3), Acl(4, 4, "kafka-cluster", "User:\u00e4", "::1", 2, 2)
    house = House(tmp_path)
    store = await house.start()
    creation = store.create_acls([kept, deleted])
    assert not len(store.acls)
    await creation
    assert set(store.acls) == {kept, deleted}
    deletion = store.delete_acls([deleted])
    assert deleted in store.acls
    await deletion
    await store.create_acls([kept])
    assert set(store.acls) == {kept}
    await house.logs.stop()
    house = House(tmp_path)
    assert set((await house.start()).acls) == {kept}
    await house.logs.stop()


async def test_a_rule_that_is_created_while_its_deletion_is_flushed_exists(tmp_path: Path) -> None:
    acl = Acl(2, 3, "t", "User:a", "*", 3, 3)
    house = House(tmp_path)
    store = await house.start()
    await store.create_acls([acl])
    await asyncio.gather(store.delete_acls([acl]), store.create_acls([acl]))
    assert set(store.acls) == {acl}
    await house.logs.stop()
    house = House(tmp_path)
    assert set((await house.start()).acls) == {acl}
    await house.logs.stop()
