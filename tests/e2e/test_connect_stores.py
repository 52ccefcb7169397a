"""The internal topics of a connect worker in a real cluster. On our broker and, with --kafka, on Apache Kafka."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from oncelog import Admin, Consumer, Producer
from oncelog.client.admin import ConfigResource, NewTopic
from oncelog.client.admin.values import ResourceType
from oncelog.client.errors import KafkaError, ProducerFencedError
from oncelog.client.producer.partitioner import partition_for_key
from oncelog.connect.api.records import SourceRecord
from oncelog.connect.errors import ConnectError
from oncelog.connect.settings.connector import ConnectorConfig, source_config_def
from oncelog.connect.settings.worker import STANDALONE, WorkerConfig
from oncelog.connect.stores.config_records import TargetState
from oncelog.connect.stores.config_store import ConfigStore
from oncelog.connect.stores.ids import ConnectorTaskId
from oncelog.connect.stores.kafka_log import KafkaLog
from oncelog.connect.stores.offset_records import offset_key
from oncelog.connect.stores.offset_store import OffsetStore
from oncelog.connect.stores.topic_log import LogRecord
from oncelog.connect.task.boundaries import PollBoundary
from oncelog.connect.task.exactly_once import ExactlyOnceDelivery
from oncelog.connect.worker.offset_stores import OffsetStores
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.fetch import FetchRequest, FetchResponse
from support.proxy import FaultProxy

Names = Callable[[str], str]
CONFIG = {"connector.class": "FileStreamSource", "name": "f1"}


async def test_config_topic_is_created_compacted_and_read_by_the_next_worker(bootstrap: str, fresh_name: Names) -> None:
    topic = fresh_name("connect-configs")
    client = {"bootstrap.servers": bootstrap}
    store = ConfigStore(KafkaLog(topic, client, single=True), lambda change: None)
    await store.start()
    await store.put_connector("f1", CONFIG, TargetState.PAUSED)
    await store.put_task_configs("f1", [CONFIG])
    await store.stop()
    async with Admin(bootstrap_servers=bootstrap) as admin:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (configs,) = (await admin.describe_configs([resource])).values()
        entries = configs.values() if isinstance(configs, dict) else configs
        assert {entry.name: entry.value for entry in entries}["cleanup.policy"] == "compact"
    again = ConfigStore(KafkaLog(topic, client, single=True), lambda change: None)
    await again.start()
    assert again.snapshot().tasks("f1") == [("f1", 0)]
    assert again.snapshot().target_state("f1") is TargetState.PAUSED
    await again.stop()


async def test_a_config_topic_with_several_partitions_is_refused(bootstrap: str, fresh_name: Names) -> None:
    topic = fresh_name("connect-configs")
    log = KafkaLog(topic, {"bootstrap.servers": bootstrap}, partitions=2, single=True, setting="config.storage.topic")
    with pytest.raises(ConnectError, match=r"config\.storage\.topic.*found 2 partitions"):
        await log.start(lambda record: None)
    await log.stop()


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
async def test_an_internal_topic_that_forgets_records_is_refused(
    bootstrap: str, fresh_name: Names, policy: str
) -> None:
    topic = fresh_name("connect-offsets")
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, 1, 1, {"cleanup.policy": policy})])
    log = KafkaLog(topic, {"bootstrap.servers": bootstrap})
    with pytest.raises(ConnectError, match=r"required to have 'cleanup\.policy=compact' to guarantee"):
        await log.start(lambda record: None)
    await log.stop()


@pytest.mark.parametrize("top_level", [True, False])
async def test_a_refused_fetch_fails_the_reads_that_wait_and_no_later_one(
    bootstrap: str, fresh_name: Names, top_level: bool
) -> None:
    refused = asyncio.Event()

    def refuse(response: FetchResponse) -> None:
        if top_level:
            response.error_code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
            refused.set()
        for partition in [each for topic in response.responses for each in topic.partitions if not top_level]:
            partition.error_code, partition.records = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), None
            refused.set()

    topic, client = fresh_name("connect-offsets"), {"bootstrap.servers": bootstrap}
    async with FaultProxy(bootstrap) as proxy:
        behind_proxy = {"bootstrap.servers": proxy.address, "fetch.max.wait.ms": "1", "fetch.min.bytes": "1"}
        store = OffsetStore(KafkaLog(topic, behind_proxy, producer=client, admin=client, replication_factor=1))
        await store.start()
        for position in range(3):
            refused.clear()
            proxy.change(FetchRequest, refuse, times=1000)
            proxy.break_connections()  # with the fetch that waits for records
            await refused.wait()
            with pytest.raises(KafkaError):
                await store.write("c", [({"file": "a"}, {"position": position})])
            proxy.clear_faults()
            for _ in range(3):
                with contextlib.suppress(KafkaError):  # of a fetch that was refused before
                    assert await store.read("c", [{"file": "a"}]) == [{"position": position}]
                    break
            else:
                pytest.fail("the reading has ended")
        await store.stop()


async def test_a_record_that_cannot_be_applied_ends_the_reading_and_its_waiters(
    bootstrap: str, fresh_name: Names
) -> None:
    def apply(record: LogRecord) -> None:
        raise ValueError("no sense")

    topic, client = fresh_name("connect-offsets"), {"bootstrap.servers": bootstrap}
    log = KafkaLog(topic, client, read_committed=True)
    await log.start(apply)
    async with Producer(client, transactional_id=fresh_name("task")) as task:
        await task.init_transactions()
        await task.begin_transaction()
        await task.send(topic, b"v", key=b"k")
        with pytest.raises(TimeoutError):
            await log.read_to_end(0.5)
        reading = asyncio.create_task(log.read_to_end(20))
        with pytest.raises(TimeoutError):
            await log.read_to_end(0.5)
        await task.commit_transaction()
        with pytest.raises(ValueError, match="no sense"):
            await reading
    await log.stop()


async def test_a_new_leader_fences_the_one_before(bootstrap: str, fresh_name: Names) -> None:
    topic, identity = fresh_name("connect-configs"), fresh_name("connect-cluster")
    client = {"bootstrap.servers": bootstrap}

    def store() -> ConfigStore:
        log = KafkaLog(topic, client, read_committed=True, transactional_id=identity, single=True)
        return ConfigStore(log, lambda change: None)

    old, new = store(), store()
    await old.start()
    await new.start()
    with pytest.raises(ConnectError, match="before write privileges are claimed"):
        await old.put_connector("f1", CONFIG)
    await old.claim()
    await old.put_connector("f1", CONFIG)
    await new.claim()
    with pytest.raises(ProducerFencedError):
        await old.put_connector("f2", CONFIG)
    await new.put_connector("f3", CONFIG)
    await old.refresh()
    assert set(old.snapshot().connector_configs) == {"f1", "f3"}
    await old.claim()
    await old.put_connector("f4", CONFIG)
    await new.refresh()
    assert set(new.snapshot().connector_configs) == {"f1", "f3", "f4"}
    await old.stop()
    await new.stop()


async def test_a_reader_of_offsets_waits_for_the_transaction_that_is_open(bootstrap: str, fresh_name: Names) -> None:
    topic = fresh_name("connect-offsets")
    client = {"bootstrap.servers": bootstrap}
    store = OffsetStore(KafkaLog(topic, client, partitions=3, read_committed=True))
    await store.start()
    await store.write("f1", [({"file": "a"}, {"position": 1})])
    async with Producer(client, transactional_id=fresh_name("task")) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send(topic, b'{"position":2}', key=b'["f1",{"file":"a"}]')
        reading = asyncio.create_task(store.read("f1", [{"file": "a"}]))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(store._topic.read_to_end(), 0.5)
        assert not reading.done()
        await producer.commit_transaction()
        assert await reading == [{"position": 2}]
        await producer.begin_transaction()
        await producer.send(topic, b'{"position":3}', key=b'["f1",{"file":"a"}]')
        await producer.abort_transaction()
    assert await store.read("f1", [{"file": "a"}]) == [{"position": 2}]
    await store.stop()


async def test_a_store_starts_beside_a_transaction_that_is_open(bootstrap: str, fresh_name: Names) -> None:
    topic = fresh_name("connect-offsets")
    client = {"bootstrap.servers": bootstrap}
    first = OffsetStore(KafkaLog(topic, client, read_committed=True))
    await first.start()
    await first.write("f1", [({"file": "a"}, {"position": 1})])
    await first.stop()
    async with Producer(client, transactional_id=fresh_name("task"), transaction_timeout_ms=600_000) as killed:
        await killed.init_transactions()
        await killed.begin_transaction()
        await killed.send(topic, b'{"position":2}', key=b'["f1",{"file":"a"}]')
        store = OffsetStore(KafkaLog(topic, client, read_committed=True))
        async with asyncio.timeout(60):  # who fences the producer needs the store
            await store.start()
        await killed.abort_transaction()
        assert await store.read("f1", [{"file": "a"}]) == [{"position": 1}]
        await store.stop()


async def test_settings_on_which_the_store_depends_cannot_be_overridden(bootstrap: str, fresh_name: Names) -> None:
    topic, client = fresh_name("connect-offsets"), {"bootstrap.servers": bootstrap}
    consumer = {**client, "isolation.level": "read_uncommitted", "auto.offset.reset": "latest"}
    producer = {**client, "acks": "1", "delivery.timeout.ms": "1", "transactional.id": fresh_name("task")}
    producer["enable.idempotence"] = "true"
    log = KafkaLog(topic, consumer, producer=producer, admin=client, replication_factor=1, read_committed=True)
    store = OffsetStore(log)
    await store.start()
    await store.write("c", [({"file": "a"}, {"position": 1})])
    async with Producer(client, transactional_id=fresh_name("aborted")) as task:
        await task.init_transactions()
        await task.begin_transaction()
        await task.send(topic, b'{"position":2}', key=b'["c",{"file":"a"}]')
        await task.abort_transaction()
    assert await store.read("c", [{"file": "a"}]) == [{"position": 1}]
    await store.stop()


async def test_a_reader_of_offsets_hears_that_the_store_was_closed(bootstrap: str, fresh_name: Names) -> None:
    topic, client = fresh_name("connect-offsets"), {"bootstrap.servers": bootstrap}
    store = OffsetStore(KafkaLog(topic, client, read_committed=True))
    await store.start()
    async with Producer(client, transactional_id=fresh_name("task")) as task:
        await task.init_transactions()
        await task.begin_transaction()
        await task.send(topic, b"{}", key=b'["c",{"p":1}]')
        reading = asyncio.create_task(store.read("c", [{"p": 1}]))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(store.refresh(), 0.5)
        assert not reading.done()
        await store.stop()
        async with asyncio.timeout(60):
            with pytest.raises(ConnectError, match=f"reading of {topic} was stopped"):
                await reading
    with pytest.raises(ConnectError, match=f"reading of {topic} was stopped"):
        await store.read("c", [{"p": 1}])


@pytest.mark.parametrize("writer", ["worker", "user", "task"])
async def test_an_offset_is_in_the_partition_of_its_key_whatever_the_partitioner(
    bootstrap: str, fresh_name: Names, writer: str
) -> None:
    topic, keyless = fresh_name("connect-offsets"), {"partitioner.ignore.keys": "true"}
    client = {"bootstrap.servers": bootstrap}
    producer = {**client, **keyless, "transactional.id": topic}
    offsets = [({"file": str(number)}, {"position": number}) for number in range(12)]
    store = OffsetStore(KafkaLog(topic, client, producer=client | keyless, partitions=7, replication_factor=1))
    await store.start()
    if writer == "worker":
        await store.write("c", offsets)
    elif writer == "user":
        converters = {"key.converter": "StringConverter", "value.converter": "StringConverter"}
        worker = {**converters, **client, "group.id": "g", "offset.storage.topic": topic}
        stores = OffsetStores(WorkerConfig(STANDALONE, worker), store)
        settings = ConnectorConfig(source_config_def(converters), {"name": "c", "connector.class": "C"})
        await stores.write("c", settings, offsets, producer)
    else:
        await commit_offsets(producer, topic, offsets)
    await store.stop()
    async with Consumer(client, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([(topic, number) for number in range(7)])
        found: list[tuple[bytes, int]] = []
        async with asyncio.timeout(60):
            while len(found) < len(offsets):
                found += [(record.key or b"", record.partition) for record in await consumer.poll(200)]
    assert sorted(found) == sorted((key, partition_for_key(key, 7)) for key, _ in store.records("c", offsets))


async def store_with_a_key_that_moves(
    topic: str, client: dict[str, str], source: dict[str, Any]
) -> tuple[OffsetStore, bytes, int]:
    """Store position 1 of connector c, and add partitions so that the source's key belongs to another one.

    Return the store, the key and the number of partitions.
    """
    store = OffsetStore(KafkaLog(topic, client, replication_factor=1, read_committed=True))
    await store.start()
    await store.write("c", [(source, {"position": 1})])
    key = offset_key("c", source)
    total = next(number for number in range(2, 99) if partition_for_key(key, number))
    async with Admin(client) as admin:
        await admin.create_partitions({topic: total})
    return store, key, total


async def test_a_reader_follows_the_partitions_that_are_added_to_the_offsets_topic(
    bootstrap: str, fresh_name: Names
) -> None:
    topic, client = fresh_name("connect-offsets"), {"bootstrap.servers": bootstrap}
    source: dict[str, Any] = {"file": "a"}
    first, key, _ = await store_with_a_key_that_moves(topic, client, source)
    async with Producer(client) as producer:
        await producer.send(topic, b'{"position":2}', key=key)
    assert await first.read("c", [source]) == [{"position": 2}]
    async with Producer(client) as late:  # whose metadata are outdated, or whose clock is
        await late.send(topic, b'{"position":0}', key=key, partition=0, timestamp_ms=1)
        assert await first.read("c", [source]) == [{"position": 2}]
        await late.send(topic, b'{"position":3}', key=key, partition=0)
    assert await first.read("c", [source]) == [{"position": 3}]
    second = OffsetStore(KafkaLog(topic, client, read_committed=True))
    await second.start()
    assert await second.read("c", [source]) == [{"position": 3}]
    await first.stop()
    await second.stop()


@pytest.mark.parametrize("writer", ["worker", "user", "task"])
async def test_a_deletion_reaches_all_partitions_that_have_an_offset_of_its_key(
    bootstrap: str, fresh_name: Names, writer: str
) -> None:
    topic, client = fresh_name("connect-offsets"), {"bootstrap.servers": bootstrap}
    source: dict[str, Any] = {"file": "a"}
    store, key, total = await store_with_a_key_that_moves(topic, client, source)
    await store.stop()
    store = OffsetStore(KafkaLog(topic, client, read_committed=True))  # whose producer knows all partitions
    await store.start()
    assert await store.read("c", [source]) == [{"position": 1}]
    producer = {**client, "transactional.id": fresh_name("writer")}
    deleted: list[tuple[Any, Any]] = [(source, None)]
    if writer == "worker":
        await store.write("c", deleted)
    elif writer == "user":
        converters = {"key.converter": "StringConverter", "value.converter": "StringConverter"}
        worker = {**converters, **client, "group.id": "g", "offset.storage.topic": topic}
        stores = OffsetStores(WorkerConfig(STANDALONE, worker), store)
        settings = ConnectorConfig(source_config_def(converters), {"name": "c", "connector.class": "C"})
        await stores.write("c", settings, deleted, producer)
    else:
        await commit_offsets(producer, topic, deleted, store.places)
    assert await store.read("c", [source]) == [None]
    await store.stop()
    found: list[tuple[int, bytes | None, int]] = []
    async with Consumer(client, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([(topic, number) for number in range(total)])
        async with asyncio.timeout(60):
            while len(found) < 3:
                found += [(each.partition, each.value, each.timestamp) for each in await consumer.poll(200)]
    home = partition_for_key(key, total)
    first, *rest = [each for each in found if each[0] == 0]
    assert first[1:] == (b'{"position":1}', first[2])
    assert rest == [(0, None, first[2])]  # compaction removes both, and no later record is older than the deletion
    assert [each[:2] for each in found if each[0] != 0] == [(home, None)]


async def commit_offsets(
    producer: dict[str, str],
    topic: str,
    offsets: list[tuple[Any, Any]],
    places: Callable[[bytes], Mapping[int, int]] = lambda key: {},
) -> None:
    """Commit offsets as a task does, without records."""

    async def acknowledged(records: list[Any]) -> None:
        pass

    async def committed() -> None:
        pass

    delivery = ExactlyOnceDelivery(
        ConnectorTaskId("c", 0), producer, topic, PollBoundary(), lambda topic: None, acknowledged, committed,
        keep_records=False, places=places,
    )  # fmt: skip
    await delivery.start()
    for partition, offset in offsets:
        await delivery.send(SourceRecord(topic="t", source_partition=partition, source_offset=offset), None)
    await delivery.batch_done()
    await delivery.close()
