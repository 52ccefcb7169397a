"""The sink's transaction without Spark: several tasks of one attempt, fencing, replay, abort."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from oncelog import Admin, Consumer, NewTopic, TopicPartition  # noqa: E402
from oncelog.client.cluster import Cluster  # noqa: E402
from oncelog.client.config import ProducerConfig  # noqa: E402
from oncelog.client.errors import ProducerFencedError, UnsupportedVersionError  # noqa: E402
from oncelog.client.producer.transaction_calls import TransactionCalls  # noqa: E402
from oncelog.client.producer.transaction_state import State  # noqa: E402
from oncelog.pipeline.arrow.encoder import Payload, encode  # noqa: E402
from oncelog.pipeline.sink import attempts  # noqa: E402
from oncelog.pipeline.sink.checkpoint import LocalNotes  # noqa: E402
from oncelog.pipeline.sink.ownership import StateError, let_go, take_over  # noqa: E402
from oncelog.pipeline.sink.produce import CLIENT_DEFAULTS, TransactionProducer, Written  # noqa: E402
from oncelog.pipeline.sink.settings import SinkSettings  # noqa: E402
from oncelog.pipeline.sink.transaction import (  # noqa: E402
    Attempt,
    BatchTooSlowError,
    Record,
    SinkState,
    SinkTransaction,
    SupersededError,
    TakenOverError,
    UnclaimedPartitionsError,
    resumed,
)
from oncelog.pipeline.sink.writer import BatchWriter, StreamWriter, TaskFailedError, TaskWritten  # noqa: E402
from oncelog.protocol.errors import ErrorCode, KafkaError  # noqa: E402
from oncelog.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse  # noqa: E402
from pyspark import TaskContext  # noqa: E402
from pyspark.sql.types import StructType  # noqa: E402
from support.proxy import FaultProxy  # noqa: E402

STATE_TOPIC = "state-of-tests"
TOO_SLOW = (
    r"kafka\.transaction\.timeout\.ms = 100.*Raise that option, up to .*transaction\.max\.timeout\.ms\. Spark runs "
    r"this batch again with the same rows.*maxOffsetsPerTrigger.*only later batches smaller"
)
PARTITIONS = 3


@dataclasses.dataclass
class World:
    """A cluster, a topic, and what a query does with them."""

    cluster: Cluster
    config: ProducerConfig
    topic: str
    query: str
    bootstrap: str

    @property
    def sink(self) -> SinkTransaction:
        return SinkTransaction(self.cluster, self.config)

    @property
    def options(self) -> dict[str, str]:
        """Of a sink that is this query."""
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "transactionalId": self.query,
            "stateTopic": STATE_TOPIC,
        }

    async def markers_written(self, attempt: Attempt) -> None:
        """Wait for the markers of an ended transaction. Apache Kafka answers before it has written them."""
        async with Admin(bootstrap_servers=self.bootstrap) as admin:
            described = await admin.describe_transactions([attempt.transactional_id])
            while not described[attempt.transactional_id].state.startswith("Complete"):
                await asyncio.sleep(0.01)
                described = await admin.describe_transactions([attempt.transactional_id])

    async def claim(self) -> str:
        return await self.sink.claim(self.query, STATE_TOPIC)

    async def begin(self, version: int = 2) -> Attempt:
        attempt = await self.sink.begin(self.query, STATE_TOPIC)
        return dataclasses.replace(attempt, version=min(version, attempt.version))

    @contextlib.asynccontextmanager
    async def producer(self, attempt: Attempt) -> AsyncIterator[TransactionProducer]:
        """What a Spark task writes with."""
        producer = TransactionProducer(self.cluster, attempt, self.config, lambda: int(time.time() * 1000))
        try:
            yield producer
        finally:
            await producer.close()

    def payloads(self, partition: int, values: list[str], size: int = 40) -> list[tuple[TopicPartition, Payload]]:
        """Values for one partition, in batches of `size` bytes."""
        array = pa.array([value.encode() for value in values], pa.binary())
        payloads = encode(pa.nulls(len(array), pa.binary()), array, None, size)
        return [(TopicPartition(self.topic, partition), payload) for payload in payloads]

    async def task(self, attempt: Attempt, partition: int, values: list[str], size: int = 40) -> Written:
        """Write values as one Spark task does."""
        async with self.producer(attempt) as producer:
            return await self.written(producer, partition, values, size)

    async def written(
        self, producer: TransactionProducer, partition: int, values: list[str], size: int = 40
    ) -> Written:
        """Write values and finish."""
        await producer.write(self.payloads(partition, values, size))
        return (await producer.finish())[TopicPartition(self.topic, partition)]

    async def acknowledged(self, producer: TransactionProducer) -> None:
        """Wait until the leaders have everything that was written so far."""
        async with asyncio.timeout(60):
            while producer._buffered:
                await asyncio.sleep(0.005)

    async def commit(self, attempt: Attempt, batch_id: int, *partitions: int) -> None:
        written = [TopicPartition(self.topic, one) for one in partitions]
        await self.sink.commit(attempt, written, SinkState("the query", batch_id))

    async def committed(self) -> list[str]:
        """What a read_committed reader finds when the markers of the last transaction are written."""
        assert await self.nothing_is_open()
        return await self.visible()

    async def visible(self) -> list[str]:
        """What a read_committed reader finds now."""
        everything = [TopicPartition(self.topic, one) for one in range(PARTITIONS)]
        async with Consumer(
            bootstrap_servers=self.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign(everything)
            found = []
            async with asyncio.timeout(60):
                ends = await consumer.end_offsets(everything)
                while any([await consumer.position(one) < ends[one] for one in everything]):
                    got = await consumer.getmany(timeout_ms=200)
                    found += [record.value.decode() for records in got.values() for record in records if record.value]
            return sorted(found)

    async def nothing_is_open(self) -> bool:
        """Whether the stable part of each partition reaches its end."""
        everything = [TopicPartition(self.topic, one) for one in range(PARTITIONS)]
        async with (
            Consumer(bootstrap_servers=self.bootstrap, isolation_level="read_committed") as stable,
            Consumer(bootstrap_servers=self.bootstrap) as all_of_it,
        ):
            for _ in range(6_000):
                if await stable.end_offsets(everything) == await all_of_it.end_offsets(everything):
                    return True
                await asyncio.sleep(0.01)
        return False


@pytest.fixture
async def world(bootstrap: str, fresh_name: Callable[[str], str]) -> AsyncIterator[World]:
    topic = fresh_name("sink")
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS)])
    config = ProducerConfig.of({"bootstrap.servers": bootstrap}, **CLIENT_DEFAULTS)
    cluster = Cluster(config)
    await cluster.start(10)
    try:
        yield World(cluster, config, topic, fresh_name("query"), bootstrap)
    finally:
        await cluster.close()


versions = pytest.mark.parametrize("version", [1, 2])


async def assert_the_next_attempt_alone_is_seen(world: World, version: int) -> None:
    again = await world.begin(version)
    await world.task(again, 0, ["x"])
    await world.commit(again, 0, 0)
    assert await world.committed() == ["x"]


@versions
async def test_tasks_of_one_attempt_commit_together(world: World, version: int) -> None:
    attempt = await world.begin(version)
    assert attempt.state is None
    first, second = await asyncio.gather(
        world.task(attempt, 0, [f"a{n}" for n in range(200)]), world.task(attempt, 2, [f"c{n}" for n in range(200)])
    )
    assert first == second == Written(200, False)
    assert await world.visible() == []
    await world.commit(attempt, 7, 0, 2)
    assert await world.committed() == sorted([f"a{n}" for n in range(200)] + [f"c{n}" for n in range(200)])
    assert (await world.begin()).state == SinkState("the query", 7)


@versions
async def test_a_newer_driver_fences_tasks_and_commit_of_the_older(world: World, version: int) -> None:
    old = await world.begin(version)
    await world.task(old, 0, ["old"])
    new = await world.begin(version)
    with pytest.raises((ProducerFencedError, KafkaError)):
        await world.task(old, 1, ["zombie"])
    with pytest.raises(TakenOverError, match="newer driver"):
        await world.commit(old, 1, 0)
    await world.task(new, 0, ["new"])
    await world.sink.abort(old)  # the older driver's abort must not touch the newer one's transaction
    await world.commit(new, 1, 0)
    assert await world.committed() == ["new"]


@versions
async def test_abort_ends_the_transaction_and_shuts_out_running_tasks(world: World, version: int) -> None:
    attempt = await world.begin(version)
    await world.task(attempt, 0, ["gone"])
    await world.sink.abort(attempt)
    assert await world.nothing_is_open()
    with pytest.raises(KafkaError):
        await world.task(attempt, 0, ["late"])
    assert await world.nothing_is_open()
    assert await world.committed() == []


@versions
async def test_abort_of_an_attempt_that_wrote_nothing(world: World, version: int) -> None:
    attempt = await world.begin(version)
    await world.sink.abort(attempt)
    await world.sink.abort(attempt)
    await assert_the_next_attempt_alone_is_seen(world, version)


@versions
async def test_abort_shuts_out_tasks_that_had_not_written_yet(world: World, version: int) -> None:
    attempt = await world.begin(version)
    await world.sink.abort(attempt)
    with pytest.raises(KafkaError):
        await world.task(attempt, 0, ["late"])
    assert await world.nothing_is_open()
    await assert_the_next_attempt_alone_is_seen(world, version)


@versions
async def test_what_a_task_sends_after_the_abort_is_never_committed(world: World, version: int) -> None:
    """Brokers before 3.6 take a batch of the epoch of the last marker, although no transaction is open."""
    attempt = await world.begin(version)
    async with world.producer(attempt) as zombie:
        await zombie.write(world.payloads(0, ["gone"]))
        await world.acknowledged(zombie)
        await world.sink.abort(attempt)
        with contextlib.suppress(KafkaError):  # it may get there before the abort's marker, and is aborted then
            await world.written(zombie, 0, ["late"])
    assert await world.nothing_is_open()
    await assert_the_next_attempt_alone_is_seen(world, version)


async def test_a_task_whose_transaction_another_task_has_ended_does_not_hide_the_other_s_failure(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With transaction.version 1, the abort of a task ends the transaction before it fences the other tasks."""
    writer = BatchWriter(
        SinkSettings({**world.options, "topic": world.topic}, StructType().add("value", "string"), streaming=False)
    )
    writer.attempt = attempt = await world.begin(version=1)

    def ended_meanwhile() -> Iterator[Any]:
        rows = pa.record_batch({"value": pa.array([b"x"]), "partition": pa.array([0], pa.int32())})
        yield rows
        with writer.settings.open() as kafka:
            calls = TransactionCalls(kafka.cluster, resumed(attempt), 60_000, 20.0)
            calls._manager.become(State.ABORTING_TRANSACTION)
            kafka.run(calls.end(committed=False))
            kafka.run(world.markers_written(attempt))
        yield rows

    context = TaskContext()
    context._partitionId = context._attemptNumber = 0
    monkeypatch.setattr(TaskContext, "_taskContext", context)
    message = await asyncio.to_thread(writer.write_rows, ended_meanwhile(), "the query", 0)
    assert message.failure
    cause = TaskWritten(attempt, 1, "the query", 0, failure="oncelog.pipeline.sink.rows.RowError: bad\n")
    with pytest.raises(TaskFailedError, match=r"task 1 has failed, .*\noncelog\.pipeline\.sink\.rows\.RowError: bad"):
        writer.decide([message, cause], 0)
    assert await world.committed() == []


