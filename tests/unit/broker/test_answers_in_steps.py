"""Answers that are made in steps: what they tell of may change between two of them."""

from __future__ import annotations

import sys
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest
from oncelog.broker.api.handling import Deferred, RequestContext
from oncelog.broker.coordinator.group.coordinator import Commit, Committer
from oncelog.broker.coordinator.group.state import GroupState
from oncelog.broker.handlers import (
    create_topics,
    describe_configs,
    describe_groups,
    describe_producers,
    list_groups,
    offset_fetch,
)
from oncelog.broker.log import AppendOrigin, PartitionLog
from oncelog.broker.node import BrokerNode
from oncelog.broker.scheduling.steps import Finished, Steps, run_at_once, run_in_slices
from oncelog.protocol.access_rules import AclResourceType
from oncelog.protocol.control_records import control_batch
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.framing import decode_response
from oncelog.protocol.messages.create_topics import CreatableTopic
from oncelog.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from oncelog.protocol.messages.describe_groups import DescribeGroupsRequest
from oncelog.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from oncelog.protocol.messages.list_groups import ListGroupsRequest
from oncelog.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from support.dispatching import Peer, frame_of
from support.faulty_filesystem import FaultyFileSystem
from support.group_world import GroupWorld, in_virtual_time
from support.logs import NOW, batch, open_log
from support.raw_connection import RawConnection


def context(**services: Any) -> RequestContext:
    config = SimpleNamespace(response_max_rows=1000)
    return RequestContext(cast(Any, SimpleNamespace(config=config, **services)), cast(Any, None), 0, 6, 1, "c", -1)


def one_step(steps: Steps[Any]) -> Finished[Any] | None:
    try:
        next(steps)
    except StopIteration as end:
        return Finished(end.value)
    return None


def test_producers_that_come_while_producers_are_described_do_no_harm() -> None:
    log = open_log(FaultyFileSystem())
    producer_id = 0

    def come() -> None:
        nonlocal producer_id
        producer_id += 1
        log.append(batch("a", producer_id=producer_id, producer_epoch=0, base_sequence=0))

    for _ in range(5):
        come()
    partitions = SimpleNamespace(partition=lambda topic, index: None)
    logs = SimpleNamespace(get=lambda topic, index: log)
    described = describe_producers.handle(
        context(replica_manager=partitions, log_manager=logs), DescribeProducersRequest([TopicRequest("t", [0])])
    )
    while (finished := one_step(described)) is None:
        come()
    ((answer,),) = [topic.partitions for topic in finished.result.topics]
    assert answer.error_code == ErrorCode.NONE
    assert {1, 2, 3, 4, 5} <= {producer.producer_id for producer in answer.active_producers}


def test_the_work_for_a_resource_that_is_named_again_and_again_grows_with_its_settings_only() -> None:
    """A resource is described once, with all of the settings that its occurrences in the request name."""
    names = [f"setting-{number}" for number in range(3000)]
    asked = [DescribeConfigsResource(2, "t", [name]) for name in names]
    metadata = SimpleNamespace(topic=lambda name: None)
    described = describe_configs.handle(context(metadata=metadata), DescribeConfigsRequest(asked))
    units = 0
    while True:
        try:
            done = next(described)
        except StopIteration as end:
            (result,) = end.value.results
            break
        assert isinstance(done, int)
        units += done
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert units < 3 * len(names)


@in_virtual_time
async def test_members_that_leave_while_their_group_is_described_do_no_harm() -> None:
    async with GroupWorld() as world:
        members = await world.stable_group(3)
        described: Any = describe_groups.handle(
            context(group_coordinator=world.coordinator), DescribeGroupsRequest(["g"])
        )
        while (finished := one_step(described)) is None:
            if world.state() == "Stable" and described.gi_yieldfrom is not None:
                world.leave(*[member.member_id for member in members])
        assert world.state() == "Empty"
        (group,) = finished.result.groups
        assert group.error_code == ErrorCode.NONE
        assert (group.group_state, len(group.members)) == ("Stable", 3), "as it was when it was looked at"
        assert all(member.member_metadata == b"r" for member in group.members)


