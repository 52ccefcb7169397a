"""What every implementation of `Log` promises: that of files, one in memory, and one where nothing is at hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import GeneratorType
from typing import Any

import pytest
from oncelog.broker.log import AppendOrigin, IsolationLevel, Log, LogConfig, LogRead
from oncelog.broker.log.partition_log import EARLIEST, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from oncelog.broker.scheduling.steps import run_in_slices
from oncelog.protocol.control_records import control_batch
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.records import iter_batches, read_batch_header
from support.faulty_filesystem import FaultyFileSystem
from support.logs import NOW, StandingClock, batch, open_log, values_of
from support.memory_log import MemoryLog, MemoryStore

COMMITTED = IsolationLevel.READ_COMMITTED
Opening = Callable[..., Any]


def of_files(**config: Any) -> Log:
    return open_log(FaultyFileSystem(), **config)


def in_memory(**config: Any) -> Log:
    return MemoryLog(MemoryStore(), LogConfig(**config), StandingClock())


def remote(**config: Any) -> Log:
    return MemoryLog(MemoryStore(), LogConfig(**config), StandingClock(), remote=True)


@pytest.fixture(params=[of_files, in_memory, remote], ids=["files", "memory", "remote"])
def opening(request: pytest.FixtureRequest) -> Opening:
    opening: Opening = request.param
    return opening


@pytest.fixture
def log(opening: Opening) -> Any:
    """Whose segments, where there are such, have 1,000 bytes, and whose records are visible at once."""
    return (
        opening(durability="os", segment_bytes=1_000, index_interval_bytes=200)
        if opening is of_files
        else opening(durability="os")
    )


async def got(outcome: Any) -> Any:
    """What an operation returned, at once or in steps."""
    return await run_in_slices(outcome) if isinstance(outcome, GeneratorType) else outcome


async def read(log: Log, offset: int, max_bytes: int = 10_000, *isolation: IsolationLevel, **options: Any) -> LogRead:
    result = await got(log.read(offset, max_bytes, *isolation, **options))
    assert isinstance(result, LogRead)
    return result


async def refusal(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await got(call())
    return caught.value.code


def fill(log: Log, count: int = 60) -> list[str]:
    """Batches of three records."""
    sent = [f"value {number}" for number in range(count)]
    for start in range(0, count, 3):
        log.append(batch(*sent[start : start + 3], timestamp=NOW + start, step=1))
    return sent


def produce(log: Log, value: str, sequence: int, *, producer_id: int = 1, epoch: int = 0, **options: Any) -> Any:
    return log.append(batch(value, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **options))


def end(log: Log, commit: bool, *, producer_id: int = 1, epoch: int = 0) -> Any:
    marker = control_batch(commit, 0, producer_id, epoch, NOW, leader_epoch=0)
    return log.append(bytearray(marker), origin=AppendOrigin.COORDINATOR)


# --- append


async def test_offsets_are_given_one_after_the_other(log: Log) -> None:
    assert log.append(batch("a", "b"))[:2] == (0, 1)
    assert log.append(batch("c"))[:2] == (2, 2)
    assert (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset) == (0, 3, 3, 3)


async def test_what_is_refused_is_not_in_the_log(log: Log) -> None:
    damaged = batch("a")
    damaged[-1] ^= 1
    assert await refusal(lambda: log.append(damaged)) is ErrorCode.CORRUPT_MESSAGE
    assert await refusal(lambda: log.append(damaged[:-10])) is ErrorCode.CORRUPT_MESSAGE
    log.update_config(LogConfig(durability="os", max_message_bytes=100))
    assert await refusal(lambda: log.append(batch("x" * 200))) is ErrorCode.MESSAGE_TOO_LARGE
    assert log.log_end_offset == 0
    assert log.append(batch("a")).base_offset == 0


async def test_a_repeated_batch_is_answered_with_its_offsets(log: Log) -> None:
    log.append(batch("before"))
    assert produce(log, "a", 0)[:2] == (1, 1)
    assert produce(log, "b", 1)[:2] == (2, 2)
    again = produce(log, "a", 0)
    assert (again.base_offset, again.duplicate, log.log_end_offset) == (1, True, 3)
    assert await refusal(lambda: produce(log, "d", 3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await refusal(lambda: produce(log, "old", 0, epoch=-1)) is ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 3


async def test_an_older_producer_epoch_is_refused(log: Log) -> None:
    produce(log, "a", 0, epoch=3)
    assert await refusal(lambda: produce(log, "b", 1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_log_append_time_is_the_logs_clock(opening: Opening) -> None:
    log = opening(durability="os", message_timestamp_type="LogAppendTime")
    assert log.append(batch("a", timestamp=NOW - 5_000)).log_append_time == NOW
    assert read_batch_header((await read(log, 0)).records).max_timestamp == NOW


async def test_log_append_time_is_that_of_a_coordinators_data_but_not_of_its_markers(opening: Opening) -> None:
    log = opening(durability="os", message_timestamp_type="LogAppendTime")
    data, marker = batch("a", timestamp=NOW - 5_000), bytearray(control_batch(True, 0, 7, 0, NOW - 5_000))
    assert log.append(data, origin=AppendOrigin.COORDINATOR).log_append_time == NOW
    assert log.append(marker, origin=AppendOrigin.COORDINATOR).log_append_time == -1
    headers = [header for header, _ in log.batches()]
    assert [header.max_timestamp for header in headers] == [NOW, NOW - 5_000]
    assert [bool(header.timestamp_type) for header in headers] == [True, False]


async def test_a_coordinator_appends_one_batch_at_a_time(log: Log) -> None:
    with pytest.raises(AssertionError):
        log.append(batch("a") + batch("b"), origin=AppendOrigin.COORDINATOR)
    assert log.log_end_offset == 0


# --- owner


async def test_a_former_owner_is_refused(log: Log) -> None:
    log.take_over(3)
    log.append(batch("a"), leader_epoch=3)
    log.take_over(5)
    assert await refusal(lambda: log.append(batch("b"), leader_epoch=3)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    marker = control_batch(True, 0, 1, 0, NOW, leader_epoch=3)
    late = lambda: log.append(bytearray(marker), origin=AppendOrigin.COORDINATOR, leader_epoch=3)  # noqa: E731
    assert await refusal(late) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await refusal(lambda: log.take_over(4)) is ErrorCode.FENCED_LEADER_EPOCH
    log.take_over(5)
    assert log.append(batch("c"), leader_epoch=5).base_offset == 1
    assert values_of(bytes((await read(log, 0)).records) + bytes((await read(log, 1)).records))[-1] == "c"


async def test_a_former_owner_of_a_shared_store_is_refused() -> None:
    store = MemoryStore()
    former, present = (MemoryLog(store, LogConfig(durability="os"), StandingClock()) for _ in range(2))
    former.take_over(1)
    former.append(batch("a"), leader_epoch=1)
    present.take_over(2)
    assert await refusal(lambda: former.append(batch("b"), leader_epoch=1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await refusal(lambda: former.take_over(1)) is ErrorCode.FENCED_LEADER_EPOCH
    assert present.append(batch("c"), leader_epoch=2).base_offset == 1


async def test_where_leader_epochs_end_is_remembered(log: Log) -> None:
    assert log.leader_epoch == -1
    log.append(batch("a"), leader_epoch=2)
    log.append(batch("b"), leader_epoch=5)
    assert log.leader_epoch == 5
    assert [log.end_offset_for_epoch(epoch) for epoch in (2, 4, 5, 6)] == [(2, 1), (2, 1), (5, 2), (-1, -1)]


async def test_a_leader_epoch_begins_with_its_owner(log: Log) -> None:
    log.take_over(0)
    assert log.leader_epoch == 0
    assert [log.end_offset_for_epoch(epoch) for epoch in (0, 1)] == [(0, 0), (-1, -1)]
    for special in (LATEST, EARLIEST):
        assert await run_in_slices(log.find_offset_for_timestamp(special)) == (-1, 0, 0)
    log.take_over(2)
    assert [log.end_offset_for_epoch(epoch) for epoch in (0, 1, 2)] == [(0, 0), (1, 0), (2, 0)]
    log.append(batch("a"), leader_epoch=2)
    log.take_over(5)
    assert [log.end_offset_for_epoch(epoch) for epoch in (2, 4, 5)] == [(2, 1), (2, 1), (5, 1)]


# --- read


async def test_every_offset_can_be_read(log: Log) -> None:
    sent = fill(log)
    for offset in range(60):
        records = (await read(log, offset, 1)).records
        assert values_of(records) == sent[offset // 3 * 3 : offset // 3 * 3 + 3], "the batch that holds it"


async def test_reads_take_whole_batches_up_to_the_limit(log: Log) -> None:
    fill(log)
    size = len((await read(log, 0, 1)).records)
    for limit in (size, size + 1, 2 * size - 1, 2 * size, 3 * size + 3):
        assert len((await read(log, 0, limit)).records) == limit // size * size
        assert log.readable_bytes(0, limit) == limit
    assert (await read(log, 0, size - 1, min_one=False)).records == b""
    assert log.readable_bytes(57, 100_000) == len((await read(log, 57)).records)


@pytest.mark.parametrize("limit", [1, 250, 1_000, 100_000])
async def test_reading_on_from_each_answer_gives_everything_once(log: Log, limit: int) -> None:
    sent = fill(log)
    offset, received = 0, []
    while offset < log.log_end_offset:
        answer = await read(log, offset, limit)
        received += values_of(answer.records)
        assert next(header.base_offset for _, header in iter_batches(answer.records)) == offset
        offset = answer.next_offset
    assert received == sent


async def test_there_is_nothing_at_the_end_and_an_error_beyond_it(log: Log) -> None:
    log.append(batch("a"))
    assert (await read(log, 1)).records == b""
    assert log.readable_bytes(1, 100) == 0
    for offset in (-1, 2):
        assert await refusal(partial(log.read, offset, 1_000)) is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_readers_see_what_is_durable(opening: Opening) -> None:
    log = opening()
    moved: list[int] = []
    listener = lambda log: moved.append(log.high_watermark)  # noqa: E731
    log.add_listener(listener)
    log.append(batch("a"))
    log.append(batch("b"))
    assert (log.high_watermark, log.log_end_offset) == (0, 2)
    assert (await read(log, 0)).records == b""
    assert log.flushed(2) is None, "without a flusher it is durable when this returns"
    assert moved == [2]
    assert values_of(bytes((await read(log, 0)).records)) == ["a", "b"]
    log.remove_listener(listener)
    log.append(batch("c"))
    log.flush()
    assert moved == [2]


async def test_read_committed_ends_at_open_transactions_and_names_aborted_ones(log: Log) -> None:
    log.append(batch("a"))
    produce(log, "b", 0, transactional=True)
    log.append(batch("c"))
    assert log.last_stable_offset == 1
    assert [entry.producer_id for entry in log.producers.open_transactions()] == [1]
    assert values_of(bytes((await read(log, 0, 10_000, COMMITTED)).records)) == ["a"]
    assert (await read(log, 0)).aborted is None
    end(log, commit=False)
    assert log.last_stable_offset == 4
    assert (await read(log, 0, 10_000, COMMITTED)).aborted == [(1, 1)]
    produce(log, "d", 1, transactional=True)
    end(log, commit=True)
    assert not log.producers.open_transactions()
    assert (await read(log, 4, 10_000, COMMITTED)).aborted == []


@pytest.mark.parametrize("isolation", IsolationLevel)
async def test_offsets_are_looked_up_by_time(log: Log, isolation: IsolationLevel) -> None:
    async def look(timestamp: int) -> tuple[int, int]:
        result = await got(log.find_offset_for_timestamp(timestamp, isolation))
        return result[:2]  # type: ignore[no-any-return]

    assert await look(MAX_TIMESTAMP) == (-1, -1)
    fill(log)
    produce(log, "open", 0, transactional=True, timestamp=NOW + 500)
    limit = log.last_stable_offset if isolation is COMMITTED else log.high_watermark
    assert await look(NOW + 31) == (NOW + 31, 31)
    assert await look(0) == (NOW, 0)
    assert await look(LATEST) == (-1, limit)
    assert await look(EARLIEST) == (-1, 0)
    assert await look(LATEST_TIERED) == (-1, -1)
    assert await look(NOW + 501) == (-1, -1)
    assert await look(MAX_TIMESTAMP) == ((NOW + 59, 59) if isolation is COMMITTED else (NOW + 500, 60))
    assert await refusal(lambda: log.find_offset_for_timestamp(-9, isolation)) is ErrorCode.INVALID_REQUEST


async def test_deleted_records_are_out_of_range(log: Log) -> None:
    fill(log)
    assert log.delete_records_before(31) == 31
    assert log.delete_records_before(5) == 31
    assert await refusal(lambda: log.read(30, 100)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert read_batch_header((await read(log, 31, 1)).records).base_offset == 30
    assert (await got(log.find_offset_for_timestamp(0)))[1] == 31
    assert await refusal(lambda: log.delete_records_before(61)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records_before(-1) == 60
    assert log.append(batch("next")).base_offset == 60