@versions
async def test_abort_after_a_commit_changes_nothing(world: World, version: int) -> None:
    attempt = await world.begin(version)
    await world.task(attempt, 0, ["kept"])
    await world.commit(attempt, 3, 0)
    await world.sink.abort(attempt)
    assert await world.committed() == ["kept"]
    assert (await world.begin()).state == SinkState("the query", 3)


@versions
async def test_an_empty_batch_is_recorded_as_well(world: World, version: int) -> None:
    attempt = await world.begin(version)
    await world.commit(attempt, 4)
    assert (await world.begin()).state == SinkState("the query", 4)


@versions
async def test_two_tasks_on_one_partition_conflict(world: World, version: int) -> None:
    attempt = await world.begin(version)
    first = await world.task(attempt, 1, ["a", "b"], size=1)
    second = await world.task(attempt, 1, ["c", "d"], size=1)  # the same sequences: the broker takes them for repeats
    third = await world.task(attempt, 1, ["e", "f", "g"], size=10_000)
    assert (first.conflict, second.conflict, third.conflict) == (False, True, True)
    await world.sink.abort(attempt)


@versions
async def test_of_two_attempts_that_run_at_once_only_one_writes(world: World, version: int) -> None:
    """As Spark runs a task twice when a stage is tried again; only one of their results gets to the commit."""
    attempt = await world.begin(version)
    target = TopicPartition(world.topic, 0)
    async with world.producer(attempt) as first, world.producer(attempt) as second:
        for producer in (first, second):
            await producer.open({target})  # both have seen the same end of the partition
        await first.write(world.payloads(0, ["a0", "a1"], size=1))
        await world.acknowledged(first)
        in_other_order = await world.written(second, 0, ["a2", "a0", "a1", "a3"], size=1)
        rest = await world.written(first, 0, ["a2", "a3"], size=1)
    assert (rest, in_other_order) == (Written(4, False), Written(4, True))
    await world.commit(attempt, 0, 0)
    assert await world.committed() == ["a0", "a1", "a2", "a3"]


