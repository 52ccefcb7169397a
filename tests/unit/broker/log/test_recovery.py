"""Opening a log after crashes and damage: what is cut, what is refused, what a person can repair."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import random
from collections.abc import Callable
from typing import Any

import pytest
from oncelog.broker.log import AppendOrigin, CorruptLog, DataDirectoryError, LoadPoint, LogConfig, PartitionLog
from oncelog.broker.log.checkpoints import CLEANER_OFFSETS, CheckpointFiles
from oncelog.broker.log.cleaner import Cleaner
from oncelog.broker.log.repair import inspect, repair
from oncelog.protocol.batch_header import HEADER_SIZE, stamp
from oncelog.protocol.control_records import control_batch
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.records import Record, encode_batch
from support.faulty_filesystem import FaultyFileSystem
from support.inline_threads import InlineThreads
from support.journals import LosesAll, failing, turns
from support.logs import NOW, at_once, batch, end_life, flip, new_manager, open_log, served, values, values_of

FIRST = "/data/t-0/00000000000000000000.log"


def written(fs: FaultyFileSystem, count: int = 5, *, flushed: int | None = None, **config: Any) -> PartitionLog:
    """A log of `count` batches, of which `flushed` (all) are on disk."""
    log = open_log(fs, **config)
    for number in range(count):
        log.append(batch(f"value {number}"))
        if number + 1 == flushed:
            log.flush()
    if flushed is None:
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
    written(fs, flushed=4)
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


def synced_by_opening(fs: FaultyFileSystem, point: LoadPoint) -> set[str]:
    """The paths of the partition that are synced while its log is opened."""
    calls: list[tuple[str, str]] = []
    fs.before = lambda operation, path: calls.append((operation, path))
    open_log(fs, point=point).close(clean=False)
    fs.before = None
    return {path for operation, path in calls if "sync" in operation and "/t-0" in path}


def test_what_was_on_disk_before_a_crash_is_not_synced_again(fs: FaultyFileSystem) -> None:
    written(fs, segment_bytes=200)
    fs.kill()
    assert synced_by_opening(fs, LoadPoint(recovery_point=5)) == set()


@pytest.mark.parametrize("torn", [b"", b"torn"])
def test_what_was_not_on_disk_before_a_crash_is_synced_before_it_is_shown(fs: FaultyFileSystem, torn: bytes) -> None:
    log = written(fs, flushed=None if torn else 4)
    size = log.size
    fs.kill()
    file = fs.open(FIRST)
    file.write_at([torn], size)
    file.close()
    assert FIRST in synced_by_opening(fs, LoadPoint(recovery_point=4 + bool(torn)))
    fs.crash(random.Random(1))
    file = fs.open(FIRST)
    assert file.size() == size
    file.close()
    assert open_log(fs, point=LoadPoint(recovery_point=5)).log_end_offset == 5


@pytest.mark.parametrize("same_boot", [False, True])
@pytest.mark.parametrize("segment_bytes", [200, 1 << 20])
def test_what_the_disk_refused_is_written_again_before_it_is_shown(
    fs: FaultyFileSystem, segment_bytes: int, same_boot: bool
) -> None:
    """After a failed sync the page cache has the bytes, and later syncs do not write them."""
    log = written(fs, flushed=2, segment_bytes=segment_bytes)
    refuse_all(fs, log)
    fs.kill()
    log = open_log(fs, point=LoadPoint(clean=False, same_boot=same_boot), segment_bytes=segment_bytes)
    assert values(log.batches()) == [f"value {number}" for number in range(5)]
    fs.crash(LosesAll())
    log = open_log(fs, point=LoadPoint(clean=False), segment_bytes=segment_bytes)
    assert values(log.batches()) == [f"value {number}" for number in range(5)]


def refuse_all(fs: FaultyFileSystem, log: PartitionLog) -> None:
    """Let the sync of each segment fail."""
    for segment in log.segments:
        fs.fail("fdatasync")
        with pytest.raises(OSError, match="error"):
            segment.file.fdatasync()


def test_a_read_only_log_shows_only_what_is_on_disk(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    manager.open()
    log = manager.create("t", 0, LogConfig())
    log.append(batch("first"))
    log.flush()
    fs.sync_directory("/data")
    for value in ("second", "third", "fourth"):
        log.append(batch(value))
    refuse_all(fs, log)
    manager.abandon()
    fs.kill()
    fs._get(FIRST).data[-100] ^= 0xFF
    for _ in range(2):
        manager = new_manager(fs)
        manager.open()
        assert values_of(at_once(manager.read_only["t", 0].read(0, 1 << 20)).records) == ["first", "second"]
        manager.abandon()
        fs.kill()
        assert b"second" in fs._get(FIRST).disk, "it is there after a loss of power"


@pytest.mark.parametrize("restarted", [False, True])
async def test_producers_survive_though_the_disk_refused_their_snapshot(fs: FaultyFileSystem, restarted: bool) -> None:
    """Retention removes their batches. Then only the snapshot knows that a batch was written before."""
    manager = new_manager(fs, threads=InlineThreads())
    await manager.start()
    log = manager.create("t", 0, LogConfig())
    first = batch("once", producer_id=7, producer_epoch=0, base_sequence=0)
    await flushed(log, log.append(bytearray(first)).last_offset)
    fs.before = failing("fdatasync", ".snapshot", errno.EIO)
    log.roll()
    await turns()
    fs.before = failing("rename", "/t-0/", errno.EIO, times=1000) if restarted else None
    log.delete_records_before(1)
    await manager.start_offsets_on_disk()
    await turns()
    fs.before = None
    manager.abandon()
    if restarted:
        fs.kill()
        manager = new_manager(fs)
        manager.open()
        manager.abandon()
    fs.sync_directory("/data/t-0")
    fs.crash(LosesAll())
    manager = new_manager(fs)
    manager.open()
    recovered = manager.get("t", 0)
    assert recovered is not None
    assert values(recovered.batches()) == []
    assert recovered.append(bytearray(first)).last_offset == 0, "a duplicate"


async def flushed(log: PartitionLog, offset: int) -> None:
    flush = log.synced(offset + 1)
    if flush is not None:
        await asyncio.shield(flush)


@pytest.mark.parametrize("lost", range(8))
def test_the_name_of_an_empty_segment_is_synced_after_a_crash(fs: FaultyFileSystem, lost: int) -> None:
    open_log(fs, point=LoadPoint(clean=True, fresh=True))
    fs.kill()
    log = open_log(fs)
    log.append(batch("a"))
    log.flush()
    fs.crash(random.Random(lost))
    assert open_log(fs).log_end_offset == 1


def test_a_recovery_point_of_a_former_partition_of_that_name_proves_nothing(fs: FaultyFileSystem) -> None:
    log = written(fs, flushed=None)
    fs.kill()
    fs.unlink("/data/t-0/flushed-offset")
    assert FIRST in synced_by_opening(fs, LoadPoint(recovery_point=log.log_end_offset))


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
    written(fs, 6, flushed=2, segment_bytes=160)
    fs.kill()
    file = fs.open("/data/t-0/00000000000000000002.log")
    file.truncate(position_of_second(fs))
    file.close()
    log = open_log(fs, point=LoadPoint(recovery_point=2), segment_bytes=160)
    assert log.log_end_offset == 3
    assert not fs.exists("/data/t-0/00000000000000000004.log")


def position_of_second(fs: FaultyFileSystem) -> int:
    return fs.file_size("/data/t-0/00000000000000000002.log") // 2


@pytest.mark.parametrize("leftover", ["half a batch", "a batch", "a batch and a half", "zeros"])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("power", [True, False])
def test_what_a_failed_write_left_in_a_finished_segment_is_cut(
    fs: FaultyFileSystem, leftover: str, clean: bool, power: bool
) -> None:
    """The disk was full, the batch was cut off and written into a new segment; then the power failed."""
    log = written(fs, count=3)
    log.roll()
    log.append(batch("acknowledged"))
    log.flush()
    failed = bytearray(batch("refused"))
    stamp(failed, 0, 3, 0)
    content = {"half a batch": failed[:40], "a batch": failed, "a batch and a half": failed + failed[:40]}
    file = fs.open(FIRST)
    size = file.size()
    file.write_at([content.get(leftover, bytes(50))], size)
    file.fdatasync()
    if power:
        fs.crash(random.Random(1))
    else:
        fs.kill()
    log = open_log(fs, point=LoadPoint(clean=clean, recovery_point=4, same_boot=not power))
    assert values(log.batches()) == ["value 0", "value 1", "value 2", "acknowledged"]
    assert fs.file_size(FIRST) == size
    log.close()
    assert values(open_log(fs, point=LoadPoint(clean=True, recovery_point=4)).batches())[-1] == "acknowledged"


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
        options: dict[str, Any] = {"producer_id": number % 2, "producer_epoch": 0, "base_sequence": number // 2}
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
    assert log.reader.aborted.between(0, 10) == [(1, 1)]
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
        assert at_once(log.read(number, 1)).records[-8:-1] == f"value {number}".encode()[-7:]
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
    manager.checkpoints.write("recovery-point-offset-checkpoint", {("t", 0): 2, ("u", 0): 2})
    manager.abandon()
    fs.kill()
    flip(fs, FIRST, 65)
    manager = new_manager(fs)
    manager.open()
    with pytest.raises(KafkaError) as caught:
        manager.get("t", 0)
    kept = manager.offline["t", 0]
    assert (type(caught.value), vars(caught.value)) == (type(kept), vars(kept))
    assert kept.__traceback__ is None, "an error that is kept is never raised itself"
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
    manager.checkpoints.write("recovery-point-offset-checkpoint", {("t", 0): 12})
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


@pytest.mark.parametrize("names", [[], ["notes.txt"]])
@pytest.mark.parametrize("look", [inspect, repair])
def test_what_is_no_data_directory_is_refused_and_left_alone(
    fs: FaultyFileSystem, look: Callable[[str, FaultyFileSystem], object], names: list[str]
) -> None:
    """An empty directory, such as that of a disk that is not mounted, was made a data directory without damage."""
    fs.make_directory("/other")
    for name in names:
        fs.open(f"/other/{name}", create=True).close()
    with pytest.raises(DataDirectoryError, match=r"contains no meta\.properties"):
        look("/other", fs)
    assert fs.list("/other") == names
    with pytest.raises(DataDirectoryError):
        look("/missing", fs)
    assert not fs.exists("/missing")


def test_repair_cuts_at_the_damage_and_keeps_what_it_removed(fs: FaultyFileSystem) -> None:
    position = damaged(fs)
    lost = bytes(fs._get(FIRST).data[position:])
    later = bytes(fs._get(FIRST.replace("00.log", "08.log")).data)
    assert repair("/data", fs) == repair_twin(position, lost, later)
    assert inspect("/data", fs) == []
    (kept,) = [name for name in fs.list("/data/removed") if name.endswith("-repair")]
    directory = f"/data/removed/{kept}/t-0"
    contents = {name: bytes(fs._get(f"{directory}/{name}").disk) for name in fs.list(directory)}
    assert sorted(contents.values(), key=len) == sorted([lost, later], key=len)
    manager = new_manager(fs)
    manager.open()
    log = manager.get("t", 0)
    assert log is not None
    assert values(log.batches()) == ["value 0", "second", "value 1", "second"]
    assert log.append(batch("go", "on", producer_id=1, producer_epoch=0, base_sequence=4)).base_offset == 4
    manager.abandon()


def repair_twin(position: int, lost: bytes, later: bytes) -> list[object]:
    from oncelog.broker.log.damage import Damage

    reason = f"the checksum of a batch of {len(lost) // 2} bytes does not match"
    return [Damage("t", 0, FIRST, position, reason, 4, len(lost) + len(later), 3, 6, True)]


def test_a_deleted_and_repaired_partition_is_left_alone(fs: FaultyFileSystem) -> None:
    written(fs).close()
    manager = new_manager(fs)
    with pytest.raises(Exception, match="not a data directory"):
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
    assert at_once(log.read(0, 10_000)).records, "batches without records say where the log goes on"
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


def cleaned_within(fs: FaultyFileSystem, log: PartitionLog, operations: int) -> bool:
    """Compact the log, and stop before the file operation after so many; returns whether the compaction finished."""
    left = operations

    def count(operation: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise PowerFailure

    fs.before = count
    try:
        Cleaner(fs).clean(log, 0, NOW)
    except PowerFailure:
        return False
    finally:
        fs.before = None
    return True


def test_a_crash_at_any_moment_of_a_compaction_loses_nothing(fs: FaultyFileSystem) -> None:
    import random

    for operations in range(200):
        fs = FaultyFileSystem()
        log = compactable(fs)
        finished = cleaned_within(fs, log, operations)
        fs.crash(random.Random(operations))
        log = open_log(fs, point=LoadPoint(recovery_point=13), segment_bytes=300)
        assert log.log_end_offset == 13
        newest: dict[bytes | None, bytes | None] = {}
        from oncelog.protocol.records import decode_batch

        for header, data in log.batches():
            newest |= {record.key: record.value for record in decode_batch(data, 0, header)}
        assert newest == {b"k0": None, b"k1": b"value 10", b"k2": b"value 11"}
        assert not [name for name in fs.list("/data/t-0") if name.endswith((".cleaned", ".swap"))]
        if finished:
            assert operations > 50
            return
    raise AssertionError("the compaction never finished")


def test_a_crash_at_any_moment_of_a_compaction_leaves_nothing_to_repair(fs: FaultyFileSystem) -> None:
    for operations in range(200):
        fs = FaultyFileSystem()
        manager = new_manager(fs)
        manager.open()
        manager.abandon()
        log = compactable(fs)
        finished = cleaned_within(fs, log, operations)
        fs.kill()
        assert inspect("/data", fs) == [], f"after {operations} operations"
        if finished:
            assert operations > 50
            return
    raise AssertionError("the compaction never finished")


@pytest.mark.parametrize("broken", ["segment behind", "replacement"])
def test_a_repair_beside_an_unfinished_compaction_cuts_only_what_is_damaged(fs: FaultyFileSystem, broken: str) -> None:
    """A replacement is complete, and the segments that it replaces are still there."""
    manager = new_manager(fs)
    manager.open()
    manager.abandon()
    log = compactable(fs)
    log.update_config(dataclasses.replace(log.config, segment_bytes=10_000))
    is_complete = False

    def stop(operation: str, path: str) -> None:
        nonlocal is_complete
        if is_complete:
            raise PowerFailure
        is_complete = operation == "rename" and path.endswith(".log.cleaned")

    log.append(batch("behind"))
    log.append(batch("damaged"))
    log.flush()
    position = log.segments.active.position_of(14)
    fs.before = stop
    with pytest.raises(PowerFailure):
        Cleaner(fs).clean(log, 0, NOW)
    fs.before = None
    fs.kill()
    (swap,) = [f"/data/t-0/{name}" for name in fs.list("/data/t-0") if name.endswith(".log.swap")]
    segments = [name for name in fs.list("/data/t-0") if name.endswith(".log")]
    assert len(segments) > 2
    if broken == "segment behind":
        flip(fs, f"/data/t-0/{max(segments)}", position + 70)
    else:
        flip(fs, swap, 70)
    (damage,) = inspect("/data", fs)
    repair("/data", fs)
    assert inspect("/data", fs) == []
    log = open_log(fs, segment_bytes=300)
    if broken == "segment behind":
        assert (damage.lost_from_offset, damage.whole_batches) == (14, 0)
        assert values(log.batches())[-1] == "behind"
        assert log.log_end_offset == 14
    else:
        assert damage.file == swap
        assert log.log_end_offset == damage.lost_from_offset


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
    assert at_once(log.read(0, 1000)).records
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
    assert at_once(log.read(0, 1000)).records
    assert log.append(batch("a")).base_offset == 4


def test_a_failed_sync_is_never_tried_again(fs: FaultyFileSystem) -> None:
    log = written(fs, 1)
    log.append(batch("lost"))
    fs.fail("fdatasync")
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            log.flush() if log.failure is None else log.append(batch("more"))
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.high_watermark == 1
    assert values_of(at_once(log.read(0, 1000)).records) == ["value 0"]


def test_a_segment_that_could_not_be_begun_leaves_no_file_behind(fs: FaultyFileSystem) -> None:
    """The log went on in the segment before; at the next start the empty file looked like the end of the log."""
    log = open_log(fs, segment_bytes=300)
    log.append(batch("a" * 100))

    def full(operation: str, path: str) -> None:
        if operation == "truncate" and path.endswith("01.log"):
            raise OSError(errno.ENOSPC, "no space")

    fs.open(f"{log.files.directory}/{1:020}.log", create=True).write_at([b"left by a crash"], 0)
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


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".checksums"])
def test_an_index_that_is_damaged_while_the_log_is_open_is_made_again(fs: FaultyFileSystem, suffix: str) -> None:
    written(fs, 40, segment_bytes=500, index_interval_bytes=0).close()
    log = open_log(fs, point=LoadPoint(clean=True, recovery_point=40), segment_bytes=500)
    flip(fs, log.segments.first.path(suffix), 3)
    for offset in range(40):
        assert values_of(at_once(log.read(offset, 1)).records) == [f"value {offset}"]
    assert log.failure is None
    log.append(batch("more"))
    log.close()
    log = open_log(fs, point=LoadPoint(clean=True, recovery_point=41), segment_bytes=500)
    assert log.segments.first.load_finished() > 0
    log.close()


def aborted_transactions(fs: FaultyFileSystem) -> PartitionLog:
    log = open_log(fs, segment_bytes=1500, index_interval_bytes=0)
    for number in range(12):
        options: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "base_sequence": number}
        log.append(batch("x" * 50, transactional=True, timestamp=NOW + number, **options))
        log.append(bytearray(control_batch(number % 2 == 0, 0, 1, 0, NOW)), origin=AppendOrigin.COORDINATOR)
    log.flush()
    return log


def all_bits_that_matter(size: int) -> range:
    return range(0, size * 8, 5)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".checksums", ".snapshot"])
def test_any_flipped_bit_of_a_derived_file_is_harmless(suffix: str) -> None:
    """A .txnindex with one wrong bit showed aborted records as committed."""
    original = FaultyFileSystem()
    aborted_transactions(original).close()
    name = max(name for name in original.list("/data/t-0") if name.endswith(suffix))
    content = original.read_file(f"/data/t-0/{name}")
    for bit in [*all_bits_that_matter(len(content)), -1, -2]:
        fs = FaultyFileSystem()
        aborted_transactions(fs).close()
        node = fs._get(f"/data/t-0/{name}")
        if bit >= 0:
            node.data[bit // 8] ^= 1 << bit % 8
        elif bit == -1:
            del node.data[len(node.data) // 2 :]
        else:
            fs.unlink(f"/data/t-0/{name}")
        log = open_log(fs, point=LoadPoint(clean=True, recovery_point=24), segment_bytes=1500)
        assert log.reader.aborted.between(0, 24) == [(1, 4 * n + 2) for n in range(6)], f"bit {bit}"
        for offset in range(24):
            assert at_once(log.read(offset, 1)).records, f"bit {bit}"
            header = next(log.batches(offset))[0]
            assert header.base_offset == offset
        for number in range(12):
            assert log.offset_for_timestamp(NOW + number)[1] == 2 * number
        repeated = batch("x", transactional=True, producer_id=1, producer_epoch=0, base_sequence=11)
        with pytest.raises(KafkaError, match="sequence 11, which it has used in an earlier transaction"):
            log.append(repeated)
        log.close()


# --- damage is no torn write -----------------------------------------------------------------------------------------

KILLED = LoadPoint(same_boot=True)


@pytest.mark.parametrize("offset", range(5))
@pytest.mark.parametrize("flushed", [True, False])
def test_damage_of_what_was_on_disk_is_never_cut(fs: FaultyFileSystem, offset: int, flushed: bool) -> None:
    """After the end of the process alone: one flipped bit made the log end there, and destroyed all behind it."""
    log = written(fs, flushed=5 if flushed else 0)
    position = log.segments.active.position_of(offset)
    before = fs.file_size(FIRST)
    fs.kill()
    flip(fs, FIRST, position + 65)
    if not flushed and offset == 4:
        # Nobody was told that the last batch is safe, and nothing is behind it: this is what a torn write looks like.
        assert open_log(fs, point=KILLED).log_end_offset == 4
        return
    with pytest.raises(CorruptLog) as caught:
        open_log(fs, point=KILLED)
    assert (caught.value.position, caught.value.offset) == (position, offset)
    assert fs.file_size(FIRST) == before, "nothing was cut"
    flip(fs, FIRST, position + 65)
    assert values(open_log(fs, point=KILLED).batches()) == [f"value {number}" for number in range(5)]


def test_after_a_loss_of_power_whole_batches_behind_a_torn_one_are_cut(fs: FaultyFileSystem) -> None:
    """They were never acknowledged: a disk may write the later one of two unsynced batches first."""
    log = written(fs, flushed=2)
    position = log.segments.active.position_of(3)
    fs.kill()
    flip(fs, FIRST, position + 65)
    assert open_log(fs, point=LoadPoint(same_boot=False)).log_end_offset == 3


def test_what_is_cut_is_kept(fs: FaultyFileSystem, capsys: pytest.CaptureFixture[str]) -> None:
    log = written(fs, 6, flushed=2, segment_bytes=160)
    position = log.segments.floor(2).position_of(3)
    fs.kill()
    tail = bytes(fs._get("/data/t-0/00000000000000000004.log").data)
    damaged = fs._get("/data/t-0/00000000000000000002.log")
    damaged.data[position + 65] ^= 1
    torn = bytes(damaged.data[position:])
    assert open_log(fs, point=LoadPoint(), segment_bytes=160).log_end_offset == 3
    (kept,) = fs.list("/data/removed")
    assert kept.endswith("-torn")
    directory = f"/data/removed/{kept}/t-0"
    assert {name: bytes(fs._get(f"{directory}/{name}").disk) for name in fs.list(directory)} == {
        f"00000000000000000002.log.from-{position}": torn,
        "00000000000000000004.log.from-0": tail,
    }
    assert directory in capsys.readouterr().out


def test_torn_tails_are_kept_for_a_week(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs)
    manager.open()
    manager.abandon()
    for name in ("20231101-000000-torn", "20231101-000000-repair", "20231114-000000-torn"):
        fs.make_directory(f"/data/removed/{name}/t-0")
    manager = new_manager(fs)
    manager.open()
    assert sorted(fs.list("/data/removed")) == ["20231101-000000-repair", "20231114-000000-torn"]
    manager.abandon()


def test_a_full_disk_does_not_keep_a_torn_tail_from_being_cut(fs: FaultyFileSystem) -> None:
    written(fs, flushed=4)
    fs.kill()
    fs._get(FIRST).data.pop()
    fs.capacity = 0
    log = open_log(fs, point=KILLED)
    assert log.log_end_offset == 4


def test_a_batch_inside_of_a_record_is_no_batch_of_the_log(fs: FaultyFileSystem) -> None:
    log = written(fs, 2, flushed=2)
    inner = bytes(batch("copied"))
    log.append(bytearray(encode_batch([Record(0, NOW, b"k", inner + b"." * 100)])))
    fs.kill()
    fs._get(FIRST).data[-1] ^= 1
    assert open_log(fs, point=KILLED).log_end_offset == 2


def stored_segment(base_offset: int, count: int = 4) -> bytes:
    """The content of a segment file, as somebody stores it in a record."""
    data = b""
    for offset in range(base_offset, base_offset + count):
        inner = batch(f"copied {offset}")
        stamp(inner, 0, offset, 0)
        data += bytes(inner)
    return data


@pytest.mark.parametrize("base_offset", [0, 1, 2, 3, 1000])
def test_a_torn_write_of_a_record_that_holds_a_segment_is_cut(fs: FaultyFileSystem, base_offset: int) -> None:
    """Wherever the kill tore it. Those batches were taken for batches of the log, and the partition went offline."""
    log = written(fs, 2, flushed=2)
    start = log.segments.active.size
    log.append(bytearray(encode_batch([Record(0, NOW, b"k", b"." * 100 + stored_segment(base_offset) + b"." * 100)])))
    fs.kill()
    node = fs._get(FIRST)
    whole = bytes(node.data)
    for size in range(start + 1, len(whole), 7):
        node.data = bytearray(whole[:size])
        log = open_log(fs, point=KILLED)
        assert (log.log_end_offset, values(log.batches())) == (2, ["value 0", "value 1"])
        log.close(clean=False)
        assert len(node.data) == start


@pytest.mark.parametrize("cleaned_to", [0, None])
@pytest.mark.parametrize("inner", [b"", stored_segment(4)])
def test_no_damage_of_a_header_looks_like_a_torn_write(
    fs: FaultyFileSystem, inner: bytes, cleaned_to: int | None
) -> None:
    """Where batches follow: whatever bit it is, of the length as well, and whatever the record holds."""
    point = LoadPoint(same_boot=True, cleaned_to=cleaned_to)
    log = written(fs, 2, flushed=2)
    start = log.segments.active.size
    log.append(bytearray(encode_batch([Record(0, NOW, b"k", b"." * 100 + inner)])))
    log.append(batch("behind"))
    fs.kill()
    data = fs._get(FIRST).data
    covered_by_nothing = range(12, 16)  # the leader epoch
    for bit in range(8 * HEADER_SIZE):
        if bit // 8 in covered_by_nothing:
            continue
        data[start + bit // 8] ^= 1 << bit % 8
        before = bytes(data)
        with pytest.raises(CorruptLog) as caught:
            open_log(fs, point=point)
        # Where compaction may have left gaps, an offset that is too large shows at the next batch.
        assert caught.value.position == start or (cleaned_to is None and bit < 64), f"bit {bit}"
        assert data == before, "nothing is cut"
        data[start + bit // 8] ^= 1 << bit % 8
    assert open_log(fs, point=point).log_end_offset == 4


@pytest.mark.parametrize("first", [0, 8, 12, 61, 80])
def test_zeros_in_front_of_a_valid_batch_are_no_torn_write(fs: FaultyFileSystem, first: int) -> None:
    log = written(fs, 2, flushed=2)
    start = log.segments.active.size
    log.append(batch("v" * 100))
    end = log.segments.active.size
    log.append(batch("behind"))
    fs.kill()
    fs._get(FIRST).data[start + first : end] = bytes(end - start - first)
    with pytest.raises(CorruptLog):
        open_log(fs, point=KILLED)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("lost", [0, 2, 4])
def test_a_lost_segment_is_missed(fs: FaultyFileSystem, lost: int, clean: bool) -> None:
    written(fs, 7, segment_bytes=160).close()
    names = [name for name in fs.list("/data/t-0") if name.startswith(f"{lost:020d}")]
    for name in names:
        fs.unlink(f"/data/t-0/{name}")
    point = LoadPoint(clean=clean, recovery_point=7 if clean else 0, same_boot=True)
    with pytest.raises(CorruptLog, match=f"segment is missing: offsets {lost} to {lost + 1} are gone"):
        open_log(fs, point=point, segment_bytes=160)


@pytest.mark.parametrize("clean", [True, False])
def test_an_emptied_partition_is_missed(fs: FaultyFileSystem, clean: bool) -> None:
    written(fs).close()
    for name in fs.list("/data/t-0"):
        fs.unlink(f"/data/t-0/{name}")
    with pytest.raises(CorruptLog, match="on disk up to offset 5"):
        open_log(fs, point=LoadPoint(clean=clean, recovery_point=5, same_boot=True))


def test_deleted_segments_are_not_missed(fs: FaultyFileSystem) -> None:
    log = written(fs, 7, segment_bytes=160)
    log.delete_records_before(5)
    log.close()
    for point in (LoadPoint(log_start_offset=5), LoadPoint(log_start_offset=None)):
        log = open_log(fs, point=point, segment_bytes=160)
        assert values(log.batches())[-2:] == ["value 5", "value 6"]
        log.close()


def test_what_a_flush_covers_is_on_disk_until_a_new_start_is(fs: FaultyFileSystem) -> None:
    moved: list[Callable[[], None]] = []
    log = open_log(fs, on_start_offset=moved.append, durability="os")
    for number in range(3):
        log.append(batch(f"value {number}"))
    log.roll()
    log.append(batch("value 3"))
    log.delete_records_before(3)
    log.flush()
    assert log.files.flushed_offset == 4
    node = fs._get("/data/t-0/00000000000000000000.log")
    assert node.disk == bytes(node.data), "a crash may take the new start back, and what is flushed is not damaged"
    (then,) = moved
    then()
    assert not fs.exists("/data/t-0/00000000000000000000.log")
    log.close()


@pytest.mark.parametrize("kept", [0, 40], ids=["without any batch", "with a torn one"])
def test_files_of_deleted_segments_that_a_loss_of_power_brings_back_torn_are_no_damage(
    fs: FaultyFileSystem, kept: int
) -> None:
    log = open_log(fs)
    for number in range(3):
        log.append(batch(f"value {number}"))
        log.roll()
    log.append(batch("value 3"))
    log.flush()
    log.close()
    for base in (0, 1):
        node = fs._get(f"/data/t-0/{base:020}.log")
        node.data[kept:] = bytes(len(node.data) - kept)
        node.disk = bytes(node.data)
        for kind in ("index", "timeindex", "checksums"):
            fs.unlink(f"/data/t-0/{base:020}.{kind}")
    fs.unlink("/data/t-0/00000000000000000001.log")
    log = open_log(fs, point=LoadPoint(recovery_point=4, log_start_offset=2))
    assert values(log.batches()) == ["value 2", "value 3"]
    log.close()


# --- repairing what is lost ------------------------------------------------------------------------------------------


def stopped(fs: FaultyFileSystem, count: int = 7) -> None:
    """A directory with one partition of several segments, as a kill leaves it."""
    manager = new_manager(fs)
    manager.open()
    log = manager.create("t", 0, LogConfig(segment_bytes=160))
    for number in range(count):
        log.append(batch(f"value {number}"))
    log.flush()
    manager.checkpoints.write("recovery-point-offset-checkpoint", {("t", 0): count})
    manager.abandon()
    fs.kill()


def after_repair(fs: FaultyFileSystem) -> tuple[int, list[str]]:
    """(log start offset, values) once the damage that the broker sees has been repaired."""
    manager = new_manager(fs)
    manager.open()
    assert manager.offline.keys() | manager.lost.keys() == {("t", 0)}
    manager.abandon()
    assert len(inspect("/data", fs)) == 1
    repair("/data", fs)
    assert inspect("/data", fs) == []
    manager = new_manager(fs)
    manager.open()
    assert manager.lost == {}
    assert manager.offline == {}
    log = manager.get("t", 0)
    assert log is not None
    found = (log.log_start_offset, values(log.batches()))
    log.append(batch("more"))
    manager.abandon()
    return found


def test_repair_lets_a_log_begin_behind_a_lost_first_segment(fs: FaultyFileSystem) -> None:
    stopped(fs)
    fs.unlink(FIRST)
    assert after_repair(fs) == (2, [f"value {number}" for number in range(2, 7)])


def test_repair_cuts_behind_a_lost_segment(fs: FaultyFileSystem) -> None:
    stopped(fs)
    fs.unlink("/data/t-0/00000000000000000002.log")
    assert after_repair(fs) == (0, ["value 0", "value 1"])
    (kept,) = fs.list("/data/removed")
    assert len(fs.list(f"/data/removed/{kept}/t-0")) == 2


@pytest.mark.parametrize("directory", [True, False])
def test_repair_gives_no_offset_of_a_lost_partition_again(fs: FaultyFileSystem, directory: bool) -> None:
    stopped(fs)
    for name in fs.list("/data/t-0"):
        fs.unlink(f"/data/t-0/{name}")
    if directory:
        fs.remove_directory("/data/t-0")
    assert after_repair(fs) == (7, [])


def test_compaction_begins_anew_where_a_repair_has_cut(fs: FaultyFileSystem) -> None:
    """The cleaner trusted a checkpoint that lay behind the end of the repaired log: a deleted key came back."""
    stopped(fs)
    manager = new_manager(fs)
    manager.open()
    manager.checkpoints.write("cleaner-offset-checkpoint", {("t", 0): 6})
    manager.abandon()
    flip(fs, "/data/t-0/00000000000000000002.log", 65)
    repair("/data", fs)
    manager = new_manager(fs)
    manager.open()
    assert manager._cleaner_offsets == {("t", 0): 2}
    manager.abandon()


# --- repair and deleted records --------------------------------------------------------------------------------------


def with_deleted_records(fs: FaultyFileSystem, start: int, *, clean: bool = True, **config: Any) -> None:
    """A stopped directory: 12 records, 3 to a segment; those below `start` are deleted, but the files are still there.

    A failed removal leaves such files.
    """
    manager = new_manager(fs)
    manager.open()
    log = manager.create("t", 0, LogConfig(**{"segment_bytes": 250, "index_interval_bytes": 0, **config}))
    for number in range(12):
        log.append(batch(f"value {number}"))
    log.flush()
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]
    end_life(manager, fs, clean=clean)
    manager.checkpoints.write("log-start-offset-checkpoint", {("t", 0): start})


def segment_path(base_offset: int) -> str:
    return f"/data/t-0/{base_offset:020d}.log"


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("byte", [10, 16, 70], ids=["length", "magic", "records"])
def test_damage_in_a_segment_of_deleted_records_is_not_repaired(fs: FaultyFileSystem, byte: int, clean: bool) -> None:
    with_deleted_records(fs, 10, clean=clean)
    flip(fs, segment_path(3), byte)
    flip(fs, FIRST, byte)
    assert repair("/data", fs) == []
    assert served(fs) == (10, ["value 10", "value 11"])


def test_a_gap_between_segments_of_deleted_records_is_not_repaired(fs: FaultyFileSystem) -> None:
    with_deleted_records(fs, 10)
    fs.unlink(segment_path(3))
    assert repair("/data", fs) == []
    assert served(fs) == (10, ["value 10", "value 11"])


@pytest.mark.parametrize("lost", ["snapshots", "leader epochs"])
def test_a_start_replays_no_damage_of_deleted_records(fs: FaultyFileSystem, lost: str) -> None:
    """The batches of deleted records were replayed into the producer state, and damage in them took the log offline."""
    with_deleted_records(fs, 10)
    for name in fs.list("/data/t-0"):
        if name.endswith(".snapshot") if lost == "snapshots" else name == "leader-epoch-checkpoint":
            fs.unlink(f"/data/t-0/{name}")
    flip(fs, FIRST, 16)
    flip(fs, segment_path(3), 16)
    assert repair("/data", fs) == []
    assert served(fs) == (10, ["value 10", "value 11"])


def test_bytes_that_a_failed_write_left_behind_a_segment_are_not_repaired(fs: FaultyFileSystem) -> None:
    with_deleted_records(fs, 0, clean=False)
    fs._get(segment_path(3)).data += b"left behind"
    fs._get(segment_path(3)).disk += b"left behind"
    assert repair("/data", fs) == []
    assert served(fs) == (0, [f"value {number}" for number in range(12)])


def test_segments_that_both_have_an_offset_are_separated_by_one_repair(fs: FaultyFileSystem) -> None:
    with_deleted_records(fs, 0, clean=False)
    longer = batch("value 5", "not 6")
    stamp(longer, 0, 5, 0)
    at = 2 * fs.file_size(segment_path(3)) // 3
    node = fs._get(segment_path(3))
    node.data[at:] = longer
    node.disk = bytes(node.data)
    (damage,) = repair("/data", fs)
    assert (damage.file, damage.position) == (segment_path(3), fs.file_size(segment_path(3)))
    assert damage.lost_from_offset == 7
    assert served(fs) == (0, [*(f"value {number}" for number in range(6)), "not 6"])


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize("start", [2, 3])
def test_a_log_start_offset_that_compaction_has_removed_is_kept_by_a_repair(
    fs: FaultyFileSystem, start: int, active: bool, clean: bool
) -> None:
    """The repair found no batch with this offset, and removed all live records."""
    compacted(fs, start, clean=clean, active=active)
    flip(fs, FIRST, 70)
    kept = [f"value {number}" for number in range(4, 9)] + ([] if active else ["last"])
    if clean and not active:
        assert served(fs) == (start, kept)
    (damage,) = repair("/data", fs)
    assert (damage.position, damage.new_start_offset) == (0, start)
    assert inspect("/data", fs) == []
    fs.crash(random.Random(1))
    assert served(fs) == (start, kept)


def test_a_damaged_batch_before_a_gap_may_hold_the_log_start_offset(fs: FaultyFileSystem) -> None:
    compacted(fs, 3)
    flip(fs, FIRST, fs.file_size(FIRST) // 7 + 70)
    assert [damage.lost_from_offset for damage in repair("/data", fs)] == [1]
    assert inspect("/data", fs) == []
    assert served(fs) == (3, [])


def compacted(fs: FaultyFileSystem, start: int, *, clean: bool = True, active: bool = False) -> None:
    """A stopped directory: a segment with the offsets 0, 1 and 4 to 8, and, unless it is `active`, another one."""
    manager = new_manager(fs)
    manager.open()
    log = manager.create("t", 0, LogConfig(cleanup_policy=("compact", "delete"), min_cleanable_dirty_ratio=0))
    for number, key in enumerate("abcccdefg"):
        log.append(batch(f"value {number}", key=key.encode()))
    log.roll()
    log.append(batch("last", key=b"z"))
    log.flush()
    assert Cleaner(fs).clean(log, 0, NOW) == 9
    assert [header.base_offset for header, _ in log.batches()] == [0, 1, 4, 5, 6, 7, 8, 9]
    log.delete_records_before(start)
    end_life(manager, fs, clean=clean)
    manager.checkpoints.write("log-start-offset-checkpoint", {("t", 0): start})
    manager.checkpoints.write("cleaner-offset-checkpoint", {("t", 0): 9})
    if active:
        manager.checkpoints.write("recovery-point-offset-checkpoint", {("t", 0): 9})
        for name in fs.list("/data/t-0"):
            if name == "flushed-offset" or name.startswith(f"{9:020d}"):
                fs.unlink(f"/data/t-0/{name}")


def test_without_a_checkpoint_of_start_offsets_a_repair_keeps_the_beginnings_of_other_partitions(
    fs: FaultyFileSystem,
) -> None:
    """The new checkpoint had only the repaired partition, so the others seemed to begin at offset 0."""
    with_deleted_records(fs, 0)
    other = open_log(fs, topic="lost")
    other.append(batch("value"))
    other.close()
    manager = new_manager(fs)
    manager.open()
    manager.checkpoints.write("recovery-point-offset-checkpoint", {("t", 0): 12, ("lost", 0): 1})
    manager.abandon()
    fs.unlink("/data/lost-0/00000000000000000000.log")
    fs.unlink("/data/log-start-offset-checkpoint")
    fs.unlink(FIRST)
    assert [damage.topic for damage in repair("/data", fs)] == ["lost"]
    assert inspect("/data", fs) == []
    assert served(fs) == (3, [f"value {number}" for number in range(3, 12)])


# --- repair and offsets in headers -----------------------------------------------------------------------------------


def set_base_offset(fs: FaultyFileSystem, path: str, position: int, base_offset: int) -> None:
    """Change the offset of a batch, which its checksum does not cover."""
    node = fs._get(path)
    node.data[position : position + 8] = base_offset.to_bytes(8, "big")
    node.disk = bytes(node.data)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("offset", [0, 3, 5, 6, 1 << 30])
def test_one_repair_removes_a_batch_with_a_wrong_offset(fs: FaultyFileSystem, offset: int, clean: bool) -> None:
    """The batch was kept, and with it the wrong offset, so that the next start refused the partition again."""
    with_deleted_records(fs, 0, clean=clean)
    size = fs.file_size(segment_path(3)) // 3
    lost = 2 * size + fs.file_size(segment_path(6)) + fs.file_size(segment_path(9))
    set_base_offset(fs, segment_path(3), size, offset)  # the offset was 4
    (damage,) = repair("/data", fs)
    assert (damage.file, damage.position, damage.lost_from_offset) == (segment_path(3), size, 4)
    assert (damage.below_recovery_point, damage.lost_bytes) == (True, lost)
    assert inspect("/data", fs) == []
    assert served(fs) == (0, [f"value {number}" for number in range(4)])


@pytest.mark.parametrize("clean", [True, False])
def test_one_repair_removes_a_last_batch_that_a_wrong_offset_moves_into_the_next_segment(
    fs: FaultyFileSystem, clean: bool
) -> None:
    """Only its last offsets are those of the next segment. The damage seemed to be after it."""
    manager = new_manager(fs)
    manager.open()
    log = manager.create("t", 0, LogConfig(segment_bytes=200))
    for number in range(6):
        log.append(batch(f"a{number}", f"b{number}", f"c{number}"))
    log.flush()
    assert [segment.base_offset for segment in log.segments] == [0, 6, 12]
    end_life(manager, fs, clean=clean)
    size = fs.file_size(segment_path(6)) // 2
    set_base_offset(fs, segment_path(6), size, 11)  # the offset was 9
    manager = new_manager(fs)
    manager.open()
    assert at_once(manager.read_only["t", 0].read(8, 1 << 20)).next_offset == 9
    manager.abandon()
    (damage,) = repair("/data", fs)
    assert (damage.file, damage.position, damage.lost_from_offset) == (segment_path(6), size, 9)
    assert inspect("/data", fs) == []
    assert served(fs) == (0, [f"{letter}{number}" for number in range(3) for letter in "abc"])


@pytest.mark.parametrize("offset", [1 << 31, 1 << 50])
def test_a_repair_removes_a_batch_whose_offset_is_too_large_for_its_segment(fs: FaultyFileSystem, offset: int) -> None:
    """A start refused it. The repair found nothing where it is not known how far compaction came."""
    with_deleted_records(fs, 0, clean=False)
    last = fs.file_size(segment_path(9)) - len(batch("value 11"))
    set_base_offset(fs, segment_path(9), last, 9 + offset)
    (damage,) = repair("/data", fs)
    assert (damage.file, damage.position, damage.lost_from_offset) == (segment_path(9), last, 11)
    assert inspect("/data", fs) == []
    assert served(fs) == (0, [f"value {number}" for number in range(11)])


@pytest.mark.parametrize("missing", [False, True])
def test_a_repair_examines_a_segment_again_that_its_cut_makes_the_last_one(fs: FaultyFileSystem, missing: bool) -> None:
    """In the last segment, compaction has left no gaps. The next start refused the partition again because of one."""
    with_deleted_records(fs, 0)
    size = fs.file_size(segment_path(3)) // 3
    CheckpointFiles(fs, "/data").write(CLEANER_OFFSETS, {("u", 0): 1})
    set_base_offset(fs, segment_path(3), 0, 4)  # the offset was 3
    if missing:
        node = fs._get(segment_path(3))
        del node.data[size:]
        node.disk = bytes(node.data)
        fs.unlink(segment_path(6))
    else:
        flip(fs, segment_path(3), size + 70)
    (found,) = repair("/data", fs)
    assert (found.file, found.position, found.lost_from_offset) == (segment_path(3), 0, 3)
    assert inspect("/data", fs) == []
    assert served(fs) == (0, [f"value {number}" for number in range(3)])


def test_a_gap_of_deleted_records_in_a_segment_that_becomes_the_last_one_costs_no_live_record(
    fs: FaultyFileSystem,
) -> None:
    compacted(fs, 5)
    CheckpointFiles(fs, "/data").write(CLEANER_OFFSETS, {("u", 0): 1})
    flip(fs, FIRST, 5 * fs.file_size(FIRST) // 7 + 70)
    damages = repair("/data", fs)
    assert [(damage.lost_from_offset, damage.new_start_offset) for damage in damages] == [(2, 5), (7, -1)]
    assert inspect("/data", fs) == []
    assert served(fs) == (5, ["value 5", "value 6"])


@pytest.mark.parametrize("clean", [True, False])
def test_one_repair_removes_a_batch_that_a_wrong_offset_moves_over_the_log_start_offset(
    fs: FaultyFileSystem, clean: bool
) -> None:
    manager = new_manager(fs)
    manager.open()
    log = manager.create("t", 0, LogConfig())
    for number in range(4):
        log.append(batch(f"a{number}", f"b{number}", f"c{number}"))
    log.flush()
    if clean:
        asyncio.run(manager.stop())
    else:
        manager.abandon()
        fs.kill()
    manager.checkpoints.write("log-start-offset-checkpoint", {("t", 0): 8})
    set_base_offset(fs, FIRST, fs.file_size(FIRST) // 2, 7)  # the offset was 6
    assert [damage.lost_from_offset for damage in repair("/data", fs)] == [6]
    assert inspect("/data", fs) == []
    assert served(fs) == (8, [])


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize("byte", [0, 7, 10, 16, 70], ids=["offset", "low offset", "length", "magic", "records"])
def test_damage_before_the_log_start_offset_costs_no_live_record(
    fs: FaultyFileSystem, byte: int, active: bool, clean: bool
) -> None:
    """A start that trusts the indexes serves such a partition. A repair removed all of its records."""
    base = 9 if active else 3
    with_deleted_records(fs, base + 2, clean=clean)
    whole = fs.file_size(segment_path(base))
    flip(fs, segment_path(base), byte + (whole // 3 if byte != 7 else 0))
    live = base + 2, [f"value {number}" for number in range(base + 2, 12)]
    if clean and not active:
        assert served(fs) == live
    (damage,) = repair("/data", fs)
    assert (damage.new_start_offset, damage.whole_records, damage.below_recovery_point) == (base + 2, 0, False)
    assert damage.lost_bytes == whole - fs.file_size(segment_path(base + 2))
    assert inspect("/data", fs) == []
    (kept,) = fs.list("/data/removed")
    (name,) = fs.list(f"/data/removed/{kept}/t-0")
    assert fs.file_size(f"/data/removed/{kept}/t-0/{name}") == damage.lost_bytes
    fs.crash(random.Random(1))
    assert served(fs) == live


def test_a_loss_of_power_during_a_repair_before_the_log_start_offset_costs_no_live_record() -> None:
    for operations in range(100):
        fs = FaultyFileSystem()
        with_deleted_records(fs, 5)
        flip(fs, segment_path(3), 16)
        left = operations

        def stop(operation: str, path: str) -> None:
            nonlocal left
            if operation not in {"read", "open"}:
                left -= 1
                if left < 0:
                    raise PowerFailure

        fs.before = stop
        with contextlib.suppress(PowerFailure):
            repair("/data", fs)
        fs.before = None
        finished = left >= 0
        fs.crash(random.Random(operations))
        repair("/data", fs)
        assert served(fs) == (5, [f"value {number}" for number in range(5, 12)]), f"after {operations} operations"
        if finished:
            assert operations > 5
            return
    raise AssertionError("the repair never finished")


def test_one_repair_removes_damage_before_and_after_the_log_start_offset(fs: FaultyFileSystem) -> None:
    with_deleted_records(fs, 4)
    size = fs.file_size(segment_path(3)) // 3
    flip(fs, segment_path(3), 16)
    flip(fs, segment_path(3), 2 * size + 70)
    assert [(damage.position, damage.new_start_offset) for damage in repair("/data", fs)] == [(0, 4), (2 * size, -1)]
    assert inspect("/data", fs) == []
    assert served(fs) == (4, ["value 4"])


def test_a_repair_gives_no_offset_of_a_deleted_record_again(fs: FaultyFileSystem) -> None:
    with_deleted_records(fs, 12)
    flip(fs, segment_path(9), 70)
    repair("/data", fs)
    assert inspect("/data", fs) == []
    assert served(fs) == (12, [])
