"""Very many segments, and very many logs: no turn of the event loop goes through all of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from oncelog.broker.log import LogConfig, LogManager, PartitionLog
from oncelog.broker.log.cleaner import Cleaner
from oncelog.broker.log.segment import LogSegment
from oncelog.protocol.errors import ErrorCode, KafkaError
from support.faulty_filesystem import FaultyFileSystem
from support.logs import DATA, batch, settle

SEGMENTS = 600
MOST = 100
"""The most segments that one turn may close."""


class Turns:
    """Counts the closed segments of each turn of the event loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0
        self.closed: Counter[int] = Counter()
        self._ended = False
        take_file = LogSegment.take_file

        def counted(segment: LogSegment) -> Any:
            self.closed[self.number] += 1
            return take_file(segment)

        monkeypatch.setattr(LogSegment, "take_file", counted)
        self._next()

    def _next(self) -> None:
        self.number += 1
        if not self._ended:
            asyncio.get_running_loop().call_soon(self._next)

    def end(self) -> None:
        self._ended = True


async def of_many_segments(manager: LogManager, partition: int) -> PartitionLog:
    log = manager.create("t", partition, LogConfig())
    for _ in range(SEGMENTS):
        log.append(batch("a"))
        log.roll()
    await asyncio.shield(log.flushed(SEGMENTS) or asyncio.sleep(0))
    await settle(manager)
    assert len(log.segments) == SEGMENTS + 1
    return log


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Iterator[Turns]:
    made: list[Turns] = []

    def begin() -> Turns:
        made.append(Turns(monkeypatch))
        return made[0]

    yield begin  # type: ignore[misc]
    made[0].end()


async def test_no_turn_closes_all_segments_of_deleted_partitions(
    manager: LogManager, fs: FaultyFileSystem, turns: Any
) -> None:
    logs = [await of_many_segments(manager, partition) for partition in (0, 1)]
    counted = turns()
    await manager.delete([("t", 0), ("t", 1)])
    assert counted.closed.total() >= 2 * SEGMENTS
    assert max(counted.closed.values()) <= MOST
    for log in logs:
        with pytest.raises(KafkaError) as caught:
            log.read(0, 1000)
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await settle(manager)
    assert not [name for name in fs.list(DATA) if name.startswith("t-")]


async def test_a_deleted_log_takes_nothing_from_the_first_turn_of_its_deletion_on(manager: LogManager) -> None:
    log = await of_many_segments(manager, 0)
    waiting = log.append(batch("b"))
    flush = log.flushed(waiting.last_offset + 1)
    deletion = asyncio.ensure_future(manager.delete([("t", 0)]))
    await asyncio.sleep(0)
    assert not deletion.done()
    assert log.files.closed
    for refused in (lambda: log.append(batch("c")), lambda: log.read(0, 1000)):
        with pytest.raises(KafkaError) as caught:
            refused()
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert flush is not None
    with pytest.raises(KafkaError):
        await flush
    await deletion


async def test_no_turn_closes_all_segments_below_a_new_log_start_offset(
    manager: LogManager, fs: FaultyFileSystem, turns: Any
) -> None:
    log = await of_many_segments(manager, 0)
    counted = turns()
    assert log.delete_records_before(SEGMENTS - 1) == SEGMENTS - 1
    assert len(log.segments) == 2
    await manager.start_offsets_on_disk()
    while counted.closed.total() < SEGMENTS - 1:
        await asyncio.sleep(0)
    assert max(counted.closed.values()) <= MOST
    counted.end()
    while len([name for name in fs.list(log.files.directory) if name.endswith((".log", ".deleted"))]) > 2:
        await asyncio.sleep(0)
    await settle(manager)


async def test_segments_below_a_new_log_start_offset_are_closed_by_a_stop_in_between(
    manager: LogManager, fs: FaultyFileSystem
) -> None:
    log = await of_many_segments(manager, 0)
    for segment in log.segments:
        assert segment.file.size() >= 0
    doomed = list(log.segments)[: SEGMENTS - 1]
    log.delete_records_before(SEGMENTS - 1)
    await manager.stop()
    assert [segment for segment in doomed if segment.take_file() is not None] == []


async def test_no_turn_forgets_all_of_many_deleted_partitions(manager: LogManager, fs: FaultyFileSystem) -> None:
    keys = [("t", index) for index in range(2_000)]
    for key in keys:
        manager.create(*key, LogConfig(durability="os"))
    deletion = asyncio.ensure_future(manager.delete(keys))
    while len(manager._undeleted) < len(keys):
        await asyncio.sleep(0)
    left = [len(manager._undeleted)]
    while not deletion.done():
        await asyncio.sleep(0)
        left.append(len(manager._undeleted))
    assert left[-1] == 0
    assert max(before - after for before, after in pairwise(left)) <= 500
    await settle(manager)
    assert not [name for name in fs.list(DATA) if name.startswith("t-")]


async def test_no_turn_looks_at_all_segments_of_the_logs_that_need_no_compaction(
    manager: LogManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(20):
        log = manager.create("t", index, LogConfig(cleanup_policy=("compact",), durability="os"))
        for _ in range(100):
            log.append(batch("a"))
            log.roll()
        manager._cleaner_offsets["t", index] = log.log_end_offset
    await settle(manager)
    number, ended = 0, False
    looked: Counter[int] = Counter()

    def next_turn() -> None:
        nonlocal number
        number += 1
        if not ended:
            asyncio.get_running_loop().call_soon(next_turn)

    plan = Cleaner.plan_in_steps

    def counted(cleaner: Cleaner, log: PartitionLog, *arguments: Any) -> Any:
        looked[number] += len(log.segments)
        return plan(cleaner, log, *arguments)

    monkeypatch.setattr(Cleaner, "plan_in_steps", counted)
    next_turn()
    await manager._clean_all()
    ended = True
    assert looked.total() == 20 * 101
    assert max(looked.values()) <= 400
