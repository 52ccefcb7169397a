"""What a broker knows survives its end, stopped or killed; in-process brokers on their own directories."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from oncelog.broker.log.repair import inspect
from oncelog.broker.network.listeners import Listeners
from oncelog.broker.node import BrokerNode, BrokerStartError
from oncelog.broker.system.ports import RealFileSystem
from oncelog.protocol.codec import encode_record_key
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from oncelog.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.protocol.messages.metadata_log import TopicMetadataKey
from oncelog.protocol.records import Record, encode_batch
from support.broker import BrokerProcess
from support.raw_connection import RawConnection, batch, values_in

pytestmark = pytest.mark.oncelog_only(reason="makes brokers of its own, on its own data directories")
E = ErrorCode


@contextlib.asynccontextmanager
async def broker_on(directory: Path, **settings: Any) -> AsyncIterator[tuple[BrokerNode, RawConnection]]:
    async with (
        BrokerNode(directory, logging_level="error", config=settings) as broker,
        RawConnection(broker.address) as wire,
    ):
        yield broker, wire


async def test_topics_configs_and_records_survive_a_restart(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as (broker, wire):
        cluster_id = broker.cluster_id
        topic_id = await wire.create_topic("kept", 3, retention_ms="-1")
        await wire.produce("kept", batch(b"a", b"b"), partition=1)
        change = AlterableConfig("max.message.bytes", 0, "2000")
        await wire.call(IncrementalAlterConfigsRequest([AlterConfigsResource(2, "kept", [change])]), 1)
    async with broker_on(tmp_path) as (broker, wire):
        assert broker.cluster_id == cluster_id
        topic = (await wire.call(MetadataRequest([MetadataRequestTopic(name="kept")], False), 12)).topics[0]
        assert (topic.topic_id, len(topic.partitions)) == (topic_id, 3)
        assert values_in((await wire.fetch("kept", partition=1)).responses[0].partitions[0].records) == [b"a", b"b"]
        assert (await wire.produce("kept", batch(b"c"), partition=1)).base_offset == 2
        assert (await wire.produce("kept", batch(bytes(3000)))).error_code == E.MESSAGE_TOO_LARGE
        assert broker.replica_manager.partition("kept", 1).log.config.retention_ms == -1


async def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        async with RawConnection(broker.address) as wire:
            await wire.create_topic("kept", 2)
            for number in range(20):
                answer = await wire.produce("kept", batch(b"%d" % number), partition=number % 2)
                assert answer.error_code == 0
        broker.kill9()
        broker.start()
        async with RawConnection(broker.address) as wire:
            for partition in (0, 1):
                data = (await wire.fetch("kept", partition=partition)).responses[0].partitions[0]
                assert values_in(data.records) == [b"%d" % number for number in range(partition, 20, 2)]
    finally:
        broker.terminate()


async def test_a_deleted_topic_stays_deleted_and_leaves_no_directory(tmp_path: Path) -> None:
    async with broker_on(tmp_path, log_segment_delete_delay_ms=0) as (_, wire):
        await wire.create_topic("gone", 2)
        await wire.produce("gone", batch(b"old"))
        request = DeleteTopicsRequest([DeleteTopicState("gone")], timeout_ms=5000)
        assert (await wire.call(request, 6)).responses[0].error_code == 0
        assert not (tmp_path / "gone-0").exists()
    async with broker_on(tmp_path) as (broker, wire):
        assert broker.metadata.topic("gone") is None
        assert broker.metadata.deleting() == []
        await wire.create_topic("gone")
        assert (await wire.produce("gone", batch(b"new"))).base_offset == 0


async def test_a_deletion_that_a_crash_interrupted_is_finished_at_the_next_start(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as (broker, wire):
        await wire.create_topic("half", 1)
        await wire.produce("half", batch(b"old"))
        broker.metadata.on_topic_deleted[:] = [_fail]
        topic = broker.metadata.topic("half")
        assert topic is not None
        await broker.metadata.delete_topic(topic)
        assert (tmp_path / "half-0").exists()
    async with broker_on(tmp_path) as (broker, wire):
        assert broker.metadata.topic("half") is None
        assert not (tmp_path / "half-0").exists()
        await wire.create_topic("half")
        assert (await wire.produce("half", batch(b"new"))).base_offset == 0


async def test_a_deletion_is_finished_for_partitions_on_disk_that_its_record_lacks(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as (broker, wire):
        await wire.create_topic("half", 6)
        for index in (0, 2, 5):
            await wire.produce("half", batch(b"old"), partition=index)
        broker.metadata.on_topic_deleted[:] = [_fail]
        topic = broker.metadata.topic("half")
        assert topic is not None
        topic.partitions = 2  # the record has fewer partitions than there are directories
        await broker.metadata.delete_topic(topic)
    async with broker_on(tmp_path) as (broker, wire):
        await broker.metadata.settled()
        assert not [path for path in tmp_path.glob("half-*") if not path.name.endswith("-delete")]
        await wire.create_topic("half", 6)
        for index in (0, 2, 5):
            assert (await wire.produce("half", batch(b"new"), partition=index)).base_offset == 0


@pytest.mark.parametrize("readable", [True, False])
async def test_a_topic_does_not_grow_into_directories_of_an_unknown_topic(tmp_path: Path, readable: bool) -> None:
    async with broker_on(tmp_path) as (broker, wire):
        await wire.create_topic("grown", 1)
        await wire.create_topic("other", 3)
        await wire.produce("other", batch(b"foreign"), partition=2)
    if readable:
        (tmp_path / "other-2").rename(tmp_path / "grown-2")
    else:
        (tmp_path / "other-2").rename(tmp_path / "moved")
        (tmp_path / "grown-2").symlink_to("moved")
    async with broker_on(tmp_path) as (broker, wire):
        assert broker.replica_manager.is_stray("grown")
        request = CreatePartitionsRequest([CreatePartitionsTopic("grown", 3, None)], 5000, False)
        refused = (await wire.call(request, 3)).results[0]
        assert refused.error_code == E.INVALID_PARTITIONS
        assert "Move their directories away" in str(refused.error_message)


def _fail(_: object) -> None:
    from oncelog.protocol.errors import KafkaError

    raise KafkaError(E.KAFKA_STORAGE_ERROR, "as if the broker had died here")


async def test_a_directory_of_an_unknown_topic_is_kept_aside(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as (broker, wire):
        await wire.create_topic("stray")
        await wire.produce("stray", batch(b"precious"))
        topic = broker.metadata.topic("stray")
        assert topic is not None
        # As if the metadata had been lost: its record is removed, the data stays.
        broker.metadata.on_topic_deleted.clear()
        await broker.metadata.delete_topic(topic)
        await asyncio.sleep(0)
    async with broker_on(tmp_path) as (broker, wire):
        assert broker.replica_manager.is_stray("stray")
        assert (tmp_path / "stray-0").exists()
        refused = await wire.produce("stray", batch(b"x"))
        assert refused.error_code == E.UNKNOWN_TOPIC_OR_PARTITION
        missing = await wire.call(MetadataRequest([MetadataRequestTopic(name="stray")], True), 12)
        assert missing.topics[0].error_code != E.NONE
        created = await wire.call(CreateTopicsRequest([CreatableTopic("stray", 1, 1)], 5000), 5)
        assert created.topics[0].error_code == E.TOPIC_ALREADY_EXISTS
        assert "away first, then restart the broker" in str(created.topics[0].error_message)
    (tmp_path / "stray-0").rename(tmp_path / "moved away")
    assert inspect(str(tmp_path), RealFileSystem()) == [], "a repair would make the directory again"
    async with broker_on(tmp_path) as (broker, wire):
        await wire.create_topic("stray")
        assert (await wire.produce("stray", batch(b"new"))).base_offset == 0


async def test_records_of_a_newer_release_in_the_metadata_are_not_fatal(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as (broker, wire):
        await wire.create_topic("kept")
        log = broker.log_manager.get("__cluster_metadata", 0)
        assert log is not None
        from oncelog.broker.log import AppendOrigin

        unknown_key = b"\x27\x0f" + b"whatever"
        newer_version = encode_record_key(TopicMetadataKey(b"\x09" * 16))
        records = [
            Record(0, 0, unknown_key, b"\0\0x", []),
            Record(1, 0, newer_version, b"\x00\x63later", []),
            Record(2, 0, newer_version[:5], b"", []),
        ]
        log.append(bytearray(encode_batch(records)), origin=AppendOrigin.COORDINATOR)
    async with broker_on(tmp_path) as (broker, _):
        assert broker.metadata.topic("kept") is not None
        ids = {id for _ in range(3) for id in await broker.metadata.allocate_producer_ids()}
        assert len(ids) == 3000


async def test_producer_id_blocks_are_never_given_twice(tmp_path: Path) -> None:
    given: list[int] = []
    for _ in range(3):
        async with broker_on(tmp_path) as (broker, _wire):
            given += await broker.metadata.allocate_producer_ids()
            given += await broker.metadata.allocate_producer_ids()
    assert len(set(given)) == 6000


async def test_a_directory_in_use_is_refused_with_a_remedy(tmp_path: Path) -> None:
    async with broker_on(tmp_path):
        with pytest.raises(BrokerStartError, match=str(tmp_path)):
            await BrokerNode(tmp_path).start()


async def test_a_port_in_use_is_refused_with_a_remedy_and_the_directory_is_free_again(tmp_path: Path) -> None:
    async with broker_on(tmp_path / "one") as (broker, _):
        with pytest.raises(BrokerStartError, match="listeners"):
            await BrokerNode(tmp_path / "two", listeners=f"127.0.0.1:{broker.port}").start()
        async with broker_on(tmp_path / "two"):
            pass


@pytest.mark.parametrize("event_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_port_on_which_a_program_listens_during_the_start_is_refused_and_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    accept = Listeners.accept
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        address = other.getsockname()

        async def accept_too_late(listeners: Listeners) -> None:
            other.listen()
            await accept(listeners)

        async def start() -> BrokerNode:
            broker = BrokerNode(tmp_path, logging_level="error", listeners=f"127.0.0.1:{address[1]}")
            with pytest.raises(BrokerStartError, match="Stop the program that uses the port, or change `listeners`"):
                await broker.start()
            return broker

        monkeypatch.setattr(Listeners, "accept", accept_too_late)
        with asyncio.Runner(loop_factory=event_loop) as runner:
            broker = runner.run(start())
    with socket.socket() as free:
        free.bind(address)
    assert broker.failure is None


async def test_without_a_directory_a_broker_has_a_temporary_one() -> None:
    async with BrokerNode() as broker, RawConnection(broker.address) as wire:
        await wire.create_topic("t")
        directory = Path(broker.data_dir)
        assert directory.exists()
    assert not directory.exists()


async def test_a_waiting_fetch_is_answered_when_the_broker_stops(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as (broker, wire):
        await wire.create_topic("t")
        waiting = asyncio.create_task(wire.fetch("t", max_wait_ms=60_000))
        await until(lambda: bool(broker.fetch_purgatory.waiting))
        await broker.stop()
        assert (await waiting).responses[0].partitions[0].error_code == 0


async def test_a_waiting_fetch_ends_with_its_connection(tmp_path: Path) -> None:
    async with broker_on(tmp_path) as (broker, wire):
        await wire.create_topic("t")
        async with RawConnection(broker.address) as other:
            waiting = asyncio.create_task(other.fetch("t", max_wait_ms=60_000))
            await until(lambda: bool(broker.fetch_purgatory.waiting))
            other.close()
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await waiting
        await until(lambda: not broker.fetch_purgatory.waiting)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.002)
