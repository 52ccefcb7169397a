"""The sound part of a damaged log: what readers see of it, what they never see, and that nothing of it is changed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from oncelog.broker.log import AppendOrigin, IsolationLevel, LogConfig, LogManager, LogRead, PartitionLog
from oncelog.broker.log.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS
from oncelog.broker.log.read_only_files import ReadOnlyFileSystem
from oncelog.broker.log.read_only_log import ReadOnlyLog
from oncelog.broker.log.repair import inspect, repair
from oncelog.protocol.batch_header import BatchHeader, stamp
from oncelog.protocol.control_records import control_batch
from oncelog.protocol.errors import ErrorCode, KafkaError
from oncelog.protocol.records import decode_batch, iter_batches
from support.faulty_filesystem import FaultyFileSystem
from support.logs import NOW, at_once, batch, flip, new_manager, values_of

KEYS = (b"a", b"b", b"c")
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
DIRECTORY = "/data/t-0"


def path(base: int, kind: str = ".log") -> str:
    return f"{DIRECTORY}/{base:020}{kind}"


def content(fs: FaultyFileSystem, directory: str = DIRECTORY) -> dict[str, bytes]:
    return {name: fs.read_file(f"{directory}/{name}") for name in fs.list(directory)}


def bases(fs: FaultyFileSystem) -> list[int]:
    return sorted(int(name[:20]) for name in fs.list(DIRECTORY) if name.endswith(".log"))


def lose(fs: FaultyFileSystem, base: int) -> None:
    """A segment is missing, with all that belongs to it."""
    for name in fs.list(DIRECTORY):
        if name.startswith(f"{base:020}"):
            fs.unlink(f"{DIRECTORY}/{name}")


def created(fs: FaultyFileSystem, topic: str = "t", **config: Any) -> tuple[LogManager, PartitionLog]:
    manager = new_manager(fs)
    manager.open()
    return manager, manager.create(topic, 0, LogConfig(**{"segment_bytes": 320, "index_interval_bytes": 0, **config}))


def killed(fs: FaultyFileSystem, manager: LogManager) -> None:
    """The process ends after a flush of everything, and after a checkpoint."""
    for log in manager.logs():
        log.flush()
    manager.checkpoints.write(RECOVERY_POINTS, {(log.topic, 0): log.log_end_offset for log in manager.logs()})
    manager.checkpoints.write(LOG_START_OFFSETS, {(log.topic, 0): log.log_start_offset for log in manager.logs()})
    manager.abandon()
    fs.kill()


def opened(fs: FaultyFileSystem) -> tuple[LogManager, ReadOnlyLog]:
    manager = new_manager(fs)
    manager.open()
    assert manager.offline.keys() == {("t", 0)}
    return manager, manager.read_only["t", 0]


def marker(log: PartitionLog, producer_id: int, *, commit: bool) -> int:
    data = bytearray(control_batch(commit, 0, producer_id, 0, NOW))
    return log.append(data, origin=AppendOrigin.COORDINATOR).last_offset


def refused(call: Callable[[], object]) -> bool:
    """Whether `call` raises KAFKA_STORAGE_ERROR; anything else that it raises is a failure."""
    try:
        call()
    except KafkaError as error:
        if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
            raise
        return True
    return False


# --- a consumer ------------------------------------------------------------------------------------------------------


def consumed(read: LogRead) -> Iterator[tuple[BatchHeader, list[tuple[int, str]]]]:
    """(header, (offset, value) of each record) of the batches that a consumer returns, aborted ones left out."""
    aborted = sorted(read.aborted or [], key=lambda entry: entry[1])
    dropping: set[int] = set()
    for position, header in iter_batches(read.records):
        while aborted and aborted[0][1] <= header.last_offset:
            dropping.add(aborted.pop(0)[0])
        if header.is_control:
            dropping.discard(header.producer_id)
            yield header, []
        elif header.is_transactional and header.producer_id in dropping:
            yield header, []
        else:
            records = decode_batch(read.records, position, header)
            yield header, [(record.offset, (record.value or b"").decode()) for record in records]


def read_to_the_end(log: PartitionLog, isolation: IsolationLevel, max_bytes: int) -> tuple[int, list[tuple[int, str]]]:
    """(the offset at which a consumer gets KAFKA_STORAGE_ERROR, what it has read until then)."""
    offset, records = log.log_start_offset, list[tuple[int, str]]()
    while True:
        try:
            with log.reader.side_reads.at_once():
                read = at_once(log.read(offset, max_bytes, isolation))
        except KafkaError as error:
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            return offset, records
        assert read.records, "an empty answer would have the consumer wait for ever"
        for header, batch_records in consumed(read):
            records += [record for record in batch_records if record[0] >= offset]
            following = header.next_offset
        assert following > offset
        offset = following


# --- any history, any damage -----------------------------------------------------------------------------------------


@dataclass
class History:
    """What was appended: (offset, value, number of the transaction or -1) of each record, and of each transaction its
    first offset, the offset of its marker (-1: none) and whether it was committed."""

    records: list[tuple[int, str, int]] = field(default_factory=list)
    transactions: list[list[int]] = field(default_factory=list)
    end_offset: int = 0

    def visible(self, start: int, end: int) -> list[tuple[int, str]]:
        return [(offset, value) for offset, value, _ in self.records if start <= offset < end]

    def stable(self, end: int) -> int:
        """The last stable offset of the log up to `end`."""
        undecided = [first for first, marker, _ in self.transactions if first < end and not -1 < marker < end]
        return min([end, *undecided])

    def committed(self, start: int, end: int) -> list[tuple[int, str]]:
        aborted = {number for number, row in enumerate(self.transactions) if -1 < row[1] < end and not row[2]}
        return [
            (offset, value)
            for offset, value, number in self.records
            if start <= offset < self.stable(end) and number not in aborted
        ]


async def write(manager: LogManager, log: PartitionLog, rng: random.Random) -> History:
    history = History()
    sequences: dict[int, int] = dict.fromkeys((1, 2, 3), 0)
    current: dict[int, int] = {}
    for step in range(rng.randrange(15, 40)):
        producer_id = rng.choice((-1, 1, 2, 3))
        if producer_id in current and rng.random() < 0.5:
            number, commit = current.pop(producer_id), rng.random() < 0.5
            history.transactions[number][1:] = marker(log, producer_id, commit=commit), commit
            continue
        texts = [f"value {step}.{number}" for number in range(rng.choice((1, 1, 3)))]
        if producer_id < 0:
            offset = log.append(batch(*texts, key=rng.choice(KEYS))).base_offset
        else:
            fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequences[producer_id]}
            data = batch(*texts, key=rng.choice(KEYS), transactional=True, **fields)
            offset = log.append(data).base_offset
            sequences[producer_id] += len(texts)
            if producer_id not in current:
                current[producer_id] = len(history.transactions)
                history.transactions.append([offset, -1, 0])
        number = current.get(producer_id, -1)
        history.records += [(offset + delta, text, number) for delta, text in enumerate(texts)]
        if rng.random() < 0.1:
            log.saved_state.save_grown()
        if log.config.compacted and rng.random() < 0.1:
            await manager._clean_all()
    log.flush()
    if rng.random() < 0.3:
        log.delete_records_before(rng.randrange(log.log_end_offset // 2))
    kept = {offset for header, data in log.batches() for offset in offsets_in(header, data)}
    history.records = [record for record in history.records if record[0] in kept]
    history.end_offset = log.log_end_offset
    return history


def offsets_in(header: BatchHeader, data: memoryview) -> list[int]:
    return [record.offset for record in decode_batch(data, 0, header)]


def rot(fs: FaultyFileSystem, rng: random.Random) -> None:
    """Flip a bit or a byte of a segment, cut it, or lose it."""
    base = rng.choice(bases(fs))
    kind = rng.choice(("header", "offset", "byte", "cut", "lost"))
    if kind == "lost":
        lose(fs, base)
        return
    data = fs.read_file(path(base))
    if not data:
        return
    position = rng.randrange(len(data))
    if kind in ("header", "offset"):  # the low byte of an offset: what is wrong looks possible
        position = rng.choice([at for at, _ in iter_batches(data)]) + (rng.randrange(27) if kind == "header" else 7)
    if kind == "cut":
        file = fs.open(path(base))
        file.truncate(position)
        file.fdatasync()
        file.close()
    else:
        changed = bytearray(data)
        changed[position] ^= rng.choice((0xFF, 1, 2, 4))
        file = fs.open(path(base))
        file.write_at([changed], 0)
        file.fdatasync()
        file.close()


@pytest.mark.parametrize("seed", [*range(300), 1719, 5584, 6382])
async def test_of_any_damaged_log_nothing_but_what_was_written_is_read(seed: int) -> None:
    rng = random.Random(seed)
    fs = FaultyFileSystem()
    manager = new_manager(fs)
    await manager.start()
    config = LogConfig(
        segment_bytes=rng.choice((300, 700)),
        index_interval_bytes=rng.choice((0, 200, 4096)),
        unsaved_bytes=rng.choice((0, 32 * 1024)),
        cleanup_policy=rng.choice((("delete",), ("delete",), ("compact",))),
        min_cleanable_dirty_ratio=0.0,
    )
    log = manager.create("t", 0, config)
    history = await write(manager, log, rng)
    start = log.log_start_offset
    how = rng.choice(("stopped", "killed", "power"))
    if how == "stopped":
        await manager.stop()
    else:
        log.flush()
        if rng.random() < 0.5:
            manager.checkpoints.write(RECOVERY_POINTS, {("t", 0): log.log_end_offset})
        manager.checkpoints.write(LOG_START_OFFSETS, {("t", 0): start})
        manager.abandon()
        if how == "power":
            fs.sync_directory("/data")
            fs.crash(rng)
        else:
            fs.kill()
    rot(fs, rng)
    manager = new_manager(fs)
    manager.open()
    if not manager.read_only:
        manager.abandon()
        return
    before, checkpoints = content(fs), manager.checkpoints.read(RECOVERY_POINTS) or {}
    manager.abandon()
    for _ in range(2):
        manager = new_manager(fs)
        await manager.start()
        sound = manager.read_only["t", 0]
        end = sound.log_end_offset
        assert start == sound.log_start_offset < end <= history.end_offset
        for max_bytes in (1, 250, 1 << 20):
            assert read_to_the_end(sound, UNCOMMITTED, max_bytes) == (end, history.visible(start, end))
            stopped_at, records = read_to_the_end(sound, COMMITTED, max_bytes)
            assert (stopped_at, records) == (max(history.stable(end), start), history.committed(start, end))
        assert sound.last_stable_offset == max(history.stable(end), start)
        for offset in range(end, history.end_offset + 3):
            assert refused(partial(sound.read, offset, 100))
            assert sound.readable_bytes(offset, 100) == 0, "a Fetch waits before it gets the error"
        assert sound.offset_for_timestamp(-2)[1] == start
        assert refused(partial(sound.offset_for_timestamp, -1))
        await manager.stop()
        assert content(fs) == before
        assert manager.checkpoints.read(RECOVERY_POINTS) == checkpoints
    repair("/data", fs)
    manager = new_manager(fs)
    manager.open()
    assert not manager.offline
    manager.abandon()


# --- what is refused -------------------------------------------------------------------------------------------------


def three_segments(fs: FaultyFileSystem) -> list[int]:
    """A log of ten batches in three segments, as a kill leaves it; returns where the segments begin."""
    manager, log = created(fs)
    for number in range(10):
        log.append(batch(f"value {number}", timestamp=NOW + number), leader_epoch=number // 4)
    killed(fs, manager)
    assert len(bases(fs)) == 3
    return bases(fs)


def test_everything_but_reading_is_refused(fs: FaultyFileSystem) -> None:
    lose(fs, three_segments(fs)[2])
    manager, log = opened(fs)
    assert refused(lambda: manager.get("t", 0))
    assert refused(lambda: manager.create("t", 0, LogConfig()))
    assert list(manager.logs()) == []
    for call in (
        lambda: log.append(batch("more"), leader_epoch=9),
        lambda: log.inspection_of(batch("more")),
        lambda: marker(log, 1, commit=True),
        lambda: log.delete_records_before(1),
        lambda: log.delete_records_before(0),
        lambda: log.delete_records_before(-1),
        lambda: log.delete_records_before(1 << 40),
        lambda: list(log.batches()),
        lambda: list(log.windows()),
        log.roll,
    ):
        assert refused(call)
    assert not log.has_grown
    assert log.files.begin_flush() is None
    assert log.failure is not None
    assert log.failure is manager.offline["t", 0]
    assert path(log.segments.active.base_offset) in log.failure.message
    assert "offset 8" in log.failure.message
    assert "oncelog log repair" in log.failure.message
    manager.abandon()
    assert fs.open_files == 0


def test_offsets_by_time_are_told_where_the_damage_cannot_change_them(fs: FaultyFileSystem) -> None:
    lose(fs, three_segments(fs)[2])
    manager, log = opened(fs)
    for number in range(8):
        assert log.offset_for_timestamp(NOW + number)[1] == number
    for timestamp in (NOW + 8, NOW + 100, -1, -3):
        assert refused(partial(log.offset_for_timestamp, timestamp))
    assert log.offset_for_timestamp(-2)[1] == log.offset_for_timestamp(-4)[1] == 0
    with pytest.raises(KafkaError) as caught:
        log.offset_for_timestamp(-9)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert caught.value.message.startswith(f"{log.name}: timestamp -9 ")
    manager.abandon()


def test_a_leader_epoch_that_may_end_behind_the_damage_has_no_known_end(fs: FaultyFileSystem) -> None:
    lose(fs, three_segments(fs)[2])  # epoch 0: offsets 0 to 3, epoch 1: 4 to 7, epoch 2 is lost
    manager, log = opened(fs)
    assert log.end_offset_for_epoch(0) == (0, 4)
    for epoch in (1, 2, 7):
        assert refused(partial(log.end_offset_for_epoch, epoch))
    manager.abandon()


def test_transactions_that_are_open_at_the_damage_are_not_shown(fs: FaultyFileSystem) -> None:
    manager, log = created(fs, segment_bytes=1 << 20)

    def append(producer_id: int, text: str, sequence: int = 0) -> int:
        fields: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        return log.append(batch(text, transactional=True, **fields)).base_offset

    append(1, "aborted")
    append(2, "committed")
    marker(log, 1, commit=False)
    marker(log, 2, commit=True)
    log.append(batch("plain"))
    undecided = append(3, "marker is lost")
    log.append(batch("behind"))
    log.roll()
    marker(log, 3, commit=True)
    damaged = marker(log, 3, commit=True) - 1
    killed(fs, manager)
    flip(fs, path(damaged), 16)
    manager, sound = opened(fs)
    assert sound.log_end_offset == damaged
    assert sound.last_stable_offset == undecided
    texts = ["aborted", "committed", "plain", "marker is lost", "behind"]
    assert [text for _, text in read_to_the_end(sound, UNCOMMITTED, 1 << 20)[1]] == texts
    stopped_at, records = read_to_the_end(sound, COMMITTED, 1 << 20)
    assert (stopped_at, [text for _, text in records]) == (undecided, ["committed", "plain"])
    assert sound.readable_bytes(undecided, 1, COMMITTED) == 0
    assert refused(lambda: sound.offset_for_timestamp(-1, COMMITTED))
    manager.abandon()


def test_a_batch_that_a_wrong_offset_moves_behind_the_next_segment_ends_the_sound_part(fs: FaultyFileSystem) -> None:
    """The segment is read again, because its indexes do not show which of its batches has the wrong offset."""
    first = three_segments(fs)[0]
    data = fs.read_file(path(first))
    last = [at for at, _ in iter_batches(data)][-1]
    flip(fs, path(first), last + 6)
    manager, log = opened(fs)
    assert log.log_end_offset == 3
    assert [text for _, text in read_to_the_end(log, UNCOMMITTED, 1 << 20)[1]] == [f"value {n}" for n in range(3)]
    manager.abandon()


# --- what stays offline ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state", "__cluster_metadata"])
def test_internal_topics_are_not_served_in_part(fs: FaultyFileSystem, topic: str) -> None:
    manager, log = created(fs, topic)
    for number in range(10):
        log.append(batch(f"value {number}"))
    active = log.segments.active.base_offset
    killed(fs, manager)
    flip(fs, f"/data/{topic}-0/{active:020}.log", 16)
    manager = new_manager(fs)
    manager.open()
    assert manager.offline.keys() == {(topic, 0)}
    assert manager.read_only == {}
    manager.abandon()


def two_stories(fs: FaultyFileSystem, bases: list[int]) -> None:
    """The last batch of the first segment has one more record, whose offset is also that of the second segment."""
    data = fs.read_file(path(bases[0]))
    last = [at for at, _ in iter_batches(data)][-1]
    longer = batch("value 3", "not 4", producer_id=1, producer_epoch=0, base_sequence=3)
    stamp(longer, 0, bases[1] - 1, 0)
    file = fs.open(path(bases[0]))
    file.write_at([longer], last)
    file.close()


def wrong_offset_before_sound_ones(fs: FaultyFileSystem, bases: list[int]) -> None:
    """The second batch says that it is at offset 2, so that the third one, which is sound, seems to be damaged."""
    fs.unlink(f"{DIRECTORY}/flushed-offset")
    fs.unlink("/data/recovery-point-offset-checkpoint")
    data = fs.read_file(path(bases[0]))
    file = fs.open(path(bases[0]))
    file.write_at([b"\x02"], [at for at, _ in iter_batches(data)][1] + 7)
    file.close()


def wrong_offset_where_gaps_may_be(fs: FaultyFileSystem, bases: list[int]) -> None:
    """The same where it is not known how far compaction came."""
    wrong_offset_before_sound_ones(fs, bases)
    fs.unlink("/data/cleaner-offset-checkpoint")


def first_segment_missing(fs: FaultyFileSystem, bases: list[int]) -> None:
    lose(fs, bases[0])


def first_batch(fs: FaultyFileSystem, bases: list[int]) -> None:
    """All that was on disk for certain, so that the first segment is scanned, is the batch that has rotted."""
    fs.unlink(f"{DIRECTORY}/flushed-offset")
    fs.unlink("/data/recovery-point-offset-checkpoint")
    flip(fs, path(bases[0]), 16)


@pytest.mark.parametrize(
    "damage",
    [
        first_segment_missing,
        first_batch,
        wrong_offset_before_sound_ones,
        wrong_offset_where_gaps_may_be,
        two_stories,
    ],
)
def test_where_no_part_is_known_to_be_sound_the_partition_is_offline(
    fs: FaultyFileSystem, damage: Callable[[FaultyFileSystem, list[int]], None]
) -> None:
    manager, log = created(fs)
    for number in range(10):
        log.append(batch(f"value {number}", producer_id=1, producer_epoch=0, base_sequence=number))
    killed(fs, manager)
    damage(fs, bases(fs))
    manager = new_manager(fs)
    manager.open()
    assert manager.offline.keys() == {("t", 0)}
    assert manager.read_only == {}
    assert refused(lambda: manager.get("t", 0))
    manager.abandon()
    assert fs.open_files == 0


def test_a_damaged_snapshot_is_passed_over_and_stays(fs: FaultyFileSystem) -> None:
    manager, log = created(fs)
    for number in range(10):
        log.append(batch(f"value {number}", producer_id=1, producer_epoch=0, base_sequence=number))
    killed(fs, manager)
    base = bases(fs)[2]
    flip(fs, path(base), 16)
    flip(fs, path(base, ".snapshot"), 4)
    manager = new_manager(fs)
    manager.open()
    assert [log.log_end_offset for log in manager.read_only.values()] == [base]
    assert fs.exists(path(base, ".snapshot"))
    manager.abandon()
    assert fs.open_files == 0


@pytest.mark.parametrize("operation", ["open", "read", "fdatasync", "sync_directory"])
def test_a_disk_that_fails_again_leaves_the_partition_offline(fs: FaultyFileSystem, operation: str) -> None:
    """Whatever fails while the sound part is opened; the broker starts, and shows the other partitions."""
    flip(fs, path(three_segments(fs)[1]), 16)
    fs.unlink("/data/recovery-point-offset-checkpoint")
    fs.unlink(f"{DIRECTORY}/flushed-offset")

    def calls() -> int:
        counted = 0

        def count(kind: str, name: str) -> None:
            nonlocal counted
            counted += kind == operation and name.startswith(DIRECTORY)

        fs.before = count
        manager, _ = opened(fs)
        fs.before = None
        manager.abandon()
        fs.kill()
        return counted

    total = calls()
    assert total
    seen = 0

    def fail_last(kind: str, name: str) -> None:
        nonlocal seen
        seen += kind == operation and name.startswith(DIRECTORY)
        if seen == total and kind == operation:
            raise OSError(5, "Input/output error", name)

    fs.before = fail_last
    manager = new_manager(fs)
    manager.open()
    fs.before = None
    assert manager.offline.keys() == {("t", 0)}
    assert manager.read_only == {}
    manager.abandon()
    assert fs.open_files == 0


# --- nothing is written, and no more is read -------------------------------------------------------------------------


def test_indexes_of_the_sound_part_that_are_lost_are_made_again_in_memory(fs: FaultyFileSystem) -> None:
    manager, log = created(fs, segment_bytes=1 << 20)
    for number in range(4):
        log.append(batch("aborted", producer_id=1, producer_epoch=0, base_sequence=number, transactional=True))
        marker(log, 1, commit=False)
        log.append(batch(f"value {number}"))
        log.roll()
    killed(fs, manager)
    lose(fs, 9)
    manager, sound = opened(fs)
    for kind in (".index", ".timeindex", ".txnindex", ".checksums"):
        fs.unlink(path(3, kind))  # while the broker runs
    before = content(fs)
    for _ in range(2):
        values = [text for _, text in read_to_the_end(sound, COMMITTED, 100)[1]]
        assert values == ["value 0", "value 1", "value 2"]
        for segment in sound.segments:
            segment.release()
    assert content(fs) == before
    manager.abandon()


def test_indexes_that_were_not_on_disk_for_certain_are_not_read_from_their_files(fs: FaultyFileSystem) -> None:
    """A kill left the index files of a finished segment without that of aborted transactions."""
    manager, log = created(fs, segment_bytes=1 << 20)
    for number in range(4):
        log.append(batch("aborted", producer_id=1, producer_epoch=0, base_sequence=number, transactional=True))
        marker(log, 1, commit=False)
        log.append(batch(f"value {number}"))
        log.roll()
    manager.abandon()
    fs.kill()
    fs.unlink(path(0, ".txnindex"))
    fs.unlink(path(0, ".checksums"))
    lose(fs, 9)
    manager = new_manager(fs, index_cache_bytes=1)
    manager.open()
    sound = manager.read_only["t", 0]
    for _ in range(2):
        assert [text for _, text in read_to_the_end(sound, COMMITTED, 100)[1]] == ["value 0", "value 1", "value 2"]
    manager.abandon()


@pytest.mark.parametrize("more", ["flipped bit", "missing file"])
def test_a_reader_that_finds_more_damage_gets_the_error_and_the_log_says_so(
    fs: FaultyFileSystem, capsys: pytest.CaptureFixture[str], more: str
) -> None:
    lose(fs, three_segments(fs)[2])
    manager, sound = opened(fs)
    if more == "flipped bit":
        flip(fs, path(0), 16)
    else:
        fs.unlink(path(0))
    capsys.readouterr()
    assert refused(lambda: sound.read(0, 50))
    assert refused(lambda: sound.read(0, 50))
    assert capsys.readouterr().out.count("read failed") == 1
    assert values_of(at_once(sound.read(5, 1000)).records)[-1] == "value 7"
    manager.abandon()


def test_segments_below_the_recovery_point_are_not_scanned_for_the_sound_part(fs: FaultyFileSystem) -> None:
    manager, log = created(fs)
    for number in range(40):
        log.append(batch(f"value {number}", producer_id=1, producer_epoch=0, base_sequence=number))
    killed(fs, manager)
    *finished, damaged = bases(fs)
    flip(fs, path(damaged), -20)
    reads: list[str] = []
    fs.before = lambda operation, name: reads.append(name) if operation == "read" and name.endswith(".log") else None
    manager, _ = opened(fs)
    fs.before = None
    for base in finished:
        assert reads.count(path(base)) == 2, "each of the two loads reads the last header of a finished segment"
    manager.abandon()


def test_a_loss_of_power_does_not_take_back_what_was_shown(fs: FaultyFileSystem) -> None:
    manager, log = created(fs, segment_bytes=1 << 20)
    for number in range(6):
        log.append(batch(f"value {number}"))
    position = log.segments.active.position_of(4)
    manager.abandon()
    fs.kill()  # nothing was flushed: it is in the page cache
    fs.sync_directory("/data")
    fs._get(path(0)).data[position + 16] ^= 1  # a valid batch follows: no torn write
    manager, sound = opened(fs)
    assert read_to_the_end(sound, UNCOMMITTED, 1000)[0] == 4
    manager.abandon()
    fs.crash(random.Random(1))
    assert len(list(iter_batches(fs.read_file(path(0))[:position]))) == 4


async def test_the_checkpoints_keep_what_they_keep_of_an_offline_partition(fs: FaultyFileSystem) -> None:
    manager, log = created(fs)
    for number in range(10):
        log.append(batch(f"value {number}"))
    log.flush()
    log.delete_records_before(2)
    healthy = manager.create("u", 0, LogConfig())
    healthy.append(batch("a"))
    killed(fs, manager)
    lose(fs, bases(fs)[2])
    before = content(fs)
    for _ in range(3):
        manager = new_manager(fs, checkpoint_interval_ms=1)
        await manager.start()
        assert manager.read_only["t", 0].log_start_offset == 2
        manager._checkpoint()
        await manager._retain_all()
        await manager._clean_all()
        manager._start_offset_moved(lambda: None)
        await manager.start_offsets_on_disk()
        await manager.stop()
        assert (manager.checkpoints.read(RECOVERY_POINTS) or {})["t", 0] == 10
        assert (manager.checkpoints.read(LOG_START_OFFSETS) or {})["t", 0] == 2
        assert content(fs) == before
    (damage,) = inspect("/data", fs)
    assert damage.lost_from_offset == 8


async def test_a_read_only_partition_is_deleted_with_its_open_files(fs: FaultyFileSystem) -> None:
    lose(fs, three_segments(fs)[2])
    manager = new_manager(fs)
    await manager.start()
    sound = manager.read_only["t", 0]
    assert at_once(sound.read(0, 100)).records
    await manager.delete([("t", 0)])
    assert not manager.holds("t", 0)
    with pytest.raises(KafkaError) as caught:
        sound.read(0, 100)
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    made_anew = manager.create("t", 0, LogConfig())
    assert made_anew.append(batch("new")).base_offset == 0
    await manager.stop()
    assert fs.open_files == 0


WRITING: dict[str, Callable[[ReadOnlyFileSystem], object]] = {
    "create": lambda files: files.open("/data/new", create=True),
    "create again": lambda files: files.open("/data/file", create=True),
    "write": lambda files: files.open("/data/file").write_at([b"x"], 0),
    "truncate": lambda files: files.open("/data/file").truncate(1),
    "overwrite": lambda files: files.overwrite("/data/file", b"x"),
    "make_directory": lambda files: files.make_directory("/data/new"),
    "rename": lambda files: files.rename("/data/file", "/data/other"),
    "unlink": lambda files: files.unlink("/data/file"),
    "remove_directory": lambda files: files.remove_directory("/data/empty"),
    "lock": lambda files: files.lock("/data", ".lock"),
}


@pytest.mark.parametrize("call", WRITING.values(), ids=WRITING)
def test_a_read_only_file_system_refuses_to_change_anything(
    fs: FaultyFileSystem, call: Callable[[ReadOnlyFileSystem], object]
) -> None:
    fs.make_directory("/data/empty")
    file = fs.open("/data/file", create=True)
    file.write_at([b"content"], 0)
    file.close()
    with pytest.raises(OSError, match=r"[Rr]ead-only file system"):
        call(ReadOnlyFileSystem(fs))
    assert sorted(fs.list("/data")) == ["empty", "file"]
    assert fs.read_file("/data/file") == b"content"
