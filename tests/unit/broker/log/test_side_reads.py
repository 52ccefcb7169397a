"""Reads of what is not at hand: cold indexes and large ranges, got in threads while the log may change."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, TypeVar, cast

import pytest
from oncelog.broker.log import AppendOrigin, IsolationLevel, LoadPoint, PartitionLog, at_hand
from oncelog.broker.log import segment as segments
from oncelog.broker.log.cleaner import Cleaner
from oncelog.broker.log.results import LogRead
from oncelog.broker.scheduling.steps import run_in_slices
from oncelog.broker.system.ports import Lane, Threads
from oncelog.protocol.control_records import control_batch
from oncelog.protocol.errors import ErrorCode, KafkaError
from support.faulty_filesystem import FaultyFileSystem
from support.logs import NOW, at_once, batch, flip, open_log, values_of

SIZE = 5_000

T = TypeVar("T")


class HeldThreads(Threads):
    """Threads whose jobs run when a test says so."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self.count = 0

    def run(self, lane: Lane, job: Callable[[], T]) -> asyncio.Future[T]:
        assert lane is Lane.READ
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.jobs.append((job, future))
        self.count += 1
        return future

    def lock(self) -> nullcontext[None]:
        return nullcontext()

    def close(self) -> None: ...

    def work(self) -> None:
        """Run the jobs that wait."""
        jobs, self.jobs = self.jobs, []
        for job, future in jobs:
            try:
                future.set_result(job())
            except Exception as error:
                future.set_exception(error)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is large in these tests."""
    monkeypatch.setattr(segments, "_COLD_BYTES", SIZE)
    monkeypatch.setattr(at_hand, "AT_ONCE_BYTES", SIZE)


@pytest.fixture
def threads() -> HeldThreads:
    return HeldThreads()


@pytest.fixture
def log(fs: FaultyFileSystem, threads: HeldThreads) -> PartitionLog:
    """120 records of 200 B in segments of 10,000 B; the indexes of all but the last are forgotten."""
    log = open_log(fs, segment_bytes=10_000, index_interval_bytes=400, durability="os", threads=threads)
    for number in range(120):
        log.append(batch(f"{number:0200}", timestamp=NOW + number))
    for segment in list(log.segments)[:-1]:
        segment.drop_indexes()
    log.reader.forget()
    return log


async def finished(threads: HeldThreads, reading: LogRead | Iterator[object]) -> LogRead:
    """What a read that is not at hand gives, when its jobs have run."""
    assert not isinstance(reading, LogRead), "it is not at hand"
    read: Any = run_in_slices(cast(Any, reading))
    task: asyncio.Task[LogRead] = asyncio.get_running_loop().create_task(read)
    while not task.done():
        await asyncio.sleep(0)
        threads.work()
    return await task


def numbers(read: LogRead) -> list[int]:
    return [int(value) for value in values_of(bytes(read.records))]


async def test_a_cold_segment_is_read_when_its_indexes_are_loaded(log: PartitionLog, threads: HeldThreads) -> None:
    read = await finished(threads, log.read(50, 1_000))
    assert numbers(read) == [50, 51, 52]
    assert read.next_offset == 53
    assert isinstance(log.read(53, 1_000), LogRead), "now they are at hand"
    assert threads.count == 1


async def test_readers_of_the_same_cold_segment_load_it_once(log: PartitionLog, threads: HeldThreads) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(finished(threads, log.read(offset, 300))) for offset in (40, 41, 42)]
    assert [numbers(task.result()) for task in tasks] == [[40], [41], [42]]
    assert threads.count == 1


async def test_a_large_range_is_read_in_a_thread(log: PartitionLog, threads: HeldThreads) -> None:
    assert len(log.segments.first.offset_index), "it is loaded"
    read = await finished(threads, log.read(0, 8_000))
    assert numbers(read) == list(range(29))
    assert 7_700 < len(read.records) <= 8_000
    assert threads.count == 1
    whole = await finished(threads, log.read(0, 1 << 20))
    assert numbers(whole) == list(range(log.segments[1].base_offset))


async def test_what_is_appended_while_a_range_is_read_is_not_given_beyond_the_limit(
    fs: FaultyFileSystem, threads: HeldThreads
) -> None:
    log = open_log(fs, index_interval_bytes=400, threads=threads)
    for number in range(40):
        log.append(batch(f"{number:0200}"))
    log.flush()
    reading = log.read(0, 1 << 20)
    assert not isinstance(reading, LogRead)
    next(reading)
    for number in range(40, 60):
        log.append(batch(f"{number:0200}"))
    threads.work()
    with pytest.raises(StopIteration) as end:
        next(reading)
    assert numbers(end.value.value) == list(range(40))
    assert end.value.value.next_offset == 40


async def test_a_large_first_batch_comes_whole(fs: FaultyFileSystem, threads: HeldThreads) -> None:
    log = open_log(fs, durability="os", threads=threads)
    log.append(batch("x" * 7_000))
    log.append(batch("y"))
    read = await finished(threads, log.read(0, 100))
    assert values_of(bytes(read.records)) == ["x" * 7_000]
    assert at_once(log.read(0, 100, min_one=False)).records == b""
    assert threads.count == 1


async def test_records_that_are_deleted_while_they_are_read_are_out_of_range(
    log: PartitionLog, threads: HeldThreads
) -> None:
    reading = log.read(0, 1_000)
    log.delete_records_before(60)
    with pytest.raises(KafkaError) as caught:
        await finished(threads, reading)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_log_that_is_closed_while_it_is_read_says_so(log: PartitionLog, threads: HeldThreads) -> None:
    reading = log.read(0, 1_000)
    log.close(clean=False)
    with pytest.raises(KafkaError) as caught:
        await finished(threads, reading)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_damaged_indexes_of_a_cold_segment_are_made_again(
    fs: FaultyFileSystem, log: PartitionLog, threads: HeldThreads
) -> None:
    flip(fs, log.segments.first.path(".index"), 5)
    assert numbers(await finished(threads, log.read(20, 300))) == [20]
    log.segments.first.drop_indexes()
    log.reader.forget()
    assert numbers(await finished(threads, log.read(21, 300))) == [21]


async def test_a_thread_that_fails_to_read_an_index_is_tried_again_by_the_reader(
    fs: FaultyFileSystem, log: PartitionLog, threads: HeldThreads
) -> None:
    fs.fail("read")
    assert numbers(await finished(threads, log.read(20, 300))) == [20]


async def test_a_cold_segment_that_cannot_be_read_fails_the_read(
    fs: FaultyFileSystem, log: PartitionLog, threads: HeldThreads
) -> None:
    def fail(operation: str, path: str) -> None:
        if operation == "read":
            raise OSError(errno.EIO, "failed on purpose", path)

    fs.before = fail
    with pytest.raises(KafkaError) as caught:
        await finished(threads, log.read(20, 300))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_look_up_by_time_loads_cold_indexes_in_a_thread(log: PartitionLog, threads: HeldThreads) -> None:
    steps = log.find_offset_for_timestamp(NOW + 50, IsolationLevel.READ_UNCOMMITTED)
    assert (await finished(threads, steps))[:2] == (NOW + 50, 50)  # type: ignore[comparison-overlap]
    assert threads.count == 1


async def test_a_waiting_fetch_counts_a_cold_segment_as_enough(log: PartitionLog, threads: HeldThreads) -> None:
    assert log.readable_bytes(10, 5_000) == 5_000
    assert not threads.count


# --- indexes that have to be made again ------------------------------------------------------------------------------

COMMITTED = IsolationLevel.READ_COMMITTED


def with_aborted_transaction(fs: FaultyFileSystem, threads: HeldThreads | None, size: int = 10) -> PartitionLog:
    """A log whose first segment, of `size` bytes and some, is finished and has an aborted transaction at offset 1."""
    log = open_log(fs, durability="os", threads=threads)
    log.append(batch("plain".ljust(size)))
    log.append(batch("aborted", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    log.append(bytearray(control_batch(False, 0, 1, 0, NOW)), origin=AppendOrigin.COORDINATOR)
    log.roll()
    log.append(batch("next"))
    log.segments.first.release()
    log.reader.forget()
    return log


@pytest.mark.parametrize("kind", [".txnindex", ".checksums", ".index", ".timeindex"])
async def test_a_damaged_index_of_a_small_segment_is_made_again_in_a_thread(
    fs: FaultyFileSystem, threads: HeldThreads, kind: str
) -> None:
    """It takes up to a second for each 64 MiB; nobody else was served meanwhile."""
    log = with_aborted_transaction(fs, threads)
    fs.unlink(log.segments.first.path(kind)) if kind == ".index" else flip(fs, log.segments.first.path(kind), 3)
    read = await finished(threads, log.read(0, 100, COMMITTED))
    assert (values_of(bytes(read.records)), read.aborted) == (["plain     "], [])
    count = threads.count
    assert count
    assert isinstance(log.read(0, 1 << 10, COMMITTED), LogRead)
    log.segments.first.release()
    log.reader.forget()
    assert isinstance(log.read(0, 1 << 10, COMMITTED), LogRead), "the files are sound again"
    assert threads.count == count


async def test_a_large_index_of_aborted_transactions_is_loaded_in_a_thread(
    fs: FaultyFileSystem, threads: HeldThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_LARGE_TXN_INDEX", 10)
    log = with_aborted_transaction(fs, threads)
    read = await finished(threads, log.read(0, 1 << 10, COMMITTED))
    assert (read.aborted, threads.count) == ([(1, 1)], 1)


@pytest.mark.parametrize(("kind", "size"), [(".txnindex", 10), (".index", 10), (".index", SIZE)])
async def test_an_index_that_is_made_again_is_not_written_into_another_log_of_that_name(
    fs: FaultyFileSystem, threads: HeldThreads, kind: str, size: int
) -> None:
    """A topic is deleted and created anew while a thread reads its old segment."""
    log = with_aborted_transaction(fs, threads, size)
    fs.unlink(log.segments.first.path(kind))
    reading = log.read(0, 1 << 10, COMMITTED)
    assert not isinstance(reading, LogRead)
    next(reading)
    threads.work()
    log.discard()
    for name in fs.list("/data/t-0"):
        fs.unlink(f"/data/t-0/{name}")
    another = open_log(fs, durability="os")
    another.append(batch("of another topic"))
    names = fs.list("/data/t-0")
    with pytest.raises(KafkaError):
        await finished(threads, reading)
    assert fs.list("/data/t-0") == names


async def test_damage_that_shows_when_an_index_is_made_again_is_told_to_the_reader(
    fs: FaultyFileSystem, threads: HeldThreads
) -> None:
    log = with_aborted_transaction(fs, threads)
    flip(fs, log.segments.first.path(".txnindex"), 3)
    flip(fs, log.segments.first.path(), 200)
    with pytest.raises(KafkaError) as caught:
        await finished(threads, log.read(0, 1 << 10, COMMITTED))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.failure is not None


async def test_a_compaction_has_a_damaged_index_made_again_in_a_thread(fs: FaultyFileSystem) -> None:
    with_aborted_transaction(fs, None).close()
    threads = HeldThreads()
    log = open_log(fs, point=LoadPoint(clean=True, recovery_point=4), threads=threads)
    flip(fs, log.segments.first.path(".txnindex"), 3)
    log.segments.first.release()
    cleaner = Cleaner(fs)
    for _ in ("the offset and time indexes", "the transaction index"):
        with pytest.raises(at_hand.NotAtHand) as caught:
            cleaner.plan(log, 0, NOW, force=True)
        assert await finished(threads, log.reader.side_reads.get(caught.value))
    plan = cleaner.plan(log, 0, NOW, force=True)
    assert plan is not None
    plan.look_up()
    assert plan.aborted == {1: [(1, 1, 2, 3)]}
