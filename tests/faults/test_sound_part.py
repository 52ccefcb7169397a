"""What precedes the damage of a log is read after the next start, and nothing of the partition is changed."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from oncelog import Consumer, TopicPartition
from oncelog.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from oncelog.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from oncelog.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from oncelog.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from oncelog.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from oncelog.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from oncelog.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from oncelog.protocol.records import iter_batches
from support.command_line import command_line, done_json
from support.faults import SMALL, STORAGE_ERROR, FaultyBroker, end, fill, filled, flip_bit, read_all, repair
from support.raw_connection import STAMP_MS, RawConnection, batch, values_in

pytestmark = pytest.mark.oncelog_only(reason="is about the files of a data directory")

EARLIEST, LATEST, NEWEST = -2, -1, -3
UNKNOWN_TOPIC_OR_PARTITION = 3


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def damage(directory: Path, kind: str) -> int:
    """Damage the partition; returns the offset up to which it is sound."""
    segments = sorted(directory.glob("*.log"))
    assert len(segments) > 2
    if kind == "middle segment missing":
        for path in directory.glob(f"{segments[1].stem}*"):
            path.unlink()
        return int(segments[1].stem)
    if kind == "last segment missing":
        for path in directory.glob(f"{segments[-1].stem}*"):
            path.unlink()
        return int(segments[-1].stem)
    path = segments[1] if kind == "middle segment" else segments[-1]
    position, header = list(iter_batches(path.read_bytes()))[-1]
    flip_bit(path, position + 16)  # the magic byte: also a clean start looks at headers
    return header.base_offset


async def offset_for(wire: RawConnection, timestamp: int, topic: str = "t") -> tuple[int, int]:
    """(error code, offset) of ListOffsets."""
    asked = ListOffsetsTopic(topic, [ListOffsetsPartition(0, -1, timestamp)])
    answer = (await wire.call(ListOffsetsRequest(-1, 0, [asked]), 7)).topics[0].partitions[0]
    return answer.error_code, answer.offset


@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.parametrize("kind", ["last segment", "middle segment", "middle segment missing", "last segment missing"])
async def test_what_precedes_the_damage_is_read_and_nothing_is_changed(tmp_path: Path, kind: str, how: str) -> None:
    with FaultyBroker(tmp_path) as broker:
        values = await filled(broker, how)
        directory = broker.file("t-0")
        sound_to = damage(directory, kind)
        before = content(directory)
        for _ in range(2):
            broker.start()
            async with broker.connect() as wire:
                assert await read_all(wire) == (STORAGE_ERROR, values[:sound_to])
                for offset in (sound_to, sound_to + 1, len(values), 1 << 40):
                    waiting = await wire.fetch("t", offset, max_wait_ms=1, min_bytes=1 << 20)
                    assert waiting.responses[0].partitions[0].error_code == STORAGE_ERROR
                first = (await wire.fetch("t", 0)).responses[0].partitions[0]
                assert first.high_watermark > sound_to, "a reader does not take the damage for the end"
                asked_with_epoch = FetchPartition(0, -1, 1, last_fetched_epoch=0, partition_max_bytes=1 << 20)
                replica = await wire.call(FetchRequest(topics=[FetchTopic("t", partitions=[asked_with_epoch])]), 12)
                assert values_in(replica.responses[0].partitions[0].records)[0] == values[1]
                assert await offset_for(wire, EARLIEST) == (0, 0)
                assert await offset_for(wire, STAMP_MS) == (0, 0)
                for timestamp in (LATEST, NEWEST, STAMP_MS + 1):
                    assert (await offset_for(wire, timestamp))[0] == STORAGE_ERROR
                asked = OffsetForLeaderTopic("t", [OffsetForLeaderPartition(0, -1, 0)])
                epochs = await wire.call(OffsetForLeaderEpochRequest(topics=[asked]), 4)
                assert epochs.topics[0].partitions[0].error_code == STORAGE_ERROR
                assert (await wire.produce("t", batch(b"more"))).error_code == STORAGE_ERROR
                doomed = DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 1)])
                deletion = await wire.call(DeleteRecordsRequest([doomed], 5_000), 2)
                assert deletion.topics[0].partitions[0].error_code == STORAGE_ERROR
                producers = await wire.call(DescribeProducersRequest([TopicRequest("t", [0])]), 0)
                assert producers.topics[0].partitions[0].error_code == STORAGE_ERROR
                known = await wire.call(MetadataRequest([MetadataRequestTopic(name="t")], False), 12)
                row = known.topics[0].partitions[0]
                assert (row.error_code, row.leader_id, list(row.offline_replicas)) == (0, 1, [])
                sizes = await wire.call(DescribeLogDirsRequest([DescribableLogDirTopic("t", [0])]), 4)
                stored = sum(len(data) for name, data in before.items() if name.endswith(".log"))
                assert [part.partition_size for part in sizes.results[0].topics[0].partitions] == [stored]
                assert (await wire.produce("healthy", batch(b"more"))).error_code == 0
            line = broker.said("partition read-only")[-1]
            assert (line["topic"], line["partition"], line["served_to"]) == ("t", 0, sound_to)
            assert "oncelog log repair" in line["reason"]
            end(broker, how)
            assert content(directory) == before
        assert len(broker.said("partition read-only")) == 2
        assert not broker.said("partition offline")
        assert "removed" in repair(broker)
        broker.start()
        async with broker.connect() as wire:
            assert await read_all(wire) == (0, values[:sound_to])
            assert (await wire.produce("t", batch(b"more"))).base_offset == sound_to


@pytest.mark.parametrize("kind", ["read-only", "offline"])
async def test_commands_show_a_damaged_partition_at_once_and_the_others_too(tmp_path: Path, kind: str) -> None:
    with FaultyBroker(tmp_path) as broker:
        async with broker.connect() as wire:
            await wire.create_topic("t", 2)
            await fill(wire, "u", **SMALL)
            assert (await wire.produce("t", batch(b"value"), partition=0)).error_code == 0
        async with Consumer(bootstrap_servers=broker.address, group_id="g", enable_auto_commit=False) as consumer:
            await consumer.commit({TopicPartition("t", 0): 1, TopicPartition("u", 0): 1})
        end(broker, "stopped")
        if kind == "read-only":
            damage(broker.file("u-0"), "last segment")
        else:
            shutil.rmtree(broker.file("u-0"))
        broker.start()
        oncelog = command_line(broker.address)
        shown = await asyncio.to_thread(oncelog, "topic", "describe", "u")
        assert shown.returncode == 0
        why = "KAFKA_STORAGE_ERROR: " if kind == "read-only" else "LEADER_NOT_AVAILABLE: "
        assert shown.stderr.startswith(f"u-0: {why}"), "not REQUEST_TIMED_OUT"
        [row] = done_json(await asyncio.to_thread(oncelog, "topic", "describe", "u", "--json"))["partitions"]
        assert (row["start"], row["end"]) == (0 if kind == "read-only" else None, None)
        assert row["error"].startswith(why)
        lags = done_json(await asyncio.to_thread(oncelog, "group", "describe", "g", "--json"))["partitions"]
        assert {(one["topic"], one["end"], one["lag"]) for one in lags} == {("t", 1, 0), ("u", None, None)}
        [healthy, _] = done_json(await asyncio.to_thread(oncelog, "topic", "describe", "t", "--json"))["partitions"]
        assert (healthy["start"], healthy["end"], healthy["error"]) == (0, 1, None)


async def test_a_topic_with_a_damaged_partition_is_deleted_and_made_anew(tmp_path: Path) -> None:
    with FaultyBroker(tmp_path) as broker:
        async with broker.connect() as wire:
            await fill(wire, **SMALL)
        end(broker, "stopped")
        damage(broker.file("t-0"), "last segment")
        broker.start()
        async with broker.connect() as wire:
            assert (await wire.fetch("t", 0)).responses[0].partitions[0].records
            response = await wire.call(DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=5000), 6)
            assert response.responses[0].error_code == 0
            values = await fill(wire, batches=3)
            assert await read_all(wire) == (0, values)
        broker.restart()
        async with broker.connect() as wire:
            assert await read_all(wire) == (0, values)


@pytest.mark.parametrize(("isolation_level", "ahead"), [(0, 0), (1, 0), (0, 100)])
async def test_a_fetch_waits_at_the_damage_before_it_gets_the_error(
    tmp_path: Path, isolation_level: int, ahead: int
) -> None:
    """Answered at once, stock consumers ask again at once: thousands of times a second."""
    with FaultyBroker(tmp_path) as broker:
        async with broker.connect() as wire:
            await fill(wire, **SMALL)
        end(broker, "stopped")
        offset = damage(broker.file("t-0"), "last segment") + ahead
        broker.start()
        async with broker.connect() as wire, broker.connect() as other:
            answer = await wire.fetch("t", offset, max_wait_ms=1, isolation_level=isolation_level)
            assert answer.responses[0].partitions[0].error_code == STORAGE_ERROR
            reading = wire.fetch("t", offset, max_wait_ms=1_000_000, isolation_level=isolation_level)
            waiting = asyncio.ensure_future(reading)
            response = await other.call(DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=5000), 6)
            assert response.responses[0].error_code == 0
            assert (await waiting).responses[0].partitions[0].error_code == UNKNOWN_TOPIC_OR_PARTITION


async def test_offsets_of_groups_are_not_served_in_part(tmp_path: Path) -> None:
    with FaultyBroker(tmp_path, "offsets.topic.num.partitions=1") as broker:
        async with broker.connect() as wire:
            await fill(wire)
        end(broker, "stopped")
        offsets = broker.data_dir / "__consumer_offsets-0"
        offsets.mkdir(exist_ok=True)
        # Two sound batches, then one that has rotted.
        sound = [batch(b"one"), batch(b"two"), batch(b"three")]
        stamped = bytearray()
        for offset, data in enumerate(sound):
            piece = bytearray(data)
            piece[:8] = offset.to_bytes(8, "big")
            stamped += piece
        stamped[-5] ^= 1
        for path in offsets.iterdir():
            path.unlink()
        (offsets / f"{0:020}.log").write_bytes(stamped)
        (broker.data_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
        points = broker.data_dir / "recovery-point-offset-checkpoint"
        points.write_text("0\n1\n__consumer_offsets 0 3\n")
        broker.start()
        async with broker.connect() as wire:
            (line,) = broker.said("partition offline")
            assert line["topic"] == "__consumer_offsets"
            assert (await wire.fetch("__consumer_offsets", 0)).responses[0].partitions[0].error_code != 0
        assert not broker.said("partition read-only")
