"""What a log keeps beside its records: segments rolled at random ages, snapshots, loaded indexes, known producers."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from oncelog.broker.log import IsolationLevel, LoadPoint, LogConfig, LogManager, load_log
from oncelog.broker.log.cleaner import Cleaner
from oncelog.broker.log.index_cache import IndexCache
from oncelog.broker.system.pooled_files import PooledFileSystem
from oncelog.protocol.errors import KafkaError
from oncelog.protocol.records import Record, encode_batch
from support.faulty_filesystem import FaultyFileSystem
from support.logs import DATA, NOW, StandingClock, at_once, batch, new_manager, open_log, values, values_of

HOUR = 3_600_000
DAY = 24 * HOUR


class SeededIds:
    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def uuid(self) -> bytes:
        return self._rng.randbytes(16)


def lengths_of_segments(fs: FaultyFileSystem, seed: int) -> list[int]:
    """How many hourly batches each segment took, of a log with segment.ms 100 h and segment.jitter.ms 60 h."""
    fs.make_directory(f"{DATA}/t-0")
    log = load_log(
        "t",
        0,
        f"{DATA}/t-0",
        fs=fs,
        clock=StandingClock(),
        ids=SeededIds(seed),
        config=LogConfig(segment_ms=100 * HOUR, segment_jitter_ms=60 * HOUR, durability="os"),
        point=LoadPoint(fresh=True, clean=True),
    )
    for hour in range(2000):
        log.append(batch("x", timestamp=NOW - 3000 * HOUR + hour * HOUR))
    bases = [segment.base_offset for segment in log.segments]
    log.close()
    return [behind - base for base, behind in pairwise(bases)]


def test_each_segment_is_rolled_earlier_by_a_random_part_of_the_jitter(fs: FaultyFileSystem) -> None:
    lengths = lengths_of_segments(fs, 1)
    assert all(41 <= length <= 101 for length in lengths), lengths
    assert len(set(lengths)) > len(lengths) // 2, lengths
    assert max(lengths) - min(lengths) > 30, lengths
    assert lengths_of_segments(FaultyFileSystem(), 1) == lengths, "the random source decides, and nothing else"
    assert lengths_of_segments(FaultyFileSystem(), 2) != lengths


# --- how many segments ------------------------------------------------------------------------------------------------


def test_a_young_segment_is_not_rolled_for_the_timestamps_of_its_records(fs: FaultyFileSystem) -> None:
    clock = StandingClock()
    log = open_log(fs, clock=clock, segment_ms=1, roll_min_ms=1000, durability="os")
    for number in range(100):
        log.append(batch("x", timestamp=NOW - HOUR + 10 * number))
        clock.now += 50
    assert 4 <= len(log.segments) <= 6, "five seconds have passed"
    log.close()


def test_a_jump_of_the_clock_does_not_stop_segments_from_being_rolled(fs: FaultyFileSystem) -> None:
    clock = StandingClock()
    log = open_log(
        fs, clock=clock, segment_ms=1, roll_min_ms=1000, message_timestamp_after_max_ms=2 * DAY, durability="os"
    )
    clock.now -= DAY
    log.append(batch("x", timestamp=NOW - HOUR))
    log.append(batch("x", timestamp=NOW - HOUR + 10))
    assert len(log.segments) == 2
    log.close()


def test_a_partition_with_many_segments_gets_no_more_until_some_are_removed(fs: FaultyFileSystem) -> None:
    log = open_log(fs, segment_bytes=200, max_segments=5, durability="os")
    for number in range(50):
        log.append(batch(f"value {number}"))
    assert len(log.segments) == 5
    assert values(log.batches()) == [f"value {number}" for number in range(50)]
    log.flush()
    assert log.segments.active.base_offset < 10
    log.delete_records_before(log.segments.active.base_offset)
    log.append(batch("y"))
    log.append(batch("z"))
    assert len(log.segments) > 1, "there is room for segments of the size that was asked for"
    log.close()


# --- producers and the wall clock ------------------------------------------------------------------------------------


class TwoClocks(StandingClock):
    """The wall clock jumps, the monotonic one does not."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