@pytest.mark.parametrize("setting", ["message.timestamp.type=LogAppendTime", "compression.type=gzip"])
async def test_batches_that_the_broker_rewrites_are_still_the_tasks_own(world: World, setting: str) -> None:
    async with Admin(bootstrap_servers=world.bootstrap) as admin:
        name, _, value = setting.partition("=")
        try:
            await admin.create_topics([NewTopic(f"{world.topic}-rewritten", PARTITIONS, configs={name: value})])
        except KafkaError as error:
            pytest.skip(f"the broker does not do that: {error}")
    world.topic += "-rewritten"
    attempt = await world.begin()
    assert await world.task(attempt, 0, ["a", "b", "c"], size=1) == Written(3, False)
    await world.commit(attempt, 0, 0)
    assert await world.committed() == ["a", "b", "c"]


async def test_records_of_a_dead_task_that_nobody_claims_are_not_committed(world: World) -> None:
    async with Admin(bootstrap_servers=world.bootstrap) as admin:
        try:
            await admin.list_transactions()
        except UnsupportedVersionError:
            pytest.skip("a broker before 3.0 does not tell what a transaction holds")
    attempt = await world.begin()
    await world.task(attempt, 0, ["claimed"])
    await world.task(attempt, 1, ["of a task that died"])
    with pytest.raises(UnclaimedPartitionsError, match=f"{world.topic}-1"):
        await world.commit(attempt, 0, 0)
    await world.sink.abort(attempt)
    assert await world.committed() == []


