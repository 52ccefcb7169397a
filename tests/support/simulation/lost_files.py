"""Remove files of a broker that it can rebuild from its logs, or replace them by those of an older backup."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from oncelog.broker.log.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    FLUSHED_OFFSET,
    INDEXES,
    LEADER_EPOCHS,
    LOG,
    LOG_START_OFFSETS,
    OFFSET_INDEX,
    RECOVERY_POINTS,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    parse_partition_directory,
    parse_segment_name,
    segment_name,
)
from support.faulty_filesystem import FaultyFileSystem

from .broker import DATA

_OF_THE_BROKER = (RECOVERY_POINTS, LOG_START_OFFSETS, CLEANER_OFFSETS, CLEAN_SHUTDOWN)


class Loss:
    """Files to lose. `target` is 0 for indexes, 1 for producer snapshots and marks of partitions, 2 for checkpoints.

    With `may_be_older`, some checkpoints become as they were when this object was created. This is not possible if
    topics are recreated, because the checkpoints would describe the earlier topics, or if records are deleted: with an
    older log start offset, segments seem to be lost, and the partition stays offline.
    """

    def __init__(self, fs: FaultyFileSystem, rng: Random, target: int, *, may_be_older: bool) -> None:
        self._fs = fs
        self._rng = rng
        self._target = target
        self._older = {path: fs.read_file(path) for path in _checkpoints(fs)} if may_be_older else {}

    def happen(self) -> None:
        """Lose some of the files, while the broker is down."""
        self._fs.heal_operations()  # a pending fault was meant for the broker
        if self._target == 0:
            remove_indexes(self._fs, self._rng)
        elif self._target == 1:
            self._remove_marks()
        else:
            self._change_checkpoints()

    def _remove_marks(self) -> None:
        share = self._rng.choice((0.2, 1.0))
        for directory in _partitions(self._fs):
            for name in sorted(self._fs.list(directory)):
                is_one = name.endswith(SNAPSHOT) or name in (LEADER_EPOCHS, FLUSHED_OFFSET)
                if is_one and self._rng.random() < share:
                    self._fs.unlink(f"{directory}/{name}")

    def _change_checkpoints(self) -> None:
        for path in list(_checkpoints(self._fs)):
            fate = self._rng.random()
            if fate < 0.4:
                self._fs.unlink(path)
            elif fate < 0.8 and path in self._older:
                file = self._fs.open(path)
                file.truncate(0)
                file.write_at([self._older[path]], 0)
                file.fdatasync()
                file.close()


def remove_indexes(fs: FaultyFileSystem, rng: Random) -> None:
    """Remove random index files, even if they are in use.

    Either all index files of a segment are removed, or its checksums stay. The broker takes a segment without checksums
    and without a transaction index for one that Apache Kafka wrote and that has no aborted transactions.
    """
    share = rng.choice((0.2, 1.0))
    for directory in _partitions(fs):
        for name in sorted(fs.list(directory)):
            parsed = parse_segment_name(name)
            if parsed is None or parsed[1] != LOG:
                continue
            lost = rng.choice((INDEXES, (OFFSET_INDEX,), (TIME_INDEX,), (TXN_INDEX,)))
            if rng.random() < share:
                for kind in lost:
                    path = f"{directory}/{segment_name(parsed[0], kind)}"
                    if fs.exists(path):
                        fs.unlink(path)


def _checkpoints(fs: FaultyFileSystem) -> Iterator[str]:
    for name in _OF_THE_BROKER:
        if fs.exists(f"{DATA}/{name}"):
            yield f"{DATA}/{name}"


def _partitions(fs: FaultyFileSystem) -> list[str]:
    return [f"{DATA}/{name}" for name in sorted(fs.list(DATA)) if parse_partition_directory(name) is not None]
