"""`oncelog consume --until-end` prints the records before the ends that were read at the start, and no others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from oncelog import ConsumerRecord, TimestampType, TopicPartition
from oncelog.cli.consume import _print_all
from oncelog.client.consumer.record import BatchOrigin

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Appended:
    """A consumer of partitions that get records while they are read: each call to `poll` returns one of `polls`."""

    def __init__(self, *polls: list[tuple[TopicPartition, int]], start: dict[TopicPartition, int]) -> None:
        self.polls = iter(polls)
        self.positions = dict(start)
        self.paused: set[TopicPartition] = set()

    async def poll(self, timeout_ms: float, max_records: int | None) -> list[ConsumerRecord[bytes, bytes]]:
        records = [each for each in next(self.polls) if each[0] not in self.paused][:max_records]
        self.positions |= {partition: offset + 1 for partition, offset in records}
        return [
            ConsumerRecord(BatchOrigin(partition, 0, TimestampType.CREATE_TIME), offset, 0, None, b"value", [])
            for partition, offset in records
        ]

    async def position(self, partition: TopicPartition) -> int:
        return self.positions[partition]

    def pause(self, *partitions: TopicPartition) -> None:
        self.paused.update(partitions)


def printed(
    capfdbinary: pytest.CaptureFixture[bytes],
    consumer: Any,
    ends: dict[TopicPartition, int],
    max_messages: int | None = None,
) -> list[str]:
    def line(record: ConsumerRecord[Any, Any]) -> bytes:
        return b"%d:%d\n" % (record.partition, record.offset)

    asyncio.run(_print_all(consumer, line, max_messages, None, ends, commit=False))
    return capfdbinary.readouterr().out.decode().split()


def test_records_after_the_ends_are_not_printed(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    consumer = Appended(
        [(FIRST, 0), (FIRST, 1), (FIRST, 2), (FIRST, 3)],
        [(FIRST, 4), (SECOND, 7)],
        [(SECOND, 8), (FIRST, 5), (SECOND, 9)],
        start={FIRST: 0, SECOND: 7},
    )
    assert printed(capfdbinary, consumer, {FIRST: 2, SECOND: 9}) == ["0:0", "0:1", "1:7", "1:8"]


def test_records_after_the_ends_do_not_count(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    consumer = Appended([(FIRST, 0), (FIRST, 1)], [(SECOND, 0), (SECOND, 1)], start={FIRST: 0, SECOND: 0})
    assert printed(capfdbinary, consumer, {FIRST: 1, SECOND: 2}, 2) == ["0:0", "1:0"]


def test_partitions_that_are_read_to_their_ends_are_not_waited_for(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    consumer = Appended(start={FIRST: 5, SECOND: 1})
    assert printed(capfdbinary, consumer, {FIRST: 5, SECOND: 0}) == []
