"""Logs that Apache Kafka wrote: its compaction leaves gaps between segments, and its retention an unknown beginning."""

from __future__ import annotations

import pytest
from oncelog.broker.log import CorruptLog, LoadPoint, LogConfig
from oncelog.broker.log.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS, CheckpointFiles
from oncelog.broker.log.cleaner import Cleaner
from oncelog.broker.log.data_directory import DataDirectory
from oncelog.broker.log.log_loader import load_sound_part
from oncelog.broker.log.repair import inspect, repair
from oncelog.broker.log.small_files import write_file
from oncelog.broker.system.ports import SystemRandomIds
from support.faulty_filesystem import FaultyFileSystem
from support.journals import LosesAll
from support.logs import NOW, StandingClock, at_once, batch, flip, new_manager, open_log, served, values, values_of

DIRECTORY = "/data/t-0"
SEGMENT = 200
"""Room for two batches, so segments begin at 0, 2, 4, ..."""


def path(base_offset: int, suffix: str = ".log") -> str:
    return f"{DIRECTORY}/{base_offset:020d}{suffix}"


def of_kafka(fs: FaultyFileSystem, *bases: int) -> None:
    """Make segments look as if Kafka had written them, and had compacted their last batches away."""
    for base in bases:
        file = fs.open(path(base))
        file.truncate(file.size() // 2)
        file.fdatasync()
        file.close()
        fs.unlink(path(base, ".checksums"))
    fs.sync_directory(DIRECTORY)


def kafkas_log(fs: FaultyFileSystem, *bases: int) -> None:
    """A log of seven batches on disk. The segments at `bases` are Kafka's, with a gap behind each."""
    log = open_log(fs, segment_bytes=SEGMENT)
    for number in range(7):
        log.append(batch(f"value {number}", key=b"%d" % number))
    log.flush()
    log.close()
    of_kafka(fs, *bases)
    fs.unlink(f"{DIRECTORY}/flushed-offset")
    fs.sync_directory(DIRECTORY)


CLEAN = LoadPoint(clean=True)
LEFT = ["value 0", "value 2", "value 4", "value 5", "value 6"]
"""The values of a log with gaps in its segments at 0 and 2."""


def test_gaps_between_kafkas_segments_are_no_damage(fs: FaultyFileSystem) -> None:
    kafkas_log(fs, 0, 2)
    log = open_log(fs, point=CLEAN, segment_bytes=SEGMENT)
    assert values(log.batches()) == LEFT
    assert log.log_end_offset == 7
    for offset, first in [(0, "value 0"), (1, "value 2"), (3, "value 4"), (6, "value 6")]:
        assert values_of(at_once(log.read(offset, 1 << 20)).records)[0] == first
    assert log.append(batch("next")).base_offset == 7


@pytest.mark.parametrize("same_boot", [False, True])
@pytest.mark.parametrize("damaged", ["", ".index", ".timeindex"])
def test_the_gaps_stay_allowed_after_a_kill_and_a_loss_of_power(
    fs: FaultyFileSystem, same_boot: bool, damaged: str
) -> None:
    """Also if oncelog has rebuilt the indexes, so that the segments look like its own."""
    kafkas_log(fs, 0, 2)
    if damaged:
        flip(fs, path(0, damaged), 3) if damaged == ".timeindex" else write_file(fs, path(0, damaged), b"bad")
    open_log(fs, point=CLEAN, segment_bytes=SEGMENT)
    fs.kill() if same_boot else fs.crash(LosesAll())
    for _ in range(2):
        log = open_log(fs, point=LoadPoint(same_boot=same_boot), segment_bytes=SEGMENT)
        assert values(log.batches()) == LEFT
        fs.kill() if same_boot else fs.crash(LosesAll())


def test_files_that_were_copied_without_a_sync_are_synced(fs: FaultyFileSystem) -> None:
    kafkas_log(fs, 0, 2)
    synced: set[str] = set()
    fs.before = lambda operation, name: synced.add(name) if operation == "fdatasync" else None
    open_log(fs, point=CLEAN, segment_bytes=SEGMENT)
    assert {path(base) for base in (0, 2, 4, 6)} <= synced


def test_gaps_below_the_recovery_point_need_no_clean_stop(fs: FaultyFileSystem) -> None:
    kafkas_log(fs, 0, 2)
    log = open_log(fs, point=LoadPoint(recovery_point=7), segment_bytes=SEGMENT)
    assert values(log.batches()) == LEFT


@pytest.mark.parametrize("point", [LoadPoint(clean=True), LoadPoint(recovery_point=7)])
def test_a_gap_behind_a_segment_of_oncelog_is_damage(fs: FaultyFileSystem, point: LoadPoint) -> None:
    kafkas_log(fs, 0)
    open_log(fs, point=CLEAN, segment_bytes=SEGMENT).close()
    fs.unlink(path(4))
    with pytest.raises(CorruptLog, match="offsets 4 to 5 are gone"):
        open_log(fs, point=point, segment_bytes=SEGMENT)


def test_after_a_loss_of_power_a_segment_without_checksums_is_not_taken_for_kafkas(fs: FaultyFileSystem) -> None:
    kafkas_log(fs, 2)
    log = open_log(fs, point=LoadPoint(recovery_point=2), segment_bytes=SEGMENT)
    assert values(log.batches()) == ["value 0", "value 1", "value 2"]


def test_compaction_goes_over_the_gaps_and_keeps_them_known(fs: FaultyFileSystem) -> None:
    kafkas_log(fs, 0, 2)
    log = open_log(fs, point=CLEAN, segment_bytes=SEGMENT, cleanup_policy=("compact",))
    assert Cleaner(fs).clean(log, 0, NOW) == 6
    assert values(log.batches()) == LEFT
    log.flush()
    fs.crash(LosesAll())
    log = open_log(fs, point=LoadPoint(recovery_point=7, cleaned_to=6), segment_bytes=SEGMENT)
    assert values(log.batches()) == LEFT


def stored(fs: FaultyFileSystem) -> None:
    """Kafka's log in the data directory of a broker that was stopped cleanly."""
    directory = DataDirectory("/data", fs, SystemRandomIds(), 1)
    directory.open()
    kafkas_log(fs, 0, 2)
    directory.write_clean_shutdown()
    directory.close()


@pytest.mark.parametrize("started", [False, True])
async def test_an_inspection_takes_the_gaps_for_no_damage(fs: FaultyFileSystem, started: bool) -> None:
    stored(fs)
    if started:
        manager = new_manager(fs, config=LogConfig(segment_bytes=SEGMENT))
        await manager.start()
        assert not manager.offline
        await manager.stop()
        fs.unlink("/data/.kafka_cleanshutdown")
    assert inspect("/data", fs) == []


async def test_after_a_repair_below_the_gaps_a_lost_segment_is_damage_again(fs: FaultyFileSystem) -> None:
    stored(fs)
    manager = new_manager(fs, config=LogConfig(segment_bytes=SEGMENT))
    await manager.start()
    await manager.stop()
    flip(fs, path(0), 40)
    assert [damage.lost_from_offset for damage in repair("/data", fs)] == [0]
    log = open_log(fs, point=CLEAN, segment_bytes=SEGMENT)
    for number in range(5):
        log.append(batch(f"new {number}"))
    log.close()
    fs.unlink(path(2))
    with pytest.raises(CorruptLog, match="offsets 2 to 3 are gone"):
        open_log(fs, point=CLEAN, segment_bytes=SEGMENT)


@pytest.mark.parametrize("clean", [True, False])
def test_after_a_repair_of_deleted_records_the_gap_behind_their_segment_stays_allowed(
    fs: FaultyFileSystem, clean: bool
) -> None:
    """The repaired segment has no index file of Kafka any more."""
    directory = DataDirectory("/data", fs, SystemRandomIds(), 1)
    directory.open()
    log = open_log(fs, segment_bytes=320)
    for number in range(9):
        log.append(batch(f"value {number}", key=b"%d" % number))
    log.flush()
    assert [segment.base_offset for segment in log.segments] == [0, 4, 8]
    log.close()
    file = fs.open(path(0))
    file.truncate(file.size() * 3 // 4)
    file.fdatasync()
    file.close()
    fs.unlink(path(0, ".checksums"))
    fs.unlink(f"{DIRECTORY}/flushed-offset")
    fs.sync_directory(DIRECTORY)
    CheckpointFiles(fs, "/data").write(RECOVERY_POINTS, {("t", 0): 9})
    CheckpointFiles(fs, "/data").write(LOG_START_OFFSETS, {("t", 0): 1})
    if clean:
        directory.write_clean_shutdown()
    directory.close()
    flip(fs, path(0), 70)
    assert [damage.new_start_offset for damage in repair("/data", fs)] == [1]
    assert inspect("/data", fs) == []
    fs.crash(LosesAll())
    assert served(fs) == (1, [f"value {number}" for number in (1, 2, 4, 5, 6, 7, 8)])


def test_a_repair_keeps_the_gaps_of_partitions_that_it_does_not_change(fs: FaultyFileSystem) -> None:
    """It removes the clean shutdown marker, which showed that their files were on disk."""
    stored(fs)
    other = open_log(fs, topic="u")
    other.append(batch("value"))
    other.close()
    flip(fs, path(0).replace("t-0", "u-0"), 70)
    assert [damage.topic for damage in repair("/data", fs)] == ["u"]
    fs.crash(LosesAll())
    assert served(fs) == (0, LEFT)


@pytest.mark.parametrize("known", [True, False])
def test_a_repair_keeps_the_beginning_that_kafka_has_left(fs: FaultyFileSystem, known: bool) -> None:
    """The segment loses its index file by the repair, and with it what shows that Kafka wrote it."""
    stored(fs)
    if known:
        write_checkpoint(fs)
    for kind in (".log", ".index", ".timeindex"):
        fs.unlink(path(0, kind))
    flip(fs, path(4), 40)
    flip(fs, path(2), 40)
    assert [damage.lost_from_offset for damage in repair("/data", fs)] == [2]
    assert inspect("/data", fs) == []
    assert served(fs) == (2, [])


async def test_a_log_whose_beginning_kafka_has_deleted_starts_there(fs: FaultyFileSystem) -> None:
    """The checkpoint of start offsets knows nothing of it until the log is opened for the first time."""
    stored(fs)
    write_checkpoint(fs)
    for kind in (".log", ".index", ".timeindex"):
        fs.unlink(path(0, kind))
    for killed in (False, True, True):
        manager = new_manager(fs, config=LogConfig(segment_bytes=SEGMENT))
        await manager.start()
        log = manager.get("t", 0)
        assert log is not None
        assert (log.log_start_offset, values(log.batches())) == (2, LEFT[1:])
        if not killed:
            (checksums := fs.open(path(2, ".checksums"), create=True)).fdatasync()  # as if the indexes were rebuilt
            checksums.close()
        await manager.stop()
        if killed:
            fs.unlink("/data/.kafka_cleanshutdown")


def write_checkpoint(fs: FaultyFileSystem) -> None:
    CheckpointFiles(fs, "/data").write(LOG_START_OFFSETS, {("other", 0): 5})


def test_with_later_damage_the_records_up_to_it_are_readable(fs: FaultyFileSystem) -> None:
    kafkas_log(fs, 0, 2)
    open_log(fs, point=CLEAN, segment_bytes=SEGMENT).close()
    flip(fs, path(6), 40)
    with pytest.raises(CorruptLog) as caught:
        open_log(fs, point=LoadPoint(recovery_point=7), segment_bytes=SEGMENT)
    log = load_sound_part(
        "t",
        0,
        DIRECTORY,
        damage=caught.value,
        fs=fs,
        clock=StandingClock(),
        config=LogConfig(segment_bytes=SEGMENT),
        point=LoadPoint(recovery_point=7),
    )
    assert values_of(at_once(log.read(1, 1 << 20)).records) == LEFT[1:2]
    assert values_of(at_once(log.read(3, 1 << 20)).records) == LEFT[2:4]