async def test_a_driver_that_starts_ends_at_once_what_a_dead_one_left(world: World) -> None:
    """Before its first batch, and also if there is none."""
    dead = await world.begin()
    await world.task(dead, 0, ["of a driver that died"])
    schema = StructType().add("value", "string")
    options = {**world.options, "topic": world.topic}
    settings = SinkSettings(options, schema, streaming=True)
    began = time.monotonic()
    await asyncio.to_thread(take_over, settings)
    assert await world.nothing_is_open()
    assert time.monotonic() - began < 10, "not by the transaction's timeout, which is five minutes"
    with pytest.raises(TakenOverError):
        await world.commit(dead, 0, 0)
    assert await world.committed() == []


async def test_a_batch_that_takes_longer_than_its_transaction_may_says_so(world: World) -> None:
    given = {name: world.config.get(name) for name in world.config.explicit}
    world.config = ProducerConfig.of({**given, "transaction.timeout.ms": 100})
    attempt = await world.begin()
    await world.task(attempt, 0, ["slow"])
    while not await world.nothing_is_open():
        pass
    with pytest.raises(BatchTooSlowError, match=TOO_SLOW):
        await world.commit(attempt, 0, 0)


async def test_a_run_that_was_replaced_ends_and_disturbs_nobody(world: World) -> None:
    old = await world.claim()
    new = await world.claim()
    attempt = await world.sink.begin(world.query, STATE_TOPIC, new)
    await world.task(attempt, 0, ["new"])
    with pytest.raises(SupersededError, match="superseded: a newer driver"):
        await world.sink.begin(world.query, STATE_TOPIC, old)
    with pytest.raises(SupersededError):
        await world.sink.claim(world.query, STATE_TOPIC, previous=old)
    await world.commit(attempt, 0, 0)
    assert await world.committed() == ["new"]
    assert (await world.sink.begin(world.query, STATE_TOPIC, new)).state == SinkState("the query", 0)


