"""What a task of the source reads, held against what a consumer reads: random logs of one partition, random ranges."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from oncelog import Admin, Consumer, NewTopic, Producer, TopicPartition  # noqa: E402
from oncelog.client.config import ConsumerConfig  # noqa: E402
from oncelog.pipeline.options import SourceOptions  # noqa: E402
from oncelog.pipeline.source.offsets import OffsetRange  # noqa: E402
from oncelog.pipeline.source.range_reader import CLIENT_DEFAULTS, RangeReader  # noqa: E402

Row = tuple[int, int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
CODECS: Any = ("none", "gzip", "snappy", "lz4", "zstd")


async def fill(bootstrap: str, topic: str, chance: random.Random) -> None:
    """Transactions of three producers, committed and aborted, side by side, in all codecs; and records outside."""
    async with AsyncExitStack() as stack:
        producers = []
        for number in range(4):
            name = {"transactional_id": f"{topic}-{number}"} if number else {}
            producer = Producer(
                name, bootstrap_servers=bootstrap, compression_type=chance.choice(CODECS), batch_size=2000
            )
            producers.append(await stack.enter_async_context(producer))
            if number:
                await producer.init_transactions()
        open_ones = set()
        for _ in range(40):
            producer = chance.choice(producers)
            if producer is not producers[0] and producer not in open_ones:
                await producer.begin_transaction()
                open_ones.add(producer)
            sent = []
            for _ in range(chance.randint(1, 30)):
                key, value = (chance.choice([None, b"", b"k", chance.randbytes(90)]) for _ in "kv")
                headers = [("h", chance.choice([None, b"", b"v"]))] * chance.choice([0, 0, 0, 1, 3])
                size = chance.choice([0, 0, 0, 0, 200, 9000])
                value = value if size == 0 else chance.randbytes(size)
                sent.append(await producer.send(topic, value, key=key, partition=0, headers=headers))
            await producer.flush()
            if producer in open_ones and chance.random() < 0.6:
                open_ones.remove(producer)
                await (producer.commit_transaction() if chance.random() < 0.6 else producer.abort_transaction())
        for producer in open_ones:
            await producer.abort_transaction()


async def consumed(bootstrap: str, partition: TopicPartition, isolation: Any) -> tuple[list[Row], int]:
    """The records below the end at this moment, and this end. Markers that are still missing may move it later."""
    async with Consumer(
        bootstrap_servers=bootstrap, isolation_level=isolation, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        rows: list[Row] = []
        async with asyncio.timeout(60):
            while await consumer.position(partition) < end:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    rows += [
                        (one.offset, one.timestamp, int(one.timestamp_type), one.key, one.value, list(one.headers))
                        for one in records
                        if one.offset < end
                    ]
        return rows, end


def read(bootstrap: str, partition: TopicPartition, start: int, end: int, **client: Any) -> list[Row]:
    options = {"kafka.bootstrap.servers": bootstrap}
    options |= {f"kafka.{name.replace('_', '.')}": str(value) for name, value in client.items()}
    config = SourceOptions(options).client(ConsumerConfig, **CLIENT_DEFAULTS)
    wanted = OffsetRange(partition.topic, partition.partition, start, end)
    rows: list[Row] = []
    for batch in RangeReader(wanted, config, headers=True, fail_on_data_loss=True):
        columns = batch.to_pydict()
        assert set(columns["topic"]) == {partition.topic}
        assert set(columns["partition"]) == {partition.partition}
        times = batch["timestamp"].cast(pa.int64()).to_pylist()
        rows += [
            (offset, time // 1000, kind, key, value, [(h["key"], h["value"]) for h in headers or []])
            for offset, time, kind, key, value, headers in zip(
                columns["offset"],
                times,
                columns["timestampType"],
                columns["key"],
                columns["value"],
                columns["headers"],
                strict=True,
            )
        ]
    return rows


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
async def test_a_task_reads_what_a_consumer_reads(
    bootstrap: str, fresh_name: Callable[[str], str], seed: int, isolation: str
) -> None:
    chance = random.Random(seed)
    partition = TopicPartition(fresh_name("read"), 0)
    appended = {"message.timestamp.type": "LogAppendTime"} if seed == 1 else {}
    async with Admin(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(partition.topic, 1, configs=appended)])
    await fill(bootstrap, partition.topic, chance)
    expected, end = await consumed(bootstrap, partition, isolation)
    assert expected
    assert await asyncio.to_thread(read, bootstrap, partition, 0, end, isolation_level=isolation) == expected
    for _ in range(6):
        start = chance.randrange(end)
        behind = chance.randint(start + 1, end)
        most = chance.choice([1, 3000, 4 << 20])
        found = await asyncio.to_thread(
            read, bootstrap, partition, start, behind, isolation_level=isolation, max_partition_fetch_bytes=most
        )
        assert found == [row for row in expected if start <= row[0] < behind]