def sequenced(number: int) -> bytearray:
    return bytearray(encode_batch([Record(0, NOW, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=number))


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("jump_ms", [3 * DAY, -3 * DAY, 3000 * DAY])
def test_a_jump_of_the_wall_clock_forgets_no_producer(fs: FaultyFileSystem, jump_ms: int, restarted: bool) -> None:
    clock = TwoClocks()
    log = open_log(fs, clock=clock, retention_ms=-1, message_timestamp_after_max_ms=10_000 * DAY, durability="os")
    log.append(sequenced(0))
    if restarted:
        log.close()
        clock.now += jump_ms
        clock.seconds = 5.0
        log = open_log(fs, clock=clock, retention_ms=-1, message_timestamp_after_max_ms=10_000 * DAY, durability="os")
    clock.now += jump_ms
    clock.seconds += 60
    log.retain(clock.now)
    assert log.append(sequenced(0)).duplicate
    clock.seconds += DAY / 1000
    log.retain(clock.now)
    assert len(log.producers) == 0, "a day has passed by the monotonic clock"
    log.close()


# --- snapshots -------------------------------------------------------------------------------------------------------


def snapshots(fs: FaultyFileSystem) -> list[int]:
    return sorted(int(name[:20]) for name in fs.list(f"{DATA}/t-0") if name.endswith(".snapshot"))


def test_compaction_leaves_snapshots_only_where_segments_begin(fs: FaultyFileSystem) -> None:
    log = open_log(fs, cleanup_policy=("compact",), segment_bytes=200, durability="os")
    for number in range(40):
        log.append(batch(f"value {number}", key=b"k%d" % (number % 3)))
    log.flush()
    assert len(snapshots(fs)) > 10
    log.update_config(LogConfig(cleanup_policy=("compact",), durability="os"))  # segments may be joined
    Cleaner(fs).clean(log, 0, NOW)
    bases = {segment.base_offset for segment in log.segments}
    assert set(snapshots(fs)) <= bases
    assert len(bases) < 5
    log.close()


def test_compaction_does_not_list_the_directory_for_each_segment_that_it_replaces(
    fs: FaultyFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(fs, cleanup_policy=("compact",), segment_bytes=200, durability="os")
    for number in range(100):
        log.append(batch(f"value {number}", key=b"k%d" % number))
    log.flush()
    listed: list[str] = []
    list_directory = fs.list

    def listing(directory: str) -> list[str]:
        listed.append(directory)
        return list_directory(directory)

    monkeypatch.setattr(fs, "list", listing)
    Cleaner(fs).clean(log, 0, NOW)
    assert len(log.segments) > 10
    assert len(listed) <= 1
    log.close()


def test_clean_restarts_leave_no_snapshot_behind_but_the_newest(fs: FaultyFileSystem) -> None:
    for number in range(6):
        log = open_log(fs, point=LoadPoint(clean=True), unsaved_bytes=0)
        assert log.append(sequenced(number)).base_offset == number
        log.close()
    assert snapshots(fs) == [5, 6], "the one that the last start began with, and the one of the last stop"
    log = open_log(fs, point=LoadPoint(clean=True))
    assert snapshots(fs) == [6]
    assert log.append(sequenced(5)).duplicate
    log.close()


# --- loaded indexes --------------------------------------------------------------------------------------------------


async def filled(manager: LogManager, partitions: int) -> None:
    """Partitions with ten segments each, whose indexes have an entry per batch."""
    await manager.start()
    for index in range(partitions):
        log = manager.create("t", index, LogConfig(segment_bytes=1000, index_interval_bytes=0, durability="os"))
        for number in range(120):
            log.append(batch(f"value {number}", timestamp=NOW + number))
        assert len(log.segments) == 10


async def test_indexes_of_all_logs_together_take_no_more_memory_than_allowed(fs: FaultyFileSystem) -> None:
    manager = new_manager(fs, index_cache_bytes=1000)
    await filled(manager, 3)
    cache = manager._indexes
    for number in range(500):
        log = manager.get("t", number % 3)
        assert log is not None
        sought = number * 7 % 120
        assert log.offset_for_timestamp(NOW + sought)[1] == sought
        assert values_of(at_once(log.read(sought, 1, IsolationLevel.READ_COMMITTED)).records) == [f"value {sought}"]
        assert 0 < cache.used_bytes <= 1000
        assert cache.used_bytes == sum(
            segment.loaded_index_bytes for log in manager.logs() for segment in list(log.segments)[:-1]
        )
    log = manager.get("t", 0)
    assert log is not None
    log.delete_records_before(100)
    await manager.start_offsets_on_disk()
    await manager.delete([("t", 1)])
    assert cache.used_bytes == sum(
        segment.loaded_index_bytes for log in manager.logs() for segment in list(log.segments)[:-1]
    )
    await manager.stop()


async def test_files_of_all_logs_together_have_no_more_descriptors_than_allowed(fs: FaultyFileSystem) -> None:
    manager = new_manager(PooledFileSystem(fs, 4), index_cache_bytes=0)  # type: ignore[arg-type]
    await filled(manager, 3)
    for index in range(3):
        log = manager.get("t", index)
        assert log is not None
        assert values(log.batches()) == [f"value {number}" for number in range(120)]
        assert fs.open_files <= 4
    await manager.stop()
    assert fs.open_files == 0


def test_the_indexes_of_the_segment_used_longest_ago_are_forgotten(fs: FaultyFileSystem) -> None:
    class Segment:
        def __init__(self, size: int) -> None:
            self.loaded_index_bytes = size

        def forget_indexes(self) -> None:
            self.loaded_index_bytes = 0

    cache = IndexCache(100)
    a, b, c, large = Segment(40), Segment(40), Segment(40), Segment(500)
    cache.loaded(a)
    cache.loaded(b)
    cache.touch(a)
    cache.loaded(c)
    assert [segment.loaded_index_bytes for segment in (a, b, c)] == [40, 0, 40]
    cache.loaded(large)
    assert (cache.used_bytes, len(cache)) == (500, 1), "the one in use stays, whatever its size"
    cache.drop(large)
    assert (cache.used_bytes, len(cache)) == (0, 0)


def test_a_batch_whose_offset_cannot_be_in_its_segment_is_damage_not_a_crash(fs: FaultyFileSystem) -> None:
    log = open_log(fs, durability="os", index_interval_bytes=0)
    for number in range(3):
        log.append(batch(str(number)))
    log.close()
    node = fs._get(f"{DATA}/t-0/{0:020}.log")
    size = len(node.data) // 3
    node.data[2 * size] ^= 0x01  # the base offset is not part of the checksum
    with pytest.raises(KafkaError, match="too far"):
        open_log(fs)
