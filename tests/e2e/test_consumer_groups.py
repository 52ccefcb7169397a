"""Members of a group: sharing, moving, losing, keeping partitions. On our broker and, with --kafka, on Apache Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from oncelog import (
    Admin,
    Consumer,
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from oncelog.client.consumer import (
    CommitFailedError,
    FencedInstanceError,
    RebalanceInProgressError,
    RebalanceListener,
)
from oncelog.client.errors import AbortableError, IllegalStateError, KafkaError
from oncelog.protocol.codec import DecodeError
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from oncelog.protocol.messages.join_group import JoinGroupRequest
from oncelog.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from oncelog.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from oncelog.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from support.proxy import FaultProxy
from support.topics import created_topic
from support.wire import Wire

Names = Callable[[str], str]
PARTITIONS = 4
WAIT_S = 15.0
STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]


@pytest.fixture
async def topic(bootstrap: str, fresh_name: Names) -> str:
    return await created_topic(bootstrap, fresh_name("topic"), PARTITIONS)


async def fill(bootstrap: str, topic: str, count: int, start: int = 0, partitions: int = PARTITIONS) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(start, start + count):
            await producer.enqueue(topic, b"%d" % number, partition=number % partitions)
        await producer.flush()


async def nine_records(bootstrap: str, fresh_name: Names) -> tuple[str, dict[str, str]]:
    """A topic with the records 0 to 8 in one partition, and the settings of a group that reads them."""
    topic = await created_topic(bootstrap, fresh_name("topic"), 1)
    await fill(bootstrap, topic, 9, partitions=1)
    return topic, {"group_id": fresh_name("group"), "auto_offset_reset": "earliest"}


class Log(RebalanceListener):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, set[TopicPartition]]] = []

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        self.calls.append(("assigned", partitions))

    async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        await asyncio.sleep(0)
        self.calls.append(("revoked", partitions))

    async def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        self.calls.append(("lost", partitions))


class Member:
    """A consumer that polls in the background and notes what it got."""

    def __init__(self, consumer: Consumer, log: Log) -> None:
        self.consumer = consumer
        self.log = log
        self.values: list[bytes | None] = []
        self.moved = asyncio.Condition()
        self.task = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            records = await self.consumer.poll(20)
            self.values += [record.value for record in records]
            async with self.moved:
                self.moved.notify_all()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so; looked at after each poll."""

        async def wait() -> None:
            async with self.moved:
                await self.moved.wait_for(condition)

        waiting = asyncio.create_task(wait())
        try:
            await asyncio.wait({waiting, self.task}, return_when=asyncio.FIRST_COMPLETED, timeout=WAIT_S)
            if self.task.done():
                self.task.result()
            assert waiting.done(), f"not so: assigned {self.consumer.assignment()}, told {self.log.calls}"
            waiting.result()
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def member(bootstrap: str, topic: str, group: str, **settings: Any) -> AsyncIterator[Member]:
    log = Log()
    options = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 200,
        "session_timeout_ms": 10_000,
        **settings,
    }
    async with Consumer(options, topics=[topic], listener=log) as consumer:
        one = Member(consumer, log)
        try:
            yield one
        finally:
            await one.stop()


def shared(*members: Member) -> Callable[[], bool]:
    """Whether all partitions are given out, evenly, and each to one member."""

    def so() -> bool:
        shares = [one.consumer.assignment() for one in members]
        every = set().union(*shares)
        return (
            len(every) == PARTITIONS
            and sum(map(len, shares)) == PARTITIONS
            and max(map(len, shares)) - min(map(len, shares)) <= 1
        )

    return so


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_members_share_and_take_over(bootstrap: str, topic: str, fresh_name: Names, strategy: str) -> None:
    group = fresh_name("group")
    await fill(bootstrap, topic, 100)
    settings = {"partition_assignment_strategy": strategy, "enable_auto_commit": True}
    async with member(bootstrap, topic, group, **settings) as first:
        await first.until(shared(first))
        await first.until(lambda: len(first.values) == 100)
        async with member(bootstrap, topic, group, **settings) as second:
            await second.until(shared(first, second))
            await fill(bootstrap, topic, 100, start=100)
            await first.until(lambda: len(first.values) + len(second.values) >= 200)
        await first.until(shared(first))
        await fill(bootstrap, topic, 100, start=200)
        await first.until(lambda: len(first.values) + len(second.values) >= 300)
        got = sorted(int(value) for value in first.values + second.values if value)
        assert got == list(range(300))


