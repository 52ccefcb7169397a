"""What is inside a batch is checked before it is stored: nothing that no consumer could read gets into the log.

The checksum of every batch here is right, so only its content can tell.
"""

from __future__ import annotations

import asyncio
import gzip
import random
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import lz4.frame  # type: ignore[import-untyped]
import pytest
from oncelog.broker.node import BrokerNode
from oncelog.protocol.compression import Compression
from oncelog.protocol.errors import ErrorCode
from oncelog.protocol.messages.api_versions import ApiVersionsRequest
from oncelog.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from oncelog.protocol.record_varint import encode_varint
from oncelog.protocol.records import encode_record, iter_batches, read_batch_header, verify_crc
from support.broker import BrokerProcess
from support.crooked_batches import NOW, many_records, packed_batch, raw_batch, record_body, with_many_headers
from support.raw_connection import RawConnection

IN_PROCESS = "sets limits of a broker in this process"
ONE = encode_record(0, 0, b"k", b"v")
TWO = ONE + encode_record(0, 1, b"k", b"v")
GARBAGE = random.Random(7).randbytes(300)
MANY = many_records(5000, value=b"some value")
HALF = len(MANY) // 2


def _lz4(records: bytes = MANY, linked: bool = False) -> bytes:
    return bytes(lz4.frame.compress(records, block_linked=linked, store_size=False))


CROOKED = {
    "garbage as gzip": raw_batch(GARBAGE, compression=1),
    "garbage as snappy": raw_batch(GARBAGE, compression=2),
    "garbage as lz4": raw_batch(GARBAGE, compression=3),
    "garbage as zstd": raw_batch(GARBAGE, compression=4),
    "random records": raw_batch(GARBAGE, 3),
    "random records in zstd": packed_batch(GARBAGE, 3),
    "nothing": raw_batch(b"", 1),
    "fewer records than claimed": raw_batch(TWO, 3),
    "many fewer records than claimed": raw_batch(TWO, (1 << 31) - 1),
    "more records than claimed": raw_batch(TWO, 1),
    "a record length too long": raw_batch(encode_varint(200) + ONE[1:]),
    "a record length too short": raw_batch(encode_varint(3) + ONE[1:]),
    "a negative record length": raw_batch(encode_varint(-5) + ONE[1:]),
    "bytes behind the last record": raw_batch(ONE + b"\0"),
    "bytes behind the last record in gzip": packed_batch(ONE + b"\0", codec=Compression.GZIP),
    "a key beyond its record": raw_batch(record_body(b"\0\0\0" + encode_varint(50) + b"k\2v\0")),
    "a key of length -2": raw_batch(record_body(b"\0\0\0\3\2v\0")),
    "a value beyond its record": raw_batch(record_body(b"\0\0\0\2k" + encode_varint(500) + b"v\0")),
    "a value of length -2": raw_batch(record_body(b"\0\0\0\2k\3\0")),
    "a header without a name": raw_batch(record_body(b"\0\0\0\2k\2v\2\1\0")),
    "a header beyond its record": raw_batch(record_body(b"\0\0\0\2k\2v\2\2n\x50v")),
    "a negative count of headers": raw_batch(record_body(b"\0\0\0\2k\2v\1")),
    "offset deltas that repeat": raw_batch(ONE + ONE, 2),
    "offset deltas with a hole": raw_batch(ONE + encode_record(0, 2, b"k", b"v"), 2),
    "an offset delta that is negative": raw_batch(encode_record(0, -1, b"k", b"v")),
    "a timestamp beyond int64": raw_batch(encode_record((1 << 63) - 1, 0, b"k", b"v")),
    "a hole far behind": raw_batch(many_records(5000) + encode_record(0, 5001, b"k", b"v"), 5001),
    "linked lz4 blocks": raw_batch(_lz4(linked=True), 5000, compression=3),
    "two lz4 frames": raw_batch(_lz4(MANY[:HALF]) + _lz4(MANY[HALF:]), 5000, compression=3),
    "a skippable frame before lz4": raw_batch(b"\x50\x2a\x4d\x18\1\0\0\0s" + _lz4(), 5000, compression=3),
    "bytes after lz4": raw_batch(_lz4() + b"\x50\x2a\x4d\x18\1\0\0\0s", 5000, compression=3),
    "two gzip members": raw_batch(gzip.compress(MANY[:HALF]) + gzip.compress(MANY[HALF:]), 5000, compression=1),
    "a linked lz4 frame that expands far": raw_batch(
        _lz4(many_records(20_000, value=b"v" * 100), True), 20_000, compression=3
    ),
}

