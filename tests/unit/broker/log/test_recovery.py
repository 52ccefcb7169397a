"""Opening a log after crashes and damage: what is cut, what is refused, what a person can repair."""

from __future__ import annotations

import errno

import pytest
from oncelog.broker.log import AppendOrigin, CorruptLog, LoadPoint, PartitionLog
from oncelog.broker.log.cleaner import Cleaner
from oncelog.broker.log.repair import inspect, repair
from oncelog.protocol.control_records import control_batch
from oncelog.protocol.errors import ErrorCode, KafkaError
from support.faulty_filesystem import FaultyFileSystem
from support.logs import NOW, batch, flip, new_manager, open_log, values

FIRST = "/data/t-0/00000000000000000000.log"


@pytest.fixture
def fs() -> FaultyFileSystem:
    return FaultyFileSystem()


def written(fs: FaultyFileSystem, count: int = 5, **config: object) -> PartitionLog:
    log = open_log(fs, **config)
    for number in range(count):
        log.append(batch(f"value {number}"))
    log.flush()
    return log


def position_of(fs: FaultyFileSystem, offset: int) -> int:
    log = open_log(fs)
    position = log.segments.floor(offset).position_of(offset)
    log.close(clean=False)
    return position


# --- torn tails ------------------------------------------------------------------------------------------------------


def test_after_a_clean_stop_nothing_is_scanned(fs: FaultyFileSystem) -> None:
    written(fs, segment_bytes=200).close()
    flip(fs, FIRST, 40)
    log = open_log(fs, point=LoadPoint(clean=True, recovery_point=5))
    assert log.log_end_offset == 5
    assert log.append(batch("next")).base_offset == 5


@pytest.mark.parametrize("cut", [1, 20, 61, 70])
def test_a_torn_tail_is_cut(fs: FaultyFileSystem, cut: int) -> None:
    written(fs)
    fs.kill()
    file = fs.open(FIRST)
    file.truncate(file.size() - cut)
    file.close()
    log = open_log(fs, point=LoadPoint(recovery_point=4))
    assert values(log.batches()) == [f"value {number}" for number in range(4)]
    assert log.append(batch("next")).base_offset == 4
    log.close()
    fs.kill()
    assert values(open_log(fs).batches())[-1] == "next"


def test_garbage_and_zeros_behind_the_end_are_cut(fs: FaultyFileSystem) -> None:
    for garbage in (bytes(5000), b"\xff" * 300, bytes(range(256))):
        log = open_log(fs)
        size = log.size
        end = log.log_end_offset
        log.append(batch("a"))
        log.close(clean=False)
        size = fs.file_size(FIRST)
        file = fs.open(FIRST)
        file.write_at([garbage], size)
        file.close()
        log = open_log(fs, point=LoadPoint(recovery_point=end))
        assert log.log_end_offset == end + 1
        assert fs.file_size(FIRST) == size
        log.close(clean=False)


def test_segments_that_do_not_join_are_cut_behind_the_recovery_point(fs: FaultyFileSystem) -> None:
    written(fs, 6, segment_bytes=160)
    fs.kill()
    file = fs.open("/data/t-0/00000000000000000002.log")
    file.truncate(position_of_second(fs))
    file.close()
    log = open_log(fs, point=LoadPoint(recovery_point=2), segment_bytes=160)
    assert log.log_end_offset == 3
    assert not fs.exists("/data/t-0/00000000000000000004.log")


def position_of_second(fs: FaultyFileSystem) -> int:
    return fs.file_size("/data/t-0/00000000000000000002.log") // 2


def test_what_recovery_keeps_is_on_disk_before_it_is_shown(fs: FaultyFileSystem) -> None:
    log = open_log(fs)
    log.append(batch("a"))
    fs.kill()  # the process alone: the page cache still has the batch
    log = open_log(fs)
    assert log.high_watermark == 1
    node = fs._get(FIRST)
    assert node.disk == bytes(node.data)
    assert "t-0" in fs._get("/data").names_on_disk