async def test_the_eager_listener_hears_of_everything(bootstrap: str, topic: str, fresh_name: Names) -> None:
    group = fresh_name("group")
    every = {TopicPartition(topic, index) for index in range(PARTITIONS)}
    async with member(bootstrap, topic, group, partition_assignment_strategy="range") as first:
        await first.until(shared(first))
        assert first.log.calls == [("assigned", every)]
        async with member(bootstrap, topic, group, partition_assignment_strategy="range") as second:
            await second.until(shared(first, second))
            kept = first.consumer.assignment()
            assert first.log.calls[1] == ("revoked", every)
            assert first.log.calls[-1] == ("assigned", kept)
    assert first.log.calls[-1][0] == "revoked"
    assert "lost" not in [what for what, _ in first.log.calls]


async def test_the_cooperative_listener_hears_only_of_what_moves(bootstrap: str, topic: str, fresh_name: Names) -> None:
    group = fresh_name("group")
    every = {TopicPartition(topic, index) for index in range(PARTITIONS)}
    async with member(bootstrap, topic, group, partition_assignment_strategy="cooperative-sticky") as first:
        await first.until(shared(first))
        async with member(bootstrap, topic, group, partition_assignment_strategy="cooperative-sticky") as second:
            await second.until(shared(first, second))
            moved = second.consumer.assignment()
            assert [call for call in first.log.calls if call[0] == "revoked"] == [("revoked", moved)]
            assert first.consumer.assignment() == every - moved
            assert set().union(*(p for what, p in second.log.calls if what == "assigned")) == moved


async def test_positions_are_committed_before_partitions_are_given_up(
    bootstrap: str, topic: str, fresh_name: Names
) -> None:
    group = fresh_name("group")
    await fill(bootstrap, topic, 40)
    settings = {"auto_commit_interval_ms": 3_600_000}
    async with member(bootstrap, topic, group, **settings) as first:
        await first.until(lambda: len(first.values) == 40)
        async with member(bootstrap, topic, group, **settings) as second:
            await second.until(shared(first, second))
            await fill(bootstrap, topic, 40, start=40)
            await first.until(lambda: len(first.values) + len(second.values) >= 80)
            assert sorted(int(value) for value in first.values + second.values if value) == list(range(80))


async def test_the_committed_offset_is_where_the_next_member_starts(
    bootstrap: str, topic: str, fresh_name: Names
) -> None:
    group = fresh_name("group")
    await fill(bootstrap, topic, 40)
    async with member(bootstrap, topic, group, enable_auto_commit=False) as first:
        await first.until(lambda: len(first.values) == 40)
        await first.consumer.commit({TopicPartition(topic, index): 5 for index in range(PARTITIONS)})
    async with member(bootstrap, topic, group, enable_auto_commit=False) as second:
        await second.until(lambda: len(second.values) == 20)
        assert sorted(int(value) for value in second.values if value) == list(range(20, 40))


@pytest.mark.parametrize("acknowledged", [True, False], ids=["newer acknowledged", "newer under way"])
async def test_a_repeated_commit_does_not_overwrite_a_newer_one(
    bootstrap: str, topic: str, fresh_name: Names, acknowledged: bool
) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with (
        FaultProxy(bootstrap) as proxy,
        Consumer(bootstrap_servers=proxy.address, group_id=fresh_name("group"), retry_backoff_ms=200) as consumer,
        asyncio.timeout(WAIT_S),
    ):
        await consumer.commit({first: 1})
        refusal = OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=0, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                        )
                    ],
                )
            ]
        )
        refused = asyncio.Event()

        def refuse(request: OffsetCommitRequest) -> OffsetCommitResponse:
            refused.set()
            return refusal

        proxy.answer(OffsetCommitRequest, refuse)
        if not acknowledged:
            proxy.hold(OffsetCommitRequest, 0.6)
        older = asyncio.create_task(consumer.commit({first: 10, second: 10}))
        await refused.wait()
        await consumer.commit({first: 20})
        await older
        committed = await consumer.committed(first, second)
        assert committed == {first: OffsetAndMetadata(20), second: OffsetAndMetadata(10)}


async def test_an_offset_that_the_response_leaves_out_does_not_count_as_committed(
    bootstrap: str, topic: str, fresh_name: Names
) -> None:
    async with (
        FaultProxy(bootstrap) as proxy,
        Consumer(bootstrap_servers=proxy.address, group_id=fresh_name("group")) as consumer,
        asyncio.timeout(WAIT_S),
    ):
        proxy.answer(OffsetCommitRequest, lambda _: OffsetCommitResponse(topics=[]))
        with pytest.raises(KafkaError, match=f"does not name {topic}-0, so it is unknown whether"):
            await consumer.commit({TopicPartition(topic, 0): 1})


