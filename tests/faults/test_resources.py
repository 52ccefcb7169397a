"""A full disk, too few descriptors, a directory that goes away: what is served meanwhile, and that it ends."""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path

import pytest
from oncelog import Consumer, Producer
from oncelog.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from oncelog.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from support.faults import STORAGE_ERROR, FaultyBroker, fill, fill_disk, read_all, small_disk, until
from support.raw_connection import batch

pytestmark = pytest.mark.oncelog_only(reason="is about the process and the disk below it")
DURING = b"during " + b"." * 10_000
QUICK = ("log.retention.check.interval.ms=200",)


def checkpoints(broker: FaultyBroker, what: str) -> list[dict[str, object]]:
    return [row for row in broker.said(f"housekeeping {what}") if row["what"] == "recovery point checkpoint"]


async def test_a_full_disk_ends_without_a_restart(tmp_path: Path) -> None:
    """The checkpoint that met ENOSPC after five seconds took everything offline, until a restart."""
    with (
        small_disk(tmp_path / "disk", "24m") as disk,
        FaultyBroker(tmp_path, *QUICK, "log.reserve.bytes=0", data=disk / "data") as broker,
    ):
        async with broker.connect() as wire:
            values = await fill(wire)
            await fill(wire, "internal")
            fill_disk(disk / "other")
            big = batch(b"x" * 8192)
            answer = await wire.produce("t", big)
            while answer.error_code == 0:
                values.append(b"x" * 8192)
                answer = await wire.produce("t", big)
            assert answer.error_code == STORAGE_ERROR
            assert "full" in (answer.error_message or "")
            await until(lambda: checkpoints(broker, "failed"))
            assert await read_all(wire) == (0, values), "what is there is read"
            for _ in range(15):  # longer than any timer of the broker
                await asyncio.sleep(0.1)
                assert (await wire.produce("t", big)).error_code == STORAGE_ERROR
            (disk / "other").unlink()
            async with asyncio.timeout(60):
                while (await wire.produce("t", big)).error_code:
                    await asyncio.sleep(0.05)
            values.append(b"x" * 8192)
            assert await read_all(wire) == (0, values)
            await until(lambda: checkpoints(broker, "succeeded again"))
        failures = checkpoints(broker, "failed")
        assert len(failures) == 1, f"said once, not each time: {failures}"
        broker.kill9()
        broker.start()
        async with broker.connect() as wire:
            assert await read_all(wire) == (0, values)


async def test_a_broker_that_nobody_writes_to_is_unhealthy_while_its_disk_is_full(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", "24m") as disk,
        FaultyBroker(tmp_path, "health.probe.interval.ms=1", "log.reserve.bytes=0", data=disk / "data") as broker,
    ):
        async with broker.connect() as wire:

            async def code() -> int:
                (directory,) = (await wire.call(DescribeLogDirsRequest(topics=[]), 4)).results
                assert directory.log_dir == str(broker.data_dir)
                return int(directory.error_code)

            assert await code() == 0
            fill_disk(disk / "other")
            assert await code() == STORAGE_ERROR
            await until(lambda: broker.said("disk probe failed"))
            (reason,) = [line["reason"] for line in broker.said("disk probe failed")]
            assert "No space left on device" in reason
            (disk / "other").unlink()
            assert await code() == 0
            await until(lambda: broker.said("disk probe succeeded again"))
            await fill(wire)