def test_producers_and_transactions_are_rebuilt(fs: FaultyFileSystem) -> None:
    log = open_log(fs, segment_bytes=300)
    for number in range(8):
        options = {"producer_id": number % 2, "producer_epoch": 0, "base_sequence": number // 2}
        log.append(batch("x" * 20, transactional=number % 2 == 1, **options))
    log.append(batch("plain"))
    log.append(bytearray(control_batch(False, 3, 1, 0, NOW)), origin=AppendOrigin.COORDINATOR)
    log.append(batch("open", transactional=True, producer_id=1, producer_epoch=0, base_sequence=4))
    log.flush()
    fs.kill()
    log = open_log(fs, segment_bytes=300)
    entry = log.producers.entry(1)
    assert entry is not None
    assert (entry.last_sequence, entry.coordinator_epoch, entry.current_txn_first_offset) == (4, 3, 10)
    assert (log.high_watermark, log.last_stable_offset) == (11, 10)
    assert log.reader.aborted(0, 10) == [(1, 1)]
    again = log.append(batch("x" * 20, producer_id=0, producer_epoch=0, base_sequence=3))
    assert (again.duplicate, again.base_offset) == (True, 6)


def test_all_five_batches_are_known_after_a_clean_stop(fs: FaultyFileSystem) -> None:
    log = open_log(fs)
    for number in range(7):
        log.append(batch("x", producer_id=1, producer_epoch=0, base_sequence=number))
    log.close()
    log = open_log(fs, point=LoadPoint(clean=True, recovery_point=7))
    for number in range(2, 7):
        again = log.append(batch("x", producer_id=1, producer_epoch=0, base_sequence=number))
        assert (again.duplicate, again.base_offset) == (True, number)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
@pytest.mark.parametrize("damage", ["missing", "cut", "garbage"])
def test_indexes_and_snapshots_are_made_again(fs: FaultyFileSystem, suffix: str, damage: str) -> None:
    log = open_log(fs, segment_bytes=400, index_interval_bytes=50)
    for number in range(12):
        log.append(
            batch(f"value {number}", producer_id=1, producer_epoch=0, base_sequence=number, timestamp=NOW + number)
        )
    log.close()
    for name in [name for name in fs.list("/data/t-0") if name.endswith(suffix)]:
        path = f"/data/t-0/{name}"
        if damage == "missing":
            fs.unlink(path)
            continue
        file = fs.open(path)
        if damage == "cut":
            file.truncate(file.size() // 2 + 1)
        else:
            file.write_at([b"\x7f" * file.size()], 0)
        file.close()
    log = open_log(fs, point=LoadPoint(clean=True, recovery_point=12), segment_bytes=400)
    assert log.log_end_offset == 12
    for number in range(12):
        assert log.read(number, 1).records[-8:-1] == f"value {number}".encode()[-7:]
        assert log.offset_for_timestamp(NOW + number)[1] == number
    assert log.append(batch("value 11", producer_id=1, producer_epoch=0, base_sequence=11)).duplicate


# --- damage ----------------------------------------------------------------------------------------------------------


def test_damage_before_the_recovery_point_takes_the_partition_offline(fs: FaultyFileSystem) -> None:
    written(fs)
    fs.kill()
    position = position_of(fs, 2)
    flip(fs, FIRST, position + 65)
    with pytest.raises(CorruptLog) as caught:
        open_log(fs, point=LoadPoint(recovery_point=5))
    error = caught.value
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (error.file, error.position, error.offset) == (FIRST, position, 2)
    assert FIRST in error.message
    assert f"byte {position}" in error.message
    assert "oncelog log repair" in error.message
    assert fs.file_size(FIRST) > position, "nothing was cut"
    assert fs.open_files == 0


def test_a_log_that_ends_before_the_recovery_point_is_offline(fs: FaultyFileSystem) -> None:
    written(fs)
    fs.kill()
    file = fs.open(FIRST)
    file.truncate(position_of(fs, 3))
    file.close()
    with pytest.raises(CorruptLog, match="was on disk up to offset 5"):
        open_log(fs, point=LoadPoint(recovery_point=5))


def test_damage_found_by_a_reader_takes_the_partition_offline(fs: FaultyFileSystem) -> None:
    log = written(fs)
    flip(fs, FIRST, log.segments.active.position_of(2) + 16)
    with pytest.raises(KafkaError) as caught:
        log.read(3, 1000)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert FIRST in caught.value.message
    with pytest.raises(KafkaError):
        log.append(batch("more"))


def test_one_damaged_partition_does_not_hinder_the_others(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    manager.open()
    for topic in ("t", "u"):
        log = manager.create(topic, 0, manager._config)
        log.append(batch("a"))
        log.append(batch("b"))
        log.flush()
    manager.directory.write_offsets("recovery-point-offset-checkpoint", [("t", 0, 2), ("u", 0, 2)])
    manager.abandon()
    fs.kill()
    flip(fs, FIRST, 65)
    manager = new_manager(fs)
    manager.open()
    with pytest.raises(KafkaError) as caught:
        manager.get("t", 0)
    assert caught.value is manager.offline["t", 0]
    healthy = manager.get("u", 0)
    assert healthy is not None
    assert values(healthy.batches()) == ["a", "b"]
    manager.abandon()


# --- repair ----------------------------------------------------------------------------------------------------------


def damaged(fs: FaultyFileSystem) -> int:
    manager = new_manager(fs)
    manager.open()
    log = manager.create("t", 0, manager._config)
    log.update_config(log.config)
    for number in range(6):
        log.append(batch(f"value {number}", "second", producer_id=1, producer_epoch=0, base_sequence=2 * number))
        if number == 3:
            log.roll()
    log.flush()
    position = log.segments.first.position_of(4)
    manager.directory.write_offsets("recovery-point-offset-checkpoint", [("t", 0, 12)])
    manager.abandon()
    fs.kill()
    flip(fs, FIRST, position + 70)
    return position


def test_inspect_tells_what_a_repair_would_remove_and_changes_nothing(fs: FaultyFileSystem) -> None:
    position = damaged(fs)
    before = {name: bytes(fs._get(f"/data/t-0/{name}").data) for name in fs.list("/data/t-0")}
    (damage,) = inspect("/data", fs)
    assert (damage.topic, damage.partition, damage.file, damage.position) == ("t", 0, FIRST, position)
    assert (damage.lost_from_offset, damage.below_recovery_point) == (4, True)
    assert (damage.whole_batches, damage.whole_records) == (3, 6)
    assert damage.lost_bytes == fs.file_size(FIRST) - position + fs.file_size(FIRST.replace("00.log", "08.log"))
    assert {name: bytes(fs._get(f"/data/t-0/{name}").data) for name in fs.list("/data/t-0")} == before


def test_repair_cuts_at_the_damage_and_keeps_what_it_removed(fs: FaultyFileSystem) -> None:
    position = damaged(fs)
    lost = bytes(fs._get(FIRST).data[position:])
    later = bytes(fs._get(FIRST.replace("00.log", "08.log")).data)
    assert repair("/data", fs) == repair_twin(position, lost, later)
    assert inspect("/data", fs) == []
    (kept,) = [name for name in fs.list("/data/t-0") if name.endswith(".removed")]
    contents = {name: bytes(fs._get(f"/data/t-0/{kept}/{name}").disk) for name in fs.list(f"/data/t-0/{kept}")}
    assert sorted(contents.values(), key=len) == sorted([lost, later], key=len)
    manager = new_manager(fs)
    manager.open()
    log = manager.get("t", 0)
    assert log is not None
    assert values(log.batches()) == ["value 0", "second", "value 1", "second"]
    assert log.append(batch("go", "on", producer_id=1, producer_epoch=0, base_sequence=4)).base_offset == 4
    manager.abandon()


def repair_twin(position: int, lost: bytes, later: bytes) -> list[object]:
    from oncelog.broker.log.repair import Damage

    reason = f"the checksum of a batch of {len(lost) // 2} bytes does not match"
    return [Damage("t", 0, FIRST, position, reason, 4, len(lost) + len(later), 3, 6, True)]


def test_a_deleted_and_repaired_partition_is_left_alone(fs: FaultyFileSystem) -> None:
    written(fs).close()
    manager = new_manager(fs)
    with pytest.raises(Exception, match="no data directory"):
        manager.open()


# --- compaction that a crash interrupts ------------------------------------------------------------------------------


def compactable(fs: FaultyFileSystem) -> PartitionLog:
    log = open_log(fs, segment_bytes=300, cleanup_policy=("compact",), delete_retention_ms=0)
    for number in range(12):
        log.append(batch(f"value {number}", key=b"k%d" % (number % 3)))
    log.append(batch(None, key=b"k0"))
    log.roll()
    log.flush()
    return log


def test_compaction_keeps_the_newest_record_of_each_key_at_its_offset(fs: FaultyFileSystem) -> None:
    log = compactable(fs)
    cleaner = Cleaner(fs)
    clean_to = cleaner.clean(log, 0, NOW)
    assert clean_to == 13
    kept = {}
    from oncelog.protocol.records import decode_batch

    for header, data in log.batches():
        for record in decode_batch(data, 0, header):
            kept[record.offset] = (record.key, record.value)
    assert kept == {10: (b"k1", b"value 10"), 11: (b"k2", b"value 11"), 12: (b"k0", None)}
    cleaner.clean(log, 0, NOW + 1)
    assert log.read(0, 10_000).records, "batches without records say where the log goes on"
    remaining = [record.key for header, data in log.batches() for record in decode_batch(data, 0, header)]
    assert remaining == [b"k1", b"k2"], "the tombstone's time has come"
    assert log.append(batch("new", key=b"k0")).base_offset == 13


def test_compaction_stops_at_the_last_stable_offset(fs: FaultyFileSystem) -> None:
    log = open_log(fs, cleanup_policy=("compact",))
    log.append(batch("old"))
    log.append(batch("new"))
    log.roll()
    log.append(batch("open", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True))
    log.append(batch("newest"))
    log.roll()
    log.append(batch("active"))
    log.flush()
    assert Cleaner(fs).clean(log, 0, NOW) == 2
    assert values(log.batches()) == ["new", "open", "newest", "active"]


def test_compaction_takes_what_was_aborted_and_keeps_markers_and_sequences(fs: FaultyFileSystem) -> None:
    log = open_log(fs, cleanup_policy=("compact",))
    for commit, producer_id in ((False, 1), (True, 2)):
        log.append(
            batch(f"of {producer_id}", producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
        )
        log.append(bytearray(control_batch(commit, 0, producer_id, 0, NOW)), origin=AppendOrigin.COORDINATOR)
    log.roll()
    log.flush()
    Cleaner(fs).clean(log, 0, NOW)
    data = [data for header, data in log.batches() if not header.is_control]
    assert [values([(header, data)]) for header, data in log.batches() if not header.is_control] == [[], ["of 2"]]
    assert len(data) == 2
    fs.kill()
    log = open_log(fs, cleanup_policy=("compact",))
    assert log.last_stable_offset == 4
    for producer_id in (1, 2):
        entry = log.producers.entry(producer_id)
        assert entry is not None
        assert (entry.last_sequence, entry.current_txn_first_offset) == (0, -1)


class PowerFailure(BaseException):
    pass


def test_a_crash_at_any_moment_of_a_compaction_loses_nothing(fs: FaultyFileSystem) -> None:
    import random

    for operations in range(200):
        fs = FaultyFileSystem()
        log = compactable(fs)
        left = operations

        def count(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise PowerFailure

        fs.before = count
        try:
            Cleaner(fs).clean(log, 0, NOW)
            finished = True
        except PowerFailure:
            finished = False
        fs.before = None
        fs.crash(random.Random(operations))
        log = open_log(fs, point=LoadPoint(recovery_point=13), segment_bytes=300)
        assert log.log_end_offset == 13
        newest = {}
        from oncelog.protocol.records import decode_batch

        for header, data in log.batches():
            newest |= {record.key: record.value for record in decode_batch(data, 0, header)}
        assert newest == {b"k0": None, b"k1": b"value 10", b"k2": b"value 11"}
        assert not [name for name in fs.list("/data/t-0") if name.endswith((".cleaned", ".swap"))]
        if finished:
            assert operations > 50
            return
    raise AssertionError("the compaction never finished")


# --- disks that fail -------------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_writes_and_reads_go_on(fs: FaultyFileSystem) -> None:
    log = written(fs, 3)
    fs.capacity = fs.used() + 30
    with pytest.raises(KafkaError) as caught:
        log.append(batch("too much"))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "full" in caught.value.message
    assert fs.file_size(FIRST) == log.size, "the part that was written is gone"
    assert values(log.batches()) == ["value 0", "value 1", "value 2"]
    assert log.read(0, 1000).records
    fs.capacity = None
    assert log.append(batch("fits")).base_offset == 3
    log.flush()
    fs.kill()
    assert values(open_log(fs).batches()) == ["value 0", "value 1", "value 2", "fits"]


def test_a_refused_batch_leaves_no_trace_in_the_producer_state(fs: FaultyFileSystem) -> None:
    log = open_log(fs)
    fs.capacity = fs.used() + 30
    data = batch("a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    for _ in range(2):
        with pytest.raises(KafkaError, match="full"):
            log.append(data)
    assert log.producers.entry(1) is None
    fs.capacity = None
    assert not log.append(data).duplicate


def test_a_full_disk_while_rolling_refuses_the_batch_and_the_next_one_rolls(fs: FaultyFileSystem) -> None:
    log = written(fs, 2, segment_bytes=160)
    fs.capacity = fs.used() + 10
    with pytest.raises(KafkaError, match="full"):
        log.append(batch("a"))
    fs.capacity = None
    log.append(batch("a"))
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_no_descriptor_for_the_next_segment_refuses_the_batch_and_the_next_one_rolls(fs: FaultyFileSystem) -> None:
    log = written(fs, 2, segment_bytes=160)
    fs.fail("open", errno.EMFILE)
    with pytest.raises(KafkaError, match="no file descriptor left") as caught:
        log.append(batch("a"))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.append(batch("a")).base_offset == 2
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_no_descriptor_for_a_reader_is_no_damage(fs: FaultyFileSystem) -> None:
    written(fs, 4, segment_bytes=160).close()
    log = open_log(fs, segment_bytes=160)
    fs.fail("open", errno.EMFILE)
    with pytest.raises(KafkaError, match="no file descriptor left"):
        log.read(0, 1000)
    assert log.read(0, 1000).records
    assert log.append(batch("a")).base_offset == 4


def test_a_write_error_takes_the_log_offline(fs: FaultyFileSystem) -> None:
    log = written(fs, 1)
    fs.fail("write", errno.EIO)
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            log.append(batch("a"))
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_failed_sync_is_never_tried_again(fs: FaultyFileSystem) -> None:
    log = written(fs, 1)
    log.append(batch("lost"))
    fs.fail("fdatasync")
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            log.flush() if log.failure is None else log.append(batch("more"))
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.high_watermark == 1
    with pytest.raises(KafkaError):
        log.read(0, 1000)


def test_a_segment_that_could_not_be_begun_leaves_no_file_behind(fs: FaultyFileSystem) -> None:
    """The log went on in the segment before; at the next start the empty file looked like the end of the log."""
    log = open_log(fs, segment_bytes=300)
    log.append(batch("a" * 100))

    def full(operation: str, path: str) -> None:
        if operation == "truncate" and path.endswith("01.log"):
            raise OSError(errno.ENOSPC, "no space")

    fs.before = full
    with pytest.raises(KafkaError):
        log.append(batch("b" * 150))
    fs.before = None
    log.append(batch("c"))
    log.close()
    log = open_log(fs, point=LoadPoint(clean=True, recovery_point=2), segment_bytes=300)
    assert values(log.batches()) == ["a" * 100, "c"]
    log.close()


def test_a_write_that_can_not_be_taken_back_takes_the_log_offline(fs: FaultyFileSystem) -> None:
    """What is left behind a shorter batch looks like damage, and after a clean stop nothing may be cut."""
    log = open_log(fs)
    log.append(batch("a"))
    log.flush()

    def failing(operation: str, path: str) -> None:
        if operation == "truncate":
            raise OSError(errno.EIO, "no more")

    fs.capacity = fs.used() + 200
    fs.before = failing
    with pytest.raises(KafkaError):
        log.append(batch("b" * 300))
    fs.before = fs.capacity = None
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            log.append(batch("c"))
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    log.close(clean=False)
    log = open_log(fs, point=LoadPoint(recovery_point=1))
    assert values(log.batches()) == ["a"]
    log.close()


def test_a_damaged_index_of_an_older_segment_is_a_storage_error_to_its_readers(fs: FaultyFileSystem) -> None:
    log = written(fs, 40, segment_bytes=500, index_interval_bytes=0)
    log.close()
    log = open_log(fs, point=LoadPoint(clean=True, recovery_point=40), segment_bytes=500)
    name = log.segments.first.path(".index")
    file = fs.open(name)
    file.write_at([b"\xff" * 16], 0)
    file.close()
    with pytest.raises(KafkaError) as caught:
        log.read(0, 1000)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    log.close(clean=False)
