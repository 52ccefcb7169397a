"""Which batch of a producer may follow: idempotence, epochs, transactions and markers (Kafka 4.1's rules)."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from oncelog.broker.log import (
    AppendOrigin,
    AppendResult,
    IsolationLevel,
    LoadPoint,
    LogConfig,
    PartitionLog,
    load_log,
)
from oncelog.broker.scheduling.steps import run_at_once
from oncelog.broker.system.ports import RealFileSystem, SystemClock
from oncelog.protocol.control_records import control_batch
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.records import Record, encode_batch
from support.logs import StandingClock, at_once

NOW = SystemClock().now_ms()
MAX_SEQUENCE = 2**31 - 1


def load(directory: Path, durability: str = "os") -> PartitionLog:
    return load_log(
        "t",
        0,
        str(directory),
        fs=RealFileSystem(),
        clock=StandingClock(NOW),
        config=LogConfig(durability=durability),
        point=LoadPoint(clean=True),
    )


@pytest.fixture
def log(tmp_path: Path) -> Iterator[PartitionLog]:
    log = load(tmp_path)
    yield log
    log.close()


def data(
    sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 7, transactional: bool = False
) -> bytearray:
    return bytearray(
        encode_batch(
            [Record(i, NOW, b"k", b"v") for i in range(count)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


def marker(
    log: PartitionLog, epoch: int, *, commit: bool = True, coordinator_epoch: int = 0, version: int = 0
) -> AppendResult:
    return log.append(
        bytearray(control_batch(commit, coordinator_epoch, 7, epoch, NOW)),
        origin=AppendOrigin.COORDINATOR,
        transaction_version=version,
    )


def refused(code: ErrorCode, log: PartitionLog, batch: bytearray, version: int = 0) -> None:
    end = log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        log.append(batch, transaction_version=version)
    assert caught.value.code is code
    assert log.log_end_offset == end


def test_each_batch_must_follow_the_last_one(log: PartitionLog) -> None:
    log.append(data(0, 3))
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, data(4))
    log.append(data(3))
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, data(2, 1))


def test_one_of_the_last_five_batches_is_answered_with_its_offsets_and_not_written_again(log: PartitionLog) -> None:
    results = [log.append(data(2 * number, 2)) for number in range(6)]
    for number in range(1, 6):
        again = log.append(data(2 * number, 2))
        assert again.duplicate
        assert again[:2] == results[number][:2]
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, data(0, 2))
    assert log.log_end_offset == 12


def test_a_repeated_batch_must_have_the_same_end(log: PartitionLog) -> None:
    log.append(data(0, 3))
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, data(0, 2))


def test_a_producer_takes_half_a_kilobyte(log: PartitionLog) -> None:
    """A partition may have many thousands of producers."""
    count = 2_000
    log.append(data(0, producer_id=0))
    batches = [data(0, producer_id=1 + number) for number in range(count)]
    tracemalloc.start()
    try:
        for batch in batches:
            log.append(batch)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] / count < 550
    finally:
        tracemalloc.stop()


def test_sequences_wrap_behind_the_largest_int32(log: PartitionLog) -> None:
    log.append(data(MAX_SEQUENCE - 1, 4))
    again = log.append(data(MAX_SEQUENCE - 1, 4))
    assert again.duplicate
    log.append(data(2))
    log.append(data(3, 2, producer_id=8))


def test_after_the_largest_sequence_comes_zero(log: PartitionLog) -> None:
    log.append(data(MAX_SEQUENCE))
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, data(1))
    log.append(data(0))


def test_a_producer_unknown_here_may_begin_anywhere(log: PartitionLog) -> None:
    assert log.append(data(41)).base_offset == 0
    log.append(data(42))


def test_with_transaction_version_2_a_producer_unknown_here_begins_with_zero(log: PartitionLog) -> None:
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, data(41, transactional=True), version=2)
    log.append(data(0, transactional=True), transaction_version=2)
    log.append(data(1, transactional=True), transaction_version=2)


def test_a_new_epoch_begins_with_zero(log: PartitionLog) -> None:
    log.append(data(0, 3))
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, data(3, epoch=1))
    log.append(data(0, epoch=1))


def test_an_old_epoch_is_fenced(log: PartitionLog) -> None:
    log.append(data(0, epoch=1))
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, log, data(1, epoch=0))
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, log, data(0, epoch=0))


def test_a_transaction_takes_no_batch_from_outside_of_it(log: PartitionLog) -> None:
    log.append(data(0, transactional=True))
    refused(ErrorCode.INVALID_TXN_STATE, log, data(1))
    log.append(data(1, transactional=True))


def test_the_last_stable_offset_waits_for_the_marker(log: PartitionLog) -> None:
    log.append(data(0, producer_id=3))
    log.append(data(0, transactional=True))
    log.append(data(1, producer_id=3))
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)
    assert log.producers.has_open_transaction(7, 0)
    assert not log.producers.has_open_transaction(7, 1)
    assert [entry.producer_id for entry in log.producers.open_transactions()] == [7]
    marker(log, 0)
    assert (log.last_stable_offset, log.high_watermark) == (4, 4)
    assert not log.producers.has_open_transaction(7, 0)


def test_sequences_go_on_behind_a_marker_of_the_same_epoch(log: PartitionLog) -> None:
    log.append(data(0, 2, transactional=True))
    marker(log, 0)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, data(0, 1, transactional=True))
    log.append(data(2, transactional=True))


def test_a_marker_with_a_bumped_epoch_fences_what_comes_late(log: PartitionLog) -> None:
    log.append(data(0, transactional=True), transaction_version=2)
    marker(log, 1, version=2)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, log, data(1, transactional=True), version=2)
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, log, data(1, epoch=1, transactional=True), version=2)
    log.append(data(0, epoch=1, transactional=True), transaction_version=2)


def test_a_late_marker_does_not_end_the_next_transaction(log: PartitionLog) -> None:
    log.append(data(0, transactional=True), transaction_version=2)
    marker(log, 1, version=2)
    log.append(data(0, epoch=1, transactional=True), transaction_version=2)
    with pytest.raises(KafkaError) as caught:
        marker(log, 1, commit=False, version=2)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.producers.has_open_transaction(7, 1)


def test_the_commit_of_a_later_transaction_does_not_commit_one_whose_marker_was_lost(log: PartitionLog) -> None:
    log.append(data(0, transactional=True), transaction_version=2)
    with pytest.raises(KafkaError) as caught:
        marker(log, 2, version=2)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.producers.has_open_transaction(7, 0)
    marker(log, 2, commit=False, version=2)
    assert not log.producers.has_open_transaction(7, 0)


def test_a_repeated_marker_is_accepted_while_no_transaction_is_open(log: PartitionLog) -> None:
    log.append(data(0, transactional=True), transaction_version=2)
    marker(log, 1, version=2)
    marker(log, 1, version=2)
    assert log.last_stable_offset == 3


def test_a_marker_of_an_old_epoch_is_refused(log: PartitionLog) -> None:
    log.append(data(0, epoch=2, transactional=True))
    with pytest.raises(KafkaError) as caught:
        marker(log, 1)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_of_an_old_coordinator_is_refused(log: PartitionLog) -> None:
    log.append(data(0, transactional=True))
    marker(log, 0, coordinator_epoch=4)
    log.append(data(1, transactional=True))
    with pytest.raises(KafkaError) as caught:
        marker(log, 0, coordinator_epoch=3)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    marker(log, 0, coordinator_epoch=4)


def test_a_marker_for_a_producer_unknown_here_opens_and_ends_nothing(log: PartitionLog) -> None:
    marker(log, 3)
    assert log.last_stable_offset == 1
    entry = log.producers.entry(7)
    assert entry is not None
    assert (entry.producer_epoch, entry.current_txn_first_offset) == (3, -1)


def test_coordinators_write_without_sequences(log: PartitionLog) -> None:
    batch = encode_batch([Record(0, NOW, b"k", b"v")], producer_id=7, producer_epoch=1, transactional=True)
    for _ in range(2):
        log.append(bytearray(batch), origin=AppendOrigin.COORDINATOR)
    stale = encode_batch([Record(0, NOW, b"k", b"v")], producer_id=7, producer_epoch=0, transactional=True)
    with pytest.raises(KafkaError) as caught:
        log.append(bytearray(stale), origin=AppendOrigin.COORDINATOR)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.log_end_offset == 2


def test_idle_producers_expire_but_never_within_a_transaction(log: PartitionLog) -> None:
    log.append(data(0, transactional=True))
    log.append(data(0, producer_id=8))
    expiration = log.config.producer_id_expiration_ms
    assert run_at_once(log.producers.expire((NOW + expiration - 1) / 1000, expiration)) == []
    assert run_at_once(log.producers.expire((NOW + expiration) / 1000, expiration)) == [8]
    marker(log, 0)
    assert run_at_once(log.producers.expire((NOW + expiration) / 1000, expiration)) == [7]
    assert len(log.producers) == 0


def test_a_producer_of_old_timestamps_is_remembered_as_long_as_any_other(log: PartitionLog) -> None:
    """Who writes the history of 2013 is not idle: forgotten, its repeated batch would be appended a second time."""
    first = encode_batch(
        [Record(0, NOW - 400 * 24 * 3_600_000, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0
    )
    log.append(bytearray(first))
    run_at_once(log.producers.expire((NOW + 1) / 1000, log.config.producer_id_expiration_ms))
    again = log.append(bytearray(first))
    assert again.duplicate
    assert log.log_end_offset == 1
    expiration = log.config.producer_id_expiration_ms
    assert run_at_once(log.producers.expire((NOW + expiration - 1) / 1000, expiration)) == []
    assert run_at_once(log.producers.expire((NOW + expiration) / 1000, expiration)) == [7]


def test_a_restart_does_not_forget_a_producer_of_old_timestamps(tmp_path: Path) -> None:
    log = load(tmp_path)
    old = NOW - 400 * 24 * 3_600_000
    log.append(bytearray(encode_batch([Record(0, old, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=0)))
    log.close()
    log = load(tmp_path)
    assert run_at_once(log.producers.expire((NOW + 1) / 1000, log.config.producer_id_expiration_ms)) == []
    log.close()


def test_decided_transaction_is_not_stable_before_its_marker_is_on_disk(tmp_path: Path) -> None:
    fs = RealFileSystem()
    log = load(tmp_path, durability="flush")
    log.append(data(0, transactional=True))
    log.flush()
    log.append(data(0, producer_id=8))
    flush = log.files.begin_flush()  # covers the batch of another producer, and not the marker
    assert flush is not None
    marker(log, 0)
    flush.run(fs)
    log.files.finish_flush(flush)
    assert log.high_watermark == 2
    assert log.last_stable_offset == 0, "a crash now would take the marker back"
    assert not at_once(log.read(0, 1000, IsolationLevel.READ_COMMITTED)).records
    log.flush()
    assert log.last_stable_offset == 3
    log.close()