async def test_a_malformed_assignment_is_raised_and_the_next_poll_joins_again(
    bootstrap: str, topic: str, fresh_name: Names
) -> None:
    await fill(bootstrap, topic, 1)

    def damage(response: SyncGroupResponse) -> None:
        response.assignment = bytes(response.assignment)[:5]

    settings = {"group_id": fresh_name("group"), "auto_offset_reset": "earliest"}
    async with (
        FaultProxy(bootstrap) as proxy,
        Consumer(settings, bootstrap_servers=proxy.address, topics=[topic]) as consumer,
        asyncio.timeout(WAIT_S),
    ):
        proxy.change(SyncGroupRequest, damage)
        with pytest.raises(DecodeError):
            await anext(consumer)
        assert (await anext(consumer)).value == b"0"


async def test_a_position_in_a_deleted_topic_is_not_committed_for_the_new_topic_of_its_name(
    bootstrap: str, fresh_name: Names
) -> None:
    topic = await created_topic(bootstrap, fresh_name("topic"), 1)
    settings: dict[str, Any] = {"group_id": fresh_name("group"), "auto_offset_reset": "earliest"}
    settings |= {"allow_auto_create_topics": False}  # the test itself makes the topic again
    await fill(bootstrap, topic, 5, partitions=1)
    async with Consumer(settings, bootstrap_servers=bootstrap, topics=[topic]) as first:
        assert len(await first.poll(5000)) == 5
        first.pause((topic, 0))
        async with Admin(bootstrap_servers=bootstrap) as admin:
            await admin.delete_topics([topic])
        await created_topic(bootstrap, topic, 1)
        await fill(bootstrap, topic, 9, partitions=1)
        await first._cluster.refresh()
    async with Consumer(settings, bootstrap_servers=bootstrap, topics=[topic]) as second:
        assert (await anext(second)).value == b"0"


async def test_an_exception_in_the_block_commits_nothing(bootstrap: str, topic: str, fresh_name: Names) -> None:
    group = fresh_name("group")
    await fill(bootstrap, topic, 8)

    async def fail() -> None:
        async with member(bootstrap, topic, group) as first:
            await first.until(lambda: len(first.values) == 8)
            raise RuntimeError("processing failed")

    with pytest.raises(RuntimeError, match="processing failed"):
        await fail()
    async with member(bootstrap, topic, group) as second:
        await second.until(lambda: len(second.values) == 8)


@pytest.mark.parametrize("how", ["iteration", "poll", "poll in a task of its own"])
@pytest.mark.parametrize("state", ["busy", "cancelled"])
async def test_closing_does_not_commit_a_record_that_another_task_processes(
    bootstrap: str, fresh_name: Names, how: str, state: str
) -> None:
    topic, settings = await nine_records(bootstrap, fresh_name)
    processed: list[bytes | None] = []
    third = asyncio.Event()

    async def read(consumer: Consumer) -> list[ConsumerRecord]:
        if how == "iteration":
            return [await anext(consumer)]
        polling = consumer.poll(5000, max_records=2)
        # with Python 3.11, asyncio.wait_for(consumer.poll()) makes a task, too
        return await (polling if how == "poll" else asyncio.create_task(polling))

    async def process(consumer: Consumer) -> None:
        while True:
            records = await read(consumer)
            if len(processed) >= 4:
                third.set()
                await asyncio.Event().wait()
            processed.extend(record.value for record in records)

    async with Consumer(settings, bootstrap_servers=bootstrap, topics=[topic]) as first:
        processing = asyncio.create_task(process(first))
        await third.wait()
        if state == "cancelled":
            processing.cancel()
            await asyncio.wait({processing})
    processing.cancel()
    async with Consumer(settings, bootstrap_servers=bootstrap, topics=[topic]) as second:
        assert (await anext(second)).value == b"4"


async def test_closing_does_not_commit_a_record_that_another_task_took_from_the_buffer(
    bootstrap: str, fresh_name: Names
) -> None:
    topic, settings = await nine_records(bootstrap, fresh_name)
    taken = asyncio.Event()

    async def process(consumer: Consumer) -> None:
        async for record in consumer:
            assert record.value == b"1"
            taken.set()
            await asyncio.Event().wait()

    async with Consumer(settings, bootstrap_servers=bootstrap, topics=[topic]) as first:
        assert [record.value for record in await first.poll(5000, max_records=1)] == [b"0"]
        processing = asyncio.create_task(process(first))
        await taken.wait()
    processing.cancel()
    async with Consumer(settings, bootstrap_servers=bootstrap, topics=[topic]) as second:
        assert (await anext(second)).value == b"1"