KAFKA_STORES = (
    "bytes after lz4",
    "two gzip members",
    "a key of length -2",
    "a value of length -2",
    "offset deltas that repeat",
    "offset deltas with a hole",
    "an offset delta that is negative",
    "a hole far behind",
)
KAFKA_FAILS = (
    "garbage as gzip",
    "garbage as snappy",
    "garbage as lz4",
    "garbage as zstd",
    "a timestamp beyond int64",
    "linked lz4 blocks",
    "a skippable frame before lz4",
    "a linked lz4 frame that expands far",
)


def _crooked() -> Iterator[Any]:
    for name in CROOKED:
        if name in KAFKA_STORES:
            yield pytest.param(name, marks=pytest.mark.oncelog_only(reason="Apache Kafka stores such a batch"))
        elif name in KAFKA_FAILS:
            yield pytest.param(name, marks=pytest.mark.oncelog_only(reason="Apache Kafka has another code for it"))
        else:
            yield name


@pytest.mark.parametrize("crooked", list(_crooked()))
async def test_a_batch_whose_inside_is_wrong_is_refused(
    bootstrap: str, fresh_name: Callable[[str], str], crooked: str
) -> None:
    topic = fresh_name("inside")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)
        answer = await wire.produce(topic, CROOKED[crooked])
        assert ErrorCode(answer.error_code) in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE), crooked
        assert answer.base_offset == -1
        assert (await wire.produce(topic, raw_batch(TWO, 2))).base_offset == 0, "nothing was stored"


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("count", [1, 3, 200, 9_000])
async def test_a_sound_batch_is_stored_byte_for_byte(
    bootstrap: str, fresh_name: Callable[[str], str], codec: Compression, count: int
) -> None:
    topic = fresh_name("sound")
    sent = packed_batch(many_records(count, step=1), count, codec, max_timestamp=NOW + count - 1)
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)
        assert (await wire.produce(topic, sent)).error_code == 0
        fetched = bytes((await wire.fetch(topic)).responses[0].partitions[0].records or b"")
    assert fetched[21:] == sent[21:]


async def test_the_largest_timestamp_is_that_of_the_records(bootstrap: str, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("times")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic)
        claimed = raw_batch(many_records(100, step=7), 100, max_timestamp=NOW - 5)
        assert (await wire.produce(topic, claimed)).error_code == 0
        fetched = bytes((await wire.fetch(topic)).responses[0].partitions[0].records or b"")
    ((position, header),) = iter_batches(fetched)
    assert header.max_timestamp == NOW + 99 * 7
    assert verify_crc(fetched, position, header)
    assert fetched[61:] == claimed[61:]


async def test_records_without_a_key_are_named_to_the_producer_of_a_compacted_topic(
    bootstrap: str, fresh_name: Callable[[str], str]
) -> None:
    topic = fresh_name("keys")
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic, cleanup_policy="compact")
        records = (
            ONE + encode_record(0, 1, None, b"v") + encode_record(0, 2, b"", b"v") + encode_record(0, 3, None, b"")
        )
        answer = await wire.produce(topic, raw_batch(records, 4))
        assert ErrorCode(answer.error_code) is ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in answer.record_errors] == [1, 3]


@pytest.fixture
async def limited() -> AsyncIterator[BrokerNode]:
    """A broker with small limits, in this process."""
    async with BrokerNode(
        durability="os",
        logging_level="error",
        max_batch_objects=5_000,
        max_record_headers=50,
        max_decompressed_bytes=3_000_000,
    ) as running:
        yield running


