"""One changed bit or one missing segment anywhere in a partition: what a start serves, and what one repair leaves.

The repair removes nothing that a start would serve, except records after the damage. After it, a start serves the
partition, and a second repair finds nothing. Some logs have gaps: their own compaction leaves them within segments,
and Apache Kafka's at the end of segments, too.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from oncelog.broker.log import LogConfig, PartitionLog
from oncelog.broker.log.cleaner import Cleaner
from oncelog.broker.log.repair import inspect, repair
from oncelog.protocol.batch_header import BatchHeader
from oncelog.protocol.records import decode_batch, iter_batches
from support.faulty_filesystem import FaultyFileSystem
from support.logs import DATA, NOW, batch, end_life, new_manager

SEEDS = 300
PARTITION = f"{DATA}/t-0"
LOW_OFFSET = 7
"""The byte of a batch header that changes its offset the least."""
LEADER_EPOCH = range(12, 16)
"""Bytes of a batch header that neither a checksum nor the neighbouring batches protect."""

Records = dict[int, str]
"""Values by their offsets."""


@dataclass
class Stopped:
    """A stopped directory, the records in it, its log start offset, and its log end offset.

    `compacted`: whether there may be gaps within segments. `of_kafka`: whether there are gaps between segments.
    """

    fs: FaultyFileSystem
    records: Records
    start: int
    end: int
    compacted: bool = False
    of_kafka: bool = False


def filled(rng: random.Random) -> Stopped:
    """Return a directory with one partition. The files of some deleted segments are still there.

    A failed removal leaves such files.
    """
    fs = FaultyFileSystem()
    manager = new_manager(fs)
    manager.open()
    config = LogConfig(
        segment_bytes=rng.choice((250, 400, 2000)),
        index_interval_bytes=rng.choice((0, 150)),
        cleanup_policy=("compact", "delete"),
        min_cleanable_dirty_ratio=0,
    )
    log = manager.create("t", 0, config)
    sizes, keys = rng.choice(((1,), (1, 3), (1, 2, 5))), rng.choice((5, 20))
    for _ in range(rng.randrange(6, 30)):
        values = [f"{log.log_end_offset + number}" for number in range(rng.choice(sizes))]
        key = b"%d" % rng.randrange(keys)
        log.append(batch(*values, key=key, producer_id=1, producer_epoch=0, base_sequence=log.log_end_offset))
    log.flush()
    end, cleaned = log.log_end_offset, 0
    if rng.random() < 0.4:
        if rng.random() < 0.5:
            log.roll()
            log.append(batch(f"{end}"))
            log.flush()
            end += 1
        cleaned = Cleaner(fs).clean(log, 0, NOW) or 0
    end_life(manager, fs, clean=rng.random() < 0.5)
    of_kafka = rng.random() < 0.3 and as_by_kafka(fs, rng)
    records = stored(fs)
    gaps = [offset for offset in range(end) if offset not in records]
    start = rng.choice(gaps) if gaps and rng.random() < 0.5 else rng.randrange(end)
    manager.checkpoints.write("log-start-offset-checkpoint", {("t", 0): start})
    manager.checkpoints.write("cleaner-offset-checkpoint", {("t", 0): cleaned})
    unknown = rng.random() < 0.2
    if unknown:
        fs.unlink(f"{DATA}/cleaner-offset-checkpoint")
    return Stopped(fs, records, start, end, cleaned > 0 or unknown, of_kafka)


def as_by_kafka(fs: FaultyFileSystem, rng: random.Random) -> bool:
    """Make some segments look as if Kafka had written them, and had compacted their last batches away."""
    made = False
    for name in log_files(fs)[:-1]:
        node = fs._get(f"{PARTITION}/{name}")
        positions = [position for position, _ in iter_batches(node.data)]
        if len(positions) > 1 and rng.random() < 0.5:
            del node.data[positions[-1] :]
            node.disk = bytes(node.data)
            fs.unlink(f"{PARTITION}/{name.removesuffix('.log')}.checksums")
            made = True
    if made and fs.exists(f"{PARTITION}/flushed-offset"):
        fs.unlink(f"{PARTITION}/flushed-offset")
        fs.sync_directory(PARTITION)
    return made


def log_files(fs: FaultyFileSystem) -> list[str]:
    return sorted(name for name in fs.list(PARTITION) if name.endswith(".log"))


def stored(fs: FaultyFileSystem) -> Records:
    """Return all records in the files, including deleted ones."""
    found: Records = {}
    for name in log_files(fs):
        data = fs._get(f"{PARTITION}/{name}").data
        for position, header in iter_batches(data):
            found |= texts(memoryview(data)[position : position + header.size], header)
    return found


def texts(data: bytes | memoryview, header: BatchHeader) -> Records:
    return {record.offset: (record.value or b"").decode() for record in decode_batch(data, 0, header)}


def between(records: Records, start: int, end: int) -> Records:
    """Return the records with offsets from `start` to `end` - 1."""
    return {offset: value for offset, value in records.items() if start <= offset < end}


def damaged(seed: int) -> tuple[FaultyFileSystem, Records, Records]:
    """Return a damaged directory, its live records, and those that one repair leaves."""
    rng = random.Random(seed)
    log = filled(rng)
    fs, start, end = log.fs, log.start, log.end
    live = between(log.records, start, end)
    names = log_files(fs)
    bases = [*(int(name.removesuffix(".log")) for name in names), end]
    number = rng.randrange(len(names))
    base, following = bases[number : number + 2]
    if rng.random() < 0.2 and not log.of_kafka:  # the gap of a missing segment would look like Kafka's
        fs.unlink(f"{PARTITION}/{names[number]}")
        if following <= start:
            return fs, live, live
        return fs, live, between(live, following, end) if base == 0 else between(live, start, base)
    node = fs._get(f"{PARTITION}/{names[number]}")
    batches = list(iter_batches(node.data))
    bits = 8
    if log.compacted or log.of_kafka:  # a wrong offset may look like a gap
        flippable = [byte for position, header in batches for byte in range(position + 8, position + header.size)]
        byte = rng.choice(flippable)
    elif rng.random() < 0.3:
        byte, bits = rng.choice(batches)[0] + LOW_OFFSET, 2
    else:
        byte = rng.randrange(len(node.data))
    node.data[byte] ^= 1 << rng.randrange(bits)
    node.disk = bytes(node.data)
    hit = [at for at, (position, _) in enumerate(batches) if position <= byte][-1]
    position, header = batches[hit]
    if byte - position in LEADER_EPOCH or following <= start:
        return fs, live, live
    if header.last_offset >= start:
        return fs, live, between(live, start, header.base_offset)
    if batches[-1][1].last_offset < start or batches[hit + 1][1].base_offset > start:
        return fs, live, {}  # the record at the start offset may have been in the damaged batch
    return fs, live, live


def served(fs: FaultyFileSystem) -> Records | None:
    """Return the live records that a start serves; None if the partition is not writable."""
    manager = new_manager(fs)
    manager.open()
    log = manager.get("t", 0)
    found = None
    if not manager.offline and not manager.lost and log is not None:
        found = live_records(log)
    manager.abandon()
    return found


def live_records(log: PartitionLog) -> Records:
    found: Records = {}
    for header, data in log.batches():
        found |= texts(data, header)
    return between(found, log.log_start_offset, log.log_end_offset)


@pytest.mark.parametrize("share", range(5))
def test_one_repair_leaves_all_records_before_the_damage_and_a_start_serves_them(share: int) -> None:
    for seed in range(share * SEEDS, (share + 1) * SEEDS):
        fs, live, left = damaged(seed)
        damages = inspect(DATA, fs)
        if not damages:
            assert served(fs) == live, f"seed {seed}"
        repair(DATA, fs)
        assert inspect(DATA, fs) == [], f"seed {seed}"
        assert served(fs) == left, f"seed {seed}: {damages}"