@pytest.mark.parametrize("how", ["iteration", "poll"])
async def test_closing_does_not_undo_a_commit_of_another_task(bootstrap: str, fresh_name: Names, how: str) -> None:
    topic, settings = await nine_records(bootstrap, fresh_name)
    committed = asyncio.Event()

    async def process(consumer: Consumer) -> None:
        for _ in range(3):
            records = [await anext(consumer)] if how == "iteration" else await consumer.poll(5000, max_records=1)
        await consumer.commit({record.topic_partition: record.offset + 1 for record in records})
        committed.set()
        await asyncio.Event().wait()

    async with Consumer(settings, bootstrap_servers=bootstrap, topics=[topic]) as first:
        processing = asyncio.create_task(process(first))
        await committed.wait()
    processing.cancel()
    async with Consumer(settings, bootstrap_servers=bootstrap, topics=[topic]) as second:
        assert (await anext(second)).value == b"3"


async def test_closing_commits_the_records_of_a_task_that_has_ended(bootstrap: str, fresh_name: Names) -> None:
    topic, settings = await nine_records(bootstrap, fresh_name)

    async def process(consumer: Consumer) -> None:
        assert len(await consumer.poll(5000, max_records=3)) == 3

    async with Consumer(settings, bootstrap_servers=bootstrap, topics=[topic]) as first:
        await asyncio.create_task(process(first))
    async with Consumer(settings, bootstrap_servers=bootstrap, topics=[topic]) as second:
        assert (await anext(second)).value == b"3"


async def test_closing_commits_the_records_that_another_task_got_for_the_closing_one(
    bootstrap: str, fresh_name: Names
) -> None:
    topic, settings = await nine_records(bootstrap, fresh_name)
    first = Consumer(settings, bootstrap_servers=bootstrap, topics=[topic])
    await first.start()
    assert len(await asyncio.create_task(first.poll(5000, max_records=3))) == 3
    await asyncio.create_task(first.close())
    async with Consumer(settings, bootstrap_servers=bootstrap, topics=[topic]) as second:
        assert (await anext(second)).value == b"3"


async def test_a_member_that_does_not_poll_loses_its_partitions(bootstrap: str, topic: str, fresh_name: Names) -> None:
    group = fresh_name("group")
    async with member(bootstrap, topic, group, max_poll_interval_ms=1000, enable_auto_commit=False) as first:
        await first.until(shared(first))
        await first.stop()
        membership = first.consumer.group_metadata()
        async with member(bootstrap, topic, group) as second:
            await second.until(shared(second))
            with pytest.raises(CommitFailedError):
                await first.consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(1)})
            with pytest.raises(RebalanceInProgressError):
                first.consumer.group_assignment()
            assert first.consumer.group_metadata() == membership
            first.task = asyncio.create_task(first._poll())
            await first.until(shared(first, second))
            assert ("lost", {TopicPartition(topic, index) for index in range(PARTITIONS)}) in first.log.calls


@pytest.mark.parametrize(
    "refusal",
    [None, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION],
    ids=lambda code: code.name if code else "no poll",
)
async def test_a_transaction_of_a_lost_member_commits_no_offsets(
    bootstrap: str, fresh_name: Names, refusal: ErrorCode | None
) -> None:
    topic = await created_topic(bootstrap, fresh_name("topic"), 1)
    await fill(bootstrap, topic, 3, partitions=1)
    group = fresh_name("group")
    settings: dict[str, Any] = {"group_id": group, "auto_offset_reset": "earliest"}
    settings |= {"enable_auto_commit": False, "heartbeat_interval_ms": 100}

    def refuse(response: HeartbeatResponse) -> None:
        assert refusal is not None
        response.error_code = refusal

    async with (
        FaultProxy(bootstrap) as proxy,
        Consumer(
            settings,
            bootstrap_servers=proxy.address,
            topics=[topic],
            max_poll_interval_ms=1000 if refusal is None else 300_000,
        ) as first,
        Producer(bootstrap_servers=bootstrap, transactional_id=fresh_name("id")) as producer,
        asyncio.timeout(2 * WAIT_S),
    ):
        assert (await anext(first)).value == b"0"
        if refusal is not None:
            member_id = first.group_metadata().member_id
            with Wire(bootstrap) as wire:
                wire.call(LeaveGroupRequest(group, members=[MemberIdentity(member_id)]), 4)
            proxy.change(HeartbeatRequest, refuse)
        await first.until_rebalance()
        async with Consumer(settings, bootstrap_servers=bootstrap, topics=[topic]) as second:
            assert (await anext(second)).value == b"0"
            with pytest.raises(AbortableError):
                async with producer.transaction() as transaction:
                    await transaction.send_offsets({(topic, 0): 1}, first.group_metadata())
            async with producer.transaction() as transaction:
                await transaction.send_offsets({(topic, 0): 2}, second.group_metadata())
            assert await second.committed() == {TopicPartition(topic, 0): OffsetAndMetadata(2)}