@pytest.mark.parametrize("repeated", [False, True])
def test_the_work_to_look_through_created_topics_is_linear(repeated: bool) -> None:
    """Also if the request names one topic again and again."""

    def lines(count: int) -> int:
        names = ["again" if repeated else f"topic-{number}" for number in range(count)]
        topics = [CreatableTopic(name, 1, 1) for name in names]
        executed = 0

        def trace(*_: object) -> Any:
            nonlocal executed
            executed += 1
            return trace

        looked = create_topics._items(context(), topics)
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            items, partitions = run_at_once(looked)
        finally:
            sys.settrace(before)
        assert len(items) == partitions == (1 if repeated else count)
        return executed

    assert lines(2_000) < 2.2 * lines(1_000)


async def test_a_fetch_of_many_aborted_transactions_is_answered_in_steps() -> None:
    async with BrokerNode(logging_level="error", durability="os") as broker, RawConnection(broker.address) as wire:
        await wire.create_topic("t", 1)
        log = await run_in_slices(broker.replica_manager.partition("t", 0).open())
        assert isinstance(log, PartitionLog)
        for number in range(600):
            records = batch("x", producer_id=number, producer_epoch=0, base_sequence=0, transactional=True)
            log.append(records)
            log.append(bytearray(control_batch(False, 0, number, 0, NOW)), origin=AppendOrigin.COORDINATOR)
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0, session_epoch=-1, isolation_level=1, topics=[FetchTopic(topic="t", partitions=[wanted])]
        )
        exchange = broker.dispatcher.accept(cast(Any, Peer()), memoryview(bytearray(frame_of(request, 12))))
        deferred = broker.dispatcher.execute(exchange)
        assert isinstance(deferred, Deferred)
        encoding = broker.dispatcher.conclude(exchange, deferred, None, None)
        assert isinstance(encoding, Coroutine), "neither made nor encoded at once"
        _, answer = decode_response(FetchResponse, 12, b"".join(await encoding)[4:])
        (data,) = answer.responses[0].partitions
        assert [one.producer_id for one in data.aborted_transactions or ()] == list(range(600))


class CostlyAccess:
    """Access rules with many lengths of prefixes: each decision takes long, and its cost is counted."""

    units = 1000
    is_limited = True

    def __init__(self) -> None:
        self.spent = 0

    def allows(self, operation: object, resource_type: object, name: str = "", *, quiet: bool = False) -> bool:
        self.spent += self.units
        return resource_type is not AclResourceType.CLUSTER

    def context(self, **services: Any) -> RequestContext:
        made = context(access_control=SimpleNamespace(of=lambda *_: self), **services)
        made.connection = cast(Any, SimpleNamespace(principal=None, peer_host=""))
        return made


def units_of(steps: Any) -> int:
    units = 0
    for done in steps:
        assert isinstance(done, int)
        units += done
    return units


@pytest.mark.parametrize("topics", [None, [OffsetFetchRequestTopic(f"t{n}", [0, 1]) for n in range(40)]])
async def test_decisions_about_access_count_as_work_when_offsets_are_fetched(
    topics: list[OffsetFetchRequestTopic] | None,
) -> None:
    async with BrokerNode(logging_level="error") as broker:
        for n in range(40):
            await broker.metadata.create_topic(f"t{n}", 2, {})
        commits = [Commit((f"t{n}", index), 5, -1, None) for n in range(40) for index in (0, 1)]
        broker.group_coordinator.commit_offsets("g", Committer(), commits)
        while (settled := broker.group_coordinator.settled("g")) is not None:
            await settled
        access = CostlyAccess()
        limited = access.context(group_coordinator=broker.group_coordinator, group_aware=True)
        units = units_of(offset_fetch.handle(limited, OffsetFetchRequest(group_id="g", topics=topics)))
        assert access.spent == 40 * CostlyAccess.units, "one decision for each topic"
        assert units > access.spent


def test_decisions_about_access_count_as_work_when_groups_are_listed() -> None:
    groups = [SimpleNamespace(group_id=f"g{n}", protocol_type="", state=GroupState.EMPTY) for n in range(40)]
    access = CostlyAccess()
    limited = access.context(group_coordinator=SimpleNamespace(groups=lambda: groups))
    assert units_of(list_groups.handle(limited, ListGroupsRequest())) >= 40 * CostlyAccess.units