@pytest.mark.parametrize(
    ("name", "batch", "code"),
    [
        ("records", packed_batch(many_records(5_001), 5_001), ErrorCode.MESSAGE_TOO_LARGE),
        ("headers of a record", packed_batch(with_many_headers(51)), ErrorCode.INVALID_RECORD),
        ("bytes", packed_batch(encode_record(0, 0, b"k", bytes(3_000_000))), ErrorCode.MESSAGE_TOO_LARGE),
        ("bytes in snappy", packed_batch(encode_record(0, 0, b"k", bytes(3_000_000)), codec=Compression.SNAPPY),
         ErrorCode.MESSAGE_TOO_LARGE),
        ("records within", packed_batch(many_records(5_000), 5_000), ErrorCode.NONE),
        ("headers within", packed_batch(with_many_headers(50)), ErrorCode.NONE),
        ("bytes within", packed_batch(encode_record(0, 0, b"k", bytes(2_900_000))), ErrorCode.NONE),
    ],
)  # fmt: skip
async def test_a_batch_beyond_a_limit_is_refused(limited: BrokerNode, name: str, batch: bytes, code: ErrorCode) -> None:
    async with RawConnection(f"127.0.0.1:{limited.port}") as wire:
        await wire.create_topic("limits")
        answer = await wire.produce("limits", batch)
        assert ErrorCode(answer.error_code) is code, (name, answer.error_message)


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param("delete", marks=pytest.mark.oncelog_only(reason="Apache Kafka stores such a record")),
        "compact",
    ],
)
async def test_a_record_of_millions_of_headers_is_refused(
    bootstrap: str, fresh_name: Callable[[str], str], policy: str
) -> None:
    topic = fresh_name("bomb")
    bomb = packed_batch(with_many_headers(10_000_000))
    assert len(bomb) < 10_000
    async with RawConnection(bootstrap) as wire:
        await wire.create_topic(topic, cleanup_policy=policy)
        assert ErrorCode((await wire.produce(topic, bomb)).error_code) is ErrorCode.INVALID_RECORD


async def test_others_are_served_while_a_large_batch_is_checked(limited: BrokerNode) -> None:
    """A batch of many records is looked at in slices: the requests of another connection are answered in between."""
    count = 5_000
    batch = packed_batch(b"".join(encode_record(0, i, b"k", b"v" * (i % 40)) for i in range(count)), count)
    async with RawConnection(address := f"127.0.0.1:{limited.port}") as large, RawConnection(address) as other:
        await large.create_topic("large")
        data = TopicProduceData("large", partition_data=[PartitionProduceData(0, batch)])
        answered: list[str] = []

        async def produce() -> None:
            requests = [ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]) for _ in range(50)]
            for request in requests:
                large.send(request, 9)
            for number in range(len(requests)):
                _, response = await large.receive(ProduceRequest, 9)
                answer = response.responses[0].partition_responses[0]
                assert (answer.error_code, answer.base_offset) == (0, number * count), "in order"
            answered.append("large")

        async def ask() -> None:
            await other.call(ApiVersionsRequest(), 0)
            answered.append("other")

        await asyncio.gather(produce(), ask())
    assert answered == ["other", "large"]
    assert read_batch_header(batch).record_count == count


def peak_memory(pid: int) -> int:
    """The largest memory that a process has had so far, in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


async def test_many_bombs_at_a_time_take_no_more_memory_than_a_few(tmp_path: Path) -> None:
    """Each of 12 batches expands to 120 MB: as many are decompressed at a time as the broker has slots for that."""
    bomb = packed_batch(encode_record(0, 0, b"k", bytes(120_000_000)))
    assert len(bomb) < 20_000
    with BrokerProcess(tmp_path, "--durability", "os") as broker:
        async with RawConnection(broker.address) as wire:
            await wire.create_topic("bombs", 12)
        before = peak_memory(broker.pid)

        async def produce(partition: int) -> ErrorCode:
            async with RawConnection(broker.address) as wire:
                return ErrorCode((await wire.produce("bombs", bomb, partition)).error_code)

        async with asyncio.timeout(60):
            codes = await asyncio.gather(*map(produce, range(12)))
        assert set(codes) == {ErrorCode.NONE}
        assert peak_memory(broker.pid) - before < 550_000_000