async def test_a_member_that_has_unsubscribed_still_names_its_last_generation(
    bootstrap: str, topic: str, fresh_name: Names
) -> None:
    async with member(bootstrap, topic, fresh_name("group")) as one:
        assert one.consumer.group_metadata() == ConsumerGroupMetadata(one.consumer.group_metadata().group_id)
        await one.until(shared(one))
        await one.stop()
        membership = one.consumer.group_metadata()
        assert membership.generation_id >= 1
        await one.consumer.unsubscribe()
        assert one.consumer.group_metadata() == membership
        one.consumer.assign([(topic, 0)])
        assert one.consumer.group_metadata() == ConsumerGroupMetadata(membership.group_id)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_a_listener_commits_in_a_transaction_before_partitions_are_given_up(
    bootstrap: str, topic: str, fresh_name: Names, strategy: str
) -> None:
    group = fresh_name("group")
    committed: set[TopicPartition] = set()

    class Committing(RebalanceListener):
        def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            pass

        async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
            async with producer.transaction() as transaction:
                await transaction.send_offsets(dict.fromkeys(partitions, 0), consumer.group_metadata())
            committed.update(partitions)

    settings: dict[str, Any] = {"group_id": group, "partition_assignment_strategy": strategy}
    settings |= {"bootstrap_servers": bootstrap, "enable_auto_commit": False, "heartbeat_interval_ms": 200}
    async with (
        Producer(bootstrap_servers=bootstrap, transactional_id=fresh_name("id")) as producer,
        Consumer(settings, topics=[topic], listener=Committing()) as consumer,
    ):
        first = Member(consumer, Log())
        try:
            await first.until(shared(first))
            async with member(bootstrap, topic, group, **settings) as second:
                await second.until(shared(first, second))
                assert committed >= second.consumer.assignment()
        finally:
            await first.stop()


async def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    bootstrap: str, topic: str, fresh_name: Names
) -> None:
    group = fresh_name("group")
    async with member(bootstrap, topic, group, group_instance_id="b") as other:
        await other.until(shared(other))
        async with member(bootstrap, topic, group, group_instance_id="a") as first:
            await first.until(shared(first, other))
            had = first.consumer.assignment()
            generation = first.consumer.group_metadata().generation_id
        calls = len(other.log.calls)
        async with member(bootstrap, topic, group, group_instance_id="a") as again:
            await again.until(lambda: again.consumer.assignment() == had)
            assert again.consumer.group_metadata().generation_id == generation
            assert again.consumer.group_metadata().group_instance_id == "a"
            assert len(other.log.calls) == calls


async def test_a_second_member_with_one_instance_id_fences_the_first(
    bootstrap: str, topic: str, fresh_name: Names
) -> None:
    group = fresh_name("group")
    async with member(bootstrap, topic, group, group_instance_id="a") as first:
        await first.until(shared(first))
        async with member(bootstrap, topic, group, group_instance_id="a") as second:
            await second.until(shared(second))
            with pytest.raises(FencedInstanceError):
                await first.until(lambda: False)


async def test_new_partitions_and_topics_that_match_are_taken_up(bootstrap: str, fresh_name: Names) -> None:
    group, stem = fresh_name("group"), fresh_name("matched")
    log = Log()
    async with (
        Admin(bootstrap_servers=bootstrap) as admin,
        Consumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            pattern=f"{stem}-.*",
            listener=log,
            metadata_max_age_ms=200,
            heartbeat_interval_ms=200,
        ) as consumer,
    ):
        await admin.create_topic(f"{stem}-a", 1)
        await admin.create_topic(f"un{stem}-a", 1)
        one = Member(consumer, log)
        try:
            await one.until(lambda: consumer.assignment() == {TopicPartition(f"{stem}-a", 0)})
            assert consumer.subscription() == {f"{stem}-a"}
            await admin.create_topic(f"{stem}-b", 1)
            await one.until(lambda: TopicPartition(f"{stem}-b", 0) in consumer.assignment())
            await admin.create_partitions({f"{stem}-a": 3})
            await one.until(lambda: len(consumer.assignment()) == 4)
        finally:
            await one.stop()