@versions
async def test_a_batch_that_runs_when_a_newer_run_claims_the_query_is_fenced(world: World, version: int) -> None:
    old = await world.sink.begin(world.query, STATE_TOPIC, await world.claim())
    old = dataclasses.replace(old, version=min(version, old.version))
    await world.task(old, 0, ["old"])
    new = await world.claim()
    with pytest.raises(TakenOverError):
        await world.commit(old, 0, 0)
    await world.sink.abort(old)
    attempt = await world.sink.begin(world.query, STATE_TOPIC, new)
    assert attempt.state is None
    await world.task(attempt, 0, ["new"])
    await world.commit(attempt, 0, 0)
    assert await world.committed() == ["new"]


async def test_a_claim_keeps_what_is_committed(world: World) -> None:
    first = await world.sink.begin(world.query, STATE_TOPIC, await world.claim())
    await world.task(first, 0, ["a"])
    await world.sink.commit(first, [TopicPartition(world.topic, 0)], SinkState("the query", 7, "plan"))
    second = await world.sink.begin(world.query, STATE_TOPIC, await world.claim())
    assert second.state == SinkState("the query", 7, "plan")


async def test_a_newer_run_that_claims_between_the_look_and_the_fence_stays_the_owner(world: World) -> None:
    """The old driver has looked at the record and goes on; then it sees that it was replaced, and ends."""
    old = await world.claim()
    late = world.sink
    look = late._record
    newer: list[str] = []

    async def look_and_be_late(*args: str, stable: bool) -> Record:
        record = await look(*args, stable=stable)
        if not newer:
            newer.append(await world.claim())
        return record

    late._record = look_and_be_late  # type: ignore[method-assign, assignment]
    with pytest.raises(SupersededError):
        await late.begin(world.query, STATE_TOPIC, old)
    attempt = await world.sink.begin(world.query, STATE_TOPIC, newer[0])
    await world.task(attempt, 0, ["new"])
    await world.commit(attempt, 0, 0)
    assert await world.committed() == ["new"]


async def test_of_drivers_that_start_at_once_one_owns_the_query(world: World) -> None:
    runs = await asyncio.gather(*(world.claim() for _ in range(6)))
    owners = []
    for run in runs:
        with contextlib.suppress(SupersededError):
            await world.sink.begin(world.query, STATE_TOPIC, run)
            owners.append(run)
    assert len(owners) == 1