async def test_transactions_and_groups_survive_a_full_disk(tmp_path: Path) -> None:
    """A transaction that meets a full disk goes on when there is space again."""
    with (
        small_disk(tmp_path / "disk", "24m") as disk,
        FaultyBroker(tmp_path, *QUICK, "log.reserve.bytes=0", data=disk / "data") as broker,
    ):
        async with broker.connect() as wire:
            await fill(wire, batches=1)
        async with Producer(
            bootstrap_servers=broker.address, transactional_id="open", transaction_timeout_ms=60_000
        ) as producer:
            async with producer.transaction() as transaction:
                await transaction.send("t", b"before")
            ending = asyncio.ensure_future(transaction_into_full_disk(producer, disk))
            # Which line depends on whether the broker reads the free space again before it writes.
            await until(lambda: broker.said("write failed") or broker.said("disk full"))
            assert not ending.done()
            (disk / "other").unlink()
            await ending
        group = {"group_id": "g", "isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        async with Consumer(group, bootstrap_servers=broker.address) as consumer:
            consumer.subscribe(["t"])
            values: list[bytes | None] = []
            async with asyncio.timeout(60):
                while DURING not in values:
                    values += [record.value for record in await consumer.poll(1000)]
            await consumer.commit()
        assert values[-2:] == [b"before", DURING]


async def transaction_into_full_disk(producer: Producer, disk: Path) -> None:
    async with producer.transaction() as transaction:
        fill_disk(disk / "other")
        await transaction.send("t", DURING)


class LimitedBroker(FaultyBroker):
    """A broker with 256 descriptors and no right to more."""

    descriptors = 256


@pytest.mark.slow
async def test_few_descriptors_end_nothing(tmp_path: Path) -> None:
    """Look-ups through 177 segments, and 300 partitions: the checkpoint had no descriptor, and everything failed."""
    with LimitedBroker(tmp_path, *QUICK) as broker:
        async with broker.connect() as wire:
            values = await fill(wire, batches=177, segment_bytes="1024", index_interval_bytes="0")
            for number in range(500):
                asked = [ListOffsetsPartition(0, -1, 1_700_000_000_000 + number % 3)]
                answer = await wire.call(ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", asked)]), 6)
                assert answer.topics[0].partitions[0].error_code == 0
            assert await read_all(wire) == (0, values)
            await wire.create_topic("many", 300)
            for partition in range(300):
                assert (await wire.produce("many", batch(b"x"), partition)).error_code == 0
            assert (await wire.produce("t", batch(b"more"))).error_code == 0
        assert not broker.said("data directory failed")
        broker.restart()
        async with broker.connect() as wire:
            assert await read_all(wire) == (0, [*values, b"more"])


@pytest.mark.parametrize("how", ["removed", "renamed"])
async def test_a_data_directory_that_goes_away_ends_the_process(tmp_path: Path, how: str) -> None:
    with FaultyBroker(tmp_path, *QUICK) as broker:
        async with broker.connect() as wire:
            await fill(wire)
            if how == "removed":
                shutil.rmtree(broker.data_dir)
            else:
                broker.data_dir.rename(tmp_path / "away")
            code = await asyncio.to_thread(broker.wait, 20)
        assert code == 1
        assert len(broker.said("data directory failed")) == 1
        assert broker.last_line().startswith("oncelog serve: ")
        assert "removed, or replaced by another directory" in broker.last_line()
        assert "Traceback" not in broker.log.read_text()


async def test_a_stop_during_a_full_disk_is_recovered_from(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", "16m") as disk,
        FaultyBroker(tmp_path, "log.reserve.bytes=0", data=disk / "data") as broker,
    ):
        async with broker.connect() as wire:
            values = await fill(wire, segment_bytes="1024")
            fill_disk(disk / "other")
            while (await wire.produce("t", batch(b"x" * 500))).error_code == 0:
                values.append(b"x" * 500)
        broker.terminate()
        (disk / "other").unlink()
        broker.start()
        async with broker.connect() as wire:
            assert await read_all(wire) == (0, values)


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
async def test_a_disk_that_fills_again_and_again_loses_nothing(tmp_path: Path, end: signal.Signals) -> None:
    with (
        small_disk(tmp_path / "disk", "24m") as disk,
        FaultyBroker(tmp_path, *QUICK, "log.reserve.bytes=65536", data=disk / "data") as broker,
    ):
        acknowledged: list[bytes] = []
        async with broker.connect() as wire:
            await wire.create_topic("t", 1, segment_bytes="65536", retention_ms="-1")
        for turn in range(20):
            async with broker.connect() as wire:
                fill_disk(disk / "other")
                for number in range(60):
                    value = b"%d %d" % (turn, number) + b"." * 900
                    if (await wire.produce("t", batch(value))).error_code == 0:
                        acknowledged.append(value)
                    if number == 30:
                        (disk / "other").unlink()
                        await asyncio.sleep(1.2)
                _, found = await read_all(wire)
            assert [value for value in found if value in set(acknowledged)] == acknowledged
            if end is signal.SIGKILL:
                broker.kill9()
            else:
                broker.terminate()
            broker.start()
        async with broker.connect() as wire:
            code, found = await read_all(wire)
        assert code == 0
        assert [value for value in found if value in set(acknowledged)] == acknowledged