async def test_a_topic_that_is_created_later_is_read(bootstrap: str, fresh_name: Names) -> None:
    topic = fresh_name("later")
    async with (
        Admin(bootstrap_servers=bootstrap) as admin,
        member(bootstrap, topic, fresh_name("group"), allow_auto_create_topics=False, metadata_max_age_ms=200) as one,
    ):
        await one.until(lambda: bool(one.log.calls))
        await admin.create_topic(topic, PARTITIONS)
        await fill(bootstrap, topic, 20)
        await one.until(lambda: len(one.values) == 20)


async def test_unsubscribing_leaves_the_group(bootstrap: str, topic: str, fresh_name: Names) -> None:
    group = fresh_name("group")
    async with member(bootstrap, topic, group) as first, Admin(bootstrap_servers=bootstrap) as admin:
        await first.until(shared(first))
        assert (await admin.describe_groups([group]))[group].state == "Stable"
        await first.stop()
        await first.consumer.unsubscribe()
        assert first.consumer.assignment() == set()
        assert first.log.calls[-1][0] == "revoked"
        assert (await admin.describe_groups([group]))[group].state == "Empty"
        first.consumer.assign([(topic, 0)])
        with pytest.raises(IllegalStateError, match="unsubscribe"):
            first.consumer.subscribe([topic])


async def test_a_listener_may_seek(bootstrap: str, topic: str, fresh_name: Names) -> None:
    await fill(bootstrap, topic, 40)

    class Seeker(RebalanceListener):
        def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            for partition in partitions:
                consumer.seek(partition, 8)

    async with Consumer(
        bootstrap_servers=bootstrap, group_id=fresh_name("group"), topics=[topic], listener=Seeker()
    ) as consumer:
        values: list[bytes | None] = []
        while len(values) < 8:
            values += [record.value for record in await consumer.poll(5000)]
        assert sorted(int(value) for value in values if value) == list(range(32, 40))


async def test_what_a_listener_raises_comes_out_of_the_poll(bootstrap: str, topic: str, fresh_name: Names) -> None:
    class Broken(RebalanceListener):
        def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            raise ValueError("broken listener")

    async with Consumer(
        bootstrap_servers=bootstrap, group_id=fresh_name("group"), topics=[topic], listener=Broken()
    ) as consumer:
        with pytest.raises(ValueError, match="broken listener"):
            await consumer.poll(30_000)
        assert len(consumer.assignment()) == PARTITIONS


async def test_a_poll_that_waits_longer_than_max_poll_interval_keeps_the_member(
    bootstrap: str, topic: str, fresh_name: Names
) -> None:
    async with Consumer(
        bootstrap_servers=bootstrap,
        group_id=fresh_name("group"),
        topics=[topic],
        max_poll_interval_ms=500,
        heartbeat_interval_ms=50,
        enable_auto_commit=False,
    ) as consumer:
        assert await consumer.poll(1500) == []
        assert len(consumer.assignment()) == PARTITIONS
        assert consumer.group_metadata().generation_id == 1


async def test_leaving_beside_a_poll_does_not_join_again(bootstrap: str, topic: str, fresh_name: Names) -> None:
    async with FaultProxy(bootstrap) as proxy:
        for leave in ("close", "unsubscribe"):
            consumer = Consumer(bootstrap_servers=proxy.address, group_id=fresh_name("group"), topics=[topic])
            await consumer.start()
            before = proxy.seen["JoinGroup"]
            proxy.hold(JoinGroupRequest, 0.5)
            polling = asyncio.create_task(consumer.poll(2000))
            async with asyncio.timeout(60):
                while proxy.seen["JoinGroup"] == before:
                    await asyncio.sleep(0.01)
                proxy.hold(LeaveGroupRequest, 0.2)
                await (consumer.close() if leave == "close" else consumer.unsubscribe())
                await asyncio.gather(polling, return_exceptions=True)
            assert proxy.seen["JoinGroup"] == before + 1
            await consumer.close()