async def test_a_claim_that_another_driver_has_aborted_is_repeated(world: World) -> None:
    """Apache Kafka refuses the commit of a fenced driver with INVALID_TXN_STATE until its transaction is aborted."""
    async with FaultProxy(world.bootstrap) as proxy:
        cluster = Cluster(ProducerConfig.of({"bootstrap.servers": proxy.address}, **CLIENT_DEFAULTS))
        await cluster.start(10)
        try:
            proxy.answer(EndTxnRequest, lambda _: EndTxnResponse(0, int(ErrorCode.INVALID_TXN_STATE)))
            run = await SinkTransaction(cluster, world.config).claim(world.query, STATE_TOPIC)
            assert proxy.seen["InitProducerId"] >= 2
        finally:
            await cluster.close()
    assert (await world.sink.begin(world.query, STATE_TOPIC, run)).run == run


async def test_a_claim_that_is_refused_leaves_the_owner(world: World) -> None:
    run = await world.claim()

    def refuse(record: Record) -> None:
        raise ValueError(record.run)

    with pytest.raises(ValueError, match=run):
        await world.sink.claim(world.query, STATE_TOPIC, allow=refuse)
    assert (await world.sink.begin(world.query, STATE_TOPIC, run)).run == run


async def test_a_run_whose_record_has_expired_goes_on(world: World) -> None:
    run = await world.claim()
    async with Admin(bootstrap_servers=world.bootstrap) as admin:
        await admin.delete_groups([world.query])
    attempt = await world.sink.begin(world.query, STATE_TOPIC, run)
    assert attempt.state is None
    renewed = await world.sink.renew(attempt, SinkState("the query", 4, "plan"))
    assert renewed.state == SinkState("the query", 4, "plan")
    assert renewed.producer_epoch != attempt.producer_epoch or renewed.producer_id != attempt.producer_id
    with pytest.raises(SupersededError):
        await world.sink.begin(world.query, STATE_TOPIC, "another run")


async def test_a_driver_that_starts_its_query_again_does_not_take_it_back(world: World) -> None:
    schema = StructType().add("value", "string")
    options = {**world.options, "topic": world.topic}
    settings = SinkSettings(options, schema, streaming=True)
    first = await asyncio.to_thread(take_over, settings)
    again = await asyncio.to_thread(take_over, settings)  # after a failure: nobody else came
    assert first.run != again.run
    other = await world.claim()  # of another process
    with pytest.raises(SupersededError):
        await asyncio.to_thread(take_over, settings)
    await asyncio.to_thread(let_go, settings, 10.0)
    assert (await world.sink.begin(world.query, STATE_TOPIC, other)).run == other
    await asyncio.to_thread(take_over, settings)  # somebody has started it anew
    with pytest.raises(SupersededError):
        await world.sink.begin(world.query, STATE_TOPIC, other)


async def test_a_driver_that_ends_leaves_the_newer_one_s_transaction(world: World) -> None:
    schema = StructType().add("value", "string")
    options = {**world.options, "topic": world.topic}
    settings = SinkSettings(options, schema, streaming=True)
    await asyncio.to_thread(take_over, settings)
    newer = await world.sink.begin(world.query, STATE_TOPIC, await world.claim())
    await world.task(newer, 0, ["new"])
    with pytest.raises(SupersededError):
        await asyncio.to_thread(let_go, settings, 10.0)
    await world.commit(newer, 0, 0)
    assert await world.committed() == ["new"]


async def test_a_first_batch_that_may_be_committed_is_refused_when_its_state_has_expired(
    world: World, tmp_path: Path
) -> None:
    schema = StructType().add("value", "string")
    options = {**world.options, "topic": world.topic}
    settings = SinkSettings(options, schema, streaming=True)
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1\n{}\n{}")
    notes = LocalNotes(str(tmp_path))
    with pytest.raises(StateError, match=r"has a plan of batch 0 and no note that the batch is done.*adoptQuery"):
        await asyncio.to_thread(take_over, settings, notes)
    with pytest.raises(StateError):  # the first refusal has left no record
        await asyncio.to_thread(take_over, settings, notes)
    adopted = SinkSettings({**options, "adoptQuery": "true"}, schema, streaming=True)
    assert (await asyncio.to_thread(take_over, adopted, notes)).done is None
    # From now on there is a record, without a batch: batch 0 is not committed.
    assert (await asyncio.to_thread(take_over, settings, notes)).done is None
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    assert (await asyncio.to_thread(take_over, settings, notes)).done == 0


DAY_S = 24 * 3600


async def begun(world: World, checkpoint: Path, planned_at_s: float) -> Attempt | None:
    """Begin a batch 0 in plain format that Spark has planned at this time, in seconds since the epoch."""
    (checkpoint / "offsets").mkdir(exist_ok=True)
    note = f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{planned_at_s * 1000:.0f}}}\n{{}}'
    (checkpoint / "offsets" / "0").write_text(note)
    options = {**world.options, "topic": world.topic, "checkpointLocation": str(checkpoint)}

    def begin() -> Attempt | None:
        writer = StreamWriter(SinkSettings(options, StructType().add("value", "string"), streaming=True))
        writer.__getstate__()
        return writer.attempt

    return await asyncio.to_thread(begin)


async def test_plain_format_refuses_a_first_batch_that_an_earlier_driver_planned_long_ago(
    world: World, tmp_path: Path
) -> None:
    long_ago = time.time() - 8 * DAY_S  # offsets.retention.minutes is a week
    for _ in range(2):  # the refusal leaves no record
        with pytest.raises(StateError, match=r"has a plan of batch 0 and no note that the batch is done.*adoptQuery"):
            await begun(world, tmp_path, long_ago)
    assert await begun(world, tmp_path, time.time()) is not None, "this driver has planned it: the query is new"
    attempts.forget(world.query)  # as if this were another driver
    assert await begun(world, tmp_path, long_ago) is not None, "Kafka's record has no batch: batch 0 is not committed"


async def test_plain_format_writes_a_first_batch_whose_driver_died_before_it_claimed_the_query(
    world: World, tmp_path: Path
) -> None:
    assert await begun(world, tmp_path, time.time() - 6 * DAY_S) is not None, "no state has expired since"


async def test_plain_format_knows_partitions_that_were_added_a_moment_ago(world: World, tmp_path: Path) -> None:
    schema = StructType().add("value", "string").add("partition", "integer")
    options = {**world.options, "topic": world.topic}
    attempt = await world.begin()
    loop = asyncio.get_running_loop()

    async def grow() -> None:
        async with Admin(bootstrap_servers=world.bootstrap) as admin:
            await admin.create_partitions({world.topic: PARTITIONS + 2})

    def row(partition: int) -> Any:
        return pa.record_batch({"value": ["x"], "partition": pa.array([partition], pa.int32())})

    def rows() -> Iterator[Any]:
        yield row(0)  # with it the task asks for the partitions
        asyncio.run_coroutine_threadsafe(grow(), loop).result(20)
        yield row(PARTITIONS + 1)

    writer = StreamWriter(SinkSettings(options, schema, streaming=False))
    written = await asyncio.to_thread(writer._produce, rows(), attempt, 0)
    assert written.keys() == {TopicPartition(world.topic, 0), TopicPartition(world.topic, PARTITIONS + 1)}


async def test_leaders_that_are_gone_for_a_while_get_every_row_once(world: World) -> None:
    attempt = await world.begin()
    connections = world.cluster._connections  # every connection of the client is cut, twice, while it writes

    async def cut() -> None:
        for _ in range(2):
            await asyncio.sleep(0.01)
            for state in connections._states.values():
                if state.connection is not None:
                    state.connection.close("cut by the test")

    values = [f"{n:05}" for n in range(3000)]
    written, _ = await asyncio.gather(world.task(attempt, 0, values, size=200), cut())
    assert written == Written(3000, False)
    await world.commit(attempt, 0, 0)
    assert await world.committed() == values
